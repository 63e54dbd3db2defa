"""The whole backend on a made-up GPU and a Transformer Engine made from each tag's signatures."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from precision_agent import protocol
from precision_agent.backends.te.problem import Problem, problem_of
from precision_agent.backends.te.session.graphs import declined
from precision_agent.backends.te.sizes import Trial, unit_bytes
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.backends.te.steps.quantising import quantising, wrong_modules
from precision_agent.backends.te.tiers.core_probe import core_probe, core_question
from precision_agent.backends.te.tiers.gemm_tier import Unit
from precision_agent.backends.te.tiers.loss_runs import INIT_STD, LossModel
from precision_agent.backends.te.tiers.plain import plain
from precision_agent.backends.te.tiers.profiles import STEPS_PROFILED
from precision_agent.backends.te.tiers.training_tier import Shared
from precision_agent.backends.transformer_engine import TransformerEngine
from precision_agent.cases import GemmCase, TrainingCase, Variant, cases_of
from precision_agent.method.full_depth import Depth, depth_check, depth_of, full_depth
from precision_agent.precision.evidence import ONCE, quantization_tax, verification_of
from precision_agent.precision.kernels import classify
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.models.workload import resolve
from tests.support.te_device import BATCHED, GEMM, NORM, QUANTISE
from tests.support.te_fake import fakes, listed_calls
from tests.support.te_prober import FakeProber
from tests.support.te_signatures import TAGS

pytestmark = pytest.mark.torch

HIDDEN, VOCABULARY = 32, 128
MODEL = {
    "hiddenSize": HIDDEN, "intermediateSize": 2 * HIDDEN, "numAttentionHeads": 2, "numHiddenLayers": 2,
    "vocabSize": VOCABULARY, "gatedMLP": True,
}  # fmt: skip
DEEP = {"model": MODEL | {"numHiddenLayers": 8}, "gradientAccumulation": 4}
"""A workload of which four layers are trained; all others are as shallow as their test lets them be."""
RECIPES = ("bf16", "fp8_delayed", "fp8_current", "nvfp4")


def request(**given: Any) -> MeasurementRequest:
    workload = {"name": "small", "model": MODEL, "microBatchSize": 1, "sequenceLength": 32, "gradientAccumulation": 2}
    workload |= given.pop("workload", {})
    base = {
        "namespace": "n", "profile": "p", "run": "r", "attempt": 1, "deadline_seconds": 600, "recipes": RECIPES,
        "node": {"name": "node", "uid": "u", "product": "B200", "gpus": 1}, "workload": workload,
    }  # fmt: skip
    return MeasurementRequest.model_validate(base | given)


class Bench:
    """A backend on a made-up GPU."""

    def __init__(self, tag: str = "v2.20", asked: MeasurementRequest | None = None, **engine: Any) -> None:
        self.request = asked or request()
        self.world, self.api, self.engine = fakes(tag, **engine)
        self.prober = FakeProber()
        self.backend = TransformerEngine(self.request, "cuda", api=self.api, engine=self.engine, prober=self.prober)
        self.cases = cases_of(self.request, resolve(self.request.workload))

    def variant(self, label: str) -> Variant:
        return next(variant for variant in self.cases.variants if variant.label == label)

    def gemm(self, name: str, pass_: str, mode: str = "autocast") -> GemmCase:
        found = (case for case in self.cases.gemms if (case.name, case.pass_, case.mode) == (name, pass_, mode))
        return next(found)

    @property
    def training(self) -> TrainingCase:
        assert self.cases.training
        return self.cases.training


def sample(answer: protocol.Sample | Failure) -> protocol.Sample:
    assert isinstance(answer, protocol.Sample), answer
    return answer


def us(seconds: float) -> float:
    return seconds * 1e6


@pytest.mark.parametrize("tag", TAGS)
def test_all_calls_of_a_run_are_carried_out_on(tag: str, tmp_path: Path) -> None:
    bench = Bench(tag)
    backend = bench.backend
    for variant in (bench.variant("bf16"), bench.variant("fp8_delayed"), bench.variant("nvfp4")):
        for case in (bench.gemm("attn_out", "fprop"), bench.gemm("attn_out", "dgrad"), bench.training):
            assert backend.prepare(case, variant) is None
            sample(backend.settle(variant, 0.0))
            sample(backend.measure(case, variant, 0.0))
        for part in ("layers", "head", "optimizer"):
            sample(backend.power_window(variant, part, 0.0, 0.0, 1))  # type: ignore[arg-type]
        assert isinstance(backend.profile(variant, "training", 0.0, tmp_path / "trace.json"), protocol.Profile)
        assert isinstance(backend.inspect(variant), protocol.Inspection)
        assert backend.memory(variant).allocated_peak_bytes
    second = sample(backend.second_depth(bench.variant("nvfp4"), 0.0))
    alike = {name for name in get_args(protocol.RegionName) if "dense" not in name}
    assert (second.layers_measured, set(second.regions)) == (1, alike)
    assert isinstance(backend.loss_run(bench.variant("fp8_delayed"), protocol.LossPlan(2, 0)), protocol.LossTrack)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    listed = listed_calls()
    for symbol, names in bench.world.calls:
        if not symbol.endswith("autocast"):
            assert names <= listed[symbol], f"{symbol} is called with {names - listed[symbol]}, which NEEDS lacks"


def test_fast_math_is_set_while_its_own_arm_works_and_at_no_other_time() -> None:
    bench = Bench(asked=request(recipes=("bf16", "nvfp4", "nvfp4_fast_math")))
    for label, value in (("nvfp4", None), ("nvfp4_fast_math", "1"), ("nvfp4", None)):
        bench.world.fast_math.clear()
        variant = bench.variant(label)
        for case in (bench.gemm("attn_out", "fprop"), bench.training):
            assert bench.backend.prepare(case, variant) is None
            sample(bench.backend.measure(case, variant, 0.0))
        bench.backend.profile(variant, "training", 0.0)
        assert bench.backend.inspect(variant).flags.get("NVTE_USE_FAST_MATH") == (True if value else None)
        assert (bench.world.fast_math, os.environ.get("NVTE_USE_FAST_MATH")) == ({value}, None)


def test_a_linear_layers_passes_are_told_apart_and_its_weight_is_quantised_once_an_optimizer_step() -> None:
    bench, variant = Bench(), Variant("fp8_current", "fp8_current")
    cases = [bench.gemm("qkv", pass_) for pass_ in ("fprop", "dgrad", "wgrad")]
    for case in cases:
        assert bench.backend.prepare(case, variant) is None
    forward, dgrad, wgrad = (sample(bench.backend.measure(case, variant, 1e-4)) for case in cases)
    gemm, cast = GEMM["fp8_current"][1], QUANTISE[1]
    assert us(forward.seconds) == pytest.approx(gemm + cast + cast / 2)
    assert us(dgrad.seconds) == pytest.approx(gemm + cast)
    assert us(wgrad.seconds) == pytest.approx(gemm)
    assert forward.execution == "graph"
    assert (dgrad.start, dgrad.end, dgrad.calls) == (forward.start, forward.end, forward.calls)


def test_bf16_goes_through_the_same_module_and_quantises_nothing() -> None:
    bench, variant = Bench(), Variant("bf16", "bf16")
    for pass_ in ("fprop", "dgrad", "wgrad"):
        assert us(sample(bench.backend.measure(bench.gemm("qkv", pass_), variant, 0.0)).seconds) == pytest.approx(10.0)
    assert bench.world.quantised_weights == 0
    assert not any(call[0] == "common.recipe.DelayedScaling" for call in bench.world.calls)


@pytest.mark.parametrize(
    ("recipe", "accumulation"), [("fp8_current", 1), ("fp8_current", 2), ("fp8_current", 4), ("nvfp4", 4), ("bf16", 4)]
)
def test_prequantized_holds_the_gemm_and_nothing_of_the_weights_cast(recipe: Any, accumulation: int) -> None:
    """The first micro batch quantises the weight, the profiled ones do not: the two must not be mixed."""
    bench = Bench(asked=request(workload={"gradientAccumulation": accumulation}))
    variant = Variant(recipe, recipe)
    for pass_ in ("fprop", "dgrad", "wgrad"):
        timed = sample(bench.backend.measure(bench.gemm("qkv", pass_, "prequantized"), variant, 1e-4))
        share = bench.backend.profile(variant, "gemms", 0.0).gemms["qkv", pass_].gemm_share
        assert timed.holds_quantization
        assert share
        assert us(timed.seconds * share) == pytest.approx(GEMM[None if recipe == "bf16" else recipe][1])


@pytest.mark.parametrize(("tag", "recipe"), [("v2.8", "fp8_delayed"), ("v2.20", "nvfp4"), ("v2.20", "bf16")])
def test_the_librarys_own_call_takes_what_the_gemm_kernel_does(tag: str, recipe: Any) -> None:
    bench, variant = Bench(tag, request(training=False)), Variant(recipe, recipe)
    rows = bench.backend.own_gemm_calls(variant, 0.0, 0.0, 2)
    assert not isinstance(rows, Failure), rows
    assert len(rows) == 2
    found = rows[0]
    assert {name for name, _ in found} == {"qkv", "attn_out", "mlp_up", "mlp_down", "lm_head"}
    assert us(found["qkv", "wgrad"]) == pytest.approx(GEMM[None if recipe == "bf16" else recipe][1])
    assert us(found["lm_head", "fprop"]) == pytest.approx(GEMM[None][1])
    left = [one for one in bench.world.calls if one[0] == "pytorch.cpp_extensions.general_gemm"]
    assert {"layout", "grad", "use_split_accumulator", "out_dtype"} <= left[0][1]


def test_the_librarys_own_call_leaves_quantizers_as_they_were_and_experts_out() -> None:
    bench, variant = Bench(), Variant("fp8_current", "fp8_current")
    bench.backend.own_gemm_calls(variant, 0.0, 0.0, 1)
    unit = next(unit for key, unit in bench.backend._units.items() if key[0] == "fp8_current")
    assert not isinstance(unit, Failure)
    assert all(not one.columnwise_usage for one in recipes.quantizers(unit.modules[0]).values())
    moe = Bench(asked=request(training=False, workload={"model": MODEL | {"moe": {"numExperts": 4, "topK": 2}}}))
    found = moe.backend.own_gemm_calls(variant, 0.0, 0.0, 1)
    assert not isinstance(found, Failure)
    assert not [name for name, _ in found[0] if "expert" in name]


@pytest.mark.parametrize(("l2_bytes", "rotated"), [(0, False), (24_000, True)])
def test_kernels_are_seen_without_the_gaps_between_them(l2_bytes: int, rotated: bool) -> None:
    """Both are of one GEMM, also where equal modules take turns."""
    bench, variant = Bench(l2_bytes=l2_bytes), Variant("fp8_current", "fp8_current")
    bench.world.gpu.gap = 5.0
    timed = sample(bench.backend.measure(bench.gemm("qkv", "dgrad", "prequantized"), variant, 0.0))
    seen = bench.backend.profile(variant, "gemms", 0.0).gemms["qkv", "dgrad"]
    assert us(seen.seconds) == pytest.approx(GEMM["fp8_current"][1] + QUANTISE[1])
    assert us(timed.seconds) == pytest.approx(us(seen.seconds) + 2 * 5.0)
    assert us(seen.gaps) == pytest.approx(2 * 5.0, abs=0.01)
    assert any(not isinstance(unit, Failure) and unit.rotated > 1 for unit in bench.backend._units.values()) is rotated


def test_without_a_step_verdict_and_tax_are_those_of_all_gemms_of_the_full_model() -> None:
    """Shapes are equal in many layers, and the head is there once, in BF16."""
    asked = request(training=False, workload={"model": MODEL | {"numHiddenLayers": 32}})
    backend = Bench(asked=asked, l2_bytes=24_000).backend
    fp8, bf16 = (backend.profile(Variant(recipe, recipe), "gemms", 0.0) for recipe in ("fp8_current", "bf16"))
    assert (
        verification_of(
            Variant("fp8_current", "fp8_current"), None, protocol.Probe("ok"), fp8, protocol.Inspection()
        ).share
        == 1.0
    )
    tax, gemm, cast = quantization_tax("fp8_current", (fp8, ONCE), (bf16, ONCE)), GEMM["fp8_current"][1], QUANTISE[1]
    assert tax.least == pytest.approx(1 / (1 + (32 * 4 * 3 * gemm + 3 * GEMM[None][1]) / (32 * 4 * 2 * cast)))


def test_each_module_that_takes_its_turn_has_a_gradient_of_its_own() -> None:
    bench, variant = Bench(l2_bytes=24_000), Variant("fp8_current", "fp8_current")
    bench.backend.prepare(bench.gemm("qkv", "dgrad"), variant)
    [unit] = (unit for unit in bench.backend._units.values() if not isinstance(unit, Failure))
    met = list[int]()
    for module in unit.modules:
        module.register_full_backward_pre_hook(lambda _, gradients: met.append(gradients[0].data_ptr()))
    unit.program.once()
    assert len(set(met)) == len(unit.modules) == unit.rotated > 1
    shape, held = unit.shape, sum(tensor.nbytes for tensor in (*unit.gradients, *unit.inputs))
    assert held < unit_bytes(shape.m, shape.k, shape.n, shape.groups, 24_000)


def test_data_are_drawn_from_other_numbers_than_weights() -> None:
    """Transformer Engine draws weights from torch's own generator, with the same seed."""
    bench = Bench()
    problem = problem_of(bench.request, bench.api)
    assert isinstance(problem, Problem)
    unit = Unit(bench.api, bench.engine, LinearShape(64, 64, 64), "bf16", 1, problem.seed)
    drawn = {
        "GEMM": unit.inputs[0],
        "training": Shared(bench.api, bench.engine, problem, Trial(1)).x,
        "loss": LossModel(bench.api, bench.engine, problem, Parts.of("bf16"), problem.seed).embedding / INIT_STD,
    }
    torch.manual_seed(problem.seed)
    weights = torch.randn(64 * 64)
    for name, data in drawn.items():
        same = torch.corrcoef(torch.stack([data.detach().float().flatten()[:1024], weights[:1024]]))[0, 1]
        assert abs(same) < 0.2, name


@pytest.mark.parametrize(("sequence", "rows"), [(32, 64), (300, 7), (2048, 1), (4096, 1)])
def test_a_loss_step_has_at_least_2048_tokens(sequence: int, rows: int) -> None:
    bench = Bench(asked=request(workload={"sequenceLength": sequence}))
    problem = problem_of(bench.request, bench.api)
    assert isinstance(problem, Problem)
    model = LossModel(bench.api, bench.engine, problem, Parts.of("bf16"), 0)
    assert (model.sequence, model.rows) == (sequence, rows)


@pytest.mark.parametrize("load", ["gemms", "training"])
def test_a_profile_without_kernels_is_a_failure_with_its_reason(load: Any) -> None:
    bench, variant = Bench(blind=True), Variant("fp8_current", "fp8_current")
    assert bench.backend.profile(variant, load, 0.0).reason == "no_kernels"


def test_no_profiler_starts_while_a_variant_is_built_timed_or_loaded() -> None:
    bench, variant = Bench(), Variant("fp8_current", "fp8_current")
    for case in (bench.gemm("qkv", "fprop", "prequantized"), bench.training):
        assert bench.backend.prepare(case, variant) is None
        sample(bench.backend.measure(case, variant, 0.0))
    sample(bench.backend.settle(variant, 0.0, "gemms"))
    sample(bench.backend.power_window(variant, "layers", 0.0, 0.0, 1))
    sample(bench.backend.second_depth(variant, 0.0))
    assert bench.engine.profiles == 0
    assert isinstance(bench.backend.profile(variant, "training", 0.0), protocol.Profile)
    assert (bench.engine.profiles, bench.backend._trial) == (2, Trial(2)), "eager and replayed, as deep as it was timed"


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("engine", "sessions"), [({}, 2), ({"untold": 2}, 2), ({"capture_as": "refused"}, 1)], ids=["graph", "untold", "no"]
)
def test_a_training_steps_kernels_are_its_replayed_graphs_in_the_modules_of_the_eager_ones(
    recipe: Any, engine: dict[str, Any], sessions: int, tmp_path: Path
) -> None:
    bench, variant = Bench(**engine), Variant(recipe, recipe)
    assert bench.backend.prepare(bench.training, variant) is None
    eager = Bench(capture_as="refused")
    assert eager.backend.prepare(eager.training, variant) is None
    bench.engine.gpu.gap = 0.25
    seen, plain = (one.backend.profile(variant, "training", 0.0, tmp_path / "eager") for one in (bench, eager))
    assert bench.engine.profiles == sessions
    again = bench.backend.profile(variant, "training", 0.0)
    assert (bench.engine.profiles, again.gaps is None) == (sessions + (1 if not engine else sessions), bool(engine))
    told = [{(row.name, row.pass_, row.module): us(row.seconds) for row in one.kernels} for one in (seen, plain)]
    assert told[0] == pytest.approx(told[1])
    assert {"attention", "core_attention", "mlp", "head"} <= {row.module for row in seen.kernels}
    if engine:
        assert seen.gaps is None
    else:  # a quarter of a microsecond before each kernel but the first
        launched = (tmp_path / "eager").read_text().count('"kernel"') / STEPS_PROFILED
        assert us(seen.gaps) == pytest.approx(0.25 * launched, abs=0.3)


def test_what_is_measured_with_an_early_case_is_handed_out_once() -> None:
    bench, variant = Bench(), Variant("mxfp8", "mxfp8")
    first, second = bench.gemm("qkv", "fprop"), bench.gemm("qkv", "wgrad")
    for case in (first, second):
        bench.backend.prepare(case, variant)
    one = sample(bench.backend.measure(first, variant, 0.0))
    assert sample(bench.backend.measure(second, variant, 0.0)).start == one.start
    assert sample(bench.backend.measure(second, variant, 0.0)).start > one.start


def test_small_layers_go_round_equal_modules_so_that_the_cache_holds_none_of_them() -> None:
    bench, variant = Bench(l2_bytes=24_000), Variant("fp8_delayed", "fp8_delayed")
    found = sample(bench.backend.measure(bench.gemm("qkv", "fprop"), variant, 0.0))
    assert us(found.seconds) == pytest.approx(6.0 + 1.0 + 1.0 / 2)
    built = [call for call in bench.world.calls if call[0] == "pytorch.Linear"]
    assert len(built) == 4  # of 14,336 bytes each: three of them hold less than twice the cache


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [("fp8_delayed", "delayed scales do not move over replays"), ("nvfp4", "two replays round the gradients alike")],
)
def test_a_graph_that_bakes_in_what_must_change_is_not_used(recipe: Any, reason: str) -> None:
    bench, variant = Bench(capture_as="frozen"), Variant(recipe, recipe)
    for case in (bench.gemm("qkv", "fprop"), bench.training):  # neither was prepared
        found = sample(bench.backend.measure(case, variant, 0.0))
        assert found.execution == "eager"
        assert found.execution_reason.startswith(f"graph_unsupported: {reason}")


def test_a_refused_capture_is_measured_eagerly_with_the_error_quoted() -> None:
    bench = Bench(capture_as="refused")
    found = sample(bench.backend.measure(bench.training, bench.variant("fp8_current"), 0.0))
    assert found.execution == "eager"
    assert "operation not permitted when stream is capturing" in found.execution_reason


def test_a_quantizer_that_kept_another_recipes_flags_is_no_figure() -> None:
    bench = Bench()
    bench.world.lies = {"with_rht": False}
    for case in (bench.gemm("qkv", "fprop"), bench.training):
        found = bench.backend.measure(case, bench.variant("nvfp4"), 0.0)
        assert found.reason == "wrong_quantizer"
        assert "with_rht is False, not True" in found.message


@pytest.mark.parametrize("error", [2.0, math.nan, math.inf])
def test_numbers_too_far_from_fp32_are_no_figure(error: float) -> None:
    bench = Bench()
    bench.world.garbage = error
    found = bench.backend.measure(bench.gemm("qkv", "fprop"), bench.variant("fp8_current"), 0.0)
    assert found.reason == "numerical_error"
    assert "too large for fp8_current" in found.message


def test_experts_run_as_one_launch_and_are_told_one_by_one() -> None:
    bench = Bench()
    case = GemmCase("experts_up", "fprop", 32, 64, 128, 8, mode="autocast", groups=4)
    grouped = sample(bench.backend.measure(case, Variant("nvfp4", "nvfp4"), 0.0))
    assert us(grouped.seconds) == pytest.approx(4.0 + 1.0 + 1.0 / 2)
    assert any(call[0] == "pytorch.GroupedLinear" for call in bench.world.calls)


def test_the_head_is_one_unit_for_all_variants() -> None:
    bench = Bench()
    for label in ("bf16", "fp8_current", "nvfp4"):
        found = bench.backend.measure(bench.gemm("lm_head", "fprop"), bench.variant(label), 0.0)
        assert us(sample(found).seconds) == pytest.approx(10.0)
    assert len([call for call in bench.world.calls if call[0] == "pytorch.Linear"]) == 1


def layer_us(recipe: str, accumulation: int = 2) -> tuple[float, float]:
    """Forward and backward of a made-up layer: four matrices."""
    gemm, cast = GEMM[recipe][1], QUANTISE[1]
    return 4 * (gemm + cast + cast / accumulation) + NORM[1] + BATCHED[1], 4 * (2 * gemm + cast)


@pytest.mark.parametrize("recipe", RECIPE_NAMES[1:])
def test_the_four_regions_of_a_training_step_are_timed_apart(recipe: Any) -> None:
    bench = Bench(asked=request(recipes=("bf16", recipe)))
    found = sample(bench.backend.measure(bench.training, bench.variant(recipe), 0.0))
    forward, backward = layer_us(recipe)
    assert (found.layers_measured, us(found.regions["layers_forward"])) == (2, pytest.approx(2 * forward))
    assert us(found.regions["layers_backward"]) == pytest.approx(2 * backward)
    assert us(found.regions["head"]) == pytest.approx(3 * 10.0)
    assert us(found.regions["optimizer"]) == pytest.approx(5.0)
    assert found.seconds == pytest.approx(sum(found.regions.values()) - found.regions["optimizer"])
    per_layer = HIDDEN * (3 * HIDDEN + HIDDEN + 3 * 2 * HIDDEN) + HIDDEN  # the matrices and a norm
    assert found.optimizer_parameters == 2 * per_layer + HIDDEN * VOCABULARY


def test_the_full_depth_step_from_a_short_model_is_the_deep_models() -> None:
    bench = Bench(asked=request(workload=DEEP))
    found = sample(bench.backend.measure(bench.training, bench.variant("fp8_current"), 0.0))
    assert found.layers_measured == 4
    values = {name: [value] for name, value in found.regions.items()}
    told = full_depth(values, Depth(8, found.layers_measured, 4, 1))  # type: ignore[arg-type]
    assert not isinstance(told, Failure)
    forward, backward = layer_us("fp8_current", 4)
    assert us(told.values[0]) == pytest.approx(8 * (forward + backward) + 30.0 + 5.0 / 4)


def test_in_scope_mlp_the_attention_stays_in_bf16_whatever_the_baseline_as_its_kernels_show() -> None:
    bench = Bench(asked=request(recipe_scope="mlp", baseline="mxfp8"))
    variant = bench.variant("nvfp4")
    bench.backend.prepare(bench.training, variant)
    profile = bench.backend.profile(variant, "training", 0.0)
    classes: dict[str, set[str]] = {}
    for kernel in profile.kernels:
        found = classify(kernel.name).kernel_class
        if found != "not_a_gemm":
            classes.setdefault(kernel.module, set()).add(found)
    assert classes == {"attention": {"bf16"}, "core_attention": {"bf16"}, "mlp": {"nvfp4"}, "head": {"bf16"}}
    passes = {kernel.pass_ for kernel in profile.kernels if kernel.module in ("attention", "mlp")}
    assert passes == {"forward", "backward"}
    bench.backend.prepare(bench.training, bench.variant("mxfp8"))
    profile = bench.backend.profile(bench.variant("mxfp8"), "training", 0.0)
    ran = {classify(row.name).kernel_class for row in profile.kernels if row.module == "attention"}
    assert ran - {"not_a_gemm"} == {"bf16"}, "the baseline's own too"


def test_all_variants_train_the_same_weights_with_modules_and_recipes_of_their_own() -> None:
    bench = Bench(asked=request(recipes=RECIPES[:3]))
    for variant in bench.cases.variants:
        bench.backend.prepare(bench.training, variant)
    models = list(bench.backend._models.values())
    first, second = models[1].stack, models[2].stack
    assert first.layers[0] is not second.layers[0]
    assert first.recipes["fp8_delayed"] is not second.recipes["fp8_current"]
    pairs = zip(first.layers[0].parameters(), second.layers[0].parameters(), strict=True)
    assert all(mine is theirs for mine, theirs in pairs)


MIXTURE = {"name": "ours", "mlp": "mxfp8", "attention": "fp8_current", "attentionOut": "bf16", "head": "fp8_block"}


def test_each_part_of_a_mixture_has_the_quantizers_of_its_recipe_and_its_own_head_the_shared_weights() -> None:
    bench = Bench(asked=request(recipes=("bf16",), mixtures=[MIXTURE]))
    for variant in bench.cases.variants:
        assert bench.backend.prepare(bench.training, variant) is None
    bf16, ours = bench.backend._models["bf16"], bench.backend._models["ours"]
    classes = [(recipe, type(recipes.quantizers(module)["input"]).__name__) for recipe, module in ours._quantising]
    assert classes == [("fp8_current", "Float8CurrentScalingQuantizer"), ("mxfp8", "MXFP8Quantizer")] * 2
    assert ours.head.weight is bf16.head.weight
    assert type(recipes.quantizers(ours.head)["input"]).__name__ == "Float8BlockQuantizer"
    other = Parts.of("mxfp8")
    assert "not MXFP8Quantizer" in str(wrong_modules(other, quantising(ours.stack.layers, other)))
    assert wrong_modules(ours.parts, ours._quantising, primary_weights=True) == (
        "fp8_current: _Holder holds its weights in BF16, not in the recipe alone"
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "Disabling FusedAttention for FP8 current scaling on arch < sm100"),
        ({"model": MODEL | {"slidingWindow": {"size": 8, "windowedLayers": 1}}}, "heads of 16, a window of 8"),
    ],
)
def test_a_core_that_declines_is_told_with_gpu_versions_head_size_window_and_transformer_engines_reason(
    asked: Any, told: str
) -> None:
    bench = Bench(asked=request(attention_core="fp8_current", workload=asked))
    problem = problem_of(bench.request, bench.api)
    assert isinstance(problem, Problem)
    question = core_question(problem) or ""
    refused = {
        "where": "H100, cudnn 9.14.0",
        "refused": "Disabling FusedAttention for FP8 current scaling on arch < sm100",
    }
    found = core_probe(question, 0, json.dumps(refused), "")
    assert (found.availability, told in found.reason, "(H100, cudnn 9.14.0, heads of" in found.reason) == (
        "unsupported", True, True,
    )  # fmt: skip
    assert core_probe(question, 0, json.dumps({"where": "H100"}), "").availability == "ok"
    assert core_probe(question, -11, "", "segfault").availability == "probe_failed"


def test_a_second_depth_has_all_parts_of_the_first_and_is_predicted_from_it() -> None:
    bench, variant = Bench(asked=request(workload=DEEP)), Variant("fp8_current", "fp8_current")
    first = sample(bench.backend.measure(bench.training, variant, 0.0))
    second = sample(bench.backend.second_depth(variant, 0.0))
    assert (first.layers_measured, second.layers_measured) == (4, 2)
    workload, held = resolve(bench.request.workload), [found.optimizer_parameters or 0 for found in (first, second)]
    one, two = (
        (
            {name: [value] for name, value in found.regions.items()},
            depth_of(workload, found.layers_measured or 0, optimizer_parameters=found.optimizer_parameters),
        )
        for found in (first, second)
    )
    adam = 5e-6  # of the made-up GPU, however many weights there are
    predicted = second.seconds + adam * held[1] / held[0]
    assert depth_check(*one, *two) == pytest.approx(predicted / (second.seconds + adam))  # type: ignore[arg-type]


def test_a_second_depth_that_does_not_fit_says_so() -> None:
    bench, variant = Bench(), Variant("bf16", "bf16")
    bench.world.most_layers = 1
    assert sample(bench.backend.measure(bench.training, variant, 0.0)).layers_measured == 1
    found = bench.backend.second_depth(variant, 0.0)
    assert (found.reason, "layer 2" in found.message) == ("out_of_memory", True)


def test_where_memory_ends_the_model_is_made_shallower_for_all_variants() -> None:
    bench = Bench()
    one, two = bench.variant("bf16"), bench.variant("fp8_current")
    assert sample(bench.backend.measure(bench.training, one, 0.0)).layers_measured == 2
    bench.world.most_layers = 1
    assert sample(bench.backend.measure(bench.training, two, 0.0)).layers_measured == 1
    assert list(bench.backend._models) == ["fp8_current"]
    assert bench.backend.prepare(bench.gemm("qkv", "fprop"), one) is None
    assert set(bench.backend._models) == {"bf16", "fp8_current"}
    assert sample(bench.backend.settle(one, 0.0)).layers_measured == 1
    assert bench.engine.released > 0


def test_gemms_make_room_and_what_does_not_fit_even_so_is_out_of_memory_with_the_error() -> None:
    bench = Bench()
    bench.backend.prepare(bench.gemm("qkv", "fprop"), bench.variant("bf16"))
    bench.world.most_layers = 0
    found = bench.backend.measure(bench.training, bench.variant("bf16"), 0.0)
    assert found.reason == "out_of_memory"
    assert "CUDA out of memory at layer 1" in found.message
    assert not bench.backend._units
    assert sample(bench.backend.measure(bench.gemm("qkv", "fprop"), bench.variant("bf16"), 0.0))


def test_a_profiled_step_takes_the_room_of_gemms_and_other_variants_which_come_back_when_asked_for() -> None:
    bench = Bench()
    one, two = bench.variant("bf16"), bench.variant("fp8_current")
    for variant in (one, two):
        assert bench.backend.prepare(bench.gemm("qkv", "fprop"), variant) is None
        assert bench.backend.prepare(bench.training, variant) is None
    bench.engine.no_room_to_profile = 3  # two GEMMs and a model
    assert isinstance(bench.backend.profile(two, "training", 0.0), protocol.Profile)
    assert (bench.backend._units, list(bench.backend._models)) == ({}, ["fp8_current"])
    found = bench.backend.profile(one, "training", 0.0)
    assert {kernel.module for kernel in found.kernels} >= {"attention", "mlp", "head"}
    assert not bench.backend._units
    bench.engine.no_room_to_profile = 99
    found = bench.backend.profile(one, "training", 0.0)
    assert (found.reason, "to profile" in found.message) == ("out_of_memory", True), "it has no room even alone"


def test_a_model_that_lent_its_room_comes_back_as_deep_as_it_was_timed_or_says_why_not() -> None:
    bench = Bench()
    one, two = bench.variant("bf16"), bench.variant("fp8_current")
    for variant in (one, two):
        assert sample(bench.backend.measure(bench.training, variant, 0.0)).layers_measured == 2
    bench.engine.no_room_to_profile = 1
    assert isinstance(bench.backend.profile(two, "training", 0.0), protocol.Profile)
    bench.world.most_layers = 1
    for _ in range(2):
        found = bench.backend.profile(one, "training", 0.0)
        assert (found.reason, "layer 2" in found.message) == ("out_of_memory", True)
    bench.world.most_layers = 2
    assert isinstance(bench.backend.profile(one, "training", 0.0), protocol.Profile)
    assert bench.backend._trial == Trial(2)


def test_a_model_with_a_part_that_no_step_has_gets_gemms_and_no_training_figure() -> None:
    chunked = {"slidingWindow": {"size": 16, "windowedLayers": 1, "chunked": True}}
    bench = Bench(asked=request(workload={"model": MODEL | chunked}))
    failure = bench.backend.measure(bench.training, bench.variant("bf16"), 0.0)
    assert (failure.reason, "not_available(slidingWindow.chunked)" in failure.message) == ("not_available", True)
    assert isinstance(bench.backend.measure(bench.gemm("qkv", "fprop"), bench.variant("bf16"), 0.0), protocol.Sample)


def test_a_dense_layers_sinks_are_its_own() -> None:
    bench = Bench(asked=request(workload={"model": MODEL | {"attentionSinks": True}}))
    assert bench.backend.prepare(bench.training, bench.variant("bf16")) is None
    assert "softmax_type" in dict(bench.world.calls)["pytorch.TransformerLayer"]


def test_more_experts_than_transformer_engine_takes_are_not_available_with_its_words() -> None:
    bench = Bench(asked=request(workload={"model": MODEL | {"moe": {"numExperts": 4, "topK": 2}}}))
    bench.world.most_experts = 2
    found = bench.backend.prepare(bench.gemm("experts_up", "fprop"), bench.variant("nvfp4"))
    assert (found.reason, "Assertion failed: 4 tensors" in found.message) == ("not_available", True)
    assert Bench(asked=bench.request).backend.prepare(bench.gemm("experts_up", "fprop"), bench.variant("nvfp4")) is None


def test_experts_that_nvfp4_takes_in_two_calls_are_measured_in_two_calls_and_others_in_one() -> None:
    bench = Bench(asked=request(workload={"model": MODEL | {"moe": {"numExperts": 80, "topK": 2}}}))
    bench.world.most_experts = 64
    case = bench.gemm("experts_up", "fprop")
    assert bench.backend.prepare(case, bench.variant("nvfp4")) is None
    assert isinstance(bench.backend.measure(case, bench.variant("nvfp4"), 0.0), protocol.Sample)
    made = [symbol for symbol, _ in bench.world.calls].count("pytorch.GroupedLinear")
    assert made >= 2
    assert made % 2 == 0
    assert "Assertion failed: 80 tensors" in bench.backend.prepare(case, bench.variant("bf16")).message


@pytest.mark.parametrize(
    ("error", "so"),
    [
        (AssertionError("divisible by 16"), True),
        (NotImplementedError("no FP4"), True),
        (RuntimeError("group_hadamard.cu:408: Assertion failed: num_tensors <= 64"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
        (KeyError("ours"), False),
    ],
    ids=["assertion", "not implemented", "C++ check", "CUDA", "memory", "a fault of ours"],
)
def test_what_transformer_engine_declines_is_told_apart_from_what_fails(error: Exception, so: bool) -> None:
    assert declined(error) is so


def test_a_power_window_pauses_after_whole_groups_of_calls_and_needs_a_part_that_the_short_model_has() -> None:
    bench = Bench(asked=request(workload={"model": {key: MODEL[key] for key in MODEL if key != "vocabSize"}}))
    assert bench.backend.power_window(bench.variant("bf16"), "head", 0.0, 0.0, 0).reason == "no_such_part"
    bench.backend.prepare(bench.training, bench.variant("bf16"))
    found = sample(bench.backend.power_window(bench.variant("bf16"), "optimizer", 0.05, 0.02, 3, 2))
    assert found.calls > 1, "two at least, however slow this machine is just now"
    assert found.seconds * found.calls < found.end - found.start
    assert found.running == pytest.approx(found.seconds * found.calls / (found.end - found.start))
    found = sample(bench.backend.power_window(bench.variant("bf16"), "optimizer", 0.004, 0.001, 3, 7))
    assert found.calls % 7 == 0
    assert found.running < 1.0
    assert sample(bench.backend.power_window(bench.variant("bf16"), "optimizer", 0.004, 0.0, 3, 7)).running == 1.0


def test_an_inspection_tells_bytes_that_are_saved_errors_and_flags_of_the_variants_own_quantizers() -> None:
    bench = Bench()
    bench.backend.prepare(bench.gemm("qkv", "fprop"), bench.variant("fp8_current"))
    found = bench.backend.inspect(bench.variant("fp8_current"))
    assert found.errors.dx is not None
    kept = ("layernorm_mlp", 2.0, 0.5 + 1 / 16)  # the made-up module keeps its BF16 input
    for label, rht, saved in (("nvfp4", True, [kept]), ("bf16", None, [])):
        bench.backend.prepare(bench.training, bench.variant(label))
        inside = bench.backend.inspect(bench.variant(label))
        assert inside.flags.get("input.with_rht") is rht
        assert [(row.module, row.kept, row.format) for row in inside.saved] == saved


def test_the_loss_falls_towards_the_chains_entropy_and_equal_seeds_give_equal_runs() -> None:
    plan = protocol.LossPlan(steps=30, seed=5, learning_rate_factor=10)
    tracks = [bench.backend.loss_run(bench.variant("bf16"), plan) for bench in (Bench(), Bench())]
    first = tracks[0]
    assert tracks[0] == tracks[1]
    assert first.loss[0] == pytest.approx(4.85, abs=0.4)
    assert first.loss[-1] < first.loss[0] - 0.5
    assert all(norm > 0 for norm in first.gradient_norm)


def test_the_device_is_named_with_its_software() -> None:
    found = Bench("v2.12").backend.device()
    assert (found.software.transformer_engine, found.product) == ("2.12.0+fake", "CPU")


@pytest.mark.parametrize(("device", "reason"), [("cpu", "InvalidRequest"), ("cuda", "BackendUnavailable")])
def test_without_a_gpu_or_transformer_engine_the_backend_is_refused_by_name(device: str, reason: str) -> None:
    with pytest.raises(protocol.Refusal) as refused:
        TransformerEngine(request(), device)
    assert refused.value.exit.reason == reason


def test_by_nvidias_method_a_recipe_is_a_forward_pass_that_quantises_both_operands_each_time() -> None:
    bench = Bench()
    case = bench.gemm("qkv", "dgrad")

    def by_method(recipe: Any, of: GemmCase = case) -> float | Failure:
        return plain(bench.backend._api, bench.engine, of, recipe, 2, 5, lead=64)

    found = by_method("fp8_current")
    assert isinstance(found, float)
    assert us(found) == pytest.approx(GEMM["fp8_current"][1] + 2 * QUANTISE[1])
    assert isinstance(by_method("bf16"), float)
    assert by_method("fp8_current", replace(case, groups=8)).reason == "not_available"


def test_the_backend_is_what_the_agent_calls_a_backend() -> None:
    methods = {name for name, value in vars(protocol.Backend).items() if callable(value) and not name.startswith("_")}
    assert methods <= set(dir(TransformerEngine))
