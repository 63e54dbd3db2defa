"""The files that are made from the dashboards: Grafana's, for the chart."""

from __future__ import annotations

from precision_operator.monitoring.dashboards import grafana
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS

CHART_FOLDER = "charts/precision-profiler/files/dashboards"


def files() -> dict[str, str]:
    """Path within the repository to text. Needs the `dev` extra: Grafana's SDK writes Grafana's JSON."""
    return {f"{CHART_FOLDER}/{dashboard.uid}.json": grafana.text(dashboard) for dashboard in DASHBOARDS}
