"""What a scrape of a large fleet costs: rendered once and joined, against a custom collector of prometheus-client.

    python -m benchmarks.exporter [--nodes 10000] [--shards 8] [--level node]

Both give the same node series of the same reports; each runs in a process of its own, so that the peak of its memory is
its own. Ours also works out the pools, which the other leaves to Prometheus.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from precision_operator.exporter.body import LIMIT_BYTES, build
from precision_operator.exporter.families import NODE_FAMILIES
from precision_operator.exporter.family import LEVELS, Level, shown_at
from precision_operator.exporter.pieces import gzipped
from precision_operator.exporter.reading import NodeResult, read_report
from precision_operator.exporter.store import Store
from tests.support.report_objects import recipe_row, report_object, report_status

RECIPES = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
MIB = 2**20


@dataclass(frozen=True)
class Figures:
    """What one side took: seconds of CPU by what was done, node series, peak MiB of memory, bytes of bodies."""

    seconds: dict[str, float]
    series: int
    peak_mib: float
    bodies: tuple[int, ...] = ()


class Theirs:
    """A collector that holds parsed reports and makes metric objects of them at each scrape."""

    def __init__(self, results: list[NodeResult], level: Level) -> None:
        self._results = results
        self._families = [family for family in NODE_FAMILIES if shown_at(level, family.level)]

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for result in self._results:
                for labels, value in family.rows(result):
                    metric.add_metric(labels, value)
            yield metric


def reports(nodes: int) -> Iterator[dict[str, Any]]:
    """Reports of five recipes each; the nodes' rates differ a little."""
    for index in range(nodes):
        rows = [recipe_row(recipe, 1 + place / 10 + index % 97 / 10000) for place, recipe in enumerate(RECIPES)]
        status = report_status(rows, workload="llama3-8b")
        status["hardware"]["pool"] = f"pool-{index % 8}"
        yield report_object(f"gb200-{index:05}", status=status)


def quickest(act: Callable[[], object], times: int = 3) -> float:
    """Seconds of CPU of the quickest of `times` runs: all of it is work, and a busy machine makes it no longer."""
    taken: list[float] = []
    for _ in range(times):
        began = time.process_time()
        act()
        taken.append(time.process_time() - began)
    return min(taken)


def ours(nodes: int, shards: int, level: Level) -> Figures:
    """Our exporter, from raw reports to all bodies of a scrape."""
    store, seconds = Store(level), {}

    def fill() -> None:
        for report in reports(nodes):
            store.see_report(report)

    seconds["read and render all reports (once in a process)"] = quickest(fill, 1)
    seconds["put all bodies together and compress them (once)"] = quickest(lambda: build(store.view(), shards), 1)
    body = build(store.view(), shards)

    def scrape() -> list[bytes]:
        return [gzipped(body.fleet_packed), *(gzipped(shard.packed) for shard in body.shards)]

    seconds["scrape of all bodies, nothing changed, gzip"] = quickest(scrape)
    seconds["scrape of all bodies, nothing changed, plain"] = quickest(lambda: [s.text() for s in body.shards])
    changed = report_object("gb200-00000", status=report_status(), resourceVersion="101")
    seconds["read and render one changed report"] = quickest(lambda: store.see_report(changed), 1)
    seconds["scrape of all bodies, one report changed, gzip"] = quickest(
        lambda: [gzipped(s.packed) for s in build(store.view(), shards, body).shards]
    )
    series = sum(shard.series for shard in body.shards)
    return Figures(seconds, series, peak_mib(), (body.fleet_packed.size, *(s.packed.size for s in body.shards)))


def theirs(nodes: int, level: Level) -> Figures:
    """A custom collector over the same parsed reports."""
    results = [found for report in reports(nodes) if (found := read_report(report, "w"))]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Theirs(results, level))
    seconds = {"scrape, plain": quickest(lambda: generate_latest(registry))}
    text = generate_latest(registry)
    seconds["scrape, gzip"] = seconds["scrape, plain"] + quickest(lambda: gzip.compress(text, 1), 1)
    return Figures(seconds, sum(not line.startswith(b"#") for line in text.splitlines()), peak_mib(), (len(text),))


def peak_mib() -> float:
    """The most memory that this process has held, MiB."""
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(act: Callable[..., Figures], *arguments: object) -> Figures:
    """What `act` gives in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(act, arguments)


def show(name: str, found: Figures) -> None:
    """Print one side's figures."""
    print(f"{name}: {found.series} node series, peak memory {found.peak_mib:.0f} MiB")
    for what, seconds in found.seconds.items():
        print(f"  {what:<56} {seconds:8.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--level", choices=LEVELS[1:], default="node")
    told = parser.parse_args()
    mine, other = apart(ours, told.nodes, told.shards, told.level), apart(theirs, told.nodes, told.level)
    print(f"{told.nodes} nodes, {len(RECIPES)} recipes, level {told.level}, {told.shards} shards\n")
    show("ours", mine)
    fleet, *bodies = mine.bodies
    sizes = ", ".join(f"{size / MIB:.1f}" for size in bodies)
    print(f"  MiB of each shard: {sizes} (limit {LIMIT_BYTES // MIB}); /metrics: {fleet / MIB:.2f}\n")
    show("prometheus-client", other)
    for state in ("nothing", "one report"):
        ratio = other.seconds["scrape, gzip"] / mine.seconds[f"scrape of all bodies, {state} changed, gzip"]
        print(f"\nours is {ratio:.0f} times as fast with {state} changed, compressed (goal: 20)")


if __name__ == "__main__":
    main()
