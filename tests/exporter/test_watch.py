"""What keeps the store as the cluster is, against an API server that forgets, refuses and breaks off."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from precision_api.facts.names import PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster import client
from precision_operator.cluster.watch_loop import WatchTarget
from precision_operator.exporter.body import build
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.exporter.watch import Watching, targets
from tests.cluster.test_client import Handler, facing
from tests.cluster.test_watching import until
from tests.exporter.test_plans import phases, plan_object
from tests.support.report_objects import profile_object, report_object

Json = dict[str, Any]


class Api:
    """One namespace's profiles, reports and plans; `refused` holds the status of each kind that is refused."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Json]] = {PROFILE_PLURAL: {}, REPORT_PLURAL: {}, PLAN_PLURAL: {}}
        self.refused: dict[str, int] = {}
        self.asked: list[tuple[str, str, str]] = []
        """(list or watch, plural, from which version)"""
        self._streams: dict[str, asyncio.Queue[Json]] = {}

    def put(self, plural: str, raw: Json) -> None:
        """A new version of an object, told to the watch if there is one."""
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.objects[plural][raw["metadata"]["name"]] = raw
        self._tell(plural, "MODIFIED", raw)

    def delete(self, plural: str, name: str) -> None:
        self.version += 1
        raw = self.objects[plural].pop(name)
        self._tell(plural, "DELETED", raw | {"metadata": raw["metadata"] | {"resourceVersion": str(self.version)}})

    def bookmark(self, plural: str) -> None:
        """What tells a quiet watch how far it has come."""
        self.version += 1
        self._tell(plural, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def end_watch(self, plural: str) -> None:
        self._streams.pop(plural).put_nowait({})

    def lists(self) -> Counter[str]:
        return Counter(plural for act, plural, _ in self.asked if act == "list")

    def watches(self, plural: str) -> list[str]:
        """The versions that the kind's watches began at."""
        return [version for act, found, version in self.asked if (act, found) == ("watch", plural)]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rpartition("/")[2]
        watched = "watch" in request.query
        self.asked.append(("watch" if watched else "list", plural, request.query.get("resourceVersion", "")))
        if status := self.refused.get(plural):
            return web.json_response({"kind": "Status", "code": status, "message": "by the test"}, status=status)
        if not watched:
            items = list(self.objects[plural].values())
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        events = self._streams[plural] = asyncio.Queue()
        while event := await events.get():
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    def _tell(self, plural: str, kind: str, raw: Json) -> None:
        if plural in self._streams:
            self._streams[plural].put_nowait({"type": kind, "object": raw})


@pytest.fixture
def api() -> Api:
    made = Api()
    made.put(PROFILE_PLURAL, profile_object())
    for node in ("n1", "n2"):
        made.put(REPORT_PLURAL, report_object(node))
    made.put(PLAN_PLURAL, plan_object())
    return made


@asynccontextmanager
async def watching(
    answer: Handler, tmp_path: Path, list_seconds: float = 600.0, namespaces: Sequence[str] = ("ml",)
) -> AsyncIterator[tuple[Watching, Store]]:
    store = Store()
    async with facing(answer, tmp_path) as cluster:
        watching = Watching(cluster, store, OwnMetrics(process=False), targets(namespaces), list_seconds)
        task = asyncio.create_task(watching.run())
        try:
            yield watching, store
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def nodes(store: Store) -> set[str]:
    return {entry.key[2] for entry in store.view().reports}


def target(watching: Watching, plural: str) -> WatchTarget:
    return next(each for each in watching.states if each.plural == plural)


async def test_each_kind_is_listed_once_and_then_followed(api: Api, tmp_path: Path) -> None:
    async with watching(api.answer, tmp_path) as (watch, store):
        await asyncio.wait_for(watch.listed.wait(), 10)
        assert nodes(store) == {"n1", "n2"}
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 1)
        api.put(REPORT_PLURAL, report_object("n3"))
        api.delete(REPORT_PLURAL, report_object("n1")["metadata"]["name"])
        await until(lambda: nodes(store) == {"n2", "n3"})
        assert set(api.lists().values()) == {1}


async def test_more_namespaces_than_a_client_has_connections_by_default_are_followed(api: Api, tmp_path: Path) -> None:
    async with watching(api.answer, tmp_path, namespaces=[f"ml-{n}" for n in range(40)]) as (watch, _):
        await asyncio.wait_for(watch.listed.wait(), 30)
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 40)


@pytest.mark.parametrize("is_silent", [False, True], ids=["it ends", "it is half open"])
async def test_a_watch_that_ends_goes_on_from_the_last_version_without_another_list(
    is_silent: bool, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SILENT_SECONDS", 3.0)
    async with watching(api.answer, tmp_path) as (_, store):
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 1)
        api.put(REPORT_PLURAL, report_object("n3"))
        await until(lambda: nodes(store) == {"n1", "n2", "n3"})
        api.bookmark(REPORT_PLURAL)
        reached = str(api.version)
        if not is_silent:
            api.end_watch(REPORT_PLURAL)
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 2)
        assert (api.watches(REPORT_PLURAL)[1], api.lists()[REPORT_PLURAL]) == (reached, 1)


async def test_a_forgotten_version_is_followed_by_a_list_that_renders_nothing_known(api: Api, tmp_path: Path) -> None:
    async with watching(api.answer, tmp_path) as (_, store):
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 1)
        known = {entry.key[2]: entry for entry in store.view().reports}
        api.refused[REPORT_PLURAL] = 410
        api.end_watch(REPORT_PLURAL)
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 2)
        api.delete(REPORT_PLURAL, report_object("n1")["metadata"]["name"])
        api.refused.clear()
        await until(lambda: nodes(store) == {"n2"})
        assert store.view().reports[0] is known["n2"]


async def test_everything_is_listed_again_now_and_then(api: Api, tmp_path: Path) -> None:
    async with watching(api.answer, tmp_path, list_seconds=0.0) as (_, store):
        await until(lambda: len(api.watches(REPORT_PLURAL)) == 1)
        api.objects[REPORT_PLURAL].clear()  # an event that got lost
        api.end_watch(REPORT_PLURAL)
        await until(lambda: nodes(store) == set())


async def test_without_the_kind_of_plans_all_else_is_shown_and_plans_come_with_it(api: Api, tmp_path: Path) -> None:
    api.refused[PLAN_PLURAL] = 404
    async with watching(api.answer, tmp_path) as (watch, store):
        await asyncio.wait_for(watch.listed.wait(), 10)
        assert (len(nodes(store)), store.view().plans) == (2, ())
        assert "by the test" in watch.states[target(watch, PLAN_PLURAL)].problem
        api.refused.clear()
        await until(lambda: phases(build(store.view())) == {"q1": "Solved"})


@pytest.mark.parametrize(("status", "left"), [(404, {}), (403, {"q1": "Solved"})], ids=["their kind", "the right"])
async def test_plans_vanish_with_their_kind_and_stay_without_the_right_to_read_them(
    status: int, left: dict[str, str], api: Api, tmp_path: Path
) -> None:
    async with watching(api.answer, tmp_path) as (watch, store):
        await until(lambda: len(api.watches(PLAN_PLURAL)) == 1)
        api.refused[PLAN_PLURAL] = status
        api.end_watch(PLAN_PLURAL)
        await until(lambda: api.lists()[PLAN_PLURAL] == 2)
        await until(lambda: phases(build(store.view())) == left)
        assert not watch.states[target(watch, PLAN_PLURAL)].watched
        assert nodes(store) == {"n1", "n2"}


async def test_a_namespace_that_may_not_be_read_holds_up_no_other_one_and_is_shown_for_a_while_only(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, lost = ({target.path for target in targets([namespace])} for namespace in ("ml", "b"))

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path in lost:
            return web.json_response({"kind": "Status", "code": 403, "message": "by the test"}, status=403)
        if "/namespaces/b/" in request.path:
            status = 500 if "watch" in request.query else 200
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []}, status=status)
        return await api.answer(request)

    async with watching(answer, tmp_path, namespaces=("ml", "b")) as (watch, store):
        await asyncio.wait_for(watch.listed.wait(), 10)
        assert nodes(store) == {"n1", "n2"}
        assert [target.namespace for target, state in watch.states.items() if state.forbidden] == ["b"] * 3
        assert (watch._own._registry.get_sample_value("precision_exporter_last_list_timestamp_seconds") or 0) > 0
        lost.clear()
        await until(lambda: not any(state.forbidden for state in watch.states.values()))
        monkeypatch.setattr("precision_operator.exporter.watch.LOST_SECONDS", 0.0)
        lost |= theirs
        api.end_watch(REPORT_PLURAL)
        await until(lambda: nodes(store) == set())


async def test_a_workload_that_was_renamed_while_nobody_watched_gets_into_all_reports(api: Api, tmp_path: Path) -> None:
    async with watching(api.answer, tmp_path) as (_, store):
        await until(lambda: len(api.watches(PROFILE_PLURAL)) == 1)
        api.refused[PROFILE_PLURAL] = 410
        api.end_watch(PROFILE_PLURAL)
        await until(lambda: len(api.watches(PROFILE_PLURAL)) == 2)
        api.put(PROFILE_PLURAL, profile_object(workload={"name": "ours"}))
        api.refused.clear()
        await until(lambda: b'workload="ours"' in build(store.view()).text)
        assert b'workload="llama3-8b"' not in build(store.view()).text
        assert api.lists()[REPORT_PLURAL] == 1
