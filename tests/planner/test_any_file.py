"""Whatever stands in a plan or a fleet file: an answer or a refusal that names the field, and never a traceback."""

import copy
import json
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from precision_api.kinds.capacity_plan import PlanSpec
from precision_api.models.workload import Workload
from precision_operator.cli.allowed import strictly
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from tests.support.fleets import NOW, fleet, node, pool, rate

NUMBERS = (-1, 0, 1, 1e30, -0.5, "0", "-1", "nan", "1e30", "15T")
ODD = (*NUMBERS, None, "", "yesterday", "9999-12-31T00:00:00Z", [], {}, True)
PLAN: dict[str, Any] = yaml.load(
    """
start: "2026-12-01T00:00:00Z"
fleet: {placement: random, maxAge: 30d, namespaces: [ml], profiles: [nightly], allow: [stale]}
objective: [time]
goodput: "0.9"
goodputPlusMinus: "0.03"
power: {pue: "1.2", overhead: {gpu: "1.3", module: "1.1"}, budget: 90kW, dollarsPerKilowattHour: "0.1"}
budget: {dollars: "90000", gpuHours: "50000", megawattHours: "90"}
pools:
- {name: H100, nodes: 12, blockGPUs: 8, idleWattsPerGPU: 60, dollarsPerGPUHour: "2", committedGPUHours: "10",
   scaling: [{gpus: 8, efficiency: "1", plusMinus: "0.02"}, {gpus: 96, efficiency: "0.8"},
             {gpus: 96, efficiency: "0.85", recipe: bf16}]}
- {name: mine, product: H200, nodes: 4, gpusPerNode: 8, limitWattsPerGPU: 700, memoryGiBPerGPU: 141,
   limitScope: gpu, powerScope: gpu, powerBudget: 60kW, goodput: "0.95", goodputPlusMinus: "0.02",
   dollarsPerGPUHour: "3", priceIncludesPower: true,
   jobRates: [{workload: {preset: llama3-8b}, recipe: bf16, gpus: 32, tokensPerSecondPerGPU: "9000",
               plusMinus: "0.03", wattsPerGPU: "650", source: a run}]}
jobs:
- {name: a, workload: {preset: llama3-8b}, tokens: 100B, minGPUs: 8, maxGPUs: 64, deadlineDays: "30", priority: 1,
   goodput: "0.9", goodputPlusMinus: "0.01"}
- {name: b, workload: {preset: llama3-8b}, tokens: 100B, after: [a], notBefore: "2026-12-03T00:00:00Z",
   recipes: [bf16], denyRecipes: [nvfp4], pools: [H100]}
- {name: c, workload: {preset: llama3-8b}, tokens: 100B, deadline: "2027-02-01T00:00:00Z",
   running: {pool: H100, recipe: bf16, gpus: 16, tokensDone: 10B, startedAt: "2026-11-30T00:00:00Z"}}
- {name: d, parameters: 8B, tokens: 1B, blockGPUs: 8, globalBatch: 512, gpusPerReplica: 8, memoryCheck: Enforce}
whatIfs:
- {name: more, drainSlowNodes: true, powerPercent: 10, allowRecipes: [bf16], denyRecipes: [nvfp4],
   addNodes: {pool: H100, nodes: 2}, loseRack: {pool: H100, rack: r},
   prices: [{pool: H100, dollarsPerGPUHour: "4"}]}
solver: {timeLimitSeconds: 2, gapPercent: "1"}
""",
    yaml.CSafeLoader,
)
FLEET = json.loads(fleet(pool("H100", node("n", [rate("bf16", error=0.01)], count=10, rack="r"))).model_dump_json())


def places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where all values of a document stand."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def fields(model: type[BaseModel]) -> set[str]:
    """All names in files of this model and of what it holds; workloads have tests of their own."""
    found = set[str]()
    for name, field in model.model_fields.items():
        found.add(field.alias or to_camel(name))
        for part in (field.annotation, *get_args(field.annotation)):
            for inner in (part, *get_args(part)):
                if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not Workload:
                    found |= fields(inner)
    return found


def test_the_plan_that_is_damaged_has_every_field_and_is_solved() -> None:
    assert fields(PlanSpec) <= {key for path in places(PLAN) for key in path}
    patient = PLAN | {"solver": {"timeLimitSeconds": 60, "gapPercent": "1"}}
    found = plan(strictly(PlanSpec, patient), read_fleet(json.dumps(FLEET)), NOW)
    assert found.solution is not None, status(found).problems


def changed(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    made = copy.deepcopy(document)
    place = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


def answered(raw: Any, saved: str) -> None:
    """Plan with both; every refusal names a field."""
    refused = ""
    try:
        spec = strictly(PlanSpec, raw)
        known = read_fleet(saved)
    except ValidationError as error:
        refused = ".".join(map(str, error.errors()[0]["loc"])) or error.errors()[0]["msg"]
    except ValueError as error:
        refused = str(error).partition(": ")[0]
    else:
        _planned(spec, known)
        return
    assert refused


def _planned(spec: PlanSpec, known: Fleet) -> None:
    found = plan(spec, known, NOW)
    told = status(found, what_ifs(spec, known, found, NOW))
    if told.phase == "Refused":
        assert told.problems
        assert all(problem.startswith("spec.") for problem in told.problems), told.problems


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*places(PLAN)]), st.sampled_from(ODD))
def test_any_value_in_a_plan(path: tuple[str | int, ...], value: object) -> None:
    answered(changed(PLAN, path, value), json.dumps(FLEET))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*places(FLEET)]), st.sampled_from(ODD))
def test_any_value_in_a_fleet(path: tuple[str | int, ...], value: object) -> None:
    answered(PLAN, json.dumps(changed(FLEET, path, value)))
