"""The verdict on a recipe: from shares of GEMM time and from errors, where doubt is never a pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.precision.kernels import KernelClass
from precision_agent.precision.verification import ERROR_BANDS, EXPECTED_CLASS, FULL_SHARE, numeric_verdict, verdict
from precision_api.exchange.result import Verdict
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe


@pytest.mark.parametrize(
    ("claimed", "shares", "emulated", "expected"),
    [
        ("bf16", {"bf16": 1.0}, False, "verified"),
        ("nvfp4", {"nvfp4": 0.992, "bf16": 0.008}, False, "verified"),
        ("nvfp4_no_rht", {"nvfp4": 1.0}, False, "verified"),
        ("nvfp4", {"nvfp4": 0.7, "bf16": 0.3}, False, "partial"),
        ("nvfp4", {"nvfp4": 0.5, "unknown": 0.5}, False, "partial"),
        ("nvfp4", {"bf16": 1.0}, False, "fallback"),
        ("nvfp4", {"nvfp4": 0.001, "bf16": 0.999}, False, "fallback"),
        ("fp8_current", {"mxfp8": 1.0}, False, "fallback"),
        ("fp8_block", {"fp8_block": 1.0}, False, "verified"),
        ("fp8_block", {"mxfp8": 1.0}, True, "emulated"),
        ("fp8_block", {"mxfp8": 1.0}, False, "fallback"),
        ("fp8_block", {"bf16": 1.0}, True, "fallback"),
        ("mxfp8", {"mxfp8": 1.0}, True, "verified"),
        ("nvfp4", {"unknown": 1.0}, False, "unknown"),
        ("nvfp4", {"unknown": 0.5, "bf16": 0.5}, False, "unknown"),
        ("bf16", {}, False, "unknown"),
    ],
)
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
def test_errors_only_ever_lower_a_verdict(
    shares: dict[KernelClass, float], errors: tuple[float, ...], expected: Verdict
) -> None:
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
