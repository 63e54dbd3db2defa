"""A reading whose speedups are over another recipe of its run than the baseline that the run recorded.

The ratio of two geometric means of the same pairs is that of the pairs; its interval is never narrower than theirs.
Where the recorded baseline has no figures, training speedups are ratios of rates.
"""

from dataclasses import replace
from typing import Any

from precision_api.exchange import stats
from precision_api.exchange.request import Mode, attention_recipe
from precision_api.exchange.result import Interval, MeasurementResult, RecipeResult
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import decimal
from precision_api.kinds.report import ReportRun
from precision_operator.core.results.reading import MODES, NO_SPEEDUPS, Reading, number

_ONE = Interval(value=1, lower=1, upper=1, n=1)


def rebased(reading: Reading, over: Recipe) -> tuple[Reading, str]:
    """The reading over that recipe, and what is to be said of it: why it has no speedups, or whose noise holds."""
    run, base = reading.run, reading.rows.get(over)
    if run is None or over == run.baseline:
        return reading, ""
    rows = {recipe: row._replace(**NO_SPEEDUPS) for recipe, row in reading.rows.items()}
    kept = attention_recipe(run.baseline, run.timing) if run.scope == "mlp" else "bf16"
    if kept != "bf16":
        said = f"{reading.node}: an earlier agent kept attention's projections in {kept}, not in BF16; measure it again"
    elif base is None or not base.usable:
        ran = base and (base.failure or f"its verdict is {base.verdict}")
        said = f"{reading.node}: no figures of {over} to compare with: {ran or 'it was not measured'}"
    elif not (base.speedup or base.gemm_speedup or base.tokens_per_second):
        said = f"{reading.node}: no figures of {run.baseline}, the run's baseline, so no ratios over any recipe"
    else:
        said = f"Speedups over {over} come from those over {run.baseline}, whose noise is the least difference."
        if base.speedup is None and base.tokens_per_second:
            said = f"Training speedups over {over} are ratios of rates: the run has none over {run.baseline}."
        rows |= {recipe: rows[recipe]._replace(**_over(reading, recipe, over, run)) for recipe in {*rows} - {over}}
        run = run.model_copy(update={"gemm_error": decimal(2 * float(run.gemm_error), 3)}) if run.gemm_error else run
    return replace(reading, rows=rows, run=run, group=reading.group._replace(baseline=over)), said


def _over(reading: Reading, recipe: Recipe, over: Recipe, run: ReportRun) -> dict[str, Any]:
    """Fields of a recipe's row, by what both are over the baseline of `run`; what casts take beyond is unknown."""
    equal, pair = dict.fromkeys(MODES, 1.0), (recipe, over)
    mine, base = (equal if name == run.baseline else reading.rows[name].gemm_speedup for name in pair)
    gemms = {mode: mine[mode] / base[mode] for mode in MODES if mode in mine and mode in base}
    fields: dict[str, Any] = {"gemm_speedup": gemms, "baseline_throttled": reading.rows[over].throttled}
    trained = _ratio(*(_ONE if name == run.baseline else reading.intervals(name).get("speedup") for name in pair))
    if reading.rows[over].speedup is None:  # the baseline has no rate: those of both, then
        trained = _ratio(*(reading.intervals(name).get("tokens_per_second") for name in pair))
    if trained:
        fields |= {"speedup": trained.value, "speedup_lower": trained.lower, "speedup_upper": trained.upper}
        if floor := number(run.noise_floor):
            differs = stats.differs(trained, Interval(value=1, lower=1 - floor, upper=1 + floor, n=1))
            fields["difference"] = ("faster" if trained.value > 1 else "slower") if differs else "no_difference"
    return fields


def _ratio(of: Interval | None, over: Interval | None) -> Interval | None:
    return stats.ratio(of, over) if of and over else None


def result_over(result: MeasurementResult, node: Reading) -> MeasurementResult:
    """The full result with speedups as its rebased reading has them; what they are made of is unknown."""
    over = node.group.baseline
    base = next(row for row in result.recipes if row.recipe == over)

    def speedup(row: RecipeResult, mode: Mode) -> Interval | None:
        sums = {part.mode: part.speedup for part in row.sums}
        return _ONE if row.recipe == result.baseline else sums.get(mode)

    def changed(recipe: RecipeResult) -> RecipeResult:
        row, fields = node.rows[recipe.recipe], dict[str, Any](meaning=None, quantization_tax=None)
        if recipe.training:
            trained = {"speedup": node.intervals(recipe.recipe).get("speedup"), "difference": row.difference}
            fields["training"] = recipe.training.model_copy(update=trained)
        ratios = {mode: _ratio(speedup(recipe, mode), speedup(base, mode)) for mode in row.gemm_speedup}
        sums = [part.model_copy(update={"speedup": ratios.get(part.mode)}) for part in recipe.sums]
        return recipe.model_copy(update={**fields, "sums": tuple(sums)})

    return result.model_copy(update={"baseline": over, "recipes": tuple(map(changed, result.recipes))})
