"""The lab's cluster: real control plane, simulated nodes, the real agent program, and what a kubelet would do."""

from collections.abc import Iterator
from typing import Any

import pytest

from precision_api.exchange import wire
from precision_api.exchange.request import MeasurementRequest, RequestNode, request_hash, request_json
from precision_api.facts.names import AGENT_APP, AGENT_CONTAINER, GPU_RESOURCE, LABEL_APP, REQUEST_ENV
from precision_api.facts.products import ProductClass
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.fleet.hardware import HARDWARE
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.processes.supervisor import Identity
from tests.support.result_objects import request

pytestmark = pytest.mark.cluster


def request_for(node: str, product: ProductClass) -> MeasurementRequest:
    facts = RequestNode(name=node, uid=f"uid-of-{node}", product=product, gpus=HARDWARE[product].gpus)
    return request(node=facts, recipes=("bf16", "fp8_current"))


def agent_job(node: str, product: ProductClass, **pod: Any) -> dict[str, Any]:
    """A Job that runs the agent, as the operator would make it, named like the node; `pod`: more of the pod's spec."""
    resources = {"limits": {GPU_RESOURCE: str(HARDWARE[product].gpus)}}
    variable = {"name": REQUEST_ENV, "value": request_json(request_for(node, product))}
    container = {"name": AGENT_CONTAINER, "image": "registry.example/agent:1", "resources": resources}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "affinity": {"nodeAffinity": affinity},
        "tolerations": [{"key": key, "operator": "Exists"} for key in (GPU_RESOURCE, "kubernetes.io/arch")],
        "containers": [{**container, "env": [variable]}],
        **pod,
    }
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": node},
        "spec": {
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [disrupted]},
            "template": {"metadata": {"labels": {LABEL_APP: AGENT_APP}}, "spec": spec},
        },
    }


LONG = "agent-seconds:3600"
FLEET = [
    NodeSpec("GB200", name="plain"),
    NodeSpec("H100", name="noisy", traits=("fault:noisy-log",)),
    NodeSpec("H100", name="followed", traits=("agent-seconds:1",)),
    NodeSpec("H100", name="endless", traits=("fault:hang",)),
    NodeSpec("GB300", name="vanishing", traits=(LONG,)),
    NodeSpec("GB300", name="unready", traits=("not-ready",)),
]
PRODUCT: dict[str, ProductClass] = {spec.name: spec.product for spec in FLEET}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """One cluster for this module; each test has a node of its own."""
    with start_lab(FLEET, LabSettings(agent_seconds=0.1)) as started:
        yield started


def run(lab: Lab, node: str, **pod: Any) -> None:
    lab.apply(agent_job(node, PRODUCT[node], **pod))


def until(lab: Lab, node: str, what: str) -> None:
    """Waits for a condition of the Job (`condition=Failed`) or for something of its pod (`pod:jsonpath=...`)."""
    target = ["pod", f"--selector=job-name={node}"] if what.startswith("pod:") else [f"job/{node}"]
    if what.startswith("pod:"):
        lab.kubectl("wait", *target, "--for=create", "--timeout=30s")
    lab.kubectl("wait", *target, f"--for={what.removeprefix('pod:')}", "--timeout=30s")


def pod(lab: Lab, node: str) -> Any:
    (only,) = lab.get("pods", f"--selector=job-name={node}")["items"]
    return only


def terminated(lab: Lab, node: str) -> Any:
    return pod(lab, node)["status"]["containerStatuses"][0]["state"]["terminated"]


@pytest.mark.parametrize("node", ["plain", "noisy"])
def test_an_agents_result_comes_back_through_message_and_log(lab: Lab, node: str) -> None:
    run(lab, node)
    until(lab, node, "condition=Complete")
    expected = request_hash(request_for(node, PRODUCT[node]))
    summary = wire.read_message(terminated(lab, node)["message"], expected)
    log = lab.kubectl("logs", f"job/{node}", f"--tail={summary.detail.lines + 200}")
    result = wire.read_log(log, summary.detail, expected)
    assert (result.node, result.provenance) == (node, "simulated")


def test_a_followed_log_ends_with_the_agent_and_has_its_result(lab: Lab) -> None:
    run(lab, "followed")
    until(lab, "followed", "pod:jsonpath={.status.phase}=Running")
    assert "PPR1 1/" in lab.kubectl("logs", "--follow", "job/followed")


def test_a_pod_beyond_its_deadline_is_ended_by_its_node(lab: Lab) -> None:
    run(lab, "endless", activeDeadlineSeconds=1)
    until(lab, "endless", "condition=Failed")
    assert pod(lab, "endless")["status"]["reason"] == "DeadlineExceeded"


def test_a_new_node_under_an_old_name_knows_nothing_of_the_old_nodes_agent(lab: Lab) -> None:
    run(lab, "vanishing")
    until(lab, "vanishing", "pod:jsonpath={.status.phase}=Running")
    lab.delete_node("vanishing")
    lab.add_node(NodeSpec("GB300"), "vanishing")
    assert pod(lab, "vanishing")["status"]["phase"] == "Running"
    lab.kubectl("delete", "pod", "--selector=job-name=vanishing", "--wait=false")
    until(lab, "vanishing", "condition=Failed")


def test_a_node_that_shall_not_be_ready_stays_so(lab: Lab) -> None:
    conditions = lab.get("node", "unready")["status"].get("conditions", [])
    assert [item["status"] for item in conditions if item["type"] == "Ready"] in ([], ["False"], ["Unknown"])


def test_two_clusters_run_side_by_side_and_closing_one_leaves_the_other(lab: Lab) -> None:
    with start_lab(settings=LabSettings(simulate=False)) as other:
        identities = [Identity.of(state.pid) for state in other.processes.states().values()]
        assert len(identities) == 4
        assert other.kubeconfig != lab.kubeconfig
        other.close()
        assert not any(identity and identity.alive() for identity in identities)
        assert not other.run_dir.exists()
    assert all(state.exit is None for state in lab.processes.states().values())
    assert lab.kubectl("get", "--raw=/readyz") == "ok"
