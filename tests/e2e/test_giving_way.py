"""Agents give way to whoever needs the GPUs: pods of higher priority, by the real scheduler, and Kueue, played here."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_operator.core.observe.clock import parse_time
from tests.support import kueue
from tests.support.claimant import asked, gone, priority_class, runs
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, Site, reasons, specs

pytestmark = pytest.mark.cluster

TRAINING = "e2e-training"
PENDING_SECONDS = 30


@pytest.fixture(scope="module")
def gpus_queue(site: Site) -> Iterator[None]:
    """Kueue's queues as a kind of object, and one queue."""
    kueue.serve(site, "v1beta2")
    site.lab.apply(kueue.queue(site, "gpus"))
    yield
    kueue.remove(site)


@pytest.fixture(scope="module", autouse=True)
def held(stage: Scene, gpus_queue: None) -> Profile:
    """A profile whose agents Kueue holds from the start of the module on: longer than an agent may be pending."""
    stage.add_nodes(*specs(1, "agent-seconds:600"), *specs(2))
    waiting = {"pendingTimeoutSeconds": PENDING_SECONDS}
    return stage.apply(agent={"queueName": "gpus"}, rollout={"maxConcurrent": 2}, idle=waiting)


def outcomes(profile: Profile) -> set[str]:
    """All outcomes that attempts ever had in the profile's reports."""
    told = [c.object.get("status", {}).get("attempt") for c in profile.history() if c.kind == "reports"]
    return {attempt["outcome"] for attempt in told if attempt}


def test_an_agent_that_is_preempted_is_disrupted_and_its_node_measured_when_the_gpus_are_free_again(
    scene: Scene,
) -> None:
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("agent-seconds:600",)))
    profile = scene.apply()
    eventually(lambda: [pod for pod in profile.pods() if pod["status"]["phase"] == "Running"])
    scene.lab.annotate_node(node, agent_seconds="0")
    with priority_class(scene.site, TRAINING):
        urgent = asked(scene.site, node, 8, TRAINING)
    eventually(lambda: profile.attempts().get(node))
    attempt = profile.attempts()[node]
    assert (attempt["outcome"], attempt["reason"]) == ("disrupted", "Preempted")
    assert "preempted by a pod of higher priority" in attempt["message"]
    assert profile.report_of(node)["status"]["state"] == "Disrupted"
    eventually(lambda: runs(scene.site, urgent))
    made = scene.lab.get("pod", urgent)["metadata"]["creationTimestamp"]
    assert parse_time(made) <= parse_time(attempt["finishedAt"])
    eventually(lambda: reasons(profile.status()) == {"Busy": 1})
    assert "a pod of another namespace" in profile.status()["reasons"][0]["message"].lower()

    gone(scene.site, urgent)
    eventually(lambda: profile.counts().get("succeeded") == 1)
    attempt = profile.attempts()[node]
    assert (attempt["outcome"], attempt["number"]) == ("succeeded", 2)
    assert outcomes(profile) == {"disrupted", "succeeded"}


def admit_all(profile: Profile) -> bool:
    """Lets all held Jobs go; whether all nodes are measured."""
    for job in profile.jobs():
        if job["spec"]["suspend"] and "deletionTimestamp" not in job["metadata"]:
            kueue.admit(profile.site, job)
    return profile.counts()["succeeded"] == 3


def held_nodes(profile: Profile) -> list[str]:
    return [node_of(job) for job in profile.jobs() if job["spec"]["suspend"]]


def test_agents_wait_while_kueue_holds_them_and_go_back_to_the_queue_when_it_takes_their_place(held: Profile) -> None:
    eventually(lambda: len(held.jobs()) == 2)
    first, second = sorted(held.jobs(), key=node_of)
    assert {job["metadata"]["labels"][kueue.QUEUE_LABEL] for job in (first, second)} == {"gpus"}
    eventually(lambda: reasons(held.status()) == {"WaitsInQueue": 2, "MaxConcurrentReached": 1})
    made = parse_time(second["metadata"]["creationTimestamp"])
    eventually(lambda: datetime.now(UTC) - made > timedelta(seconds=PENDING_SECONDS + 2))
    held.site.operator_has_looked()
    assert (uids(held.jobs()), held.pods()) == (uids([first, second]), [])
    assert {job["spec"]["suspend"] for job in created(held.history(), "jobs")} == {True}

    kueue.admit(held.site, first)
    (pod,) = eventually(lambda: [pod for pod in held.pods() if pod["status"]["phase"] == "Running"])
    held.site.lab.annotate_node(node_of(first), agent_seconds="0")
    kueue.take_back(held.site, first)
    eventually(lambda: pod["metadata"]["uid"] not in uids(held.pods()))
    eventually(lambda: reasons(held.status()) == {"WaitsInQueue": 2, "MaxConcurrentReached": 1})
    assert node_of(first) in held_nodes(held)

    eventually(lambda: admit_all(held))
    assert outcomes(held) <= {"disrupted", "succeeded"}
    assert {attempt["outcome"] for attempt in held.attempts().values()} == {"succeeded"}


def node_of(job: Object) -> str:
    return str(job["metadata"]["annotations"][names.ANNOTATION_NODE])


def uids(items: list[Object]) -> set[str]:
    return {item["metadata"]["uid"] for item in items}
