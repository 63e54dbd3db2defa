"""The answer as rows: for tables, CSV and the page."""

import re
from collections.abc import Iterator
from typing import Any

from precision_api.facts.plain_text import digits, three_digits
from precision_api.facts.recipes import recipe_text
from precision_api.kinds.capacity_plan import JobPlan, PlanStatus, PlanTotals
from precision_operator.planner.answer.document import AT_LEAST, SURE, power_scope
from precision_operator.planner.answer.readable import readable_days, readable_dollars, readable_energy, readable_watts
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT

ABSENT = "-"
"""A figure that is not known."""
DEADLINES = {"promised": "promised", "notPromised": "not promised", "none": ABSENT}
AT_MOST = " at most"
_MADE_UP = re.compile(r"(simulated|replayed) \((\d+)/\2\)")
"""A pool's data where nobody measured any of its nodes: the recommendation begins with the word, and says it once."""


def narrow(job: JobPlan) -> dict[str, Any]:
    """What people look at first."""
    least, most = (">=", "<=") if job.upper_bound else ("", "")
    return {
        "job": job.name,
        "pool": job.pool,
        "recipe": recipe_text(job.recipe, None, job.last_layers_bf16, "bf16", job.step),
        "gpus": job.gpus,
        "TFLOP/s/GPU": short(job.teraflops_per_gpu, most),
        "time": time_text(job, ">="),
        "power": ABSENT if job.megawatts is None else readable_watts(float(job.megawatts) * WATTS_PER_MEGAWATT),
        "mwh": short(job.megawatt_hours, least),
        "cost": ABSENT if job.dollars is None else f"{least}{readable_dollars(float(job.dollars))}",
        "$/mtoken": short(job.dollars_per_million_tokens, least),
        "deadline": DEADLINES[job.deadline],
    }


def wide(job: JobPlan) -> dict[str, Any]:
    """All of a job but its source."""
    least, most = (">=", "<=") if job.upper_bound else ("", "")
    return narrow(job) | {
        "start": job.start[:10],
        "end": f"{least}{job.end[:10]}",
        "tokens/s": short(job.tokens_per_second, most),
        "tokens/J": short(job.tokens_per_joule, most),
        "straggler": short(job.straggler),
        "basis": job.basis,
        "slack": slack_text(job),
        "chance": ABSENT if job.probability is None else f"{float(job.probability) * 100:.3g} %",
        "bound by": job.binding or ABSENT,
    }


def flat(job: JobPlan) -> dict[str, Any]:
    """One row for a spreadsheet: figures as they are, absent is empty."""
    document = job.model_dump(mode="json", by_alias=True)
    days = document.pop("days")
    return {**document, "daysLow": days["low"], "daysMid": days["mid"], "daysHigh": days["high"]}


def time_text(job: JobPlan, bound: str) -> str:
    """How long it takes, with its band; `bound` is put before an upper bound of the rate."""
    days = job.days
    return f"{bound if job.upper_bound else ''}{readable_days(*map(float, (days.mid, days.low, days.high)))}"


def slack_text(job: JobPlan) -> str:
    """How much longer it may take while all deadlines and budgets hold."""
    more = job.slack_percent
    return ABSENT if more is None else f"{more} % more tokens, {more / (1 + more / 100):.2g} % slower"


def short(text: str | None, bound: str = "") -> str:
    """Three digits, thousands with commas; `bound` before a figure that is one."""
    return ABSENT if text is None else f"{bound}{digits(float(text), 3)}"


def lines(status: PlanStatus) -> Iterator[str]:
    """The answer in five lines, the first above the table, then questions, provenance, and all that was assumed."""
    if status.recommendation:
        yield status.recommendation
    yield from (f"problem: {problem}" for problem in status.problems)
    if status.totals is not None:
        yield from _answer(status, status.totals)
    yield from (f"what if: {answer.answer}" for answer in status.what_ifs)
    made_up = [_MADE_UP.fullmatch(pool.data) for pool in status.pools]
    once = bool(made_up) and all(found and found[1].upper() in (status.data or "") for found in made_up)
    for pool in status.pools:
        data = "" if once else f"{pool.data}; "
        yield f"pool {pool.name}: {pool.peak_gpus} of {pool.gpus} GPUs in use; {data}{pool.provenance}"
    for note in status.notes:
        mark, _, rest = note.partition(": ")
        if mark in ("undecided", "spares", "moved", "kept", "WallTimeReached"):
            yield note
        elif not (once and mark in ("SIMULATED", "REPLAYED")) and not any(
            mark == f"pool {pool.name}" and rest in (pool.provenance or "") for pool in status.pools
        ):
            yield f"assumed: {rest if mark.isupper() else note}"


def _answer(status: PlanStatus, totals: PlanTotals) -> Iterator[str]:
    """Below the recommendation: what it costs, how sure that is, what binds, and the nearest alternative."""
    bound = AT_LEAST if any(job.upper_bound for job in status.jobs) else ""
    paid = totals.committed_dollars
    anyway = "" if paid is None else f" on top of {readable_dollars(float(paid))} that is paid anyway"
    figures = (
        (None if totals.dollars is None else readable_dollars(float(totals.dollars)), anyway),
        (totals.gpu_hours and three_digits(float(totals.gpu_hours)), " GPU hours"),
        (totals.megawatt_hours and readable_energy(float(totals.megawatt_hours)), ""),
        (totals.peak_megawatts and readable_watts(float(totals.peak_megawatts) * WATTS_PER_MEGAWATT), AT_MOST),
    )
    scope = f" ({power_scope(status.notes)})" if totals.peak_megawatts and power_scope(status.notes) else ""
    costs = ", ".join(f"{bound if unit != AT_MOST else ''}{text}{unit}" for text, unit in figures if text)
    yield f"costs: {costs}{scope}"
    gap = totals.gap_percent
    best = "earliest end" if totals.objective == "time" else f"least {totals.objective or 'that is possible'}"
    sure = [f"how far from the {best}: not known" if gap is None else f"at most {float(gap):.3g} % from the {best}"]
    sure += ["that is more than was asked for"] if totals.gap_reached is False else []
    if bound:
        sure = [f"all figures are bounds: how far from the {best} is not known"]
    if status.deadlines:
        sure.append(f"{status.deadlines} deadlines promised, each nine times in ten")
    if totals.joint_probability is not None:
        sure.append(f"all are kept with a chance of {float(totals.joint_probability) * 100:.3g} %")
    yield f"sure: {', '.join([*sure, *([f'data: {status.data}'] if status.data in SURE else [])])}"
    largest = max(status.jobs, key=lambda job: float(job.days.mid) * job.gpus)
    limit = largest.binding or "nothing: it has its best choice"
    free = limit.removeprefix("nothing")
    yield f"bound: nothing limits {largest.name}{free}" if free != limit else f"bound: {largest.name} by {limit}"
    tight = min(
        (j for j in status.jobs if j.slack_percent is not None), key=lambda j: j.slack_percent or 0, default=None
    )
    if tight:
        yield f"slack: {tight.name} holds with up to {slack_text(tight)}"
    if totals.instead:
        yield f"instead: {totals.instead}"
