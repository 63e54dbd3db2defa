"""One run of HiGHS within the time that is left, by a process that can be ended at any moment."""

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from precision_operator.planner.solving.highs_process import READY, Model, Solved, serve

GRACE = 0.1
"""Part of its time by which HiGHS may pass it, since it looks at its clock now and then; then its process is ended."""
LEAST_GRACE_SECONDS = 0.1


@dataclass
class SolverProcess:
    """The process and our end of its pipe; started when it is first needed, and again after it was ended.

    `serve` is what runs in it.
    """

    serve: Callable[[Connection, Connection], None] = serve
    process: SpawnProcess | None = None
    pipe: Connection | None = None
    asked: bool = False
    """Whether it was asked to say that it is there, and has not answered yet."""
    begun: bool = False
    """Whether it ever was there: until then it loads HiGHS."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Start the process, if there is none, without waiting for it."""
        with self.lock:
            self._ask(self._ready())

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
        self.asked = self.begun = False

    def _ask(self, pipe: Connection) -> None:
        if not self.asked:
            pipe.send(READY)
            self.asked = True

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
        began = time.monotonic()
        best = Solved("limit")
        try:
            pipe = self._ready()
            self._ask(pipe)
            if not pipe.poll(model.seconds):
                if self.begun:
                    self.end()
                return best
            pipe.recv()
            self.asked, self.begun = False, True
            model = replace(model, seconds=max(0.0, began + model.seconds - time.monotonic()))
            pipe.send(model)
            until = time.monotonic() + model.seconds + max(LEAST_GRACE_SECONDS, GRACE * model.seconds)
            while pipe.poll(max(0.0, until - time.monotonic())):
                answer: Solved = pipe.recv()
                if answer.state != "better":
                    if answer.x is not None or best.x is None:
                        return answer
                    return Solved("limit", best.x, max(best.bound, answer.bound))
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


def begin() -> None:
    """Start the process that all plans of this one share, so that it is there when it is needed."""
    _SOLVER.begin()


def run(model: Model) -> Solved:
    """One model, by the process that all plans of this one share."""
    return _SOLVER.run(model)
