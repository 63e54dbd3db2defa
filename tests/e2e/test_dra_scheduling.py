"""What the real scheduler does with claims of GPUs, as a table: the facts that the operator's way of asking rests on.

Pods of a training job ask here, not agents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from precision_lab.fleet.fleet import NodeSpec
from precision_lab.fleet.slices import NIC_DRIVER
from tests.support.claimant import RESOURCE, RUNS, asked, gone, gpus, priority_class, runs, said_of
from tests.support.eventually import eventually
from tests.support.history import Object
from tests.support.kubernetes_version import OLD
from tests.support.site import Scene, Site

pytestmark = [pytest.mark.cluster, pytest.mark.long]

TRAINING = "dra-training"
ALL: Object = {"allocationMode": "All"}
NO_ROOM = "cannot allocate all claims"
XID = {"key": "gpu.nvidia.com/xid", "operator": "Exists"}


@dataclass(frozen=True)
class Case:
    """What becomes of a pod that asks so on such a node, when pods that asked for `before` run there."""

    trait: str
    asks: Object | int
    """A device request; or a number of nvidia.com/gpu, without a claim."""
    outcome: str
    """Running, or what the scheduler says."""
    before: tuple[Object | int, ...] = ()
    on_1_34: str = ""
    """The outcome where the version is 1.34, if another: the API server drops the fields of features that are off."""
    nics: int = 0
    """How many slices a NIC driver's pool says that it has, of which one is there; 0: no such driver."""


CASES: dict[str, Case] = {
    "eight of eight": Case("dra", gpus(8), RUNS),
    "nine of eight": Case("dra", gpus(9), NO_ROOM),
    "eight while one is in use": Case("dra", gpus(8), NO_ROOM, before=(gpus(1),)),
    "seven while one is in use": Case("dra", gpus(7), RUNS, before=(gpus(1),)),
    "four of half a pool": Case("dra-half", gpus(4), NO_ROOM),
    "eight beside half a pool of NICs": Case("dra", gpus(8), RUNS, nics=2),
    "eight of which one has a taint": Case("dra-tainted", gpus(8), NO_ROOM, on_1_34=RUNS),
    "seven beside one with a taint": Case("dra-tainted", gpus(7), RUNS),
    "two claims of GPUs that may be shared": Case("dra-shared", gpus(8), RUNS, before=(gpus(8),), on_1_34=NO_ROOM),
    "eight with a toleration": Case("dra-tainted", gpus(8, tolerations=[XID]), RUNS),
    "the mapped extended resource": Case("dra", 8, RUNS, on_1_34="Insufficient nvidia.com/gpu"),
    "device plugin and claim on one node": Case("dra-double", gpus(8), RUNS, before=(8,)),
    "eight beside a NIC that is held": Case("dra-nic-holder", gpus(8), RUNS),
    "eight that somebody watches": Case("dra", gpus(8), RUNS, before=(ALL | {"adminAccess": True},)),
    "eight of which one is cut": Case(
        "dra-dynmig", gpus(8), NO_ROOM, before=(gpus(1, deviceClassName="mig.nvidia.com"),), on_1_34=RUNS
    ),
    "seven beside one that is cut": Case(
        "dra-dynmig", gpus(7), RUNS, before=(gpus(1, deviceClassName="mig.nvidia.com"),)
    ),
}
"""On 1.36. Outcomes as they were first found by hand."""


@pytest.fixture(scope="module")
def nodes(stage: Scene) -> Iterator[dict[str, str]]:
    """A node for each case, by the case's name, on which `before` runs."""
    site = stage.site
    stage.lab.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true", "--overwrite")
    added = stage.add_nodes(*(NodeSpec("H100", traits=(case.trait,)) for case in CASES.values()))
    found = dict(zip(CASES, added, strict=True))
    made: list[str] = []
    for name, case in CASES.items():
        node = found[name]
        if case.nics:
            site.api.ask("POST", f"{RESOURCE}/resourceslices", nic_slice(node, case.nics))
        for asks in case.before:
            pod = asked(site, node, asks)
            eventually(partial(runs, site, pod))
            made.append(pod)
    yield found
    gone(site, *made)
    stage.lab.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access-")


@pytest.mark.parametrize("name", CASES)
def test_the_scheduler_gives_gpus_by_claim_as_was_found(name: str, nodes: dict[str, str], site: Site) -> None:
    case = CASES[name]
    pod = asked(site, nodes[name], case.asks)
    try:
        eventually(lambda: said_of(site, pod))
        outcome = case.on_1_34 if OLD and case.on_1_34 else case.outcome
        if outcome == RUNS:
            eventually(partial(runs, site, pod))
        else:
            eventually(lambda: outcome in said_of(site, pod))
            assert not runs(site, pod)
    finally:
        gone(site, pod)


def test_a_pod_of_high_priority_is_helped_by_no_preemption_of_a_pod_with_a_claim(stage: Scene) -> None:
    site = stage.site
    (node,) = stage.add_nodes(NodeSpec("H100", traits=("dra",)))
    holder = asked(site, node, gpus(8))
    eventually(partial(runs, site, holder))
    with priority_class(site, TRAINING):
        waiting = asked(site, node, gpus(8), priority=TRAINING)
        eventually(lambda: "Preemption is not helpful for scheduling" in said_of(site, waiting))
        assert runs(site, holder)
        gone(site, holder)
        eventually(partial(runs, site, waiting))
        gone(site, waiting)


def nic_slice(node: str, slices: int) -> Object:
    """One slice of a NIC driver's pool that says that it has so many."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-half-nics"},
        "spec": {
            "driver": NIC_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": slices},
            "devices": [{"name": "nic-0"}],
        },
    }
