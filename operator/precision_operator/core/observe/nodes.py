"""What a Node object says about its GPUs, read once into one frozen value.

Labels come from many writers (GPU feature discovery, GKE, CoreWeave, people) and may be missing, stale or garbled:
reading them never raises. What counts as a GPU to ask for is what the kubelet reports as allocatable, or else what the
node's ResourceSlices publish, never a label: gpu.count is 7 for one GPU in seven slices, and capacity still says 4
where GPUs are handed out by resource claims.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

from precision_api.facts.names import DEFAULT_POOL_LABEL, GPU_RESOURCE, KWOK_NODE, grouped
from precision_api.facts.products import ProductClass, part, part_of_class, product_class, product_of_instance_type
from precision_api.facts.recipes import Compute
from precision_operator.core.observe import gpu_labels
from precision_operator.core.observe.book import Book, differing, same
from precision_operator.core.observe.gpu_labels import first_label, whole_number
from precision_operator.core.observe.gpu_slices import Gpu, PublishedGpus, SliceView, published
from precision_operator.core.observe.node_gate import UNJUDGED, NodeVerdict, node_verdict
from precision_operator.core.observe.raw_object import condition_of, entries, mapping, millis, quantity, section

T = TypeVar("T")
QUARANTINED, UPGRADE = "quarantineHealthEvent", "nvidia.com/gpu-driver-upgrade-state"
VALIDATION, NOT_CERTIFIED = "nvsentinel.nvidia.com/validation-state", "NVCRECertFailed"
Way = Literal["plugin", "claim"]
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class Taint:
    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    def tolerated_by(self, key: str, operator: str, value: str, effect: str) -> bool:
        """Whether this toleration covers it, as the scheduler sees it; no key or effect means any."""
        if effect not in ("", self.effect):
            return False
        if operator == "Exists":
            return key in ("", self.key)
        return (key, value) == (self.key, self.value)


@dataclass(frozen=True)
class NodeFacts:
    """All that is decided from about one node. Texts that tell why (`mig`, `sharing`) are None where it isn't so."""

    name: str
    uid: str  # metadata.uid; the name where a saved node has none, so that two such nodes are never taken for one
    product: ProductClass | None = None
    product_name: str | None = None  # the GPU's name as labelled; None where no label names it
    gpus: int = 0
    """GPUs that an agent can ask for: allocatable nvidia.com/gpu, else those that a resource claim can get."""
    way: Way = "plugin"  # how they are asked for: as the device plugin's resource, or by resource claim (DRA)
    allocatable_gpus: int = 0  # allocatable nvidia.com/gpu
    capacity_gpus: int = 0
    cpu_millis: int | None = None  # allocatable CPU, in thousandths of a CPU; None where the node does not say
    memory_bytes: int | None = None  # allocatable memory of the host; None where the node does not say
    arch: str | None = None
    compute: Compute | None = None
    driver: str | None = None
    clique: str | None = None  # NVLink domain and clique; None on nodes that are in none
    memory_mib: int | None = None  # memory of one GPU, in MiB
    pool: str = ""  # value of the profile's pool label, else the GPU's name, else `unlabelled`
    unschedulable: bool = False
    ready: bool = True
    not_ready: str | None = None
    out_of_service: str | None = None
    """What says that somebody repairs or upgrades it, which no toleration may pass over."""
    deleting: bool = False
    mig: str | None = None  # why the GPUs are, or will be, MIG slices
    mig_changing: str | None = None  # why MIG is being switched off at this moment: `mig` may still hold for a while
    sharing: str | None = None  # why one allocatable GPU is not one whole GPU
    renamed: str | None = None
    """The resource under which shared GPUs are handed out instead of nvidia.com/gpu, with its number."""
    evidence: str | None = None
    """Why GPUs are to be expected here, counted or not; None on a node without any sign of NVIDIA GPUs."""
    published: PublishedGpus | None = None
    """What the node's ResourceSlices say of its GPUs; None where there are none, or nobody may read them."""
    slices_read: bool = False
    """Whether the cluster's ResourceSlices are known: else GPUs that are handed out by claims can't be told."""
    taints: tuple[Taint, ...] = ()
    boot: str = ""  # its present boot; empty where it does not tell
    played: bool = False  # whether kwok plays its kubelet, so that nothing real is behind its driver's label
    verdict: NodeVerdict = UNJUDGED  # its condition of ours
    images: tuple[str, ...] = ()
    """Names of container images that the node lists, of those that agents may have; a kubelet lists 50 at most."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    unreadable: Exception | None = field(default=None, compare=False)
    """Why nothing else is known of the node: reading it raised."""

    @property
    def gpu(self) -> str | None:
        """What the GPU is called: its class, or its name where it is of no known class."""
        return self.product or self.product_name

    @property
    def all_gpus(self) -> int:
        """GPUs of the node, whether an agent can ask for them now or not."""
        count = len(self.published.gpus) if self.way == "claim" and self.published is not None else self.capacity_gpus
        return max(count, self.gpus)

    def has_other_gpus(self, count: int, uuids: str | frozenset[str]) -> bool:
        """Whether it has not these `count` whole GPUs any more, as far as it tells; `uuids` may be a `set_of` them.

        One that no claim gets, for a taint, is there; while slices are missing or a device plugin starts, all are.
        """
        here, counts = self.published, {self.gpus or self.all_gpus}
        if self.way == "claim" and here is not None:
            counts = {self.gpus, self.all_gpus} if here.incomplete is None else set()
        is_swapped = bool(uuids and here is not None and here.sets and uuids not in here.sets)
        is_cut = self.mig is not None and gpu_labels.MIG_CONFIG not in self.mig  # which may be asked for in vain
        shared = gpu_labels.whole_number(self.labels.get("nvidia.com/gpu.replicas")) or 1
        counts |= {gpus // shared for gpus in counts}
        return is_cut or count not in (counts - {0} or {count}) or is_swapped


Slices = Sequence[SliceView] | None
"""ResourceSlices of the GPU driver; None: the cluster serves none, or the operator is not to use them."""


def node_facts(
    node: Mapping[str, Any],
    pool_label: str = DEFAULT_POOL_LABEL,
    slices: Slices = None,
    domain_labels: Sequence[str] = (),
) -> NodeFacts:
    """The facts of one Node object as `kubectl get nodes -o json` prints it. Never raises on what the object holds.

    `slices` are those of any node: others are passed over; they name the GPU where labels don't.
    `domain_labels` name the NVLink domain where the known labels don't.
    """
    meta, spec, status = (section(node, key) for key in ("metadata", "spec", "status"))
    labels = _texts(meta.get("labels"))
    name = str(meta.get("name") or "")
    here = published(item for item in slices or () if item.node == name)
    gpu_name = first_label(labels, gpu_labels.PRODUCT_LABELS) or _of_gpus(here, lambda gpu: gpu.product)
    instance_type = labels.get(gpu_labels.INSTANCE_TYPE, "")
    product = product_class(gpu_name) if gpu_name else product_of_instance_type(instance_type)
    capacity, allocatable = _resources(status, labels)
    counted = allocatable.get(GPU_RESOURCE, 0)
    claimable = len(here.free_of_taints) if here is not None and here.incomplete is None else 0
    not_ready = _not_ready(status)
    return NodeFacts(
        name=name,
        uid=str(meta.get("uid") or name),
        product=product,
        product_name=gpu_name,
        gpus=counted or claimable,
        way="plugin" if counted or here is None else "claim",
        allocatable_gpus=counted,
        capacity_gpus=capacity.get(GPU_RESOURCE, 0),
        cpu_millis=millis(section(status, "allocatable").get("cpu")),
        memory_bytes=quantity(section(status, "allocatable").get("memory")),
        arch=_arch(labels, status, product),
        boot=str(section(status, "nodeInfo").get("bootID") or ""),
        played=section(meta, "annotations").get(KWOK_NODE) == "fake",
        verdict=node_verdict(status),
        compute=_compute(labels, here, gpu_name, product),
        driver=gpu_labels.driver(labels) or _of_gpus(here, lambda gpu: gpu.driver),
        clique=gpu_labels.clique(labels, domain_labels),
        memory_mib=whole_number(labels.get("nvidia.com/gpu.memory")) or _of_gpus(here, lambda gpu: gpu.memory_mib),
        pool=labels.get(pool_label) or gpu_name or product or "unlabelled",
        unschedulable=spec.get("unschedulable") is True,
        ready=not_ready is None,
        not_ready=not_ready,
        out_of_service=_out_of_service(meta, labels, status),
        deleting=bool(meta.get("deletionTimestamp")),
        mig=gpu_labels.mig(labels, allocatable),
        mig_changing=gpu_labels.mig_changing(labels),
        sharing=gpu_labels.sharing(labels, counted),
        renamed=gpu_labels.renamed(allocatable),
        evidence=gpu_labels.evidence(labels, capacity, product, here),
        published=here,
        slices_read=slices is not None,
        taints=_taints(spec),
        images=_images(status.get("images")),
        labels=labels,
    )


class FactsOfAll(dict[str, NodeFacts]):
    """The facts of all nodes by UID, their pools by one label."""

    @cached_property
    def unreadable(self) -> tuple[NodeFacts, ...]:
        """Those of nodes that can't be read."""
        return tuple(facts for facts in self.values() if facts.unreadable is not None)


def facts_of_all(
    nodes: Mapping[str, Mapping[str, Any]],
    pool_label: str,
    slices: Slices,
    domain_labels: tuple[str, ...] = (),
    book: Book | None = None,
) -> FactsOfAll:
    """The facts of all `nodes` (by UID), read once for all labels; of one that is as it was the same object."""
    book, objects = book or Book(), (nodes, slices)
    if pool_label != DEFAULT_POOL_LABEL:
        every = facts_of_all(nodes, DEFAULT_POOL_LABEL, slices, domain_labels, book)
        rows = book.of_each(("pools", pool_label), every, partial(_in_pool, pool_label))
        return book.of(("facts", pool_label), (every,), lambda: FactsOfAll(zip(every, rows, strict=True)))
    entry = book.last(("facts", pool_label))
    (old_nodes, old_slices), old = entry or (({}, None), FactsOfAll())
    changed: Iterable[str] = differing(old_nodes, nodes)
    is_same = slices is old_slices or (slices is not None and old_slices is not None and same(old_slices, slices))
    if entry is not None and not changed and is_same:
        return book.keep(("facts", pool_label), objects, old)
    there, were = ({} if of is None else grouped((item.node, item) for item in of) for of in (slices, old_slices))
    others = {name for name in (*there, *were) if not same(there.get(name, []), were.get(name, []))}
    is_for_all = (old_slices is None) != (slices is None)
    changed = [*changed, *(uid for uid, facts in old.items() if is_for_all or facts.name in others)]
    values = FactsOfAll(old)
    for uid in changed:
        if uid not in nodes:
            values.pop(uid, None)
            continue
        here = there.get(str(section(nodes[uid], "metadata").get("name")), []) if slices is not None else None
        values[uid] = _facts_or_why_not(uid, nodes[uid], here, domain_labels)
    return book.keep(("facts", pool_label), objects, values)


def _in_pool(label: str, facts: NodeFacts) -> NodeFacts:
    """The node's facts, with its pool by another label."""
    pool = facts.labels.get(label) or facts.product_name or facts.product or "unlabelled"
    if facts.unreadable is not None or pool == facts.pool:
        return facts
    made = copy(facts)  # `replace` takes four times as long
    object.__setattr__(made, "pool", pool)
    return made


def _facts_or_why_not(uid: str, node: Mapping[str, Any], slices: Slices, domains: Sequence[str]) -> NodeFacts:
    """The node's facts; one that can't be read costs the others nothing."""
    try:
        return node_facts(node, DEFAULT_POOL_LABEL, slices, domains)
    except Exception as error:
        return NodeFacts(name=str(section(node, "metadata").get("name") or uid), uid=uid, unreadable=error)


def label_holds(value: str | None, operator: str, values: Collection[str]) -> bool:
    """Whether a label's value (None: there is no such label) meets a requirement, as in a Pod's node affinity."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            numbers = [int(text) for text in (value or "", *values) if _NUMBER.fullmatch(text)]
            return len(numbers) == 2 and (numbers[0] > numbers[1] if operator == "Gt" else numbers[0] < numbers[1])
    return False


def same_driver(first: str, second: str) -> bool:
    """Whether two versions may be of one driver: DRA prints 580.159.4 for 580.159.04, labels may lack the revision."""
    return all(number == other for number, other in zip(_version(first), _version(second), strict=False))


def _texts(value: object) -> Mapping[str, str]:
    """A mapping of texts; the very same one where it is one already: a fleet's labels are not held twice."""
    if isinstance(value, dict) and {*map(type, value), *map(type, value.values())} <= {str}:
        return value
    return {str(key): str(item) for key, item in mapping(value).items() if item is not None}


def _version(text: str) -> tuple[int | str, ...]:
    parts = re.split("[-+~]", text.strip())[0].split(".")  # a distribution's package adds its own number
    if not all(whole_number(item) is not None for item in parts):
        return (text.strip(),)
    return tuple(int(item) for item in parts)


def _of_gpus(here: PublishedGpus | None, value: Callable[[Gpu], T | None]) -> T | None:
    """The value of the first published GPU that has one."""
    gpus = here.gpus if here is not None else ()
    return next((reading for gpu in gpus if (reading := value(gpu)) is not None), None)


def _counts(value: object) -> dict[str, int]:
    return {str(key): quantity(item) or 0 for key, item in mapping(value).items()}


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


def _taints(spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    rows = map(_texts, entries(spec, "taints"))
    return tuple(Taint(row.get("key", ""), row.get("value", ""), row.get("effect", "")) for row in rows)


def _images(value: object) -> tuple[str, ...]:
    """Names of images, as a Node object has them or as one that was trimmed has."""
    if not isinstance(value, list | tuple):
        return ()
    names = (item.get("names") if isinstance(item, Mapping) else [item] for item in value)
    return tuple(str(name) for some in names if isinstance(some, list | tuple) for name in some)


def _not_ready(status: Mapping[str, Any]) -> str | None:
    """Why the node isn't ready. No Ready condition at all is no proof: a new node is kept away by its taint."""
    ready = condition_of(status, "Ready")
    if not ready or ready.get("status") == "True":
        return None
    return f"condition Ready is {ready.get('status')}" + (f" ({ready['reason']})" if ready.get("reason") else "")


def _out_of_service(meta: Mapping[str, Any], labels: Mapping[str, str], status: Mapping[str, Any]) -> str | None:
    """A mark other than a taint that somebody repairs, validates or upgrades the node, and whose mark it is."""
    if QUARANTINED in section(meta, "annotations"):
        return f"annotation {QUARANTINED} of NVSentinel"
    if labels.get(VALIDATION) == "validation-failed":
        return f"label {VALIDATION}=validation-failed of NVSentinel"
    if condition_of(status, NOT_CERTIFIED).get("status") == "True":
        return f"condition {NOT_CERTIFIED} of NVSentinel's nvcre-certification-monitor"
    state = labels.get(UPGRADE, "")
    ended = ("", "upgrade-required", "upgrade-done")
    return None if state in ended else f"label {UPGRADE}={state} of the NVIDIA GPU Operator"


def _arch(labels: Mapping[str, str], status: Mapping[str, Any], product: ProductClass | None) -> str | None:
    arch = first_label(labels, ("kubernetes.io/arch", "beta.kubernetes.io/arch"))
    arch = arch or str(section(status, "nodeInfo").get("architecture") or "") or None
    return arch or (part_of_class(product).host_arch if product else None)


def _compute(
    labels: Mapping[str, str], here: PublishedGpus | None, name: str | None, product: ProductClass | None
) -> Compute | None:
    major, minor = (whole_number(labels.get(f"nvidia.com/gpu.compute.{key}")) for key in ("major", "minor"))
    if major is not None:
        return major, minor or 0
    published = _of_gpus(here, lambda gpu: gpu.compute) or ""
    if match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})(\..*)?", published, re.ASCII):
        return int(match[1]), int(match[2])
    row = (part(name) if name else None) or (part_of_class(product) if product else None)
    return row.compute if row else None
