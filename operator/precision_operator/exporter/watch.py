"""Keeping the store as the cluster is: each kind in each namespace is listed, then watched from that list on.

A list is read page by page and rendered at once: no more than a page is held as it came.
"""

import logging
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


class Watching(WatchLoop):
    """Keeps a list and a watch of each target until `run` is cancelled; each goes round alone."""

    def __init__(
        self, cluster: Cluster, store: Store, metrics: OwnMetrics, targets: Sequence[WatchTarget], list_seconds: float
    ) -> None:
        """Everything is listed again about `list_seconds` after the last list, should a watch have lost anything."""
        super().__init__(cluster, targets, _log, list_seconds)
        self._store = store
        self._own = metrics
        self._list_times: dict[WatchTarget, float] = {}
        self._refused_since: dict[WatchTarget, float] = {}

    async def _list(self, target: WatchTarget) -> str:
        assert target.namespace is not None

        def entry(raw: Json) -> Entry:
            return self._store.entry(target.plural, raw)

        entries, version = await self._cluster.list_trimmed(target.path, entry, limit=target.page_items)
        self._store.take(target.plural, target.namespace, entries, version)
        self._list_times[target] = time.time()
        return version

    def _see(self, target: WatchTarget, event: Json) -> None:
        if event["type"] == "DELETED":
            self._store.forget(event["object"])
        else:
            self._store.see(target.plural, event["object"])

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
