"""All sizes of jobs as arrays, and the work that they must do between two days: rows of a linear program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import MOST_DAYS, JobTerms, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.rates.pool_sizes import SizeArrays
from precision_operator.planner.rates.straggler import Counts
from precision_operator.planner.solving.budgets import limited
from precision_operator.planner.solving.windows import days_of

MOST_WINDOWS = 10


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


def sized_spans(
    jobs: Sequence[SizedJob], deadlines: bool, last_end: float
) -> tuple[dict[str, float], dict[str, float]]:
    """By job the first day on which it can start and the last on which it must have ended, by the shortest choices."""
    shortest = {
        job.job.name: float((job.deadline_days if deadlines else job.days)[job.allowed].min(initial=math.inf))
        for job in jobs
    }
    return days_of([job.job for job in jobs], shortest, deadlines, last_end)


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


def pool_speeds(jobs: Sequence[SizedJob]) -> Mapping[int, float]:
    """By pool how fast a GPU is there for jobs of all shapes, relative to the other pools."""
    speeds: dict[int, list[float]] = {}
    for arrays in {id(job.arrays): job.arrays for job in jobs}.values():
        begins = np.flatnonzero(np.diff(arrays.pool, prepend=-1))
        rates = 1 / np.minimum.reduceat(arrays.gpus * arrays.days, begins)
        for pool, rate in zip(arrays.pool[begins].tolist(), (rates / rates.mean()).tolist(), strict=True):
            speeds.setdefault(pool, []).append(rate)
    return {pool: sum(rates) / len(rates) for pool, rates in speeds.items()}


def have_deadlines(jobs: Sequence[SizedJob]) -> bool:
    return any(job.job.deadline_days is not None for job in jobs)


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
