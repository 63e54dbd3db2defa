"""The door of operator and exporter, with clients that ask half, read slowly, or come in crowds."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from precision_lab.processes.ports import free_ports
from precision_operator.cluster.http_server import MOST, MOST_OF_ADDRESS, probes, serving
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.server import Scrapes, application
from tests.support.eventually import eventually
from tests.support.exposition import store_of

BODY = b"precision_up 1\n" * (1 << 20)
PAGE_BYTES = 4096
HEAD_END = b"Host: x\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LargeScrapes(Scrapes):
    """Its /metrics has 15 MiB."""

    async def fleet(self, zipped: bool) -> Iterable[bytes]:
        return (BODY,)


@asynccontextmanager
async def metrics_served(request_seconds: float = 5.0, response_seconds: float = 30.0) -> AsyncIterator[int]:
    app = application(LargeScrapes(store_of(), OwnMetrics()))
    async with serving(app, "127.0.0.1", 0, request_seconds, response_seconds) as port:
        yield port


@asynccontextmanager
async def connected(
    port: int, count: int, addresses: int, words: bytes, buffer: int = PAGE_BYTES
) -> AsyncIterator[list[Stream]]:
    """So many connections from so many addresses, each of which has said `words`; they take `buffer` bytes at once."""
    streams: list[Stream] = []
    try:
        for number in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            sock.bind((f"127.0.0.{2 + number % addresses}", 0))
            sock.connect(("127.0.0.1", port))
            streams.append(await asyncio.open_connection(sock=sock, limit=buffer))
            streams[-1][1].write(words)
        await asyncio.sleep(0.2)
        yield streams
    finally:
        for _, writer in streams:
            writer.transport.abort()
        await asyncio.sleep(0)


def open_at(port: int) -> int:
    """How many connections are established at the server's side, 127.0.0.1 (/proc/net/tcp, state 1)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1] == f"0100007F:{port:04X}" and row[3] == "01" for row in rows)


async def answer(port: int, path: str = "/healthz") -> int:
    async with (
        aiohttp.ClientSession(headers={"Accept-Encoding": "identity"}) as http,
        http.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        await response.read()
        assert response.headers["Connection"] == "close"
        return response.status


async def test_no_host_is_every_address_of_ipv4_and_ipv6() -> None:
    (port,) = free_ports(1)
    async with serving(probes(lambda: (200, "")), "", port):
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /healthz HTTP/1.1\r\n" + HEAD_END)
            assert b"200 OK" in await reader.readline()
            writer.close()


HALF, SLOW = b"GET /metr", b"GET /metrics HTTP/1.1\r\n" + HEAD_END


@pytest.mark.parametrize(
    ("words", "count", "addresses", "most"),
    [(HALF, 40, 1, MOST_OF_ADDRESS), (SLOW, 40, 1, MOST_OF_ADDRESS), (HALF, 400, 100, MOST), (SLOW, 400, 20, MOST)],
    ids=["half requests of an address", "slow readers of an address", "half requests of all", "slow readers of all"],
)
async def test_connections_are_bounded_and_another_address_is_still_answered(
    words: bytes, count: int, addresses: int, most: int
) -> None:
    async with metrics_served(60.0, 60.0) as port, connected(port, count, addresses, words):
        await asyncio.to_thread(eventually, lambda: open_at(port) == most, 15.0)
        assert [await answer(port), await answer(port, "/metrics")] == [200, 200]


async def test_of_an_address_the_oldest_half_request_makes_room() -> None:
    async with metrics_served() as port, connected(port, 1, 1, SLOW, 1 << 20) as [(asked, _)]:
        reading = asyncio.create_task(asked.read())
        async with connected(port, MOST_OF_ADDRESS, 1, HALF) as streams:
            assert [stream[0].at_eof() for stream in streams[:2]] == [True, False]
            assert len(await reading) > len(BODY)


async def test_who_comes_takes_the_place_of_the_slowest_and_keeps_it_while_a_crowd_comes_again() -> None:
    async with metrics_served() as port, connected(port, 300, 60, SLOW):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with connected(port, 100, 60, SLOW):
            assert open_at(port) == MOST
            writer.write(SLOW)
            assert len(await reader.read(-1)) > len(BODY)


async def test_a_response_that_is_read_too_slowly_ends_before_its_time() -> None:
    async with metrics_served(60.0, 12.0) as port, connected(port, 4, 1, SLOW):
        assert open_at(port) == 4
        await asyncio.to_thread(eventually, lambda: open_at(port) == 0, 8.0)


async def test_of_a_response_that_is_read_nothing_is_logged_when_its_time_is_over() -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with metrics_served(5.0, 0.6) as port:
        assert [await answer(port, "/metrics") for _ in range(4)] == [200] * 4
        async with connected(port, 8, 1, SLOW, 1 << 20) as streams:
            await asyncio.gather(*(reader.read(1 << 20) for reader, _ in streams))
        await asyncio.sleep(0.8)
    assert errors == []


@pytest.mark.parametrize("words", [HALF, SLOW, b""], ids=["half", "slow", "silent"])
async def test_who_is_late_is_closed(words: bytes) -> None:
    async with metrics_served(0.5, 1.0) as port, connected(port, 4, 1, words):
        assert open_at(port) == 4
        await asyncio.to_thread(eventually, lambda: open_at(port) == 0, 5.0)


async def test_who_reads_slowly_holds_no_body() -> None:
    before = resident_bytes()
    async with metrics_served() as port, connected(port, 64, 8, SLOW):
        assert open_at(port) == 64
        assert resident_bytes() - before < 64 << 20


async def test_a_crowd_on_the_metrics_leaves_the_probes_alone() -> None:
    async with (
        metrics_served() as port,
        serving(probes(lambda: (503, "not yet\n")), "127.0.0.1", 0) as probe_port,
        connected(port, 400, 100, HALF),
    ):
        assert [await answer(probe_port), await answer(probe_port, "/readyz")] == [200, 503]


ENDLESS = b" /metrics HTTP/1.1\r\nContent-Length: 999999999\r\n" + HEAD_END + b"x" * (1 << 20)
REFUSED = {
    "an unknown path": (b"GET /nowhere HTTP/1.1\r\n" + HEAD_END, b"404"),
    "an endless body": (b"POST" + ENDLESS, b"405"),
    "no HTTP": (b"nonsense\r\n\r\n", b"400"),
    "a line without end": (b"GET /" + b"a" * (1 << 20), b"400"),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 40 + HEAD_END, b"400"),
    "a large header": (b"GET / HTTP/1.1\r\na: " + b"b" * 5000 + b"\r\n" + HEAD_END, b"400"),
}


@pytest.mark.parametrize(("words", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_ends_its_connection_at_once_and_fills_no_log(
    words: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with metrics_served() as port, connected(port, 1, 1, words) as [(reader, _)]:
        with suppress(ConnectionError):  # what is still sent meets a closed port
            assert status in await reader.readline()
        await asyncio.to_thread(eventually, lambda: open_at(port) == 0, 4.0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_is_refused_is_held_no_longer_than_it_is_read() -> None:
    """aiohttp's errors are cycles, with what was read at once in them: few bytes, until they are collected."""
    gc.disable()
    tracemalloc.start()
    try:
        async with metrics_served() as port:
            for _ in range(4):
                async with connected(port, 16, 4, REFUSED["a line without end"][0]):
                    pass
            assert tracemalloc.get_traced_memory()[0] < 64 * 256 << 10
    finally:
        tracemalloc.stop()
        gc.enable()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
