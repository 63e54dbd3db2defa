"""The exporter's metrics of itself, by prometheus-client: few, and they change with every scrape."""

import json
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, Summary

from precision_api.facts.names import PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster.container_memory import used_ratio
from precision_operator.cluster.watch_loop import WatchState, WatchTarget
from precision_operator.exporter.body import Body
from precision_operator.exporter.fitting import LIMIT_BYTES, NONE, PLAIN
from precision_operator.exporter.fleet import FleetState

KINDS: Mapping[str, str] = {REPORT_PLURAL: "reports", PROFILE_PLURAL: "profiles", PLAN_PLURAL: "plans"}
"""By plural: what the operator's metrics call the kind, too."""
HELP: Mapping[str, str] = json.loads(files(__package__).joinpath("metrics.json").read_text(encoding="utf-8"))


class OwnMetrics:
    """One registry of its own: the default one is the process's, and tests run several exporters in one process."""

    def __init__(self, process: bool = True) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=registry)

        def gauge(name: str, *labels: str) -> Gauge:
            return Gauge(name, HELP[name], labels, registry=registry)

        gauge("precision_exporter_build_info", "version").labels(own_version()).set(1)
        seconds = "precision_exporter_render_seconds"
        self.render = Summary(seconds, HELP[seconds], registry=registry)
        self._series = gauge("precision_exporter_series")
        self._shards = gauge("precision_exporter_shards")
        self._needed = gauge("precision_exporter_shards_needed")
        self._bytes = gauge("precision_exporter_body_bytes", "path")
        gauge("precision_exporter_body_limit_bytes").set(LIMIT_BYTES)
        gauge("precision_exporter_memory_ratio").set_function(used_ratio)
        self._left_out = gauge("precision_exporter_left_out_nodes", "families")
        self._without_room = gauge("precision_exporter_left_out_objects", "namespace")
        self._reports = gauge("precision_exporter_reports", "state")
        self._fleet = gauge("precision_fleet_nodes", "state")
        self._unreadable = {plural: gauge(f"precision_exporter_unreadable_{kind}") for plural, kind in KINDS.items()}
        self._forbidden = gauge("precision_exporter_forbidden", "kind", "namespace")
        self.last_list = gauge("precision_exporter_last_list_timestamp_seconds")
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
