"""GEMMs of the whole backend on a made-up GPU, and how often they are measured."""

import math
from dataclasses import replace
from typing import Any

import pytest

from precision_agent import protocol
from precision_agent.backends.te.sizes import unit_bytes
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.tiers.plain import plain
from precision_agent.cases import GemmCase, Variant
from precision_agent.precision.evidence import ONCE, quantization_tax, verification_of
from precision_api.exchange.result import Failure
from tests.support.te_bench import MODEL, Bench, request, sample, us
from tests.support.te_device import GEMM, QUANTISE

pytestmark = pytest.mark.torch


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
    seconds = rows[0]
    assert {name for name, _ in seconds} == {"qkv", "attn_out", "mlp_up", "mlp_down", "lm_head"}
    assert us(seconds["qkv", "wgrad"]) == pytest.approx(GEMM[None if recipe == "bf16" else recipe][1])
    assert us(seconds["lm_head", "fprop"]) == pytest.approx(GEMM[None][1])
    own_calls = [call for call in bench.world.calls if call[0] == "pytorch.cpp_extensions.general_gemm"]
    assert {"layout", "grad", "use_split_accumulator", "out_dtype"} <= own_calls[0][1]


def test_the_librarys_own_call_leaves_quantizers_as_they_were_and_experts_out() -> None:
    bench, variant = Bench(), Variant("fp8_current", "fp8_current")
    bench.backend.own_gemm_calls(variant, 0.0, 0.0, 1)
    unit = next(unit for key, unit in bench.backend._units.items() if key[0] == "fp8_current")
    assert not isinstance(unit, Failure)
    assert all(not quantizer.columnwise_usage for quantizer in recipes.quantizers(unit.modules[0]).values())
    moe = Bench(asked=request(training=False, workload={"model": MODEL | {"moe": {"numExperts": 4, "topK": 2}}}))
    of_experts = moe.backend.own_gemm_calls(variant, 0.0, 0.0, 1)
    assert not isinstance(of_experts, Failure)
    assert not [name for name, _ in of_experts[0] if "expert" in name]


@pytest.mark.parametrize(("l2_bytes", "rotated"), [(0, False), (24_000, True)])
def test_kernels_are_seen_without_the_gaps_between_them(l2_bytes: int, rotated: bool) -> None:
    """Both are of one GEMM, also where equal modules take turns."""
    bench, variant = Bench(l2_bytes=l2_bytes), Variant("fp8_current", "fp8_current")
    bench.world.gpu.gap = 5.0
    timed = sample(bench.backend.measure(bench.gemm("qkv", "dgrad", "prequantized"), variant, 0.0))
    profiled = bench.backend.profile(variant, "gemms", 0.0).gemms["qkv", "dgrad"]
    assert us(profiled.seconds) == pytest.approx(GEMM["fp8_current"][1] + QUANTISE[1])
    assert us(timed.seconds) == pytest.approx(us(profiled.seconds) + 2 * 5.0)
    assert us(profiled.gaps) == pytest.approx(2 * 5.0, abs=0.01)
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
    addresses = list[int]()
    for module in unit.modules:
        module.register_full_backward_pre_hook(lambda _, gradients: addresses.append(gradients[0].data_ptr()))
    unit.program.once()
    assert len(set(addresses)) == len(unit.modules) == unit.rotated > 1
    shape, held = unit.shape, sum(tensor.nbytes for tensor in (*unit.gradients, *unit.inputs))
    assert held < unit_bytes(shape.m, shape.k, shape.n, shape.groups, 24_000)


def test_what_is_measured_with_an_early_case_is_handed_out_once() -> None:
    bench, variant = Bench(), Variant("mxfp8", "mxfp8")
    first, second = bench.gemm("qkv", "fprop"), bench.gemm("qkv", "wgrad")
    for case in (first, second):
        bench.backend.prepare(case, variant)
    earlier = sample(bench.backend.measure(first, variant, 0.0))
    assert sample(bench.backend.measure(second, variant, 0.0)).start == earlier.start
    assert sample(bench.backend.measure(second, variant, 0.0)).start > earlier.start


def test_small_layers_go_round_equal_modules_so_that_the_cache_holds_none_of_them() -> None:
    bench, variant = Bench(l2_bytes=24_000), Variant("fp8_delayed", "fp8_delayed")
    answer = sample(bench.backend.measure(bench.gemm("qkv", "fprop"), variant, 0.0))
    assert us(answer.seconds) == pytest.approx(6.0 + 1.0 + 1.0 / 2)
    built = [call for call in bench.world.calls if call[0] == "pytorch.Linear"]
    assert len(built) == 4  # of 14,336 bytes each: three of them hold less than twice the cache


@pytest.mark.parametrize("error", [2.0, math.nan, math.inf])
def test_numbers_too_far_from_fp32_are_no_figure(error: float) -> None:
    bench = Bench()
    bench.world.garbage = error
    answer = bench.backend.measure(bench.gemm("qkv", "fprop"), bench.variant("fp8_current"), 0.0)
    assert answer.reason == "numerical_error"
    assert "too large for fp8_current" in answer.message


def test_experts_run_as_one_launch_and_are_told_one_by_one() -> None:
    bench = Bench()
    case = GemmCase("experts_up", "fprop", 32, 64, 128, 8, mode="autocast", groups=4)
    grouped = sample(bench.backend.measure(case, Variant("nvfp4", "nvfp4"), 0.0))
    assert us(grouped.seconds) == pytest.approx(4.0 + 1.0 + 1.0 / 2)
    assert any(call[0] == "pytorch.GroupedLinear" for call in bench.world.calls)


def test_the_head_is_one_unit_for_all_variants() -> None:
    bench = Bench()
    for label in ("bf16", "fp8_current", "nvfp4"):
        answer = bench.backend.measure(bench.gemm("lm_head", "fprop"), bench.variant(label), 0.0)
        assert us(sample(answer).seconds) == pytest.approx(10.0)
    assert len([call for call in bench.world.calls if call[0] == "pytorch.Linear"]) == 1


def test_more_experts_than_transformer_engine_takes_are_not_available_with_its_words() -> None:
    bench = Bench(asked=request(workload={"model": MODEL | {"moe": {"numExperts": 4, "topK": 2}}}))
    bench.world.most_experts = 2
    answer = bench.backend.prepare(bench.gemm("experts_up", "fprop"), bench.variant("nvfp4"))
    assert (answer.reason, "Assertion failed: 4 tensors" in answer.message) == ("not_available", True)
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


def test_by_nvidias_method_a_recipe_is_a_forward_pass_that_quantises_both_operands_each_time() -> None:
    bench = Bench()
    case = bench.gemm("qkv", "dgrad")

    def by_method(recipe: Any, of: GemmCase = case) -> float | Failure:
        return plain(bench.backend._api, bench.engine, of, recipe, 2, 5, lead=64)

    answer = by_method("fp8_current")
    assert isinstance(answer, float)
    assert us(answer) == pytest.approx(GEMM["fp8_current"][1] + 2 * QUANTISE[1])
    assert isinstance(by_method("bf16"), float)
    assert by_method("fp8_current", replace(case, groups=8)).reason == "not_available"
