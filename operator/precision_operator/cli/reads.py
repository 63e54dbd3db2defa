"""What commands read of a cluster. Large collections are read page by page, and only what is needed of each is kept."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observed import Occupancy, ProfileView, Raw
from precision_operator.core.views import occupancy

T = TypeVar("T")
View = Callable[[Any], T | None]
PAGE = 500
RESTARTS = 3
"""How often a list is begun again when its continue token has expired (410)."""
LOOKS_AT_ONCE = 8
KUEUE = "kueue.x-k8s.io/v1beta1"


async def paged(cluster: Cluster, path: str, view: View[T], selector: str | None = None, what: str = "") -> list[T]:
    """`view` of every object of a collection; None drops one. No more than a page is held raw. Raises ApiError.

    `what` is told on stderr with a count, where that is a terminal: reading a large fleet takes a while.
    """
    for restarts in range(RESTARTS + 1):
        try:
            return await _pages(cluster, path, view, selector, what)
        except ApiError as error:
            if error.status != 410 or restarts == RESTARTS:
                raise
    raise AssertionError("the loop above returns or raises")


async def _pages(cluster: Cluster, path: str, view: View[T], selector: str | None, what: str) -> list[T]:
    found: list[T] = []
    token: str | None = None
    told = bool(what) and sys.stderr.isatty()
    while True:
        page = await cluster.get(path, {"limit": str(PAGE), "labelSelector": selector, "continue": token})
        found += [seen for item in page.get("items") or () if (seen := view(item)) is not None]
        token = (page.get("metadata") or {}).get("continue") or None
        if told:
            sys.stderr.write(f"\rreading {what}: {len(found)} \r" if token else "\r\033[K")
            sys.stderr.flush()
        if token is None:
            return found


async def views(cluster: Cluster, path: str, view: View[T], selector: str | None = None) -> Sequence[T]:
    """`view` of every object of a collection that is small enough to be held; None drops one."""
    items, _ = await cluster.list_all(path, selector)
    return [seen for item in items if (seen := view(item)) is not None]


async def looks(cluster: Cluster, nodes: Iterable[str]) -> dict[str, Occupancy]:
    """Who holds the GPUs of each node, a few at a time."""
    limit = asyncio.Semaphore(LOOKS_AT_ONCE)
    names = list(nodes)

    async def one(name: str) -> Occupancy:
        async with limit:
            return await _look(cluster, name)

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def _look(cluster: Cluster, node: str) -> Occupancy:
    chosen = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    pods, _ = await cluster.list_all(paths.pods(), field_selector=chosen)
    return occupancy(list(pods))


def wanted_texts(profiles: Iterable[ProfileView]) -> set[tuple[str, str]]:
    """(namespace, name) of the ConfigMaps that the profiles take their models from."""
    sources = ((p.namespace, p.spec.workload.hugging_face_config) for p in profiles if p.spec is not None)
    return {(ns, s.config_map_key_ref.name) for ns, s in sources if s is not None and s.config_map_key_ref is not None}


async def texts(cluster: Cluster, namespace: str, name: str) -> Mapping[str, str] | None:
    """The data of a ConfigMap; None where there is none."""
    found = await get_or_none(cluster, paths.item(paths.config_maps(namespace), name))
    return None if found is None else {key: str(text) for key, text in (found.get("data") or {}).items()}


def wanted_queues(profiles: Iterable[ProfileView]) -> set[tuple[str, str]]:
    """(namespace, name) of the Kueue queues that the profiles name."""
    named = ((p.namespace, p.spec.agent.queue_name) for p in profiles if p.spec is not None)
    return {(namespace, queue) for namespace, queue in named if queue is not None}


async def has_queue(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether there is such a Kueue queue; one that may not be looked at counts as there."""
    path = paths.item(paths.collection(KUEUE, "localqueues", namespace), name)
    return await get_or_none(cluster, path, forbidden={}) is not None


async def slices(cluster: Cluster) -> tuple[Raw, ...]:
    """ResourceSlices, which name GPUs where labels don't; none where there is no DRA, or no right to read them."""
    try:
        found, _ = await cluster.list_all(paths.collection("resource.k8s.io/v1", "resourceslices"))
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        found = []
    return tuple(found)


async def get_or_none(cluster: Cluster, path: str, forbidden: Raw | None = None) -> Raw | None:
    """The object, or None where there is none. With `forbidden`, that stands for one that the user may not read."""
    try:
        return await cluster.get(path)
    except ApiError as error:
        if error.status == 404:
            return None
        if error.status == 403 and forbidden is not None:
            return forbidden
        raise
