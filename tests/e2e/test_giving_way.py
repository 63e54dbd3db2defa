"""Agents give way to whoever needs the GPUs: pods of higher priority, by the real scheduler, and Kueue, played here."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from precision_api.facts import names
from precision_api.facts.names import GPU_RESOURCE
from precision_lab.fleet.fleet import NodeSpec
from precision_operator.core.observe.clock import parse_time
from tests.support import kueue
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


@pytest.fixture
def training_class(site: Site) -> Iterator[str]:
    """A PriorityClass above the agents'."""
    meta = {"name": TRAINING}
    site.lab.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000})
    yield TRAINING
    site.lab.kubectl("delete", "priorityclass", TRAINING)


def training_pod(node: str, gpus: int, priority: str) -> Object:
    """A pod that wants all GPUs of a node, and leaves where it gets them to the scheduler."""
    limits = {"limits": {GPU_RESOURCE: str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"urgent-{node}", "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "priorityClassName": priority,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "containers": [{"name": "trainer", "image": "registry.example/trainer:1", "resources": limits}],
        },
    }


def outcomes(profile: Profile) -> set[str]:
    """All outcomes that attempts ever had in the profile's reports."""
    told = [c.object.get("status", {}).get("attempt") for c in profile.history() if c.kind == "reports"]
    return {attempt["outcome"] for attempt in told if attempt}


def test_an_agent_that_is_preempted_is_disrupted_and_its_node_measured_when_the_gpus_are_free_again(
    scene: Scene, training_class: str
) -> None:
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("agent-seconds:600",)))
    profile = scene.apply()
    eventually(lambda: [pod for pod in profile.pods() if pod["status"]["phase"] == "Running"])
    scene.lab.annotate_node(node, agent_seconds="0")
    scene.lab.apply(training_pod(node, 8, training_class))
    eventually(lambda: profile.attempts().get(node))
    attempt = profile.attempts()[node]
    assert (attempt["outcome"], attempt["reason"]) == ("disrupted", "Preempted")
    assert "preempted by a pod of higher priority" in attempt["message"]
    assert profile.report_of(node)["status"]["state"] == "Disrupted"
    urgent = scene.lab.get("pod", f"urgent-{node}")
    eventually(lambda: scene.lab.get("pod", f"urgent-{node}")["status"]["phase"] == "Running")
    assert parse_time(urgent["metadata"]["creationTimestamp"]) <= parse_time(attempt["finishedAt"])
    eventually(lambda: reasons(profile.status()) == {"Busy": 1})
    assert "a pod of another namespace" in profile.status()["reasons"][0]["message"].lower()

    scene.lab.kubectl("delete", "pod", f"urgent-{node}", "--grace-period=0", "--force")
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


def is_older(job: Object, seconds: int) -> bool:
    age: timedelta = datetime.now(UTC) - parse_time(job["metadata"]["creationTimestamp"])
    return age.total_seconds() > seconds


def held_nodes(profile: Profile) -> list[str]:
    return [node_of(job) for job in profile.jobs() if job["spec"]["suspend"]]


def test_agents_wait_while_kueue_holds_them_and_go_back_to_the_queue_when_it_takes_their_place(held: Profile) -> None:
    eventually(lambda: len(held.jobs()) == 2)
    first, second = sorted(held.jobs(), key=node_of)
    assert {job["metadata"]["labels"][kueue.QUEUE_LABEL] for job in (first, second)} == {"gpus"}
    eventually(lambda: reasons(held.status()) == {"WaitsInQueue": 2, "MaxConcurrentReached": 1})
    eventually(lambda: is_older(second, PENDING_SECONDS + 2))
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
