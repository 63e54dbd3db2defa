"""The images that were just built start on real nodes, in namespaces that enforce Pod Security `restricted`."""

from pathlib import Path

import pytest

from precision_lab.builds.image_archives import NAMES, version
from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, SIMULATED_NODES, TEAM, Installed, Object, command_of, log_of, processes_of

pytestmark = pytest.mark.node
SAY_USER = "import getpass, os, precision_agent; print(os.getuid(), getpass.getuser())"
"""Inductor asks for the user's name; the package comes from the image's own search path."""


def test_both_programs_run_before_the_cluster_knows_their_kinds(early: Installed) -> None:
    def running() -> list[str]:
        pods = [*early.pods("operator"), *early.pods("exporter")]
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]

    assert len(eventually(lambda: (names := running()) and len(names) == 3 and names)) == 3


def test_the_definitions_may_come_later_and_nothing_is_started_anew(early: Installed) -> None:
    before = {pod["metadata"]["uid"] for component in ("operator", "exporter") for pod in early.pods(component)}
    early.release.put(**early.values())
    early.ready()
    pods = [*early.pods("operator"), *early.pods("exporter")]
    assert {pod["metadata"]["uid"] for pod in pods} == before
    restarts = [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]]
    assert restarts == [0, 0, 0]


def test_the_programs_run_as_a_user_without_a_name(installed: Installed) -> None:
    for component in ("operator", "exporter"):
        for pod in installed.pods(component):
            pids = [
                pid for pid in processes_of(pod["metadata"]["uid"]) if "precision_operator" in "".join(command_of(pid))
            ]
            assert pids, pod["metadata"]["name"]
            assert Path(f"/proc/{pids[0]}").stat().st_uid == 65532


def test_the_agents_image_has_its_user_that_users_name_and_its_program_by_itself(installed: Installed) -> None:
    """Without what Jobs and the GPUs' device plugin set: user, name and search path are the image's."""
    installed.lab.apply(agent_image_pod())

    def ended() -> Object | None:
        pod: Object = installed.lab.get("pod", "image", "--namespace", TEAM)
        return pod if pod["status"]["phase"] in ("Succeeded", "Failed") else None

    pod = eventually(ended)
    assert pod
    assert (log_of(installed.lab, pod), pod["status"]["phase"]) == ("65532 precision\n", "Succeeded")
    installed.lab.kubectl("delete", "pod", "image", "--namespace", TEAM)


def test_the_two_operators_run_on_two_nodes(installed: Installed) -> None:
    assert len({pod["spec"]["nodeName"] for pod in installed.pods("operator")}) == 2


def test_every_node_of_the_cluster_is_ready(installed: Installed) -> None:
    assert len(installed.lab.get("nodes")["items"]) == SIMULATED_NODES + 3


def agent_image_pod() -> Object:
    """A pod of the agent's image in the watched namespace, which enforces `restricted`; it prints its user and ends."""
    container = {
        "name": "image",
        "image": f"{NAMES['agent']}:{version()}",
        "command": ["python", "-c", SAY_USER],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "image", "namespace": TEAM},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": GPU_NODE},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }
