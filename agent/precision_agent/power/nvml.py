"""Reads GPUs through NVML (nvidia-ml-py): identity by UUID, name, memory, power limit.

Always by UUID: NVML's index is the host's, a container's CUDA index is not. Where NVML or a field is missing the
reading says which and why; nothing here raises.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from precision_api.exchange.result import Failure, Gpu


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """All GPUs that NVML shows, or why it shows none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    failure: Failure | None = None


def read(library: Any = None) -> GpuReadings:
    """A reading of every GPU that the container sees; `library` stands in for pynvml."""
    try:
        nvml = library or importlib.import_module("pynvml")
    except ImportError as error:
        return GpuReadings(failure=Failure(reason="nvml_not_installed", message=f"nvidia-ml-py: {error}"[:1024]))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuReadings(failure=Failure(reason="nvml_unavailable", message=str(error)[:1024]))
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        gpus = tuple(_gpu(nvml, handle) for handle in handles)
        return GpuReadings(gpus, driver=_text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)))
    except nvml.NVMLError as error:
        return GpuReadings(failure=Failure(reason="nvml_failed", message=str(error)[:1024]))
    finally:
        _ask(nvml, nvml.nvmlShutdown)


def _gpu(nvml: Any, handle: Any) -> Gpu:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    limit = _ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return Gpu(
        uuid=(_text(nvml.nvmlDeviceGetUUID(handle)) or "")[:64],
        name=(_text(nvml.nvmlDeviceGetName(handle)) or "")[:128],
        memory_bytes=None if memory is None else int(memory.total),
        enforced_limit_watts=None if limit is None else limit / 1e3,
    )


def _ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where the driver or the GPU does not support the question."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str | None:
    """Older bindings answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
