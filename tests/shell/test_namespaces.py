"""A namespace that may not be read is left alone: the others go on, and it goes on itself when its rights are back."""

from typing import Any

import pytest

from precision_operator.cluster import paths
from tests.support.operator_in_memory import OperatorInMemory

KINDS = {"profiles": paths.profiles, "reports": paths.reports, "jobs": paths.jobs, "pods": paths.pods}


@pytest.fixture
def loop() -> OperatorInMemory:
    """Two tenants, each with a profile over a node of its own; the agents of both run."""
    found = OperatorInMemory("n1", "n2", namespaces=("ml", "b"))
    found.apply("ours", target={"nodeNames": ["n1"]}, rollout={"maxConcurrent": 9})
    found.apply("theirs", "b", target={"nodeNames": ["n2"]}, rollout={"maxConcurrent": 9})
    return found


def forbid(loop: OperatorInMemory, *kinds: str) -> None:
    loop.cluster.forbidden = {KINDS[kind]("b") for kind in kinds}


@pytest.mark.parametrize("kind", KINDS)
async def test_where_one_kind_may_not_be_listed_nothing_is_decided_and_a_condition_says_so(
    loop: OperatorInMemory, kind: str
) -> None:
    await loop.once()
    assert (sorted(loop.jobs()), sorted(loop.jobs("b"))) == (["n1"], ["n2"])
    before = loop.status("theirs", "b")
    forbid(loop, kind)
    await loop.begin("more", target={"nodeNames": ["n3"]})
    assert sorted(loop.jobs("b")) == ["n2"], "a Job of a profile that is not seen is not that of a deleted one"
    assert loop.status("more")["observedGeneration"] == 1, "the others are served"
    assert loop.gatherer.unserved == {"b": f"{kind}: {KINDS[kind]('b').rpartition('/')[2]} is forbidden"}
    if kind == "profiles":
        assert loop.status("theirs", "b") == before, "who can't be read is not written either"
    else:
        for condition, status in (("Progressing", "False"), ("Degraded", "True")):
            told = loop.condition("theirs", condition, "b")
            assert (told["status"], told["reason"]) == (status, "NamespaceForbidden")
            assert f"namespace b ({kind}: " in told["message"]
        assert loop.status("theirs", "b")["nodes"] == before["nodes"], "no figure is lost over it"
    forbid(loop)
    await loop.once()
    assert loop.gatherer.unserved == {}
    assert loop.condition("theirs", "Progressing", "b")["reason"] == "Measuring"
    assert loop.condition("theirs", "Degraded", "b")["status"] == "False"


async def test_agents_of_such_a_namespace_count_by_pods_and_not_by_jobs_seen_once(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.apply("all", target={"nodeNames": ["n2"]})
    forbid(loop, "profiles", "reports", "jobs", "pods")
    await loop.once()
    assert sorted(loop.jobs()) == ["n1", "n2"], "the namespace may be gone: nothing of it holds a node for ever"


async def test_a_pod_that_can_still_be_seen_there_keeps_its_node(loop: OperatorInMemory) -> None:
    await loop.once()
    (job,) = loop.jobs("b").values()
    labels = job["metadata"]["labels"] | {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    labels["batch.kubernetes.io/controller-uid"] = job["metadata"]["uid"]
    meta = {"name": "x", "namespace": "b", "labels": labels}
    pod: dict[str, Any] = {"metadata": meta, "spec": {"nodeName": "n2"}, "status": {"phase": "Running"}}
    pod["spec"]["containers"] = [{"name": "agent", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    loop.cluster._store(f"{paths.pods('b')}/x", pod)
    loop.apply("all", target={"nodeNames": ["n2"]})
    forbid(loop, "profiles", "reports", "jobs")
    await loop.once()
    assert sorted(loop.jobs()) == ["n1"]
    (row,) = loop.status("all")["reasons"]
    assert (row["reason"], row["message"]) == (
        "MeasuredByAnotherProfile",
        "A profile of another namespace is measuring it. It is measured when that run is done.",
    )


async def test_events_that_may_not_be_read_hold_up_the_profiles_of_their_namespace_alone(
    loop: OperatorInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await loop.once()
    monkeypatch.setattr("precision_operator.shell.observing.gather.BARE_SECONDS", -1.0)
    loop.cluster.forbidden = {paths.collection("v1", "events", "b")}
    await loop.begin("more", target={"nodeNames": ["n3"]})
    assert loop.condition("theirs", "Degraded", "b")["reason"] == "PlanFailed"
    assert loop.condition("ours", "Degraded")["status"] == "False"
    assert loop.status("more")["observedGeneration"] == 1
