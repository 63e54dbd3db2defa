"""Runs the agent's program again and again without paying for its imports: a process that forks one child for each run.

Reads one JSON document a line from stdin, writes one a line to stdout:
`{"do": "run", "id", "argv", "env", "folder"}` -> `{"id", "exit"}` when that child has ended (negative: by a signal);
`{"do": "signal", "id", "number"}`. The child's stdout and stderr go to `<folder>/log`, as in a container.
It has one thread and forks only itself, so that each run is a process of its own, with its own signals and exit code.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import sys
import traceback
from typing import Any, NoReturn

from precision_lab.processes.supervisor import die_with

AGENT = "precision_agent"
PRELOADED = ("precision_agent.run.cli", "precision_agent.backends.replay")
"""Modules that each child has ready: all that a replay imports."""


class Host:
    """The living children: process id -> the id of the run."""

    def __init__(self) -> None:
        self.runs: dict[int, str] = {}

    def serve(self) -> None:
        """Until stdin ends; the children die with this process."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(wake_read, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if wake_read in ready:
                    os.read(wake_read, 4096)
                self._reap()
                if 0 in ready:
                    chunk = os.read(0, 1 << 16)
                    if not chunk:
                        return
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._obey(json.loads(line))

    def _obey(self, request: dict[str, Any]) -> None:
        if request["do"] == "run":
            pid = os.fork()
            if pid == 0:
                run_here(request, os.getppid())
            self.runs[pid] = request["id"]
            return
        for pid, run in self.runs.items():
            if run == request["id"]:
                os.kill(pid, request["number"])  # not reaped yet, so the id is still this child's

    def _reap(self) -> None:
        while self.runs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            answer = {"id": self.runs.pop(pid), "exit": os.waitstatus_to_exitcode(status)}
            os.write(1, json.dumps(answer).encode() + b"\n")


def run_here(request: dict[str, Any], parent: int) -> NoReturn:
    """Becomes the agent: environment, folder, output and arguments as its container would have them. Never returns."""
    code = 1
    try:
        die_with(parent)()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _redirect(f"{request['folder']}/log")
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = [AGENT, *request["argv"]]
        runpy.run_module(AGENT, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = _exit_code(end.code)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _redirect(log: str) -> None:
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, place in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, place)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    Host().serve()
