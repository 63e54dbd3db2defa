"""The time that one plan has. Every stage is handed the clock and looks at it in its loops, so none runs on unseen."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from precision_operator.planner.inputs.quantities import InputProblem, UnusableInput

NARROW = "narrow the choice with jobs[].pools, jobs[].recipes, jobs[].minGPUs and maxGPUs"


class NotKnown(UnusableInput):
    """No plan was found, and that there is none is not proved."""

    phase: ClassVar[Literal["TimedOut", "NotFound"]]
    """What the status then says."""


class NoneFound(NotKnown):
    """The search ended before its time without a plan."""

    phase = "NotFound"


class OutOfTime(NotKnown):
    """No plan was found within the time limit."""

    phase = "TimedOut"

    def __init__(self, seconds: float) -> None:
        text = f"no plan within {seconds:g} s: raise it, or {NARROW}"
        super().__init__(InputProblem("spec.solver.timeLimitSeconds", text))


@dataclass(frozen=True, slots=True)
class PlanClock:
    """`until` is a moment of `now` (seconds); `limit` is the time limit as the user gave it, for messages."""

    limit: float
    until: float
    now: Callable[[], float] = time.monotonic

    @property
    def left(self) -> float:
        """Seconds that are left; 0 when the time is over."""
        return max(0.0, self.until - self.now())

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.now() >= self.until

    def part(self, share: float) -> "PlanClock":
        """The first share of the time that is left."""
        now = self.now()
        return replace(self, until=now + max(0.0, self.until - now) * share)

    def check(self) -> None:
        """Raises OutOfTime when the time is over."""
        if self.over:
            raise OutOfTime(self.limit)


ENDLESS = PlanClock(math.inf, math.inf)


def clock_of(seconds: float, now: Callable[[], float] = time.monotonic) -> PlanClock:
    """A clock that starts now."""
    return PlanClock(seconds, now() + seconds, now)
