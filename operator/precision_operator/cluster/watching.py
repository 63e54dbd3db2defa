"""Watches that outlive their errors: of profiles and plans by kopf, of what there are many of by the client alone.

Of kopf's handlers `on.event` alone: others add finalizers, and no profile could be deleted while the operator is down.
It ends a watch for good on 403 and 404, and with it the kopf operator that holds it. So each kind in each namespace has
a kopf operator of its own, and is listed before it starts again: a refusal comes as an ApiError with its reason. kopf
lists for itself, also when the API server has forgotten its version (410), and tells of no object that is not there any
more: so each list of kopf's is followed by one of ours.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp
import kopf
from kopf._cogs.structs.references import Insights  # not public, but an argument of the public spawn_tasks

from precision_operator.cluster.client import Cluster
from precision_operator.cluster.connection import kopf_connection, refuse_redirects
from precision_operator.cluster.errors import ApiError
from precision_operator.cluster.watch_loop import PACE, Pace, WatchEnded, WatchLoop, WatchTarget

_log = logging.getLogger(__name__)

IDENTITY = "precision-profiler"
"""kopf would ask for the user's name, which an arbitrary UID has none of; it serves peering, which we don't use."""
KOPF_IDLE_SECONDS = 0.1
"""How long kopf keeps an object as it came after its event: at its own 5 s, a whole list of tenants' large profiles."""


class Watches(WatchLoop):
    """Keeps one watch for each target until `run` is cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        targets: Sequence[WatchTarget],
        kubeconfig: str | None,
        after_spawn: Callable[[], None] = lambda: None,
        pace: Pace = PACE,
    ) -> None:
        """`after_spawn` takes back the signals, which kopf takes."""
        super().__init__(cluster, targets, _log, pace=pace)
        self._kubeconfig = kubeconfig
        self._after_spawn = after_spawn
        self._connector: aiohttp.TCPConnector | None = None
        """Shared by all watches: a TLS context for each would cost a megabyte and a handshake."""

    async def run(self) -> None:
        """As it stands above, with one connector for all."""
        try:
            await super().run()
        finally:
            if self._connector is not None:
                await self._connector.close()

    async def _watch(self, target: WatchTarget) -> None:
        """Watch by a kopf operator of this target alone, until it ends. Always raises then, at least WatchEnded."""
        if not target.by_kopf:
            await super()._watch(target)
            return
        del self._versions[target]  # kopf begins with a list; so do we when it has ended
        stop, kopf_lists, insights, registry = asyncio.Event(), asyncio.Event(), Insights(), kopf.OperatorRegistry()

        async def see(event: Any, **_: Any) -> None:
            self._see(target, event)

        kopf.on.login(registry=registry, id="login")(partial(self._login, target, kopf_lists))
        kopf.on.event(target.group, target.version, target.plural, registry=registry)(see)
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=settings_of(target, self._pace),
            insights=insights,
            identity=IDENTITY,
            namespaces=[] if target.namespace is None else [target.namespace],
            clusterwide=target.namespace is None,
            standalone=True,
            stop_flag=stop,
        )
        self._after_spawn()
        try:
            await _discovered(insights, tasks)
            tasks = [*tasks, following := asyncio.create_task(self._follow_lists(target, kopf_lists))]
            seconds = self._pace.steady_seconds
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self._holds(target)
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if following in done:
                following.result()
            raise WatchEnded(_reason(done))
        finally:
            # Not kopf.run_tasks: at its end it cancels every younger task of the loop, other watches' too.
            stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_lists(self, target: WatchTarget, kopf_lists: asyncio.Event) -> None:
        """List after each list of kopf's, and now and then. Raises ApiError where that is refused."""
        seconds = self._seconds_to_list()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(kopf_lists.wait(), seconds)
            kopf_lists.clear()
            seconds = self._seconds_to_list()
            try:
                await self._list(target)
            except ApiError as error:
                if error.status == 403:
                    raise
                seconds = self._pace.longest_pause_seconds

    async def _login(self, target: WatchTarget, kopf_lists: asyncio.Event, **_: Any) -> kopf.AiohttpSession:
        """A session of its own for each watch, which kopf closes; kopf asks again after a 401."""

        async def hear(_: object, __: object, answered: aiohttp.TraceRequestEndParams) -> None:
            self._hear(target)  # kopf, which passes no bookmarks on, begins a watch anew each five minutes
            if answered.url.path.endswith(target.path) and "watch" not in answered.url.query:
                kopf_lists.set()

        answers = aiohttp.TraceConfig()
        answers.on_request_end.append(hear)
        connection = await kopf_connection(self._kubeconfig)
        if self._connector is None:
            self._connector = aiohttp.TCPConnector(limit=0, ssl=connection.as_ssl_context())
        session = aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            headers=connection.as_http_headers(),
            proxy=connection.proxy_url,
            trust_env=connection.trust_env,
            middlewares=(refuse_redirects,),
            trace_configs=[answers],
        )
        return kopf.AiohttpSession(
            server=connection.server, default_namespace=connection.default_namespace, aiohttp_session=session
        )


def settings_of(target: WatchTarget, pace: Pace = PACE) -> kopf.OperatorSettings:
    """kopf, reduced to watching: it writes nothing, and asks for no rights that the chart doesn't give."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.process.ultimate_exiting_timeout = None  # seconds after which kopf kills the process that has cancelled it
    chosen.queueing.idle_timeout = KOPF_IDLE_SECONDS
    chosen.networking.error_backoffs = pace.kopf_pauses_seconds
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = target.page_items
    return chosen


def quiet_kopf() -> None:
    """Leave to kopf's logs the errors of our own handlers alone: why a watch ended is logged here, once."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


async def _discovered(insights: Insights, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Returns when kopf knows the kind. WatchEnded when discovery lacks it (kopf would watch nothing, in silence)."""
    ready = asyncio.create_task(insights.ready_resources.wait())
    try:
        done, _ = await asyncio.wait((ready, *tasks), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    if ready not in done:
        raise WatchEnded(_reason(done))
    if not insights.watched_resources:
        raise WatchEnded("the API server's discovery does not name it yet")


def _reason(done: Collection[asyncio.Task[Any]]) -> str:
    errors = [task.exception() for task in done if not task.cancelled()]
    texts = [str(error.args[0] if error.args else "") or type(error).__name__ for error in errors if error is not None]
    return "; ".join(dict.fromkeys(texts)) or "the watch ended without an error"
