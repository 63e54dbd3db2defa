"""The clock of the process that samples power, in a rehearsal: no tick is lost while others use the processors.

The simulated sensor remembers what the device drew at each moment, so a tick that comes late can be asked as if it had
come in time. On a busy machine the sampler would else leave samples out, and energy would be void (`sample_gap`) for a
reason that has nothing to do with what is rehearsed. A real sensor only tells of now.
"""

import ctypes
import select
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

SAMPLER = "precision_agent.power.sensor_sampling"
"""The module that the agent starts as a process of its own."""
Select = Callable[[Sequence[Any], Sequence[Any], Sequence[Any], float], tuple[list[Any], ...]]


class Ticks:
    """A clock that moves only where its process waits: by as long as it asked for, however much later it wakes up.

    `tell`: given each moment, in seconds of CLOCK_MONOTONIC, before anything is asked of the sensor at it.
    """

    def __init__(self, now: Callable[[], float], wait: Select, tell: Callable[[float], None]) -> None:
        self._now, self._wait, self._tell = now, wait, tell
        self._at: float | None = None

    def monotonic(self) -> float:
        """The moment of the tick at hand; the first one is now."""
        if self._at is None:
            self._move(self._now())
        assert self._at is not None
        return self._at

    def select(
        self, read: Sequence[Any], write: Sequence[Any], error: Sequence[Any], timeout: float
    ) -> tuple[list[Any], ...]:
        """As select.select, with the rest of the time to the next tick; a tick that is over is not waited for."""
        until = self.monotonic() + timeout
        ready = self._wait(read, write, error, max(0.0, until - self._now()))
        self._move(until)
        return ready

    def _move(self, to: float) -> None:
        self._at = to
        self._tell(to)


def is_sampler(command: Sequence[str]) -> bool:
    """Whether this command line of Python starts the sampler."""
    return ("-m", SAMPLER) in pairwise(command)


def install() -> None:
    if not is_sampler(sys.orig_argv):
        return
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.fake_nvml_set_moment.argtypes = [ctypes.c_double]
    ticks = Ticks(time.monotonic, select.select, library.fake_nvml_set_moment)
    time.monotonic, select.select = ticks.monotonic, ticks.select  # type: ignore[assignment]
