"""`python -m precision_operator.exporter`: watch reports, profiles and plans, serve them as Prometheus metrics."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from precision_operator.cluster import Cluster, ConnectionProblem
from precision_operator.cluster.watching import Watches, quiet_kopf
from precision_operator.cluster.withdrawal import own_deployment_deleted, signal_comes
from precision_operator.exporter.families.family import LEVELS
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.server import application, serve
from precision_operator.exporter.shards import MOST_SHARDS
from precision_operator.exporter.store import Store
from precision_operator.exporter.watch import Lists, register, targets

_log = logging.getLogger("precision_operator.exporter")

MOST_SAMPLES = 64
"""Full results are some 100 kB each, and a median of a few nodes is as good."""


def _namespaces(told: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in told.split(",") if part.strip()))
    if not found:
        raise argparse.ArgumentTypeError("name at least one namespace, such as precision-system")
    return found


def _shards(told: str) -> int:
    if not (told.isdecimal() and 1 <= int(told) <= MOST_SHARDS):
        raise argparse.ArgumentTypeError(f"{told!r} is no number from 1 to {MOST_SHARDS}")
    return int(told)


def _samples(told: str) -> int:
    if not (told.isdecimal() and int(told) <= MOST_SAMPLES):
        raise argparse.ArgumentTypeError(f"{told!r} is no number from 0 to {MOST_SAMPLES}")
    return int(told)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser("python -m precision_operator.exporter", description=__doc__)
    parser.add_argument(
        "--watch-namespaces", type=_namespaces, required=True, metavar="A,B", help="Namespaces to show."
    )
    parser.add_argument("--port", type=int, default=9464, help="Port to serve on; 0: any. Default: %(default)s.")
    parser.add_argument("--host", default="127.0.0.1", help="Address to serve on. Default: %(default)s.")
    parser.add_argument("--kubeconfig", help="Default: $KUBECONFIG, the pod's service account, ~/.kube/config.")
    parser.add_argument(
        "--deployment", default="", help="Our own: once it is deleted, no request follows. Default: none is watched."
    )
    parser.add_argument(
        "--resync-seconds", type=float, default=300.0, help="How often everything is listed anew. Default: %(default)s."
    )
    parser.add_argument(
        "--metrics-level",
        choices=LEVELS,
        default="node",
        help="pool: pools, profiles and plans only; node: also what each node's newest result says; detail: also "
        "memory, GEMM speedups and the like of each node. Default: %(default)s.",
    )
    parser.add_argument(
        "--shards",
        type=_shards,
        default=1,
        metavar="N",
        help="Node series are served by /metrics/shard/0 to N-1, each of which must be scraped (none at level pool). "
        "Default: %(default)s.",
    )
    parser.add_argument(
        "--gemm-samples",
        type=_samples,
        default=0,
        metavar="N",
        help="Nodes of each pool whose full results are read for precision_pool_gemm_seconds; needs the right to get "
        "ConfigMaps. Default: none.",
    )
    return parser.parse_args(argv)


async def run(options: argparse.Namespace) -> None:
    """Serve and watch until a signal comes. Raises ConnectionProblem when there is no cluster to talk to."""
    stop = asyncio.Event()
    on_signals = partial(_on_signals, stop)
    on_signals()
    store, own = Store(options.metrics_level), OwnMetrics()
    async with Cluster.connect(options.kubeconfig) as cluster:
        shards = 0 if options.metrics_level == "pool" else options.shards
        runner, port = await serve(application(store, own, shards), options.host, options.port)
        _log.info("serving http://%s:%d/metrics", options.host, port)
        _log.info("metrics level %s: node series on %d /metrics/shard endpoints", options.metrics_level, shards)
        lists = Lists(cluster, store, own, options.watch_namespaces, options.gemm_samples)
        watches = Watches(
            targets(options.watch_namespaces), lists.take_one, register(store, lists), options.kubeconfig, on_signals
        )
        own.follow(watches.states)
        leaving = own_deployment_deleted(cluster, options.deployment, options.kubeconfig, on_signals)
        works = (stop.wait(), leaving, watches.run(), lists.keep(watches.listed, options.resync_seconds))
        try:
            if await _first_of(*works) == 1:
                await signal_comes(stop)
        finally:
            await runner.cleanup()


async def _first_of(*works: Coroutine[Any, Any, object]) -> int:
    """Which of them ended first; the others are ended. Raises what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return min(map(tasks.index, done))


def _on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a signal, 2 when there is no cluster or the port is taken."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quiet_kopf()
    try:
        asyncio.run(run(options))
    except (ConnectionProblem, OSError) as error:
        print(f"precision-exporter: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
