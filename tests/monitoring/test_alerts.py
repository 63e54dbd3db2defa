"""Each alert fires for what it is there for, stays quiet for what looks like it, and clears, by an old promtool too."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from precision_operator.exporter.body import build
from precision_operator.exporter.families.family import Level
from precision_operator.exporter.families.table import FAMILIES
from precision_operator.monitoring.alerts import ALERTS, runbook
from precision_operator.monitoring.rule_file import text
from tests.monitoring.cases import (
    ALIKE,
    ALIVE,
    HARDWARE,
    HOST,
    IN_POOL,
    INSTALLED,
    LEVEL,
    MEASURED,
    N1,
    OF_PROFILE,
    POOL,
    POOL_INFO,
    PROFILE,
    RECIPE,
    Case,
    medians,
    nodes,
    of_node,
    verdict,
    world,
)
from tests.monitoring.replay import LAST_LIST, alerting, check, input_series, samples
from tests.monitoring.story import OPERATOR_TEXT, Node, Profile, exposed, last_lists
from tests.support.exposition import store_of
from tests.support.golden import FOLDER
from tests.support.report_objects import profile_object

DAY = 86_400
SLOW, RATE = of_node("precision_node_slow"), of_node("precision_node_relative_performance_ratio")
SLOW_RATE = {RATE: "0.8x1000", **MEASURED}
(RESULT,) = MEASURED
JOULE = f'precision_pool_driver_training_tokens_per_joule{{{RECIPE},{ALIKE},power_scope="module"'
ORDER = f"precision_pool_driver_order{{{POOL}"
MOVED = {
    f'precision_pool_nodes{{{POOL},phase="fresh"}}': "24x360",
    f'{JOULE},driver="580"}}': "20x59 _x300",
    f'{JOULE},driver="590"}}': "_x60 19x179 20x120",
    f'{ORDER},driver="580"}}': "5800x59 _x300",
    f'{ORDER},driver="590"}}': "_x60 5900x300",
}
THROTTLED = of_node("precision_node_throttled_ratio", 'recipe="bf16",reason="software_thermal"')
HOT = ("precision_node_throttled_ratio", 'recipe="mxfp8",reason="hardware_thermal"')
SIMULATED = LEVEL.replace("measured", "simulated")
HEAT = SIMULATED.replace("level_tokens_per_second", "throttled_ratio").replace("}", ',against="others"}')
POWER = of_node("precision_node_power_valid", 'recipe="bf16",reason="CounterStuck"')
FAILED = of_node("precision_node_failed", 'reason="AgentCrashed"')
CRASHED = HOST | {"reason": "AgentCrashed", "fault": "failed"}
QUARANTINED = of_node("precision_node_quarantined", 'reason="AgentCrashed"')
STUCK = {nodes("running"): "4x99 _x14 4x290", nodes("queued"): "2x99 _x14 2x290"}
LAST, INTERVAL = (
    f"precision_profile_{name}_seconds{{{PROFILE}}}" for name in ("last_result_timestamp", "refresh_interval")
)
LIMIT = {"precision_exporter_body_limit_bytes": "100x500", "precision_exporter_shards_needed": "4x500"}
WATCH = 'kind="jobs",namespace="ml"'
NO_OPERATOR = {series: values for series, values in ALIVE.items() if "operator" not in series}
LEADS = {"precision_operator_leader": "1x500"}
BUILD, UNREADABLE = "precision_exporter_build_info", "precision_exporter_unreadable_reports"
EXPECTED, ERRORS = "precision:cluster_expected", "precision_operator_reconcile_errors_total"
EXPORTER = INSTALLED | {"program": "exporter"}
REFUSED = OF_PROFILE | {"reason": "DeniedByPolicy"}


def waiting(reason: str) -> str:
    return f'precision_profile_waiting_nodes{{{PROFILE},reason="{reason}",example=""}}'


def many(count: int, of: Callable[[str], Mapping[str, str]]) -> dict[str, str]:
    """The series of so many nodes, n0 and on."""
    return {series: values for n in range(count) for series, values in of(N1.replace("n1", f"n{n}")).items()}


def bytes_of(path: str) -> str:
    return f'precision_exporter_body_bytes{{path="{path}"}}'


def accepted(verdict: str, reason: str = "TooSlow") -> str:
    return of_node("precision_node_accepted", f'verdict="{verdict}",reason="{reason}"')


DRIFTED = accepted("Inconclusive", "ReferenceDrifted")
FAILING_GPU = of_node("precision_node_failing_gpu_info", 'gpu="3",UUID="GPU-3",pci="0000:19:00.0"')
NOT_ACCEPTED = HOST | {"fault": "not_accepted", "reason": "TooSlow", "owner": "hardware"}
GARBLED = "precision_operator_stop_garbled"
PROBLEMS = {"NodeConditionBlocked": "Unguarded", "OpenNodeFails": "FailUnconfirmed", "DomainFails": "DomainFails"}


def problem(name: str) -> str:
    return f'precision_operator_node_condition_problems{{problem="{name}"}}'


DIVERGED = of_node("precision_node_loss_verdict", 'recipe="nvfp4",verdict="diverged"')
LIMIT_OF, GONE = "precision_node_gpu_power_limit_watts", of_node("precision_node_outdated", 'reason="NodeGone"')


def limits(count: int, values: str) -> dict[str, str]:
    """The power limit of a pool's nodes, and of n1 beside them."""
    others = many(count, lambda node: {f"{LIMIT_OF}{{{node}}}": "1200x420", RESULT.replace(N1, node): "0x420"})
    return others | {of_node(LIMIT_OF): values}


def slow_nodes(last: str) -> dict[str, str]:
    """Five slow nodes, of which n0 is slow for so long, and then one is left out."""
    rates = many(5, lambda node: {f"precision_node_relative_performance_ratio{{{node}}}": "0.8x300"})
    results = many(5, lambda node: {f"precision_node_last_success_timestamp_seconds{{{node}}}": "0x300"})
    slow = many(5, lambda node: {f"precision_node_slow{{{node}}}": "1x170 0x100"})
    return {**rates, **results, **slow, SLOW.replace("n1", "n0"): last}


def driver_nodes(driver: str) -> str:
    return f'precision_pool_driver_nodes{{{POOL},driver="{driver}"}}'


def hot(of: int, *counts: int, gone: slice = slice(0), left: int = 0) -> dict[str, str]:
    """A pool of so many nodes: for an hour each, so many are throttled to 0.8.

    `gone` are those that the cluster has no more since `left` hours.
    """
    pools = [pool(count, of) for count in counts]
    for row in pools[left:]:
        row[gone] = [replace(node, waits_for="NodeGone") for node in row[gone]]
    return hours(*pools)


def pool(count: int, of: int, hot: float = 0.8, cool: float = 1.0, **changes: str) -> list[Node]:
    """So many of these nodes are throttled; both have their rate."""
    return [Node(f"n{n}", 0, hot if n < count else cool, throttled=n < count, **changes) for n in range(of)]


def rollout(done: int, slow: int, rate: float) -> list[Node]:
    """A pool of 24, of which so many have that rate; all but those that are done are to run with a new image."""
    return [Node(f"n{n}", 0, rate if n < slow else 1.0, waits_for="AgentChange" * (n >= done)) for n in range(24)]


def hours(*pools: list[Node], profiles: str = "nightly", level: Level = "node") -> dict[str, str]:
    """A pool as the real exporter shows it in each of these profiles, each for an hour."""
    bodies = [exposed([Profile(name, tuple(pool)) for name in profiles.split()], level=level) for pool in pools]
    rows = input_series(bodies, 60, ({},), alerting())
    return {row["series"]: row["values"] for row in rows if "exporter" not in row["series"]}


ON_POOL, OF_A = ({"pool": "NVIDIA-GB200", "nodes_of": f"ml/{name}"} for name in ("nightly", "a"))
ON_LAB = ON_POOL | {"nodes_of": "lab/nightly"}
MANY_HOT, HOT_ONES = ({"alertname": f"Precision{name}", **ON_POOL} for name in ("ManyNodes", "PoolThrottled"))
OTHER_HALL = HOT_ONES | {"nodes_of": "ml/moe"}
FAR, THROTTLES = "PoolFarBelowBest", "ThrottledInProfile"
OTHERS_HOT = {s.replace("nightly", "moe").replace('"n', '"m'): v for s, v in hot(24, 0, 20, 20).items()}


def in_moe(series: Mapping[str, str]) -> dict[str, str]:
    """The same of another profile of the same nodes."""
    return {s.replace('profile="nightly"', 'profile="moe"'): v for s, v in series.items()}


def in_lab(series: Mapping[str, str]) -> dict[str, str]:
    """The same of a profile of another namespace."""
    return {s.replace('namespace="ml"', 'namespace="lab"').replace("ml/", "lab/"): v for s, v in series.items()}


OTHER_SLOW = [Node("m", 0, 0.8), *(Node(f"m{n}") for n in range(12))]
FELL = {verdict("fallback"): "1x100"}
IN_TWO = MEASURED | in_moe(MEASURED | {POOL_INFO: "1x100"})
SLOW_FIVE = [Node(f"s{n}", 0, 0.8) for n in range(2, 5)] + pool(0, 19) + [Node(f"s{n}", 0, 0.8) for n in range(2)]
OTHERWISE_SLOW = [replace(node, rate=0.79) if node.name in ("s0", "s1", "s2") else node for node in SLOW_FIVE]
LISTS = last_lists(1)[:500]
INFO = of_node("precision_node_info", 'data="simulated",nvlink_domain="d.9"')
FALLEN = many(5, lambda node: {s.replace(N1, node): "1x300" for s in (verdict("fallback"), INFO, RESULT)})
FALLEN[f'precision_pool_nodes{{{POOL},phase="fresh"}}'] = "60x300"
NO_QUEUE = {nodes("queued"): "0x420"}
DENIED = {nodes("queued"): "0x399 23x20", nodes("waiting"): "24x399 0x20", waiting("DeniedByPolicy"): "24x399 _x20"}
ELSEWHERE = FAILED.replace("AgentCrashed", "GPUError")
QUEUED = {nodes("waiting"): "24x420", nodes("running"): "0x420", waiting("WaitsInQueue"): "24x420"}


def unseen(spec: Mapping[str, Any]) -> dict[str, str]:
    """A profile that no operator has seen, as the real exporter shows it."""
    made = profile_object(status={})
    made["spec"] |= spec
    rows = input_series([build(store_of(made).view()).text], 420, ({},), alerting())
    return {row["series"]: row["values"] for row in rows}


def blocked(series: Mapping[str, str], quiet: tuple[int, ...] = (100, 1400), **labels: str) -> Case:
    """A profile that can't go on: after a day, in five-minute steps."""
    fires = (1460, *range(1770, 1900, 15))
    return Case("ProfileBlocked", NO_QUEUE | series, quiet, fires, OF_PROFILE | labels, step=5)


def named(cases: Mapping[str, Case]) -> tuple[Case, ...]:
    return tuple(replace(case, name=name) for name, case in cases.items())


SUMMARIES: dict[str, str] = json.loads((FOLDER / "alert_summaries.json").read_text(encoding="utf-8"))
"""What each alert says when it fires."""
CLEARING = (
    Case("NodeSlow", {SLOW: "0x29 1x59 0x60", **SLOW_RATE}, (20, 35, 105, 120), (45, 85), HOST | {"fault": "slow"}),
    Case("PoolDegraded", medians("100x59 96x119 100x120"), (50, 80, 205, 250), (100, 170), HARDWARE),
    Case(FAR, medians("100x59 88x119 100x120"), (50, 80, 205, 250), (100, 170), HARDWARE),
    *(
        Case(alert, {series: "_x30 1x59 _x60", **MEASURED}, (20, 103), (50, 85), of | {"fault": fault})
        for alert, fault, series, of in (
            ("SilentFallback", "fallback", verdict("fallback"), HOST),
            ("ThrottledInProfile", "throttled", THROTTLED, HOST),
            ("LossDiverged", "diverged", DIVERGED, HOST),
        )
    ),
    Case("NodeFailed", {FAILED: "_x30 1x119 _x60"}, (60, 163), (95, 145), CRASHED),
    Case(
        "NodeQuarantined",
        {QUARANTINED: "_x30 1x119 _x60", FAILED: "_x30 1x119 _x60"},
        (20, 163),
        (45, 145),
        HOST | {"reason": "AgentCrashed", "fault": "quarantined"},
    ),
    Case(
        "ProfileStale", {LAST: f"{-2 * DAY}x459 27600x40", INTERVAL: f"{DAY}x500"}, (330, 470), (370, 450), OF_PROFILE
    ),
    Case(
        "ProfileBlocked",
        {**DENIED, nodes("running"): "0x399 1x19", nodes("succeeded"): "0x420", LAST: "0x420"},
        (900, 1400, 2010),
        (1450, 1900),
        REFUSED,
        step=5,
    ),
    Case(
        "ProfileBlocked",
        {f'precision_profile_phase{{{PROFILE},phase="Invalid"}}': "_x100 1x100 _x100", INTERVAL: f"{DAY}x300"},
        (90, 149, 220),
        (150, 195),
        OF_PROFILE,
        name="invalid",
    ),
    Case(
        "ProfileBlocked",
        {nodes("succeeded"): "0x399 1x19", INTERVAL: f"{DAY}x420"},
        (900, 1400, 2010),
        (1450, 1900),
        OF_PROFILE,
        step=5,
        name="no node",
    ),
    Case(
        "ProfileFailing",
        {nodes("failed"): "0x29 4x59 1x60", nodes("succeeded"): "20x150"},
        (20, 50, 104),
        (70, 88),
        OF_PROFILE,
    ),
    Case("EnergyRegression", MOVED, (50, 90, 250, 300), (130, 230), {**IN_POOL, "driver": "590"}),
    Case(
        "NodeNotAccepted",
        {accepted("Fail"): "_x30 1x59 _x60", accepted("Pass", "WithinLimits"): "1x29 _x60 1x60"}
        | {FAILING_GPU: "_x30 1x59 _x60", **MEASURED},
        (20, 103),
        (45, 85),
        NOT_ACCEPTED | {"gpu": "3", "UUID": "GPU-3", "pci": "0000:19:00.0"},
    ),
    Case(
        "NodeNotAccepted",
        {accepted("Fail", "UncorrectableECC"): "_x30 1x119 _x60", FAILED: "_x30 1x119 _x60"},
        (20, 165),
        (50, 140),
        NOT_ACCEPTED | {"reason": "UncorrectableECC"},
        name="by a health counter",
    ),
    Case("ReferenceDrifted", {DRIFTED: "_x30 1x59 _x60"}, (20, 105), (45, 85), OF_PROFILE),
    Case(
        "PowerLimitLow",
        limits(5, "900x199 _x3 900x196 1200x19") | dict.fromkeys(MEASURED, "0x420"),
        (900, 1400, 2020),
        (1450, 1900),
        HOST | {"fault": "limited"},
        step=5,
    ),
    Case(
        "ManyNodes",
        slow_nodes("1x100 0x200") | medians("100x300", of="95x300"),
        (5, 30, 200),
        (70, 98, 110, 165),
        HARDWARE | {"fault": "slow", "owner": "hardware"},
    ),
    Case(
        "DriversDiffer",
        {driver_nodes("580"): "12x99 _x4 12x245 0x19", driver_nodes("590"): "12x99 _x4 12x265"},
        (900, 9990, 10590),
        (10200, 10380),
        IN_POOL,
        step=30,
    ),
    Case("StopUnreadable", {GARBLED: "0x29 1x59 0x60"}, (20, 42, 105), (50, 85), INSTALLED),
    *(
        Case(alert, {problem(name): "0x29 1x59 0x60"}, (20, 30, 105), (45, 85), INSTALLED | {"problem": name})
        for alert, name in PROBLEMS.items()
    ),
    *(
        Case("ReconcileErrors", {series: "0+2x99 200x60"}, (30, 120), (50, 95), INSTALLED, name=name)
        for name, series in (("faults", 'precision_operator_faults_total{where="report"}'), ("", ERRORS))
    ),
    Case("CampaignStuck", {**STUCK, LAST: "0x259 15600x140"}, (60, 170, 190, 265, 300), (200, 250), OF_PROFILE),
    Case(
        "OperatorDown",
        {"precision_operator_leader": "1x200 _x60 1x60"},
        (20, 100, 214, 292),
        (218, 260, 270),
        INSTALLED | {"program": "operator"},
    ),
    Case("NoLeader", {"precision_operator_leader": "1x29 0x49 _ 0x8 1x60"}, (20, 38, 100), (45, 85), INSTALLED),
    Case(
        "WatchStuck",
        {f"precision_operator_watch_age_seconds{{{WATCH}}}": "0+60x87 _ 5340+60x10 9x60"},
        (30, 38, 105),
        (45, 95),
        {"namespace": "ml", "kind": "jobs", "program": "operator"},
    ),
    Case("WatchStuck", {LAST_LIST: "0x99 6000+60x60"}, (30, 68, 110), (75, 95), EXPORTER, name="list"),
    Case("Unreadable", {UNREADABLE: "0x29 3x59 0x60"}, (40, 100), (50, 85), INSTALLED | {"kind": "reports"}),
    Case(
        "NamespaceForbidden",
        {
            f"precision_operator_forbidden{{{WATCH}}}": "0x29 1x59 0x60",
            f"precision_operator_watch_age_seconds{{{WATCH}}}": "0+60x149",
            'precision_exporter_forbidden{kind="reports",namespace="ml"}': "0x29 1x59 0x60",
        },
        (20,),
        (45, 85),
        {"namespace": "ml"},
    ),
    Case("ClusterMissing", {EXPECTED: "1x300", BUILD: "_x100 1x200"}, (10, 110, 250), (40, 90), alive={}),
    Case(
        "ExporterDown",
        {"precision_exporter_shards": "2x400", 'precision_exporter_shard_series{index="1"}': "9x200 _x60 9x60"},
        (20, 100, 214, 292),
        (218, 260),
        EXPORTER,
    ),
    Case(
        "ExporterDown",
        {**LEADS, BUILD: "1x200 " + "_x6 1x2 " * 20 + "1x120"},
        (100, 205, 415),
        (240, 300, 370),
        EXPORTER,
        name="in a crash loop",
        alive={},
    ),
    Case(
        "PoolThrottled",
        {HEAT: "1x60 0.6x59 1x200", SIMULATED: "100x320"},
        (50, 85, 145, 180),
        (95, 115),
        HARDWARE | {"data": "simulated"},
    ),
    Case(
        "ExporterNearLimit",
        {**LIMIT, bytes_of("/metrics/shard/1"): "50x29 85x59 60x60"},
        (20, 100),
        (50, 85),
        INSTALLED | {"path": "/metrics/shard/1"},
    ),
    Case(
        "NodeSlow",
        in_moe(
            {**SLOW_RATE, SLOW: "1x60 0x60", POOL_INFO: "1x120"}
            | {f'precision_node_info{{{N1},nvlink_domain="d.1",data="simulated"}}': "1x120"}
        ),
        (5, 100),
        (50,),
        HOST | {"fault": "slow", "data": "simulated", "nvlink_domain": "d.1"},
        name="simulated node",
    ),
    Case(
        "ExporterDown",
        {BUILD: "1x200 _x120 1x60", EXPECTED: "1x400"},
        (20, 100, 352),
        (218, 260, 320),
        EXPORTER,
        name="all",
        alive={},
    ),
)
FIRES_AND_CLEARS = tuple(replace(case, summary=SUMMARIES[case.cluster]) for case in CLEARING)
"""What makes each alert fire and then clear again."""

REVIEWED = {
    "a spec that is edited is no degradation": Case(
        "PoolDegraded", {LEVEL: "100x119 _x240", LEVEL.replace("h1", "h2"): "_x120 80x240"}, (*range(0, 360, 20),)
    ),
    "simulated figures that are measured are no degradation": Case(
        FAR, {LEVEL: "_x60 88x240", SIMULATED: "100x59 _x240"}, tuple(range(0, 300, 10))
    ),
    "the first nodes with another image are no pool": Case(
        "PoolDegraded", hours(*(rollout(done, 11, 0.95) for done in (24, 4, 14, 20))), (*range(0, 230, 10),)
    ),
    "a slower image, of a rollout of days": Case(
        FAR,
        hours(pool(0, 24), *[rollout(10, 10, 0.8)] * 6, pool(0, 24, cool=0.8)),
        (*range(900, 12600, 900),),
        (12750, 14370),
        ON_POOL,
        step=30,
    ),
    "a slow node stays slow until there is another verdict": Case(
        "NodeSlow",
        {SLOW: "1x60 _x240 0x60", RATE: "0.8x60 _x240 0.99x60", **MEASURED},
        (330, 355),
        (45, 60, 75, 120, 200, 290, 300),
        HOST,
    ),
    "a node that is cleared is not slow again while it is measured": Case(
        "NodeSlow", {SLOW: "1x60 0x4 _x240", RATE: "0.8x60 0.99x4 _x240", **MEASURED}, (80, 120, 200, 290), (50,), HOST
    ),
    "a slow node that is gone from the cluster": Case(
        "NodeSlow", {SLOW: "1x60 _x240", RATE: "0.8x60 _x240", GONE: "_x61 1x240", **MEASURED}, (85, 200), (50,), HOST
    ),
    "a one-shot profile never grows stale": Case("ProfileStale", {LAST: f"{-30 * DAY}x500"}, (450, 499)),
    "a profile of one node, which fails: the node has a name and there are no many": Case(
        "NodeFailed",
        {nodes("failed"): "1x300", nodes("succeeded"): "0x300", FAILED: "1x300"},
        (50,),
        (100, 290),
        CRASHED,
    ),
}
LONG_HOT = Case("ThrottledInProfile", hot(24, 0, 3, 8), (50,), (80, 115, 145), ON_POOL, each_of=("n0", "n1", "n2"))
GONE_AND_BACK = "1x60 _x10 1x120"
TURNED_OFF_TOO_SOON = {
    "four slow nodes, and then a fifth": Case(
        "NodeSlow", slow_nodes("0x99 1x170"), (5,), (20, 95, 105, 159), HOST, each_of=("n1", "n2", "n3", "n4")
    ),
    "the alert of five slow nodes, which follows at once": Case(
        "ManyNodes", slow_nodes("0x99 1x170"), (5,), (160, 165), HARDWARE
    ),
    "a slow node that is then throttled": Case(
        "NodeSlow", {SLOW: "1x100", THROTTLED: "_x60 0.2x60", **SLOW_RATE}, (5,), (20, *range(58, 70)), HOST
    ),
    "a throttled node that was slow before": Case(
        "ThrottledInProfile", {SLOW: "1x100", THROTTLED: "_x60 0.2x60", **SLOW_RATE}, (5,), (72, 90), HOST
    ),
    "three throttled nodes, and then eight": LONG_HOT,
    "five nodes that are throttled most of each hour": Case(
        "ManyNodes",
        many(5, lambda node: {f"{HOT[0]}{{{node},{HOT[1]}}}": "0.4x49 _x20 " * 5})
        | many(5, lambda node: {f"precision_node_last_success_timestamp_seconds{{{node}}}": "0x350"}),
        (5, 50),
        (*range(75, 345, 6),),
        HARDWARE,
    ),
    "a pool that gets worse": Case(
        "PoolDegraded", medians("100x59 95x119 85x100"), (50, 85), (*range(95, 209, 6),), HARDWARE
    ),
    "a pool around nine tenths": Case(
        "PoolDegraded", medians("100x59 " + "89.8x19 90.2x19 " * 6), (50, 85), (*range(95, 300, 6),), HARDWARE
    ),
    "nodes that fail and are tried again": Case(
        "ProfileFailing",
        {nodes("failed"): "0x19 5x19 " * 8, nodes("queued"): "5x19 0x19 " * 8, nodes("succeeded"): "15x320"}
        | many(5, lambda node: {f'precision_node_failed{{{node},reason="AgentCrashed"}}': "1x320"}),
        (20,),
        (*range(40, 310, 9),),
        OF_PROFILE,
    ),
    "a campaign that too many failures ended": Case(
        "ProfileFailing",
        {nodes("failed"): "5x420", nodes("waiting"): "15x420", waiting("TooManyFailures"): "15x420"}
        | {nodes("running"): "0x420", nodes("succeeded"): "0x420"}
        | {LAST: "0x420", INTERVAL: f"{7 * DAY}x420", **NO_QUEUE},
        (20,),
        (60, 1460, 2000),
        OF_PROFILE,
        step=5,
    ),
    "a profile of one node, in quarantine": Case(
        "NodeQuarantined",
        {nodes("waiting"): "1x420", waiting("Quarantined"): "1x420", QUARANTINED: "1x420", FAILED: "1x420"}
        | {LAST: "0x420", nodes("running"): "0x420", **NO_QUEUE},
        (5,),
        (60, 1460, 2000),
        HOST | {"reason": "AgentCrashed"},
        step=5,
    ),
    "a profile with a schedule that never had a result": Case(
        "ProfileStale",
        {nodes("waiting"): "12x700", nodes("running"): "11x700", nodes("failed"): "1x17 2x17 " * 20}
        | {INTERVAL: f"{DAY}x700"},
        (1500, 2880),
        (3300, 3450),
        OF_PROFILE,
        step=5,
    ),
    "a slow node that is measured while the exporter is replaced": Case(
        "NodeSlow",
        {f'{s[:-1]},pod="a"}}': f"{v[0]}x100 _x200" for s, v in ((SLOW, "1"), (RATE, "2"), (*MEASURED, "0"))}
        | {f'{RESULT[:-1]},pod="b"}}': "_x104 6240x200"},
        (130, 200, 290),
        (50,),
        HOST,
    ),
}
"""What an alert that stands for others turns off, or what ends, though nothing tells of it yet."""
AS_PROMETHEUS_SEES_IT = {
    "a gap of ten minutes resolves no slow node": Case(
        "NodeSlow",
        {SLOW: GONE_AND_BACK, RATE: "0.8x60 _x10 0.8x120", RESULT: "0x60 _x10 0x120"},
        (5,),
        (*range(20, 60, 10), *range(60, 80), 150),
        HOST,
    ),
    "a gap of ten minutes resolves no failed node": Case(
        "NodeFailed", {FAILED: GONE_AND_BACK}, (30,), (*range(60, 80), 150), CRASHED
    ),
    "a node whose reasons alternate": Case(
        "NodeFailed",
        {FAILED: "1x19 _x20 " * 6, FAILED.replace("AgentCrashed", "AgentHung"): "_x20 1x19 " * 6},
        (50,),
        (70, 90, 110, 150, 200),
        CRASHED,
    ),
    "a failing share around a tenth": Case(
        "ProfileFailing",
        {nodes("failed"): "3x19 2x19 " * 5, nodes("succeeded"): "22x200"},
        (20,),
        (50, 75, 115, 150),
        OF_PROFILE,
    ),
    "a deleted profile that is made again": Case(
        "NodeSlow",
        {SLOW: "1x60 _x300", RATE: "0.8x60 _x300", RESULT: "0x60 _x120 9000x200"},
        (90, 150, 200, 300, 370),
        (50,),
        HOST,
    ),
    "a replaced machine of the same name, whose first attempt fails": Case(
        "NodeSlow",
        {SLOW: "1x60 _x260", RATE: "0.8x60 _x260", FAILED: "_x61 1x49 _x200", RESULT: "0x60 _x50 6660x200"},
        (90, 119, 250),
        (50,),
        HOST,
    ),
    "the lists of a real watch": Case(
        "WatchStuck",
        {LAST_LIST: " ".join(str(at) for at in LISTS)},
        tuple(minute for minute, at in enumerate(LISTS) if minute * 60 - at > 2_300),
    ),
    "cooling that fails on ever more nodes": Case(
        "PoolThrottled", hot(24, 0, 12, 22, 23, 24, 0), (50, 80, 330), (*range(100, 300, 10),), ON_POOL
    ),
    "throttled nodes that are gone": Case(
        "PoolThrottled", hot(24, 0, 4, 4, 4, gone=slice(11), left=2), (50, 155, 170, 230)
    ),
    "cooling that fails where most nodes are gone": Case(
        "PoolThrottled", hot(24, 0, 0, 8, 8, gone=slice(11, 24), left=1), (50, 110), (155, 230), ON_POOL
    ),
    "cooling that fails on four of six": Case("PoolThrottled", hot(6, 0, 4, 0), (50, 150), (100,), ON_POOL),
    "a wanted power cap hides no silent fallback": Case(
        "SilentFallback",
        medians("100x59 95x200") | {verdict("fallback"): "_x60 1x200", **MEASURED},
        (50, 65),
        (75, 88),
        HOST,
    ),
    "one node that is held excuses no other": Case(
        "CampaignStuck",
        {**STUCK, nodes("succeeded"): "10x400", waiting("WaitsInQueue"): "1x400"},
        (170,),
        (220, 390),
        OF_PROFILE,
    ),
    "a stuck campaign has that alert alone, also three hours after a gap, however old its results are": Case(
        "CampaignStuck",
        {**STUCK, LAST: f"{-3 * DAY}x400", INTERVAL: f"{DAY}x400"},
        (),
        (*range(250, 390, 3),),
        OF_PROFILE,
    ),
    "a profile that can't go on has that alert alone": blocked(
        {nodes("queued"): "24x60 _x20 24x340", waiting("DeniedByPolicy"): "24x60 _x20 24x340"}
        | {nodes("waiting"): "0x420", LAST: f"{-3 * DAY}x420", INTERVAL: f"{DAY}x420", nodes("running"): "0x420"},
        (100,),
        reason="DeniedByPolicy",
    ),
    "a campaign that is stuck beside a node that comes and goes": Case(
        "CampaignStuck",
        {**STUCK, nodes("succeeded"): "11x99 10x99 11x200", LAST: "0x400"},
        (170,),
        (220, 290, 390),
        OF_PROFILE,
    ),
    "a campaign whose nodes fail now and then": Case(
        "CampaignStuck", {**STUCK, nodes("failed"): "1x150 2x150 3x100", nodes("succeeded"): "40x400"}, (200, 290, 390)
    ),
    "a profile whose reasons alternate, and of which many nodes are held": Case(
        "ProfileBlocked",
        {
            **NO_QUEUE,
            nodes("waiting"): "24x420",
            nodes("running"): "0x420",
            waiting("NotDueYet"): "10x420",
            waiting("DeniedByPolicy"): "8x2 6x2 " * 70,
            waiting("MaxConcurrentReached"): "6x2 8x2 " * 70,
        },
        (900, 1400),
        tuple(range(1500, 1600, 5)),
        REFUSED,
        step=5,
    ),
    "a queue that never gets to a profile, of which one agent starts now and then": blocked(
        {nodes("waiting"): "14x18 13x1 " * 20, nodes("running"): "0x18 1x1 " * 20, INTERVAL: f"{DAY}x420"}
        | {nodes("queued"): "10x420", waiting("WaitsInQueue"): "10x420", waiting("Busy"): "14x420"},
        reason="Busy",
    ),
    "nodes that a policy denies, beside two that are measured each day": blocked(
        {nodes("waiting"): "18x420", nodes("succeeded"): "2x420", LAST: "0x420", waiting("DeniedByPolicy"): "18x420"}
        | {nodes("running"): "1x60 0x227 " * 2},
        reason="DeniedByPolicy",
    ),
    "a straggler that waits for what most waited for": blocked(
        {nodes("waiting"): "30x420", nodes("running"): "0x420", waiting("NotReady"): "30x60 1x360"}
        | {waiting("DeniedByPolicy"): "_x61 29x360"},
        reason="DeniedByPolicy",
    ),
    **{
        f"a profile that no operator has seen: {spec}": blocked(unseen(spec))
        for spec in ({}, {"schedule": {"cron": "0 2 * * *"}})
    },
    "a profile that is held and never had a result": blocked(QUEUED, reason="WaitsInQueue"),
    "a profile that is held for a day and has results": blocked(QUEUED | {LAST: "0x420"}, reason="WaitsInQueue"),
    "a profile that an administrator stops": Case(
        "ProfileBlocked",
        {nodes("queued"): "24x420", nodes("waiting"): "0x420", waiting("StoppedByAdmin"): "24x420", LAST: "0x420"},
        (100, 1900),
        step=5,
    ),
    "one idle node that is measured each night, of many that are busy": blocked(
        {nodes("waiting"): "23x420", nodes("running"): "0x290 1x3 0x130", waiting("Busy"): "23x420", LAST: "0x420"},
        reason="Busy",
    ),
    "a profile of which all nodes are skipped": blocked(
        {nodes("skipped"): "24x420", nodes("succeeded"): "0x420"}
        | {waiting("UntoleratedTaint").replace("waiting", "skipped"): "24x420"},
        reason="UntoleratedTaint",
    ),
    "a pool that is away for a week beyond its schedule": Case(
        "ProfileStale",
        {nodes("succeeded"): "6x20 0x420", LAST: "0x440", INTERVAL: f"{DAY}x440"},
        (2010, 4200, 11400),
        (12300,),
        OF_PROFILE,
        step=30,
    ),
    "cooling that fails, as two profiles see it at different hours": Case(
        "PoolThrottled", hot(24, 0, 12, 12, 12) | in_moe(hot(24, 0, 0, 3, 12)), (50,), (*range(100, 240, 6),), ON_POOL
    ),
    **{
        f"five slow nodes of {len(SLOW_FIVE)}, of which another profile measures {count}": Case(
            "ManyNodes", hours(*[SLOW_FIVE] * 3) | in_moe(hours(*[SLOW_FIVE[:count]] * 3)), (5,), (75, 150), ON_POOL
        )
        for count in (12, 24)
    },
    "five slow nodes, and one in another hall": Case(
        "NodeSlow",
        hours(*[SLOW_FIVE] * 3) | {s.replace("nightly", "moe"): v for s, v in hours(*[OTHER_SLOW] * 3).items()},
        (5,),
        (130, 150),
        ON_POOL | {"node": "m", "nodes_of": "ml/moe"},
        beside=MANY_HOT,
    ),
    "five slow nodes, as two namespaces see them": Case(
        "ManyNodes",
        hours(*[SLOW_FIVE] * 3) | in_lab(hours(*[OTHERWISE_SLOW] * 3)),
        (5,),
        (75, 150),
        ON_POOL,
        beside=MANY_HOT | ON_LAB,
    ),
    "a slow node, as two namespaces see it": Case(
        "NodeSlow",
        hours(*[SLOW_FIVE[4:]] * 3) | in_lab(hours(*[OTHERWISE_SLOW[4:]] * 3)),
        (5,),
        (75, 150),
        ON_POOL,
        each_of=("s0", "s1"),
    ),
    "a recipe that falls back on a node, as two profiles see it": Case(
        "SilentFallback", IN_TWO | FELL | in_moe(FELL), (5,), (20, 90), HOST
    ),
    "a node that fails in two profiles, of which one has no result": Case(
        "NodeFailed",
        IN_TWO
        | {FAILED: "1x100"}
        | {s.replace("gb200", ""): v for s, v in in_moe({FAILED: "_x30 1x69", POOL_INFO: "1x100"}).items()},
        (5,),
        (70, 90),
        CRASHED,
    ),
    "a driver that is slower at equal power": Case(
        FAR, hours(pool(0, 24), *[pool(0, 24, cool=0.8, driver="590.10")] * 3), (50,), (110, 230), ON_POOL
    ),
    "another hall, whose cooling fails while the first is hot": Case(
        "PoolThrottled", hot(24, 0, 20, 20) | OTHERS_HOT, (50,), (110, 150), ON_POOL, beside=OTHER_HALL
    ),
    "a throttled node of a pool that is hot in a simulation alone": Case(
        THROTTLES,
        hot(24, 0, 20, 20) | in_moe(hours(*[pool(1, 24, data="measured")] * 3)),
        (5,),
        (110, 150),
        ON_POOL | {"node": "n0"},
        beside=HOT_ONES,
    ),
    "a wanted limit of four measured nodes, beside simulated ones of another": Case(
        "PowerLimitLow",
        limits(44, "1000x420")
        | many(4, lambda node: {f"{LIMIT_OF}{{{node}}}": "1000x420"})
        | {INFO.replace('"n1"', f'"n{n}"'): "1x420" for n in range(4, 44)},
        (1490, 1900),
        step=5,
    ),
    "five nodes of another power limit": Case(
        "ManyNodes",
        limits(55, "900x420") | many(5, lambda node: {f"{LIMIT_OF}{{{node}}}": "900x420"}),
        (100, 1400),
        (1550, 2000),
        HARDWARE | {"fault": "limited", "owner": "hardware"},
        step=5,
    ),
    "a throttled node beside the hot pool of another profile": Case(
        THROTTLES, hot(12, 0, 1, 1) | OTHERS_HOT, (50,), (110, 150), ON_POOL | {"node": "n0"}, beside=OTHER_HALL
    ),
    "a pool of another profile, which gets slower": Case(
        FAR, hours(pool(0, 3), *[pool(0, 3, cool=0.75)] * 2) | OTHERS_HOT, (50,), (110, 150), ON_POOL, beside=OTHER_HALL
    ),
    "a slow node that was throttled for a moment": Case(
        "NodeSlow", {**SLOW_RATE, SLOW: "1x100", THROTTLED: "0.002x100"}, (5,), (20, 90), HOST
    ),
    "a node that is not accepted, and then in quarantine": Case(
        "NodeNotAccepted",
        {accepted("Fail"): "1x100", SLOW: "1x100", FAILED: "1x100", QUARANTINED: "1x100", **SLOW_RATE},
        (5,),
        (20, 90),
        NOT_ACCEPTED,
        beside={"alertname": "PrecisionNodeQuarantined", **HOST, "reason": "AgentCrashed"},
    ),
    "a profile that is deleted while its pool is far below": Case(
        FAR, medians("100x59 88x60", of="24x120"), (50, 155), (100, 120), HARDWARE
    ),
    "three nodes long hot, and a new driver while the fleet trains": replace(
        LONG_HOT, series=hours(pool(0, 24), *[pool(3, 24, waits_for="DriverChange")] * 3)
    ),
    "a driver that is slower, where some nodes are a little throttled": Case(
        FAR, hours(pool(7, 24, 1), *[pool(7, 24, 0.85, 0.85)] * 2), (5,), (110, 170), ON_POOL, beside=MANY_HOT
    ),
    "a driver that is slower, where cooling has failed on some": Case(
        FAR,
        hours(pool(0, 24), pool(7, 24, 0.7), *[pool(7, 24, 0.7, 0.8)] * 2),
        (50,),
        (170, 230),
        ON_POOL,
        beside=HOT_ONES,
    ),
    "a pool that gets slower while one node becomes simulated": Case(
        FAR,
        hours(pool(0, 3, data="measured"), *[[*pool(0, 3, cool=0.8, data="measured"), *pool(0, 9)[3:]]] * 3),
        (50, 80),
        (110, 230),
        ON_POOL,
    ),
    "a slow measured node beside slower simulated ones": Case(
        "NodeSlow",
        hours(*[[Node("m", 0, 0.7, data="measured"), *pool(0, 10, data="measured"), *pool(0, 19, cool=0.8)[10:]]] * 2),
        (5,),
        (20, 110),
        ON_POOL | {"node": "m"},
    ),
    "simulated nodes of a newer driver, which take more energy": Case(
        "EnergyRegression",
        hours(
            pool(0, 12, data="measured"),
            *[[*pool(0, 12, data="measured"), *pool(0, 18, driver="590.10", cool=0.9)[12:]]] * 3,
        ),
        (50, 150, 230),
    ),
    "a slow node that three profiles measure": Case(
        "NodeSlow",
        hours(*[[Node("m", 0, 0.8), *pool(0, 12)]] * 2, profiles="a b c"),
        (5,),
        (20, 110),
        OF_A | {"node": "m"},
    ),
    "a pool that gets slower, as three profiles see it": Case(
        FAR, hours(pool(0, 24), *[pool(0, 24, cool=0.8)] * 2, profiles="a b c"), (50,), (110, 170), OF_A
    ),
    **{
        f"cooling that fails on {count} of 24, at metrics level pool": Case(
            "PoolThrottled", hours(pool(0, 24), *[pool(count, 24)] * 2, level="pool"), (50,), (100, 170), ON_POOL
        )
        for count in (20, 24)
    },
    "a pool that fails for another reason than the one that failed before": Case(
        "NodeQuarantined",
        many(5, lambda node: {f'precision_node_failed{{{node},reason="AgentCrashed"}}': "1x300"})
        | {nodes("failed"): "5x300", nodes("succeeded"): "20x300"}
        | {
            s.replace("gb200", "h100"): "_x120 1x180"
            for s in (POOL_INFO, ELSEWHERE, ELSEWHERE.replace("failed", "quarantined"))
        },
        (20,),
        (140, 290),
        HOST | {"pool": "h100", "reason": "GPUError"},
        beside={"alertname": "PrecisionProfileFailing", **OF_PROFILE},
    ),
    "an exporter that is lost for a week, soon after it was installed": Case(
        "ExporterDown", {BUILD: "1x1 _x400"}, (30,), (120, 150, 12000), EXPORTER, alive=LEADS, step=30
    ),
    "four simulated fallbacks of sixty nodes, in one rack, and a measured one": Case(
        "SilentFallback",
        {series: values for series, values in FALLEN.items() if "info{" not in series or '"n1"' not in series},
        (5,),
        (130, 290),
        HOST,
        beside=HARDWARE | {"alertname": "PrecisionManyNodes"},
    ),
    "a watch that is stuck where another kind is forbidden now and then": Case(
        "WatchStuck",
        {f"precision_operator_watch_age_seconds{{{WATCH}}}": "0+60x149"}
        | {'precision_operator_forbidden{kind="pods",namespace="ml"}': "1x5 0x5 " * 12},
        (30,),
        (75, 95),
        {"kind": "jobs", "program": "operator"},
    ),
    "two exporters, of which one is stuck": Case(
        "WatchStuck",
        {
            'precision_exporter_last_list_timestamp_seconds{pod="a"}': "0+60x200",
            'precision_exporter_last_list_timestamp_seconds{pod="b"}': "0x200",
        },
        (30, 65),
        (75, 150),
        EXPORTER,
    ),
    "a pool scraped by two jobs": Case(
        "ManyNodes",
        many(4, lambda node: {s.replace(N1, node): "1x260" for s in (verdict("fallback"), RESULT)})
        | medians("_", of="39x260")
        | {f'precision_pool_nodes{{{POOL},phase="fresh",job="other",replica="b"}}': "39x260"},
        (5, 50),
        (100, 250),
        HARDWARE,
    ),
    **{
        f"a crash loop of {down} minutes in {period}": Case(
            "ExporterDown",
            {"precision_operator_leader": "1x900", BUILD: "1x199 " + f"_x{down} 1x{period - down - 1} " * 5 + "1x90"},
            (190, 205, 205 + period, 280 + 5 * period),
            (*range(210 + 2 * period, 200 + 5 * period, 7),),
            EXPORTER,
            alive={},
        )
        for down, period in ((5, 26), (14, 60), (14, 74), (8, 60), (7, 56))
    },
    "four of a hundred nodes, in quarantine before a first result": Case(
        "NodeQuarantined",
        {s.replace("gb200", ""): v for s, v in many(4, lambda n: {QUARANTINED.replace(N1, n): "1x100"}).items()}
        | {
            f'precision_pool_nodes{{{PROFILE},pool="",phase="failed"}}': "4x100",
            POOL_INFO.replace("gb200", ""): "1x100",
        },
        (5,),
        (20, 90),
        {"reason": "AgentCrashed", "nodes_of": "ml/nightly"},
        each_of=("n0", "n1", "n2", "n3"),
    ),
    "an HA pair that is federated": Case(
        "NodeSlow",
        {
            f"{s[:-1]}{replica}}}": v
            for s, v in (SLOW_RATE | {SLOW: "1x100"}).items()
            for replica in ("", ',replica="b"')
        },
        (5,),
        (20, 90),
        HOST,
    ),
    "an operator in another shard of Prometheus": Case("OperatorDown", {}, (100, 200, 400), alive=NO_OPERATOR),
}
"""Series end with stale markers, targets have labels of their own."""
AS_THE_REVIEW_FOUND_THEM = named(REVIEWED | TURNED_OFF_TOO_SOON | AS_PROMETHEUS_SEES_IT)
"""The review's findings. In the names of their time each of them failed; the case of the words is below."""

CALM = {
    "a node that is as fast as the others": Case("NodeSlow", {SLOW: "0x100", **SLOW_RATE}, (90,)),
    "a slow node that was throttled: it has that alert alone": Case(
        "ThrottledInProfile", {SLOW: "1x100", THROTTLED: "0.2x100", **SLOW_RATE}, (5,), (20, 90), HOST
    ),
    "a throttled node of an NVLink domain: its alert names the domain, whichever exporter was asked": Case(
        "ThrottledInProfile",
        {
            THROTTLED: "0.2x100",
            f'precision_node_info{{{N1},nvlink_domain="d.1",driver="580"}}': "1x100",
            f'precision_node_info{{{N1},nvlink_domain="d.1",driver="590"}}': "1x100",
            **MEASURED,
        },
        (5,),
        (20, 90),
        {**HOST, "nvlink_domain": "d.1"},
    ),
    "a slow node on which a recipe fell back: it has that alert alone": Case(
        "SilentFallback", {SLOW: "1x100", **FELL, **SLOW_RATE}, (5,), (20, 90), HOST
    ),
    "a pool that is 2 % below its best week": Case("PoolDegraded", medians("100x59 98x200"), (200,)),
    "a pool of five that is 5 % below its best week, and then 7 %": Case(
        "PoolDegraded", medians("100x59 95x120 93x120", of="5x300"), (100, 175), (230, 290), HARDWARE
    ),
    **{
        f"a pool of {count}, far below": Case(FAR, hours(pool(0, count), *[pool(0, count, cool=0.8)] * 3), (200,))
        for count in (1, 2)
    },
    "a pool whose nodes are slow, and not throttled": Case(
        "PoolThrottled",
        many(9, lambda node: {f"precision_node_relative_performance_ratio{{{node}}}": "0.6x100"}) | medians("100x100"),
        (90,),
    ),
    "an emulated recipe, which is what the hardware can do": Case(
        "SilentFallback", {verdict("emulated"): "1x100", **MEASURED}, (90,)
    ),
    "a share of nothing": Case("ThrottledInProfile", {THROTTLED: "0x100", **MEASURED}, (90,)),
    "a power reading that is not valid is no more than a panel's": Case(
        "LossDiverged", {POWER: "0x100", **MEASURED}, (90,)
    ),
    "nodes whose power reading is not valid": Case(
        "ManyNodes", many(6, lambda node: {f'{POWER.split("{")[0]}{{{node},recipe="bf16"}}': "0x100"}), (90,)
    ),
    "a pool of four, of which one has another power limit": Case(
        "PowerLimitLow", limits(4, "900x400"), (1490, 1900), step=5
    ),
    "a node of another power limit than five that are gone": Case(
        "PowerLimitLow",
        limits(6, "900x400") | many(6, lambda node: {GONE.replace(N1, node): "1x400"}) | {GONE: "_", **MEASURED},
        (1490, 1900),
        step=5,
    ),
    "a node that fails its acceptance, slow, throttled and failed: it has that alert alone": Case(
        "NodeNotAccepted",
        {accepted("Fail"): "1x100", SLOW: "1x100", THROTTLED: "0.2x100", FAILED: "1x100", **SLOW_RATE},
        (5,),
        (20, 90),
        NOT_ACCEPTED,
    ),
    "a node that passes, and one that nobody can judge": Case(
        "NodeNotAccepted",
        {accepted("Pass", "WithinLimits"): "1x50 _x50", accepted("Inconclusive", "Throttled"): "_x51 1x60", **MEASURED},
        (45, 90),
    ),
    "a reference that holds": Case(
        "ReferenceDrifted", {accepted("Inconclusive", "BetweenLimits"): "1x100", **MEASURED}, (90,)
    ),
    "a power cap that has come to half of the nodes": Case(
        "PowerLimitLow",
        limits(10, "900x400") | many(5, lambda node: {f"{LIMIT_OF}{{{node}}}": "900x400"}),
        (1490, 1900),
        step=5,
    ),
    "a driver that is rolled out for six days": Case(
        "DriversDiffer",
        {driver_nodes("580"): "12x287 0x80", driver_nodes("590"): "_x1 1x366"},
        (4980, 8010, 8790, 10890),
        step=30,
    ),
    "a stop that can be read": Case("StopUnreadable", {GARBLED: "0x100"}, (90,)),
    **{f"none {name}": Case(alert, {problem(name): "0x100"}, (90,)) for alert, name in PROBLEMS.items()},
    "a failed attempt that is soon made good": Case("NodeFailed", {FAILED: "1x50 _x50"}, (45, 90)),
    "many nodes that fail: their profile is the story": Case(
        "ProfileFailing",
        {nodes("failed"): "4x300", nodes("succeeded"): "10x300", FAILED: "1x300", QUARANTINED: "1x300"},
        (5,),
        (100, 290),
        OF_PROFILE,
    ),
    "a node that was released from quarantine": Case("NodeQuarantined", {QUARANTINED: "1x8 _x90"}, (5, 90)),
    "a profile that missed one night": Case("ProfileStale", {LAST: f"{-DAY}x500", INTERVAL: f"{DAY}x500"}, (450, 499)),
    "a weekly profile after eight days": Case(
        "ProfileStale", {LAST: f"{-7 * DAY}x500", INTERVAL: f"{7 * DAY}x500"}, (450, 499)
    ),
    "an invalid profile without a schedule": Case(
        "ProfileBlocked", {f'precision_profile_phase{{{PROFILE},phase="Invalid"}}': "1x260"}, (100, 1290), step=5
    ),
    "a profile of which most nodes wait for their first night": Case(
        "ProfileBlocked",
        {**NO_QUEUE, nodes("waiting"): "24x400", nodes("running"): "0x400", waiting("NotDueYet"): "24x400"},
        (1000, 1990),
        step=5,
    ),
    "a measured profile of which some nodes are cordoned": Case(
        "ProfileBlocked",
        {**NO_QUEUE, nodes("waiting"): "4x400", nodes("running"): "0x400", nodes("succeeded"): "20x400"},
        (1000, 1990),
        step=5,
    ),
    "three failed nodes in thirty, and nodes that are skipped": Case(
        "ProfileFailing", {nodes("failed"): "3x100", nodes("succeeded"): "27x100", nodes("skipped"): "50x100"}, (90,)
    ),
    "two failed nodes of four": Case("ProfileFailing", {nodes("failed"): "2x100", nodes("succeeded"): "2x100"}, (90,)),
    "a new driver that saves energy": Case(
        "EnergyRegression", {**MOVED, f'{JOULE},driver="590"}}': "_x60 21x300"}, (130, 300)
    ),
    "a new driver that comes last to the best-cooled rack": Case(
        "EnergyRegression",
        {**MOVED, f'{JOULE},driver="580"}}': "20x239 20.9x59 _x60", f'{JOULE},driver="590"}}': "_x60 19.9x300"},
        (130, 270, 330, 355),
    ),
    "a new driver under another workload": Case(
        "EnergyRegression",
        {key.replace("h1", "h2") if "590" in key else key: values for key, values in MOVED.items()},
        (130, 230, 300),
    ),
    "a campaign whose nodes end now and then": Case(
        "CampaignStuck", {**STUCK, LAST: "0x150 9060x150 18060x100"}, (200, 290, 390)
    ),
    **{
        f"a campaign that waits: {why}": Case(
            "CampaignStuck", {nodes("queued"): "2x400", nodes("succeeded"): "10x400", waiting(why): "2x310"}, (250, 390)
        )
        for why in ("Suspended", "StoppedByAdmin", "WaitsInQueue", "FleetLimitReached", "LimitOfAnotherProfile")
    },
    "a campaign that has just begun": Case(
        "CampaignStuck", {nodes("running"): "_x300 4x60", nodes("succeeded"): "10x400"}, (350,)
    ),
    "a campaign whose profile is deleted": Case(
        "CampaignStuck", {nodes("running"): "4x100 _x300", nodes("succeeded"): "10x100 _x300"}, (*range(100, 400, 10),)
    ),
    "an operator that starts anew": Case(
        "OperatorDown", {"precision_operator_leader": "1x200 _x12 1x300"}, tuple(range(120, 300, 10))
    ),
    "an exporter that was twice away for ten minutes": Case(
        "ExporterDown", {BUILD: "1x200 _x10 1x40 _x10 1x240"}, (*range(120, 360, 8),)
    ),
    "two replicas, of which one leads": Case("NoLeader", {'precision_operator_leader{pod="b"}': "0x300"}, (90,)),
    "lists every ten minutes": Case(
        "WatchStuck", {f"precision_operator_watch_age_seconds{{{WATCH}}}": "600x100"}, (90,)
    ),
    "errors while the API server is upgraded": Case(
        "ReconcileErrors", {ERRORS: "0x29 0+2x15 30x100"}, tuple(range(30, 120, 5))
    ),
    "errors that are scraped by two jobs": Case(
        "ReconcileErrors", {f'{ERRORS}{{job="{job}"}}': "0+0.2x300" for job in "ab"}, (60, 120, 290)
    ),
    "all that can be read": Case("Unreadable", {UNREADABLE: "0x100"}, (90,)),
    "rights that are missing for a moment": Case(
        "NamespaceForbidden", {f"precision_operator_forbidden{{{WATCH}}}": "1x8 0x60"}, (9, 60)
    ),
    "a cluster that is there": Case("ClusterMissing", {EXPECTED: "1x100"}, (30, 90)),
    "an exporter whose shards are all scraped": Case("ExporterDown", {}, (30, 90)),
    "an exporter at metrics level pool, which has no shards": Case(
        "ExporterDown", {BUILD: "1x100", "precision_exporter_shards": "0x100", **LEADS}, (30, 90), alive={}
    ),
    "a body at half of its limit": Case("ExporterNearLimit", {**LIMIT, bytes_of("/metrics"): "50x100"}, (90,)),
}
QUIET = named(CALM)
CASES = (*FIRES_AND_CLEARS, *AS_THE_REVIEW_FOUND_THEM, *QUIET)


@pytest.mark.cluster
@pytest.mark.parametrize("step", sorted({case.step for case in CASES}))
def test_each_alert_fires_after_its_time_clears_and_stays_quiet_for_what_looks_like_it(
    step: int, tmp_path: Path, promtool_of_long_tests: Path
) -> None:
    cases = [case for case in CASES if case.step == step]
    code, said = check(promtool_of_long_tests, tmp_path, [world(cases)], f"{step}m", alerting())
    assert code == 0, said


def without_descriptions(rules: str) -> str:
    """The rule file without descriptions, which promtool would want word by word."""
    made = json.loads(rules)
    for rule in made["groups"][-1]["rules"]:
        del rule["annotations"]["description"]
    return json.dumps(made)


@pytest.mark.cluster
def test_each_alert_has_all_its_labels_and_its_words(tmp_path: Path, promtool_of_long_tests: Path) -> None:
    for step, every in {case.step: f"{max(4, case.step)}m" for case in CASES}.items():
        tests = [case.words() for case in FIRES_AND_CLEARS if case.step == step]
        code, said = check(promtool_of_long_tests, tmp_path, tests, every, without_descriptions(alerting()))
        assert code == 0, said


@pytest.mark.cluster
def test_the_description_names_node_cluster_figure_and_provenance(tmp_path: Path, promtool: Path) -> None:
    (case,) = (case for case in FIRES_AND_CLEARS if case.name == "simulated node")
    description = (
        "Node n1 of pool gb200 in cluster simulated node (ml/moe) gives 80% of the median of its peers (same pool, "
        "GPUs, power limit, driver, software and workload), and neither throttling nor a fallback explains it. "
        "Figures: simulated."
    )
    code, said = check(promtool, tmp_path, [case.words(description=description)], rule_text=alerting())
    assert code == 0, said


@pytest.mark.cluster
def test_an_external_label_names_the_cluster_where_the_series_do_not(tmp_path: Path, promtool: Path) -> None:
    (case,) = (case for case in FIRES_AND_CLEARS if case.alert == "NoLeader")
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
            assert name.startswith(("precision_exporter_", "precision:")) or labels_of(series) <= labels[name] | {
                "pod",
                "job",
                "replica",
            }, series


def labels_of(series: str) -> set[str]:
    return set(re.findall(r'(\w+)="', series))


def test_every_alert_has_a_case_that_it_fires_and_clears_and_one_that_it_stays_quiet() -> None:
    names = {alert.name for alert in ALERTS}
    assert {case.alertname for case in FIRES_AND_CLEARS} == names
    assert {case.alertname for case in QUIET} == names
    assert all(case.fires and case.quiet for case in FIRES_AND_CLEARS)
    assert max(Counter(case.cluster for case in CASES).values()) == 1


def test_an_address_can_be_put_before_the_runbooks_and_all_waits_be_shortened() -> None:
    changed = text(runbooks="https://wiki.example.com/gpu", lasts="15s", interval="5s")
    assert f'runbook_url: "{runbook("PrecisionNodeSlow", "https://wiki.example.com/gpu")}"' in changed
    assert changed.count('for: "15s"') == len(ALERTS)
    assert "runbook_url" not in text()
