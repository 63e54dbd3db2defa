"""Which sizes of a job are offered: those that prices picked, what lies beside them, and a spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from precision_operator.planner.solving.options import Picked
from precision_operator.planner.solving.size_work import SizedJob, by_pool

SPREAD = 4
"""Pools of which a job is offered some choices in any case, the cheapest ones."""
PARTS = (1, 2, 3, 4, 6, 8)
"""A pool's largest choice and even parts of it, so that jobs fill the pool side by side."""
NEAR = 2
"""Places in the arrays beside a chosen one that are offered too."""


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
