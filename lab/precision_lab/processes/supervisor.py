"""The supervisor: a small process that owns every other process of one cluster, and ends them with itself.

Each child gets SIGKILL from the kernel when the supervisor dies (PR_SET_PDEATHSIG), so a crash leaves nothing behind.
The supervisor ends, and takes the run folder with it, when it is told to, on SIGTERM, or when the last owner (a test
run, a command) is gone, unless the folder was detached. It signals its own children only. One thread, because the
kernel ties a child's death signal to the thread that started it.

The run folder is its state: `keeper` (its identity), `owners/<identity>`, `detached`, `logs/`. A process is its id and
when it started: a bare id may have been given to somebody else meanwhile.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_lab.processes import cgroups

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.2
REQUEST_SECONDS = 10.0
SOCKET, IDENTITY, OWNERS, DETACHED = "keeper.sock", "keeper", "owners", "detached"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Child:
    """A process that the supervisor started, alone in its process group."""

    process: subprocess.Popen[bytes]
    grace_seconds: float
    """How long it may take between SIGTERM and SIGKILL."""

    def state(self) -> dict[str, Any]:
        """What others may know about it."""
        return {"pid": self.process.pid, "exit": self.process.poll()}


class Supervisor:
    """The children of one run folder, in the order in which they were started."""

    socket_name = SOCKET

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.children: dict[str, Child] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.ending = False

    def serve(self) -> None:
        """Answers requests until the end, then stops every child, the last one first, and cleans up."""
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self.run_dir / self.socket_name))
                listener.listen(16)
                listener.settimeout(POLL_SECONDS)
                self._announce()
                while not self.ending and self._wanted():
                    self._next_request(listener)
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        for name in reversed(self.children):
            stop(self.children[name])
        cgroups.remove(self.run_dir.name)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def end(self, *_: object) -> None:
        """Asks the loop to end (also the handler of SIGTERM)."""
        self.ending = True

    def _announce(self) -> None:
        fresh = self.run_dir / f"{IDENTITY}.new"
        fresh.write_text(str(Identity.own()))
        fresh.rename(self.run_dir / IDENTITY)

    def _wanted(self) -> bool:
        if (self.run_dir / DETACHED).exists():
            return True
        try:
            owners = [Identity.parse(name) for name in os.listdir(self.run_dir / OWNERS)]
        except FileNotFoundError:
            return False
        return any(owner is not None and owner.alive() for owner in owners)

    def _next_request(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            for child in self.children.values():
                child.process.poll()
            return
        with connection:
            connection.settimeout(REQUEST_SECONDS)
            try:
                with connection.makefile("r") as stream:
                    answer = self._answer(json.loads(stream.readline()))
            except (OSError, ValueError, KeyError) as problem:
                answer = {"error": f"{type(problem).__name__}: {problem}"}
            with suppress(OSError):  # who asked may be gone
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "start":
                self._start(request)
            case "restart":
                self._start(self.requests[request["name"]])
            case "stop":
                stop(self.children[request["name"]], request["signal"])
            case "signal":
                send(self.children[request["name"]], request["signal"])
        return {"processes": {name: child.state() for name, child in self.children.items()}}

    def _start(self, request: dict[str, Any]) -> None:
        name = request["name"]
        old = self.children.pop(name, None)
        if old and old.process.poll() is None:
            self.children[name] = old
            raise ValueError(f"{name} runs already, as process {old.process.pid}")
        self.requests[name] = request
        with (self.run_dir / "logs" / name).open("ab") as log:
            process = subprocess.Popen(
                request["argv"],
                env=request["env"],
                cwd=request["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),
            )
        self.children[name] = Child(process, request["grace_seconds"])


def die_with(parent: int) -> Any:
    """A preexec_fn: the kernel kills the new process when `parent` dies, also if that happened just now."""

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def stop(child: Child, number: int = signal.SIGTERM) -> None:
    """Ends a child and its process group: first by `number`, after its grace by SIGKILL."""
    send(child, number)
    try:
        child.process.wait(child.grace_seconds)
    except subprocess.TimeoutExpired:
        send(child, signal.SIGKILL)
        child.process.wait()


def send(child: Child, number: int) -> None:
    """Signals the child's process group; a child that was reaped is left alone, for its id may be somebody else's."""
    if child.process.poll() is None:
        os.killpg(child.process.pid, number)


def main() -> None:
    """Leaves the caller's session and serves the run folder given as the only argument."""
    if os.fork():
        os._exit(0)
    os.setsid()
    supervisor = Supervisor(Path(sys.argv[1]))
    signal.signal(signal.SIGTERM, supervisor.end)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    supervisor.serve()


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, told apart from every other one since the machine booted."""

    pid: int
    started: int
    """Clock ticks after boot (field 22 of /proc/PID/stat)."""

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """The process that has this id now; None when there is none, or only its remains (a zombie)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *fields = stat[stat.rindex(")") + 2 :].split()
        return None if state in "ZX" else cls(pid, int(fields[18]))

    @classmethod
    def own(cls) -> "Identity":
        this = cls.of(os.getpid())
        assert this is not None
        return this

    @classmethod
    def parse(cls, text: str) -> "Identity | None":
        """The identity that `str` gave; None for anything else."""
        pid, _, started = text.strip().partition("-")
        return cls(int(pid), int(started)) if pid.isdigit() and started.isdigit() else None

    def __str__(self) -> str:
        """`<pid>-<started>`: fit for a file's name."""
        return f"{self.pid}-{self.started}"

    def alive(self) -> bool:
        """True while this very process runs."""
        return Identity.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Sends a signal if this very process still runs; False when it is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


if __name__ == "__main__":
    main()
