"""Whatever stands in a plan or a fleet file: an answer or a refusal that names the field, and never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from precision_api.capacity_plan import PlanSpec
from precision_operator.cli.allowed import strictly
from precision_operator.planner.document import status
from precision_operator.planner.fleet import Fleet, read_fleet
from precision_operator.planner.planning import plan
from precision_operator.planner.what_if import what_ifs
from tests.support.fleets import NOW, fleet, job, node, pool, rate

ODD = (
    None,
    -1,
    0,
    1,
    1e30,
    -0.5,
    "",
    "0",
    "-1",
    "nan",
    "1e30",
    "yesterday",
    "15T",
    "9999-12-31T00:00:00Z",
    [],
    {},
    True,
)
PLAN: dict[str, Any] = {
    "start": "2026-12-01T00:00:00Z",
    "fleet": {"placement": "random", "maxAge": "30d"},
    "objective": ["time"],
    "goodput": "0.9",
    "power": {"pue": "1.2", "overhead": {"gpu": "1.3"}, "budget": "80kW", "dollarsPerKilowattHour": "0.1"},
    "budget": {"dollars": "90000", "gpuHours": "50000"},
    "pools": [
        {
            "name": "H100",
            "nodes": 12,
            "blockGPUs": 8,
            "dollarsPerGPUHour": "2",
            "committedGPUHours": "10",
            "scaling": [{"gpus": 8, "efficiency": "1"}, {"gpus": 96, "efficiency": "0.8"}],
        }
    ],
    "jobs": [
        job("a", minGPUs=8, maxGPUs=64, deadlineDays="30", priority=1),
        job("b", after=["a"], notBefore="2026-12-03T00:00:00Z", recipes=["bf16"]),
    ],
    "whatIfs": [{"name": "more", "addNodes": {"pool": "H100", "nodes": 2}}],
    "solver": {"timeLimitSeconds": 2, "gapPercent": "1"},
}
FLEET = json.loads(fleet(pool("H100", node("n", [rate("bf16", error=0.01)], count=10, rack="r"))).model_dump_json())


def places(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where all values of a document stand."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


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
