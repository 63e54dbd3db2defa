# Both images, for amd64 and arm64: `make images REGISTRY=registry.example.com/precision-profiler` builds and pushes them.
# `make images-check` builds both on a stand-in for their bases (plain Debian) and starts them as the chart does; they
# were not built on the real bases yet, nor for arm64.

# Bases take digests (python@sha256:...). `make images` builds on the digest that a base's tag has at that moment, and
# says so in the image's labels.
# Any image with Python 3.11 or newer.
ARG PYTHON_IMAGE=python:3.13-slim
# Any image with Python 3.11 or newer, torch and Transformer Engine 2.8 or newer; this one has CUDA 13.1, Python 3.12.
ARG PYTORCH_IMAGE=nvcr.io/nvidia/pytorch:25.12-py3

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY requirements/build.txt ./
RUN pip install --no-cache-dir --require-hashes --no-deps -r build.txt
COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY operator operator
COPY agent agent
COPY lab lab
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE} AS operator
# Modules are compiled now: the root is read-only, and an operator that compiles at each start takes three times as
# long and three times the memory.
COPY requirements/operator.txt /opt/precision-profiler/requirements.txt
RUN pip install --no-cache-dir --require-hashes --no-deps --compile -r /opt/precision-profiler/requirements.txt
# Copied, not mounted: buildah's layer cache takes a mount from another stage for unchanged (containers/buildah#6609).
COPY --from=wheel /wheels /opt/precision-profiler/wheels
RUN pip install --no-cache-dir --no-deps --compile /opt/precision-profiler/wheels/*.whl
# The user has no entry in /etc/passwd, and so neither a home nor a name, also where a cluster gives each namespace its
# own user ID (OpenShift). Nothing of ours asks for a name; the Kubernetes client asks for a home.
ENV HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST=
LABEL org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}"
USER 65532:65532
ENTRYPOINT ["python", "-m", "precision_operator"]

FROM ${PYTORCH_IMAGE} AS agent
# Into a folder of its own, so that nothing of the base image's stack is replaced; and without the base image's list of
# pinned versions (PIP_CONSTRAINT), which would refuse ours.
COPY requirements/agent.txt /opt/precision-profiler/requirements.txt
RUN PIP_CONSTRAINT= pip install --no-cache-dir --require-hashes --no-deps --compile \
    --target /opt/precision-agent -r /opt/precision-profiler/requirements.txt
COPY --from=wheel /wheels /opt/precision-profiler/wheels
RUN PIP_CONSTRAINT= pip install --no-cache-dir --no-deps --compile \
    --target /opt/precision-agent /opt/precision-profiler/wheels/*.whl
# Caches of Triton and Inductor go below HOME: /tmp is writable where the root is not. Inductor needs the user's name.
ENV HOME=/tmp USER=precision LOGNAME=precision
ENV PYTHONPATH=/opt/precision-agent PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
ARG PYTORCH_IMAGE
ARG PYTORCH_DIGEST=
LABEL org.opencontainers.image.base.name="${PYTORCH_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTORCH_DIGEST}"
USER 65532:65532
# By module: pip makes no programs beside those that --target holds already. It replaces the base image's entrypoint,
# whose banner would stand in the log that carries the result.
ENTRYPOINT ["python", "-m", "precision_agent"]
CMD ["run", "--request", "env"]
