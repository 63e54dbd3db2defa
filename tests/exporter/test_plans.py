"""CapacityPlans in the exporter: totals and pools, few series, and neither a bad one nor none of them matters."""

import logging
from typing import Any

import pytest

from precision_api.facts.names import API_VERSION, PLAN_KIND, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster import ApiError
from precision_operator.exporter.body import Body, build
from precision_operator.exporter.families.plan import PLAN_FAMILIES, read_plan
from precision_operator.exporter.watch import targets
from precision_operator.planner.answer.conditions import finished
from precision_operator.planner.answer.document import status as answer_of
from precision_operator.planner.answer.planning import plan
from tests.support.exposition import samples_in, store_of
from tests.support.fleets import NOW, fleet, job, spec
from tests.support.report_objects import profile_object

NOT_FOUND = ApiError(404, "NotFound", "the server could not find the requested resource")
POOL = {"name": "NVIDIA-GB200", "gpus": 96, "peakGPUs": 72, "gpuHours": "28800", "slowNodes": 1}
POOL |= {"data": "simulated 10", "provenance": "nightly: 10 nodes"}
JOB = {"name": "pretrain", "pool": "NVIDIA-GB200", "recipe": "mxfp8", "gpus": 72, "tokensPerSecond": "2345000"}
JOB |= {"start": "2026-11-21T00:00:00Z", "end": "2026-12-07T16:00:00Z", "straggler": "0.97", "basis": "measured"}
JOB |= {"days": {"low": "15.9", "mid": "16.7", "high": "18.2"}, "upperBound": False}
JOB |= {"deadline": "promised", "source": "x"}
SOLVED = {
    "phase": "Solved",
    "solvedAt": "2026-11-20T07:00:00Z",
    "totals": {"days": "16.7", "megawattHours": "42.5", "peakMegawatts": "0.12", "gapPercent": "0.5"},
    "jobs": [JOB],
    "pools": [POOL],
}


def plan_object(name: str = "q1", status: Any = None, **meta: Any) -> dict[str, Any]:
    """A solved plan of one job unless told otherwise; no prices, so no cost."""
    identity = {"name": name, "namespace": "ml", "uid": f"uid-plan-{name}", "resourceVersion": "100"}
    return {
        "apiVersion": API_VERSION,
        "kind": PLAN_KIND,
        "metadata": identity | meta,
        "status": SOLVED if status is None else status,
    }


def at(version: int, name: str = "q1", **status: Any) -> dict[str, Any]:
    return plan_object(name, SOLVED | status, resourceVersion=str(version))


def phases(body: Body) -> dict[str, str]:
    samples = [sample for sample in samples_in(body.fleet) if sample.name == "precision_plan_phase"]
    return {sample.labels["plan"]: sample.labels["phase"] for sample in samples if sample.value == 1.0}


def test_a_plan_is_shown_changed_and_forgotten_with_its_object() -> None:
    store = store_of(at(100), at(100, "q2"))
    assert phases(build(store.view())) == {"q1": "Solved", "q2": "Solved"}
    store.see(PLAN_PLURAL, at(102, phase="Infeasible"))
    store.see(PLAN_PLURAL, at(101))
    assert phases(build(store.view())) == {"q1": "Infeasible", "q2": "Solved"}
    store.forget(at(103))
    assert phases(build(store.view())) == {"q2": "Solved"}
    store.forget(at(104, "q2"))
    assert b"precision_plan_" not in build(store.view()).text


@pytest.mark.parametrize(
    "status",
    [
        *({"phase": "Perhaps"}, {"jobs": "all"}, {"pools": [POOL, POOL]}),
        *({"solvedAt": "yesterday"}, {"totals": {"days": "many"}}),
    ],
    ids=["unknown phase", "no list of jobs", "a pool twice", "no time", "no number"],
)
def test_a_broken_plan_loses_its_series_says_why_once_and_leaves_the_others(
    status: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(profile_object(), at(10, "good"), at(10, "bad"))
    with caplog.at_level(logging.WARNING):
        store.see(PLAN_PLURAL, at(11, "bad", **status))
        store.see(PLAN_PLURAL, at(12, "bad", **status))
    body = build(store.view())
    assert (phases(body), body.unreadable[PLAN_PLURAL]) == ({"good": "Solved"}, 1)
    assert b"precision_profile_phase{" in body.fleet
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == ["ml/bad is not shown"]


def test_a_plan_that_waits_or_lacks_its_kind_is_no_problem() -> None:
    body = build(store_of(plan_object(status={})).view())
    assert b"precision_plan_" not in body.text
    assert body.unreadable[PLAN_PLURAL] == 0
    optional = {target.plural: target.optional for target in targets(["ml"])}
    assert optional == {PROFILE_PLURAL: False, REPORT_PLURAL: False, PLAN_PLURAL: True}


def solved(*jobs: Any, **changes: Any) -> dict[str, Any]:
    """A CapacityPlan object as the operator leaves it after it has planned."""
    answer = answer_of(plan(spec(*jobs, **changes), fleet(), NOW))
    written = finished(answer, answer.model_copy(update={"conditions": ()}), "x", 1, NOW)
    return {
        "metadata": {"namespace": "ml", "name": "q1", "uid": "u"},
        "status": written.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def lines(shown: dict[str, Any]) -> list[str]:
    view = read_plan(shown)
    assert view is not None
    return [line for family in PLAN_FAMILIES for line in family.render(view).decode().splitlines()]


def test_a_plan_has_series_of_totals_and_pools_whatever_its_jobs_and_none_unknown() -> None:
    text = "\n".join(lines(solved(job(minGPUs=64, maxGPUs=64))))
    assert 'precision_plan_phase{phase="Solved",plan="q1",plan_namespace="ml"} 1.0' in text
    assert 'precision_plan_pool_peak_gpus{plan="q1",plan_namespace="ml",pool="H100"} 64.0' in text
    assert 'precision_plan_jobs{basis="measured",plan="q1",plan_namespace="ml",pool="H100",recipe="bf16"} 1.0' in text
    assert 'precision_plan_duration_seconds{plan="q1",plan_namespace="ml"} 156250' in text
    assert not any("cost" in line for line in lines(solved()))
    assert not any("cost" in line for line in lines(solved(job(minGPUs=9999))))
    few, many = solved(job("a")), solved(*(job(f"j{i}", tokens="1B") for i in range(16)))
    assert len(lines(few)) == len(lines(many))
