"""The same question of the whole operator: its loop on an API server in memory, and the exporter's lines of it.

Statuses, manifests, reports and events are compared as they lie in the API server, with every time left out.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from precision_operator.cluster import paths
from precision_operator.exporter.body import build
from precision_operator.exporter.store import Store
from tests.support.fake_cluster import FakeCluster, agent_pod
from tests.support.node_objects import node_object, slice_object
from tests.support.non_interference.hostile_objects import DRIVER, TENANT, Device, Hostile, Raw, Tenant, Victims, offers
from tests.support.non_interference.neighbours import NAMESPACES, fleet_limits
from tests.support.non_interference.worlds import SEED, Drawn, first_difference
from tests.support.operator_in_memory import CLASSES, OperatorInMemory
from tests.support.world import SETTINGS

RESOURCE = "resource.k8s.io/v1"
GPU_CLASS = {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)|\d\d:\d\dZ")


class NamedServer(FakeCluster):
    """An API server whose UIDs depend on the object alone, so that a tenant's objects do not change those of others."""

    def _store(self, path: str, given: Mapping[str, Any]) -> Raw:
        meta = {"uid": f"uid-of-{path}"} | dict(given["metadata"])
        return super()._store(path, {**given, "metadata": meta})


def check_in_memory(numbers: Iterable[int]) -> Drawn:
    """Each world with the tenant's objects and with their shadow."""
    drawn = Drawn()
    for number in numbers:
        drawn.worlds += 1
        # Its clock is the machine's, which may pause: what differs then does not a second time.
        difference = _difference(number, drawn) and _difference(number, Drawn())
        if difference:
            drawn.differing[number] = difference
    return drawn


def _difference(number: int, drawn: Drawn) -> str:
    seen = {side: asyncio.run(_of_others(number, side == "shadow", drawn)) for side in ("objects", "shadow")}
    return first_difference(seen["objects"], seen["shadow"])


async def _of_others(number: int, with_shadow: bool, drawn: Drawn) -> Mapping[str, list[Any]]:
    """What stands in the API server of other namespaces after four passes, and the exporter's lines of it."""
    rng = Random(f"{SEED}/memory/{number}")
    names = [f"n{count}" for count in range(1, rng.randint(3, 6))]
    by_claim = rng.random() < 0.3
    operator = _operator(rng, names, by_claim)
    for namespace in NAMESPACES:
        rollout = {"maxConcurrent": rng.choice([1, 2, 10])}
        idle = {"required": rng.random() < 0.9}
        operator.apply(f"{namespace}-1", namespace, rollout=rollout, idle=idle, rerunOn=["SpecChange"])
    if rng.random() < 0.5:
        await operator.once()
    _run_agents(operator, rng, by_claim)
    objects = Tenant(rng, _victims(operator)).objects()
    if not with_shadow:
        drawn.kinds.update(objects.kinds)
    nodes = [raw for path, raw in operator.cluster.objects.items() if path.startswith(f"{paths.NODES}/")]
    _put(operator, objects.shadow(offers(nodes)) if with_shadow else objects)
    for _ in range(2):
        await operator.once()
        _run_agents(operator, rng, by_claim)
        await operator.list_everything()
        await operator.yields.look()
    for node in sorted(operator.jobs())[: rng.choice([0, 1, 9])]:  # of a namespace whose name comes after the tenant's
        operator.end_agent(node)
    await operator.once()
    return _seen(operator)


def _operator(rng: Random, names: list[str], by_claim: bool) -> OperatorInMemory:
    server = NamedServer((CLASSES, {"metadata": {"name": SETTINGS.priority_class}}))
    operator = OperatorInMemory(namespaces=(*NAMESPACES, TENANT), cluster=server)
    operator.gatherer._settings = replace(SETTINGS, fleet_limits=fleet_limits(rng))
    for name in names:
        node = node_object({}, name=name, gpus=None) if by_claim else node_object(name=name)
        server._store(f"{paths.NODES}/{name}", node)
        if by_claim:
            server._store(f"{paths.collection(RESOURCE, 'resourceslices')}/{name}", slice_object(node=name))
    server._store(f"{paths.collection(RESOURCE, 'deviceclasses')}/gpu.nvidia.com", {"metadata": {}} | GPU_CLASS)
    return operator


def _victims(operator: OperatorInMemory) -> Victims:
    metas = {path: raw["metadata"] for path, raw in operator.cluster.objects.items()}
    jobs = [raw for namespace in NAMESPACES for raw in operator.jobs(namespace).values()]
    return Victims(
        now=datetime.now(UTC),
        nodes={meta["uid"]: meta["name"] for path, meta in metas.items() if path.startswith(f"{paths.NODES}/")},
        profiles={meta["uid"]: f"ml/{meta['name']}" for path, meta in metas.items() if "/precisionprofiles/" in path},
        jobs={raw["metadata"]["uid"]: raw["metadata"]["name"] for raw in jobs},
    )


def _run_agents(operator: OperatorInMemory, rng: Random, by_claim: bool) -> None:
    """Each Job of the others gets a pod, most of which run."""
    for namespace in NAMESPACES:
        for node in sorted(operator.jobs(namespace)):
            job = operator.jobs(namespace)[node]
            raw = agent_pod(job, "Running", {"running": {"startedAt": job["metadata"]["creationTimestamp"]}})
            path = f"{paths.pods(namespace)}/{raw['metadata']['name']}"
            if path in operator.cluster.objects or rng.random() < 0.2:
                continue
            if by_claim:
                name = f"agent-{node}"
                raw["spec"] |= {"resourceClaims": [{"name": "gpus", "resourceClaimName": name}], "priority": -10}
                claims = paths.collection(RESOURCE, "resourceclaims", namespace)
                operator.cluster._store(f"{claims}/{name}", Device(DRIVER, node, "gpu-0").claim)
                raw["spec"]["containers"] = [{"name": "agent"}]
            scheduled = {"type": "PodScheduled", "status": "True"}
            raw["status"]["conditions"] = [scheduled | {"lastTransitionTime": job["metadata"]["creationTimestamp"]}]
            operator.cluster._store(path, raw)


def _put(operator: OperatorInMemory, tenant: Hostile) -> None:
    store = operator.cluster._store
    kinds = (
        (paths.jobs(TENANT), tenant.jobs),
        (paths.pods(TENANT), tenant.pods),
        (paths.reports(TENANT), tenant.reports),
        (paths.profiles(TENANT), tenant.profiles),
    )
    for collection, objects in kinds:
        for raw in objects:
            store(f"{collection}/{raw['metadata']['name']}", raw)
    operator.gatherer._refusals.made |= {uid: (TENANT, node) for uid, node in tenant.own.items()}
    claims = paths.collection(RESOURCE, "resourceclaims", TENANT)
    for name, device in tenant.claims.items():
        store(f"{claims}/{name}", device.claim)
    wanted = {"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 8}}
    store(f"{claims}/wanted", {"metadata": {}, "spec": {"devices": {"requests": [{"name": "gpus"} | wanted]}}})


def _seen(operator: OperatorInMemory) -> Mapping[str, list[Any]]:
    """What lies in other namespaces, by path, without times and versions; and the exporter's lines."""
    store = Store("detail")
    rows = []
    for path, raw in sorted(operator.cluster.objects.items()):
        plural = path.split("/")[-2]
        if plural in ("precisionprofiles", "nodeprecisionreports"):
            store.see(plural, raw)
        if f"/namespaces/{TENANT}/" not in path:
            meta = {key: value for key, value in raw["metadata"].items() if key != "resourceVersion"}
            rows.append(_TIME.sub("TIME", json.dumps([path, raw | {"metadata": meta}], sort_keys=True)))
    lines = build(store.view()).text.decode().splitlines()
    theirs = tuple(f'namespace="{namespace}"' for namespace in NAMESPACES)
    kept = [_TIME.sub("TIME", line) for line in lines if any(words in line for words in theirs)]
    return {"objects": rows, "lines": [line for line in kept if "timestamp" not in line]}
