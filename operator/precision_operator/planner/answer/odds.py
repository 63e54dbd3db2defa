"""The chance that deadlines are kept, each and all of them: simulated by the parts of the rates' bands, one fixed seed.

Jobs share what they have in common: one method of measurement, one table of efficiencies. Each part's draws are
stratified (one in every equal slice of its law), so that few draws are enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from precision_operator.planner.inputs.terms import ENDLESS, PlanClock
from precision_operator.planner.rates.bands import Z_95, BandPart
from precision_operator.planner.solving.options import Option
from precision_operator.planner.solving.schedule import SLACK, JobSlot, followers

SEED = 20_260
DRAWS = 2_000
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Odds:
    """Chances from 0 to 1 that jobs end by their deadlines; jobs without one, or with an upper bound, are not there."""

    by_job: Mapping[str, float]
    all: float | None
    """Of all deadlines together; None where one of them is not known, or there is none."""


def odds(slots: Sequence[JobSlot], across_pools: bool, clock: PlanClock = ENDLESS) -> Odds:
    """The chances of a plan. `across_pools`: jobs of different pools share something, such as a power budget.

    Raises OutOfTime.
    """
    due = {slot.option.job.name: day for slot in slots if (day := slot.option.job.deadline_days) is not None}
    bounded = upper_bounds(slots)
    judged = [name for name in due if name not in bounded]
    if not judged:
        return Odds({}, None)
    ended = _ends(slots, across_pools, clock)
    kept = {name: ended[name] <= due[name] * (1 + SLACK) for name in judged}
    together = np.logical_and.reduce(list(kept.values()))
    by_job = {name: float(np.mean(values)) for name, values in kept.items()}
    return Odds(by_job, float(np.mean(together)) if len(judged) == len(due) else None)


def upper_bounds(slots: Sequence[JobSlot]) -> set[str]:
    """Jobs whose rate is an upper bound, and all that wait for one."""
    options = [slot.option for slot in slots]
    return followers([option.job for option in options], [o.job.name for o in options if o.source.upper_bound])


def _ends(slots: Sequence[JobSlot], any_pool: bool, clock: PlanClock) -> Mapping[str, Values]:
    """By job, the day on which it ends in each draw.

    Jobs keep the plan's order: one starts when all have ended that the plan ends before it starts, of those that it
    waits for or shares room with. So whatever takes longer, limits hold.
    """
    factors = _factors([slot.option for slot in slots], clock)
    ends: dict[str, Values] = {}
    ordered = sorted(slots, key=lambda slot: (slot.start, slot.end))
    for slot in ordered:
        clock.check()
        option = slot.option
        before = [
            ends[other.option.job.name]
            for other in ordered
            if other.end <= slot.start * (1 + SLACK)
            and (any_pool or other.option.pool.name == option.pool.name or other.option.job.name in option.job.after)
        ]
        starts = np.maximum.reduce(before) if before else np.full(DRAWS, slot.start)
        starts = np.maximum(starts, option.job.not_before)
        ends[option.job.name] = starts + option.days / factors[option.job.name]
    return ends


def _factors(options: Sequence[Option], clock: PlanClock = ENDLESS) -> Mapping[str, Values]:
    """By job, factors on its rate."""
    rng = np.random.default_rng(SEED)
    slices = np.array([NormalDist().inv_cdf((i + 0.5) / DRAWS) for i in range(DRAWS)])
    shared: dict[str, Values] = {}
    factors: dict[str, Values] = {}
    for option in options:
        clock.check()
        made = np.ones(DRAWS)
        for part in option.speed.parts:
            if part.shared not in shared or not part.shared:
                shared[part.shared] = rng.permutation(slices)
            made = made * _of_part(part, shared[part.shared])
        factors[option.job.name] = made
    return factors


def _of_part(part: BandPart, z: Values) -> Values:
    """The part's factors at these draws of the standard normal law."""
    if part.values:
        order = np.argsort(np.argsort(z))
        return np.array(part.values)[order * len(part.values) // len(z)]
    factors: Values = np.exp(np.where(z > 0, np.log(part.high), -np.log(part.low)) * z / Z_95)
    return factors
