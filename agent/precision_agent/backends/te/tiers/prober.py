"""One process beside a GPU's own that tries recipes in turn: loading everything once costs less than for each recipe.

A crash or a CUDA error ends that process, so it is nobody else's: what fails where others were tried before is tried
once more in a fresh one, and that answer counts.
"""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import IO, Protocol

from precision_agent.backends.te.tiers import probe
from precision_agent.backends.te.tiers.probe import TIMEOUT_SECONDS, Ended
from precision_api.facts.recipes import Recipe

COMMAND = (sys.executable, "-m", probe.__name__)


class Asks(Protocol):
    """Tries a recipe somewhere else."""

    def ask(self, recipe: Recipe) -> Ended:
        """What came of it."""

    def end(self) -> None:
        """Gives back what it holds; asking begins anew."""


class Prober:
    """The process is begun by the first question and lives until `end`: it holds memory of the GPU.

    `timeout`: seconds after which a recipe counts as hung, loading everything among them.
    """

    def __init__(self, command: Sequence[str] = COMMAND, timeout: float = TIMEOUT_SECONDS) -> None:
        self._command, self.timeout = tuple(command), timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Connection | None = None
        self._told: IO[bytes] | None = None

    def ask(self, recipe: Recipe) -> Ended:
        """The answer of a process in which nothing was broken before."""
        used = self._wire is not None
        ended = self._asked(recipe)
        if used and _broken(ended) and ended.code is not None:  # a hung one has taken its time already
            ended = self._asked(recipe)
        return ended

    def end(self) -> None:
        """Ends the process, whatever it does."""
        if self._wire:
            self._wire.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        if self._told:
            self._told.close()
        self._wire = self._process = self._told = None

    def _asked(self, recipe: Recipe) -> Ended:
        wire = self._wire or self._begun()
        try:
            wire.send_bytes(recipe.encode())
            ended = Ended(0, wire.recv_bytes().decode(), "") if wire.poll(self.timeout) else Ended(None, "", "")
        except (EOFError, OSError):
            ended = self._died()
        if _broken(ended):
            self.end()
        return ended

    def _begun(self) -> Connection:
        ours, theirs = socket.socketpair()
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._told,
                stderr=self._told,
                pass_fds=[theirs.fileno()],
            )
        self._wire = Connection(ours.detach())
        return self._wire

    def _died(self) -> Ended:
        """How a process ended that closed its end, with what it said last."""
        assert self._process is not None
        assert self._told is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        code = self._process.wait()
        self._told.seek(0)
        return Ended(code, "", self._told.read().decode(errors="replace"))


def _broken(ended: Ended) -> bool:
    """Whether the process is gone, silent, or may have been spoiled: by an error that the hardware does not explain."""
    if ended.code != 0:
        return True
    document = json.loads(ended.stdout)
    return "error" in document and bool(document.get("hint", [True])[0])
