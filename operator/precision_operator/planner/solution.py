"""A choice for every job put into time, and what that comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from precision_api.capacity_plan import Objective
from precision_operator.planner.options import Option
from precision_operator.planner.program import cost, energy
from precision_operator.planner.schedule import SLACK, Slot, schedule
from precision_operator.planner.terms import Limits, Terms


@dataclass(frozen=True, slots=True)
class Solution:
    """One slot for each job, in the jobs' order. `gap` is of the first objective, relative to its value."""

    slots: tuple[Slot, ...]
    objectives: tuple[Objective, ...]
    values: tuple[float, ...]
    gap: float
    timed_out: bool

    @property
    def chosen(self) -> tuple[Option, ...]:
        """The options."""
        return tuple(slot.option for slot in self.slots)


def scheduled(
    chosen: Sequence[Option], objectives: tuple[Objective, ...], terms: Terms, bound: float, timed_out: bool
) -> Solution | None:
    """The choice in time, if its limits and deadlines hold; `bound` is proved for the first objective."""
    slots = schedule(chosen, terms.limits)
    if slots is None or lateness(chosen, terms.limits) != {}:
        return None
    values = tuple(value(name, slots) for name in objectives)
    gap = max(0.0, values[0] - bound) / abs(values[0]) if values[0] else 0.0
    return Solution(slots, objectives, values, gap, timed_out)


def lateness(chosen: Sequence[Option], limits: Limits) -> Mapping[str, float] | None:
    """By job that misses its deadline, the days by which it does; None where jobs that start at once break a limit."""
    careful = schedule(chosen, limits, lambda option: option.deadline_days)
    if careful is None:
        return None
    held = [(slot, slot.option.job.deadline_days) for slot in careful]
    return {s.option.job.name: s.end - day for s, day in held if day is not None and s.end > day * (1 + SLACK)}


def value(name: Objective, slots: Sequence[Slot]) -> float:
    """What an objective comes to."""
    chosen = [slot.option for slot in slots]
    if name == "time":
        return max((slot.end for slot in slots), default=0.0)
    found = cost(chosen) if name == "cost" else energy(chosen)
    assert found is not None, "options without this figure are left out"
    return found
