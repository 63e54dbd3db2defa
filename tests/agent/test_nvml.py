"""What NVML tells, and what is made of a driver that does not answer."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from precision_agent.power.nvml import read
from precision_api.exchange.result import Gpu


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
    found = read(library)
    assert (found.driver, found.failure) == ("580.95.05", None)
    assert found.gpus[1] == Gpu(
        uuid="GPU-1", name="NVIDIA GB200", memory_bytes=186 * 10**9, enforced_limit_watts=1200.0, pci="00000009:01:00.0"
    )
    assert library.open_sessions == 0
    found = read(FakeNvml(unsupported=frozenset({"EnforcedPowerLimit", "MemoryInfo"})))
    assert (found.gpus[0].enforced_limit_watts, found.gpus[0].memory_bytes) == (None, None)


def test_without_identity_or_driver_there_is_a_reason_never_both() -> None:
    library = FakeNvml(unsupported=frozenset({"UUID"}))
    found = read(library)
    assert found.failure.reason == "nvml_failed"
    assert library.open_sessions == 0
    found = read(FakeNvml(init_error="Driver Not Loaded"))
    assert (found.failure.reason, found.failure.message) == ("nvml_unavailable", "Driver Not Loaded")
    found = read()
    assert bool(found.gpus) != bool(found.failure)
