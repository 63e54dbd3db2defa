"""The exporter's metrics of itself, by prometheus-client: few, and they change with every scrape."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)

from precision_api.facts.names import PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster.watch_loop import WatchState, WatchTarget
from precision_operator.exporter.body import LIMIT_BYTES, Body

KINDS: Mapping[str, str] = {PROFILE_PLURAL: "profiles", REPORT_PLURAL: "reports", PLAN_PLURAL: "plans"}
"""By plural: what the operator's metrics call the kind, too."""
_OBJECTS = {REPORT_PLURAL: "Reports", PROFILE_PLURAL: "Profiles", PLAN_PLURAL: "CapacityPlans"}
REPORT_STATES = ("shown", "without_result", "replaced")


class OwnMetrics:
    """One registry of its own: the default one is the process's, and tests run several exporters in one process."""

    def __init__(self, process: bool = True) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=registry)
        build = Gauge(
            "precision_exporter_build_info", "Always 1; the exporter's version.", ["version"], registry=registry
        )
        build.labels(own_version()).set(1)
        self.render = Summary(
            "precision_exporter_render_seconds", "Time to put the bodies together after a change.", registry=registry
        )
        self._series = Gauge("precision_exporter_series", "Fleet series in all bodies together.", registry=registry)
        self._shards = Gauge(
            "precision_exporter_shards", "Endpoints /metrics/shard/0 and on; each must be scraped.", registry=registry
        )
        self._bytes = Gauge(
            "precision_exporter_body_bytes", "Size of what a path gives, uncompressed.", ["path"], registry=registry
        )
        limit = Gauge(
            "precision_exporter_body_limit_bytes",
            "Size from which scrapers refuse a body (vmagent's default); the log says what to do before it is reached.",
            registry=registry,
        )
        limit.set(LIMIT_BYTES)
        self._reports = Gauge(
            "precision_exporter_reports",
            "Reports by what they give: shown, without_result (not measured yet), "
            "replaced (an older node, or a deleted profile, of the same name).",
            ["state"],
            registry=registry,
        )
        self._unreadable = {
            plural: Gauge(
                f"precision_exporter_unreadable_{KINDS[plural]}",
                f"{objects} that are not shown because they can't be read; the log says why.",
                registry=registry,
            )
            for plural, objects in _OBJECTS.items()
        }
        self._forbidden = Gauge(
            "precision_exporter_forbidden",
            "1 while the API server refuses to list a kind in a namespace for want of rights.",
            ["kind", "namespace"],
            registry=registry,
        )
        self.last_list = Gauge(
            "precision_exporter_last_list_timestamp_seconds",
            "When all that is watched was last listed completely, seconds since 1970.",
            registry=registry,
        )

    def follow(self, states: Mapping[WatchTarget, WatchState]) -> None:
        """Show with each scrape which kinds may not be read where."""
        for target, state in states.items():
            labels = (KINDS[target.plural], target.namespace or "")
            self._forbidden.labels(*labels).set_function(partial(getattr, state, "forbidden"))

    def tell(self, body: Body) -> None:
        """Take over what a new body says of itself."""
        self._series.set(body.series)
        self._shards.set(len(body.shards))
        for path, size in body.sizes().items():
            self._bytes.labels(path).set(size)
        counts = (body.shown_reports, body.empty_reports, body.replaced_reports)
        for state, count in zip(REPORT_STATES, counts, strict=True):
            self._reports.labels(state).set(count)
        for plural, count in body.unreadable.items():
            self._unreadable[plural].set(count)

    def text(self) -> bytes:
        """These metrics in the text format."""
        return generate_latest(self._registry)


def own_version() -> str:
    """This program's version."""
    try:
        return version("precision-profiler")
    except PackageNotFoundError:
        return "unpacked"
