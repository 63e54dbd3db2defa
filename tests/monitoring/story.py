"""Clusters over time, as the real exporter and the real operator show them: what promtool's long tests are made of.

A story is a list of moments; each says what is in the cluster from then on. Times are seconds since 1970, which is
promtool's own beginning. Nothing here names a metric, so a metric that is renamed can't be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from precision_operator.cluster.watch_loop import WatchState
from precision_operator.exporter.body import build
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.handlers import targets
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.telemetry import Telemetry
from tests.monitoring.replay import LAST_LIST, OPERATOR, TARGET, alerting, input_series, with_labels
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status, without_energy

NAMESPACE = "ml"
MINUTE, HOUR, DAY = 60, 3_600, 86_400
POOL = "NVIDIA-GB200"
SPEEDUPS = {"bf16": 1.0, "mxfp8": 1.37}


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
    data: str = "measured"
    tokens_per_joule: float = 1.0
    waits_for: str = ""
    """Why a new run is to replace its figures."""
    failed: str = ""
    """Why its newest attempt failed."""
    quarantined: bool = False
    throttled: bool = False
    fallback: bool = False
    power_valid: bool = True
    domain: str = "rack-1"
    recipes: tuple[str, ...] = ("bf16",)

    def report(self, profile: str) -> dict[str, Any]:
        """Its NodePrecisionReport."""
        backend = "transformer-engine" if self.data == "measured" else "torch-cpu" if self.data == "trial" else "replay"
        provenance = "measured" if self.data in ("measured", "trial") else self.data
        made = report_status(
            [self._row(recipe, SPEEDUPS[recipe]) for recipe in self.recipes],
            finishedAt=text_of(self.at),
            workloadHash=self.workload_hash,
            provenance=provenance,
            backend=backend,
            simulated=["watts"] if provenance == "simulated" else [],
        )
        made["software"]["driver"] = self.driver
        made["hardware"]["nvlinkDomain"] = self.domain
        if self.waits_for:
            stale = {"type": "Fresh", "status": "False", "reason": self.waits_for, "lastTransitionTime": text_of(0)}
            made["conditions"] = [stale]
        if self.failed:
            made["attempt"] |= {"outcome": "failed", "reason": self.failed, "run": "r2"}
        if self.quarantined:
            made["quarantine"] = {"since": text_of(0), "reason": self.failed}
        return report_object(self.name, profile, NAMESPACE, made)

    def _row(self, recipe: str, speedup: float) -> dict[str, Any]:
        rate = 95_000 * speedup * self.rate
        changes: dict[str, Any] = {"tokensPerSecond": f"{rate:.1f}", "verdict": "verified"}
        if self.fallback and recipe != "bf16":
            changes["verdict"] = "fallback"
        if self.throttled:
            changes |= {"throttledShare": "0.250", "throttleReason": "software_thermal"}
        if not self.power_valid:
            return without_energy(recipe, speedup) | changes
        return recipe_row(recipe, speedup, **changes, tokensPerJoule=f"{20 * speedup * self.tokens_per_joule:.4f}")


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
    """How operator and exporter fare."""

    leads: bool = True
    heard_seconds: float = 10.0
    """Since the operator has heard of a kind."""
    errors: int = 0
    """Passes that failed since the start."""
    forbidden: bool = False
    exporter: bool = True
    """Whether the exporter is there."""
    operator: bool = True


@dataclass(frozen=True)
class Moment:
    """What is in the cluster from `at` on."""

    at: float
    profiles: tuple[Profile, ...]
    programs: Programs = Programs()
    broken: int = 0
    """Reports that nobody can read."""

    def exporter(self) -> bytes:
        """What a scrape of the exporter gives."""
        return exposed(self.profiles, self.broken) if self.programs.exporter else b""

    def operator(self) -> bytes:
        """What a scrape of the operator gives."""
        return told(self.programs) if self.programs.operator else b""


def exposed(profiles: Sequence[Profile], broken: int = 0) -> bytes:
    """The exporter's text of these profiles: its store, its families, its own metrics."""
    store, own = Store("node"), OwnMetrics(process=False)
    for profile in profiles:
        store.see_profile(profile.raw())
        for node in profile.nodes:
            store.see_report(node.report(profile.name))
    for number in range(broken):
        store.see_report(report_object(f"broken-{number}", "nightly", NAMESPACE, {"results": "?"}))
    body = build(store.view())
    own.tell(body)
    return body.text + own.text()


@cache
def told(programs: Programs) -> bytes:
    """The operator's text."""

    class Heard:
        def seconds_since_last_event(self, *_: object) -> float:
            return programs.heard_seconds

    telemetry, kinds = Telemetry(), targets([NAMESPACE])
    states = {
        target: WatchState(watched=True, forbidden=programs.forbidden and bool(target.namespace)) for target in kinds
    }
    telemetry.follow(lambda: programs.leads, cast(Cache, Heard()), kinds, states)
    for _ in range(programs.errors):
        with suppress(ConnectionError), telemetry.reconcile():
            raise ConnectionError
    return telemetry.text()


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
