"""The recording rules as rows.

Only functions that Prometheus 2.42 knows, and no look-back beyond 14 days: Prometheus keeps 15 by default. Two
exporters may be scraped at once (a rolling update, two replicas), and one twice, so every raw family is read through
`once`, by its own labels: the same figure counts once. A failed scrape ends all series of its target at once, so `once`
also bridges GAP. Many clusters may be evaluated together, so every aggregation and every match keeps
the label that names the cluster; where the series lack it, it is empty and changes nothing. What time-series panels and
alerts read is recorded; raw node series are read here once a minute and nowhere else over time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from precision_operator.exporter.families.table import FAMILIES

CLUSTER = "cluster"
"""The label that names a cluster; a value of the chart puts another one in its place."""
PROFILE = f"{CLUSTER}, profile_namespace, profile"
POOL = f"{PROFILE}, pool"
NODE = f"{POOL}, node"
MEASURED_ALIKE = f"{POOL}, workload, workload_hash, scope, recipe, power_scope"
"""What two drivers are compared within."""
INSTALLATION = f"{CLUSTER}, namespace"
"""One installed chart: the namespace is the target's."""

DEGRADED_BELOW = "0.97"
"""Of its best of the last 7 days: three times what a healthy pool's median moves between two sweeps."""
FAR_BELOW = "0.9"
ENERGY_BELOW = "0.97"
LEAST_NODES = 3
"""Nodes behind a median, or failed at once, from which on a pool or a profile is the story."""
FAILING_ABOVE = "0.1"
GAP = "10m"
"""How long a figure may be missing (an exporter that restarts, a scrape that fails) without being given up."""
TWICE_THE_GAP = "20m"
REMEMBERED = "3d"
"""How long an installation that has vanished whole is missed: then it counts as taken away."""

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class Recording:
    """One recording rule; `unit` is told to dashboards and docs."""

    record: str
    expr: str
    unit: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated one after the other; `interval` is at most 2m (the look-back is 5m)."""

    name: str
    interval: str
    rules: Sequence[Recording]


_LABELS = {family.name: ", ".join((CLUSTER, *family.labels)) for family in FAMILIES} | {
    "precision_exporter_forbidden": f"{INSTALLATION}, kind",
    "precision_exporter_body_bytes": f"{INSTALLATION}, path",
    "precision_exporter_shard_series": f"{INSTALLATION}, index",
}
"""Own labels by family; all others of the programs have none beside their installation's."""


def once(selector: str, over: str = GAP) -> str:
    """The newest series of a raw family `over` that time (empty: now), each once, whatever labels its targets add."""
    (family,) = re.findall(r"^\w+", selector)
    return f"max by ({_LABELS.get(family, INSTALLATION)}) ({newest(selector, over)})"


def newest(selector: str, over: str = GAP) -> str:
    """The series with what they were `over` that time: a gap takes nothing away."""
    return f"last_over_time({selector}[{over}])" if over else selector


def matched(family: str, operator: str = "=", **labels: str) -> str:
    """A selector: the family, with a matcher for each label."""
    matchers = ", ".join(f'{label}{operator}"{value}"' for label, value in labels.items())
    return f"{family}{{{matchers}}}"


def labelled(expr: str, on: str, labels: str, info: str) -> str:
    """The series with further labels of `info`, which has one series for each of `on`.

    The join adds labels, and never takes a series away: without its info a series stays as it is.
    """
    return f"({expr}) * on({on}) group_left({labels}) ({info}) or on({on}) ({expr})"


def _stat(record: str, family: str, stat: str, unit: str) -> Recording:
    return Recording(record, f"max without(stat) ({once(matched(family, stat=stat))})", unit)


def _stats(record: str, family: str, unit: str, **names: str) -> tuple[Recording, ...]:
    """A rule for each statistic over nodes: its name in the record, and the value of the family's label `stat`."""
    return tuple(_stat(f"{record}:{name}", family, stat, unit) for name, stat in names.items())


def _as_buckets(family: str) -> str:
    """The cumulative counts of a family under the label that heatmaps read."""
    return f'sum without(at_most) (label_replace({once(family)}, "le", "$1", "at_most", "(.*)"))'


_RATE = "precision_pool_training_tokens_per_second"
_TOTAL_RATE = "precision_pool_training_total_tokens_per_second"
POOLS: tuple[Recording, ...] = (
    Recording("precision:pool_nodes", once("precision_pool_nodes"), "nodes"),
    Recording("precision:pool_marked_nodes", once("precision_pool_marked_nodes"), "nodes"),
    Recording("precision:pool_data_nodes", once("precision_pool_data_nodes"), "nodes"),
    Recording(
        # One for each pool: what most of its figures are that were not measured on this hardware, else "measured".
        "precision:pool_data",
        f'group by ({POOL}, data) (topk by ({POOL}) (1, precision:pool_data_nodes{{data!="measured"}} > 0) '
        f'or on({POOL}) (precision:pool_data_nodes{{data="measured"}} > 0))',
    ),
    Recording(
        "precision:pool_tokens_per_second:median",
        once("precision_pool_training_reference_tokens_per_second"),
        "tokens/s",
    ),
    *_stats("precision:pool_tokens_per_second", _RATE, "tokens/s", slowest="min", p01="p01", p10="p10", p90="p90"),
    Recording("precision:pool_tokens_per_second:sum", once(_TOTAL_RATE), "tokens/s"),
    Recording("precision:pool_tokens_per_second:nodes", once("precision_pool_training_nodes"), "nodes"),
    Recording(
        "precision:pool_tokens_per_second_per_gpu",
        f"{once(_TOTAL_RATE)} / {once('precision_pool_training_gpus')}",
        "tokens/s",
    ),
    Recording("precision:pool_power_watts:sum", once("precision_pool_training_power_watts"), "W"),
    Recording(
        "precision:pool_tokens_per_joule",
        f"{once('precision_pool_training_powered_tokens_per_second')} / {once('precision_pool_training_power_watts')}",
        "tokens/J",
    ),
    *_stats(
        "precision:pool_tokens_per_joule",
        "precision_pool_training_tokens_per_joule",
        "tokens/J",
        median="p50",
        p10="p10",
        p90="p90",
    ),
    *_stats(
        "precision:pool_speedup_ratio",
        "precision_pool_training_speedup_ratio",
        "ratio",
        median="p50",
        p10="p10",
        p90="p90",
    ),
    *_stats("precision:pool_gemm_speedup_ratio", "precision_pool_gemm_speedup_ratio", "ratio", median="p50"),
    *_stats("precision:pool_quantization_tax_ratio", "precision_pool_quantization_tax_ratio", "ratio", median="p50"),
    Recording(
        "precision:pool_relative_performance:bucket", _as_buckets("precision_pool_relative_performance_nodes"), "nodes"
    ),
    Recording("precision:pool_slowest_ratio", once("precision_pool_slowest_ratio"), "ratio"),
    Recording("precision:pool_driver_nodes", once("precision_pool_driver_nodes"), "nodes"),
)

_FAILED = f'sum by ({PROFILE}) (precision:profile_nodes{{phase="failed"}})'

PROFILES: tuple[Recording, ...] = (
    Recording("precision:profile_nodes", once("precision_profile_nodes"), "nodes"),
    Recording("precision:profile_waiting_nodes", once("precision_profile_waiting_nodes"), "nodes"),
    Recording(
        "precision:profile_open_nodes",
        f"sum by ({PROFILE}) ({once(matched('precision_profile_nodes', '=~', phase='queued|running'))})",
        "nodes",
    ),
    Recording(
        "precision:profile_done_nodes",
        f"sum by ({PROFILE}) ({once(matched('precision_profile_nodes', '=~', phase='succeeded|failed'))})",
        "nodes",
    ),
    Recording(
        # Only where failing is more than the fault of one or two nodes; it ends at half of what it begins with.
        "precision:profile_failing_ratio",
        f"({_FAILED} / on({PROFILE}) "
        f'sum by ({PROFILE}) (precision:profile_nodes{{phase!="skipped"}}) > {FAILING_ABOVE} / 2) '
        f"and on({PROFILE}) ({_FAILED} >= {LEAST_NODES} and on({PROFILE}) {_FAILED} / on({PROFILE}) "
        f'sum by ({PROFILE}) (precision:profile_nodes{{phase!="skipped"}}) > {FAILING_ABOVE} '
        f"or {_FAILED} > 1 and on({PROFILE}) {newest('precision:profile_failing_ratio')})",
        "ratio",
    ),
    Recording("precision:profile_progress_ratio", once("precision_profile_progress_ratio"), "ratio"),
    Recording("precision:profile_eta_timestamp_seconds", once("precision_profile_eta_timestamp_seconds"), "seconds"),
    Recording(
        "precision:profile_last_result_timestamp_seconds",
        once("precision_profile_last_result_timestamp_seconds"),
        "seconds",
    ),
    Recording(
        "precision:profile_refresh_interval_seconds", once("precision_profile_refresh_interval_seconds"), "seconds"
    ),
)

_GONE = once(matched("precision_node_outdated", reason="NodeGone"))
_VERDICT = once("precision_node_slow")
_RELATIVE = once("precision_node_relative_performance_ratio")
_RESULT = newest("precision_node_last_success_timestamp_seconds")
_SLOW = (
    f"min by ({NODE}) ({_RELATIVE} and on({NODE}, workload) ({_VERDICT} == 1) "
    f"or {newest(matched('precision:node_finding', fault='slow'))} unless on({NODE}) {_VERDICT} "
    f"unless on({NODE}) changes(precision_node_last_success_timestamp_seconds[{TWICE_THE_GAP}]) > 0) "
    f"and on({NODE}) {_RESULT} unless on({NODE}) {_GONE}"
)
"""The relative rate of each slow node. A node that has no verdict now keeps the one before for as long as it has the
result that was judged: until it is measured again, or when its newest attempt failed. A node that is gone has none."""
_INFO = f"topk by ({NODE}) (1, {once('precision_node_info')}) or on({NODE}) group by ({NODE}) ({_RESULT})"
"""1 for each node with a result; its provenance and its NVLink domain as labels where the report has them."""


def _finding(fault: str, expr: str) -> Recording:
    """Each node that has the fault, with the figure behind it, and no series for the others."""
    return Recording("precision:node_finding", expr, "", {"fault": fault})


NODES: tuple[Recording, ...] = (
    _finding("slow", _SLOW),
    _finding(
        "fallback", f"count by ({NODE}) ({once(matched('precision_node_verification', verdict='fallback'))} == 1)"
    ),
    _finding("throttled", f"max by ({NODE}) ({once('precision_node_throttled_ratio')} > 0)"),
    _finding("power_invalid", f"count by ({NODE}) ({once('precision_node_power_valid')} == 0)"),
    Recording(
        # By the reason of the first failure: the alert of a node whose reasons alternate goes on.
        "precision:node_failed",
        f"{newest('precision:node_failed')} and on({NODE}) {newest('precision_node_failed')} "
        f"or on({NODE}) topk by ({NODE}) (1, max by ({NODE}, reason) ({newest('precision_node_failed')}))",
    ),
    Recording(
        # Only of nodes that still have a report with a result.
        "precision:node_fault",
        f"precision:node_finding * on({NODE}) group_left(data, nvlink_domain) ({_INFO})",
    ),
)

_GROUP_NODES = once("precision_pool_reference_nodes", over="")  # hashes of two specs would stand side by side
_SETTLED = (
    f"topk by ({POOL}) (1, {_GROUP_NODES} >= {LEAST_NODES} and on({POOL}) "
    f"(2 * max by ({POOL}) ({_GROUP_NODES}) >= sum by ({POOL}) (precision:pool_nodes))) ^ 0"
)
"""1 for what a pool's medians have in common, once half of the pool's nodes and at least three have it: while a changed
workload is measured for the first time, the median of the first few nodes says more of them than of the pool."""

_OF_BEST = f"on({POOL}) group_left() min by ({POOL}) (precision:pool_degradation_ratio)"
_THROTTLED_NODES = (
    f'count by ({POOL}) (precision:node_finding{{fault="throttled"}} and on({NODE}) '
    f"{_RELATIVE} * {_OF_BEST} < {FAR_BELOW})"
)

HISTORY: tuple[Recording, ...] = (
    Recording(
        # By workload hash and scope: a spec that was edited begins anew.
        "precision:pool_tokens_per_second:settled",
        f"precision:pool_tokens_per_second:median * on({POOL}) group_left(workload_hash, scope) ({_SETTLED})",
        "tokens/s",
    ),
    Recording(
        "precision:pool_tokens_per_second:best_7d",
        "max_over_time(precision:pool_tokens_per_second:settled[7d])",
        "tokens/s",
    ),
    Recording(
        "precision:pool_degradation_ratio",
        f"{newest('precision:pool_tokens_per_second:settled')} / precision:pool_tokens_per_second:best_7d",
        "ratio",
    ),
    Recording(
        # Nodes that are throttled and slower than the pool's best week, where they are more than a quarter of it.
        "precision:pool_throttled",
        f"{_THROTTLED_NODES} >= {LEAST_NODES} and on({POOL}) {_THROTTLED_NODES} > on({POOL}) "
        f'0.25 * sum by ({POOL}) (precision:pool_nodes{{phase="fresh"}})',
        "nodes",
    ),
    Recording("precision:pool_degraded", f"max by ({POOL}) (precision:pool_degradation_ratio < bool {DEGRADED_BELOW})"),
    Recording(
        "precision:pool_driver_tokens_per_joule", once("precision_pool_driver_training_tokens_per_joule"), "tokens/J"
    ),
    Recording("precision:pool_driver_order", once("precision_pool_driver_order")),
    Recording(
        "precision:pool_driver_tokens_per_joule:last_14d",
        "last_over_time(precision:pool_driver_tokens_per_joule[14d])",
        "tokens/J",
    ),
    Recording("precision:pool_driver_order:last_14d", "last_over_time(precision:pool_driver_order[14d])"),
    Recording(
        "precision:pool_newest_driver",
        f"max by ({POOL}, driver) (precision:pool_driver_order and on({POOL}, driver) "
        f"precision:pool_driver_tokens_per_joule) == on({POOL}) group_left() max by ({POOL}) "
        f"(precision:pool_driver_order and on({POOL}, driver) precision:pool_driver_tokens_per_joule)",
    ),
    Recording(
        "precision:pool_older_drivers_tokens_per_joule",
        f"max by ({MEASURED_ALIKE}) (precision:pool_driver_tokens_per_joule:last_14d and on({POOL}, driver) "
        f"(max by ({POOL}, driver) (precision:pool_driver_order:last_14d) < on({POOL}) group_left() "
        f"max by ({POOL}) (precision:pool_newest_driver)))",
        "tokens/J",
    ),
    Recording(
        "precision:pool_driver_energy_ratio",
        f"max by ({MEASURED_ALIKE}, driver) (precision:pool_driver_tokens_per_joule and on({POOL}, driver) "
        f"precision:pool_newest_driver) / on({MEASURED_ALIKE}) group_left() "
        "precision:pool_older_drivers_tokens_per_joule",
        "ratio",
    ),
)

_BUILD = once("precision_exporter_build_info", over="")
_SHARDS = once("precision_exporter_shards", over="")
_SCRAPED = f"count by ({INSTALLATION}) ({once('precision_exporter_shard_series', over='')})"
_EXPORTER, _OPERATOR = {"program": "exporter"}, {"program": "operator"}


def _available(window: str) -> Recording:
    """Of the minutes in which the rules ran, the share in which a program was scraped, with all of its shards."""
    seen, missing = (f"count_over_time(precision:{what}[{window}])" for what in ("program_seen", "missing_shards"))
    expr = f"({seen} - {missing} or {seen} or 0 * last_over_time(precision:program_seen[{REMEMBERED}]))"
    ran = f"count_over_time(precision:rules_ran[{window}])"
    return Recording(f"precision:program_available_ratio:{window}", f"{expr} / on() group_left() {ran}", "ratio")


PROGRAMS: tuple[Recording, ...] = (
    Recording("precision:rules_ran", "vector(1)"),
    Recording("precision:program_seen", f"group by ({INSTALLATION}) ({_BUILD})", labels=_EXPORTER),
    Recording("precision:program_seen", f"group by ({INSTALLATION}) (precision_operator_leader)", labels=_OPERATOR),
    Recording("precision:missing_shards", f"{_SHARDS} - ({_SCRAPED} or 0 * {_SHARDS}) > 0", "", _EXPORTER),
    _available("30m"),
    _available("2h"),
)

GROUPS: tuple[RuleGroup, ...] = (
    RuleGroup("precision-programs", "1m", PROGRAMS),
    RuleGroup("precision-pools", "1m", POOLS),
    RuleGroup("precision-profiles", "1m", PROFILES),
    RuleGroup("precision-nodes", "1m", NODES),
    RuleGroup("precision-history", "2m", HISTORY),
)

RECORDED: tuple[str, ...] = tuple(dict.fromkeys(rule.record for group in GROUPS for rule in group.rules))


def group_document(group: RuleGroup) -> dict[str, Any]:
    """The group as it stands in a rule file."""
    rules = [
        {"record": rule.record, "expr": rule.expr} | ({"labels": dict(rule.labels)} if rule.labels else {})
        for rule in group.rules
    ]
    return {"name": group.name, "interval": group.interval, "rules": rules}
