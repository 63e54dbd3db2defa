"""ResourceSlices and DeviceClasses as NVIDIA's DRA driver publishes them for simulated nodes, and pods that use them.

After NVIDIA's driver 0.5 (cmd/gpu-kubelet-plugin/deviceinfo.go) and its chart (DeviceClasses); and a NIC's driver.
"""

import uuid
from collections.abc import Callable
from typing import Any

from precision_api.facts.names import GPU_RESOURCE
from precision_lab import names
from precision_lab.fleet.hardware import HARDWARE, Hardware
from precision_lab.fleet.traits import NodeManifest

GPU_DRIVER, NIC_DRIVER = "gpu.nvidia.com", "dra.net"
API = "resource.k8s.io/v1"
COUNTERS = 8
"""Memory slices of one GPU that MIG hands out."""
Device = dict[str, Any]
XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}


def device_classes() -> list[NodeManifest]:
    """Those of the driver's chart, the class of whole GPUs mapped to nvidia.com/gpu, and a NIC driver's."""
    ours = f"device.driver == '{GPU_DRIVER}' && device.attributes['{GPU_DRIVER}'].type"
    rows: tuple[tuple[str, str, dict[str, str]], ...] = (
        (GPU_DRIVER, f"{ours} == 'gpu'", {"extendedResourceName": GPU_RESOURCE}),
        ("mig.nvidia.com", f"{ours} == 'mig'", {}),
        ("rdma", f"device.driver == '{NIC_DRIVER}'", {}),
    )
    return [
        {
            "apiVersion": API,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}], **more},
        }
        for name, expression, more in rows
    ]


def slices_of(node: NodeManifest) -> list[NodeManifest]:
    """The ResourceSlices of a node that has been created; none of one whose GPUs no DRA driver publishes."""
    notes = node["metadata"].get("annotations") or {}
    publish = WAYS.get(notes.get(names.PUBLISHED, ""))
    slices = publish(node, _hardware(node)) if publish is not None else []
    if notes.get(names.CLAIMANT) == "nic":
        nics = [{"name": f"nic-{number}", "attributes": {f"{NIC_DRIVER}/rdma": {"bool": True}}} for number in range(2)]
        slices.append(_slice(node, "nics", nics, driver=NIC_DRIVER))
    return slices


def claimant(node: NodeManifest) -> list[NodeManifest]:
    """The pod that the lab starts on a node with a trait that asks for one, and its claim."""
    name, kind = node["metadata"]["name"], node["metadata"]["annotations"].get(names.CLAIMANT)
    if kind is None:
        return []
    pod_name = f"claimant-{name}"
    container: dict[str, Any] = {"name": "work", "image": "registry.example/work:1"}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": name},
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    meta = {"name": pod_name, "ownerReferences": [_owner(node)]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    if kind == "mapped":
        container["resources"] = {"limits": {GPU_RESOURCE: str(_hardware(node).gpus)}}
        return [pod]
    container["resources"] = {"claims": [{"name": "port"}]}
    spec["resourceClaims"] = [{"name": "port", "resourceClaimName": pod_name}]
    wanted = {"name": "port", "exactly": {"deviceClassName": "rdma", "allocationMode": "ExactCount", "count": 1}}
    asked = {"devices": {"requests": [wanted]}}
    claim = {"apiVersion": API, "kind": "ResourceClaim", "metadata": dict(meta), "spec": asked}
    return [claim, pod]


def whole_gpus(node: NodeManifest) -> list[Device]:
    """A node's GPUs as devices of a ResourceSlice, none of them tainted."""
    hardware = _hardware(node)
    return [_gpu(node, hardware, number) for number in range(hardware.gpus)]


def _owner(node: NodeManifest) -> dict[str, str]:
    """What is there for a node goes with it."""
    meta = node["metadata"]
    return {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}


def _hardware(node: NodeManifest) -> Hardware:
    return HARDWARE[node["metadata"]["annotations"][names.PRODUCT]]


def _gpu(node: NodeManifest, hardware: Hardware, number: int, **more: Any) -> Device:
    major, minor = hardware.compute
    driver = ".".join(str(int(part)) for part in hardware.driver.split("."))  # semantic versions have no leading zeros
    node_name = node["metadata"]["name"]
    texts = {
        "type": "gpu",
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node_name}/{number}')}",
        "productName": hardware.label.replace("-", " "),
        "brand": "Nvidia",
        "architecture": hardware.family.capitalize(),
        "addressingMode": "ATS" if hardware.is_grace else "HMM",
        "resource.kubernetes.io/pciBusID": f"0000:{number + 1:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{number:02x}",
    }
    versions = {"cudaComputeCapability": f"{major}.{minor}.0", "driverVersion": driver, "cudaDriverVersion": "13.0.0"}
    return {
        "name": f"gpu-{number}",
        "attributes": {
            **{name: {"string": text} for name, text in texts.items()},
            **{name: {"version": text} for name, text in versions.items()},
        },
        "capacity": {"memory": {"value": f"{hardware.memory_mib}Mi"}},
        **more,
    }


def _slice(
    node: NodeManifest, end: str, devices: list[Device] | None, driver: str = GPU_DRIVER, slices: int = 1, **more: Any
) -> NodeManifest:
    """It belongs to its node, and goes with it."""
    meta = node["metadata"]
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{meta['name']}-{driver}-{end}", "ownerReferences": [_owner(node)]},
        "spec": {
            "driver": driver,
            "nodeName": meta["name"],
            "pool": {"name": meta["name"], "generation": 1, "resourceSliceCount": slices},
            **({} if devices is None else {"devices": devices}),
            **more,
        },
    }


def _tainted(node: NodeManifest, hardware: Hardware) -> list[NodeManifest]:
    """The last GPU has fallen off the bus."""
    *sound, last = whole_gpus(node)
    return [_slice(node, "0", [*sound, last | {"taints": [XID]}])]


def _dynmig(node: NodeManifest, hardware: Hardware) -> list[NodeManifest]:
    """A slice of counters, and one for each GPU with the whole GPU and all MIG slices that it could be cut into."""
    pieces = {f"memory-slice-{piece}": {"value": "1"} for piece in range(COUNTERS)}
    sets = [{"name": f"gpu-{number}-counter-set", "counters": pieces} for number in range(hardware.gpus)]
    count = hardware.gpus + 1
    made = [_slice(node, "counters", None, slices=count, sharedCounters=sets)]
    for number, shared in enumerate(sets):
        whole = _gpu(node, hardware, number, consumesCounters=[{"counterSet": shared["name"], "counters": pieces}])
        cut = [_partition(hardware, number, piece, str(shared["name"])) for piece in range(COUNTERS - 1)]
        made.append(_slice(node, str(number), [whole, *cut], slices=count))
    return made


def _partition(hardware: Hardware, number: int, piece: int, counter_set: str) -> Device:
    memory = hardware.memory_mib // COUNTERS
    return {
        "name": f"gpu-{number}-mig-1g{memory // 1024}gb-19-{piece}",
        "attributes": {
            "type": {"string": "mig"},
            "profile": {"string": f"1g.{memory // 1024}gb"},
            "productName": {"string": hardware.label.replace("-", " ")},
        },
        "capacity": {"memory": {"value": f"{memory}Mi"}},
        "consumesCounters": [{"counterSet": counter_set, "counters": {f"memory-slice-{piece}": {"value": "1"}}}],
    }


def _shared(node: NodeManifest, hardware: Hardware) -> list[NodeManifest]:
    """Several claims can have each GPU at the same time: one that names no amount of memory gets a tenth of it."""
    part = f"{hardware.memory_mib // 10}Mi"
    policy = {"default": part, "validRange": {"min": part}}
    shared = {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": f"{hardware.memory_mib}Mi", "requestPolicy": policy}},
    }
    gpus = [_gpu(node, hardware, number, **shared) for number in range(hardware.gpus)]
    return [_slice(node, "0", gpus)]


WAYS: dict[str, Callable[[NodeManifest, Hardware], list[NodeManifest]]] = {
    "whole": lambda node, hardware: [_slice(node, "0", whole_gpus(node))],
    "half": lambda node, hardware: [_slice(node, "0", whole_gpus(node)[: hardware.gpus // 2], slices=2)],
    "tainted": _tainted,
    "dynmig": _dynmig,
    "shared": _shared,
}
"""How a node's GPUs are published, by the value of its annotation."""
