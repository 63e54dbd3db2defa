"""The files that are made from the dashboards: Grafana's for the chart, Perses' for the lab and who runs Perses."""

from __future__ import annotations

from precision_operator.monitoring.dashboards import grafana, perses
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS

CHART_FOLDER = "charts/precision-profiler/files/dashboards"
PERSES_FOLDER = "docs/dashboards/perses"


def files() -> dict[str, str]:
    """Path within the repository to text. Needs the `dev` extra: Grafana's SDK writes Grafana's JSON."""
    made = {f"{CHART_FOLDER}/{dashboard.uid}.json": grafana.text(dashboard) for dashboard in DASHBOARDS}
    return made | {f"{PERSES_FOLDER}/{dashboard.uid}.json": perses.text(dashboard) for dashboard in DASHBOARDS}
