"""Puts a fleet's nodes into a cluster."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from precision_api.facts.names import KWOK_NODE
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.cluster.objects import is_so
from precision_lab.fleet.fleet import busy_pod, is_busy
from precision_lab.fleet.slices import API, claimant, device_classes, slices_of
from precision_lab.fleet.traits import NodeManifest
from precision_lab.names import NOT_READY
from precision_lab.processes.processes import ProcessError
from precision_operator.cluster import ApiError, Cluster, paths

SIDE_BY_SIDE = 32
SECONDS_A_NODE = 0.2
"""Generous: 90 nodes a second were measured on two cores."""


async def create_nodes(kubeconfig: Path, nodes: Sequence[NodeManifest]) -> None:
    """Creates the nodes, what DRA drivers publish of them, and the training pods of the busy ones.

    Returns when all that can be Ready are Ready.
    """
    async with administrator(kubeconfig) as cluster:
        await _publish(cluster, await _all(cluster, paths.NODES, nodes))
        await _until_ready(cluster, {node["metadata"]["name"] for node in nodes if not _stays_unready(node)})
        await _all(cluster, paths.pods("default"), [busy_pod(node) for node in nodes if is_busy(node)])


async def _publish(cluster: Cluster, nodes: Sequence[NodeManifest]) -> None:
    """The slices of nodes whose GPUs come by resource claim, and the pods that hold devices there."""
    published = [item for node in nodes for item in slices_of(node)]
    if not published:
        return
    for item in device_classes():
        try:
            await cluster.create(paths.collection(API, "deviceclasses"), item)
        except ApiError as problem:
            if problem.status != 409:
                raise
    await _all(cluster, paths.collection(API, "resourceslices"), published)
    for item in (item for node in nodes for item in claimant(node)):
        plural = "pods" if item["kind"] == "Pod" else "resourceclaims"
        await cluster.create(paths.collection(item["apiVersion"], plural, "default"), item)


def _stays_unready(node: NodeManifest) -> bool:
    annotations = node["metadata"].get("annotations", {})
    return NOT_READY in annotations or annotations.get(KWOK_NODE) != "fake"


async def _all(cluster: Cluster, path: str, objects: Sequence[NodeManifest]) -> list[NodeManifest]:
    """The objects as the API server has made them."""
    gate = asyncio.Semaphore(SIDE_BY_SIDE)

    async def create(item: NodeManifest) -> NodeManifest:
        async with gate:
            return await cluster.create(path, item)

    return list(await asyncio.gather(*(create(item) for item in objects)))


async def _until_ready(cluster: Cluster, names: set[str]) -> None:
    deadline = time.monotonic() + 30 + SECONDS_A_NODE * len(names)
    while True:
        items, _ = await cluster.list_all(paths.NODES)
        waiting = names - {item["metadata"]["name"] for item in items if is_so("Ready", item)}
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise ProcessError(f"{len(waiting)} nodes did not become Ready, {min(waiting)} among them: see logs/kwok")
        await asyncio.sleep(0.1 + 0.001 * len(names))
