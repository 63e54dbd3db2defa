"""What the nodes under measurement may draw together, told from outside: from what a watch showed and nothing else."""

from collections.abc import Iterable, Mapping

from precision_api.facts import names
from tests.support.history import Change, Object, has_ended

BOARD_WATTS = {"NVIDIA-GB200": 1200, "NVIDIA-H100-80GB-HBM3": 700}
"""One GPU's limit by its node's label, from the datasheets: the product's own table is what is being checked."""


def default_watts(nodes: Iterable[Object]) -> dict[str, int]:
    """Watts of each node's GPUs before anything was measured there, by UID."""
    return {
        node["metadata"]["uid"]: BOARD_WATTS[node["metadata"]["labels"][names.DEFAULT_POOL_LABEL]]
        * int(node["status"]["allocatable"][names.GPU_RESOURCE])
        for node in nodes
    }


def drawn(changes: Iterable[Change], defaults: Mapping[str, int]) -> list[int]:
    """Watts of all nodes with an agent, after each change of a Job or a pod.

    An agent is a Job that has not ended, suspended or not, or a pod that has not. A node counts with the limits that
    its newest report told when the change was made.
    """
    limits, live, sums = dict(defaults), dict[str, str](), list[int]()
    for change in changes:
        node = change.object["metadata"].get("labels", {}).get(names.LABEL_NODE_UID)
        if node not in defaults:
            continue
        if change.kind == "reports":
            told = change.object.get("status", {}).get("hardware", {}).get("limitWatts")
            limits[node] = told or limits[node]
        elif change.kind in ("jobs", "pods"):
            live.pop(change.uid, None)
            if change.type != "DELETED" and not has_ended(change.object):
                live[change.uid] = node
            sums.append(sum(limits[uid] for uid in set(live.values())))
    return sums
