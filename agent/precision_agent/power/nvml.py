"""Reads GPUs through NVML (nvidia-ml-py): identity by UUID, name, memory, power limit.

Always by UUID: NVML's index is the host's, a container's CUDA index is not. Where NVML or a field is missing the
reading says which and why; nothing here raises.
"""

import importlib
from collections.abc import Callable, Mapping
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


IDENTITY: Mapping[str, tuple[Any, ...]] = {
    "uuid": ("nvmlDeviceGetUUID",),
    "pci": ("nvmlDeviceGetPciInfo",),
    "serial": ("nvmlDeviceGetSerial",),
    "boardPart": ("nvmlDeviceGetBoardPartNumber",),
    "vbios": ("nvmlDeviceGetVbiosVersion",),
    "inforom": ("nvmlDeviceGetInforomImageVersion",),
    "uncorrectableECC": ("nvmlDeviceGetTotalEccErrors", 1, 0),
    "uncorrectableECCAggregate": ("nvmlDeviceGetTotalEccErrors", 1, 1),
    "remappedRows": ("nvmlDeviceGetRemappedRows",),
    "smClockMHz": ("nvmlDeviceGetClockInfo", 1),
    "milliwatts": ("nvmlDeviceGetPowerUsage",),
    "celsius": ("nvmlDeviceGetTemperature", 0),
}
"""What a vendor asks for of a GPU: NVML's function, and its arguments after the handle."""


def identities(library: Any = None) -> list[dict[str, Any]]:
    """The same of each GPU in the driver's order; what NVML does not tell is None."""
    try:
        nvml = library or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no library, or no driver: there is no GPU to ask
        return []
    handles = [_ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index) for index in range(nvml.nvmlDeviceGetCount())]
    return [{name: _told(nvml, gpu, *question) for name, question in IDENTITY.items()} for gpu in handles]


def _told(nvml: Any, handle: Any, function: str, *arguments: int) -> Any:
    answer = _ask(nvml, getattr(nvml, function), handle, *arguments)
    return _text(getattr(answer, "busId", answer))


def _gpu(nvml: Any, handle: Any) -> Gpu:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    limit = _ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return Gpu(
        uuid=(_text(nvml.nvmlDeviceGetUUID(handle)) or "")[:64],
        name=(_text(nvml.nvmlDeviceGetName(handle)) or "")[:128],
        memory_bytes=None if memory is None else int(memory.total),
        enforced_limit_watts=None if limit is None else limit / 1e3,
        pci=_told(nvml, handle, *IDENTITY["pci"]),
    )


def _ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where the driver or the GPU does not support the question."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> Any:
    """Older bindings answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
