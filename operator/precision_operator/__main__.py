"""`python -m precision_operator`: watch, decide, act, until a signal comes."""

import argparse
import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from precision_operator import handlers
from precision_operator.cluster import USER_AGENT, ConnectionProblem
from precision_operator.cluster.connection import DirectCluster
from precision_operator.cluster.http_server import probes, serving
from precision_operator.cluster.log_format import log_plainly
from precision_operator.cluster.watching import quiet_kopf
from precision_operator.cluster.withdrawal import on_signals, own_deployment_deleted, signal_comes
from precision_operator.core.observe.stop import strictest
from precision_operator.shell import leader_election
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import Gatherer
from precision_operator.shell.observing.refusals import RefusedCreations
from precision_operator.shell.observing.yields import Yields
from precision_operator.shell.plans.capacity_plans import Planning
from precision_operator.shell.reconcile import Reconciler
from precision_operator.shell.settings import add_settings, configured_by
from precision_operator.shell.switch import Switch
from precision_operator.shell.telemetry import FaultLog, Telemetry, application, readiness_of

_log = logging.getLogger("precision_operator")

IDENTITY = f"{socket.gethostname()}_{uuid4().hex[:8]}"
"""This process among all replicas: the pod's name, and something that a restarted container has anew."""
FINISH_SECONDS = 20.0
"""How long actions in flight may take after SIGTERM; the rest of a pod's 30 s is for the lease and the sockets."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser("python -m precision_operator", description=__doc__)
    add = parser.add_argument
    add_settings(parser)
    add("--host", default="127.0.0.1", help="Address of probes and metrics; empty: any. Default: %(default)s.")
    add("--port", type=int, default=8080, help="Port of /healthz, /readyz and /metrics: %(default)s.")
    add("--probe-port", type=int, default=0, help="Port of /healthz and /readyz alone; 0, the default: any.")
    add("--kubeconfig", help="Default: $KUBECONFIG, the pod's service account, ~/.kube/config.")
    add("--deployment", default="", help="Our own: once it is deleted, no request follows. Default: none is watched.")
    _add_election(parser)
    options = parser.parse_args(argv)
    try:
        terms_of(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def _add_election(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("two replicas, of which one leads").add_argument
    add("--leader-elect", action=argparse.BooleanOptionalAction, default=False, help="Default: no; the chart says yes.")
    add("--lease-name", default="precision-profiler-operator", help="The Lease to hold: %(default)s.")
    add("--lease-namespace", help="Its namespace. Default: the pod's own, or the kubeconfig's.")
    add("--lease-seconds", type=int, default=15, help="How long a silent leader is waited for: %(default)s.")
    add("--renew-deadline", type=float, default=10.0, help="Seconds until a leader that can't renew ends: %(default)s.")
    add("--retry", type=float, default=2.0, help="Seconds between two tries to lead or to renew: %(default)s.")


def terms_of(options: argparse.Namespace) -> leader_election.LeaseTimings:
    """The election's times from the command line. ValueError when they don't fit together."""
    return leader_election.LeaseTimings(options.lease_seconds, options.renew_deadline, options.retry)


async def run(options: argparse.Namespace) -> None:
    """Run until a signal comes. Raises ConnectionProblem when there is no cluster to talk to, LeaseLost."""
    configured = configured_by(options)
    cache, telemetry, stop = Cache(configured.settings.allowed_images), Telemetry(), asyncio.Event()
    take_signals = partial(on_signals, stop)
    take_signals()
    async with DirectCluster.connect(options.kubeconfig) as cluster, elector_of(options) as (elector, in_thread):
        cluster.user_agent, cluster.before_write = f"{USER_AGENT}/{IDENTITY}", elector.check
        cluster.answered = telemetry.requested
        clock = cluster.server_time.now
        refusals = RefusedCreations(clock)
        namespace = options.lease_namespace or cluster.namespace
        switch = Switch(cluster, namespace, options.stop_config_map, cache.changed.set)
        yields = Yields(cluster, cache, configured.settings.device_class, telemetry.yielded, clock)
        actor = Actor(cluster, cache, refusals, yields.begun, clock, configured.settings.node_gate)
        gather = partial(Gatherer, cluster, cache, configured.settings, configured.namespaces, clock=clock)
        creating = actor.creations.jobs
        gatherer = gather(refusals=refusals, stop=lambda: switch.stop, creating=creating, yields=yields)
        faults, most = FaultLog(telemetry.fault), configured.settings.profiles_per_namespace
        across, unserved = configured.settings.plans_across, lambda: gatherer.unserved
        plans = Planning(cluster, cache, configured.namespaces, faults, unserved, across=across, most=most)
        kinds = handlers.targets(configured.namespaces, configured.settings.resource_claims)
        how = {"cluster": cluster, "kubeconfig": options.kubeconfig, "after_spawn": take_signals}
        watches = handlers.Observing(kinds, cache, gatherer, plans, **how)
        telemetry.follow_stop(lambda: strictest(configured.settings.stop, switch.stop))
        telemetry.follow_clock(lambda: cluster.server_time.ahead_seconds)
        telemetry.follow(lambda: elector.leads, kinds, watches.states)
        reconciler = Reconciler(cache, gatherer, actor, telemetry, watches.listed)

        def readiness() -> tuple[int, str]:
            return readiness_of(reconciler.ready, gatherer.unserved)

        async with (
            serving(probes(readiness), options.host, options.probe_port),
            serving(application(readiness, telemetry.text), options.host, options.port),
        ):
            planning = asyncio.create_task(plans.run(elector))
            holding = in_thread(elector.run())
            deciding = asyncio.create_task(reconciler.run(elector))
            stopping = asyncio.create_task(stop.wait())
            watching = asyncio.create_task(_watch(elector, watches))
            leaving = asyncio.create_task(own_deployment_deleted(cluster, options.deployment))
            switching = asyncio.create_task(switch.keep())
            looking = asyncio.create_task(_look(elector, yields))
            working = (holding, deciding, planning, watching, switching, looking)
            try:
                done, _ = await asyncio.wait((stopping, leaving, *working), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if leaving in done:
                    await _cancel(*working)
                    await signal_comes(stop, cluster, options.deployment)
                elif await _has_finished(reconciler):
                    await _cancel(holding)
                    await in_thread(elector.release())
            finally:
                await _cancel(*working, stopping, leaving)


async def _watch(elector: leader_election.LeaderElector, watches: handlers.Observing) -> None:
    """Watch for ever. Who leads at the first attempt decides by lists that began after it."""
    await elector.first_attempt_done.wait()
    await watches.run()


async def _look(elector: leader_election.LeaderElector, yields: Yields) -> None:
    """Look at pods that wait for agents' GPUs, for ever, once this replica leads."""
    await elector.elected.wait()
    await yields.run()


@asynccontextmanager
async def elector_of(
    options: argparse.Namespace,
) -> AsyncIterator[tuple[leader_election.LeaderElector, leader_election.InThread]]:
    """The election that this replica takes part in, and what runs it in a thread, with a connection of its own."""
    if not options.leader_elect:
        yield leader_election.NoElection(), asyncio.ensure_future
        return
    terms = terms_of(options)
    connecting = DirectCluster.connect(options.kubeconfig, terms.renew_deadline / 2)
    connections = AsyncExitStack()
    call = asyncio.get_running_loop().call_soon_threadsafe
    async with leader_election.loop_in_thread() as in_thread:
        cluster = await in_thread(connections.enter_async_context(connecting))
        cluster.user_agent = f"{USER_AGENT}/{IDENTITY}"
        store = leader_election.LeaseLock(cluster, options.lease_namespace or cluster.namespace, options.lease_name)
        try:
            yield leader_election.LeaseElection(store, IDENTITY, terms, leader_election.CLOCK, call), in_thread
        finally:
            await in_thread(connections.aclose())


async def _has_finished(reconciler: Reconciler) -> bool:
    """End what is in flight, within a bound. What is still being written then, the Lease covers until it runs out."""
    try:
        await asyncio.wait_for(reconciler.finish(), FINISH_SECONDS)
    except TimeoutError:
        _log.warning("actions in flight did not end within %g s", FINISH_SECONDS)
        return False
    return True


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a signal, 2 when there is no cluster or the port is taken, 3 when the lease was lost."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    log_plainly()
    quiet_kopf()
    try:
        asyncio.run(run(options))
    except (ConnectionProblem, OSError) as error:
        print(f"precision-operator: {error}", file=sys.stderr)
        return 2
    except leader_election.LeaseLost as error:
        _log.error("exiting, to restart as a standby: %s", error)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
