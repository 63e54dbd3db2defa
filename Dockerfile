# Both images, for amd64 and arm64:
#   docker build --target operator -t REGISTRY/precision-profiler/operator:0.1.0 .
#   docker build --target agent    -t REGISTRY/precision-profiler/agent:0.1.0 .
# Not yet run: this project has had no registry with the base images within reach. What is checked of it is that every
# file it copies exists, and that programs and user are those of the chart and the Jobs.

# Any image with Python 3.11 or newer.
ARG PYTHON_IMAGE=python:3.13-slim
# Any image with Python 3.11 or newer, torch and Transformer Engine 2.8 or newer; this one has CUDA 13.1, Python 3.12.
ARG PYTORCH_IMAGE=nvcr.io/nvidia/pytorch:25.12-py3

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY requirements/build.txt requirements/build.txt
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY operator operator
COPY agent agent
COPY lab lab
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE} AS operator
COPY requirements/operator.txt /tmp/operator.txt
# Modules are compiled now: the root is read-only, and an operator that compiles at each start takes three times as
# long and three times the memory.
RUN pip install --no-cache-dir --require-hashes --no-deps --compile -r /tmp/operator.txt
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --compile /wheels/*.whl
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["python", "-m", "precision_operator"]

FROM ${PYTORCH_IMAGE} AS agent
# Into a folder of its own, so that nothing of the base image's stack is replaced; and without its list of pinned
# versions (PIP_CONSTRAINT), which would refuse ours.
COPY requirements/agent.txt /tmp/agent.txt
RUN PIP_CONSTRAINT= pip install --no-cache-dir --require-hashes --no-deps --compile \
    --target /opt/precision-agent -r /tmp/agent.txt
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    PIP_CONSTRAINT= pip install --no-cache-dir --no-deps --compile --target /opt/precision-agent /wheels/*.whl
ENV PYTHONPATH=/opt/precision-agent PATH=/opt/precision-agent/bin:${PATH} \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["precision-agent"]
CMD ["run", "--request", "env"]
