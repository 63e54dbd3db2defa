"""From a profiled step to verdict, quantisation tax and the kernels that are told.

The verdict on a recipe: from shares of GEMM time and from errors, where doubt is never a pass.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.cases import Variant, variants_of
from precision_agent.precision import evidence
from precision_agent.precision.kernel_grammars import KernelClass
from precision_agent.precision.kernels import classify
from precision_agent.precision.verification import (
    ERROR_BANDS,
    EXPECTED_CLASS,
    FULL_SHARE,
    IN_FP8,
    core_verdict,
    numeric_verdict,
    verdict,
)
from precision_agent.protocol import Inspection, Probe, Profile, ProfiledKernel, Sample
from precision_agent.results.result import _taxes, repeats
from precision_agent.sampling.profiles import LoadProfiles
from precision_api.exchange.result import Failure, NumericErrors, SavedBytes, Verdict, Verification
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe
from precision_api.models.model import ModelSpec
from tests.support.golden import beside
from tests.support.result_objects import request

TABLES = beside(__file__)

H100 = Path(__file__).parents[2] / "benchmarks/results/h100/2026-11-26-97695a8d/quick-llama3-8b.json"
FP8 = "nvjet_qqtst_128x256_128x6_2x1_v_bz_TNT"
BF16 = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
CAST = "void transformer_engine::cast_transpose_kernel<float>(int)"
NORM = "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<float>(int)"
MIXTURE = TABLES["mixture"]
PARTS_OF_A_LAYER = ("mlp", "attention", "attention_out", "mamba", "mamba_out")
UNSEEN, FP8_CURRENT = Inspection(), Variant("fp8_current", "fp8_current")
PROBED = Probe("ok", verification=Verification(verdict="unknown", message="probe"))


def profile(*kernels: ProfiledKernel) -> Profile:
    return Profile(kernels, seconds=1.0, steps=10)


def verified(*kernels: ProfiledKernel, inside: Inspection = UNSEEN, **more: Any) -> Verification:
    variant = variants_of(request(recipes=["fp8_current"], **more))[1]
    return evidence.verification_of(variant, more.get("attention_core"), PROBED, profile(*kernels), inside)


def tax(
    *kernels: ProfiledKernel,
    plain: Sequence[ProfiledKernel] = (),
    recipe: Recipe = "fp8_current",
    repeats: evidence.Repeats = evidence.ONCE,
    unplaced: str = "",
) -> evidence.Tax | None:
    seen = replace(profile(*kernels), unplaced=unplaced)
    return evidence.quantization_tax(recipe, (seen, repeats), (profile(*plain), repeats))


def least(*kernels: ProfiledKernel, **more: Any) -> float:
    found = tax(*kernels, **more)
    assert found is not None
    return found.least


def test_the_tax_is_what_the_baseline_does_not_spend_beside_its_gemms_and_recomputed_forward_passes_count_twice() -> (
    None
):
    fp8, cast, norm = ProfiledKernel(FP8, 3.0), ProfiledKernel(CAST, 1.0), ProfiledKernel(NORM, 5.0)
    assert least(fp8, cast, norm, plain=(norm,)) == pytest.approx(0.25)
    assert least(fp8, ProfiledKernel(NORM, 6.0), plain=(norm,)) == pytest.approx(0.25), "a norm that casts"
    assert least(fp8, norm, plain=(norm, cast)) == 0.0, "less than nothing is noise"
    assert tax(fp8, cast, recipe="bf16") is None
    assert tax(cast, norm) is None
    kernels = [
        ProfiledKernel(FP8, 2.0, "forward", "mlp"),
        ProfiledKernel(CAST, 1.0, "forward", "mlp"),
        ProfiledKernel(FP8, 4.0, "backward", "mlp"),
        ProfiledKernel(BF16, 1.0, "other", "head"),
    ]
    assert least(*kernels) == pytest.approx(1 / 8)
    assert least(*kernels, repeats=evidence.Repeats(forwards=2)) == pytest.approx(2 / 11)


BLACKWELL = "void transformer_engine::dispatch::fp8::kernel::{}<false, transformer_engine::Empty>(CUtensorMap)"
PLAIN_SWIGLU, MXFP8_SWIGLU = BLACKWELL.format("cast_fp8_gated_kernel"), BLACKWELL.format("quantize_gated_mxfp8_kernel")
MXFP8_NORM = "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<__nv_bfloat16, __nv_fp8_e4m3>(int)"


def test_on_blackwell_activations_are_no_tax_though_their_kernels_are_called_casts() -> None:
    """Llama 3 8B on a B200, made up: by names 10.0 % where 3.5 % is right."""

    def layer(gemm: str, gemms: float, gated: str, forward: float, backward: float, norm: str) -> list[ProfiledKernel]:
        rows = [(gemm, gemms / 3, "forward"), (gated, forward, "forward"), (norm, 9.0, "forward")]
        rows += [(gemm, 2 * gemms / 3, "backward"), (gated, backward, "backward")]
        return [ProfiledKernel(name, spent, pass_, "mlp") for name, spent, pass_ in rows]

    plain = layer("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", 1600.0, PLAIN_SWIGLU, 22.8, 44.0, NORM)
    mxfp8 = layer("nvjet_qqtst_128x256_128x4_2x1_v_bz_Avec32UE8M0_TNT", 893.0, MXFP8_SWIGLU, 24.0, 47.0, MXFP8_NORM)
    casts = [ProfiledKernel("void quantize_mxfp8_kernel<32, 32>(int)", 28.2, "backward", "mlp")]
    assert least(*mxfp8, *casts, plain=plain, recipe="mxfp8") == pytest.approx(0.035, abs=5e-4)
    assert pytest.approx(0.1, abs=5e-4) == (24 + 47 + 28.2) / (893 + 24 + 47 + 28.2), "what names told"
    assert least(*plain, plain=plain, recipe="mxfp8") == 0.0


@pytest.mark.parametrize(("recipe", "casts"), [("fp8_delayed", 0.667), ("fp8_current", 1.528), ("fp8_block", 2.152)])
def test_on_an_h100_the_difference_is_what_the_casts_take_by_name(recipe: Recipe, casts: float) -> None:
    """Of the layers, measured: milliseconds. A result has the 24 longest kernels: those are taken that none cut off."""
    rows = {row["recipe"]: row["verification"]["kernels"] for row in json.loads(H100.read_text())["recipes"]}
    cut = max(kernels[-1]["seconds"] for kernels in rows.values())
    heads = re.compile("SoftMax|copy_kernel|FillFunctor")

    def seen(name: str) -> list[ProfiledKernel]:
        long = [kernel for kernel in rows[name] if kernel["seconds"] > cut]
        modules = {kernel["name"]: "head" if heads.search(kernel["name"]) else "mlp" for kernel in long}
        modules |= {name: evidence.CORE for name in modules if classify(name).rule == "attention"}
        return [ProfiledKernel(k["name"], k["seconds"], "other", modules[k["name"]]) for k in long]

    gemms = sum(k.seconds for k in seen(recipe) if classify(k.name).kernel_class != "not_a_gemm")
    found = least(*seen(recipe), plain=seen("bf16"), recipe=recipe)
    assert found / (1 - found) * gemms * 1e3 == pytest.approx(casts, abs=0.05)


def test_kernels_that_no_rule_knows_and_faster_ones_make_the_tax_a_bound() -> None:
    result = tax(ProfiledKernel(FP8, 2.0), ProfiledKernel(CAST, 1.0), ProfiledKernel("what_is_this", 1.0))
    assert (result.least, result.most) == pytest.approx((1 / 4, 2 / 4))
    rows = [
        ((1 / 11, 1 / 8), [(FP8, 7.0), ("what_is_this", 3.0), (CAST, 1.0)], [(BF16, 12.0), ("what_is_this", 3.0)]),
        ((0.5 / 10.5, 2.5 / 12.5), [(FP8, 10.0), (MXFP8_SWIGLU, 2.5)], [(BF16, 16.0), ("what_is_this", 2.0)]),
        ((0.0, 0.6 / 10.6), [(FP8, 10.0), (CAST, 0.6), (NORM, 0.4)], [(BF16, 16.0), (NORM, 1.0)]),
    ]
    split = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>"
    slow, faster = (NORM.replace("tuned", "general"), 0.8), (NORM, 0.4)
    rows += [  # reductions of a GEMM that was split are the GEMM's; a faster norm beside casts
        ((0.5 / 10.5,) * 2, [(FP8, 9.4), (split, 0.6), (CAST, 0.5)], [(BF16, 18.0)]),
        ((0.0, 0.0), [(FP8, 9.4), (split, 0.6)], [(BF16, 18.0)]),
        ((0.6 / 10.6,) * 2, [(FP8, 10.0), (CAST, 0.6)], [(BF16, 17.0), (split, 0.6)]),
        ((0.2 / 10.2, 0.6 / 10.6), [(FP8, 10.0), (CAST, 0.6), faster], [(BF16, 17.0), slow]),
    ]
    for bounds, mine, plain in rows:
        seen, base = ([ProfiledKernel(n, s, "forward", "mlp") for n, s in side] for side in (mine, plain))
        result = tax(*seen, plain=base)
        assert (result.least, result.most) == pytest.approx(bounds)


def test_where_no_step_could_be_profiled_the_tax_is_the_gemms_as_often_as_the_model_has_them() -> None:
    fp8, bf16, case = Variant("fp8_current", "fp8_current"), Variant("bf16", "bf16"), "training"
    failed = LoadProfiles(failure=Failure(reason="clock_differs", message=""))
    head, mine = ProfiledKernel(BF16, 5.0, module="head"), (ProfiledKernel(FP8, 2.0), ProfiledKernel(CAST, 1.0))
    seen = {"fp8_current": profile(*mine, head), "bf16": profile(ProfiledKernel(BF16, 4.0), head)}
    profiles = {(label, "gemms"): LoadProfiles(runs=((kernels,),)) for label, kernels in seen.items()}
    profiles |= {(label, "training"): failed for label in seen}
    samples = SimpleNamespace(facts={("fp8_current", case): Sample(1.0, 1, 0.0, 1.0, layers_measured=2)})
    workload = SimpleNamespace(
        model=ModelSpec.model_validate(MIXTURE | {"moe": None, "numHiddenLayers": 64}),
        workload=SimpleNamespace(recompute="None"),
    )
    run = SimpleNamespace(cases=SimpleNamespace(baseline=bf16, training=case), workload=workload, samples=samples)
    facts: Any = SimpleNamespace(run=run, after=SimpleNamespace(profiles=profiles))
    assert _taxes(fp8, facts) == ((evidence.Tax(1 / 8, 1 / 8),), "gemms")
    cast = ProfiledKernel(CAST, 2.0, module="head")
    mixed = replace(fp8, parts=replace(fp8.parts, head="fp8_current"))
    profiles["fp8_current", "gemms"] = LoadProfiles(runs=((profile(*mine, head, cast),),))
    assert _taxes(fp8, facts)[0] == (evidence.Tax(1 / 8, 1 / 8),)
    assert _taxes(mixed, facts)[0] == (evidence.Tax(3 / 10, 3 / 10),), "a mixture quantises it"


def test_the_tax_is_the_full_depth_steps_the_head_counts_once_and_attentions_core_not_at_all() -> None:
    core, softmax = ProfiledKernel(BF16, 7.0, "forward", "core_attention"), "cunn_SoftMaxForward"
    kernels = [
        ProfiledKernel(FP8, 2.0, "forward", "mlp"),
        ProfiledKernel(CAST, 1.0, "forward", "attention"),
        core,
        ProfiledKernel(BF16, 5.0, "other", "head"),
        ProfiledKernel(f"void at::native::{softmax}<4, float>(int)", 9.0, "other", "head"),
    ]
    assert least(*kernels) == pytest.approx(1 / 8)
    assert least(*kernels, repeats=evidence.Repeats(16)) == pytest.approx(16 / (16 * 3 + 5))
    flash = ProfiledKernel("void flash_fwd_kernel<int>(float*)", 9.0, "forward", "core_attention")
    blind = [replace(kernel, module="") for kernel in (*kernels[:2], flash)]
    assert least(*blind, plain=(flash,), unplaced="no hooks") == pytest.approx(1 / 3), "the core is in both, or in none"


def test_dense_layers_beside_those_with_experts_count_as_often_as_the_model_has_them() -> None:
    model = ModelSpec.model_validate(MIXTURE | {"numHiddenLayers": 61, "moe": MIXTURE["moe"] | {"denseLayers": 3}})
    kernels = [
        ProfiledKernel(FP8, 1.0, "forward", "mlp"),
        ProfiledKernel(CAST, 1.0, "forward", "mlp"),
        ProfiledKernel(FP8, 10.0, "forward", "mlp", dense=True),
    ]
    depth = repeats(model, measured=2, dense_measured=1)
    assert depth == evidence.Repeats(29, 3)
    assert least(*kernels, repeats=depth) == pytest.approx(29 / (29 + 29 + 30))
    assert repeats(model.model_copy(update={"moe": None}), measured=4, dense_measured=0) == evidence.Repeats(61 / 4)


def test_neither_head_nor_unfused_attention_is_part_of_the_claim_and_untold_modules_prove_no_fallback() -> None:
    head = ProfiledKernel(BF16, 3.0, "forward", "head")
    assert verified(ProfiledKernel(FP8, 1.0, "forward", "mlp"), head).verdict == "verified"
    core = ProfiledKernel(BF16, 3.0, "forward", "core_attention")
    verdict = verified(ProfiledKernel(FP8, 1.0, "forward", "mlp"), core)
    assert (verdict.verdict, verdict.share) == ("verified", 1.0)
    seen = (ProfiledKernel(FP8, 1.0, "forward", "mlp"), ProfiledKernel(BF16, 1.0, "forward", "attention"))
    assert (verified(*seen).verdict, verified(*seen, recipe_scope="mlp").verdict) == ("partial", "verified")
    mixed = (ProfiledKernel(FP8, 1.0), ProfiledKernel(BF16, 3.0))
    blind = replace(profile(*mixed), unplaced="RuntimeError: a view is modified")
    verification = evidence.verification_of(FP8_CURRENT, None, PROBED, blind, Inspection())
    assert (verification.verdict, "a view is modified" in verification.message) == ("unknown", True)
    assert verified(*mixed).verdict == "partial"
    pure = replace(profile(mixed[0]), unplaced="RuntimeError: a view is modified")
    assert evidence.verification_of(FP8_CURRENT, None, PROBED, pure, Inspection()).verdict == "verified"


CORE_KERNEL = "cudnn_generated_fort_native_sdpa_sm90_flash_{}_wgmma_{}_knob_26_64x64x128_1x4x1_cga1x1x1_kernel0_0"


@pytest.mark.parametrize(
    ("words", "backend", "core", "expected"),
    [
        (("f8", "f8"), IN_FP8, "fp8_delayed", "verified"),
        (("f8", "f8"), IN_FP8, "mxfp8", "unknown"),
        (("mxfp8", "mxfp8"), IN_FP8, "mxfp8", "verified"),
        (("f8", "f8"), None, "fp8_delayed", "unknown"),
        (("f8", "f16"), IN_FP8, "fp8_current", "fallback"),
        (("f8", "f8"), "FusedAttention (sub-backend 1)", "fp8_current", "fallback"),
        (("f6", "f6"), IN_FP8, "fp8_current", "unknown"),
        (("f8",), IN_FP8, "fp8_current", "unknown"),
        ((), IN_FP8, "fp8_current", "unknown"),
    ],
)
def test_attentions_core_is_proved_by_its_kernels_in_both_passes_and_by_the_backend(
    words: tuple[str, ...], backend: str | None, core: Any, expected: str
) -> None:
    names = [CORE_KERNEL.format(pass_, word) for pass_, word in zip(("fprop", "bprop"), words, strict=False)]
    assert core_verdict(core, names, backend).verdict == expected
    assert core_verdict(core, [BF16], backend).verdict == "fallback", "unfused"
    for other in ("void flash_fwd_kernel<int>(float*)", BF16):
        assert core_verdict(core, [*names, other], backend).verdict in ("unknown", "fallback")
    kernels = [
        ProfiledKernel(FP8, 1.0, "forward", "mlp"),
        *(ProfiledKernel(n, 1.0, "other", "core_attention") for n in names),
    ]
    assert verified(*kernels, inside=Inspection(attention=backend), attention_core=core).verdict == expected


def test_a_mixture_is_as_good_as_its_worst_part() -> None:
    block = "nvjet_sm90_qqtst_128x64_128x7_2x1_v_bz_Avec128_Bblk128_TNT"
    mixed = Variant("ours", "ours", Parts("fp8_block", "fp8_current", "bf16", "bf16", "bf16"))
    rows = {"mlp": block, "attention": FP8, "attention_out": BF16, "head": BF16}
    for part, wrong, told in (("", "", "verified"), ("mlp", FP8, "fallback"), ("attention", BF16, "fallback")):
        seen = [
            ProfiledKernel(wrong if name == part else kernel, 1.0, "forward", name) for name, kernel in rows.items()
        ]
        found = evidence.verification_of(mixed, None, PROBED, profile(*seen), Inspection())
        assert (found.verdict, "fp8_block: " in found.message, "fp8_current: " in found.message) == (told, True, True)


@pytest.mark.parametrize(("parts", "ran", "expected"), TABLES["parts"])
def test_head_and_parts_in_bf16_of_a_mixture_are_judged_and_named_and_so_is_a_core_beside_them(
    parts: Any, ran: dict[str, str], expected: str
) -> None:
    names = {"bf16": BF16, "fp8": FP8, "unknown": "what_is_this", "core": CORE_KERNEL.format("fprop", "f16")}
    seen = [ProfiledKernel(names[kernel], 1.0, "forward", module) for module, kernel in ran.items()]
    core: Any = "fp8_delayed" if "core_attention" in ran else None
    mixed = Variant("ours", "ours", Parts(**dict.fromkeys(PARTS_OF_A_LAYER, "fp8_current") | parts))
    made = evidence.verification_of(mixed, core, PROBED, profile(*seen), Inspection())
    judged = dict(re.findall(r"((?:attention core|\w+) \w+): (\w+),", made.message))
    worst = {part: verdict for part, verdict in judged.items() if verdict != "verified"}
    assert worst == ({} if expected == "verified" else dict([expected.split(": ")]))
    assert made.verdict == expected.split(": ")[-1]
    assert "head" not in ran or any(part.startswith("head ") for part in judged)


def test_unfused_attention_and_the_longest_kernels_are_told() -> None:
    linear = ProfiledKernel(FP8, 1.0, "forward", "mlp")
    assert evidence.unfused_attention(profile(linear, ProfiledKernel(BF16, 3.0, "forward", "core_attention")))
    assert not evidence.unfused_attention(
        profile(linear, ProfiledKernel("what_is_this", 3.0, "forward", "core_attention"))
    )
    for fused in ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "void flash_fwd_kernel<int>(float*)"):
        assert not evidence.unfused_attention(profile(linear, ProfiledKernel(fused, 3.0, "forward", "core_attention")))
    kernels = [ProfiledKernel(f"kernel_{n}", float(n)) for n in range(40)] + [ProfiledKernel("kernel_0", 99.0)]
    longest = evidence.verification_of(Variant("bf16", "bf16"), None, PROBED, profile(*kernels), Inspection()).kernels
    assert len(longest) == evidence.KERNELS_TOLD
    assert [kernel.name for kernel in longest[:2]] == ["kernel_0", "kernel_39"]


def test_a_fallback_tells_its_kernels_unknown_the_longest_first_errors_lower_a_verdict_else_the_probes_stands() -> None:
    verdict = verified(ProfiledKernel(BF16, 1.0))
    assert verdict.verdict == "fallback"
    assert [(kernel.name, kernel.class_, kernel.rule) for kernel in verdict.kernels] == [(BF16, "bf16", "cublas-nvjet")]
    seen = [ProfiledKernel(name, spent, "forward", "mlp") for name, spent in ((FP8, 9.0), ("one", 0.1), ("two", 0.2))]
    assert verified(*seen).message.endswith("; unknown kernels: two, one")
    saved = tuple(SavedBytes(module=f"m{n}", kind="Linear", kept=kept, format=1) for n, kept in ((1, 1.09), (2, 2.0)))
    inside = Inspection({"with_rht": True}, NumericErrors(y=0.001, dx=0.04, dw=0.04), saved, "FlashAttention (2.7)")
    verdict = verified(ProfiledKernel(FP8, 1.0), inside=inside)
    assert verdict.verdict == "fallback", "y is too exact for FP8"
    assert (verdict.flags, verdict.saved, verdict.attention) == ({"with_rht": True}, saved, "FlashAttention (2.7)")
    assert "m1 (" not in verdict.message
    assert verdict.message.endswith("; m2 (Linear) keeps 2.00 bytes an element for backward, not 1.00")
    assert evidence.verification_of(Variant("bf16", "bf16"), None, PROBED, None, Inspection()).message == "probe"


@pytest.mark.parametrize(
    ("probe", "verdict"), [("verified", "unknown"), ("assumed", "assumed"), ("fallback", "fallback")]
)
def test_a_probe_alone_verifies_nothing(probe: Verdict, verdict: str) -> None:
    probed = Probe("ok", verification=Verification(verdict=probe, message="probe"))
    verification = evidence.verification_of(FP8_CURRENT, None, probed, None, Inspection())
    assert verification.verdict == verdict
    assert verification.message == ("no measured step was profiled" if verdict == "unknown" else "probe")


@pytest.mark.parametrize(("claimed", "shares", "emulated", "expected"), TABLES["shares"])
def test_the_verdict_follows_the_share_of_gemm_time(
    claimed: Recipe, shares: dict[KernelClass, float], emulated: bool, expected: Verdict
) -> None:
    assert verdict(claimed, shares, emulated).verdict == expected


def test_a_verdict_tells_its_share_and_classes_and_bands_do_not_overlap() -> None:
    found = verdict("nvfp4", {"bf16": 0.25, "nvfp4": 0.75})
    assert (found.verdict, found.share) == ("partial", 0.75)
    assert found.message == "GEMM time by kernel class: nvfp4 75.0%, bf16 25.0%"
    by_format = {RECIPES[recipe].format: band for recipe, band in ERROR_BANDS.items()}
    assert by_format["bf16"].high <= by_format["fp8"].low < by_format["fp8"].high <= by_format["fp4"].low


@pytest.mark.parametrize(
    ("shares", "errors", "expected"),
    [
        ({"nvfp4": 1.0}, (0.15, 0.17, 0.17), "verified"),
        ({"nvfp4": 1.0}, (0.15, 0.04, 0.17), "fallback"),
        ({"nvfp4": 1.0}, (0.15, 0.9, 0.17), "unknown"),
        ({"nvfp4": 1.0}, (0.15, float("nan"), 0.17), "unknown"),
        ({"nvfp4": 0.6, "bf16": 0.4}, (0.15, 0.0017, 0.17), "partial"),
        ({"bf16": 1.0}, (0.15, 0.15, 0.15), "fallback"),
        ({"unknown": 1.0}, (0.15, 0.15, 0.15), "unknown"),
    ],
)
def test_errors_lower_a_verdict(shares: dict[KernelClass, float], errors: tuple[float, ...], expected: Verdict) -> None:
    assert verdict("nvfp4", shares, errors=errors).verdict == expected


@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_an_error_below_the_band_is_too_exact_and_above_it_too_large(recipe: Recipe) -> None:
    band = ERROR_BANDS[recipe]
    given = (0.0, band.low * 0.99, band.low, band.high, band.high * 1.01, float("inf"), float("nan"))
    assert [numeric_verdict(recipe, error) for error in given] == [
        *("too_exact", "too_exact", "within", "within", "too_large", "too_large", "too_large")
    ]


@given(
    st.sampled_from(RECIPE_NAMES),
    st.dictionaries(st.sampled_from(["bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "unknown"]), st.floats(0.01, 1.0)),
    st.booleans(),
)
def test_only_a_full_share_of_the_claimed_class_is_verified(
    claimed: Recipe, weights: dict[KernelClass, float], emulated: bool
) -> None:
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in weights.items()}
    full = shares.get(EXPECTED_CLASS[claimed], 0.0) >= FULL_SHARE
    assert (verdict(claimed, shares, emulated).verdict == "verified") == full
