"""All alerts, as a group of a rule file. Each has a section of its name in the runbooks, and tests that it fires, stays
quiet and clears."""

from __future__ import annotations

from typing import Any

from precision_operator.monitoring.alert import Alert
from precision_operator.monitoring.fleet_alerts import FLEET_ALERTS
from precision_operator.monitoring.health_alerts import HEALTH_ALERTS

ALERTS: tuple[Alert, ...] = (*FLEET_ALERTS, *HEALTH_ALERTS)

RUNBOOKS = "https://github.com/precision-profiler/precision-profiler/blob/main/docs/runbooks.md"
"""Where the runbooks can be opened; a value of the chart puts another address in its place."""
GROUP = "precision-alerts"
INTERVAL = "1m"


def runbook(name: str, base: str = RUNBOOKS) -> str:
    """The address of an alert's section."""
    return f"{base}#{name.lower()}"


def group_document(
    alerts: tuple[Alert, ...] = ALERTS, base: str = RUNBOOKS, lasts: str | None = None
) -> dict[str, Any]:
    """The alerts as a group of a rule file; `lasts` is put in the place of each one's own `for`."""
    return {"name": GROUP, "interval": INTERVAL, "rules": [_document(alert, base, lasts) for alert in alerts]}


def _document(alert: Alert, base: str, lasts: str | None) -> dict[str, Any]:
    annotations = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": runbook(alert.name, base),
    }
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": lasts or alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": annotations,
    }
