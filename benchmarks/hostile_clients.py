"""Operator and exporter of the chart under clients and objects that mean harm, on the lab's real API server.

`--minutes 10`: 1,100 connections to each program that have sent half a request (and 300 to each port of probes), 40
that ask for all metrics and read nothing, from a hundred addresses of loopback, closed ones coming back; and pods that
bear the operator's labels, of which one redirects to the Secrets and one answers without end, while support bundles are
made. Each program may open 1,024 descriptors. What must hold: the Lease stays with its holder, no process ends, probes
answer within the kubelet's time, scrapes within Prometheus' 10 s, memory stays below the chart's limits.

`--objects 500`: so many objects of 1 MB of each kind that tenants write, there before the programs start: memory must
stay below half of the limits. Memory is VmHWM; both programs have it from their start on.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from benchmarks.exporter_process import MIB, Process
from benchmarks.tenants_on_cluster import LARGE, write_reports
from precision_api.facts.names import AGENT_APP, API_VERSION, LABEL_APP, LABEL_PROFILE_UID, PLAN_PLURAL
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.processes.ports import free_ports
from precision_lab.release.install import NAMESPACE, RELEASE, Program, install
from precision_operator.cli.commands.support_bundle import gathered_bundle
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.raw_object import quantity
from tests.e2e.test_support_bundle import LABELS, PLANTED, give_address, sent_on, served_pod, template
from tests.support.site import profile_manifest

VALUES = yaml.safe_load(Path("charts/precision-profiler/values.yaml").read_text())
LIMITS_MIB = {
    name: (quantity(VALUES[name]["resources"]["limits"]["memory"]) or 0) / MIB for name in ("operator", "exporter")
}
"""Of the chart."""
DESCRIPTORS = 1024
HALF, HALF_AT_PROBES, SLOW, ADDRESSES = 1100, 300, 40, 100
PROBE_SECONDS, SCRAPE_SECONDS = 5.0, 10.0
"""What the chart's liveness probe and ServiceMonitor wait."""
BEFORE_SECONDS, BACK_SECONDS, HOLD_SECONDS = 10.0, 5.0, 35.0
SAMPLE_SECONDS, SCRAPE_EVERY, BUNDLE_EVERY = 1.0, 15, 30
SIDE_BY_SIDE = 8
KINDS = ("profiles", "plans", "pods", "jobs")
SETTLE_SECONDS = 30
"""Each list was taken, and taken again, and pending pods were looked at."""


@dataclass
class Seen:
    """What was seen of everything over the time."""

    worst: dict[str, float] = field(default_factory=dict)
    """Seconds of the slowest answer, by what was asked."""
    failures: Counter[str] = field(default_factory=Counter)
    descriptors: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    """That were made by the attackers."""

    async def ask(self, name: str, asking: Awaitable[object], seconds: float) -> None:
        """Take the time of an answer; one that comes later than `seconds`, or not at all, is a failure."""
        began = time.monotonic()
        try:
            await asyncio.wait_for(asking, seconds)
        except Exception as error:
            self.failures[f"{name}: {type(error).__name__}"] += 1
        self.worst[name] = max(self.worst.get(name, 0.0), time.monotonic() - began)


@dataclass(frozen=True)
class Running:
    """A program as a process with its two ports."""

    name: str
    program: Program
    probe_port: int

    @classmethod
    def of(cls, program: Program, probe_port: int) -> "Running":
        limited = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *program.argv, f"--probe-port={probe_port}")
        return cls(program.name, replace(program, argv=limited), probe_port)

    @property
    def pid(self) -> int:
        return self.program.lab.processes.states()[self.program.name].pid

    def ends(self) -> bool:
        return self.program.lab.processes.states()[self.program.name].exit is not None


def started(lab: Lab) -> list[Running]:
    """Both programs of the chart, running and ready."""
    installed = install(lab, watch=(LARGE,), start=False)
    ports = free_ports(len(installed.programs))
    return [Running.of(program, port) for program, port in zip(installed.programs.values(), ports, strict=True)]


async def crowd(seen: Seen, port: int, number: int, words: bytes, hold: float) -> None:
    """One connection of a crowd, for ever: it says `words`, reads nothing, and comes back after it was closed."""
    while True:
        source = (f"127.0.1.{1 + number % ADDRESSES}", 0)
        with suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source, limit=2**12)
            seen.connections += 1
            writer.write(words)
            with suppress(OSError, asyncio.TimeoutError, ValueError):
                await asyncio.wait_for(reader.read(1) if words.endswith(b"tr") else asyncio.sleep(hold), hold)
            writer.transport.abort()
        await asyncio.sleep(BACK_SECONDS)


async def fetch(url: str, gzip: bool = False) -> None:
    headers = {"Accept-Encoding": "gzip" if gzip else "identity"}
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as http, http.get(url) as response:
        assert response.status == 200, response.status
        await response.read()


async def watch_programs(seen: Seen, running: list[Running], api: Cluster, until: float) -> list[str]:
    """Ask as kubelet and Prometheus do until the time is over; gives the holders of the Lease, in turn."""
    lease = paths.item(paths.leases(NAMESPACE), f"{RELEASE}-operator")
    holders: list[str] = []
    second = 0
    while time.monotonic() < until:
        began = time.monotonic()
        asking = []
        for one in running:
            url = f"http://127.0.0.1:{one.probe_port}"
            asking += [
                seen.ask(f"{one.name} {path}", fetch(f"{url}{path}"), PROBE_SECONDS) for path in ("/healthz", "/readyz")
            ]
            if second % SCRAPE_EVERY == 0:
                pages = ("/metrics", "/metrics/shard/0") if one.name == "exporter" else ("/metrics",)
                asking += [
                    seen.ask(f"{one.name} {page}", fetch(f"{one.program.url}{page}", True), SCRAPE_SECONDS)
                    for page in pages
                ]
            seen.descriptors[one.name] = max(seen.descriptors[one.name], len(os.listdir(f"/proc/{one.pid}/fd")))
        await asyncio.gather(*asking)
        holder = str((await api.get(lease))["spec"]["holderIdentity"])
        if holders[-1:] != [holder]:
            holders.append(holder)
        second += 1
        await asyncio.sleep(max(0.0, SAMPLE_SECONDS - (time.monotonic() - began)))
    return holders


async def make_bundles(seen: Seen, api: Cluster, proxied: dict[str, str]) -> None:
    """Support bundles, and what their client makes of the hostile pods, for ever."""
    while True:
        for place in (NAMESPACE, "tenant"):  # not the one with the reports: redaction would hold this loop
            bundle = await gathered_bundle(api, place)
            if PLANTED in json.dumps(bundle.files):
                seen.failures["a Secret in a bundle"] += 1
        try:
            await api.get_text(proxied["redirect"])
            seen.failures["a redirect was followed"] += 1
        except ApiError as error:
            seen.failures["a redirect is no error"] += error.reason != "Redirected"
        size = len(await api.get_text(proxied["endless"]))
        seen.failures["an endless body is not cut"] += size > 16 * MIB
        await asyncio.sleep(BUNDLE_EVERY)


async def endless(request: web.Request) -> web.StreamResponse:
    """A body without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b"x" * 65536)
    return response


Ports = tuple[str, int, int]
"""A program's name, its port and that of its probes."""


async def _attack(kubeconfig: Path, programs: list[Ports], seconds: float) -> Seen:
    seen = Seen()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(administrator(kubeconfig))
        secret = {"metadata": {"name": "s"}, "data": {"k": PLANTED}}
        await api.create(paths.collection("v1", "secrets", "tenant"), secret)
        proxied = {}
        for name, handler in (("redirect", sent_on), ("endless", endless)):
            address, port, _ = await stack.enter_async_context(served_pod(handler))
            await api.create(paths.pods("tenant"), template(port) | {"metadata": {"name": name, "labels": LABELS}})
            await give_address(api, "tenant", name, address)
            proxied[name] = f"{paths.item(paths.pods('tenant'), name)}:{port}/proxy/metrics"
        crowds = [asyncio.create_task(make_bundles(seen, api, proxied))]
        for program, own_port, probe_port in programs:
            whole = b"GET /metrics" + (b"/shard/0" if program == "exporter" else b"") + b" HTTP/1.1\r\nHost: x\r\n\r\n"
            for count, port, words, hold in (
                (HALF, own_port, b"GET /metr", 600.0),
                (HALF_AT_PROBES, probe_port, b"GET /metr", 600.0),
                (SLOW, own_port, whole, HOLD_SECONDS),
            ):
                crowds += [asyncio.create_task(crowd(seen, port, number, words, hold)) for number in range(count)]
        await asyncio.sleep(seconds)
        for task in crowds:
            task.cancel()
        done, _ = await asyncio.wait(crowds, timeout=HOLD_SECONDS)
        for task in done:
            if not task.cancelled() and (error := task.exception()):
                seen.failures[f"{type(error).__name__}: {error}"[:200]] += 1
    return seen


def attack(kubeconfig: Path, programs: list[Ports], seconds: float) -> Seen:
    """The crowds, and what was seen of the pods, in a process of its own: it must not hold up who takes the times."""
    return asyncio.run(_attack(kubeconfig, programs, seconds))


def attacked(lab: Lab, running: list[Running], minutes: float) -> tuple[Seen, list[str]]:
    """What was seen in that time, and the holders of the Lease."""

    async def watch(seen: Seen) -> list[str]:
        async with administrator(lab.kubeconfig) as api:
            return await watch_programs(seen, running, api, time.monotonic() + 60 * minutes)

    programs = [(one.name, one.program.port, one.probe_port) for one in running]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        attacking = pool.apply_async(attack, (lab.kubeconfig, programs, 60 * minutes + BEFORE_SECONDS))
        time.sleep(BEFORE_SECONDS)
        seen = Seen()
        holders = asyncio.run(watch(seen))
        attackers = attacking.get(2 * HOLD_SECONDS)
    seen.connections = attackers.connections
    seen.failures.update(attackers.failures)
    return seen, holders


def crowds(minutes: float, reports: int) -> bool:
    """Whether all held; the figures are printed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with start_lab(settings=LabSettings(simulate=False)) as lab:
        running = started(lab)
        lab.create_namespace("tenant")
        asyncio.run(write_reports(lab.kubeconfig, reports))
        for one in running:
            one.program.start()
        pids = {one.name: one.pid for one in running}
        before = {one.name: Process(one.pid).resident_mib() for one in running}
        seen, holders = attacked(lab, running, minutes)
        same = all(pids[one.name] == one.pid and not one.ends() for one in running)
        peaks = {one.name: Process(one.pid).peak_mib() for one in running}
    failures = {name: count for name, count in seen.failures.items() if count}
    print(f"{minutes:g} min, {seen.connections:,} hostile connections, {reports:,} reports")
    for name, seconds in sorted(seen.worst.items()):
        print(f"  {name:<28} slowest answer {seconds:6.2f} s")
    for name, peak in peaks.items():
        print(
            f"  {name}: {before[name]:.0f} MiB before, {peak:.0f} MiB at most, limit {LIMITS_MIB[name]:.0f}; "
            f"{seen.descriptors[name]} of {DESCRIPTORS} descriptors at most"
        )
    print(f"  holders of the Lease: {len(holders)}; processes: {'the same' if same else 'RESTARTED'}")
    print(f"  failures: {failures or 'none'}")
    return same and len(holders) == 1 and not failures and all(peaks[name] < LIMITS_MIB[name] for name in peaks)


def large(kind: str, number: int, size: int) -> tuple[str, dict[str, Any]]:
    """Collection and body of an object of about `size` bytes."""
    name = f"large-{number:04}"
    prefix = ".".join(["x" * 60] * 4)
    finalizers = [f"{prefix}/{index:05}" for index in range(size // 255)]
    meta = {"name": name, "finalizers": finalizers}
    if kind == "profiles":
        return paths.profiles(LARGE), profile_manifest(LARGE, name) | {"metadata": meta}
    if kind == "plans":
        spec = {
            "fleet": {"namespaces": [LARGE]},
            "jobs": [{"name": "j", "workload": {"preset": "llama3-8b"}, "tokens": "1B"}],
        }
        return paths.collection(API_VERSION, PLAN_PLURAL, LARGE), {
            "apiVersion": API_VERSION,
            "kind": "CapacityPlan",
            "metadata": meta,
            "spec": spec,
        }
    container = {"name": "agent", "image": "x", "env": [{"name": "LARGE", "value": "x" * size}]}
    claims = [{"name": "gpus", "resourceClaimName": "none"}]
    spec = {"containers": [container], "restartPolicy": "Never"}
    meta = {"name": name, "labels": {LABEL_APP: AGENT_APP, LABEL_PROFILE_UID: "none"}}
    if kind == "jobs":
        template = {"metadata": {"labels": meta["labels"]}, "spec": spec}
        return paths.jobs(LARGE), {"metadata": meta, "spec": {"suspend": True, "template": template}}
    meta["labels"]["batch.kubernetes.io/job-name"] = "none"
    return paths.pods(LARGE), {"metadata": meta, "spec": spec | {"resourceClaims": claims}}


async def fill(kubeconfig: Path, kind: str, count: int, size: int) -> None:
    gate = asyncio.Semaphore(SIDE_BY_SIDE)
    async with administrator(kubeconfig) as api:

        async def create(number: int) -> None:
            async with gate:
                await api.create(*large(kind, number, size))

        await asyncio.gather(*map(create, range(count)))


def objects(count: int, size: int, kinds: Sequence[str] = KINDS) -> bool:
    """Whether memory stays below half of the limits beside so many objects of each kind; the figures are printed."""
    held = True
    for kind in kinds:
        with start_lab(settings=LabSettings(simulate=False)) as lab:
            running = started(lab)
            asyncio.run(fill(lab.kubeconfig, kind, count, size))
            for one in running:
                one.program.start()
            time.sleep(SETTLE_SECONDS)
            for one in running:
                peak, half = Process(one.pid).peak_mib(), LIMITS_MIB[one.name] / 2
                held = held and peak < half and not one.ends()
                print(
                    f"{count} {kind} of {size:,} bytes: {one.name} {peak:.0f} MiB, limit's half {half:.0f}", flush=True
                )
    return held


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.hostile_clients", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--reports", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="of the objects; default: each")
    parser.add_argument("--bytes", type=int, default=1_000_000)
    options = parser.parse_args()
    held = [crowds(options.minutes, options.reports)] if options.minutes else []
    held += [objects(options.objects, options.bytes, options.kind or KINDS)] if options.objects else []
    print("all held" if all(held) else "NOT HELD")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
