"""All alerts, as a group of a rule file. Each is an entry of alerts.yaml, where terms stand for words of several."""

from dataclasses import dataclass
from typing import Any

from precision_operator.exporter.fitting import NEAR
from precision_operator.exporter.fleet import LATE_SECONDS
from precision_operator.exporter.watch import LIST_SECONDS
from precision_operator.monitoring import rules


@dataclass(frozen=True)
class Alert:
    """One alert; alerts.yaml says what its fields mean."""

    name: str
    expr: str
    summary: str
    description: str
    lasts: str = "10m"
    asks: str = ""
    severity: rules.Severity = "warning"
    owner: str = "platform"


MEMORY_NEAR = "0.85"
_FIGURES = {
    "LATE_SECONDS": f"{LATE_SECONDS}",
    "NEAR": f"{NEAR}",
    "MEMORY_NEAR": MEMORY_NEAR,
    # A list is due after 1.1 times LIST_SECONDS, begins when a watch of 10 minutes ends, and waits for its turn.
    "EXPORTER_STUCK_SECONDS": f"{2 * LIST_SECONDS:.0f}",
}
ALERTS: tuple[Alert, ...] = tuple(
    Alert(name, **fields) for name, fields in rules.read("alerts.yaml", **_FIGURES)["alerts"].items()
)
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
