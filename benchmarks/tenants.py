"""What one tenant's fleet costs another: the same event of a small profile, alone and beside a large neighbour.

    python -m benchmarks.tenants [--reports 10000] [--huge 20] [--bound] [--api-server]

A small tenant has a profile over twenty nodes. Its event (a new generation of the profile) is taken in by the
operator's own loop on an API server in memory, and the time until its status is written is measured: alone, and beside
a tenant with a report for each of 10,000 nodes and profiles as long as their definition allows. Both worlds have the
same nodes. Each runs in a process of its own; of nine passes the median counts. Seconds are wall seconds.

With --bound the large tenant has as many profiles as the chart lets it have, each with a cron of every minute over a
thousand nodes: CPU seconds from such a minute, in which the small tenant has a new profile, to its first Job. The large
tenant's profiles are plain, limit places and watts (also to less than a node draws), limit places by labels that no
node has, have all of it, name their nodes at length, or are all edited in that minute.

With --api-server it is the lab's real API server and the operator's own process: `benchmarks.tenants_on_cluster`.
"""

import argparse
import asyncio
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, TypeVar

from benchmarks import tenants_on_cluster
from benchmarks.exporter import RECIPES, peak_mib
from precision_api.facts.names import LABEL_MANAGED_BY, MANAGED_BY, PROFILE_KIND
from precision_lab.fleet.fleet import NodeSpec, manifests
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import Gatherer
from precision_operator.shell.reconcile import STATUS_SECONDS, Reconciler
from precision_operator.shell.telemetry import Telemetry
from tests.support.fake_cluster import FakeCluster
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status
from tests.support.world import SETTINGS

T = TypeVar("T")

SMALL, LARGE = "small", "large"
OWN_NODES = 20
PASSES = 9
MINUTES = 4
"""Later, an agent whose Job has no pod has failed."""
HOSTNAME = "kubernetes.io/hostname"
BOUND_PROFILES, BOUND_NODES, BOUND_SECONDS = 50, 1000, 2.0
"""As the chart's profilesPerNamespace.max; and how soon the small tenant's start must be decided then."""
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limits": {"maxConcurrent": 10, "powerBudgetWatts": 10**7, "perTopology": [{"key": HOSTNAME, "max": 1}]},
    "full": {"maxConcurrent": 1000, "powerBudgetWatts": 12_000, "perTopology": [{"key": HOSTNAME, "max": 1}]},
    "tooSmall": {"maxConcurrent": 1000, "powerBudgetWatts": 1000, "perTopology": [{"key": HOSTNAME, "max": 1}]},
    "missing": {
        "maxConcurrent": 10,
        "perTopology": [{"key": f"example.com/k{number}", "max": 1} for number in range(4)],
        "pools": [{"name": f"p{number}", "maxConcurrent": 1} for number in range(16)],
    },
    "pools": {
        "maxConcurrent": 1000,
        "maxImagePulls": 1000,
        "powerBudgetWatts": 10**7,
        "perTopology": [
            {"key": HOSTNAME, "max": 1},
            *({"key": key, "max": 10**5} for key in ("nvidia.com/gpu.product", "kubernetes.io/arch")),
        ],
        "pools": [{"name": f"p{number}", "maxConcurrent": 1} for number in range(64)],
        "rampSeconds": 1,
    },
    "matching": {},
    "edited": {},
}
"""Rollouts of the large tenant's profiles; with pools, each has a pool label of its own, with matching LONG_TARGET,
and edited are the pool labels of all each minute."""
RULE = {"key": HOSTNAME, "operator": "NotIn", "values": [f"none-{number:058}" for number in range(256)]}
LONG_TARGET: dict[str, Any] = {"matchExpressions": [RULE] * 32, "nodeNames": [f"none-{number}" for number in range(24)]}
"""As many requirements and values as a target may have; all nodes are named beside these."""
STATUS = f"{paths.profiles(SMALL)}/own/status"
LONG_NAMES = [f"{'n' * 240}-{i}" for i in range(1024)]
"""As many names as `spec.target.nodeNames` takes, nearly as long as they may be."""


class Server(FakeCluster):
    """The API server in memory; each request gives the loop a turn, as a real one does."""

    def __init__(self) -> None:
        classes = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
        super().__init__((classes, {"metadata": {"name": SETTINGS.priority_class}}))

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
        return await super().patch(path, body, *arguments, **more)


class TimedServer(Server):
    """The API server in memory, which knows when the small tenant's status was last written."""

    written = 0.0
    started = 0.0
    """CPU time at which its first Job was created since this was 0."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, Any]] = []
        """What was created, for a watch to show."""

    async def patch(self, path: str, body: Any, *arguments: Any, **more: Any) -> dict[str, Any]:
        done = await super().patch(path, body, *arguments, **more)
        self.written = time.perf_counter() if path == STATUS else self.written
        return done

    async def create(self, path: str, *arguments: Any, **more: Any) -> dict[str, Any]:
        done = await super().create(path, *arguments, **more)
        self.started = self.started or (time.process_time() if path == paths.jobs(SMALL) else 0.0)
        if path in (paths.jobs(SMALL), paths.jobs(LARGE)):
            self.jobs.append(done)
        return done


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


def put(server: Server, cache: Cache, namespace: str, name: str, **spec: Any) -> None:
    """A profile, in the API server and in the cache."""
    raw = profile(name, {"suspend": True} | spec)
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    path = f"{paths.profiles(namespace)}/{name}"
    server._store(path, raw)
    cache.put("profiles", server.objects[path])


def put_report(cache: Cache, namespace: str, node: dict[str, Any], owner: str, index: int, version: int) -> None:
    """A node's report, in the cache."""
    raw = report(node["metadata"], owner, index, version)
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{owner}-{index}"}
    raw["metadata"]["ownerReferences"][0]["uid"] = f"uid-{namespace}-{owner}"
    cache.put("reports", raw)


async def _measured(count: int, reports: int, huge: int) -> tuple[float, float]:
    """Wall seconds from an event of the small tenant to its status, and the process's peak in MiB."""
    cache, server = Cache(), TimedServer()
    nodes = list(fleet(count))
    for node in nodes:
        cache.put("nodes", node)
    names = [node["metadata"]["name"] for node in nodes[:OWN_NODES]]
    put(server, cache, SMALL, "own", target={"nodeNames": names})
    for index in range(OWN_NODES):
        put_report(cache, SMALL, nodes[index], "own", index, 100)
    if reports:
        put(server, cache, LARGE, "nightly")
    for index in range(reports):
        put_report(cache, LARGE, nodes[index], "nightly", index, 100)
    for number in range(huge):
        put(server, cache, LARGE, f"huge-{number}", target={"nodeNames": LONG_NAMES})
    cluster: Any = server
    gatherer = Gatherer(cluster, cache, SETTINGS, [SMALL, LARGE])
    reconciler = Reconciler(cache, gatherer, Actor(cluster, cache), Telemetry())
    await reconciler.once()
    gc.freeze()
    taken = []
    for version in range(1000, 1000 + PASSES):
        await asyncio.sleep(STATUS_SECONDS + 0.01)  # two statuses of a profile are so far apart
        path = STATUS.removesuffix("/status")
        raw = server.objects[path]
        server._store(path, raw | {"metadata": raw["metadata"] | {"generation": version}})
        cache.put("profiles", server.objects[path])
        began = time.perf_counter()
        await reconciler.once()
        assert server.written > began, "the status was not written"
        taken.append(server.written - began)
    return median(taken), peak_mib()


def measured(count: int, reports: int, huge: int) -> tuple[float, float]:
    """As `_measured`, to be run in a process of its own."""
    return asyncio.run(_measured(count, reports, huge))


async def _at_the_bound(count: int, profiles: int, kind: str) -> tuple[float, float]:
    """CPU seconds from a minute's begin to the small tenant's first Job, the median of some minutes; peak in MiB."""
    cache, server, now = Cache(), TimedServer(), datetime(2026, 11, 24, 12, tzinfo=UTC)
    server.created = format_time(now)
    nodes = list(fleet(count))
    for node in nodes:
        node["metadata"]["labels"][HOSTNAME] = node["metadata"]["name"]
        cache.put("nodes", node)
    target = LONG_TARGET | {"nodeNames": [*LONG_TARGET["nodeNames"], *(node["metadata"]["name"] for node in nodes)]}
    spec = {"suspend": False, "schedule": {"cron": "* * * * *"}, "rollout": KINDS[kind]}

    def put_large(minute: int = 0) -> None:
        for number in range(profiles):
            label = {"poolLabel": f"example.com/k{number}-{minute}"} if kind in ("pools", "edited") else {}
            label |= {"target": target} if kind == "matching" else {}
            put(server, cache, LARGE, f"minutely-{number}", **spec, **label)

    put_large()
    cluster: Any = server
    gatherer = Gatherer(cluster, cache, SETTINGS, [SMALL, LARGE], clock=lambda: now)
    reconciler = Reconciler(cache, gatherer, Actor(cluster, cache, clock=lambda: now), Telemetry())
    await reconciler.once()
    for job in server.jobs:
        cache.put("jobs", job)
    gc.freeze()
    taken = []
    for number in range(MINUTES):
        now += timedelta(seconds=61)
        server.created = format_time(now)
        names = [node["metadata"]["name"] for node in nodes[count // 2 + number * OWN_NODES :][:OWN_NODES]]
        put(server, cache, SMALL, f"own-{number}", suspend=False, target={"nodeNames": names})
        if kind == "edited":
            put_large(number + 1)
        server.started = 0.0
        began = time.process_time()
        while not server.started:
            assert time.process_time() < began + 60, "no agent was started"
            await reconciler.once()
        taken.append(server.started - began)
        for job in server.jobs:
            cache.put("jobs", job)
    return median(taken), peak_mib()


def at_the_bound(count: int, profiles: int, kind: str) -> tuple[float, float]:
    """As `_at_the_bound`, to be run in a process of its own."""
    return asyncio.run(_at_the_bound(count, profiles, kind))


def apart(act: Callable[..., T], *arguments: object) -> T:
    """What `act` gives in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(act, arguments)


def in_memory(reports: int, huge: int) -> None:
    """Prints the three worlds."""
    rows = {
        "alone": apart(measured, reports, 0, 0),
        f"beside {reports} reports": apart(measured, reports, reports, 0),
        f"and {huge} huge profiles": apart(measured, reports, reports, huge),
    }
    alone, _ = rows["alone"]
    print(f"{'THE SMALL TENANT':<28}{'EVENT TO STATUS':>18}{'RATIO':>8}{'PEAK MIB':>10}")
    for name, (seconds, peak) in rows.items():
        print(f"{name:<28}{seconds:>16.3f} s{seconds / alone:>8.2f}{peak:>10.0f}")


def main() -> int:
    """Exit code 1 where the small tenant's starts or status are not the same beside the large one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=10_000, help="of the large tenant, and nodes: %(default)s")
    parser.add_argument("--huge", type=int, default=20, help="profiles of the largest size: %(default)s")
    parser.add_argument("--api-server", action="store_true", help="on a real API server, without huge profiles")
    parser.add_argument("--bound", action="store_true", help="beside as many profiles as the chart allows")
    options = parser.parse_args()
    if options.bound:
        late = 0
        for kind in KINDS:
            seconds, peak = apart(at_the_bound, BOUND_NODES, BOUND_PROFILES, kind)
            print(
                f"beside {BOUND_PROFILES} profiles over {BOUND_NODES} nodes ({kind}): {seconds:.2f} s, {peak:.0f} MiB",
                flush=True,
            )
            late += seconds > BOUND_SECONDS
        return min(late, 1)
    if not options.api_server:
        in_memory(options.reports, options.huge)
        return 0
    steps = tenants_on_cluster.measured(options.reports)
    print(tenants_on_cluster.table(steps))
    return int(any(row.seen != steps[0].seen for row in steps))


if __name__ == "__main__":
    sys.exit(main())
