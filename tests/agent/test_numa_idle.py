"""An idle GB200 in NUMA mode is idle, however much of its memory the system or ended processes hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precision_agent.power import preflight
from precision_agent.power.preflight import Health, findings, read_health, system_bytes

GIB = 1 << 30
MEMINFO = """Node 2 MemTotal:       196608000 kB
Node 2 MemFree:        150000000 kB
Node 2 MemUsed:         46608000 kB
Node 2 FilePages:        8388608 kB
Node 2 AnonPages:        4194304 kB
Node 2 Slab:             1048576 kB
Node 2 HugePages_Total:     0
"""


class NVMLError(Exception):
    """Stands for pynvml's own."""


@dataclass
class NumaGpu:
    """A driver with one GPU that is NUMA node 2; `used` is told one after the other, the last one again."""

    used: Sequence[int]
    processes: int | None = 0
    node: int | None = 2
    asked: int = 0
    NVMLError: type[Exception] = NVMLError
    nvmlMemory_v2: int = 2  # noqa: N815 -- NVML's names
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int = 1
    NVML_VOLATILE_ECC: int = 0
    NVML_AGGREGATE_ECC: int = 1
    slept: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=0),
        }
        if self.node is not None:
            answers["nvmlDeviceGetNumaNodeId"] = lambda handle: self.node
        if self.processes is not None:
            answers["nvmlDeviceGetComputeRunningProcesses"] = lambda handle: [object()] * (self.processes or 0)

        def unsupported(*_: Any) -> None:
            raise NVMLError("Not Supported")

        return answers.get(name, unsupported)

    def _memory(self, handle: str, version: int) -> Any:
        found = self.used[min(self.asked, len(self.used) - 1)]
        self.asked += 1
        return SimpleNamespace(used=found)


def looked_at(monkeypatch: pytest.MonkeyPatch, gpu: NumaGpu, system: int | None) -> Health:
    monkeypatch.setattr(preflight, "system_bytes", lambda node: system)
    (found,) = read_health(["GPU-0"], gpu, gpu.slept.append)
    return found


@pytest.mark.parametrize(
    ("gpu", "system", "reasons"),
    [
        (NumaGpu([12 * GIB]), 12 * GIB, []),
        (NumaGpu([40 * GIB]), 2 * GIB, []),
        (NumaGpu([40 * GIB, 40 * GIB + (32 << 20)]), 2 * GIB, []),
        (NumaGpu([40 * GIB, 41 * GIB]), 2 * GIB, ["memory_in_use"]),
        (NumaGpu([40 * GIB], processes=1), 2 * GIB, ["memory_in_use"]),
        (NumaGpu([40 * GIB], processes=None), 2 * GIB, ["memory_in_use"]),
        (NumaGpu([40 * GIB], processes=None), None, ["memory_in_use"]),
        (NumaGpu([40 * GIB], node=None), None, ["memory_in_use"]),
        (NumaGpu([GIB // 2], node=None), None, []),
    ],
    ids=[
        "pages-of-the-system", "left-by-ended-processes", "moves-a-little", "moves", "somebody-has-a-context",
        "who-has-one-is-not-told", "nothing-is-told", "no-numa-node", "plain-and-idle",
    ],
)  # fmt: skip
def test_memory_bars_only_where_somebody_may_be_using_it(
    monkeypatch: pytest.MonkeyPatch, gpu: NumaGpu, system: int | None, reasons: list[str]
) -> None:
    assert [one.reason for one in findings([looked_at(monkeypatch, gpu, system)])] == reasons


def test_memory_is_read_again_only_where_a_numa_node_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    full, plain, empty = NumaGpu([40 * GIB]), NumaGpu([40 * GIB], node=None), NumaGpu([12 * GIB])
    for gpu, system in ((full, GIB), (plain, None), (empty, 12 * GIB)):
        looked_at(monkeypatch, gpu, system)
    assert (full.slept, plain.slept, empty.slept) == ([preflight.READ_AGAIN_SECONDS], [], [])


def test_the_systems_own_pages_are_those_of_processes_files_and_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "node2").mkdir()
    (tmp_path / "node2" / "meminfo").write_text(MEMINFO)
    assert system_bytes(2, tmp_path) == 13 * GIB
    assert system_bytes(3, tmp_path) is None
    (tmp_path / "node2" / "meminfo").write_text("Node 2 MemTotal: 5 kB\n")
    assert system_bytes(2, tmp_path) is None
