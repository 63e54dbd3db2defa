"""The lab's cluster: real control plane, simulated nodes, the real agent program, and what a kubelet would do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from precision_api.exchange import wire
from precision_api.exchange.request import request_hash
from precision_api.facts.products import ProductClass
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import KubectlError, Lab, LabSettings, start_lab
from precision_lab.processes.identity import Identity
from tests.support.agent_job import agent_job, request_for

pytestmark = pytest.mark.cluster

LONG = "agent-seconds:3600"
FLEET = [
    NodeSpec("GB200", name="plain"),
    NodeSpec("H100", name="noisy", traits=("fault:noisy-log",)),
    NodeSpec("H100", name="logless", traits=("fault:no-log",)),
    NodeSpec("H100", name="followed", traits=("agent-seconds:1",)),
    NodeSpec("H100", name="evicting", traits=("fault:evict",)),
    NodeSpec("H100", name="imageless", traits=("fault:image-pull",)),
    NodeSpec("H100", name="refusing", traits=("fault:refuse:GPUBusy", "fault-runs:1")),
    NodeSpec("H100", name="busy", traits=("busy",)),
    NodeSpec("H100", name="endless", traits=("fault:hang",)),
    NodeSpec("GB300", name="slow-starter", traits=(LONG,)),
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
    """Starts an agent on this node."""
    lab.apply(agent_job(node, PRODUCT[node], **pod))


def until(lab: Lab, node: str, what: str) -> None:
    """Waits for a condition of the Job (`condition=Failed`) or for something of its pod (`pod:jsonpath=...`)."""
    target = ["pod", f"--selector=job-name={node}"] if what.startswith("pod:") else [f"job/{node}"]
    if what.startswith("pod:"):
        lab.kubectl("wait", *target, "--for=create", "--timeout=30s")
    lab.kubectl("wait", *target, f"--for={what.removeprefix('pod:')}", "--timeout=30s")


def pod(lab: Lab, node: str) -> Any:
    """The only pod of the node's Job."""
    (only,) = lab.get("pods", f"--selector=job-name={node}")["items"]
    return only


def terminated(lab: Lab, node: str) -> Any:
    """How its container ended."""
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


def test_a_lost_log_is_an_error_of_kubectl_logs_and_the_job_is_complete(lab: Lab) -> None:
    run(lab, "logless")
    until(lab, "logless", "condition=Complete")
    with pytest.raises(KubectlError, match="unable to retrieve container logs"):
        lab.kubectl("logs", "job/logless")


def test_a_followed_log_ends_with_the_agent_and_has_its_result(lab: Lab) -> None:
    run(lab, "followed")
    until(lab, "followed", "pod:jsonpath={.status.phase}=Running")
    assert "PPR1 1/" in lab.kubectl("logs", "--follow", "job/followed")


def test_an_eviction_fails_the_job_by_its_failure_policy_and_no_pod_follows(lab: Lab) -> None:
    run(lab, "evicting")
    until(lab, "evicting", "condition=Failed")
    conditions = lab.get("job", "evicting")["status"]["conditions"]
    assert [item["reason"] for item in conditions if item["type"] == "Failed"] == ["PodFailurePolicy"]
    assert pod(lab, "evicting")["status"]["reason"] == "Evicted"


def test_an_image_that_cannot_be_pulled_keeps_the_pod_pending_until_its_job_is_deleted(lab: Lab) -> None:
    run(lab, "imageless")
    reason = "{.status.containerStatuses[0].state.waiting.reason}"
    until(lab, "imageless", f"pod:jsonpath={reason}=ImagePullBackOff")
    assert pod(lab, "imageless")["status"]["phase"] == "Pending"
    lab.kubectl("delete", "job", "imageless")
    lab.kubectl("wait", "--for=delete", "pod", "--selector=job-name=imageless", "--timeout=30s")


def test_a_fault_of_one_run_is_gone_in_the_next(lab: Lab) -> None:
    run(lab, "refusing")
    until(lab, "refusing", "condition=Failed")
    assert terminated(lab, "refusing")["exitCode"] == 14
    assert json.loads(terminated(lab, "refusing")["message"])["reason"] == "GPUBusy"
    lab.kubectl("delete", "job", "refusing")
    lab.kubectl("wait", "--for=delete", "pod", "--selector=job-name=refusing", "--timeout=30s")
    run(lab, "refusing")
    until(lab, "refusing", "condition=Complete")


def test_an_agent_waits_for_a_busy_node_and_runs_when_it_is_free(lab: Lab) -> None:
    run(lab, "busy")
    until(lab, "busy", "pod:condition=PodScheduled=False")
    lab.free_node("busy")
    until(lab, "busy", "condition=Complete")


def test_a_pod_beyond_its_deadline_is_ended_by_its_node(lab: Lab) -> None:
    run(lab, "endless", activeDeadlineSeconds=1)
    until(lab, "endless", "condition=Failed")
    assert pod(lab, "endless")["status"]["reason"] == "DeadlineExceeded"


def test_a_deleted_job_leaves_no_pod_although_its_agent_was_running(lab: Lab) -> None:
    run(lab, "slow-starter")
    until(lab, "slow-starter", "pod:jsonpath={.status.phase}=Running")
    lab.kubectl("delete", "job", "slow-starter")
    lab.kubectl("wait", "--for=delete", "pod", "--selector=job-name=slow-starter", "--timeout=30s")


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


def test_a_service_accounts_kubeconfig_has_its_rights_and_no_others(lab: Lab) -> None:
    limited = lab.service_account_kubeconfig("default", "default")
    who = lab.kubectl("auth", "whoami", "--output=jsonpath={.status.userInfo.username}", kubeconfig=limited)
    assert who == "system:serviceaccount:default:default"
    with pytest.raises(KubectlError, match=r'Forbidden.*cannot list resource "nodes"'):
        lab.kubectl("get", "nodes", kubeconfig=limited)


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
