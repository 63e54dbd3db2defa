"""HTTP of operator and exporter. Whoever reaches a port may connect: connections are bounded in number and time."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakSet

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.log import server_logger

CLOSE_SECONDS = 2.0
"""How long a scrape that is being answered may keep a process that ends."""
MOST_OF_ADDRESS, MOST = 16, 256
MOST_HEADERS, HEADER_BYTES = 32, 4096
SOCKET_BYTES = {socket.SO_SNDBUF: 1 << 18, socket.SO_RCVBUF: 1 << 14}
"""The kernel's own choice grows to megabytes, which count as the container's memory."""


class _Arrival(asyncio.Protocol):
    """A connection that has just come: where it is too many, another makes room; then it is handed to aiohttp."""

    def __init__(self, server: web.Server, answered: Container[asyncio.BaseTransport]) -> None:
        self._server, self._answered = server, answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._make_room(_address(transport))
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def _make_room(self, address: str) -> None:
        """Close the oldest without a request, best of the largest crowd, if this address or all have too many."""
        others = [one.transport for one in self._server.connections if one.transport and not _is_over(one.transport)]
        near = [other for other in others if _address(other) == address]
        crowd = near if len(near) >= MOST_OF_ADDRESS else others if len(others) >= MOST else []
        if crowd:
            counts = Counter(map(_address, crowd))
            min(crowd, key=lambda other: (other in self._answered, -counts[_address(other)])).abort()


def probes(readiness: Callable[[], tuple[int, str]]) -> web.Application:
    """/healthz: the event loop beats; /readyz: the status and words that `readiness` gives."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        status, text = readiness()
        return web.Response(status=status, text=text)

    served = web.Application()
    served.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return served


@asynccontextmanager
async def serving(
    app: web.Application, host: str, port: int, request_seconds: float = 5.0, response_seconds: float = 30.0
) -> AsyncIterator[int]:
    """Serve for the length of the block; gives the port, which the system chooses where it is 0. OSError if taken.

    A connection has `request_seconds` for one request and `response_seconds` to read its answer.
    """
    loop = asyncio.get_running_loop()
    answered: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def end_connection(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Connection"] = "close"
        response.force_close()
        if request.transport is not None:
            answered.add(request.transport)
            loop.call_later(response_seconds, request.transport.abort)

    server_logger.addFilter(_is_ours)
    app.on_response_prepare.append(end_connection)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=CLOSE_SECONDS,
        keepalive_timeout=request_seconds,
        lingering_time=0.0,
        max_headers=MOST_HEADERS,
        max_field_size=HEADER_BYTES,
    )
    await runner.setup()
    assert runner.server is not None
    listener = await loop.create_server(partial(_Arrival, runner.server, answered), host, port)
    for listening in listener.sockets:  # what comes by it has the same
        for option, count in SOCKET_BYTES.items():
            listening.setsockopt(socket.SOL_SOCKET, option, count)
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        await runner.cleanup()


def _address(transport: asyncio.BaseTransport) -> str:
    return str((transport.get_extra_info("peername") or ("",))[0])


def _is_over(transport: asyncio.Transport) -> bool:
    return transport.is_closing() and not transport.get_write_buffer_size()


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether an error is not a client's: these would fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
