"""Each alert fires for what it is there for, stays quiet for what looks like it, and clears, by an old promtool too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from precision_operator.monitoring.alerts import ALERTS, runbook
from precision_operator.monitoring.rule_file import text
from tests.monitoring.replay import TARGET, check, firing, with_labels

PROFILE = 'profile_namespace="ml",profile="nightly"'
POOL = f'{PROFILE},pool="gb200"'
N1 = f'{POOL},node="n1",workload="w"'
ARM = f'{POOL},workload="w",recipe="mxfp8"'
JOULE = f'precision_pool_driver_training_tokens_per_joule{{{ARM},power_scope="module"'
ORDER = f"precision_pool_driver_order{{{POOL}"
RATE = "precision_pool_training"
ALIVE = {
    "precision_exporter_build_info": "1x100000",
    "precision_exporter_shards": "1x100000",
    'precision_exporter_shard_series{index="0"}': "100x100000",
}
"""An exporter that is well: without it one alert would stand in all of these tests."""

NODE = {"node": "n1", "pool": "gb200", "profile": "nightly"}
IN_POOL = {"pool": "gb200", "profile": "nightly"}
OF_PROFILE = {"profile": "nightly"}
HALF_SLOW = {"precision_node_slow{" + N1 + "}": "0x29 1x59 0x60"}
DEGRADED = {
    f"{RATE}_reference_tokens_per_second{{{ARM}}}": "100x59 96x239",
    f"{RATE}_tokens_per_second_count{{{ARM}}}": "24x299",
}
MOVED = {
    f'{JOULE},driver="580"}}': "20x59 _x300",
    f'{JOULE},driver="590"}}': "_x60 19x179 20x120",
    f'{ORDER},driver="580"}}': "5800x59 _x300",
    f'{ORDER},driver="590"}}': "_x60 5900x300",
}


@dataclass(frozen=True)
class Case:
    """Series with their values a minute apart, and which alerts are firing at which minute."""

    alert: str
    series: Mapping[str, str]
    quiet: tuple[int, ...]
    fires: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    alive: bool = True

    def test(self) -> dict[str, Any]:
        given = dict(ALIVE if self.alive else {}) | dict(self.series)
        expected = {"alertname": self.alert, **self.labels}
        looks = [(at, (expected,)) for at in self.fires] + [(at, ()) for at in self.quiet]
        return {
            "interval": "1m",
            "input_series": [{"series": with_labels(s, TARGET), "values": values} for s, values in given.items()],
            "promql_expr_test": [firing(f"{at}m", *alerts) for at, alerts in looks],
        }


def verdict(told: str) -> str:
    return f'precision_node_verification{{{N1},recipe="mxfp8",verdict="{told}"}}'


def nodes(phase: str) -> str:
    return f'precision_profile_nodes{{{PROFILE},phase="{phase}"}}'


def bytes_of(path: str) -> str:
    return f'precision_exporter_body_bytes{{path="{path}"}}'


LIMIT = {"precision_exporter_body_limit_bytes": "100x300"}
THROTTLED = f'precision_node_throttled_ratio{{{N1},recipe="bf16",reason="software_thermal"}}'
POWER = f'precision_node_power_valid{{{N1},recipe="bf16",reason="CounterStuck"}}'
STUCK = {nodes("running"): "4x400", nodes("queued"): "2x400"}

FIRES_AND_CLEARS = {
    "PrecisionNodeSlow": Case("", HALF_SLOW, (20, 35, 95, 120), (45, 85), NODE),
    "PrecisionPoolDegraded": Case(
        "",
        {**DEGRADED, f"{RATE}_reference_tokens_per_second{{{ARM}}}": "100x59 96x119 100x120"},
        (50, 80, 190, 250),
        (100, 170),
        IN_POOL,
    ),
    "PrecisionSilentFallback": Case(
        "", {verdict("fallback"): "_x30 1x59 _x60", verdict("verified"): "1x29 _x60 1x60"}, (20, 100), (50, 85), NODE
    ),
    "PrecisionThrottledInProfile": Case("", {THROTTLED: "_x30 0.2x59 _x60"}, (20, 100), (50, 85), NODE),
    "PrecisionProfileStale": Case(
        "",
        {f"precision_profile_last_result_timestamp_seconds{{{PROFILE}}}": f"{-14 * 86400}x119 7200x60"},
        (30, 130),
        (70, 110),
        OF_PROFILE,
    ),
    "PrecisionProfileFailing": Case(
        "", {nodes("failed"): "0x29 4x59 2x60", nodes("succeeded"): "20x150"}, (20, 50, 100), (70, 88), OF_PROFILE
    ),
    "PrecisionEnergyRegression": Case("", MOVED, (50, 90, 250, 300), (130, 230), {**IN_POOL, "driver": "590"}),
    "PrecisionPowerTelemetryBad": Case("", {POWER: "_x30 0x59 _x60"}, (20, 100), (50, 85), NODE),
    "PrecisionCampaignStuck": Case(
        "", {**STUCK, nodes("succeeded"): "10x259 11x140"}, (60, 170, 190, 265, 300), (200, 250), OF_PROFILE
    ),
    "PrecisionExporterDown": Case(
        "", {"precision_exporter_build_info": "1x29 _x30 1x60"}, (20, 75), (50, 59), {}, False
    ),
    "PrecisionExporterNearLimit": Case(
        "",
        {**LIMIT, bytes_of("/metrics/shard/1"): "50x29 85x59 60x60"},
        (20, 100),
        (50, 85),
        {"path": "/metrics/shard/1"},
    ),
}
"""Alert to what makes it fire and then clear again."""


def named(alert: str, case: Case) -> dict[str, Any]:
    return Case(alert, case.series, case.quiet, case.fires, case.labels, case.alive).test()


@pytest.mark.cluster
@pytest.mark.parametrize("alert", FIRES_AND_CLEARS)
def test_it_fires_after_its_time_and_clears(alert: str, tmp_path: Path, promtool: Path) -> None:
    code, told = check(promtool, tmp_path, [named(alert, FIRES_AND_CLEARS[alert])])
    assert code == 0, told


@pytest.mark.cluster
def test_a_shard_that_is_not_scraped_is_missed(tmp_path: Path, promtool: Path) -> None:
    series = {**ALIVE, "precision_exporter_shards": "2x100", 'precision_exporter_shard_series{index="1"}': "9x29 _x70"}
    code, told = check(promtool, tmp_path, [Case("PrecisionExporterDown", series, (20, 40), (60, 90)).test()])
    assert code == 0, told


QUIET: tuple[tuple[str, Case], ...] = (
    (
        "a node that is as fast as the others",
        Case("PrecisionNodeSlow", {f"precision_node_slow{{{N1}}}": "0x100"}, (90,)),
    ),
    (
        "a slow node in a pool that has moved as a whole",
        Case(
            "PrecisionPoolDegraded",
            {**DEGRADED, f"precision_node_slow{{{N1}}}": "_x60 1x200"},
            (50,),
            (120, 250),
            IN_POOL,
        ),
    ),
    (
        "a slow node that was throttled: it has that alert alone",
        Case(
            "PrecisionThrottledInProfile",
            {f"precision_node_slow{{{N1}}}": "1x100", THROTTLED: "0.2x100"},
            (5,),
            (20, 90),
            NODE,
        ),
    ),
    (
        "a throttled node of an NVLink domain: its alert names the domain, whichever exporter was asked",
        Case(
            "PrecisionThrottledInProfile",
            {
                THROTTLED: "0.2x100",
                f'precision_node_info{{{N1},nvlink_domain="d.1",driver="580"}}': "1x100",
                f'precision_node_info{{{N1},nvlink_domain="d.1",driver="590"}}': "1x100",
            },
            (5,),
            (20, 90),
            {**NODE, "nvlink_domain": "d.1"},
        ),
    ),
    (
        "a slow node on which a recipe fell back: it has that alert alone",
        Case(
            "PrecisionSilentFallback",
            {f"precision_node_slow{{{N1}}}": "1x100", verdict("fallback"): "1x100"},
            (5,),
            (20, 90),
            NODE,
        ),
    ),
    (
        "a pool that is 2 % below its best week",
        Case(
            "PrecisionPoolDegraded",
            {**DEGRADED, f"{RATE}_reference_tokens_per_second{{{ARM}}}": "100x59 98x200"},
            (200,),
        ),
    ),
    (
        "a pool of two nodes",
        Case("PrecisionPoolDegraded", {**DEGRADED, f"{RATE}_tokens_per_second_count{{{ARM}}}": "2x299"}, (200,)),
    ),
    (
        "an emulated recipe, which is what the hardware can do",
        Case("PrecisionSilentFallback", {verdict("emulated"): "1x100"}, (90,)),
    ),
    ("a valid power reading", Case("PrecisionPowerTelemetryBad", {POWER: "1x100"}, (90,))),
    (
        "a profile that was measured last week",
        Case(
            "PrecisionProfileStale",
            {f"precision_profile_last_result_timestamp_seconds{{{PROFILE}}}": f"{-7 * 86400}x200"},
            (190,),
        ),
    ),
    (
        "one failed node in ten, and nodes that are skipped",
        Case(
            "PrecisionProfileFailing",
            {nodes("failed"): "1x100", nodes("succeeded"): "9x100", nodes("skipped"): "50x100"},
            (90,),
        ),
    ),
    (
        "a new driver that saves energy",
        Case("PrecisionEnergyRegression", {**MOVED, f'{JOULE},driver="590"}}': "_x60 21x300"}, (130, 300)),
    ),
    (
        "an older driver that is worse than the new one beside it",
        Case(
            "PrecisionEnergyRegression",
            {
                f'{JOULE},driver="580"}}': "19x200",
                f'{JOULE},driver="590"}}': "20x200",
                f'{ORDER},driver="580"}}': "5800x200",
                f'{ORDER},driver="590"}}': "5900x200",
            },
            (190,),
        ),
    ),
    (
        "a campaign whose nodes end now and then",
        Case("PrecisionCampaignStuck", {**STUCK, nodes("succeeded"): "10x150 11x150 12x100"}, (200, 290, 390)),
    ),
    (
        "a suspended campaign",
        Case(
            "PrecisionCampaignStuck",
            {**STUCK, nodes("succeeded"): "10x400", f'precision_profile_phase{{{PROFILE},phase="Suspended"}}': "1x400"},
            (250, 390),
        ),
    ),
    (
        "a campaign that has just begun",
        Case("PrecisionCampaignStuck", {nodes("running"): "_x300 4x60", nodes("succeeded"): "10x400"}, (350,)),
    ),
    ("an exporter whose shards are all scraped", Case("PrecisionExporterDown", {}, (30, 90))),
    (
        "an exporter at metrics level pool, which has no shards",
        Case(
            "PrecisionExporterDown",
            {"precision_exporter_build_info": "1x100", "precision_exporter_shards": "0x100"},
            (30, 90),
            alive=False,
        ),
    ),
    (
        "a body at half of its limit",
        Case("PrecisionExporterNearLimit", {**LIMIT, bytes_of("/metrics"): "50x100"}, (90,)),
    ),
)


@pytest.mark.cluster
@pytest.mark.parametrize("case", [case for _, case in QUIET], ids=[name for name, _ in QUIET])
def test_it_stays_quiet_for(case: Case, tmp_path: Path, promtool: Path) -> None:
    code, told = check(promtool, tmp_path, [case.test()])
    assert code == 0, told


def test_every_alert_has_a_test_that_it_fires_and_clears_and_one_that_it_stays_quiet() -> None:
    names = {alert.name for alert in ALERTS}
    assert names == FIRES_AND_CLEARS.keys()
    quiet = {case.alert for _, case in QUIET} - {"PrecisionThrottledInProfile"}
    assert names - quiet == {"PrecisionThrottledInProfile"}, "its absence is the same as no series"


@pytest.mark.cluster
def test_the_words_of_an_alert_name_the_node_and_its_runbook(tmp_path: Path, promtool: Path) -> None:
    (alert,) = (each for each in ALERTS if each.name == "PrecisionNodeSlow")
    case = named(alert.name, FIRES_AND_CLEARS[alert.name])
    node = "Node n1 of pool gb200 (profile ml/nightly)"
    where = {"profile_namespace": "ml", "profile": "nightly", "pool": "gb200", "node": "n1", "fault": "slow"}
    told = {
        "summary": "n1 trains slower than the other nodes of gb200",
        "description": node + alert.description.partition("}})")[2],
        "runbook_url": "docs/runbooks.md#precisionnodeslow",
    }
    case["alert_rule_test"] = [
        {
            "eval_time": "45m",
            "alertname": alert.name,
            "exp_alerts": [{"exp_labels": {"severity": "warning", **where}, "exp_annotations": told}],
        }
    ]
    code, said = check(promtool, tmp_path, [case])
    assert code == 0, said


def test_an_address_can_be_put_before_the_runbooks_and_all_waits_be_shortened() -> None:
    changed = text(runbooks="https://wiki.example.com/gpu", lasts="15s", interval="5s")
    assert f'runbook_url: "{runbook("PrecisionNodeSlow", "https://wiki.example.com/gpu")}"' in changed
    assert changed.count('for: "15s"') == len(ALERTS)
