"""Simulated fleets: rows that describe nodes, and the node objects that they become."""

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from precision_api.facts.names import GPU_RESOURCE, KWOK_NODE
from precision_api.facts.products import ProductClass
from precision_lab.builds.image_archives import version
from precision_lab.fleet.hardware import HARDWARE, Hardware
from precision_lab.fleet.traits import NodeManifest, apply_trait, driver_labels
from precision_lab.names import BUSY_POD

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
GPU_TAINT = {"key": GPU_RESOURCE, "effect": "NoSchedule"}
"""Without a value, as on real nodes: a toleration must say Exists."""

AGENT_IMAGE = f"registry.example.com/precision-profiler/agent:{version()}"
"""The chart's own, which every node has unless its trait `cold` says otherwise."""

OLD_DRIVER = "580.95.05"
"""Of the demo's GB200 nodes that are not updated yet: 3 % slower than those with the new driver, made up."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """`count` nodes of one product that share their traits; named `<product>-<number>` unless `name` says otherwise."""

    product: ProductClass
    count: int = 1
    traits: tuple[str, ...] = ()
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()


def demo_fleet() -> list[NodeSpec]:
    """24 nodes of a mixed fleet, with one of each thing that real fleets have, in the middle of a driver rollout."""
    return [
        NodeSpec("GB200", 4, ("arch-taint",)),
        NodeSpec("GB200", 4, ("arch-taint", f"driver:{OLD_DRIVER}", "scale:0.97")),
        NodeSpec("GB200", 1, ("arch-taint", "dra")),
        NodeSpec("GB200", 1, ("arch-taint",)),
        NodeSpec("GB300", 4),
        NodeSpec("GB300", 1, ("scale:0.8",)),
        NodeSpec("GB300", 1, ("fault:refuse:DeviceMissing",)),
        NodeSpec("H100", 5),
        NodeSpec("H100", 1, ("mig-single",)),
        NodeSpec("H100", 1, ("cordoned",)),
        NodeSpec("H100", 1, ("busy",)),
    ]


def fleet(count: int, products: tuple[ProductClass, ...] = ("GB200", "GB300", "H100")) -> list[NodeSpec]:
    """`count` ordinary nodes, the products in turn."""
    shares = Counter(islice(cycle(products), count))
    return [NodeSpec(product, share) for product, share in shares.items()]


def manifests(specs: Iterable[NodeSpec]) -> Iterator[NodeManifest]:
    """The node objects of a fleet. ValueError for an unknown trait."""
    made: Counter[str] = Counter()
    for spec in specs:
        for _ in range(spec.count):
            number = made[spec.product]
            made[spec.product] += 1
            yield node_manifest(spec, spec.name or f"{spec.product.lower()}-{number:04d}", number)


def node_manifest(spec: NodeSpec, name: str, number: int) -> NodeManifest:
    """One node as its kubelet and GPU feature discovery would have it; `number` decides its rack and zone."""
    hardware = HARDWARE[spec.product]
    rack = number // hardware.rack_nodes
    resources = {
        "cpu": str(hardware.cpus),
        "memory": f"{hardware.host_memory_gib}Gi",
        "ephemeral-storage": "3500Gi",
        "pods": "110",
        GPU_RESOURCE: str(hardware.gpus),
    }
    node: NodeManifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {KWOK_NODE: "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": hardware.arch,
                "node.kubernetes.io/instance-type": hardware.instance_type,
                "topology.kubernetes.io/region": ZONES[0][:-1],
                "topology.kubernetes.io/zone": ZONES[rack % len(ZONES)],
                "topology.kubernetes.io/rack": f"{hardware.product.lower()}-rack-{rack}",
                **_gpu_labels(hardware),
                **driver_labels(hardware.driver),
                **dict(spec.labels),
            },
        },
        "spec": {"taints": [dict(GPU_TAINT)]},
        "status": {
            "capacity": dict(resources),
            "allocatable": dict(resources),
            "nodeInfo": _node_info(hardware, name),
            "images": [{"names": [AGENT_IMAGE], "sizeBytes": 20_000_000_000}],
        },
    }
    if hardware.is_grace:
        domain = uuid.UUID(hashlib.md5(f"{hardware.product}-{rack}".encode(), usedforsecurity=False).hexdigest())
        node["metadata"]["labels"]["nvidia.com/gpu.clique"] = f"{domain}.{rack + 1}"
    for trait in spec.traits:
        apply_trait(node, hardware, trait)
    return node


def busy_pod(node: NodeManifest) -> NodeManifest:
    """A training pod that holds all GPUs of a node, for as long as it is there."""
    name = node["metadata"]["name"]
    gpus = {GPU_RESOURCE: node["status"]["allocatable"][GPU_RESOURCE]}
    container = {"name": "trainer", "image": "registry.example/trainer:1", "resources": {"limits": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"training-{name}", "labels": {BUSY_POD: "true"}},
        "spec": {
            "nodeName": name,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        },
    }


def is_busy(node: NodeManifest) -> bool:
    """Whether the lab shall start a training pod on this node."""
    return BUSY_POD in node["metadata"]["annotations"]


def _gpu_labels(hardware: Hardware) -> dict[str, str]:
    major, minor = hardware.compute
    values = {
        "gpu.present": "true",
        "gpu.product": hardware.label,
        "gpu.count": hardware.gpus,
        "gpu.memory": hardware.memory_mib,
        "gpu.family": hardware.family,
        "gpu.machine": hardware.machine,
        "gpu.mode": "compute",
        "gpu.replicas": 1,
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
        "gpu.sharing-strategy": "none",
        "mig.capable": "true",
        "mig.strategy": "single",
        "mig.config": "all-disabled",
        "mig.config.state": "success",
    }
    return {f"nvidia.com/{name}": str(value) for name, value in values.items()}


def _node_info(hardware: Hardware, name: str) -> dict[str, Any]:
    """What the kubelet reports of the host; ids are made from the node's name."""
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    return {
        "architecture": hardware.arch,
        "operatingSystem": "linux",
        "osImage": "Ubuntu 24.04.3 LTS",
        "kernelVersion": "6.14.0-1013-nvidia-64k" if hardware.is_grace else "6.8.0-85-generic",
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "machineID": identity.hex,
        "systemUUID": str(identity),
        "bootID": str(uuid.uuid5(identity, "boot")),
    }
