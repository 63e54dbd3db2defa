"""What the device and its software are, as the result names them."""

import os
from collections.abc import Mapping
from importlib import metadata

import torch

from precision_agent import __version__
from precision_agent.power import nvml
from precision_agent.protocol import Device
from precision_api.exchange.request import digest
from precision_api.exchange.result import Gpu, Software

TOLD = ("NVTE_", "CUBLAS", "CUDNN", "NVIDIA_TF32", "PYTORCH_", "TORCH_", "CUDA_")
"""Prefixes of environment variables that change what is measured."""
LIBRARIES = ("cublas", "cudnn")
MOST_VARIABLES = 32


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What of the environment changes the figures, at most 32 of them, values cut at 256 characters."""
    settings = {name: value[:256] for name, value in sorted(variables.items()) if name.startswith(TOLD)}
    return dict(list(settings.items())[:MOST_VARIABLES])


def library_versions() -> dict[str, str]:
    """Versions of NVIDIA's wheels, where they are installed as such."""
    versions = {}
    for name in LIBRARIES:
        for suffix in ("", "-cu13", "-cu12"):
            try:
                versions[name] = metadata.version(f"nvidia-{name}{suffix}")
            except metadata.PackageNotFoundError:
                continue
            break
    return versions


def device_of(te_version: str, product: str, uuid: str, memory_bytes: int, reading: nvml.GpuReadings) -> Device:
    """The device. Without NVML's word on it, what CUDA says."""
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "transformer_engine": te_version}
    stack = digest(versions | library_versions(), 16)
    software = Software(agent=__version__, **versions, driver=reading.driver, stack_hash=stack)
    seen = next((gpu for gpu in reading.gpus if gpu.uuid.removeprefix("GPU-") == uuid), None)
    gpu = seen or Gpu(uuid=f"GPU-{uuid}"[:64], name=product[:128], memory_bytes=memory_bytes)
    return Device(product[:64], software, gpu, environment(os.environ))
