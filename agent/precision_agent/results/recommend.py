"""Which recipe to use on this node, by speed and by energy, which to fall back to, and why, in one sentence or two."""

from collections.abc import Mapping, Sequence

from precision_agent.method.learning import in_words, learnt
from precision_api.exchange import stats
from precision_api.exchange.result import Energy, Interval, Provenance, RecipeResult, Recommendation
from precision_api.exchange.summary import USABLE, complete
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe, recipe_name, risk_of, risks_of

WIDTH = {"fp4": 4, "fp8": 8, "bf16": 16}
"""Bits of a number in each format: one falls back to a wider one."""
_MARKS: Mapping[Provenance, str] = {
    "simulated": "Simulated: ",
    "replayed": "Replayed: ",
    "trial": "A trial on a CPU, which says nothing of a GPU: ",
}
"""What the sentence begins with where nobody measured it on this hardware: a report cuts the end of a long one."""


def recommend(
    results: Sequence[RecipeResult], control: Interval | None, provenance: Provenance, baseline: Recipe = "bf16"
) -> Recommendation:
    """The recommendation; a recipe whose precision is in doubt, or whose loss was not healthy, is never named.

    A risky one is only where the request lists it, healthy or not: a loss run shows divergence, never parity.
    """
    name = recipe_name(baseline)
    verified = [result for result in results if result.verification.verdict in USABLE]
    usable = [result for result in verified if learnt(result.loss) and (result.listed or not _risk(result))]
    if baseline not in [result.recipe for result in usable]:
        reasons = [row.availability_reason for row in results if row.recipe == baseline]
        why = f" ({reasons[0]}): name another" if any(reasons) else ""
        return Recommendation(sentence=f"No recommendation: the baseline {name} gave no usable figure{why}.")
    ranked = _ranked(usable, control)
    if not ranked and all(_speedup(result) is None for result in verified):
        return Recommendation(sentence=_nothing(verified, name))
    fastest = ranked[0].recipe if ranked else baseline

    def is_safer(recipe: Recipe) -> bool:
        return recipe in RECIPE_NAMES and _safety(recipe) > _safety(fastest)

    safer = [result.recipe for result in ranked if is_safer(result.recipe)]
    wider = baseline if _safety(baseline)[0] >= _safety(fastest)[0] else None
    fallback = max(safer, key=lambda recipe: (-_safety(recipe)[0], _safety(recipe)), default=wider)
    by_energy = _by_energy(usable, baseline)
    return Recommendation(
        by_speed=fastest,
        by_energy=by_energy,
        fallback=None if fastest == baseline else fallback,
        sentence=_sentence(results, usable, ranked, by_energy, fallback, provenance, baseline).replace(baseline, name),
    )


def _nothing(verified: Sequence[RecipeResult], baseline: Recipe) -> str:
    """Why there is nothing to compare: parts of the step that did not fit, or no figure at all."""
    missing = dict.fromkeys(name for result in verified if result.training for name in result.training.missing)
    if missing:
        parts = " and ".join(missing)
        return f"No recommendation: the steps ran without {parts}, for want of memory, and no sum of GEMMs is whole."
    return f"No recommendation: no recipe has a figure to compare with {baseline}."


def _safety(recipe: Recipe) -> tuple[int, bool, int, bool]:
    """What one falls back along: wider formats, and of one format recipes without risk and with finer scales."""
    row = RECIPES[recipe]
    place = [*RECIPE_NAMES, recipe].index(row.variant_of or recipe)
    return WIDTH[row.format], not row.risk, place, row.variant_of is None


def _risk(result: RecipeResult) -> str:
    return risk_of(result.recipe, result.last_layers_bf16)


def _speedup(result: RecipeResult) -> Interval | None:
    """Of the complete training step, else of the GEMMs with their quantisation."""
    training = complete(result.training)
    if training and training.speedup:
        return training.speedup
    return next((part.speedup for part in result.sums if part.mode == "autocast" and part.speedup), None)


def _ranked(usable: Sequence[RecipeResult], control: Interval | None) -> list[RecipeResult]:
    """Recipes that are faster than the baseline beyond the noise, the fastest first."""
    faster = [
        (ratio.value, result)
        for result in usable
        if (ratio := _speedup(result)) and ratio.value > 1 and stats.differs(ratio, control)
    ]
    return [result for _, result in sorted(faster, key=lambda pair: -pair[0])]


def _energy(result: RecipeResult) -> Energy | None:
    training = complete(result.training)
    energy = training.energy if training else None
    return energy if energy and energy.valid and energy.tokens_per_joule else None


def _by_energy(usable: Sequence[RecipeResult], baseline: Recipe) -> Recipe | None:
    """The most tokens per joule, if by enough; None unless the baseline and one more have valid energy.

    The baseline only where no other recipe can save enough: an interval that holds 1 and a gain says nothing.
    """
    energies = {result.recipe: energy for result in usable if (energy := _energy(result))}
    if baseline not in energies or len(energies) < 2:
        return None
    saving = [recipe for recipe, energy in energies.items() if _saves(energy, energies[baseline])]
    ratios = [energy.tokens_per_joule_ratio for recipe, energy in energies.items() if recipe != baseline]
    # A gain that is enough lies within the interval of the paired ratio, or nothing is known of it.
    if not saving and any(not ratio or ratio.upper > 1 + stats.LEAST_ENERGY_DIFFERENCE for ratio in ratios):
        return None
    return max(saving, key=lambda recipe: energies[recipe].tokens_per_joule or 0.0, default=baseline)


def _saves(energy: Energy, baseline: Energy) -> bool:
    """Whether a token costs less by enough, and beyond the interval of the paired ratio."""
    assert energy.tokens_per_joule
    assert baseline.tokens_per_joule
    ratio = energy.tokens_per_joule_ratio
    sure = ratio is not None and ratio.lower > 1
    return sure and energy.tokens_per_joule > baseline.tokens_per_joule * (1 + stats.LEAST_ENERGY_DIFFERENCE)


def _sentence(
    results: Sequence[RecipeResult],
    usable: Sequence[RecipeResult],
    ranked: Sequence[RecipeResult],
    by_energy: Recipe | None,
    fallback: Recipe | None,
    provenance: Provenance,
    baseline: Recipe,
) -> str:
    trained = any((training := complete(result.training)) and training.speedup for result in ranked[:1] or results)
    what = "trains" if trained else "runs these GEMMs with their casts"
    among = " without a known risk" if any(_risk(result) and not result.listed for result in results) else ""
    among += "" if all(learnt(result.loss) for result in results) else " whose loss was healthy"
    if not ranked:
        said = f"Stay with {baseline}: no recipe{among} {what} faster than it beyond the noise."
    else:
        best = ranked[0]
        ratio = _speedup(best)
        assert ratio, "a ranked recipe has a speedup"
        label = " (emulated)" if "emulated" in (best.availability, best.verification.verdict) else ""
        last = "layer" if best.last_layers_bf16 == 1 else f"{best.last_layers_bf16} layers"
        label += f" with its last {last} in BF16" if best.last_layers_bf16 else ""
        low, high = f"{ratio.lower:.2f}", f"{ratio.upper:.2f}"
        bounds = f" ({low} to {high})" if low != high else ""
        other = f"; fall back to {fallback}" if fallback else ""
        said = f"{recipe_name(best.recipe)}{label} {what} {ratio.value:.2f}x as fast as {baseline}{bounds}{other}."
    if by_energy == baseline:
        said += f" No recipe{among} gives {stats.LEAST_ENERGY_DIFFERENCE:.0%} more tokens per joule than {baseline}."
    elif by_energy:
        said += f" Most tokens per joule: {recipe_name(by_energy)}."
    elif baseline in (powered := [result.recipe for result in usable if _energy(result)]) and len(powered) > 1:
        enough = f"{stats.LEAST_ENERGY_DIFFERENCE:.0%} more tokens per joule than {baseline}"
        said += f" Whether a recipe gives at least {enough} is not known."
    named = {by_energy, fallback, *(result.recipe for result in ranked[:1])}
    risks = risks_of((row.recipe, row.last_layers_bf16) for row in results if row.recipe in named)
    losses = (f"{recipe_name(row.recipe)}: {words}." for row in results if (words := in_words(row.loss)))
    said = " ".join((said, *risks, *losses))
    return f"{_MARKS.get(provenance, '')}{said}"
