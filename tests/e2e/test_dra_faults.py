"""Claims that a quota refuses, and an operator that is killed while it makes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.lagging_proxy import Trouble, lagging_proxy
from tests.support.site import Profile, Scene, Site, reasons

pytestmark = pytest.mark.cluster

TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


def test_a_quota_of_devices_is_told_at_once_and_passes_when_there_is_room(scene: Scene) -> None:
    site = scene.site
    quotas = f"/api/v1/namespaces/{site.namespace}/resourcequotas"
    quota = {"metadata": {"name": "devices"}, "spec": {"hard": {DEVICES: "4"}}}
    assert site.api.call("POST", quotas, quota)[0] == 201
    eventually(lambda: DEVICES in site.get(f"{quotas}/devices").get("status", {}).get("hard", {}))
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("dra",)))
    profile = scene.apply()
    eventually(lambda: reasons(profile.status()).get("QuotaExceeded") == 1)
    (row,) = profile.status()["refusals"]
    assert (row["node"], row["stage"]) == (node, "ResourceClaim")
    assert f"0 of 4 {DEVICES} used, 8 more requested" in row["message"]
    assert site.api.call("DELETE", f"{quotas}/devices")[0] == 200
    profile.completes()
    assert profile.attempts()[node]["number"] == 1


def test_an_operator_that_is_killed_between_template_and_job_leaves_one_of_each(scene: Scene, tmp_path: Path) -> None:
    site, operator = scene.site, scene.site.operator
    scene.add_nodes(*[NodeSpec("H100", traits=("dra",))] * 4)
    with lagging_proxy(operator.kubeconfig, troubles=[Trouble("hang", "POST", 1, "/jobs")]) as road:
        to_be_killed = replace(operator, kubeconfig=road.kubeconfig(operator.kubeconfig, tmp_path / "kubeconfig"))
        with site.operated_by(to_be_killed):
            profile = scene.apply(rollout={"maxConcurrent": 4})
            eventually(lambda: templates(site, profile) and road.hanging == 4)
            assert profile.jobs() == []
    profile.completes()
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(profile.history(), "jobs"))
    assert sorted(jobs.values()) == [1, 1, 1, 1]
    assert len(templates(site, profile)) == 1
    profile.delete()
    eventually(lambda: not templates(site, profile) and not profile.jobs() and not profile.pods())


def templates(site: Site, profile: Profile) -> list[Object]:
    return site.items(TEMPLATES.format(namespace=site.namespace), profile.uid)
