"""The exporter's own process against a stand-in API server: its start, its first scrape, a burst, its memory.

The stand-in answers lists (by page) and watches over plain HTTP with reports of 6.3 kB, as a real one serves them with
managedFields, conditions and history; TLS is left out. Seconds of the exporter are of CPU, from /proc; memory is what
the kernel counts as resident (VmHWM, VmRSS), which a container's limit is held against.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from tests.support.report_objects import FINISHED, profile_object, recipe_row, report_object, report_status

NAMESPACE = "precision-system"
RECIPES = ("bf16", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4", "nvfp4_no_rht")
MIB = 2**20
START_SECONDS, FIRST_SCRAPE_SECONDS, PEAK_MIB = 8.0, 1.0, 400.0
SECONDS_HOLD_AT, PEAK_HOLDS_AT = 10_000, 5_000
"""Nodes at which the limits above are promised."""
_TICKS = os.sysconf("SC_CLK_TCK")
_QUIET_SECONDS = 1.0


@dataclass(frozen=True)
class ProcessFigures:
    """What one fleet cost: CPU seconds, wall seconds of scrapes, MiB resident."""

    nodes: int
    report_bytes: int
    start_seconds: float
    """CPU from the begin of the process to its readiness."""
    start_peak_mib: float
    first_scrape_seconds: float
    """Wall time of all endpoints, compressed, one after the other."""
    settled_mib: float
    burst_seconds: float
    """CPU for taking in a change of every report, and the scrape after it."""
    burst_peak_mib: float
    after_burst_mib: float


def report_bytes(index: int, pools: int, version: int, rate: float, profile: str = "nightly") -> bytes:
    """One report as an API server lists it."""
    rows = [
        recipe_row(
            recipe,
            (1 + place / 10) * rate,
            tokensPerSecondError="0.0041",
            gpuSpread="0.993",
            quantizationTax="0.042",
            tokensPerJouleNet="21.337",
            difference="faster",
        )
        for place, recipe in enumerate(RECIPES)
    ]
    status = report_status(rows, workload="llama3-8b", baseline="bf16", scope="all", detail=f"result-{index:05}")
    status["hardware"] |= {"pool": f"pool-{index % pools}", "slowestGPU": f"GPU-604ac76c-d9cf-fef3-62e9-{index:012}"}
    past = {"run": "r0", "outcome": "succeeded", "reason": "Scheduled", "finishedAt": FINISHED, "best": "mxfp8 1.37x"}
    figures = {"tokensPerSecond": "130340", "driver": "580.95.05", "data": "simulated", "workloadHash": "5ad1f0c2"}
    status["history"] = [past | figures | {"run": f"r{number}"} for number in range(5)]
    status["recommendation"] = {"bySpeed": "nvfp4", "byEnergy": "nvfp4", "fallback": "mxfp8", "sentence": "x" * 150}
    status["conditions"] = [
        {"type": kind, "status": "True", "reason": "AsReported", "message": "", "lastTransitionTime": FINISHED}
        for kind in ("Fresh", "Succeeded", "PowerValid")
    ]
    fields = {"f:status": {".": {}, "f:results": {}, "f:run": {}, "f:attempt": {}, "f:history": {}}}
    managed = {"manager": "precision-profiler", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
    meta = {"resourceVersion": str(version), "managedFields": [managed, managed | {"subresource": "status"}]}
    raw = report_object(f"gb200-{index:05}", profile, NAMESPACE, status, **meta)
    return json.dumps(raw, separators=(",", ":")).encode()


class StandIn:
    """Lists and watches of profiles, and of the reports that each has of all nodes."""

    def __init__(self, nodes: int, pools: int, profiles: int = 1) -> None:
        self._pools, names = pools, [f"nightly-{number}" for number in range(profiles)]
        self._places = [(name, index) for name in names for index in range(nodes)]
        self._objects = {
            PROFILE_PLURAL: [json.dumps(profile_object(name, NAMESPACE)).encode() for name in names],
            REPORT_PLURAL: [self._report(place, 100, 1.0) for place in range(len(self._places))],
        }
        self._reports_watched = asyncio.Event()
        self._burst: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1000)

    @property
    def report_bytes(self) -> int:
        """The mean size of a report."""
        reports = self._objects[REPORT_PLURAL]
        return sum(map(len, reports)) // len(reports)

    def _report(self, place: int, version: int, rate: float) -> bytes:
        profile, index = self._places[place]
        return report_bytes(index, self._pools, version, rate + index * 7919 % 9973 / 1e6, profile)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A page of a list, or a watch that never ends."""
        objects = self._objects.get(request.match_info["plural"], [])
        if "watch" in request.query:
            return await self._watch(request)
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 500))
        meta = {"resourceVersion": "100"} | ({"continue": str(start + limit)} if start + limit < len(objects) else {})
        items = b",".join(objects[start : start + limit])
        return web.Response(body=b'{"metadata":%b,"items":[%b]}' % (json.dumps(meta).encode(), items))

    async def change_all(self) -> None:
        """A new version of every report, as fast as the exporter reads."""
        await self._reports_watched.wait()
        for place in range(len(self._places)):
            raw = self._report(place, 101 + place, 0.98)
            await self._burst.put(b'{"type":"MODIFIED","object":%b}\n' % raw)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if request.match_info["plural"] != REPORT_PLURAL:
            await asyncio.Event().wait()
        self._reports_watched.set()
        while True:
            await response.write(await self._burst.get())


class Process:
    """A running exporter, as the kernel sees it."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def cpu_seconds(self) -> float:
        """User and system time since it began, its threads' too."""
        fields = (self._folder / "stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_mib(self) -> float:
        """What is resident now."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """The most that was resident since the last `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Let the peak begin anew (proc(5), clear_refs)."""
        (self._folder / "clear_refs").write_text("5")

    async def quiet(self) -> float:
        """CPU seconds once the process has done nothing for a second."""
        spent = self.cpu_seconds()
        while True:
            await asyncio.sleep(_QUIET_SECONDS)
            if (now := self.cpu_seconds()) - spent < 0.02:
                return now
            spent = now

    def _status(self, name: str) -> float:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


@asynccontextmanager
async def exporter(server: str, shards: int) -> AsyncIterator[tuple[Process, str]]:
    """The real process at the chart's level, and its address, read from its log."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as kubeconfig:
        named = [{"name": "s", "cluster": {"server": server}, "user": {}, "context": {"cluster": "s", "user": "s"}}]
        yaml.safe_dump({"clusters": named, "users": named, "contexts": named, "current-context": "s"}, kubeconfig)
        kubeconfig.flush()
        options = ["--watch-namespaces", NAMESPACE, "--port", "0", "--shards", str(shards)]
        command = [sys.executable, "-m", "precision_operator.exporter", *options, "--kubeconfig", kubeconfig.name]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        assert process.stderr
        try:
            line = ""
            while "serving " not in line:
                line = (await process.stderr.readline()).decode()
                assert line, "the exporter ended before it served"
            yield Process(process.pid), line.partition("serving ")[2].strip().removesuffix("/metrics")
        finally:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def served(stand_in: StandIn, shards: int) -> AsyncIterator[tuple[Process, str]]:
    """The exporter of what the stand-in holds, once it is ready, and its address."""
    app = web.Application()
    app.router.add_get("/apis/{group}/{version}/namespaces/{namespace}/{plural}", stand_in.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with exporter(server, shards) as (process, url):
            async with aiohttp.ClientSession() as http:
                await _ready(http, url)
            yield process, url
    finally:
        await runner.cleanup()


async def measured(nodes: int, pools: int, shards: int, profiles: int = 1) -> ProcessFigures:
    """The figures of one fleet."""
    stand_in = StandIn(nodes, pools, profiles)
    async with served(stand_in, shards) as (process, url), aiohttp.ClientSession() as http:
        start, start_peak = process.cpu_seconds(), process.peak_mib()
        first = await _scrape(http, url, shards)
        before = await process.quiet()
        settled = process.resident_mib()
        process.forget_peak()
        await stand_in.change_all()
        await process.quiet()
        await _scrape(http, url, shards)
        burst = await process.quiet() - before
        peaks = (process.peak_mib(), process.resident_mib())
        return ProcessFigures(nodes, stand_in.report_bytes, start, start_peak, first, settled, burst, *peaks)


async def _ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(300):
        while True:
            async with http.get(f"{url}/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)


async def _scrape(http: aiohttp.ClientSession, url: str, shards: int) -> float:
    """Wall seconds of a scrape of every endpoint, compressed."""
    began = time.perf_counter()
    for path in ("/metrics", *(f"/metrics/shard/{index}" for index in range(shards))):
        async with http.get(url + path, headers={"Accept-Encoding": "gzip"}, auto_decompress=False) as response:
            assert response.status == 200, path
            await response.read()
    return time.perf_counter() - began


def table(figures: list[ProcessFigures]) -> Iterator[str]:
    """The figures as lines."""
    yield "the process: CPU s to ready, peak MiB, first scrape s, settled MiB; burst: CPU s, peak MiB, MiB after"
    for row in figures:
        start = f"{row.start_seconds:6.1f} {row.start_peak_mib:5.0f} {row.first_scrape_seconds:7.3f}"
        burst = f"{row.burst_seconds:6.1f} {row.burst_peak_mib:5.0f} {row.after_burst_mib:5.0f}"
        yield f"  {row.nodes:6} {start} {row.settled_mib:5.0f};  {burst}   (reports of {row.report_bytes} B)"
    for row in figures:
        if row.nodes == SECONDS_HOLD_AT:
            yield _held("start, CPU s", row.start_seconds, START_SECONDS, row.nodes)
            yield _held("first scrape after ready, s", row.first_scrape_seconds, FIRST_SCRAPE_SECONDS, row.nodes)
        if row.nodes == PEAK_HOLDS_AT:
            peak = max(row.start_peak_mib, row.burst_peak_mib)
            yield _held("peak, burst included, MiB", peak, PEAK_MIB, row.nodes)


def _held(what: str, measured: float, limit: float, nodes: int) -> str:
    verdict = "holds" if measured <= limit else "DOES NOT HOLD"
    return f"  {what}, {nodes} nodes: {measured:.2f}, at most {limit:g}: {verdict}"


def main(sizes: list[int], pools: int) -> None:
    """Measure these fleets, one shard for 1,000 nodes as the chart advises, and print the table."""
    print("\n".join(table([asyncio.run(measured(nodes, pools, max(1, nodes // 1000))) for nodes in sizes])))
