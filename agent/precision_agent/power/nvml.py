"""Reads GPUs through NVML (nvidia-ml-py): identity by UUID, limits, MIG, use, energy.

Always by UUID: NVML's index is the host's, a container's CUDA index is not. Where NVML or a field is missing the
reading says which and why; nothing here raises.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from precision_api import exits
from precision_api.result import Failure, Gpu

IDLE_MEMORY_BYTES = 1 << 30
"""NVML counts the driver's own reserve as used (some hundred MB); more than this means somebody else's context."""
IDLE_UTILISATION_PERCENT = 5


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU before our own context is on it; None where this driver or GPU does not tell."""

    uuid: str
    name: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    enforced_limit_watts: float | None
    mig_enabled: bool | None
    utilisation_percent: int | None
    energy_joules: float | None

    def as_gpu(self) -> Gpu:
        """The part that goes into the result."""
        return Gpu(
            uuid=self.uuid[:64],
            name=self.name[:128],
            memory_bytes=self.memory_bytes,
            enforced_limit_watts=self.enforced_limit_watts,
        )


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """All GPUs that NVML shows, or why it shows none."""

    gpus: tuple[GpuReading, ...] = ()
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


def refusal(gpus: Sequence[GpuReading], promised: int) -> tuple[exits.Exit, str] | None:
    """Why these GPUs must not be measured, or None: too few, cut by MIG, or in use.

    The rules are in docs/development/method.md, "Preflight".
    """
    if len(gpus) < promised:
        return exits.DEVICE_MISSING, f"the request names {promised} GPUs, NVML shows {len(gpus)}"
    for gpu in gpus:
        if gpu.mig_enabled:
            return exits.MIG_ENABLED, f"{gpu.uuid} is in MIG mode"
        used, busy = gpu.memory_used_bytes or 0, gpu.utilisation_percent or 0
        if used > IDLE_MEMORY_BYTES or busy > IDLE_UTILISATION_PERCENT:
            return exits.GPU_BUSY, f"{gpu.uuid} has {used} bytes in use and is {busy} % busy before the measurement"
    return None


def _gpu(nvml: Any, handle: Any) -> GpuReading:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    limit = _ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    mig = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    utilisation = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    energy = _ask(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    return GpuReading(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)) or "",
        name=_text(nvml.nvmlDeviceGetName(handle)) or "",
        memory_bytes=None if memory is None else int(memory.total),
        memory_used_bytes=None if memory is None else int(memory.used),
        enforced_limit_watts=None if limit is None else limit / 1e3,
        mig_enabled=None if mig is None else bool(mig[0]),
        utilisation_percent=None if utilisation is None else int(utilisation.gpu),
        energy_joules=None if energy is None else energy / 1e3,
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
