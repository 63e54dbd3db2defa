"""Processes of one cluster: started, asked and ended through the supervisor of their run folder."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_lab.processes import cgroups
from precision_lab.processes.supervisor import DETACHED, IDENTITY, OWNERS, SOCKET, Identity

PREFIX = "precision-lab-"
START_SECONDS = 20.0
ANSWER_SECONDS = 60.0
END_SECONDS = 60.0


class ProcessError(Exception):
    """A process of the cluster could not be started, or ended too early; the message shows the end of its log."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process as the supervisor sees it: `exit` is None while it runs."""

    name: str
    pid: int
    exit: int | None


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one run folder. Any process of this user may ask; owners keep it alive."""

    run_dir: Path
    socket_name: str = SOCKET
    """Which supervisor of the folder starts and stops them: the one outside, or the one inside of its sandbox."""

    def start(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, grace_seconds: float = 3.0
    ) -> int:
        """Starts a program (its output goes to `logs/<name>`) and returns its id. ProcessError if it can't run."""
        request = {
            "name": name,
            "argv": [str(part) for part in argv],
            "env": {**os.environ, **(env or {})},
            "cwd": os.getcwd(),
            "grace_seconds": grace_seconds,
        }
        return self._ask("start", **request)[name].pid

    def restart(self, name: str) -> None:
        """Starts a program that has ended once more, exactly as it was started. Raises ProcessError."""
        self._ask("restart", name=name)

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """Ends a process: by `number`, and by SIGKILL when its grace is over. Returns when it is gone."""
        self._ask("stop", name=name, signal=int(number))

    def signal(self, name: str, number: int) -> None:
        """Sends a signal and does not wait (SIGSTOP, SIGCONT, SIGKILL)."""
        self._ask("signal", name=name, signal=int(number))

    def states(self) -> dict[str, ProcessState]:
        """Every process that was started here, in order."""
        return self._ask("list")

    def log(self, name: str) -> str:
        """All that the process has said so far, on stdout and stderr."""
        return (self.run_dir / "logs" / name).read_text(errors="replace")

    def check(self, name: str) -> None:
        """Raises ProcessError with the end of its log if the process has ended."""
        state = self.states()[name]
        if state.exit is not None:
            tail = self.log(name).strip()[-1500:]
            raise ProcessError(f"{name} ended with {state.exit} right after its start. It said: {tail}")

    def own(self) -> None:
        """Makes this process an owner: while it lives, so does the cluster."""
        (self.run_dir / OWNERS / str(Identity.own())).touch()

    def disown(self) -> None:
        """This process owns the cluster no longer; the last owner's leaving ends it."""
        (self.run_dir / OWNERS / str(Identity.own())).unlink(missing_ok=True)

    def detach(self) -> None:
        """From now on the cluster outlives its owners, until `end`."""
        (self.run_dir / DETACHED).touch()

    @property
    def detached(self) -> bool:
        """Whether the cluster outlives its owners."""
        return (self.run_dir / DETACHED).exists()

    @property
    def owned(self) -> bool:
        """Whether an owner lives: a command that is still at work with the cluster."""
        owners = [Identity.parse(path.name) for path in (self.run_dir / OWNERS).glob("*")]
        return any(owner is not None and owner.alive() for owner in owners)

    def supervisor(self) -> Identity | None:
        """The supervisor's process, or None before it has started and after it has gone."""
        return supervisor_of(self.run_dir)

    def end(self) -> None:
        """Stops everything that the supervisor started, and removes the run folder. Returns when all is gone."""
        supervisor = self.supervisor()
        if supervisor:
            supervisor.signal(signal.SIGTERM)
            if not _is_gone(supervisor, END_SECONDS):
                supervisor.signal(signal.SIGKILL)
                _is_gone(supervisor, 5.0)
        _remove(self.run_dir)

    def _ask(self, do: str, **request: Any) -> dict[str, ProcessState]:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self.run_dir / self.socket_name))
                with connection.makefile("rw") as stream:
                    stream.write(json.dumps({"do": do, **request}) + "\n")
                    stream.flush()
                    answer = json.loads(stream.readline())
        except (OSError, ValueError) as problem:
            if self.supervisor() is None:
                raise ProcessError(f"The cluster of {self.run_dir} is gone: another command has ended it.") from problem
            raise ProcessError(f"asking the keeper of {self.run_dir}: {problem}") from problem
        if "error" in answer:
            raise ProcessError(f"{do} {request.get('name', '')}: {answer['error']}")
        return {name: ProcessState(name, state["pid"], state["exit"]) for name, state in answer["processes"].items()}


def supervisor_of(run_dir: Path) -> Identity | None:
    """The living supervisor of a run folder."""
    try:
        supervisor = Identity.parse((run_dir / IDENTITY).read_text())
    except FileNotFoundError:
        return None
    return supervisor if supervisor and supervisor.alive() else None


def launch(name: str = "") -> Processes:
    """A new run folder with its supervisor, owned by this process.

    A named folder can be found again by `named`; ProcessError when one of that name is alive.
    """
    sweep()
    run_dir = _new_folder(name)
    for part in ("logs", OWNERS):
        (run_dir / part).mkdir()
    processes = Processes(run_dir)
    processes.own()
    with (run_dir / "logs" / "keeper").open("ab") as log:
        command = [sys.executable, "-m", "precision_lab.processes.supervisor", str(run_dir)]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=True)
    for _ in ticks(START_SECONDS, 0.01):
        if processes.supervisor() is not None:
            return processes
    raise ProcessError(f"the keeper did not start within {START_SECONDS:.0f} s: {processes.log('keeper')}")


def named(name: str) -> Processes | None:
    """The living cluster of this name, if there is one."""
    run_dir = _named_folder(name)
    return Processes(run_dir) if supervisor_of(run_dir) else None


def end_named(name: str) -> bool:
    """Ends the cluster of this name, also one that is still starting; False when there is none."""
    processes = named(name)
    if processes is None:
        return False
    processes.end()
    return True


def sweep() -> None:
    """Removes run folders of this user whose supervisor and owners are gone (a supervisor that was killed can't)."""
    for run_dir in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(FileNotFoundError):  # whoever is behind it removes it just now
            if run_dir.is_dir() and run_dir.stat().st_uid == os.getuid() and _abandoned(run_dir):
                _remove(run_dir)


def _remove(run_dir: Path) -> None:
    """The folder and the control groups of its real nodes, if it had any."""
    cgroups.remove(run_dir.name)
    shutil.rmtree(run_dir, ignore_errors=True)


def _abandoned(run_dir: Path) -> bool:
    """True when nobody is behind a folder any more; a fresh one without a supervisor may be starting just now."""
    if supervisor_of(run_dir):
        return False
    if (run_dir / IDENTITY).exists():
        return True
    return not Processes(run_dir).owned and time.time() - run_dir.stat().st_mtime > START_SECONDS


def _new_folder(name: str) -> Path:
    if not name:
        return Path(tempfile.mkdtemp(prefix=PREFIX))
    run_dir = _named_folder(name)
    try:
        run_dir.mkdir(mode=0o700)
    except FileExistsError:
        raise ProcessError(
            f"A cluster named {name!r} is there already ({run_dir}): end it by `precision-lab down --name {name}`."
        ) from None
    return run_dir


def _named_folder(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"{PREFIX}{os.getuid()}-{name}"


def _is_gone(supervisor: Identity, seconds: float) -> bool:
    return any(not supervisor.alive() for _ in ticks(seconds))


def ticks(seconds: float, pause: float = 0.05) -> Iterator[None]:
    """Again and again, a pause between, for so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(pause)
