"""One run of the real agent program for one pod: its exit code, termination message and log."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from precision_lab.kubelet.faults import MESSAGE_BYTES, Ended
from precision_lab.processes.supervisor import die_with

TERMINATION_LOG_ENV = "PRECISION_TERMINATION_LOG"
"""Where the agent writes its message instead of /dev/termination-log, which only a container has for itself."""


class HostDied(Exception):
    """The process that runs the agents has ended."""


class AgentHost:
    """The agents of one stand-in, each a process of its own forked from a warm one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ends: dict[str, asyncio.Future[int]] = {}

    async def run(self, run: str, arguments: Sequence[str], env: Mapping[str, str], folder: Path) -> Ended:
        """Runs the agent once in `folder` (which holds its log meanwhile). Cancelled: the agent is killed.

        Its exit code is 128 + n when signal n ended it, as a runtime reports it.
        """
        message = folder / "termination-log"
        message.touch()
        environment = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), **env}
        environment[TERMINATION_LOG_ENV] = str(message)
        end = self._ends[run] = asyncio.get_running_loop().create_future()
        self._tell(do="run", id=run, argv=list(arguments), env=environment, folder=str(folder))
        try:
            code = await end
        except asyncio.CancelledError:
            self.signal(run, signal.SIGKILL)
            raise
        finally:
            self._ends.pop(run, None)
        left = message.read_bytes()[-MESSAGE_BYTES:].decode(errors="replace")
        return Ended(code if code >= 0 else 128 - code, left, (folder / "log").read_bytes())

    def signal(self, run: str, number: int) -> None:
        """Sends a signal to a running agent; one that has ended is left alone."""
        self._tell(do="signal", id=run, number=int(number))

    def _tell(self, **request: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    async def listen(self) -> None:
        """Hands every end to the run that waits for it. Raises HostDied when the host is gone."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            waiting = self._ends.get(answer["id"])
            if waiting and not waiting.done():
                waiting.set_result(answer["exit"])
        raise HostDied("the process that runs the agents has ended: see the stand-in's log")


@asynccontextmanager
async def agent_host() -> AsyncIterator[AgentHost]:
    """A warm agent process; it and its agents die with this process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "precision_lab.kubelet.agent_host"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=die_with(os.getpid()),
    )
    try:
        yield AgentHost(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
