"""GPUs by resource claim, by the real scheduler and resource claim controller: a fleet of every kind in one profile."""

from collections import Counter
from collections.abc import Iterator

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from tests.support.claimant import asked, gone, gpus, runs
from tests.support.eventually import eventually
from tests.support.gpu_ledger import GpuLedger
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, Site, reasons

pytestmark = pytest.mark.cluster

TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
TRAITS = "mig-off dra dra-dynmig dra-tainted dra-nic-holder dra-half dra-double dra-mapped busy"
MEASURED = ("mig-off", "dra", "dra-dynmig", "dra-tainted", "dra-nic-holder")
"""Traits of nodes that can be measured at once; `mig-off` is an ordinary node with a device plugin."""
TRAINER_GPUS = 3


@pytest.fixture(scope="module")
def ledger(site: Site) -> Iterator[GpuLedger]:
    """What an onlooker sees of all claims and pods."""
    found = GpuLedger(site.api)
    yield found
    found.close()


@pytest.fixture(scope="module")
def fleet(stage: Scene, ledger: GpuLedger) -> dict[str, str]:
    """Names of H100 nodes by their trait, of one where a trainer holds GPUs by claim, and of a GB200 tray."""
    added = stage.add_nodes(
        *(NodeSpec("H100", traits=(trait,)) for trait in (*TRAITS.split(), "dra")), NodeSpec("GB200", traits=("dra",))
    )
    mapped = f"claimant-{added[TRAITS.split().index('dra-mapped')]}"
    eventually(lambda: stage.site.get(f"/api/v1/namespaces/default/pods/{mapped}")["status"].get("phase") == "Running")
    return dict(zip((*TRAITS.split(), "held", "tray"), added, strict=True))


@pytest.fixture(scope="module")
def measured(stage: Scene, fleet: dict[str, str]) -> Profile:
    """The profile over all of them, when all that can be measured is; the trainer ends when the others are."""
    trainer = asked(stage.site, fleet["held"], gpus(TRAINER_GPUS))
    eventually(lambda: runs(stage.site, trainer))
    profile = stage.apply(idle={"required": True})
    eventually(lambda: len(profile.attempts()) == len(MEASURED) + 1)
    eventually(lambda: reasons(profile.status()).get("Busy") == 3)
    gone(stage.site, trainer)
    eventually(lambda: len(profile.attempts()) == len(MEASURED) + 2)
    eventually(lambda: reasons(profile.status()).get("Busy") == 2)
    return profile


def test_every_node_that_can_be_measured_is_and_the_others_say_why(measured: Profile, fleet: dict[str, str]) -> None:
    wanted = {fleet[trait] for trait in (*MEASURED, "held", "tray")}
    assert {node for node, tried in measured.attempts().items() if tried["outcome"] == "succeeded"} == wanted
    told = reasons(measured.status())
    assert {reason: told.get(reason) for reason in ("GPUsNotReady", "GPUsOfferedTwice", "Busy")} == {
        "GPUsNotReady": 1,
        "GPUsOfferedTwice": 1,
        "Busy": 2,
    }


def test_label_and_slice_make_one_pool_of_one_product(measured: Profile) -> None:
    pools = {pool["name"]: pool["nodes"] for pool in measured.status()["pools"]}
    assert pools.keys() == {"NVIDIA-H100-80GB-HBM3", "NVIDIA-GB200"}


def test_no_node_is_measured_twice(measured: Profile) -> None:
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(measured.history(), "jobs"))
    assert set(jobs.values()) == {1}


def test_at_no_instant_an_agent_had_a_gpu_that_somebody_held_or_another_one_than_it_was_told(
    measured: Profile, fleet: dict[str, str], ledger: GpuLedger
) -> None:
    assert ledger.violations() == []
    agents = {node: len(uuids) for node, uuids in ledger.agents().items() if node in fleet.values()}
    by_claim = zip((*MEASURED[1:], "held"), (8, 8, 7, 8, 8), strict=True)
    assert agents == {fleet[trait]: gpus for trait, gpus in by_claim} | {fleet["tray"]: 4, fleet["mig-off"]: 0}
    assert ledger.most_held() >= TRAINER_GPUS + 16, "the trainer, the mapped pod, and the one of the device plugin"


def templates(site: Site, profile: Profile) -> list[Object]:
    return site.items(TEMPLATES.format(namespace=site.namespace), profile.uid)


def test_there_is_a_template_for_each_number_of_gpus_which_goes_with_the_profile(measured: Profile, site: Site) -> None:
    found = templates(site, measured)
    counts = [item["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] for item in found]
    assert sorted(counts) == [4, 7, 8]
    measured.delete()
    eventually(lambda: not templates(site, measured))
