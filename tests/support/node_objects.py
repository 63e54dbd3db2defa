"""Builders of raw Node and ResourceSlice objects, as kubectl prints them: a test names only what matters to it."""

import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from precision_operator.core.observe.gpu_slices import SliceView, slice_view

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
    boot: str = "",
    conditions: Mapping[str, str] = MappingProxyType({}),
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
            "conditions": [
                {"type": "Ready", "status": ready, "reason": "KubeletReady"},
                *({"type": kind, "status": value} for kind, value in conditions.items()),
            ],
            "images": [{"names": list(images)}],
            **({"nodeInfo": {"bootID": boot}} if boot else {}),
        },
    }


def slice_object(
    product: str = "NVIDIA H100 80GB HBM3",
    *,
    count: int = 8,
    node: str = "n1",
    driver: str = "gpu.nvidia.com",
    generation: int = 1,
    slices: int = 1,
    first: int = 0,
    name: str = "",
    devices: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """A ResourceSlice with `count` devices of type gpu from number `first` on, as NVIDIA's DRA driver publishes it.

    `slices` is how many slices the pool has; `devices` stand in for all of its devices.
    """
    gpus = [gpu_device(index, product, node) for index in range(first, first + count)]
    name = name or f"{node}-{driver}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"uid-{name}-{generation}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": slices},
            "devices": gpus if devices is None else [dict(device) for device in devices],
        },
    }


def gpu_device(number: int, product: str = "NVIDIA H100 80GB HBM3", node: str = "n1", **more: Any) -> dict[str, Any]:
    """One whole GPU of a slice."""
    capability, memory = ("9.0.0", "81559Mi") if "H100" in product else ("10.3.0", "284208Mi")
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{number}')}"},
        "productName": {"string": product},
        "cudaComputeCapability": {"version": capability},
        "driverVersion": {"version": "580.159.4"},
    }
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def resource_slice(product: str, **more: Any) -> SliceView:
    view = slice_view(slice_object(product, **more))
    assert view is not None
    return view
