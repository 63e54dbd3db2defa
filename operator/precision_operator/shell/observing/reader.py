"""What no watch shows of the cluster, read when a decision needs it: each once, and no more kept than is read of it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from precision_api.models.workload import MAX_CONFIG_BYTES
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.core.attempts.refusal import WORDS_READ
from precision_operator.core.observe.claims import Claims, claim_names, claimed_gpus
from precision_operator.core.observe.device_class import DeviceClass, device_class
from precision_operator.core.observe.observed import Occupancy, Raw
from precision_operator.core.observe.raw_object import entries, section
from precision_operator.core.observe.views import occupancy
from precision_operator.shell.observing.local_queues import LocalQueues, get_or_none

RESOURCE_API = "resource.k8s.io/v1"
MOST_TEXT = MAX_CONFIG_BYTES + 1
"""Characters of a text in a ConfigMap that are kept: one more than a config.json may have, so that it is refused."""
NOT_CREATED, NOT_PREPARED = "FailedResourceClaimCreation", "FailedPrepareDynamicResources"
"""Reasons of a pod's events: of the controller that creates its claim, and of its kubelet."""
MOST_EVENTS = 200
"""A bound: of so many events of a namespace, the first by name, it is read why something was not created."""
MOST_CLAIMS = 128
"""A bound: so many claims of a node's pods are read. The others count as a GPU each, so that the node is busy."""
ClaimProblems = Mapping[tuple[str, str], str]


class Reader:
    """What no watch shows, read when a decision needs it. Every method raises ApiError, also for a missing right."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._local_queues = LocalQueues(cluster)

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The data of a ConfigMap, each text up to where it is too long for a config.json; None where there is none."""
        raw = await get_or_none(self._cluster, paths.item(paths.config_maps(namespace), name))
        return None if raw is None else {key: str(text)[:MOST_TEXT] for key, text in (raw.get("data") or {}).items()}

    async def has_priority_class(self, name: str) -> bool:
        """Whether there is such a PriorityClass."""
        collection = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
        return await get_or_none(self._cluster, paths.item(collection, name)) is not None

    async def has_queue(self, namespace: str, name: str) -> bool:
        """Whether there is such a Kueue LocalQueue."""
        return await self._local_queues.has(namespace, name)

    async def device_class(self, name: str) -> DeviceClass:
        """The class of the agents' claims; one that may not be read counts as there."""
        try:
            return device_class(
                await get_or_none(self._cluster, paths.item(paths.collection(RESOURCE_API, "deviceclasses"), name))
            )
        except ApiError as error:
            if error.status != 403:
                raise
            return DeviceClass()

    async def claim_problems(self, namespace: str) -> ClaimProblems:
        """The newest event on why a pod's claim is not created, or not prepared, by its reason and the pod's UID."""
        problems: dict[tuple[str, str], str] = {}
        for reason in (NOT_CREATED, NOT_PREPARED):
            texts = await self._events(namespace, f"involvedObject.kind=Pod,reason={reason}")
            problems |= {(reason, uid): text for uid, text in texts.items()}
        return problems

    async def creation_problems(self, namespace: str) -> Mapping[str, str]:
        """The newest FailedCreate event of each Job (a quota, Pod Security ...), by the Job's UID."""
        return await self._events(namespace, "involvedObject.kind=Job,reason=FailedCreate")

    async def _events(self, namespace: str, chosen: str) -> Mapping[str, str]:
        """The text of the newest of these events, cut, by the UID of the object that it is about."""
        collection = paths.collection("v1", "events", namespace)
        events, _ = await self._cluster.list_trimmed(collection, _told, None, chosen, PAGE_TENANT, most=MOST_EVENTS)
        return {uid: text for _, uid, text in sorted(events)}

    async def occupancy(self, node: str, offered: Container[str] | None = None) -> Occupancy:
        """Who holds the node's GPUs now; `offered` are the resources that it has, None: any."""
        chosen = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        pods, _ = await self._cluster.list_trimmed(paths.pods(), slim_pod, None, chosen, PAGE_TENANT)
        return occupancy(pods, await self._claims(pods, node), offered)

    async def has_claimed(self, pod: Raw) -> bool:
        """Whether a pod's claims are allocated GPUs of its node, or may not be read."""
        return any(gpus is None or gpus for gpus in (await self._claims([pod], pod["spec"]["nodeName"])).values())

    async def _claims(self, pods: Sequence[Raw], node: str) -> Claims:
        """The GPUs of all claims of these pods on the node, none of one that is not there; None: it may not be read."""
        names = {(str(pod["metadata"].get("namespace")), name) for pod in pods for name in claim_names(pod)}
        gpus: dict[tuple[str, str], Any] = {}
        for namespace, name in sorted(names)[:MOST_CLAIMS]:
            try:
                path = paths.item(paths.collection(RESOURCE_API, "resourceclaims", namespace), name)
                gpus[namespace, name] = claimed_gpus(await self._cluster.get(path), node)
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                gpus[namespace, name] = frozenset() if error.reason == "NotFound" else None
        return gpus


def slim_pod(raw: Raw) -> Raw:
    """Of a pod what is read of those that are not ours: where it may run, what it asks for, and who controls it."""
    meta, spec, status = (section(raw, part) for part in ("metadata", "spec", "status"))
    placed = ("nodeName", "priority", "nodeSelector", "affinity", "tolerations")
    wanted = (*placed, "resourceClaims", "resources", "overhead")
    containers = {
        part: [{key: container.get(key) for key in ("resources", "restartPolicy")} for container in entries(spec, part)]
        for part in ("containers", "initContainers")
    }
    owners = [row for row in entries(meta, "ownerReferences") if row.get("controller")]
    return {
        "metadata": {key: meta.get(key) for key in ("name", "namespace", "uid")} | {"ownerReferences": owners},
        "spec": {key: spec[key] for key in wanted if key in spec} | containers,
        "status": {key: status.get(key) for key in ("phase", "resourceClaimStatuses", "extendedResourceClaimStatus")},
    }


def _told(event: Raw) -> tuple[str, str, str]:
    """When an event was last told, of which object (its UID), and what of its words is read."""
    about = event.get("involvedObject") or {}
    return str(event.get("lastTimestamp") or ""), str(about.get("uid")), str(event.get("message") or "")[:WORDS_READ]
