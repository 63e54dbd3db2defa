"""What the figures mean: the rules of `results.meaning` on figures whose cause is known."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.results.meaning import Facts, expected_speedup, facts_of, meaning
from precision_api.exchange.result import Failure, GemmSum, Interval, RecipeResult, Training
from tests.support.result_objects import interval, recipe_result

G, S = 0.7, 2.0
EXPECTED = 1 / (1 - G + G / S)


def ratio(value: float, half: float = 0.003) -> Interval:
    return interval(value, half)


def facts(**changes: Any) -> Facts:
    """NVFP4 on a step of 70 % GEMMs, whose kernels are twice as fast, measured exactly as expected."""
    plain = Facts("nvfp4", "bf16", "verified", G, ratio(S), ratio(EXPECTED), "faster", quantization_tax=0.2)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("share", "speedup", "expected"),
    [(0.0, 9.0, 1.0), (1.0, 2.0, 2.0), (0.5, 2.0, 4 / 3), (0.8, 4.0, 2.5), (0.9, 1, 1)],
)
def test_the_expected_speedup_is_amdahls(share: float, speedup: float, expected: float) -> None:
    assert expected_speedup(share, speedup) == pytest.approx(expected)


@pytest.mark.parametrize(("share", "speedup"), [(-0.1, 1.0), (1.1, 1.0), (0.5, 0.0)])
def test_a_share_or_speedup_that_can_not_be_is_an_error(share: float, speedup: float) -> None:
    with pytest.raises(ValueError, match="no GEMM share"):
        expected_speedup(share, speedup)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"recipe": "bf16"}, "baseline", "is the baseline of the others"),
        ({"verdict": "fallback"}, "fallback", "fell back to another precision"),
        ({}, "gemm_bound", "GEMM-bound"),
        ({"measured": ratio(EXPECTED * 0.996)}, "gemm_bound", "as its GEMMs alone allow"),
        ({"measured": ratio(EXPECTED * 1.1)}, "gemm_bound", "other kernels are faster too"),
        ({"measured": ratio(5 / 3), "cast_share": ratio(0.8), "cast_speedup": ratio(S)}, "gemm_bound",
         "as its GEMMs with their casts allow (1.67x): they are 80% of the step"),
        ({"measured": ratio(1.3)}, "overhead", "by quantisation"),
        ({"measured": ratio(1.3, half=0.4)}, "gemm_bound", "allow"),
        ({"measured": ratio(0.9), "difference": "slower"}, "overhead", "and more"),
        ({"gemm_speedup": ratio(0.97)}, "not_beneficial", "0.97x"),
        ({"gemm_speedup": ratio(1.004, half=0.001)}, "not_beneficial", "1.00x"),
        ({"gemm_speedup": ratio(1.04, half=0.05)}, "not_beneficial", "not beneficial at these shapes"),
        ({"gemm_share": 0.01, "measured": ratio(1.002), "difference": "no_difference"}, "no_difference", "the noise"),
        ({"gemm_speedup": ratio(0.44, half=0.3)}, "not_beneficial", "0.44x (0.31 to 0.57) as fast"),
        ({"gemm_speedup": ratio(1.3, half=0.35)}, "unknown",
         "is unknown: its GEMMs alone run 1.30x (0.85 to 1.76) as fast"),
        ({"gemm_speedup": None}, "unknown", "no GEMM figure"),
        ({"measured": None}, "unknown", "nvfp4: its GEMMs alone run 2.00x as fast as bf16's; no training figure, so"),
        ({"measured": None, "cast_speedup": ratio(1.1)}, "unknown", "as bf16's, with their casts 1.10x; no training"),
        ({"measured": None, "tax_in_speedup": True}, "unknown", "nvfp4: its GEMMs with their casts run 2.00x as fast"),
        ({"measured": ratio(0.7), "difference": "slower"}, "overhead", "eats all of the time saved and more, 11% of"),
        ({"gemm_share": None}, "unknown", "no share of the GEMMs"),
    ],
)  # fmt: skip
def test_the_kind_follows_from_the_figures(changes: dict[str, Any], kind: str, words: str) -> None:
    meant = meaning(facts(**changes))
    assert meant.kind == kind
    assert words in meant.sentence
    assert meant.sentence.endswith(".")


def test_the_gap_is_split_into_quantisation_and_the_rest() -> None:
    """A step of 10 s: 7 s of GEMMs become 3.5 s; quantisation takes 0.875 s more, something else 0.625 s."""
    measured = 10 / (3 + 3.5 + 0.875 + 0.625)
    result = meaning(facts(measured=ratio(measured), quantization_tax=0.875 / (3.5 + 0.875)))
    assert result.expected_speedup == pytest.approx(10 / 6.5)
    assert result.quantization_part == pytest.approx(0.875 / 3.5)
    assert result.other_part == pytest.approx(0.625 / 3.5)
    assert "overhead eats 43% of the time saved, 58% of that by quantisation." in result.sentence
    result = meaning(facts(measured=ratio(measured), quantization_tax=0.2, tax_is_bound=True))
    assert "of the time saved, at least 58% of that by quantisation." in result.sentence
    result = meaning(facts(measured=ratio(1.45), quantization_tax=0.5))
    assert result.other_part == pytest.approx(0.0)
    result = meaning(facts(measured=ratio(1.3), quantization_tax=None))
    assert (result.quantization_part, result.other_part) == (None, None)
    assert "not measured" in result.sentence
    result = meaning(facts(measured=ratio(1.3), tax_in_speedup=True))
    assert result.quantization_part == 0.0
    assert result.other_part
    assert "; its GEMMs with their casts would give 1.54x: " in result.sentence


@given(
    share=st.floats(0.05, 0.95),
    speedup=st.floats(1.05, 4.0),
    tax=st.floats(0.0, 0.6),
    rest=st.floats(0.0, 0.5),
    half=st.floats(1e-4, 0.01),
)
def test_any_step_is_explained_by_its_parts(share: float, speedup: float, tax: float, rest: float, half: float) -> None:
    """Whatever the parts: what was put in as quantisation and as rest comes out, or the gap is within the interval."""
    gemms = share / speedup
    quantisation = gemms * tax / (1 - tax)
    measured = 1 / (1 - share + gemms + quantisation + rest)
    meant = meaning(
        facts(gemm_share=share, gemm_speedup=ratio(speedup, 1e-5), measured=ratio(measured, half), quantization_tax=tax)
    )
    saved = share - gemms
    if meant.kind == "overhead":
        assert meant.quantization_part == pytest.approx(quantisation / saved, rel=1e-6, abs=1e-9)
        assert meant.other_part == pytest.approx(rest / saved, rel=1e-6, abs=1e-6)
    else:
        assert meant.kind == "gemm_bound"
        assert quantisation + rest <= 1.1 * max(half, 0.005) / measured + 1e-3


def with_sums(*sums: GemmSum) -> RecipeResult:
    return recipe_result("nvfp4", sums=sums, quantization_tax=0.25)


AUTOCAST = GemmSum(mode="autocast", seconds=interval(1.0), speedup=interval(1.5))
PREQUANTIZED = GemmSum(mode="prequantized", seconds=interval(0.6), speedup=interval(2.5))


def test_the_gemms_alone_are_the_prequantized_ones_else_the_autocast_sum_and_half_a_step_has_no_speedup() -> None:
    found = facts_of(with_sums(AUTOCAST, PREQUANTIZED), "bf16", 0.7, 0.01)
    assert found.gemm_speedup == PREQUANTIZED.speedup
    assert (found.tax_in_speedup, found.quantization_tax, found.noise_floor) == (False, 0.25, 0.01)
    failed = GemmSum(mode="prequantized", failure=Failure(reason="no_prequantized_mode"))
    found = facts_of(with_sums(AUTOCAST, failed), "bf16", 0.7)
    assert (found.gemm_speedup, found.tax_in_speedup) == (AUTOCAST.speedup, True)
    untrained = recipe_result("nvfp4", training=Training(failure=Failure(reason="not_requested")))
    assert facts_of(untrained, "bf16", 0.7).measured is None
    whole = with_sums(AUTOCAST, PREQUANTIZED)
    without = whole.training.model_copy(update={"missing": ("optimizer",)})
    assert facts_of(whole.model_copy(update={"training": without}), "bf16", 0.7).measured is None


def test_layers_in_bf16_are_named_and_have_no_quantisation() -> None:
    half = facts(gemm_speedup=ratio(2.0, 1e-5), measured=ratio(1.3), layers_bf16=5, own_share=0.5)
    found, all_own = meaning(half), meaning(replace(half, layers_bf16=0, own_share=1.0))
    assert "; its GEMMs alone (the last 5 layers' in BF16) would give 1.54x" in found.sentence
    assert "; its GEMMs alone would give 1.54x" in all_own.sentence
    assert "; its GEMMs alone (the last layer's in BF16) would" in meaning(replace(half, layers_bf16=1)).sentence
    assert found.quantization_part == pytest.approx(all_own.quantization_part / 2)
