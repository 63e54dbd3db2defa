"""The recording rules and alerts as rows, and the rule file that Prometheus reads.

Only functions that Prometheus 2.42 knows. Two exporters may be scraped at once (a rolling update, two replicas), so
every raw family is read through `one`: the same figure from two pods counts once. What time-series panels and alerts
read is recorded; raw node series are read here once a minute and nowhere else over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

PROFILE = "profile_namespace, profile"
POOL = f"{PROFILE}, pool"
NODE = f"{POOL}, node"
ARM = f"{POOL}, workload, recipe, power_scope"
"""What two drivers are compared within."""

DEGRADED_BELOW = "0.97"
"""Of its best of the last 7 days: three times what a healthy pool's median moves between two sweeps."""
ENERGY_BELOW = "0.97"

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


def one(selector: str) -> str:
    """The series of a raw family, each once, however many exporters are scraped."""
    return f"max without(instance, pod, endpoint, container) ({selector})"


def matched(family: str, operator: str = "=", **labels: str) -> str:
    """A selector: the family, with a matcher for each label."""
    matchers = ", ".join(f'{label}{operator}"{value}"' for label, value in labels.items())
    return f"{family}{{{matchers}}}"


def _stat(record: str, family: str, stat: str, unit: str) -> Recording:
    return Recording(record, f"max without(stat) ({one(matched(family, stat=stat))})", unit)


def _stats(record: str, family: str, unit: str, **names: str) -> tuple[Recording, ...]:
    """A rule for each statistic over nodes: its name in the record, and the value of the family's label `stat`."""
    return tuple(_stat(f"{record}:{name}", family, stat, unit) for name, stat in names.items())


def _as_buckets(family: str) -> str:
    """The cumulative counts of a family under the label that heatmaps read."""
    return f'sum without(at_most) (label_replace({one(family)}, "le", "$1", "at_most", "(.*)"))'


_RATE = "precision_pool_training_tokens_per_second"
_TOTAL_RATE = "precision_pool_training_total_tokens_per_second"

POOLS: tuple[Recording, ...] = (
    Recording("precision:pool_nodes", one("precision_pool_nodes"), "nodes"),
    Recording("precision:pool_marked_nodes", one("precision_pool_marked_nodes"), "nodes"),
    Recording(
        "precision:pool_tokens_per_second:median",
        one("precision_pool_training_reference_tokens_per_second"),
        "tokens/s",
    ),
    *_stats("precision:pool_tokens_per_second", _RATE, "tokens/s", slowest="min", p01="p01", p10="p10", p90="p90"),
    Recording(
        "precision:pool_tokens_per_second:sum", one("precision_pool_training_total_tokens_per_second"), "tokens/s"
    ),
    Recording("precision:pool_tokens_per_second:nodes", one("precision_pool_training_nodes"), "nodes"),
    Recording(
        "precision:pool_tokens_per_second_per_gpu",
        f"{one(_TOTAL_RATE)} / {one('precision_pool_training_gpus')}",
        "tokens/s",
    ),
    Recording("precision:pool_power_watts:sum", one("precision_pool_training_power_watts"), "W"),
    Recording(
        "precision:pool_tokens_per_joule",
        f"{one('precision_pool_training_powered_tokens_per_second')} / {one('precision_pool_training_power_watts')}",
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
    Recording("precision:pool_slowest_ratio", one("precision_pool_slowest_ratio"), "ratio"),
    Recording("precision:pool_driver_nodes", one("precision_pool_driver_nodes"), "nodes"),
)

PROFILES: tuple[Recording, ...] = (
    Recording("precision:profile_nodes", one("precision_profile_nodes"), "nodes"),
    Recording(
        "precision:profile_open_nodes",
        f"sum by ({PROFILE}) ({one(matched('precision_profile_nodes', '=~', phase='queued|running'))})",
        "nodes",
    ),
    Recording(
        "precision:profile_done_nodes",
        f"sum by ({PROFILE}) ({one(matched('precision_profile_nodes', '=~', phase='succeeded|failed'))})",
        "nodes",
    ),
    Recording("precision:profile_progress_ratio", one("precision_profile_progress_ratio"), "ratio"),
    Recording("precision:profile_eta_timestamp_seconds", one("precision_profile_eta_timestamp_seconds"), "seconds"),
    Recording(
        "precision:profile_last_result_timestamp_seconds",
        one("precision_profile_last_result_timestamp_seconds"),
        "seconds",
    ),
)


def _fault(fault: str, expr: str) -> Recording:
    """1 for each node that has the fault in any recipe, and no series for the others."""
    return Recording("precision:node_fault", f"group by ({NODE}) ({expr})", "", {"fault": fault})


NODES: tuple[Recording, ...] = (
    _fault("slow", f"{one('precision_node_slow')} == 1"),
    _fault("fallback", f"{one(matched('precision_node_verification', verdict='fallback'))} == 1"),
    _fault("throttled", f"{one('precision_node_throttled_ratio')} > 0"),
    _fault("power_invalid", f"{one('precision_node_power_valid')} == 0"),
)

HISTORY: tuple[Recording, ...] = (
    Recording(
        "precision:pool_tokens_per_second:best_7d",
        "max_over_time(precision:pool_tokens_per_second:median[7d])",
        "tokens/s",
    ),
    Recording(
        "precision:pool_degradation_ratio",
        "precision:pool_tokens_per_second:median / precision:pool_tokens_per_second:best_7d",
        "ratio",
    ),
    Recording(
        "precision:pool_degraded",
        f"max by ({POOL}) ((precision:pool_degradation_ratio < bool {DEGRADED_BELOW}) "
        "and precision:pool_tokens_per_second:nodes >= 3)",
    ),
    Recording(
        "precision:pool_driver_tokens_per_joule", one("precision_pool_driver_training_tokens_per_joule"), "tokens/J"
    ),
    Recording("precision:pool_driver_order", one("precision_pool_driver_order")),
    Recording(
        "precision:pool_driver_tokens_per_joule:last_30d",
        "last_over_time(precision:pool_driver_tokens_per_joule[30d])",
        "tokens/J",
    ),
    Recording("precision:pool_driver_order:last_30d", "last_over_time(precision:pool_driver_order[30d])"),
    Recording(
        "precision:pool_newest_driver",
        f"max by ({POOL}, driver) (precision:pool_driver_order and on({POOL}, driver) "
        f"precision:pool_driver_tokens_per_joule) == on({POOL}) group_left() max by ({POOL}) "
        f"(precision:pool_driver_order and on({POOL}, driver) precision:pool_driver_tokens_per_joule)",
    ),
    Recording(
        "precision:pool_older_drivers_tokens_per_joule",
        f"max by ({ARM}) (precision:pool_driver_tokens_per_joule:last_30d and on({POOL}, driver) "
        f"(max by ({POOL}, driver) (precision:pool_driver_order:last_30d) < on({POOL}) group_left() "
        f"max by ({POOL}) (precision:pool_newest_driver)))",
        "tokens/J",
    ),
    Recording(
        "precision:pool_driver_energy_ratio",
        f"max by ({ARM}, driver) (precision:pool_driver_tokens_per_joule and on({POOL}, driver) "
        f"precision:pool_newest_driver) / on({ARM}) group_left() precision:pool_older_drivers_tokens_per_joule",
        "ratio",
    ),
)

GROUPS: tuple[RuleGroup, ...] = (
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
