"""Series that cases of alerts share, as the real programs show them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from precision_operator.exporter.families.family import Level
from tests.monitoring.cases import (
    ALIKE,
    HOST,
    INSTALLED,
    LEVEL,
    MEASURED,
    N1,
    OF_PROFILE,
    POOL,
    PROFILE,
    RECIPE,
    Case,
    nodes,
    of_node,
    verdict,
)
from tests.monitoring.replay import alerting, input_series
from tests.monitoring.story import Node, Profile, exposed

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
SIMULATED = LEVEL.replace("measured", "simulated")
FAILED = of_node("precision_node_failed", 'reason="AgentCrashed"')
CRASHED = HOST | {"reason": "AgentCrashed", "fault": "failed"}
QUARANTINED = of_node("precision_node_quarantined", 'reason="AgentCrashed"')
STUCK = {nodes("running"): "4x99 _x14 4x290", nodes("queued"): "2x99 _x14 2x290"}
LAST, INTERVAL = (
    f"precision_profile_{name}_seconds{{{PROFILE}}}" for name in ("last_result_timestamp", "refresh_interval")
)
LIMIT = {"precision_exporter_body_limit_bytes": "100x500", "precision_exporter_shards_needed": "4x500"}
WATCH = 'kind="jobs",namespace="ml"'
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


NOT_ACCEPTED = HOST | {"fault": "not_accepted", "reason": "TooSlow", "owner": "hardware"}
GARBLED = "precision_operator_stop_garbled"
PROBLEMS = {"NodeConditionBlocked": "Unguarded", "OpenNodeFails": "FailUnconfirmed", "DomainFails": "DomainFails"}


def problem(name: str) -> str:
    return f'precision_operator_node_condition_problems{{problem="{name}"}}'


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


def hours(*pools: list[Node], profiles: str = "nightly", level: Level = "node") -> dict[str, str]:
    """A pool as the real exporter shows it in each of these profiles, each for an hour."""
    bodies = [exposed([Profile(name, tuple(pool)) for name in profiles.split()], level=level) for pool in pools]
    rows = input_series(bodies, 60, ({},), alerting())
    return {row["series"]: row["values"] for row in rows if "exporter" not in row["series"]}


ON_POOL, OF_A = ({"pool": "NVIDIA-GB200", "nodes_of": f"ml/{name}"} for name in ("nightly", "a"))
FAR, THROTTLES = "PoolFarBelowBest", "ThrottledInProfile"


def in_moe(series: Mapping[str, str]) -> dict[str, str]:
    """The same of another profile of the same nodes."""
    return {s.replace('profile="nightly"', 'profile="moe"'): v for s, v in series.items()}


FELL = {verdict("fallback"): "1x100"}
NO_QUEUE = {nodes("queued"): "0x420"}


def named(cases: Mapping[str, Case]) -> tuple[Case, ...]:
    return tuple(replace(case, name=name) for name, case in cases.items())
