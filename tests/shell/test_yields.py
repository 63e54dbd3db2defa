"""Pods that wait for claimed GPUs: an agent is ended for them, the GPUs are kept, and what came of it is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts.yielding import HELP_WITHIN, PATIENCE
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.views import profile_view
from precision_operator.core.status.yields import yields_told
from precision_operator.shell.observing import reader, yields
from tests.support.node_objects import node_object, slice_object
from tests.support.operator_in_memory import NAMESPACE, PODS, REPORTS, OperatorInMemory

RESOURCE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCE}/namespaces/team/resourceclaims"
TEAM = paths.pods("team")
SAID = "0/1 nodes are available: 1 cannot allocate all claims."
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


ALLOCATED = {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}]}}}


@pytest.fixture
async def loop() -> OperatorInMemory:
    """An agent runs on a node whose GPUs come by claim."""
    loop = OperatorInMemory()
    loop.cluster._store(f"{paths.NODES}/n1", node_object({}, name="n1", gpus=None))
    loop.cluster._store(f"{RESOURCE}/resourceslices/n1", slice_object(node="n1"))
    selectors = {"spec": {"selectors": [{"cel": {"expression": SELECTOR}}]}}
    loop.cluster._store(
        f"{RESOURCE}/deviceclasses/gpu.nvidia.com", {"metadata": {"name": "gpu.nvidia.com"}} | selectors
    )
    loop.apply("nightly")
    await loop.once()
    loop.run_agents()
    (path,) = [path for path in loop.cluster.objects if path.startswith(f"{PODS}/")]
    pod = loop.cluster.objects[path]
    pod["spec"] |= {"priority": -1000, "resourceClaims": [{"name": "gpus"}]}
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": loop.cluster.created}
    ]
    loop.cluster._store(path, pod)
    await loop.once()
    return loop


def ask(
    loop: OperatorInMemory, name: str = "train-0", priority: int = 1000, device_class: str = "gpu.nvidia.com"
) -> None:
    """A pod of somebody else's that wants eight GPUs by claim, which the scheduler does not find."""
    wanted = {"name": "gpus", "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 8}}
    claim = {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": {"requests": [wanted]}}}
    loop.cluster._store(f"{CLAIMS}/{name}", claim)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SAID}
    pod = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"priority": priority, "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    loop.cluster._store(f"{TEAM}/{name}", pod)


def hold(loop: OperatorInMemory, name: str, owner: str) -> None:
    """A pod of somebody else's that holds GPUs of the node by claim, since an agent was ended there."""
    claim = {"metadata": {"name": name, "namespace": "team"}, "status": ALLOCATED}
    loop.cluster._store(f"{CLAIMS}/{name}", claim)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(loop.yields.records[0].at)}
    pod = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": {"nodeName": "n1", "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]},
        "status": {"phase": "Running", "conditions": [scheduled]},
    }
    loop.cluster._store(f"{TEAM}/{name}", pod)


async def passes(loop: OperatorInMemory, after: timedelta = timedelta()) -> None:
    """Time goes on; a look, and a pass over all profiles, as the watches see the world then."""
    loop.now += after
    await loop.yields.look()
    await loop.once()
    loop.collect_garbage()
    await loop.gatherer.list_everything()


def attempt(loop: OperatorInMemory) -> dict[str, Any]:
    (report,) = [body for path, body in loop.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
    return dict((report.get("status") or {}).get("attempt") or {})


def reasons(loop: OperatorInMemory) -> dict[str, str]:
    return {row["reason"]: row["message"] for row in loop.status("nightly")["reasons"]}


def events(loop: OperatorInMemory) -> dict[str, str]:
    found = paths.collection("v1", "events", NAMESPACE)
    rows = [body for path, body in loop.cluster.objects.items() if path.startswith(f"{found}/")]
    return {row["reason"]: row["message"] for row in rows}


async def test_an_agent_is_ended_for_a_pod_that_goes_on_waiting_and_the_gpus_are_kept_for_it(
    loop: OperatorInMemory,
) -> None:
    ask(loop)
    await passes(loop)
    assert loop.jobs() == {}
    told = attempt(loop)
    assert (told["outcome"], told["reason"], told.get("failures", 0)) == ("disrupted", "Yielded", 0)
    await passes(loop)
    assert "for a pod of another namespace" in reasons(loop)["KeptForPod"]
    assert "node n1 was ended for a pod of another namespace (priority 1000)" in events(loop)["Yielded"]
    assert loop.jobs() == {}


async def test_a_pod_that_was_scheduled_then_is_counted_as_helped(loop: OperatorInMemory) -> None:
    ask(loop)
    await passes(loop)
    loop.cluster.objects[f"{TEAM}/train-0"]["spec"]["nodeName"] = "n1"
    await passes(loop)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == ["Helped"]
    assert loop.metric("precision_operator_yields_total", outcome="Helped") == 1
    assert loop.metric("precision_agent_runs_total", pool="NVIDIA-H100-80GB-HBM3", result="disrupted", reason="Yielded")


async def test_a_pod_that_was_not_helped_ends_no_other_agent_and_the_node_is_measured(loop: OperatorInMemory) -> None:
    ask(loop)
    await passes(loop)
    await passes(loop)
    await passes(loop, HELP_WITHIN)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == ["NotHelped"]
    assert "for an hour no agent is ended for it" in events(loop)["YieldInVain"]
    assert loop.metric("precision_operator_yields_total", outcome="NotHelped") == 1
    assert "KeptForPod" not in reasons(loop)


@pytest.mark.parametrize(("owner", "outcome"), [("uid-train", "Helped"), ("uid-others", "Taken")])
async def test_another_pod_that_got_the_gpus_is_told_apart_by_its_owner(
    loop: OperatorInMemory, owner: str, outcome: str
) -> None:
    ask(loop)
    loop.cluster.objects[f"{TEAM}/train-0"]["metadata"]["ownerReferences"] = [{"uid": "uid-train", "controller": True}]
    await passes(loop)
    hold(loop, "other-0", owner)
    await passes(loop)
    await passes(loop, HELP_WITHIN)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == [outcome]
    assert loop.metric("precision_operator_yields_total", outcome=outcome) == 1
    assert "YieldInVain" not in events(loop)


async def test_a_pod_with_a_claim_on_another_node_has_not_got_the_gpus(loop: OperatorInMemory) -> None:
    ask(loop)
    loop.cluster.objects[f"{TEAM}/train-0"]["metadata"]["ownerReferences"] = [{"uid": "uid-train", "controller": True}]
    await passes(loop)
    hold(loop, "other-0", "uid-train")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n99"]}]}
    allocation = ALLOCATED["allocation"] | {"nodeSelector": {"nodeSelectorTerms": [term]}}
    loop.cluster.objects[f"{CLAIMS}/other-0"]["status"] = {"allocation": allocation}
    await passes(loop)
    await passes(loop, HELP_WITHIN)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == ["NotHelped"]


def claims_read(loop: OperatorInMemory) -> int:
    return sum("resourceclaims/" in path for _, path in loop.cluster.requests)


def many(count: int) -> list[dict[str, Any]]:
    return [{"name": f"g{number}", "resourceClaimName": f"n{number}"} for number in range(count)]


async def test_a_pod_with_any_number_of_claims_takes_its_own_node_alone_for_a_bounded_number_of_reads() -> None:
    loop = OperatorInMemory("n1", "n2")
    loop.apply("nightly")
    meta = {"name": "many", "namespace": "team", "uid": "u"}
    spec = {"nodeName": "n1", "containers": [], "resourceClaims": many(20_000)}
    loop.cluster._store(f"{TEAM}/many", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
    await loop.once()
    assert claims_read(loop) == reader.MOST_CLAIMS
    assert list(loop.jobs()) == ["n2"]


@pytest.mark.parametrize(("pods", "claims", "most"), [(1, 20_000, 0), (40, yields.MOST_CLAIMS, yields.MOST_READ)])
async def test_a_look_at_pods_with_many_claims_reads_a_bounded_number(
    loop: OperatorInMemory, pods: int, claims: int, most: int
) -> None:
    ask(loop)
    await passes(loop)
    del loop.cluster.objects[f"{TEAM}/train-0"]
    for number in range(pods):
        ask(loop, f"asks-{number}")
        hold(loop, f"holds-{number}", "o")
        for kind in ("asks", "holds"):
            loop.cluster.objects[f"{TEAM}/{kind}-{number}"]["spec"]["resourceClaims"] = many(claims)
    for number in range(yields.MOST_CLAIMS):
        loop.cluster._store(f"{CLAIMS}/n{number}", {"metadata": {"name": f"n{number}", "namespace": "team"}})
    loop.cluster.requests.clear()
    await loop.yields._waiting()
    assert claims_read(loop) == most
    loop.cluster.requests.clear()
    assert [holder async for holder in loop.yields._holders("n1")] == []
    assert claims_read(loop) == most


async def test_no_agent_is_ended_for_a_pod_that_has_its_gpus_and_waits_for_another_claim(
    loop: OperatorInMemory,
) -> None:
    ask(loop)
    loop.cluster.objects[f"{CLAIMS}/train-0"]["status"] = ALLOCATED
    await passes(loop)
    assert list(loop.jobs()) == ["n1"]


async def test_the_next_leader_knows_from_the_status_what_was_tried(loop: OperatorInMemory) -> None:
    ask(loop)
    await passes(loop)
    raw = loop.cluster.objects[f"{paths.profiles(NAMESPACE)}/nightly"]
    (told,) = yields_told([profile_view(raw)])
    (own,) = loop.yields.records
    assert (told.pod_uid, told.owner, told.node_uid, told.job_uid) == (
        own.pod_uid,
        own.owner,
        own.node_uid,
        own.job_uid,
    )
    assert told.outcome == "Waiting"


async def test_an_agents_end_for_a_pod_of_an_impossible_name_keeps_no_node(loop: OperatorInMemory) -> None:
    """Such a row can only have been made up, and must not keep the node from everybody."""
    ask(loop)
    await passes(loop)
    await passes(loop)
    assert "KeptForPod" in reasons(loop)
    loop.cluster.fail("LIST", "metadata.name=train-0", ApiError(400, "BadRequest", "invalid selector"))
    await passes(loop)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == ["Gone"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"priority": -1000}, "it has no higher priority"), ({"device_class": "rdma"}, "it waits for a NIC")],
)
async def test_no_agent_is_ended_where(loop: OperatorInMemory, changes: dict[str, Any], why: str) -> None:
    ask(loop, **changes)
    await passes(loop)
    assert list(loop.jobs()) == ["n1"], why


async def test_a_claim_that_can_not_be_read_ends_nothing_and_is_looked_at_again(loop: OperatorInMemory) -> None:
    ask(loop)
    for _ in range(2):
        loop.cluster.fail("GET", "resourceclaims/train-0", ApiError(403, "Forbidden", "no"))
        await passes(loop)
        assert list(loop.jobs()) == ["n1"]
    await passes(loop)
    assert loop.jobs() == {}


async def test_after_a_look_that_failed_nobody_counts_as_waiting(loop: OperatorInMemory) -> None:
    ask(loop)
    await loop.yields.look()
    assert [pod.key for pod in loop.yields.pods] == ["team/train-0"]
    loop.cluster.fail("LIST", "pods", ApiError(500, "InternalError", "no"))
    with pytest.raises(ApiError):
        await loop.yields.look()
    assert loop.yields.pods == ()


async def test_a_plan_is_asked_for_when_a_pod_comes_and_when_its_patience_ends(loop: OperatorInMemory) -> None:
    ask(loop)
    asked = []
    for _ in range(3):
        loop.cache.changed.clear()
        await loop.yields.look()
        asked.append(loop.cache.changed.is_set())
        loop.now += PATIENCE
    assert asked == [True, True, False]


async def test_nothing_is_asked_of_the_cluster_while_no_agent_holds_claimed_gpus() -> None:
    loop = OperatorInMemory("n1")
    loop.apply("nightly")
    await loop.once()
    loop.run_agents()
    await loop.once()
    loop.cluster.requests.clear()
    await loop.yields.look()
    assert loop.cluster.requests == []
