"""A creation that gets no answer, as while an admission webhook hangs, holds up its own agent and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from precision_operator.cluster import paths
from precision_operator.shell.acting import creating
from tests.support.operator_in_memory import OperatorInMemory


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> OperatorInMemory:
    """Two tenants; Jobs of the other one get no answer."""
    monkeypatch.setattr(creating, "GRACE_SECONDS", 0.05)
    found = OperatorInMemory(*(f"n{i}" for i in range(14)), namespaces=("ml", "b"))
    found.cluster.held_up[paths.jobs("b")] = asyncio.Event()
    found.apply("theirs", "b", target={"nodeNames": [f"n{i}" for i in range(12)]}, rollout={"maxConcurrent": 10})
    return found


async def creations_end(loop: OperatorInMemory) -> None:
    loop.cluster.held_up[paths.jobs("b")].set()
    await loop.actor.creations.settled()


def asked(loop: OperatorInMemory) -> int:
    """How many Jobs the other tenant has asked for."""
    return sum(method == "POST" and path.startswith(paths.jobs("b")) for method, path in loop.cluster.requests)


async def test_others_start_meanwhile_and_no_more_of_a_namespace_wait_at_once_than_may(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.apply("ours", target={"nodeNames": ["n13"]})
    await loop.once()
    assert sorted(loop.jobs()) == ["n13"]
    assert asked(loop) == creating.AT_ONCE
    await loop.once()
    assert asked(loop) == creating.AT_ONCE, "who waits is not asked for again"
    await creations_end(loop)


async def test_what_has_no_answer_yet_counts_as_an_agent_and_keeps_its_node(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.apply("ours", target={"nodeNames": ["n0", "n13"]}, rollout={"maxConcurrent": 9})
    await loop.once()
    assert sorted(loop.jobs()) == ["n13"], "n0 may have an agent by now"
    seen = await loop.gatherer.observe()
    assert len([job for job in seen.jobs if job.namespace == "b"]) == creating.AT_ONCE
    await creations_end(loop)
    await loop.once()
    assert len(loop.jobs("b")) == 10, "as many as its profile allows"
    seen = await loop.gatherer.observe()
    assert len([job for job in seen.jobs if job.namespace == "b"]) == 10, "each counts once"


async def test_an_operator_that_ends_waits_for_the_answers_of_what_it_has_begun(loop: OperatorInMemory) -> None:
    await loop.once()
    finishing = asyncio.create_task(loop.reconciler.finish())
    await asyncio.sleep(0.01)
    assert not finishing.done()
    loop.cluster.held_up[paths.jobs("b")].set()
    await asyncio.wait_for(finishing, 60)
    assert len(loop.jobs("b")) == creating.AT_ONCE
    await loop.once()
    assert asked(loop) == creating.AT_ONCE, "nothing begins any more"
