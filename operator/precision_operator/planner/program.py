"""The assignment as a mixed-integer program: one option for each job, under limits that may be relaxed.

Columns: one binary for each option; for jobs that wait for others their start, by the middle of the bands and by what
deadlines are held against; the end of the last job; for each pool with GPU hours that are paid for, the hours beyond
them. Jobs without `after` run at once, so their GPUs and watts add up. Jobs that wait are bound here by what they wait
for, and by what holds in whatever order they run: each needs room by itself, and the work that must be done by a day
needs the GPUs and the power up to that day. Whether they find room is seen by the schedule afterwards. So where this
program has no solution, there is no plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from precision_api.capacity_plan import Objective
from precision_operator.planner.options import Offer, Option, blocks
from precision_operator.planner.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.schedule import latest_ends, watts
from precision_operator.planner.terms import Terms

Vector = NDArray[np.float64]
TOLERANCE = 1e-9
"""Relative, on limits: a limit that is met exactly counts as held."""
MOST_ENDS = 16
"""Days up to which all work is held against the room: of more deadlines an even choice, with the last one."""
HELD = 1e-6
"""Relative slack by which a later objective may spoil an earlier one."""
PREFER_SHORT = 1e-7
"""Weight of days beside an objective's own, both scaled to 1: of equal choices the shorter one, so none is chance."""


@dataclass(frozen=True, slots=True)
class RelaxableLimit:
    """One limit that a user could relax: what it is, of what, and how much it is."""

    kind: str
    """gpus, blocks, power, dollars, gpuHours, megawattHours, deadline."""
    of: str
    limit: float


@dataclass(frozen=True, slots=True)
class Constraint:
    """low <= sum of values x columns <= high."""

    columns: tuple[int, ...]
    values: tuple[float, ...]
    low: float
    high: float
    eases: tuple[tuple[RelaxableLimit, float], ...] = ()
    """Limits that it comes from, and what `high` gains where one is passed by its own amount."""


@dataclass(frozen=True)
class Program:
    """All of it; `all_at_once` counts jobs that wait as if they ran at once too: then any schedule holds."""

    offers: tuple[Offer, ...]
    terms: Terms
    all_at_once: bool = False

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The binaries, in order."""
        return tuple(option for offer in self.offers for option in offer.options)

    @cached_property
    def spans(self) -> Mapping[str, range]:
        """By job, its binaries."""
        found, at = {}, 0
        for offer in self.offers:
            found[offer.job.name] = range(at, at + len(offer.options))
            at += len(offer.options)
        return found

    @cached_property
    def waiting(self) -> Mapping[str, int]:
        """By job that waits, the column of its start; that of its start for deadlines is the next one."""
        jobs = [offer.job.name for offer in self.offers if offer.job.after]
        return {name: len(self.options) + 2 * i for i, name in enumerate(jobs)}

    @property
    def last_end(self) -> int:
        """The column of the end of the last job."""
        return len(self.options) + 2 * len(self.waiting)

    @cached_property
    def paid(self) -> Mapping[str, int]:
        """By pool whose GPU hours are partly paid for, the column of the hours beyond."""
        names = sorted({o.pool.name for o in self.options if _committed(o)})
        return {name: self.last_end + 1 + i for i, name in enumerate(names)}

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.last_end + 1 + len(self.paid)

    @property
    def integrality(self) -> Vector:
        """1 for binaries."""
        return np.concatenate([np.ones(len(self.options)), np.zeros(self.width - len(self.options))])

    @cached_property
    def rows(self) -> tuple[Constraint, ...]:
        """All rows."""
        return (*self._choices(), *self._order(), *self._paid_hours(), *self._limits())

    def objective(self, name: Objective) -> Vector:
        """Coefficients of dollars, days until the last end, or megawatt hours. Unknown figures cost nothing here."""
        made = np.zeros(self.width)
        if name == "time":
            made[self.last_end] = 1.0
            return made
        for i, option in enumerate(self.options):
            made[i] = _dollars(option) if name == "cost" else (option.megawatt_hours or 0.0)
        if name == "cost":
            for pool, column in self.paid.items():
                price = next(o.gpu_dollars_per_hour for o in self.options if o.pool.name == pool)
                made[column] = price or 0.0
        return made

    def short(self) -> Vector:
        """Coefficients that make days small, but only among choices that are equal otherwise."""
        days = np.array([option.days for option in self.options])
        return np.concatenate([PREFER_SHORT * days / days.max(), np.zeros(self.width - len(days))])

    def taken(self, x: Vector) -> tuple[Option, ...]:
        """The options that a solution chooses."""
        return tuple(self.options[i] for i in self.places(x))

    def places(self, x: Vector) -> tuple[int, ...]:
        """Their columns."""
        return tuple(int(i) for i in np.flatnonzero(x[: len(self.options)] > 0.5))

    def matrix(self, further: Sequence[Constraint] = ()) -> tuple[csr_array, Vector, Vector]:
        """All rows as a sparse matrix with their bounds."""
        rows = [*self.rows, *further]
        counts = [len(row.columns) for row in rows]
        values = np.fromiter((v for row in rows for v in row.values), dtype=np.float64)
        columns = np.fromiter((c for row in rows for c in row.columns), dtype=np.int64)
        places = np.repeat(np.arange(len(rows)), counts)
        width = max(self.width, int(columns.max(initial=-1)) + 1)
        made = csr_array((values, (places, columns)), shape=(len(rows), width))
        return made, np.array([row.low for row in rows]), np.array([row.high for row in rows])

    def _choices(self) -> Iterator[Constraint]:
        for span in self.spans.values():
            yield Constraint(tuple(span), (1.0,) * len(span), 1.0, 1.0)

    def _order(self) -> Iterator[Constraint]:
        """Starts after ends, and the last end after all."""
        for offer in self.offers:
            job, own = offer.job, self.waiting.get(offer.job.name)
            for before in job.after:
                assert own is not None
                for shift in (0, 1):
                    yield self._later(own + shift, before, shift)
            columns, values = self._length(job.name, 0)
            if own is not None:
                columns, values = (*columns, own), (*values, 1.0)
            yield Constraint((*columns, self.last_end), (*(-v for v in values), 1.0), 0.0, np.inf)

    def _later(self, column: int, before: str, shift: int) -> Constraint:
        columns, values = self._length(before, shift)
        row = [(column, 1.0), *((c, -v) for c, v in zip(columns, values, strict=True))]
        if before in self.waiting:
            row.append((self.waiting[before] + shift, -1.0))
        return Constraint(tuple(c for c, _ in row), tuple(v for _, v in row), 0.0, np.inf)

    def _length(self, job: str, shift: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """A job's days by its options: the middle (0), or what deadlines are held against (1)."""
        span = self.spans[job]
        return tuple(span), tuple(self.options[i].deadline_days if shift else self.options[i].days for i in span)

    def _paid_hours(self) -> Iterator[Constraint]:
        for pool, column in self.paid.items():
            mine = [i for i, option in enumerate(self.options) if option.pool.name == pool]
            hours = self.options[mine[0]].pool.terms.committed_gpu_hours
            yield Constraint((*mine, column), (*(-self.options[i].gpu_hours for i in mine), 1.0), -hours, np.inf)

    def _limits(self) -> Iterator[Constraint]:
        yield from self._room([i for i, o in enumerate(self.options) if self.all_at_once or not o.job.after])
        if self.waiting and not self.all_at_once:
            yield from self._queues()
        limits = self.terms.limits
        everything = range(len(self.options))
        if limits.dollars is not None:
            cost = self.objective("cost")
            priced = [int(c) for c in np.flatnonzero(cost)]
            yield self._limit(RelaxableLimit("dollars", "", limits.dollars), priced, [float(cost[c]) for c in priced])
        if limits.gpu_hours is not None:
            group = RelaxableLimit("gpuHours", "", limits.gpu_hours)
            yield self._limit(group, everything, [option.gpu_hours for option in self.options])
        if limits.megawatt_hours is not None:
            group = RelaxableLimit("megawattHours", "", limits.megawatt_hours)
            yield self._limit(group, everything, [option.megawatt_hours or 0.0 for option in self.options])
        for offer in self.offers:
            if offer.job.deadline_days is not None:
                columns, values = self._length(offer.job.name, 1)
                own = self.waiting.get(offer.job.name)
                if own is not None:
                    columns, values = (*columns, own + 1), (*values, 1.0)
                yield self._limit(_deadline(offer), columns, values)

    def _queues(self) -> Iterator[Constraint]:
        """What holds in whatever order jobs run."""
        for name in self.waiting:
            yield from self._room(self.spans[name])
        latest = latest_ends(offer.job for offer in self.offers)
        days = sorted({latest[name] for name in latest if latest[name] < math.inf}, reverse=True)
        for day in days[:: math.ceil(len(days) / MOST_ENDS)] if days else ():
            yield from self._work_before(day, [name for name in latest if latest[name] <= day])
        for row in self._room(range(len(self.options)), lambda option: option.days):
            values = (*(value / row.high for value in row.values), -1.0)
            yield Constraint((*row.columns, self.last_end), values, -np.inf, 0.0)

    def _work_before(self, day: float, names: Sequence[str]) -> Iterator[Constraint]:
        """All that these jobs need until `day`, by the lengths that deadlines are held against."""
        if not self.waiting.keys() & {*names}:
            return
        mine = [i for name in names for i in self.spans[name]]
        deadlines = [(group.limit / day, group) for group in map(_deadline, self.offers) if group.limit <= day]
        for row in self._room(mine, lambda option: option.deadline_days / day):
            ((_, limit),) = row.eases
            yield replace(row, eases=(*row.eases, *((group, limit * part) for part, group in deadlines)))

    def _room(self, mine: Sequence[int], part: Callable[[Option], float] = lambda option: 1.0) -> Iterator[Constraint]:
        """GPUs, blocks and power of these, each for its part of the time."""
        by_pool: dict[str, list[int]] = {}
        for i in mine:
            by_pool.setdefault(self.options[i].pool.name, []).append(i)
        for name, columns in sorted(by_pool.items()):
            pool = self.options[columns[0]].pool
            parts = {i: part(self.options[i]) for i in columns}
            gpus = [self.options[i].gpus * parts[i] for i in columns]
            yield self._limit(RelaxableLimit("gpus", name, float(pool.gpus)), columns, gpus)
            sizes = sorted({o.block_gpus for o in (self.options[i] for i in columns)})
            for size in (size for size in sizes if size > pool.gpus_per_node):
                big = [i for i in columns if self.options[i].block_gpus >= size]
                group = RelaxableLimit("blocks", f"{name} ({size} GPUs)", float(blocks(pool, size)))
                yield self._limit(group, big, [self.options[i].gpus // size * parts[i] for i in big])
            if pool.terms.power_watts is not None:
                group = RelaxableLimit("power", name, pool.terms.power_watts / WATTS_PER_MEGAWATT)
                yield self._limit(group, columns, [self._megawatts(i) * parts[i] for i in columns])
        if self.terms.limits.watts is not None:
            group = RelaxableLimit("power", "", self.terms.limits.watts / WATTS_PER_MEGAWATT)
            yield self._limit(group, mine, [self._megawatts(i) * part(self.options[i]) for i in mine])

    def _megawatts(self, column: int) -> float:
        return watts(self.options[column]) / WATTS_PER_MEGAWATT

    @staticmethod
    def _limit(group: RelaxableLimit, columns: Sequence[int], values: Sequence[float]) -> Constraint:
        return Constraint(
            tuple(columns), tuple(values), -np.inf, group.limit * (1 + TOLERANCE), ((group, group.limit),)
        )


def _deadline(offer: Offer) -> RelaxableLimit:
    return RelaxableLimit("deadline", offer.job.name, offer.job.deadline_days or math.inf)


def _committed(option: Option) -> bool:
    return option.pool.terms.committed_gpu_hours > 0 and option.gpu_dollars_per_hour is not None


def _dollars(option: Option) -> float:
    """An option's own money; GPU hours of a pool that is partly paid for are counted for the whole pool."""
    gpu = 0.0 if _committed(option) else option.gpu_hours * (option.gpu_dollars_per_hour or 0.0)
    return gpu + (option.power_dollars or 0.0)


def paid_shares(chosen: Sequence[Option]) -> Mapping[str, float]:
    """By pool with GPU hours that are paid for already, the share of its jobs' hours that has to be paid still."""
    hours: dict[str, float] = {}
    for option in chosen:
        if _committed(option):
            hours[option.pool.name] = hours.get(option.pool.name, 0.0) + option.gpu_hours
    committed = {option.pool.name: option.pool.terms.committed_gpu_hours for option in chosen}
    return {name: max(0.0, used - committed[name]) / used for name, used in hours.items()}


def paid_dollars(option: Option, shares: Mapping[str, float]) -> float | None:
    """An option's money with its part of the hours that are paid for; None where it has no price."""
    if option.dollars is None:
        return None
    if option.pool.name not in shares:
        return option.dollars
    gpu = option.gpu_hours * (option.gpu_dollars_per_hour or 0.0)
    return gpu * shares[option.pool.name] + (option.power_dollars or 0.0)


def cost(chosen: Sequence[Option]) -> float | None:
    """Dollars of these options together, after the hours that are paid for; None where one has no price."""
    shares = paid_shares(chosen)
    rows = [paid_dollars(option, shares) for option in chosen]
    known = [row for row in rows if row is not None]
    return sum(known) if len(known) == len(rows) else None


def energy(chosen: Sequence[Option]) -> float | None:
    """Megawatt hours of these options together; None where one is not known."""
    known = [option.megawatt_hours for option in chosen if option.megawatt_hours is not None]
    return sum(known) if len(known) == len(chosen) else None
