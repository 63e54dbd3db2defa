"""A process for each device: a CUDA error takes one variant of one device, a hung kernel is killed at its deadline.

The parent never has a CUDA context. It waits in short turns, so that a wish to stop is heard within moments.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from precision_agent.backends.factory import Opening
from precision_agent.cases import Variant
from precision_agent.protocol import Device, Refusal, ResultProvenance
from precision_agent.sampling.devices import Call, Machine, Stop, machine_of
from precision_agent.sampling.sample import STOPPED
from precision_api.exchange.exits import BACKEND_UNAVAILABLE, NOTHING_FINISHED
from precision_api.exchange.result import FATAL, Failure
from precision_api.exchange.result import Backend as BackendName

TURN_SECONDS = 0.2
"""How long a wish to stop may go unheard."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds before a silent process counts as hung, beyond what its call is expected to take."""

    start: float = 300.0
    """Importing torch and Transformer Engine from a cold image layer takes a minute and more."""
    call: float = 180.0
    """The first call of a shape compiles kernels and asks cuBLAS for its heuristics."""


PATIENCE = Patience()


class Worker:
    """One device's process, begun when it is first needed and again after its end."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._process: subprocess.Popen[bytes] | None = None
        self.wire: Connection | None = None

    def start(self) -> None:
        """Begins the process; its first answer tells how that went."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "precision_agent.sampling.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the parent alone
                env=os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            )
        self.wire = Connection(ours.detach())
        self.wire.send(self._opening)

    def died(self) -> str:
        """Reaps a process that has closed its end, and how it ended, in words."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        code = self._process.poll()
        self.end()
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with code {code}"

    def end(self) -> None:
        """Ends the process at once, whatever it does."""
        if self.wire:
            self.wire.close()
            self.wire = None
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class ProcessPool:
    """The devices of a node, each in its process; `stop` is asked while waiting."""

    def __init__(self, openings: Sequence[Opening], promised: int, stop: Stop, patience: Patience = PATIENCE) -> None:
        self._workers = [Worker(opening) for opening in openings]
        self._promised, self._stop, self._patience = promised, stop, patience
        self._withdrawn: dict[tuple[int, Variant], Failure] = {}
        self._name: BackendName | None = None
        self._machine: Machine | None = None

    @property
    def name(self) -> BackendName:
        if self._name is None:
            self._name = self._must(Call("name"))[0]
        return self._name

    def machine(self) -> Machine:
        """What the processes say of their devices, asked once."""
        if self._machine is None:
            devices: Sequence[Device] = self._must(Call("device"))
            self._machine = machine_of(devices, self._promised)
        return self._machine

    def provenance(self) -> ResultProvenance:
        """Measured, here and now: what replays has no process. Of a CPU it is no more than a trial of the way."""
        return ResultProvenance("trial" if self.name == "torch-cpu" else "measured")

    def all(self, call: Call) -> tuple[Any, ...]:
        """Each device's answer; all work at the same time."""
        return self._ask([(index, call) for index in range(len(self._workers))])

    def spread(self, calls: Sequence[Call]) -> tuple[Any, ...]:
        """As many calls at a time as there are devices."""
        answers: list[Any] = []
        width = len(self._workers)
        for start in range(0, len(calls), width):
            answers += self._ask(list(enumerate(calls[start : start + width])))
        return tuple(answers)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()

    def _must(self, call: Call) -> tuple[Any, ...]:
        """Answers without which there is no run; raises Refusal."""
        answers = self.all(call)
        for answer in answers:
            if isinstance(answer, Refusal):
                raise answer
            if isinstance(answer, Failure) and answer.reason in STOPPED:
                raise Refusal(NOTHING_FINISHED, f"{answer.message}; no palindrome was complete"[:500])
            if isinstance(answer, Failure):
                raise Refusal(BACKEND_UNAVAILABLE, f"{answer.reason}: {answer.message}"[:500])
        return answers

    def _ask(self, asked: Sequence[tuple[int, Call]]) -> tuple[Any, ...]:
        answers: dict[int, Any] = {}
        todo = {}
        ended = self._stop()
        if ended:
            return (ended,) * len(asked)
        for index, call in asked:
            withdrawn = call.variant and self._withdrawn.get((index, call.variant))
            if withdrawn:
                answers[index] = withdrawn
            else:
                todo[index] = call
        self._begin(todo, answers)
        for index, call in todo.items():
            if index not in answers:
                self._send(index, call, answers)
        waiting = [index for index in todo if index not in answers]
        seconds = max((todo[index].seconds for index in waiting), default=0.0)
        self._collect(waiting, answers, 3 * seconds + self._patience.call)
        for index, call in todo.items():
            answer = answers[index]
            if call.variant and isinstance(answer, Failure) and answer.reason in FATAL:
                self._withdrawn[index, call.variant] = answer
                self._workers[index].end()
        return tuple(answers[index] for index, _ in asked)

    def _begin(self, todo: dict[int, Call], answers: dict[int, Any]) -> None:
        """Starts the processes that are not there; one that can't start answers with its reason."""
        fresh = [index for index in todo if self._workers[index].wire is None]
        for index in fresh:
            self._workers[index].start()
        started: dict[int, Any] = {}
        self._collect(fresh, started, self._patience.start)
        for index, answer in started.items():
            if answer is not None:
                answers[index] = answer
                self._workers[index].end()

    def _send(self, index: int, call: Call, answers: dict[int, Any]) -> None:
        wire = self._workers[index].wire
        assert wire is not None
        try:
            wire.send((call.method, call.arguments))
        except OSError:
            answers[index] = Failure(reason="worker_died", message=self._workers[index].died())

    def _collect(self, waiting: Sequence[int], answers: dict[int, Any], limit: float) -> None:
        """Fills in an answer for each that is waited for: its own, its death, `hung`, or why the run must end."""
        wires = {self._workers[index].wire: index for index in waiting}
        latest = time.monotonic() + limit
        while wires:
            for ready in wait([wire for wire in wires if wire], TURN_SECONDS):
                index = wires.pop(ready)  # type: ignore[call-overload]
                answers[index] = self._received(index)
            ended = self._stop()
            late = Failure(reason="hung", message=f"no answer within {limit:.0f} s: its process was killed")
            if wires and (ended or time.monotonic() > latest):
                for index in wires.values():
                    self._workers[index].end()
                    answers[index] = ended or late
                return

    def _received(self, index: int) -> Any:
        wire = self._workers[index].wire
        assert wire is not None
        try:
            return wire.recv()
        except (EOFError, OSError):
            return Failure(reason="worker_died", message=self._workers[index].died())
