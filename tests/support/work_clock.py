"""A clock whose time passes with work, not with the wall's: the same on every machine, however busy it is."""

import sys
from types import FrameType, TracebackType
from typing import Any, Self

CALLS_PER_SECOND = 20_000
"""Calls of functions that are a second here: some hundredths of one on a quiet core, so small problems take long."""


class WorkClock:
    """Counts calls of functions, in Python and in C, while it is entered; `now` is seconds of such work.

    What another process does takes no time here.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.looks = 0
        self._last = 0
        self.longest = (0.0, "")
        """The most seconds between two looks at the clock, and where the second look was."""

    def now(self) -> float:
        """Seconds of work until now."""
        self.looks += 1
        passed = (self.calls - self._last) / CALLS_PER_SECOND
        if passed > self.longest[0]:
            self.longest = passed, _where(sys._getframe(1))
        self._last = self.calls
        return self.calls / CALLS_PER_SECOND

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


def _where(frame: FrameType | None) -> str:
    names = []
    while frame is not None and len(names) < 6:
        names.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)
