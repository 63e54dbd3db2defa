"""Kernel-only figures of a GPU whose clock falls under load: the kernels' shares are those of the timed windows.

A GEMM slows down with the clock, a cast that waits for memory does not. Shares that were seen at another clock than
that of the timed steps are wrong, and so is all that is made of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from precision_agent.backends.te.session.engine import Work
from precision_agent.backends.transformer_engine import TransformerEngine
from precision_agent.power.energy import Trace
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording, Recordings
from precision_agent.precision.kernels import classify
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.run import Surroundings, run_wanted
from precision_agent.sampling.devices import LocalDevices, Stop
from precision_api.exchange.request import MeasurementRequest, Timing, request_json
from precision_api.exchange.result import MeasurementResult, RecipeResult
from precision_api.facts.recipes import Recipe
from tests.agent.test_te_in_a_run import probed
from tests.support.te_bench import MODEL, request
from tests.support.te_device import ADAM, BATCHED, GEMM, NORM, FakeEngine, FakeGpu
from tests.support.te_fake import World, fake_api
from tests.support.te_prober import FakeProber

pytestmark = pytest.mark.torch

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


CASTS: dict[Recipe, float] = {"fp8_current": 3.3, "nvfp4": 11.5}
"""Microseconds at which shares of a boosting GPU make the GEMMs look 7 and 16 % faster than they are."""
LAYERS, ACCUMULATION = 2, 2
HEADLESS = {name: value for name, value in MODEL.items() if name != "vocabSize"} | {"numHiddenLayers": LAYERS}
ASKED = request(
    recipes=("bf16", "fp8_current", "nvfp4"),
    workload={"model": HEADLESS, "gradientAccumulation": ACCUMULATION},
    last_layers_bf16=0,
    timing=Timing(passes=2, segment_seconds=0.02, discard_seconds=1.5),
)


@cache
def measured() -> MeasurementResult:
    """One run on one such GPU, which is only read."""
    gpu = CappedGpu()
    world = World("v2.20", gpu, casts=CASTS)
    engine = CappedEngine(gpu, world=world)

    def opener(wanted: Wanted, tried: MeasurementRequest, stop: Stop) -> Opened:
        api = fake_api("v2.20", world)
        backend = TransformerEngine(tried, "cuda", api=api, engine=engine, prober=FakeProber(probed))
        named = backend.device().gpu
        return Opened(LocalDevices([backend]), SensorFacts(sensors=ClockSensors({named.uuid: gpu})))

    outcome = run_wanted(request_json(ASKED), Wanted("transformer-engine", "cuda"), Surroundings(opener=opener))
    assert outcome.result, outcome.message
    return outcome.result


def of(recipe: Recipe) -> RecipeResult:
    return next(row for row in measured().recipes if row.recipe == recipe)


def gemms(recipe: Recipe) -> float:
    """Microseconds of all GEMMs of a full step at the capped clock: twelve a layer."""
    return SLOWDOWN * 12 * LAYERS * GEMM[None if recipe == "bf16" else recipe][1]


def step(recipe: Recipe) -> float:
    """Microseconds of a full micro batch at the capped clock; a cast more a weight in one of ACCUMULATION of them."""
    casts = CASTS.get(recipe, 0.0) * LAYERS * (8 + 4 / ACCUMULATION)
    return gemms(recipe) + casts + LAYERS * (NORM[1] + SLOWDOWN * BATCHED[1]) + ADAM[1] / ACCUMULATION


def expected(recipe: Recipe) -> float:
    share = gemms("bf16") / step("bf16")
    return 1 / (1 - share + share * gemms(recipe) / gemms("bf16"))


def test_the_windows_ran_at_the_capped_clock() -> None:
    for recipe in ASKED.recipes:
        assert of(recipe).clocks.sm_mhz == pytest.approx(1425, rel=0.005)


@pytest.mark.parametrize("recipe", ["fp8_current", "nvfp4"])
def test_kernel_only_speedup_tax_and_meaning_are_the_true_ones(recipe: Recipe) -> None:
    found = next(part for part in of(recipe).sums if part.mode == "prequantized")
    assert found.speedup.value == pytest.approx(gemms("bf16") / gemms(recipe), rel=0.01)
    casts = CASTS[recipe] * LAYERS * 8
    assert of(recipe).quantization_tax == pytest.approx(casts / (casts + gemms(recipe)), rel=0.01)
    found = of(recipe).meaning
    assert found.gemm_share == pytest.approx(gemms("bf16") / step("bf16"), rel=0.01)
    assert found.gemm_speedup == pytest.approx(gemms("bf16") / gemms(recipe), rel=0.01)
    assert found.expected_speedup == pytest.approx(expected(recipe), rel=0.01)
    saved = step("bf16") * (1 - 1 / expected(recipe))
    assert found.quantization_part == pytest.approx(min(CASTS[recipe] * LAYERS * 8 / saved, 9), rel=0.02)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_current", "nvfp4"])
def test_the_librarys_own_call_agrees_with_kernel_only_time(recipe: Recipe) -> None:
    rows = [row for row in of(recipe).gemms if row.mode == "prequantized"]
    for row in rows:
        assert row.own_call_seconds.value == pytest.approx(row.seconds.value, rel=0.01)
    assert not [note for note in of(recipe).notes if "own GEMM call" in note]
