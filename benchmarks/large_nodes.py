"""The memory of an operator's own process while it lists a fleet of large nodes, again and again.

A stand-in for the API server answers over HTTP: what it lists is as large as on a real fleet, and everything between
the socket and the cache is the operator's own, kopf's watches with it. Nodes are as kubelets and feature discovery
leave them (some 31 KiB): 50 images, labels of GPU and node feature discovery, managedFields.
"""

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from precision_api.facts.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster import paths

IMAGES = 50
FEATURES = 100
OWNED_FIELDS = 120
NODE_LISTS = 4
"""The operator's first list, kopf's, the one after the watch holds, and one more after the watch has been cut."""
CUT_SECONDS = 15.0
"""A watch of nodes ends after so long, as a proxy may end it."""
PATIENCE_SECONDS = 240.0

KINDS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "/api/v1": (("nodes", "Node", False), ("pods", "Pod", True), ("namespaces", "Namespace", False)),
    "/apis/batch/v1": (("jobs", "Job", True),),
    f"/apis/{GROUP}/{VERSION}": (
        (PROFILE_PLURAL, "PrecisionProfile", True),
        (REPORT_PLURAL, "NodePrecisionReport", True),
        (PLAN_PLURAL, "CapacityPlan", True),
    ),
}
"""What discovery names: by path, (plural, kind, namespaced)."""


def large(node: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The node with all that decisions don't need: nearly all of it is the same on each node of a fleet, as it is."""
    meta, name = node["metadata"], node["metadata"]["name"]
    features = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{place:03}": "true" for place in range(FEATURES)}
    features |= {
        "feature.node.kubernetes.io/kernel-version.full": "6.14.0-1013-nvidia-64k",
        "example.com/serial": f"serial-{number:08}",
    }
    owned = {f"f:feature.node.kubernetes.io/cpu-cpuid.FEATURE{place:03}": {} for place in range(OWNED_FIELDS)}
    managed = {"manager": "nfd-master", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    images = [
        {
            "names": [
                f"registry.example.com/team-{place:02}/some-service@sha256:{place:064x}",
                f"registry.example.com/team-{place:02}/some-service:2026.11.{place}",
            ],
            "sizeBytes": 10_000_000_000 - place,
        }
        for place in range(IMAGES)
    ]
    return {
        **node,
        "metadata": meta
        | {
            "labels": meta["labels"] | features,
            "annotations": {"nfd.node.kubernetes.io/feature-labels": ",".join(features)},
            "managedFields": [managed | {"fieldsV1": {"f:metadata": {"f:labels": owned}}}],
        },
        "status": node["status"]
        | {
            "images": images,
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "192.0.2.1"}],
            "conditions": [
                {"type": kind, "status": state, "reason": "KubeletReports", "message": "as the kubelet says"}
                for kind, state in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
            ],
        },
    }


@dataclass
class Server:
    """Lists in pages and watches that show nothing; of nodes, watches end after a while."""

    collections: Mapping[str, Sequence[str]]
    """Objects as JSON, by their collection's path."""
    lists: Counter[str] = field(default_factory=Counter)
    """Complete lists that were given, by path."""
    listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if request.method != "GET":
            return web.json_response(await self._written(request))
        if path in ("/api", "/apis") or path in KINDS:
            return web.json_response(_discovery(path))
        if "watch" in request.query:
            return await self._watch(request)
        if path.rsplit("/", 1)[-1] in {plural for rows in KINDS.values() for plural, _, _ in rows}:
            return self._page(path, request.query)
        return web.json_response({"kind": "Status", "reason": "NotFound", "message": path}, status=404)

    async def _written(self, request: web.Request) -> dict[str, Any]:
        """What an object is after a write: what was sent, or the object as it was."""
        folder, name = request.path.removesuffix("/status").rsplit("/", 1)
        objects = map(json.loads, self.collections.get(folder, ()))
        there = next((item for item in objects if item["metadata"]["name"] == name), None)
        return dict(there if there is not None else await request.json())

    def _page(self, path: str, query: Mapping[str, str]) -> web.Response:
        items = self.collections.get(path, ())
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or len(items))
        more = {"continue": str(start + limit)} if start + limit < len(items) else {}
        meta = json.dumps({"resourceVersion": "1000", **more})
        text = f'{{"metadata": {meta}, "items": [{", ".join(items[start : start + limit])}]}}'
        if not more:
            self.lists[path] += 1
            if self.lists[paths.NODES] >= NODE_LISTS:
                self.listed.set()
        return web.Response(text=text, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path == paths.NODES:
            await asyncio.sleep(CUT_SECONDS)
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            await response.write(json.dumps(gone).encode() + b"\n")
        else:
            await asyncio.Event().wait()
        return response


def _discovery(path: str) -> dict[str, Any]:
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
    rows = KINDS[path]
    verbs = ["get", "list", "watch", "patch"]
    return {
        "resources": [
            {"name": plural, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs}
            for plural, kind, namespaced in rows
        ]
    }


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    """The stand-in's address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass(frozen=True)
class Memory:
    """What the operator's process held: MiB at its peak and at the end; and the mean size of a node as JSON, KiB."""

    peak_mib: float
    last_mib: float
    node_kib: float
    lists: int


async def measure(
    nodes: Iterable[Mapping[str, Any]], profiles: Iterable[Mapping[str, Any]], reports: Iterable[Mapping[str, Any]]
) -> Memory:
    """Run an operator of its own until it has listed all nodes NODE_LISTS times. RuntimeError when it ends before."""
    texts = [json.dumps(large(node, number)) for number, node in enumerate(nodes)]
    server = Server(
        {
            paths.NODES: texts,
            paths.profiles("ml"): [json.dumps(item) for item in profiles],
            paths.reports("ml"): [json.dumps(item) for item in reports],
        }
    )
    with TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.close()
        async with serving(server) as address:
            config = _kubeconfig(Path(folder) / "config", address)
            options = ("--kubeconfig", str(config), "--port", str(port), "--watch-namespaces", "ml")
            command = (sys.executable, "-m", "precision_operator", *options, "--allowed-images", "registry.example.com")
            process = await asyncio.create_subprocess_exec(*command)
            try:
                await _until(server, process)
                memory = _memory(process.pid)
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()
    return Memory(memory["VmHWM"], memory["VmRSS"], sum(map(len, texts)) / len(texts) / 1024, server.lists[paths.NODES])


def _kubeconfig(path: Path, address: str) -> Path:
    user = {"name": "benchmark", "user": {"token": "none"}}
    cluster = {"name": "stand-in", "cluster": {"server": address}}
    context = {"name": "it", "context": {"cluster": "stand-in", "user": "benchmark", "namespace": "ml"}}
    head = {"apiVersion": "v1", "kind": "Config", "current-context": "it"}
    path.write_text(json.dumps(head | {"clusters": [cluster], "users": [user], "contexts": [context]}))
    return path


async def _until(server: Server, process: asyncio.subprocess.Process) -> None:
    listed, ended = asyncio.create_task(server.listed.wait()), asyncio.create_task(process.wait())
    done, rest = await asyncio.wait((listed, ended), timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    if listed not in done:
        raise RuntimeError(f"the operator did not list {NODE_LISTS} times: {dict(server.lists)}")
    await asyncio.sleep(2.0)  # the last page is on its way


def _memory(pid: int) -> dict[str, float]:
    """MiB by the kernel's names: VmHWM is the most that was resident, VmRSS what is now."""
    rows = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows if row[0] in ("VmHWM:", "VmRSS:")}
