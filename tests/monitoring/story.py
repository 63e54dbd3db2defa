"""Clusters over time, as the real exporter and the real operator show them: what promtool's long tests are made of.

A story is a list of moments; each says what is in the cluster from then on. Times are seconds since 1970, which is
promtool's own beginning. Nothing here names a metric, so a metric that is renamed can't be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster.watch_loop import WatchState
from precision_operator.exporter.body import build
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.handlers import targets
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.telemetry import Telemetry
from tests.monitoring.replay import LAST_LIST, OPERATOR, TARGET, alerting, input_series, with_labels
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status

NAMESPACE = "ml"
MINUTE, HOUR, DAY = 60, 3_600, 86_400


@dataclass(frozen=True)
class Node:
    """A node as its newest report says."""

    name: str
    at: float = 0.0
    """When its newest run with a result ended."""
    rate: float = 1.0
    """Its rate over what its product gives."""
    workload_hash: str = "5ad1f0c2"
    driver: str = "580.95.05"
    waits_for: str = ""
    """Why a new run is to replace its figures."""
    failed: str = ""
    """Why its newest attempt failed."""

    def report(self, profile: str) -> dict[str, Any]:
        """Its NodePrecisionReport."""
        row = recipe_row("bf16", 1.0, verdict="verified", tokensPerSecond=f"{95_000 * self.rate:.1f}")
        made = report_status([row], finishedAt=text_of(self.at), workloadHash=self.workload_hash)
        made["software"]["driver"] = self.driver
        if self.waits_for:
            stale = {"type": "Fresh", "status": "False", "reason": self.waits_for, "lastTransitionTime": text_of(0)}
            made["conditions"] = [stale]
        if self.failed:
            made["attempt"] |= {"outcome": "failed", "reason": self.failed, "run": "r2"}
        return report_object(self.name, profile, NAMESPACE, made)


@dataclass(frozen=True)
class Profile:
    """A profile with its nodes, and what the operator counts of them."""

    name: str
    nodes: tuple[Node, ...]
    spec: Mapping[str, Any] = field(default_factory=dict)
    phase: str = "Complete"
    queued: int = 0
    running: int = 0
    reason: str = ""
    """What its queued nodes wait for."""

    def changed(self, *nodes: Node, **changes: Any) -> Profile:
        """The profile with these nodes in the place of those of their names."""
        new = {node.name: node for node in nodes}
        return replace(self, nodes=tuple(new.get(node.name, node) for node in self.nodes), **changes)

    def raw(self) -> dict[str, Any]:
        """The PrecisionProfile."""
        retried = self.queued or self.running
        failed = 0 if retried else sum(bool(node.failed) for node in self.nodes)
        counts = {"matched": len(self.nodes), "eligible": len(self.nodes), "queued": self.queued}
        done = len(self.nodes) - failed - self.queued - self.running
        counts |= {"running": self.running, "failed": failed, "succeeded": done}
        status: dict[str, Any] = {"phase": self.phase, "nodes": counts}
        status["lastRun"] = text_of(max(node.at for node in self.nodes))
        if self.reason and self.queued:
            status["reasons"] = [{"reason": self.reason, "count": self.queued, "example": self.nodes[0].name}]
        made = profile_object(self.name, NAMESPACE, status=status)
        made["spec"] |= dict(self.spec)
        return made


@dataclass(frozen=True)
class Programs:
    """Whether exporter and operator are there."""

    exporter: bool = True
    operator: bool = True


@dataclass(frozen=True)
class Moment:
    """What is in the cluster from `at` on."""

    at: float
    profiles: tuple[Profile, ...]
    programs: Programs = Programs()

    def exporter(self) -> bytes:
        """What a scrape of the exporter gives."""
        return exposed(self.profiles) if self.programs.exporter else b""

    def operator(self) -> bytes:
        """What a scrape of the operator gives."""
        return OPERATOR_TEXT if self.programs.operator else b""


def exposed(profiles: Sequence[Profile]) -> bytes:
    """The exporter's text of these profiles: its store, its families, its own metrics."""
    store, own = Store("node"), OwnMetrics(process=False)
    for profile in profiles:
        store.see(PROFILE_PLURAL, profile.raw())
        for node in profile.nodes:
            store.see(REPORT_PLURAL, node.report(profile.name))
    body = build(store.view())
    own.tell(body)
    return body.text + own.text()


class Heard:
    def seconds_since_last_event(self, *_: object) -> float:
        return 10.0


def operator_text() -> bytes:
    """The text of an operator that leads and is well."""
    telemetry, kinds = Telemetry(), targets([NAMESPACE])
    telemetry.follow(lambda: True, cast(Cache, Heard()), kinds, {kind: WatchState(watched=True) for kind in kinds})
    return telemetry.text()


OPERATOR_TEXT = operator_text()


def series(
    cluster: str, moments: Sequence[Moment], until: float, step: float, rule_text: str | None = None
) -> list[dict[str, str]]:
    """promtool's input of one cluster's story, a sample each `step` seconds, of what the alerts read."""
    ordered = sorted(moments, key=lambda moment: moment.at)
    places = [round(moment.at / step) for moment in ordered] + [round(until / step) + 1]
    steps = [places[number + 1] - places[number] for number in range(len(ordered))]
    own = {"cluster": cluster} if cluster else {}
    lists = {"series": with_labels(LAST_LIST, TARGET | own), "values": f"0+{step:.0f}x{places[-1]}"}
    text = rule_text or alerting()
    return [
        *input_series([moment.exporter() for moment in ordered], steps, (TARGET | own,), text),
        *input_series([moment.operator() for moment in ordered], steps, (OPERATOR | own,), text),
        lists,
    ]


def text_of(seconds: float) -> str:
    """A time as a custom resource has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
