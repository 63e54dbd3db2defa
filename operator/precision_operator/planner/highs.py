"""One run of HiGHS within the time that is left, by a process that can be ended at any moment."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import ClassVar, Literal

from precision_operator.planner.highs_process import Model, Solved, serve
from precision_operator.planner.quantities import Problem, Unusable

NARROW = "narrow the choice with jobs[].pools, jobs[].recipes, jobs[].minGPUs and maxGPUs"
GRACE = 0.1
"""Part of its time by which HiGHS may pass it, since it looks at its clock now and then; then its process is ended."""
LEAST_GRACE_SECONDS = 0.3


class NotKnown(Unusable):
    """No plan was found, and that there is none is not proved."""

    phase: ClassVar[Literal["TimedOut", "NotFound"]]
    """What the status then says."""


class NoneFound(NotKnown):
    """The search ended before its time without a plan."""

    phase = "NotFound"


class OutOfTime(NotKnown):
    """HiGHS found no plan at all within its time."""

    phase = "TimedOut"

    def __init__(self, seconds: float) -> None:
        text = f"no answer within {seconds:g} s: raise it, or {NARROW}"
        super().__init__(Problem("spec.solver.timeLimitSeconds", text))


@dataclass
class SolverProcess:
    """The process and our end of its pipe; started when it is first needed, and again after it was ended.

    `serve` is what runs in it.
    """

    serve: Callable[[Connection, Connection], None] = serve
    process: SpawnProcess | None = None
    pipe: Connection | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, model: Model) -> Solved:
        """The last word of HiGHS, or, where its time is over or its process ended, the best solution until then.

        `state` is `limit` where a solution was found and its optimality is not proved, and where none was found in
        time.
        """
        with self.lock:
            return self._run(model)

    def end(self) -> None:
        """End the process, whatever it is at."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.pipe is not None:
            self.pipe.close()
        self.process = self.pipe = None

    def _ready(self) -> Connection:
        if self.process is None or not self.process.is_alive() or self.pipe is None:
            self.end()
            context = get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=self.serve, args=(other, self.pipe), daemon=True)
            self.process.start()
            other.close()
        return self.pipe

    def _run(self, model: Model) -> Solved:
        pipe = self._ready()
        best = Solved("limit")
        try:
            pipe.send(model)
            until = time.monotonic() + model.seconds + max(LEAST_GRACE_SECONDS, GRACE * model.seconds)
            while pipe.poll(max(0.0, until - time.monotonic())):
                answer: Solved = pipe.recv()
                if answer.state != "better":
                    return answer if answer.x is not None or best.x is None else _with(best, answer)
                best = Solved("limit", answer.x, answer.bound)
        except (EOFError, OSError):
            self.end()
            return best if best.x is not None else Solved("failed", text="the solver's process ended")
        self.end()
        return best


_SOLVER = SolverProcess()
atexit.register(_SOLVER.end)


def process_id() -> int | None:
    """The process that solves; None where there is none now."""
    return _SOLVER.process.pid if _SOLVER.process is not None else None


def run(model: Model) -> Solved:
    """One model, by the process that all plans of this one share."""
    return _SOLVER.run(model)


def _with(best: Solved, last: Solved) -> Solved:
    """The best solution with the last bound."""
    return Solved("limit", best.x, max(best.bound, last.bound))


def share(until: float, parts: int) -> float:
    """When the first of so many equal parts of the time that is left ends (time.monotonic())."""
    now = time.monotonic()
    return now + max(until - now, 0.0) / parts
