"""What makes each alert fire and then clear again."""

import json
from dataclasses import replace

from tests.monitoring.cases import (
    HARDWARE,
    HOST,
    IN_POOL,
    INSTALLED,
    MEASURED,
    N1,
    OF_PROFILE,
    POOL_INFO,
    PROFILE,
    Case,
    medians,
    nodes,
    of_node,
    verdict,
)
from tests.monitoring.replay import LAST_LIST
from tests.monitoring.series import (
    BUILD,
    CRASHED,
    DAY,
    ERRORS,
    EXPECTED,
    EXPORTER,
    FAILED,
    FAR,
    GARBLED,
    INTERVAL,
    LAST,
    LEADS,
    LIMIT,
    MOVED,
    NOT_ACCEPTED,
    PROBLEMS,
    QUARANTINED,
    REFUSED,
    SIMULATED,
    SLOW,
    SLOW_RATE,
    STUCK,
    THROTTLED,
    UNREADABLE,
    WATCH,
    accepted,
    bytes_of,
    driver_nodes,
    in_moe,
    limits,
    problem,
    slow_nodes,
    waiting,
)
from tests.support.golden import FOLDER

HEAT = SIMULATED.replace("level_tokens_per_second", "throttled_ratio").replace("}", ',against="others"}')
DRIFTED = accepted("Inconclusive", "ReferenceDrifted")
FAILING_GPU = of_node("precision_node_failing_gpu_info", 'gpu="3",UUID="GPU-3",pci="0000:19:00.0"')
DIVERGED = of_node("precision_node_loss_verdict", 'recipe="nvfp4",verdict="diverged"')
DENIED = {nodes("queued"): "0x399 23x20", nodes("waiting"): "24x399 0x20", waiting("DeniedByPolicy"): "24x399 _x20"}
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
    Case(
        "NodeNotAccepted",
        {accepted("Fail"): "_x30 1x59 _x60", FAILING_GPU: "1x150", **MEASURED}
        | in_moe({FAILING_GPU.replace("GPU-3", "GPU-7"): "1x150"}),
        (20, 103),
        (45, 85),
        NOT_ACCEPTED,
        name="two GPUs are blamed",
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
    Case(
        "MemoryNearLimit",
        {"precision_operator_memory_ratio": "0.5x29 0.9x59 0.6x60"},
        (20, 105),
        (50, 85),
        INSTALLED | {"program": "operator"},
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
