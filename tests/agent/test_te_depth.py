"""Training steps on a made-up GPU: their regions, their depth, and what happens where memory ends."""

from typing import Any

import pytest

from precision_agent import protocol
from precision_agent.backends.te.sizes import Trial
from precision_agent.cases import Variant
from precision_agent.method.full_depth import Depth, depth_check, depth_of, full_depth
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.models.workload import resolve
from tests.support.te_bench import DEEP, HIDDEN, VOCABULARY, Bench, request, sample, us
from tests.support.te_device import BATCHED, GEMM, NORM, QUANTISE

pytestmark = pytest.mark.torch


def layer_us(recipe: str, accumulation: int = 2) -> tuple[float, float]:
    """Forward and backward of a made-up layer: four matrices."""
    gemm, cast = GEMM[recipe][1], QUANTISE[1]
    return 4 * (gemm + cast + cast / accumulation) + NORM[1] + BATCHED[1], 4 * (2 * gemm + cast)


@pytest.mark.parametrize("recipe", RECIPE_NAMES[1:])
def test_the_four_regions_of_a_training_step_are_timed_apart(recipe: Any) -> None:
    bench = Bench(asked=request(recipes=("bf16", recipe)))
    answer = sample(bench.backend.measure(bench.training, bench.variant(recipe), 0.0))
    forward, backward = layer_us(recipe)
    assert (answer.layers_measured, us(answer.regions["layers_forward"])) == (2, pytest.approx(2 * forward))
    assert us(answer.regions["layers_backward"]) == pytest.approx(2 * backward)
    assert us(answer.regions["head"]) == pytest.approx(3 * 10.0)
    assert us(answer.regions["optimizer"]) == pytest.approx(5.0)
    assert answer.seconds == pytest.approx(sum(answer.regions.values()) - answer.regions["optimizer"])
    per_layer = HIDDEN * (3 * HIDDEN + HIDDEN + 3 * 2 * HIDDEN) + HIDDEN  # the matrices and a norm
    assert answer.optimizer_parameters == 2 * per_layer + HIDDEN * VOCABULARY


def test_the_full_depth_step_from_a_short_model_is_the_deep_models() -> None:
    bench = Bench(asked=request(workload=DEEP))
    answer = sample(bench.backend.measure(bench.training, bench.variant("fp8_current"), 0.0))
    assert answer.layers_measured == 4
    values = {name: [value] for name, value in answer.regions.items()}
    deep = full_depth(values, Depth(8, answer.layers_measured, 4, 1))  # type: ignore[arg-type]
    assert not isinstance(deep, Failure)
    forward, backward = layer_us("fp8_current", 4)
    assert us(deep.values[0]) == pytest.approx(8 * (forward + backward) + 30.0 + 5.0 / 4)


def test_a_second_depth_has_all_parts_of_the_first_and_is_predicted_from_it() -> None:
    bench, variant = Bench(asked=request(workload=DEEP)), Variant("fp8_current", "fp8_current")
    first = sample(bench.backend.measure(bench.training, variant, 0.0))
    second = sample(bench.backend.second_depth(variant, 0.0))
    assert (first.layers_measured, second.layers_measured) == (4, 2)
    workload, held = resolve(bench.request.workload), [step.optimizer_parameters or 0 for step in (first, second)]
    first_depth, second_depth = (
        (
            {name: [value] for name, value in step.regions.items()},
            depth_of(workload, step.layers_measured or 0, optimizer_parameters=step.optimizer_parameters),
        )
        for step in (first, second)
    )
    adam = 5e-6  # of the made-up GPU, however many weights there are
    predicted = second.seconds + adam * held[1] / held[0]
    assert depth_check(*first_depth, *second_depth) == pytest.approx(predicted / (second.seconds + adam))  # type: ignore[arg-type]


def test_a_second_depth_that_does_not_fit_says_so() -> None:
    bench, variant = Bench(), Variant("bf16", "bf16")
    bench.world.most_layers = 1
    assert sample(bench.backend.measure(bench.training, variant, 0.0)).layers_measured == 1
    answer = bench.backend.second_depth(variant, 0.0)
    assert (answer.reason, "layer 2" in answer.message) == ("out_of_memory", True)


def test_where_memory_ends_the_model_is_made_shallower_for_all_variants() -> None:
    bench = Bench()
    bf16, fp8 = bench.variant("bf16"), bench.variant("fp8_current")
    assert sample(bench.backend.measure(bench.training, bf16, 0.0)).layers_measured == 2
    bench.world.most_layers = 1
    assert sample(bench.backend.measure(bench.training, fp8, 0.0)).layers_measured == 1
    assert list(bench.backend._models) == ["fp8_current"]
    assert bench.backend.prepare(bench.gemm("qkv", "fprop"), bf16) is None
    assert set(bench.backend._models) == {"bf16", "fp8_current"}
    assert sample(bench.backend.settle(bf16, 0.0)).layers_measured == 1
    assert bench.engine.released > 0


def test_gemms_make_room_and_what_does_not_fit_even_so_is_out_of_memory_with_the_error() -> None:
    bench = Bench()
    bench.backend.prepare(bench.gemm("qkv", "fprop"), bench.variant("bf16"))
    bench.world.most_layers = 0
    answer = bench.backend.measure(bench.training, bench.variant("bf16"), 0.0)
    assert answer.reason == "out_of_memory"
    assert "CUDA out of memory at layer 1" in answer.message
    assert not bench.backend._units
    assert sample(bench.backend.measure(bench.gemm("qkv", "fprop"), bench.variant("bf16"), 0.0))


def test_a_profiled_step_takes_the_room_of_gemms_and_other_variants_which_come_back_when_asked_for() -> None:
    bench = Bench()
    bf16, fp8 = bench.variant("bf16"), bench.variant("fp8_current")
    for variant in (bf16, fp8):
        assert bench.backend.prepare(bench.gemm("qkv", "fprop"), variant) is None
        assert bench.backend.prepare(bench.training, variant) is None
    bench.engine.no_room_to_profile = 3  # two GEMMs and a model
    assert isinstance(bench.backend.profile(fp8, "training", 0.0), protocol.Profile)
    assert (bench.backend._units, list(bench.backend._models)) == ({}, ["fp8_current"])
    answer = bench.backend.profile(bf16, "training", 0.0)
    assert {kernel.module for kernel in answer.kernels} >= {"attention", "mlp", "head"}
    assert not bench.backend._units
    bench.engine.no_room_to_profile = 99
    answer = bench.backend.profile(bf16, "training", 0.0)
    assert (answer.reason, "to profile" in answer.message) == ("out_of_memory", True), "it has no room even alone"


def test_a_model_that_lent_its_room_comes_back_as_deep_as_it_was_timed_or_says_why_not() -> None:
    bench = Bench()
    bf16, fp8 = bench.variant("bf16"), bench.variant("fp8_current")
    for variant in (bf16, fp8):
        assert sample(bench.backend.measure(bench.training, variant, 0.0)).layers_measured == 2
    bench.engine.no_room_to_profile = 1
    assert isinstance(bench.backend.profile(fp8, "training", 0.0), protocol.Profile)
    bench.world.most_layers = 1
    for _ in range(2):
        answer = bench.backend.profile(bf16, "training", 0.0)
        assert (answer.reason, "layer 2" in answer.message) == ("out_of_memory", True)
    bench.world.most_layers = 2
    assert isinstance(bench.backend.profile(bf16, "training", 0.0), protocol.Profile)
    assert bench.backend._trial == Trial(2)
