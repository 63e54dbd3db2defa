"""An agent image that is not ours, in the pod that the operator makes, tries what docs/security.md says it can't.

The positive control is the same program in a pod without any of the protections: there it gets what it asks for.
"""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from precision_lab.builds.image_archives import NAMES, version
from precision_lab.nodes.node import PAUSE_IMAGE
from tests.support import hostile
from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, ONLY_GPU_NODE, TEAM, Installed, Object, command_of, log_of, processes_of

pytestmark = pytest.mark.node
PROGRAM = inspect.getsource(hostile)
ACTS = [act.__name__ for act in hostile.ACTS]
CONTROL, OWNER = "unprotected", "unprotected-admin"


@pytest.fixture(scope="module")
def tried(installed: Installed) -> Iterator[dict[str, Object]]:
    """What the agent's container told of each act."""
    with installed.real.agents_run(PROGRAM):
        profile = installed.apply("hostile", target=ONLY_GPU_NODE)
        pod = profile.running_agent()
    yield told(log_of(installed.lab, pod))
    profile.delete()


@pytest.fixture(scope="module")
def control(installed: Installed) -> Iterator[dict[str, Object]]:
    """What an unprotected pod on the same node told of each act; it is there for as long as that takes."""
    objects = unprotected()
    installed.lab.apply(*objects)
    pod = objects[-1]

    def done() -> str:
        phase = installed.lab.get("pod", CONTROL, "-n", "default")["status"].get("phase")
        text = log_of(installed.lab, pod) if phase == "Running" else ""
        return text if "measuring" in text else ""

    try:
        yield told(eventually(done, 180))
    finally:
        for item in objects:
            namespace = item["metadata"].get("namespace", "default")
            words = ("delete", item["kind"], item["metadata"]["name"], "-n", namespace, "--grace-period=1")
            installed.lab.kubectl(*words)


@pytest.mark.parametrize("act", ACTS)
def test_an_agent_is_refused_what_an_unprotected_pod_gets(
    tried: dict[str, Object], control: dict[str, Object], act: str
) -> None:
    if act == "start_2000_threads":  # a limit of the kubelet's, for all pods: its control is a process of this machine
        code = "from tests.support import hostile; print(hostile.start_2000_threads())"
        assert "2000 threads" in subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    else:
        assert "got" in control[act], f"the positive control was refused: {control[act]}"
    assert "refused" in tried[act], f"an agent got {tried[act]}"


def test_a_tenants_patch_of_an_agents_image_runs_in_its_pod(installed: Installed) -> None:
    """Where `policies.agents` is off: role `edit` suffices, and restartPolicy Never does not hold."""
    lab, patch = installed.lab, json.dumps({"spec": {"containers": [{"name": "agent", "image": PAUSE_IMAGE}]}})
    lab.kubectl("create", "rolebinding", "tenant", "-n", TEAM, "--clusterrole=edit", "--user=tenant")
    profile, pod = installed.at_work("swapped", 0.2)
    lab.kubectl("patch", "pod", pod["metadata"]["name"], "-n", TEAM, "--as=tenant", f"--patch={patch}")

    def programs() -> set[str]:
        return {command_of(pid)[0] for pid in processes_of(pod["metadata"]["uid"]) if command_of(pid)[1:]}

    eventually(lambda: programs() == {"/pause"}, 60, profile.situation)
    after = lab.get("pod", pod["metadata"]["name"], "-n", TEAM)
    container = after["spec"]["containers"][0]
    (status,) = after["status"]["containerStatuses"]
    assert (after["metadata"]["uid"], status["restartCount"]) == (pod["metadata"]["uid"], 1)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    profile.delete()
    lab.kubectl("delete", "rolebinding", "tenant", "-n", TEAM)


def told(log: str) -> dict[str, Object]:
    """The program's lines, by act."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return {line["act"]: line for line in lines}


def unprotected() -> list[Object]:
    """An account with all rights, and a privileged pod that runs the program as root among the node's processes."""
    subject = {"kind": "ServiceAccount", "name": OWNER, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    container = {
        "name": "agent",
        "image": f"{NAMES['agent']}:{version()}",
        "command": ["python", "-c", PROGRAM],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "resources": {"limits": {"memory": "512Mi"}},
    }
    spec = {
        "serviceAccountName": OWNER,
        "hostPID": True,
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": GPU_NODE},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": OWNER, "namespace": "default"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": OWNER},
            "subjects": [subject],
            "roleRef": role,
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": CONTROL, "namespace": "default"}, "spec": spec},
    ]
