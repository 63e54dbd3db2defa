"""Nodes whose slices, claims or rules are not as they should be: each has its reason, `why` names the cause, and a node
that is mended is measured.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.fleet.slices import GPU_DRIVER
from precision_operator.cli.commands.why import text
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.gathering import gathered
from precision_operator.cli.options import Reach
from precision_operator.core.status.why import why
from tests.support.claimant import PODS, RESOURCE
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, Site, reasons

pytestmark = pytest.mark.cluster

SLICES, CLASSES = f"{RESOURCE}/resourceslices", f"{RESOURCE}/deviceclasses"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
PENDING_SECONDS = 30
Change = Callable[[Site, str], None]
RULED = "a GPU that a rule taints"


def first_slice(site: Site, node: str) -> Object:
    return site.get(f"{SLICES}/{node}-{GPU_DRIVER}-0")


def publish(site: Site, node: str, suffix: str, driver: str = GPU_DRIVER, generation: int = 1, slices: int = 1) -> None:
    """The node's first slice once more, of this driver, in this generation of a pool of so many slices."""
    raw = copy.deepcopy(first_slice(site, node))
    raw["metadata"] = {"name": f"{node}-{suffix}", "ownerReferences": raw["metadata"]["ownerReferences"]}
    raw["spec"] |= {"driver": driver}
    raw["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": slices}
    site.api.ask("POST", SLICES, raw)


def as_it_is(site: Site, node: str) -> None:
    """Nothing is wrong."""


restarted = partial(publish, suffix="again", generation=2)
"""A new generation is there, the old one not gone yet."""


def named_twice(site: Site, node: str) -> None:
    """A hostile driver publishes each device twice in one pool."""
    raw = first_slice(site, node)
    raw["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 2}
    site.api.ask("PUT", f"{SLICES}/{raw['metadata']['name']}", raw)
    publish(site, node, "twice", generation=2, slices=2)


def cut_short(site: Site, node: str) -> None:
    """A slice of a pool of GPUs that can be cut (DynamicMIG) is gone."""
    site.api.ask("DELETE", f"{SLICES}/{node}-{GPU_DRIVER}-0")


def tainted_by_a_rule(site: Site, node: str) -> None:
    """A DeviceTaintRule taints one of its GPUs, which no slice shows."""
    taint = {"key": "example.com/slow", "value": "true", "effect": "NoSchedule"}
    selector = {"driver": GPU_DRIVER, "pool": node, "device": "gpu-2"}
    rule = {"metadata": {"name": f"slow-{node}"}, "spec": {"deviceSelector": selector, "taint": taint}}
    site.api.ask("POST", RULES, {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", **rule})


def bound_to_no_claim(site: Site, node: str) -> None:
    """A tenant's pod names the node and a claim that was never made: it holds no GPU of it."""
    spec = {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "containers": [{"name": "work", "image": "registry.example/work:1", "resources": {"claims": [{"name": "x"}]}}],
        "resourceClaims": [{"name": "x", "resourceClaimName": "there-is-none"}],
    }
    site.api.ask("POST", PODS, {"metadata": {"name": f"unread-{node}"}, "spec": spec})


@dataclass(frozen=True)
class Case:
    """A node with a trait, to which something happens before it is looked at."""

    trait: str
    change: Change
    reason: str
    says: str
    """A part of what `why` prints."""
    mend: Change | None = None


CASES: dict[str, Case] = {
    "a driver that was restarted": Case("dra", restarted, "Measured", "8 by resource claim"),
    "a driver that is restarting": Case(
        "dra",
        partial(restarted, slices=2),
        "GPUsNotReady",
        "has 1 of 2 ResourceSlices",
        mend=partial(publish, suffix="rest", generation=3),
    ),
    "another driver's GPUs": Case(
        "dra", partial(publish, suffix="else", driver="gpu.example.com"), "Measured", "8 by resource claim"
    ),
    "devices named twice": Case("dra", named_twice, "GPUsNotReady", "names a device twice"),
    "an incomplete pool of GPUs that can be cut": Case(
        "dra-dynmig", cut_short, "GPUsNotReady", "has 8 of 9 ResourceSlices"
    ),
    "a node beside it": Case("dra", as_it_is, "Measured", "8 by resource claim"),
    "GPUs that several claims may have": Case("dra-shared", as_it_is, "GPUsShared", "let several claims have gpu-0"),
    "a claim that never was": Case("dra", bound_to_no_claim, "Measured", "8 by resource claim"),
    RULED: Case("dra", tainted_by_a_rule, "AgentUnschedulable", "cannot allocate all claims"),
}


@pytest.fixture(scope="module")
def nodes(stage: Scene) -> dict[str, str]:
    """Nodes by the case's name, as the case leaves them."""
    found = dict(
        zip(CASES, stage.add_nodes(*(NodeSpec("H100", traits=(c.trait,)) for c in CASES.values())), strict=True)
    )
    for name, case in CASES.items():
        case.change(stage.site, found[name])
    return found


@pytest.fixture(scope="module")
def profile(stage: Scene, nodes: dict[str, str]) -> Profile:
    """One profile over all of them, when all that can be measured is."""
    made = stage.apply(idle={"pendingTimeoutSeconds": PENDING_SECONDS})
    measured = sum(case.reason == "Measured" for case in CASES.values())
    eventually(lambda: made.counts().get("succeeded") == measured, why=lambda: made.status()["reasons"])
    eventually(lambda: "AgentUnschedulable" in told(stage.site, nodes[RULED]))
    return made


def told(site: Site, node: str) -> str:
    """What `kubectl precision why NODE` prints."""
    reach = Reach(kubeconfig=str(site.lab.kubeconfig))
    seen = ask_cluster(reach, lambda cluster: gathered(cluster, site.namespace, node))
    return text(node, why(seen.plan, seen.observed, node))


@pytest.mark.parametrize("name", CASES)
def test_why_names_the_cause(name: str, nodes: dict[str, str], profile: Profile) -> None:
    """Also of the ruled node, which is named while an attempt waits, and not between two attempts."""
    line, case = f", {CASES[name].reason}\n", CASES[name]

    def is_named() -> bool:
        said = told(profile.site, nodes[name])
        return line in said and case.says in said

    eventually(is_named, why=lambda: told(profile.site, nodes[name]))


def test_nodes_that_are_mended_are_measured_with_eight_gpus_each(nodes: dict[str, str], profile: Profile) -> None:
    mended = {name: case.mend for name, case in CASES.items() if case.mend is not None}
    for name, mend in mended.items():
        mend(profile.site, nodes[name])
    measured = {nodes[name] for name, case in CASES.items() if case.reason == "Measured" or case.mend is not None}
    eventually(lambda: measured <= {n for n, tried in profile.attempts().items() if tried["outcome"] == "succeeded"})
    done = [report for report in profile.reports() if "run" in report.get("status", {})]
    gpus = {report["spec"]["nodeName"]: report["status"]["hardware"]["gpus"] for report in done}
    assert {node: gpus[node] for node in measured} == dict.fromkeys(measured, 8)
    jobs = [job["metadata"]["annotations"][names.ANNOTATION_NODE] for job in created(profile.history(), "jobs")]
    assert sorted(node for node in jobs if node != nodes[RULED]) == sorted(measured)


def test_an_attempt_that_a_rule_keeps_from_its_gpus_spends_no_retry_and_says_to_look_for_rules(
    nodes: dict[str, str], profile: Profile
) -> None:
    site, node = profile.site, nodes[RULED]
    eventually(lambda: profile.attempts().get(node))
    tried = profile.attempts()[node]
    assert (tried["outcome"], tried["reason"], tried.get("failures", 0)) == ("disrupted", "ClaimNotAllocated", 0)
    assert "look for DeviceTaintRules" in told(site, node)
    assert not any(device.get("taints") for device in first_slice(site, node)["spec"]["devices"])
    site.api.ask("DELETE", f"{RULES}/slow-{node}")
    eventually(lambda: profile.attempts()[node]["outcome"] == "succeeded")


@contextmanager
def without_class(site: Site) -> Iterator[None]:
    """The GPUs' DeviceClass is gone for the length of the block."""
    there = site.get(f"{CLASSES}/{GPU_DRIVER}")
    site.api.ask("DELETE", f"{CLASSES}/{GPU_DRIVER}")
    try:
        yield
    finally:
        site.api.ask("POST", CLASSES, {**there, "metadata": {"name": GPU_DRIVER}})


def test_a_missing_class_holds_its_nodes_alone_and_they_go_on_when_it_is_there(scene: Scene) -> None:
    plain, claimed = scene.add_nodes(NodeSpec("H100", traits=("mig-off",)), NodeSpec("H100", traits=("dra",)))
    with without_class(scene.site):
        with scene.site.without_operator():  # it remembers for some seconds that the class was there
            profile = scene.apply()
        eventually(lambda: reasons(profile.status()).get("DeviceClassMissing") == 1)
        eventually(lambda: profile.attempts().keys() == {plain})
        assert f"There is no DeviceClass {GPU_DRIVER}" in told(scene.site, claimed)
    eventually(lambda: claimed in profile.attempts())
    assert (profile.attempts()[claimed]["outcome"], profile.attempts()[claimed]["number"]) == ("succeeded", 1)


def test_a_quota_of_devices_is_told_at_once_and_passes_when_there_is_room(scene: Scene) -> None:
    site = scene.site
    quotas = f"/api/v1/namespaces/{site.namespace}/resourcequotas"
    quota = {"metadata": {"name": "devices"}, "spec": {"hard": {DEVICES: "4"}}}
    site.api.ask("POST", quotas, quota)
    eventually(lambda: DEVICES in site.get(f"{quotas}/devices").get("status", {}).get("hard", {}))
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("dra",)))
    profile = scene.apply()
    eventually(lambda: reasons(profile.status()).get("QuotaExceeded") == 1)
    (row,) = profile.status()["refusals"]
    assert (row["node"], row["stage"]) == (node, "ResourceClaim")
    assert f"0 of 4 {DEVICES} used, 8 more requested" in row["message"]
    site.api.ask("DELETE", f"{quotas}/devices")
    profile.completes()
    assert profile.attempts()[node]["number"] == 1
