"""Which pods an agent's end could help, by what the API server shows of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from precision_api.facts.names import AGENT_APP, LABEL_APP
from precision_operator.core.observe import waiting_pods
from precision_operator.core.observe.nodes import NodeFacts, Taint
from tests.support.world import NOW

SAID = (
    "0/7 nodes are available: 1 cannot allocate all claims, 6 node(s) didn't satisfy plugin(s) [NodeAffinity]. still "
    "not schedulable, preemption: 0/7 nodes are available: 7 Preemption is not helpful for scheduling."
)
"""As the scheduler of 1.36 says it."""


def pod_object(message: str = SAID, status: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that the scheduler finds no node for."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {
        "metadata": {"name": "train-0", "namespace": "team", "uid": "uid-train-0"},
        "spec": {"priority": 1000} | spec,
        "status": {"phase": "Pending", "conditions": [condition]} | dict(status or {}),
    }


def test_a_pod_is_helped_by_devices_that_its_controller_asks_for() -> None:
    assert waiting_pods.could_be_helped(pod_object())
    owners = [{"kind": "Node", "uid": "1"}, {"kind": "Job", "uid": "2", "controller": True}]
    pod = pod_object()
    alone, nodes, other = waiting_pods.owner_of(pod), owners[:1], {"uid": "2"}
    for references, namespace, meta in ((nodes, "team", {}), (owners, "team", other), (owners, "mallory", other)):
        pod["metadata"] |= {"ownerReferences": references, "namespace": namespace}
        like = waiting_pods.owner_of({"metadata": {"namespace": "team", "uid": "uid-train-0"} | meta})
        assert (waiting_pods.waiting_pod(pod, 8, NOW).owner == like) == (namespace == "team")
    assert "uid-train-0" not in alone == waiting_pods.owner_of(pod_object())


@pytest.mark.parametrize(
    "pod",
    [
        pod_object("0/7 nodes are available: 7 Insufficient nvidia.com/gpu."),
        pod_object(nodeName="n1"),
        pod_object(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        pod_object(preemptionPolicy="Never"),
        pod_object(status={"nominatedNodeName": "n1"}),
        pod_object(status={"conditions": []}),
        pod_object() | {"metadata": {"uid": "1", "deletionTimestamp": "2026-11-21T09:00:00Z"}},
        pod_object() | {"metadata": {"uid": "1", "labels": {LABEL_APP: AGENT_APP}}},
    ],
    ids=["plugin", "bound", "gated", "preempts nobody", "nominated", "not looked at", "deleted", "an agent"],
)
def test_no_agent_is_ended_for_a_pod_that_is(pod: dict[str, Any]) -> None:
    assert not waiting_pods.could_be_helped(pod)


def asks(*requests: Mapping[str, Any]) -> dict[str, Any]:
    return {"spec": {"devices": {"requests": [{"name": f"r{n}", **row} for n, row in enumerate(requests)]}}}


def exactly(device_class: str = "gpu.nvidia.com", **more: Any) -> dict[str, Any]:
    return {"exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1} | more}


@pytest.mark.parametrize(
    ("claim", "gpus"),
    [
        (asks(exactly(count=8)), 8),
        (asks(exactly(count=3), exactly(count=2)), 5),
        (asks(exactly(allocationMode="All")), 0),
        (asks(exactly(count=8), exactly("rdma", count=8)), 8),
        (asks(exactly("rdma", count=8)), None),
        (asks(exactly(count=8, adminAccess=True)), None),
        (asks(exactly("mig.nvidia.com", count=7)), 1),
        (asks({"firstAvailable": [exactly(count=8)["exactly"], exactly(count=4)["exactly"]]}), 4),
        ({}, None),
    ],
)
def test_gpus_that_a_claim_asks_for(claim: dict[str, Any], gpus: int | None) -> None:
    assert waiting_pods.gpus_of_claim(claim, {"gpu.nvidia.com": True, "mig.nvidia.com": False}) == gpus


def test_gpus_are_of_what_selectors_and_extended_resources_say() -> None:
    def of(expression: str) -> dict[str, Any]:
        return {"spec": {"selectors": [{"cel": {"expression": expression}}]}}

    assert waiting_pods.class_of_gpus(
        of("device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'")
    )
    assert waiting_pods.class_of_gpus(of("device.attributes['gpu.nvidia.com'].type == 'mig'")) is False
    assert waiting_pods.class_of_gpus(of("device.driver == 'dra.net'")) is None
    assert waiting_pods.class_of_gpus({}) is None
    assert waiting_pods.classes_of(asks(exactly(), exactly("rdma"))) == {"gpu.nvidia.com", "rdma"}
    pod = pod_object(containers=[{"resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}}, {}])
    assert waiting_pods.gpus_of_resources(pod, "gpu.nvidia.com") == 8
    named = {"deviceclass.resource.kubernetes.io/whole": "2"}
    assert waiting_pods.gpus_of_resources(pod_object(containers=[{"resources": {"limits": named}}]), "whole") == 2


def facts(**changes: Any) -> NodeFacts:
    return NodeFacts(**({"name": "n1", "uid": "uid-n1", "gpus": 8, "labels": {"zone": "a", "rank": "7"}} | changes))


def required(*terms: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": wanted}}


def rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (required(rule("zone", "In", "a", "b")), True),
        (required(rule("zone", "NotIn", "a")), False),
        (required(rule("zone", "DoesNotExist"), rule("rank", "Gt", "5")), True),
        (required(rule("rank", "Lt", "5")), False),
        (required(rule("rank", "Exists")), True),
        (required({}), False),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), False),
    ],
)
def test_where_a_pod_may_run_by_its_selector_and_affinity(spec: dict[str, Any], may: bool) -> None:
    assert waiting_pods.waiting_pod(pod_object(**spec), 8, NOW).may_run_on(facts()) is may


def test_a_pod_runs_neither_on_too_few_gpus_nor_behind_a_taint_that_it_does_not_tolerate() -> None:
    assert not waiting_pods.waiting_pod(pod_object(), 9, NOW).may_run_on(facts())
    tainted = facts(taints=(Taint("team", "red", "NoSchedule"), Taint("soft", "", "PreferNoSchedule")))
    assert not waiting_pods.waiting_pod(pod_object(), 8, NOW).may_run_on(tainted)
    for toleration in ({"operator": "Exists"}, {"key": "team", "value": "red"}, {"key": "team", "operator": "Exists"}):
        assert waiting_pods.waiting_pod(pod_object(tolerations=[toleration]), 8, NOW).may_run_on(tainted)
    assert not waiting_pods.waiting_pod(pod_object(tolerations=[{"key": "team", "value": "blue"}]), 8, NOW).may_run_on(
        tainted
    )
