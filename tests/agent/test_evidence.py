"""From a profiled step to verdict, quantisation tax and the kernels that are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from precision_agent.precision.evidence import (
    KERNELS_TOLD,
    Repeats,
    quantization_tax,
    unfused_attention,
    verification_of,
)
from precision_agent.protocol import Inspection, Probe, Profile, ProfiledKernel
from precision_agent.results.result import repeats
from precision_api.exchange.result import NumericErrors, Verdict, Verification
from precision_api.models.model import ModelSpec
from tests.support.result_objects import request

FP8 = "nvjet_qqtst_128x256_128x6_2x1_v_bz_TNT"
BF16 = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
CAST = "void transformer_engine::cast_transpose_kernel<float>(int)"
NORM = "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<float>(int)"
MIXTURE: dict[str, Any] = {
    "hiddenSize": 32, "intermediateSize": 64, "numAttentionHeads": 2, "gatedMLP": True, "headDim": 24,
    "moe": {"numExperts": 4, "topK": 2, "expertIntermediateSize": 16},
}  # fmt: skip
UNSEEN = Inspection()
PROBED = Probe("ok", verification=Verification(verdict="unknown", message="probe"))


def profile(*kernels: ProfiledKernel) -> Profile:
    return Profile(kernels, seconds=1.0, steps=10)


def verified(*kernels: ProfiledKernel, inside: Inspection = UNSEEN, **more: Any) -> Verification:
    return verification_of("fp8_current", request(**more), PROBED, profile(*kernels), inside)


def test_the_tax_is_the_quantisation_kernels_share_and_a_norm_is_none_of_it() -> None:
    kernels = [ProfiledKernel(FP8, 3.0), ProfiledKernel(CAST, 1.0), ProfiledKernel(NORM, 5.0)]
    assert quantization_tax("fp8_current", kernels) == pytest.approx(0.25)
    assert quantization_tax("bf16", kernels) is None
    assert quantization_tax("fp8_current", kernels[1:]) is None


def test_where_activations_are_recomputed_the_tax_counts_the_layers_forward_pass_twice() -> None:
    kernels = [
        ProfiledKernel(FP8, 2.0, "forward", "mlp"),
        ProfiledKernel(CAST, 1.0, "forward", "mlp"),
        ProfiledKernel(FP8, 4.0, "backward", "mlp"),
        ProfiledKernel(BF16, 1.0, "other", "head"),
    ]
    assert quantization_tax("fp8_current", kernels) == pytest.approx(1 / 8)
    assert quantization_tax("fp8_current", kernels, forwards=2) == pytest.approx(2 / 11)


def test_the_tax_is_the_full_depth_steps_the_head_counts_once_and_attentions_core_not_at_all() -> None:
    kernels = [
        ProfiledKernel(FP8, 2.0, "forward", "mlp"),
        ProfiledKernel(CAST, 1.0, "forward", "attention"),
        ProfiledKernel(BF16, 7.0, "forward", "core_attention"),
        ProfiledKernel(BF16, 5.0, "other", "head"),
    ]
    assert quantization_tax("fp8_current", kernels) == pytest.approx(1 / 8)
    assert quantization_tax("fp8_current", kernels, depth=Repeats(16)) == pytest.approx(16 / (16 * 3 + 5))


def test_dense_layers_beside_those_with_experts_count_as_often_as_the_model_has_them() -> None:
    model = ModelSpec.model_validate(MIXTURE | {"numHiddenLayers": 61, "moe": MIXTURE["moe"] | {"denseLayers": 3}})
    kernels = [
        ProfiledKernel(FP8, 1.0, "forward", "mlp"),
        ProfiledKernel(CAST, 1.0, "forward", "mlp"),
        ProfiledKernel(FP8, 10.0, "forward", "mlp", dense=True),
    ]
    depth = repeats(model, measured=2, dense_measured=1)
    assert depth == Repeats(29, 3)
    assert quantization_tax("fp8_current", kernels, depth=depth) == pytest.approx(29 / (29 + 29 + 30))
    assert repeats(model.model_copy(update={"moe": None}), measured=4, dense_measured=0) == Repeats(61 / 4)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("void rht_gemm_device<128, 16>(int)", True),
        ("swizzle_block_scaling_1d_to_mxfp8_kernel", True),
        (
            "void transformer_engine::unary_kernel<16, true, float, transformer_engine::Empty, "
            "&transformer_engine::dispatch::fp8::detail::identity, __nv_bfloat16, __nv_fp8_e4m3>(int)",
            True,
        ),
        ("void at::native::vectorized_elementwise_kernel<4>(int)", False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)", False),
    ],
)
def test_what_quantises_is_told_by_its_rule(name: str, counts: bool) -> None:
    found = quantization_tax("nvfp4", [ProfiledKernel(FP8, 1.0), ProfiledKernel(name, 1.0)])
    assert found == pytest.approx(0.5 if counts else 0.0)


def test_the_head_is_no_part_of_the_claim() -> None:
    head = ProfiledKernel(BF16, 3.0, "forward", "head")
    assert verified(ProfiledKernel(FP8, 1.0, "forward", "mlp"), head).verdict == "verified"


def test_attention_that_is_not_fused_is_bf16_in_every_recipe_and_no_part_of_the_claim() -> None:
    core = ProfiledKernel(BF16, 3.0, "forward", "core_attention")
    verdict = verified(ProfiledKernel(FP8, 1.0, "forward", "mlp"), core)
    assert (verdict.verdict, verdict.share) == ("verified", 1.0)


def test_where_modules_cannot_be_told_bf16_kernels_may_be_the_heads_and_prove_no_fallback() -> None:
    mixed = (ProfiledKernel(FP8, 1.0), ProfiledKernel(BF16, 3.0))
    blind = replace(profile(*mixed), unplaced="RuntimeError: a view is modified")
    found = verification_of("fp8_current", request(), PROBED, blind, Inspection())
    assert (found.verdict, "a view is modified" in found.message) == ("unknown", True)
    assert verified(*mixed).verdict == "partial"
    pure = replace(profile(mixed[0]), unplaced="RuntimeError: a view is modified")
    assert verification_of("fp8_current", request(), PROBED, pure, Inspection()).verdict == "verified"


def test_attention_that_is_not_fused_is_told_and_a_fused_or_unknown_one_is_not() -> None:
    linear = ProfiledKernel(FP8, 1.0, "forward", "mlp")
    assert unfused_attention(profile(linear, ProfiledKernel(BF16, 3.0, "forward", "core_attention")))
    assert not unfused_attention(profile(linear, ProfiledKernel("what_is_this", 3.0, "forward", "core_attention")))
    for fused in ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "void flash_fwd_kernel<int>(float*)"):
        assert not unfused_attention(profile(linear, ProfiledKernel(fused, 3.0, "forward", "core_attention")))


def test_with_the_scope_mlp_the_attention_is_no_part_of_the_claim_either() -> None:
    seen = (ProfiledKernel(FP8, 1.0, "forward", "mlp"), ProfiledKernel(BF16, 1.0, "forward", "attention"))
    assert verified(*seen).verdict == "partial"
    assert verified(*seen, recipe_scope="mlp").verdict == "verified"


def test_a_recipe_that_ran_in_bf16_is_a_fallback_with_its_kernels_told() -> None:
    verdict = verified(ProfiledKernel(BF16, 1.0))
    assert verdict.verdict == "fallback"
    assert [(kernel.name, kernel.class_, kernel.rule) for kernel in verdict.kernels] == [(BF16, "bf16", "cublas-nvjet")]


def test_errors_lower_a_verdict_and_flags_stand_beside_it() -> None:
    inside = Inspection({"with_rht": True}, NumericErrors(y=0.001, dx=0.04, dw=0.04), 0.52)
    verdict = verified(ProfiledKernel(FP8, 1.0), inside=inside)
    assert verdict.verdict == "fallback", "y is too exact for FP8"
    assert (verdict.flags, verdict.saved_bytes_ratio) == ({"with_rht": True}, 0.52)


def test_without_a_profile_the_probes_word_stands() -> None:
    assert verification_of("bf16", request(), PROBED, None, Inspection()).message == "probe"


def test_the_longest_kernels_are_told_and_equal_names_are_one() -> None:
    kernels = [ProfiledKernel(f"kernel_{n}", float(n)) for n in range(40)] + [ProfiledKernel("kernel_0", 99.0)]
    found = verification_of("bf16", request(), PROBED, profile(*kernels), Inspection()).kernels
    assert len(found) == KERNELS_TOLD
    assert [kernel.name for kernel in found[:2]] == ["kernel_0", "kernel_39"]


@pytest.mark.parametrize(
    ("probe", "verdict"), [("verified", "unknown"), ("assumed", "assumed"), ("fallback", "fallback")]
)
def test_a_probe_alone_verifies_nothing(probe: Verdict, verdict: str) -> None:
    probed = Probe("ok", verification=Verification(verdict=probe, message="probe"))
    found = verification_of("fp8_current", request(), probed, None, Inspection())
    assert found.verdict == verdict
    assert found.message == ("no measured step was profiled" if verdict == "unknown" else "probe")
