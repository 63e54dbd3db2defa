"""Random nodes of the lab's fleet: most can be measured, some show one of the things that keep an agent away."""

from random import Random
from typing import Any

from precision_lab.fleet.fleet import NodeSpec, node_manifest
from precision_lab.fleet.slices import slices_of
from tests.support.node_objects import AGENT_IMAGE
from tests.support.random_specs import RACK

Node = dict[str, Any]
POOL_LABEL = "topology.example/pool"
ODD_TRAITS = (
    *("cordoned", "mig-single", "mig-mixed", "shared", "shared-renamed", "reserved", "cold"),
    *("dra", "dra-half", "dra-tainted", "dra-dynmig", "dra-shared", "dra-double"),
)
ODD = ("unlabelled", "unsupported", "unpublished", "silent", "deleted", "autoscaled", "MIG pending", "without GPUs")
"""What keeps an agent away and is no trait."""


def node(rng: Random, name: str, uid: str, odd: float) -> tuple[Node, list[Node]]:
    """A node and its ResourceSlices; with the probability `odd` something keeps agents away from it."""
    labels = {RACK: rng.choice("abc")} if rng.random() < 0.85 else {}
    labels |= {"team": "training"} if rng.random() < 0.5 else {}
    oddity = rng.choice(ODD_TRAITS + ODD) if rng.random() < odd else ""
    traits = (oddity,) if oddity in ODD_TRAITS else ()
    spec = NodeSpec("GB200" if rng.random() < 0.08 else "H100", traits=traits, labels=tuple(labels.items()))
    raw = node_manifest(spec, name, 0)
    raw["metadata"]["uid"] = uid
    raw["status"]["conditions"] = [ready("Unknown" if oddity == "silent" else "True")]
    if raw["status"]["images"]:
        raw["status"]["images"] = [{"names": [AGENT_IMAGE]}]
    _make_odd(raw, oddity)
    return raw, slices_of(raw)


def ready(status: str) -> Node:
    return {"type": "Ready", "status": status, "reason": "KubeletReady"}


def _make_odd(raw: Node, oddity: str) -> None:
    meta, status = raw["metadata"], raw["status"]
    match oddity:
        case "unlabelled":
            meta["labels"] = {}
        case "unsupported":
            meta["labels"]["nvidia.com/gpu.product"] = "Tesla-T4"
        case "unpublished":
            status["allocatable"]["nvidia.com/gpu"] = "0"
        case "deleted":
            meta["deletionTimestamp"] = "2026-11-21T08:00:00Z"
        case "autoscaled":
            raw["spec"]["taints"].append({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"})
        case "MIG pending":
            meta["labels"]["nvidia.com/mig.config.state"] = "pending"
        case "without GPUs":
            meta["labels"] = {}
            for part in ("allocatable", "capacity"):
                status[part].pop("nvidia.com/gpu")


def altered(rng: Random, before: Node, what: str = "") -> Node:
    """The same node after a change (`what`, or any) that clusters see: cordoned, another driver, a GPU less ..."""
    meta, spec, status = dict(before["metadata"]), dict(before["spec"]), dict(before["status"])
    labels = dict(meta["labels"])
    kinds = [
        "cordon",
        "cordon",
        "driver",
        "driver",
        "gpus",
        "ready",
        "mig",
        "rack",
        "deleting",
        "taint",
        "pool",
        "boot",
    ]
    match what or rng.choice(kinds):
        case "cordon":
            spec["unschedulable"] = not spec.get("unschedulable")
        case "driver":
            labels["nvidia.com/cuda.driver-version.full"] = rng.choice(["570.1", "580.95.05", "590.2"])
        case "gpus" if "nvidia.com/gpu" in status["allocatable"]:
            status["allocatable"] = status["allocatable"] | {"nvidia.com/gpu": rng.choice(["7", "8", "0"])}
        case "boot":
            status["nodeInfo"] = status["nodeInfo"] | {"bootID": f"boot-{rng.random()}"}
        case "ready":
            status["conditions"] = [ready(rng.choice(["True", "False"]))]
        case "mig":
            labels["nvidia.com/mig.config"] = rng.choice(["all-disabled", "all-1g.10gb"])
            labels["nvidia.com/mig.config.state"] = rng.choice(["pending", "success"])
        case "rack":
            labels.pop(RACK, None)
        case "pool":
            labels |= {POOL_LABEL: rng.choice(["pool-0", "pool-1"]), RACK: rng.choice("abc")}
        case "deleting":
            meta["deletionTimestamp"] = "2026-11-21T09:00:00Z"
        case _:
            reserved = {"key": "example.com/reserved", "value": "", "effect": "NoExecute"}
            taints = [taint for taint in spec["taints"] if taint["key"] != reserved["key"]]
            spec["taints"] = taints if len(taints) < len(spec["taints"]) else [*taints, reserved]
    return before | {"metadata": meta | {"labels": labels}, "spec": spec, "status": status}
