"""When jobs start, once it is decided what each one gets: list scheduling.

Jobs are placed one after the other: those that run already first, then those of higher priority, each when all that it
waits for is placed. A job starts at the first moment from which on its pool has the GPUs, the racks and the fast nodes,
and the facility the power, until it ends. So no job is delayed by one of lower priority, limits hold at every instant,
and what a job has been given nobody else is given at that time.

Before that, what a program without an index of time knows of time: spans of days in which some jobs must do all their
work.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from precision_operator.planner.inputs.terms import ENDLESS, JobTerms, PlanClock, PlanLimits
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.solving.options import Offer, Option

SLACK = 1e-6
"""Relative tolerance of limits: what a sum of floats may be off."""
MOMENT = 1e-9
"""Days that are no time at all."""
MOST_ENDS = 12
"""Deadlines up to which all work is held against the room: of more an even choice, with the last one."""
MOST_STARTS = 3
"""Days from which on work is held against the room, beside the plan's start."""


@dataclass(frozen=True, slots=True)
class JobSlot:
    """One job's place in time, in days from the start."""

    option: Option
    start: float
    end: float


class Timeline:
    """How much of one capacity is in use, as steps over time."""

    __slots__ = ("times", "used")

    def __init__(self) -> None:
        self.times: list[float] = [0.0]
        self.used: list[float] = [0.0]

    def first(self, ready: float, length: float, room: float) -> float:
        """The first moment from `ready` on after which no more than `room` is in use for `length`; infinity."""
        if room < 0:
            return math.inf
        times, used = self.times, self.used
        at, start = bisect_right(times, ready) - 1, ready
        while True:
            end = start + length - MOMENT
            for place in range(at, len(times)):
                if place > at and times[place] >= end:
                    return start
                if used[place] > room:
                    break
            else:
                return start
            at = next(later for later in range(place + 1, len(times)) if used[later] <= room)
            start = times[at]

    def most(self, start: float, end: float) -> float:
        """The most that is in use between two moments."""
        at = bisect_right(self.times, start) - 1
        last = max(at + 1, bisect_left(self.times, end - MOMENT))
        return max(self.used[at:last])

    def next(self, after: float) -> float:
        """The first step after a moment; infinity."""
        at = bisect_right(self.times, after + MOMENT)
        return self.times[at] if at < len(self.times) else math.inf

    def add(self, start: float, end: float, amount: float) -> None:
        first, last = self._cut(start), self._cut(end)
        for place in range(first, last):
            self.used[place] += amount

    def _cut(self, moment: float) -> int:
        place = bisect_right(self.times, moment) - 1
        if self.times[place] >= moment:
            return place
        self.times.insert(place + 1, moment)
        self.used.insert(place + 1, self.used[place])
        return place + 1


class _Place:
    """What jobs take of one pool: GPUs, watts, and GPUs by cell (rack, or tier of fast nodes)."""

    def __init__(self, pool: CandidatePool) -> None:
        self.pool = pool
        self.gpus, self.watts = Timeline(), Timeline()
        self.cells = [(cell, Timeline()) for cell in pool.cells]

    def given(self, option: Option, start: float, end: float) -> list[tuple[Timeline, int]] | None:
        """Of each cell the GPUs that the job gets, in whole blocks; None where they do not hold it."""
        wanted, parts = option.gpus, []
        several = option.block_gpus > self.pool.gpus_per_node
        free = []
        for cell, line in self.cells:
            if (option.tier and cell.fastest > option.tier) or (several and not cell.rack and self.pool.racks):
                continue
            left = cell.gpus - round(line.most(start, end))
            free.append((left // option.block_gpus * option.block_gpus if several and cell.rack else left, cell, line))
        # Slow nodes before fast ones, and the racks with least room first: whole racks stay free for large blocks.
        for left, _, line in sorted(free, key=lambda room: (-room[1].fastest, room[0], room[1].name)):
            mine = min(left, wanted)
            if mine > 0:
                parts.append((line, mine))
                wanted -= mine
        return None if wanted > 0 else parts


class PoolRoom:
    """All that is in use over time, and where the next job finds place."""

    def __init__(self, limits: PlanLimits) -> None:
        self._limit = limits.watts
        self._watts = Timeline()
        self._places: dict[str, _Place] = {}

    def first(self, option: Option, ready: float, length: float) -> float:
        """The first moment from `ready` on at which the job can start; infinity where it never can."""
        place = self._place(option)
        free = place.pool.gpus - option.gpus
        mine = watts(option)
        start = ready
        while start < math.inf:
            day = place.gpus.first(start, length, free)
            if place.pool.terms.power_watts is not None:
                day = place.watts.first(day, length, place.pool.terms.power_watts * (1 + SLACK) - mine)
            if self._limit is not None and day < math.inf:
                day = self._watts.first(day, length, self._limit * (1 + SLACK) - mine)
            if day > start:
                start = day
                continue
            if not place.cells or place.given(option, start, start + length) is not None:
                return start
            start = min((line.next(start) for _, line in place.cells), default=math.inf)
        return math.inf

    def take(self, option: Option, start: float, end: float) -> None:
        """Give the job what it needs from `start` to `end`."""
        place = self._place(option)
        for line, gpus in place.given(option, start, end) or ():
            line.add(start, end, gpus)
        place.gpus.add(start, end, option.gpus)
        mine = watts(option)
        if place.pool.terms.power_watts is not None:
            place.watts.add(start, end, mine)
        if self._limit is not None:
            self._watts.add(start, end, mine)

    def _place(self, option: Option) -> _Place:
        if option.pool.name not in self._places:
            self._places[option.pool.name] = _Place(option.pool)
        return self._places[option.pool.name]


def schedule(
    chosen: Sequence[Option],
    limits: PlanLimits,
    length: Callable[[Option], float] = lambda option: option.days,
    rank: Mapping[str, int] | None = None,
    clock: PlanClock = ENDLESS,
) -> tuple[JobSlot, ...] | None:
    """A slot for each option, in their order; None where a job never finds place. Raises OutOfTime.

    `rank` orders jobs of equal priority; without it, what must end first goes first, then what is named first.
    """
    room, done = PoolRoom(limits), dict[str, JobSlot]()
    for option in in_turn(chosen, rank):
        clock.check()
        lasts, job = length(option), option.job
        ready = max([job.not_before, *(done[name].end for name in job.after)])
        start = 0.0 if job.running else room.first(option, ready, lasts)
        if start == math.inf:
            return None
        room.take(option, start, start + lasts)
        done[job.name] = JobSlot(option, start, start + lasts)
    return tuple(done[option.job.name] for option in chosen)


def in_turn(chosen: Sequence[Option], rank: Mapping[str, int] | None = None) -> list[Option]:
    """The options in the order in which their jobs are placed."""
    if rank is None:
        jobs = [option.job for option in chosen]
        _, latest = days_of(jobs, {job.name: 0.0 for job in jobs}, True, math.inf)
        waiting = sorted(chosen, key=lambda o: (not o.job.running, -o.job.priority, latest[o.job.name], o.job.name))
    else:
        waiting = sorted(chosen, key=lambda o: (not o.job.running, -o.job.priority, rank[o.job.name]))
    placed, ordered = set[str](), list[Option]()
    while waiting:
        option = next(option for option in waiting if placed.issuperset(option.job.after))
        waiting.remove(option)
        placed.add(option.job.name)
        ordered.append(option)
    return ordered


def fits(together: Sequence[Option], limits: PlanLimits) -> bool:
    """Whether these may run at one time, in the order given: GPUs, racks, fast nodes and power."""
    room = PoolRoom(limits)
    for option in together:
        if room.first(option, 0.0, 1.0) > 0:
            return False
        room.take(option, 0.0, 1.0)
    return True


def watts(option: Option) -> float:
    """Facility watts that a job adds to those of idle GPUs, by enforced limits; 0 where no limit is known."""
    return max(0.0, (option.limit_watts or 0.0) - option.idle_watts)


def peak(slots: Sequence[JobSlot], value: Callable[[Option], float]) -> float:
    """The largest sum of `value` over the jobs that run at one time."""
    line = Timeline()
    for slot in slots:
        line.add(slot.start, slot.end, value(slot.option))
    return max(line.used)


@dataclass(frozen=True, slots=True)
class WorkWindow:
    """All that these jobs do is done between two days; `end` is None for the end of the last job, a column."""

    jobs: tuple[str, ...]
    begin: float
    end: float


def windows(offers: Sequence[Offer]) -> Iterator[WorkWindow]:
    """Spans of days in which some jobs must do all their work, for their deadlines."""
    ready, latest = spans_of(offers, True, math.inf)
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
    offers: Sequence[Offer], deadlines: bool, last_end: float
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
