"""A fleet over several sweeps, with planted stories, as the real exporter shows it. Every figure here is made up.

Rules, alerts and dashboards are tried on it: what is planted is known, so it is known what they must show, and that
they must show nothing else. Pure: the same arguments give the same bytes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from random import Random

from precision_api.facts import names
from precision_api.facts.products import ProductClass
from precision_lab.fleet.hardware import HARDWARE
from precision_lab.pictures.sweep_plans import Raw, answer, plans, swept_fleet
from precision_operator.core.observe.clock import format_time
from precision_operator.exporter.body import build
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.planner.answer.planning import PlanAnswer
from precision_operator.planner.inputs.fleet import Fleet

NAMESPACE, PROFILE, WORKLOAD = "ml", "nightly", "llama3-8b"
DAY = 86_400.0
NEW_DRIVER = "580.142.09"

_SHARES: Mapping[str, tuple[float, float]] = {
    # The energy counter of one H100 node is stuck.
    "power": (1 / 7, 1),
    # One GB200 node is 12 % slower than its pool.
    "slow": (2 / 7, 1),
    # fp8_current silently runs in BF16 on another H100 node.
    "fallback": (2 / 7, 1),
    # One GB200 rack runs hot, and is 9 % slower for it.
    "throttled": (3 / 7, 5 / 7),
    # The GB300 pool moves to another driver, and is 4 % worse from then on.
    "driver": (4 / 7, 1),
}
"""What is planted, and from when to when, as shares of all sweeps: where there are seven, from the second on."""
_PARTS: tuple[tuple[ProductClass, float], ...] = (("GB200", 0.5), ("GB300", 0.25), ("H100", 0.25))
_BASE = {"GB200": 95_000.0, "GB300": 108_000.0, "H100": 82_000.0}
"""Made-up tokens/s of a node in BF16."""
_WATTS = {"GB200": 4_400.0, "GB300": 5_000.0, "H100": 5_100.0}
_SPEEDUPS: Mapping[ProductClass, Mapping[str, float]] = {
    "GB200": {"bf16": 1.0, "fp8_current": 1.31, "mxfp8": 1.37, "nvfp4": 1.62},
    "GB300": {"bf16": 1.0, "fp8_current": 1.33, "mxfp8": 1.40, "nvfp4": 1.78},
    "H100": {"bf16": 1.0, "fp8_delayed": 1.24, "fp8_current": 1.27, "fp8_block": 1.16},
}


@dataclass(frozen=True)
class Planted:
    """The names of the nodes, racks and pools that the stories are about."""

    slow: str
    fallback: str
    power: str
    throttled: frozenset[str]
    driver_pool: str


@dataclass(frozen=True)
class SweptNode:
    """One made-up node as one sweep finds it."""

    name: str
    product: ProductClass
    rack: int
    driver: str
    rate: float = 1.0
    """Its rate over what its product should give."""
    fallback: bool = False
    power_valid: bool = True
    throttled: float = 0.0


@dataclass(frozen=True)
class Sweep:
    """The fleet after one sweep: the objects in the cluster, and what the exporter makes of them."""

    number: int
    at: float
    """Seconds since 1970 at which the sweep has ended."""
    nodes: tuple[SweptNode, ...]
    planted: Planted

    @cached_property
    def reports(self) -> tuple[Raw, ...]:
        return tuple(_report(node, self.finished_at, self.number) for node in self.nodes)

    @cached_property
    def profiles(self) -> tuple[Raw, ...]:
        """The PrecisionProfiles: one, complete."""
        return (_profile(self.nodes, self.finished_at),)

    @cached_property
    def plans(self) -> tuple[Raw, ...]:
        """The CapacityPlans: one that is solved, one that can't be."""
        return plans(NAMESPACE, self._fleet, len(self.nodes), self._now)

    def answer(self, name: str) -> PlanAnswer:
        """The planner's answer to the CapacityPlan of this name, and to no other."""
        return answer(name, self._fleet, len(self.nodes), self._now)

    @property
    def finished_at(self) -> str:
        """`at`, as objects tell it."""
        return format_time(self._now)

    @cached_property
    def _fleet(self) -> Fleet:
        racks = {f"uid-{node.name}": f"{node.product}.{node.rack}" for node in self.nodes}
        return swept_fleet(self.reports, self.profiles, racks, self._now)

    @property
    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    @cached_property
    def bodies(self) -> Mapping[str, bytes]:
        """What an exporter of one shard gives, uncompressed, by path."""
        store = Store("detail")
        for profile in self.profiles:
            store.see(names.PROFILE_PLURAL, profile)
        for report in self.reports:
            store.see(names.REPORT_PLURAL, report)
        for plan in self.plans:
            store.see(names.PLAN_PLURAL, plan)
        body = build(store.view(), 1)
        own_metrics = OwnMetrics(process=False)
        own_metrics.tell(body)
        own_metrics.last_list.set(self._now.timestamp())
        (shard,) = body.shards
        return {"/metrics": body.fleet + own_metrics.text(), "/metrics/shard/0": shard.text()}

    @property
    def body(self) -> bytes:
        """All bodies in one; no family stands in it twice."""
        return b"".join(self.bodies.values())


def sweeps(nodes: int = 24, count: int = 7, start: float = 0.0, every: float = DAY) -> tuple[Sweep, ...]:
    """`count` sweeps over a fleet of `nodes`, the first one over at `start` (seconds since 1970), `every` s apart.

    ValueError for a fleet below 24 nodes: its pools would be too small for rules that ask for five of a kind.
    """
    if nodes < 24:
        raise ValueError(f"the stories need at least 24 nodes, not {nodes}")
    fleet = tuple(_fleet(nodes))
    planted = _plant(fleet)
    return tuple(
        Sweep(number, start + number * every, tuple(_swept(fleet, planted, number, count)), planted)
        for number in range(count)
    )


def told(story: str, number: int, count: int) -> bool:
    """Whether a story is on in sweep `number` of `count`."""
    begin, end = _SHARES[story]
    return round(begin * count) <= number < round(end * count)


def _fleet(nodes: int) -> Iterator[SweptNode]:
    left = nodes
    for product, share in _PARTS:
        size = min(left, math.ceil(nodes * share)) if product != _PARTS[-1][0] else left
        left -= size
        # A small fleet's racks are small too, or one hot rack would be the whole pool.
        rack = min(HARDWARE[product].rack_nodes, max(2, size // 3))
        for index in range(size):
            yield SweptNode(f"{product.lower()}-{index:04d}", product, index // rack, HARDWARE[product].driver)


def _plant(fleet: Sequence[SweptNode]) -> Planted:
    racks = [node for node in fleet if node.product == "GB200"]
    h100 = [node for node in fleet if node.product == "H100"]
    return Planted(
        slow=racks[1].name,
        fallback=h100[1].name,
        power=h100[3].name,
        throttled=frozenset(node.name for node in racks if node.rack == 1),
        driver_pool=HARDWARE["GB300"].label,
    )


def _swept(fleet: Sequence[SweptNode], planted: Planted, number: int, count: int) -> Iterator[SweptNode]:
    for node in fleet:
        deviation = Random(node.name).gauss(0, 0.003)
        noise = Random(f"{node.name}/{number}").gauss(0, 0.002)
        yield _with_stories(replace(node, rate=1 + deviation + noise), planted, number, count)


def _with_stories(node: SweptNode, planted: Planted, number: int, count: int) -> SweptNode:
    def on(story: str) -> bool:
        return told(story, number, count)

    if node.name == planted.slow and on("slow"):
        return replace(node, rate=node.rate * 0.88)
    if node.name == planted.fallback and on("fallback"):
        return replace(node, fallback=True)
    if node.name == planted.power and on("power"):
        return replace(node, power_valid=False)
    if node.name in planted.throttled and on("throttled"):
        return replace(node, rate=node.rate * 0.91, throttled=0.22)
    if node.product == "GB300" and on("driver"):
        return replace(node, rate=node.rate * 0.96, driver=NEW_DRIVER)
    return node


def _report(node: SweptNode, finished: str, number: int) -> Raw:
    hardware = HARDWARE[node.product]
    domain = {"nvlinkDomain": f"{node.product.lower()}-rack.{node.rack + 1}"} if hardware.is_grace else {}
    run = f"run-{number}"
    name = names.report_name(PROFILE, f"uid-{node.name}")
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"profile": PROFILE, "nodeName": node.name, "nodeUID": f"uid-{node.name}"},
        "status": {
            "conditions": [
                {"type": "Fresh", "status": "True", "reason": "Measured", "lastTransitionTime": finished},
                {"type": "Succeeded", "status": "True", "reason": "Measured", "lastTransitionTime": finished},
            ],
            "hardware": {"product": node.product, "gpus": hardware.gpus, "pool": hardware.label, **domain},
            "software": {"driver": node.driver, "cuda": "13.0", "transformerEngine": "2.8.0", "agent": "0.1.0"},
            "run": {
                "run": run,
                "requestHash": "ab" * 32,
                "backend": "replay",
                "provenance": "simulated",
                "finishedAt": finished,
                "durationSeconds": "412.5",
                "workload": WORKLOAD,
                "workloadHash": "5ad1f0c2",
                "deviceMemory": {"usedBytes": 55_879_467_008, "totalBytes": 197_568_495_616},
            },
            "attempt": {"run": run, "number": 1, "outcome": "succeeded", "finishedAt": finished},
            "results": [_row(node, recipe) for recipe in _SPEEDUPS[node.product]],
            "data": "simulated",
        },
    }


def _row(node: SweptNode, recipe: str) -> Raw:
    fell_back = node.fallback and recipe == "fp8_current"
    speedup = 0.99 if fell_back else _SPEEDUPS[node.product][recipe]
    rate = _BASE[node.product] * node.rate * speedup
    watts = _WATTS[node.product] * (1 - 0.02 * (speedup > 1))
    row: Raw = {
        "recipe": recipe,
        "availability": "ok",
        "verdict": "fallback" if fell_back else "assumed",
        "teraflopsPerGPU": f"{rate / HARDWARE[node.product].gpus * 51.472e-3:.1f}",
        "tokensPerSecond": f"{rate:.1f}",
        "tokensPerSecondError": "0.003",
        "gpuSpread": "0.995",
        "speedup": f"{speedup:.4f}",
        "speedupLower": f"{speedup - 0.008:.4f}",
        "speedupUpper": f"{speedup + 0.008:.4f}",
        "gemmSpeedup": {"autocast": f"{speedup**1.3:.4f}", "prequantized": f"{speedup**1.8:.4f}"},
        "modelMemoryBytes": 141_733_920_768,
        "allocatedPeakBytes": 34_741_948_416,
    }
    if recipe != "bf16":
        row["quantizationTax"] = "0.11"
    if recipe == "nvfp4":
        row["lastLayersBF16"] = 5
    if node.throttled:
        row |= {"throttledShare": f"{node.throttled:.3f}", "throttleReason": "software_thermal"}
    if not node.power_valid:
        return row | {"powerInvalid": ["counter_stuck"]}
    energy = {"watts": f"{watts:.1f}", "tokensPerJoule": f"{rate / watts:.4f}", "powerScope": "module"}
    return row | energy | {"tokensPerJouleNet": f"{rate / (watts * 0.86):.4f}"}


def _profile(nodes: Sequence[SweptNode], finished: str) -> Raw:
    size = len(nodes)
    counts = {
        "slow": sum(node.fallback or node.rate < 0.94 for node in nodes),
        "fallback": sum(node.fallback for node in nodes),
        "throttled": sum(node.throttled > 0 for node in nodes),
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PROFILE_KIND,
        "metadata": {"name": PROFILE, "namespace": NAMESPACE, "uid": f"uid-{PROFILE}", "resourceVersion": "1000"},
        "spec": {"workload": {"preset": WORKLOAD}},
        "status": {
            "phase": "Complete",
            "nodes": {"matched": size, "eligible": size, "succeeded": size, "simulated": size} | counts,
            "lastRun": finished,
            "conditions": [
                {"type": "Complete", "status": "True", "reason": "AllMeasured", "lastTransitionTime": finished}
            ],
        },
    }
