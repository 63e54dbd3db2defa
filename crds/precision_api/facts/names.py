"""The names that all sides share: group, kinds, labels, annotations, condition types, and how objects are named."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

GROUP = "precisionprofiler.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

PROFILE_KIND = "PrecisionProfile"
PROFILE_PLURAL = "precisionprofiles"
REPORT_KIND = "NodePrecisionReport"
REPORT_PLURAL = "nodeprecisionreports"
PLAN_KIND = "CapacityPlan"
PLAN_PLURAL = "capacityplans"

AGENT_APP = "precision-agent"
AGENT_CONTAINER = "agent"
REQUEST_ENV = "PRECISION_REQUEST"

LABEL_APP = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "precision-profiler"
LABEL_PROFILE_UID = f"{GROUP}/profile-uid"
LABEL_NODE_UID = f"{GROUP}/node-uid"
LABEL_RUN = f"{GROUP}/run"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_REFERENCE, REFERENCE_FILE = f"{GROUP}/reference", "reference.json"
"""Of a ConfigMap with a reference, and its key there."""
LABEL_WATTS_PER_GPU = f"{GROUP}/watts-per-gpu"
"""Of a node: what one of its GPUs may draw, in watts, as its admin says."""
ANNOTATION_PROFILE = f"{GROUP}/profile"
ANNOTATION_NODE = f"{GROUP}/node"
ANNOTATION_RERUN = f"{GROUP}/rerun"
ANNOTATION_CLOSED = f"{GROUP}/closed"  # of a report: when its node was last taken from True to False, in which pools
ANNOTATION_BASIS = f"{GROUP}/basis"
ANNOTATION_DRIVER = f"{GROUP}/driver"
ANNOTATION_WORKLOAD = f"{GROUP}/workload"
ANNOTATION_REQUEST_HASH = f"{GROUP}/request-hash"
ANNOTATION_BOOT = f"{GROUP}/boot-id"
ANNOTATION_DEADLINE = f"{GROUP}/deadline-seconds"
ANNOTATION_WATTS = f"{GROUP}/watts"
"""Of a Job, what its namespace's limits count its node by. Who may write Jobs may write it: it decides nothing."""

DEFAULT_POOL_LABEL = "nvidia.com/gpu.product"
GPU_RESOURCE = "nvidia.com/gpu"
KWOK_NODE = "kwok.x-k8s.io/node"
"""Annotation of simulated nodes: kwok and the stand-in leave all others alone."""
SHARED_MEMORY = "8Gi"
"""/dev/shm of an agent."""
DEFAULT_PRIORITY_CLASS = "precision-agent"

ACCEPTED, PROGRESSING, COMPLETE, DEGRADED = "Accepted", "Progressing", "Complete", "Degraded"
STOPPED = "Stopped"
"""Condition of a profile: an admin holds or ends all agents of the fleet."""
FRESH, SUCCEEDED, FAILED = "Fresh", "Succeeded", "Failed"
SOLVED, DEADLINES_PROMISED = "Solved", "DeadlinesPromised"
Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def job_name(profile_uid: str, node_uid: str, run: str, attempt: int) -> str:
    """The deterministic name of one attempt's Job: a second create of the same attempt meets a 409."""
    return f"pp-{_hash(profile_uid, node_uid, run, str(attempt))}"


def report_name(profile: str, node_uid: str) -> str:
    """The name of one node's report: the profile's, cut to 40, and a hash of the whole name and the node's UID."""
    return f"{profile[:40].rstrip('-.')}-{_hash(profile, node_uid)[:10]}"


def detail_name(report: str) -> str:
    """The name of the ConfigMap that holds a node's full result."""
    return f"{report}-detail"


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """By key, the items that come with it, in their order."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for key, item in pairs:
        groups[key].append(item)
    return dict(groups)
