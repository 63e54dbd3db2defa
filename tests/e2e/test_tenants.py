"""Two tenants on one control plane: nothing that one writes, loses or is denied changes anything for the other.

The other tenant's namespace has the chart's rights like ours. What it writes are limits, suspensions, and objects as
large as the API server takes (of Jobs and pods that bear our labels: test_held). Then its rights are taken, and it is
deleted.
"""

import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from precision_api.facts import names
from precision_lab.builds.binaries import binaries
from precision_lab.lab import KubectlError, Lab
from precision_operator.cluster import paths
from tests.monitoring.cases import Case, world
from tests.monitoring.replay import PROMTOOLS, check
from tests.support.eventually import eventually
from tests.support.history import most_agents
from tests.support.lagging_proxy import Trouble, lagging_proxy
from tests.support.site import Profile, Scene, Site, profile_manifest, specs, without_times
from tests.support.tenant import TENANT

pytestmark = pytest.mark.cluster

NODES, LIMIT = 6, 3
HUGE_LABELS = {f"tenant.example/{'k' * 50}{i:04d}": "v" * 60 for i in range(4600)}
"""With what the server keeps of who wrote them, they fill most of a megabyte and a half."""
RIGHTS = "role,rolebinding,serviceaccount,networkpolicy"
WATCHED = ("precisionprofiles", "nodeprecisionreports", "jobs", "pods", "capacityplans")


@dataclass(frozen=True)
class Neighbour:
    """The other tenant's namespace."""

    site: Site

    @property
    def lab(self) -> Lab:
        return self.site.lab

    def profile(self, name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Profile:
        body = profile_manifest(TENANT, name, **spec)
        body["metadata"]["labels"] = dict(labels or {})
        uid = self.site.api.ask("POST", paths.profiles(TENANT), body)["metadata"]["uid"]
        return Profile(replace(self.site, namespace=TENANT), name, uid)

    def empty(self) -> None:
        for kind in ("pp", "npr", "jobs", "pods"):
            self.lab.kubectl("delete", kind, "--all", "-n", TENANT, "--wait=false")

    def rights(self) -> list[dict[str, Any]]:
        """What the chart has put there, to be applied again."""
        items = self.lab.get(RIGHTS, "-n", TENANT)["items"]
        fresh = [item for item in items if item["metadata"]["name"] != "default"]
        kept = ("name", "namespace", "labels", "annotations")
        return [item | {"metadata": {k: v for k, v in item["metadata"].items() if k in kept}} for item in fresh]


@pytest.fixture(scope="module")
def neighbour(site: Site) -> Iterator[Neighbour]:
    found = Neighbour(site)
    yield found
    found.empty()


def limits_everywhere(neighbour: Neighbour, mark: Mapping[str, str]) -> None:
    """Limits that would leave nobody a place, budgets that no node keeps, and suspended profiles with all of them."""
    product = "nvidia.com/gpu.product"
    products = ("NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-H100-80GB-HBM3")
    rollout = {
        "perTopology": [{"key": product, "max": 1}, {"key": "kubernetes.io/hostname", "max": 1}],
        "powerBudgetWatts": 20_000,
        "pools": [{"name": name, "maxConcurrent": 1, "powerBudgetWatts": 1} for name in products],
        "rampSeconds": 86_400,
    }
    neighbour.profile("suspended", suspend=True, target={"nodeSelector": dict(mark)}, rollout=rollout)
    neighbour.profile("never", target={"nodeSelector": dict(mark)}, rollout=rollout | {"powerBudgetWatts": 1})


def huge(neighbour: Neighbour) -> None:
    """Objects as large as the API server takes, and a spec as long as the definition allows."""
    long_names = [f"{'n' * 200}-{i}" for i in range(1024)]
    for number in range(4):
        neighbour.profile(f"huge-{number}", HUGE_LABELS, suspend=True, target={"nodeNames": long_names})


def test_limits_and_huge_objects_of_one_tenant_change_neither_starts_nor_status_of_the_other(
    scene: Scene, neighbour: Neighbour
) -> None:
    scene.add_nodes(*specs(NODES))
    alone = scene.apply("alone", rollout={"maxConcurrent": LIMIT})
    expected = without_times(alone.completes())
    alone.delete()
    limits_everywhere(neighbour, scene.manifest()["spec"]["target"]["nodeSelector"])
    huge(neighbour)
    scene.site.operator_has_looked()
    beside = scene.apply("beside", rollout={"maxConcurrent": LIMIT})
    eventually(lambda: beside.counts().get("succeeded") == NODES)
    assert without_times(beside.completes()) == expected
    assert len(beside.reports()) == NODES
    assert most_agents(beside.history()) == LIMIT
    neighbour.empty()


@pytest.fixture(scope="module")
def short_watches(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The operator, whose watches of the other namespace live for a second: rights are asked for when one begins."""
    troubles = [Trouble("cut", "WATCH", 1, f"namespaces/{TENANT}/{plural}") for plural in WATCHED]
    with lagging_proxy(site, tmp_path_factory.mktemp("road"), troubles=troubles):
        yield


def answer(site: Site, path: str) -> str:
    with urllib.request.urlopen(f"{site.operator.url}{path}", timeout=5) as found:
        return str(found.read().decode())


def forbidden(site: Site) -> set[str]:
    """The series of what may not be listed."""
    rows = [line for line in answer(site, "/metrics").splitlines() if line.startswith("precision_operator_forbidden{")]
    return {line.rpartition(" ")[0] for line in rows if line.endswith(" 1.0")}


def kinds_of(series: set[str]) -> set[str]:
    assert all(f'namespace="{TENANT}"' in each for each in series), series
    return {each.split('kind="')[1].split('"')[0] for each in series}


@pytest.mark.usefixtures("short_watches")
def test_a_kind_that_may_not_be_listed_is_a_condition_and_metric_until_it_may(
    scene: Scene, neighbour: Neighbour
) -> None:
    site, lab = scene.site, scene.lab
    rights = neighbour.rights()
    theirs = neighbour.profile("theirs", suspend=True)
    eventually(lambda: theirs.condition(names.PROGRESSING).get("reason") == "Suspended")
    role = next(item for item in rights if item["kind"] == "Role" and item["metadata"]["name"].endswith("operator"))
    lab.apply(role | {"rules": [rule for rule in role["rules"] if rule["resources"] != ["jobs"]]})
    eventually(lambda: theirs.condition(names.DEGRADED).get("reason") == "NamespaceForbidden")
    assert "jobs: jobs.batch is forbidden" in theirs.condition(names.PROGRESSING)["message"]
    eventually(lambda: kinds_of(forbidden(site)) == {"jobs"})
    scene.add_nodes(*specs(2))
    scene.apply("meanwhile").completes()
    lab.apply(role)
    eventually(lambda: theirs.condition(names.PROGRESSING).get("reason") == "Suspended")
    assert theirs.condition(names.DEGRADED)["status"] == "False"
    eventually(lambda: forbidden(site) == set())
    theirs.delete()


@pytest.mark.usefixtures("short_watches")
def test_a_namespace_that_is_deleted_and_made_anew_costs_the_others_nothing_also_across_a_restart(
    scene: Scene, neighbour: Neighbour, tmp_path: Path
) -> None:
    site, lab = scene.site, scene.lab
    rights = neighbour.rights()
    neighbour.profile("before", suspend=True)
    scene.add_nodes(*specs(2))
    lab.kubectl("delete", "namespace", TENANT, "--wait=false")
    eventually(lambda: kinds_of(forbidden(site)) >= {"profiles", "reports", "jobs"})
    lost = forbidden(site)
    assert f"namespace {TENANT} is not served: may not list" in answer(site, "/readyz")
    scene.apply("while-it-runs").completes()
    with site.without_operator():
        pass
    eventually(lambda: forbidden(site) >= {each for each in lost if "plans" not in each})
    scene.apply("after-a-restart").completes()
    site.lab.processes.stop(site.exporter.name, 9)
    site.exporter.start()
    eventually(lambda: not is_there(lab))
    lab.create_namespace(TENANT)
    lab.apply(*rights)
    eventually(lambda: forbidden(site) == set())
    after = neighbour.profile("after", suspend=True)
    eventually(lambda: after.condition(names.PROGRESSING).get("reason") == "Suspended")
    assert "not served" not in answer(site, "/readyz")
    alert = Case("NamespaceForbidden", dict.fromkeys(lost, "0x29 1x59 0x60"), (20, 101), (45, 85))
    code, said = check(binaries([PROMTOOLS[0]])[PROMTOOLS[0]], tmp_path, [world((alert,))])
    assert code == 0, said


def is_there(lab: Lab) -> bool:
    try:
        lab.kubectl("get", "namespace", TENANT)
    except KubectlError:
        return False
    return True
