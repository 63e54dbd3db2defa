"""The operator's own metrics, by prometheus-client: counters live in a process, not in objects that may be pruned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from precision_operator.core.plan import Plan


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
