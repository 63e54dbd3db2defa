"""Of what bears the agents' label and was not made by the operator its own namespace is told, and nobody else."""

from typing import Any

import pytest

from precision_api.facts import names
from precision_operator.cluster import paths
from tests.support.operator_in_memory import OperatorInMemory

LABELS = {names.LABEL_APP: names.AGENT_APP, names.LABEL_PROFILE_UID: "any", names.LABEL_NODE_UID: "any"}
NOTES = {names.ANNOTATION_NODE: "n1"}


@pytest.fixture
def loop() -> OperatorInMemory:
    """Two tenants; the second one has pods that only bear the label, and no profile."""
    found = OperatorInMemory("n1", namespaces=("ml", "b"))
    found.apply("ours", rollout={"maxConcurrent": 9})
    for number in range(3):
        meta = {"name": f"t{number}", "namespace": "b", "labels": LABELS, "annotations": NOTES}
        pod: dict[str, Any] = {"metadata": meta, "spec": {"schedulingGates": [{"name": "for-ever"}]}, "status": {}}
        found.cluster._store(f"{paths.pods('b')}/t{number}", pod)
    return found


def told(loop: OperatorInMemory) -> list[tuple[str, str]]:
    events = [body for path, body in loop.cluster.objects.items() if "/events/" in path]
    return [
        (event["metadata"]["namespace"], event["involvedObject"]["name"])
        for event in events
        if event["reason"] == "NotAnAgent"
    ]


async def test_one_of_them_is_told_in_its_namespace_a_minute_and_the_node_is_measured(loop: OperatorInMemory) -> None:
    await loop.once()
    await loop.once()
    assert told(loop) == [("b", "t0")]
    assert loop.metric("precision_operator_strangers") == 3
    assert list(loop.jobs()) == ["n1"]
    for _ in range(5):
        loop.actor._quiet_until.clear()  # a minute later
        await loop.once()
    assert told(loop) == [("b", "t0"), ("b", "t1"), ("b", "t2")]


async def test_agents_and_their_pods_are_none_of_them(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.run_agents()
    await loop.once()
    assert loop.metric("precision_operator_strangers") == 3
    assert len(loop.gatherer._since) == 1, "when it was seen first is remembered"
    (path,) = (path for path in loop.cluster.objects if path.startswith(f"{paths.pods('ml')}/"))
    pod = loop.cluster.objects[path]
    loop.cluster._store(path, pod | {"spec": pod["spec"] | {"nodeName": "n2"}})
    await loop.once()
    assert loop.metric("precision_operator_strangers") == 4, "it is on another node than its Job's"


async def test_the_next_leader_takes_over_the_jobs_of_profiles_that_are_there(loop: OperatorInMemory) -> None:
    await loop.once()
    loop.run_agents()
    (made,) = loop.jobs().values()
    for number in range(5):
        by_hand = made["metadata"] | {"name": f"z{number}", "uid": f"z{number}"}
        loop.cluster._store(f"{paths.jobs('ml')}/z{number}", made | {"metadata": by_hand})
    follower = OperatorInMemory(namespaces=("ml", "b"), cluster=loop.cluster)
    await follower.once()
    assert follower.gatherer._refusals.metas.keys() == {made["metadata"]["uid"]}, "one for each profile and node"
    assert dict(follower.gatherer._refusals.made) == {made["metadata"]["uid"]: ("ml", "n1")}
    assert follower.metric("precision_operator_strangers") == 3 + 5
