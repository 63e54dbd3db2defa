"""May these GPUs be measured? Asked by UUID before our own context is on them.

The rules are in docs/development/method.md, "Preflight".
MIG, a row remap that waits or failed, uncorrectable ECC errors since the last reset, memory or utilisation above idle:
each is a finding with its name. Memory in use on a GPU that is a NUMA node may be nobody's: it is read twice there.
What the driver does not tell bars nothing, and is told as unknown. The aggregate ECC count is recorded only: it would
bar a repaired GPU for ever.
"""

import contextlib
import importlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from precision_api.exchange import exits


@dataclass(frozen=True, slots=True)
class Health:
    """One GPU before the run; None where this driver or GPU does not tell, `error` where it does not answer at all.

    `module` is the board's serial number: GPUs that share it share its power sensor. It is not published. Of a GPU that
    is a NUMA node of the system (`numa_node`): `system_bytes` of its memory are the system's own pages, `processes`
    have a context on it, and `moved_bytes` is how far its used memory changed between two readings.
    """

    uuid: str
    mig_enabled: bool | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    memory_used_bytes: int | None = None
    memory_with_reserve: bool | None = None
    """Whether NVML's first call alone answers, which counts the driver's reserve as used."""
    utilisation_percent: int | None = None
    enforced_limit_watts: float | None = None
    module: str | None = None
    error: str | None = None
    numa_node: int | None = None
    system_bytes: int | None = None
    processes: int | None = None
    moved_bytes: int | None = None
    clock_reasons: int | None = None
    """NVML's mask of what holds the clocks back."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why one GPU must not be measured, and how the run ends for it; broken hardware ends as `UNHEALTHY`."""

    uuid: str
    reason: str
    message: str
    exit: exits.Exit


@dataclass(frozen=True, slots=True)
class Check:
    """One row: what is wrong, when, and how the run ends then."""

    reason: str
    exit: exits.Exit
    failed: Callable[[Health], bool]
    message: str


UNHEALTHY = exits.GPU_UNHEALTHY
IDLE_MEMORY_BYTES = 1 << 30
"""NVML counts the driver's own reserve as used (some hundred MB); more than this means somebody else's context."""
IDLE_UTILISATION_PERCENT = 5
STILL_BYTES = 64 << 20
"""Assumed, not tried on a GPU: what the used memory of an idle GPU may change by within a second."""
READ_AGAIN_SECONDS = 1.0
NODES = Path("/sys/devices/system/node")
_OWN = ("AnonPages", "FilePages", "Slab")
"""Pages of processes, of files, and of the kernel. What CUDA allocates is in none of them."""


def _full(gpu: Health) -> bool:
    """Whether more is in use than the driver's own reserve and the system's pages."""
    return (gpu.memory_used_bytes or 0) - (gpu.system_bytes or 0) > IDLE_MEMORY_BYTES


def _is_left_over(gpu: Health) -> bool:
    """Whether memory in use is what ended processes left, as the driver keeps it in NUMA mode: nobody has a context
    there, and it stands still."""
    return gpu.processes == 0 and gpu.moved_bytes is not None and gpu.moved_bytes <= STILL_BYTES


CHECKS: tuple[Check, ...] = (
    Check("gpu_unreachable", UNHEALTHY, lambda gpu: gpu.error is not None, "does not answer: {error}"),
    Check("mig_enabled", exits.MIG_ENABLED, lambda gpu: bool(gpu.mig_enabled), "is in MIG mode: turn it off"),
    Check(
        "row_remap_pending",
        UNHEALTHY,
        lambda gpu: bool(gpu.remap_pending),
        "has a memory row whose remap waits for a reset: reset the GPU",
    ),
    Check(
        "row_remap_failed",
        UNHEALTHY,
        lambda gpu: bool(gpu.remap_failed),
        "has a memory row that could not be remapped: have it replaced",
    ),
    Check(
        "ecc_uncorrectable",
        UNHEALTHY,
        lambda gpu: (gpu.ecc_volatile_uncorrectable or 0) > 0,
        "had {ecc_volatile_uncorrectable} uncorrectable ECC errors since its last reset: reset and test it",
    ),
    Check(
        "memory_in_use",
        exits.GPU_BUSY,
        lambda gpu: _full(gpu) and not _is_left_over(gpu),
        "has {memory_used_bytes} bytes in use before the measurement: somebody else is on it",
    ),
    Check(
        "gpu_in_use",
        exits.GPU_BUSY,
        lambda gpu: (gpu.utilisation_percent or 0) > IDLE_UTILISATION_PERCENT,
        "is {utilisation_percent} % busy before the measurement: somebody else is on it",
    ),
)


def findings(gpus: Sequence[Health]) -> tuple[Finding, ...]:
    """All that speaks against measuring these GPUs, in the order of the table; empty where nothing does."""
    return tuple(
        Finding(gpu.uuid, check.reason, f"{gpu.uuid} {check.message.format_map(asdict(gpu))}", check.exit)
        for check in CHECKS
        for gpu in gpus
        if check.failed(gpu)
    )


def refusal(gpus: Sequence[Health]) -> tuple[exits.Exit, str] | None:
    """How the run must end before it begins, all findings in its message, or None."""
    objections = findings(gpus)
    if not objections:
        return None
    return objections[0].exit, "; ".join(f"{finding.reason}: {finding.message}" for finding in objections)[:1000]


def health(nvml: Any, uuids: Iterable[str]) -> tuple[Health, ...]:
    """What NVML (pynvml, initialised) tells of these GPUs; raises nothing."""
    return tuple(_health(nvml, uuid) for uuid in uuids)


def read_health(
    uuids: Sequence[str], library: Any = None, wait: Callable[[float], None] = time.sleep
) -> tuple[Health, ...]:
    """The same, with NVML opened and closed; a library that does not open is an error of every GPU.

    Where a GPU is a NUMA node and its memory is in use, all are read again after a second.
    """
    try:
        nvml = library or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # an ImportError, or an error of a library that may not be there to name
        return tuple(Health(uuid, error=str(error)) for uuid in uuids)
    try:
        first = health(nvml, uuids)
        if not any(gpu.numa_node is not None and _full(gpu) for gpu in first):
            return first
        wait(READ_AGAIN_SECONDS)
        return tuple(_moved(*pair) for pair in zip(first, health(nvml, uuids), strict=True))
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _moved(first: Health, second: Health) -> Health:
    """The second reading, with the change of used memory since the first on a GPU that is a NUMA node."""
    both = (first.memory_used_bytes, second.memory_used_bytes)
    if second.numa_node is None or both[0] is None or both[1] is None:
        return second
    return replace(second, moved_bytes=abs(both[1] - both[0]))


def _health(nvml: Any, uuid: str) -> Health:
    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(handle, *arguments)
        except nvml.NVMLError:
            return None

    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as error:
        return Health(uuid, error=str(error))
    mig, remap = ask("nvmlDeviceGetMigMode"), ask("nvmlDeviceGetRemappedRows")
    memory, busy = ask("nvmlDeviceGetMemoryInfo", nvml.nvmlMemory_v2), ask("nvmlDeviceGetUtilizationRates")
    with_reserve = memory is None and (memory := ask("nvmlDeviceGetMemoryInfo")) is not None
    limit, kind = ask("nvmlDeviceGetEnforcedPowerLimit"), nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    node = ask("nvmlDeviceGetNumaNodeId")
    processes = None if node is None else ask("nvmlDeviceGetComputeRunningProcesses")
    return Health(
        uuid=uuid,
        mig_enabled=None if mig is None else bool(mig[0]),
        remap_pending=None if remap is None else bool(remap[2]),
        remap_failed=None if remap is None else bool(remap[3]),
        ecc_volatile_uncorrectable=ask("nvmlDeviceGetTotalEccErrors", kind, nvml.NVML_VOLATILE_ECC),
        ecc_aggregate_uncorrectable=ask("nvmlDeviceGetTotalEccErrors", kind, nvml.NVML_AGGREGATE_ECC),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_with_reserve=with_reserve or None,
        utilisation_percent=None if busy is None else int(busy.gpu),
        enforced_limit_watts=None if limit is None else limit / 1e3,
        module=ask("nvmlDeviceGetSerial"),
        numa_node=node,
        system_bytes=None if node is None else system_bytes(node),
        processes=None if processes is None else len(processes),
        clock_reasons=ask("nvmlDeviceGetCurrentClocksEventReasons"),
    )


def system_bytes(node: int, nodes: Path = NODES) -> int | None:
    """Bytes of a GPU that is a NUMA node, as on Grace superchips, that hold the system's own pages; None: not known.

    There NVML's figure of used memory is the operating system's accounting: "pages allocated from FB memory are not
    released even after the process terminates", and under pressure the system puts pages of its own there (NVML API
    Reference, Known Issues). So much of it may be in use on a GPU that nobody uses.
    """
    try:
        text = (nodes / f"node{node}" / "meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    sizes = {name: int(kib) for name, kib in re.findall(r"^Node \d+ (\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    return sum(sizes[name] for name in _OWN) * 1024 if set(_OWN) <= set(sizes) else None
