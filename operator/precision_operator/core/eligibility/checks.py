"""Whether a node can be measured, and if not, why, in words that say what to do.

A node is skipped for what stays until somebody changes it (MIG, sharing, another product, a reserved rack), and waits
for what passes (cordoned, not ready, GPUs not up). A node with some of its GPUs unhealthy is eligible with those that
are still offered: the agent asks for all allocatable GPUs, or for all that a resource claim can get, and the result
says how many there were.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from precision_api.facts.names import GPU_RESOURCE
from precision_api.facts.products import PRODUCT_CLASSES, names_product
from precision_api.facts.recipes import Recipe, support
from precision_api.kinds.profile import TaintMatch, Target, Toleration
from precision_operator.core.observe.gpu_slices import DRA_DRIVER
from precision_operator.core.observe.nodes import NodeFacts, Taint, label_holds
from precision_operator.core.reasons import Facts, Said, said

IMPLIED_TOLERATION_KEYS = ("nvidia.com/gpu", "kubernetes.io/arch")
"""Taints that only say what hardware a node has: agents always tolerate them, whatever their value (GPU taints come
with value "true", "present" and none), and nothing else unless the user says so: owners reserve racks by taint."""

CORDONED_TAINT = "node.kubernetes.io/unschedulable"

_PASSING_TAINTS = (
    ("Cordoned", re.escape(CORDONED_TAINT)),
    (
        "NotInService",
        r"readiness\.k8s\.io/.+|nvsentinel\.(dgxc\.)?nvidia\.com/.+|skyhook\.nvidia\.com(/.+)?|gpu\.nvidia\.com/xid",
    ),
    (
        "NodeDeleting",
        r"ToBeDeletedByClusterAutoscaler|karpenter\.sh/disrupt(ed|ion)|node\.kubernetes\.io/out-of-service"
        r"|cloud\.google\.com/impending-node-termination|aws-node-termination-handler/.+",
    ),
    (
        "NotReady",
        r"node\.kubernetes\.io/.+|node\.cloudprovider\.kubernetes\.io/.+|karpenter\.sh/unregistered"
        r"|.+/agent-not-ready|startup-taint\.cluster-autoscaler\.kubernetes\.io/.+",
    ),
)
"""Taints that others put on and take off again by themselves: the node waits, no toleration is suggested."""

_SETTERS = {
    "readiness.k8s.io": "Node Readiness Controller",
    "skyhook.nvidia.com": "Skyhook",
    "gpu.nvidia.com": "a monitor of the GPUs' XID errors",
    "nvsentinel.nvidia.com": "NVSentinel",
    "nvsentinel.dgxc.nvidia.com": "NVSentinel",
}
"""Who sets a taint that takes a node out of service, by the domain of its key."""


@dataclass(frozen=True)
class NodeAndTarget:
    """One matched node, and what the profile says about nodes."""

    facts: NodeFacts
    target: Target
    tolerations: Sequence[Toleration] = ()
    startup_taints: Sequence[str] = ()
    gate_taints: Sequence[str] = ()
    topology_keys: Sequence[str] = ()
    baseline: Sequence[Recipe] = ()


def mismatch(target: Target, facts: NodeFacts) -> str | None:
    """Why the target leaves this node out, in words; None when it matches.

    Requirements on labels mean what they mean in a Pod's node affinity. A node with GPUs that no label names matches
    whatever products are asked for: else it would be missing without a word. An empty target leaves out nodes without
    any sign of a GPU.
    """
    labels = facts.labels
    for key, value in target.node_selector.items():
        if labels.get(key) != value:
            return f"spec.target.nodeSelector asks for {key}={value}, the node has {_shown(labels.get(key))}"
    for rule in target.match_expressions:
        if not label_holds(labels.get(rule.key), rule.operator, rule.value_set):
            asked = " ".join([rule.key, rule.operator, ",".join(rule.values)]).strip()
            return f"spec.target.matchExpressions asks for {asked}, the node has {_shown(labels.get(rule.key))}"
    if target.node_names and facts.name not in target.named:
        return "spec.target.nodeNames does not name it"
    has_gpus = bool(facts.evidence or facts.gpus or facts.mig or facts.renamed)
    unnamed = has_gpus and facts.product_name is None and facts.product is None
    if target.products and not unnamed and not _is_asked_for(target, facts):
        here = facts.product_name or facts.product or "none"
        return f"spec.target.products asks for {', '.join(target.products)}, its GPU is {here}"
    if not has_gpus and not (target.node_selector or target.match_expressions or target.node_names):
        return "nothing shows an NVIDIA GPU on it"
    return None


def matches(target: Target, facts: NodeFacts) -> bool:
    """Whether the target means this node at all. A node that it doesn't mean is neither skipped nor counted."""
    return mismatch(target, facts) is None


def decide(
    facts: NodeFacts,
    target: Target,
    tolerations: Sequence[Toleration] = (),
    startup_taints: Sequence[str] = (),
    gate_taints: Sequence[str] = (),
    topology_keys: Sequence[str] = (),
    baseline: Sequence[Recipe] = (),
) -> Said:
    """Whether a matched node is measured now, later, or not as it is.

    `tolerations` are the profile's own; `startup_taints` are keys of taints that the admin's own tools put on nodes
    that are not in service yet (with a slash at the end: all keys below it), `gate_taints` of those that wait for this
    profile's verdict; `topology_keys` are of labels by which its rollout limits agents; `baseline`: its recipes.
    """
    question = NodeAndTarget(facts, target, tolerations, startup_taints, gate_taints, topology_keys, baseline)
    for code, check in CHECKS:
        if (reason_facts := check(facts, question)) is not None:
            return Said(code, reason_facts)
    return said("Eligible", offer=offer(facts))


def offer(facts: NodeFacts) -> str:
    """What an agent would ask for, in words; and which GPUs it leaves out, since no claim gets them."""
    offered = f"{facts.gpus} whole {facts.gpu} GPUs"
    if facts.way == "plugin" or facts.published is None:
        return offered
    left_out = facts.published.tainted
    return f"{offered} by resource claim" + (f", without the tainted {left_out}" if left_out else "")


def _is_asked_for(target: Target, facts: NodeFacts) -> bool:
    """Whether `spec.target.products` names the node's GPU."""
    return any(names_product(wanted, facts.product_name, facts.product) for wanted in target.products)


def _shown(value: str | None) -> str:
    return "no such label" if value is None else f'"{value}"'


def _where_so(**facts: object) -> Facts | None:
    """The facts of a check that speaks; None where one of them says nothing."""
    return None if None in facts.values() else facts


def _excluded_taint(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    rules = question.target.exclude_taints
    taints = (taint for taint in facts.taints if any(_is_named(rule, taint) for rule in rules))
    return _where_so(taint=next(taints, None))


def _is_named(rule: TaintMatch, taint: Taint) -> bool:
    same_value = rule.value is None or rule.value == taint.value
    return rule.key == taint.key and same_value and rule.effect in (None, taint.effect)


def _mig_enabled(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    cut = facts.published.partitions if facts.published is not None else 0
    return _where_so(
        why=facts.mig or (f"its ResourceSlices publish {cut} MIG slices of GPUs that are cut" if cut else None)
    )


def _offered_twice(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if not facts.allocatable_gpus or facts.published is None or not facts.published.gpus:
        return None
    return {"allocatable": facts.allocatable_gpus, "published": len(facts.published.gpus)}


def _passed_through(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if facts.gpus or facts.published is None or facts.published.gpus or not facts.published.passed_through:
        return None
    return {"gpus": facts.published.passed_through}


def _unsupported_product(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if facts.product is not None or _is_asked_for(question.target, facts):
        return None
    return _where_so(name=facts.product_name, supported=", ".join(PRODUCT_CLASSES))


def _baseline_unsupported(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    """Of a product in the table alone: elsewhere the agent tries it."""
    compute = facts.compute if facts.product else None
    refused = (recipe for recipe in question.baseline if compute and not support(recipe, compute))
    return _where_so(product=facts.product, baseline=next(refused, None))


def _dra_only(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if facts.slices_read or facts.gpus or not facts.capacity_gpus:
        return None
    return {"why": f"capacity is {facts.capacity_gpus}"}


def _unknown_product(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    """Where slices could name the GPUs and are not there yet, the node waits for them."""
    if facts.gpu is not None or (facts.slices_read and not facts.gpus):
        return None
    return _where_so(why=facts.evidence or (f"nvidia.com/gpu: {facts.gpus}" if facts.gpus else None))


def _repelling(question: NodeAndTarget) -> list[tuple[str | None, Taint]]:
    """Taints that keep an agent away, each with the passing state that it stands for (None: somebody's wish)."""
    hard = (taint for taint in question.facts.taints if taint.effect in ("NoSchedule", "NoExecute"))
    named, tolerated = tuple(question.startup_taints), {*IMPLIED_TOLERATION_KEYS, *question.gate_taints}
    return [(_passing(taint, named), taint) for taint in hard if taint.key not in tolerated]


def _passing(taint: Taint, startup: tuple[str, ...]) -> str | None:
    if any(taint.key == key or (key.endswith("/") and taint.key.startswith(key)) for key in startup):
        return "NotInService"
    return next((code for code, pattern in _PASSING_TAINTS if re.fullmatch(pattern, taint.key)), None)


def _untolerated_taint(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if facts.out_of_service:  # who marks a node so also taints it, by a key of their choice
        return None
    for passing, taint in _repelling(question):
        rows = ((item.key, item.operator, item.value or "", item.effect or "") for item in question.tolerations)
        if passing is None and not any(taint.tolerated_by(*row) for row in rows):
            value = f"operator: Equal, value: {taint.value}" if taint.value else "operator: Exists"
            return {"taint": taint, "toleration": f"{{key: {taint.key}, {value}, effect: {taint.effect}}}"}
    return None


def _taint_of(question: NodeAndTarget, code: str) -> Taint | None:
    return next((taint for passing, taint in _repelling(question) if passing == code), None)


def _deleting(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    taint = _taint_of(question, "NodeDeleting")
    return _where_so(why="it has a deletionTimestamp" if facts.deleting else taint and f"taint {taint}")


def _not_ready(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    taint = _taint_of(question, "NotReady")
    return _where_so(why=facts.not_ready or (taint and f"taint {taint}"), node=facts.name)


def _not_in_service(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    taint = _taint_of(question, "NotInService")
    setter = _SETTERS.get(taint.key.partition("/")[0]) if taint else None
    mark = f"taint {taint}" + (f" of {setter}" if setter else "") if taint else facts.out_of_service
    return _where_so(mark=mark, node=facts.name)


def _cordoned(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if question.target.cordoned == "Include":
        return None
    cordoned = facts.unschedulable or _taint_of(question, "Cordoned")
    return {"node": facts.name} if cordoned else None


def _gpus_not_ready(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    published = facts.published
    if facts.gpus or (published is not None and published.incomplete is None and published.gpus):
        return None
    if published is not None:
        lack = published.incomplete or "its ResourceSlices name no GPU"
    elif facts.slices_read:
        lack = f"it offers no {GPU_RESOURCE} and has no ResourceSlice of {DRA_DRIVER}"
    else:
        lack = f"it offers no {GPU_RESOURCE} yet"
    return {"why": facts.evidence, "lack": lack, "node": facts.name}


def _gpus_tainted(facts: NodeFacts, question: NodeAndTarget) -> Facts | None:
    if facts.gpus or facts.published is None or facts.published.tainted is None:
        return None
    return {"gpus": facts.published.tainted, "node": facts.name}


CHECKS: tuple[tuple[str, Callable[[NodeFacts, NodeAndTarget], Facts | None]], ...] = (
    ("ExcludedTaint", _excluded_taint),
    # What the node is. A node that is being freed of MIG still looks like MIG, so that comes first.
    ("MIGReconfiguring", lambda facts, _: _where_so(why=facts.mig_changing)),
    ("MIGEnabled", _mig_enabled),
    ("GPUsSharedRenamed", lambda facts, _: _where_so(resource=facts.renamed)),
    ("GPUsShared", lambda facts, _: _where_so(why=facts.sharing or (facts.published and facts.published.shared))),
    ("GPUsOfferedTwice", _offered_twice),
    ("GPUsPassedThrough", _passed_through),
    ("UnsupportedProduct", _unsupported_product),
    ("BaselineUnsupported", _baseline_unsupported),
    ("DRAClaimsNotSupported", _dra_only),
    ("UnknownProduct", _unknown_product),
    ("NoGPU", lambda facts, _: None if facts.gpus or facts.evidence else {}),
    ("UntoleratedTaint", _untolerated_taint),
    # What passes.
    ("NodeDeleting", _deleting),
    ("NotReady", _not_ready),
    ("NotInService", _not_in_service),
    ("Cordoned", _cordoned),
    ("GPUsNotReady", _gpus_not_ready),
    ("GPUsTainted", _gpus_tainted),
    (
        "TopologyKeyMissing",
        lambda facts, asked: _where_so(key=next((k for k in asked.topology_keys if k not in facts.labels), None)),
    ),
)
"""The first check that speaks decides: what stays before what passes, what is wrong with the GPUs before the rest."""
