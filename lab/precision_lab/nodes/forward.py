"""Forwards loopback ports of this machine to the same ports inside a sandbox, whose network nobody outside reaches.

`python -m precision_lab.nodes.forward PID PORT [PORT ...]`: PID is a process of the sandbox. The ports are bound
first; then this process enters the sandbox's network, where it makes all its connections.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial

CLONE_NEWNET = 0x40000000
CHUNK = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True)


def enter_network_of(pid: int) -> None:
    """Moves this thread into the network namespace of a process. Raises OSError."""
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if _libc.setns(handle, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"entering the network of process {pid}")
    finally:
        os.close(handle)


def listening(port: int) -> socket.socket:
    """A socket on a loopback port of the network that this thread is in. Raises OSError where it is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


async def _connected(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Joins one connection from outside with one inside, until both directions have ended."""
    try:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()  # as a port on which nobody listens
        return
    await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
    for end in (writer, there_writer):
        end.transport.abort()


async def serve(pid: int, ports: Sequence[int]) -> None:
    """Until cancelled."""
    listeners = {port: listening(port) for port in ports}
    enter_network_of(pid)
    servers = [await asyncio.start_server(partial(_connected, port), sock=bound) for port, bound in listeners.items()]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
