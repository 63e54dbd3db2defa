"""What reviews found of alerts: what is no fault, and what turned an alert off too soon."""

from tests.monitoring.cases import HARDWARE, HOST, LEVEL, MEASURED, OF_PROFILE, Case, medians, nodes
from tests.monitoring.series import (
    FAR,
    ON_POOL,
    RATE,
    RESULT,
    SLOW,
    hot,
    hours,
    many,
    pool,
)
from tests.monitoring.story import Node
from tests.monitoring.written import written
from tests.support.golden import beside

HOT = ("precision_node_throttled_ratio", 'recipe="mxfp8",reason="hardware_thermal"')


def rollout(done: int, slow: int, rate: float) -> list[Node]:
    """A pool of 24, of which so many have that rate; all but those that are done are to run with a new image."""
    return [Node(f"n{n}", 0, rate if n < slow else 1.0, waits_for="AgentChange" * (n >= done)) for n in range(24)]


TABLES = beside(__file__)
REVIEWED = {name: written(row) for name, row in TABLES["reviewed"].items()} | {
    "a spec that is edited is no degradation": Case(
        "PoolDegraded", {LEVEL: "100x119 _x240", LEVEL.replace("h1", "h2"): "_x120 80x240"}, (*range(0, 360, 20),)
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
}
LONG_HOT = Case("ThrottledInProfile", hot(24, 0, 3, 8), (50,), (80, 115, 145), ON_POOL, each_of=("n0", "n1", "n2"))
TURNED_OFF_TOO_SOON = {name: written(row) for name, row in TABLES["turned_off_too_soon"].items()} | {
    "three throttled nodes, and then eight": LONG_HOT,
    "five nodes that are throttled most of each hour": Case(
        "ManyNodes",
        many(5, lambda node: {f"{HOT[0]}{{{node},{HOT[1]}}}": "0.4x49 _x20 " * 5})
        | many(5, lambda node: {f"precision_node_last_success_timestamp_seconds{{{node}}}": "0x350"}),
        (5, 50),
        (*range(75, 345, 6),),
        HARDWARE,
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
