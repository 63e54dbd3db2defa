"""What ResourceSlices cost the operator: memory of what is kept of them, and CPU of a pass, on a large fleet.

    python -m benchmarks.resource_slices [--nodes 10000] [--way whole|dynmig]

The same fleet twice: once its nodes offer nvidia.com/gpu, once a DRA driver publishes their GPUs, as NVIDIA's does. A
pass is one look at the world (what is read of unchanged objects is kept) and one plan; the first one reads everything.
Goals: slices below 40 MiB, a pass at most 20 % dearer.
"""

import argparse
import asyncio
import statistics
import sys
import time
from typing import Any

from benchmarks.tenants import profile
from precision_lab.fleet.fleet import NodeSpec, manifests
from precision_lab.fleet.slices import slices_of
from precision_operator.cluster import paths
from precision_operator.core.observe.observed import Occupancy
from precision_operator.core.plan import plan
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import Gatherer
from precision_operator.shell.observing.reader import Reader
from tests.support.fake_cluster import FakeCluster
from tests.support.world import SETTINGS

PASSES = 7
TRAITS = {"whole": "dra", "dynmig": "dra-dynmig"}


class IdleReader(Reader):
    """A reader to whom every node is idle: who looks at pods is not what is measured here."""

    async def occupancy(self, node: str) -> Occupancy:
        """Nobody holds a GPU."""
        return Occupancy(None)


def world(count: int, trait: str) -> Cache:
    """What the operator knows of `count` nodes of three products, and of one profile."""
    cache = Cache()
    specs = [NodeSpec(product, count // 3 + 1, (trait,)) for product in ("GB200", "GB300", "H100")]
    slices: list[dict[str, Any]] = []
    for index, node in enumerate(list(manifests(specs))[:count]):
        node["metadata"] |= {"uid": f"uid-{index:08}", "resourceVersion": "10"}
        cache.put("nodes", node)
        slices += slices_of(node)
    cache.put("profiles", profile("nightly", {"rollout": {"maxConcurrent": 64}}))
    for index, raw in enumerate(slices):
        cache.put("slices", raw | {"metadata": raw["metadata"] | {"uid": f"uid-s-{index:08}", "resourceVersion": "10"}})
    if slices:
        cache.end_list("slices", [f"uid-s-{index:08}" for index in range(len(slices))], "10")
    return cache


def kept_mebibytes(value: Any, seen: set[int]) -> float:
    """What a value and all in it take, in MiB; what several hold is counted once."""
    if value is None or id(value) in seen:
        return 0.0
    seen.add(id(value))
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, tuple):
        parts = [*value]
    elif hasattr(value, "__slots__"):
        parts = [getattr(value, name) for name in value.__slots__]
    return sys.getsizeof(value) / 2**20 + sum(kept_mebibytes(part, seen) for part in parts)


async def passes(cache: Cache) -> tuple[float, float]:
    """CPU seconds of the first pass, and the median of later ones."""
    classes = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
    cluster: Any = FakeCluster((classes, {"metadata": {"name": SETTINGS.priority_class}}))
    gatherer = Gatherer(cluster, cache, SETTINGS, ["ml"], IdleReader(cluster))
    seconds = []
    for _ in range(PASSES):
        began = time.process_time()
        plan(await gatherer.observe())
        seconds.append(time.process_time() - began)
    return seconds[0], statistics.median(seconds[1:])


def main() -> None:
    """Prints memory and times of both fleets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--way", choices=TRAITS, default="whole")
    options = parser.parse_args()
    plain = world(options.nodes, "mig-off")
    first, later = asyncio.run(passes(plain))
    print(f"{options.nodes} nodes, device plugin: first pass {first:.2f} s, later {1000 * later:.0f} ms of CPU")
    published = world(options.nodes, TRAITS[options.way])
    mebibytes = kept_mebibytes(dict(published.all("slices")), set())
    with_first, with_later = asyncio.run(passes(published))
    print(
        f"{options.nodes} nodes, slices ({options.way}): first pass {with_first:.2f} s, "
        f"later {1000 * with_later:.0f} ms of CPU"
    )
    print(
        f"slices: {mebibytes:.1f} MiB kept; a first pass costs {with_first / first - 1:+.0%}, a later one "
        f"{with_later / later - 1:+.0%}"
    )


if __name__ == "__main__":
    main()
