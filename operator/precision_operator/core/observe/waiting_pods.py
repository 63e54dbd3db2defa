"""Pods that the scheduler finds too few free GPUs for, where GPUs come by resource claim.

The scheduler preempts no pod that holds a claim, so whoever waits for the GPUs of an agent would wait until it ends.
What is read here decides whether an agent's end could help such a pod. Objects may hold anything: nothing here raises.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from precision_api.facts.names import AGENT_APP, GPU_RESOURCE, LABEL_APP
from precision_operator.core.observe.gpu_slices import DRA_DRIVER
from precision_operator.core.observe.nodes import NodeFacts, label_holds
from precision_operator.core.observe.raw_object import condition_of, entries, mapping, quantity, section, turned

NO_DEVICES = "cannot allocate all claims"
"""What the scheduler says of a node that has too few free devices for a pod's claims."""
OF_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that stands for a DeviceClass (KEP-5004)."""
Rows = Sequence[Mapping[str, Any]]
Rule = tuple[str, str, Collection[str]]
"""Key, operator and values."""
Term = tuple[Rule, ...]


@dataclass(frozen=True)
class WaitingPod:
    """A pod that waits for GPUs, and where it may run."""

    key: str
    """namespace/name."""
    uid: str
    owner: str
    """As `owner_of`."""
    priority: int
    gpus: int
    """GPUs that it asks for; 0: all of a node."""
    since: datetime
    """When it was first seen to wait for GPUs."""
    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    """Required node affinity: one of these must hold, each a conjunction of rules; None: none."""
    tolerations: tuple[tuple[str, ...], ...] = ()
    """(key, operator, value, effect)."""

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    def may_run_on(self, facts: NodeFacts) -> bool:
        """Whether the scheduler would let it have this node if all its GPUs were free, as far as is read here."""
        hard = (taint for taint in facts.taints if taint.effect in _HARD)
        labels = {**facts.labels, _FIELD_NAME: facts.name} if self.terms else facts.labels
        return (
            self.gpus <= facts.gpus
            and all(facts.labels.get(key) == value for key, value in self.node_selector)
            and (self.terms is None or any(_holds(term, labels) for term in self.terms))
            and all(any(taint.tolerated_by(*row) for row in self.tolerations) for taint in hard)
        )


_HARD = ("NoSchedule", "NoExecute")
_FIELD_NAME = "metadata.name"
_TOLERATION = (("key", ""), ("operator", "Equal"), ("value", ""), ("effect", ""))


def could_be_helped(raw: Mapping[str, Any]) -> bool:
    """Whether a Pod object waits for GPUs by claim, so that an agent's end may help it.

    Not one that has a node already, or is promised one; that is held by a gate or being deleted; that would preempt
    nobody (`preemptionPolicy: Never`); nor one of our agents.
    """
    meta, spec, status = (section(raw, part) for part in ("metadata", "spec", "status"))
    is_held = meta.get("deletionTimestamp") or spec.get("schedulingGates") or spec.get("preemptionPolicy") == "Never"
    has_node = spec.get("nodeName") or status.get("nominatedNodeName")
    if is_held or has_node or section(meta, "labels").get(LABEL_APP) == AGENT_APP:
        return False
    condition = condition_of(status, "PodScheduled")
    return condition.get("status") == "False" and NO_DEVICES in str(condition.get("message"))


def waiting_pod(raw: Mapping[str, Any], gpus: int, since: datetime) -> WaitingPod:
    """A pod that `could_be_helped` and asks for so many GPUs."""
    meta, spec = section(raw, "metadata"), section(raw, "spec")
    priority = spec.get("priority")
    return WaitingPod(
        key=f"{meta.get('namespace')}/{meta.get('name')}",
        uid=str(meta.get("uid")),
        owner=owner_of(raw),
        priority=priority if isinstance(priority, int) else 0,
        gpus=gpus,
        since=since,
        node_selector=tuple(sorted((str(k), str(v)) for k, v in section(spec, "nodeSelector").items())),
        terms=_terms(spec),
        tolerations=tuple(tuple(str(r.get(k) or v) for k, v in _TOLERATION) for r in entries(spec, "tolerations")),
    )


def owner_of(raw: Mapping[str, Any]) -> str:
    """Who controls a pod, else the pod: a digest of its namespace and their UID, which no other namespace can claim."""
    meta = section(raw, "metadata")
    controllers = [row for row in entries(meta, "ownerReferences") if row.get("controller")]
    of = f"{meta.get('namespace')}/{(controllers[0] if controllers else meta).get('uid')}"
    return sha256(of.encode(errors="replace")).hexdigest()[:32]


def scheduled_at(raw: Mapping[str, Any]) -> datetime | None:
    """When a pod of others, that has not ended, got its node; None for one without, one that has ended, and agents."""
    meta, status = section(raw, "metadata"), section(raw, "status")
    if status.get("phase") in ("Succeeded", "Failed") or section(meta, "labels").get(LABEL_APP) == AGENT_APP:
        return None
    return turned(condition_of(status, "PodScheduled"), "True")


def gpus_of_resources(raw: Mapping[str, Any], device_class: str) -> int:
    """GPUs that a pod asks for as an extended resource, which the scheduler makes a claim of."""
    names = (GPU_RESOURCE, OF_CLASS + device_class)
    limits = [mapping(section(c, "resources").get("limits")) for c in entries(section(raw, "spec"), "containers")]
    return sum(quantity(limit.get(name)) or 0 for limit in limits for name in names)


def gpus_of_claim(claim: Mapping[str, Any], of_gpus: Mapping[str, bool]) -> int | None:
    """GPUs that a claim asks for; 0 where it asks for all of a node, None where it asks for none.

    `of_gpus` holds, by name, the DeviceClasses whose devices are GPUs: True for whole ones, False for MIG slices, which
    count as one GPU together. Of alternatives (firstAvailable) the smallest counts.
    """
    rows = entries(mapping(section(claim, "spec").get("devices")), "requests")
    return total(_asked(row, of_gpus) for row in rows)


def total(asked: Iterable[int | None]) -> int | None:
    """GPUs in all; 0: all of a node; None: none."""
    numbers = [number for number in asked if number is not None]
    return None if not numbers else 0 if 0 in numbers else sum(numbers)


def classes_of(claim: Mapping[str, Any]) -> frozenset[str]:
    """Names of the DeviceClasses that a claim asks for."""
    rows = entries(mapping(section(claim, "spec").get("devices")), "requests")
    return frozenset(str(request.get("deviceClassName")) for row in rows for request in _alternatives(row))


def class_of_gpus(raw: Mapping[str, Any]) -> bool | None:
    """Whether a DeviceClass hands out whole GPUs (True), or slices of them (False); None: neither, by its selectors."""
    rows = entries(section(raw, "spec"), "selectors")
    text = " ".join(str(section(row, "cel").get("expression")) for row in rows)
    return None if DRA_DRIVER not in text else "mig" not in text


def _alternatives(row: Mapping[str, Any]) -> Rows:
    """What a request asks for: `exactly`, or one of `firstAvailable`."""
    exactly = section(row, "exactly")
    return [exactly] if exactly else entries(row, "firstAvailable")


def _asked(row: Mapping[str, Any], of_gpus: Mapping[str, bool]) -> int | None:
    return min((n for request in _alternatives(row) if (n := _count(request, of_gpus)) is not None), default=None)


def _count(request: Mapping[str, Any], of_gpus: Mapping[str, bool]) -> int | None:
    whole = of_gpus.get(str(request.get("deviceClassName")))
    if whole is None or request.get("adminAccess") is True:
        return None
    if request.get("allocationMode") == "All":
        return 0
    count = request.get("count")
    return count if whole and isinstance(count, int) and count > 0 else 1


def _terms(spec: Mapping[str, Any]) -> tuple[Term, ...] | None:
    affinity = mapping(section(spec, "affinity").get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not isinstance(required, Mapping):
        return None
    return tuple(tuple(_rules(term)) for term in entries(required, "nodeSelectorTerms"))


def _rules(term: Mapping[str, Any]) -> Iterator[Rule]:
    for part in ("matchExpressions", "matchFields"):
        for row in entries(term, part):
            values = row.get("values")
            name = str(row.get("key")) if part == "matchExpressions" else _FIELD_NAME
            yield name, str(row.get("operator")), frozenset(map(str, values) if isinstance(values, list) else ())


def _holds(term: Term, labels: Mapping[str, str]) -> bool:
    """A term without any rule holds nowhere, as for the scheduler."""
    return bool(term) and all(label_holds(labels.get(key), operator, values) for key, operator, values in term)
