"""Random nodes: most can be measured, some show one of the things that keep an agent away."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.random_specs import RACK

Node = dict[str, Any]
GB200 = {"nvidia.com/gpu.product": "NVIDIA-GB200", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.clique": "f00d.1"}
DRIVER = "nvidia.com/cuda.driver-version.full"
ODD: tuple[dict[str, Any], ...] = (
    {"taints": ["reserved"]},
    {"taints": ["team"]},
    {"taints": ["node.kubernetes.io/unschedulable"]},
    {"taints": ["ToBeDeletedByClusterAutoscaler"]},
    {"labels": {"nvidia.com/mig.config": "all-1g.10gb"}},
    {"labels": {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "pending"}},
    {"labels": {"nvidia.com/gpu.replicas": "4"}},
    {"labels": {"nvidia.com/gpu.product": "Tesla-T4"}},
    {"allocatable": {"nvidia.com/gpu.shared": "16"}},
    {"allocatable": {"nvidia.com/gpu": "0"}, "capacity": {"nvidia.com/gpu": "8"}},
    {"no_labels": True},
    {"no_labels": True, "gpus": None},
    {"gpus": None},
    {"ready": "Unknown"},
    {"unschedulable": True},
    {"deletionTimestamp": "2026-11-21T08:00:00Z"},
)
"""What keeps an agent away, as arguments of `node_object`."""


def node(rng: Random, name: str, uid: str, odd: float) -> Node:
    """A node; with the probability `odd` something keeps agents away from it."""
    labels = dict(GB200 if rng.random() < 0.08 else EIGHT_H100)
    labels |= {RACK: rng.choice("abc")} if rng.random() < 0.85 else {}
    labels |= {"team": "training"} if rng.random() < 0.5 else {}
    labels |= {DRIVER: "580.95.05"} if rng.random() < 0.6 else {}
    labels |= {"nvidia.com/gpu.memory": "81559"} if rng.random() < 0.5 else {}
    change = dict(rng.choice(ODD)) if rng.random() < odd else {}
    labels = {} if change.pop("no_labels", False) else labels | change.pop("labels", {})
    taints = [{"key": key, "value": "yes", "effect": "NoSchedule"} for key in change.pop("taints", ())]
    gpus = {"gpus": labels.get("nvidia.com/gpu.count", "8")}
    return node_object(labels, name=name, uid=uid, taints=taints, **(gpus | change))


def altered(rng: Random, before: Node) -> Node:
    """The same node after a change that clusters see: cordoned, another driver, a GPU less, not ready ..."""
    meta, spec, status = dict(before["metadata"]), dict(before["spec"]), dict(before["status"])
    labels = dict(meta["labels"])
    match rng.choice(["cordon", "cordon", "driver", "driver", "gpus", "ready", "mig", "rack", "deleting", "taint"]):
        case "cordon":
            spec["unschedulable"] = not spec["unschedulable"]
        case "driver":
            labels[DRIVER] = rng.choice(["570.1", "580.95.05", "590.2"])
        case "gpus" if "nvidia.com/gpu" in status["allocatable"]:
            status["allocatable"] = status["allocatable"] | {"nvidia.com/gpu": rng.choice(["7", "8", "0"])}
        case "ready":
            state = rng.choice(["True", "False"])
            status["conditions"] = [{"type": "Ready", "status": state, "reason": "KubeletReady"}]
        case "mig":
            labels["nvidia.com/mig.config"] = rng.choice(["all-disabled", "all-1g.10gb"])
            labels["nvidia.com/mig.config.state"] = rng.choice(["pending", "success"])
        case "rack":
            labels.pop(RACK, None)
        case "deleting":
            meta["deletionTimestamp"] = "2026-11-21T09:00:00Z"
        case _:
            reserved = [{"key": "reserved", "value": "", "effect": "NoExecute"}]
            spec["taints"] = [] if spec["taints"] else reserved
    return before | {"metadata": meta | {"labels": labels}, "spec": spec, "status": status}
