"""Keeping the store as the cluster is: a list and a watch of each kind in each namespace, and all lists now and then.

kopf is the watch library only: no finalizer, no event, no handler that writes. When a connection is broken off, kopf
lists anew but doesn't tell what vanished meanwhile; hence the lists of our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import kopf

from precision_api.names import API_VERSION, GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster import ApiError, Cluster
from precision_operator.cluster.paths import collection, profiles, reports
from precision_operator.cluster.watching import WatchTarget
from precision_operator.exporter.details import Details
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store

_log = logging.getLogger(__name__)


class Lists:
    """Complete lists of the watched namespaces into the store: at the start, now and then, and when asked for."""

    def __init__(
        self, cluster: Cluster, store: Store, own: OwnMetrics, namespaces: Sequence[str], gemm_samples: int = 0
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._own = own
        self._namespaces = tuple(namespaces)
        self._details = Details(cluster, store, gemm_samples)
        self._turn = asyncio.Lock()
        """One list at a time: what a large fleet's list takes is taken once."""
        self.wanted = asyncio.Event()
        """Set it to have a list made soon."""

    async def take(self) -> None:
        """List everything once. Raises ApiError; the store is marked complete only when all namespaces were read."""
        for namespace in self._namespaces:
            await self._take_reports(namespace)
            await self._take_plans(namespace, optional=True)
        await self._complete()

    async def take_one(self, target: WatchTarget) -> None:
        """List one kind in one namespace. Raises ApiError."""
        assert target.namespace is not None
        if target.plural == PLAN_PLURAL:
            await self._take_plans(target.namespace, optional=False)
        elif target.plural == PROFILE_PLURAL:
            await self._take_profiles(target.namespace)
        else:
            await self._take_reports(target.namespace)

    async def _take_profiles(self, namespace: str) -> None:
        async with self._turn:
            await self._store.take_profiles(namespace, *await self._cluster.list_all(profiles(namespace)))

    async def _take_reports(self, namespace: str) -> None:
        """List the profiles, which name the reports' workloads, and the reports."""
        await self._take_profiles(namespace)
        async with self._turn:
            await self._store.take_reports(namespace, *await self._cluster.list_all(reports(namespace)))

    async def _take_plans(self, namespace: str, optional: bool) -> None:
        """List the plans; with `optional`, none are there without their kind (404), or stay without rights (403)."""
        async with self._turn:
            try:
                found, version = await self._cluster.list_all(collection(API_VERSION, PLAN_PLURAL, namespace))
            except ApiError as error:
                if not optional or error.status not in (403, 404):
                    raise
                if error.status == 404:
                    self._store.clear_plans(namespace)
            else:
                await self._store.take_plans(namespace, found, version)

    async def _complete(self) -> None:
        self._store.complete = True
        self._own.last_list.set(time.time())
        await self._details.take()

    async def keep(self, listed: asyncio.Event, every_seconds: float) -> None:
        """List again, forever, from when the watches have `listed` all: about `every_seconds` apart, or when wanted.

        The times are spread, so that two exporters don't meet.
        """
        await listed.wait()
        await self._complete()
        _log.info("listed %s", ", ".join(self._namespaces))
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_seconds * random.uniform(0.9, 1.1)):
                    await self.wanted.wait()
            self.wanted.clear()
            try:
                await self.take()
            except ApiError as error:
                _log.warning("listing again: %s; the watches go on", error)


def targets(namespaces: Sequence[str]) -> list[WatchTarget]:
    """All that is watched. The cluster may lack CapacityPlans."""
    kinds = ((PROFILE_PLURAL, False), (REPORT_PLURAL, False), (PLAN_PLURAL, True))
    return [
        WatchTarget(GROUP, VERSION, plural, namespace, optional=optional)
        for namespace in namespaces
        for plural, optional in kinds
    ]


def register(store: Store, lists: Lists) -> Callable[[WatchTarget, kopf.OperatorRegistry], None]:
    """Adds kopf's event handler of one target."""

    def profile(raw: Any) -> None:
        if store.see_profile(raw):
            lists.wanted.set()

    seen = {REPORT_PLURAL: store.see_report, PROFILE_PLURAL: profile, PLAN_PLURAL: store.see_plan}

    def add(target: WatchTarget, registry: kopf.OperatorRegistry) -> None:
        kopf.on.event(target.group, target.version, target.plural, registry=registry)(_sees(store, seen[target.plural]))

    return add


def _sees(store: Store, see: Callable[[Any], None]) -> Callable[..., Awaitable[None]]:
    async def handle(event: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            store.forget(event["object"])
        else:
            see(event["object"])

    return handle
