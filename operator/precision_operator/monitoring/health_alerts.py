"""The alerts of the programs themselves: while one of these fires, silence of the others means nothing.

Each is judged by installation (a cluster and the namespace of the programs), so that one that works hides no other one.
"""

from __future__ import annotations

from precision_operator.monitoring.alert import CLUSTER_NAME, INSTALLATION_NAME, SHARE, Alert
from precision_operator.monitoring.rules import CLUSTER, INSTALLATION, once

REMEMBERED = "3d"
"""How long an installation that has vanished whole is missed: then it counts as taken away."""
STUCK_SECONDS = 1800
"""Three times as long as the time between two complete lists."""

_BUILD = once("precision_exporter_build_info")
_EXPORTER = f"group by ({INSTALLATION}) ({_BUILD})"
_OPERATOR = f"group by ({INSTALLATION}) (precision_operator_leader)"
_REMEMBERED = once(f"last_over_time(precision_exporter_build_info[{REMEMBERED}])")
_SHARDS = f"max by ({INSTALLATION}) ({once('precision_exporter_shards')})"
_SCRAPED = f"count by ({INSTALLATION}) (count by ({INSTALLATION}, index) ({once('precision_exporter_shard_series')}))"
_EXPORTER_DOWN = " or ".join(
    (
        f"{_OPERATOR} unless on({INSTALLATION}) {_EXPORTER}",
        f"group by ({INSTALLATION}) ({_REMEMBERED}) unless on({INSTALLATION}) {_EXPORTER}",
        f"absent_over_time(precision_exporter_build_info[{REMEMBERED}])",
        f"{_SHARDS} - ({_SCRAPED} or 0 * {_SHARDS}) > 0",
    )
)


def _unreadable(kind: str) -> str:
    count = f"max by ({INSTALLATION}) ({once(f'precision_exporter_unreadable_{kind}')})"
    return f'label_replace({count} > 0, "kind", "{kind}", "", "")'


_UNREADABLE = " or ".join(map(_unreadable, ("reports", "profiles", "plans")))
_WATCH = f"{CLUSTER}, namespace, kind"
_FORBIDDEN = (
    f"max by ({_WATCH}) (precision_operator_forbidden) == 1 "
    f"or max by ({_WATCH}) ({once('precision_exporter_forbidden')}) == 1"
)
_LISTED = f"time() - max by ({INSTALLATION}) ({once('precision_exporter_last_list_timestamp_seconds')})"
_STUCK = " or ".join(
    (
        f'label_replace(max by ({_WATCH}) (precision_operator_watch_age_seconds), "program", "operator", "", "")',
        f'label_replace({_LISTED}, "program", "exporter", "", "")',
    )
)

HEALTH_ALERTS: tuple[Alert, ...] = (
    Alert(
        "PrecisionOperatorDown",
        f"{_EXPORTER} unless on({INSTALLATION}) {_OPERATOR}",
        "15m",
        "warning",
        f"The operator of Precision Profiler is down{CLUSTER_NAME}",
        f"The exporter{INSTALLATION_NAME} is scraped, and no replica of the operator is. Nothing is measured, no "
        "schedule is kept, and the figures of the other alerts grow old.",
    ),
    Alert(
        "PrecisionNoLeader",
        f"max by ({INSTALLATION}) (precision_operator_leader) == 0",
        "10m",
        "warning",
        f"No replica of the operator leads{CLUSTER_NAME}",
        f"The operator{INSTALLATION_NAME} runs, but for ten minutes no replica has held the Lease. Nothing is measured "
        "meanwhile.",
    ),
    Alert(
        "PrecisionWatchStuck",
        f"({_STUCK}) > {STUCK_SECONDS} unless on({CLUSTER}, namespace) ({_FORBIDDEN})",
        "10m",
        "warning",
        "The {{ $labels.program }} has heard nothing{{ with $labels.kind }} of {{ . }}{{ end }} for "
        "{{ $value | humanizeDuration }}",
        "The {{ $labels.program }}{{ with $labels.namespace }} (namespace {{ . }}){{ end }}"
        f"{CLUSTER_NAME} has had no event and no complete list{{{{ with $labels.kind }}}} of {{{{ . }}}}{{{{ end }}}} "
        "for {{ $value | humanizeDuration }}; lists come every ten minutes. It decides by, or shows, what was so then.",
    ),
    Alert(
        "PrecisionReconcileErrors",
        f"sum by ({INSTALLATION}) (increase(precision_operator_reconcile_errors_total[10m])) > 3",
        "30m",
        "warning",
        f"The operator's passes fail: {{{{ $value | humanize }}}} in ten minutes{CLUSTER_NAME}",
        f"For half an hour passes of the operator{INSTALLATION_NAME} have ended in errors, {{{{ $value | humanize }}}} "
        "in the last ten minutes. What they were to do is late, or never done.",
    ),
    Alert(
        "PrecisionUnreadable",
        _UNREADABLE,
        "15m",
        "warning",
        f"{{{{ $value }}}} {{{{ $labels.kind }}}} can't be read, and are not shown{CLUSTER_NAME}",
        f"The exporter{INSTALLATION_NAME} leaves out {{{{ $value }}}} {{{{ $labels.kind }}}} that it can't read: "
        "alerts and dashboards say nothing of what stands in them. Its log names each, and what is wrong.",
    ),
    Alert(
        "PrecisionNamespaceForbidden",
        f"count by ({CLUSTER}, namespace) ({_FORBIDDEN})",
        "10m",
        "warning",
        "Precision Profiler may not read {{ $value }} kinds in namespace {{ $labels.namespace }}",
        f"The API server{CLUSTER_NAME} refuses to list or watch {{{{ $value }}}} kinds in namespace "
        "{{ $labels.namespace }} (403): it was deleted, or its RoleBinding was. Profiles there are not served; those "
        "of other namespaces are.",
    ),
    Alert(
        "PrecisionExporterDown",
        _EXPORTER_DOWN,
        "10m",
        "warning",
        f"The metrics of Precision Profiler do not arrive{CLUSTER_NAME}",
        f"No exporter{INSTALLATION_NAME} is scraped, or not all of its /metrics/shard endpoints are. The alerts of its "
        "nodes, pools and profiles can't fire meanwhile.",
    ),
    Alert(
        "PrecisionExporterNearLimit",
        f"max by ({INSTALLATION}, path) ({once('precision_exporter_body_bytes')}) / on({INSTALLATION}) group_left() "
        f"max by ({INSTALLATION}) ({once('precision_exporter_body_limit_bytes')}) > 0.8",
        "10m",
        "warning",
        "{{ $labels.path }} of the exporter nears the size that scrapers take",
        f"{{{{ $labels.path }}}}{CLUSTER_NAME} is at {SHARE} of 16 MiB. Beyond that vmagent refuses it, and its nodes "
        "vanish from the metrics.",
    ),
)
