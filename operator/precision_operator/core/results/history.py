"""What a report keeps of the runs before its newest one: enough to compare with them, small enough for any number."""

from collections.abc import Sequence

from precision_api.facts.schema import decimal
from precision_api.kinds.report import ReportPast, ReportStatus
from precision_operator.core.results.reading import RecipeRow, read

AS_REPORTED = 12
"""Digits that write a report's figure as it stood there."""


def remembered(before: ReportStatus | None, past: ReportPast, keep: int) -> tuple[ReportPast, ...]:
    """The last runs, newest first, at most `keep`: `past` is the one that has just ended, in place of its own failure.

    The newest result's figures stand in the report itself, so its run is told in short. Once `past` has figures of its
    own to put in their place, that run's row holds all of its figures. A run's identity may come again, as after a
    rollback.
    """
    if before is None:
        return (past,)
    older = list(before.history)
    if older and older[0].run == past.run:
        del older[0]
    replaced = before.run.run if before.run is not None and past.outcome == "succeeded" else None
    place = next((index for index, old in enumerate(older) if old.run == replaced), None)
    if place is not None:
        older[place] = past_in_full(older[place], before)
    return (past, *older)[:keep]


def past_in_full(past: ReportPast, status: ReportStatus) -> ReportPast:
    """`past` with all that `status`, whose newest result is that run's, knows of it."""
    reading = read("", "", status)
    rows = [row for row in reading.usable_rows if row.tokens_per_second is not None]
    software, run = status.software, status.run
    return past.model_copy(
        update={
            "driver": (software.driver if software else None) or past.driver,
            "data": reading.data,
            "workload_hash": run.workload_hash if run else None,
            "stack_hash": software.stack_hash if software else None,
            "throttled": reading.throttled or None,
            "recipe_tokens_per_second": {row.recipe: decimal(row.tokens_per_second, AS_REPORTED) for row in rows},
            "recipe_tokens_per_joule": {
                row.recipe: decimal(row.tokens_per_joule, AS_REPORTED)
                for row in rows
                if row.tokens_per_joule is not None
            },
            "rate_error": decimal(_largest_error(rows), AS_REPORTED),
        }
    )


def _largest_error(rows: Sequence[RecipeRow]) -> float | None:
    """The one that no rate's is above; None where any is not known."""
    errors = [row.error for row in rows]
    widths = [error for error in errors if error is not None]
    return max(widths) if widths and len(widths) == len(errors) else None
