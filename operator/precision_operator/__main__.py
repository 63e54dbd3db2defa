"""`python -m precision_operator`: watch, decide, act, until a signal comes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import timedelta

import kopf

from precision_api.names import DEFAULT_PRIORITY_CLASS
from precision_operator import handlers
from precision_operator.cluster import Cluster, ConnectionProblem
from precision_operator.core.observed import Settings
from precision_operator.shell.act import Actor
from precision_operator.shell.cache import Cache
from precision_operator.shell.gather import Gatherer
from precision_operator.shell.probes import application, serve
from precision_operator.shell.reconcile import Reconciler
from precision_operator.shell.telemetry import Telemetry

_log = logging.getLogger("precision_operator")


def _parts(told: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in told.split(",") if part.strip()))


def _namespaces(told: str) -> tuple[str, ...]:
    found = _parts(told)
    if not found:
        raise argparse.ArgumentTypeError("name at least one namespace, such as precision-system")
    return found


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser("python -m precision_operator", description=__doc__)
    add = parser.add_argument
    add("--watch-namespaces", type=_namespaces, required=True, metavar="A,B", help="Namespaces of the profiles.")
    add("--agent-image", default="", help="Agent image of profiles that name none.")
    add("--allowed-images", type=_parts, default=(), metavar="P,P", help="Prefixes of the agent images to allow.")
    add("--priority-class", default=DEFAULT_PRIORITY_CLASS, help="PriorityClass of the agents: %(default)s.")
    add("--agent-service-account", default="precision-profiler-agent", help="Of the agents: %(default)s.")
    add("--pending-timeout-seconds", type=float, default=300.0, help="How long an agent may wait for its place.")
    add("--disruption-backoff-seconds", type=float, default=30.0, help="How long a node rests after a disruption.")
    add("--host", default="127.0.0.1", help="Address of probes and metrics: %(default)s.")
    add("--port", type=int, default=8080, help="Port of /healthz, /readyz and /metrics: %(default)s.")
    add("--kubeconfig", help="Default: $KUBECONFIG, the pod's service account, ~/.kube/config.")
    return parser.parse_args(argv)


def settings_of(options: argparse.Namespace) -> Settings:
    """The operator's own configuration from its command line."""
    return Settings(
        agent_image=options.agent_image,
        allowed_images=options.allowed_images,
        priority_class=options.priority_class,
        agent_service_account=options.agent_service_account,
        disruption_backoff=timedelta(seconds=options.disruption_backoff_seconds),
        pending_timeout=timedelta(seconds=options.pending_timeout_seconds),
    )


async def run(options: argparse.Namespace) -> None:
    """Run until a signal comes. Raises ConnectionProblem when there is no cluster to talk to."""
    cache, telemetry = Cache(), Telemetry()
    async with Cluster.connect(options.kubeconfig) as cluster:
        gatherer = Gatherer(cluster, cache, settings_of(options), options.watch_namespaces)
        reconciler = Reconciler(cache, gatherer, Actor(cluster, cache), telemetry)
        probes = await serve(application(lambda: reconciler.ready, telemetry.text), options.host, options.port)
        watching = asyncio.create_task(_watch(cache, options))
        deciding = asyncio.create_task(reconciler.run())
        try:
            done, _ = await asyncio.wait((watching, deciding), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            deciding.cancel()
            watching.cancel()
            await asyncio.gather(watching, deciding, return_exceptions=True)
            await probes.cleanup()


async def _watch(cache: Cache, options: argparse.Namespace) -> None:
    await kopf.operator(
        registry=handlers.registry(cache, options.kubeconfig),
        settings=handlers.settings(),
        namespaces=list(options.watch_namespaces),
        standalone=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a signal, 2 when there is no cluster or the port is taken."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        asyncio.run(run(options))
    except (ConnectionProblem, OSError) as error:
        print(f"precision-operator: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
