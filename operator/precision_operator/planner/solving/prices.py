"""A bound over every size of every job, and the few choices that matter, where all are too many for one program.

The linear program without chains: one choice a job, and all work that must be done between two days has room between
them. Its prices of room tell of every size whether it could help (Dantzig and Wolfe 1960): those that could are added,
until none can. With any prices, the value of the room and each job's cheapest choice at these prices bound all plans
from below (Lagrange), so the bound is proved whenever the search is ended.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import MOST_DAYS, OutOfTime, PlanClock
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.linear import Model, Vector, run
from precision_operator.planner.solving.options import Picked
from precision_operator.planner.solving.schedule import JobSlot, longest_chain
from precision_operator.planner.solving.size_work import (
    SizedJob,
    WorkRow,
    best_places,
    by_pool,
    offered_places,
    one_by_one,
    paid_rows,
    room_bound,
    sized_spans,
    work_rows,
)

ROUNDS = 30
ADDED = 2
"""Choices of a job that one round adds."""
MOST_NEAR = 24
"""Choices of a job that are offered beside those of a plan."""
HALVINGS = 9
NEARLY = 1e-6
"""Above 1, a room that is filled so far may be full."""
PENALTY = 20.0
"""What a day's room beyond the room costs, as a multiple of the dearest job: enough to be left unused."""


class _Master:
    """The linear program over the choices that were picked. Making it raises OutOfTime."""

    def __init__(self, jobs: Sequence[SizedJob], rows: Sequence[WorkRow], clock: PlanClock, work_only: bool) -> None:
        self.jobs, self.rows, self.clock, self.work_only = jobs, rows, clock, work_only
        self.inside: list[list[tuple[int, WorkRow]]] = []
        for job in jobs:
            clock.check()
            self.inside.append([(r, row) for r, row in enumerate(rows) if job.job.name in row.jobs])
        self.known: list[dict[int, list[tuple[int, float]]]] = [{} for _ in jobs]
        self.cost = [np.zeros(len(job.cost)) if work_only else job.cost for job in jobs]
        dearest = max((float(cost[job.allowed].max(initial=0.0)) for job, cost in zip(jobs, self.cost, strict=True)))
        penalty = 1.0 if work_only else PENALTY * max(dearest, 1e-9)
        self.penalty = np.array([penalty if row.beyond is None else row.beyond for row in rows])
        self.picked: list[dict[int, None]] = [{} for _ in jobs]

    def start(self) -> bool:
        """The cheapest and the shortest choices of each job; False where one has none. Raises OutOfTime."""
        for place, job in enumerate(self.jobs):
            self.clock.check()
            if not job.allowed.any():
                return False
            self.picked[place] |= dict.fromkeys(best_places(job))
            self.picked[place] |= dict.fromkeys(int(mine[np.argmin(job.cost[mine])]) for _, mine in by_pool(job))
        return True

    def _taken(self, j: int, place: int) -> list[tuple[int, float]]:
        """By row, what a choice takes of it."""
        if place not in self.known[j]:
            taken = [(r, row.of(self.jobs[j], place)) for r, row in self.inside[j]]
            self.known[j][place] = [(r, amount) for r, amount in taken if amount]
        return self.known[j][place]

    def _charged(self, j: int, prices: Vector) -> Vector:
        """What each choice of a job takes of the rows, at their prices."""
        job = self.jobs[j]
        made = np.zeros(len(job.cost))
        many = int(job.arrays.pool.max(initial=0)) + 1
        for watts in (False, True):
            for deadlines in (False, True):
                by_pool = np.zeros(many)
                for r, row in self.inside[j]:
                    if row.watts == watts and row.deadlines == deadlines and prices[r]:
                        if row.pool < 0:
                            by_pool += prices[r] * row.part
                        elif row.pool < many:
                            by_pool[row.pool] += prices[r] * row.part
                if by_pool.any():
                    amount = job.arrays.watts if watts else job.arrays.gpus
                    made += by_pool[job.arrays.pool] * amount * (job.deadline_days if deadlines else job.days)
        return made

    def solved(self) -> tuple[Vector, Vector] | None:
        """(x, prices of the rows) of the picked choices; None where it was not solved in time."""
        owners = [(j, place) for j, mine in enumerate(self.picked) for place in mine]
        count, many = len(self.jobs), len(self.rows)
        by_row: list[list[tuple[int, float]]] = [[] for _ in range(count + many)]
        for column, (j, place) in enumerate(owners):
            self.clock.check()
            by_row[j].append((column, 1.0))
            for r, taken in self._taken(j, place):
                by_row[count + r].append((column, taken))
        over = len(owners)
        for r in range(many):
            by_row[count + r].append((over if self.work_only else over + r, -1.0))
        extra = np.ones(1) if self.work_only else self.penalty
        cost = np.concatenate([[self.cost[j][place] for j, place in owners], extra])
        scale = float(np.abs(cost).max()) or 1.0
        free = np.full(many, 0.0 if self.work_only else 1.0)
        model = Model(
            cost=cost / scale,
            upper=np.full(len(cost), np.inf),
            whole=np.zeros(0, dtype=np.int32),
            low=np.concatenate([np.ones(count), np.full(many, -np.inf)]),
            high=np.concatenate([np.ones(count), free]),
            starts=np.concatenate([[0], np.cumsum(list(map(len, by_row)))]).astype(np.int32),
            columns=np.array([column for row in by_row for column, _ in row], dtype=np.int32),
            values=np.array([value for row in by_row for _, value in row]),
            gap=0.0,
            seconds=self.clock.left,
        )
        if self.clock.over:
            return None
        solution = run(model)
        if self.clock.over or solution.state != "optimal" or solution.duals is None or solution.x is None:
            return None
        return solution.x, solution.duals * scale

    def _reduced(self, prices: Vector) -> Iterator[Vector]:
        """Of each job its choices' costs at these prices. Raises OutOfTime."""
        for j, job in enumerate(self.jobs):
            self.clock.check()
            reduced = self.cost[j] - self._charged(j, prices)
            reduced[~job.allowed] = np.inf
            yield reduced

    def _value(self, prices: Vector) -> float:
        """What the rows' room is worth at these prices; with each job's cheapest choice it bounds all plans."""
        return 0.0 if self.work_only else float(prices.sum())

    def bounded(self, stop: float = math.inf) -> tuple[float, list[dict[int, None]]]:
        """(what is proved from below, the choices that count by job); ends early once the bound passes `stop`."""
        best, used = -math.inf, self.picked
        with suppress(OutOfTime):
            for _ in range(ROUNDS):
                solution = self.solved()
                if solution is None:
                    break
                value, used, added = self._round(*solution)
                best = max(best, value)
                if not added or best > stop:
                    break
        return best, used

    def _round(self, x: Vector, duals: Vector) -> tuple[float, list[dict[int, None]], int]:
        """(the bound at these prices, the choices that the program uses by job, how many are new). Raises OutOfTime."""
        prices = np.clip(duals[len(self.jobs) :], -self.penalty, 0.0)
        value, used, at, added = self._value(prices), list[dict[int, None]](), 0, 0
        for j, reduced in enumerate(self._reduced(prices)):
            cheapest = np.argpartition(reduced, min(ADDED, len(reduced) - 1))[:ADDED]
            value += float(reduced.min())
            mine = [*self.picked[j]]
            used.append({place: None for k, place in enumerate(mine) if x[at + k] > 1e-6})
            at += len(mine)
            limit = duals[j] - 1e-7 * max(abs(float(duals[j])), 1e-9)
            for place in map(int, cheapest):
                if reduced[place] < limit and place not in self.picked[j]:
                    self.picked[j][place] = None
                    added += 1
        return value, used, added


class Market:
    """The jobs of a catalog with all their sizes, for one objective. Making it raises OutOfTime."""

    def __init__(self, catalog: Catalog, name: Objective) -> None:
        self.catalog, self.name = catalog, name
        self.jobs = []
        for job in catalog.terms.jobs:
            catalog.clock.check()
            self.jobs.append(SizedJob(job, catalog.arrays(job), catalog.terms, name))
        ready, latest = sized_spans(self.jobs, True, math.inf)
        for sized in self.jobs:
            late = ready[sized.job.name] + sized.deadline_days > latest[sized.job.name] * (1 + 1e-6)
            sized.allowed &= ~late

    @property
    def infeasible(self) -> bool:
        """Whether some job has no size at all that ends in time."""
        return not all(job.allowed.any() for job in self.jobs)

    def quick(self) -> Picked:
        """By job a few choices from which a first plan can be made."""
        return {job.job.name: frozenset(best_places(job)) for job in self.jobs}

    def near(self, slots: Sequence[JobSlot], reach: float) -> dict[str, frozenset[int]]:
        """By job some choices in its pool of up to so many times its GPUs, or as many times fewer."""
        names, near = [pool.name for pool in self.catalog.pools], {}
        jobs = {job.job.name: job for job in self.jobs}
        for option in (slot.option for slot in slots):
            job = jobs[option.job.name]
            of_pool = job.allowed & (job.arrays.pool == names.index(option.pool.name))
            mine = np.flatnonzero(of_pool & (abs(np.log(job.arrays.gpus / option.gpus)) <= math.log(reach)))
            near[job.job.name] = frozenset(mine[:: max(1, -(-len(mine) // MOST_NEAR))].tolist())
        return near

    def least(self) -> float:
        """A bound that needs no program: each job takes its least."""
        if self.name != "time":
            return sum(float(job.cost[job.allowed].min()) for job in self.jobs)
        gpus = {place: pool.gpus for place, pool in enumerate(self.catalog.pools)}
        work = [{place: float(job.cost[mine].min()) for place, mine in by_pool(job)} for job in self.jobs]
        return max(_longest_chain(self.jobs), room_bound(gpus, work))


def priced(market: Market, clock: PlanClock) -> tuple[float, Picked]:
    """(the bound that is proved of the first objective, the choices to put into the program).

    Not of an infeasible market. Raises OutOfTime where nothing was proved in time.
    """
    jobs, catalog = market.jobs, market.catalog
    if market.name == "time":
        return _priced_time(jobs, catalog, clock)
    rows = work_rows(jobs, catalog.pools, catalog.terms, True, math.inf)
    rows += paid_rows(jobs, catalog.pools, catalog.terms) if market.name == "cost" else []
    master = _Master(jobs, rows, clock, False)
    master.start()
    bound, used = master.bounded()
    return bound, offered_places(jobs, used, master.picked, False)


def _longest_chain(jobs: list[SizedJob]) -> float:
    """The end of the longest chain of the shortest choices."""
    return longest_chain([job.job for job in jobs], {job.job.name: float(job.days[job.allowed].min()) for job in jobs})


def _priced_time(jobs: list[SizedJob], catalog: Catalog, clock: PlanClock) -> tuple[float, Picked]:
    """The first day by which all can have ended: the room of all work by then must do.

    If the fullest room is filled to a share v <= 1 where all end by day T, none end before v T: with an earlier end
    there are no more choices, and each row's room shrinks at least as much as the end. From there on days are tried.
    """
    low, high = _longest_chain(jobs), one_by_one(jobs)
    picked: Picked = {}
    with suppress(OutOfTime):
        filled, picked = _fill(jobs, catalog, high, clock, False)
        while filled > 1 + NEARLY and high < MOST_DAYS:
            low, high = high, 2 * high
            filled, picked = _fill(jobs, catalog, high, clock, False)
        low, step, tried = max(low, min(filled, 1.0) * high), catalog.terms.gap / 2, 0
        while high > low * (1 + catalog.terms.gap / 2) and tried < HALVINGS:
            end = min(low * (1 + step), math.sqrt(low * high))
            filled, used = _fill(jobs, catalog, end, clock, True)
            if filled > 1 + NEARLY:
                low, step = end, step * 2
            else:
                high, picked = end, used
            tried += 1
    return low, picked


def _fill(jobs: list[SizedJob], offers: Catalog, end: float, clock: PlanClock, deadlines: bool) -> tuple[float, Picked]:
    """(share of the fullest room that the work of all jobs by `end` fills at least, the choices that matter).

    With `deadlines` their rows too; it is enough to know of a share above 1 that it is. Raises OutOfTime.
    """
    clock.check()
    first, last = sized_spans(jobs, False, end)
    before = [job.allowed for job in jobs]
    try:
        for job in jobs:
            job.allowed = job.allowed & (first[job.job.name] + job.days <= last[job.job.name] * (1 + 1e-6))
        rows = work_rows(jobs, offers.pools, offers.terms, False, end)
        if deadlines and any(job.job.deadline_days is not None for job in jobs):
            rows += work_rows(jobs, offers.pools, offers.terms, True, math.inf)
        master = _Master(jobs, rows, clock, True)
        if not master.start():
            return math.inf, {}
        filled, used = master.bounded(stop=1 + NEARLY if deadlines else math.inf)
        return filled, offered_places(jobs, used, master.picked, True)
    finally:
        for job, allowed in zip(jobs, before, strict=True):
            job.allowed = allowed
