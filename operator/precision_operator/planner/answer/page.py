"""The answer as one HTML page: the answer in words beside the schedule, use and power, the jobs; the rest is folded."""

from collections.abc import Iterator
from html import escape

from precision_api.kinds.capacity_plan import JobPlan, PlanStatus
from precision_operator.core.observe.clock import parse_time
from precision_operator.drawing.document import Notice, NoticeKind, banner, document, figure, folded, sentences, table
from precision_operator.planner.answer import charts
from precision_operator.planner.answer.planning import PlanAnswer
from precision_operator.planner.answer.table import lines, time_text, wide

FOOTER = (
    "Times are UTC. A figure that is not known is a dash, never 0. Power is the site's, by enforced limits, and energy "
    "by measured draw. Written by kubectl precision plan; this page loads nothing from anywhere."
)
HEAD = {
    "job": "job", "pool": "pool", "recipe": "recipe", "GPUs": "gpus", "TFLOP/s per GPU": "TFLOP/s/GPU",
    "starts": "start", "ends": "end", "time": "time", "power": "power", "MWh": "mwh", "cost": "cost",
    "$ per million tokens": "$/mtoken", "deadline": "deadline", "chance": "chance",
    "slack": "slack", "limited by": "bound by",
}  # fmt: skip
"""Columns of the jobs' table, and the column of the command's that each shows."""
NO_BREAK = "\N{NO-BREAK SPACE}"
_FOLDED = {"pool": "Pools", "what if": "What if", "assumed": "Assumptions"}
"""Lines that are folded, by their first word, and what they are folded under."""


def page(name: str, status: PlanStatus, answer: PlanAnswer) -> str:
    title = f"Capacity plan {name}"
    return document(title, _parts(title, status, answer), "kubectl precision plan", FOOTER)


def _parts(title: str, status: PlanStatus, answer: PlanAnswer) -> Iterator[str]:
    yield from (banner(note) for note in status.notes if note.split(":")[0].isupper())  # doubts about the data
    yield f"<h1>{escape(title)}</h1>\n<main>\n"
    repeated = {f"problem: {problem}" for problem in status.problems if problem in (status.recommendation or "")}
    answers = [line for line in lines(status) if _group(line) is None and line not in repeated]
    words = sentences(Notice(_kind(line, status), line) for line in answers)
    mark = charts.watermark(status)
    schedule = "".join(map(figure, charts.gantt(status, answer, mark)))
    yield f'<div class="first"><section aria-label="Answer">{words}</section>{schedule}</div>\n'
    beside = "".join(figure(chart) for chart in (*charts.pool_use(answer, mark), *charts.power(answer, mark)))
    yield f'<div class="first">{beside}</div>\n' if beside else ""
    if status.jobs:
        is_short = float(status.totals.days or 0 if status.totals else 0) < charts.HOURS_BELOW_DAYS
        yield f"<h2>Jobs</h2>{table(tuple(HEAD), [_row(job, is_short) for job in status.jobs])}\n"
    for chart in charts.cost_against_time(answer, mark):
        yield folded(chart.title, figure(chart))
    for group, summary in _FOLDED.items():
        group_lines = [Notice("note", line.partition(":")[2].strip() if group != "pool" else line)
                for line in lines(status) if _group(line) == group]  # fmt: skip
        yield folded(f"{summary} ({len(group_lines)})", sentences(group_lines))
    yield folded("Where the rates come from", table(("job", "source"), [(job.name, job.source) for job in status.jobs]))
    yield "</main>\n"


def _group(line: str) -> str | None:
    """Under which summary a line is folded; None for one that stands open."""
    return next((word for word in _FOLDED if line.startswith((f"{word} ", f"{word}:"))), None)


def _kind(line: str, status: PlanStatus) -> NoticeKind:
    if line == status.recommendation:
        return "answer" if status.phase == "Solved" else "warning"
    return "warning" if line.startswith("problem:") else "note"


def _row(job: JobPlan, is_short: bool) -> tuple[str, ...]:
    cells = wide(job) | {
        "gpus": f"{job.gpus:,}",
        "start": _date(job.start, is_short),
        "end": _date(job.end, is_short),
        "time": time_text(job, "at least ").replace(" to ", f"{NO_BREAK}to{NO_BREAK}"),
    }
    return tuple(cells[name] for name in HEAD.values())


def _date(time: str, short: bool) -> str:
    """`1 Dec 2026`, in a short plan `1 Dec 06:30`: never broken at a line's end."""
    at = parse_time(time)
    return f"{at.day} {at:%b} {f'{at:%H:%M}' if short else at.year}".replace(" ", NO_BREAK)
