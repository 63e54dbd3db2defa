"""The answer as rows: for tables, CSV and the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from precision_api.capacity_plan import JobPlan, PlanStatus

ABSENT = "-"
"""A figure that is not known."""


def narrow(job: JobPlan) -> dict[str, Any]:
    """What people look at first."""
    bound = ">=" if job.upper_bound else ""
    return {
        "job": job.name,
        "pool": job.pool,
        "recipe": job.recipe,
        "gpus": job.gpus,
        "days": f"{bound}{_short(job.days.mid)} ({_short(job.days.low)}-{_short(job.days.high)})",
        "mw": _short(job.megawatts),
        "mwh": _short(job.megawatt_hours),
        "cost": ABSENT if job.dollars is None else f"${float(job.dollars):,.0f}",
        "$/mtoken": _short(job.dollars_per_million_tokens),
        "deadline": {"promised": "promised", "notPromised": "not promised", "none": ABSENT}[job.deadline],
    }


def wide(job: JobPlan) -> dict[str, Any]:
    """All of a job but its source."""
    return narrow(job) | {
        "start": job.start[:10],
        "end": job.end[:10],
        "tokens/s": _short(job.tokens_per_second),
        "tokens/J": _short(job.tokens_per_joule),
        "straggler": _short(job.straggler),
        "basis": job.basis,
        "chance": ABSENT if job.probability is None else f"{float(job.probability) * 100:.3g} %",
        "bound by": job.binding or ABSENT,
    }


def flat(job: JobPlan) -> dict[str, Any]:
    """One row for a spreadsheet: figures as they are, absent is empty."""
    told = job.model_dump(mode="json", by_alias=True)
    days = told.pop("days")
    return {**told, "daysLow": days["low"], "daysMid": days["mid"], "daysHigh": days["high"]}


def _short(text: str | None) -> str:
    return ABSENT if text is None else f"{float(text):.3g}" if abs(float(text)) < 1000 else f"{float(text):,.0f}"


def lines(status: PlanStatus) -> Iterator[str]:
    """What stands below the table: recommendation, comparison, questions, provenance, and what was assumed."""
    if status.recommendation:
        yield status.recommendation
    for problem in status.problems:
        yield f"problem: {problem}"
    if status.totals is not None:
        gap = status.totals.gap_percent
        together = status.totals.joint_probability
        if together is not None:
            yield f"deadlines: the chance that all of them are kept is {float(together) * 100:.3g} %"
        yield f"gap to the optimum: {f'at most {float(gap):.3g} %' if gap is not None else 'not known'}"
        if status.totals.greedy:
            yield f"compare: {status.totals.greedy}"
    for answer in status.what_ifs:
        yield f"what if: {answer.answer}"
    for pool in status.pools:
        yield f"pool {pool.name}: {pool.peak_gpus} of {pool.gpus} GPUs in use; {pool.data}; {pool.provenance}"
    for note in status.notes:
        yield f"note: {note}"
