"""Clusters over time, as the real exporter and the real operator show them: what promtool's long tests are made of.

A story is a list of moments; each says what is in the cluster from then on. Times are seconds since 1970, which is
promtool's own beginning. Nothing here names a metric, so a metric that is renamed can't be missed.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any, cast
from unittest.mock import patch

from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster import Cluster
from precision_operator.cluster.watch_loop import WatchState
from precision_operator.exporter.body import build
from precision_operator.exporter.families.family import Level
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.exporter.watch import LIST_SECONDS, Watching
from precision_operator.exporter.watch import targets as exporter_targets
from precision_operator.handlers import targets
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
    throttled: bool = False
    """Whether heat slowed its clocks."""
    data: str = "simulated"
    """What its figures are."""

    def report(self, profile: str) -> dict[str, Any]:
        """Its NodePrecisionReport."""
        hot = {"throttledShare": "0.4", "throttleReason": "hardware_thermal"} if self.throttled else {}
        row = recipe_row("bf16", 1.0, verdict="verified", tokensPerSecond=f"{95_000 * self.rate:.1f}", **hot)
        row["tokensPerJoule"] = f"{19.5 * self.rate:.3f}"
        made = report_status([row], provenance=self.data, finishedAt=text_of(self.at), workloadHash=self.workload_hash)
        made["software"]["driver"], made["data"] = self.driver, self.data
        if self.data == "measured":
            made["run"]["simulated"] = []
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

    def changed(self, *nodes: Node, **changes: Any) -> "Profile":
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
    prometheus: bool = True
    pod: str = "exporter-0"
    """The exporter's: a new one has another."""
    shards: int = 1
    """The exporter's."""
    jobs: tuple[str, ...] = (TARGET["job"],)
    """Those that scrape it."""


@dataclass(frozen=True)
class Moment:
    """What is in the cluster from `at` on."""

    at: float
    profiles: tuple[Profile, ...]
    programs: Programs = Programs()

    def exporter(self, pod: str) -> bytes | None:
        """What a scrape of this exporter gives; None where nobody asks."""
        there = self.programs.exporter and self.programs.pod == pod
        return (exposed(self.profiles, self.programs.shards) if there else b"") if self.programs.prometheus else None

    def operator(self) -> bytes | None:
        """What a scrape of the operator gives; None where nobody asks."""
        return (OPERATOR_TEXT if self.programs.operator else b"") if self.programs.prometheus else None


def exposed(profiles: Sequence[Profile], shards: int = 1, level: Level = "node") -> bytes:
    """The exporter's text of these profiles: its store, its families, its own metrics."""
    store, metrics = Store(level), OwnMetrics(process=False)
    for profile in profiles:
        store.see(PROFILE_PLURAL, profile.raw())
        for node in profile.nodes:
            store.see(REPORT_PLURAL, node.report(profile.name))
    body = build(store.view(), shards)
    metrics.tell(body)
    return body.text + metrics.text()


class Heard(WatchState):
    def seconds_since_heard(self) -> float:
        return 10.0


def operator_text() -> bytes:
    """The text of an operator that leads and is well."""
    telemetry, kinds = Telemetry(), targets([NAMESPACE])
    telemetry.follow(lambda: True, kinds, {kind: Heard(watched=True) for kind in kinds})
    telemetry.saw_conditions({}, {"Unguarded": 0})
    return telemetry.text()


OPERATOR_TEXT = operator_text()


class Endless:
    """A cluster in which nothing happens: each watch ends after ten minutes."""

    async def list_trimmed(self, *_: object, **__: object) -> tuple[list[Any], str]:
        return [], "1"

    async def watch(self, *_: object, **__: object) -> AsyncIterator[Any]:
        await asyncio.sleep(10 * MINUTE)
        return
        yield


class Virtual(asyncio.SelectorEventLoop):
    """Where it would wait, its clock goes on at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector.select = self._go_on

    def time(self) -> float:
        return self.now

    def _go_on(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0.0
        return []


@cache
def last_lists(days: int) -> Sequence[int]:
    """By minute: what the real watch, with the chart's resync, says of its last list."""
    loop, metrics, times = Virtual(), OwnMetrics(process=False), []

    async def look() -> None:
        watching = Watching(
            cast(Cluster, Endless()), Store("node"), metrics, exporter_targets([NAMESPACE]), LIST_SECONDS
        )
        task = loop.create_task(watching.run())
        for minute in range(days * DAY // MINUTE + 1):
            await asyncio.sleep(minute * MINUTE - loop.time() + 1)
            times.append(int(metrics.last_list.collect()[0].samples[0].value))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    jitter = patch("random.uniform", Random(1).uniform)  # the same in each process: some last more than 40 minutes
    with patch("time.time", loop.time), jitter, closing(loop):
        loop.run_until_complete(look())
    return times


def series(
    cluster: str, moments: Sequence[Moment], until: float, step: float, rule_text: str | None = None
) -> list[dict[str, str]]:
    """promtool's input of one cluster's story, a sample each `step` seconds, of what the alerts read."""
    ordered = sorted(moments, key=lambda moment: moment.at)
    places = [round(moment.at / step) for moment in ordered] + [round(until / step) + 1]
    steps = [places[number + 1] - places[number] for number in range(len(ordered))]
    external = {"cluster": cluster} if cluster else {}
    text = rule_text or alerting()
    made = input_series([moment.operator() for moment in ordered], steps, (OPERATOR | external,), text)
    for pod in sorted({moment.programs.pod for moment in ordered}):
        target = TARGET | external | {"pod": pod, "instance": f"{pod}:9464"}
        targets = [target | {"job": job} for job in ordered[0].programs.jobs]
        made += input_series([moment.exporter(pod) for moment in ordered], steps, targets, text)
    lists = " ".join(str(at) for at in last_lists(round(until / DAY))[:: round(step / MINUTE)])
    return [*made, {"series": with_labels(LAST_LIST, TARGET | external | {"pod": "lists"}), "values": lists}]


def text_of(seconds: float) -> str:
    """A time as a custom resource has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
