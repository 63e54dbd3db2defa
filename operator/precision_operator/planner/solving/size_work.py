"""All sizes of jobs as arrays: the work that they must do between two days, as rows of a linear program, and which of
them are offered: those that prices picked, what lies beside them, and a spread."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import MOST_DAYS, JobTerms, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.rates.pool_sizes import SizeArrays
from precision_operator.planner.rates.straggler import Counts
from precision_operator.planner.solving.budgets import limited
from precision_operator.planner.solving.options import Picked
from precision_operator.planner.solving.schedule import days_of

MOST_WINDOWS = 10
SPREAD = 4
"""Pools of which a job is offered some choices in any case, the cheapest ones."""
PARTS = (1, 2, 3, 4, 6, 8)
"""A pool's largest choice and even parts of it, so that jobs fill the pool side by side."""
NEAR = 2
"""Places in the arrays beside a chosen one that are offered too."""


class SizedJob:
    """One job's arrays with its own days, and which of it is allowed."""

    def __init__(self, job: JobTerms, arrays: SizeArrays, terms: Terms, name: Objective) -> None:
        self.job, self.arrays = job, arrays
        self.days, self.deadline_days = arrays.days * job.tokens, arrays.deadline_days * job.tokens
        cost = {"cost": arrays.dollars, "energy": arrays.energy, "time": arrays.gpus * arrays.days}[name]
        self.cost = cost * job.tokens
        self.allowed = (self.days <= MOST_DAYS) & np.isfinite(self.cost)
        for budget, _ in limited(terms):
            self.allowed &= np.isfinite(budget.sizes(arrays))


def sized_spans(jobs: Sequence[SizedJob], deadlines: bool, end: float) -> tuple[dict[str, float], dict[str, float]]:
    """By job the first day on which it can start and the last on which it must have ended, by the shortest choices."""
    shortest = {
        job.job.name: float((job.deadline_days if deadlines else job.days)[job.allowed].min(initial=math.inf))
        for job in jobs
    }
    return days_of([job.job for job in jobs], shortest, deadlines, end)


@dataclass(frozen=True, slots=True)
class WorkRow:
    """Work of some jobs between two days in one pool, or of all power (`pool` -1), as a part of the room."""

    jobs: frozenset[str]
    begin: float
    end: float
    pool: int
    room: float
    watts: bool
    deadlines: bool
    beyond: float | None = None
    """What as much work again costs beyond the room; None: there is no more."""

    @property
    def part(self) -> float:
        """What a unit of work takes of it."""
        return 1 / (self.room * (self.end - self.begin))

    def of(self, job: SizedJob, place: int) -> float:
        """What one choice takes of it."""
        if self.pool >= 0 and job.arrays.pool[place] != self.pool:
            return 0.0
        amount = job.arrays.watts if self.watts else job.arrays.gpus
        lengths = job.deadline_days if self.deadlines else job.days
        return float(amount[place] * lengths[place]) * self.part


def work_rows(
    jobs: Sequence[SizedJob], pools: Sequence[CandidatePool], terms: Terms, deadlines: bool, last_end: float
) -> list[WorkRow]:
    ready, latest = sized_spans(jobs, deadlines, last_end)
    days = sorted({day for day in latest.values() if day < math.inf}, reverse=True)
    rows = []
    for end in days[:: math.ceil(len(days) / MOST_WINDOWS)] if days else ():
        names = frozenset(name for name in latest if latest[name] <= end)
        begin = min(ready[name] for name in names)
        if end <= begin:
            continue
        for place, pool in enumerate(pools):
            rows.append(WorkRow(names, begin, end, place, float(max(pool.gpus, 1)), False, deadlines))
            if pool.terms.power_watts is not None:
                rows.append(WorkRow(names, begin, end, place, pool.terms.power_watts, True, deadlines))
        if terms.limits.watts is not None:
            rows.append(WorkRow(names, begin, end, -1, terms.limits.watts, True, deadlines))
    return rows


def paid_rows(jobs: Sequence[SizedJob], pools: Sequence[CandidatePool], terms: Terms) -> list[WorkRow]:
    """By pool the GPU hours that are paid for already; those beyond have the pool's price."""
    names, priced = frozenset(job.job.name for job in jobs), not terms.electricity_alone
    return [
        WorkRow(names, 0.0, 1.0, place, hours / 24, False, False, hours * price)
        for place, pool in enumerate(pools)
        if priced and (hours := pool.terms.committed_gpu_hours) and (price := pool.terms.dollars_per_gpu_hour)
    ]


def room_bound(gpus: Mapping[Any, int], least: Sequence[Mapping[Any, float]]) -> float:
    """No plan ends before this day: with any prices of the pools' GPU days, all work costs no more than all room.

    `least` has by job the GPU days that it takes in each pool. Prices are as the jobs' speeds there: of pools that all
    do the same work in, none is cheaper than another one.
    """
    all_days = {name: [mine[name] for mine in least if name in mine] for name in gpus}
    means = {name: sum(days) / len(days) for name, days in all_days.items() if days}
    room = sum(gpus[name] / means[name] for name in means)
    work = sum(min((days / means[name] for name, days in mine.items()), default=0.0) for mine in least)
    return work / room if room else 0.0


def one_by_one(jobs: Sequence[SizedJob]) -> float:
    """A day by which all can have ended, whatever they wait for: each at its shortest, one by one."""
    shortest = sum(float(job.days[job.allowed].min()) for job in jobs)
    return max(job.job.not_before for job in jobs) + shortest


def by_pool(job: SizedJob) -> list[tuple[int, Counts]]:
    """By pool the places of the choices that are allowed there; the arrays have one pool after the other."""
    allowed = np.flatnonzero(job.allowed)
    pools = job.arrays.pool[allowed]
    begins = np.flatnonzero(np.diff(pools, prepend=-1))
    return list(zip(pools[begins].tolist(), np.split(allowed, begins[1:]), strict=True))


def best_places(job: SizedJob) -> Iterator[int]:
    """The cheapest choice, the shortest, and one between."""
    allowed = np.flatnonzero(job.allowed)
    cost, days = job.cost[allowed], job.days[allowed]
    for figure in (cost, days, cost / max(float(cost.min()), 1e-300) + days / days.min()):
        yield int(allowed[np.argmin(figure)])


def _spread(job: SizedJob, wanted: set[int], everywhere: bool) -> list[int]:
    """Of these and the cheapest pools the smallest, the largest and even parts of it, and the shortest of all.

    With `everywhere` of all pools.
    """
    pools = by_pool(job)
    cheapest = np.argsort([float(job.cost[mine].min()) for _, mine in pools])[:SPREAD].tolist()
    allowed = np.flatnonzero(job.allowed)
    places = [int(allowed[np.argmin(job.deadline_days[allowed])])]
    for place, (pool, mine) in enumerate(pools):
        if everywhere or place in cheapest or pool in wanted:
            gpus = job.arrays.gpus[mine]  # ascending
            parts = np.searchsorted(gpus, gpus[-1] / np.array(PARTS), side="right") - 1
            places += [int(mine[0]), *map(int, mine[np.maximum(parts, 0)])]
    return places


def offered_places(
    jobs: Sequence[SizedJob], used: Sequence[dict[int, None]], picked: Sequence[dict[int, None]], everywhere: bool
) -> Picked:
    """By job the choices that count, those beside them in the arrays, the last ones that were picked, and a spread."""
    offered = {}
    for job, mine, every in zip(jobs, used, picked, strict=True):
        near = {place + step for place in mine for step in range(-NEAR, NEAR + 1)}
        allowed = {place for place in near if 0 <= place < len(job.allowed) and job.allowed[place]}
        pools = {int(job.arrays.pool[place]) for place in mine}
        offered[job.job.name] = frozenset({*allowed, *[*every][-4:], *_spread(job, pools, everywhere)})
    return offered
