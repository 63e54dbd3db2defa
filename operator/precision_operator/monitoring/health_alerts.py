"""The alerts of the programs themselves: while one of these fires, silence of the others means nothing.

Each is judged by installation (a cluster and the namespace of the programs), so that one that works hides no other one.
"""

from precision_operator.exporter.fitting import NEAR
from precision_operator.exporter.watch import LIST_SECONDS
from precision_operator.monitoring.alert import CLUSTER_NAME, INSTALLATION_NAME, SHARE, Alert
from precision_operator.monitoring.rules import CLUSTER, INSTALLATION, newest, once

STUCK_SECONDS = 1800.0
"""Bookmarks come once a minute, answers to kopf's watches every five."""
EXPORTER_STUCK_SECONDS = 2 * LIST_SECONDS
"""A list is due after 1.1 times LIST_SECONDS, begins when a watch of 10 minutes ends, and waits for its turn."""

_UNREADABLE = " or ".join(
    f'label_replace({once(f"precision_exporter_unreadable_{kind}")} > 0, "kind", "{kind}", "", "")'
    for kind in ("reports", "profiles", "plans")
)
_WATCH = f"{CLUSTER}, namespace, kind"
_REFUSED = f"max by ({_WATCH}) ({newest('precision_operator_forbidden')}) == 1"
_AGE = newest("precision_operator_watch_age_seconds")
_HEARD = f"max by ({_WATCH}) ({_AGE}) > {STUCK_SECONDS:.0f} unless on({_WATCH}) {_REFUSED}"
_LISTED = f"time() - min by ({INSTALLATION}) ({newest('precision_exporter_last_list_timestamp_seconds')})"
_STUCK = (
    f'label_replace({_HEARD}, "program", "operator", "", "") or '
    f'label_replace({_LISTED} > {EXPORTER_STUCK_SECONDS:.0f}, "program", "exporter", "", "")'
)
"""Of several exporters the one that lags: where figures differ, the higher one is shown, which may be its own."""

_PROBLEM = f"max by ({INSTALLATION}, problem) ({{}}) > 0"
_PROBLEMS = "Unguarded|Refused|StaleSeconds|Starved|NoProfile|NotJudgedAgain"
_BLOCKED, _FAILS, _DOMAIN = (
    _PROBLEM.format(newest(f'precision_operator_node_condition_problems{{problem=~"{named}"}}'))
    for named in (_PROBLEMS, "FailUnconfirmed|FailHeld", "DomainFails")
)

MEMORY_NEAR = "0.85"
_MEMORY = " or ".join(
    f'label_replace({once(f"precision_{program}_memory_ratio")} > {MEMORY_NEAR}, "program", "{program}", "", "")'
    for program in ("operator", "exporter")
)

HEALTH_ALERTS: tuple[Alert, ...] = (
    Alert(
        "PrecisionOperatorDown",
        'precision:program_down{program="operator"}',
        f"The operator of Precision Profiler is down{CLUSTER_NAME}",
        f"No replica of the operator{INSTALLATION_NAME} is scraped, or only now and then. Nothing is measured.",
        lasts="1m",
    ),
    Alert(
        "PrecisionNoLeader",
        f"{once('precision_operator_leader')} == 0",
        f"No replica of the operator leads{CLUSTER_NAME}",
        f"The operator{INSTALLATION_NAME} runs, but for ten minutes no replica has held the Lease.",
    ),
    Alert(
        "PrecisionWatchStuck",
        _STUCK,
        "The {{ $labels.program }} has heard nothing{{ with $labels.kind }} of {{ . }}{{ end }} for "
        "{{ $value | humanizeDuration }}",
        "The {{ $labels.program }}{{ with $labels.namespace }} (namespace {{ . }}){{ end }}"
        f"{CLUSTER_NAME} has had no event and no complete list. It decides by, or shows, what was so then.",
    ),
    Alert(
        "PrecisionReconcileErrors",
        f"max by ({INSTALLATION}) (increase(precision_operator_reconcile_errors_total[10m])) > 3 or "
        f"max by ({INSTALLATION}) (increase(precision_operator_faults_total[10m])) > 0",
        f"The operator's passes fail: {{{{ $value | humanize }}}} in ten minutes{CLUSTER_NAME}",
        f"For half an hour passes of the operator{INSTALLATION_NAME} have ended in errors, {{{{ $value | humanize }}}} "
        "in the last ten minutes.",
        lasts="30m",
    ),
    Alert(
        "PrecisionStopUnreadable",
        f"max by ({INSTALLATION}) ({newest('precision_operator_stop_garbled')}) == 1",
        f"No agent starts{CLUSTER_NAME}: the stop's ConfigMap can't be read",
        f"The operator{INSTALLATION_NAME} can't read the ConfigMap that stops all agents, or its value is invalid: "
        "until it can, none starts.",
        lasts="15m",
    ),
    Alert(
        "PrecisionNodeConditionBlocked",
        _BLOCKED,
        f"Verdicts do not reach Nodes ({{{{ $labels.problem }}}}: {{{{ $value }}}}){CLUSTER_NAME}",
        f"The operator{INSTALLATION_NAME} can't write ComputeAccepted as it should: {{{{ $labels.problem }}}}.",
    ),
    Alert(
        "PrecisionOpenNodeFails",
        _FAILS,
        f"{{{{ $value }}}} nodes that take work fail ({{{{ $labels.problem }}}}){CLUSTER_NAME}",
        "Their ComputeAccepted is still True: drain them. FailUnconfirmed waits for a second run, FailHeld "
        "until a tenth of the pool or less was closed within a day.",
        lasts="1m",
        owner="hardware",
    ),
    Alert(
        "PrecisionDomainFails",
        _DOMAIN,
        f"{{{{ $value }}}} nodes of one rack fail together{CLUSTER_NAME}",
        "Three or more nodes of one rack fail, or were closed within a day: look at cooling and power before GPUs.",
        lasts="1m",
        owner="facility",
    ),
    Alert(
        "PrecisionUnreadable",
        _UNREADABLE,
        f"{{{{ $value }}}} {{{{ $labels.kind }}}} can't be read, and are not shown{CLUSTER_NAME}",
        f"The exporter{INSTALLATION_NAME} leaves out {{{{ $value }}}} {{{{ $labels.kind }}}} that it can't read: "
        "alerts and dashboards say nothing of what stands in them.",
        lasts="15m",
    ),
    Alert(
        "PrecisionNamespaceForbidden",
        f"count by ({INSTALLATION}) ({_REFUSED} or {once('precision_exporter_forbidden')} == 1)",
        f"Precision Profiler may not read {{{{ $value }}}} kinds{INSTALLATION_NAME}",
        f"The API server{CLUSTER_NAME} refuses (403) to list or watch them: it was deleted, or its RoleBinding was.",
    ),
    Alert(
        "PrecisionExporterDown",
        "precision:exporter_down",
        f"The metrics of Precision Profiler do not arrive{CLUSTER_NAME}",
        f"No exporter{INSTALLATION_NAME} is scraped, or not all of its /metrics/shard endpoints are, or only now and "
        "then. The alerts of its nodes, pools and profiles can't fire meanwhile.",
        lasts="1m",
    ),
    Alert(
        "PrecisionClusterMissing",
        f"precision:cluster_expected unless on({CLUSTER}) (precision:exporter_down or "
        'last_over_time(precision:program_seen{program="exporter"}[1h]))',
        f"No metrics of Precision Profiler{CLUSTER_NAME}",
        "For an hour nothing of its exporter has arrived here, and rules.clusters of the chart names it.",
        lasts="15m",
    ),
    Alert(
        "PrecisionExporterNearLimit",
        f"{once('precision_exporter_shards_needed')} * on({INSTALLATION}) group_right() "
        f"({once('precision_exporter_body_bytes')} / on({INSTALLATION}) group_left() "
        f"{once('precision_exporter_body_limit_bytes')} > {NEAR}) ^ 0",
        "{{ $labels.path }} of the exporter nears the size that scrapers take",
        f'{{{{ $labels.path }}}}{CLUSTER_NAME} is beyond {{{{ "{NEAR}" | humanizePercentage }}}} of 16 MiB. '
        '{{ if eq $labels.path "/metrics" }}It holds pools, profiles and plans: make them fewer.'
        "{{ else }}Set exporter.shards to {{ $value }}: from 90 % on nodes that come are left out.{{ end }}",
    ),
    Alert(
        "PrecisionMemoryNearLimit",
        _MEMORY,
        f"The {{{{ $labels.program }}}} uses {SHARE} of its memory limit{CLUSTER_NAME}",
        f"At 100 % the kernel kills the {{{{ $labels.program }}}}{INSTALLATION_NAME}. Raise "
        "{{ $labels.program }}.resources.limits.memory in the chart's values.",
    ),
)
