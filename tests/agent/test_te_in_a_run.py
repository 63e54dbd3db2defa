"""Transformer Engine's backend under a whole run: what a new process has to build, and its log."""

import json
from functools import cache

import pytest

from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.backends.te.tiers import probe as probing
from precision_agent.backends.te.tiers.probe import Ended
from precision_agent.backends.transformer_engine import TransformerEngine
from precision_agent.cases import Variant
from precision_agent.power.sensing import SensorFacts
from precision_agent.protocol import Sample
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.run import Outcome, Surroundings, run_wanted
from precision_agent.sampling.devices import LocalDevices, Stop
from precision_agent.sampling.profiles import Leads
from precision_api.exchange.request import MeasurementRequest, Timing, request_json
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import Recipe
from tests.support.result_objects import of
from tests.support.te_bench import MODEL, Bench, request
from tests.support.te_fake import fakes
from tests.support.te_prober import FakeProber

pytestmark = pytest.mark.torch

DELAYED = Variant("fp8_delayed", "fp8_delayed")
QUICK = Timing(passes=2, segment_seconds=0.0005, discard_seconds=0.0)
THIN = MODEL | {"numHiddenLayers": 1}
SHORT = {"recipes": ("bf16", "fp8_delayed"), "timing": QUICK}
STEP_ALONE = SHORT | {"recipes": ("bf16",), "gemm_modes": ()}


class Probed(Bench):
    """A backend whose probes run in this process, on a GPU of their own."""

    def __init__(self, asked: MeasurementRequest) -> None:
        super().__init__(asked=asked)
        self.backend = TransformerEngine(asked, "cuda", api=self.api, engine=self.engine, prober=FakeProber(probed))


@cache
def probed(recipe: Recipe) -> Ended:
    """How a recipe's probe ends, on a GPU that runs all: in every run alike."""
    _, api, engine = fakes()
    api.manager.is_nvfp4_available = lambda: (True, "")
    return Ended(0, json.dumps(probing.run(api, engine, recipe, LinearShape(128, 128, 128))), "")


def ran(asked: MeasurementRequest, gap: float = 0.0, untold: int = 0) -> Outcome:
    """A whole run on one made-up GPU, which waits `gap` microseconds before each kernel."""

    def opener(wanted: Wanted, tried: MeasurementRequest, stop: Stop) -> Opened:
        bench = Probed(tried)
        bench.world.gpu.gap, bench.engine.untold = gap, untold
        return Opened(LocalDevices([bench.backend]), SensorFacts())

    around = Surroundings(opener=opener, leads=Leads(0.0005, 0.0005, 0.0005))
    return run_wanted(request_json(asked), Wanted("transformer-engine", "cuda"), around)


@pytest.mark.parametrize("training", [True, False])
def test_a_new_process_builds_what_the_first_call_of_a_variant_needs(training: bool) -> None:
    asked = request(training=training, recipes=("bf16", "fp8_delayed"), workload={"model": THIN})
    assert isinstance(Bench(asked=asked).backend.settle(DELAYED, 0.0), Sample)
    assert Bench(asked=asked).backend.profile(DELAYED, "training" if training else "gemms", 0.0).kernels
    assert Bench(asked=asked).backend.inspect(DELAYED).errors is not None
    assert isinstance(Bench(asked=asked).backend.power_window(DELAYED, "layers", 0.0, 0.0, 1), Sample)
    assert isinstance(Bench(asked=asked).backend.measure(Bench().training, DELAYED, 0.0), Sample)


def test_what_was_tried_and_failed_is_not_built_again_at_each_slot() -> None:
    bench = Bench()
    bench.world.most_layers = 0
    assert isinstance(bench.backend.prepare(bench.training, DELAYED), Failure)
    assert bench.backend.prepare(bench.gemm("qkv", "fprop"), DELAYED) is None
    tried = bench.engine.released
    assert isinstance(bench.backend.settle(DELAYED, 0.0), Sample)
    assert bench.engine.released == tried


@pytest.fixture(scope="module")
def short() -> Outcome:
    """One run in which all goes well; it is only read."""
    return ran(request(**SHORT))


def test_delayed_scaling_has_kernel_only_figures_with_a_share_of_gradient_quantisation_and_what_has_no_switch_is_a_note(
    short: Outcome,
) -> None:
    delayed = of(short, "fp8_delayed")
    assert {part.mode: part.failure for part in delayed.sums} == {"autocast": None, "prequantized": None}
    assert delayed.gradient_quantization_share == pytest.approx(1 / 7)  # 1 us beside a GEMM of 6 us
    assert of(short, "bf16").gradient_quantization_share is None
    outcome = ran(request(workload={"model": THIN | {"qkvBias": True}}, **STEP_ALONE))
    assert any("the training step is without" in note for note in of(outcome, "bf16").notes)
    assert not any("is without" in note for note in of(short, "bf16").notes)


def test_the_gaps_of_a_graph_void_no_kernel_only_time_and_are_a_figure_beside_it(short: Outcome) -> None:
    """A microsecond before each kernel of 1 to 10: as NVFP4's nine short kernels on Blackwell."""
    gapped = of(ran(request(**SHORT), gap=1.0), "fp8_delayed")
    alone, free = (
        next(part for part in row.sums if part.mode == "prequantized") for row in (gapped, of(short, "fp8_delayed"))
    )
    assert gapped.kernel_time_share < 0.9
    assert alone.seconds.value == pytest.approx(free.seconds.value, rel=1e-3)
    kernels = sum((2 if row.pass_ != "wgrad" and row.name != "lm_head" else 1) * row.count for row in gapped.gemms) / 2
    assert alone.launch_gaps == pytest.approx(kernels * 1e-6, rel=0.01)
    assert free.launch_gaps == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("untold", [1, 7])
def test_where_the_profiler_does_not_tell_graphs_apart_kernel_only_time_is_a_bound(untold: int) -> None:
    gapped = of(ran(request(**SHORT), gap=1.0, untold=untold), "fp8_delayed")
    failures = {row.failure.reason: row.failure.message for row in gapped.gemms if row.failure}
    assert set(failures) == {"kernel_gaps"}
    assert (
        "the replays of its graph could not be matched to forward, dgrad and wgrad; kernel-only time is"
        in failures["kernel_gaps"]
    )


@pytest.mark.parametrize(("size", "told"), [(16, True), (4096, False)])
def test_a_short_model_with_another_share_of_windowed_layers_than_the_models_is_a_note(size: int, told: bool) -> None:
    model = MODEL | {"numHiddenLayers": 5, "slidingWindow": {"size": size, "windowedLayers": 4}}
    found = of(ran(request(workload={"model": model}, **STEP_ALONE)), "bf16")
    assert found.training.layers_measured == 4
    words = "3 of the 4 layers that ran have a sliding window, 4 of the model's 5 do"
    assert any(note.startswith(words) for note in found.notes) is told
    assert any(note.startswith("attention is not fused") for note in found.notes)
