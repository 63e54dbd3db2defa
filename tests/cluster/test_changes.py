"""The changes of a collection: whatever ends a watch, a new list follows and shows what happened meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from precision_operator.cluster.changes import list_and_watch
from precision_operator.cluster.client import Cluster
from tests.cluster.test_client import GONE, facing

PODS = "/api/v1/pods"
Json = dict[str, Any]


def pod(name: str, version: int = 1) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


class Script:
    """An API server with one collection: each list has the next of `lists`, each watch plays the next of `watches`.

    A watch is what is written (events, or bytes as they are); after it the watch ends, or breaks off where the last
    entry is "cut"; it stays open where that is "open". When the watches are used up, they stay open.
    """

    def __init__(self, lists: list[list[Json] | int], watches: list[list[Any]]) -> None:
        self.lists = lists
        self.watches = watches
        self.queries: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if "watch" not in request.query:
            items = self.lists.pop(0)
            if isinstance(items, int):
                return web.json_response({"kind": "Status", "code": items}, status=items)
            return web.json_response({"metadata": {"resourceVersion": str(len(self.queries))}, "items": items})
        return await self._watch(request, self.watches.pop(0) if self.watches else ["open"])

    async def _watch(self, request: web.Request, entries: list[Any]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for entry in entries:
            if entry == "open":
                await asyncio.Event().wait()
            elif entry == "cut":
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(entry if isinstance(entry, bytes) else (json.dumps(entry) + "\n").encode())
        return response


def event(kind: str, item: Json) -> Json:
    return {"type": kind, "object": item}


@asynccontextmanager
async def changes(script: Script, tmp_path: Path) -> AsyncIterator[AsyncIterator[tuple[str, str, str]]]:
    """(kind, name, resourceVersion) of each change."""

    async def told(cluster: Cluster) -> AsyncIterator[tuple[str, str, str]]:
        async for change in list_and_watch(cluster, PODS, "app=agent"):
            yield change.kind, change.object["metadata"]["name"], change.object["metadata"]["resourceVersion"]

    async with facing(script.answer, tmp_path) as cluster:
        yield told(cluster)


async def first(number: int, script: Script, tmp_path: Path) -> list[tuple[str, str, str]]:
    async with changes(script, tmp_path) as found, asyncio.timeout(10):
        return [await anext(found) for _ in range(number)]


async def test_what_is_there_comes_first_and_then_what_happens_after_the_list(tmp_path: Path) -> None:
    script = Script([[pod("a")]], [[event("ADDED", pod("b", 2)), event("DELETED", pod("a", 3)), "open"]])
    assert await first(3, script, tmp_path) == [("ADDED", "a", "1"), ("ADDED", "b", "2"), ("DELETED", "a", "3")]
    listing, watching = script.queries
    assert listing["labelSelector"] == watching["labelSelector"] == "app=agent"
    assert watching["resourceVersion"] == "1"


async def test_an_event_may_come_in_pieces(tmp_path: Path) -> None:
    line = (json.dumps(event("ADDED", pod("b", 2))) + "\n").encode()
    script = Script([[]], [[line[:20], line[20:] + line[:5], line[5:], "open"]])
    assert await first(2, script, tmp_path) == [("ADDED", "b", "2")] * 2


ENDS: dict[str, list[Any]] = {
    "the server ends it": [],
    "the connection breaks": ["cut"],
    "its version is too old": [event("ERROR", GONE)],
    "a proxy writes a page": [b"<html>504</html>\n", "open"],
    "a line is no event": [b'{"kind": "Status", "code": 502}\n', "open"],
    "an event has no object": [b'{"type": "ADDED", "object": null}\n', "open"],
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_after_a_watch_a_list_shows_what_vanished_what_stayed_and_what_is_new(
    tmp_path: Path, end: list[Any]
) -> None:
    meanwhile = [event("MODIFIED", pod("a", 4)), *end]
    script = Script([[pod("a"), pod("b")], [pod("b", 5), pod("c", 6)]], [meanwhile])
    found = await first(6, script, tmp_path)
    assert found[2:] == [
        ("MODIFIED", "a", "4"),
        ("DELETED", "a", "4"),
        ("MODIFIED", "b", "5"),
        ("ADDED", "c", "6"),
    ]


async def test_what_a_watch_has_shown_deleted_is_not_deleted_again_by_the_next_list(tmp_path: Path) -> None:
    script = Script([[pod("a")], [pod("b", 5)]], [[event("DELETED", pod("a", 4))]])
    assert await first(3, script, tmp_path) == [("ADDED", "a", "1"), ("DELETED", "a", "4"), ("ADDED", "b", "5")]


async def test_a_list_that_fails_is_tried_again_and_nothing_counts_as_vanished(tmp_path: Path) -> None:
    script = Script([[pod("a")], 500, 403, [pod("a", 7)]], [[]])
    assert await first(2, script, tmp_path) == [("ADDED", "a", "1"), ("MODIFIED", "a", "7")]
