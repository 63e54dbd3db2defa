"""The exporter's HTTP side: /metrics and its shards. A scrape asks nobody, renders no object, and copies no body."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

from aiohttp import web

from precision_operator.cluster.http_server import probes
from precision_operator.core.observe.clock import format_time
from precision_operator.exporter.body import Body, build, size_warning
from precision_operator.exporter.chunks import gzipped, piece, unpacked
from precision_operator.exporter.self_metrics import OwnMetrics, own_version
from precision_operator.exporter.store import Store
from precision_operator.exporter.text import CONTENT_TYPE

_log = logging.getLogger(__name__)
SENT_BYTES = 1 << 16
_NOT_YET = "the reports have not been listed completely yet: try again in a few seconds\n"


class Scrapes:
    """Bodies for scrapes: each generation of the store is put together and compressed once."""

    def __init__(self, store: Store, own_metrics: OwnMetrics, shards: int = 1) -> None:
        self.shards = shards
        self.ready = False
        """Whether all was listed once, and the first body is there: before that, absence means nothing."""
        self.last: dict[str, str | None] = {"at": None, "by": None}
        """When metrics were last asked for, and by whom: `kubectl precision doctor` shows it."""
        self._store = store
        self._own = own_metrics
        self._turn = asyncio.Lock()
        self._body: Body | None = None
        self._warned = False

    async def prepare(self) -> None:
        """Everything was listed: put the first body together, then be ready. No scrape has to wait for that."""
        async with self._turn:
            await self._fresh()
        self.ready = True

    def asked(self, request: web.Request) -> bool:
        """Whether the scrape takes gzip; it is remembered as the last one."""
        agent = request.headers.get("User-Agent", "")[:100]
        self.last = {"at": format_time(datetime.now(UTC)), "by": f"{agent} from {request.remote}"}
        return takes_gzip(request.headers.get("Accept-Encoding", ""))

    def readiness(self) -> tuple[int, str]:
        """Status and words of /readyz."""
        return (200, "ok\n") if self.ready else (503, _NOT_YET)

    async def fleet(self, zipped: bool) -> Iterable[bytes]:
        """What /metrics gives: the exporter's own families, and once it is ready pools, profiles and plans."""
        if not self.ready:
            own_metrics = self._own.text()
            return gzipped(piece(own_metrics)) if zipped else (own_metrics,)
        async with self._turn:
            body = await self._fresh()
            own_metrics = self._own.text()
        return gzipped(body.fleet_packed, piece(own_metrics)) if zipped else (body.fleet, own_metrics)

    async def shard(self, index: int, zipped: bool) -> Iterable[bytes]:
        """What one shard gives. Raises IndexError when there is no such shard."""
        async with self._turn:
            shard = (await self._fresh()).shards[index]
        return gzipped(shard.packed) if zipped else unpacked(shard.packed)

    async def _fresh(self) -> Body:
        view = self._store.view()
        if self._body is None or self._body.generation != view.generation:
            began = time.perf_counter()
            self._body = await asyncio.to_thread(build, view, self.shards, self._body)
            self._own.render.observe(time.perf_counter() - began)
            self._own.tell(self._body)
            self._warn(self._body)
        return self._body

    def _warn(self, body: Body) -> None:
        """Say once that a body nears the limit, and again after there was room in between."""
        text = size_warning(body)
        if text is not None and not self._warned:
            _log.warning(text)
        self._warned = text is not None


def application(scrapes: Scrapes) -> web.Application:
    async def index(_: web.Request) -> web.Response:
        return web.Response(text=_index(scrapes.shards), content_type="text/html")

    async def metrics(request: web.Request) -> web.Response:
        zipped = scrapes.asked(request)
        return _text(await scrapes.fleet(zipped), zipped)

    async def shard(request: web.Request) -> web.Response:
        index = int(request.match_info["index"])
        if index >= scrapes.shards:
            return web.Response(status=404, text=f"there are {scrapes.shards} shards, numbered from 0 (see --shards)\n")
        if not scrapes.ready:
            return web.Response(status=503, text=_NOT_YET, headers={"Retry-After": "5"})
        zipped = scrapes.asked(request)
        return _text(await scrapes.shard(index, zipped), zipped)

    async def scraped(_: web.Request) -> web.Response:
        return web.json_response(scrapes.last)

    app = probes(scrapes.readiness)
    app.router.add_get("/", index)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/scraped", scraped)
    app.router.add_get(r"/metrics/shard/{index:\d{1,3}}", shard)
    return app


def _index(shards: int) -> str:
    """What there is, for who looks with a browser."""
    paths = {
        "/metrics": "Pools, profiles, plans, and the exporter itself.",
        **{f"/metrics/shard/{index}": "Nodes; scrape every shard." for index in range(shards)},
        "/scraped": "Who asked for metrics last, and when.",
        "/healthz": "Whether the process lives.",
        "/readyz": "Whether everything has been listed once.",
    }
    rows = "".join(f'<li><a href="{path}">{path}</a> {text}</li>\n' for path, text in paths.items())
    head = '<!DOCTYPE html>\n<html lang="en"><head><title>precision-exporter</title></head>\n'
    return f"{head}<body><h1>Precision Profiler exporter {own_version()}</h1>\n<ul>\n{rows}</ul></body></html>\n"


def _text(parts: Iterable[bytes], zipped: bool) -> web.Response:
    headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
    return web.Response(body=_sent(parts), headers=headers | ({"Content-Encoding": "gzip"} if zipped else {}))


async def _sent(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The parts, put together or cut: who reads slowly holds no more than one of these."""
    sent = bytearray()
    for part in parts:
        for at in range(0, len(part), SENT_BYTES):
            sent += part[at : at + SENT_BYTES]
            if len(sent) >= SENT_BYTES:
                yield bytes(sent)
                sent.clear()
    yield bytes(sent)


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip (RFC 9110 12.5.3: `gzip;q=0` refuses it)."""
    for part in accept_encoding.lower().split(","):
        coding, _, weight = part.replace(" ", "").partition(";q=")
        if coding == "gzip":
            return weight.strip("0.") != "" if weight else True
    return False
