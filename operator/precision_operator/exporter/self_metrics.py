"""The exporter's metrics of itself, by prometheus-client: few, and they change with every scrape."""

from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, Summary

from precision_api.facts.names import PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster.container_memory import used_ratio
from precision_operator.cluster.watch_loop import WatchState, WatchTarget
from precision_operator.exporter.body import Body
from precision_operator.exporter.fitting import LIMIT_BYTES, NONE, PLAIN
from precision_operator.exporter.fleet import FleetState

KINDS: Mapping[str, str] = {PROFILE_PLURAL: "profiles", REPORT_PLURAL: "reports", PLAN_PLURAL: "plans"}
"""By plural: what the operator's metrics call the kind, too."""
_OBJECTS = {REPORT_PLURAL: "Reports", PROFILE_PLURAL: "Profiles", PLAN_PLURAL: "CapacityPlans"}


class OwnMetrics:
    """One registry of its own: the default one is the process's, and tests run several exporters in one process."""

    def __init__(self, process: bool = True) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=registry)
        gauge = partial(Gauge, registry=registry)
        build = gauge("precision_exporter_build_info", "Always 1; the exporter's version.", ["version"])
        build.labels(own_version()).set(1)
        self.render = Summary(
            "precision_exporter_render_seconds", "Time to put the bodies together after a change.", registry=registry
        )
        self._series = gauge("precision_exporter_series", "Fleet series in all bodies together.")
        self._shards = gauge("precision_exporter_shards", "Endpoints /metrics/shard/0 and on; each must be scraped.")
        self._needed = gauge("precision_exporter_shards_needed", "How many shards keep each one half full.")
        self._bytes = gauge("precision_exporter_body_bytes", "Size of what a path gives, uncompressed.", ["path"])
        gauge(
            "precision_exporter_body_limit_bytes",
            "Size from which scrapers refuse a body (vmagent's default); the log says what to do before it is reached.",
        ).set(LIMIT_BYTES)
        gauge(
            "precision_exporter_memory_ratio",
            "Memory of the exporter's container over its limit, without file cache; NaN: no limit.",
        ).set_function(used_ratio)
        self._left_out = gauge(
            "precision_exporter_left_out_nodes",
            "Nodes that a full shard has no room for: of which families (detail: those of that level; node: all).",
            ["families"],
        )
        self._without_room = gauge(
            "precision_exporter_left_out_objects", "Pools, profiles, plans and reports without room.", ["namespace"]
        )
        self._reports = gauge(
            "precision_exporter_reports",
            "Reports by what they give: shown, without_result (not measured yet), "
            "replaced (an older node, or a deleted profile, of the same name).",
            ["state"],
        )
        self._fleet = gauge(
            "precision_fleet_nodes",
            "Nodes that profiles can measure, each once: current (a result describes it as it is, and is no older than "
            "its profile asks for and a day), old (its results are older, or out of date), missing (it has none).",
            ["state"],
        )
        self._unreadable = {
            plural: gauge(
                f"precision_exporter_unreadable_{KINDS[plural]}",
                f"{objects} that are not shown because they can't be read; the log says why.",
            )
            for plural, objects in _OBJECTS.items()
        }
        self._forbidden = gauge(
            "precision_exporter_forbidden",
            "1 while the API server refuses to list a kind in a namespace for want of rights.",
            ["kind", "namespace"],
        )
        self.last_list = gauge(
            "precision_exporter_last_list_timestamp_seconds",
            "When all that is watched was last listed completely, or else the start, seconds since 1970.",
        )
        self.last_list.set_to_current_time()

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
        for state, count in zip(("shown", "without_result", "replaced"), counts, strict=True):
            self._reports.labels(state).set(count)
        self._needed.set(body.served.shards_needed)
        for families, part in (("detail", PLAIN), ("node", NONE)):
            self._left_out.labels(families).set(body.served.nodes(part))
        self._without_room.clear()
        for namespace, count in body.left_out.items():
            self._without_room.labels(namespace).set(count)
        self._fleet.clear()
        for node_state in get_args(FleetState) if body.fleet_nodes.profiles else ():
            self._fleet.labels(node_state).set_function(partial(body.fleet_nodes.count, node_state))
        for plural, count in body.unreadable.items():
            self._unreadable[plural].set(count)

    def text(self) -> bytes:
        """These metrics in the text format."""
        return prometheus_client.generate_latest(self._registry)


def own_version() -> str:
    try:
        return version("precision-profiler")
    except PackageNotFoundError:
        return "unpacked"
