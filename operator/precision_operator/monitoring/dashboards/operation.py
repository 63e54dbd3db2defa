"""Operator: does the machinery work, how long do campaigns take, and what does the exporter cost."""

from typing import Any

from precision_operator.monitoring.dashboards.expressions import (
    CHOSEN_CLUSTER,
    CHOSEN_PROFILE,
    COMMON_CHOICES,
    PROFILE,
    lines,
    once,
    recorded,
)
from precision_operator.monitoring.dashboards.fleet import MADE_UP_NODES, QUEUED
from precision_operator.monitoring.dashboards.panel import Dashboard, Mark, Panel, Query, Step, row
from precision_operator.monitoring.dashboards.tables import banner, label, labels, table, value

NO_OPERATOR = "the operator's own metrics are not scraped"
NO_EXPORTER = "the exporter's own metrics are not scraped"
NO_RUN = "no run has ended since the operator started"
NO_CAMPAIGN = "no campaign is running"
LEVELS = (Mark("1 critical", "red", "critical"), Mark("2 warning", "orange", "warning"), Mark("3 info", "blue", "info"))
"""The rank comes first: sorted by name, info would come before warning."""
NOTHING_RAN = "no run ended in this time"

_POOLS = f'{CHOSEN_CLUSTER}, pool=~"$pool"'
_ALL = f"{{{CHOSEN_CLUSTER}}}"


def _rate(metric: str, by: str, *matchers: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{', '.join(matchers or (CHOSEN_CLUSTER,))}}}[10m]))"


def _series(title: str, text: str, unit: str, *queries: Query, no_value: str = NO_OPERATOR, **options: Any) -> Panel:
    return Panel("timeseries", title, text, unit, no_value, queries, (12, 8), minimum=0, **options)


def _ranked(*severities: str) -> str:
    """All alerts, their severity with its rank before it."""
    expr = (
        "max by (cluster, alertname, alertstate, severity, profile, pool, node) "
        f'(ALERTS{{alertname=~"Precision.+", {CHOSEN_CLUSTER}}})'
    )
    for ranked in severities:
        expr = f'label_replace({expr}, "severity", "{ranked}", "severity", "{ranked.partition(" ")[2]}")'
    return expr


CAMPAIGNS = row(
    "Campaigns",
    banner(MADE_UP_NODES),
    _series(
        "Open nodes of the campaigns",
        "Eligible nodes without a finished run, by profile: a line that stays level is a campaign that is stuck.",
        "nodes",
        Query(f"max by ({PROFILE}) ({recorded('profile_open_nodes', CHOSEN_PROFILE)})", "{{profile}} {{cluster}}"),
        no_value=NO_CAMPAIGN,
    ),
    table(
        "Time left",
        "What the operator expects for each campaign that is under way.",
        "seconds",
        NO_CAMPAIGN,
        *labels("cluster", "profile_namespace", "profile"),
        value(
            f"max by ({PROFILE}) ({recorded('profile_eta_timestamp_seconds', CHOSEN_PROFILE)}) - time() > 0",
            "Time left",
            "seconds",
            sort="desc",
        ),
        size=(12, 8),
        empty="no campaign is under way",
    ),
    table(
        "Alerts of precision",
        "What fires or is about to, critical ones first.",
        "count",
        "no alert",
        label("severity", marks=LEVELS, sort="asc"),
        *labels("alertstate", "alertname", "cluster", "profile", "pool", "node"),
        query=_ranked("1 critical", "2 warning", "3 info"),
        size=(24, 8),
        empty="no alert fires",
    ),
)

_BUCKETS = f"sum by (le, cluster, pool) (rate(precision_agent_run_duration_seconds_bucket{{{_POOLS}}}[1h]))"
RUNS = row(
    "Runs",
    _series(
        "Ended runs",
        "Runs of agents per minute by result; each replica counts its own work, so replicas are added.",
        "per_minute",
        Query(f"60 * {_rate('precision_agent_runs_total', 'result, reason', _POOLS)}", "{{result}}: {{reason}}"),
        empty=NOTHING_RAN,
        colours=lines("result", {"succeeded": "green", "failed": "red", "disrupted": "yellow"}),
        no_value=NO_RUN,
    ),
    _series(
        "Length of a run",
        "Median and 95th percentile over the last hour, by pool: what a measurement takes from a node.",
        "seconds",
        Query(f"histogram_quantile(0.5, {_BUCKETS})", "{{pool}} {{cluster}} median"),
        Query(f"histogram_quantile(0.95, {_BUCKETS})", "{{pool}} {{cluster}} 95 %"),
        empty=NOTHING_RAN,
        no_value=NO_RUN,
    ),
    _series(
        "Queue",
        "Nodes of all profiles by state in the operator's last pass: queued ones wait for their turn, waiting ones "
        "for their node to be free.",
        "nodes",
        Query(
            "sum by (state) (max by (cluster, namespace, state) "
            f'(precision_operator_queue_nodes{{{CHOSEN_CLUSTER}, state=~"waiting|queued|running"}}))',
            "{{state}}",
        ),
        colours=lines("state", QUEUED),
    ),
    _series(
        "Actions",
        "What the operator did, per minute, by kind.",
        "per_minute",
        Query(f"60 * {_rate('precision_operator_actions_total', 'action')}", "{{action}}"),
        empty="the operator had nothing to do",
    ),
)

_SPENT, _PASSES = "precision_operator_reconcile_seconds_sum", "precision_operator_reconcile_seconds_count"
MACHINERY = row(
    "Machinery",
    _series(
        "Reconcile duration",
        "Mean time of one reconcile of the last ten minutes.",
        "seconds",
        Query(f"sum (rate({_SPENT}{_ALL}[10m])) / sum (rate({_PASSES}{_ALL}[10m]))", "mean"),
    ),
    _series(
        "Passes that failed",
        "Reconciles per minute that ended early by an error of the API server.",
        "per_minute",
        Query(f"60 * sum (rate(precision_operator_reconcile_errors_total{_ALL}[10m]))", "failed"),
    ),
    _series(
        "Calls to the API server",
        "Per minute, by verb and answer.",
        "per_minute",
        Query(f"60 * {_rate('precision_operator_api_requests_total', 'verb, code')}", "{{verb}} {{code}}"),
    ),
    _series(
        "Age of what the operator knows",
        "Time since the last event or list of each kind, in the namespace that was heard from longest ago, of the "
        "replica that knows best; and how far the clocks of operator and API server differ, beyond 10 s.",
        "seconds",
        Query(
            f"max by (kind) (min by (cluster, kind, namespace) (precision_operator_watch_age_seconds{_ALL}))",
            "{{kind}}",
        ),
        Query(f"max (abs (precision_operator_clock_ahead_seconds{_ALL}))", "clocks differ"),
    ),
    Panel(
        "stat",
        "Leaders",
        "Replicas that lead, where the fewest do: 1 in good order. 0 for longer than a minute: nobody plans.",
        "count",
        NO_OPERATOR,
        (Query(f"min (sum by (cluster, namespace) (precision_operator_leader{_ALL}))"),),
        size=(12, 5),
        steps=(Step(None, "red"), Step(1, "green"), Step(2, "red")),
    ),
    Panel(
        "stat",
        "Stopped, not watched",
        "1 while an admin's switch holds or has ended all agents, and how many kinds no replica watches.",
        "count",
        NO_OPERATOR,
        (
            Query(f"max (precision_operator_stopped{_ALL})", "stopped"),
            Query(f"sum (1 - max by (cluster, kind, namespace) (precision_operator_watched{_ALL}))", "not watched"),
        ),
        size=(12, 5),
        steps=(Step(None, "green"), Step(1, "orange")),
        named=True,
    ),
)

_BODY = once("precision_exporter_body_bytes", CHOSEN_CLUSTER)
EXPORTER = row(
    "Exporter",
    _series(
        "Series of the exporter",
        "Samples in one scrape of all bodies: what the profiles cost Prometheus.",
        "count",
        Query(once("precision_exporter_series", CHOSEN_CLUSTER), "series"),
        no_value=NO_EXPORTER,
    ),
    _series(
        "Largest body, of its limit",
        "At 100 % a scraper refuses the body: give the exporter more shards before.",
        "percent",
        Query(f"max ({_BODY}) / max ({once('precision_exporter_body_limit_bytes', CHOSEN_CLUSTER)})", "largest body"),
        no_value=NO_EXPORTER,
    ),
    _series(
        "Time to render",
        "Mean of the last ten minutes, of building the bodies after a change.",
        "seconds",
        Query(
            f"sum (rate(precision_exporter_render_seconds_sum{_ALL}[10m])) / "
            f"sum (rate(precision_exporter_render_seconds_count{_ALL}[10m]))",
            "mean",
        ),
        empty="nothing was rendered in this time",
        no_value=NO_EXPORTER,
    ),
    table(
        "Reports that the exporter holds",
        "By state; an unreadable report is told in the exporter's log.",
        "count",
        NO_EXPORTER,
        label("state", sort="asc"),
        value(f"max by (state) ({once('precision_exporter_reports', CHOSEN_CLUSTER)})", "Reports", "count"),
        size=(12, 8),
    ),
)

UID = "precision-operator"
DASHBOARD = Dashboard(
    UID,
    "Precision: Operator",
    "Does the machinery work, how long do campaigns take, and what does the exporter cost.",
    (CAMPAIGNS, RUNS, MACHINERY, EXPORTER),
    COMMON_CHOICES,
    duration="24h",
)
