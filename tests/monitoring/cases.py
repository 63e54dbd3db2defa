"""Small worlds for the rules: series with their values a minute apart, and which alerts fire at which minute.

All cases are evaluated together, each in a cluster of its own: that none disturbs another is part of what they show.
The series are written by hand; that their names and labels are the exporter's is tested beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_operator.monitoring.alerts import ALERTS, THRESHOLDS
from tests.monitoring.replay import NAMED, OPERATOR, TARGET, firing, with_labels, with_stale_markers

PROFILE = 'profile_namespace="ml",profile="nightly"'
POOL = f'{PROFILE},pool="gb200"'
N1 = f'{POOL},node="n1",workload="w"'
RECIPE = f'{POOL},workload="w",recipe="mxfp8"'
ALIKE = 'workload_hash="h1",scope="all",data="measured"'
LEVEL = f"precision_pool_training_level_tokens_per_second{{{RECIPE},{ALIKE}}}"
POOL_INFO = f'precision_pool_info{{{POOL},nodes_of="ml/nightly"}}'
ALIVE = {
    "precision_exporter_build_info": "1x2000",
    "precision_exporter_shards": "1x2000",
    'precision_exporter_shard_series{index="0"}': "100x2000",
    "precision_operator_leader": "1x2000",
    POOL_INFO: "1x2000",
}
"""Programs that are well, and a pool: without them their alerts would stand in every case, and none of its nodes."""
MEASURED = {f"precision_node_last_success_timestamp_seconds{{{N1}}}": "0x1000"}
"""A node with a result."""

OF_PROFILE = {"profile_namespace": "ml", "profile": "nightly"}
IN_POOL = {**OF_PROFILE, "pool": "gb200"}
HARDWARE = {"pool": "gb200", "nodes_of": "ml/nightly", "profile_namespace": "ml"}
HOST = {**HARDWARE, "node": "n1"}
"""Of alerts that stand for all profiles."""
INSTALLED = {"namespace": TARGET["namespace"]}


@dataclass(frozen=True)
class Case:
    """One world. Its `alert` fires at the minutes `fires`, with these `labels`; at the minutes `quiet` nothing does.

    `summary` is what it says in the last minute of `fires`.
    """

    alert: str
    series: Mapping[str, str]
    quiet: tuple[int, ...]
    fires: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    name: str = ""
    alive: Mapping[str, str] = field(default_factory=lambda: ALIVE)
    step: int = 1
    """Minutes between values, and between evaluations: more for a world of days, looked at where there are values."""
    each_of: tuple[str, ...] = ()
    """Nodes that all have the alert, and the one beside it."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Another alert that fires with it, by its name and labels."""

    @property
    def alertname(self) -> str:
        """The alert's full name."""
        return f"Precision{self.alert}"

    @property
    def cluster(self) -> str:
        """What its series say, so that the cases do not mix."""
        return self.name or self.alertname

    def input_series(self) -> list[dict[str, str]]:
        series = {**self.alive, **self.series}
        targets = (("", TARGET), ("o", OPERATOR), ("recorded", {}))
        of_cluster = {name: {**labels, "cluster": self.cluster} for name, labels in targets}
        return [
            {
                "series": with_labels(
                    s, of_cluster["o" if s.startswith("precision_operator") else "recorded" if ":" in s else ""]
                ),
                "values": with_stale_markers(values),
            }
            for s, values in series.items()
        ]

    def words(self, **annotations: str) -> dict[str, Any]:
        """promtool's test of this world alone: the one alert with all its labels and its summary."""
        (alert,) = (row for row in ALERTS if row.name == self.alertname)
        texts = {"summary": self.summary, "threshold": THRESHOLDS.get(alert.name), **annotations}
        fired = {
            "exp_labels": {"severity": alert.severity, "owner": alert.owner, "cluster": self.cluster, **self.labels},
            "exp_annotations": {name: words for name, words in texts.items() if words},
        }
        return {
            "interval": f"{self.step}m",
            "input_series": self.input_series(),
            "alert_rule_test": [{"eval_time": f"{self.fires[-1]}m", "alertname": alert.name, "exp_alerts": [fired]}],
        }

    def looks(self) -> list[dict[str, Any]]:
        """promtool's tests of what fires in this cluster."""
        alert, beside = (
            {"cluster": self.cluster} | {label: labels[label] for label in labels.keys() & NAMED.split(", ")}
            for labels in ({"alertname": self.alertname, **self.labels}, self.beside)
        )
        both = [alert, beside] if self.beside else [alert]
        expected = [it | {"node": node} for node in self.each_of for it in both] or both
        at = [(minute, expected) for minute in self.fires] + [(minute, []) for minute in self.quiet]
        return [firing(f"{minute}m", *alerts, cluster=self.cluster) for minute, alerts in at]


def world(cases: Sequence[Case]) -> dict[str, Any]:
    """All of these in one promtool test: they have one step."""
    (step,) = {case.step for case in cases}
    return {
        "interval": f"{step}m",
        "input_series": [series for case in cases for series in case.input_series()],
        "promql_expr_test": [look for case in cases for look in case.looks()],
    }


def verdict(name: str) -> str:
    return f'precision_node_verification{{{N1},recipe="mxfp8",verdict="{name}"}}'


def nodes(phase: str) -> str:
    return f'precision_profile_nodes{{{PROFILE},phase="{phase}"}}'


def of_node(family: str, labels: str = "") -> str:
    return f"{family}{{{N1}{',' if labels else ''}{labels}}}"


def medians(values: str, of: str = "24x500") -> dict[str, str]:
    """A pool's level, and how many nodes there are."""
    return {LEVEL: values, f'precision_pool_nodes{{{POOL},phase="fresh"}}': of}
