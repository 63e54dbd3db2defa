"""How far a run is, on stderr, so that stdout stays clean: a bar on a terminal, else lines for those who read a log.

What it finds out on its way is told as lines of text.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from precision_agent.cases import Case, GemmCase
from precision_agent.method.duration import Phase, total_seconds
from precision_agent.protocol import Probe
from precision_agent.results.profiling import After
from precision_api.exchange.progress_line import LINE_SECONDS, progress_line
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import Recipe

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
RUNS = ("ok", "emulated")
"""Availabilities of a recipe that is measured."""


def share_done(plan: Sequence[Phase], name: str, done: float) -> float:
    """Share of the whole plan (0 to 1) when `done` of its phase `name` is."""
    at = [phase.name for phase in plan].index(name)
    before = math.fsum(phase.seconds for phase in plan[:at])
    return (before + max(0.0, min(done, 1.0)) * plan[at].seconds) / total_seconds(plan)


def seconds_left(plan: Sequence[Phase], name: str, done: float, left: float) -> float:
    """Seconds to the end: `left` of this phase where they are known (else the plan's), then the plan of the others."""
    at = [phase.name for phase in plan].index(name)
    of_phase = left if math.isfinite(left) else (1 - max(0.0, min(done, 1.0))) * plan[at].seconds
    return of_phase + math.fsum(phase.seconds for phase in plan[at + 1 :])


def clock(seconds: float) -> str:
    """As minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"


class Position:
    """Where a run is in its plan; a phase that is not in the plan leaves it where it was."""

    def __init__(self, plan: Sequence[Phase]) -> None:
        self._plan = plan
        self._names = tuple(phase.name for phase in plan)
        self._at = (self._names[0] if plan else "", 0.0, math.nan)

    def move(self, phase: str, done: float, left: float) -> None:
        """To a phase, the share of it that is done, and the seconds left of it (NaN: unknown)."""
        if phase in self._names:
            self._at = (phase, done, left)

    @property
    def share(self) -> float:
        """Of the whole plan, 0 to 1."""
        name, done, _ = self._at
        return share_done(self._plan, name, done)

    @property
    def left(self) -> str:
        """Minutes and seconds to the end; empty without a plan."""
        return clock(seconds_left(self._plan, *self._at)) if self._plan else ""


class Bar:
    """Shows progress on a terminal while it is open; call it with phase, share done and seconds left of the phase.

    NaN seconds are unknown.
    """

    def __init__(self, plan: Sequence[Phase], console: Console) -> None:
        self._position = Position(plan)
        columns = (TextColumn("{task.description:<28}"), BarColumn(), TextColumn("{task.fields[left]} left"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task = self._progress.add_task("starting", total=1.0, left=self._position.left)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, phase: str, done: float, left: float) -> None:
        self._position.move(phase, done, left)
        words, share = WORDS.get(phase, phase), self._position.share
        self._progress.update(self._task, completed=share, description=words, left=self._position.left)

    def note(self, text: str) -> None:
        """Prints a line above the bar."""
        self._progress.console.print(text, highlight=False, markup=False)


class Lines:
    """Writes progress as lines, each with the wall-clock seconds since it was made; called like a Bar.

    A line for each phase, for a long one another every 30 s. Each is flushed at once: `kubectl logs -f` shows it, and
    it stays where the process is killed. Without a plan no line has the time left: a replay's time does not pass.
    """

    def __init__(self, plan: Sequence[Phase], stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._position = Position(plan)
        self._stream, self._monotonic = stream, monotonic
        self._began = monotonic()
        self._phase, self._written = "", -math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def __call__(self, phase: str, done: float, left: float) -> None:
        """Writes a line where the phase is another one, or the last line of it is long ago."""
        self._position.move(phase, done, left)
        now = self._monotonic()
        if phase == self._phase and now - self._written < LINE_SECONDS:
            return
        self._phase, self._written = phase, now
        words, remaining = WORDS.get(phase, phase), self._position.left
        self.note(f"{words}, about {remaining} left" if remaining else words)

    def note(self, text: str) -> None:
        """Writes one line, whatever line ends `text` has."""
        elapsed = self._monotonic() - self._began
        # A measurement goes on where nobody reads its log any more.
        with contextlib.suppress(OSError):
            print(progress_line(elapsed, text), file=self._stream, flush=True)


def request_note(request: MeasurementRequest) -> str:
    """Whose request it is and when it must end."""
    whose = f"{request.namespace}/{request.profile}, run {request.run}, attempt {request.attempt}"
    return f"node {request.node.name}: {whose}; deadline {request.deadline_seconds} s"


def probe_notes(probes: Mapping[Recipe, Probe]) -> Iterator[str]:
    """The recipes that run here, then each one that does not, with its reason."""
    runs = [recipe for recipe, probe in probes.items() if probe.availability in RUNS]
    yield f"{len(runs)} of {len(probes)} recipes run here: {', '.join(runs) or 'none'}"
    for recipe, probe in probes.items():
        if recipe not in runs:
            yield f"recipe {recipe}: {probe.availability}: {probe.reason}"


def failure_note(variant: str, case: Case, failure: Failure) -> str:
    """One case of a variant that has no figure, with its reason."""
    what = f"{case.name} {case.pass_} {case.mode}" if isinstance(case, GemmCase) else "training"
    return f"recipe {variant}: {what}: {failure.reason}: {failure.message}"


def after_notes(after: After) -> Iterator[str]:
    """What failed after the ABBA blocks: kernels that were not seen, depths that were not checked, loss runs."""
    yield from (f"recipe {variant}: {text}" for variant, texts in after.notes.items() for text in texts)
    for variant, loss in after.losses.items():
        if loss.failure:
            yield f"recipe {variant}: loss run: {loss.failure.reason}: {loss.failure.message}"
