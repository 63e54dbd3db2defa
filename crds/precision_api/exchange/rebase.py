"""Speedups of a run over another of its recipes than the baseline that it recorded.

The ratio of two geometric means of the same pairs is that of the pairs; its interval is never narrower than theirs.
Where the recorded baseline has no figures, training speedups are ratios of rates.
"""

from typing import Any

from precision_api.exchange import stats
from precision_api.exchange.request import Mode, attention_recipe
from precision_api.exchange.result import Difference, Interval, Meaning, MeasurementResult, RecipeResult
from precision_api.exchange.summary import USABLE, first_failure
from precision_api.facts.recipes import Recipe, recipe_name

ONE = Interval(value=1, lower=1, upper=1, n=1_000_000)
"""A baseline over itself, exactly: the interval of what is held against it is the other's."""


def withheld(baseline: Recipe, availability: str | None, verdict: str) -> str:
    """Why ratios over the run's quantised baseline, which was measured, are withheld; empty where they stand."""
    if availability not in ("ok", "emulated") or verdict in USABLE or baseline == "bf16":
        return ""
    ran = "fell back to another precision" if verdict == "fallback" else f"has the verdict {verdict}"
    return "over {0} are withheld: {0} {1}".format(recipe_name(baseline), ran)


def judged(over: Recipe, baseline: Recipe, kept: Recipe, doubts: list[str], has: tuple[Any, ...]) -> tuple[bool, str]:
    """Whether a run has ratios over that recipe, and what is to be said of them: why none, or whose noise holds.

    `kept`: what attention's projections stayed in. `doubts`: why the recipe's own figures can't be used, and those over
    the baseline. `has`: its speedups over that in training and of GEMMs, its training rate, and the run's noise floor.
    """
    name, (doubt, why) = recipe_name(over), doubts
    if over == baseline:
        return False, f"Speedups {why}."
    baseline = recipe_name(baseline)
    if kept != "bf16":
        return False, f"an earlier agent kept attention's projections in {kept}, not in BF16; measure it again"
    if doubt:
        return False, f"no figures of {name} to compare with: {doubt}"
    if not any(has[:3]):
        return False, f"ratios {why}" if why else f"no figures of {baseline}, the run's baseline, so no ratios over any"
    if has[2] and not has[0]:
        why = f"; those {why}" if why else f": the run has none over {baseline}"
        return True, f"Training speedups over {name} are ratios of rates{why}."
    noise = "whose noise is the least difference" if has[3] else "whose noise was not recorded: no verdicts"
    return True, f"Speedups over {name} come from those over {baseline}, {noise}."


def ratio(of: Interval | None, over: Interval | None) -> Interval | None:
    """One over the other; None where one is missing."""
    return stats.ratio(of, over) if of and over else None


def difference(speedup: Interval | None, floor: float | None) -> Difference | None:
    """Whether that is faster or slower beyond the noise floor; None where one of them is unknown."""
    if not (speedup and floor):
        return None
    differs = stats.differs(speedup, Interval(value=1, lower=1 - floor, upper=1 + floor, n=1))
    return ("faster" if speedup.value > 1 else "slower") if differs else "no_difference"


def result_over(result: MeasurementResult, over: Recipe) -> tuple[MeasurementResult, str]:
    """The full result with speedups over that recipe, and what is to be said of them. What they are made of, and how
    energy and losses compare, is unknown then. ValueError where the recipe was not measured."""
    before = next((it for it in result.recipes if it.recipe == result.baseline), None)
    why = (before and withheld(before.recipe, before.availability, before.verification.verdict)) or ""
    if over == result.baseline and not why:
        return result, ""
    if over != result.baseline and why:
        result, _ = result_over(result, result.baseline)
    names = {it.recipe: recipe_name(it.recipe) for it in result.recipes}
    base = next((it for it in result.recipes if over in (it.recipe, names[it.recipe])), None)
    if base is None:
        raise ValueError(f"no figures of {over}; take one of {', '.join(names.values())}")
    verdict, failure = base.verification.verdict, first_failure(base)
    doubt = "" if verdict in USABLE else failure.message if failure else f"its verdict is {verdict}"
    kept = attention_recipe(result.baseline, result.timing) if result.recipe_scope == "mlp" else "bf16"
    trained, gemms = base.training, any(part.speedup for part in base.sums)
    has = trained and trained.speedup, gemms, trained and trained.tokens_per_second, result.noise_floor
    stands, said = judged(base.recipe, result.baseline, kept, [doubt, why], has)

    def figure(row: RecipeResult, mode: Mode | None) -> Interval | None:
        if row.recipe == result.baseline and (mode or has[0]):
            return ONE
        if mode or row.training is None:
            return next((part.speedup for part in row.sums if part.mode == mode), None)
        return row.training.speedup if has[0] else row.training.tokens_per_second

    def changed(row: RecipeResult) -> RecipeResult:
        def speedup(mode: Mode | None) -> Interval | None:
            return ratio(figure(row, mode), figure(base, mode)) if stands and row is not base else None

        meaning = (
            Meaning(kind="unknown", sentence=said) if base is before and row is not before and row.meaning else None
        )
        fields: dict[str, Any] = {"meaning": meaning, "quantization_tax": None, "quantization_tax_most": None}
        fields["sums"] = tuple(part.model_copy(update={"speedup": speedup(part.mode)}) for part in row.sums)
        if row.training:
            ratios = {"speedup": speedup(None), "difference": difference(speedup(None), result.noise_floor)}
            energy = row.training.energy and row.training.energy.model_copy(update={"tokens_per_joule_ratio": None})
            fields["training"] = row.training.model_copy(update=ratios | {"energy": energy})
        fields["loss"] = row.loss and row.loss.model_copy(update={"difference": None})
        return row.model_copy(update=fields)

    return result.model_copy(update={"baseline": base.recipe, "recipes": tuple(map(changed, result.recipes))}), said
