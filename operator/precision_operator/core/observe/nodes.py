"""What a Node object says about its GPUs, read once into one frozen value.

Labels come from many writers (GPU feature discovery, GKE, CoreWeave, people) and may be missing, stale or garbled:
reading them never raises. What counts as a GPU to ask for is what the kubelet reports as allocatable, never a label:
gpu.count is 7 for one GPU in seven slices, and capacity still says 4 where GPUs are handed out by resource claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import Any

from precision_api.names import DEFAULT_POOL_LABEL, GPU_RESOURCE
from precision_api.products import ProductClass, part, part_of_class, product_class, product_of_instance_type
from precision_api.recipes import Compute
from precision_operator.core.observe import gpu_labels
from precision_operator.core.observe.gpu_labels import DRA_DRIVER, first_label, whole_number
from precision_operator.core.observe.memo import Memo

_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)([eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE])?", re.ASCII)


@dataclass(frozen=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class NodeFacts:
    """All that is decided from about one node. Texts that tell why (`mig`, `sharing`) are None where it isn't so."""

    name: str
    uid: str
    """metadata.uid; the name where a saved node has none, so that two such nodes are never taken for one."""
    product: ProductClass | None = None
    product_name: str | None = None
    """The GPU's name as labelled; None where no label names it."""
    gpus: int = 0
    """Allocatable nvidia.com/gpu."""
    capacity_gpus: int = 0
    cpu_millis: int | None = None
    """Allocatable CPU, in thousandths of a CPU; None where the node does not say."""
    memory_bytes: int | None = None
    """Allocatable memory of the host; None where the node does not say."""
    arch: str | None = None
    compute: Compute | None = None
    driver: str | None = None
    clique: str | None = None
    """NVLink domain and clique; None on nodes that are in none."""
    memory_mib: int | None = None
    """Memory of one GPU, in MiB."""
    pool: str = ""
    """Value of the profile's pool label, else the GPU's name, else `unlabelled`."""
    unschedulable: bool = False
    ready: bool = True
    not_ready: str | None = None
    deleting: bool = False
    mig: str | None = None
    """Why the GPUs are, or will be, MIG slices."""
    mig_changing: str | None = None
    """Why MIG is being switched off at this moment: `mig` may still hold for a while."""
    sharing: str | None = None
    """Why one allocatable GPU is not one whole GPU."""
    renamed: str | None = None
    """The resource under which shared GPUs are handed out instead of nvidia.com/gpu, with its number."""
    evidence: str | None = None
    """Why GPUs are to be expected here, counted or not; None on a node without any sign of NVIDIA GPUs."""
    dra_gpus: int = 0
    """GPUs that the node's ResourceSlices publish."""
    taints: tuple[Taint, ...] = ()
    images: tuple[str, ...] = ()
    """Names of container images that the node lists, of those that agents may have; a kubelet lists 50 at most."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    unreadable: Exception | None = field(default=None, compare=False)
    """Why nothing else is known of the node: reading it raised."""


_FACTS: Memo[NodeFacts] = Memo()


def node_facts(
    node: Mapping[str, Any],
    pool_label: str = DEFAULT_POOL_LABEL,
    slices: Iterable[Mapping[str, Any]] = (),
    domain_labels: Sequence[str] = (),
) -> NodeFacts:
    """The facts of one Node object as `kubectl get nodes -o json` prints it. Never raises on what the object holds.

    `slices` are ResourceSlices (of any node and driver: others are passed over); they name the GPU where labels don't.
    `domain_labels` name the NVLink domain where the known labels don't.
    """
    meta, spec, status = (_mapping(node.get(key)) for key in ("metadata", "spec", "status"))
    labels = _texts(meta.get("labels"))
    name = str(meta.get("name") or "")
    devices = dra_gpus(slices, name)
    gpu_name = first_label(labels, gpu_labels.PRODUCT_LABELS) or _dra_text(devices, "productName")
    instance_type = labels.get(gpu_labels.INSTANCE_TYPE, "")
    product = product_class(gpu_name) if gpu_name else product_of_instance_type(instance_type)
    capacity, allocatable = _resources(status, labels)
    gpus = allocatable.get(GPU_RESOURCE, 0)
    not_ready = _not_ready(status.get("conditions"))
    return NodeFacts(
        name=name,
        uid=str(meta.get("uid") or name),
        product=product,
        product_name=gpu_name,
        gpus=gpus,
        capacity_gpus=capacity.get(GPU_RESOURCE, 0),
        cpu_millis=millis(_mapping(status.get("allocatable")).get("cpu")),
        memory_bytes=quantity(_mapping(status.get("allocatable")).get("memory")),
        arch=_arch(labels, status, product),
        compute=_compute(labels, devices, gpu_name, product),
        driver=gpu_labels.driver(labels) or _dra_text(devices, "driverVersion"),
        clique=gpu_labels.clique(labels, domain_labels),
        memory_mib=whole_number(labels.get("nvidia.com/gpu.memory")),
        pool=labels.get(pool_label) or gpu_name or product or "unlabelled",
        unschedulable=spec.get("unschedulable") is True,
        ready=not_ready is None,
        not_ready=not_ready,
        deleting=bool(meta.get("deletionTimestamp")),
        mig=gpu_labels.mig(labels, allocatable),
        mig_changing=gpu_labels.mig_changing(labels),
        sharing=gpu_labels.sharing(labels, gpus),
        renamed=gpu_labels.renamed(allocatable),
        evidence=gpu_labels.evidence(labels, capacity, product, len(devices)),
        dra_gpus=len(devices),
        taints=_taints(spec.get("taints")),
        images=_images(status.get("images")),
        labels=labels,
    )


def facts_of_all(
    nodes: Mapping[str, Mapping[str, Any]],
    pool_label: str,
    slices: Iterable[Mapping[str, Any]],
    domain_labels: tuple[str, ...] = (),
) -> dict[str, NodeFacts]:
    """The facts of all `nodes` (by UID), worked out once for the same objects. Each slice is looked at once in all."""
    of_node: dict[object, list[Mapping[str, Any]]] = {}
    for item in slices:
        of_node.setdefault(_mapping(item.get("spec")).get("nodeName"), []).append(item)

    def facts(uid: str, node: Mapping[str, Any]) -> NodeFacts:
        here = of_node.get(_mapping(node.get("metadata")).get("name"), ()) if of_node else ()
        key = (uid, pool_label, domain_labels)
        return _FACTS.of(key, (node, *here), lambda: _facts_or_why_not(uid, node, pool_label, here, domain_labels))

    return {uid: facts(uid, node) for uid, node in nodes.items()}


def next_round() -> None:
    """All nodes will be asked for once more: what is gone is forgotten."""
    _FACTS.next_round()


def _facts_or_why_not(
    uid: str, node: Mapping[str, Any], pool_label: str, slices: Iterable[Mapping[str, Any]], domains: Sequence[str]
) -> NodeFacts:
    """The node's facts; one that can't be read costs the others nothing."""
    try:
        return node_facts(node, pool_label, slices, domains)
    except Exception as error:
        return NodeFacts(name=str(_mapping(node.get("metadata")).get("name") or uid), uid=uid, unreadable=error)


def same_driver(one: str, other: str) -> bool:
    """Whether two driver versions are the same release: DRA prints 580.159.4 for the driver's 580.159.04."""
    return _version(one) == _version(other)


def quantity(value: object) -> int | None:
    """A Kubernetes quantity (8, "8", "8k", "1e3", "16Gi") as a whole number, rounded down; None if it is not one."""
    number = _number(value)
    return int(number) if number is not None else None


def millis(value: object) -> int | None:
    """A Kubernetes quantity in thousandths, rounded up as the scheduler does; None if it is not one."""
    number = _number(value)
    return ceil(number * 1000) if number is not None else None


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        return None
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix.endswith("i"):
        return number * Decimal(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    exponent = int(suffix[1:]) if len(suffix) > 1 else _SUFFIXES[suffix]
    return number.scaleb(exponent)


def dra_gpus(slices: Iterable[Mapping[str, Any]], node_name: str) -> tuple[Mapping[str, Any], ...]:
    """The attributes of each whole GPU that ResourceSlices of the GPU driver publish for one node."""
    found: list[Mapping[str, Any]] = []
    for item in slices:
        spec = _mapping(item.get("spec"))
        if spec.get("driver") != DRA_DRIVER or spec.get("nodeName") != node_name:
            continue
        for device in _mappings(spec.get("devices")):
            # resource.k8s.io/v1beta1 keeps the attributes one level down, under `basic`.
            attributes = _mapping(device.get("attributes")) or _mapping(_mapping(device.get("basic")).get("attributes"))
            if _mapping(attributes.get("type")).get("string") == "gpu":
                found.append(attributes)
    return tuple(found)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> tuple[Mapping[str, Any], ...]:
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, list | tuple) else ()


def _texts(value: object) -> Mapping[str, str]:
    """A mapping of texts; the very same one where it is one already: a fleet's labels are not held twice."""
    if isinstance(value, dict) and all(type(key) is str and type(item) is str for key, item in value.items()):
        return value
    return {str(key): str(item) for key, item in _mapping(value).items() if item is not None}


def _version(text: str) -> tuple[int | str, ...]:
    parts = text.strip().split(".")
    if not all(whole_number(item) is not None for item in parts):
        return (text.strip(),)
    numbers = [int(item) for item in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _dra_text(devices: Iterable[Mapping[str, Any]], attribute: str) -> str | None:
    """The value of `attribute` (typed as string or version) on the first device that has it."""
    values = (_mapping(device.get(attribute)) for device in devices)
    texts = (value.get("string") or value.get("version") for value in values)
    return next((str(text) for text in texts if text), None)


def _counts(value: object) -> dict[str, int]:
    return {str(key): quantity(item) or 0 for key, item in _mapping(value).items()}


def _resources(status: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[dict[str, int], dict[str, int]]:
    """(capacity, allocatable) by resource.

    A node without any `allocatable` has been trimmed by whoever saved it (a kubelet always reports cpu): then capacity
    stands in, as the API server itself defaults it, and after that the labelled number.
    """
    capacity = _counts(status.get("capacity"))
    if isinstance(status.get("allocatable"), Mapping):
        return capacity, _counts(status["allocatable"])
    labelled = gpu_labels.gpu_count(labels)
    return capacity, capacity or ({} if labelled is None else {GPU_RESOURCE: labelled})


def _taints(value: object) -> tuple[Taint, ...]:
    rows = (_texts(item) for item in _mappings(value))
    return tuple(Taint(row.get("key", ""), row.get("value", ""), row.get("effect", "")) for row in rows)


def _images(value: object) -> tuple[str, ...]:
    """Names of images, as a Node object has them or as one that was trimmed has."""
    if not isinstance(value, list | tuple):
        return ()
    names = (item.get("names") if isinstance(item, Mapping) else [item] for item in value)
    return tuple(str(name) for some in names if isinstance(some, list | tuple) for name in some)


def _not_ready(conditions: object) -> str | None:
    """Why the node isn't ready. No Ready condition at all is no proof: a new node is kept away by its taint."""
    ready = next((item for item in _mappings(conditions) if item.get("type") == "Ready"), None)
    if ready is None or ready.get("status") == "True":
        return None
    return f"condition Ready is {ready.get('status')}" + (f" ({ready['reason']})" if ready.get("reason") else "")


def _arch(labels: Mapping[str, str], status: Mapping[str, Any], product: ProductClass | None) -> str | None:
    told = first_label(labels, ("kubernetes.io/arch", "beta.kubernetes.io/arch"))
    told = told or str(_mapping(status.get("nodeInfo")).get("architecture") or "") or None
    return told or (part_of_class(product).host_arch if product else None)


def _compute(
    labels: Mapping[str, str], devices: Iterable[Mapping[str, Any]], name: str | None, product: ProductClass | None
) -> Compute | None:
    major, minor = (whole_number(labels.get(f"nvidia.com/gpu.compute.{key}")) for key in ("major", "minor"))
    if major is not None:
        return major, minor or 0
    published = _dra_text(devices, "cudaComputeCapability") or ""
    if match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})(\..*)?", published, re.ASCII):
        return int(match[1]), int(match[2])
    known = (part(name) if name else None) or (part_of_class(product) if product else None)
    return known.compute if known else None
