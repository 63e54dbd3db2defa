"""Who held which GPU when, from outside: by resource claims, by the device plugin, and what the agents were told.

The API server numbers all writes of a cluster in one order (resourceVersion), so that claims and pods can be put
together afterwards as they were at each instant. It knows nothing of the operator's own reading of them.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from precision_api.facts import names
from precision_api.facts.names import GPU_RESOURCE
from precision_lab.fleet.slices import GPU_DRIVER
from tests.support.api_server import ApiServer
from tests.support.history import Watches, has_ended

RESOURCE = "/apis/resource.k8s.io/v1"
PATHS = {"claims": f"{RESOURCE}/resourceclaims", "pods": "/api/v1/pods"}
Object = dict[str, Any]


@dataclass
class _World:
    """Claims and pods that are there at one instant, by UID."""

    claims: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)


class GpuLedger(Watches):
    """Watches all ResourceClaims and pods of the cluster from now on, until `close`."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api, PATHS)

    def violations(self) -> list[str]:
        """What must never be, at any instant up to now: empty is as it must be.

        A GPU that two claims have; an agent that does not have exactly the GPUs that its request names; an agent that
        has by the device plugin what somebody holds by claim; an agent where the plugin has given GPUs to others.
        """
        uuids = self._uuids()
        return list(dict.fromkeys(said for world in self._worlds() for said in _wrong(world, uuids)))

    def agents(self) -> dict[str, frozenset[str]]:
        """UUIDs that each agent's claim was allocated, by node; empty for those of the device plugin."""
        uuids, found = self._uuids(), dict[str, frozenset[str]]()
        for world in self._worlds():
            for pod in world.pods.values():
                if _is_agent(pod) and _node(pod):
                    found[_node(pod)] = found.get(_node(pod), frozenset()) | _of_claims(pod, world, uuids)
        return found

    def most_held(self) -> int:
        """The most GPUs that pods other than agents held at one time, so that a test sees that there were any."""
        uuids = self._uuids()
        return max(
            sum(len(_of_claims(p, w, uuids)) + _by_plugin(p) for p in w.pods.values() if _node(p) and not _is_agent(p))
            for w in self._worlds()
        )

    def _worlds(self) -> Iterator[_World]:
        """The world after each change."""
        world = _World()
        for change in self.all_changes():
            there = getattr(world, change.kind)
            there.pop(change.uid, None)
            if change.type != "DELETED" and not (change.kind == "pods" and has_ended(change.object)):
                there[change.uid] = change.object
            yield world

    def _uuids(self) -> dict[tuple[str, str], str]:
        """UUIDs of the GPUs by pool and device, as the newest slices tell them."""
        found: dict[tuple[str, str], str] = {}
        slices = self._api.ask("GET", f"{RESOURCE}/resourceslices")["items"]
        for item in sorted(slices, key=lambda raw: raw["spec"]["pool"]["generation"]):
            if item["spec"]["driver"] != GPU_DRIVER:
                continue
            for device in item["spec"].get("devices") or ():
                if (uuid := device.get("attributes", {}).get("uuid", {}).get("string")) is not None:
                    found[item["spec"]["pool"]["name"], device["name"]] = uuid
        return found


def _wrong(world: _World, uuids: dict[tuple[str, str], str]) -> Iterator[str]:
    holders: dict[str, list[str]] = defaultdict(list)
    for claim in world.claims.values():
        for uuid in allocated(claim, uuids):
            holders[uuid].append(claim["metadata"]["name"])
    yield from (f"{uuid} is held by {', '.join(them)}" for uuid, them in holders.items() if len(them) > 1)
    by_plugin: dict[str, dict[str, int]] = defaultdict(dict)
    for pod in world.pods.values():
        if _node(pod) and _by_plugin(pod):
            by_plugin[_node(pod)][pod["metadata"]["name"]] = _by_plugin(pod)
    for pod in world.pods.values():
        if _is_agent(pod) and _node(pod):
            yield from _wrong_agent(pod, world, uuids, holders, by_plugin[_node(pod)])


def _wrong_agent(
    pod: Object,
    world: _World,
    uuids: dict[tuple[str, str], str],
    holders: dict[str, list[str]],
    by_plugin: dict[str, int],
) -> Iterator[str]:
    name, node = pod["metadata"]["name"], _node(pod)
    env = {row["name"]: row.get("value") for row in pod["spec"]["containers"][0]["env"]}
    told = frozenset(json.loads(env[names.REQUEST_ENV])["node"].get("gpu_uuids") or ())
    mine = _of_claims(pod, world, uuids)
    others = by_plugin.keys() - {name}
    if others:
        yield f"agent {name} is on {node}, where the device plugin has given GPUs to {', '.join(sorted(others))}"
    if pod["spec"].get("resourceClaims"):
        if mine != told:
            yield f"agent {name} was told of {sorted(told)}, and has {sorted(mine)}"
    else:
        here = {uuid for (pool, _), uuid in uuids.items() if pool == node}
        held = here & holders.keys()
        if held:
            yield f"agent {name} has GPUs of {node} by the device plugin, of which claims hold {sorted(held)}"


def allocated(claim: Object, uuids: dict[tuple[str, str], str]) -> frozenset[str]:
    """UUIDs of the GPUs that a claim has for itself."""
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    mine = [row for row in results if row["driver"] == GPU_DRIVER and not row.get("adminAccess")]
    return frozenset(uuids.get((row["pool"], row["device"]), f"{row['pool']}/{row['device']}") for row in mine)


def _of_claims(pod: Object, world: _World, uuids: dict[tuple[str, str], str]) -> frozenset[str]:
    """UUIDs of the claims that are reserved for a pod."""
    uid = pod["metadata"]["uid"]
    mine = (
        claim
        for claim in world.claims.values()
        if any(row["uid"] == uid for row in (claim.get("status") or {}).get("reservedFor") or ())
    )
    return frozenset().union(*(allocated(claim, uuids) for claim in mine))


def _by_plugin(pod: Object) -> int:
    """GPUs that a pod has from the device plugin: not those of a request that the scheduler has made a claim of."""
    if (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        return 0
    limits = ((container.get("resources") or {}).get("limits") or {} for container in pod["spec"]["containers"])
    return sum(int(limit.get(GPU_RESOURCE, 0)) for limit in limits)


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _is_agent(pod: Object) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(names.LABEL_APP) == names.AGENT_APP)
