"""HTTP of operator and exporter. Whoever reaches a port may connect: connections are bounded in number and time."""

import asyncio
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakKeyDictionary

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.log import server_logger

CLOSE_SECONDS = 2.0
"""How long a scrape that is being answered may keep a process that ends."""
MOST_OF_ADDRESS, MOST = 16, 256
LEAST_BYTES = 16 << 10
NEW_BYTES, NEW_SECONDS = 256 << 10, 0.1
SAMPLE = 32
"""Connections whose pace is read before one of them makes room: it costs a system call."""
MOST_HEADERS, HEADER_BYTES = 32, 4096
SOCKET_BYTES = {socket.SO_SNDBUF: 1 << 18, socket.SO_RCVBUF: 1 << 14}
"""The kernel's own choice grows to megabytes, which count as the container's memory."""


class _Arrival(asyncio.Protocol):
    """A connection that has just come: where it is too many, another makes room; then it is handed to aiohttp."""

    def __init__(self, server: web.Server, arrivals: MutableMapping[asyncio.BaseTransport, tuple[str, float]]) -> None:
        self._server, self._arrivals = server, arrivals

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address, now = str((transport.get_extra_info("peername") or ("",))[0]), time.monotonic()
        self._make_room(address, now)
        self._arrivals[transport] = address, now
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def _make_room(self, address: str, now: float) -> None:
        """Close the slowest, best of the largest crowd, if this address or all have too many."""
        transports = (connection.transport for connection in self._server.connections)
        others = [it for it in transports if it and (not it.is_closing() or it.get_write_buffer_size())]
        near = [other for other in others if self._arrivals[other][0] == address]
        crowd = near if len(near) >= MOST_OF_ADDRESS else others if len(others) >= MOST else []
        counts = Counter(self._arrivals[other][0] for other in crowd)

        def pace(other: asyncio.BaseTransport) -> float:
            """Bytes a second, shared by its address; one that has just come is no slow one."""
            whence, since = self._arrivals[other]
            return (_bytes_taken(other) + NEW_BYTES) / (now - since + NEW_SECONDS) / counts[whence]

        if crowd:
            min(random.sample(crowd, min(SAMPLE, len(crowd))), key=pace).abort()


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

    A connection has `request_seconds` for one request and `response_seconds` to read its answer, LEAST_BYTES of it at
    least in each sixth of that time.
    """
    loop = asyncio.get_running_loop()
    arrivals: WeakKeyDictionary[asyncio.BaseTransport, tuple[str, float]] = WeakKeyDictionary()

    def end_slow(transport: asyncio.Transport, least: int) -> None:
        if (taken := _bytes_taken(transport)) < least:
            _end(transport)
        else:
            loop.call_later(response_seconds / 6, end_slow, transport, taken + LEAST_BYTES)

    async def end_connection(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Connection"] = "close"
        response.force_close()
        if request.transport is not None:
            loop.call_later(response_seconds, _end, request.transport)
            end_slow(request.transport, 0)

    # An error that is a client's would fill the log.
    server_logger.addFilter(lambda row: not (row.exc_info and isinstance(row.exc_info[1], HttpProcessingError)))
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
    listener = await loop.create_server(partial(_Arrival, runner.server, arrivals), host, port)
    for listening in listener.sockets:  # what comes by it has the same
        for option, count in SOCKET_BYTES.items():
            listening.setsockopt(socket.SOL_SOCKET, option, count)
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        await runner.cleanup()


def _bytes_taken(transport: asyncio.BaseTransport) -> int:
    """What the client has acknowledged (tcpi_bytes_acked of Linux); 0 where that is not told."""
    sock = transport.get_extra_info("socket")
    if not hasattr(socket, "TCP_INFO") or sock is None or sock.fileno() < 0:
        return 0
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)[120:], sys.byteorder)


def _end(transport: asyncio.Transport) -> None:
    """One that was closed with bytes to send, and has sent them, can't be aborted: asyncio would log an error."""
    if transport.get_extra_info("socket").fileno() >= 0:
        transport.abort()
