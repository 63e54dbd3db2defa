"""The operator's loop when the cluster says no: every node is asked about in one pass, and nothing in a hot loop."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts.refusal import SAME_ANSWERS, Answer, mark_of
from precision_operator.core.observe.clock import format_time
from precision_operator.shell.observing.gather import _Beside
from precision_operator.shell.observing.reader import NOT_CREATED
from precision_operator.shell.observing.refusals import MOST, RefusedCreations
from tests.support.operator_in_memory import JOBS, NAMESPACE, REPORTS, OperatorInMemory
from tests.support.world import NOW, job, observed, pod, profile

EVENTS = paths.collection("v1", "events", NAMESPACE)
QUOTA = "jobs.batch is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"


def refuse(loop: OperatorInMemory, words: str, times: int) -> None:
    for _ in range(times):
        loop.cluster.fail("POST", JOBS, ApiError(403, "Forbidden", "POST", words=words))


def asked(loop: OperatorInMemory) -> int:
    """How often a Job was to be created."""
    return len([path for method, path in loop.cluster.requests if method == "POST" and path.startswith(JOBS)])


@pytest.fixture
def loop() -> OperatorInMemory:
    loop = OperatorInMemory(*(f"n{number}" for number in range(6)))
    loop.apply("nightly", rollout={"maxConcurrent": 1})
    return loop


async def test_the_next_candidate_goes_in_the_same_pass(loop: OperatorInMemory) -> None:
    for node in ("n0", "n1"):
        refuse(loop, f'admission webhook "w" denied the request: {node} is reserved', 1)
    await loop.once()
    assert list(loop.jobs()) == ["n2"]
    status = loop.status("nightly")
    assert {row["reason"]: row["count"] for row in status["reasons"]}["DeniedByPolicy"] == 2
    assert [row["node"] for row in status["refusals"]] == ["n0", "n1"]
    assert loop.condition("nightly", "Degraded")["reason"] == "DeniedByPolicy"


async def test_what_all_nodes_are_told_is_not_asked_again_and_the_first_status_says_so(loop: OperatorInMemory) -> None:
    refuse(loop, 'admission webhook "w" denied the request: no', 99)
    for _ in range(3):
        await loop.once()
    assert asked(loop) == SAME_ANSWERS
    assert (loop.status("nightly")["phase"], loop.status("nightly")["nodes"]["running"]) == ("Degraded", 0)


async def test_a_quota_is_asked_about_once_in_a_pass(loop: OperatorInMemory) -> None:
    refuse(loop, QUOTA, 99)
    for _ in range(3):
        await loop.once()
    assert asked(loop) == 1
    status = loop.status("nightly")
    assert (status["phase"], status["waitsFor"], status.get("eta")) == ("Pending", "QuotaExceeded (6)", None)
    events = [body for path, body in loop.cluster.objects.items() if "/events/" in path and body["type"] == "Warning"]
    assert [(event["reason"], event["involvedObject"]["name"]) for event in events] == [("QuotaExceeded", "nightly")]


async def test_a_spec_that_has_changed_is_tried_at_once(loop: OperatorInMemory) -> None:
    refuse(loop, QUOTA, 1)
    await loop.once()
    assert loop.jobs() == {}
    path = next(path for path in loop.cluster.objects if path.endswith("/nightly"))
    loop.cluster.objects[path]["metadata"]["generation"] = 2
    loop.cluster._store(path, loop.cluster.objects[path])
    await loop.once()
    assert list(loop.jobs()) == ["n0"]
    assert "refusals" not in loop.status("nightly")


async def test_why_jobs_have_no_pod_is_read_once_for_all_and_they_are_withdrawn(loop: OperatorInMemory) -> None:
    path = next(path for path in loop.cluster.objects if path.endswith("/nightly"))
    loop.cluster.objects[path]["spec"]["rollout"] = {"maxConcurrent": 3}
    await loop.once()
    jobs = loop.jobs()
    assert len(jobs) > 1
    for number, raw in enumerate(jobs.values()):
        raw["metadata"]["creationTimestamp"] = format_time(datetime.now(UTC) - timedelta(seconds=10))
        loop.cluster._store(f"{JOBS}/{raw['metadata']['name']}", raw)
        event = {"metadata": {"name": f"event-{number}"}, "involvedObject": {"uid": raw["metadata"]["uid"]}}
        words = f'Error creating: pods "{raw["metadata"]["name"]}-x" is forbidden: no GPUs here'
        loop.cluster._store(f"{EVENTS}/event-{number}", event | {"message": words})
    loop.cluster.requests.clear()
    await loop.once()
    looks = [where for method, where in loop.cluster.requests if method == "LIST" and where.startswith(EVENTS)]
    assert looks == [f"{EVENTS}?&involvedObject.kind=Job,reason=FailedCreate"]
    assert [method for method, where in loop.cluster.requests if where.startswith(REPORTS)].count("PATCH") == 0
    refused = {row["node"]: row["message"] for row in loop.status("nightly")["refusals"]}
    assert refused.items() >= dict.fromkeys(jobs, "pods is forbidden: no GPUs here").items()


async def test_events_and_references_that_are_slow_to_read_hold_up_no_pass_and_are_used_when_they_are_there() -> None:
    done, woken, missing = asyncio.Event(), asyncio.Event(), dict[tuple[str, str, str], ApiError]()

    async def slow(namespace: str) -> str:
        await done.wait()
        return namespace

    beside, keys = _Beside[str]("Events", 3.0, woken.set, 0.1), {("ml", "")}
    assert await beside.each(keys, slow, missing) == {}
    done.set()
    await woken.wait()
    assert await beside.each(keys, slow, missing) == {("ml", ""): "ml"}


@pytest.mark.parametrize(("home", "about", "counts"), [("ml", "ml", 1), ("evil", "evil", 0), ("ml", "evil", 0)])
async def test_an_event_counts_in_the_namespace_of_its_job_or_pod_alone(home: str, about: str, counts: int) -> None:
    gatherer = (loop := OperatorInMemory()).gatherer
    gatherer._now = lambda: NOW + timedelta(hours=1)
    jobs = job(), job("n2", namespace="evil")
    pods = tuple(pod(of, "Pending", claims=True, uid=f"pod-{of.uid}") for of in jobs)
    for number, uid in enumerate((jobs[0].uid, pods[0].uid)):
        event = {"metadata": {"namespace": home}, "involvedObject": {"namespace": about, "uid": uid}, "message": "no"}
        where = f"{paths.collection('v1', 'events', home)}/{number}"
        loop.cluster._store(where, event | {"reason": ("FailedCreate", NOT_CREATED)[number]})
    assert [row.creation_problem for row in await gatherer._with_problems(jobs, (), {})].count("no") == counts
    assert [row.claim_problem for row in await gatherer._with_claim_problems(pods, {})].count("no") == counts


def test_a_refused_pod_is_forgotten_when_the_next_one_is_there_and_not_before() -> None:
    memory, owner, of = RefusedCreations(lambda: NOW), profile(), job()
    world = observed([owner], jobs=(of,))
    key = (owner.uid, of.node_uid)
    memory.refused(key, Answer("Error creating: pods is forbidden: no"), "pod", mark_of(owner, None), 0)
    memory.accepted_job(key, of.uid, {})
    memory.seen({of.uid: of}, ())
    assert list(memory.standing(world)) == [key], "a Job is no pod"
    memory.seen({of.uid: of}, (pod(job("n2")),))
    assert list(memory.standing(world)) == [key], "of another Job"
    memory.seen({of.uid: of}, (pod(of, "Pending"),))
    assert memory.standing(world) == {}


def test_what_is_remembered_is_bounded() -> None:
    """The namespace with the most loses its oldest, whoever is refused."""
    memory, few = RefusedCreations(lambda: NOW, most=8), profile("few")
    memory.standing(observed([few]))
    for number in range(8 + 5):
        memory.refused((f"profile-{number}" if number else few.uid, "node"), Answer("no", 403), "Job", "", 0)
    memory.refused((few.uid, "another"), Answer("no", 403), "Job", "", 0)
    left = [few.uid, *(f"profile-{number}" for number in range(7, 13)), few.uid]
    assert [profile for profile, _ in memory._known] == left
    assert RefusedCreations()._most == MOST
