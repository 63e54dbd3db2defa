"""A stand-in for the API server that holds a large fleet: lists in pages, watches, writes, over plain HTTP.

It runs in a process of its own. Nodes and reports are made as they are asked for; what was written stands over them,
and watches show it. Each Job gets a pod that runs. What a benchmark asks of it comes under `/stand-in/`.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web
from pydantic_core import from_json, to_json

from benchmarks.large_fleet import NAMESPACE, Fleet, Json, node
from precision_api.facts.names import (
    ANNOTATION_NODE,
    DEFAULT_PRIORITY_CLASS,
    GROUP,
    PLAN_PLURAL,
    PROFILE_PLURAL,
    REPORT_PLURAL,
    VERSION,
    report_name,
)
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time

KINDS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "/api/v1": (("nodes", "Node", False), ("pods", "Pod", True), ("namespaces", "Namespace", False)),
    "/apis/batch/v1": (("jobs", "Job", True),),
    "/apis/resource.k8s.io/v1": (("resourceslices", "ResourceSlice", False),),
    f"/apis/{GROUP}/{VERSION}": (
        (PROFILE_PLURAL, "PrecisionProfile", True),
        (REPORT_PLURAL, "NodePrecisionReport", True),
        (PLAN_PLURAL, "CapacityPlan", True),
    ),
}
"""What discovery names: by path, (plural, kind, namespaced)."""
_ITEMS_AT_ONCE = 10
"""Of a list: between so many other requests have their turn."""


@dataclass
class Collection:
    """Objects of one kind: those that are made by number, and what was written since, by name; None: deleted."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    make: Callable[[int], Json] = lambda number: {}
    written: dict[str, Json | None] = field(default_factory=dict)
    events: list[tuple[int, bytes]] = field(default_factory=list)
    """resourceVersion and line of each change."""
    watches: dict[asyncio.Queue[bytes | None], float] = field(default_factory=dict)
    """What runs, and when it ends, by the stand-in's clock."""

    def get(self, name: str) -> Json | None:
        if name in self.written or name not in self.numbers:
            return self.written.get(name)
        return self.make(self.numbers[name])

    def names(self) -> Iterator[str]:
        """Those that are there."""
        there = (name for name in self.numbers if self.written.get(name, True) is not None)
        yield from there
        yield from (name for name, item in [*self.written.items()] if item is not None and name not in self.numbers)


class StandIn:
    """The objects of one fleet, and what the operator has done with them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._collections = fleet, dict[str, Collection]()
        self._version = 1000
        self._ahead, self._open, self._renewals = 0.0, 0, [time.monotonic()]
        made = [node(index)["metadata"] for index in range(fleet.nodes)]
        self._collections[paths.NODES] = Collection({meta["name"]: index for index, meta in enumerate(made)}, node)
        rows = [(number, index) for number in range(len(fleet.profiles)) for index in range(fleet.nodes)]
        names = (report_name(fleet.profiles[number]["metadata"]["name"], made[index]["uid"]) for number, index in rows)
        numbers = {name: place for place, name in enumerate(names)}
        reports = Collection(numbers, lambda place: fleet.report(*divmod(place, fleet.nodes)))
        self._collections[paths.reports(NAMESPACE)] = reports
        classes = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
        priority_class = {"metadata": {"name": DEFAULT_PRIORITY_CLASS, "uid": "uid-class"}}
        objects = [(paths.profiles(NAMESPACE), item) for item in fleet.profiles]
        objects += [(paths.config_maps(NAMESPACE), fleet.config_map()), (classes, priority_class)]
        for path, item in objects:
            self._of(path).written[item["metadata"]["name"]] = item
        reports.written[next(iter(numbers))] = None  # so that one agent runs

    def _of(self, path: str) -> Collection:
        return self._collections.setdefault(path, Collection())

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.startswith("/stand-in/"):
            return web.json_response(self._command(path.rpartition("/")[2], await request.json()))
        if path in ("/api", "/apis") or path in KINDS:
            return web.json_response(_discovery(path))
        folder, name = path.removesuffix("/status").rsplit("/", 1)
        if "watch" in request.query:
            return await self._watch(request)
        self._open += 1
        try:
            if request.method == "GET" and name in _PLURALS:
                return await self._list(request)
            if request.method == "GET":
                return _given(self._of(folder).get(name), path)
            return self._written(request.method, path, folder, name, from_json(await request.read() or b"{}"))
        finally:
            self._open -= 1

    async def _list(self, request: web.Request) -> web.StreamResponse:
        query, collection = request.query, self._of(request.path)
        named = dict(pair.split("=", 1) for pair in query.get("fieldSelector", "").split(",") if "=" in pair)
        on_node = named.get("spec.nodeName")
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 10**9)
        names = [*islice(collection.names(), start, start + limit + 1)]
        more = {"continue": str(start + limit)} if len(names) > limit else {}
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        meta = json.dumps({"resourceVersion": str(self._version), **more})
        await response.write(f'{{"metadata": {meta}, "items": ['.encode())
        comma = b""
        for at in range(0, len(names[:limit]), _ITEMS_AT_ONCE):
            items = filter(None, map(collection.get, names[:limit][at : at + _ITEMS_AT_ONCE]))
            texts = [to_json(it) for it in items if on_node in (None, (it.get("spec") or {}).get("nodeName", ""))]
            if texts:
                await response.write(comma + b",".join(texts))
                comma = b","
            await asyncio.sleep(0)
        await response.write(b"]}")
        return response

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        collection, queue = self._of(request.path), asyncio.Queue[bytes | None]()
        since = int(request.query.get("resourceVersion") or self._version)
        for line in [line for version, line in collection.events if version > since]:
            queue.put_nowait(line)
        collection.watches[queue] = self._now() + float(request.query.get("timeoutSeconds") or 300)
        response = web.StreamResponse()
        try:
            await response.prepare(request)
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            del collection.watches[queue]
        return response

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    def _written(self, method: str, path: str, folder: str, name: str, body: Any) -> web.Response:
        if method == "POST":
            folder, name = (
                path,
                body["metadata"].get("name") or f"{body['metadata'].get('generateName')}{self._version}",
            )
        before = self._of(folder).get(name)
        if folder.endswith("/leases"):
            self._renewals.append(time.monotonic())
        if method == "POST":
            if before is not None:
                return _refused(409, "AlreadyExists", path)
            created = {"uid": f"uid-{name}-{self._version}", "creationTimestamp": format_time(datetime.now(UTC))}
            item = self._put(folder, {**body, "metadata": created | body["metadata"] | {"name": name}}, "ADDED")
            if folder == paths.jobs(NAMESPACE):
                self._put(paths.pods(NAMESPACE), _pod(item), "ADDED")
            return web.json_response(item, status=201)
        if before is None:
            return _refused(404, "NotFound", path)
        if method == "DELETE":
            self._gone(folder, name, before)
            return web.json_response({"kind": "Status", "status": "Success"})
        item = from_json(to_json(before)) if method == "PATCH" else body
        for row in body if isinstance(body, list) else ():
            *parents, last = [part.replace("~1", "/") for part in row["path"].strip("/").split("/")]
            there = item
            for part in parents:
                there = there.setdefault(part, {})
            if row["op"] == "test" and there.get(last) != row["value"]:
                return _refused(422, "Invalid", path)
            there[last] = row["value"]
        if method == "PATCH" and isinstance(body, dict):
            item |= {part: item.get(part, {}) | value for part, value in body.items() if isinstance(value, dict)}
        return web.json_response(self._put(folder, item, "MODIFIED"))

    def _put(self, path: str, item: Json, kind: str) -> Json:
        self._version += 1
        item["metadata"] |= {"resourceVersion": str(self._version)}
        self._of(path).written[item["metadata"]["name"]] = item
        self._show(path, item, kind)
        return item

    def _gone(self, path: str, name: str, item: Json) -> None:
        self._version += 1
        self._of(path).written[name] = None
        self._show(path, {**item, "metadata": item["metadata"] | {"resourceVersion": str(self._version)}}, "DELETED")

    def _show(self, path: str, item: Json, kind: str) -> None:
        line = to_json({"type": kind, "object": item}) + b"\n"
        self._of(path).events.append((self._version, line))
        for queue in self._of(path).watches:
            queue.put_nowait(line)

    def _command(self, what: str, asked: Json) -> Json:
        """What the benchmark does as the cluster, or asks of what was done."""
        return dict(getattr(self, f"tell_{what}")(**asked) or {})

    def tell_state(self, pass_seconds: float = 0.0) -> Json:
        """Let time pass for watches. How many requests are open, and the longest gap between renewals since asked."""
        self._ahead += pass_seconds
        for collection in self._collections.values():
            for queue, until in collection.watches.items():
                if until <= self._now():
                    queue.put_nowait(None)
        times = [*self._renewals, time.monotonic()]
        gap = max(after - before for before, after in pairwise(times))
        self._renewals = self._renewals[-1:]
        statuses = [
            (self._of(paths.profiles(NAMESPACE)).get(item["metadata"]["name"]) or {}).get("status")
            for item in self._fleet.profiles
        ]
        pods = sum(1 for _ in self._of(paths.pods(NAMESPACE)).names())
        return {"open": self._open, "gap": gap, "statuses": [*filter(None, statuses)], "agents": pods}

    def tell_change(self, what: str, number: int) -> None:
        """Change one object so that decisions see it."""
        folder = {"report": paths.reports(NAMESPACE), "pod": paths.pods(NAMESPACE)}.get(what, paths.NODES)
        collection = self._of(folder)
        names = [*collection.names()] if what == "pod" else [*collection.numbers]
        name = names[len(names) // 2 + number * 7919 % (len(names) // 2)] if len(names) > 1 else names[0]
        item = from_json(to_json(collection.get(name)))
        if what == "node":
            item["spec"]["unschedulable"] = not item["spec"].get("unschedulable", False)
        elif what == "driver":
            item["metadata"]["labels"] |= {"nvidia.com/cuda.driver-version.full": f"590.{number}.01"}
        elif what == "report":
            row = item["status"]["results"][-1]
            row["tokensPerSecond"] = str(int(float(row["tokensPerSecond"])) + 1)
        else:
            item["status"]["conditions"] = [{"type": "Ready", "status": "True", "message": f"change {number}"}]
        self._put(folder, item, "MODIFIED")

    def tell_sweep(self, nodes: int, rollout: Json) -> None:
        """The first profile has no report of so many nodes of all pools and racks any more, and may measure more at
        once."""
        profile = from_json(
            to_json(self._of(paths.profiles(NAMESPACE)).get(self._fleet.profiles[0]["metadata"]["name"]))
        )
        profile["spec"]["rollout"] = rollout
        profile["metadata"]["generation"] += 1
        reports = self._of(paths.reports(NAMESPACE))
        names = [*islice(reports.numbers, self._fleet.nodes)]
        for name in names[:: max(1, len(names) // nodes - 1)][:nodes]:
            if (item := reports.get(name)) is not None:
                self._gone(paths.reports(NAMESPACE), name, item)
        self._put(paths.profiles(NAMESPACE), profile, "MODIFIED")


_PLURALS = {plural for rows in KINDS.values() for plural, _, _ in rows} | {"localqueues", "events"}


def _pod(job: Json) -> Json:
    """The pod that its controller and its kubelet make of an agent's Job."""
    meta, template = job["metadata"], job["spec"]["template"]
    marks = {"batch.kubernetes.io/job-name": meta["name"], "batch.kubernetes.io/controller-uid": meta["uid"]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    name, now = f"{meta['name']}-x", meta["creationTimestamp"]
    made = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": now}
    marked = {"labels": template["metadata"]["labels"] | marks, "annotations": template["metadata"]["annotations"]}
    status = {
        "phase": "Running",
        "startTime": now,
        "containerStatuses": [{"name": "agent", "state": {"running": {"startedAt": now}}}],
    }
    bound = {"nodeName": meta["annotations"][ANNOTATION_NODE]}
    return {
        "metadata": made | marked | {"ownerReferences": [owner]},
        "spec": template["spec"] | bound,
        "status": status,
    }


def _given(item: Json | None, path: str) -> web.Response:
    return _refused(404, "NotFound", path) if item is None else web.json_response(item)


def _refused(code: int, reason: str, path: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": path}, status=code)


def _discovery(path: str) -> Json:
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        named = [row.removeprefix("/apis/").split("/") for row in KINDS if row.startswith("/apis/")]
        return {
            "groups": [
                {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
                for group, version in named
            ]
        }
    verbs = ["get", "list", "watch", "patch"]
    return {
        "resources": [
            {"name": plural, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs}
            for plural, kind, namespaced in KINDS[path]
        ]
    }


async def _serve(fleet: Fleet, address: Connection) -> None:
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", StandIn(fleet).answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await asyncio.Event().wait()


def serve(fleet: Fleet, address: Connection) -> None:
    """Serve until this process is ended; the address goes through the pipe."""
    asyncio.run(_serve(fleet, address))
