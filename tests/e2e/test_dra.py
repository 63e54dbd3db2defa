"""GPUs by resource claim, by the real scheduler and resource claim controller: a fleet of every kind in one profile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from precision_api import names
from precision_lab.fleet.fleet import NodeSpec
from tests.support.claim_history import ClaimHistory
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, Site, reasons

pytestmark = pytest.mark.cluster

TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
TRAITS = (
    "mig-off",
    "dra",
    "dra-dynmig",
    "dra-tainted",
    "dra-nic-holder",
    "dra-half",
    "dra-double",
    "dra-mapped",
)
MEASURED = ("mig-off", "dra", "dra-dynmig", "dra-tainted", "dra-nic-holder")
"""Traits of nodes that can be measured at once; `mig-off` is an ordinary node with a device plugin."""


@pytest.fixture(scope="module")
def claims(site: Site) -> Iterator[ClaimHistory]:
    history = ClaimHistory(site.api)
    yield history
    history.close()


@pytest.fixture(scope="module")
def fleet(stage: Scene, claims: ClaimHistory) -> dict[str, str]:
    """Names of H100 nodes by their trait, and of a GB200 tray by claim."""
    added = stage.add_nodes(
        *(NodeSpec("H100", traits=(trait,)) for trait in TRAITS), NodeSpec("GB200", traits=("dra",))
    )
    mapped = f"claimant-{added[TRAITS.index('dra-mapped')]}"
    eventually(lambda: stage.site.get(f"/api/v1/namespaces/default/pods/{mapped}")["status"].get("phase") == "Running")
    return dict(zip((*TRAITS, "tray"), added, strict=True))


@pytest.fixture(scope="module")
def measured(stage: Scene, fleet: dict[str, str]) -> Profile:
    """The profile over all of them, when all that can be measured is."""
    profile = stage.apply(idle={"required": True})
    profile.completes()
    eventually(lambda: len(profile.attempts()) == len(MEASURED) + 1)
    return profile


def test_every_node_that_can_be_measured_is_and_the_others_say_why(measured: Profile, fleet: dict[str, str]) -> None:
    wanted = {fleet[trait] for trait in (*MEASURED, "tray")}
    assert {node for node, tried in measured.attempts().items() if tried["outcome"] == "succeeded"} == wanted
    told = reasons(measured.status())
    assert {reason: told.get(reason) for reason in ("GPUsNotReady", "GPUsOfferedTwice", "Busy")} == {
        "GPUsNotReady": 1,
        "GPUsOfferedTwice": 1,
        "Busy": 1,
    }


def test_label_and_slice_make_one_pool_of_one_product(measured: Profile) -> None:
    pools = {pool["name"]: pool["nodes"] for pool in measured.status()["pools"]}
    assert pools.keys() == {"NVIDIA-H100-80GB-HBM3", "NVIDIA-GB200"}


def test_no_node_is_measured_twice_and_no_gpu_is_held_twice(measured: Profile, claims: ClaimHistory) -> None:
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(measured.history(), "jobs"))
    assert set(jobs.values()) == {1}
    assert claims.held_twice() == []


def test_each_agent_has_the_gpus_that_its_request_names_and_no_others(
    measured: Profile, fleet: dict[str, str], claims: ClaimHistory
) -> None:
    held = claims.of_pods()
    expected = {fleet[t]: n for t, n in zip(MEASURED[1:], (8, 8, 7, 8), strict=True)} | {fleet["tray"]: 4}
    seen: dict[str, int] = {}
    for pod in created(measured.history(), "pods"):
        request = asked(pod)
        node = request["node"]["name"]
        if node == fleet["mig-off"]:
            assert pod["metadata"]["name"] not in held
            assert "gpu_uuids" not in request["node"]
            continue
        devices = held[pod["metadata"]["name"]]
        assert {(driver, pool) for driver, pool, _ in devices} == {("gpu.nvidia.com", node)}
        assert len(devices) == request["node"]["gpus"] == len(request["node"]["gpu_uuids"])
        seen[node] = len(devices)
    assert seen == expected


def asked(pod: Object) -> dict[str, Any]:
    """The request in an agent's environment."""
    env = pod["spec"]["containers"][0]["env"]
    return dict(json.loads(next(row["value"] for row in env if row["name"] == names.REQUEST_ENV)))


def templates(site: Site, profile: Profile) -> list[Object]:
    return site.items(TEMPLATES.format(namespace=site.namespace), profile.uid)


def test_there_is_one_template_for_each_number_of_gpus_and_it_goes_with_the_profile(
    measured: Profile, site: Site
) -> None:
    found = templates(site, measured)
    counts = [item["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] for item in found]
    assert sorted(counts) == [4, 7, 8]
    measured.delete()
    eventually(lambda: not templates(site, measured))
