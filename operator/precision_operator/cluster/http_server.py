"""HTTP of operator and exporter. Whoever reaches a port may connect: connections are bounded in number and time."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from aiohttp import web
from aiohttp.typedefs import Handler

CLOSE_SECONDS = 2.0
"""How long a scrape that is being answered may keep a process that ends."""
MOST_OF_ADDRESS, MOST = 16, 256
SEND_BUFFER_BYTES = 1 << 18
"""Of a socket: the kernel's own choice grows to megabytes, which count as the container's memory."""


@dataclass
class Connections:
    """Those of one port, each for one request."""

    request_seconds: float = 5.0
    """Until the head of a request is there,"""
    response_seconds: float = 30.0
    """and from then on until its answer is read."""
    _open: dict[asyncio.Transport, tuple[bool, float]] = field(default_factory=dict)
    """Oldest first: whether its request is there, and when it is closed."""

    def admit(self, new: asyncio.Transport) -> None:
        """Take one more: where it is too many, the oldest without a request makes room, best of the largest crowd."""
        self.close_late()
        near = [other for other in self._open if _address(other) == _address(new)]
        crowd = near if len(near) >= MOST_OF_ADDRESS else [*self._open] if len(self._open) >= MOST else []
        if crowd:
            counts = Counter(map(_address, crowd))
            self._close(min(crowd, key=lambda other: (self._open[other][0], -counts[_address(other)])))
        new.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._open[new] = False, monotonic() + self.request_seconds

    @web.middleware
    async def ask(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A request is there; its answer ends the connection."""
        if request.transport in self._open:
            self._open[request.transport] = True, monotonic() + self.response_seconds
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
        for transport, (_, deadline) in [*self._open.items()]:
            if deadline < monotonic() or transport.get_extra_info("socket").fileno() < 0:
                self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        transport.abort()
        del self._open[transport]


class _Arrival(asyncio.Protocol):
    """A connection that has just come, and is handed to aiohttp."""

    def __init__(self, connections: Connections, server: Callable[[], asyncio.Protocol]) -> None:
        self._connections, self._server = connections, server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connections.admit(transport)
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
    arrival = partial(_Arrival, connections, runner.server)
    listener = await asyncio.get_running_loop().create_server(arrival, host, port)
    timing = asyncio.create_task(connections.keep_time())
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        timing.cancel()
        listener.close()
        await runner.cleanup()


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("",))[0])
