"""What reviews found of alerts: what is no fault, and what turned an alert off too soon."""

from tests.monitoring.cases import HARDWARE, HOST, LEVEL, MEASURED, OF_PROFILE, Case, medians, nodes
from tests.monitoring.series import (
    CRASHED,
    DAY,
    FAILED,
    FAR,
    GONE,
    INTERVAL,
    LAST,
    NO_QUEUE,
    ON_POOL,
    QUARANTINED,
    RATE,
    RESULT,
    SIMULATED,
    SLOW,
    SLOW_RATE,
    THROTTLED,
    hot,
    hours,
    many,
    pool,
    slow_nodes,
    waiting,
)
from tests.monitoring.story import Node

HOT = ("precision_node_throttled_ratio", 'recipe="mxfp8",reason="hardware_thermal"')


def rollout(done: int, slow: int, rate: float) -> list[Node]:
    """A pool of 24, of which so many have that rate; all but those that are done are to run with a new image."""
    return [Node(f"n{n}", 0, rate if n < slow else 1.0, waits_for="AgentChange" * (n >= done)) for n in range(24)]


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
