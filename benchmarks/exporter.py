"""What a scrape of a large fleet costs: rendered once and joined, against a custom collector of prometheus-client.

    python -m benchmarks.exporter [--nodes 10000] [--pools 8] [--shards 8] [--level node] [--fleets 1000 5000 10000]

Both give the same node series of the same reports; each runs in a process of its own, so that the peak of its memory is
its own. Ours also works out the pools, which the other leaves to Prometheus. A changed report is the dearest there is:
the node falls behind, so that the median of its pool moves, and with it what each of its nodes is beside the others.
Then the process as a whole for each of the fleets: see benchmarks/exporter_process.py.
"""

import argparse
import gc
import gzip
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from benchmarks import exporter_process
from precision_api.facts.names import REPORT_PLURAL
from precision_operator.core.results.reading import Reading
from precision_operator.exporter.body import Body, build
from precision_operator.exporter.chunks import gzipped
from precision_operator.exporter.families.family import LEVELS, Level
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.families.table import NODE_FAMILIES
from precision_operator.exporter.fitting import LIMIT_BYTES
from precision_operator.exporter.reading import read_report
from precision_operator.exporter.store import Store
from tests.support.report_objects import recipe_row, report_object, report_status

RECIPES = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
MIB = 2**20
STATES = ("nothing", "one report", "1 % of reports")
"""What has changed since the scrape before."""


@dataclass(frozen=True)
class Figures:
    """What one side took: seconds of CPU by what was done, node series, peak MiB of memory, bytes of bodies."""

    seconds: dict[str, float]
    series: int
    peak_mib: float
    bodies: tuple[int, ...] = ()


class Theirs:
    """A collector that holds parsed reports and makes metric objects of them at each scrape."""

    def __init__(self, results: list[Reading], level: Level) -> None:
        self._results = results
        self._families = [family for family in NODE_FAMILIES if Selection(level).shows(family)]

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for result in self._results:
                for labels, value in family.full_rows(result):
                    metric.add_metric(labels, value)
            yield metric


def report(index: int, pools: int, rate: float, version: int = 100) -> dict[str, Any]:
    """A report of five recipes; `rate` is the node's over what it should be."""
    rows = [recipe_row(recipe, (1 + place / 10) * rate) for place, recipe in enumerate(RECIPES)]
    status = report_status(rows, workload="llama3-8b")
    status["hardware"]["pool"] = f"pool-{index % pools}"
    return report_object(f"gb200-{index:05}", status=status, resourceVersion=str(version))


def reports(nodes: int, pools: int) -> Iterator[dict[str, Any]]:
    """Reports of nodes whose rates lie within 1 %, in no order."""
    return (report(index, pools, 1 + index * 7919 % 9973 / 1e6) for index in range(nodes))


def fallen_behind(count: int, nodes: int, pools: int, version: int) -> Iterator[dict[str, Any]]:
    """`count` of the same reports after another run, of nodes of all pools."""
    return (report(index * 101 % nodes, pools, 0.97 + index / 1e6, version) for index in range(count))


def quickest(act: Callable[[], object], times: int = 3) -> float:
    """Seconds of CPU of the quickest of `times` runs: all of it is work, and a busy machine makes it no longer."""
    taken: list[float] = []
    for _ in range(times):
        began = time.process_time()
        act()
        taken.append(time.process_time() - began)
    return min(taken)


def scraped(body: Body) -> list[bytes]:
    """What a scrape of all endpoints gets, compressed."""
    return [b"".join(gzipped(packed)) for packed in (body.fleet_packed, *(shard.packed for shard in body.shards))]


def ours(nodes: int, pools: int, shards: int, level: Level) -> Figures:
    """Our exporter, from raw reports to all bodies of a scrape."""
    store, seconds = Store(level), {}

    def see(objects: Iterable[dict[str, Any]]) -> None:
        for raw in objects:
            store.see(REPORT_PLURAL, raw)

    seconds["read and render all reports (once in a process)"] = quickest(lambda: see(reports(nodes, pools)), 1)
    seconds["first scrape of all bodies, gzip"] = quickest(lambda: scraped(build(store.view(), shards)), 1)
    body = build(store.view(), shards)
    seconds[f"scrape of all bodies, {STATES[0]} changed, gzip"] = quickest(lambda: scraped(body))
    seconds[f"scrape of all bodies, {STATES[0]} changed, plain"] = quickest(lambda: [s.text() for s in body.shards])
    for version, (what, count) in enumerate(zip(STATES[1:], (1, nodes // 100), strict=True), 101):
        changed = list(fallen_behind(count, nodes, pools, version))
        seconds[f"read and render {what}"] = quickest(lambda changed_reports=changed: see(changed_reports), 1)
        seconds[f"scrape of all bodies, {what} changed, gzip"] = quickest(
            lambda: scraped(build(store.view(), shards, body))
        )
    series = sum(shard.series for shard in body.shards)
    return Figures(seconds, series, peak_mib(), (body.fleet_packed.size, *(s.packed.size for s in body.shards)))


def theirs(nodes: int, pools: int, level: Level) -> Figures:
    """A custom collector over the same parsed reports."""
    results = [found for raw in reports(nodes, pools) if (found := read_report(raw, "w"))]
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


def show(name: str, figures: Figures) -> None:
    """Print one side's figures."""
    print(f"{name}: {figures.series} node series, peak memory {figures.peak_mib:.0f} MiB")
    for what, seconds in figures.seconds.items():
        print(f"  {what:<56} {seconds:8.4f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pools", type=int, default=8)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--level", choices=LEVELS[1:], default="node")
    parser.add_argument("--fleets", type=int, nargs="*", default=[1_000, 5_000, 10_000])
    options = parser.parse_args()
    mine = apart(ours, options.nodes, options.pools, options.shards, options.level)
    other = apart(theirs, options.nodes, options.pools, options.level)
    fleet = f"{options.nodes} nodes in {options.pools} pools"
    print(f"{fleet}, {len(RECIPES)} recipes, level {options.level}, {options.shards} shards; seconds of CPU\n")
    show("ours", mine)
    first, *bodies = mine.bodies
    sizes = ", ".join(f"{size / MIB:.1f}" for size in bodies)
    print(f"  MiB of each shard: {sizes} (limit {LIMIT_BYTES // MIB}); /metrics: {first / MIB:.2f}\n")
    show("prometheus-client", other)
    for state in STATES:
        ratio = other.seconds["scrape, gzip"] / mine.seconds[f"scrape of all bodies, {state} changed, gzip"]
        print(f"\nours is {ratio:.0f} times as fast with {state} changed, compressed (goal: 20)")
    print()
    exporter_process.main(options.fleets, options.pools)


if __name__ == "__main__":
    main()
