"""Keeping the store as the cluster is: one complete list, then kopf's watches, and a list again every few minutes.

kopf is the watch library only: its own registry, no finalizer, no event, no handler that writes. When a watch is broken
off, kopf lists anew but doesn't tell what vanished meanwhile; hence the lists of our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence
from typing import Any

import kopf

from precision_api.names import API_VERSION, GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster import ApiError, Cluster, kopf_connection
from precision_operator.cluster.paths import collection, profiles, reports
from precision_operator.exporter.details import Details
from precision_operator.exporter.own import OwnMetrics
from precision_operator.exporter.store import Store

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0
_SOON_SECONDS = 30.0
"""The second list: it finds what was deleted between the first one and the start of the watch."""


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
        self.wanted = asyncio.Event()
        """Set it to have a list made soon."""
        self.plans_served = True
        """Whether the API server knew CapacityPlans when it was last asked."""

    async def take(self) -> None:
        """List everything once. Raises ApiError; the store is marked complete only when all namespaces were read."""
        self._store.begin_list()
        for namespace in self._namespaces:
            await self._store.take_profiles(namespace, *await self._cluster.list_all(profiles(namespace)))
            found, version = await self._cluster.list_all(reports(namespace))
            await self._store.take_reports(namespace, found, version)
            await self._take_plans(namespace, version)
        self._store.complete = True
        self._own.last_list.set(time.time())
        await self._details.take()

    async def _take_plans(self, namespace: str, version: str) -> None:
        """List the plans; where the cluster doesn't know their kind there are none at resourceVersion `version`."""
        try:
            found, version = await self._cluster.list_all(collection(API_VERSION, PLAN_PLURAL, namespace))
            self.plans_served = True
        except ApiError as error:
            if error.status != 404:
                raise
            if self.plans_served:
                _log.warning("no CapacityPlans are shown: their CRD is not installed; all else goes on")
            found, self.plans_served = [], False
        await self._store.take_plans(namespace, found, version)

    async def first(self) -> None:
        """List until it has worked once."""
        while not self._store.complete:
            try:
                await self.take()
            except ApiError as error:
                _log.warning("not ready: %s; next attempt in %g s", error, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)

    async def keep(self, every_seconds: float) -> None:
        """List again, forever: soon, then about `every_seconds` apart (spread, so that two exporters don't meet)."""
        pause = min(_SOON_SECONDS, every_seconds)
        while True:
            with contextlib.suppress(TimeoutError):
                # Not wait_for: its helper task would be one that kopf waits 5 s for when it ends.
                async with asyncio.timeout(pause):
                    await self.wanted.wait()
            self.wanted.clear()
            try:
                await self.take()
            except ApiError as error:
                _log.warning("listing again: %s; the watch goes on", error)
            pause = every_seconds * random.uniform(0.9, 1.1)


def registry_of(store: Store, lists: Lists, kubeconfig: str | None) -> kopf.OperatorRegistry:
    """kopf's handlers: an event handler for each kind that is served, and the login."""
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await kopf_connection(kubeconfig)

    async def report(event: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            store.forget(event["object"])
        else:
            store.see_report(event["object"])

    async def profile(event: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            store.forget(event["object"])
        elif store.see_profile(event["object"]):
            lists.wanted.set()

    async def plan(event: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            store.forget(event["object"])
        else:
            store.see_plan(event["object"])

    kopf.on.login(registry=registry)(login)
    kopf.on.event(GROUP, VERSION, REPORT_PLURAL, registry=registry)(report)
    kopf.on.event(GROUP, VERSION, PROFILE_PLURAL, registry=registry)(profile)
    if lists.plans_served:
        kopf.on.event(GROUP, VERSION, PLAN_PLURAL, registry=registry)(plan)
    return registry


def settings() -> kopf.OperatorSettings:
    """kopf, reduced to watching: our rights are get, list and watch of three kinds in named namespaces."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 10
    return chosen
