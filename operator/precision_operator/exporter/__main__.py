"""`python -m precision_operator.exporter`: watch reports, profiles and plans, serve them as Prometheus metrics."""

import argparse
import asyncio
import gc
import logging
import re
import sys
from collections.abc import Sequence
from functools import partial

from precision_operator.cluster import ConnectionProblem
from precision_operator.cluster.connection import DirectCluster
from precision_operator.cluster.http_server import probes, serving
from precision_operator.cluster.log_format import log_plainly
from precision_operator.cluster.withdrawal import first_of, on_signals, own_deployment_deleted, signal_comes
from precision_operator.core.observe.configuration import namespaces, parts
from precision_operator.exporter.details import Details
from precision_operator.exporter.families.family import LEVELS
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.families.table import FAMILIES
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.server import Scrapes, application
from precision_operator.exporter.shards import MOST_SHARDS
from precision_operator.exporter.store import Store
from precision_operator.exporter.watch import LIST_SECONDS, Watching, targets

_log = logging.getLogger("precision_operator.exporter")

GC_OBJECTS = 5_000
"""New objects between two looks for cycles. At Python's 700 a quarter of a large fleet's start goes into looking at
frozen values again and again; they have none. Requests that aiohttp refuses are cycles of 90 kB."""
MOST_SAMPLES = 64
"""Full results are some 100 kB each, and a median of a few nodes is as good."""


def _number(text: str, least: int, most: int) -> int:
    if not (text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
    return int(text)


def _expressions(text: str) -> tuple[str, ...]:
    for expression in (expressions := parts(text)):
        try:
            re.compile(expression)
        except re.error as error:
            raise argparse.ArgumentTypeError(f"{expression!r} is no regular expression: {error}") from error
    return expressions


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser("python -m precision_operator.exporter", description=__doc__)
    add = parser.add_argument
    add("--watch-namespaces", type=namespaces, required=True, metavar="A,B", help="Namespaces to show.")
    add("--port", type=int, default=9464, help="Port to serve on; 0: any. Default: %(default)s.")
    add("--probe-port", type=int, default=0, help="Port of /healthz and /readyz alone. Default: any.")
    add("--host", default="127.0.0.1", help="Address to serve on; empty: any. Default: %(default)s.")
    add("--kubeconfig", help="Default: $KUBECONFIG, the pod's service account, ~/.kube/config.")
    add("--deployment", default="", help="Our own: once it is deleted, no request follows. Default: none is watched.")
    lists = "About how often everything is listed again, besides the watches. Default: %(default)s."
    add("--resync-seconds", type=float, default=LIST_SECONDS, help=lists)
    levels = (
        "pool: pools, profiles and plans only; node: also what each node's newest result says; detail: also memory, "
        "GEMM speedups and the like of each node. Default: %(default)s."
    )
    add("--metrics-level", choices=LEVELS, default="node", help=levels)
    shards = (
        "Node series are served by /metrics/shard/0 to N-1; scrape each (none at level pool). Default: %(default)s."
    )
    add("--shards", type=partial(_number, least=1, most=MOST_SHARDS), default=1, metavar="N", help=shards)
    samples = (
        "Nodes of each pool whose full results are read (right to get ConfigMaps) for GEMM seconds. Default: none."
    )
    add("--gemm-samples", type=partial(_number, least=0, most=MOST_SAMPLES), default=0, metavar="N", help=samples)
    names = parser.add_mutually_exclusive_group()
    shown = "These metrics alone, by name or regular expression (of the whole name), and the exporter's own."
    names.add_argument("--metric-allowlist", type=_expressions, default=(), metavar="A,B", help=shown)
    names.add_argument("--metric-denylist", type=_expressions, default=(), metavar="A,B", help="All metrics but these.")
    return parser.parse_args(argv)


async def run(options: argparse.Namespace) -> None:
    """Serve and watch until a signal comes. Raises ConnectionProblem when there is no cluster to talk to."""
    stop = asyncio.Event()
    on_signals(stop)
    selection = Selection(options.metrics_level, options.metric_allowlist, options.metric_denylist)
    store, own_metrics = Store(selection), OwnMetrics()
    scrapes = Scrapes(store, own_metrics, options.shards if selection.nodes else 0)
    async with (
        DirectCluster.connect(options.kubeconfig) as cluster,
        serving(probes(scrapes.readiness), options.host, options.probe_port),
        serving(application(scrapes), options.host, options.port) as port,
    ):
        _log.info("serving http://%s:%d/metrics", options.host, port)
        _log.info("metrics level %s: node series on %d /metrics/shard endpoints", selection.level, scrapes.shards)
        for expression in selection.unmatched(family.name for family in FAMILIES):
            _log.warning("no metric is named %s: see docs/metrics.md", expression)
        watching = Watching(cluster, store, own_metrics, targets(options.watch_namespaces), options.resync_seconds)
        own_metrics.follow(watching.states)
        leaving = own_deployment_deleted(cluster, options.deployment)
        details = Details(cluster, store, options.gemm_samples)
        works = (stop.wait(), leaving, watching.run(), _after(watching.listed, scrapes, details))
        if await first_of(*works) == 1:
            await signal_comes(stop, cluster, options.deployment)


async def _after(listed: asyncio.Event, scrapes: Scrapes, details: Details) -> None:
    """What follows the first complete lists. Never returns."""
    await listed.wait()
    await scrapes.prepare()
    gc.freeze()
    _log.info("everything is listed")
    await details.keep()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a signal, 2 when there is no cluster or the port is taken."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    log_plainly()
    gc.set_threshold(GC_OBJECTS)
    try:
        asyncio.run(run(options))
    except (ConnectionProblem, OSError) as error:
        print(f"precision-exporter: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
