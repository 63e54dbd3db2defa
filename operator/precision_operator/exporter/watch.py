"""Keeping the store as the cluster is: each kind in each namespace is listed, then watched from that list on.

A list is read page by page and rendered at once: no more than a page is held as it came. A watch that ends goes on from
the last version that it showed; a new list follows only where the API server has forgotten that version (410). kopf,
which the operator watches with, would list everything once more for itself, and hold it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence

from precision_api.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster import ApiError, Cluster
from precision_operator.cluster.client import Json
from precision_operator.cluster.watching import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    STEADY_SECONDS,
    WatchState,
    WatchTarget,
)
from precision_operator.exporter.entries import Entry
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store

_log = logging.getLogger(__name__)
PAGE_OBJECTS = 100
"""Objects that are read and rendered in one go (0.5 ms each): the event loop serves in between."""
_LIST_AGAIN = (410, 404, 403)
"""The version is forgotten; or the kind, or the right to read it, was away, and with it perhaps objects."""


class Watching:
    """Keeps a list and a watch of each target until `run` is cancelled; each goes round alone."""

    def __init__(
        self, cluster: Cluster, store: Store, own: OwnMetrics, targets: Sequence[WatchTarget], list_seconds: float
    ) -> None:
        """Everything is listed again about `list_seconds` after the last list, should a watch have lost anything."""
        self.states: Mapping[WatchTarget, WatchState] = {target: WatchState() for target in targets}
        self.listed = asyncio.Event()
        """Set when every target has been listed once."""
        self._cluster = cluster
        self._store = store
        self._own = own
        self._list_seconds = list_seconds
        self._versions: dict[WatchTarget, str] = {}
        """What each was seen up to; one that is missing must be listed."""
        self._list_times: dict[WatchTarget, float] = {}
        self._turn = asyncio.Lock()
        """One list at a time, in the order of the targets."""

    async def run(self) -> None:
        """List, watch, and begin again what ends. Never returns; what is no API error is raised."""
        async with asyncio.TaskGroup() as group:
            for target in self.states:
                group.create_task(self._keep(target), name=f"watch of {target}")

    async def _keep(self, target: WatchTarget) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        list_at = 0.0
        while True:
            began = loop.time()
            try:
                if target not in self._versions or began >= list_at:
                    await self._list(target)
                    list_at = loop.time() + self._list_seconds * random.uniform(0.9, 1.1)  # two exporters don't meet
                await self._watch(target)
            except ApiError as error:
                self._failed(target, error)
            if loop.time() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _list(self, target: WatchTarget) -> None:
        assert target.namespace is not None

        def entry(raw: Json) -> Entry:
            return self._store.entry(target.plural, raw)

        async with self._turn:
            entries, version = await self._cluster.list_trimmed(target.path, entry, limit=PAGE_OBJECTS)
            self._store.take(target.plural, target.namespace, entries, version)
        self._versions[target] = version
        self._list_times[target] = time.time()
        self._mark_listed(target)

    async def _watch(self, target: WatchTarget) -> None:
        """Take in what changes after the version that was seen, until the API server ends the watch."""
        steady = asyncio.get_running_loop().call_later(STEADY_SECONDS, self._holds, target)
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
        self.states[target].listed = True
        if all(state.listed for state in self.states.values()):
            self._own.last_list.set(min(self._list_times.values(), default=0.0))
            self.listed.set()

    def _holds(self, target: WatchTarget) -> None:
        state = self.states[target]
        if state.problem:
            _log.info("%s: watched now", target)
        state.problem, state.watched, state.forbidden = "", True, False

    def _failed(self, target: WatchTarget, error: ApiError) -> None:
        if error.status in _LIST_AGAIN:
            self._versions.pop(target, None)
        if error.status == 410:
            return
        state, problem = self.states[target], str(error)
        if problem != state.problem:
            _log.warning("%s: not watched: %s; tried again every %g s", target, problem, LONGEST_PAUSE_SECONDS)
        state.problem, state.watched, state.forbidden = problem, False, error.status == 403
        state.ends += 1
        if target.optional and error.status in (403, 404):
            if error.status == 404 and target.namespace is not None:
                self._store.clear(target.plural, target.namespace)
            self._mark_listed(target)


def targets(namespaces: Sequence[str]) -> list[WatchTarget]:
    """All that is watched: profiles before the reports whose workloads they name. A cluster may lack CapacityPlans."""
    kinds = ((PROFILE_PLURAL, False), (REPORT_PLURAL, False), (PLAN_PLURAL, True))
    return [
        WatchTarget(GROUP, VERSION, plural, namespace, optional=optional)
        for namespace in namespaces
        for plural, optional in kinds
    ]
