"""What looks like a fault and is none, for each alert."""

from tests.monitoring.cases import (
    HARDWARE,
    HOST,
    MEASURED,
    N1,
    OF_PROFILE,
    PROFILE,
    Case,
    medians,
    nodes,
    of_node,
    verdict,
)
from tests.monitoring.series import (
    BUILD,
    DAY,
    ERRORS,
    EXPECTED,
    FAILED,
    FAR,
    FELL,
    GARBLED,
    GONE,
    INTERVAL,
    JOULE,
    LAST,
    LEADS,
    LIMIT,
    LIMIT_OF,
    MOVED,
    NO_QUEUE,
    NOT_ACCEPTED,
    PROBLEMS,
    QUARANTINED,
    SLOW,
    SLOW_RATE,
    STUCK,
    THROTTLED,
    UNREADABLE,
    WATCH,
    accepted,
    bytes_of,
    driver_nodes,
    hours,
    limits,
    many,
    named,
    pool,
    problem,
    waiting,
)

POWER = of_node("precision_node_power_valid", 'recipe="bf16",reason="CounterStuck"')
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
    "a program near its limit for nine minutes": Case(
        "MemoryNearLimit", {"precision_operator_memory_ratio": "0.5x50 0.9x8 0.5x60"}, (59, 90)
    ),
    "a body at half of its limit": Case("ExporterNearLimit", {**LIMIT, bytes_of("/metrics"): "50x100"}, (90,)),
}
QUIET = named(CALM)
