"""Which recipe to use on this node, by speed and by energy, which to fall back to, and why, in one sentence or two."""

from __future__ import annotations

from collections.abc import Sequence

from precision_agent.cases import BASELINE
from precision_api import stats
from precision_api.recipes import RECIPES, Recipe
from precision_api.result import Interval, Provenance, RecipeResult, Recommendation
from precision_api.summary import USABLE

WIDTH = {"fp4": 4, "fp8": 8, "bf16": 16}
"""Bits of a number in each format: one falls back to a wider one."""


def recommend(results: Sequence[RecipeResult], control: Interval | None, provenance: Provenance) -> Recommendation:
    """The recommendation; a recipe whose precision was not verified is never recommended."""
    usable = [result for result in results if result.verification.verdict in USABLE]
    if BASELINE not in [result.recipe for result in usable]:
        return Recommendation(sentence="No recommendation: the baseline bf16 gave no verified figure.")
    ranked = _ranked(usable, control)
    if not ranked and all(_speedup(result) is None for result in usable):
        return Recommendation(sentence="No recommendation: no recipe has a figure to compare with bf16.")
    fastest = ranked[0].recipe if ranked else BASELINE
    fallback = next((result.recipe for result in ranked if _width(result.recipe) > _width(fastest)), BASELINE)
    by_energy = _by_energy(usable)
    return Recommendation(
        by_speed=fastest,
        by_energy=by_energy,
        fallback=None if fastest == BASELINE else fallback,
        sentence=_sentence(usable, ranked, by_energy, fallback, provenance),
    )


def _width(recipe: Recipe) -> int:
    return WIDTH[RECIPES[recipe].format]


def _speedup(result: RecipeResult) -> Interval | None:
    """Of the training step, else of the GEMMs with their quantisation."""
    if result.training and result.training.speedup:
        return result.training.speedup
    return next((part.speedup for part in result.sums if part.mode == "autocast" and part.speedup), None)


def _ranked(usable: Sequence[RecipeResult], control: Interval | None) -> list[RecipeResult]:
    """Recipes that are faster than the baseline beyond the noise, the fastest first."""
    faster = [
        (ratio.value, result)
        for result in usable
        if (ratio := _speedup(result)) and ratio.value > 1 and stats.differs(ratio, control)
    ]
    return [result for _, result in sorted(faster, key=lambda pair: -pair[0])]


def _tokens_per_joule(result: RecipeResult) -> float | None:
    energy = result.training.energy if result.training else None
    return energy.tokens_per_joule if energy and energy.valid else None


def _by_energy(usable: Sequence[RecipeResult]) -> Recipe | None:
    """The most tokens per joule; None unless the baseline and one more have valid energy."""
    known = {result.recipe: figure for result in usable if (figure := _tokens_per_joule(result))}
    if BASELINE not in known or len(known) < 2:
        return None
    best = max(known, key=lambda recipe: known[recipe])
    return best if known[best] > known[BASELINE] * (1 + stats.LEAST_DIFFERENCE) else BASELINE


def _sentence(
    usable: Sequence[RecipeResult],
    ranked: Sequence[RecipeResult],
    by_energy: Recipe | None,
    fallback: Recipe,
    provenance: Provenance,
) -> str:
    trained = any(result.training and result.training.speedup for result in usable)
    what = "trains" if trained else "runs these GEMMs"
    if not ranked:
        said = f"Stay with bf16: no verified recipe {what} faster than it beyond the noise."
    else:
        best = ranked[0]
        ratio = _speedup(best)
        assert ratio, "a ranked recipe has a speedup"
        label = " (emulated)" if best.verification.verdict == "emulated" else ""
        bounds = f"{ratio.lower:.3g} to {ratio.upper:.3g}"
        said = f"{best.recipe}{label} {what} {ratio.value:.3g}x as fast as bf16 ({bounds}); fall back to {fallback}."
    if by_energy:
        said += f" Most tokens per joule: {by_energy}."
    return said if provenance == "measured" else f"{said} These figures are {provenance}, not measured here."
