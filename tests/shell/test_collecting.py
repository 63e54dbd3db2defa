"""Results are read by tasks of their own: a log that does not come holds up its node alone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from threading import Event, get_ident
from typing import ClassVar

import pytest

from precision_operator.core.attempts.actions import Collect
from precision_operator.shell.acting import act, collecting
from tests.support.acting import Scene
from tests.support.operator_in_memory import JOBS, OperatorInMemory

NODES = [f"n{number:02}" for number in range(14)]
HUNG, HEALTHY = NODES[:10], NODES[10:12]
"""More endpoints hang than actions are done at once."""


@pytest.fixture
async def loop(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OperatorInMemory]:
    """Twelve agents run on fourteen nodes; those of ten end, and their logs hang."""
    monkeypatch.setattr(act, "GRACE_SECONDS", 1.0)
    loop = OperatorInMemory(*NODES)
    await loop.begin("nightly", rollout={"maxConcurrent": 12})
    assert sorted(loop.jobs()) == NODES[:12]
    loop.run_agents()
    for node in HUNG:
        loop.cluster.hanging[loop.end_agent(node)] = asyncio.Event()
    yield loop
    loop.actor.end()


def log_reads(loop: OperatorInMemory) -> int:
    return [method for method, _ in loop.cluster.requests].count("LOG")


async def test_while_logs_hang_results_are_written_agents_start_and_the_status_is_told(loop: OperatorInMemory) -> None:
    for node in HEALTHY:
        loop.end_agent(node)
    async with asyncio.timeout(60):
        await loop.once()
        await loop.once()
    assert loop.measured() == HEALTHY
    assert sorted(loop.jobs()) == [*HUNG, *NODES[12:]], "the two places that came free have their next agents"
    counts = loop.status("nightly")["nodes"]
    assert (counts["succeeded"], counts["running"]) == (2, 12)


class Log(bytes):
    """A log that knows in which threads it was read."""

    threads: ClassVar[set[int]] = set()

    def decode(self, *told: str) -> str:
        self.threads.add(get_ident())
        return super().decode(*told)


async def test_a_log_is_read_beside_the_loop_which_must_renew_the_lease_meanwhile(loop: OperatorInMemory) -> None:
    """Eight megabytes that are no result take seconds to be refused, and 32 agents may leave such at one time."""
    for node in HEALTHY:
        name = loop.end_agent(node)
        loop.cluster.logs[name] = Log(loop.cluster.logs[name])
    await loop.once()
    assert loop.measured() == HEALTHY
    assert Log.threads
    assert get_ident() not in Log.threads


@pytest.mark.parametrize("at_once", [1, 32], ids=["reads", "parses"])
async def test_namespaces_take_turns_with_what_their_agents_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(collecting, "READS_AT_ONCE", at_once)
    job, pod = await scene.ended()
    order, gate, collector = list[str](), Event(), collecting.Collector(scene.cluster)

    class Held(bytes):
        def decode(self, *how: str) -> str:
            order.append(self.of)  # type: ignore[attr-defined]
            return super().decode(*how) if gate.wait(60) else ""

    def left(namespace: str, name: str) -> asyncio.Task[object]:
        scene.cluster.logs[name] = log = Held(scene.cluster.logs[pod.name])
        log.of = namespace  # type: ignore[attr-defined]
        ended = replace(pod, name=name, namespace=namespace)
        collect = Collect(replace(job, uid=name, namespace=namespace), ended, None, "pool-1")
        return asyncio.create_task(collector.left(collect, name))

    tasks = [left("many", f"many-{number}") for number in range(9)]
    await asyncio.sleep(0.1)
    tasks.append(left("few", "few-0"))
    await asyncio.sleep(0.1)
    gate.set()
    await asyncio.wait(tasks)
    assert order == [*["many"] * 2, "few", *["many"] * 7], "the second had come before"


async def test_a_job_whose_log_is_being_read_keeps_its_place_and_is_read_for_once(loop: OperatorInMemory) -> None:
    for _ in range(3):
        await loop.once()
    assert log_reads(loop) == len(HUNG)
    assert (loop.measured(), len(loop.jobs())) == ([], 12)
    assert loop.metric("precision_operator_queue_nodes", state="running") == 12


async def test_a_log_that_comes_wakes_the_loop_and_its_result_is_counted_once(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.cache.changed.clear()
    for event in loop.cluster.hanging.values():
        event.set()
    async with asyncio.timeout(60):
        while loop.measured() != HUNG:
            await loop.cache.changed.wait()
            loop.cache.changed.clear()
            await loop.once()
    await loop.once()
    assert log_reads(loop) == len(HUNG)
    assert ("GET", "nodeprecisionreports") not in [
        (how, path.split("/")[-2:][0]) for how, path in loop.cluster.requests
    ]
    labels = {"pool": "NVIDIA-H100-80GB-HBM3", "result": "succeeded", "reason": "Measured"}
    assert loop.metric("precision_agent_runs_total", **labels) == len(HUNG)


async def test_a_log_that_hung_and_is_then_gone_leaves_the_summary(loop: OperatorInMemory) -> None:
    await loop.once()
    pod = next(iter(loop.cluster.hanging))
    loop.cluster.hanging.pop(pod).set()
    loop.cluster.logs.pop(pod)
    await asyncio.sleep(0)
    await loop.once()
    assert loop.measured() == [HUNG[0]], "the others still hang"


async def test_what_nobody_asks_for_any_more_is_not_read_on(loop: OperatorInMemory) -> None:
    await loop.once()
    name = loop.jobs()[HUNG[0]]["metadata"]["name"]
    del loop.cluster.objects[f"{JOBS}/{name}"]
    before = {task.get_name() for task in asyncio.all_tasks()}
    await loop.once()
    await asyncio.sleep(0)
    assert before - {task.get_name() for task in asyncio.all_tasks()} >= {f"reading of {name}"}


async def test_a_loop_that_ends_reads_nothing_any_more(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.actor.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("reading of")]
