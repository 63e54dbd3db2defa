"""Builders of raw Node and ResourceSlice objects, as kubectl prints them: a test names only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

AGENT_IMAGE = "registry.example/agent:1"
EIGHT_H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}


def node_object(
    labels: Mapping[str, Any] | None = None,
    *,
    name: str = "n1",
    gpus: str | int | None = "8",
    allocatable: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    taints: Sequence[Mapping[str, Any]] = (),
    ready: str = "True",
    unschedulable: bool = False,
    images: Sequence[str] = (AGENT_IMAGE,),
    **meta: Any,
) -> dict[str, Any]:
    """A ready node with eight H100 and the agent's image unless told otherwise.

    `gpus` None leaves nvidia.com/gpu out of both lists.
    """
    counted = {} if gpus is None else {"nvidia.com/gpu": gpus}
    offered = {"cpu": "96", **(counted if allocatable is None else allocatable)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": dict(EIGHT_H100 if labels is None else labels)}
        | meta,
        "spec": {"taints": [dict(taint) for taint in taints], "unschedulable": unschedulable},
        "status": {
            "allocatable": offered,
            "capacity": offered if capacity is None else {"cpu": "96", **capacity},
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady"}],
            "images": [{"names": list(images)}],
        },
    }


def resource_slice(product: str, *, count: int, node: str = "n1", driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    """A ResourceSlice with `count` devices of type gpu, as the NVIDIA DRA driver publishes it."""
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": product},
        "cudaComputeCapability": {"version": "10.3.0"},
        "driverVersion": {"version": "580.159.4"},
    }
    devices = [{"name": f"gpu-{index}", "attributes": attributes} for index in range(count)]
    return {"kind": "ResourceSlice", "spec": {"driver": driver, "nodeName": node, "devices": devices}}
