"""What happens to agents on real nodes: kubelets that restart, killed processes, drains, preemption, deletion."""

import signal

import pytest

from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, Installed, Object

pytestmark = pytest.mark.node
PACE = 0.03
"""An agent of `llama3-8b` takes some ten seconds: long enough to meet with a fault."""
SLOW_PACE = 0.2
"""It takes a minute: it never ends by itself before the fault has come."""
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "training-high"},
    "value": 1000,
}


def test_an_agent_outlives_a_kubelet_that_restarts_and_a_leader_that_is_killed(installed: Installed) -> None:
    """One run for both: the node's kubelet is down for a while, and the operator that started the agent is killed."""
    node = installed.real.nodes[GPU_NODE]
    profile, agent = installed.at_work("restarts", PACE)
    former = installed.holder()
    (leader,) = [pod for pod in installed.pods("operator") if former.startswith(pod["metadata"]["name"])]
    installed.lab.processes.stop(node.kubelet, signal.SIGKILL)
    installed.kill_processes(leader)
    node.start_kubelet()
    installed.another_leads(former)
    profile.completes()
    report = profile.report()["status"]
    assert (report["state"], report["attempt"]["number"]) == ("Measured", 1), "nothing was measured twice"
    assert report["run"]["detail"], "the log was read after the restart"
    assert agent["metadata"]["uid"]
    installed.ready()
    profile.delete()


def test_a_leader_that_is_asked_to_end_hands_over_at_once(installed: Installed) -> None:
    former = installed.holder()
    installed.kubectl("delete", "pod", installed.leader(), "--wait=false")
    assert installed.another_leads(former, seconds=12) != former
    installed.ready()


def test_an_agent_that_is_killed_is_tried_again(installed: Installed) -> None:
    profile, agent = installed.at_work("killed", PACE)
    installed.kill_processes(agent)
    profile.completes()
    attempt = profile.report()["status"]["attempt"]
    assert (attempt["number"], profile.report()["status"]["state"]) == (2, "Measured")
    profile.delete()


def test_a_drain_takes_the_agent_and_the_node_is_measured_when_it_is_back(installed: Installed) -> None:
    profile, _ = installed.at_work("drained", SLOW_PACE)
    installed.lab.kubectl("drain", GPU_NODE, "--delete-emptydir-data", "--force", "--timeout=60s")
    eventually(lambda: "Cordoned" in profile.reasons())
    assert profile.status()["nodes"]["failed"] == 0, "the node is not to blame"
    installed.lab.kubectl("uncordon", GPU_NODE)
    eventually(lambda: profile.report().get("status", {}).get("state") == "Measured", 90)
    profile.delete()


def test_training_takes_the_gpus_from_an_agent(installed: Installed) -> None:
    installed.lab.apply(PRIORITY)
    profile, _ = installed.at_work("preempted", SLOW_PACE)
    installed.lab.apply(trainer())
    try:
        installed.lab.kubectl("wait", "pod/trainer", "-n", "default", "--for=condition=Ready", "--timeout=110s")
        eventually(lambda: profile.agent() is None)
        eventually(lambda: "Busy" in profile.reasons())
        assert profile.status()["nodes"]["failed"] == 0
    finally:
        installed.lab.kubectl("delete", "pod", "trainer", "-n", "default", "--grace-period=1")
    profile.delete()


def trainer() -> Object:
    """A pod of higher priority that wants all GPUs of the real node."""
    container = {"name": "trainer", "image": "localhost/pause:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "default"},
        "spec": {
            "priorityClassName": "training-high",
            "nodeSelector": {"kubernetes.io/hostname": GPU_NODE},
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container],
        },
    }
