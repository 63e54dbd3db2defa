"""When jobs start, once it is decided what each one gets: list scheduling by priority.

All jobs without `after` start at once. A job that waits for others starts when they have ended and its pool has the
GPUs and the blocks, and the facility the power, that it needs; of several that could, the one of higher priority goes
first, then the one that must end first, then the one named first. So GPU and power limits hold at every instant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from precision_operator.planner.options import Option, blocks
from precision_operator.planner.terms import JobTerms, Limits

SLACK = 1e-6
"""Relative tolerance of limits: what a sum of floats may be off."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One job's place in time, in days from the start."""

    option: Option
    start: float
    end: float


def schedule(
    chosen: Sequence[Option], limits: Limits, length: Callable[[Option], float] = lambda option: option.days
) -> tuple[Slot, ...] | None:
    """A slot for each option, in their order; None where the jobs that start at once break a limit together."""
    latest = latest_ends(option.job for option in chosen)
    waiting = sorted(chosen, key=lambda o: (-o.job.priority, latest[o.job.name], o.job.name))
    ended: dict[str, float] = {}
    running: dict[str, Slot] = {}
    done: dict[str, Slot] = {}
    now = 0.0
    while waiting:
        for option in [*waiting]:
            if set(option.job.after) <= ended.keys() and fits([*(s.option for s in running.values()), option], limits):
                waiting.remove(option)
                running[option.job.name] = Slot(option, now, now + length(option))
            elif not option.job.after:
                return None
        if not running:
            return None
        now = min(slot.end for slot in running.values())
        for name, slot in [*running.items()]:
            if slot.end <= now:
                done[name] = running.pop(name)
                ended[name] = slot.end
    done |= running
    return tuple(done[option.job.name] for option in chosen)


def latest_ends(jobs: Iterable[JobTerms]) -> Mapping[str, float]:
    """By job, the day on which it must have ended: its deadline, or the first one of what waits for it; infinity."""
    by_name = {job.name: job for job in jobs}
    found = {name: job.deadline_days or math.inf for name, job in by_name.items()}
    moved = [*by_name]
    while moved:
        name = moved.pop()
        for before in by_name[name].after:
            if found[name] < found[before]:
                found[before] = found[name]
                moved.append(before)
    return found


def fits(together: Sequence[Option], limits: Limits) -> bool:
    """Whether these may run at one time: GPUs and blocks of each pool, power of each pool and of all."""
    by_pool: dict[str, list[Option]] = {}
    for option in together:
        by_pool.setdefault(option.pool.name, []).append(option)
    return all(map(_pool_fits, by_pool.values())) and _below(sum(watts(o) for o in together), limits.watts)


def _pool_fits(options: Sequence[Option]) -> bool:
    pool = options[0].pool
    if sum(option.gpus for option in options) > pool.gpus:
        return False
    if not _below(sum(watts(option) for option in options), pool.terms.power_watts):
        return False
    return all(
        sum(o.gpus // size for o in options if o.block_gpus >= size) <= blocks(pool, size)
        for size in {option.block_gpus for option in options if option.block_gpus > pool.gpus_per_node}
    )


def _below(value: float, limit: float | None) -> bool:
    return limit is None or value <= limit * (1 + SLACK)


def watts(option: Option) -> float:
    """Facility watts by enforced limits; 0 where no limit is known, which no power budget lets pass."""
    return option.limit_watts or 0.0


def peak(slots: Sequence[Slot], value: Callable[[Option], float]) -> float:
    """The largest sum of `value` over the jobs that run at one time."""
    return max((sum(value(s.option) for s in slots if s.start <= at.start < s.end) for at in slots), default=0.0)


def ends(slots: Sequence[Slot]) -> Mapping[str, float]:
    """By job, the day on which it ends."""
    return {slot.option.job.name: slot.end for slot in slots}
