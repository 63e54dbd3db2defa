"""Keeping the store as the cluster is: each kind in each namespace is listed, then watched from that list on.

A list is read page by page and rendered at once: no more than a page is held as it came. A watch that ends goes on from
the last version that it showed; a new list follows only where the API server has forgotten that version (410). kopf,
which the operator watches with, would list everything once more for itself, and hold it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Sequence

from precision_api.facts.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster import ApiError, Cluster
from precision_operator.cluster.client import PAGE_REPORTS, PAGE_TENANT, Json
from precision_operator.cluster.watch_loop import WatchEnded, WatchLoop, WatchTarget
from precision_operator.exporter.entries import Entry
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store

_log = logging.getLogger(__name__)
LIST_SECONDS = 1800.0
"""About how often everything is listed again; the alert PrecisionWatchStuck waits for twice as long."""
LOST_SECONDS = 300.0
"""How long what was last seen of a namespace is shown after its rights are gone: a mishap leaves no gap, and what was
deleted does not stay for ever."""
_LIST_AGAIN = (410, 404, 403)
"""The version is forgotten; or the kind, or the right to read it, was away, and with it perhaps objects."""


class Watching(WatchLoop):
    """Keeps a list and a watch of each target until `run` is cancelled; each goes round alone."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        own_metrics: OwnMetrics,
        targets: Sequence[WatchTarget],
        list_seconds: float,
    ) -> None:
        """Everything is listed again about `list_seconds` after the last list, should a watch have lost anything."""
        super().__init__(targets, _log)
        self._cluster = cluster
        self._store = store
        self._own = own_metrics
        own_metrics.last_list.set(time.time())
        self._list_seconds = list_seconds
        self._versions: dict[WatchTarget, str] = {}
        """What each was seen up to; one that is missing must be listed."""
        self._list_times: dict[WatchTarget, float] = {}
        self._list_at: dict[WatchTarget, float] = {}
        """When each is to be listed again, by the event loop's clock."""
        self._refused_since: dict[WatchTarget, float] = {}
        self._turn = asyncio.Lock()
        """One list at a time, in the order of the targets."""

    async def _go_round(self, target: WatchTarget) -> None:
        loop = asyncio.get_running_loop()
        if target not in self._versions or loop.time() >= self._list_at[target]:
            await self._list(target)
            again = self._list_seconds * random.uniform(0.9, 1.1)  # two exporters don't meet
            self._list_at[target] = loop.time() + again
        await self._watch(target)

    async def _list(self, target: WatchTarget) -> None:
        assert target.namespace is not None

        def entry(raw: Json) -> Entry:
            return self._store.entry(target.plural, raw)

        async with self._turn:
            entries, version = await self._cluster.list_trimmed(target.path, entry, limit=target.page_items)
            self._store.take(target.plural, target.namespace, entries, version)
        self._versions[target] = version
        self._list_times[target] = time.time()
        self._mark_listed(target)

    async def _watch(self, target: WatchTarget) -> None:
        """Take in what changes after the version that was seen, until the API server ends the watch."""
        steady = asyncio.get_running_loop().call_later(self._pace.steady_seconds, self._holds, target)
        try:
            async for event in self._cluster.watch(target.path, self._versions[target], bookmarks=True):
                raw = event["object"]
                if event["type"] == "DELETED":
                    self._store.forget(raw)
                elif event["type"] != "BOOKMARK":
                    self._store.see(target.plural, raw)
                self._versions[target] = raw["metadata"]["resourceVersion"]
        finally:
            steady.cancel()

    def _mark_listed(self, target: WatchTarget) -> None:
        self._refused_since.pop(target, None)
        super()._mark_listed(target)

    def _settle(self) -> None:
        super()._settle()
        if self.listed.is_set():
            times = [at for target, at in self._list_times.items() if not self.states[target].forbidden]
            self._own.last_list.set(min(times, default=time.time()))

    def _failed(self, target: WatchTarget, error: ApiError | WatchEnded) -> None:
        status = error.status if isinstance(error, ApiError) else None
        if status in _LIST_AGAIN:
            self._versions.pop(target, None)
        if status == 410:
            return
        if (target.optional and status == 404) or (status == 403 and self._is_lost(target)):
            assert target.namespace is not None
            self._store.clear(target.plural, target.namespace)
        super()._failed(target, error)

    def _is_lost(self, target: WatchTarget) -> bool:
        """Whether it may not have been read for so long that what was seen last is shown no more."""
        now = time.monotonic()
        return now - self._refused_since.setdefault(target, now) >= LOST_SECONDS


def targets(namespaces: Sequence[str]) -> list[WatchTarget]:
    """All that is watched: profiles before the reports whose workloads they name. A cluster may lack CapacityPlans."""
    kinds = ((PROFILE_PLURAL, PAGE_TENANT), (REPORT_PLURAL, PAGE_REPORTS), (PLAN_PLURAL, PAGE_TENANT))
    return [
        WatchTarget(GROUP, VERSION, plural, namespace, page_items=page, optional=plural == PLAN_PLURAL)
        for namespace in namespaces
        for plural, page in kinds
    ]
