"""What NVML tells, and what is made of a driver that does not answer.

GPUs that came by resource claim are held against those that the node publishes.

An idle GB200 in NUMA mode is idle, however much of its memory the system or ended processes hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precision_agent.power import preflight
from precision_agent.power.nvml import read
from precision_agent.power.preflight import Health, findings, read_health, system_bytes
from precision_agent.protocol import Refusal
from precision_agent.run.open import hold_to_claim
from precision_api.exchange.exits import DEVICES_NOT_CLAIMED
from precision_api.exchange.result import Gpu

FOUR = [f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(4)]
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
class FakeNvml:
    """A driver with GPUs, some of whose questions it does not support."""

    gpus: int = 2
    unsupported: frozenset[str] = frozenset()
    init_error: str | None = None
    NVMLError: type[Exception] = NVMLError
    open_sessions: int = 0
    answers: dict[str, Any] = field(
        default_factory=lambda: {
            "UUID": "GPU-{}",
            "Name": b"NVIDIA GB200",
            "MemoryInfo": SimpleNamespace(total=186 * 10**9, used=5 * 10**8),
            "EnforcedPowerLimit": 1_200_000,
            "PciInfo": SimpleNamespace(busId=b"00000009:01:00.0"),
        }
    )

    def nvmlInit(self) -> None:  # noqa: N802 -- NVML's name
        if self.init_error:
            raise NVMLError(self.init_error)
        self.open_sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open_sessions -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"

    def __getattr__(self, name: str) -> Any:
        question = name.removeprefix("nvmlDeviceGet")

        def answer(handle: int) -> Any:
            if question in self.unsupported:
                raise NVMLError("Not Supported")
            value = self.answers[question]
            return value.format(handle) if isinstance(value, str) else value

        return answer


def test_gpus_are_read_by_uuid_in_si_units_and_gaps_are_no_errors() -> None:
    library = FakeNvml()
    document = read(library)
    assert (document.driver, document.failure) == ("580.95.05", None)
    assert document.gpus[1] == Gpu(
        uuid="GPU-1", name="NVIDIA GB200", memory_bytes=186 * 10**9, enforced_limit_watts=1200.0, pci="00000009:01:00.0"
    )
    assert library.open_sessions == 0
    document = read(FakeNvml(unsupported=frozenset({"EnforcedPowerLimit", "MemoryInfo"})))
    assert (document.gpus[0].enforced_limit_watts, document.gpus[0].memory_bytes) == (None, None)


def test_without_identity_or_driver_there_is_a_reason_never_both() -> None:
    library = FakeNvml(unsupported=frozenset({"UUID"}))
    document = read(library)
    assert document.failure.reason == "nvml_failed"
    assert library.open_sessions == 0
    document = read(FakeNvml(init_error="Driver Not Loaded"))
    assert (document.failure.reason, document.failure.message) == ("nvml_unavailable", "Driver Not Loaded")
    document = read()
    assert bool(document.gpus) != bool(document.failure)


@pytest.mark.parametrize(
    ("seen", "published", "wanted", "words"),
    [
        (FOUR, FOUR[:3], 4, f"NVML shows {FOUR[3]}, which no claim"),
        (FOUR, FOUR, 1, "the claim is for 1 GPUs, NVML shows 4"),
    ],
    ids=["a foreign GPU", "more than were claimed"],
)
def test_gpus_of_the_claim_alone_are_measured(seen: list[str], published: list[str], wanted: int, words: str) -> None:
    for some, of, promised in ((FOUR, FOUR, 4), (FOUR[1:2], FOUR, 1), (FOUR, None, 1), (FOUR[::-1], FOUR, 4)):
        hold_to_claim(some, of, promised)
    with pytest.raises(Refusal, match="claim") as caught:
        hold_to_claim(seen, published, wanted)
    assert caught.value.exit == DEVICES_NOT_CLAIMED
    assert words in str(caught.value)


@dataclass
class NumaGpu:
    """A driver with one GPU that is NUMA node 2; `used` is told one after the other, the last one again."""

    used: Sequence[int]
    processes: int | None = 0
    node: int | None = 2
    asked: int = 0
    NVMLError: type[Exception] = NVMLError
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

    def _memory(self, handle: str, version: object) -> Any:
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
