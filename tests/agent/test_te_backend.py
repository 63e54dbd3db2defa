"""The whole backend on a made-up GPU and a Transformer Engine made from each tag's signatures."""

import json
import os
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from precision_agent import protocol
from precision_agent.backends.te.problem import Problem, problem_of
from precision_agent.backends.te.session.graphs import declined
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.backends.te.steps.quantising import quantising, wrong_modules
from precision_agent.backends.te.tiers.core_probe import core_probe, core_question
from precision_agent.backends.te.tiers.gemm_tier import Unit
from precision_agent.backends.te.tiers.loss_runs import INIT_STD, LossModel
from precision_agent.backends.te.tiers.profiles import STEPS_PROFILED
from precision_agent.backends.te.tiers.training_tier import Shared
from precision_agent.backends.transformer_engine import TransformerEngine
from precision_agent.cases import Variant
from precision_agent.precision.kernels import classify
from precision_api.facts.mixtures import Parts
from tests.support.te_bench import MODEL, RECIPES, Bench, request, sample, us
from tests.support.te_fake import listed_calls
from tests.support.te_signatures import TAGS

pytestmark = pytest.mark.torch


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
    replayed, plain = (of.backend.profile(variant, "training", 0.0, tmp_path / "eager") for of in (bench, eager))
    assert bench.engine.profiles == sessions
    again = bench.backend.profile(variant, "training", 0.0)
    assert (bench.engine.profiles, again.gaps is None) == (sessions + (1 if not engine else sessions), bool(engine))
    seconds = [{(row.name, row.pass_, row.module): us(row.seconds) for row in it.kernels} for it in (replayed, plain)]
    assert seconds[0] == pytest.approx(seconds[1])
    assert {"attention", "core_attention", "mlp", "head"} <= {row.module for row in replayed.kernels}
    if engine:
        assert replayed.gaps is None
    else:  # a quarter of a microsecond before each kernel but the first
        launched = (tmp_path / "eager").read_text().count('"kernel"') / STEPS_PROFILED
        assert us(replayed.gaps) == pytest.approx(0.25 * launched, abs=0.3)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [("fp8_delayed", "delayed scales do not move over replays"), ("nvfp4", "two replays round the gradients alike")],
)
def test_a_graph_that_bakes_in_what_must_change_is_not_used(recipe: Any, reason: str) -> None:
    bench, variant = Bench(capture_as="frozen"), Variant(recipe, recipe)
    for case in (bench.gemm("qkv", "fprop"), bench.training):  # neither was prepared
        answer = sample(bench.backend.measure(case, variant, 0.0))
        assert answer.execution == "eager"
        assert answer.execution_reason.startswith(f"graph_unsupported: {reason}")


def test_a_refused_capture_is_measured_eagerly_with_the_error_quoted() -> None:
    bench = Bench(capture_as="refused")
    answer = sample(bench.backend.measure(bench.training, bench.variant("fp8_current"), 0.0))
    assert answer.execution == "eager"
    assert "operation not permitted when stream is capturing" in answer.execution_reason


def test_a_quantizer_that_kept_another_recipes_flags_is_no_figure() -> None:
    bench = Bench()
    bench.world.lies = {"with_rht": False}
    for case in (bench.gemm("qkv", "fprop"), bench.training):
        answer = bench.backend.measure(case, bench.variant("nvfp4"), 0.0)
        assert answer.reason == "wrong_quantizer"
        assert "with_rht is False, not True" in answer.message


def test_in_scope_mlp_the_attention_stays_in_bf16_whatever_the_baseline_as_its_kernels_show() -> None:
    bench = Bench(asked=request(recipe_scope="mlp", baseline="mxfp8"))
    variant = bench.variant("nvfp4")
    bench.backend.prepare(bench.training, variant)
    profile = bench.backend.profile(variant, "training", 0.0)
    classes: dict[str, set[str]] = {}
    for kernel in profile.kernels:
        kernel_class = classify(kernel.name).kernel_class
        if kernel_class != "not_a_gemm":
            classes.setdefault(kernel.module, set()).add(kernel_class)
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


def test_attentions_core_is_in_fp8_wherever_a_part_of_the_step_is() -> None:
    mixture = {"name": "ours", "mlp": "bf16", "head": "mxfp8"}
    bench = Bench(asked=request(recipes=("bf16",), mixtures=[mixture], attention_core="fp8_current"))
    for variant in bench.cases.variants[:2]:
        assert bench.backend.prepare(bench.training, variant) is None
    assert [bench.backend._models[name].stack.core for name in ("bf16", "ours")] == [None, "fp8_current"]


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ({}, "Disabling FusedAttention for FP8 current scaling on arch < sm100"),
        ({"model": MODEL | {"slidingWindow": {"size": 8, "windowedLayers": 1}}}, "heads of 16, a window of 8"),
    ],
)
def test_a_core_that_declines_is_told_with_gpu_versions_head_size_window_and_transformer_engines_reason(
    workload: Any, words: str
) -> None:
    bench = Bench(asked=request(attention_core="fp8_current", workload=workload))
    problem = problem_of(bench.request, bench.api)
    assert isinstance(problem, Problem)
    question = core_question(problem) or ""
    refused = {
        "where": "H100, cudnn 9.14.0",
        "refused": "Disabling FusedAttention for FP8 current scaling on arch < sm100",
    }
    answer = core_probe(question, 0, json.dumps(refused), "")
    assert (answer.availability, words in answer.reason, "(H100, cudnn 9.14.0, heads of" in answer.reason) == (
        "unsupported", True, True,
    )  # fmt: skip
    assert core_probe(question, 0, json.dumps({"where": "H100"}), "").availability == "ok"
    assert core_probe(question, -11, "", "segfault").availability == "probe_failed"


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
    answer = sample(bench.backend.power_window(bench.variant("bf16"), "optimizer", 0.05, 0.02, 3, 2))
    assert answer.calls > 1, "two at least, however slow this machine is just now"
    assert answer.seconds * answer.calls < answer.end - answer.start
    assert answer.running == pytest.approx(answer.seconds * answer.calls / (answer.end - answer.start))
    answer = sample(bench.backend.power_window(bench.variant("bf16"), "optimizer", 0.004, 0.001, 3, 7))
    assert answer.calls % 7 == 0
    assert answer.running < 1.0
    assert sample(bench.backend.power_window(bench.variant("bf16"), "optimizer", 0.004, 0.0, 3, 7)).running == 1.0


def test_an_inspection_tells_bytes_that_are_saved_errors_and_flags_of_the_variants_own_quantizers() -> None:
    bench = Bench()
    bench.backend.prepare(bench.gemm("qkv", "fprop"), bench.variant("fp8_current"))
    answer = bench.backend.inspect(bench.variant("fp8_current"))
    assert answer.errors.dx is not None
    saved_input = ("layernorm_mlp", 2.0, 0.5 + 1 / 16)  # the made-up module keeps its BF16 input
    for label, rht, saved in (("nvfp4", True, [saved_input]), ("bf16", None, [])):
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
    device = Bench("v2.12").backend.device()
    assert (device.software.transformer_engine, device.product) == ("2.12.0+fake", "CPU")


@pytest.mark.parametrize(("device", "reason"), [("cpu", "InvalidRequest"), ("cuda", "BackendUnavailable")])
def test_without_a_gpu_or_transformer_engine_the_backend_is_refused_by_name(device: str, reason: str) -> None:
    with pytest.raises(protocol.Refusal) as refused:
        TransformerEngine(request(), device)
    assert refused.value.exit.reason == reason


def test_the_backend_is_what_the_agent_calls_a_backend() -> None:
    methods = {name for name, value in vars(protocol.Backend).items() if callable(value) and not name.startswith("_")}
    assert methods <= set(dir(TransformerEngine))
