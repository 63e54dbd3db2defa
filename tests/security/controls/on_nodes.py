"""Controls whose tests need the lab's real nodes: the acts of a hostile agent image.

Most acts need several protections out at once. Pod Security `restricted`, which the tests' namespaces enforce, would
refuse such pods, so that it is out too.
"""

from __future__ import annotations

from tests.security.controls.control import Change, Control, control, replaced
from tests.security.controls.of_tenants import MANIFEST
from tests.security.controls.on_cluster import AGENTS_ARE_ADMINS

_ACT = "tests/node/faults/test_hostile_agent.py::test_an_agent_is_refused_what_an_unprotected_pod_gets"
UNRESTRICTED: Change = replaced(
    "tests/support/installed.py",
    "pod-security.kubernetes.io/enforce=restricted",
    "pod-security.kubernetes.io/enforce=privileged",
)
ROOT_IN_A_CONTAINER: tuple[Change, ...] = (
    UNRESTRICTED,
    replaced(MANIFEST, '"runAsNonRoot": True,', '"runAsUser": 0, "runAsGroup": 0,'),
    replaced(MANIFEST, '"seccompProfile": {"type": "RuntimeDefault"}', '"seccompProfile": {"type": "Unconfined"}'),
    replaced(MANIFEST, '"allowPrivilegeEscalation": False', '"allowPrivilegeEscalation": True'),
    replaced(MANIFEST, '"readOnlyRootFilesystem": True', '"readOnlyRootFilesystem": False'),
    replaced(MANIFEST, '"capabilities": {"drop": ["ALL"]}', '"capabilities": {"add": ["SYS_ADMIN", "SYS_PTRACE"]}'),
)
AMONG_THE_NODES_PROCESSES = replaced(
    MANIFEST, '"restartPolicy": "Never",', '"restartPolicy": "Never", "hostPID": True,'
)

ON_NODES: tuple[Control, ...] = (
    control(
        "an agent's token, account and threads",
        "ask the API server for anything",
        "`automountServiceAccountToken: false`, the account without rights (it is an admin's), and the kubelet's "
        "`podPidsLimit` (4,096)",
        (
            replaced(MANIFEST, '"automountServiceAccountToken": False', '"automountServiceAccountToken": True'),
            AGENTS_ARE_ADMINS,
            replaced("lab/precision_lab/nodes/node.py", "POD_PIDS = 1024", "POD_PIDS = 4096"),
        ),
        *(f"{_ACT}[{act}]" for act in ("read_token", "ask_the_api_server", "start_2000_threads")),
        needs="node",
    ),
    control(
        "an agent's user and capabilities",
        "write to its image, become root, mount a filesystem, or make a device",
        "user 65532, read-only root, dropped capabilities, seccomp and `allowPrivilegeEscalation: false` at once; and "
        "Pod Security, which would refuse the pod",
        ROOT_IN_A_CONTAINER,
        *(
            f"{_ACT}[{act}]"
            for act in ("write_to_the_image", "become_root", "mount_a_file_system", "make_a_device_of_the_disk")
        ),
        needs="node",
    ),
    control(
        "an agent's processes and files",
        "read the node's files or other pods' volumes, or see the node's processes",
        "all of the row above, and the pod's own processes (`hostPID`)",
        (*ROOT_IN_A_CONTAINER, AMONG_THE_NODES_PROCESSES),
        *(f"{_ACT}[{act}]" for act in ("see_the_nodes_processes", "read_the_nodes_files", "read_other_pods_volumes")),
        needs="node",
    ),
)
