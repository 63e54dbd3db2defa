"""CapacityPlans on a real control plane: answered from what was measured, again when that moves, and not in between."""

from collections.abc import Iterator
from typing import Any

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_operator.cluster import paths
from tests.support.eventually import eventually
from tests.support.history import Object
from tests.support.site import Profile, Scene
from tests.support.tenant import TENANT

pytestmark = pytest.mark.cluster

MEASURED = {"workload": {"preset": "llama3-8b"}, "recipes": [], "benchmarks": {"preset": "quick"}}
TRAIN = {"name": "train", "workload": {"preset": "llama3-8b"}, "tokens": "100B"}


@pytest.fixture(scope="module")
def measured(stage: Scene) -> Profile:
    """Four profiled nodes of two products."""
    stage.add_nodes(NodeSpec("GB200", 2), NodeSpec("H100", 2))
    profile = stage.apply(**MEASURED)
    profile.completes(270)
    assert profile.counts()["succeeded"] == 4
    return profile


@pytest.fixture
def plans(stage: Scene) -> "Iterator[Plans]":
    made = Plans(stage)
    yield made
    made.close()


class Plans:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._names: list[str] = []

    def apply(self, name: str, profile: Profile, **spec: Any) -> None:
        fleet = {"profiles": [profile.name], "allow": ["simulated", "replayed"], **spec.pop("fleet", {})}
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.PLAN_KIND,
            "metadata": {"name": name, "namespace": self.scene.site.namespace},
            "spec": {"fleet": fleet, "jobs": [TRAIN], "whatIfs": []} | spec,
        }
        self.scene.lab.apply(manifest)
        self._names.append(name)

    def get(self, name: str) -> Object:
        path = paths.collection(names.API_VERSION, names.PLAN_PLURAL, self.scene.site.namespace)
        return self.scene.site.get(paths.item(path, name))

    def answered(self, name: str, phase: str) -> Object:
        """The status once it says this."""
        eventually(lambda: self.get(name).get("status", {}).get("phase") == phase, 90)
        return dict(self.get(name)["status"])

    def kubectl(self, *arguments: str) -> str:
        return self.scene.lab.kubectl(*arguments, f"--namespace={self.scene.site.namespace}")

    def close(self) -> None:
        for name in self._names:
            self.kubectl("delete", "cplan", name, "--ignore-not-found")


def test_a_plan_of_the_profiled_fleet_says_pool_precision_gpus_days_and_money(measured: Profile, plans: Plans) -> None:
    prices = [{"name": "GB200", "dollarsPerGPUHour": "10"}, {"name": "H100", "dollarsPerGPUHour": "3"}]
    plans.apply("where", measured, pools=prices)
    plans.kubectl("wait", "--for=condition=Solved", "cplan/where", "--timeout=90s")
    status = plans.get("where")["status"]
    job = status["jobs"][0]
    assert job["gpus"] in (4, 8, 16)
    assert job["basis"] == "simulated"
    assert float(job["days"]["low"]) <= float(job["days"]["mid"]) <= float(job["days"]["high"])
    assert float(job["dollars"]) > 0
    # other profiles of the namespace may have left reports of further pools
    assert {pool["name"] for pool in status["pools"]} >= {"NVIDIA-GB200", "NVIDIA-H100-80GB-HBM3"}
    assert status["data"] == "SIMULATED"
    assert status["recommendation"].startswith("SIMULATED figures: run train on ")
    head, row = plans.kubectl("get", "cplan", "where").splitlines()
    assert head.split() == ["NAME", "PHASE", "JOBS", "TIME", "POWER", "COST", "DEADLINES", "DATA", "AGE"]
    assert row.split()[:3] == ["where", "Solved", "1/1"]
    chosen = ("--field-selector=involvedObject.name=where", "-o", "name")
    eventually(lambda: len(plans.kubectl("get", "events", *chosen).split()) == 2)
    assert "PlanFound" in plans.kubectl("describe", "cplan", "where")


def test_a_plan_is_solved_again_when_figures_move_and_not_before(stage: Scene, measured: Profile, plans: Plans) -> None:
    plans.apply("moving", measured)
    first = plans.answered("moving", "Solved")
    version = plans.get("moving")["metadata"]["resourceVersion"]
    plans.apply("other", measured)
    plans.answered("other", "Solved")
    stage.site.operator_has_looked()
    assert plans.get("moving")["metadata"]["resourceVersion"] == version
    stage.add_nodes(NodeSpec("GB200", 1))
    wanted = gpus_of(first) | {"NVIDIA-GB200": gpus_of(first)["NVIDIA-GB200"] + 4}
    eventually(lambda: gpus_of(plans.get("moving")["status"]) == wanted, 120)
    assert plans.get("moving")["status"]["inputs"] != first["inputs"]


def gpus_of(status: Object) -> dict[str, int]:
    """By pool, the GPUs to plan with."""
    return {pool["name"]: pool["gpus"] for pool in status["pools"]}


def test_a_changed_spec_is_answered_at_once(measured: Profile, plans: Plans) -> None:
    plans.apply("changing", measured)
    plans.answered("changing", "Solved")
    plans.apply("changing", measured, jobs=[TRAIN | {"deadlineDays": "0.001"}])
    status = plans.answered("changing", "Infeasible")
    assert status["observedGeneration"] == 2
    assert "deadline of job train" in " ".join(status["problems"])


def test_simulated_figures_are_refused_unless_the_plan_asks_for_them(measured: Profile, plans: Plans) -> None:
    plans.apply("honest", measured, fleet={"allow": []})
    status = plans.answered("honest", "Refused")
    assert "spec.fleet.allow" in status["problems"][0]
    assert "simulated" in status["problems"][0]
    conditions = {row["type"]: (row["status"], row["reason"]) for row in status["conditions"]}
    assert conditions["Accepted"] == ("False", "InputsUnusable")


def test_another_namespace_is_only_read_where_an_admin_allows_it(measured: Profile, plans: Plans) -> None:
    plans.apply("elsewhere", measured, fleet={"namespaces": [TENANT]})
    status = plans.answered("elsewhere", "Refused")
    assert "the chart value capacityPlans.acrossNamespaces" in status["problems"][0]
    conditions = {row["type"]: (row["status"], row["reason"]) for row in status["conditions"]}
    assert conditions["Accepted"] == ("False", "NamespacesNotAllowed")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"jobs": [TRAIN | {"tokens": "15"}]}, "write a number and K, M, B or T"),
        ({"power": {"budget": "2"}}, "write a number and W, kW or MW"),
        ({"jobs": []}, "should have at least 1 items"),
        ({"jobs": [TRAIN | {"parameters": "8B"}]}, "give exactly one of workload and parameters"),
    ],
    ids=["tokens", "power", "no jobs", "two sizes"],
)
def test_the_api_server_itself_refuses_what_the_schema_rules_out(stage: Scene, spec: dict[str, Any], told: str) -> None:
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLAN_KIND,
        "metadata": {"name": "bad", "namespace": stage.site.namespace},
        "spec": {"jobs": [TRAIN]} | spec,
    }
    path = paths.collection(names.API_VERSION, names.PLAN_PLURAL, stage.site.namespace)
    code, answer = stage.site.api.call("POST", path, manifest)
    assert code == 422
    assert told in answer["message"]
