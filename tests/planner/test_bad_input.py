"""Whatever is wrong with a plan's inputs is told with the field and what to do; NaN never gets in, nor out.

Whatever stands in a plan or a fleet file: an answer or a refusal that names the field, and never a traceback.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from precision_api.kinds.capacity_plan import PlanSpec, WhatIf
from precision_api.models.workload import Workload
from precision_operator.cli.allowed import strictly
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from precision_operator.planner.inputs.quantities import UnusableInput, count, positive, power, share
from precision_operator.planner.rates.evidence import ALLOWABLE
from tests.support.fleets import NOW, answered, fleet, job, node, pool, rate, spec
from tests.support.golden import FOLDER, beside

NUMBERS = (-1, 0, 1, 1e30, -0.5, "0", "-1", "nan", "1e30", "15T")
ODD = (*NUMBERS, None, "", "yesterday", "9999-12-31T00:00:00Z", [], {}, True)
PLAN: dict[str, Any] = yaml.load((FOLDER / "plan_everything.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
FLEET = json.loads(fleet(pool("H100", node("n", [rate("bf16", error=0.01)], count=10, rack="r"))).model_dump_json())


def problems(measured: Fleet | None = None, **changes: Any) -> str:
    status = answered(measured, **changes)
    assert status.phase == "Refused", status.recommendation
    return "\n".join(status.problems)


TABLES = beside(__file__)
BAD: dict[str, dict[str, Any]] = TABLES["refused"]


@pytest.mark.parametrize("case", BAD)
def test_a_problem_names_the_field_and_a_remedy(case: str) -> None:
    changes = dict(BAD[case]["spec"])
    for part, usual in (("jobs", job()), ("pools", {"name": "H100"})):
        if part in changes:
            changes[part] = [usual | more for more in changes[part]]
    words = problems(**changes)
    assert [said for said in BAD[case]["says"] if said not in words] == []


def test_all_problems_are_told_at_once_and_the_same_one_once() -> None:
    words = problems(jobs=[job("a", tokens="0T"), job("b", deadline="soon")], pools=[{"name": "H1OO"}], goodput="0")
    assert len(words.splitlines()) == 3
    status = answered(None, *(job(name, minGPUs=4096) for name in "abc"))
    assert len(status.problems) == 1
    assert status.problems[0].startswith("spec.jobs[a]: a, b, c fit nowhere. H100: has 128 GPUs")


@pytest.mark.parametrize("case", DOUBTFUL := TABLES["doubtful"])
def test_doubtful_figures_are_refused_unless_asked_for_and_then_marked(case: str) -> None:
    result, row, word = DOUBTFUL[case]
    known = fleet(pool("H100", node("n", [rate("bf16", **row)], count=16, **result)))
    assert f"set spec.fleet.allow: [{word}]" in problems(known)
    status = answered(known, fleet={"allow": [word]})
    assert (status.phase, status.data) == ("Solved", word.upper())
    assert status.notes[0].startswith(f"{word.upper()}: ")
    assert f"{word.upper()} (16/16)" in status.jobs[0].source
    assert (status.recommendation or "").startswith(word.upper())


NEVER = {
    "fallback": node("n", [rate("fp8_current", verdict="fallback")], count=4),
    "trial: profile the fleet first": node("n", provenance="trial", count=4),
}


@pytest.mark.parametrize(("why", "only"), NEVER.items(), ids=NEVER)
def test_what_fell_back_or_is_a_trial_on_a_cpu_is_not_planned_with_and_nobody_told_to_allow_it(
    why: str, only: Any
) -> None:
    assert f"all results are refused as {why}" in problems(fleet(pool("H100", only)), fleet={"allow": [*ALLOWABLE]})


def test_without_valid_power_there_is_no_energy_figure_unless_the_limit_may_stand_for_it() -> None:
    known = fleet(pool("H100", node("n", [rate("bf16", watts=None, power_invalid=("phase_locked",))], count=16)))
    assert "its power is not known" in problems(known, objective=["energy"])
    bare = answered(known)
    assert bare.jobs[0].megawatt_hours is None
    assert bare.jobs[0].tokens_per_joule is None
    asked = answered(known, fleet={"allow": ["powerInvalid"]})
    assert asked.jobs[0].megawatt_hours is not None
    assert asked.data == "POWERINVALID"


def test_an_empty_fleet_says_what_to_do_and_one_node_is_planned_with_its_problems() -> None:
    assert "run a PrecisionProfile" in problems(Fleet(taken_at="2026-12-01T00:00:00Z"))
    status = answered(fleet(pool("H100", node())))
    assert status.phase == "Solved"
    assert any("only one node was measured" in note for note in status.notes)


@pytest.mark.parametrize("change", TABLES["the schema refuses"], ids=str)
def test_the_schema_refuses_what_it_can(change: dict[str, Any]) -> None:
    jobs = [job(**row) for row in change.get("jobs", [{}])]
    with pytest.raises(ValidationError):
        spec(**(change | {"jobs": jobs}))


@given(st.text(max_size=12))
def test_quantities_are_finite_and_above_zero_or_refused(text: str) -> None:
    for read in (count, power, positive, share):
        with suppress(UnusableInput):
            assert 0 < read(text, "x") < float("inf")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "0", "-1", "", "x", "NaN"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UnusableInput):
        positive(text, "spec.x")


def test_a_mixture_is_no_recipe_of_a_plan() -> None:
    with pytest.raises(ValidationError, match="baseline can name a mixture"):
        WhatIf.model_validate({"name": "mine", "allowRecipes": ["mine"]})


def changed(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    made = copy.deepcopy(document)
    place = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


FIRST = ("pools", 0, "nodes", 0)
DAMAGED = {
    "no JSON": ("{", "the file"),
    "a list": ("[]", "the file"),
    "another version": ('{"taken_at": "x", "version": "precision-fleet/9"}', "version"),
    "no product": ('{"taken_at": "x", "pools": [{"name": "a"}]}', "pools.0.product"),
    "no GPUs": (json.dumps(changed(FLEET, (*FIRST, "gpus"), 0)), "gpus"),
    "no figure": (json.dumps(changed(FLEET, (*FIRST, "limit_watts"), float("nan"))), "limit_watts"),
    "no time": (
        json.dumps(changed(FLEET, (*FIRST, "results", 0, "finished_at"), "yesterday")),
        "finished_at: 'yesterday' is no time",
    ),
    "no rate": (
        json.dumps(changed(FLEET, (*FIRST, "results", 0, "rates", 0, "synchronous_tokens_per_second"), 1e30)),
        "synchronous_tokens_per_second: Input",
    ),
}


@pytest.mark.parametrize(("text", "place"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_fleet_file_and_one_with_a_senseless_figure_is_refused_with_the_place(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        read_fleet(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=8), st.floats(0, 0.9), st.integers(1, 10))
def test_no_result_holds_nan_or_infinity(rates: list[float], error: float, tokens: int) -> None:
    nodes = [node(f"n{i}", [rate("bf16", value, error=error)]) for i, value in enumerate(rates)]
    status = answered(fleet(pool("H100", *nodes)), job(tokens=f"{tokens}B"))
    text = status.model_dump_json(by_alias=True)
    assert "NaN" not in text
    assert "Infinity" not in text
    assert '"inf' not in text


@pytest.mark.parametrize("own", [{"nodes": 4}, {"powerBudget": "1MW"}, {"committedGPUHours": "100"}])
def test_what_is_of_one_pool_is_refused_for_a_product_of_several(own: dict[str, Any]) -> None:
    known = fleet(pool("rackA", product="H100"), pool("rackB", product="H100"))
    power_terms = {"pue": "1.2", "overhead": {"gpu": "1.5"}}
    shown = problems(known, pools=[{"name": "H100"} | own], power=power_terms)
    assert "spec.pools: H100 is the product of rackA, rackB: name a pool" in shown


def test_a_price_may_be_shared_and_unknown_electricity_is_not_free() -> None:
    known = fleet(pool("rackA", product="H100"), pool("rackB", product="H100"))
    priced = spec(pools=[{"name": "H100", "dollarsPerGPUHour": "2"}], objective=["cost"])
    assert plan(priced, known, NOW).solution is not None
    known = fleet(pool("H100", node(rates=[rate(watts=None)], count=16)))
    own = {"pools": [{"name": "H100", "dollarsPerGPUHour": "2"}], "power": {"dollarsPerKilowattHour": "0.1"}}
    assert "its power is not known" in problems(known, objective=["cost"], **own)
    assert plan(spec(objective=["time"], **own), known, NOW).totals.dollars is None


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


def answers_or_refuses(raw: Any, saved: Any) -> None:
    """Plan with both; every refusal names a field."""
    refused = ""
    try:
        spec = strictly(PlanSpec, raw)
        known = read_fleet(json.dumps(saved))
    except ValidationError as error:
        refused = ".".join(map(str, error.errors()[0]["loc"])) or error.errors()[0]["msg"]
    except ValueError as error:
        refused = str(error).partition(": ")[0]
    else:
        found = plan(spec, known, NOW)
        told = status(found, what_ifs(spec, known, found, NOW))
        assert told.problems or told.phase != "Refused"
        assert told.phase != "Refused" or all(problem.startswith("spec.") for problem in told.problems), told.problems
        return
    assert refused


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*places(PLAN)]), st.sampled_from([*places(FLEET)]), st.sampled_from(ODD))
def test_any_value_in_a_plan_or_in_a_fleet(
    in_plan: tuple[str | int, ...], in_fleet: tuple[str | int, ...], value: object
) -> None:
    answers_or_refuses(changed(PLAN, in_plan, value), FLEET)
    answers_or_refuses(PLAN, changed(FLEET, in_fleet, value))
