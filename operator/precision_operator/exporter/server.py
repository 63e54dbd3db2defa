"""The exporter's HTTP side: /metrics, /healthz and /readyz. A scrape asks nobody and renders nothing in the loop."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from precision_operator.exporter.body import Body, Packed, build, pack
from precision_operator.exporter.own import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.exporter.text import CONTENT_TYPE

_NOT_YET = "the reports have not been listed completely yet: try again in a few seconds\n"


class Scrapes:
    """Bodies for scrapes: each generation of the store is put together and compressed once."""

    def __init__(self, store: Store, own: OwnMetrics) -> None:
        self._store = store
        self._own = own
        self._turn = asyncio.Lock()
        self._body: Body | None = None
        self._packed: Packed | None = None

    async def plain(self) -> bytes:
        """The whole text: the fleet's families and the exporter's own."""
        async with self._turn:
            return (await self._fresh()).text + self._own.text()

    async def zipped(self) -> bytes:
        """The same as one gzip member."""
        async with self._turn:
            body = await self._fresh()
            if self._packed is None:
                self._packed = await asyncio.to_thread(pack, body.text)
            return self._packed.finish(self._own.text())

    async def _fresh(self) -> Body:
        view = self._store.view()
        if self._body is None or self._body.generation != view.generation:
            began = time.perf_counter()
            self._body, self._packed = await asyncio.to_thread(build, view), None
            self._own.render.observe(time.perf_counter() - began)
            self._own.tell(self._body)
        return self._body


def application(store: Store, own: OwnMetrics) -> web.Application:
    """The web application over one store."""
    scrapes = Scrapes(store, own)

    async def metrics(request: web.Request) -> web.Response:
        if not store.complete:
            return web.Response(status=503, text=_NOT_YET, headers={"Retry-After": "5"})
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if takes_gzip(request.headers.get("Accept-Encoding", "")):
            return web.Response(body=await scrapes.zipped(), headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=await scrapes.plain(), headers=headers)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if store.complete else web.Response(status=503, text=_NOT_YET)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


async def serve(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listen; gives the runner (call its cleanup at the end) and the port, which the system chooses where it is 0."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner, int(runner.addresses[0][1])


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip (RFC 9110 12.5.3: `gzip;q=0` refuses it)."""
    for part in accept_encoding.lower().split(","):
        coding, _, weight = part.replace(" ", "").partition(";q=")
        if coding == "gzip":
            return weight.strip("0.") != "" if weight else True
    return False
