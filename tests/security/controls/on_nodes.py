"""Controls whose tests need the lab's real nodes: the acts of a hostile agent image.

Most acts need several protections out at once. Pod Security `restricted`, which the tests' namespaces enforce, would
refuse such pods, so that it is out too.
"""

from tests.security.controls.control import Change, Control, control, replaced
from tests.security.controls.of_tenants import MANIFEST
from tests.security.controls.on_cluster import AGENTS_ARE_ADMINS

_ACT = "tests/node/faults/test_hostile_agent.py::test_an_agent_is_refused_what_an_unprotected_pod_gets"
UNRESTRICTED: Change = replaced(
    "tests/support/installed.py",
    "pod-security.kubernetes.io/enforce=restricted",
    "pod-security.kubernetes.io/enforce=privileged",
)
UNPROTECTED: tuple[Change, ...] = (
    UNRESTRICTED,
    AGENTS_ARE_ADMINS,
    replaced(MANIFEST, '"automountServiceAccountToken": False', '"automountServiceAccountToken": True'),
    replaced(MANIFEST, '"runAsNonRoot": True,', '"runAsUser": 0, "runAsGroup": 0,'),
    replaced(MANIFEST, '"seccompProfile": {"type": "RuntimeDefault"}', '"seccompProfile": {"type": "Unconfined"}'),
    replaced(MANIFEST, '"allowPrivilegeEscalation": False', '"allowPrivilegeEscalation": True'),
    replaced(MANIFEST, '"readOnlyRootFilesystem": True', '"readOnlyRootFilesystem": False'),
    replaced(MANIFEST, '"capabilities": {"drop": ["ALL"]}', '"capabilities": {"add": ["SYS_ADMIN", "SYS_PTRACE"]}'),
    replaced(MANIFEST, '"restartPolicy": "Never",', '"restartPolicy": "Never", "hostPID": True,'),
    replaced("lab/precision_lab/nodes/node.py", "POD_PIDS = 1024", "POD_PIDS = 4096"),
)
"""All at once: one cluster shows all acts, and images are built once."""


def acts(claim: str, without: str, *names: str) -> Control:
    """What needs these parts, of those that are out."""
    return control(claim, without, UNPROTECTED, *(f"{_ACT}[{act}]" for act in names), needs="node")


ON_NODES: tuple[Control, ...] = (
    acts(
        "ask the API server for anything",
        "in the pod of a hostile agent, with all of the next two rows: `automountServiceAccountToken: false`, and the "
        "account without rights (it is an admin's)",
        "read_token",
        "ask_the_api_server",
    ),
    acts(
        "write to its image, become root, mount a filesystem, or make a device",
        "there too: user 65532, read-only root, dropped capabilities, seccomp, `allowPrivilegeEscalation: false`, and "
        "Pod Security `restricted`, which would refuse the pod",
        "write_to_the_image",
        "become_root",
        "mount_a_file_system",
        "make_a_device_of_the_disk",
    ),
    acts(
        "read the node's files or other pods' volumes, or see the node's processes",
        "there too: the pod's own processes (`hostPID`); and the kubelet's `podPidsLimit`",
        "see_the_nodes_processes",
        "read_the_nodes_files",
        "read_other_pods_volumes",
        "start_2000_threads",
    ),
)
