# Both images, for amd64 and arm64: `make images REGISTRY=registry.example.com/precision-profiler` builds and pushes them.
# `make images-check` builds both on a stand-in for their bases (plain Debian) and starts them as the chart does; they
# were not built on the real bases yet, nor for arm64.

# Bases take digests (python@sha256:...). `make images` builds on the digest that a base's tag has at that moment, and
# says so in the image's labels.
# Any image with Python 3.11 or newer.
ARG PYTHON_IMAGE=python:3.13-slim
# Any image with Python 3.11 or newer, torch and Transformer Engine 2.8 or newer; this one has CUDA 13.1, Python 3.12.
ARG PYTORCH_IMAGE=nvcr.io/nvidia/pytorch:25.12-py3

# Each image has a wheel of its own: neither has the test cluster, nor the other one's program.
FROM ${PYTHON_IMAGE} AS wheels
WORKDIR /source
COPY requirements/build.txt ./
RUN pip install --no-cache-dir --require-hashes --no-deps -r build.txt
COPY pyproject.toml LICENSE ./
COPY crds crds
COPY operator operator
COPY agent agent
RUN for image in operator agent; do \
      pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels/$image ./$image || exit 1; done

# Packages go into a folder of their own, which alone is copied: nothing that installing leaves behind is in an image,
# and nothing of a base's own packages is replaced. Modules are compiled here: the root is read-only, and an operator
# that compiles at each start takes three times as long and three times the memory.
FROM ${PYTHON_IMAGE} AS operator-packages
COPY requirements/operator.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes --no-deps --compile \
    --target /opt/precision-operator -r /tmp/requirements.txt
# Copied, not mounted: buildah's layer cache takes a mount from another stage for unchanged (containers/buildah#6609).
COPY --from=wheels /wheels/operator /tmp/wheels
RUN pip install --no-cache-dir --no-deps --compile \
    --target /opt/precision-operator /tmp/wheels/*.whl

FROM ${PYTHON_IMAGE} AS operator
COPY --from=operator-packages /opt/precision-operator /opt/precision-operator
# The user has no entry in /etc/passwd, and so neither a home nor a name, also where a cluster gives each namespace its
# own user ID (OpenShift). Nothing of ours asks for a name; the Kubernetes client asks for a home.
ENV HOME=/tmp
ENV PYTHONPATH=/opt/precision-operator PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST=
LABEL org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}"
USER 65532:65532
ENTRYPOINT ["python", "-m", "precision_operator"]

# Without the base image's list of pinned versions (PIP_CONSTRAINT), which would refuse ours.
FROM ${PYTORCH_IMAGE} AS agent-packages
COPY requirements/agent.txt /tmp/requirements.txt
RUN PIP_CONSTRAINT= pip install --no-cache-dir --require-hashes --no-deps --compile \
    --target /opt/precision-agent -r /tmp/requirements.txt
COPY --from=wheels /wheels/agent /tmp/wheels
RUN PIP_CONSTRAINT= pip install --no-cache-dir --no-deps --compile \
    --target /opt/precision-agent /tmp/wheels/*.whl

FROM ${PYTORCH_IMAGE} AS agent
COPY --from=agent-packages /opt/precision-agent /opt/precision-agent
# Caches of Triton and Inductor go below HOME: /tmp is writable where the root is not. Inductor needs the user's name.
ENV HOME=/tmp USER=precision LOGNAME=precision
ENV PYTHONPATH=/opt/precision-agent PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
ARG PYTORCH_IMAGE
ARG PYTORCH_DIGEST=
LABEL org.opencontainers.image.base.name="${PYTORCH_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTORCH_DIGEST}"
USER 65532:65532
# It replaces the base image's entrypoint, whose banner would stand in the log that carries the result.
ENTRYPOINT ["python", "-m", "precision_agent"]
CMD ["run", "--request", "env"]
