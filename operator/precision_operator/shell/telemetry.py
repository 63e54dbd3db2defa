"""The operator's own metrics, by prometheus-client: counters live in a process, not in objects that may be pruned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from precision_operator.core.plan import Plan
from precision_operator.shell.cache import KINDS, Cache


class Telemetry:
    """Counts passes and actions; `text` is what a scrape reads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._seconds = Histogram(
            "precision_operator_reconcile_seconds", "Duration of one pass over all profiles.", registry=self._registry
        )
        self._errors = Counter(
            "precision_operator_reconcile_errors", "Passes that ended early by an API error.", registry=self._registry
        )
        self._actions = Counter(
            "precision_operator_actions", "Actions that plans held, by kind.", ["action"], registry=self._registry
        )
        self._profiles = Gauge("precision_operator_profiles", "Profiles that are watched.", registry=self._registry)

        self._leader = Gauge(
            "precision_operator_leader",
            "1 while this replica leads: it alone plans and writes. 0 while it stands by.",
            registry=self._registry,
        )
        self._age = Gauge(
            "precision_operator_watch_age_seconds",
            "Time since the last watch event or complete list, by kind. Lists come every ten minutes at least.",
            ["kind"],
            registry=self._registry,
        )

    def follow(self, leads: Callable[[], bool], cache: Cache) -> None:
        """Tell with each scrape whether this replica leads, and how old what it knows is."""
        self._leader.set_function(leads)
        for kind in KINDS:
            self._age.labels(kind).set_function(partial(cache.age, kind))

    @contextmanager
    def reconcile(self) -> Iterator[None]:
        """Times one pass and counts it if it fails."""
        with self._seconds.time(), self._errors.count_exceptions():
            yield

    def saw(self, decided: Plan) -> None:
        """Count what a plan held."""
        self._profiles.set(len(decided.profiles))
        for action in decided.actions:
            self._actions.labels(type(action).__name__).inc()

    def text(self) -> bytes:
        """The exposition text of all of it."""
        return bytes(generate_latest(self._registry))
