"""What can be special about a simulated node: a table of traits, each a change of the node's manifest."""

from collections.abc import Callable
from typing import Any

from precision_api.facts.names import GPU_RESOURCE, KWOK_NODE
from precision_lab import names
from precision_lab.fleet.hardware import Hardware

NodeManifest = dict[str, Any]
ApplyTrait = Callable[[NodeManifest, Hardware, str], None]


def apply_trait(node: NodeManifest, hardware: Hardware, trait: str) -> None:
    """Changes `node` as the trait says (`name` or `name:argument`). ValueError for an unknown one."""
    name, _, argument = trait.partition(":")
    change = TRAITS.get(name)
    if change is None:
        raise ValueError(f"The lab knows no trait {name!r}: choose from {', '.join(TRAITS)}.")
    change(node, hardware, argument)


def _mig_single(node: NodeManifest, hardware: Hardware, argument: str) -> None:
    """Every GPU in seven slices: the count and the resource count slices."""
    slices = 7 * hardware.gpus
    _label(node, product=f"{hardware.label}-MIG-1g.{round(hardware.memory_mib / 8192)}gb", count=str(slices))
    _mig(node, "single", "all-1g")
    _resources(node, {GPU_RESOURCE: str(slices)})


def _mig_mixed(node: NodeManifest, hardware: Hardware, argument: str) -> None:
    """Slices are resources of their own; product and count look like whole GPUs."""
    _mig(node, "mixed", "all-balanced")
    _resources(node, {GPU_RESOURCE: "0", "nvidia.com/mig-1g.10gb": str(2 * hardware.gpus)})


def _shared(node: NodeManifest, hardware: Hardware, argument: str) -> None:
    _label(node, product=f"{hardware.label}-SHARED", replicas="4")
    node["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "time-slicing"
    _resources(node, {GPU_RESOURCE: str(4 * hardware.gpus)})


def _shared_renamed(node: NodeManifest, hardware: Hardware, argument: str) -> None:
    """Time-slicing with a renamed resource: the product keeps its plain name."""
    _label(node, replicas="4")
    node["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "time-slicing"
    _resources(node, {GPU_RESOURCE: "0", f"{GPU_RESOURCE}.shared": str(4 * hardware.gpus)})


def _dra(way: str = "whole", **annotations: str) -> ApplyTrait:
    """GPUs by resource claims only, published in this way: no device plugin, and no GPU feature discovery."""

    def change(node: NodeManifest, hardware: Hardware, argument: str) -> None:
        _published(node, hardware, argument, way)
        node["metadata"]["annotations"] |= annotations
        for part in ("capacity", "allocatable"):
            node["status"][part].pop(GPU_RESOURCE, None)
        others = {name: text for name, text in node["metadata"]["labels"].items() if not name.startswith("nvidia.com/")}
        node["metadata"]["labels"] = others | {"feature.node.kubernetes.io/pci-10de.present": "true"}

    return change


def _published(node: NodeManifest, hardware: Hardware, argument: str, way: str = "whole") -> None:
    """A DRA driver runs there and hands out the GPUs: alone it is a second one, beside the device plugin."""
    node["metadata"]["annotations"] |= {names.PUBLISHED: way, names.PRODUCT: hardware.product}


def _reserved(node: NodeManifest, hardware: Hardware, argument: str) -> None:
    taint = {"key": "example.com/reserved", "value": argument or "research", "effect": "NoSchedule"}
    node["spec"]["taints"].append(taint)


def driver_labels(driver: str) -> dict[str, str]:
    """What GPU feature discovery says of a driver: `580.126.20` and its parts."""
    major, minor, revision = driver.split(".")
    parts = {"full": driver, "major": major, "minor": minor, "revision": revision}
    return {f"nvidia.com/cuda.driver-version.{name}": value for name, value in parts.items()}


def _driver(node: NodeManifest, hardware: Hardware, argument: str) -> None:
    """Another driver than the product's other nodes have, as in the middle of a driver rollout."""
    driver = argument or hardware.driver
    node["metadata"]["labels"].update(driver_labels(driver))
    node["metadata"]["annotations"][names.DRIVER] = driver


def _annotated(annotation: str, value: str = "") -> ApplyTrait:
    """The argument, or a fixed value, goes into this annotation, for the lab or the stand-in to read."""

    def change(node: NodeManifest, hardware: Hardware, argument: str) -> None:
        node["metadata"]["annotations"][annotation] = value or argument

    return change


TRAITS: dict[str, ApplyTrait] = {
    "cordoned": lambda node, hardware, argument: node["spec"].update(unschedulable=True),
    "mig-single": _mig_single,
    "mig-mixed": _mig_mixed,
    "mig-off": lambda node, hardware, argument: _mig(node, "single", "all-disabled"),  # an ordinary node
    "shared": _shared,
    "shared-renamed": _shared_renamed,
    "dra": _dra(),
    "dra-half": _dra("half"),
    "dra-tainted": _dra("tainted"),
    "dra-dynmig": _dra("dynmig"),
    "dra-shared": _dra("shared"),
    "dra-double": _published,
    "dra-nic-holder": _dra(**{names.CLAIMANT: "nic"}),
    "dra-mapped": _dra(**{names.CLAIMANT: "mapped"}),
    "reserved": _reserved,
    "arch-taint": lambda node, hardware, argument: node["spec"]["taints"].append(  # as GKE keeps amd64 images away
        {"key": "kubernetes.io/arch", "value": hardware.arch, "effect": "NoSchedule"}
    ),
    "not-ready": _annotated(names.NOT_READY, "true"),
    "busy": _annotated(names.BUSY_POD, "true"),
    "cold": lambda node, hardware, argument: node["status"].update(images=[]),  # the agent's is still to be pulled
    # Nobody plays its kubelet: it is NotReady, and its pods stay as they are, until somebody writes there.
    "unattended": lambda node, hardware, argument: node["metadata"]["annotations"].pop(KWOK_NODE),
    "no-pods": lambda node, hardware, argument: _resources(node, {"pods": "0"}),  # its kubelet takes no more
    "driver": _driver,
    "scale": _annotated(names.SCALE),
    "fault": _annotated(names.FAULT),
    "fault-runs": _annotated(names.FAULT_RUNS),
    "agent-seconds": _annotated(names.AGENT_SECONDS),
}


def _label(node: NodeManifest, **values: str) -> None:
    node["metadata"]["labels"].update({f"nvidia.com/gpu.{name}": value for name, value in values.items()})


def _mig(node: NodeManifest, strategy: str, config: str) -> None:
    labels = {"strategy": strategy, "config": config, "config.state": "success"}
    node["metadata"]["labels"].update({f"nvidia.com/mig.{name}": value for name, value in labels.items()})


def _resources(node: NodeManifest, resources: dict[str, str]) -> None:
    for part in ("capacity", "allocatable"):
        node["status"][part].update(resources)
