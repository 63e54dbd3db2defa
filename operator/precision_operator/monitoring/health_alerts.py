"""The alerts of the programs themselves: while one of these fires, silence of the others means nothing.

Each is judged by installation (a cluster and the namespace of the programs), so that one that works hides no other one.
"""

from __future__ import annotations

from precision_operator.exporter.watch import LIST_SECONDS
from precision_operator.monitoring.alert import CLUSTER_NAME, INSTALLATION_NAME, SHARE, Alert
from precision_operator.monitoring.rules import CLUSTER, INSTALLATION, REMEMBERED, newest, once
from precision_operator.shell.reconcile import LIST_AGAIN_SECONDS

STUCK_SECONDS = 3 * LIST_AGAIN_SECONDS
EXPORTER_STUCK_SECONDS = 2 * LIST_SECONDS
"""A list is due after 1.1 times LIST_SECONDS, begins when a watch of 10 minutes ends, and waits for its turn."""


def _down(program: str) -> str:
    """Where a program that was scraped two hours ago is missed for 15 minutes, or now and then for an hour."""
    chosen = f'{{program="{program}"}}'
    short, long = (f"precision:program_available_ratio:{window}{chosen}" for window in ("30m", "2h"))
    seen = f"last_over_time(precision:program_seen{chosen}[{REMEMBERED}] offset 2h)"
    return f"({short} < 0.5 or ({long} < 0.8 and {short} < 0.95)) and {seen}"


def _unreadable(kind: str) -> str:
    count = once(f"precision_exporter_unreadable_{kind}")
    return f'label_replace({count} > 0, "kind", "{kind}", "", "")'


_UNREADABLE = " or ".join(map(_unreadable, ("reports", "profiles", "plans")))
_WATCH = f"{CLUSTER}, namespace, kind"
_FORBIDDEN = (
    f"max by ({_WATCH}) ({newest('precision_operator_forbidden')}) == 1 or {once('precision_exporter_forbidden')} == 1"
)
_HEARD = f"max by ({_WATCH}) (precision_operator_watch_age_seconds) > {STUCK_SECONDS:.0f}"
_LISTED = f"time() - min by ({INSTALLATION}) ({newest('precision_exporter_last_list_timestamp_seconds')})"
_STUCK = (
    f'label_replace({_HEARD}, "program", "operator", "", "") or '
    f'label_replace({_LISTED} > {EXPORTER_STUCK_SECONDS:.0f}, "program", "exporter", "", "")'
)
"""Of several exporters the one that lags: where figures differ, the higher one is shown, which may be its own."""

HEALTH_ALERTS: tuple[Alert, ...] = (
    Alert(
        "PrecisionOperatorDown",
        _down("operator"),
        "1m",
        "warning",
        f"The operator of Precision Profiler is down{CLUSTER_NAME}",
        f"No replica of the operator{INSTALLATION_NAME} is scraped, or only now and then. Nothing is measured, no "
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
        f"({_STUCK}) unless on({CLUSTER}, namespace) ({_FORBIDDEN})",
        "10m",
        "warning",
        "The {{ $labels.program }} has heard nothing{{ with $labels.kind }} of {{ . }}{{ end }} for "
        "{{ $value | humanizeDuration }}",
        "The {{ $labels.program }}{{ with $labels.namespace }} (namespace {{ . }}){{ end }}"
        f"{CLUSTER_NAME} has had no event and no complete list{{{{ with $labels.kind }}}} of {{{{ . }}}}{{{{ end }}}} "
        "for {{ $value | humanizeDuration }}. It decides by, or shows, what was so then.",
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
        _down("exporter"),
        "1m",
        "warning",
        f"The metrics of Precision Profiler do not arrive{CLUSTER_NAME}",
        f"No exporter{INSTALLATION_NAME} is scraped, or not all of its /metrics/shard endpoints are, or only now and "
        "then. The alerts of its nodes, pools and profiles can't fire meanwhile.",
    ),
    Alert(
        "PrecisionExporterNearLimit",
        f"{once('precision_exporter_body_bytes')} / on({INSTALLATION}) group_left() "
        f"{once('precision_exporter_body_limit_bytes')} > 0.8",
        "10m",
        "warning",
        "{{ $labels.path }} of the exporter nears the size that scrapers take",
        f"{{{{ $labels.path }}}}{CLUSTER_NAME} is at {SHARE} of 16 MiB. Beyond that vmagent refuses it, and its nodes "
        "vanish from the metrics.",
    ),
)
