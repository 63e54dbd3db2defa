"""How long each panel's query takes on a real Prometheus.

    python -m benchmarks.dashboards [--nodes 10000]

A simulated fleet's bodies, made by the real exporter at metricsLevel node, are scraped by the lab's Prometheus with the
real rules. A week of recorded series (a sample every five minutes) and of one node's own series is written before, so
that panels over seven days have seven days to read. Ends with 1 when a query takes longer than the goal.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from precision_lab.monitoring.backfill import import_samples, sample
from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_lab.pictures.sweep_server import serve
from precision_lab.pictures.sweeps import DAY, Sweep, sweeps
from precision_lab.processes.processes import Processes, launch
from precision_operator.exporter.body import build
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.monitoring import rule_file
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.panel import Dashboard, Panel

GOAL_SECONDS = 2.0
SHARDS = 8
STEP = 300.0
WIDTH_STEPS = 400
"""Points of a time series across a panel."""


@dataclass(frozen=True)
class NodeLevel:
    """What the exporter serves of a sweep at metricsLevel node, the chart's default."""

    bodies: Mapping[str, bytes]


@dataclass(frozen=True)
class Took:
    """One query: the first time, with nothing cached, and the best of the next two."""

    dashboard: str
    title: str
    way: str
    series: int
    first: float
    again: float


def node_level(sweep: Sweep) -> NodeLevel:
    """Rendered and built by the exporter's own code."""
    store = Store("node")
    for profile in sweep.profiles:
        store.see(PROFILE_PLURAL, profile)
    for report in sweep.reports:
        store.see(REPORT_PLURAL, report)
    body = build(store.view(), SHARDS)
    own_metrics = OwnMetrics(process=False)
    own_metrics.tell(body)
    shards = {f"/metrics/shard/{shard.index}": shard.text() for shard in body.shards}
    return NodeLevel({"/metrics": body.fleet + own_metrics.text(), **shards})


def start(processes: Processes, target: Target, seconds: float = 30.0) -> Prometheus:
    """Prometheus with the rules as they are shipped, but for their interval."""
    rules = processes.run_dir / "rules.yaml"
    rules.write_text(rule_file.text(interval="30s", lasts="0s"))
    data = processes.run_dir / "data"
    return start_prometheus(processes, PrometheusSettings((target,), (rules,), seconds, 30.0, data=data))


def write_week(prometheus: Prometheus, node: str) -> int:
    """A week of today's recorded series and of one node's series, up to an hour ago; the number of series."""
    now = time.time()
    selectors = ('{__name__=~"precision:.+"}', f'{{__name__=~"precision_node_.+", node="{node}"}}')
    samples = [sample for selector in selectors for sample in prometheus.query(selector)]
    prometheus.stop()
    import_samples(_week([(dict(sample.labels), str(sample.value)) for sample in samples], now - 3600), prometheus.data)
    return len(samples)


def _week(series: list[tuple[dict[str, str], str]], end: float) -> Iterator[str]:
    for labels, value in series:
        name = labels.pop("__name__")
        yield from (sample(name, labels, value, end - back * STEP) for back in range(int(7 * DAY / STEP), 0, -1))


def measure(prometheus: Prometheus, dashboard: Dashboard, panel: Panel, expr: str) -> Took:
    """Asks as the panel asks, three times."""
    taken, series = [], 0
    instant = panel.kind not in ("timeseries", "heatmap")
    for _ in range(3):
        began = time.perf_counter()
        end = time.time()
        if instant:
            series = len(prometheus.query(expr))
        else:
            series = len(prometheus.query_range(expr, end - 7 * DAY, end, 7 * DAY / WIDTH_STEPS))
        taken.append(time.perf_counter() - began)
    way = "now" if instant else "7 days"
    return Took(dashboard.uid.removeprefix("precision-"), panel.title, way, series, taken[0], min(taken[1:]))


def asked(dashboard: Dashboard, node: str) -> Iterator[tuple[Panel, str]]:
    """Every query with every choice open, and this node."""
    values = {variable.name: variable.default or ".*" for variable in dashboard.variables} | {"node": node}
    for panel in dashboard.panels:
        for query in panel.queries:
            yield panel, re.sub(r"\$(\w+)", lambda match: values[match.group(1)], query.expr)


def table(rows: list[Took]) -> str:
    """The slowest first."""
    lines = [f"{'dashboard':<10} {'panel':<60} {'reads':<7} {'series':>7} {'first s':>8} {'again s':>8}"]
    for row in sorted(rows, key=lambda row: -row.first):
        cells = (row.dashboard, row.title, row.way, row.series, row.first, row.again)
        lines.append("{:<10} {:<60} {:<7} {:>7} {:>8.3f} {:>8.3f}".format(*cells))
    return "\n".join(lines)


def main() -> int:
    """Prints the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    options = parser.parse_args()
    sweep = sweeps(options.nodes, 7, start=time.time() - 4 * DAY)[4]
    served = node_level(sweep)
    size = sum(map(len, served.bodies.values()))
    lines = sum(body.count(b"\n") for body in served.bodies.values())
    processes = launch()
    try:
        with serve(served) as address:
            target = Target("precision-exporter", address, tuple(served.bodies))
            prometheus = start(processes, target)
            prometheus.wait_for("precision:pool_degraded", 300)
            print(f"{options.nodes} simulated nodes, {lines} lines, {size / 2**20:.0f} MiB in {SHARDS} shards")
            print(f"a week of {write_week(prometheus, sweep.planted.slow)} series every {STEP / 60:.0f} minutes")
            prometheus = start(processes, target)
            prometheus.wait_for('ALERTS{alertname="PrecisionNodeSlow"}', 300)
            rows = [
                measure(prometheus, dashboard, panel, expr)
                for dashboard in DASHBOARDS
                for panel, expr in asked(dashboard, sweep.planted.slow)
            ]
    finally:
        processes.end()
    print(table(rows))
    slow = [row for row in rows if row.first > GOAL_SECONDS]
    print(f"{len(rows)} queries, {len(slow)} above the goal of {GOAL_SECONDS:.0f} s")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
