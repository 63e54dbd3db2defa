"""A bad road to the API server: watches that lag, and requests that fail in all the ways in which requests do.

It listens on loopback without TLS and passes everything on, credentials included, but for what its troubles say. Which
requests meet trouble is counted out (every third, every seventh), not drawn, so that a run can be repeated.
"""

import asyncio
import json
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import aiohttp
from aiohttp import web

from precision_lab.cluster.kubeconfig import read, write
from precision_lab.release.install import NAMESPACE
from precision_operator.cluster.connection import kopf_connection
from tests.support.site import Site

Kind = Literal["refused", "lost answer", "500", "429", "410", "cut", "hang"]
HOP_BY_HOP = {"connection", "host", "keep-alive", "transfer-encoding", "content-length"}
GONE = {"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old resource version", "code": 410}
CUT_SECONDS = 1.0
"""How long a watch lives that is to be cut."""


@dataclass(frozen=True)
class Trouble:
    """What becomes of every `every`th request of a method (WATCH is one here) whose path ends so.

    refused: the connection is dropped before anything was done; lost answer: after it was done; 410: a watch says that
    it can't go on; cut: a watch breaks off after a second; hang: no answer ever comes.
    """

    kind: Kind
    method: str
    every: int
    path_end: str = ""


@dataclass
class Road:
    """The proxy's settings, and what it has done so far."""

    lag_seconds: float
    troubles: Sequence[Trouble]
    port: int = 0
    made: Counter[str] = field(default_factory=Counter)
    """Troubles made, by kind."""
    hanging: int = 0
    """Requests that wait for an answer that never comes."""
    _met: Counter[Trouble] = field(default_factory=Counter)

    def trouble(self, method: str, path: str) -> Kind | None:
        """What shall happen to this request."""
        for row in self.troubles:
            if row.method == method and path.endswith(row.path_end):
                self._met[row] += 1
                if self._met[row] % row.every == 0:
                    self.made[row.kind] += 1
                    return row.kind
        return None


@contextmanager
def lagging_proxy(
    site: Site, folder: Path, lag_seconds: float = 0.0, troubles: Sequence[Trouble] = ()
) -> Iterator[Road]:
    """The operator reaches its API server through a proxy, in a thread of its own, for the length of the block."""
    road, direct = Road(lag_seconds, troubles), site.operator.kubeconfig
    ready: queue.Queue[asyncio.Event] = queue.Queue()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with _server(direct, road):
            ready.put(ending := asyncio.Event())
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ending = ready.get(timeout=10)
    credentials = replace(read(direct), server=f"http://127.0.0.1:{road.port}")
    try:
        with site.operated_by(replace(site.operator, kubeconfig=write(folder / "kubeconfig", credentials, NAMESPACE))):
            yield road
    finally:
        loops[0].call_soon_threadsafe(ending.set)
        thread.join(10)


@asynccontextmanager
async def _server(direct: Path, road: Road) -> AsyncIterator[None]:
    upstream = await kopf_connection(str(direct))
    connector = aiohttp.TCPConnector(ssl=upstream.as_ssl_context(), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=timeout) as session:

        async def answer(request: web.Request) -> web.StreamResponse:
            return await _answer(request, session, upstream.server, road)

        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        road.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()


async def _answer(request: web.Request, session: aiohttp.ClientSession, server: str, road: Road) -> web.StreamResponse:
    watching = request.query.get("watch") in ("1", "true")
    trouble = road.trouble("WATCH" if watching else request.method, request.path)
    match trouble:
        case "refused":
            return _drop(request)
        case "500":
            return web.json_response({"kind": "Status", "message": "made by a test", "code": 500}, status=500)
        case "429":
            return web.json_response({"kind": "Status", "code": 429}, status=429, headers={"Retry-After": "1"})
        case "hang":
            return await _hang(road)
        case "410":
            return web.Response(text=json.dumps({"type": "ERROR", "object": GONE}) + "\n")
    headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
    url, body = server + request.raw_path, await request.read() or None
    async with session.request(request.method, url, headers=headers, data=body) as upstream:
        if watching:
            return await _late(request, upstream, road.lag_seconds, CUT_SECONDS if trouble == "cut" else None)
        told = await upstream.read()
        if trouble == "lost answer":
            return _drop(request)
        return web.Response(status=upstream.status, headers=_headers(upstream), body=told)


async def _hang(road: Road) -> web.StreamResponse:
    """No answer, until who asked goes away."""
    road.hanging += 1
    try:
        await asyncio.Event().wait()
    finally:
        road.hanging -= 1
    raise AssertionError("nobody sets that event")


async def _late(
    request: web.Request, upstream: aiohttp.ClientResponse, lag_seconds: float, life_seconds: float | None
) -> web.StreamResponse:
    """Passes a watch on, every byte `lag_seconds` after it came; for `life_seconds` only, where that is a number."""
    response = web.StreamResponse(status=upstream.status, headers=_headers(upstream))
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    coming: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read_on() -> None:
        async for chunk in upstream.content.iter_any():
            coming.put_nowait((loop.time() + lag_seconds, chunk))
        coming.put_nowait((loop.time() + lag_seconds, b""))

    reading = asyncio.create_task(read_on())
    try:
        async with asyncio.timeout(life_seconds):
            while True:
                due, chunk = await coming.get()
                await asyncio.sleep(due - loop.time())
                if not chunk:
                    break
                await response.write(chunk)
    except (TimeoutError, ConnectionError):
        return _drop(request, response)
    finally:
        reading.cancel()
    return response


def _drop(request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Ends the connection without a word."""
    if request.transport is not None:
        request.transport.abort()
    return response or web.Response()


def _headers(upstream: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in upstream.headers.items() if name.lower() not in HOP_BY_HOP}
