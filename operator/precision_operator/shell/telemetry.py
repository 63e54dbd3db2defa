"""The operator's own metrics, by prometheus-client: counters live in a process, not in objects that may be pruned.

With what the kubelet and Prometheus ask it for (is the API reached, what has been counted), and the log of faults: each
is counted, and logged with its trace when it is new.
"""

import json
import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar, get_args

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from precision_api.kinds.report import ReportAttempt
from precision_operator.cluster.container_memory import used_ratio
from precision_operator.cluster.http_server import probes
from precision_operator.cluster.watch_loop import WatchState, WatchTarget
from precision_operator.core.attempts.actions import Close, Collect
from precision_operator.core.attempts.faults import Fault, Where
from precision_operator.core.attempts.node_state import newest_attempt
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.observe.stop import Stop
from precision_operator.core.plan import Plan
from precision_operator.core.reasons import Kind
from precision_operator.shell.observing.cache import ObjectKind

MOST_POOLS, OTHER_POOLS = 100, "others"
"""Most pools of a namespace with series of their own: `poolLabel: kubernetes.io/hostname` makes each node one."""
MOST_SEEN = 1_000
"""Of those who look, of how many the last faults are kept: each plan is one, and a tenant makes any number."""
RUN_BUCKETS = (30.0, 60.0, 120.0, 300.0, 450.0, 600.0, 900.0, 1800.0, 2700.0, 5400.0)
"""Seconds: a quick run takes minutes, and no agent may take longer than an hour and a half."""
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_METRICS: Mapping[str, Mapping[str, Any]] = json.loads(files(__package__).joinpath("metrics.json").read_text("utf-8"))
"""By name, its help and labels."""
_log = logging.getLogger(__name__)
Metric = TypeVar("Metric")


@dataclass(frozen=True)
class Ended:
    """One attempt that has ended: where, whose, how, why, and how long it took in seconds (None: never began)."""

    pool: str
    namespace: str
    result: str
    reason: str
    seconds: float | None


def ended(plan: Plan) -> Iterator[Ended]:
    """The attempts whose end the actions of this pass have written; one whose report does not tell it yet is left out.

    It is there again in the next pass, so each attempt is counted once. Of a node that is gone the action itself tells.
    """
    states = {profile.profile.uid: profile.node_states for profile in plan.profiles}
    for action in plan.actions:
        if not isinstance(action, Collect | Close):
            continue
        job = action.job
        state = states[job.profile_uid].by_uid.get(job.node_uid) if job.profile_uid in states else None
        newest = newest_attempt(state.report) if state is not None else None
        if state is None and isinstance(action, Close):
            yield Ended("", job.namespace, action.outcome, action.reason, None)
        elif state and newest and (newest.run, newest.number) == (job.run, job.attempt):
            yield Ended(state.facts.pool, job.namespace, newest.outcome, newest.reason or "Measured", _seconds(newest))


def _seconds(attempt: ReportAttempt) -> float | None:
    if attempt.started_at is None:
        return None
    return (parse_time(attempt.finished_at) - parse_time(attempt.started_at)).total_seconds()


def _metric(kind: Callable[..., Metric], name: str, **more: Any) -> Metric:
    return kind(name, _METRICS[name]["help"], _METRICS[name]["labels"], **more)


class Telemetry:
    """Counts passes, actions, runs and requests; `text` is what a scrape reads."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self._pools: dict[str, set[str]] = {}
        """Names of pools that have series, by the namespace whose runs were in them."""
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        counter, gauge = partial(_metric, Counter, registry=registry), partial(_metric, Gauge, registry=registry)
        histogram = partial(_metric, Histogram, registry=registry)
        self._seconds = histogram("precision_operator_reconcile_seconds")
        self._errors = counter("precision_operator_reconcile_errors")
        self._faults = counter("precision_operator_faults")
        for where in get_args(Where):
            self._faults.labels(where)
        self._actions = counter("precision_operator_actions")
        self._runs = counter("precision_agent_runs")
        self._run_seconds = histogram("precision_agent_run_duration_seconds", buckets=RUN_BUCKETS)
        self._yields = counter("precision_operator_yields")
        for outcome in ("Helped", "NotHelped", "Taken", "Gone"):
            self._yields.labels(outcome)
        self._requests = counter("precision_operator_api_requests")
        self._watch_ends = counter("precision_operator_watch_ends")
        self._watches: dict[tuple[str, str], WatchState] = {}
        self._profiles = gauge("precision_operator_profiles")
        self._nodes = gauge("precision_operator_queue_nodes")
        self._conditions = gauge("precision_operator_node_conditions")
        self._condition_problems = gauge("precision_operator_node_condition_problems")
        self._strangers = gauge("precision_operator_strangers")
        self._stopped = gauge("precision_operator_stopped")
        self._garbled = gauge("precision_operator_stop_garbled")
        self._leader = gauge("precision_operator_leader")
        self._clock_ahead = gauge("precision_operator_clock_ahead_seconds")
        gauge("precision_operator_memory_ratio").set_function(used_ratio)
        self._age = gauge("precision_operator_watch_age_seconds")
        self._watched = gauge("precision_operator_watched")
        self._forbidden = gauge("precision_operator_forbidden")

    def follow(
        self,
        leads: Callable[[], bool],
        kinds: Mapping[WatchTarget, ObjectKind | None],
        states: Mapping[WatchTarget, WatchState],
    ) -> None:
        """Show with each scrape whether this replica leads, and how each of its watches fares."""
        self._leader.set_function(leads)
        for target, state in states.items():
            kind, namespace = kinds[target], target.namespace
            labels = (kind or "plans", namespace or "")
            self._watched.labels(*labels).set_function(partial(getattr, state, "watched"))
            self._forbidden.labels(*labels).set_function(partial(getattr, state, "forbidden"))
            self._watches[labels] = state
            self._age.labels(*labels).set_function(state.seconds_since_heard)

    def follow_clock(self, ahead_seconds: Callable[[], float]) -> None:
        """Show with each scrape how far this machine's clock is ahead."""
        self._clock_ahead.set_function(ahead_seconds)

    def follow_stop(self, stop: Callable[[], Stop | None]) -> None:
        """Show with each scrape whether an admin has stopped all agents."""

        def is_so(mode: str) -> float:
            stopped = stop()
            return float(stopped is not None and stopped.mode == mode)

        for mode in ("Hold", "End"):
            self._stopped.labels(mode).set_function(partial(is_so, mode))
        self._garbled.set_function(lambda: float((stopped := stop()) is not None and stopped.garbled))

    def saw_conditions(self, tally: Mapping[tuple[str, str, str], int], problems: Mapping[str, float]) -> None:
        """Nodes by pool, status and reason of their condition, and what is wrong with these."""
        self._conditions.clear()
        for row, number in tally.items():
            self._conditions.labels(*row).set(number)
        for problem, value in problems.items():
            self._condition_problems.labels(problem).set(value)

    @contextmanager
    def reconcile(self) -> Iterator[None]:
        """Times one pass and counts it if it fails."""
        with self._seconds.time(), self._errors.count_exceptions():
            yield

    def saw(self, decided: Plan, strangers: int = 0) -> None:
        """Count what a plan held, as it is after its actions: the profiles must be decided anew since."""
        self._strangers.set(strangers)
        self._profiles.set(len(decided.profiles))
        states = sum((profile.node_states.kinds for profile in decided.profiles), Tally[Kind]())
        for state in ("skipped", "waiting", "queued", "running", "succeeded", "failed"):
            self._nodes.labels(state).set(states[state])
        for action in decided.actions:
            self._actions.labels(type(action).__name__).inc()
        for run in ended(decided):
            pool = self._shown(run.pool, run.namespace)
            self._runs.labels(pool, run.result, run.reason).inc()
            if run.result == "succeeded" and run.seconds is not None:
                self._run_seconds.labels(pool).observe(run.seconds)

    def _shown(self, pool: str, namespace: str) -> str:
        """The pool's name, or OTHER_POOLS for one that comes after MOST_POOLS others of the namespace."""
        pools = self._pools.setdefault(namespace, set())
        if len(pools) < MOST_POOLS:
            pools.add(pool)
        return pool if pool in pools else OTHER_POOLS

    def fault(self, where: str) -> None:
        """Count one exception that cost one object its turn."""
        self._faults.labels(where).inc()

    def yielded(self, outcome: str) -> None:
        """Count what came of one agent that was ended for a pod of others."""
        self._yields.labels(outcome).inc()

    def requested(self, verb: str, status: int) -> None:
        """Count one request to the API server; status 0 where no answer came."""
        self._requests.labels(verb, str(status)).inc()

    def text(self) -> bytes:
        self._watch_ends.clear()
        for labels, state in self._watches.items():
            self._watch_ends.labels(*labels).inc(state.ends)
        return bytes(generate_latest(self._registry))


def application(readiness: Callable[[], tuple[int, str]], metrics: Callable[[], bytes]) -> web.Application:
    """The probes, and /metrics: the process's own."""

    async def scraped(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": _TEXT})

    served = probes(readiness)
    served.add_routes([web.get("/metrics", scraped)])
    return served


def readiness_of(ready: bool, unserved: Mapping[str, str]) -> tuple[int, str]:
    """Status and words of /readyz: everything was listed once; and a line for each namespace that is not served.

    A replica that stands by is ready: a rollout waits for the new pods before it ends the old one that leads.
    """
    text = "ok\n" if ready else "the first complete list is not done yet: is the API server reached?\n"
    lines = [f"namespace {name} is not served: may not list {why}\n" for name, why in sorted(unserved.items())]
    return 200 if ready else 503, "".join([text, *lines])


class FaultLog:
    """Counts every fault; logs one with its trace when it comes, and again after it had gone."""

    def __init__(self, count: Callable[[str], None] = lambda where: None) -> None:
        """`count` is called with the place of each fault."""
        self._count = count
        self._seen: dict[str, set[tuple[str, str]]] = {}
        """Faults of the last look, by who looks: name and exception."""

    def looked(self, who: str, faults: Iterable[Fault]) -> bool:
        """Take in all faults of one look of `who` at everything; whether there are any."""
        now: set[tuple[str, str]] = set()
        for fault in faults:
            mark = (f"{fault.where} {fault.name}", fault.why)
            self._count(fault.where)
            if mark not in self._seen.get(who, ()) and mark not in now:
                _log.error("PlanFailed: %s: it is left out and tried again", mark[0], exc_info=fault.error)
            now.add(mark)
        self._seen.pop(who, None)
        self._seen |= {who: now} if now else {}
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return bool(now)
