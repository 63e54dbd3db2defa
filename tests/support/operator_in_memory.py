"""The operator's own loop on an API server in memory: objects go in, what it writes is looked at."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import encode
from precision_operator.cluster import ApiError, paths
from precision_operator.core.observe.clock import format_time
from precision_operator.handlers import targets
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import Gatherer
from precision_operator.shell.observing.refusals import RefusedCreations
from precision_operator.shell.observing.yields import Yields
from precision_operator.shell.reconcile import Reconciler
from precision_operator.shell.switch import Switch
from precision_operator.shell.telemetry import Telemetry
from tests.support.fake_cluster import FakeCluster, agent_pod
from tests.support.node_objects import node_object
from tests.support.report_objects import profile_object
from tests.support.result_objects import result
from tests.support.world import SETTINGS, WORKLOAD

NAMESPACE = "ml"
SYSTEM, STOP = "precision-system", "precision-profiler-stop"
JOBS, REPORTS, PODS = paths.jobs(NAMESPACE), paths.reports(NAMESPACE), paths.pods(NAMESPACE)
PROFILES = paths.profiles(NAMESPACE)
CLASSES = paths.collection("scheduling.k8s.io/v1", "priorityclasses")


class OperatorInMemory:
    """A fake cluster with its operator; `once` is one pass after everything has been listed."""

    def __init__(
        self, *nodes: str, namespaces: tuple[str, ...] = (NAMESPACE,), cluster: FakeCluster | None = None
    ) -> None:
        """Without a `cluster` that is there, one of its own."""
        own = cluster or FakeCluster((CLASSES, {"metadata": {"name": SETTINGS.priority_class}}))
        self.cluster: Any = own
        self.offset = timedelta()
        """How far the world's clock is ahead of `clock`."""
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.cluster.created = self._now()
        for name in nodes:
            self.cluster._store(f"{paths.NODES}/{name}", node_object(name=name))
        self.cache, self.telemetry = Cache(SETTINGS.allowed_images), Telemetry()
        refusals = RefusedCreations()
        self.switch = Switch(self.cluster, SYSTEM, STOP, self.cache.changed.set)
        self.yields = Yields(self.cluster, self.cache, SETTINGS.device_class, self.telemetry.yielded, lambda: self.now)
        self.now = datetime.now(UTC) - timedelta(minutes=1)
        """When pods are seen to wait: a minute ago, unless a test changes it."""
        self.actor = Actor(self.cluster, self.cache, refusals, self.yields.begun, self._clock)
        self.gatherer = Gatherer(
            self.cluster,
            self.cache,
            SETTINGS,
            namespaces,
            refusals=refusals,
            stop=lambda: self.switch.stop,
            creating=self.actor.creations.jobs,
            yields=self.yields,
        )
        self.reconciler = Reconciler(self.cache, self.gatherer, self.actor, self.telemetry)
        self.telemetry.follow_stop(lambda: self.switch.stop)

    def apply(self, name: str, namespace: str = NAMESPACE, **spec: Any) -> None:
        """A profile of one GEMM over all nodes, with these fields of its spec."""
        raw = profile_object(name, status={}, creationTimestamp="2026-11-20T00:00:00Z", generation=1)
        raw["metadata"]["namespace"] = namespace
        self.cluster._store(f"{paths.profiles(namespace)}/{name}", raw | {"spec": {"workload": WORKLOAD} | spec})

    async def begin(self, name: str, namespace: str = NAMESPACE, **spec: Any) -> float:
        self.apply(name, namespace, **spec)
        return await self.once()

    def say(self, **data: str) -> None:
        """An admin writes the ConfigMap that stops all agents."""
        self.cluster._store(f"{paths.config_maps(SYSTEM)}/{STOP}", {"metadata": {"name": STOP}, "data": data})

    def say_nothing(self) -> None:
        """An admin deletes it."""
        del self.cluster.objects[f"{paths.config_maps(SYSTEM)}/{STOP}"]

    async def once(self) -> float:
        """One pass; seconds until the next one is due. A profile's status is written however young the last one is."""
        await self.switch.look()
        await self.list_everything()
        self.reconciler._written.clear()
        return await self.reconciler.once()

    async def list_everything(self) -> None:
        """What the watches list first; what may not be read, or is not served, is left out."""
        for target, kind in targets(self.gatherer._namespaces, self.gatherer._settings.resource_claims).items():
            with suppress(ApiError):
                if kind:
                    await self.gatherer.list_one(kind, target.namespace)

    def status(self, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        return dict(self.cluster.objects[f"{paths.profiles(namespace)}/{name}"].get("status") or {})

    def condition(self, name: str, kind: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        return next(row for row in self.status(name, namespace)["conditions"] if row["type"] == kind)

    def jobs(self, namespace: str = NAMESPACE) -> dict[str, dict[str, Any]]:
        """The Jobs that are there, by their node's name."""
        there = f"{paths.jobs(namespace)}/"
        found = [body for path, body in self.cluster.objects.items() if path.startswith(there)]
        return {body["metadata"]["annotations"]["precisionprofiler.io/node"]: body for body in found}

    def measured(self) -> list[str]:
        """Names of the nodes whose report has a result."""
        found = [body for path, body in self.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
        return sorted(body["spec"]["nodeName"] for body in found if (body.get("status") or {}).get("run"))

    def run_agents(self) -> None:
        """Each Job gets a pod that runs since now."""
        for job in self.jobs().values():
            self._pod(job, "Running", {"running": {"startedAt": self._now()}})

    def end_agent(self, node: str, outcome: MeasurementResult | None = None) -> str:
        """The agent of the node ends with a good result, or with this `outcome`; the name of its pod."""
        job = self.jobs()[node]
        meta = job["metadata"]
        job["status"] = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": self._now()}]}
        digest = meta["annotations"]["precisionprofiler.io/request-hash"]
        named = {"run": meta["labels"]["precisionprofiler.io/run"], "request_hash": digest, "node": node}
        published = encode(outcome.model_copy(update=named) if outcome is not None else result(**named))
        ended = {"terminated": {"exitCode": 0, "message": published.message.decode()}}
        name = self._pod(job, "Succeeded", ended)
        self.cluster._store(f"{JOBS}/{meta['name']}", job)
        self.cluster.logs[name] = "\n".join(published.lines).encode()
        return name

    def fail_agent(self, node: str) -> None:
        """The agent of the node ends with an error, and says nothing."""
        job = self.jobs()[node]
        failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": self._now()}
        self._pod(job, "Failed", {"terminated": {"exitCode": 1, "message": ""}})
        self.cluster._store(f"{JOBS}/{job['metadata']['name']}", job | {"status": {"conditions": [failed]}})

    def collect_garbage(self) -> None:
        there = {body["metadata"]["name"] for body in self.jobs().values()}
        for path in [path for path in self.cluster.objects if path.startswith(f"{PODS}/")]:
            if path.rsplit("/", 1)[1].removesuffix("-x") not in there:
                del self.cluster.objects[path]

    def _pod(self, job: dict[str, Any], phase: str, state: dict[str, Any]) -> str:
        raw = agent_pod(job, phase, state, creationTimestamp=self._now())
        name = str(raw["metadata"]["name"])
        self.cluster._store(f"{PODS}/{name}", raw)
        return name

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of the operator's own metrics; 0 where there is none."""
        return self.telemetry._registry.get_sample_value(name, labels) or 0.0

    def _clock(self) -> datetime:
        return self.clock() + self.offset

    def _now(self) -> str:
        return format_time(self._clock())
