"""What gets no answer, as while an admission webhook hangs, holds up its own agent or object and nobody else."""

import asyncio
from collections import Counter

import pytest

from precision_operator.cluster import ApiError, paths
from precision_operator.core.observe.observed import Occupancy
from precision_operator.shell import reconcile
from precision_operator.shell.acting import act, creating, late_writes
from tests.support.fake_cluster import TIMEOUT
from tests.support.operator_in_memory import REPORTS, OperatorInMemory

NODES = [f"n{number:02}" for number in range(14)]
PROFILES = [f"theirs-{number:02}" for number in range(11)]
THEIR_JOBS = paths.jobs("b")


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> OperatorInMemory:
    """Two tenants, and an operator that waits for no answer for long."""
    monkeypatch.setattr(creating, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(creating, "AT_ONCE", 8)
    monkeypatch.setattr(late_writes, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(late_writes, "GRACE_BESIDE_LATE_SECONDS", 0.0)
    return OperatorInMemory(*NODES, namespaces=("ml", "b"))


def hang(loop: OperatorInMemory, part: str) -> asyncio.Event:
    """What is asked of paths with `part` in them gets no answer until the event is set."""
    answers = loop.cluster.held_up[part] = asyncio.Event()
    return answers


def asked(loop: OperatorInMemory, method: str, part: str) -> int:
    return sum(how == method and part in path for how, path in loop.cluster.requests)


async def hanging_creations(loop: OperatorInMemory) -> asyncio.Event:
    """Ten agents of the other tenant are asked for, and their Jobs get no answer until the event is set."""
    answers = hang(loop, THEIR_JOBS)
    await loop.begin("theirs", "b", target={"nodeNames": NODES[:12]}, rollout={"maxConcurrent": 10})
    return answers


async def test_others_start_meanwhile_and_no_more_of_a_namespace_wait_at_once_than_may(loop: OperatorInMemory) -> None:
    answers = await hanging_creations(loop)
    await loop.begin("ours", target={"nodeNames": ["n13"]})
    assert sorted(loop.jobs()) == ["n13"]
    assert asked(loop, "POST", THEIR_JOBS) == creating.AT_ONCE
    await loop.once()
    assert asked(loop, "POST", THEIR_JOBS) == creating.AT_ONCE, "who waits is not asked for again"
    answers.set()
    await loop.actor.settled()


async def test_what_has_no_answer_yet_counts_as_an_agent_and_keeps_its_node(loop: OperatorInMemory) -> None:
    answers = await hanging_creations(loop)
    await loop.begin("ours", target={"nodeNames": ["n00", "n13"]}, rollout={"maxConcurrent": 9})
    assert sorted(loop.jobs()) == ["n13"], "n00 may have an agent by now"
    seen = await loop.gatherer.observe()
    assert len([job for job in seen.jobs if job.namespace == "b"]) == creating.AT_ONCE
    answers.set()
    await loop.actor.settled()
    await loop.once()
    assert len(loop.jobs("b")) == 10, "as many as its profile allows"
    looks = Counter(path for how, path in loop.cluster.requests if how == "LIST" and "spec.nodeName=n" in path)
    assert {*looks.values()} == {1}, "those whose turn did not come are not looked at again"
    seen = await loop.gatherer.observe()
    assert len([job for job in seen.jobs if job.namespace == "b"]) == 10, "each counts once"


async def finishes_with_the_answer(loop: OperatorInMemory, answers: asyncio.Event) -> None:
    finishing = asyncio.create_task(loop.reconciler.finish())
    await asyncio.sleep(0.01)
    assert not finishing.done()
    answers.set()
    await asyncio.wait_for(finishing, 60)


async def test_an_operator_that_ends_waits_for_the_answers_of_what_it_has_begun(loop: OperatorInMemory) -> None:
    await finishes_with_the_answer(loop, await hanging_creations(loop))
    assert len(loop.jobs("b")) == creating.AT_ONCE
    await loop.once()
    assert asked(loop, "POST", THEIR_JOBS) == creating.AT_ONCE, "nothing begins any more"


async def test_others_have_their_status_meanwhile_and_who_waits_is_not_asked_for_again(
    loop: OperatorInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    answers = hang(loop, paths.profiles("b"))
    for name in PROFILES:
        loop.apply(name, "b", target={"nodeNames": ["n00"]})
    loop.apply("ours", target={"nodeNames": ["n01"]})
    async with asyncio.timeout(60):
        for _ in range(3):
            await loop.once()
    assert loop.status("ours")["phase"]
    assert sorted(loop.jobs()) == ["n01"]
    assert asked(loop, "PATCH", paths.profiles("b")) == late_writes.AT_ONCE
    assert "status of b/theirs-00: no answer yet" in caplog.text
    loop.cache.changed.clear()
    answers.set()
    async with asyncio.timeout(60):
        await loop.cache.changed.wait()
        await loop.actor.settled()
    await loop.once()
    assert [name for name in PROFILES if not loop.status(name, "b")] == []


async def test_results_of_others_are_written_meanwhile_and_a_late_one_is_written_once(loop: OperatorInMemory) -> None:
    await loop.begin("ours", rollout={"maxConcurrent": 14})
    loop.run_agents()
    for node in NODES:
        loop.end_agent(node)
    held = [f"{paths.reports('ml')}/{name}/status" for name in reports_of(loop, NODES[:3])]
    answers = [hang(loop, path) for path in held]
    async with asyncio.timeout(60):
        for _ in range(3):
            await loop.once()
    assert loop.measured() == NODES[3:]
    assert sorted(loop.jobs()) == NODES[:3], "a Job stays until its result is in the report"
    for answer in answers:
        answer.set()
    await loop.actor.settled()
    await loop.once()
    assert (loop.measured(), loop.jobs()) == (NODES, {})
    assert [asked(loop, "PATCH", path) for path in held] == [1, 1, 1]


def reports_of(loop: OperatorInMemory, nodes: list[str]) -> list[str]:
    there = {body["spec"].get("nodeName"): body for path, body in loop.cluster.objects.items() if "reports/" in path}
    return [there[node]["metadata"]["name"] for node in nodes]


@pytest.mark.parametrize(("error", "times"), [(None, 2), (TIMEOUT, 1)], ids=["refused", "done, without an answer"])
async def test_a_late_write_that_fails_is_done_again_if_it_must(
    loop: OperatorInMemory, error: ApiError | None, times: int
) -> None:
    path = f"{paths.profiles('ml')}/ours/status"
    answers = hang(loop, path)
    await loop.begin("ours", target={"nodeNames": ["n01"]})
    if error is not None:
        loop.cluster.fail("PATCH", path, error, after=True)
    else:
        loop.apply("ours", target={"nodeNames": ["n02"]})  # whose version is not the one that was read
    loop.cache.changed.clear()
    answers.set()
    async with asyncio.timeout(60):
        await loop.cache.changed.wait()
    await loop.once()
    assert asked(loop, "PATCH", path) == times
    assert loop.status("ours")["phase"]


async def test_an_operator_that_ends_waits_for_the_answer_and_a_stopped_one_does_not(loop: OperatorInMemory) -> None:
    answers = hang(loop, paths.profiles("ml"))
    await loop.begin("ours", target={"nodeNames": ["n01"]})
    await finishes_with_the_answer(loop, answers)
    assert loop.status("ours")["phase"]
    answers.clear()
    loop.actor.closed = False
    loop.apply("second", target={"nodeNames": ["n02"]})
    loop.reconciler._turn.release()
    await loop.once()
    loop.actor.end()
    await asyncio.wait_for(loop.actor.settled(), 60)
    assert not loop.status("second")


async def test_a_look_that_gets_no_answer_holds_up_its_node_alone_and_serves_the_next_plan_when_it_comes(
    loop: OperatorInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "LOOK_GRACE_SECONDS", 0.05)
    answer, looks = asyncio.Event(), Counter[str]()

    async def occupancy(node: str, *_: object) -> Occupancy:
        looks[node] += 1
        if node == "n00":
            await answer.wait()
        return Occupancy("prod/train" if node in ("n03", "n06", "n09") else None, 8)

    monkeypatch.setattr(loop.gatherer._reader, "occupancy", occupancy)
    async with asyncio.timeout(60):
        await loop.begin("ours", rollout={"maxConcurrent": 9})
        for _ in range(2):
            await loop.once()
    idle = [node for node in NODES[1:12] if node not in ("n03", "n06", "n09")]
    assert (sorted(loop.jobs()), loop.status("ours")["nodes"]["running"]) == (idle, 8), "one place waits for n00"
    loop.cache.changed.clear()
    answer.set()
    async with asyncio.timeout(60):
        await loop.cache.changed.wait()
    await loop.once()
    assert (sorted(loop.jobs()), {*looks.values()}) == (["n00", *idle], {1}), "no node is looked at twice"


async def ends(loop: OperatorInMemory, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Three agents have ended, one may be written at a time, and that one gets no answer until the event is set."""
    monkeypatch.setattr(act, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(late_writes, "GRACE_SECONDS", 60.0)
    monkeypatch.setattr(loop.gatherer, "at_once", lambda most: 1)
    await loop.begin("ours", rollout={"maxConcurrent": 3})
    loop.run_agents()
    for node in NODES[:3]:
        loop.end_agent(node)
    return hang(loop, f"{REPORTS}/")


async def test_a_pass_waits_for_no_end_and_what_ends_after_its_look_at_the_world_is_not_done_again(
    loop: OperatorInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = await ends(loop, monkeypatch)
    async with asyncio.timeout(30):
        for _ in range(2):
            await loop.once()
    assert (loop.measured(), loop.status("ours")["nodes"]["running"]) == ([], 3)
    seen = await loop.gatherer.observe()
    decided = await loop.reconciler._plan(seen)
    answers.set()
    await loop.actor.settled()
    assert loop.measured() == NODES[:3]
    loop.cache.changed.clear()
    assert await loop.actor.act(decided.actions) == 0
    counts = [asked(loop, how, part) for how, part in (("LOG", ""), ("PATCH", "reports/"), ("DELETE", "jobs/"))]
    assert (counts, loop.cache.changed.is_set()) == ([3, 3, 3], True), "a pass follows that knows of the ends"


async def test_a_replica_that_leads_no_more_ends_what_waits_for_its_turn(
    loop: OperatorInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = await ends(loop, monkeypatch)
    await loop.once()
    readings = [task for task in asyncio.all_tasks() if task.get_name().startswith("reading of")]
    await asyncio.gather(*readings)
    loop.actor.end()
    answers.set()
    await asyncio.wait_for(loop.actor.settled(), 60)
    assert (loop.measured(), asked(loop, "DELETE", "jobs/")) == ([], 0)
