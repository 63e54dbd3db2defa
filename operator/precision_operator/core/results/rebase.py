"""A reading whose speedups are over another recipe of its run than the baseline that the run recorded."""

from dataclasses import replace
from typing import Any

from precision_api.exchange.rebase import ONE, difference, judged, ratio, withheld
from precision_api.exchange.request import attention_recipe
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import decimal
from precision_api.kinds.report import ReportRun
from precision_operator.core.results.reading import MODES, NO_SPEEDUPS, Reading, number


def rebased(reading: Reading, over: Recipe) -> tuple[Reading, str]:
    """The reading over that recipe, and what is to be said of it: why it has no speedups, or whose noise holds."""
    run, base = reading.run, reading.rows.get(over)
    if run is None or over == run.baseline:
        return reading, ""
    rows = {recipe: row._replace(**NO_SPEEDUPS) for recipe, row in reading.rows.items()}
    kept = attention_recipe(run.baseline, run.timing) if run.scope == "mlp" else "bf16"
    doubt = "it was not measured" if base is None else base.failure or f"its verdict is {base.verdict}"
    has = (base.speedup, base.gemm_speedup, base.tokens_per_second, run.noise_floor) if base else ()
    before = reading.rows.get(run.baseline)
    why = withheld(before.recipe, before.availability, before.verdict) if before else ""
    stands, said = judged(over, run.baseline, kept, ["" if base and base.usable else doubt, why], has)
    if stands:
        rows |= {recipe: rows[recipe]._replace(**_over(reading, recipe, over, run)) for recipe in {*rows} - {over}}
        run = run.model_copy(update={"gemm_error": decimal(2 * float(run.gemm_error), 3)}) if run.gemm_error else run
    changed = replace(reading, rows=rows, run=run, group=reading.group._replace(baseline=over))
    return changed, said if stands else f"{reading.node}: {said}"


def _over(reading: Reading, recipe: Recipe, over: Recipe, run: ReportRun) -> dict[str, Any]:
    """Fields of a recipe's row, by what both are over the baseline of `run`; what casts take beyond is unknown."""
    equal, pair = dict.fromkeys(MODES, 1.0), (recipe, over)
    mine, base = (equal if name == run.baseline else reading.rows[name].gemm_speedup for name in pair)
    gemms = {mode: mine[mode] / base[mode] for mode in MODES if mode in mine and mode in base}
    fields: dict[str, Any] = {"gemm_speedup": gemms, "baseline_throttled": reading.rows[over].throttled}
    trained = ratio(*(ONE if name == run.baseline else reading.intervals(name).get("speedup") for name in pair))
    if reading.rows[over].speedup is None:  # the baseline has no rate: those of both, then
        trained = ratio(*(reading.intervals(name).get("tokens_per_second") for name in pair))
    if trained:
        fields |= {"speedup": trained.value, "speedup_lower": trained.lower, "speedup_upper": trained.upper}
        fields["difference"] = difference(trained, number(run.noise_floor))
    return fields
