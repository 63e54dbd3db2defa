"""Runs of the agent program: each a process of its own, forked from a warm one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from precision_lab.kubelet.agent_process import AgentExit, AgentHost, agent_host
from precision_lab.kubelet.faults import MESSAGE_BYTES

PROGRAM = Path(__file__).parent.parent / "support" / "lab_agent.py"


@pytest.fixture
async def host() -> AsyncIterator[AgentHost]:
    """A warm process of the test's own agent program."""
    async with agent_host(str(PROGRAM)) as agents:
        listening = asyncio.create_task(agents.listen())
        yield agents
        listening.cancel()


async def run(host: AgentHost, folder: Path, *lines: str, name: str = "one") -> AgentExit:
    """One run of these words."""
    place = folder / name
    place.mkdir()
    return await host.run(name, (), {"PRECISION_REQUEST": "\n".join(lines)}, place)


@pytest.mark.parametrize(
    ("line", "code"), [("say nothing", 0), ("exit 14", 14), ("crash", 134)], ids=["returns", "exits", "crashes"]
)
async def test_the_exit_code_is_the_one_that_a_runtime_would_report(
    host: AgentHost, tmp_path: Path, line: str, code: int
) -> None:
    assert (await run(host, tmp_path, line)).code == code


async def test_message_and_log_come_back_with_stderr_in_its_place(host: AgentHost, tmp_path: Path) -> None:
    left = await run(host, tmp_path, "say first", "complain second", "say third", 'message {"v":1}')
    assert left == AgentExit(0, '{"v":1}', b"first\nsecond\nthird\n")


async def test_of_a_long_message_the_last_4096_bytes_are_taken_as_a_kubelet_does(
    host: AgentHost, tmp_path: Path
) -> None:
    left = await run(host, tmp_path, f"message {'a' * 10}{'b' * MESSAGE_BYTES}")
    assert left.message == "b" * MESSAGE_BYTES


async def test_runs_do_not_see_each_other(host: AgentHost, tmp_path: Path) -> None:
    ends = await asyncio.gather(*(run(host, tmp_path, f"say {n}", f"exit {n}", name=f"run-{n}") for n in range(8)))
    assert [(end.code, end.log) for end in ends] == [(n, f"{n}\n".encode()) for n in range(8)]


@pytest.mark.parametrize(
    ("lines", "number", "code"),
    [
        pytest.param(["politely"], signal.SIGTERM, 17, id="asked to end, it leaves with its own code"),
        pytest.param([], signal.SIGTERM, 143, id="ended by SIGTERM"),
        pytest.param(["politely"], signal.SIGKILL, 137, id="killed"),
    ],
)
async def test_a_signal_ends_only_the_run_that_it_is_for(
    host: AgentHost, tmp_path: Path, lines: list[str], number: int, code: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waiting = asyncio.create_task(run(host, tmp_path, *lines, f"wait {pipe}", name="waiting"))
    async with asyncio.timeout(20):
        await asyncio.to_thread(pipe.read_text)
        host.signal("nobody", number)
        host.signal("waiting", number)
        assert (await waiting).code == code
