"""What pools show: the core's decision on slow nodes, medians of what is proved, sums that leave nothing unsaid."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts.node_state import draft
from precision_operator.core.status.profile_status import profile_status
from precision_operator.exporter.body import build
from precision_operator.exporter.families.pool import TAIL_STATS, driver_order
from tests.support import world
from tests.support.examples import examples
from tests.support.exposition import samples_in, store_of
from tests.support.report_objects import (
    fresh_no_more,
    profile_object,
    recipe_row,
    report_object,
    report_status,
    without_energy,
)


def shown(reports: Iterable[dict[str, Any]], **profile: Any) -> dict[tuple[str, str], float]:
    """(name, the label that tells its samples apart) to value."""
    text = build(store_of(profile_object(**profile), *reports).view()).text
    common = {"profile", "profile_namespace", "pool", "workload", "power_scope", "scope", "baseline"}
    return {
        (s.name, "/".join(value for label, value in sorted(s.labels.items()) if label not in common)): s.value
        for s in samples_in(text)
    }


def node(name: str, rate: float = 1.0, driver: str = "580.95.05", **changes: Any) -> dict[str, Any]:
    status = report_status([recipe_row("bf16", rate, **changes)])
    status["software"]["driver"] = driver
    return report_object(name, status=status)


def fleet(count: int = 8) -> list[dict[str, Any]]:
    return [node(f"n{number}", 1 + number / 1000) for number in range(count)]


def test_slow_is_what_the_core_decides_and_the_profile_threshold_counts() -> None:
    reports = [*fleet(), node("late", 0.93)]
    strict = shown(reports)
    assert (strict["precision_node_slow", "late"], strict["precision_node_slow", "n1"]) == (1, 0)
    assert strict["precision_pool_marked_nodes", "slow"] == 1
    mild = profile_object()
    mild["spec"]["thresholds"] = {"slowNodePercent": 20}
    samples = samples_in(build(store_of(mild, *reports).view()).text)
    assert {sample.value for sample in samples if sample.name == "precision_node_slow"} == {0.0}


@examples(20)
@given(st.lists(st.tuples(st.floats(0.5, 1.5), st.booleans(), st.sampled_from(["580", "590"])), max_size=14))
def test_the_exporter_and_the_profile_status_that_kubectl_shows_name_the_same_slow_nodes(
    fleet: list[tuple[float, bool, str]],
) -> None:
    statuses = {
        f"n{number}": node("", rate, driver, **({"throttledShare": "0.1"} if hot else {}))["status"]
        for number, (rate, hot, driver) in enumerate(fleet)
    }
    for status in statuses.values():
        status["hardware"]["pool"] = "NVIDIA-H100-80GB-HBM3"  # as the nodes' label says
    views = tuple(world.report(name, status=ReportStatus.model_validate(status)) for name, status in statuses.items())
    seen = world.observed([world.profile()], world.nodes(*statuses), reports=views)
    pools = profile_status(draft(seen.profiles[0], seen), seen.now, len(seen.nodes)).pools
    judged = {name for pool in pools for name in pool.slow_nodes}
    found = shown(report_object(name, status=status) for name, status in statuses.items())
    assert {name for (metric, name), value in found.items() if metric == "precision_node_slow" and value} == judged


def test_three_nodes_or_two_drivers_are_not_held_against_each_other() -> None:
    found = shown([node("a"), node("b"), node("c", 0.5)])
    assert not [key for key in found if key[0] == "precision_node_slow"]
    worse = [node(f"new{i}", 0.8 + i / 1000, "590.10") for i in range(4)]
    found = shown([*fleet(8), *worse])
    assert found["precision_pool_marked_nodes", "slow"] == 0


def test_figures_out_of_date_or_of_another_precision_are_not_judged() -> None:
    old = node("old", 0.7)
    old["status"]["conditions"] = [fresh_no_more("DriverChange")]
    found = shown([*fleet(), old])
    assert ("precision_node_slow", "old") not in found
    assert (found["precision_pool_nodes", "stale"], found["precision_pool_nodes", "fresh"]) == (1, 8)
    fell = report_object("fell", status=report_status([recipe_row("mxfp8", 0.5, verdict="fallback")]))
    good = [report_object(f"n{i}", status=report_status([recipe_row("mxfp8", 1.3)])) for i in range(3)]
    found = shown([*good, fell])
    assert found["precision_pool_training_nodes", "mxfp8"] == 3
    assert found["precision_pool_training_tokens_per_second", "mxfp8/min"] == 123500
    assert found["precision_pool_marked_nodes", "fallback"] == 1
    rates = {key for name, key in found if name.startswith("precision_node") and ("speedup" in name or "_per_" in name)}
    assert ("n2/mxfp8" in rates, any("fell" in key for key in rates)) == (True, False), "nor told of the node"


def test_a_throttled_node_is_out_of_the_reference_but_not_out_of_the_tail() -> None:
    hot = [node(f"hot{i}", 0.9, throttledShare="0.2", throttleReason="software_thermal") for i in range(7)]
    found = shown([*fleet(), *hot])
    assert found["precision_pool_training_reference_tokens_per_second", "bf16"] == pytest.approx(95332.5, abs=1)
    assert found["precision_pool_training_tokens_per_second", "bf16/min"] == 85500
    assert (found["precision_pool_training_nodes", "bf16"], found["precision_node_slow", "hot0"]) == (15, 1)
    assert found["precision_node_throttled_ratio", "hot0/software_thermal/bf16"] == 0.2
    assert found["precision_pool_marked_nodes", "throttled"] == 7


def test_energy_is_of_the_same_nodes_and_0_watts_measured_nothing() -> None:
    blind = report_object("blind", status=report_status([without_energy("bf16", 2.0)]))
    found = shown([*fleet(3), blind])
    assert found["precision_pool_training_powered_tokens_per_second", "bf16"] == 95000 + 95095 + 95190
    assert found["precision_pool_training_power_watts", "bf16"] == pytest.approx(3 * 4870.5)
    assert found["precision_pool_training_total_tokens_per_second", "bf16"] == 95000 + 95095 + 95190 + 190000
    assert found["precision_pool_marked_nodes", "power_invalid"] == 1
    found = shown([node("n0", watts="0", tokensPerJoule="0")])
    assert found["precision_node_power_valid", "n0//bf16"] == 0
    assert found["precision_pool_marked_nodes", "power_invalid"] == 1
    assert ("precision_node_training_power_watts", "n0/bf16") not in found


def test_a_driver_has_an_energy_median_from_five_nodes_on() -> None:
    new = [node(f"new{i}", 0.9, "590.10") for i in range(4)]
    found = shown([*fleet(5), *new])
    name = "precision_pool_driver_training_tokens_per_joule"
    assert [key for key in found if key[0] == name] == [(name, "simulated/580.95.05/bf16/5ad1f0c2")]
    assert found["precision_pool_driver_nodes", "590.10"] == 4
    assert found["precision_pool_driver_order", "590.10"] > found["precision_pool_driver_order", "580.95.05"]


def test_the_bands_are_cumulative_and_count_every_compared_node() -> None:
    text = shown([*fleet(), node("late", 0.8)])
    bands = {band: value for (name, band), value in text.items() if name == "precision_pool_relative_performance_nodes"}
    assert (list(bands.values()), bands["0.7"], bands["0.85"], bands["+Inf"]) == (sorted(bands.values()), 0, 1, 9)
    assert text["precision_pool_slowest_ratio", "all"] == pytest.approx(0.8, abs=0.01)
    assert text["precision_pool_slowest_ratio", "not_slow"] > 0.99


@pytest.mark.parametrize(
    ("older", "newer"),
    [("580.95.05", "580.105.08"), ("570.211.01", "580.1"), ("580", "580.1"), ("", "1"), ("9999.1", "99999.2")],
)
def test_a_newer_driver_has_a_higher_number(older: str, newer: str) -> None:
    assert driver_order(older) < driver_order(newer)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.3, 3.0), min_size=1, max_size=30))
def test_the_figures_of_a_pool_lie_within_those_of_its_nodes(rates: list[float]) -> None:
    found = shown([node(f"n{number}", rate) for number, rate in enumerate(rates)])
    low, high = min(rates) * 95000 - 1, max(rates) * 95000 + 1
    stats = [found["precision_pool_training_tokens_per_second", f"bf16/{stat}"] for stat in TAIL_STATS]
    assert stats == sorted(stats)
    assert low <= stats[0]
    assert stats[-1] <= high
    assert found["precision_pool_nodes", "fresh"] == len(rates)


def test_a_profile_tells_its_phase_its_eta_and_its_newest_result() -> None:
    complete = {"type": "Complete", "status": "True", "reason": "AllMeasured"}
    status = {"phase": "Running", "etaTime": "2026-11-20T14:35:00Z", "lastRun": "2026-11-20T06:30:00Z"}
    samples = shown([], status=status | {"conditions": [complete | {"lastTransitionTime": "2026-11-20T06:31:00Z"}]})
    assert samples["precision_profile_phase", "Running"] == 1
    eta = datetime(2026, 11, 20, 14, 35, tzinfo=UTC).timestamp()
    assert samples["precision_profile_eta_timestamp_seconds", ""] == eta
    assert samples["precision_profile_last_result_timestamp_seconds", ""] == 1795156200
    assert samples["precision_profile_last_completion_timestamp_seconds", ""] == 1795156260


def test_profiles_of_a_namespace_that_share_nodes_be_it_through_others_name_the_same_one() -> None:
    reports = [report_object(name, profile) for name, profile in zip("xxyyz", "bccda", strict=True)]
    others = [report_object(name, namespace="a-tenant") for name in "xz"]
    there = (*map(profile_object, "abcd"), profile_object(namespace="a-tenant"))
    text = build(store_of(*there, *reports, *others).view()).text
    of = {s.labels["profile"]: s.labels["nodes_of"] for s in samples_in(text) if s.name == "precision_pool_info"}
    assert of == {"a": "ml/a", "b": "ml/b", "c": "ml/b", "d": "ml/b", "nightly": "a-tenant/nightly"}
