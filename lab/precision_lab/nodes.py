"""Puts a fleet's nodes into a cluster and takes them out again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from precision_lab.api import Api, ApiError
from precision_lab.fleet import busy_pod, is_busy
from precision_lab.names import KWOK_NODE, NOT_READY
from precision_lab.processes import ProcessError
from precision_lab.traits import Node

SIDE_BY_SIDE = 32
SECONDS_A_NODE = 0.2
"""Generous: 90 nodes a second were measured on two cores."""


async def create_nodes(kubeconfig: Path, nodes: Sequence[Node]) -> None:
    """Creates the nodes and the training pods of the busy ones, and returns when all that can be Ready are Ready."""
    async with Api(kubeconfig) as api:
        await _all(api, "/api/v1/nodes", nodes)
        await _until_ready(api, {node["metadata"]["name"] for node in nodes if not _stays_unready(node)})
        await _all(api, "/api/v1/namespaces/default/pods", [busy_pod(node) for node in nodes if is_busy(node)])


async def free_node(kubeconfig: Path, name: str) -> None:
    """Ends the training pod of a busy node; returns when its GPUs are free."""
    path = f"/api/v1/namespaces/default/pods/training-{name}"
    async with Api(kubeconfig) as api:
        await api.delete(path, {"gracePeriodSeconds": 0})
        while True:
            try:
                await api.get(path)
            except ApiError as problem:
                if problem.status == 404:
                    return
                raise
            await asyncio.sleep(0.05)


async def delete_node(kubeconfig: Path, name: str) -> None:
    """Takes a node away, as a cloud does: its pods are left for the garbage collector."""
    async with Api(kubeconfig) as api:
        await api.delete(f"/api/v1/nodes/{name}")


def _stays_unready(node: Node) -> bool:
    annotations = node["metadata"].get("annotations", {})
    return NOT_READY in annotations or annotations.get(KWOK_NODE) != "fake"


async def _all(api: Api, path: str, objects: Sequence[Node]) -> None:
    gate = asyncio.Semaphore(SIDE_BY_SIDE)

    async def create(item: Node) -> None:
        async with gate:
            await api.post(path, item)

    await asyncio.gather(*(create(item) for item in objects))


async def _until_ready(api: Api, names: set[str]) -> None:
    deadline = time.monotonic() + 30 + SECONDS_A_NODE * len(names)
    while True:
        items, _ = await api.list_all("/api/v1/nodes")
        waiting = names - {item["metadata"]["name"] for item in items if _is_ready(item)}
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise ProcessError(f"{len(waiting)} nodes did not become Ready, {min(waiting)} among them: see logs/kwok")
        await asyncio.sleep(0.1 + 0.001 * len(names))


def _is_ready(node: Node) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
