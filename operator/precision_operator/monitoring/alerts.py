"""The alerts as rows. Each has a section of its name in the runbooks and tests that it fires, stays quiet and clears.

One alert a node, whatever the number of recipes. A node's alerts are silent while its whole pool has moved: then the
pool is the story. A node that is slow because it is throttled, or because a recipe fell back, has that alert alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from precision_operator.monitoring.rules import (
    ENERGY_BELOW,
    NODE,
    POOL,
    PROFILE,
    Severity,
    matched,
    one,
)

RUNBOOKS = "docs/runbooks.md"
"""Where the runbooks lie within the repository; a chart value puts an address before it."""
GROUP = "precision-alerts"
INTERVAL = "1m"
STALE_SECONDS = 14 * 86400
UNLESS_POOL = f"unless on({POOL}) (precision:pool_degraded == 1)"


@dataclass(frozen=True)
class Alert:
    """One alert; `summary` and `description` are Go templates over the labels and the value."""

    name: str
    expr: str
    lasts: str
    """`for`: how long it must hold."""
    severity: Severity
    summary: str
    description: str


def runbook(name: str, base: str = RUNBOOKS) -> str:
    """The address of an alert's section."""
    return f"{base}#{name.lower()}"


def _node_fault(fault: str, further: str = "") -> str:
    return " ".join(part for part in (matched("precision:node_fault", fault=fault), further, UNLESS_POOL) if part)


def _node_fault_in_domain(fault: str) -> str:
    """The same with the NVLink domain as a label where there is one, so that a rack's alerts can go in one message.

    The join adds a label, and never takes an alert away.
    """
    found = matched("precision:node_fault", fault=fault)
    info = f"topk by ({NODE}) (1, {one('precision_node_info')})"
    return f"({found} * on({NODE}) group_left(nvlink_domain) {info} or on({NODE}) {found}) {UNLESS_POOL}"


_WHERE = "profile {{ $labels.profile_namespace }}/{{ $labels.profile }}"
_NODE = f"Node {{{{ $labels.node }}}} of pool {{{{ $labels.pool }}}} ({_WHERE})"
_DOMAIN = "{{ with $labels.nvlink_domain }} in NVLink domain {{ . }}{{ end }}"
_POOL = f"Pool {{{{ $labels.pool }}}} ({_WHERE})"

ALERTS: tuple[Alert, ...] = (
    Alert(
        "PrecisionNodeSlow",
        _node_fault("slow", f'unless on({NODE}) precision:node_fault{{fault=~"fallback|throttled"}}'),
        "10m",
        "warning",
        "{{ $labels.node }} trains slower than the other nodes of {{ $labels.pool }}",
        f"{_NODE} is far below the median of the nodes of its kind, and neither throttling nor a fallback explains it. "
        "A synchronous job that gets this node runs at its speed.",
    ),
    Alert(
        "PrecisionPoolDegraded",
        "precision:pool_degraded == 1",
        "30m",
        "critical",
        "Pool {{ $labels.pool }} trains slower than in the last 7 days",
        f"{_POOL}: the median node gives less than 97 % of the pool's best of the last 7 days in at least one recipe. "
        "The nodes moved together, so look for what they have in common: driver, image, power or cooling.",
    ),
    Alert(
        "PrecisionSilentFallback",
        _node_fault("fallback"),
        "10m",
        "critical",
        "A recipe silently runs in another precision on {{ $labels.node }}",
        f"{_NODE}: the kernels of at least one recipe did not run in its precision. Jobs on this node get neither the "
        "speed nor the numerics that they ask for.",
    ),
    Alert(
        "PrecisionThrottledInProfile",
        _node_fault_in_domain("throttled"),
        "10m",
        "warning",
        "{{ $labels.node }} was throttled while it was measured",
        f"{_NODE}{_DOMAIN}: heat or the power brake held its clocks back for more than 0.1 % of the measured time. Its "
        "figures are left out of the pool's medians.",
    ),
    Alert(
        "PrecisionProfileStale",
        f"time() - precision:profile_last_result_timestamp_seconds > {STALE_SECONDS}",
        "1h",
        "warning",
        "Profile {{ $labels.profile }} has had no new result for two weeks",
        "The newest result of {{ $labels.profile_namespace }}/{{ $labels.profile }} is {{ $value | humanizeDuration }} "
        "old. Drivers and hardware may have changed since: what the dashboards and plans show is that old.",
    ),
    Alert(
        "PrecisionProfileFailing",
        f'precision:profile_nodes{{phase="failed"}} / on({PROFILE}) group_left() '
        f'sum by ({PROFILE}) (precision:profile_nodes{{phase!="skipped"}}) > 0.1',
        "30m",
        "warning",
        "Measurements fail on many nodes of profile {{ $labels.profile }}",
        "{{ $value | humanizePercentage }} of the eligible nodes of {{ $labels.profile_namespace }}/"
        "{{ $labels.profile }} gave no result in their newest run.",
    ),
    Alert(
        "PrecisionEnergyRegression",
        f"min by ({POOL}, driver) (precision:pool_driver_energy_ratio) < {ENERGY_BELOW}",
        "1h",
        "warning",
        "Driver {{ $labels.driver }} costs energy in pool {{ $labels.pool }}",
        f"{_POOL}: with driver {{{{ $labels.driver }}}} the median node gives {{{{ $value | humanizePercentage }}}} of "
        "the tokens per joule that the best older driver of the last 30 days gave, in the recipe that lost the most.",
    ),
    Alert(
        "PrecisionPowerTelemetryBad",
        _node_fault("power_invalid"),
        "10m",
        "info",
        "The power reading of {{ $labels.node }} can't be trusted",
        f"{_NODE}: its power or energy counters failed their checks, so it has no energy figures. Sums of power over "
        "the pool leave it out.",
    ),
    Alert(
        "PrecisionCampaignStuck",
        "min_over_time(precision:profile_open_nodes[3h]) > 0 and changes(precision:profile_done_nodes[3h]) == 0 "
        "and (precision:profile_open_nodes offset 3h) > 0 "
        f"unless on({PROFILE}) ({one(matched('precision_profile_phase', phase='Suspended'))} == 1)",
        "15m",
        "warning",
        "Profile {{ $labels.profile }} makes no progress",
        "{{ $value }} nodes of {{ $labels.profile_namespace }}/{{ $labels.profile }} are queued or running, and for "
        "three hours none has ended: twice what an agent may take.",
    ),
    Alert(
        "PrecisionExporterDown",
        f"absent({one('precision_exporter_build_info')}) or max({one('precision_exporter_shards')}) - "
        f"(count(count by (index) ({one('precision_exporter_shard_series')})) or vector(0)) > 0",
        "10m",
        "critical",
        "The metrics of Precision Profiler do not arrive",
        "No exporter is scraped, or not all of its /metrics/shard endpoints are. The other alerts of Precision "
        "Profiler can't fire meanwhile.",
    ),
    Alert(
        "PrecisionExporterNearLimit",
        f"max by (path) ({one('precision_exporter_body_bytes')}) / on() group_left() "
        f"max({one('precision_exporter_body_limit_bytes')}) > 0.8",
        "10m",
        "warning",
        "{{ $labels.path }} of the exporter nears the size that scrapers take",
        "{{ $labels.path }} is at {{ $value | humanizePercentage }} of 16 MiB. Beyond that vmagent refuses it, and "
        "its nodes vanish from the metrics.",
    ),
)


def group_document(
    alerts: tuple[Alert, ...] = ALERTS, base: str = RUNBOOKS, lasts: str | None = None
) -> dict[str, Any]:
    """The alerts as a group of a rule file; `lasts` is put in the place of each one's own `for`."""
    return {"name": GROUP, "interval": INTERVAL, "rules": [_document(alert, base, lasts) for alert in alerts]}


def _document(alert: Alert, base: str, lasts: str | None) -> dict[str, Any]:
    told = {"summary": alert.summary, "description": alert.description, "runbook_url": runbook(alert.name, base)}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": lasts or alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": told,
    }
