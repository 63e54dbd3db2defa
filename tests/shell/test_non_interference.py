"""What a tenant makes changes nothing for others: through the whole operator, and in the exporter's lines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from tests.support.non_interference.hostile_objects import DRIVER, TENANT, Device
from tests.support.non_interference.in_memory import check_in_memory
from tests.support.operator_in_memory import OperatorInMemory
from tests.support.world import MINUTE

WORLDS = 100


def test_what_lies_in_other_namespaces_and_their_lines_are_the_same_with_objects_and_shadow() -> None:
    assert check_in_memory(range(WORLDS)).differing == {}


async def test_the_leader_remembers_whose_agents_got_no_node() -> None:
    loop = OperatorInMemory("n1", namespaces=("ml", TENANT))
    loop.cluster.created = format_time(datetime.now(UTC) - 2 * MINUTE)
    loop.apply("theirs", TENANT)
    await loop.once()
    assert not (await loop.gatherer.observe()).fruitless
    loop.apply("nightly")
    await loop.once()
    assert (loop.jobs(TENANT).keys(), loop.jobs().keys()) == (set(), {"n1"})
    assert [*(await loop.gatherer.observe()).fruitless] == [TENANT]


async def test_a_pod_that_names_an_ended_job_of_another_namespace_is_not_its_agent() -> None:
    loop = OperatorInMemory("n1", "n2", namespaces=("ml", TENANT))
    loop.apply("nightly")
    await loop.once()
    loop.run_agents()
    ended = loop.jobs()["n1"]["metadata"]
    labels = {"app.kubernetes.io/name": "precision-agent", "batch.kubernetes.io/job-name": ended["name"]}
    labels |= {"batch.kubernetes.io/controller-uid": ended["uid"], "precisionprofiler.io/profile-uid": "any"}
    container = {"name": "agent", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": "n2", "containers": [container]}
    pod = {"metadata": {"name": "m", "namespace": TENANT, "labels": labels}, "spec": spec}
    loop.cluster._store(f"{paths.pods(TENANT)}/m", pod | {"status": {"phase": "Running"}})
    loop.end_agent("n1")
    for _ in range(3):
        await loop.once()
    assert {row["reason"]: row["count"] for row in loop.status("nightly")["reasons"]}["Busy"] == 1


@pytest.mark.parametrize(
    ("node", "asked", "claim", "holds"),
    [
        ("cpu", {"nvidia.com/gpu": "1"}, None, False),
        ("n1", {"nvidia.com/gpu": "9"}, None, False),
        ("n1", {"nvidia.com/gpu": "1"}, None, True),
        ("n1", {}, "never-made", False),
        ("n1", {}, "elsewhere", False),
        ("n1", {}, "here", True),
    ],
)
async def test_a_pod_by_hand_of_a_gone_job_keeps_its_place_only_with_gpus_of_its_node(
    node: str, asked: dict[str, str], claim: str | None, holds: bool
) -> None:
    loop = OperatorInMemory("n1", "n2", namespaces=("ml", TENANT))
    claims = paths.collection("resource.k8s.io/v1", "resourceclaims", TENANT)
    for name, at in (("here", "n1"), ("elsewhere", "n2")):
        loop.cluster._store(f"{claims}/{name}", Device(DRIVER, at, "gpu-0").claim)
    loop.gatherer._refusals.made["gone"] = (TENANT, "n1")
    labels = {"app.kubernetes.io/name": "precision-agent", "batch.kubernetes.io/job-name": "gone"}
    labels |= {"batch.kubernetes.io/controller-uid": "gone", "precisionprofiler.io/profile-uid": "any"}
    rows = [{"name": "gpus", "resourceClaimName": claim}] if claim else []
    spec = {"nodeName": node, "resourceClaims": rows, "containers": [{"name": "agent", "resources": {"limits": asked}}]}
    pod = {"metadata": {"name": "m", "namespace": TENANT, "labels": labels}, "spec": spec}
    loop.cluster._store(f"{paths.pods(TENANT)}/m", pod | {"status": {"phase": "Running"}})
    await loop.once()
    seen = await loop.gatherer.observe()
    assert ([pod.holds_gpus for pod in seen.pods], "gone" in seen.own_jobs) == ([holds], holds)
    assert loop.gatherer._refusals.made.keys() == ({"gone"} if holds else set())
