"""From regions of a short model to the full-depth figure: exact where the truth is known, a reason where it is not.

The last layers of NVFP4 stay in BF16: computed from measured layer times, in rates and in energy.
"""

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.method import full_depth as depths
from precision_agent.protocol import Part, RegionName
from precision_agent.run.run import run_request
from precision_api.exchange.result import Failure, MeasurementResult, RecipeResult
from precision_api.exchange.stats import BETWEEN_RUNS, Z_975, depth_agrees
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, layers_in_bf16, risk_of, with_bf16
from precision_api.models.flops import parameters, training_flops_per_token
from precision_api.models.workload import Workload, resolve
from tests.support.golden import beside
from tests.support.result_objects import of, request_text

TABLES = beside(__file__)

TOKENS = 8192
LAYER = {"bf16": (0.010, 0.020), "nvfp4": (0.005, 0.010)}
"""Seconds of one layer, forward and backward."""
HEAD, OPTIMIZER_PER_LAYER, OPTIMIZER_OF_HEAD = 0.048, 0.004, 0.012
WATTS: dict[Part, float] = {"layers": 900.0, "head": 700.0, "optimizer": 400.0}
LONG = st.floats(min_value=1e-6, max_value=1e3)
LAYERS = 32


def short_model(recipe: str, layers: int, drift: tuple[float, ...] = (1.0, 1.01, 0.99)) -> depths.Values:
    """Regions of a synthetic node whose truth is known, for a model of `layers` layers, three ABBA blocks."""
    forward, backward = LAYER[recipe]
    seconds: dict[RegionName, float] = {
        "layers_forward": layers * forward,
        "layers_backward": layers * backward,
        "head": HEAD,
        "optimizer": layers * OPTIMIZER_PER_LAYER + OPTIMIZER_OF_HEAD,
    }
    return {name: [value * factor for factor in drift] for name, value in seconds.items()}


def depth(layers: int, measured: int = 4, shards: int = 1, **more: Any) -> depths.Depth:
    held = (layer * OPTIMIZER_PER_LAYER + OPTIMIZER_OF_HEAD for layer in (layers, measured))
    return depths.Depth(layers, measured, optimizer_scale=next(held) / shards / next(held), **more)


def truth(recipe: str, layers: int) -> float:
    """Seconds of a micro batch through the whole model, with an optimizer step every eighth."""
    return layers * sum(LAYER[recipe]) + HEAD + (layers * OPTIMIZER_PER_LAYER + OPTIMIZER_OF_HEAD) / 8


def full_depth(values: depths.Values, asked: depths.Depth, higher: depths.Values | None = None) -> depths.FullDepth:
    worked_out = depths.full_depth(values, asked, higher)
    assert isinstance(worked_out, depths.FullDepth)
    return worked_out


def rates(recipe: str, layers: int, drift: tuple[float, ...] = (1.0, 1.01, 0.99)) -> depths.NodeRates:
    steps = full_depth(short_model(recipe, 4, drift), depth(layers)).values
    return depths.node_rates({f"GPU-{index}": steps for index in range(4)}, TOKENS)


@pytest.mark.parametrize("layers", [24, 32, 126])
def test_rate_speedup_and_joules_a_token_of_a_known_node_are_exact_at_full_depth(layers: int) -> None:
    steady = (1.0, 1.0, 1.0)
    for recipe in LAYER:
        node = rates(recipe, layers, steady)
        assert node.tokens_per_second.value == pytest.approx(4 * TOKENS / truth(recipe, layers), rel=1e-12)
        assert node.synchronous.value == pytest.approx(node.tokens_per_second.value, rel=1e-12)
        optimizer = (layers * OPTIMIZER_PER_LAYER + OPTIMIZER_OF_HEAD) / 8
        joules = layers * sum(LAYER[recipe]) * 900 + HEAD * 700 + optimizer * 400
        short = short_model(recipe, 4)
        seconds = {name: values[0] for name, values in short.items() if not isinstance(values, Failure)}
        watts = depths.full_depth_watts(seconds, WATTS, depth(layers))
        assert not isinstance(watts, Failure)
        rate = TOKENS / full_depth(short, depth(layers)).values[0]
        assert watts / rate == pytest.approx(joules / TOKENS, rel=1e-12)
    ratio = depths.speedup(rates("nvfp4", layers), rates("bf16", layers))
    assert not isinstance(ratio, Failure)
    assert ratio.value == pytest.approx(truth("bf16", layers) / truth("nvfp4", layers), rel=1e-12)
    assert ratio.upper - ratio.lower < 1e-9  # both drifted alike, so that nothing is left of it


def test_a_full_depth_ratio_is_finite_and_not_the_short_models_own() -> None:
    """A head of a third of the FLOPs hides most of what the layers gain."""
    ratio = depths.speedup(rates("nvfp4", 32), rates("bf16", 32))
    assert not isinstance(ratio, Failure)
    parts = {name: sum(next(zip(*short_model(name, 4).values(), strict=True))) for name in LAYER}
    assert parts["bf16"] / parts["nvfp4"] < 1.5 < ratio.value
    assert all(math.isfinite(value) for value in full_depth(short_model("bf16", 4), depth(2048)).values)


def test_an_interval_is_as_wide_as_the_regions_make_it() -> None:
    narrow, wide = (rates("bf16", 32, (1.0, 1 + d, 1 - d)).tokens_per_second for d in (0.001, 0.01))
    between = Z_975 * BETWEEN_RUNS
    within = [math.log(one.upper / one.value) ** 2 - between**2 for one in (narrow, wide)]
    assert within[1] / within[0] == pytest.approx(100, rel=0.02)
    assert narrow.n == 3


@pytest.mark.parametrize("kept", [0, 3, 24])
@pytest.mark.parametrize("recompute", ["None", "Full"])
@pytest.mark.parametrize("shards", [1, 16])
@pytest.mark.parametrize("accumulation", [1, 8, 64])
@pytest.mark.parametrize("layers", [24, 32, 126])
def test_the_step_is_the_designs_sum_whatever_is_asked_for_and_however_many_layers_ran(
    layers: int, accumulation: int, shards: int, recompute: str, kept: int
) -> None:
    """The full-depth step, written out: L x layer + head + optimizer / (gradientAccumulation x shards)."""
    again = 2 if recompute == "Full" else 1
    low, high = (again * forward + backward for forward, backward in (LAYER["nvfp4"], LAYER["bf16"]))
    optimizer = (layers * OPTIMIZER_PER_LAYER + OPTIMIZER_OF_HEAD) / accumulation / shards
    more = {"gradient_accumulation": accumulation, "recompute": recompute, "layers_bf16": kept}
    for ran in (1, 2, 4, 12):
        whole = depth(layers, ran, shards, **more)
        got = full_depth(short_model("nvfp4", ran), whole, short_model("bf16", ran) if kept else None).values[0]
        assert got == pytest.approx((layers - kept) * low + kept * high + HEAD + optimizer, rel=1e-12)


def test_the_optimizer_goes_with_the_weights_of_one_gpu() -> None:
    workload = resolve(Workload.model_validate({"preset": "llama3-8b", "tensorParallel": 2}))
    asked = depths.depth_of(workload, 4)
    model = workload.model
    assert model is not None
    counted = parameters(model)
    layer = (counted.total - 2 * counted.embedding - 4096) / 32
    norms = 2 * 4096

    def held(layers: int) -> float:
        return layers * ((layer - norms) / 2 + norms) + 4096 + counted.embedding / 2

    assert (asked.layers, asked.measured, asked.gradient_accumulation) == (32, 4, 8)
    assert asked.optimizer_scale == pytest.approx(held(32) / held(4))
    assert depths.depth_of(workload, 4, optimizer_parameters=10**9).optimizer_scale == pytest.approx(held(32) / 1e9)


@pytest.mark.parametrize(("expert", "shards", "of_experts"), [(1, 8, 8), (8, 8, 1), (8, 64, 8), (8, 1, 1)])
def test_experts_are_stepped_by_the_gpus_that_have_copies_of_them(expert: int, shards: int, of_experts: int) -> None:
    fields = {"preset": "qwen3-30b-a3b", "expertParallel": expert, "optimizerShards": shards}
    workload = resolve(Workload.model_validate(fields))
    experts = 48 * 128 * 3 * 2048 * 768
    rest = workload.parameters.total - workload.parameters.embedding - experts
    scale = depths.depth_of(workload, 4, optimizer_parameters=10**9).optimizer_scale
    assert 1e9 * scale == pytest.approx(rest / shards + experts / expert / of_experts)


@given(st.lists(LONG, min_size=2, max_size=6), st.integers(1, 200), st.integers(1, 8))
def test_a_model_of_the_depth_that_ran_takes_its_own_time(times: list[float], accumulation: int, layers: int) -> None:
    regions: depths.Values = {"layers_forward": times, "layers_backward": times, "head": times, "optimizer": times}
    got = full_depth(regions, depths.Depth(layers, layers, gradient_accumulation=accumulation)).values
    assert got == pytest.approx([3 * value + value / accumulation for value in times])


OUT_OF_MEMORY, CUDA = Failure(reason="out_of_memory"), Failure(reason="cuda_error", message="illegal address")


def without(name: RegionName, value: Failure | None) -> depths.Values:
    kept = {key: values for key, values in short_model("bf16", 4).items() if key != name}
    return kept if value is None else {**kept, name: value}


@pytest.mark.parametrize("name", ["head", "optimizer"])
@pytest.mark.parametrize("value", [None, OUT_OF_MEMORY], ids=["absent", "out of memory"])
def test_what_does_not_fit_is_named_as_missing(name: RegionName, value: Failure | None) -> None:
    got = full_depth(without(name, value), depth(32))
    assert got.missing == (name,)
    assert got.values[0] < truth("bf16", 32)


@pytest.mark.parametrize(
    ("name", "value"),
    [("head", CUDA), ("optimizer", CUDA), ("layers_forward", OUT_OF_MEMORY), ("layers_backward", None)],
)
def test_a_failed_region_makes_no_figure_smaller_but_fails_it(name: RegionName, value: Failure | None) -> None:
    failed = depths.full_depth(without(name, value), depth(32))
    assert name in failed.message
    assert failed.reason in ("cuda_error", "out_of_memory", "region_not_measured")


def test_bf16_that_failed_variants_that_differ_and_absent_watts_are_failures() -> None:
    failed = depths.full_depth(short_model("nvfp4", 4), depth(32, layers_bf16=2), without("layers_forward", CUDA))
    assert failed.message.startswith("the layers in BF16: layers_forward: illegal address")
    steps = full_depth(short_model("bf16", 4), depth(32)).values
    failed = depths.speedup(
        depths.node_rates({"a": steps}, TOKENS, missing=("head",)), depths.node_rates({"a": steps}, TOKENS)
    )
    assert (failed.reason, "head" in failed.message) == ("parts_differ", True)
    seconds: dict[RegionName, float] = {"layers_forward": 1.0, "layers_backward": 2.0, "head": 0.5}
    failed = depths.full_depth_watts(seconds, {"layers": 900.0}, depth(32))
    assert failed == Failure(reason="power_part_missing", message="no draw of head")


def test_regions_of_different_abba_blocks_are_neither_added_nor_cut_to_fit() -> None:
    assert depths.full_depth({**short_model("bf16", 4), "head": [1.0, 1.0]}, depth(32)) == Failure(
        reason="regions_differ", message="regions were timed in different numbers of palindromes"
    )
    forward, backward = [0.04, 0.04, 0.04], [0.08, 0.08]
    cut = {"layers_forward": forward, "layers_backward": backward, "head": [0.1, 0.1], "optimizer": [0.1, 0.1]}
    failed = depths.full_depth(cut, depth(32))  # type: ignore[arg-type]
    assert failed.reason == "regions_differ"


def test_one_slow_gpu_slows_the_node_little_and_tensor_parallel_ones_share_tokens() -> None:
    step = truth("bf16", 32)
    steps = {f"GPU-{index}": [step * (1.25 if index == 5 else 1.0)] * 3 for index in range(8)}
    node = depths.node_rates(steps, TOKENS)
    alone = TOKENS / step
    assert (node.slowest_gpu, node.tokens_per_second.value) == ("GPU-5", pytest.approx(7.8 * alone))
    assert node.synchronous.value == pytest.approx(8 * 0.8 * alone)
    assert node.gpu_spread == pytest.approx(0.8 / 0.975)
    assert node.tokens_per_second.value * node.gpu_spread == pytest.approx(node.synchronous.value)
    node = depths.node_rates({"a": [1.0, 1.0], "b": [1.0, 1.0]}, TOKENS, tensor_parallel=8)
    assert node.tokens_per_second.value == pytest.approx(2 * TOKENS / 8)


def test_a_second_depth_is_predicted_from_the_first_and_catches_layers_that_cost_more_together() -> None:
    for ran in (2, 8):
        ratio = depths.depth_check(short_model("bf16", 4), depth(32, 4), short_model("bf16", ran), depth(32, ran))
        assert ratio == pytest.approx(1.0)
    crowded = {name: [1.08 * value for value in values] for name, values in short_model("bf16", 8).items()}
    ratio = depths.depth_check(short_model("bf16", 4), depth(32, 4), crowded, depth(32, 8))
    assert ratio == pytest.approx(1 / 1.08)
    assert not isinstance(ratio, Failure)
    assert not depth_agrees(ratio)
    assert depth_agrees(1.029)
    failed = depths.depth_check(short_model("bf16", 4), depth(32), without("head", CUDA), depth(32, 8))
    assert "second depth" in failed.message


@pytest.mark.parametrize(("layers", "measured", "kept"), [(32, 0, 0), (2, 1, 3)])
def test_a_depth_that_can_not_be_is_an_error(layers: int, measured: int, kept: int) -> None:
    with pytest.raises(ValueError, match="in BF16"):
        depths.Depth(layers, measured, layers_bf16=kept)


@pytest.mark.parametrize(
    ("measured", "windowed", "sequence", "told"),
    TABLES["windows"].values(),
    ids=TABLES["windows"],
)
def test_layers_with_other_windows_than_the_models_are_told_with_what_they_do_to_its_flops(
    measured: int, windowed: int, sequence: int, told: str | None
) -> None:
    note = depths.other_windows(resolve(Workload(preset="gemma2-9b", sequence_length=sequence)), measured, windowed)
    assert (note is None) == (told is None)
    if told:
        assert f"{windowed} of the {measured} layers that ran" in str(note)
        assert "21 of the model's 42 do" in str(note)
        assert f"{told} FLOPs than the model's" in str(note)


def test_the_difference_of_windows_in_flops_is_that_of_a_model_with_such_layers() -> None:
    gemma = resolve(Workload(preset="gemma2-9b", sequence_length=16384))
    full = training_flops_per_token(gemma.model.model_copy(update={"sliding_window": None}), 16384)
    assert f", {full / gemma.training_flops_per_token - 1:.1%} more FLOPs" in str(depths.other_windows(gemma, 4, 0))


@cache
def replayed(kept: int | None, baseline: str = "bf16") -> MeasurementResult:
    """Of one GPU, frozen: one for all tests that keep as many layers."""
    recipes = with_bf16(baseline, ("nvfp4",), kept)  # type: ignore[arg-type]
    asked = {"workload": resolve(Workload(preset="llama3-8b")).workload, "gpus": 1, "recipes": recipes}
    found = run_request(request_text(last_layers_bf16=kept, baseline=baseline, **asked), "replay").result
    assert found.recipes[0].training.layers == LAYERS, "llama3-8b"
    return found


def test_kept_layers_take_the_baselines_time_and_energy_by_their_number_and_a_reader_is_told_what_was_computed() -> (
    None
):
    none, some, half, most = map(replayed, (0, 8, 16, LAYERS - 1))
    steps = [of(result, "nvfp4").training.step_seconds.value for result in (none, some, most)]
    per_layer = (steps[1] - steps[0]) / 8
    assert per_layer > 0, "the recipe is faster than the baseline"
    assert steps[2] - steps[0] == pytest.approx(per_layer * (LAYERS - 1), rel=1e-3)
    rows = of(none, "bf16"), of(half, "nvfp4"), of(none, "nvfp4")
    baseline, kept, alone = (row.training.energy.tokens_per_joule for row in rows)
    assert baseline < kept < alone
    assert of(some, "bf16").training == of(none, "bf16").training
    assert of(some, "bf16").notes == of(none, "bf16").notes
    assert any("layers that stay in BF16: the last 8" in note for note in some.recipes[-1].notes)


def test_where_nothing_is_said_the_last_15_percent_stay_in_bf16_whatever_the_baseline() -> None:
    said, given = replayed(None), replayed(5)
    assert (of(said, "nvfp4").last_layers_bf16, of(said, "bf16").last_layers_bf16) == (5, None)
    assert of(said, "nvfp4").training == of(given, "nvfp4").training
    assert (of(replayed(0), "nvfp4").last_layers_bf16, of(replayed(0), "nvfp4").notes) == (0, of(said, "bf16").notes)
    fp8 = replayed(16, "fp8_current")
    assert [row.recipe for row in fp8.recipes] == ["fp8_current", "nvfp4", "bf16"]
    steps = [of(result, "nvfp4").training.step_seconds.value for result in (fp8, replayed(16))]
    assert steps[0] == pytest.approx(steps[1], rel=0.02)
    meanings = [of(replayed(kept, "fp8_current"), "nvfp4").meaning for kept in (0, 5, 16)]
    assert [meaning.kind for meaning in meanings] == ["overhead", "overhead", "not_beneficial"]
    assert "its GEMMs alone (the last 16 layers' in BF16) run 0.78x" in meanings[-1].sentence


def test_the_sums_of_a_hybrid_which_has_no_step_count_them_and_its_sentence_names_what_it_compares() -> None:
    def sums(kept: int | None) -> tuple[list[float], RecipeResult]:
        workload, recipes = resolve(Workload(preset="nemotron-3-nano-30b-a3b")).workload, ("bf16", "nvfp4")
        asked = request_text(last_layers_bf16=kept, workload=workload, recipes=recipes, gpus=1)
        rows = {row.recipe: row for row in run_request(asked, "replay").result.recipes}
        return [part.seconds.value for name in recipes for part in rows[name].sums], rows["nvfp4"]

    (*_, alone), _ = sums(0)
    (_, bf16, _, kept), nvfp4 = sums(None)
    assert kept == pytest.approx(44 / 52 * alone + 8 / 52 * bf16, rel=1e-3)
    assert (nvfp4.last_layers_bf16, nvfp4.training.tokens_per_second) == (8, None)
    cast, bare = (f"{part.speedup.value:.2f}x" for part in nvfp4.sums)
    beside = f"run {bare} as fast as bf16's, with their casts {cast}; no training figure"
    assert f"nvfp4: its GEMMs alone (the last 8 layers' in BF16) {beside}" in nvfp4.meaning.sentence


@pytest.mark.parametrize("layers", [1, 2, 7, 32, 100, 126])
def test_layers_in_bf16_are_a_share_rounded_up_and_never_all(layers: int) -> None:
    kept = {recipe: layers_in_bf16(recipe, layers) for recipe in RECIPE_NAMES}
    assert kept == {r: min(layers - 1, -(-15 * layers // 100)) if "nvfp4" in r else 0 for r in RECIPE_NAMES}
    assert layers_in_bf16("nvfp4", layers, 0) == 0


def test_a_risk_has_its_source_in_a_sentence() -> None:
    risky = {recipe for recipe in RECIPE_NAMES if risk_of(recipe)}
    assert risky == {"nvfp4_no_rht", "nvfp4_fast_math", "nvfp4_4over6_weights"}
    assert {recipe for recipe in RECIPE_NAMES if risk_of(recipe, 0)} == {"nvfp4", *risky}
    assert risky < {recipe for recipe, row in RECIPES.items() if row.variant_of}, "only where a profile lists it"
    assert '"keep the last 15% of the layers in BF16 precision for better stability"' in risk_of("nvfp4", 0)
    assert '"may degrade convergence quality"' in risk_of("nvfp4_no_rht", 5)
