"""CapacityPlans in the exporter: they come and go beside profiles, and neither a bad one nor none of them matters."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from precision_api.facts.names import API_VERSION, PLAN_KIND, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster import ApiError
from precision_operator.cluster.paths import collection
from precision_operator.exporter.body import Body, build
from precision_operator.exporter.store import Store
from precision_operator.exporter.watch import targets
from tests.support.report_objects import profile_object

PLANS = collection(API_VERSION, PLAN_PLURAL, "ml")
NOT_FOUND = ApiError(404, "NotFound", "the server could not find the requested resource")
POOL = {"name": "NVIDIA-GB200", "gpus": 96, "peakGPUs": 72, "gpuHours": "28800", "slowNodes": 1}
POOL |= {"data": "simulated 10", "provenance": "nightly: 10 nodes"}
JOB = {"name": "pretrain", "pool": "NVIDIA-GB200", "recipe": "mxfp8", "gpus": 72, "tokensPerSecond": "2345000"}
JOB |= {"start": "2026-11-21T00:00:00Z", "end": "2026-12-07T16:00:00Z", "straggler": "0.97", "basis": "measured"}
JOB |= {
    "days": {"low": "15.9", "mid": "16.7", "high": "18.2"},
    "upperBound": True,
    "deadline": "promised",
    "source": "x",
}
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
    """The phase of each plan that the text shows."""
    families = text_string_to_metric_families(body.fleet.decode())
    samples = (sample for family in families if family.name == "precision_plan_phase" for sample in family.samples)
    return {sample.labels["plan"]: sample.labels["phase"] for sample in samples if sample.value == 1.0}


def test_a_plan_is_shown_changed_and_forgotten_with_its_object() -> None:
    store = Store()
    store.see_plan(at(100))
    store.see_plan(at(100, "q2"))
    assert phases(build(store.view())) == {"q1": "Solved", "q2": "Solved"}
    store.see_plan(at(102, phase="Infeasible"))
    store.see_plan(at(101))
    assert phases(build(store.view())) == {"q1": "Infeasible", "q2": "Solved"}
    store.forget(at(103))
    assert phases(build(store.view())) == {"q2": "Solved"}
    store.forget(at(104, "q2"))
    assert b"precision_plan_" not in build(store.view()).text


@pytest.mark.parametrize("level", ["pool", "node", "detail"])
def test_plans_are_shown_at_every_level(level: Any) -> None:
    store = Store(level)
    store.see_plan(plan_object())
    assert phases(build(store.view())) == {"q1": "Solved"}


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Perhaps"},
        {"jobs": "all"},
        {"pools": [POOL, POOL]},
        {"solvedAt": "yesterday"},
        {"totals": {"days": "many"}},
    ],
    ids=["unknown phase", "no list of jobs", "a pool twice", "no time", "no number"],
)
def test_a_broken_plan_loses_its_series_says_why_once_and_leaves_the_others(
    status: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    store.see_profile(profile_object())
    store.see_plan(at(10, "good"))
    store.see_plan(at(10, "bad"))
    with caplog.at_level(logging.WARNING):
        store.see_plan(at(11, "bad", **status))
        store.see_plan(at(12, "bad", **status))
    body = build(store.view())
    assert phases(body) == {"good": "Solved"}
    assert body.unreadable_plans == 1
    assert b"precision_profile_phase{" in body.fleet
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == ["ml/bad is not shown"]


def test_a_plan_that_waits_for_its_answer_has_no_series_and_is_no_problem() -> None:
    store = Store()
    store.see_plan(plan_object(status={}))
    body = build(store.view())
    assert b"precision_plan_" not in body.text
    assert body.unreadable_plans == 0


def test_the_kind_of_plans_may_be_lacking() -> None:
    optional = {target.plural: target.optional for target in targets(["ml"])}
    assert optional == {PROFILE_PLURAL: False, REPORT_PLURAL: False, PLAN_PLURAL: True}
