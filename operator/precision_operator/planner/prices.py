"""A bound over every size of every job, and the few choices that matter, where all are too many for one program.

The linear program without chains: one choice a job, and all work that must be done between two days has room between
them. Its prices of room tell of every size whether it could help (Dantzig and Wolfe 1960): those that could are added,
until none can. With any prices, the value of the room and each job's cheapest choice at these prices bound all plans
from below (Lagrange), so the bound is proved whenever the search is ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_api.capacity_plan import Objective
from precision_operator.planner.candidate_pool import CandidatePool
from precision_operator.planner.catalog import Catalog, ConfigurationArrays
from precision_operator.planner.highs import run
from precision_operator.planner.highs_process import Model, Vector
from precision_operator.planner.terms import MOST_DAYS, JobTerms, Terms

ROUNDS = 30
ADDED = 2
"""Choices of a job that one round adds."""
MOST_WINDOWS = 10
HALVINGS = 9
NEARLY = 1e-6
"""Above 1, a room that is filled so far may be full."""
PENALTY = 20.0
"""What a day's room beyond the room costs, as a multiple of the dearest job: enough to be left unused."""
SPREAD = 4
"""Pools of which a job is offered some choices in any case, the cheapest ones."""
PARTS = (1, 2, 3, 4, 6, 8)
"""A pool's largest choice and even parts of it, so that jobs fill the pool side by side."""
NEAR = 2
"""Places in the arrays beside a chosen one that are offered too."""


@dataclass(frozen=True, slots=True)
class Priced:
    """`bound` is proved for the objective; `picked` are places in the arrays, by job."""

    bound: float
    infeasible: bool
    picked: Mapping[str, frozenset[int]]


class _Job:
    """One job's arrays with its own days, and which of it is allowed."""

    def __init__(self, job: JobTerms, arrays: ConfigurationArrays, terms: Terms, name: Objective) -> None:
        self.job, self.arrays = job, arrays
        self.days, self.deadline_days = arrays.days * job.tokens, arrays.deadline_days * job.tokens
        cost = {"cost": arrays.dollars, "energy": arrays.energy, "time": arrays.gpus * arrays.days}[name]
        self.cost = cost * job.tokens
        self.allowed = (self.days <= MOST_DAYS) & np.isfinite(self.cost)
        for limit, figure in ((terms.limits.dollars, arrays.dollars), (terms.limits.megawatt_hours, arrays.energy)):
            if limit is not None:
                self.allowed &= np.isfinite(figure)


def _spans(jobs: Sequence[_Job], deadlines: bool, last_end: float) -> tuple[dict[str, float], dict[str, float]]:
    """By job the first day on which it can start and the last on which it must have ended, by the shortest choices."""
    least, ready, latest = {}, {}, {}
    for each in jobs:
        lengths = (each.deadline_days if deadlines else each.days)[each.allowed]
        name = each.job.name
        least[name] = float(lengths.min(initial=math.inf))
        ready[name] = each.job.not_before
        latest[name] = (each.job.deadline_days or math.inf) if deadlines else last_end
    for _ in jobs:
        moved = False
        for each in jobs:
            name = each.job.name
            for before in each.job.after:
                if ready[name] < ready[before] + least[before]:
                    ready[name], moved = ready[before] + least[before], True
                if latest[before] > latest[name] - least[name]:
                    latest[before], moved = latest[name] - least[name], True
        if not moved:
            break
    return ready, latest


@dataclass(frozen=True, slots=True)
class _Row:
    """Work of some jobs between two days in one pool, or of all power (`pool` -1), as a part of the room."""

    jobs: frozenset[str]
    begin: float
    end: float
    pool: int
    room: float
    watts: bool
    deadlines: bool

    @property
    def part(self) -> float:
        """What a unit of work takes of it."""
        return 1 / (self.room * (self.end - self.begin))

    def of(self, job: _Job, place: int) -> float:
        """What one choice takes of it."""
        if self.pool >= 0 and job.arrays.pool[place] != self.pool:
            return 0.0
        amount = job.arrays.watts if self.watts else job.arrays.gpus
        lengths = job.deadline_days if self.deadlines else job.days
        return float(amount[place] * lengths[place]) * self.part


def _rows(
    jobs: Sequence[_Job], pools: Sequence[CandidatePool], terms: Terms, deadlines: bool, last_end: float
) -> list[_Row]:
    ready, latest = _spans(jobs, deadlines, last_end)
    days = sorted({day for day in latest.values() if day < math.inf}, reverse=True)
    found = []
    for end in days[:: math.ceil(len(days) / MOST_WINDOWS)] if days else ():
        names = frozenset(name for name in latest if latest[name] <= end)
        begin = min(ready[name] for name in names)
        if end <= begin:
            continue
        for place, pool in enumerate(pools):
            found.append(_Row(names, begin, end, place, float(max(pool.gpus, 1)), False, deadlines))
            if pool.terms.power_watts is not None:
                found.append(_Row(names, begin, end, place, pool.terms.power_watts, True, deadlines))
        if terms.limits.watts is not None:
            found.append(_Row(names, begin, end, -1, terms.limits.watts, True, deadlines))
    return found


class _Master:
    """The linear program over the choices that were picked."""

    def __init__(self, jobs: Sequence[_Job], rows: Sequence[_Row], seconds: float, work_only: bool) -> None:
        self.jobs, self.rows, self.seconds, self.work_only = jobs, rows, seconds, work_only
        self.inside = [[(r, row) for r, row in enumerate(rows) if job.job.name in row.jobs] for job in jobs]
        self.known: list[dict[int, list[tuple[int, float]]]] = [{} for _ in jobs]
        self.cost = [np.zeros(len(job.cost)) if work_only else job.cost for job in jobs]
        dearest = max((float(cost[job.allowed].max(initial=0.0)) for job, cost in zip(jobs, self.cost, strict=True)))
        self.penalty = 1.0 if work_only else PENALTY * max(dearest, 1e-9)
        self.picked: list[dict[int, None]] = [{} for _ in jobs]

    def start(self) -> bool:
        """The cheapest and the shortest choices of each job; False where one has none."""
        for place, job in enumerate(self.jobs):
            allowed = np.flatnonzero(job.allowed)
            if not len(allowed):
                return False
            for figure in (job.cost, job.days, job.cost / job.cost[allowed].min() + job.days / job.days[allowed].min()):
                self.picked[place][int(allowed[np.argmin(figure[allowed])])] = None
            for pool in np.unique(job.arrays.pool[allowed]):
                mine = allowed[job.arrays.pool[allowed] == pool]
                self.picked[place][int(mine[np.argmin(job.cost[mine])])] = None
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

    def solved(self) -> tuple[Vector, Vector, Vector] | None:
        """(x, prices of the rows, weights by column) of the picked choices; None where HiGHS did not end in time."""
        owners = [(j, place) for j, mine in enumerate(self.picked) for place in mine]
        count, many = len(self.jobs), len(self.rows)
        by_row: list[tuple[list[int], list[float]]] = [([], []) for _ in range(count + many)]
        for column, (j, place) in enumerate(owners):
            by_row[j][0].append(column)
            by_row[j][1].append(1.0)
            for r, taken in self._taken(j, place):
                by_row[count + r][0].append(column)
                by_row[count + r][1].append(taken)
        over = len(owners)
        for r in range(many):
            by_row[count + r][0].append(over if self.work_only else over + r)
            by_row[count + r][1].append(-1.0)
        extra = np.ones(1) if self.work_only else np.full(many, self.penalty)
        cost = np.concatenate([[self.cost[j][place] for j, place in owners], extra])
        scale = float(np.abs(cost).max()) or 1.0
        free = np.full(many, 0.0 if self.work_only else 1.0)
        model = Model(
            cost=cost / scale,
            upper=np.full(len(cost), np.inf),
            whole=np.zeros(0, dtype=np.int32),
            low=np.concatenate([np.ones(count), np.full(many, -np.inf)]),
            high=np.concatenate([np.ones(count), free]),
            starts=np.concatenate([[0], np.cumsum([len(columns) for columns, _ in by_row])]).astype(np.int32),
            columns=np.concatenate([columns for columns, _ in by_row]).astype(np.int32),
            values=np.concatenate([values for _, values in by_row]),
            gap=0.0,
            seconds=max(self.seconds - time.monotonic(), 0.0),
        )
        if model.seconds <= 0:
            return None
        found = run(model)
        if found.state != "optimal" or found.duals is None or found.x is None:
            return None
        return found.x, found.duals * scale, np.array([place for _, place in owners])

    def bounded(self, stop: float = math.inf) -> tuple[float, list[dict[int, None]]]:
        """(what is proved from below, the choices that count by job); ends early once the bound passes `stop`."""
        best, used = -math.inf, self.picked
        for _ in range(ROUNDS):
            found = self.solved()
            if found is None:
                break
            x, duals, _ = found
            prices = np.minimum(duals[len(self.jobs) :], 0.0)
            value = 0.0 if self.work_only else float(prices.sum())
            at, used, added = 0, [], 0
            for j, job in enumerate(self.jobs):
                reduced = self.cost[j] - self._charged(j, prices)
                reduced[~job.allowed] = np.inf
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
            best = max(best, value)
            if not added or best > stop:
                break
        return best, used


def priced(catalog: Catalog, name: Objective, until: float, most: float = math.inf) -> Priced:
    """The bound of the first objective, and the choices to put into the program; `most` is a plan's value, if known."""
    terms = catalog.terms
    jobs = [_Job(job, catalog.arrays(job), terms, name) for job in terms.jobs]
    ready, latest = _spans(jobs, True, math.inf)
    for job in jobs:
        late = ready[job.job.name] + job.deadline_days > latest[job.job.name] * (1 + 1e-6)
        job.allowed &= ~late
    if not all(job.allowed.any() for job in jobs):
        return Priced(math.inf, True, {})
    if name == "time":
        return _priced_time(jobs, catalog, until, most)
    rows = _rows(jobs, catalog.pools, terms, True, math.inf)
    master = _Master(jobs, rows, until, False)
    master.start()
    bound, used = master.bounded()
    return Priced(bound, False, _offered(jobs, used, master.picked, False))


def _priced_time(jobs: list[_Job], catalog: Catalog, until: float, most: float) -> Priced:
    """The first day by which all can have ended: the room of all work by then must do.

    If the fullest room is filled to a share v <= 1 where all end by day T, none end before v T: with an earlier end
    there are no more choices, and each row's room shrinks at least as much as the end. From there on days are tried.
    """
    ready, latest = _spans(jobs, False, 0.0)
    least = {job.job.name: float(job.days[job.allowed].min()) for job in jobs}
    low = max(ready[name] + least[name] - latest[name] for name in ready)
    high = most if math.isfinite(most) else _one_by_one(jobs)
    filled, picked = _filled(jobs, catalog, high, until, False)
    while filled > 1 + NEARLY and high < MOST_DAYS and time.monotonic() < until:
        low, high = high, 2 * high
        filled, picked = _filled(jobs, catalog, high, until, False)
    low, step, tried = max(low, min(filled, 1.0) * high), catalog.terms.gap / 2, 0
    while time.monotonic() < until and high > low * (1 + catalog.terms.gap / 2) and tried < HALVINGS:
        end = min(low * (1 + step), math.sqrt(low * high))
        filled, used = _filled(jobs, catalog, end, until, True)
        if filled > 1 + NEARLY:
            low, step = end, step * 2
        else:
            high, picked = end, used
        tried += 1
    return Priced(low, False, picked)


def _filled(
    jobs: list[_Job], catalog: Catalog, end: float, until: float, deadlines: bool
) -> tuple[float, Mapping[str, frozenset[int]]]:
    """(share of the fullest room that the work of all jobs by `end` fills at least, the choices that matter).

    With `deadlines` their rows too; it is enough to know of a share above 1 that it is.
    """
    first, last = _spans(jobs, False, end)
    before = [job.allowed for job in jobs]
    for job, allowed in zip(jobs, before, strict=True):
        in_time = first[job.job.name] + job.days <= last[job.job.name] * (1 + 1e-6)
        job.allowed = allowed & in_time
    rows = _rows(jobs, catalog.pools, catalog.terms, False, end)
    if deadlines and _has_deadlines(jobs):
        rows += _rows(jobs, catalog.pools, catalog.terms, True, math.inf)
    master = _Master(jobs, rows, until, True)
    if master.start():
        filled, used = master.bounded(stop=1 + NEARLY if deadlines else math.inf)
        picked = _offered(jobs, used, master.picked, True)
    else:
        filled, picked = math.inf, {}
    for job, allowed in zip(jobs, before, strict=True):
        job.allowed = allowed
    return filled, picked


def _has_deadlines(jobs: Sequence[_Job]) -> bool:
    return any(job.job.deadline_days is not None for job in jobs)


def _one_by_one(jobs: Sequence[_Job]) -> float:
    """A day by which all can have ended, whatever they wait for: each at its shortest, one by one."""
    shortest = sum(float(job.days[job.allowed].min()) for job in jobs)
    return max(job.job.not_before for job in jobs) + shortest


def _spread(job: _Job, wanted: set[int], everywhere: bool) -> list[int]:
    """Of these and the cheapest pools the smallest, the largest and even parts of it, and the shortest of all.

    With `everywhere` of all pools.
    """
    allowed = np.flatnonzero(job.allowed)
    pools, of = np.unique(job.arrays.pool[allowed], return_inverse=True)
    cheapest = np.full(len(pools), np.inf)
    np.minimum.at(cheapest, of, job.cost[allowed])
    found = [int(allowed[np.argmin(job.deadline_days[allowed])])]
    near = {*np.argsort(cheapest)[:SPREAD].tolist(), *np.flatnonzero(np.isin(pools, [*wanted])).tolist()}
    for pool in range(len(pools)) if everywhere else near:
        mine = allowed[of == pool]
        mine = mine[np.argsort(job.arrays.gpus[mine], kind="stable")]
        gpus = job.arrays.gpus[mine]
        parts = np.searchsorted(gpus, gpus[-1] / np.array(PARTS), side="right") - 1
        found += [int(mine[0]), *map(int, mine[np.maximum(parts, 0)])]
    return found


def _offered(
    jobs: Sequence[_Job], used: Sequence[dict[int, None]], picked: Sequence[dict[int, None]], everywhere: bool
) -> Mapping[str, frozenset[int]]:
    """By job the choices that count, those beside them in the arrays, the last ones that were picked, and a spread."""
    found = {}
    for job, mine, every in zip(jobs, used, picked, strict=True):
        near = {place + step for place in mine for step in range(-NEAR, NEAR + 1)}
        allowed = {place for place in near if 0 <= place < len(job.allowed) and job.allowed[place]}
        pools = {int(job.arrays.pool[place]) for place in mine}
        found[job.job.name] = frozenset({*allowed, *[*every][-4:], *_spread(job, pools, everywhere)})
    return found
