"""A week of sweeps of a made-up fleet through the real exporter: each planted story gives its alerts, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from precision_lab.pictures.sweeps import NEW_DRIVER, PROFILE, Sweep, sweeps, told
from tests.monitoring.replay import STEP, TARGET, alerting, alive, check, firing, input_series

pytestmark = pytest.mark.cluster

COUNT = 7
STEPS = 24 * 2
"""Samples of one day."""
RULES = alerting()
POOLS = {"gb200": "NVIDIA-GB200", "gb300": "NVIDIA-GB300", "h100": "NVIDIA-H100-80GB-HBM3"}
ONE, OTHER = (
    {**TARGET, "instance": f"10.0.0.{n}:8080", "pod": f"exporter-{n}", "container": "exporter"} for n in (1, 2)
)


def expected(sweep: Sweep) -> Iterator[dict[str, str]]:
    """The alerts that a sweep's stories must end in, and no other."""

    def node_alert(alert: str, node: str, **further: str) -> dict[str, str]:
        pool = POOLS[node.partition("-")[0]]
        return {"alertname": alert, "node": node, "pool": pool, "profile": PROFILE, **further}

    planted = sweep.planted
    if told("slow", sweep.number, COUNT):
        yield node_alert("PrecisionNodeSlow", planted.slow, nvlink_domain="gb200-rack.1")
    if told("fallback", sweep.number, COUNT):
        yield node_alert("PrecisionSilentFallback", planted.fallback)
    if told("power", sweep.number, COUNT):
        yield node_alert("PrecisionPowerTelemetryBad", planted.power)
    if told("throttled", sweep.number, COUNT):
        rack = {"nvlink_domain": "gb200-rack.2"}
        yield from (node_alert("PrecisionThrottledInProfile", node, **rack) for node in sorted(planted.throttled))
    if told("driver", sweep.number, COUNT):
        pool = {"pool": planted.driver_pool, "profile": PROFILE}
        yield {"alertname": "PrecisionPoolDegraded", **pool}
        yield {"alertname": "PrecisionEnergyRegression", "driver": NEW_DRIVER, **pool}


def week(fleet: Sequence[Sweep], *targets: dict[str, str]) -> dict[str, object]:
    """The promtool test of all sweeps, one a day, looked at in the morning and at the day's end."""
    looks = [(sweep, f"{24 * sweep.number + hour}h") for sweep in fleet for hour in (3, 23)]
    return {
        "interval": STEP,
        "input_series": input_series([sweep.body for sweep in fleet], STEPS, targets, RULES)
        + alive(STEPS * COUNT, 1800),
        "promql_expr_test": [firing(at, *expected(sweep)) for sweep, at in looks],
    }


@pytest.mark.parametrize("targets", [(ONE,), (ONE, OTHER)], ids=["one exporter", "two exporters at once"])
def test_the_planted_stories_end_in_exactly_their_alerts(
    tmp_path: Path, targets: tuple[dict[str, str], ...], promtool_of_long_tests: Path
) -> None:
    code, told_by_promtool = check(promtool_of_long_tests, tmp_path, [week(sweeps(24, COUNT), *targets)], STEP, RULES)
    assert code == 0, told_by_promtool


def test_a_fleet_without_a_story_raises_no_alert(tmp_path: Path, promtool_of_long_tests: Path) -> None:
    fleet, days = sweeps(24, COUNT), 2
    quiet = {
        "interval": STEP,
        "input_series": input_series([fleet[0].body], STEPS * days, (ONE,), RULES) + alive(STEPS * days, 1800),
        "promql_expr_test": [firing(f"{hour}h") for hour in range(1, 24 * days, 5)],
    }
    code, told_by_promtool = check(promtool_of_long_tests, tmp_path, [quiet], STEP, RULES)
    assert code == 0, told_by_promtool


def test_a_story_that_is_not_expected_is_found(tmp_path: Path, promtool: Path) -> None:
    last = sweeps(24, COUNT)[-1]
    quiet = {
        "interval": STEP,
        "input_series": input_series([last.body], STEPS, (ONE,)) + alive(STEPS, 1800),
        "promql_expr_test": [firing("12h")],
    }
    assert check(promtool, tmp_path, [quiet], STEP)[0] == 1
