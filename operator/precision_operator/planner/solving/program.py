"""The assignment as a mixed-integer program: one choice for each job, under limits that may be relaxed.

There is no index of time. Columns: one binary for each choice (pool, recipe, size); for jobs that wait for others, or
are waited for, their start; for each pool with GPU hours that are paid for, the hours beyond them. Rows: what must be
done between two days needs the GPUs, the blocks and the power between them; starts come after ends; budgets. All this
holds in whatever order jobs queue, so the program is a relaxation: where it has no solution there is no plan, and its
optimum bounds every plan's. Whether the jobs find room one beside the other is seen by the schedule.

Large jobs can't run side by side although their work fits. So rows of work are also written with sizes rounded by dual
feasible functions (Fekete and Schepers 2001, u^(k)): sizes whose sum is at most 1 keep a sum of at most 1.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from precision_api.facts.names import grouped
from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.inputs.terms import ENDLESS, JobTerms, PlanClock, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.solving.budgets import DOLLARS, MEGAWATT_HOURS, Budget, is_committed, limited
from precision_operator.planner.solving.catalog import blocks
from precision_operator.planner.solving.linear import Model, Vector
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.schedule import WorkWindow, followers, watts, windows

Places = NDArray[np.int64]
TOLERANCE = 1e-9
"""Relative, on limits: a limit that is met exactly counts as held."""
ROUNDED = (1, 2, 3)
"""Dual feasible functions u^(k) that are tried,"""
MOST_ROUNDED = 40_000
"""and the choices up to which they are."""
PREFER_SHORT = 1e-7
"""Weight of days beside an objective's own, both scaled to 1: of equal choices the shorter one, so none is chance."""


@dataclass(frozen=True, slots=True)
class RelaxableLimit:
    """One limit that a user could relax: what it is, of what, and how much it is."""

    kind: str
    """gpus, blocks, fast nodes, power, deadline, or the name of a budget."""
    of: str
    limit: float


Easing = tuple[tuple[RelaxableLimit, float], ...]
"""Limits, and what something gains where one is passed."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """low <= sum of values x columns <= high."""

    columns: Places
    values: Vector
    low: float
    high: float
    eases: Easing = ()
    """Limits that it comes from, and what `high` gains where one is passed by its own amount."""


@dataclass(frozen=True)
class AssignmentProgram:
    """All of it."""

    offers: tuple[Offer, ...]
    terms: Terms
    rounded: bool = True
    """With rows of rounded sizes; they say nothing of what a limit would have to give."""
    clock: PlanClock = ENDLESS
    """Building the rows, and all figures, raises OutOfTime when it is over."""

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The binaries, in order."""
        return tuple(option for offer in self.offers for option in offer.options)

    @cached_property
    def spans(self) -> Mapping[str, range]:
        """By job, its binaries."""
        ends = accumulate((len(offer.options) for offer in self.offers), initial=0)
        return {offer.job.name: range(*span) for offer, span in zip(self.offers, pairwise(ends), strict=True)}

    @cached_property
    def jobs(self) -> Mapping[str, JobTerms]:
        return {offer.job.name: offer.job for offer in self.offers}

    def figures(self, figure: Callable[[Option], float]) -> Vector:
        """One figure of every choice."""
        self.clock.check()
        return np.fromiter(map(figure, self.options), dtype=np.float64, count=len(self.options))

    @cached_property
    def days(self) -> Vector:
        return self.figures(lambda option: option.days)

    @cached_property
    def deadline_days(self) -> Vector:
        return self.figures(lambda option: option.deadline_days)

    @cached_property
    def gpus(self) -> Vector:
        return self.figures(lambda option: float(option.gpus))

    @cached_property
    def megawatts(self) -> Vector:
        return self.figures(lambda option: watts(option) / WATTS_PER_MEGAWATT)

    @cached_property
    def _by_pool(self) -> Mapping[str, Places]:
        by_name = grouped((option.pool.name, place) for place, option in enumerate(self.options))
        return {name: np.array(places, dtype=np.int64) for name, places in sorted(by_name.items())}

    @cached_property
    def _pools(self) -> Mapping[str, CandidatePool]:
        return {option.pool.name: option.pool for option in self.options}

    @cached_property
    def chained(self) -> Mapping[str, int]:
        """By job that waits or is waited for, the column of its start."""
        named = {name for job in self.jobs.values() for name in (*job.after, *((job.name,) if job.after else ()))}
        return {name: len(self.options) + i for i, name in enumerate(sorted(named))}

    @cached_property
    def paid(self) -> Mapping[str, int]:
        """By pool whose GPU hours are partly paid for, the column of the hours beyond."""
        names = sorted({option.pool.name for option in self.options if is_committed(option)})
        at = len(self.options) + len(self.chained)
        return {name: at + i for i, name in enumerate(names)}

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.options) + len(self.chained) + len(self.paid)

    @cached_property
    def rows(self) -> tuple[Constraint, ...]:
        choices = (Constraint(_places(span), np.ones(len(span)), 1.0, 1.0) for span in self.spans.values())
        return (*choices, *self._order(), *self._paid_hours(), *self._work(), *self._limits())

    def objective(self, name: Objective) -> Vector:
        """Coefficients of dollars or megawatt hours; of time, the GPU days. Unknown figures cost nothing here."""
        if name != "time":
            return self.amounts(DOLLARS if name == "cost" else MEGAWATT_HOURS)
        return np.concatenate([self.gpus * self.days, np.zeros(self.width - len(self.options))])

    def amounts(self, budget: Budget) -> Vector:
        """Coefficients of what is taken of a budget."""
        hours = [next(budget.hour(option) for option in self.options if option.pool.name == pool) for pool in self.paid]
        return np.concatenate([self.figures(budget.amount), np.zeros(len(self.chained)), hours])

    def short(self) -> Vector:
        """Coefficients that make days small, but only among choices that are equal otherwise."""
        return np.concatenate([PREFER_SHORT * self.days / self.days.max(), np.zeros(self.width - len(self.days))])

    def taken(self, x: Vector) -> tuple[Option, ...]:
        """The options that a solution chooses: of each job the one with the largest share."""
        return tuple(self.options[span[int(np.argmax(x[span.start : span.stop]))]] for span in self.spans.values())

    def model(
        self, cost: Vector, gap: float, seconds: float, further: Sequence[Constraint] = (), whole: bool = True
    ) -> Model:
        """What the solver is given; further rows may bring continuous columns of their own."""
        rows = [*self.rows, *further]
        columns = np.concatenate([row.columns for row in rows]).astype(np.int32)
        width = max(self.width, int(columns.max(initial=-1)) + 1, len(cost))
        binaries = np.arange(len(self.options), dtype=np.int32)
        upper = np.full(width, np.inf)
        upper[: len(self.options)] = 1.0
        return Model(
            cost=np.concatenate([cost, np.zeros(width - len(cost))]),
            upper=upper,
            whole=binaries if whole else binaries[:0],
            low=np.array([row.low for row in rows]),
            high=np.array([row.high for row in rows]),
            starts=np.concatenate([[0], np.cumsum([len(row.columns) for row in rows])]).astype(np.int32),
            columns=columns,
            values=np.concatenate([row.values for row in rows]),
            gap=gap,
            seconds=seconds,
        )

    def _order(self) -> Iterator[Constraint]:
        """Starts after ends, after the first day, and early enough."""
        for name, column in self.chained.items():
            job = self.jobs[name]
            if job.not_before:
                yield Constraint(np.array([column]), np.ones(1), job.not_before, np.inf)
            for before in job.after:
                columns = np.concatenate([[column, self.chained[before]], _places(self.spans[before])])
                yield Constraint(columns, np.concatenate([[1.0, -1.0], -self._lengths(before)]), 0.0, np.inf)
            if job.running:
                yield Constraint(np.array([column]), np.ones(1), 0.0, 0.0)

    def _lengths(self, job: str) -> Vector:
        """A job's days by its options, as deadlines are held against them."""
        return self.deadline_days[self.spans[job].start : self.spans[job].stop]

    def _paid_hours(self) -> Iterator[Constraint]:
        for pool, column in self.paid.items():
            mine = self._by_pool[pool]
            hours = self.gpus[mine] * self.days[mine] * 24
            committed = self._pools[pool].terms.committed_gpu_hours
            yield Constraint(np.append(mine, column), np.append(-hours, 1.0), -committed, np.inf)

    def _work(self) -> Iterator[Constraint]:
        """What must be done between two days needs the room between them."""
        for window in windows(self.offers):
            deadlines = [_deadline(job) for job in self.jobs.values() if job.deadline_days is not None]
            part = 1 / (window.end - window.begin)
            related = followers(self.jobs.values(), window.jobs)
            easing = tuple((group, group.limit * part) for group in deadlines if group.of in related)
            yield from self._room(window, self.deadline_days * part, easing)

    def _room(self, window: WorkWindow, part: Vector, easing: Easing) -> Iterator[Constraint]:
        """GPUs, blocks, fast nodes and power of these jobs, each for its part of the time."""
        inside = np.zeros(len(self.options), dtype=bool)
        for name in window.jobs:
            span = self.spans[name]
            inside[span.start : span.stop] = True
        for name, of_pool in self._by_pool.items():
            self.clock.check()
            mine = of_pool[inside[of_pool]]
            if len(mine):
                yield from self._room_in(self._pools[name], mine, part, easing)
        if self.terms.limits.watts is not None:
            limit = RelaxableLimit("power", "", self.terms.limits.watts / WATTS_PER_MEGAWATT)
            yield from self._held(limit, np.flatnonzero(inside), self.megawatts, part, easing)

    def _room_in(self, pool: CandidatePool, mine: Places, part: Vector, easing: Easing) -> Iterator[Constraint]:
        yield from self._held(RelaxableLimit("gpus", pool.name, float(pool.gpus)), mine, self.gpus, part, easing)
        block = np.array([self.options[i].block_gpus for i in mine])
        for size in sorted({*block.tolist()}):
            if size > pool.gpus_per_node:
                big = mine[block >= size]
                group = RelaxableLimit("blocks", f"{pool.name} ({size} GPUs)", float(blocks(pool, size)))
                yield from self._held(group, big, self.gpus // size, part, easing)
        tiers = np.array([self.options[i].tier for i in mine])
        for nodes in sorted({*tiers.tolist()} - {0, pool.nodes}):
            group = RelaxableLimit("fast nodes", pool.name, float(nodes * pool.gpus_per_node))
            yield from self._held(group, mine[tiers <= nodes], self.gpus, part, easing)
        if pool.terms.power_watts is not None:
            group = RelaxableLimit("power", pool.name, pool.terms.power_watts / WATTS_PER_MEGAWATT)
            yield from self._held(group, mine, self.megawatts, part, easing)

    def _held(
        self, limit: RelaxableLimit, mine: Places, amount: Vector, part: Vector, easing: Easing
    ) -> Iterator[Constraint]:
        """The work of a capacity, and with rounded sizes."""
        high = limit.limit * (1 + TOLERANCE)
        share = amount[mine] / limit.limit
        eases = ((limit, limit.limit), *((group, limit.limit * more) for group, more in easing))
        yield Constraint(mine, amount[mine] * part[mine], -np.inf, high, eases)
        if not self.rounded or len(self.options) > MOST_ROUNDED:
            return
        for k in ROUNDED:
            if share.max() > 1 / (k + 1):
                rounded = rounded_share(share, k) * limit.limit
                useful = rounded > 0
                yield Constraint(mine[useful], (rounded * part[mine])[useful], -np.inf, high, eases)

    def _alone(self) -> Iterator[Constraint]:
        """Each job needs the power by itself."""
        for span in self.spans.values():
            self.clock.check()
            mine = _places(span)
            limits = [(RelaxableLimit("power", "", (self.terms.limits.watts or 0.0) / WATTS_PER_MEGAWATT), mine)]
            for name, of_pool in self._by_pool.items():
                watts = (self._pools[name].terms.power_watts or 0.0) / WATTS_PER_MEGAWATT
                limits.append((RelaxableLimit("power", name, watts), np.intersect1d(mine, of_pool)))
            for group, columns in limits:
                if group.limit and len(columns) and self.megawatts[columns].max() > group.limit:
                    yield self._limit(group, columns, self.megawatts[columns])

    def _limits(self) -> Iterator[Constraint]:
        yield from self._alone()
        for budget, limit in limited(self.terms):
            amounts = self.amounts(budget)
            columns = np.flatnonzero(amounts)
            yield self._limit(RelaxableLimit(budget.name, "", limit), columns, amounts[columns])
        for name, job in self.jobs.items():
            if job.deadline_days is not None:
                start = self.chained.get(name)
                columns, values = _places(self.spans[name]), self._lengths(name)
                if start is not None:
                    columns, values = np.append(columns, start), np.append(values, 1.0)
                begin = 0.0 if start is not None or job.running else job.not_before
                group = _deadline(job)
                high = (group.limit - begin) + group.limit * TOLERANCE
                yield Constraint(columns, values, -np.inf, high, ((group, group.limit),))

    @staticmethod
    def _limit(group: RelaxableLimit, columns: Places, values: Vector) -> Constraint:
        return Constraint(columns, values, -np.inf, group.limit * (1 + TOLERANCE), ((group, group.limit),))


def rounded_share(share: Vector, k: int) -> Vector:
    """u^(k) of shares of a capacity: whole multiples of 1 / (k + 1) stay, others become floor((k + 1) x) / k."""
    steps = share * (k + 1)
    near = np.round(steps)
    exact = np.abs(steps - near) < 1e-9
    return np.where(exact, share, np.floor(steps) / k)


def _places(span: range) -> Places:
    return np.arange(span.start, span.stop, dtype=np.int64)


def _deadline(job: JobTerms) -> RelaxableLimit:
    return RelaxableLimit("deadline", job.name, job.deadline_days or math.inf)
