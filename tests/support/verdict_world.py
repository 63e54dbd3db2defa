"""A node, a reference and a profile that asks for a verdict by it, and runs whose deficits are drawn from the seed."""

from collections.abc import Callable
from random import Random
from typing import Any

from precision_api.acceptance.reference import Reference, sha256_of, text_of
from precision_api.exchange.message import Refusal
from precision_api.exchange.result import MeasurementResult, Software
from precision_api.facts.names import ANNOTATION_RERUN, REFERENCE_FILE
from precision_operator.cluster import paths
from tests.support.golden_nodes import made, measured_node
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.operator_in_memory import NAMESPACE, PODS, PROFILES, REPORTS, OperatorInMemory

MAPS = paths.config_maps(NAMESPACE)
NODE = "n50"
Run = Callable[[int], MeasurementResult]


class World:
    """One node, a reference and a profile that asks for a verdict by it."""

    def __init__(self, reference: Reference, **acceptance: Any) -> None:
        self.loop = OperatorInMemory()
        self.text = text_of(reference)
        self.boot("boot-1")
        self.save(self.text)
        self.ask(**acceptance)

    def boot(self, boot: str, gpus: int = 8, driver: str = "", **meta: Any) -> None:
        offered = {"nvidia.com/gpu": str(gpus)}
        labels = EIGHT_H100 | ({"nvidia.com/cuda.driver-version.full": driver} if driver else {})
        raw = node_object(labels, name=NODE, boot=boot, allocatable=offered, capacity={"nvidia.com/gpu": "8"}, **meta)
        self.loop.cluster._store(f"{paths.NODES}/{NODE}", raw)

    def save(self, text: str) -> None:
        self.loop.cluster._store(f"{MAPS}/h100-jan", {"metadata": {"name": "h100-jan"}, "data": {REFERENCE_FILE: text}})
        self.loop.gatherer._references._last.clear()

    def ask(self, **acceptance: Any) -> None:
        asked = {"reference": {"name": "h100-jan", "sha256": sha256_of(self.text)}} | acceptance
        self.loop.apply("nightly", acceptance=asked)

    def rerun(self, mark: str) -> None:
        """What `kubectl precision rerun` writes."""
        self.loop.cluster.objects[f"{PROFILES}/nightly"]["metadata"]["annotations"] = {ANNOTATION_RERUN: mark}

    async def settle(self) -> dict[str, Any]:
        """The verdict once nothing is left to decide."""
        for _ in range(4):
            await self.loop.once()
            self.loop.gatherer.forget_idle()
        reports = [body for path, body in self.loop.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
        return dict((reports[0].get("status") or {}).get("acceptance") or {}) if reports else {}

    async def measure(self, run: Run, seed: int) -> dict[str, Any]:
        """The verdict after as many runs as it asks for."""
        verdict, day = await self.settle(), 1
        while self.loop.jobs():
            self.loop.end_agent(NODE, run(seed * 10 + day))
            verdict, day = await self.settle(), day + 1
            self.loop.collect_garbage()
            assert day < 5, "at most three runs"
        return verdict | {"made": day - 1}

    async def refuse(self, message: str, rerun: str = "1", reason: str = "GPUUnhealthy") -> dict[str, Any]:
        """The verdict after the agent has refused to run."""
        self.rerun(rerun)
        await self.settle()
        self.loop.end_agent(NODE)
        (path,) = [path for path in self.loop.cluster.objects if path.startswith(f"{PODS}/")]
        end = {"exitCode": 19, "message": Refusal(reason=reason, message=message).model_dump_json()}
        self.loop.cluster.objects[path]["status"]["containerStatuses"][0]["state"]["terminated"] = end
        return await self.settle()


def deficit(seed: int) -> float:
    return -Random(seed).uniform(9, 14)


def sound(seed: int, **changes: Any) -> MeasurementResult:
    return measured_node(NODE, seed // 10, day=seed % 10, **changes)


def bad_gpu(seed: int) -> MeasurementResult:
    return sound(seed, gpu_off=deficit(seed // 10))


def slow(seed: int) -> MeasurementResult:
    return sound(seed, off=deficit(seed // 10))


def first_rack(seed: int) -> Reference:
    """Of nine nodes, one of which has a bad GPU."""
    rack = {f"n{at}": measured_node(f"n{at}", seed) for at in range(8)}
    return made(rack | {NODE: measured_node(NODE, seed, gpu_off=deficit(seed))}, {})[0]


def also(change: Callable[[MeasurementResult], MeasurementResult], run: Run) -> Run:
    return lambda seed: change(run(seed))


def upgraded(stack: str, run: Run = sound) -> Run:
    software = Software(agent="0.2.0", driver="580.95.05", stack_hash=stack)
    return lambda seed: run(seed).model_copy(update={"software": software})
