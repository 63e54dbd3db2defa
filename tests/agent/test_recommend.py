"""The recommendation: verified recipes only, beyond the noise only, and what to fall back to.

Where low precision is known not to help, words and recommendation call no loss a gain.
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
from precision_api.exchange.result import Energy, Interval, Loss, RecipeResult, Training, Verdict, Verification
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


def recipes(**speeds: float) -> list[RecipeResult]:
    return [recipe_result("bf16"), *(recipe_result(name, speed) for name, speed in speeds.items())]  # type: ignore[arg-type]


def with_verdict(recipe: Recipe, speed: float, verdict: Verdict) -> RecipeResult:
    return recipe_result(recipe, speed, verification=Verification(verdict=verdict))


def test_the_fastest_with_valid_energy_is_recommended_and_nothing_narrower_to_fall_back_to() -> None:
    found = recommend(recipes(fp8_delayed=1.4, mxfp8=1.3, nvfp4=1.6, nvfp4_no_rht=1.5), None, "measured")
    assert (found.by_speed, found.by_energy, found.fallback) == ("nvfp4", "nvfp4", "mxfp8")
    assert found.sentence == (
        "nvfp4 trains 1.60x as fast as bf16 (1.58 to 1.62); fall back to mxfp8. Most tokens per joule: nvfp4."
    )
    faster = Training(tokens_per_second=interval(1.2e5), speedup=interval(1.2))
    rows = [recipe_result("fp8_current", training=None, sums=()), recipe_result("bf16", training=faster)]
    found = recommend(rows, None, "measured", "fp8_current")
    assert (found.by_speed, found.fallback) == ("bf16", None)
    assert "fall back" not in found.sentence
    invalid = Training(
        tokens_per_second=interval(2e5), speedup=interval(1.6), energy=Energy(valid=False, reasons=("phase_locked",))
    )
    found = recommend([*recipes(mxfp8=1.3), recipe_result("nvfp4", 1.6, training=invalid)], None, "measured")
    assert (found.by_speed, found.by_energy) == ("nvfp4", "mxfp8")


@pytest.mark.parametrize("verdict", ["fallback", "unknown", "partial"])
def test_a_recipe_whose_precision_was_not_verified_is_never_recommended(verdict: Verdict) -> None:
    found = recommend([*recipes(mxfp8=1.3), with_verdict("nvfp4", 9.0, verdict)], None, "measured")
    assert (found.by_speed, found.by_energy) == ("mxfp8", "mxfp8")


def test_an_emulated_or_unmeasured_figure_is_recommended_with_its_label() -> None:
    found = recommend([*recipes(), with_verdict("fp8_block", 1.4, "emulated")], None, "measured")
    assert found.by_speed == "fp8_block"
    assert "fp8_block (emulated) trains" in found.sentence
    replayed = with_verdict("fp8_block", 1.4, "assumed").model_copy(update={"availability": "emulated"})
    assert "fp8_block (emulated) trains" in recommend([*recipes(), replayed], None, "simulated").sentence
    assert recommend(recipes(mxfp8=1.3), None, "simulated").sentence.startswith("Simulated: ")


def test_within_noise_one_stays_with_the_baseline_and_without_it_there_is_no_advice() -> None:
    found = recommend(recipes(mxfp8=1.25), Interval(value=1.2, lower=1.1, upper=1.3, n=3), "measured")
    assert (found.by_speed, found.fallback) == ("bf16", None)
    assert found.sentence.startswith("Stay with bf16")
    sick = recommend([*recipes(), recipe_result("nvfp4", 1.5, loss=Loss(verdict="diverged"))], None, "measured")
    assert sick.sentence.startswith("Stay with bf16: no recipe whose loss was healthy trains faster")
    none = with_verdict("mxfp8", 1.0, "unknown").model_copy(update={"availability_reason": "mxfp8: it says no"})
    assert recommend([*recipes(), none], None, "measured", "mxfp8").sentence == (
        "No recommendation: the baseline mxfp8 gave no usable figure (mxfp8: it says no): name another."
    )
    training = Training(tokens_per_second=interval(1e5), speedup=Interval(value=1.62, lower=1.6199, upper=1.6201, n=3))
    rows = [*recipes(), recipe_result("mxfp8", training=training, sums=())]
    assert "trains 1.62x as fast as bf16; fall back" in recommend(rows, None, "measured").sentence
    found = recommend([recipe_result("nvfp4", 1.6)], None, "measured")
    assert found.by_speed is None
    assert "baseline" in found.sentence


def test_without_training_the_gemms_decide_and_a_step_without_head_nothing() -> None:
    results = [result.model_copy(update={"training": None}) for result in recipes(mxfp8=1.3)]
    found = recommend(results, None, "measured")
    assert (found.by_speed, found.by_energy) == ("mxfp8", None)
    assert "mxfp8 runs these GEMMs with their casts 1.30x as fast as bf16" in found.sentence
    whole = recipes(mxfp8=1.3)
    without = whole[1].training.model_copy(update={"missing": ("head",)})
    found = recommend([whole[0], whole[1].model_copy(update={"training": without, "sums": ()})], None, "measured")
    assert (found.by_speed, found.by_energy) == (None, None)
    assert "the steps ran without head, for want of memory" in found.sentence


def trained(tokens_per_joule: float, ratio: Interval | None = None, **more: Interval) -> Training:
    energy = Energy(valid=True, watts=500.0, tokens_per_joule=tokens_per_joule, tokens_per_joule_ratio=ratio)
    return Training(tokens_per_second=interval(1e5), energy=energy, **more)


def ratio(value: float, lower: float, upper: float) -> Interval:
    return Interval(value=value, lower=lower, upper=upper, n=4)


SURE = (11.0, ratio(1.1, 1.08, 1.12))
ENERGIES: dict[str, tuple[dict[Recipe, tuple[float, Interval | None]], Recipe | None]] = {
    "below what sensors tell": ({"mxfp8": (10.2, ratio(1.02, 1.015, 1.025))}, "bf16"),
    "above it": ({"mxfp8": (10.5, ratio(1.05, 1.045, 1.055))}, "mxfp8"),
    "holds a gain": ({"mxfp8": (11.0, ratio(1.1, 0.95, 1.27))}, None),
    "holds none": ({"mxfp8": (11.0, ratio(0.9, 0.8, 1.02))}, "bf16"),
    "beyond its interval": ({"mxfp8": SURE, "nvfp4": (12.0, ratio(1.2, 1.05, 1.5))}, "nvfp4"),
    "within its interval": ({"mxfp8": SURE, "nvfp4": (12.0, ratio(1.2, 0.98, 1.5))}, "mxfp8"),
    "without one": ({"mxfp8": SURE, "nvfp4": (12.0, None)}, "mxfp8"),
}


@pytest.mark.parametrize(("energies", "best"), ENERGIES.values(), ids=ENERGIES)
def test_most_tokens_per_joule_are_by_enough_and_beyond_the_interval_else_the_baselines_or_not_known(
    energies: dict[Recipe, tuple[float, Interval | None]], best: Recipe | None
) -> None:
    rows = [recipe_result(name, training=trained(*energy)) for name, energy in ({"bf16": (10.0,)} | energies).items()]
    found = recommend(rows, None, "measured")
    assert found.by_energy == best
    assert ("No recipe gives 3% more tokens per joule than bf16." in found.sentence) == (best == "bf16")
    assert (f"Most tokens per joule: {best}." in found.sentence) == (best not in (None, "bf16"))
    assert ("at least 3% more tokens per joule than bf16 is not known" in found.sentence) == (best is None)


HEALTHY, DIVERGED = Loss(verdict="healthy"), Loss(verdict="diverged")
NO_RHT = '"may degrade convergence quality"'
NONE_KEPT = '"keep the last 15% of the layers in BF16 precision for better stability"'


@pytest.mark.parametrize(
    ("of_nvfp4", "of_no_rht", "speed", "fallback", "words"),
    [
        ({"last_layers_bf16": 5}, {}, "nvfp4", "mxfp8", "nvfp4 with its last 5 layers in BF16 trains 1.60x"),
        ({"last_layers_bf16": 0}, {"loss": HEALTHY}, "fp8_delayed", "mxfp8", "fp8_delayed trains 1.40x"),
        ({"last_layers_bf16": 0, "listed": True}, {}, "nvfp4", "mxfp8", f"{NONE_KEPT} (Megatron-Bridge"),
        ({}, {"listed": True}, "nvfp4_no_rht", "nvfp4", f"{NO_RHT} (NVIDIA JAX-Toolbox"),
        ({}, {"listed": True, "loss": DIVERGED}, "nvfp4", "mxfp8", "nvfp4_no_rht: "),
    ],
    ids=["layers kept", "healthy but risky", "none kept, by name", "no RHT, by name", "by name, but diverged"],
)
def test_a_risky_recipe_is_named_only_where_it_is_listed_and_with_its_source(
    of_nvfp4: dict[str, Any], of_no_rht: dict[str, Any], speed: Recipe, fallback: Recipe, words: str
) -> None:
    risky = [recipe_result("nvfp4", 1.6, **of_nvfp4), recipe_result("nvfp4_no_rht", 1.7, **of_no_rht)]
    found = recommend([*recipes(fp8_delayed=1.4, mxfp8=1.3), *risky], None, "measured")
    assert (found.by_speed, found.by_energy, found.fallback) == (speed, speed, fallback)
    assert words in found.sentence
    assert ("Risk of" in found.sentence) == any(said in found.sentence for said in (NO_RHT, NONE_KEPT))


def published(row: dict[str, Any], half: float) -> tuple[RecipeResult, RecipeResult]:
    """The two recipes of a row, trained at the published ratio, without any figure of GEMMs or of energy."""

    def trained(name: str, ratio: float | None) -> RecipeResult:
        speedup = None if ratio is None else interval(ratio, half)
        difference = None
        if speedup is not None:
            faster = "faster" if ratio and ratio > 1 else "slower"
            difference = faster if stats.differs(speedup, None) else "no_difference"
        training = Training(tokens_per_second=interval(1e4 * (ratio or 1.0)), speedup=speedup, difference=difference)
        return recipe_result(OURS.get(name, name), sums=(), gemms=(), training=training)  # type: ignore[arg-type]

    return trained(row["higher"], None), trained(row["lower"], row["ratio"])


def test_the_file_has_losses_of_dense_models_mixtures_and_hybrids() -> None:
    assert (len(ROWS), len(LOSSES)) == (14, 8)


@pytest.mark.parametrize("half", SPREADS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model'][:20]} {row['lower']} {row['ratio']}")
def test_published_rates_alone_tell_no_cause_and_recommend_no_loss_nor_noise(row: dict[str, Any], half: float) -> None:
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
    advice = recommend((baseline, lower), interval(1.0, 0.03), "measured", baseline.recipe)
    assert advice.by_speed == baseline.recipe, "rates are rounded, or of runs with other settings: 3 % is noise there"


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
