"""HTTP of operator and exporter. Whoever reaches a port may connect: connections are bounded in number and time."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

CLOSE_SECONDS = 2.0
"""How long a scrape that is being answered may keep a process that ends."""
REQUEST_SECONDS, RESPONSE_SECONDS = 5.0, 30.0
"""Until the head of a request is there, and from then on until its answer is read."""
MOST_OF_ADDRESS, MOST = 16, 256
SEND_BUFFER_BYTES = 1 << 18
"""Of a socket: the kernel's own choice grows to megabytes, which count as the container's memory."""


class Connections:
    """Those of one port, each for one request. Where one is too many, the oldest without a request is closed."""

    def __init__(self, request_seconds: float = REQUEST_SECONDS, response_seconds: float = RESPONSE_SECONDS) -> None:
        self._request_seconds = request_seconds
        self._response_seconds = response_seconds
        self._deadlines: dict[asyncio.Transport, float] = {}
        """Of what is open, oldest first: when it is closed, by the event loop's clock."""
        self._asked: set[asyncio.Transport] = set()

    def admit(self, new: asyncio.Transport) -> bool:
        """Whether a connection may stay. Where all have asked, one of the address with the most makes room."""
        self.close_late()
        address = _address(new)
        near = [other for other in self._deadlines if _address(other) == address]
        if len(near) >= MOST_OF_ADDRESS and not self._close_oldest(near):
            return False
        if len(self._deadlines) >= MOST and not self._close_oldest([*self._deadlines]):
            most, count = Counter(map(_address, self._deadlines)).most_common(1)[0]
            if count <= len(near) + 1:
                return False
            self._close(next(other for other in self._deadlines if _address(other) == most))
        new.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._deadlines[new] = _now() + self._request_seconds
        return True

    @web.middleware
    async def ask(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A request has come as a whole; its answer ends the connection."""
        if request.transport in self._deadlines:
            self._asked.add(request.transport)
            self._deadlines[request.transport] = _now() + self._response_seconds
        response = await handler(request)
        response.force_close()
        return response

    async def keep_time(self) -> None:
        """Close what is late, for ever."""
        while True:
            self.close_late()
            await asyncio.sleep(1.0)

    def close_late(self) -> None:
        """Close what is beyond its time, and forget what is closed."""
        for transport, deadline in [*self._deadlines.items()]:
            if deadline < _now() or transport.get_extra_info("socket").fileno() < 0:
                self._close(transport)

    def _close_oldest(self, transports: Sequence[asyncio.Transport]) -> bool:
        """Close the oldest of these that has not asked yet; whether there was one."""
        oldest = next((transport for transport in transports if transport not in self._asked), None)
        if oldest is not None:
            self._close(oldest)
        return oldest is not None

    def _close(self, transport: asyncio.Transport) -> None:
        transport.abort()
        del self._deadlines[transport]
        self._asked.discard(transport)


class _Arrival(asyncio.Protocol):
    """A connection that has just come: it is handed to aiohttp, or closed."""

    def __init__(self, connections: Connections, server: Callable[[], asyncio.Protocol]) -> None:
        self._connections, self._server = connections, server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._connections.admit(transport):
            transport.abort()
            return
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


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
    app: web.Application, host: str, port: int, connections: Connections | None = None
) -> AsyncIterator[int]:
    """Serve for the length of the block; gives the port, which the system chooses where it is 0. OSError if taken."""
    connections = connections or Connections()
    app.middlewares.append(connections.ask)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_SECONDS)
    await runner.setup()
    assert runner.server is not None
    server = runner.server
    try:
        listener = await asyncio.get_running_loop().create_server(partial(_Arrival, connections, server), host, port)
        timing = asyncio.create_task(connections.keep_time())
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            timing.cancel()
            listener.close()
    finally:
        await runner.cleanup()


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("",))[0])


def _now() -> float:
    return asyncio.get_running_loop().time()
