"""Each alert fires for what it is there for, stays quiet for what looks like it, and clears, by an old promtool too."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from precision_operator.exporter.families.table import FAMILIES
from precision_operator.monitoring.alerts import ALERTS, runbook
from precision_operator.monitoring.rule_file import text
from tests.monitoring.cases import (
    ALIKE,
    ALIVE,
    IN_POOL,
    INSTALLED,
    MEASURED,
    N1,
    NODE,
    OF_PROFILE,
    POOL,
    PROFILE,
    RECIPE,
    Case,
    medians,
    nodes,
    of_node,
    verdict,
    world,
)
from tests.monitoring.replay import alerting, check, samples
from tests.monitoring.story import OPERATOR_TEXT

DAY = 86_400
SLOW, RELATIVE = of_node("precision_node_slow"), of_node("precision_node_relative_performance_ratio")
SLOW_RATE = {RELATIVE: "0.8x1000", **MEASURED}
JOULE = f'precision_pool_driver_training_tokens_per_joule{{{RECIPE},{ALIKE},power_scope="module"'
ORDER = f"precision_pool_driver_order{{{POOL}"
MOVED = {
    f'{JOULE},driver="580"}}': "20x59 _x300",
    f'{JOULE},driver="590"}}': "_x60 19x179 20x120",
    f'{ORDER},driver="580"}}': "5800x59 _x300",
    f'{ORDER},driver="590"}}': "_x60 5900x300",
}
THROTTLED = of_node("precision_node_throttled_ratio", 'recipe="bf16",reason="software_thermal"')
HOT = ("precision_node_throttled_ratio", 'recipe="mxfp8",reason="hardware_thermal"')
POWER = of_node("precision_node_power_valid", 'recipe="bf16",reason="CounterStuck"')
FAILED = of_node("precision_node_failed", 'reason="AgentCrashed"')
QUARANTINED = of_node("precision_node_quarantined", 'reason="AgentCrashed"')
STUCK = {nodes("running"): "4x400", nodes("queued"): "2x400"}
LAST, INTERVAL = (
    f"precision_profile_{name}_seconds{{{PROFILE}}}" for name in ("last_result_timestamp", "refresh_interval")
)
LIMIT = {"precision_exporter_body_limit_bytes": "100x500"}
WATCH = 'kind="jobs",namespace="ml"'
NO_OPERATOR = {series: values for series, values in ALIVE.items() if "operator" not in series}
LEADS = {"precision_operator_leader": "1x500"}


def waiting(reason: str) -> str:
    return f'precision_profile_waiting_nodes{{{PROFILE},reason="{reason}",node=""}}'


def many(count: int, of: Callable[[str], Mapping[str, str]]) -> dict[str, str]:
    """The series of so many nodes, n0 and on."""
    return {series: values for n in range(count) for series, values in of(N1.replace("n1", f"n{n}")).items()}


def bytes_of(path: str) -> str:
    return f'precision_exporter_body_bytes{{path="{path}"}}'


def named(cases: Mapping[str, Case]) -> tuple[Case, ...]:
    return tuple(replace(case, name=name) for name, case in cases.items())


SUMMARIES = {
    "PrecisionNodeSlow": "n1 trains at 80% of its peers",
    "PrecisionPoolDegraded": "Pool gb200 trains at 96% of its best of 7 days",
    "PrecisionPoolFarBelowBest": "Pool gb200 trains at 88% of its best of 7 days",
    "PrecisionPoolThrottled": "23 nodes of pool gb200 are throttled and lose more than a tenth",
    "in a crash loop": "The metrics of Precision Profiler do not arrive in cluster in a crash loop",
    "PrecisionSilentFallback": "n1 silently runs 1 of its recipes in another precision",
    "PrecisionThrottledInProfile": "n1 was throttled for 20% of the time that it was measured",
    "PrecisionNodeFailed": "The measurement of n1 failed: AgentCrashed",
    "PrecisionNodeQuarantined": "n1 failed run after run (AgentCrashed) and is no longer measured",
    "PrecisionProfileStale": "Profile nightly is overdue: its newest result is 2d 7h 28m 0s old",
    "PrecisionProfileFailing": "Measurements fail on 16.67% of the nodes of profile nightly",
    "PrecisionEnergyRegression": "Driver 590 gives 95% of the tokens per joule in gb200",
    "PrecisionPowerTelemetryBad": "The power reading of n1 is not valid for 1 of its recipes",
    "PrecisionCampaignStuck": "Profile nightly makes no progress: 6 nodes are queued or running",
    "PrecisionOperatorDown": "The operator of Precision Profiler is down in cluster PrecisionOperatorDown",
    "PrecisionNoLeader": "No replica of the operator leads in cluster PrecisionNoLeader",
    "PrecisionWatchStuck": "The operator has heard nothing of jobs for 1h 32m 0s",
    "list": "The exporter has heard nothing for 1h 32m 0s",
    "PrecisionReconcileErrors": "The operator's passes fail: 20 in ten minutes in cluster PrecisionReconcileErrors",
    "PrecisionUnreadable": "3 reports can't be read, and are not shown in cluster PrecisionUnreadable",
    "PrecisionNamespaceForbidden": "Precision Profiler may not read 2 kinds in namespace ml",
    "PrecisionExporterDown": "The metrics of Precision Profiler do not arrive in cluster PrecisionExporterDown",
    "exporter": "The metrics of Precision Profiler do not arrive in cluster exporter",
    "PrecisionExporterNearLimit": "/metrics/shard/1 of the exporter nears the size that scrapers take",
    "simulated node": "n1 trains at 80% of its peers (simulated)",
    "simulated pool": "Pool gb200 trains at 96% of its best of 7 days (trial)",
    "all": "The metrics of Precision Profiler do not arrive in cluster all",
}
"""What each alert says when it fires."""
CLEARING = (
    Case(
        "PrecisionNodeSlow",
        {SLOW: "0x29 1x59 0x60", **SLOW_RATE},
        (20, 35, 105, 120),
        (45, 85),
        NODE | {"fault": "slow"},
    ),
    Case("PrecisionPoolDegraded", medians("100x59 96x119 100x120"), (50, 80, 190, 250), (100, 170), IN_POOL),
    Case("PrecisionPoolFarBelowBest", medians("100x59 88x119 100x120"), (50, 80, 190, 250), (100, 170), IN_POOL),
    Case(
        "PrecisionSilentFallback",
        {verdict("fallback"): "_x30 1x59 _x60", verdict("verified"): "1x29 _x60 1x60", **MEASURED},
        (20, 100),
        (50, 85),
        NODE | {"fault": "fallback"},
    ),
    Case(
        "PrecisionThrottledInProfile",
        {THROTTLED: "_x30 0.2x59 _x60", **MEASURED},
        (20, 100),
        (50, 85),
        NODE | {"fault": "throttled"},
    ),
    Case("PrecisionNodeFailed", {FAILED: "_x30 1x119 _x60"}, (60, 160), (95, 145), NODE | {"reason": "AgentCrashed"}),
    Case(
        "PrecisionNodeQuarantined",
        {QUARANTINED: "_x30 1x119 _x60", FAILED: "_x30 1x119 _x60"},
        (20, 160),
        (45, 145),
        NODE | {"reason": "AgentCrashed"},
    ),
    Case(
        "PrecisionProfileStale",
        {LAST: f"{-2 * DAY}x459 27600x40", INTERVAL: f"{DAY}x500"},
        (330, 470),
        (370, 450),
        OF_PROFILE,
    ),
    Case(
        "PrecisionProfileFailing",
        {nodes("failed"): "0x29 4x59 1x60", nodes("succeeded"): "20x150"},
        (20, 50, 100),
        (70, 88),
        OF_PROFILE,
    ),
    Case("PrecisionEnergyRegression", MOVED, (50, 90, 250, 300), (130, 230), {**IN_POOL, "driver": "590"}),
    Case(
        "PrecisionPowerTelemetryBad",
        {POWER: "_x30 0x59 _x60", **MEASURED},
        (20, 100),
        (50, 85),
        NODE | {"fault": "power_invalid"},
    ),
    Case(
        "PrecisionCampaignStuck",
        {**STUCK, nodes("succeeded"): "10x259 11x140"},
        (60, 170, 190, 265, 300),
        (200, 250),
        OF_PROFILE,
    ),
    Case(
        "PrecisionOperatorDown",
        {"precision_operator_leader": "1x200 _x60 1x60"},
        (20, 100, 214, 292),
        (218, 260, 270),
        INSTALLED | {"program": "operator"},
    ),
    Case("PrecisionNoLeader", {"precision_operator_leader": "1x29 0x59 1x60"}, (20, 38, 100), (45, 85), INSTALLED),
    Case(
        "PrecisionWatchStuck",
        {f"precision_operator_watch_age_seconds{{{WATCH}}}": "0+60x99 9x60"},
        (30, 38, 105),
        (45, 95),
        {"namespace": "ml", "kind": "jobs", "program": "operator"},
    ),
    Case(
        "PrecisionWatchStuck",
        {"precision_exporter_last_list_timestamp_seconds": "0x99 6000+60x60"},
        (30, 68, 110),
        (75, 95),
        INSTALLED | {"program": "exporter"},
        name="list",
    ),
    Case(
        "PrecisionReconcileErrors",
        {"precision_operator_reconcile_errors_total": "0+2x99 200x60"},
        (30, 120),
        (50, 95),
        INSTALLED,
    ),
    Case(
        "PrecisionUnreadable",
        {"precision_exporter_unreadable_reports": "0x29 3x59 0x60"},
        (40, 100),
        (50, 85),
        INSTALLED | {"kind": "reports"},
    ),
    Case(
        "PrecisionNamespaceForbidden",
        {
            f"precision_operator_forbidden{{{WATCH}}}": "0x29 1x59 0x60",
            f"precision_operator_watch_age_seconds{{{WATCH}}}": "0+60x149",
            'precision_exporter_forbidden{kind="reports",namespace="ml"}': "0x29 1x59 0x60",
        },
        (20,),
        (45, 85),
        {"namespace": "ml"},
    ),
    Case(
        "PrecisionExporterDown",
        {"precision_exporter_shards": "2x400", 'precision_exporter_shard_series{index="1"}': "9x200 _x60 9x60"},
        (20, 100, 214, 292),
        (218, 260),
        INSTALLED | {"program": "exporter"},
    ),
    Case(
        "PrecisionExporterDown",
        {**LEADS, "precision_exporter_build_info": "1x200 _x60 1x60"},
        (20, 100, 214, 292),
        (218, 260),
        INSTALLED | {"program": "exporter"},
        name="exporter",
        alive={},
    ),
    Case(
        "PrecisionExporterDown",
        {**LEADS, "precision_exporter_build_info": "1x200 " + "_x6 1x2 " * 20 + "1x60"},
        (100, 205, 420),
        (240, 300, 370),
        INSTALLED | {"program": "exporter"},
        name="in a crash loop",
        alive={},
    ),
    Case(
        "PrecisionPoolThrottled",
        many(23, lambda node: {f"{HOT[0]}{{{node},{HOT[1]}}}": "_x60 0.4x59 _x200"})
        | many(23, lambda node: {f"precision_node_relative_performance_ratio{{{node}}}": "1x59 0.6x59 1x200"})
        | medians("100x320"),
        (50, 85, 135, 180),
        (95, 115),
        IN_POOL,
    ),
    Case(
        "PrecisionExporterNearLimit",
        {**LIMIT, bytes_of("/metrics/shard/1"): "50x29 85x59 60x60"},
        (20, 100),
        (50, 85),
        INSTALLED | {"path": "/metrics/shard/1"},
    ),
    Case(
        "PrecisionNodeSlow",
        {**SLOW_RATE, SLOW: "1x60 0x60", f'precision_node_info{{{N1},nvlink_domain="d.1",data="simulated"}}': "1x120"},
        (5, 100),
        (50,),
        NODE | {"fault": "slow", "data": "simulated", "nvlink_domain": "d.1"},
        name="simulated node",
    ),
    Case(
        "PrecisionPoolDegraded",
        medians("100x59 96x119 100x120") | {f'precision_pool_data_nodes{{{POOL},data="trial"}}': "24x300"},
        (50, 190),
        (100,),
        IN_POOL | {"data": "trial"},
        name="simulated pool",
    ),
    Case(
        "PrecisionExporterDown",
        {"precision_exporter_build_info": "1x200 _x60 1x60"},
        (20, 100, 292),
        (218, 260),
        INSTALLED | {"program": "exporter"},
        name="all",
        alive={},
    ),
)
FIRES_AND_CLEARS = tuple(replace(case, summary=SUMMARIES[case.cluster]) for case in CLEARING)
"""What makes each alert fire and then clear again."""

REVIEWED = {
    "a spec that is edited is no degradation": Case(
        "PrecisionPoolDegraded",
        {
            f"precision_pool_training_reference_tokens_per_second{{{RECIPE}}}": "228615x119 183659x240",
            f'precision_pool_reference_nodes{{{POOL},workload_hash="h1",scope="all",baseline="bf16"}}': "10x119 _x240",
            f'precision_pool_reference_nodes{{{POOL},workload_hash="h2",scope="all",baseline="bf16"}}': "_x120 6x240",
            f'precision_pool_nodes{{{POOL},phase="fresh"}}': "10x360",
        },
        tuple(range(0, 360, 20)),
    ),
    "another scope is no degradation": Case(
        "PrecisionPoolDegraded",
        medians("228615x119 183659x240", 'workload_hash="h1",scope="all"', "10x119 _x240", "10x360")
        | {f'precision_pool_reference_nodes{{{POOL},workload_hash="h1",scope="mlp",baseline="bf16"}}': "_x120 10x240"},
        tuple(range(0, 360, 20)),
    ),
    "the first nodes with another driver are no pool": Case(
        "PrecisionPoolDegraded", medians("100x59 90x59 99x200", count="24x59 4x59 14x200"), tuple(range(0, 300, 10))
    ),
    "a slow node stays slow until there is another verdict": Case(
        "PrecisionNodeSlow",
        {SLOW: "1x60 _x240 0x60", RELATIVE: "0.8x60 _x240 0.99x60", **MEASURED},
        (330, 355),
        (45, 60, 75, 120, 200, 290, 300),
        NODE,
    ),
    "a node that is cleared is not slow again while it is measured": Case(
        "PrecisionNodeSlow",
        {SLOW: "1x60 0x4 _x240", RELATIVE: "0.8x60 0.99x4 _x240", **MEASURED},
        (80, 120, 200, 290),
        (50,),
        NODE,
    ),
    "a slow node that is gone from the cluster": Case(
        "PrecisionNodeSlow",
        {
            SLOW: "1x60 _x240",
            RELATIVE: "0.8x60 _x240",
            of_node("precision_node_outdated", 'reason="NodeGone"'): "_x61 1x240",
            **MEASURED,
        },
        (85, 200),
        (50,),
        NODE,
    ),
    "a one-shot profile never grows stale": Case("PrecisionProfileStale", {LAST: f"{-30 * DAY}x500"}, (450, 499)),
    "a suspended profile, whose schedule asks for nothing": Case(
        "PrecisionProfileStale",
        {LAST: f"{-30 * DAY}x500", f'precision_profile_phase{{{PROFILE},phase="Suspended"}}': "1x500"},
        (450, 499),
    ),
    "a profile of one node, which fails: the node has a name and there are no many": Case(
        "PrecisionNodeFailed",
        {nodes("failed"): "1x300", nodes("succeeded"): "0x300", FAILED: "1x300"},
        (50,),
        (100, 290),
        NODE | {"reason": "AgentCrashed"},
    ),
}
GONE_AND_BACK = "1x60 _x3 1x120"
AS_PROMETHEUS_SEES_IT = {
    "a gap of three minutes resolves no slow node": Case(
        "PrecisionNodeSlow",
        {
            SLOW: GONE_AND_BACK,
            RELATIVE: "0.8x60 _x3 0.8x120",
            f"precision_node_last_success_timestamp_seconds{{{N1}}}": "0x60 _x3 0x120",
        },
        (5,),
        (*range(20, 60, 10), *range(60, 80), 150),
        NODE,
    ),
    "a gap of three minutes resolves no failed node": Case(
        "PrecisionNodeFailed", {FAILED: GONE_AND_BACK}, (30,), (*range(60, 80), 150), NODE | {"reason": "AgentCrashed"}
    ),
    "a node whose reasons alternate": Case(
        "PrecisionNodeFailed",
        {FAILED: "1x19 _x20 " * 6, FAILED.replace("AgentCrashed", "AgentHung"): "_x20 1x19 " * 6},
        (50,),
        (70, 90, 110, 150, 200),
        NODE | {"reason": "AgentCrashed"},
    ),
    "a failing share around a tenth": Case(
        "PrecisionProfileFailing",
        {nodes("failed"): "3x9 2x9 " * 10, nodes("succeeded"): "22x200"},
        (20,),
        (50, 90, 110, 150),
        OF_PROFILE,
    ),
    "a deleted profile that is made again": Case(
        "PrecisionNodeSlow",
        {
            SLOW: "1x60 _x300",
            RELATIVE: "0.8x60 _x300",
            f"precision_node_last_success_timestamp_seconds{{{N1}}}": "0x60 _x120 9000x200",
        },
        (90, 150, 200, 300, 370),
        (50,),
        NODE,
    ),
    "a node that was measured again with too few peers to be judged": Case(
        "PrecisionNodeSlow",
        {
            SLOW: "1x60 _x200",
            RELATIVE: "0.8x60 _x200",
            f"precision_node_last_success_timestamp_seconds{{{N1}}}": "0x60 3660x200",
        },
        (90, 150, 250),
        (50,),
        NODE,
    ),
    "one node that is held excuses no other": Case(
        "PrecisionCampaignStuck",
        {**STUCK, nodes("succeeded"): "10x400", waiting("WaitsInQueue"): "1x400"},
        (170,),
        (220, 390),
        OF_PROFILE,
    ),
    "two exporters, of which one is stuck": Case(
        "PrecisionWatchStuck",
        {
            'precision_exporter_last_list_timestamp_seconds{pod="a"}': "0+60x200",
            'precision_exporter_last_list_timestamp_seconds{pod="b"}': "0x200",
        },
        (30, 65),
        (75, 150),
        INSTALLED | {"program": "exporter"},
    ),
    "an exporter scraped by two jobs": Case(
        "PrecisionProfileFailing",
        {nodes("failed"): "2x100", nodes("succeeded"): "20x100"}
        | {
            f'precision_profile_nodes{{{PROFILE},phase="{phase}",job="other",replica="b"}}': f"{count}x100"
            for phase, count in (("failed", 2), ("succeeded", 20))
        },
        (50, 90),
    ),
    "an operator in another shard of Prometheus": Case(
        "PrecisionOperatorDown",
        {},
        (100, 200, 400),
        alive=NO_OPERATOR,
    ),
}
"""Series end with stale markers, targets have labels of their own."""
AS_THE_REVIEW_FOUND_THEM = named(REVIEWED | AS_PROMETHEUS_SEES_IT)
"""The review's findings. In the names of their time each of them failed; the case of the words is below."""

CALM = {
    "a node that is as fast as the others": Case("PrecisionNodeSlow", {SLOW: "0x100", **SLOW_RATE}, (90,)),
    "a slow node that was throttled: it has that alert alone": Case(
        "PrecisionThrottledInProfile", {SLOW: "1x100", THROTTLED: "0.2x100", **SLOW_RATE}, (5,), (20, 90), NODE
    ),
    "a throttled node of an NVLink domain: its alert names the domain, whichever exporter was asked": Case(
        "PrecisionThrottledInProfile",
        {
            THROTTLED: "0.2x100",
            f'precision_node_info{{{N1},nvlink_domain="d.1",driver="580"}}': "1x100",
            f'precision_node_info{{{N1},nvlink_domain="d.1",driver="590"}}': "1x100",
            **MEASURED,
        },
        (5,),
        (20, 90),
        {**NODE, "nvlink_domain": "d.1"},
    ),
    "a slow node on which a recipe fell back: it has that alert alone": Case(
        "PrecisionSilentFallback", {SLOW: "1x100", verdict("fallback"): "1x100", **SLOW_RATE}, (5,), (20, 90), NODE
    ),
    "a pool that is 2 % below its best week": Case("PrecisionPoolDegraded", medians("100x59 98x200"), (200,)),
    "a pool of two nodes": Case("PrecisionPoolDegraded", medians("100x59 96x200", count="2x299", of="2x299"), (200,)),
    "a pool of two nodes, far below": Case(
        "PrecisionPoolFarBelowBest", medians("100x59 80x200", count="2x299", of="2x299"), (200,)
    ),
    "a pool whose nodes are slow, and not throttled": Case(
        "PrecisionPoolThrottled",
        many(9, lambda node: {f"precision_node_relative_performance_ratio{{{node}}}": "0.6x100"}) | medians("100x100"),
        (90,),
    ),
    "an emulated recipe, which is what the hardware can do": Case(
        "PrecisionSilentFallback", {verdict("emulated"): "1x100", **MEASURED}, (90,)
    ),
    "a share of nothing": Case("PrecisionThrottledInProfile", {THROTTLED: "0x100", **MEASURED}, (90,)),
    "a valid power reading": Case("PrecisionPowerTelemetryBad", {POWER: "1x100", **MEASURED}, (90,)),
    "a failed attempt that is soon made good": Case("PrecisionNodeFailed", {FAILED: "1x50 _x50"}, (45, 90)),
    "many nodes that fail: their profile is the story": Case(
        "PrecisionProfileFailing",
        {nodes("failed"): "4x300", nodes("succeeded"): "10x300", FAILED: "1x300", QUARANTINED: "1x300"},
        (5,),
        (100, 290),
        OF_PROFILE,
    ),
    "a node that was released from quarantine": Case("PrecisionNodeQuarantined", {QUARANTINED: "1x8 _x90"}, (5, 90)),
    "a profile that missed one night": Case(
        "PrecisionProfileStale", {LAST: f"{-DAY}x500", INTERVAL: f"{DAY}x500"}, (450, 499)
    ),
    "a weekly profile after eight days": Case(
        "PrecisionProfileStale", {LAST: f"{-7 * DAY}x500", INTERVAL: f"{7 * DAY}x500"}, (450, 499)
    ),
    "three failed nodes in thirty, and nodes that are skipped": Case(
        "PrecisionProfileFailing",
        {nodes("failed"): "3x100", nodes("succeeded"): "27x100", nodes("skipped"): "50x100"},
        (90,),
    ),
    "two failed nodes of four": Case(
        "PrecisionProfileFailing", {nodes("failed"): "2x100", nodes("succeeded"): "2x100"}, (90,)
    ),
    "a new driver that saves energy": Case(
        "PrecisionEnergyRegression", {**MOVED, f'{JOULE},driver="590"}}': "_x60 21x300"}, (130, 300)
    ),
    "a new driver under another workload": Case(
        "PrecisionEnergyRegression",
        {key.replace("h1", "h2") if "590" in key else key: values for key, values in MOVED.items()},
        (130, 230, 300),
    ),
    "an older driver that is worse than the new one beside it": Case(
        "PrecisionEnergyRegression",
        {
            f'{JOULE},driver="580"}}': "19x200",
            f'{JOULE},driver="590"}}': "20x200",
            f'{ORDER},driver="580"}}': "5800x200",
            f'{ORDER},driver="590"}}': "5900x200",
        },
        (190,),
    ),
    "a campaign whose nodes end now and then": Case(
        "PrecisionCampaignStuck", {**STUCK, nodes("succeeded"): "10x150 11x150 12x100"}, (200, 290, 390)
    ),
    **{
        f"a campaign that waits: {reason}": Case(
            "PrecisionCampaignStuck",
            {nodes("queued"): "2x400", nodes("succeeded"): "10x400", waiting(reason): "2x400"},
            (250, 390),
        )
        for reason in ("Suspended", "StoppedByAdmin", "WaitsInQueue", "LimitOfAnotherProfile")
    },
    "a campaign that has just begun": Case(
        "PrecisionCampaignStuck", {nodes("running"): "_x300 4x60", nodes("succeeded"): "10x400"}, (350,)
    ),
    "a campaign whose profile is deleted": Case(
        "PrecisionCampaignStuck",
        {nodes("running"): "4x100 _x300", nodes("succeeded"): "10x100 _x300"},
        tuple(range(100, 400, 10)),
    ),
    "an operator that starts anew": Case(
        "PrecisionOperatorDown", {"precision_operator_leader": "1x200 _x12 1x300"}, tuple(range(120, 300, 10))
    ),
    "an exporter that was away for ten minutes": Case(
        "PrecisionExporterDown", {"precision_exporter_build_info": "1x200 _x10 1x300"}, tuple(range(120, 300, 10))
    ),
    "two replicas, of which one leads": Case(
        "PrecisionNoLeader", {'precision_operator_leader{pod="b"}': "0x300"}, (90,)
    ),
    "lists every ten minutes": Case(
        "PrecisionWatchStuck", {f"precision_operator_watch_age_seconds{{{WATCH}}}": "600x100"}, (90,)
    ),
    "errors while the API server is upgraded": Case(
        "PrecisionReconcileErrors",
        {"precision_operator_reconcile_errors_total": "0x29 0+2x15 30x100"},
        tuple(range(30, 120, 5)),
    ),
    "all that can be read": Case("PrecisionUnreadable", {"precision_exporter_unreadable_reports": "0x100"}, (90,)),
    "rights that are missing for a moment": Case(
        "PrecisionNamespaceForbidden", {f"precision_operator_forbidden{{{WATCH}}}": "1x8 0x60"}, (9, 60)
    ),
    "an exporter whose shards are all scraped": Case("PrecisionExporterDown", {}, (30, 90)),
    "an exporter at metrics level pool, which has no shards": Case(
        "PrecisionExporterDown",
        {"precision_exporter_build_info": "1x100", "precision_exporter_shards": "0x100", **LEADS},
        (30, 90),
        alive={},
    ),
    "a body at half of its limit": Case("PrecisionExporterNearLimit", {**LIMIT, bytes_of("/metrics"): "50x100"}, (90,)),
}
QUIET = named(CALM)
CASES = (*FIRES_AND_CLEARS, *AS_THE_REVIEW_FOUND_THEM, *QUIET)


@pytest.mark.cluster
def test_each_alert_fires_after_its_time_clears_and_stays_quiet_for_what_looks_like_it(
    tmp_path: Path, promtool_of_long_tests: Path
) -> None:
    code, said = check(promtool_of_long_tests, tmp_path, [world(CASES)])
    assert code == 0, said


def without_descriptions(rules: str) -> str:
    """The rule file without descriptions, which promtool would want word by word."""
    made = json.loads(rules)
    for rule in made["groups"][-1]["rules"]:
        del rule["annotations"]["description"]
    return json.dumps(made)


@pytest.mark.cluster
def test_each_alert_has_all_its_labels_and_its_words(tmp_path: Path, promtool_of_long_tests: Path) -> None:
    tests = [case.words() for case in FIRES_AND_CLEARS]
    code, said = check(promtool_of_long_tests, tmp_path, tests, "4m", without_descriptions(alerting()))
    assert code == 0, said


@pytest.mark.cluster
def test_the_description_names_node_cluster_figure_and_provenance(tmp_path: Path, promtool: Path) -> None:
    (case,) = (case for case in FIRES_AND_CLEARS if case.name == "simulated node")
    description = (
        "Node n1 of pool gb200 (profile ml/nightly) in cluster simulated node gives 80% of the median of its peers "
        "(same pool, GPUs, power limit, driver, software and workload), and neither throttling nor a fallback explains "
        "it. A synchronous job that gets this node runs at its speed. These figures are simulated: they were not "
        "measured on this hardware."
    )
    code, said = check(promtool, tmp_path, [case.words(description=description)], rule_text=alerting())
    assert code == 0, said


@pytest.mark.cluster
def test_an_external_label_names_the_cluster_where_the_series_do_not(tmp_path: Path, promtool: Path) -> None:
    (case,) = (case for case in FIRES_AND_CLEARS if case.alert == "PrecisionNoLeader")
    test = json.loads(json.dumps(case.words()).replace(', cluster=\\"PrecisionNoLeader\\"', ""))
    del test["alert_rule_test"][0]["exp_alerts"][0]["exp_labels"]["cluster"]
    test["external_labels"] = {"cluster": "PrecisionNoLeader"}
    code, said = check(promtool, tmp_path, [test], rule_text=without_descriptions(alerting()))
    assert code == 0, said


def test_the_series_of_all_cases_have_names_and_labels_of_the_real_programs() -> None:
    labels = {family.name: {*family.labels} for family in FAMILIES}
    labels |= {series.partition("{")[0]: labels_of(series) for series in samples(OPERATOR_TEXT)}
    for case in CASES:
        for series in case.series:
            name = series.partition("{")[0]
            assert name.startswith("precision_exporter_") or labels_of(series) <= labels[name] | {
                "pod",
                "job",
                "replica",
            }, series


def labels_of(series: str) -> set[str]:
    return set(re.findall(r'(\w+)="', series))


def test_every_alert_has_a_case_that_it_fires_and_clears_and_one_that_it_stays_quiet() -> None:
    names = {alert.name for alert in ALERTS}
    assert {case.alert for case in FIRES_AND_CLEARS} == names
    assert {case.alert for case in QUIET} == names
    assert all(case.fires and case.quiet for case in FIRES_AND_CLEARS)
    assert max(Counter(case.cluster for case in CASES).values()) == 1


def test_an_address_can_be_put_before_the_runbooks_and_all_waits_be_shortened() -> None:
    changed = text(runbooks="https://wiki.example.com/gpu", lasts="15s", interval="5s")
    assert f'runbook_url: "{runbook("PrecisionNodeSlow", "https://wiki.example.com/gpu")}"' in changed
    assert changed.count('for: "15s"') == len(ALERTS)
    assert "runbook_url" not in text()
