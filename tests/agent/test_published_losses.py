"""Where low precision is known not to help, the agent's words and recommendation call no loss a gain.

`low_precision_does_not_help` of tests/golden/multinode_rows.json: rates from publications and issues, with their
sources. No GEMM figure was published with any of them, so the cause is unknown; whatever GEMM figures are made up here,
a loss is never explained as what the GEMMs allow.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.results.meaning import Facts, facts_of, meaning
from precision_agent.results.recommend import recommend
from precision_api.exchange import stats
from precision_api.exchange.result import RecipeResult, Training
from precision_api.facts.recipes import Recipe
from tests.support.result_objects import interval, recipe_result

GOLDEN = Path(__file__).parents[1] / "golden" / "multinode_rows.json"
DOCUMENT = json.loads(GOLDEN.read_text())["low_precision_does_not_help"]
OURS: dict[str, Recipe] = {"fp8_rowwise": "fp8_current", "mxfp8 (fp8 on H100)": "mxfp8"}
"""Recipes that are none of ours, by the one that is nearest: the rules are the same for all."""
ROWS = [row for row in (*DOCUMENT["from_rows"], *DOCUMENT["from_issues"]) if row["ratio"] is not None]
LOSSES = [row for row in ROWS if row["ratio"] < 1]
SPREADS = (0.0005, 0.003, 0.02)
"""Half-widths of an interval that a measurement of these rates might have had; none was published."""


def recipe(name: str) -> Recipe:
    return OURS.get(name, name)  # type: ignore[return-value]


def published(row: dict[str, Any], half: float) -> tuple[RecipeResult, RecipeResult]:
    """The two recipes of a row, trained at the published ratio, without any figure of GEMMs or of energy."""

    def trained(name: str, ratio: float | None) -> RecipeResult:
        speedup = None if ratio is None else interval(ratio, half)
        difference = None
        if speedup is not None:
            faster = "faster" if ratio and ratio > 1 else "slower"
            difference = faster if stats.differs(speedup, None) else "no_difference"
        training = Training(tokens_per_second=interval(1e4 * (ratio or 1.0)), speedup=speedup, difference=difference)
        return recipe_result(recipe(name), sums=(), gemms=(), training=training)

    return trained(row["higher"], None), trained(row["lower"], row["ratio"])


def test_the_file_has_losses_of_dense_models_mixtures_and_hybrids() -> None:
    assert len(ROWS) == 14
    assert len(LOSSES) == 8


@pytest.mark.parametrize("half", SPREADS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model'][:20]} {row['lower']} {row['ratio']}")
def test_published_rates_alone_leave_the_cause_unknown_and_recommend_no_loss(row: dict[str, Any], half: float) -> None:
    baseline, lower = published(row, half)
    said = meaning(facts_of(lower, baseline.recipe, None))
    assert said.kind == "unknown"
    assert "its speed is not explained" in said.sentence
    advice = recommend((baseline, lower), None, "measured", baseline.recipe)
    gains = row["ratio"] * (1 - half) > 1 and row["ratio"] > 1 + stats.LEAST_DIFFERENCE
    assert advice.by_speed == (lower.recipe if gains else baseline.recipe)
    if not gains:
        assert advice.sentence.startswith(f"Stay with {baseline.recipe}: ")
    else:
        assert f"{row['ratio']:.3g}x as fast" in advice.sentence, "a gain below 3 % is told as what it is"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model'][:20]} {row['lower']} {row['ratio']}")
def test_within_the_noise_of_two_runs_of_one_recipe_no_small_gain_is_recommended(row: dict[str, Any]) -> None:
    """Rates of these sources are rounded, or of runs with other settings: 3 % is noise there."""
    baseline, lower = published(row, 0.003)
    advice = recommend((baseline, lower), interval(1.0, 0.03), "measured", baseline.recipe)
    assert advice.by_speed == baseline.recipe


@given(
    st.sampled_from(LOSSES),
    st.sampled_from(SPREADS),
    st.floats(0.3, 4.0),
    st.floats(0.001, 0.2),
    st.floats(0.02, 0.98),
    st.none() | st.floats(0.0, 0.9),
    st.booleans(),
)
def test_no_gemm_figure_turns_a_published_loss_into_a_gain(
    row: dict[str, Any], half: float, speedup: float, spread: float, share: float, tax: float | None, with_tax: bool
) -> None:
    """Whatever its GEMMs gain: a slower step is overhead, no benefit, or not told; and it is never recommended."""
    baseline, lower = published(row, half)
    facts = Facts(
        lower.recipe, baseline.recipe, "verified", share, interval(speedup, spread), lower.training.speedup,
        lower.training.difference, quantization_tax=tax, tax_in_speedup=with_tax,
    )  # fmt: skip
    said = meaning(facts)
    assert "other kernels are faster too" not in said.sentence
    if lower.training.difference == "slower":
        assert said.kind in ("overhead", "not_beneficial", "unknown")
    assert recommend((baseline, lower), None, "measured", baseline.recipe).by_speed == baseline.recipe
