"""Watches against a small API server: each is started when its kind can be listed, and started again when it ends."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from precision_operator.cluster.watch_loop import Pace, WatchTarget
from precision_operator.cluster.watching import Watches, quiet_kopf
from tests.cluster.test_client import facing

GROUP, VERSION = "example.com", "v1"
RED, BLUE = (WatchTarget(GROUP, VERSION, "things", namespace, by_kopf=True) for namespace in ("red", "blue"))
OPTIONAL = WatchTarget(GROUP, VERSION, "extras", "red", by_kopf=True, optional=True)
BY = pytest.mark.parametrize("by_kopf", [True, False], ids=["kopf", "client"])
QUICK = Pace(0.1, 0.4, (0.1, 0.2), steady_seconds=1.0)
"""As the product's, and a tenth as long."""


class Server:
    """Things and extras in namespaces; `refused` holds the status of each namespace that answers with an error."""

    def __init__(self) -> None:
        self.served = {"things", "extras"}
        self.discovered = {"things", "extras"}
        self.redirect = ""
        self.asked_for_discovery: set[str] = set()
        self.refused: dict[str, int] = {}
        self.watches: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self.asked: Counter[str] = Counter()
        self.names: dict[str, list[str]] = {"red": [], "blue": []}

    def application(self) -> web.Application:
        app = web.Application()
        namespaces = {"name": "namespaces", "kind": "Namespace", "singularName": "", "namespaced": False}
        app.router.add_get("/api", _answering({"versions": ["v1"]}))
        app.router.add_get("/api/v1", _answering({"resources": [namespaces]}))
        version = {"version": VERSION}
        group = {"name": GROUP, "versions": [version], "preferredVersion": version}
        app.router.add_get("/apis", _answering({"groups": [group]}))
        app.router.add_get(f"/apis/{GROUP}/{VERSION}", self._resources)
        app.router.add_get("/elsewhere", self._resources)
        app.router.add_get(f"/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{{plural}}", self._objects)
        return app

    async def _resources(self, request: web.Request) -> web.Response:
        self.asked_for_discovery.add(request.path)
        if self.redirect:
            raise web.HTTPTemporaryRedirect(self.redirect)
        row = {"kind": "Thing", "singularName": "thing", "namespaced": True, "verbs": ["list", "watch"]}
        return web.json_response({"resources": [row | {"name": name} for name in sorted(self.discovered)]})

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        namespace, plural = request.match_info["namespace"], request.match_info["plural"]
        watched = "watch" in request.query
        self.asked["watch" if watched else "list"] += 1
        status = 404 if plural not in self.served else self.refused.get(namespace)
        if status is not None:
            body = {"kind": "Status", "message": f"{status} by the test", "reason": "Refused", "code": status}
            return web.json_response(body, status=status)
        if watched:
            return await self._stream(request, namespace)
        items = [thing(name, namespace) for name in self.names[namespace] if plural == "things"]
        return web.json_response({"kind": "List", "items": items, "metadata": {"resourceVersion": "1"}})

    async def _stream(self, request: web.Request, namespace: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        events = self.watches[namespace] = asyncio.Queue()
        while event := await events.get():
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    def add(self, name: str, namespace: str) -> None:
        """A new object, seen by the watch if there is one."""
        self.names[namespace].append(name)
        if namespace in self.watches:
            self.watches[namespace].put_nowait({"type": "ADDED", "object": thing(name, namespace)})

    def break_off(self, namespace: str) -> None:
        """End the stream of a namespace's watch."""
        self.watches.pop(namespace).put_nowait({})


def thing(name: str, namespace: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "2"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Thing", "metadata": meta}


def _answering(body: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


class Shown(Watches):
    def __init__(self, *how: Any) -> None:
        super().__init__(*how, pace=QUICK)
        self.seen: set[str] = set()
        self.listed_last: set[str] = set()
        self.lists: Counter[WatchTarget] = Counter()

    async def _list(self, target: WatchTarget) -> str:
        items, version = await self._cluster.list_all(target.path)
        self.lists[target] += 1
        self.listed_last = {item["metadata"]["uid"] for item in items}
        self.seen |= set() if target.by_kopf else self.listed_last
        return version

    def _see(self, target: WatchTarget, event: dict[str, Any]) -> None:
        self.seen.add(event["object"]["metadata"]["uid"])


@asynccontextmanager
async def watching(server: Server, folder: Path, *targets: WatchTarget) -> AsyncIterator[Shown]:
    async with facing(server.application(), folder) as cluster:
        watches = Shown(cluster, targets, str(folder / "config"))
        task = asyncio.create_task(watches.run())
        try:
            yield watches
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came"
        await asyncio.sleep(0.01)


async def test_a_kind_that_is_served_late_is_watched_then_and_an_optional_one_is_not_waited_for(tmp_path: Path) -> None:
    server = Server()
    server.served.clear()
    async with watching(server, tmp_path, RED, OPTIONAL) as watches:
        await until(lambda: watches.states[OPTIONAL].ends > 0 and watches.states[RED].ends > 0)
        assert (watches.states[OPTIONAL].listed, watches.states[RED].listed) == (True, False)
        assert "404" in watches.states[RED].problem
        assert not watches.listed.is_set()
        server.served.add("things")
        await asyncio.wait_for(watches.listed.wait(), 8)
        server.add("late", "red")
        await until(lambda: watches.seen == {"red-late"})


async def test_an_optional_kind_that_may_not_be_read_is_not_waited_for(tmp_path: Path) -> None:
    server = Server()
    server.refused["red"] = 403
    async with watching(server, tmp_path, OPTIONAL) as watches:
        await asyncio.wait_for(watches.listed.wait(), 8)
        assert "403" in watches.states[OPTIONAL].problem
        assert watches.states[OPTIONAL].forbidden


async def test_a_namespace_that_may_not_be_read_holds_up_no_other_one_and_is_seen_when_it_may(tmp_path: Path) -> None:
    server = Server()
    server.refused["red"] = 403
    async with watching(server, tmp_path, RED, BLUE) as watches:
        await asyncio.wait_for(watches.listed.wait(), 8)
        assert (watches.states[RED].listed, watches.states[RED].forbidden) == (False, True)
        del server.refused["red"]
        server.add("back", "red")
        await until(lambda: "red-back" in watches.seen)
        assert not watches.states[RED].forbidden


@pytest.mark.parametrize("refused", [{"red": 403, "blue": 403}, {"red": 404}], ids=["no namespace is left", "no kind"])
async def test_what_is_not_there_at_all_is_waited_for(refused: dict[str, int], tmp_path: Path) -> None:
    server = Server()
    server.refused |= refused
    async with watching(server, tmp_path, RED, BLUE) as watches:
        await until(lambda: all(watches.states[t].ends > 1 or watches.states[t].listed for t in (RED, BLUE)))
        assert not watches.listed.is_set()
        server.refused.clear()
        await asyncio.wait_for(watches.listed.wait(), 10)


async def test_a_kind_that_discovery_lacks_for_a_moment_is_not_taken_for_watched(tmp_path: Path) -> None:
    server = Server()
    server.discovered.clear()
    async with watching(server, tmp_path, RED) as watches:
        await until(lambda: "discovery" in watches.states[RED].problem)
        server.discovered.add("things")
        server.add("one", "red")
        await until(lambda: watches.seen == {"red-one"})


async def test_kopf_follows_no_redirect(tmp_path: Path) -> None:
    server = Server()
    server.redirect = "/elsewhere"
    async with watching(server, tmp_path, RED) as watches:
        await until(lambda: "which is not followed" in watches.states[RED].problem)
    assert server.asked_for_discovery == {f"/apis/{GROUP}/{VERSION}"}


@BY
@pytest.mark.parametrize("status", [403, 404])
async def test_a_watch_that_is_refused_ends_alone_says_so_once_and_comes_back(
    status: int, by_kopf: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, red, blue = Server(), replace(RED, by_kopf=by_kopf), replace(BLUE, by_kopf=by_kopf)
    caplog.set_level(logging.INFO)
    async with watching(server, tmp_path, red, blue) as watches:
        await until(lambda: {"red", "blue"} <= server.watches.keys())
        caplog.clear()
        server.refused["red"] = status
        server.break_off("red")
        await until(lambda: watches.states[red].ends >= 3, 20)
        server.add("meanwhile", "blue")
        await until(lambda: "blue-meanwhile" in watches.seen)
        assert watches.states[blue].ends == 0
        said = [record.getMessage() for record in caplog.records if record.name.startswith("precision")]
        assert len(said) == len(set(said)) <= 2, said  # the watch is refused first, then the list
        del server.refused["red"]
        server.add("after", "red")
        await until(lambda: "red-after" in watches.seen)
        assert watches.lists[red] > 1, "who starts a watch again lists first: deletions meanwhile have no event"


@BY
async def test_a_watch_that_holds_is_watched_and_as_old_as_the_last_sign(by_kopf: bool, tmp_path: Path) -> None:
    server, red = Server(), replace(RED, by_kopf=by_kopf)
    async with watching(server, tmp_path, red) as watches:
        state = watches.states[red]
        await until(lambda: state.watched, 15)
        await until(lambda: watches.lists[red] == 1 + by_kopf)
        await until(lambda: server.asked == {"list": 3 if by_kopf else 1, "watch": 1})
        before = state.heard_at
        if by_kopf:  # passes no bookmarks on
            server.break_off("red")
        else:
            server.watches["red"].put_nowait({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}})
        await until(lambda: state.heard_at > before)
        assert (watches.seen, watches.lists[red]) == (set(), 1 + by_kopf)


async def test_what_ended_while_kopf_did_not_watch_is_seen_by_a_list_after_each_of_its_own(tmp_path: Path) -> None:
    server = Server()
    server.add("one", "red")
    async with watching(server, tmp_path, RED) as watches:
        await until(lambda: watches.lists[RED] == 2 and "red" in server.watches)
        assert watches.listed_last == {"red-one"}
        server.names["red"].clear()
        server.watches["red"].put_nowait({"type": "ERROR", "object": {"code": 410}})
        await until(lambda: not watches.listed_last)
        assert watches.states[RED].ends == 0


async def test_a_right_that_is_lost_while_the_watch_goes_on_is_shown_by_the_second_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    monkeypatch.setattr(Shown, "_seconds_to_list", lambda _: 1.0)
    async with watching(server, tmp_path, RED) as watches:
        await until(lambda: "red" in server.watches)
        server.refused["red"] = 403
        await until(lambda: watches.states[RED].forbidden, 15)
        assert server.asked["watch"] == 1, "the API server has not ended the watch"


async def test_the_end_of_all_watches_takes_no_time_and_leaves_other_tasks_alone(tmp_path: Path) -> None:
    other = asyncio.create_task(asyncio.sleep(60))
    server, many = Server(), [replace(RED, by_kopf=False, label_selector=f"shard={n}") for n in range(101)]
    async with watching(server, tmp_path, RED, BLUE, *many):
        await until(lambda: server.asked["watch"] == 103)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 3
    assert not other.done()
    other.cancel()


def test_of_kopf_only_the_errors_of_our_handlers_are_logged() -> None:
    quiet_kopf()
    watching_log, handlers_log = (logging.getLogger(name) for name in ("kopf._cogs.clients.watching", "kopf.objects"))
    assert not watching_log.isEnabledFor(logging.ERROR)
    assert handlers_log.isEnabledFor(logging.ERROR)
