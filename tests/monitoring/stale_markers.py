"""Series end with stale markers, targets have labels of their own: what alerts make of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from precision_operator.exporter.body import build
from tests.monitoring.cases import (
    ALIVE,
    HARDWARE,
    HOST,
    MEASURED,
    N1,
    OF_PROFILE,
    POOL,
    POOL_INFO,
    PROFILE,
    Case,
    medians,
    nodes,
    of_node,
    verdict,
)
from tests.monitoring.findings import LONG_HOT
from tests.monitoring.replay import LAST_LIST, alerting, input_series
from tests.monitoring.series import (
    BUILD,
    CRASHED,
    EXPORTER,
    FAILED,
    FAR,
    FELL,
    LIMIT_OF,
    NO_QUEUE,
    NOT_ACCEPTED,
    OF_A,
    ON_POOL,
    QUARANTINED,
    RESULT,
    SLOW,
    SLOW_RATE,
    THROTTLES,
    accepted,
    hot,
    hours,
    in_moe,
    limits,
    many,
    pool,
    waiting,
)
from tests.monitoring.story import Node, last_lists
from tests.monitoring.written import written
from tests.support.exposition import store_of
from tests.support.golden import beside
from tests.support.report_objects import profile_object

NO_OPERATOR = {series: values for series, values in ALIVE.items() if "operator" not in series}
ON_LAB = ON_POOL | {"nodes_of": "lab/nightly"}
MANY_HOT, HOT_ONES = ({"alertname": f"Precision{name}", **ON_POOL} for name in ("ManyNodes", "PoolThrottled"))
OTHER_HALL = HOT_ONES | {"nodes_of": "ml/moe"}
OTHERS_HOT = {s.replace("nightly", "moe").replace('"n', '"m'): v for s, v in hot(24, 0, 20, 20).items()}


def in_lab(series: Mapping[str, str]) -> dict[str, str]:
    """The same of a profile of another namespace."""
    return {s.replace('namespace="ml"', 'namespace="lab"').replace("ml/", "lab/"): v for s, v in series.items()}


OTHER_SLOW = [Node("m", 0, 0.8), *(Node(f"m{n}") for n in range(12))]
IN_TWO = MEASURED | in_moe(MEASURED | {POOL_INFO: "1x100"})
SLOW_FIVE = [Node(f"s{n}", 0, 0.8) for n in range(2, 5)] + pool(0, 19) + [Node(f"s{n}", 0, 0.8) for n in range(2)]
OTHERWISE_SLOW = [replace(node, rate=0.79) if node.name in ("s0", "s1", "s2") else node for node in SLOW_FIVE]
LISTS = last_lists(1)[:500]
INFO = of_node("precision_node_info", 'data="simulated",nvlink_domain="d.9"')
FALLEN = many(5, lambda node: {s.replace(N1, node): "1x300" for s in (verdict("fallback"), INFO, RESULT)})
FALLEN[f'precision_pool_nodes{{{POOL},phase="fresh"}}'] = "60x300"
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


AS_PROMETHEUS_SEES_IT = {
    **{name: written(row, NO_OPERATOR=NO_OPERATOR, QUEUED=QUEUED) for name, row in beside(__file__)["cases"].items()},
    "a node whose reasons alternate": Case(
        "NodeFailed",
        {FAILED: "1x19 _x20 " * 6, FAILED.replace("AgentCrashed", "AgentHung"): "_x20 1x19 " * 6},
        (50,),
        (70, 90, 110, 150, 200),
        CRASHED,
    ),
    "the lists of a real watch": Case(
        "WatchStuck",
        {LAST_LIST: " ".join(str(at) for at in LISTS)},
        tuple(minute for minute, at in enumerate(LISTS) if minute * 60 - at > 2_300),
    ),
    "throttled nodes that are gone": Case(
        "PoolThrottled", hot(24, 0, 4, 4, 4, gone=slice(11), left=2), (50, 155, 170, 230)
    ),
    "cooling that fails where most nodes are gone": Case(
        "PoolThrottled", hot(24, 0, 0, 8, 8, gone=slice(11, 24), left=1), (50, 110), (155, 230), ON_POOL
    ),
    **{
        f"a profile that no operator has seen: {spec}": blocked(unseen(spec))
        for spec in ({}, {"schedule": {"cron": "0 2 * * *"}})
    },
    "a profile of which all nodes are skipped": blocked(
        {nodes("skipped"): "24x420", nodes("succeeded"): "0x420"}
        | {waiting("UntoleratedTaint").replace("waiting", "skipped"): "24x420"},
        reason="UntoleratedTaint",
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
        beside={"alertname": "PrecisionNodeSlow", **ON_LAB},
    ),
    "a slow node, milder in another pool of the namespace": Case(
        "NodeSlow",
        {SLOW: "1x100", **SLOW_RATE}
        | {
            s.replace("gb200", pool).replace("nightly", "moe"): v.replace("0.8", "0.96")
            for pool in ("aaa", "zzz")
            for s, v in ({SLOW: "1x100", POOL_INFO: "1x100"} | SLOW_RATE).items()
        },
        (5,),
        (20, 90),
        HOST,
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
    "a node that is not accepted, and then in quarantine": Case(
        "NodeNotAccepted",
        {accepted("Fail"): "1x100", SLOW: "1x100", FAILED: "1x100", QUARANTINED: "1x100", **SLOW_RATE},
        (5,),
        (20, 90),
        NOT_ACCEPTED,
        beside={"alertname": "PrecisionNodeQuarantined", **HOST, "reason": "AgentCrashed"},
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
    "four simulated fallbacks of sixty nodes, in one rack, and a measured one": Case(
        "SilentFallback",
        {series: values for series, values in FALLEN.items() if "info{" not in series or '"n1"' not in series},
        (5,),
        (130, 290),
        HOST,
        beside=HARDWARE | {"alertname": "PrecisionManyNodes"},
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
}
