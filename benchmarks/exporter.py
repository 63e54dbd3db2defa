"""How long a scrape takes: rendered once and joined, against a custom collector of prometheus-client.

    python -m benchmarks.exporter [--nodes 10000]

Both give the same samples of the same reports in the same process; the first run of ours renders everything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from precision_operator.exporter.body import build, pack
from precision_operator.exporter.families import NODE_FAMILIES
from precision_operator.exporter.reading import NodeResult, read_report
from precision_operator.exporter.store import Store
from tests.support.report_objects import recipe_row, report_object, report_status

RECIPES = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")


class Theirs:
    """A collector that holds parsed reports and makes metric objects of them at each scrape."""

    def __init__(self, results: list[NodeResult]) -> None:
        self._results = results

    def collect(self) -> Iterator[Metric]:
        for family in NODE_FAMILIES:
            metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for result in self._results:
                for labels, value in family.rows(result):
                    metric.add_metric(labels, value)
            yield metric


def timed(what: str, act: Callable[[], object], times: int = 3) -> None:
    """Print the quickest of `times` runs."""
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    print(f"{what:<62} {min(taken):8.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    nodes: int = parser.parse_args().nodes
    status = report_status([recipe_row(recipe, 1 + index / 10) for index, recipe in enumerate(RECIPES)])
    reports = [report_object(f"gb200-{index:05}", status=status) for index in range(nodes)]
    registry, store = CollectorRegistry(auto_describe=False), Store()
    registry.register(Theirs([found for report in reports if (found := read_report(report, "w"))]))

    timed("ours: read and render all reports (once in a process)", lambda: [*map(store.see_report, reports)], times=1)
    body = build(store.view())
    print(f"{nodes} nodes, {body.series} series, {len(body.text) / 2**20:.1f} MiB\n")
    one = report_object("gb200-00000", status=report_status(), resourceVersion="101")
    timed("ours: read and render one changed report", lambda: store.see_report(one), times=1)
    timed("ours: put the body together after a change", lambda: build(store.view()))
    timed("ours: compress it", lambda: pack(body.text))
    packed = pack(body.text)
    timed("ours: a scrape without a change, gzip", lambda: packed.finish(b"end"))
    timed("prometheus-client: a scrape by a custom collector", lambda: generate_latest(registry))


if __name__ == "__main__":
    main()
