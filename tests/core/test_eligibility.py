"""Which nodes are measured, and what a user is told about those that are not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.names import REQUEST_ENV
from precision_api.facts.recipes import by_default
from precision_api.kinds.profile import MatchExpression, ProfileSpec, Target, Toleration
from precision_operator.cluster import paths
from precision_operator.core.eligibility.checks import decide, matches, mismatch
from precision_operator.core.eligibility.request import recipes_of
from precision_operator.core.observe.gpu_slices import SliceView, slice_view
from precision_operator.core.observe.nodes import NodeFacts, node_facts
from precision_operator.core.reasons import REASONS
from tests.support.golden import beside
from tests.support.node_objects import EIGHT_H100, gpu_device, node_object, resource_slice, slice_object
from tests.support.operator_in_memory import OperatorInMemory

TABLES = beside(__file__)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "gpu_nodes.json").read_text())
ANY = Target.model_validate({})

REAL_NODES = TABLES["real_nodes"]


@pytest.mark.parametrize(
    ("entry", "reason"), list(zip(GOLDEN["nodes"], REAL_NODES.values(), strict=True)), ids=REAL_NODES
)
def test_real_nodes_are_decided_as_their_owners_would(entry: dict[str, Any], reason: str) -> None:
    assert entry["what"].startswith(list(REAL_NODES)[GOLDEN["nodes"].index(entry)])
    status = {key: entry[key] for key in ("allocatable", "capacity") if entry.get(key) is not None}
    spec = {"taints": entry["taints"], "unschedulable": entry.get("unschedulable", False)}
    facts = node_facts({"metadata": {"name": "n1", "labels": entry["labels"]}, "spec": spec, "status": status})
    assert decide(facts, ANY).reason == reason
    if reason == "Eligible":
        expected = entry["expected"]
        assert (facts.product, facts.gpus) == (expected["product_class"], expected["gpu_count"])


@pytest.mark.parametrize("entry", GOLDEN["resource_slices"], ids=["H100", "T4"])
def test_real_resource_slices_name_their_gpus(entry: dict[str, Any]) -> None:
    view = slice_view(slice_object(driver=entry["driver"], devices=entry["devices"]))
    assert view is not None
    facts = node_facts(node_object({}, gpus=None), slices=[view])
    assert facts.product == (None if entry["expected"]["product_class"] == "other" else "H100")
    assert decide(facts, ANY).reason == ("UnsupportedProduct" if facts.product is None else "Eligible")


CASES: dict[str, dict[str, dict[str, Any]]] = {
    reason: {
        what: node_object(**({"labels": EIGHT_H100 | more.pop("more_labels", {})} | more))
        for what, more in rows.items()
    }
    for reason, rows in TABLES["refusals"].items()
}
"""Nodes by the reason for where they stand."""


@pytest.mark.parametrize(
    ("node", "reason"),
    [pytest.param(node, reason, id=what) for reason, nodes in CASES.items() for what, node in nodes.items()],
)
def test_a_node_is_decided_by_the_first_check_that_speaks(node: dict[str, Any], reason: str) -> None:
    decision = decide(node_facts(node), ANY)
    assert (decision.reason, decision.kind) == (reason, REASONS[reason].kind)


@pytest.mark.parametrize("case", CASES["NotInService"])
async def test_a_node_out_of_service_waits_and_the_status_says_who_marked_it(case: str) -> None:
    loop = OperatorInMemory()
    loop.cluster._store(f"{paths.NODES}/n1", CASES["NotInService"][case])
    await loop.begin("nightly")
    (row,) = loop.status("nightly")["reasons"]
    assert (row["reason"], loop.jobs(), "tolerat" in row["message"]) == ("NotInService", {}, False)
    assert case.partition("by ")[2].removesuffix("'s taint") in row["message"]


XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
UNMONITORED = {"key": "gpu.nvidia.com/unmonitored", "effect": "None"}
PARTITION = {"name": "gpu-0-mig-1g10gb-19-0", "attributes": {"type": {"string": "mig"}}}
COUNTED = PARTITION | {"consumesCounters": [{"counterSet": "gpu-0-counter-set"}]}
VFIO = {"name": "gpu-vfio-0", "attributes": {"type": {"string": "vfio"}}}
NO_PLUGIN = node_object({}, gpus=None)
H100_SLICE = resource_slice("NVIDIA H100 80GB HBM3", count=8)


def view(*devices: dict[str, Any], **more: Any) -> SliceView:
    """A slice of n1 with these devices."""
    found = slice_view(slice_object(devices=devices, **more))
    assert found is not None
    return found


BY_CLAIM: dict[str, tuple[dict[str, Any], list[SliceView], str, int]] = {
    "eight GPUs in one slice": (NO_PLUGIN, [H100_SLICE], "Eligible", 8),
    "two generations side by side": (
        NO_PLUGIN,
        [resource_slice("NVIDIA H100 80GB HBM3", count=8, generation=2), H100_SLICE],
        "Eligible",
        8,
    ),
    "a newer generation that is half there": (
        NO_PLUGIN,
        [H100_SLICE, resource_slice("NVIDIA H100 80GB HBM3", count=4, generation=2, slices=2)],
        "GPUsNotReady",
        0,
    ),
    "a device that is named twice": (NO_PLUGIN, [view(gpu_device(0), gpu_device(0))], "GPUsNotReady", 0),
    "more GPUs than any machine has": (NO_PLUGIN, [resource_slice("NVIDIA GB200", count=64)], "GPUsNotReady", 0),
    "an empty slice": (NO_PLUGIN, [view()], "GPUsNotReady", 0),
    "slices that are gone": (node_object(gpus=None), [], "GPUsNotReady", 0),
    "slices that are gone, and no label that names the GPU": (
        node_object({"feature.node.kubernetes.io/pci-10de.present": "true"}, gpus=None),
        [],
        "GPUsNotReady",
        0,
    ),
    "one GPU with a taint": (NO_PLUGIN, [view(*map(gpu_device, range(7)), gpu_device(7, taints=[XID]))], "Eligible", 7),
    "a taint that keeps nobody away": (NO_PLUGIN, [view(gpu_device(0, taints=[UNMONITORED]))], "Eligible", 1),
    "device plugin and half a pool": (
        node_object(),
        [resource_slice("NVIDIA H100 80GB HBM3", count=4, slices=2)],
        "GPUsOfferedTwice",
        8,
    ),
    "GPUs for several claims": (NO_PLUGIN, [view(gpu_device(0, allowMultipleAllocations=True))], "GPUsShared", 1),
    "GPUs that are cut for good": (NO_PLUGIN, [view(PARTITION)], "MIGEnabled", 0),
    "GPUs that are cut when somebody asks": (NO_PLUGIN, [view(gpu_device(0), COUNTED)], "Eligible", 1),
    "capacity of a plugin that was taken away": (
        node_object(allocatable={"nvidia.com/gpu": "0"}, capacity={"nvidia.com/gpu": "8"}),
        [H100_SLICE],
        "Eligible",
        8,
    ),
    "capacity of a plugin that is down": (
        node_object(allocatable={"nvidia.com/gpu": "0"}, capacity={"nvidia.com/gpu": "8"}),
        [],
        "GPUsNotReady",
        0,
    ),
    "device plugin in a cluster that serves slices": (node_object(), [], "Eligible", 8),
    "a CPU node in a cluster that serves slices": (node_object({}, gpus=None), [], "NoGPU", 0),
}


@pytest.mark.parametrize(("node", "slices", "reason", "gpus"), BY_CLAIM.values(), ids=BY_CLAIM)
def test_a_node_is_decided_by_its_slices(node: dict[str, Any], slices: list[SliceView], reason: str, gpus: int) -> None:
    facts = node_facts(node, slices=slices)
    decision = decide(facts, ANY)
    assert (decision.reason, decision.kind, facts.gpus) == (reason, REASONS[reason].kind, gpus)


def test_a_node_with_a_tainted_gpu_names_it_and_its_taint() -> None:
    slices = [view(gpu_device(0), gpu_device(1, taints=[XID]))]
    message = decide(node_facts(NO_PLUGIN, slices=slices), ANY).message
    assert message.startswith(
        "1 whole H100 GPUs by resource claim, without the tainted gpu-1 (gpu.nvidia.com/xid=79:NoSchedule)."
    )


def test_label_and_slice_name_one_product_and_a_compute_domain_changes_nothing() -> None:
    by_claim, by_label = node_facts(NO_PLUGIN, slices=[H100_SLICE]), node_facts(node_object())
    assert (by_claim.product_name, by_claim.pool) == (by_label.product_name, by_label.pool)
    assert slice_view(slice_object("NVIDIA GB200", count=1, driver="compute-domain.nvidia.com")) is None
    facts = node_facts(node_object({"nvidia.com/gpu.product": "NVIDIA-GB200"}, gpus="4"), slices=[])
    assert decide(facts, ANY).message == "4 whole GB200 GPUs. It is measured when its turn comes."


LABELS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu.product": st.sampled_from(["NVIDIA-GB200", "NVIDIA-H20", "NVIDIA-B200-MIG-1g.23gb", "", "?"]),
        "nvidia.com/gpu.count": st.sampled_from(["0", "4", "8", "many"]),
        "nvidia.com/gpu.replicas": st.sampled_from(["0", "1", "4", "x"]),
        "nvidia.com/gpu.sharing-strategy": st.sampled_from(["none", "mps", "time-slicing"]),
        "nvidia.com/mig.config": st.sampled_from(["all-disabled", "all-balanced", ""]),
        "nvidia.com/mig.config.state": st.sampled_from(["success", "pending", "failed"]),
    },
)
AMOUNTS = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.23gb"]),
    st.sampled_from(["0", "4", "8", "x"]),
)


@given(labels=LABELS, allocatable=AMOUNTS, capacity=AMOUNTS, unschedulable=st.booleans())
def test_only_whole_gpus_of_a_supported_product_are_ever_eligible(
    labels: dict[str, str], allocatable: dict[str, str], capacity: dict[str, str], unschedulable: bool
) -> None:
    raw = node_object(labels, allocatable=allocatable, capacity=capacity, unschedulable=unschedulable)
    facts = node_facts(raw)
    decision = decide(facts, ANY)
    assert REASONS[decision.reason].kind == decision.kind
    if decision.kind == "eligible":
        assert facts.product == "GB200"
        assert facts.gpus == int(allocatable["nvidia.com/gpu"]) > 0
        assert not unschedulable
        assert {allocatable.get(key, "0") for key in ("nvidia.com/gpu.shared", "nvidia.com/mig-1g.23gb")} <= {"0", "x"}
        assert labels.get("nvidia.com/gpu.sharing-strategy", "none") == "none"
        assert labels.get("nvidia.com/mig.config") != "all-balanced"


RESERVED = [{"key": "team", "value": "a", "effect": "NoSchedule"}]


@pytest.mark.parametrize(("toleration", "reason"), TABLES["tolerations"])
def test_a_reserved_node_is_measured_only_with_its_toleration(toleration: dict[str, str], reason: str) -> None:
    facts = node_facts(node_object(taints=RESERVED))
    assert decide(facts, ANY, [Toleration.model_validate(toleration)]).reason == reason


@pytest.mark.parametrize(("rule", "reason"), TABLES["excluded_taints"])
def test_an_excluded_taint_skips_a_node_even_if_it_is_tolerated(rule: dict[str, str], reason: str) -> None:
    target = Target.model_validate({"excludeTaints": [rule]})
    everything = [Toleration.model_validate({"key": "team", "operator": "Exists"})]
    assert decide(node_facts(node_object(taints=RESERVED)), target, everything).reason == reason


def facts_with(**labels: str) -> NodeFacts:
    return node_facts(node_object(EIGHT_H100 | labels))


@pytest.mark.parametrize(("operator", "values", "matching", "others"), TABLES["expressions"])
def test_expressions_mean_what_they_mean_in_node_affinity(
    operator: str, values: list[str], matching: list[str | None], others: list[str | None]
) -> None:
    target = Target.model_validate({"matchExpressions": [{"key": "rack", "operator": operator, "values": values}]})
    for label in matching:
        assert matches(target, facts_with(**({} if label is None else {"rack": label}))), label
    for label in others:
        assert not matches(target, facts_with(**({} if label is None else {"rack": label}))), label


class Compared(str):
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)


def test_a_label_and_a_name_are_looked_up_and_not_compared_with_each_value() -> None:
    values = tuple(Compared(number) for number in range(256))
    rule = MatchExpression.model_construct(key="rack", operator="NotIn", values=values)
    target = Target.model_construct(match_expressions=(rule,), node_names=(*values, "n1"))
    assert all(matches(target, facts_with(rack="r7")) for _ in range(2))
    assert Compared.times < 9


@pytest.mark.parametrize(("target", "why"), TABLES["targets"])
def test_a_node_that_is_not_meant_can_be_told_why(target: dict[str, Any], why: str | None) -> None:
    assert mismatch(Target.model_validate(target), facts_with(rack="r7")) == why


def test_nodes_without_gpus_are_meant_when_selected_and_unnamed_gpus_reported() -> None:
    cpu = node_facts(node_object({"role": "web"}, gpus=None))
    assert not matches(ANY, cpu)
    assert not matches(Target.model_validate({"products": ["H100"]}), cpu)
    assert matches(Target.model_validate({"nodeSelector": {"role": "web"}}), cpu)
    assert matches(Target.model_validate({"nodeNames": ["n1"]}), cpu)
    target = Target.model_validate({"products": ["GB300"]})
    unnamed = node_facts(node_object({"nvidia.com/gpu.clique": "cluster.388"}, gpus="4"))
    assert matches(target, unnamed)
    assert decide(unnamed, target).reason == "UnknownProduct"


@pytest.mark.parametrize(("label", "compute", "product"), TABLES["unknown"].values(), ids=TABLES["unknown"])
def test_an_unknown_product_is_measured_where_it_is_named_and_every_recipe_is_tried_there(
    label: str, compute: tuple[str, str] | None, product: str
) -> None:
    keys = [f"nvidia.com/gpu.compute.{part}" for part in ("major", "minor")]
    facts = node_facts(node_object({"nvidia.com/gpu.product": label, **dict(zip(keys, compute or (), strict=False))}))
    target = Target.model_validate({"products": [product]})
    assert (matches(target, facts), decide(facts, ANY).reason) == (True, "UnsupportedProduct")
    decision = decide(facts, target)
    assert decision.reason == "Eligible"
    assert label in decision.message
    spec = ProfileSpec.model_validate({"workload": {"preset": "llama3-8b"}})
    assert recipes_of(spec, facts) == by_default(None)


async def test_a_baseline_that_a_product_does_not_run_ends_its_nodes_in_words_and_others_are_measured() -> None:
    loop, newer = OperatorInMemory(), {"nvidia.com/gpu.compute.major": "10", "nvidia.com/gpu.compute.minor": "7"}
    for name, more in (("NVIDIA-H100-80GB-HBM3", {}), ("NVIDIA-B200", {}), ("NVIDIA-VR200", newer)):
        labels = {"nvidia.com/gpu.product": name, **more}
        loop.cluster._store(f"{paths.NODES}/{name}", node_object(labels, name=name))
    target = {"products": ["H100", "B200", "VR200"]}
    await loop.begin("nightly", benchmarks={"baseline": "mxfp8"}, target=target, rollout={"maxConcurrent": 3})
    (row,) = (row for row in loop.status("nightly")["reasons"] if row["reason"] == "BaselineUnsupported")
    assert (row["example"], row["message"].count("mxfp8, which H100 does not run")) == ("NVIDIA-H100-80GB-HBM3", 1)
    assert "Set spec.benchmarks.baseline to a recipe that it runs, such as bf16" in row["message"]
    asked = {}
    for name, job in loop.jobs().items():
        environment = job["spec"]["template"]["spec"]["containers"][0]["env"]
        asked[name] = next(json.loads(row["value"])["recipes"] for row in environment if row["name"] == REQUEST_ENV)
    native = ["mxfp8", "bf16", "fp8_delayed", "fp8_current"]
    assert asked == {"NVIDIA-B200": [*native, "nvfp4"], "NVIDIA-VR200": [*native, "fp8_block", "nvfp4"]}


@pytest.mark.parametrize(("known", "reason"), TABLES["startup_taints"])
def test_a_node_waits_for_startup_taints_of_the_admins_own(known: list[str], reason: str) -> None:
    facts = node_facts(node_object(taints=[{"key": "acme.example/burn-in", "effect": "NoSchedule"}]))
    assert decide(facts, ANY, startup_taints=known).reason == reason


def test_a_node_that_is_named_is_measured_while_it_is_cordoned_and_for_no_other_hindrance() -> None:
    target = Target(node_names=("n1",), cordoned="Include")
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node_facts(node_object(unschedulable=True, taints=[taint]))
    going = node_facts(node_object(unschedulable=True, taints=[taint], deletionTimestamp="2026-01-01T00:00:00Z"))
    assert [decide(facts, target).reason for facts in (cordoned, going)] == ["Eligible", "NodeDeleting"]


@pytest.mark.parametrize(("labels", "domain"), TABLES["nvlink_domains"])
def test_the_nvlink_domain_is_read_from_whatever_label_names_it(labels: dict[str, str], domain: str | None) -> None:
    assert node_facts(node_object(labels), domain_labels=("acme.example/domain",)).clique == domain
