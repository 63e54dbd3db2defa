"""What the operator costs on a large fleet whose every node each profile has measured, and what waits meanwhile.

    python -m benchmarks.reconcile [--nodes 10000] [--profiles 1 3 8 20] [--runs 3] [--changes 5] [--json]

The operator is its own program (`measured_operator`), with a Lease, and reads by its own client from a stand-in for the
API server in another process (`api_stand_in`). Nodes have 31 KiB, reports come from the agent's replays
(`large_fleet`). It starts, reads all, makes its first pass, then ten minutes pass in which nothing changes: its event
loop's clock jumps on whenever it rests, so that its timers fire. Then a node is cordoned, a report or a pod changes,
the driver of a node does, each some times; at last 200 agents of a sweep run, with limits by rack and by watts.

Seconds of CPU are all threads' but the Lease's; of a change they are the median, with what the operator takes at rest
taken off. HELD is for how long nothing else had a turn in the event loop, LEASE the longest time between two renewals
(by default more than 10 s lose it; here it lasts, so that all is reached), HEALTHZ the slowest answer of the liveness
probe, asked five times a second; all wall seconds. Each figure is the worst of the runs. `--json` writes them to
benchmarks/results/reconcile.json, beside those of other sizes.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from pydantic_core import to_json

from benchmarks.api_stand_in import serve
from benchmarks.large_fleet import NAMESPACE, Fleet, node
from precision_lab.fleet.fleet import AGENT_IMAGE

RESULTS = Path(__file__).parent / "results/reconcile.json"
REPOSITORY = AGENT_IMAGE.partition("/")[0]
QUIET_MINUTES, JUMP_SECONDS = 10, 10.0
PROBE_SECONDS, LOOK_SECONDS, QUIET_LOOKS, QUIET_SHARE = 0.2, 0.25, 3, 0.08
STATUS_SECONDS = 2.1
"""Two writes of a profile's status are so far apart."""
SWEPT_SHARE, AGENTS = 0.05, 200
SWEEP = {
    "maxConcurrent": AGENTS,
    "perTopology": [{"key": "topology.kubernetes.io/rack", "max": 8}],
    "powerBudgetWatts": 20_000_000,
}
CHANGES = {"one node": "node", "one report": "report", "one pod": "pod", "a driver": "driver"}
PATIENCE_SECONDS = 1800.0


class Ended(Exception):
    """The operator has ended; its exit code."""


@dataclass
class Cost:
    """What one stage cost: CPU seconds, and the longest that others waited."""

    cpu: float
    held: float
    lease: float
    healthz: float


@dataclass
class Figures:
    """One run's stages by name, MiB at the peak and at rest, and how the operator ended before its time."""

    stages: dict[str, Cost] = field(default_factory=dict)
    peak_mib: float = 0.0
    rest_mib: float = 0.0
    ended: str = ""


class Measured:
    """A running operator and its cluster, from outside."""

    def __init__(
        self, process: asyncio.subprocess.Process, log: Path, http: aiohttp.ClientSession, server: str, operator: str
    ) -> None:
        self._process, self._log, self._http, self._server, self.operator = process, log, http, server, operator
        self._slowest, self.rate = 0.0, 0.0
        self._last: dict[str, float] = {}
        self.figures = Figures()

    async def command(self, command: str, **asked: Any) -> dict[str, Any]:
        """What the stand-in says."""
        async with self._http.post(f"{self._server}/stand-in/{command}", json=asked) as response:
            return dict(await response.json())

    async def look(self, jump: float = 0.0) -> dict[str, Any]:
        """How operator and stand-in fare; the longest waits are those since the stage began."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{jump}\n".encode())
        line = await self._process.stdout.readline()
        if not line:
            last = self._log.read_text().splitlines()[-1:]
            raise Ended(f"exit code {await self._process.wait()} after {list(self.figures.stages)}: {last}")
        now = {"at": time.monotonic()} | json.loads(line) | await self.command("state", pass_seconds=jump)
        self.figures.peak_mib, self.figures.rest_mib = now["peak"], now["rest"]
        for key in ("held", "gap"):
            self._last[key] = now[key] = max(now[key], self._last.get(key, 0.0))
        return now

    async def stage(self, name: str, until: Callable[[], Awaitable[float]]) -> None:
        """Note what `until`, which returns seconds of CPU, cost."""
        self._slowest, self._last = 0.0, {}
        cpu = await until()
        self.figures.stages[name] = Cost(cpu, self._last["held"], self._last["gap"], self._slowest)
        print(f"{name}: {self.figures.stages[name]}, peak {self.figures.peak_mib:.0f} MiB", file=sys.stderr)

    async def spent(self, done: Callable[[dict[str, Any]], Awaitable[bool]]) -> float:
        """Seconds of CPU until `done` says so."""
        began, first = time.monotonic(), (await self.look())["cpu"]
        while not await done(now := await self.look()):
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise TimeoutError(f"after {list(self.figures.stages)}: {now}")
            await asyncio.sleep(LOOK_SECONDS)
        return float(now["cpu"] - first)

    async def quiet(self) -> float:
        """Seconds of CPU until the operator has done nothing, and asked for nothing, for a while."""
        before, rests = await self.look(), 0

        async def rest(now: dict[str, Any]) -> bool:
            nonlocal before, rests
            rests = 0 if busy(before, now) else rests + 1
            before = now
            return rests >= QUIET_LOOKS

        return await self.spent(rest)

    async def rest(self) -> None:
        """Note the seconds of CPU of a second in which nothing happens: probes, beats, questions."""
        before, began = (await self.look())["cpu"], time.monotonic()
        for _ in range(8):
            await asyncio.sleep(LOOK_SECONDS)
            after = (await self.look())["cpu"]
        self.rate = float((after - before) / (time.monotonic() - began))

    async def changed(self, what: str, times: int, first: int) -> float:
        """The median of the seconds of CPU that changes of one object cost."""
        taken = list[float]()
        for number in range(first, first + times):
            await asyncio.sleep(STATUS_SECONDS)
            before, began = (await self.look())["cpu"], time.monotonic()
            await self.command("change", what=what, number=number)
            await self.quiet()
            taken.append((await self.look())["cpu"] - before - self.rate * (time.monotonic() - began))
        return statistics.median(taken)

    async def probe(self) -> None:
        """Ask for /healthz for ever, with a connection of its own each time as a kubelet does."""
        while True:
            began = time.monotonic()
            try:
                async with aiohttp.request("GET", f"{self.operator}/healthz") as response:
                    assert response.status == 200
                self._slowest = max(self._slowest, time.monotonic() - began)
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(PROBE_SECONDS)

    async def ready(self, _: dict[str, Any]) -> bool:
        """Whether all has been listed once."""
        try:
            async with self._http.get(f"{self.operator}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False


def busy(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether the operator works, or waits for answers."""
    return bool(now["open"] or now["cpu"] - before["cpu"] > QUIET_SHARE * (now["at"] - before["at"]))


@asynccontextmanager
async def measured(fleet: Fleet) -> AsyncIterator[Measured]:
    """The stand-in in its process, the operator in its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    serving = context.Process(target=serve, args=(fleet, there), daemon=True)
    serving.start()
    server = await asyncio.to_thread(here.recv)
    with TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.close()
        named = [{"name": "s", "cluster": {"server": server}, "user": {}, "context": {"cluster": "s", "user": "s"}}]
        config = Path(folder) / "config"
        config.write_bytes(to_json({"clusters": named, "users": named, "contexts": named, "current-context": "s"}))
        options = ["--kubeconfig", str(config), "--port", str(port), "--watch-namespaces", NAMESPACE, "--leader-elect"]
        options += ["--lease-namespace", NAMESPACE, "--agent-image", AGENT_IMAGE, "--allowed-images", REPOSITORY]
        options += ["--accept-simulated", "--lease-seconds", "3600", "--renew-deadline", "3000"]
        command = [sys.executable, "-m", "benchmarks.measured_operator", *options]
        pipe, log = asyncio.subprocess.PIPE, Path(folder) / "log"
        with log.open("w") as errors:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors)
        try:
            async with aiohttp.ClientSession() as http:
                operator = Measured(process, log, http, server, f"http://127.0.0.1:{port}")
                probing = asyncio.create_task(operator.probe())
                yield operator
                probing.cancel()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            serving.kill()
            serving.join()


async def run(fleet: Fleet, changes: int) -> Figures:
    """One run, as it stands above."""
    profiles = len(fleet.profiles)

    async def counts_all(now: dict[str, Any]) -> bool:
        return len(now["statuses"]) == profiles

    async def minutes() -> float:
        first, began = (await operator.look())["cpu"], time.monotonic()
        for _ in range(int(QUIET_MINUTES * 60 / JUMP_SECONDS)):
            before = await operator.look(JUMP_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)
            if busy(before, await operator.look()):
                await operator.quiet()
        return float((await operator.look())["cpu"] - first - operator.rate * (time.monotonic() - began))

    async def sweeping(now: dict[str, Any]) -> bool:
        return bool(now["agents"] >= min(AGENTS, SWEPT_SHARE * fleet.nodes))

    async with measured(fleet) as operator:
        try:
            await operator.stage("reading", lambda: operator.spent(operator.ready))
            await operator.stage("first pass", lambda: operator.spent(counts_all))
            await operator.stage("until it rests", operator.quiet)
            states = [status["nodes"] for status in (await operator.look())["statuses"]]
            assert sum(nodes["succeeded"] for nodes in states) == profiles * fleet.nodes - 1, states
            await operator.rest()
            await operator.stage("nothing", minutes)
            for place, (name, what) in enumerate(CHANGES.items()):
                await operator.stage(name, lambda what=what, at=place: operator.changed(what, changes, 100 * at))
            swept = {"nodes": int(SWEPT_SHARE * fleet.nodes), "rollout": SWEEP}
            await operator.command("sweep", **swept)
            await operator.stage("a sweep begins", lambda: operator.spent(sweeping))
            await operator.quiet()
            await operator.rest()
            for place, (name, what) in enumerate(CHANGES.items(), len(CHANGES)):
                in_sweep = f"{name} in it"
                await operator.stage(in_sweep, lambda what=what, at=place: operator.changed(what, changes, 100 * at))
        except Ended as ended:
            operator.figures.ended = str(ended)
    return operator.figures


def worst(runs: list[Figures]) -> Figures:
    """The worst of each figure."""
    names = list(dict.fromkeys(name for it in runs for name in it.stages))
    rows = {name: [it.stages[name] for it in runs if name in it.stages] for name in names}
    stages = {
        name: Cost(*(max(getattr(row, column) for row in of) for column in ("cpu", "held", "lease", "healthz")))
        for name, of in rows.items()
    }
    peak, rest = max(it.peak_mib for it in runs), max(it.rest_mib for it in runs)
    return Figures(stages, peak, rest, "; ".join(filter(None, (it.ended for it in runs))))


def row_of(fleet: Fleet, figures: Figures, runs: int, report_bytes: int) -> dict[str, Any]:
    """One size as JSON; what was not reached is null."""
    stages = figures.stages

    def of(column: str, *names: str) -> float | None:
        values = [getattr(stages[name], column) for name in names or stages if name in stages]
        return round(max(values), 3) if values and (not names or len(values) == len(names)) else None

    ordinary = [*CHANGES][:3]
    return {
        "nodes": fleet.nodes,
        "profiles": len(fleet.profiles),
        "reportBytes": report_bytes,
        "longestHoldSeconds": of("held"),
        "longestRenewalGapSeconds": of("lease"),
        "slowestHealthzSeconds": of("healthz"),
        "readingCpuSeconds": of("cpu", "reading"),
        "firstPassCpuSeconds": of("cpu", "first pass"),
        "nothingCpuSeconds": of("cpu", "nothing"),
        "oneChangeCpuSeconds": of("cpu", *ordinary),
        "driverChangeCpuSeconds": of("cpu", "a driver"),
        "sweepChangeCpuSeconds": of("cpu", *(f"{name} in it" for name in ordinary)),
        "peakMiB": round(figures.peak_mib),
        "restMiB": round(figures.rest_mib),
        "ended": figures.ended or None,
        "runs": runs,
        **provenance(),
    }


def provenance() -> dict[str, str]:
    """The commit and the machine."""
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True).stdout.strip()
    rows = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    processor = next((value.strip() for key, _, value in rows if key.startswith("model name")), platform.machine())
    return {"commit": commit, "machine": f"{os.cpu_count()} cores ({processor}), Python {platform.python_version()}"}


def show(figures: Figures, row: dict[str, Any], node_kib: float) -> None:
    """One size's table."""
    sizes = f"{row['nodes']} nodes of {node_kib:.0f} KiB, {row['profiles']} profiles, reports of {row['reportBytes']} B"
    print(f"\n{sizes}; worst of {row['runs']}")
    print(f"{'':<24}{'CPU s':>10}{'HELD s':>10}{'LEASE s':>10}{'HEALTHZ s':>10}")
    for name, cost in figures.stages.items():
        print(f"{name:<24}{cost.cpu:>10.3f}{cost.held:>10.3f}{cost.lease:>10.3f}{cost.healthz:>10.3f}")
    print(f"memory: peak {figures.peak_mib:.0f} MiB, at the end {figures.rest_mib:.0f} MiB")
    if figures.ended:
        print(f"the operator ended: {figures.ended}")


def write(row: dict[str, Any], path: Path = RESULTS) -> None:
    """Put the row into the file, in the place of one of its size."""
    rows = json.loads(path.read_text()) if path.exists() else []
    size = ("nodes", "profiles")
    rows = [it for it in rows if [it[key] for key in size] != [row[key] for key in size]] + [row]
    rows.sort(key=lambda it: [it[key] for key in size])
    path.write_text(json.dumps(rows, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--profiles", type=int, nargs="+", default=[1, 3, 8, 20])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--changes", type=int, default=5, help="of each kind, of which the median counts")
    parser.add_argument("--json", action="store_true", help=f"write the rows to {RESULTS.name}")
    options = parser.parse_args()
    node_kib = len(to_json(node(0))) / 1024
    for profiles in options.profiles:
        fleet = Fleet(options.nodes, profiles)
        each = max(1, options.nodes // 100)
        places = [(number, index) for number in range(profiles) for index in range(0, options.nodes, each)]
        size = sum(len(to_json(fleet.report(*place)["status"])) for place in places) // len(places)
        figures = worst([asyncio.run(run(fleet, options.changes)) for _ in range(options.runs)])
        row = row_of(fleet, figures, options.runs, size)
        show(figures, row, node_kib)
        if options.json:
            write(row)


if __name__ == "__main__":
    main()
