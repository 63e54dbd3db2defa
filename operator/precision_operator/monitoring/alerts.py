"""All alerts, as a group of a rule file. Each has a section of its name in the runbooks, and tests that it fires, stays
quiet and clears."""

from typing import Any

from precision_operator.exporter.fitting import NEAR
from precision_operator.exporter.fleet import LATE_SECONDS
from precision_operator.monitoring import rules
from precision_operator.monitoring.alert import Alert
from precision_operator.monitoring.fleet_alerts import FLEET_ALERTS
from precision_operator.monitoring.health_alerts import HEALTH_ALERTS

ALERTS: tuple[Alert, ...] = (*FLEET_ALERTS, *HEALTH_ALERTS)

THRESHOLDS = {
    "PrecisionPoolDegraded": rules.DEGRADED_BELOW,
    "PrecisionPoolFarBelowBest": rules.FAR_BELOW,
    "PrecisionThrottledInProfile": "0",
    "PrecisionProfileStale": f"{LATE_SECONDS}",
    "PrecisionEnergyRegression": rules.ENERGY_BELOW,
    "PrecisionReconcileErrors": "3",
    "PrecisionExporterNearLimit": f"{NEAR}",
}
"""The number in an alert's expression that a value of the chart may replace: its annotation says which."""
GROUP = "precision-alerts"
INTERVAL = "1m"


def runbook(name: str, base: str) -> str:
    """The address of an alert's section of the runbooks, which can be opened at `base`."""
    return f"{base}#{name.lower()}"


def group_document(alerts: tuple[Alert, ...] = ALERTS, runbooks: str = "", lasts: str | None = None) -> dict[str, Any]:
    """The alerts as a group of a rule file.

    `runbooks` is where the runbooks can be opened; only with it has each alert a runbook_url, since nobody but the user
    knows that address. `lasts` is put in the place of each one's own `for`.
    """
    return {"name": GROUP, "interval": INTERVAL, "rules": [_document(alert, runbooks, lasts) for alert in alerts]}


def _document(alert: Alert, runbooks: str, lasts: str | None) -> dict[str, Any]:
    annotations = {"summary": alert.summary, "description": alert.description}
    if alert.name in THRESHOLDS:
        annotations["threshold"] = THRESHOLDS[alert.name]
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({} if alert.asks and not lasts else {"for": lasts or alert.lasts}),
        "labels": {"severity": alert.severity, "owner": alert.owner},
        "annotations": annotations | ({"runbook_url": runbook(alert.name, runbooks)} if runbooks else {}),
    }
