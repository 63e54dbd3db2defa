"""The recommendation: verified recipes only, beyond the noise only, and what to fall back to."""

from __future__ import annotations

from typing import Any

import pytest

from precision_agent.results.recommend import recommend
from precision_api.exchange.result import Energy, Interval, Loss, RecipeResult, Training, Verdict, Verification
from precision_api.facts.recipes import Recipe
from tests.support.result_objects import interval, recipe_result


def recipes(**speeds: float) -> list[RecipeResult]:
    return [recipe_result("bf16"), *(recipe_result(name, speed) for name, speed in speeds.items())]  # type: ignore[arg-type]


def with_verdict(recipe: Recipe, speed: float, verdict: Verdict) -> RecipeResult:
    return recipe_result(recipe, speed, verification=Verification(verdict=verdict))


def test_the_fastest_is_recommended_and_a_wider_format_to_fall_back_to() -> None:
    found = recommend(recipes(fp8_delayed=1.4, mxfp8=1.3, nvfp4=1.6, nvfp4_no_rht=1.5), None, "measured")
    assert (found.by_speed, found.by_energy, found.fallback) == ("nvfp4", "nvfp4", "mxfp8")
    assert found.sentence == (
        "nvfp4 trains 1.6x as fast as bf16 (1.58 to 1.62); fall back to mxfp8. Most tokens per joule: nvfp4."
    )


@pytest.mark.parametrize("verdict", ["fallback", "unknown", "partial"])
def test_a_recipe_whose_precision_was_not_verified_is_never_recommended(verdict: Verdict) -> None:
    results = [*recipes(mxfp8=1.3), with_verdict("nvfp4", 9.0, verdict)]
    found = recommend(results, None, "measured")
    assert (found.by_speed, found.by_energy) == ("mxfp8", "mxfp8")


def test_nobody_falls_back_to_a_narrower_format() -> None:
    faster = Training(tokens_per_second=interval(1.2e5), speedup=interval(1.2))
    rows = [recipe_result("fp8_current", training=None, sums=()), recipe_result("bf16", training=faster)]
    found = recommend(rows, None, "measured", "fp8_current")
    assert (found.by_speed, found.fallback) == ("bf16", None)
    assert "fall back" not in found.sentence


def test_an_emulated_recipe_is_recommended_with_its_label() -> None:
    found = recommend([*recipes(), with_verdict("fp8_block", 1.4, "emulated")], None, "measured")
    assert found.by_speed == "fp8_block"
    assert "fp8_block (emulated) trains" in found.sentence


def test_within_the_noise_one_stays_with_the_baseline() -> None:
    noisy = Interval(value=1.2, lower=1.1, upper=1.3, n=3)
    found = recommend(recipes(mxfp8=1.25), noisy, "measured")
    assert (found.by_speed, found.fallback) == ("bf16", None)
    assert found.sentence.startswith("Stay with bf16")


def test_an_interval_narrower_than_its_last_digit_is_not_printed() -> None:
    training = Training(tokens_per_second=interval(1e5), speedup=Interval(value=1.62, lower=1.6199, upper=1.6201, n=3))
    rows = [*recipes(), recipe_result("mxfp8", training=training, sums=())]
    assert "trains 1.62x as fast as bf16; fall back" in recommend(rows, None, "measured").sentence


def test_without_a_verified_baseline_nothing_is_recommended() -> None:
    found = recommend([recipe_result("nvfp4", 1.6)], None, "measured")
    assert found.by_speed is None
    assert "baseline" in found.sentence


def test_without_training_the_gemms_decide_and_the_sentence_says_so() -> None:
    results = [result.model_copy(update={"training": None}) for result in recipes(mxfp8=1.3)]
    found = recommend(results, None, "measured")
    assert (found.by_speed, found.by_energy) == ("mxfp8", None)
    assert "mxfp8 runs these GEMMs 1.3x as fast as bf16" in found.sentence


def test_invalid_energy_takes_no_part() -> None:
    invalid = Training(
        tokens_per_second=interval(2e5), speedup=interval(1.6), energy=Energy(valid=False, reasons=("phase_locked",))
    )
    found = recommend([*recipes(mxfp8=1.3), recipe_result("nvfp4", 1.6, training=invalid)], None, "measured")
    assert (found.by_speed, found.by_energy) == ("nvfp4", "mxfp8")


def trained(tokens_per_joule: float, ratio: Interval | None = None, **more: Interval) -> Training:
    energy = Energy(valid=True, watts=500.0, tokens_per_joule=tokens_per_joule, tokens_per_joule_ratio=ratio)
    return Training(tokens_per_second=interval(1e5), energy=energy, **more)


@pytest.mark.parametrize(("gain", "best"), [(1.02, "bf16"), (1.05, "mxfp8")])
def test_a_gain_in_energy_below_what_its_figures_are_known_to_is_none(gain: float, best: Recipe) -> None:
    faster = trained(10.0 * gain, interval(gain, 0.005), speedup=interval(1.3))
    rows = [
        recipe_result("bf16", training=trained(10.0, interval(1.0, 0.005))),
        recipe_result("mxfp8", 1.3, training=faster),
    ]
    assert recommend(rows, None, "measured").by_energy == best


@pytest.mark.parametrize(
    ("ratio", "best"),
    [
        (Interval(value=1.1, lower=0.95, upper=1.27, n=4), None),
        (Interval(value=0.9, lower=0.8, upper=1.02, n=4), "bf16"),
    ],
    ids=["holds a gain", "holds none"],
)
def test_the_baseline_has_the_most_tokens_per_joule_only_where_no_other_recipe_can_have_more(
    ratio: Interval, best: Recipe | None
) -> None:
    rows = [recipe_result("bf16", training=trained(10.0)), recipe_result("mxfp8", training=trained(11.0, ratio))]
    found = recommend(rows, None, "measured")
    assert found.by_energy == best
    assert ("Most tokens per joule" in found.sentence) == (best is not None)
    assert ("at least 3% more tokens per joule than bf16 is not known" in found.sentence) == (best is None)


def test_figures_that_nobody_measured_are_called_so() -> None:
    assert recommend(recipes(mxfp8=1.3), None, "simulated").sentence.startswith("Simulated: ")


@pytest.mark.parametrize(
    ("ratio", "best"),
    [
        (Interval(value=1.2, lower=1.05, upper=1.5, n=4), "nvfp4"),
        (Interval(value=1.2, lower=0.98, upper=1.5, n=4), "mxfp8"),
        (None, "mxfp8"),
    ],
    ids=["beyond its interval", "within its interval", "without one"],
)
def test_most_tokens_per_joule_must_be_beyond_the_interval_of_the_ratio(ratio: Interval | None, best: Recipe) -> None:
    rows = [
        recipe_result("bf16", training=trained(10.0)),
        recipe_result("mxfp8", training=trained(11.0, interval(1.1, 0.02))),
        recipe_result("nvfp4", training=trained(12.0, ratio)),
    ]
    assert recommend(rows, None, "measured").by_energy == best


def test_a_step_without_its_head_recommends_nothing_by_speed_or_energy() -> None:
    whole = recipes(mxfp8=1.3)
    training = whole[1].training
    without = training.model_copy(update={"missing": ("head",)})
    found = recommend([whole[0], whole[1].model_copy(update={"training": without, "sums": ()})], None, "measured")
    assert (found.by_speed, found.by_energy) == (None, None)
    assert "the steps ran without head, for want of memory" in found.sentence


HEALTHY, DIVERGED = Loss(verdict="healthy"), Loss(verdict="diverged")
NO_RHT = '"may degrade convergence quality"'
NONE_KEPT = '"keep the last 15% of the layers in BF16 precision for better stability"'


@pytest.mark.parametrize(
    ("of_nvfp4", "of_no_rht", "speed", "fallback", "words"),
    [
        ({"last_layers_bf16": 5}, {}, "nvfp4", "mxfp8", "nvfp4 with its last 5 layers in BF16 trains 1.6x"),
        ({"last_layers_bf16": 0}, {"loss": HEALTHY}, "fp8_delayed", "mxfp8", "fp8_delayed trains 1.4x"),
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
