"""Answers the API server where it looks for the kubelets of simulated nodes: `kubectl logs` of an agent's pod."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from aiohttp import web

from precision_lab.kubelet.runtime_log import pieces, rendered

LOST = "unable to retrieve container logs for {container}"
"""What a kubelet says when the log's file is gone."""


class PodLog(Protocol):
    """What a pod's container has written; `ended` is set when it will write no more."""

    ended: asyncio.Event

    def written(self) -> bytes | None: ...


LogOf = Callable[[str, str], PodLog | None]
"""The pod of this namespace and name that is here now: it is its own log."""


@asynccontextmanager
async def log_server(log_of: LogOf, port: int, certificate: Path, key: Path) -> AsyncIterator[None]:
    """Serves logs by HTTPS on a loopback port for as long as the block runs."""
    app = web.Application()

    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", partial(_answer, log_of))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, shutdown_timeout=0.1).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def _answer(log_of: LogOf, request: web.Request) -> web.Response:
    where = request.match_info
    log = log_of(where["namespace"], where["pod"])
    if log is None:
        return web.Response(text="")  # a pod that kwok plays: it runs nothing and says nothing
    if request.query.get("follow") == "true":
        await log.ended.wait()
    written = log.written()
    if written is None:
        return web.Response(status=400, text=LOST.format(container=where["container"]))
    limits = (_number(request, "tailLines"), _number(request, "limitBytes"))
    return web.Response(body=rendered(pieces(written), *limits), content_type="text/plain")


def _number(request: web.Request, name: str) -> int | None:
    value = request.query.get(name)
    return int(value) if value else None
