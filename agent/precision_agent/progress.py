"""How far a run is, for the person in front of it: one bar with the time left, on stderr, so that stdout stays clean.

On a terminal a bar of its own, elsewhere a line for each phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from precision_agent.plan_seconds import Phase, total_seconds

WORDS = {
    "preflight": "looking at the GPUs",
    "idle": "reading the idle draw",
    "start": "starting",
    "probe": "trying each recipe",
    "prepare": "building and checking",
    "sensor": "calibrating the power sensor",
    "warm_up": "warming up until steady",
    "measure": "measuring",
    "verify": "proving what ran",
    "second_depth": "checking another depth",
    "loss": "loss runs",
    "publish": "writing",
}


def share_done(plan: Sequence[Phase], name: str, done: float) -> float:
    """Share of the whole plan (0 to 1) when `done` of its phase `name` is."""
    at = [phase.name for phase in plan].index(name)
    before = math.fsum(phase.seconds for phase in plan[:at])
    return (before + max(0.0, min(done, 1.0)) * plan[at].seconds) / total_seconds(plan)


def seconds_left(plan: Sequence[Phase], name: str, done: float, left: float) -> float:
    """Seconds to the end: `left` of this phase where they are known (else the plan's), then the plan of the others."""
    at = [phase.name for phase in plan].index(name)
    own = left if math.isfinite(left) else (1 - max(0.0, min(done, 1.0))) * plan[at].seconds
    return own + math.fsum(phase.seconds for phase in plan[at + 1 :])


def clock(seconds: float) -> str:
    """As minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"


class Bar:
    """Shows progress while it is open; call it with phase, share done and seconds left of the phase (NaN: unknown).

    A phase that is not in the plan leaves the bar where it was.
    """

    def __init__(self, plan: Sequence[Phase], console: Console) -> None:
        self._plan = plan
        self._console = console
        self._phase = ""
        self._known = (plan[0].name, 0.0, math.nan)
        columns = (TextColumn("{task.description:<28}"), BarColumn(), TextColumn("{task.fields[left]} left"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task = self._progress.add_task("starting", total=1.0, left=clock(total_seconds(plan)))

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def __call__(self, phase: str, done: float, left: float) -> None:
        """Moves the bar, or prints the phase where there is no terminal and it is another one."""
        if phase in (planned.name for planned in self._plan):
            self._known = (phase, done, left)
        name, so_far, seconds = self._known
        words, remaining = WORDS.get(phase, phase), clock(seconds_left(self._plan, name, so_far, seconds))
        if self._console.is_terminal:
            share = share_done(self._plan, name, so_far)
            self._progress.update(self._task, completed=share, description=words, left=remaining)
        elif phase != self._phase:
            self._console.print(f"{words}, about {remaining} left", highlight=False)
        self._phase = phase
