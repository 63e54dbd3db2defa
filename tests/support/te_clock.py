"""A made-up GPU whose clock falls under load, and the sensor that tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from precision_agent.backends.te.session.engine import Work
from precision_agent.power.energy import Trace
from precision_agent.power.sensor_sampling import Recording, Recordings
from precision_agent.precision.kernels import classify
from tests.support.te_device import FakeEngine, FakeGpu

BOOST_MHZ, CAPPED_MHZ = 1980, 1425
"""An H100's clock when it has just begun, and at its power cap under large GEMMs."""
SLOWDOWN = BOOST_MHZ / CAPPED_MHZ
BOOST_MICROSECONDS = 6e5
"""Of load, for which the clock stays up."""


@dataclass
class CappedGpu(FakeGpu):
    """Each kernel is a thousand times as long as named; one that multiplies gets longer when the clock falls.

    The clock is the highest after a moment without work, and falls after some work. Casts, norms and the
    optimizer wait for memory, whose clock stays.
    """

    loaded: float = 0.0
    """Microseconds of work since the last rest."""
    told: list[tuple[float, int]] = field(default_factory=list)
    """The clock in MHz by the machine's monotonic clock, as a driver tells it."""

    @property
    def mhz(self) -> float:
        return BOOST_MHZ if self.loaded < BOOST_MICROSECONDS else CAPPED_MHZ

    def kernel(self, name: str, microseconds: float) -> None:
        multiplies = classify(name).kernel_class != "not_a_gemm"
        spent = 1e3 * microseconds * (BOOST_MHZ / self.mhz if multiplies else 1.0)
        super().kernel(name, spent)
        self.loaded += spent
        self.told.append((monotonic(), round(self.mhz)))

    def rest(self) -> None:
        """Nothing runs for so long that the clock is up again."""
        self.loaded = 0.0


@dataclass
class CappedEngine(FakeEngine):
    """The GPU rests while a graph is made, and while the profiler starts. `profiled`: when it did."""

    gpu: CappedGpu = field(default_factory=CappedGpu)
    profiled: list[float] = field(default_factory=list)

    def capture(self, work: Work) -> Work:
        self.gpu.rest()
        return super().capture(work)

    def profile(self, work: Work, keep: Path | None = None, lead: Work = lambda: None) -> Mapping[str, Any]:
        self.profiled.append(monotonic())
        self.gpu.rest()
        return super().profile(work, keep, lead)


@dataclass
class ClockSensors:
    """Tells nothing but the clocks of these GPUs, by the names of their devices."""

    gpus: Mapping[str, CappedGpu]

    def recordings(self) -> Recordings:
        return Recordings(
            {
                name: Recording(Trace(), Trace(scope="module"), (), (), tuple(gpu.told))
                for name, gpu in self.gpus.items()
            }
        )

    def stop(self) -> None: ...
