"""What one pass of the operator costs on a large fleet, stage by stage, and for how long it holds the loop.

    python -m benchmarks.reconcile [--nodes 10000] [--memory]

Two profiles want the same fleet; one of them limits each rack and has a power budget. Most nodes are measured, some
agents run, some nodes wait, the rest is queued. The first world is worked through stage by stage. The second one is
the operator's own loop on an API server in memory: what holds the loop holds probes and the lease too. Once as it is
with Python's ordinary garbage collection, once as the operator does it: what the first pass has read is kept out. Each
runs in a process of its own, so that its memory is its own. Last an operator's own process lists nodes of the size of
real ones through its real client. Seconds are of CPU unless they are called wall.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from benchmarks import large_nodes
from benchmarks.exporter import RECIPES, peak_mib
from precision_api.facts.names import AGENT_APP, LABEL_APP, LABEL_MANAGED_BY, MANAGED_BY, PROFILE_KIND
from precision_lab.fleet.fleet import NodeSpec, manifests
from precision_operator.cluster import paths
from precision_operator.core.observe.observed import Occupancy
from precision_operator.core.plan import Plan, plan
from precision_operator.core.results.ingest import status_json
from precision_operator.core.status.profile_status import profile_status
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import Gatherer
from precision_operator.shell.reconcile import STATUS_SECONDS, Reconciler, spare_collections
from precision_operator.shell.telemetry import Telemetry
from tests.support.fake_cluster import FakeCluster
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status
from tests.support.world import SETTINGS

T = TypeVar("T")
RACK = "topology.kubernetes.io/rack"
SPECS: Mapping[str, tuple[dict[str, Any], float]] = {
    "nightly": ({"rollout": {"maxConcurrent": 64}}, 0.7),
    "weekly": (
        {
            "rollout": {
                "maxConcurrent": "10%",
                "perTopology": [{"key": RACK, "max": 1}],
                "powerBudgetWatts": 1_000_000,
                "rampSeconds": 30,
            }
        },
        0.5,
    ),
}
"""Each profile's spec, and the share of the nodes that it has measured."""
MEMORY_GOAL_MIB = 600
STATES = ("nothing", "one node", "one report", "1 % of reports")
"""What has changed since the pass before."""


class Server(FakeCluster):
    """The API server in memory; each request gives the loop a turn, as a real one does, and patches are counted."""

    def __init__(self) -> None:
        classes = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
        super().__init__((classes, {"metadata": {"name": SETTINGS.priority_class}}))
        self.patched: list[int] = []
        """Bytes of each."""

    async def list_all(self, *arguments: Any, **more: Any) -> tuple[list[dict[str, Any]], str]:
        await asyncio.sleep(0)
        return await super().list_all(*arguments, **more)

    async def get(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return await super().get(*arguments, **more)

    async def create(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return await super().create(*arguments, **more)

    async def patch(self, path: str, body: Any, *arguments: Any, **more: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.patched.append(len(json.dumps(body)))
        return await super().patch(path, body, *arguments, **more)


@dataclass(frozen=True)
class World:
    """What the operator knows, and what it talks to."""

    cache: Cache
    server: Server
    gatherer: Gatherer
    nodes: tuple[dict[str, Any], ...]


def world(count: int) -> World:
    """`count` nodes of three products, and what two profiles have found so far."""
    cache, server = Cache(), Server()
    nodes = tuple(fleet(count))
    for node in nodes:
        cache.put("nodes", node)
    for name, (spec, share) in SPECS.items():
        server._store(f"{paths.profiles('ml')}/{name}", profile(name, spec))
        cache.put("profiles", server.objects[f"{paths.profiles('ml')}/{name}"])
        for index, node in enumerate(nodes):
            if index * 7919 % 1000 < share * 1000:
                cache.put("reports", report(node["metadata"], name, index))
    cluster: Any = server
    return World(cache, server, Gatherer(cluster, cache, SETTINGS, ["ml"]), nodes)


def fleet(count: int) -> Iterator[dict[str, Any]]:
    """Nodes as their API server has them: one in fifty is cordoned, one in a hundred is cut into MIG slices."""
    part = count // 100
    specs = [NodeSpec("GB200", 40 * part), NodeSpec("GB300", 30 * part), NodeSpec("H100", count - 73 * part)]
    odd = [NodeSpec("H100", 2 * part, ("cordoned",)), NodeSpec("H100", part, ("mig-single",))]
    for index, node in enumerate(manifests([*specs, *odd])):
        stamp = {"uid": f"uid-{index:08}-0000-0000-0000-000000000000", "resourceVersion": "10"}
        yield {**node, "metadata": {**node["metadata"], **stamp}}


def profile(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A profile that was created just now, with the whole spec that it has."""
    raw = profile_object(name, status={}, creationTimestamp="2026-11-20T00:00:00Z", generation=1)
    return {**raw, "spec": raw["spec"] | dict(spec)}


def report(node: Mapping[str, Any], owner: str, index: int, version: int = 100) -> dict[str, Any]:
    """A node's report of five recipes; rates lie within 1 %, in no order."""
    rate = 1 + (index + version) * 7919 % 9973 / 1e6
    status = report_status([recipe_row(recipe, (1 + place / 10) * rate) for place, recipe in enumerate(RECIPES)])
    status["hardware"]["limitWatts"] = 4800
    status["attempt"]["startedAt"] = "2026-11-20T06:20:00Z"
    owners = [{"kind": PROFILE_KIND, "name": owner, "uid": f"uid-ml-{owner}"}]
    labels = {LABEL_MANAGED_BY: MANAGED_BY}
    stamp = {"ownerReferences": owners, "labels": labels, "resourceVersion": str(version)}
    return report_object(node["name"], owner, status=status, node_uid=node["uid"], **stamp)


def pods_run(fleet: World) -> None:
    """Each Job gets a pod that runs."""
    for job in fleet.cache.all("jobs").values():
        meta = job["metadata"]
        labels = meta["labels"] | {"batch.kubernetes.io/job-name": meta["name"], LABEL_APP: AGENT_APP}
        labels["batch.kubernetes.io/controller-uid"] = meta["uid"]
        pod_meta = {"name": f"{meta['name']}-x", "uid": f"pod-{meta['uid']}", "resourceVersion": "1", "labels": labels}
        pod = {"metadata": meta | pod_meta, "spec": {}, "status": {"phase": "Running"}}
        fleet.cache.put("pods", pod)


def change(fleet: World, what: str, version: int) -> None:
    """Show the operator what has changed, as its watches would."""
    measured = fleet.nodes[:: len(fleet.nodes) // 100]
    if what == "one node":
        node = fleet.nodes[1]
        meta = node["metadata"] | {"resourceVersion": str(version)}
        fleet.cache.put(
            "nodes", {**node, "metadata": meta, "spec": {**node["spec"], "unschedulable": version % 2 == 0}}
        )
    for name in SPECS if "report" in what else ():
        for index, node in enumerate(measured if "%" in what else measured[:1]):
            fleet.cache.put("reports", report(node["metadata"], name, index, version))


@dataclass
class Stages:
    """Seconds of CPU by stage, for each state; and what was planned."""

    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    peak_mib: float = 0.0


async def staged(count: int) -> Stages:
    """One world, worked through stage by stage: first with everything new, then after each change."""
    fleet, figures = world(count), Stages()
    reconciler = operator(fleet)
    idle = {node["metadata"]["name"]: Occupancy(None) for node in fleet.nodes}
    figures.seconds["everything"], _ = await stages(fleet, idle)
    await reconciler.once()
    pods_run(fleet)
    await stages(fleet, idle)
    for place, what in enumerate(STATES):
        taken = []
        for version in range(1000 + 10 * place, 1003 + 10 * place):
            change(fleet, what, version)
            seconds, planned = await stages(fleet, idle)
            taken.append(seconds)
        figures.seconds[what] = min(taken, key=lambda seconds: sum(seconds.values()))
    node_states = [node_state for item in planned.profiles for node_state in item.node_states]
    figures.states = {
        state: sum(s.state == state for s in node_states) for state in sorted({s.state for s in node_states})
    }
    figures.peak_mib = peak_mib()
    return figures


async def stages(fleet: World, idle: Mapping[str, Occupancy]) -> tuple[dict[str, float], Plan]:
    """Seconds of observing, planning and the status of all profiles, garbage collected before and not meanwhile."""
    gc.collect()
    gc.disable()
    began = time.thread_time()
    observed = await fleet.gatherer.observe()
    seen = time.thread_time()
    planned = plan(replace(observed, occupancy=idle))
    decided = time.thread_time()
    for item in planned.profiles:
        status_json(profile_status(item, observed.now, len(observed.nodes)))
    ended = time.thread_time()
    gc.enable()
    return {"observe": seen - began, "plan": decided - seen, "status": ended - decided}, planned


def operator(fleet: World) -> Reconciler:
    """The operator's loop over this world."""
    cluster: Any = fleet.server
    return Reconciler(fleet.cache, fleet.gatherer, Actor(cluster, fleet.cache), Telemetry())


@dataclass
class Held:
    """Of one pass: wall seconds, the longest that the loop was held, of it own work, patches and their bytes."""

    seconds: float
    longest: float
    work: float
    patches: int
    bytes: int


@dataclass
class Passes:
    """Each state's pass, the longest full garbage collection after the first one in seconds, and the peak of memory."""

    held: dict[str, Held] = field(default_factory=dict)
    collection: float = 0.0
    peak_mib: float = 0.0


@asynccontextmanager
async def beating() -> AsyncIterator[list[tuple[float, float]]]:
    """For how long the loop has been held, again and again: wall seconds, and seconds of this thread's work."""
    pauses: list[tuple[float, float]] = []

    async def beat() -> None:
        while True:
            began, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            pauses.append((time.perf_counter() - began, time.thread_time() - worked))

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    yield pauses
    await asyncio.sleep(0.002)
    task.cancel()


@contextmanager
def collections(taken: list[float]) -> Iterator[None]:
    """Adds the seconds of each full garbage collection; there is one at the end, so that there is one."""
    began = 0.0

    def see(phase: str, info: Mapping[str, int]) -> None:
        nonlocal began
        if info["generation"] < 2:
            return
        if phase == "start":
            began = time.thread_time()
        else:
            taken.append(time.thread_time() - began)

    gc.callbacks.append(see)
    yield
    gc.collect()
    gc.callbacks.remove(see)


async def passed(count: int, spared: bool) -> Passes:
    """The operator's loop: the first pass, which starts agents, then one after each change."""
    fleet, figures = world(count), Passes()
    reconciler = operator(fleet)
    collected: list[float] = []
    figures.held["everything"] = await held(fleet, reconciler)
    if spared:
        spare_collections()
    with collections(collected):
        pods_run(fleet)
        await held(fleet, reconciler)
        for place, what in enumerate(STATES):
            rows: list[Held] = []
            for version in range(1000 + 10 * place, 1003 + 10 * place):
                await asyncio.sleep(STATUS_SECONDS + 0.01)  # two statuses of a profile are so far apart
                change(fleet, what, version)
                rows.append(await held(fleet, reconciler))
            figures.held[what] = min(rows, key=lambda row: row.longest)
    figures.collection, figures.peak_mib = max(collected, default=0.0), peak_mib()
    return figures


async def held(fleet: World, reconciler: Reconciler) -> Held:
    """One pass."""
    fleet.server.patched.clear()
    began = time.perf_counter()
    async with beating() as pauses:
        await reconciler.once()
        seconds = time.perf_counter() - began
    longest, work = max(wall for wall, _ in pauses), max(spent for _, spent in pauses)
    return Held(seconds, longest, work, len(fleet.server.patched), sum(fleet.server.patched))


def run_staged(count: int) -> Stages:
    return asyncio.run(staged(count))


def run_passed(count: int, spared: bool) -> Passes:
    return asyncio.run(passed(count, spared))


def apart(act: Callable[..., T], *arguments: object) -> T:
    """What `act` gives in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(act, arguments)


def show_stages(figures: Stages) -> None:
    """The first table."""
    print(f"stands by state: {', '.join(f'{count} {state}' for state, count in figures.states.items())}")
    print(f"{'WHAT HAS CHANGED':<18}{'OBSERVE':>10}{'PLAN':>10}{'BOTH':>10}{'STATUS':>10}   (s of CPU)")
    for what, seconds in figures.seconds.items():
        both = seconds["observe"] + seconds["plan"]
        print(f"{what:<18}{seconds['observe']:>10.3f}{seconds['plan']:>10.3f}{both:>10.3f}{seconds['status']:>10.3f}")
    first, again = (sum(figures.seconds[what].values()) for what in ("everything", "nothing"))
    print(f"a pass with nothing changed costs {again / first:.0%} of the first one; peak {figures.peak_mib:.0f} MiB\n")


def show_passes(name: str, figures: Passes) -> None:
    """One loop's table."""
    print(f"{name}: longest full collection {figures.collection:.3f} s, peak {figures.peak_mib:.0f} MiB")
    print(f"{'WHAT HAS CHANGED':<18}{'PASS':>10}{'HELD':>10}{'OWN WORK':>10}{'PATCHES':>10}{'BYTES':>10}   (wall s)")
    for what, row in figures.held.items():
        print(f"{what:<18}{row.seconds:>10.3f}{row.longest:>10.3f}{row.work:>10.3f}{row.patches:>10}{row.bytes:>10}")
    print()


def listed(count: int) -> large_nodes.Memory:
    """An operator's own process, which lists large nodes and the reports of two profiles that rest."""
    nodes = tuple(fleet(count))
    profiles = [profile(name, spec | {"suspend": True}) for name, (spec, _) in SPECS.items()]
    reports = [
        report(node["metadata"], name, index)
        for name, (_, share) in SPECS.items()
        for index, node in enumerate(nodes)
        if index * 7919 % 1000 < share * 1000
    ]
    return asyncio.run(large_nodes.measure(nodes, profiles, reports))


def show_listed(memory: large_nodes.Memory) -> None:
    """The last lines."""
    print(f"an operator's own process, {memory.lists} complete lists of nodes of {memory.node_kib:.0f} KiB:")
    print(f"peak {memory.peak_mib:.0f} MiB, at the end {memory.last_mib:.0f} MiB; goal: below {MEMORY_GOAL_MIB} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--memory", action="store_true", help="only the operator's own process and its memory")
    options = parser.parse_args()
    count = options.nodes
    if options.memory:
        show_listed(apart(listed, count))
        return
    print(f"{count} nodes, {len(SPECS)} profiles; goal for observing and planning: 0.2 s\n")
    show_stages(apart(run_staged, count))
    plain, spared = (apart(run_passed, count, spares) for spares in (False, True))
    show_passes("the loop with ordinary garbage collection", plain)
    show_passes("the operator's loop", spared)
    print(f"a full collection takes {spared.collection / plain.collection:.0%} of the time\n")
    show_listed(apart(listed, count))


if __name__ == "__main__":
    main()
