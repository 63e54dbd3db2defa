"""The changes of a collection, without end: a list, then a watch from it, and a new list when the watch ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from precision_operator.cluster.client import Cluster, Json
from precision_operator.cluster.errors import ApiError

PAUSE_SECONDS = 0.5
"""Between an error, or a watch that ended at once, and the next list."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an object: `kind` is ADDED, MODIFIED or DELETED."""

    kind: str
    object: Json


async def list_and_watch(cluster: Cluster, path: str, label_selector: str | None = None) -> AsyncIterator[Change]:
    """Every object as ADDED, then its changes. A watch that is lost, ended or too old (410) is followed by a new list.

    Objects that went away between two lists come as DELETED, as they were last seen. Never ends and raises no ApiError:
    an error is followed by a pause and another attempt.
    """
    objects: dict[str, Json] = {}
    while True:
        began = time.monotonic()
        try:
            items, version = await cluster.list_all(path, label_selector)
            listed = {item["metadata"]["uid"]: item for item in items}
            changes = [Change("DELETED", objects[uid]) for uid in objects.keys() - listed.keys()]
            changes += [Change("MODIFIED" if uid in objects else "ADDED", item) for uid, item in listed.items()]
            objects = listed
            for change in changes:
                yield change
            async for event in cluster.watch(path, version, label_selector):
                change = Change(event["type"], event["object"])
                _apply(objects, change)
                yield change
        except ApiError:
            began = time.monotonic()
        if time.monotonic() - began < PAUSE_SECONDS:  # a proxy may end each watch at once
            await asyncio.sleep(PAUSE_SECONDS)


def _apply(objects: dict[str, Json], change: Change) -> None:
    uid = change.object["metadata"]["uid"]
    if change.kind == "DELETED":
        objects.pop(uid, None)
    else:
        objects[uid] = change.object
