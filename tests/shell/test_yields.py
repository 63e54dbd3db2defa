"""Pods that wait for claimed GPUs: an agent is ended for them, the GPUs are kept, and what came of it is told."""

from collections.abc import Iterable
from datetime import timedelta
from operator import attrgetter
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
ALLOCATED, NO_AGENTS, ANOTHERS = (
    {"allocation": {"devices": {"results": [{"driver": driver, "pool": "n1", "device": device}]}}}
    for driver, device in (("gpu.nvidia.com", "gpu-0"), ("gpu.nvidia.com", "gpu-1"), ("nic.example", "nic-0"))
)


def reserved(uid: str, status: dict[str, Any] = ALLOCATED) -> dict[str, Any]:
    return status | {"reservedFor": [{"uid": uid}]}


def by_claim(*nodes: str) -> OperatorInMemory:
    """Nodes whose GPUs come by claim."""
    loop = OperatorInMemory(*nodes)
    for node in nodes:
        loop.cluster._store(f"{paths.NODES}/{node}", node_object({}, name=node, gpus=None))
        loop.cluster._store(f"{RESOURCE}/resourceslices/{node}", slice_object(node=node))
    of_gpus = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": [{"cel": {"expression": SELECTOR}}]}}
    loop.cluster._store(f"{RESOURCE}/deviceclasses/gpu.nvidia.com", of_gpus)
    return loop


@pytest.fixture
async def loop() -> OperatorInMemory:
    """An agent runs on a node whose GPUs come by claim."""
    loop = by_claim("n1")
    await loop.begin("nightly")
    loop.run_agents()
    (path,) = [path for path in loop.cluster.objects if path.startswith(f"{PODS}/")]
    pod = loop.cluster.objects[path]
    pod["spec"] |= {"priority": -1000, "resourceClaims": [{"name": "gpus", "resourceClaimName": "agents"}]}
    claim = {"metadata": {"name": "agents"}, "status": reserved(pod["metadata"]["uid"])}
    loop.cluster._store(f"{paths.collection('resource.k8s.io/v1', 'resourceclaims', NAMESPACE)}/agents", claim)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": loop.cluster.created}
    pod["status"]["conditions"] = [scheduled]
    loop.cluster._store(path, pod)
    await loop.once()
    return loop


def ask(
    loop: OperatorInMemory,
    name: str = "train-0",
    priority: int = 1000,
    device_class: str = "gpu.nvidia.com",
    **spec: Any,
) -> None:
    """A pod of somebody else's that wants eight GPUs by claim, which the scheduler does not find."""
    wanted = {"name": "gpus", "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 8}}
    claim = {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": {"requests": [wanted]}}}
    loop.cluster._store(f"{CLAIMS}/{name}", claim)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SAID}
    pod = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"priority": priority, "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]} | spec,
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    loop.cluster._store(f"{TEAM}/{name}", pod)


def put(loop: OperatorInMemory, status: dict[str, Any], *names: str) -> None:
    for name in names:
        loop.cluster._store(f"{CLAIMS}/{name}", {"metadata": {"name": name, "namespace": "team"}, "status": status})


def named(claims: Iterable[str]) -> list[dict[str, Any]]:
    return [{"name": claim, "resourceClaimName": claim} for claim in claims]


def bound(loop: OperatorInMemory, name: str, claims: Iterable[str], node: str = "n1") -> None:
    """A pod of somebody else's on a node, whose UID is its name."""
    meta = {"name": name, "namespace": "team", "uid": name}
    spec = {"nodeName": node, "containers": [], "resourceClaims": named(claims)}
    loop.cluster._store(f"{TEAM}/{name}", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


def hold(loop: OperatorInMemory, name: str, owner: str) -> None:
    """Another pod that holds GPUs of the node by claim, since an agent was ended there. It asks for one."""
    put(loop, reserved(name), name)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(loop.yields.records[0].at)}
    bound(loop, name, [name])
    pod = loop.cluster.objects[f"{TEAM}/{name}"]
    pod["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}]
    pod["spec"]["containers"] = [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]
    pod["status"]["conditions"] = [scheduled]


def move(loop: OperatorInMemory, namespace: str, *paths_in_team: str) -> None:
    for path in paths_in_team:
        raw = loop.cluster.objects.pop(path)
        raw["metadata"]["namespace"] = namespace
        loop.cluster._store(path.replace("team", namespace), raw)


async def passes(loop: OperatorInMemory, after: timedelta = timedelta()) -> None:
    """Time goes on; a look, and a pass over all profiles, as the watches see the world then."""
    loop.now += after
    await loop.yields.look()
    await loop.once()
    loop.collect_garbage()
    await loop.list_everything()


def attempt(loop: OperatorInMemory) -> dict[str, Any]:
    (report,) = [body for path, body in loop.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
    return dict((report.get("status") or {}).get("attempt") or {})


def reasons(loop: OperatorInMemory) -> dict[str, str]:
    return {row["reason"]: row["message"] for row in loop.status("nightly")["reasons"]}


def events(loop: OperatorInMemory) -> dict[str, str]:
    found = paths.collection("v1", "events", NAMESPACE)
    rows = [body for path, body in loop.cluster.objects.items() if path.startswith(f"{found}/")]
    return {row["reason"]: row["message"] for row in rows}


async def test_an_agent_is_ended_for_a_pod_that_goes_on_waiting_and_the_gpus_are_kept_for_it_for_a_while(
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
    await passes(loop, HELP_WITHIN)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == ["NotHelped"]
    assert "for an hour no agent is ended for it" in events(loop)["YieldInVain"]
    assert loop.metric("precision_operator_yields_total", outcome="NotHelped") == 1
    assert "KeptForPod" not in reasons(loop)


@pytest.mark.parametrize(
    ("got", "outcome"),
    [(reserved("uid-train-0"), "Helped"), (ALLOCATED, "Gone"), (reserved("uid-train-0", NO_AGENTS), "Gone")],
)
async def test_a_pod_that_got_its_gpus_then_is_counted_as_helped(
    loop: OperatorInMemory, got: dict[str, Any], outcome: str
) -> None:
    ask(loop)
    await passes(loop)
    loop.cluster.objects[f"{TEAM}/train-0"]["spec"]["nodeName"] = "n1"
    loop.cluster.objects[f"{CLAIMS}/train-0"]["status"] = got
    await passes(loop)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == [outcome]
    assert loop.metric("precision_operator_yields_total", outcome=outcome) == 1
    assert loop.metric("precision_agent_runs_total", pool="NVIDIA-H100-80GB-HBM3", result="disrupted", reason="Yielded")


@pytest.mark.parametrize(
    ("owner", "node", "status", "outcome"),
    [
        ("uid-train", "n1", reserved("other-0"), "Helped"),
        ("uid-train@mallory", "n1", reserved("other-0"), "Taken"),
        ("uid-others", "n1", reserved("other-0"), "Taken"),
        ("uid-train", "n99", reserved("other-0"), "NotHelped"),
        ("uid-train", "n1", reserved("uid-old"), "NotHelped"),
        ("uid-train", "n1", reserved("other-0", NO_AGENTS), "NotHelped"),
    ],
)
async def test_another_pod_that_got_the_gpus_is_told_apart_by_its_owner(
    loop: OperatorInMemory, owner: str, node: str, status: dict[str, Any], outcome: str
) -> None:
    ask(loop)
    loop.cluster.objects[f"{TEAM}/train-0"]["metadata"]["ownerReferences"] = [{"uid": "uid-train", "controller": True}]
    await passes(loop)
    owner, _, namespace = owner.partition("@")
    hold(loop, "other-0", owner)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = status["allocation"] | {"nodeSelector": {"nodeSelectorTerms": [term]}}
    loop.cluster.objects[f"{CLAIMS}/other-0"]["status"] = status | {"allocation": allocation}
    move(loop, namespace or "team", f"{CLAIMS}/other-0", f"{TEAM}/other-0")
    await passes(loop)
    await passes(loop, HELP_WITHIN)
    assert [row["outcome"] for row in loop.status("nightly")["yields"]] == [outcome]
    assert loop.metric("precision_operator_yields_total", outcome=outcome) == 1
    assert ("YieldInVain" in events(loop)) == (outcome == "NotHelped")


def claims_read(loop: OperatorInMemory) -> int:
    return sum("resourceclaims/" in path for _, path in loop.cluster.requests)


NIC, MANY = reserved("u", ANOTHERS), [f"c{number}" for number in range(20_000)]


@pytest.mark.parametrize(
    ("status", "reads", "free"),
    [(NIC, 512, ["n2"]), *((said, 1, ["n1", "n2"]) for said in (ANOTHERS, {}, None)), (NIC, 0, ["n1", "n2"])],
    ids=["allocated", "of another pod", "not allocated", "never made", "on a node whose GPUs are none by claim"],
)
async def test_a_pod_with_any_number_of_claims_takes_its_own_node_alone_for_a_bounded_number_of_reads(
    status: dict[str, Any] | None, reads: int, free: list[str]
) -> None:
    loop = by_claim("n1", "n2") if reads else OperatorInMemory("n1", "n2")
    if status is not None:
        put(loop, status, *MANY[: reader.MOST_CLAIMS])
    bound(loop, "u", MANY)
    await loop.begin("nightly", rollout={"maxConcurrent": 2})
    assert claims_read(loop) == reads
    assert sorted(loop.jobs()) == free


async def test_claims_that_hold_no_gpus_are_read_once_and_so_many_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_READ", 2)
    loop = by_claim("n1", "n2", "n3", "n4")
    for node in ("n1", "n2", "n3"):
        names = [f"{node}-{number}" for number in range(5)]
        put(loop, reserved(node, ANOTHERS), *names)
        bound(loop, node, names, node)
    loop.apply("nightly", rollout={"maxConcurrent": 4})
    for jobs, read in (*[(["n4"], 3)] * 4, (["n1", "n2", "n3", "n4"], 3)):
        loop.gatherer._probes.clear()
        loop.cluster.requests.clear()
        await loop.once()
        assert (sorted(loop.jobs()), claims_read(loop)) == (jobs, read)


@pytest.mark.parametrize("greedy", [0, 1])
async def test_a_pods_few_claims_are_read_beside_one_of_many(monkeypatch: pytest.MonkeyPatch, greedy: int) -> None:
    monkeypatch.setattr(reader, "MOST_CLAIMS", 8)
    loop = by_claim("n1")
    put(loop, {}, *MANY[:20])
    for name in ["greedy"] * greedy + ["honest"]:
        put(loop, reserved(name, ANOTHERS), f"nic-{name}")
        bound(loop, name, [f"nic-{name}", *(MANY[:20] if name == "greedy" else ())])
    await loop.list_everything()
    assert [(await loop.gatherer.probe(["n1"]))["n1"].holder for _ in range(2)] == [None, None]


async def test_what_a_claim_was_for_one_pod_is_not_believed_of_a_claim_of_its_name_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = by_claim("n1")
    for name, status, holds in (("p", {"allocation": {"devices": {}}}, False), ("q", ALLOCATED, True)):
        put(loop, reserved(name, status), "c")
        bound(loop, name, ["c"])
        await loop.list_everything()
        for most in (0 if holds else 1, 2):
            monkeypatch.setattr(reader, "MOST_CLAIMS", most)
            assert bool((await loop.gatherer.probe(["n1"]))["n1"].holder) == holds


async def test_many_pods_of_one_namespace_keep_no_pod_of_another_from_being_read(loop: OperatorInMemory) -> None:
    for number in range(yields.MOST_PODS):
        ask(loop, f"asks-{number}", priority=2000)
        move(loop, "others", f"{TEAM}/asks-{number}")
    ask(loop)
    await loop.yields._waiting()
    assert "uid-train-0" in loop.yields._gpus
    assert len(loop.yields._since) == yields.MOST_PODS


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
            loop.cluster.objects[f"{TEAM}/{kind}-{number}"]["spec"]["resourceClaims"] = named(MANY[:claims])
    put(loop, {}, *MANY[: yields.MOST_CLAIMS])
    for reads in (most, most, most // 2, 0):  # 1,280 in all: what is none of GPUs is not read again at once
        loop.cluster.requests.clear()
        await loop.yields._waiting()
        assert claims_read(loop) == reads
    loop.cluster.requests.clear()
    assert [holder async for holder in loop.yields._holders(loop.yields.records[0])] == []
    assert claims_read(loop) == most


async def test_the_next_leader_knows_from_the_status_what_was_tried(loop: OperatorInMemory) -> None:
    ask(loop)
    await passes(loop)
    (told,) = yields_told([profile_view(loop.cluster.objects[f"{paths.profiles(NAMESPACE)}/nightly"])])
    (own,) = loop.yields.records
    whose = attrgetter("pod_uid", "owner", "node_uid", "job_uid")
    assert whose(told) == whose(own)
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
    ("changes", "status", "why"),
    [
        ({"priority": -1000}, {}, "it has no higher priority"),
        ({"device_class": "rdma"}, {}, "it waits for a NIC"),
        ({"affinity": {"nodeAffinity": {"names": MANY}}}, {}, "it says at length where it may run"),
        ({}, ALLOCATED, "it has its GPUs, and waits for another claim"),
    ],
)
async def test_no_agent_is_ended_where(
    loop: OperatorInMemory, changes: dict[str, Any], status: dict[str, Any], why: str
) -> None:
    ask(loop, **changes)
    loop.cluster.objects[f"{CLAIMS}/train-0"]["status"] = status
    await passes(loop)
    assert list(loop.jobs()) == ["n1"], why


async def test_a_claim_that_can_not_be_read_ends_nothing_and_is_looked_at_again(loop: OperatorInMemory) -> None:
    ask(loop)
    for _ in range(2):
        loop.cluster.fail("GET", "resourceclaims/train-0", ApiError(403, "Forbidden", "no"))
        await passes(loop, PATIENCE)
        assert list(loop.jobs()) == ["n1"]
    await passes(loop, PATIENCE)
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
    await loop.begin("nightly")
    loop.run_agents()
    await loop.once()
    loop.cluster.requests.clear()
    await loop.yields.look()
    assert loop.cluster.requests == []
