"""What the programs, etcd and Prometheus take at a size of fleet: the table of docs/scale.md.

    python -m benchmarks.sizes [SIZE ...] [--json]              a SIZE is NODESxPROFILES: 1000x3
    python -m benchmarks.sizes --page                           writes the table from benchmarks/results/sizes.json

Each profile has measured every node; the objects are made up (replayed results), and so are the fleets. The operator's
peak is that of its start, of the first pass and of a sweep of 200 agents, by the stand-in of `benchmarks.reconcile`.
The exporter's is that of its start, of a scrape and of a change of every report, as in `benchmarks.exporter`. A real
Prometheus with the shipped rules scrapes that exporter 24 times. etcd: by what 500 reports and details, written to a
real API server as the operator writes them, its file grows, times their number. Memory and bytes alone are measured,
which other load on the machine changes little. `--json` writes rows to benchmarks/results/sizes.json, then the page.
"""

import argparse
import asyncio
import base64
import gzip
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from benchmarks.dashboards import start
from benchmarks.exporter_process import Process, StandIn, measured, served
from benchmarks.large_fleet import NAMESPACE, Fleet
from benchmarks.reconcile import AGENTS, SWEEP, SWEPT_SHARE, provenance, write
from benchmarks.reconcile import measured as operated
from precision_api.facts.names import API_VERSION, REPORT_KIND
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.monitoring.prometheus import NAME, Target
from precision_lab.processes.processes import launch
from precision_lab.release.install import install
from precision_operator.cluster import paths
from tests.support.api_server import MERGE_PATCH, ApiServer

RESULTS = Path(__file__).parent / "results/sizes.json"
PAGE = Path(__file__).parents[1] / "docs/scale.md"
TABLE = re.compile(r"(?<=<!-- written by `make sizes` -->\n).*(?=<!-- end of what is written -->)", re.DOTALL)
SIZES = ((1_000, 1), (1_000, 3), (1_000, 8), (5_000, 1), (10_000, 1), (10_000, 3), (10_000, 8), (10_000, 20))
"""The rows of the page: one that is missing in the file has not been run."""
POOLS, REPORTS_PER_SHARD = 4, 1_000
SCRAPES, SCRAPE_SECONDS = 24, 5.0
WRITTEN, MIB = 500, 2**20
COLUMNS = {"operatorMiB": "operator", "exporterMiB": "exporter", "prometheusMiB": "Prometheus", "etcdMiB": "etcd"}
Row = dict[str, Any]


async def operator_mib(fleet: Fleet) -> float:
    """The operator's peak."""
    profiles, agents = len(fleet.profiles), min(AGENTS, SWEPT_SHARE * fleet.nodes)

    async def counts_all(now: dict[str, Any]) -> bool:
        return len(now["statuses"]) == profiles

    async def sweeping(now: dict[str, Any]) -> bool:
        return bool(now["agents"] >= agents)

    async with operated(fleet) as operator:
        await operator.spent(operator.ready)
        await operator.spent(counts_all)
        await operator.quiet()
        await operator.command("sweep", nodes=int(SWEPT_SHARE * fleet.nodes), rollout=SWEEP)
        await operator.spent(sweeping)
        await operator.quiet()
        return operator.figures.peak_mib


async def exporter_mib(nodes: int, profiles: int) -> float:
    """The exporter's peak."""
    figures = await measured(nodes, POOLS, shards(nodes, profiles), profiles)
    return max(figures.start_peak_mib, figures.burst_peak_mib)


def shards(nodes: int, profiles: int) -> int:
    """As docs/scale.md advises."""
    return max(1, nodes * profiles // REPORTS_PER_SHARD)


async def prometheus_mib(nodes: int, profiles: int) -> float:
    """The peak of a Prometheus that scrapes the exporter for a while."""
    async with served(StandIn(nodes, POOLS, profiles), shards(nodes, profiles)) as (_, url):
        endpoints = ("/metrics", *(f"/metrics/shard/{number}" for number in range(shards(nodes, profiles))))
        target = Target("precision-exporter", url.removeprefix("http://"), endpoints)
        return await asyncio.to_thread(_scraped, target)


def _scraped(target: Target) -> float:
    processes = launch()
    try:
        prometheus = start(processes, target, SCRAPE_SECONDS)
        prometheus.wait_for("precision:pool_degraded", 300)
        time.sleep(SCRAPES * SCRAPE_SECONDS)
        return Process(processes.states()[NAME].pid).peak_mib()
    finally:
        processes.end()


def etcd_bytes(fleet: Fleet) -> tuple[float, float]:
    """Bytes of etcd's file for each report, and for each with its detail."""
    with start_lab(settings=LabSettings(simulate=False)) as lab:
        install(lab, watch=(NAMESPACE,), start=False)
        api = ApiServer(lab.kubeconfig)
        empty = etcd_size(lab)
        places = [*islice(product(range(len(fleet.profiles)), range(fleet.nodes)), WRITTEN)]
        names = [_write_report(api, fleet.report(*place)) for place in places]
        reports = etcd_size(lab)
        packed = gzip.compress(fleet.result.encode(), mtime=0)
        for name, uid in names:
            owner = {"apiVersion": API_VERSION, "kind": REPORT_KIND, "name": name, "uid": uid}
            meta = {"name": f"precision-{name}", "namespace": NAMESPACE, "ownerReferences": [owner]}
            data = {"result.json.gz": base64.b64encode(packed).decode()}
            api.ask("POST", paths.config_maps(NAMESPACE), {"metadata": meta, "binaryData": data})
        return (reports - empty) / len(names), (etcd_size(lab) - empty) / len(names)


def _write_report(api: ApiServer, raw: Row) -> tuple[str, str]:
    """Name and UID."""
    meta = {key: raw["metadata"][key] for key in ("name", "namespace", "labels")}
    made = api.ask("POST", paths.reports(NAMESPACE), raw | {"metadata": meta, "status": {}})
    path = paths.item(paths.reports(NAMESPACE), meta["name"], "status")
    api.ask("PATCH", path, {"status": raw["status"]}, kind=MERGE_PATCH)
    return meta["name"], made["metadata"]["uid"]


def etcd_size(lab: Lab) -> float:
    """Bytes of etcd's file in use."""
    pid = lab.processes.states()["etcd"].pid
    flags = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    url = next(flag.partition("=")[2] for flag in flags if flag.startswith("--listen-client-urls="))
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("etcd_mvcc_db_total_size_in_use_in_bytes "))


def measure(nodes: int, profiles: int) -> Row:
    """A row of the table."""
    fleet = Fleet(nodes, profiles)
    without, each = etcd_bytes(fleet)
    figures = {
        "operatorMiB": asyncio.run(operator_mib(fleet)),
        "exporterMiB": asyncio.run(exporter_mib(nodes, profiles)),
        "prometheusMiB": asyncio.run(prometheus_mib(nodes, profiles)),
        "etcdMiB": nodes * profiles * each / MIB,
        "etcdWithoutDetailMiB": nodes * profiles * without / MIB,
    }
    return {"nodes": nodes, "profiles": profiles} | {key: round(value) for key, value in figures.items()} | provenance()


def table(rows: list[Row]) -> Iterator[str]:
    """The page's, with all sizes: those that are missing say so."""
    yield f"| nodes | profiles | {' | '.join(f'{name}, MiB' for name in COLUMNS.values())} | measured at |"
    yield "|---" * (len(COLUMNS) + 3) + "|"
    there = {(row["nodes"], row["profiles"]): row for row in rows}
    for size in sorted({*SIZES, *there}):
        row = there.get(size)
        cells = [f"{row[key]:,}" for key in COLUMNS] if row else ["not run"] * len(COLUMNS)
        yield f"| {size[0]:,} | {size[1]} | {' | '.join(cells)} | {row['commit'] if row else ''} |"


def page(text: str) -> str:
    """The page with the table of the results."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return TABLE.sub("".join(f"{line}\n" for line in table(rows)), text)


def size(text: str) -> tuple[int, int]:
    nodes, _, profiles = text.partition("x")
    return int(nodes), int(profiles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=size, metavar="NODESxPROFILES")
    parser.add_argument("--json", action="store_true", help=f"write {RESULTS.name} and the page")
    parser.add_argument("--page", action="store_true", help="write the page from it")
    options = parser.parse_args()
    for of in options.sizes:
        began = time.monotonic()
        row = measure(*of)
        print(json.dumps(row), f"after {time.monotonic() - began:.0f} s", flush=True)
        if options.json:
            write(row, RESULTS)
    if options.json or options.page:
        PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
