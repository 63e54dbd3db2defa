"""When a run must end: at its deadline or when it is told to, with time kept for profiles of what was timed."""

from collections.abc import Callable

from precision_agent.sampling.sample import LEAST_ABBA_BLOCKS
from precision_api.exchange.result import TERMINATED, Failure

RESERVE_SECONDS = 5.0
"""Kept of the deadline for assessing and publishing; a tenth of it where the deadline is short."""
MOST_PROFILES_SHARE = 0.25
"""Of the deadline, at most, that is kept for profiles."""
AFTER_TERMINATED_SECONDS = 15.0
"""For profiles after SIGTERM: half of the 30 s that a pod of ours has to end in; a sample may have to end before, and
the result has to be written after."""


class RunStops:
    """Asks `terminated` and the clock (seconds); profiles are expected to take `profile_seconds`.

    Without figures there is nothing to profile: then a wish to stop ends everything at once.
    """

    def __init__(
        self, terminated: Callable[[], bool], clock: Callable[[], float], deadline: float, profile_seconds: float
    ) -> None:
        self._terminated, self._clock, self._deadline = terminated, clock, deadline
        self._latest = clock() + deadline - min(RESERVE_SECONDS, deadline / 10)
        self._kept = min(profile_seconds, MOST_PROFILES_SHARE * deadline)
        self._profiles = False
        self._ended_at: float | None = None

    def timed(self, abba_blocks: int) -> None:
        """So many are complete: with enough for a figure, time is kept to profile what was timed."""
        self._profiles = abba_blocks >= LEAST_ABBA_BLOCKS

    def profiled(self) -> None:
        """Nothing is left for which time is kept."""
        self._profiles = False

    def sampling(self) -> Failure | None:
        """Why nothing more may be timed, or None."""
        if self._asked_to_end() is not None:
            return told_to_stop()
        return self._late() if self._clock() >= self._latest - self._kept else None

    def everything(self) -> Failure | None:
        """Why nothing at all may be begun, and what runs is to be ended; or None."""
        ended_at, now = self._asked_to_end(), self._clock()
        if ended_at is not None and not (self._profiles and now < ended_at + AFTER_TERMINATED_SECONDS):
            return told_to_stop()
        return self._late() if now >= self._latest else None

    def _asked_to_end(self) -> float | None:
        """When the wish to end was first seen."""
        if self._ended_at is None and self._terminated():
            self._ended_at = self._clock()
        return self._ended_at

    def _late(self) -> Failure:
        return Failure(reason="deadline", message=f"the deadline of {self._deadline:g} s was reached")


def told_to_stop() -> Failure:
    """Somebody wants the run to end."""
    return Failure(reason=TERMINATED, message="the agent was told to stop")
