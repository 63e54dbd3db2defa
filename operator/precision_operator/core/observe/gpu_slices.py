"""What ResourceSlices say about a node's GPUs: trimmed when they arrive, and read for one node at a time.

A DRA driver publishes a pool of devices for each node, in one slice or several, under a generation that it raises with
each change: for a moment the slices of two generations stand side by side, or some are still missing. Only the newest
generation counts, and only when it is complete, as for the scheduler. Source: k8s.io/api/resource/v1, NVIDIA's DRA
driver (cmd/gpu-kubelet-plugin/deviceinfo.go). Slices may hold anything: nothing here raises on a value.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from precision_api.exchange.request import MOST_GPUS, digest
from precision_api.facts.names import grouped
from precision_operator.core.observe.raw_object import entries, mapping, quantity, section

DRA_DRIVER = "gpu.nvidia.com"
"""The DRA driver that hands out GPUs. Its sibling compute-domain.nvidia.com hands out NVLink channels only."""
UUID_PATTERN = r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""As NVML prints a GPU's UUID."""
_HARD = ("NoSchedule", "NoExecute")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One whole GPU, as its driver publishes it. Texts are None where the driver does not say."""

    name: str
    """Of the device in its pool: gpu-0."""
    uuid: str | None = None
    product: str | None = None
    """Written as the label nvidia.com/gpu.product writes it: with dashes for blanks."""
    compute: str | None = None
    driver: str | None = None
    memory_mib: int | None = None
    taints: tuple[str, ...] = ()
    """Taints that keep claims away from it."""
    shared: bool = False
    """Whether several claims may get it at the same time."""


@dataclass(frozen=True, slots=True)
class SliceView:
    """What is kept of one ResourceSlice of the GPU driver."""

    node: str
    pool: str
    generation: int
    slices: int
    """How many slices the pool has in this generation."""
    gpus: tuple[Gpu, ...] = ()
    others: tuple[str, ...] = ()
    """Names of devices that are no whole GPU."""
    partitions: int = 0
    """MIG slices of GPUs that are cut for good: they don't share counters with a whole GPU."""
    passed_through: int = 0
    """GPUs that are handed to virtual machines (vfio)."""


@dataclass(frozen=True)
class PublishedGpus:
    """The GPUs of one node in the newest generation of its pools."""

    gpus: tuple[Gpu, ...] = ()
    incomplete: str | None = None
    """Why the scheduler hands out none of a pool's devices at this moment."""
    partitions: int = 0
    passed_through: int = 0

    @property
    def free_of_taints(self) -> tuple[Gpu, ...]:
        """The GPUs that a claim can get."""
        return tuple(gpu for gpu in self.gpus if not gpu.taints)

    @property
    def tainted(self) -> str | None:
        """The GPUs that no claim gets, each with its taints; None where there are none."""
        named = [f"{gpu.name} ({', '.join(gpu.taints)})" for gpu in self.gpus if gpu.taints]
        return ", ".join(named) or None

    @property
    def shared(self) -> str | None:
        """Why one of these GPUs may be handed out twice; None where each belongs to one claim."""
        named = [gpu.name for gpu in self.gpus if gpu.shared]
        return f"its ResourceSlices let several claims have {', '.join(named)}" if named else None

    @property
    def uuids(self) -> tuple[str, ...]:
        """UUIDs of the GPUs that a claim can get; none unless all of them have one, and each its own."""
        return _uuids(self.free_of_taints)

    @cached_property
    def sets(self) -> frozenset[str | frozenset[str]]:
        """UUIDs of all GPUs, and of those that a claim can get, and their `set_of`; none unless each has one."""
        sets = [frozenset(uuids) for uuids in (_uuids(self.gpus), self.uuids) if uuids and self.incomplete is None]
        return frozenset([*sets, *map(set_of, sets)])


def set_of(uuids: Collection[str]) -> str:
    """A set of GPUs, as a Node's condition has it."""
    return digest(sorted(uuids), 10)


def slice_view(raw: Mapping[str, Any]) -> SliceView | None:
    """What is kept of a ResourceSlice; None for one of another driver, or of no single node."""
    spec = section(raw, "spec")
    pool, node = section(spec, "pool"), spec.get("nodeName")
    if spec.get("driver") != DRA_DRIVER or not isinstance(node, str) or not node:
        return None
    read = [_device(item) for item in entries(spec, "devices")]
    return SliceView(
        node=sys.intern(node),
        pool=sys.intern(str(pool.get("name") or node)),
        generation=_count(pool.get("generation"), 0),
        slices=_count(pool.get("resourceSliceCount"), 1),
        gpus=tuple(_gpu(name, body) for name, kind, body in read if kind == "gpu"),
        others=_once(tuple(name for name, kind, _ in read if kind != "gpu")),
        partitions=sum(kind == "mig" and not body.get("consumesCounters") for _, kind, body in read),
        passed_through=sum(kind == "vfio" for _, kind, _ in read),
    )


def published(slices: Iterable[SliceView]) -> PublishedGpus | None:
    """What the slices of one node say together; None where there are none."""
    pools = grouped((item.pool, item) for item in slices)
    if not pools:
        return None
    newest = [_newest(items) for _, items in sorted(pools.items())]
    problems = [problem for items in newest if (problem := _incomplete(items)) is not None]
    every = [item for items in newest for item in items]
    number = sum(len(item.gpus) for item in every)
    if number > MOST_GPUS:
        problems.append(f"its ResourceSlices name {number} GPUs, and no machine has more than {MOST_GPUS}")
    return PublishedGpus(
        gpus=tuple(sorted((gpu for item in every for gpu in item.gpus), key=lambda gpu: (len(gpu.name), gpu.name))),
        incomplete=problems[0] if problems else None,
        partitions=sum(item.partitions for item in every),
        passed_through=sum(item.passed_through for item in every),
    )


def _uuids(gpus: Collection[Gpu]) -> tuple[str, ...]:
    uuids = [gpu.uuid for gpu in gpus]
    valid = [uuid for uuid in uuids if uuid is not None and re.fullmatch(UUID_PATTERN, uuid, re.ASCII)]
    return tuple(sorted(valid)) if len(set(valid)) == len(uuids) else ()


def _newest(items: list[SliceView]) -> list[SliceView]:
    newest = max(item.generation for item in items)
    return [item for item in items if item.generation == newest]


def _incomplete(items: list[SliceView]) -> str | None:
    """Why the pool of these slices, all of one generation, is not in use. Source: dynamic-resource-allocation pools."""
    pool, wanted = items[0].pool, items[0].slices
    if len(items) != wanted:
        return f"pool {pool} has {len(items)} of {wanted} ResourceSlices"
    names = [name for item in items for name in (*(gpu.name for gpu in item.gpus), *item.others)]
    if len(set(names)) != len(names):
        return f"pool {pool} names a device twice"
    return None


def _device(body: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    """(name, type, what else is said of it)."""
    # resource.k8s.io/v1beta1 keeps attributes and capacity one level down, under `basic`.
    body = {**body, **section(body, "basic")}
    kind = mapping(section(body, "attributes").get("type")).get("string")
    return sys.intern(str(body.get("name") or "")), str(kind or ""), body


def _gpu(name: str, body: Mapping[str, Any]) -> Gpu:
    attributes = section(body, "attributes")
    product = _text(attributes, "productName")
    memory = quantity(mapping(section(body, "capacity").get("memory")).get("value"))
    return Gpu(
        name=name,
        uuid=_text(attributes, "uuid"),
        product=sys.intern(_BLANKS.sub("-", product.strip())) if product else None,
        compute=_interned(_text(attributes, "cudaComputeCapability")),
        driver=_interned(_text(attributes, "driverVersion")),
        memory_mib=memory // 2**20 if memory else None,
        taints=_taints(body),
        shared=body.get("allowMultipleAllocations") is True,
    )


def _taints(body: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{row.get('key')}={row['value']}:{row['effect']}" if row.get("value") else f"{row.get('key')}:{row['effect']}"
        for row in entries(body, "taints")
        if row.get("effect") in _HARD
    )


def _text(attributes: Mapping[str, Any], name: str) -> str | None:
    """An attribute's value, typed as string or as version."""
    value = section(attributes, name)
    text = value.get("string") or value.get("version")
    return str(text) if text else None


@lru_cache(maxsize=4096)
def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same tuple for the same names: the nodes of a fleet have the same MIG slices."""
    return names


def _interned(text: str | None) -> str | None:
    return sys.intern(text) if text is not None else None


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
