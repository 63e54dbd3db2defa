"""The agent's summary as the report's rows: one table of fields, and the report's `run`, built in this place alone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from precision_api.exchange.message import RecipeSummary, Summary
from precision_api.exchange.result import Interval
from precision_api.exchange.stats import relative_error
from precision_api.facts.schema import decimal
from precision_api.kinds.report import RecipeReport, ReportMemory, ReportRun

DIGITS = 5
"""Significant digits of figures in a report; the detail has them all."""
ERROR_DIGITS = 3

Convert = Callable[[Any], Any]


def recipe_report(summary: RecipeSummary) -> RecipeReport:
    """One recipe's figures as decimal strings; absent stays absent."""
    return RecipeReport(**{field: convert(getattr(summary, source)) for field, (source, convert) in FIELDS.items()})


def _figure(value: float | None) -> str | None:
    return decimal(value, DIGITS)


def _text(value: Any) -> Any:
    """A figure as text, an interval as the text of its middle, each figure of a mapping; anything else as it is."""
    if isinstance(value, Interval):
        return _figure(value.value)
    if isinstance(value, Mapping):
        return {name: text for name, figure in value.items() if (text := _figure(figure)) is not None}
    return _figure(value) if isinstance(value, float) else value


def _relative_error(interval: Interval | None) -> str | None:
    """Half the interval's width as a share of its value; three digits are enough of an error."""
    if interval is None or interval.value <= 0:
        return None
    return decimal(relative_error(interval), ERROR_DIGITS)


_OWN: Mapping[str, tuple[str, Convert]] = {
    "tokens_per_second_error": ("tokens_per_second", _relative_error),
    "speedup_lower": ("speedup", lambda speedup: _figure(speedup.lower) if speedup else None),
    "speedup_upper": ("speedup", lambda speedup: _figure(speedup.upper) if speedup else None),
    "throttled_share": ("throttled", _text),
}
"""Fields of the report's row that are made from a field of another name."""

FIELDS: Mapping[str, tuple[str, Convert]] = {name: _OWN.get(name, (name, _text)) for name in RecipeReport.model_fields}
"""By field of the report's row: the field of the agent's summary that it is made from, and how."""


def report_run(summary: Summary, finished_at: str, **more: Any) -> ReportRun:
    """The run as the report holds it; `more` is what its reader knows beside the summary."""
    memory = summary.device_memory
    return ReportRun(
        run=summary.run,
        request_hash=summary.request_hash[:16],
        backend=summary.backend,
        provenance=summary.provenance,
        simulated=summary.simulated,
        partial=summary.partial,
        finished_at=finished_at,
        duration_seconds=decimal(summary.duration_seconds) or "0",
        passes=_passes(summary.recipes),
        workload_hash=summary.workload_hash,
        timing=summary.timing,
        baseline=summary.baseline,
        noise_floor=decimal(summary.noise_floor, ERROR_DIGITS),
        gemm_error=decimal(summary.gemm_error, ERROR_DIGITS),
        scope=summary.recipe_scope,
        training_flops_per_token=decimal(summary.training_flops_per_token, DIGITS),
        device_memory=ReportMemory.model_validate(memory.model_dump()) if memory else None,
        **more,
    )


def _passes(recipes: Iterable[RecipeSummary]) -> int | None:
    """The fewest units behind any recipe's rate; None where no rate has an interval."""
    units = [recipe.tokens_per_second.n for recipe in recipes if recipe.tokens_per_second]
    return min(units) if units and min(units) > 1 else None
