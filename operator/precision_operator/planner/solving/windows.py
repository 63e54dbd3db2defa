"""Spans of days in which some jobs must do all their work: what a program without an index of time knows of time."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from precision_operator.planner.inputs.terms import JobTerms
from precision_operator.planner.solving.options import Offer

MOST_ENDS = 12
"""Deadlines up to which all work is held against the room: of more an even choice, with the last one."""


MOST_STARTS = 3
"""Days from which on work is held against the room, beside the plan's start."""


@dataclass(frozen=True, slots=True)
class WorkWindow:
    """All that these jobs do is done between two days; `end` is None for the end of the last job, a column."""

    jobs: tuple[str, ...]
    begin: float
    end: float


def windows(offers: Sequence[Offer], deadlines: bool, last_end: float = math.inf) -> Iterator[WorkWindow]:
    """Spans of days in which some jobs must do all their work: for deadlines, or for a given end of the last job."""
    ready, latest = spans_of(offers, deadlines, last_end)
    days = sorted({day for day in latest.values() if day < math.inf}, reverse=True)
    begins = sorted({day for day in ready.values() if day > 0})
    begins = [0.0, *begins[:: math.ceil(len(begins) / MOST_STARTS)]] if begins else [0.0]
    ends = days[:: math.ceil(len(days) / MOST_ENDS)] if days else []
    seen: set[tuple[str, ...]] = set()
    for end in ends:
        for begin in begins:
            names = tuple(name for name in latest if latest[name] <= end and ready[name] >= begin)
            if names and end > begin:
                # The same jobs with the latest begin and the earliest end are the tightest; ends come last first.
                tight = WorkWindow(names, min(ready[name] for name in names), max(latest[name] for name in names))
                if (names not in seen or begin > 0) and tight.end > tight.begin:
                    seen.add(names)
                    yield tight


def spans_of(
    offers: Sequence[Offer], deadlines: bool, last_end: float = math.inf
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """By job the first day on which it can start, and the last on which it must have ended.

    With `deadlines` by what these are held against, else by the middle of the bands and the end of the last job.
    """
    least = {
        offer.job.name: min((o.deadline_days if deadlines else o.days for o in offer.options), default=0.0)
        for offer in offers
    }
    return days_of([offer.job for offer in offers], least, deadlines, last_end)


def longest_chain(jobs: Sequence[JobTerms], least: Mapping[str, float]) -> float:
    """The day on which the longest chain has ended at the earliest; `least` as in `days_of`."""
    ready, latest = days_of(jobs, least, False, 0.0)
    return max(ready[name] + least[name] - latest[name] for name in ready)


def followers(jobs: Iterable[JobTerms], names: Iterable[str]) -> set[str]:
    """These jobs and all that wait for them."""
    waiting, followed = {job.name: {*job.after} for job in jobs}, {*names}
    while more := {name for name, after in waiting.items() if followed & after} - followed:
        followed |= more
    return followed


def days_of(
    jobs: Sequence[JobTerms], least: Mapping[str, float], deadlines: bool, last_end: float
) -> tuple[dict[str, float], dict[str, float]]:
    """By job the first day on which it can start and the last on which it must have ended, given all dependencies.

    `least` holds the days that each takes at least. With `deadlines` a job without one may end on any day.
    """
    ready = {job.name: 0.0 if job.running else job.not_before for job in jobs}
    latest = {job.name: ((job.deadline_days or math.inf) if deadlines else last_end) for job in jobs}
    for _ in jobs:  # as often as the longest chain is long
        moved = False
        for job in jobs:
            name = job.name
            for before in job.after:
                if ready[name] < ready[before] + least[before]:
                    ready[name], moved = ready[before] + least[before], True
                if latest[before] > latest[name] - least[name]:
                    latest[before], moved = latest[name] - least[name], True
        if not moved:
            break
    return ready, latest
