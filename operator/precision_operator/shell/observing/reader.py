"""What no watch shows of the cluster, read when a decision needs it: each once, and no more kept than is read of it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from typing import TypeVar

from precision_api.acceptance.reference import read_reference, sha256_of, text_of
from precision_api.facts.names import GPU_RESOURCE, REFERENCE_FILE, grouped
from precision_api.models.config_json import MAX_CONFIG_BYTES
from precision_operator.cluster import ApiError, Cluster, get_or_none, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.core.attempts.refusal import WORDS_READ
from precision_operator.core.observe.claims import Claims, Device, PodsClaim, claim_keys, claimed_gpus, pods_of
from precision_operator.core.observe.device_class import DeviceClass, device_class
from precision_operator.core.observe.observed import Occupancy, Raw, SavedReference
from precision_operator.core.observe.pod_requests import pod_requests
from precision_operator.core.observe.raw_object import entries, section
from precision_operator.core.observe.views import asked_gpus, occupancy
from precision_operator.shell.observing.cache import TRIM
from precision_operator.shell.observing.local_queues import LocalQueues

RESOURCE_API = "resource.k8s.io/v1"
MOST_TEXT = MAX_CONFIG_BYTES + 1
"""Characters of a text in a ConfigMap that are kept: one more than a config.json may have, so that it is refused."""
MOST_KEYS = 20
"""A bound: of so many keys of a ConfigMap that no profile names the name is kept."""
NOT_CREATED, NOT_PREPARED = "FailedResourceClaimCreation", "FailedPrepareDynamicResources"
"""Reasons of a pod's events: of the controller that creates its claim, and of its kubelet."""
MOST_EVENTS = 200
"""A bound: of so many events of a namespace, the first by name, it is read why something was not created."""
MOST_CLAIMS, MOST_READ, READS_AT_ONCE = 512, 2048, 16
"""Bounds: so many claims of a node's pods are read in a look, of all nodes' in a pass, one of each pod in any case. The
others count as a GPU each, so that the node is busy, and later looks go on with them."""
OWN_CLAIMS, OWN_READ, OWN_JOBS = 32, 512, 64
"""Bounds: so many claims of an agent's pod are read, of all agents' pods in a pass, and Jobs that no watch shows."""
MOST_REFERENCE, MOST_OF_REFERENCE = 1_000_000, 32_768
"""Bounds: characters of a reference that is read, as its command makes it, and of what is kept: all but its nodes."""
MOST_KEPT = 50_000
"""A bound: so many claims are remembered; then all are forgotten, so that those of pods that are gone go."""
FRESH_SECONDS = 10.0
"""How long a look at a ConfigMap, a PriorityClass, a claim or a busy node serves; not at an idle one."""
T = TypeVar("T")
Name = tuple[str, ...]
Reads = Mapping[Name, Callable[[], Awaitable[T | None]]]
Turns = dict[Name, tuple[float, T]]
"""When something was read last and as what, by its namespace and more, and by what such names begin with."""
ClaimProblems = Mapping[tuple[str, str], str]


class Reader:
    """What no watch shows, read when a decision needs it. Every method raises ApiError, also for a missing right."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._local_queues = LocalQueues(cluster)
        self._reserved: dict[PodsClaim, frozenset[Device]] = {}
        """GPUs of claims that are reserved for their pod: nothing changes before that pod is over."""
        self._references: dict[tuple[str, str], tuple[object, SavedReference]] = {}
        """Those that are named, with their resourceVersion, by namespace and name."""
        self._parsing = asyncio.Lock()
        self._left, self._own_left, self._jobs_left = MOST_READ, OWN_READ, OWN_JOBS
        self._at_once = asyncio.Semaphore(READS_AT_ONCE)

    async def config_map(self, namespace: str, name: str, keys: Collection[str]) -> Mapping[str, str] | None:
        """What a ConfigMap has under these keys, each text up to where it is too long for a config.json, and the names
        of a few others; None where there is none."""
        raw = await get_or_none(self._cluster, paths.item(paths.config_maps(namespace), name))
        data: Raw = {} if raw is None else raw.get("data") or {}
        shown = dict.fromkeys(islice(data, MOST_KEYS), "") | {key: str(data[key]) for key in keys if key in data}
        return None if raw is None else {key: text[:MOST_TEXT] for key, text in shown.items()}

    async def reference(self, namespace: str, name: str) -> SavedReference | None:
        """The reference in a ConfigMap; None where there is none."""
        raw = await get_or_none(self._cluster, paths.item(paths.config_maps(namespace), name))
        if raw is None:
            return None
        version, row = raw["metadata"].get("resourceVersion"), self._references.get((namespace, name))
        if row is None or row[0] != version:
            async with self._parsing:  # a megabyte of text takes twenty of memory
                text = str((raw.get("data") or {}).get(REFERENCE_FILE) or "")
                row = self._references[namespace, name] = version, await asyncio.to_thread(_saved, text)
        return row[1]

    def keep_references(self, names: Container[tuple[str, str]]) -> None:
        """All others are forgotten."""
        self._references = {name: row for name, row in self._references.items() if name in names}

    async def has_priority_class(self, name: str) -> bool:
        """Whether there is such a PriorityClass."""
        collection = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
        return await get_or_none(self._cluster, paths.item(collection, name)) is not None

    async def has_queue(self, namespace: str, name: str) -> bool:
        """Whether there is such a Kueue LocalQueue."""
        return await self._local_queues.has(namespace, name)

    async def device_class(self, name: str) -> DeviceClass:
        """The class of the agents' claims; one that may not be read counts as there."""
        path = paths.item(paths.collection(RESOURCE_API, "deviceclasses"), name)
        try:
            return device_class(await get_or_none(self._cluster, path))
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

    def begin_pass(self) -> None:
        """As many claims and Jobs as in any pass may be read again."""
        self._left, self._own_left, self._jobs_left = MOST_READ, OWN_READ, OWN_JOBS
        self._reserved = self._reserved if len(self._reserved) < MOST_KEPT else {}

    async def occupancy(self, node: str, offered: Container[str] | None = None, by_claim: bool = True) -> Occupancy:
        """Who holds the node's GPUs now; `offered` are the resources that it has, None: any.

        Where its GPUs are none `by_claim`, no claim holds any: none is read.
        """
        chosen = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        view = partial(_asking, offered=offered)
        pods, _ = await self._cluster.list_trimmed(paths.pods(), view, None, chosen, PAGE_TENANT)
        none: Claims = {key: frozenset() for pod in pods for key in claim_keys(pod)}
        return occupancy(pods, await self._claims(pods, node) if by_claim else none)

    async def has_claimed(self, pod: Raw) -> bool | None:
        """Whether a pod's claims are allocated GPUs of its node, or may not be read; None: not read in this pass."""
        if self._own_left <= 0:
            return None
        self._own_left -= min(len(claim_keys(pod)), OWN_CLAIMS)
        claims = await self._claims([pod], pod["spec"]["nodeName"], OWN_CLAIMS)
        return any(gpus is None or gpus for gpus in claims.values())

    async def job(self, meta: Raw, last: Raw) -> Raw | None:
        """The Job, trimmed, `last` where it can't be read; empty: it is gone; None: not read in this pass."""
        if self._jobs_left <= 0:
            return None
        self._jobs_left -= 1
        try:
            async with self._at_once:
                raw = await self._cluster.get(paths.item(paths.jobs(meta["namespace"]), meta["name"]))
        except ApiError as error:
            return {} if error.status in (403, 404) else last
        return TRIM["jobs"](raw) if raw["metadata"].get("uid") == meta["uid"] else {}

    async def _claims(self, pods: Sequence[Raw], node: str, number: int = 0) -> Claims:
        """The GPUs of these pods' claims on the node, none of one that is not there; None: it may not be read.

        A pod with a claim that is not allocated, or not reserved for it, runs nowhere: its others hold nothing, and are
        not read for it. Of an agent's pod `number` claims are read, whatever the pass has read of others. Pods take
        turns, for twice as many claims each time: one that names many leaves the others theirs.
        """
        gpus: dict[PodsClaim, frozenset[Device] | None] = {}
        todo = [[key for key in claim_keys(pod) if key not in self._reserved] for pod in pods]
        read: dict[tuple[str, str], tuple[frozenset[Device], frozenset[str]] | None] = {}
        left, size = number or MOST_CLAIMS, 1
        while any(todo):
            unread = list(dict.fromkeys(key[1:] for keys in todo for key in keys[:size] if key[1:] not in read))
            unread = unread[: left if number or size == 1 else max(0, min(left, self._left))]
            left, self._left = left - len(unread), self._left - (0 if number else len(unread))
            for name, claim in zip(unread, await asyncio.gather(*map(self._claim, unread)), strict=True):
                read[name] = None if claim is None else (claimed_gpus(claim, node), pods_of(claim))
            for keys in todo:
                seen = {key: read[key[1:]] for key in keys[:size] if key[1:] in read}
                gpus |= {key: row and row[0] for key, row in seen.items()}
                self._reserved |= {key: row[0] for key, row in seen.items() if row and key[0] in row[1]}
                del keys[:size]
                if any(row and key[0] not in row[1] for key, row in seen.items()):
                    gpus |= dict.fromkeys(keys, frozenset())
                    keys.clear()
            size *= 2
        return gpus | {key: self._reserved[key] for pod in pods for key in claim_keys(pod) if key in self._reserved}

    async def _claim(self, key: tuple[str, str]) -> Raw | None:
        """A claim by namespace and name, empty where there is none; None: it may not be read."""
        path = paths.item(paths.collection(RESOURCE_API, "resourceclaims", key[0]), key[1])
        try:
            async with self._at_once:
                return await self._cluster.get(path)
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return {} if error.reason == "NotFound" else None


def _saved(text: str) -> SavedReference:
    """A reference, without its nodes, or why it is left out; and its text's SHA-256."""
    try:
        made = read_reference(text[:MOST_REFERENCE]).model_copy(update={"nodes": {}, "left_out": {}})
        is_large = len(text_of(made)) > MOST_OF_REFERENCE
    except ValueError:
        return sha256_of(text), "ReferenceTooLarge" if len(text) > MOST_REFERENCE else "NoReference"
    return sha256_of(text), "ReferenceTooLarge" if is_large else made


async def in_turns(rows: Turns[T], reads: Reads[T], wake: Callable[[], None], kept: Container[Name] = ()) -> Turns[T]:
    """The rows, read where not fresh, and those `kept`. Namespaces take turns, the least recently read first, until a
    read gives None: the pass reads no more. `wake` is called where there is no row then."""
    now, used = asyncio.get_running_loop().time(), {part for name in reads for part in (name[:1], name)}
    rows = {name: row for name, row in rows.items() if name in used or name in kept}
    last = {name: rows[name][0] if name in rows else 0.0 for name in used}
    due = [name for name in reads if name not in rows or now - last[name] >= FRESH_SECONDS]
    turns = grouped((name[:1], name) for name in sorted(due, key=lambda name: last[name]))
    in_turn = chain.from_iterable(zip_longest(*(turns[of] for of in sorted(turns, key=lambda of: last[of]))))
    values = {name: reads[name]() for name in in_turn if name is not None}
    for name, value in zip(values, await asyncio.gather(*values.values()), strict=True):
        if value is not None:
            rows |= {name[:length]: (now, value) for length in range(1, len(name) + 1)}
        elif name not in rows:
            wake()
    return rows


def slim_pod(raw: Raw, **resources: Mapping[str, object]) -> Raw:
    """Of a pod what is read of those that are not ours: where it is, who controls it, and the claims that a look reads.

    `resources` are what its containers ask for in all: it may have thousands of them.
    """
    meta, spec, status = (section(raw, part) for part in ("metadata", "spec", "status"))
    uids = [str(row.get("uid"))[:WORDS_READ] for row in entries(meta, "ownerReferences") if row.get("controller")]
    claims = [{"resourceClaimName": name} for *_, name in claim_keys(raw)[: MOST_CLAIMS + 1]]  # the last is a GPU
    return {
        "metadata": {key: meta.get(key) for key in ("name", "namespace", "uid")}
        | {"ownerReferences": [{"uid": uid, "controller": True} for uid in uids[:1]]},
        "spec": {key: spec[key] for key in ("nodeName", "priority") if key in spec}
        | {"resourceClaims": claims, "containers": [{"resources": resources}]},
        "status": {"phase": status.get("phase")},
    }


def _asking(raw: Raw, offered: Container[str] | None) -> Raw:
    """The same with what it requests of its node: of GPUs those that the node offers."""
    asked, gpus = pod_requests(raw), asked_gpus(raw, offered)
    return slim_pod(raw, requests={"cpu": f"{asked.cpu_millis}m", "memory": asked.memory_bytes, GPU_RESOURCE: gpus})


def _told(event: Raw) -> tuple[str, str, str]:
    """When an event was last told, of which object of its namespace (its UID), and what of its words is read."""
    about, home = section(event, "involvedObject"), section(event, "metadata").get("namespace")
    uid = str(about.get("uid"))[:WORDS_READ] if about.get("namespace") == home else ""
    return str(event.get("lastTimestamp") or ""), uid, str(event.get("message") or "")[:WORDS_READ]
