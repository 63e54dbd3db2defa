"""Looks at pods that wait for GPUs by claim while agents hold some, and remembers which agents were ended for them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, zip_longest
from math import inf
from typing import Any

from precision_api.facts.names import GPU_RESOURCE, grouped
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.core.attempts.yielding import PATIENCE, Fate, Holder, advanced, fate_of_pending
from precision_operator.core.observe import waiting_pods
from precision_operator.core.observe.claims import Device, claim_names, claimed_gpus, pods_of
from precision_operator.core.observe.observed import PodView, Raw, Yield
from precision_operator.core.observe.raw_object import section
from precision_operator.core.observe.tenants import ANOTHERS_POD
from precision_operator.core.observe.views import job_uid, pod_view
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.reader import FRESH_SECONDS, RESOURCE_API, slim_pod

_log = logging.getLogger(__name__)

LOOK_SECONDS, MOST_LOOK_SECONDS = 3.0, 10.0
"""Least and most time between two looks; in between ten times as long as a look takes."""
PENDING = "spec.nodeName=,status.phase=Pending"
"""Field selector of pods without a node. The API server keeps an index of spec.nodeName."""
MOST_PODS = 256
"""A bound: of so many pods the claims are read, the first of each namespace by priority before the second ones."""
PLACED, MOST_PLACED = ("nodeSelector", "affinity", "tolerations"), 10_000
"""What of a pod says where it may run, and a bound: one with more characters of it is left out."""
MOST_CLAIMS, MOST_READ = 32, 512
"""Bounds: of one pod, which is left out with more; and of what is read for the pods that wait, or for a node's."""


class Yields:
    """What waits for agents' GPUs, and what came of agents that were ended; `changed` of the cache is set by it."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        device_class: str,
        ended: Callable[[str], None] = lambda outcome: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`ended` is called with the outcome of each yield when it is known."""
        self._cluster = cluster
        self._cache = cache
        self._device_class = device_class
        self._ended = ended
        self._clock = clock
        self._since: dict[str, datetime] = {}
        """When each pod was first seen to wait for GPUs, by UID."""
        self._gpus: dict[str, tuple[datetime, int | None]] = {}
        """When it was read how many GPUs each asks for, by UID: that never changes where no claim is allocated. None:
        none, as far as claims were read; those are read again."""
        self._records: dict[str, Yield] | None = None
        """By Job UID; None until the statuses of profiles have been read."""
        self._held: dict[str, frozenset[Device]] = {}
        """GPUs of the agents that this leader ended, by Job UID: who has none of them has not been helped."""
        self.pods: tuple[waiting_pods.WaitingPod, ...] = ()
        self._left = 0
        """Objects that may still be read; beyond these each counts as gone."""
        self._planned_for: object = None
        """What the last plan that was asked for hangs on."""

    @property
    def records(self) -> tuple[Yield, ...]:
        """Agents that were ended within the last hour."""
        return tuple((self._records or {}).values())

    def remember(self, records: Iterable[Yield]) -> None:
        """Take what the profiles' statuses tell, once: from who led before."""
        if self._records is None:
            self._records = {record.job_uid: record for record in records}

    async def begun(self, record: Yield, namespace: str) -> None:
        """An agent of the namespace is being ended for a pod. Raises ApiError."""
        self._records = (self._records or {}) | {record.job_uid: record}
        for raw in [*self._cache.all("pods").values()]:
            if (job_uid(raw), raw["metadata"].get("namespace")) == (record.job_uid, namespace):
                self._left = max(self._left, MOST_CLAIMS)
                self._held[record.job_uid] = self._held.get(record.job_uid) or await self._gpus_on(raw, record.node)

    async def run(self) -> None:
        """Look now and then, for ever. A look that fails is logged, and changes nothing."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            try:
                await self.look()
            except ApiError as error:
                _log.warning("pods that wait for GPUs can't be read: %s", error)
            except Exception:
                _log.exception("pods that wait for GPUs can't be read")
            took = loop.time() - before
            await asyncio.sleep(min(max(LOOK_SECONDS, 10 * took), MOST_LOOK_SECONDS, self._until_patience_ends()))

    def _until_patience_ends(self) -> float:
        """Seconds until the next of the pods that wait has waited for long enough; infinite where none is about to."""
        left = [(pod.since + PATIENCE - self._clock()).total_seconds() for pod in self.pods]
        return min((seconds for seconds in left if seconds > 0), default=inf)

    async def look(self) -> None:
        """One look; nothing is asked of the API server while no agent holds GPUs by claim. Raises ApiError."""
        agents = [view for raw in self._cache.all("pods").values() if (view := pod_view(raw)) is not None]
        waits = [record for record in self.records if record.outcome == "Waiting"]
        asked = any(pod.claims and pod.live for pod in agents)
        try:
            self.pods = await self._waiting() if asked else ()
        except ApiError:
            self.pods = ()  # they may have got their GPUs since the last look
            raise
        finally:
            await self._advance(waits, agents)
        signature = {pod.uid: self._clock() - pod.since >= PATIENCE for pod in self.pods}, self.records
        if signature != self._planned_for:
            self._planned_for = signature
            self._cache.changed.set()

    async def _waiting(self) -> tuple[waiting_pods.WaitingPod, ...]:
        view = partial(_kept, device_class=self._device_class)
        first, _ = await self._cluster.list_trimmed(paths.pods(), view, None, PENDING, PAGE_TENANT, cut=_first)
        now, uids = self._clock(), [str(raw["metadata"]["uid"]) for raw in first]
        self._since = {uid: self._since.get(uid, now) for uid in uids}
        since, rows = now - timedelta(seconds=FRESH_SECONDS), self._gpus.items()
        self._gpus = {uid: row for uid, row in rows if uid in self._since and (row[1] is not None or row[0] > since)}
        classes: dict[str, bool | None] = {}
        self._left = MOST_READ
        for uid, raw in zip(uids, first, strict=True):
            if uid not in self._gpus:
                row = now, await self._gpus_of(raw, classes)
                self._gpus |= {uid: row} if self._left >= 0 else {}
        asked = [(uid, raw, self._gpus[uid][1]) for uid, raw in zip(uids, first, strict=True) if uid in self._gpus]
        return tuple(waiting_pods.waiting_pod(raw, n, self._since[uid]) for uid, raw, n in asked if n is not None)

    async def _gpus_of(self, raw: Raw, classes: dict[str, bool | None]) -> int | None:
        """GPUs that a pod waits for; 0: all of a node; None: none, or its claims can't be read.

        One that has its GPUs already, by a claim that it shares with other pods, waits for something else.
        """
        asked = [waiting_pods.gpus_of_resources(raw, self._device_class) or None]
        namespace = str(raw["metadata"].get("namespace"))
        for name in claim_names(raw):
            claim = await self._get("resourceclaims", name, namespace)
            if claim is None or claimed_gpus(claim):
                return None
            for wanted in waiting_pods.classes_of(claim) - classes.keys():
                device_class = await self._get("deviceclasses", wanted)
                classes[wanted] = waiting_pods.class_of_gpus(device_class) if device_class is not None else None
            of_gpus = {wanted: whole for wanted, whole in classes.items() if whole is not None}
            asked.append(waiting_pods.gpus_of_claim(claim, of_gpus))
        return waiting_pods.total(asked)

    async def _get(self, kind: str, name: str, namespace: str | None = None) -> Raw | None:
        """The object; None where it is gone or may not be read."""
        self._left -= 1
        if self._left < 0:
            return None
        try:
            return await self._cluster.get(paths.item(paths.collection(RESOURCE_API, kind, namespace), name))
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return None

    async def _advance(self, waits: Sequence[Yield], agents: Sequence[PodView]) -> None:
        fates = {record.pod_uid: await self._fate(record) for record in waits}
        before = {record.job_uid: record for record in self.records}
        after = advanced(self.records, fates, agents, self._clock())
        for record in after:
            if record.outcome != "Waiting" and before[record.job_uid].outcome == "Waiting":
                self._ended(record.outcome)
        self._records = {record.job_uid: record for record in after} if self._records is not None else None
        self._held = {uid: held for uid, held in self._held.items() if uid in (self._records or {})}

    async def _fate(self, record: Yield) -> Fate:
        """What has become of the pod that an agent was ended for; one that a status doesn't name counts as pending."""
        fate = await self._fate_by_name(record) if record.pod != ANOTHERS_POD else None
        return fate or fate_of_pending(record, [holder async for holder in self._holders(record)])

    async def _fate_by_name(self, record: Yield) -> Fate | None:
        """Whether the pod has a node or is gone; None while it is pending."""
        namespace, _, name = record.pod.partition("/")
        try:
            listed, _ = await self._cluster.list_all(paths.pods(namespace), field_selector=f"metadata.name={name}")
        except ApiError as error:
            if error.status != 400:
                raise
            return "gone"  # no pod can have such a name: who wrote the status has made it up
        pod = next((raw for raw in listed if raw["metadata"].get("uid") == record.pod_uid), None)
        if pod is None:
            return "gone"
        if node := (pod.get("spec") or {}).get("nodeName"):
            self._left = MOST_CLAIMS
            return "bound" if node == record.node and await self._is_helped(pod, record) else "gone"
        return None

    async def _is_helped(self, pod: Raw, record: Yield) -> bool:
        """Whether a pod has GPUs that the ended agent had; any of its node's, where that was not read."""
        got = await self._gpus_on(pod, record.node)
        return bool(got & (self._held.get(record.job_uid) or got))

    async def _gpus_on(self, pod: Raw, node: str) -> frozenset[Device]:
        """GPUs of the node that a pod has: by claims that are reserved for it, some of which may be new ones."""
        names, meta = claim_names(pod)[:MOST_CLAIMS], pod["metadata"]
        claims = [await self._get("resourceclaims", name, str(meta.get("namespace"))) for name in names]
        reserved = (claim for claim in claims if claim and meta.get("uid") in pods_of(claim))
        return frozenset(device for claim in reserved for device in claimed_gpus(claim, node))

    async def _holders(self, record: Yield) -> AsyncIterator[Holder]:
        """Pods of others that hold the GPUs of an ended agent."""
        chosen = f"spec.nodeName={record.node}"
        listed, _ = await self._cluster.list_trimmed(paths.pods(), _of_others, None, chosen, PAGE_TENANT)
        self._left = MOST_READ
        for raw, at in listed:
            if await self._is_helped(raw, record):
                yield waiting_pods.owner_of(raw), at


def _of_others(raw: dict[str, Any]) -> tuple[Raw, datetime] | None:
    """A pod with claims that runs, and when it was scheduled; None for our agents and for those without claims."""
    at = waiting_pods.scheduled_at(raw)
    return (slim_pod(raw), at) if at is not None and 0 < len(claim_names(raw)) <= MOST_CLAIMS else None


def _kept(raw: dict[str, Any], device_class: str) -> Raw | None:
    """A pod that agents may help: the others are dropped as they come."""
    placed = {key: raw["spec"][key] for key in PLACED if key in section(raw, "spec")}
    if not waiting_pods.could_be_helped(raw) or len(claim_names(raw)) > MOST_CLAIMS or len(repr(placed)) > MOST_PLACED:
        return None
    slim = slim_pod(raw, limits={GPU_RESOURCE: waiting_pods.gpus_of_resources(raw, device_class)})
    return {**slim, "spec": slim["spec"] | placed}


def _first(pods: list[Raw]) -> list[Raw]:
    """As many as count."""
    by_priority = sorted(pods, key=lambda raw: -(raw["spec"].get("priority") or 0))
    ranks = grouped((raw["metadata"].get("namespace"), raw) for raw in by_priority).values()
    return [raw for raw in chain.from_iterable(zip_longest(*ranks)) if raw is not None][:MOST_PODS]
