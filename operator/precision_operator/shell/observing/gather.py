"""One look at the world: the cache as views, and the few things that are read only when a decision needs them."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from math import inf
from typing import Any, Generic, TypeVar

from precision_api.facts.names import AGENT_APP, LABEL_APP, LABEL_MANAGED_BY, LABEL_NODE_UID, MANAGED_BY, grouped
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import PAGE_ITEMS, PAGE_NODES, PAGE_REPORTS, PAGE_TENANT
from precision_operator.cluster.object_store import identity
from precision_operator.core.attempts.faults import Fault, Where, fault_text
from precision_operator.core.observe import observed, tenants, views
from precision_operator.core.observe.device_class import DeviceClass
from precision_operator.core.observe.gpu_slices import DRA_DRIVER
from precision_operator.core.observe.stop import Stop, strictest
from precision_operator.core.status.yields import yields_told
from precision_operator.shell.observing import wanted
from precision_operator.shell.observing.cache import KINDS, OF_CLUSTER, Cache, ObjectKind
from precision_operator.shell.observing.reader import (
    FRESH_SECONDS,
    NOT_CREATED,
    NOT_PREPARED,
    RESOURCE_API,
    ClaimProblems,
    Name,
    Reader,
    Turns,
    in_turns,
)
from precision_operator.shell.observing.refusals import RefusedCreations
from precision_operator.shell.observing.wanted import Missing, Profiles
from precision_operator.shell.observing.yields import Yields
from precision_operator.shell.room import Room

K = TypeVar("K")
T = TypeVar("T")
Jobs = tuple[observed.JobView, ...]
Pods = tuple[observed.PodView, ...]
View = Callable[[observed.Raw], Any]
Read = tuple[observed.Raw, observed.Raw, Any]
"""An object, the metadata that its Job of ours was made with, and what it was read as."""
Texts = Mapping[tuple[str, str], Mapping[str, str] | None]

REFERENCE_SECONDS, BESIDE_SECONDS = 60.0, 0.1
"""How long a look at a reference serves; how long a pass waits for what is read beside it, before it takes the last."""
BARE_SECONDS = 2.0
"""A Job that has no pod after this long was probably refused one: its events say why."""
PROBLEMS_SECONDS = 3.0
"""How long a look at such events serves, at least: else ten times as long as it took."""
BUSY_SECONDS, MOST_BUSY_SECONDS = 20.0, 320.0
"""How long a node that was seen busy is not looked at again: twice as long each time, up to the second."""
LOOKED_SECONDS = 640.0
"""How long such a node comes after those that were not looked at since: else idle ones behind many never are."""
LOOKS_AT_ONCE, SLOW_LOOK_SECONDS, NARROW_SECONDS = 16, 1.0, 60.0
"""Half as many looks and starts for a minute where a look took so long, or was refused with 429."""
MOST_REST_SECONDS = 10.0
"""A bound on the Retry-After of such a refusal."""
SELECTORS: dict[ObjectKind, str] = {
    "jobs": f"{LABEL_APP}={AGENT_APP}",
    "pods": f"{LABEL_APP}={AGENT_APP}",
    "reports": f"{LABEL_MANAGED_BY}={MANAGED_BY}",
}
FIELD_SELECTORS: dict[ObjectKind, str] = {"slices": f"spec.driver={DRA_DRIVER}"}
"""Other drivers' slices (NICs, NVLink channels) stay on the server."""

AGENTS: tuple[ObjectKind, ...] = ("jobs", "pods")
PAGE: dict[ObjectKind, int] = {**dict.fromkeys(KINDS, PAGE_TENANT), **dict.fromkeys(OF_CLUSTER, PAGE_NODES)}
PAGE["reports"] = PAGE_REPORTS
OF_NODE: tuple[ObjectKind, ...] = ("slices", "reports")

_NAMED = ("namespace", "name", "uid")
PLACES: dict[ObjectKind, Where] = {"profiles": "profile", "jobs": "job", "pods": "pod"}


async def list_into(
    cache: Cache, cluster: Cluster, kind: ObjectKind, namespace: str | None, node: str | None = None
) -> str:
    """A complete list of one kind in one namespace (None: in all) into the cache, page by page. Raises ApiError.

    With `node`, of slices and reports its own alone; and whole pages of Jobs and pods, so few. Returns the
    resourceVersion that it was read at.
    """

    def take(raw: dict[str, Any]) -> str:
        cache.put(kind, raw)
        return identity(raw).uid

    fields = [FIELD_SELECTORS.get(kind), f"spec.nodeName={node}" if node and kind in OF_NODE else None]
    page = PAGE_ITEMS if node else PAGE[kind]
    selected = _path(kind, namespace), take, SELECTORS.get(kind), ",".join(filter(None, fields)) or None, page
    try:  # a fleet's objects stay for hours, and are no cycles: no later garbage collection goes through them
        listed, version = await cluster.list_trimmed(*selected, progress=lambda *_: gc.freeze())
    except ApiError as error:
        if kind == "slices" and error.status in (403, 404):
            cache.slices_refused()
        raise
    cache.end_list(kind, listed, version, namespace)
    return version


class _Kept(Generic[K, T]):
    """What was read, by what was asked for; it serves for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: dict[K, tuple[float, T]] = {}

    async def get(self, key: K, read: Callable[[K], Awaitable[T]]) -> T:
        now = asyncio.get_running_loop().time()
        if key not in self._values or now - self._values[key][0] >= self._seconds:
            self._values[key] = now, await read(key)
        return self._values[key][1]


class _Beside(Generic[T]):
    """What is read beside the passes, of a namespace one thing at a time, a quarter of the time: none is held up."""

    def __init__(self, kind: str, seconds: float, wake: Callable[[], None], patience: float | None) -> None:
        self._kind, self._seconds, self._wake, self._patience = kind, seconds, wake, patience
        self._last: dict[tuple[str, str], tuple[float, T | ApiError]] = {}
        """What was read last, and when it is read again."""
        self._reads: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._rests: dict[str, float] = {}
        """Until when nothing more is read of a namespace."""

    async def each(
        self,
        keys: Collection[tuple[str, str]],
        read: Callable[..., Awaitable[T]],
        missing: Missing,
        once: Collection[tuple[str, str]] = (),
        anew: Set[tuple[str, str]] = frozenset(),
    ) -> dict[tuple[str, str], T]:
        """By namespace and name (events: of a namespace) those that have been read; `wake` is called when others are.
        The others are `missing`, which holds up alone the profiles that need them. Those of `once` are not read again,
        those that are to be read `anew` do not count as they were."""
        now = asyncio.get_running_loop().time()
        self._last = {key: last for key, last in self._last.items() if key in keys and key not in anew}
        for key in self._reads.keys() & anew:
            self._reads.pop(key).cancel()
        for key in keys:
            due, last = self._last.get(key, (0.0, ApiError(0, "", "")))
            if key not in self._reads and now >= due and (key not in once or isinstance(last, ApiError)):
                self._reads[key] = asyncio.create_task(self._read(key, read))
        if reads := [self._reads[key] for key in keys if key in self._reads]:
            await asyncio.wait(reads, timeout=self._patience)
        values = {key: last for key, (_, last) in self._last.items() if not isinstance(last, ApiError)}
        problems = {key: last for key, (_, last) in self._last.items() if isinstance(last, ApiError)}
        missing |= {(self._kind, *key): problems.get(key) for key in keys if key not in values}
        return values

    async def _read(self, key: tuple[str, str], read: Callable[..., Awaitable[T]]) -> None:
        value: T | ApiError
        asked = (clock := asyncio.get_running_loop().time)()
        try:
            async with self._turns.setdefault(key[0], asyncio.Lock()):
                await asyncio.sleep(self._rests.get(key[0], 0.0) - clock())
                began = clock()
                value = await read(*filter(None, key))
                self._rests[key[0]] = clock() + min(3 * (clock() - began), 1.0) * bool(self._patience)
        except Exception as error:  # whatever a tenant wrote: its profile shows the error, and it is read again
            value = error if isinstance(error, ApiError) else ApiError(0, "", fault_text(error))
        finally:
            if self._reads.get(key) is asyncio.current_task():
                del self._reads[key]
        is_new = key not in self._last or self._last[key][1] != value
        self._last[key] = asked + max(self._seconds, 11 * (clock() - asked)), value
        if is_new:
            self._wake()


class Gatherer:
    """Reads the cluster into `Observed`: what the cache holds, and what the reader finds, which is kept for a while."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        settings: observed.Settings,
        namespaces: Sequence[str],
        reader: Reader | None = None,
        refusals: RefusedCreations | None = None,
        stop: Callable[[], Stop | None] = lambda: None,
        creating: Callable[[], Sequence[observed.JobView]] = tuple,
        yields: Yields | None = None,
        patience: float | None = BESIDE_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`stop` is what the switch in the cluster says of all agents; `creating` are Jobs that may be there by now.

        `yields` are agents that were ended for others; without it, what the profiles' statuses tell of them. `patience`
        is how long a look waits for what is read beside it; None: until all is read.
        """
        self._yields = yields
        self._now = clock
        self._creating = creating
        self._own_jobs: Mapping[str, str] | None = None
        self._vain: Mapping[str, observed.Vain] = {}
        self._since: Mapping[str, datetime] = {}
        self._stop = stop
        self._cluster = cluster
        self._reader = reader or Reader(cluster)
        self._cache = cache
        self._settings = settings
        self._namespaces = tuple(namespaces)
        self._probes: dict[str, tuple[float, observed.Occupancy]] = {}
        self._busy: dict[str, float] = {}
        """How long each node that was seen busy is not looked at."""
        self._narrow_until = -inf
        self._looks: dict[str, asyncio.Task[ApiError | None]] = {}
        """Under way, or ended since the last probe, by node."""
        self._look_room = Room(LOOKS_AT_ONCE)
        self._namers: Mapping[tuple[str, str], frozenset[tuple[str, int]]] = {}
        """Which profiles named each ConfigMap in the last look: UID and generation."""
        wake = cache.changed.set
        self._texts = _Beside[Mapping[str, str] | None]("ConfigMap", FRESH_SECONDS, wake, patience)
        self._queues = _Beside[bool]("LocalQueue", FRESH_SECONDS, wake, patience)
        self._references = _Beside[observed.SavedReference | None]("ConfigMap", REFERENCE_SECONDS, wake, patience)
        self._refusals = refusals or RefusedCreations()
        self._problems = _Beside[Mapping[str, str]]("Events", PROBLEMS_SECONDS, wake, patience)
        """Why Jobs have no pod, by Job UID, by namespace."""
        self._claim_problems = _Beside[ClaimProblems]("Events", PROBLEMS_SECONDS, wake, patience)
        """Why pods wait for their claim, by event and pod UID, by namespace."""
        self._claims: Turns[bool] = {}
        """When claims of a namespace, a Job and a pod were last read, by all these, and whether they had GPUs."""
        self._claimed: set[str] = set()
        self._class: _Kept[str, bool] = _Kept(FRESH_SECONDS)
        self._gpus: _Kept[str, DeviceClass] = _Kept(FRESH_SECONDS)
        self._asked_for: Turns[observed.Raw] = {}
        self._read: dict[ObjectKind, dict[str, Read]] = {}
        """By UID: what has not changed since is not read again."""
        self._reports = observed.Reports()
        """All of the cache."""
        self._forbidden: dict[tuple[ObjectKind, str], str] = {}
        """What the API server said to the last list of a kind in a namespace, where that was 403."""
        self.faults: list[Fault] = []
        """Objects that could not be read as they are now; who logs them takes them out."""

    async def list_agents(self) -> None:
        """Complete lists of agents' Jobs and pods into the cache, where they may be read. Raises ApiError."""
        for kind, namespace in product(AGENTS, self._namespaces):
            try:
                await self.list_one(kind, namespace)
            except ApiError as error:
                if error.status != 403:
                    raise

    async def list_one(self, kind: ObjectKind, namespace: str | None) -> str:
        """As `list_into`, remembering whether a namespace may be read."""
        try:
            version = await list_into(self._cache, self._cluster, kind, namespace)
        except ApiError as error:
            if error.status == 403 and namespace is not None:
                if (kind, namespace) not in self._forbidden:
                    self._cache.changed.set()
                self._forbidden[kind, namespace] = error.words or error.message
            raise
        if namespace is not None and self._forbidden.pop((kind, namespace), None) is not None:
            self._cache.changed.set()
        return version

    @property
    def unserved(self) -> Mapping[str, str]:
        """Why a namespace is not served, by its name: kinds that may not be listed there, and the API server's words.

        Nothing is decided there until all can be read: its Jobs would be of deleted profiles, its nodes measured again.
        """
        return {
            namespace: f"{', '.join(sorted(kinds))}: {self._forbidden[min(kinds), namespace]}"
            for namespace, kinds in grouped((namespace, kind) for kind, namespace in self._forbidden).items()
        }

    async def observe(self) -> observed.Observed:
        """The world now. Raises ApiError when something that a decision hangs on can't be read."""
        profiles = self._views("profiles", self._profile)
        readable = (p for p in profiles if ("profiles", p.namespace) not in self._forbidden)
        return await self.observe_with(tuple(p for p in readable if not p.deleting))

    async def observe_with(self, profiles: tuple[observed.ProfileView, ...]) -> observed.Observed:
        """The world now with these profiles instead of the cache's. Raises ApiError as `observe` does."""
        now, unserved = asyncio.get_running_loop().time(), self.unserved
        served = tuple(profile for profile in profiles if profile.namespace not in unserved)
        homes = {uid: str(raw["metadata"].get("namespace")) for uid, raw in self._cache.all("profiles").items()}
        all_jobs = self._views("jobs", views.job_view, **await self._lost())
        everywhere = tuple(job for job in all_jobs if job.namespace not in unserved)
        # At the same moment, or one would be in neither.
        shown = {(job.namespace, job.name) for job in everywhere}
        creating = tuple(job for job in self._creating() if (job.namespace, job.name) not in shown)
        jobs, waited = tenants.within_namespace(everywhere, homes), dict(self._refusals.waited)
        job_homes = {job.uid: job.namespace for job in everywhere}
        # Pods count where their Jobs can't be read: they hold GPUs. But not what was seen before rights were lost.
        readable = (p for p in self._views("pods", views.pod_view) if ("pods", p.namespace) not in self._forbidden)
        pods = tenants.pods_within_namespace(readable, homes, job_homes)
        pods = (*pods, *self._gone_pods(jobs, {pod.job_uid for pod in pods}, job_homes))
        missing: Missing = {}
        pods = tenants.holding(pods, self._cache.all("nodes").values(), await self._with_claims(pods))
        is_first, active = self._own_jobs is None, {p.uid for p in profiles if _may_have_agents(p)}
        self._own_jobs = self._own(jobs, creating, pods, active)
        if is_first:
            return await self.observe_with(profiles)  # by what is remembered from now on
        pods = await self._with_claim_problems(pods, missing)
        self._refusals.seen({job.uid: job for job in jobs}, pods)
        has_class, device_class = self._reader.has_priority_class, self._reader.device_class
        seen = observed.Observed(
            now=self._now(),
            settings=self._settings,
            profiles=profiles,
            nodes=dict(self._cache.all("nodes")),
            jobs=(*await self._with_problems(jobs, pods, missing), *creating),
            pods=pods,
            reports=self._all_reports().served(unserved, homes),
            occupancy={n: k for n, (at, k) in self._probes.items() if now - at < self._busy.get(n, FRESH_SECONDS)},
            looked={n: at for n, (at, look) in self._probes.items() if look.holder and now - at < LOOKED_SECONDS},
            stop=strictest(self._settings.stop, self._stop()),
            priority_class_exists=not profiles or await self._class.get(self._settings.priority_class, has_class),
            unserved=unserved,
            slices=(slices := self._cache.slices()),
            device_class=await self._gpus.get(self._settings.device_class, device_class) if slices else DeviceClass(),
            own_jobs=self._own_jobs,
        )
        self._reader.keep_references(named := wanted.references(seen, served, jobs))
        within = [p for p in served if p.uid not in seen.beyond]
        unsuspended = [p for p in within if p.spec is None or not p.spec.suspend]
        texts, queues, references = await asyncio.gather(
            self._read_texts(within, unsuspended, missing),
            self._queues.each(wanted.queues(unsuspended), self._reader.has_queue, missing),
            self._references.each(named, self._reader.reference, missing),
        )
        unread = {p.uid: missing[key] for p in within if (key := wanted.unread_by(p, missing)) is not None}
        seen = replace(seen, config_maps=texts, queues=queues, references=references, unread=unread)
        self._vain = tenants.time_in_vain(self._vain, waited, seen)
        self._since = tenants.agents_since(self._since, seen)
        since = {uid: job for uid, job in self._refusals.waited.items() if uid not in waited}
        self._refusals.waited = since | tenants.waiting_jobs(seen)
        seen = replace(seen, refusals=self._refusals.standing(seen), vain=self._vain, agents_since=self._since)
        return self._with_yields(seen, yields_told(profiles))

    def _all_reports(self) -> observed.Reports:
        there = self._cache.all("reports").values()
        if changes := [*self._cache.changed_reports()]:
            self._reports = self._reports.changed(changes)
            if len(self._reports) != len(there):  # an owner has two of one node
                self._reports = observed.Reports(report for report in there if report.node_uid)
        return self._reports

    def _own(self, jobs: Jobs, creating: Jobs, pods: Pods, active: Collection[str]) -> Mapping[str, str]:
        """Node by UID of the Jobs that this replica has made; at the first look also what another leader may have.

        `active` are the UIDs of the profiles that it may have made them for: on the node of their pod, if there is one.
        """
        made = self._refusals.made
        if self._own_jobs is None:
            uids = {raw["metadata"]["name"]: uid for uid, raw in self._cache.all("nodes").items()}
            made |= {pod.job_uid: (pod.namespace, pod.node_name) for pod in pods if pod.profile_uid in active}
            bound = {pod.job_uid for pod in pods if pod.live and pod.holds_gpus}
            there = [j for j in jobs if j.node_uid in self._cache.all("nodes") and j.profile_uid in active]
            places = {job.uid: made.pop(job.uid, ("", ""))[1] or job.node_name for job in there}
            there.sort(key=lambda job: job.uid in bound)  # one for each profile and node, with GPUs if one has them
            for job in {(job.profile_uid, places[job.uid]): job for job in there}.values():
                meta, node = self._read["jobs"][job.uid][0]["metadata"], places[job.uid]
                labels = meta["labels"] | {LABEL_NODE_UID: uids.get(node, job.node_uid)}
                self._refusals.own(node, meta | {"labels": labels})
        named = {pod.job_uid for pod in pods if pod.holds_gpus or not (pod.node_name and pod.live)}
        for gone in made.keys() - self._read["jobs"].keys() - self._cache.all("jobs").keys() - named:
            del made[gone]
            self._refusals.metas.pop(gone, None)
        # A watch may show a Job before its creation is answered.
        unanswered = {(job.namespace, job.name) for job in self._creating()}
        shown = (job for job in jobs if (job.namespace, job.name) in unanswered)
        return {uid: node for uid, (_, node) in made.items()} | {j.uid: j.node_name for j in (*creating, *shown)}

    def strangers(self) -> tuple[tenants.Stranger, ...]:
        """What bears the agents' label and is none of the leader's own: also a pod on another node than its Job's."""
        made = {uid: node for uid, (_, node) in self._refusals.made.items()} | dict(self._own_jobs or {})
        rows = [("batch/v1", "Job", raw) for uid, raw in self._cache.all("jobs").items() if uid not in made]
        pods = ((raw, made.get(views.job_uid(raw))) for raw in self._cache.all("pods").values())
        rows += [("v1", "Pod", raw) for raw, node in pods if node is None or raw["spec"].get("nodeName", node) != node]
        return tuple(tenants.Stranger(*kind, *(str(raw["metadata"].get(key)) for key in _NAMED)) for *kind, raw in rows)

    def _with_yields(self, seen: observed.Observed, records: tuple[observed.Yield, ...]) -> observed.Observed:
        if self._yields is None:
            return replace(seen, yields=records)
        self._yields.remember(records)
        return replace(seen, yields=self._yields.records, waiting_pods=self._yields.pods)

    async def _lost(self) -> dict[str, observed.Raw]:
        """Jobs of ours that lost the watch's label, and count on; those that this pass can't ask for as seen last."""
        reads = {name: partial(self._reader.job, *job) for name, job in self._unshown().items()}
        self._asked_for = asked = await in_turns(self._asked_for, reads, self._cache.changed.set)
        there = {name[1]: asked[name][1] if name in asked else last for name, (_, last) in self._unshown().items()}
        for uid in [uid for uid, raw in there.items() if not raw]:
            self._cache.drop("jobs", uid)  # nobody asks for it again
        return {uid: raw for uid, raw in there.items() if raw}

    def _unshown(self) -> dict[Name, tuple[observed.Raw, observed.Raw]]:
        """Jobs of ours that may be there without a watch, by namespace and UID: their metadata, and as last seen."""
        metas, before = self._refusals.metas, self._read.get("jobs", {})
        lost = [(uid, meta) for uid, meta in metas.items() if self._cache.is_lost("jobs", uid)]
        return {(meta["namespace"], uid): (meta, before.get(uid, ({},))[0] or {"metadata": meta}) for uid, meta in lost}

    def _views(self, kind: ObjectKind, view: Callable[[observed.Raw], T | None], **more: observed.Raw) -> tuple[T, ...]:
        """All objects of a kind as decisions see them, in the cache's order; an unchanged one as the very same view."""
        before, metas, raws = self._read.get(kind, {}), self._refusals.metas, {**self._cache.all(kind), **more}
        made = {uid: metas.get(views.job_uid(raw) if kind == "pods" else uid, {}) for uid, raw in raws.items()}
        now = {uid: self._seen(kind, raw, made[uid], view, before.get(uid)) for uid, raw in raws.items()}
        self._read[kind] = now
        return tuple(seen for *_, seen in now.values() if seen is not None)

    def _seen(self, kind: ObjectKind, raw: observed.Raw, made: observed.Raw, view: View, before: Read | None) -> Read:
        """The object and how decisions see it; as it was seen before where reading it raises, and then read again."""
        if before is not None and before[0] is raw and before[1] == made:
            return before
        try:
            return raw, made, view(views.marked(raw, made))
        except Exception as error:
            meta = raw.get("metadata") or {}
            self.faults.append(Fault(PLACES[kind], f"{meta.get('namespace')}/{meta.get('name')}", error))
            return {}, made, before[2] if before is not None else None

    def _gone_pods(self, jobs: Jobs, with_pods: set[str], job_homes: Mapping[str, str]) -> Iterator[observed.PodView]:
        """The pods of Jobs that ended when somebody took their pod away: who did stands there alone."""
        ended = {job.uid for job in jobs if not job.live and job.uid not in with_pods}
        for raw in self._cache.gone_pods() if ended else ():
            view = views.pod_view(raw)
            if view is not None and view.job_uid in ended and job_homes[view.job_uid] == view.namespace:
                yield replace(view, phase="Failed") if view.live else view

    def _profile(self, raw: observed.Raw) -> observed.ProfileView:
        """A profile, with the operator's defaults for its agents. It never goes missing: its Jobs would be deleted."""
        try:
            return views.with_operator_defaults(views.profile_view(raw), self._settings)
        except Exception as error:
            self.faults.append(Fault("profile", str((raw.get("metadata") or {}).get("name")), error))
            return views.profile_view({**raw, "spec": None, "status": {}}, fault_text(error))

    def at_once(self, most: int) -> int:
        """How many of `most` requests go side by side now."""
        return most // 2 if asyncio.get_running_loop().time() < self._narrow_until else most

    async def probe(self, nodes: Sequence[str], patience: float | None = None) -> dict[str, observed.Occupancy]:
        """Who holds GPUs on `nodes`: one list of pods each, a few at a time. Raises ApiError, for 429 if all are so.
        What is late after so many seconds goes on, wakes the loop, and is returned by the next call."""
        offer = {raw["metadata"]["name"]: raw["status"].get("allocatable") for raw in self._cache.all("nodes").values()}
        slices = self._cache.slices()
        by_claim = {item.node for item in slices} if slices is not None else offer.keys()
        for name in nodes:
            if name not in self._looks:
                self._looks[name] = asyncio.create_task(self._look(name, offer.get(name), name in by_claim))
        late = (await asyncio.wait(self._looks.values(), timeout=patience))[1] if self._looks else ()
        for task in late:
            task.add_done_callback(lambda _: self._cache.changed.set())
        ended = {name: self._looks.pop(name).result() for name in [*self._looks] if self._looks[name].done()}
        refused = sorted((error for error in ended.values() if error), key=lambda error: error.status == 429)
        if refused and (len(refused) == len(ended) or refused[0].status != 429):
            raise refused[0]
        return {name: self._probes[name][1] for name, error in ended.items() if error is None}

    async def _look(self, name: str, offered: Collection[str] | None, by_claim: bool) -> ApiError | None:
        """Note who holds GPUs of one node; the error if that fails. At 429 it rests in its turn, by Retry-After."""
        self._look_room.places, clock = self.at_once(LOOKS_AT_ONCE), asyncio.get_running_loop().time
        async with self._look_room.taken(""):
            began, refused, rest = clock(), None, 0.0
            try:
                self._note(name, await self._reader.occupancy(name, offered, by_claim))
            except ApiError as error:
                refused, rest = error, (error.retry_after or 1.0) * (error.status == 429)
                await asyncio.sleep(min(rest, MOST_REST_SECONDS))
            if rest or clock() - began >= SLOW_LOOK_SECONDS:
                self._narrow_until = clock() + NARROW_SECONDS
        return refused

    def _note(self, name: str, seen: observed.Occupancy) -> None:
        now, (at, _) = asyncio.get_running_loop().time(), self._probes.get(name, (-inf, None))
        last = self._busy.pop(name, 0.0) if now - at < LOOKED_SECONDS else 0.0
        if seen.holder is not None:
            self._busy[name] = min(max(2 * last, BUSY_SECONDS), MOST_BUSY_SECONDS)
        self._probes[name] = now, seen

    def invalidate_probes(self, nodes: Collection[str]) -> None:
        """The nodes have got agents: what was seen before does not hold any more."""
        self._probes = {name: row for name, row in self._probes.items() if name not in nodes}

    def forget_idle(self, but: Collection[str] = (), since: float = inf) -> None:
        """A new pass looks anew, but where no turn came (`but`), or no plan (`since`); that a node was busy, or lacked
        room, serves on."""
        self._reader.begin_pass()
        rows = [(name, at, look, name in but or at >= since) for name, (at, look) in self._probes.items()]
        self._probes = {name: (at, look if serves else replace(look, fresh=False)) for name, at, look, serves in rows}

    async def _read_texts(self, profiles: Profiles, active: Profiles, missing: Missing) -> Texts:
        """The texts that profiles name; one that a profile names anew is read anew, others for active ones alone."""
        before, self._namers = self._namers, _namers(profiles)
        named, once = wanted.texts(profiles), wanted.texts(profiles).keys() - wanted.texts(active).keys()
        anew = {key for key, of in self._namers.items() if not of <= before.get(key, frozenset())}
        read = self._reader.config_map
        return await self._texts.each(named, lambda ns, name: read(ns, name, named[ns, name]), missing, once, anew)

    async def _with_claims(self, pods: Pods) -> set[str]:
        """UIDs of pods with GPUs of their node by claim, which they keep. Raises ApiError.

        Namespaces take turns, the least recently read first, and so do their pods. One that this pass can't read any
        more is as the last one of its Job was; a Job's first one counts as having its GPUs.
        """
        raws, made = self._cache.all("pods"), self._refusals.made
        by_claim = [pod for pod in pods if pod.live and pod.holds_gpus and pod.claims and pod.uid not in self._claimed]
        by_claim = [pod for pod in by_claim if self._own_jobs is None or pod.job_uid in made]
        names: dict[str, Name] = {pod.uid: (pod.namespace, pod.job_uid, pod.uid) for pod in by_claim}
        jobs = {(namespace, job) for job, (namespace, _) in made.items()}
        reads = {name: partial(self._reader.has_claimed, raws[uid]) for uid, name in names.items()}
        self._claims = read = await in_turns(self._claims, reads, self._cache.changed.set, jobs)
        held = {uid for uid, name in names.items() if read.get(name, read.get(name[:2], (0.0, True)))[1]}
        self._claimed = (self._claimed & raws.keys()) | {uid for uid in held if names[uid] in read}
        return self._claimed | held

    async def _with_claim_problems(self, pods: Pods, missing: Missing) -> Pods:
        """The pods; those that wait for their claim for a while with what was said of it."""
        seen = self._now()
        waiting = [pod for pod in pods if _waits_for_claim(pod) and (seen - pod.created).total_seconds() > BARE_SECONDS]
        of = {(pod.namespace, "") for pod in waiting}
        events = await self._claim_problems.each(of, self._reader.claim_problems, missing)
        reason = {pod.uid: NOT_PREPARED if pod.claims_created else NOT_CREATED for pod in waiting}
        problems = {pod.uid: events.get((pod.namespace, ""), {}).get((reason[pod.uid], pod.uid)) for pod in waiting}
        return tuple(replace(pod, claim_problem=said) if (said := problems.get(pod.uid)) else pod for pod in pods)

    async def _with_problems(self, jobs: Jobs, pods: Pods, missing: Missing) -> Jobs:
        """The Jobs; those that have no pod or claim after a while with what the cluster said when it refused one."""
        with_pods = {pod.job_uid for pod in pods}
        claims = {pod.job_uid: pod.claim_problem for pod in pods if pod.claim_problem and not pod.claims_created}
        bare = [job for job in jobs if job.live and not job.suspended and job.uid not in with_pods]
        late = [job for job in bare if (self._now() - (job.active_since or job.created)).total_seconds() > BARE_SECONDS]
        namespaces = {(job.namespace, "") for job in late}
        events = await self._problems.each(namespaces, self._reader.creation_problems, missing)
        problems = {job.uid: events.get((job.namespace, ""), {}).get(job.uid) for job in late} | claims
        return tuple(replace(job, creation_problem=said) if (said := problems.get(job.uid)) else job for job in jobs)


def _may_have_agents(profile: observed.ProfileView) -> bool:
    """Whether another leader may have made its Jobs. None but a leader writes its status."""
    is_suspended = profile.spec is not None and profile.spec.suspend
    return profile.spec is not None and (not is_suspended or bool((profile.status.get("nodes") or {}).get("running")))


def _waits_for_claim(pod: observed.PodView) -> bool:
    """Whether its claim is not there, or not ready for its container: time spent pulling the image looks the same."""
    starting = pod.scheduled_at is not None and pod.started_at is None
    return pod.phase == "Pending" and pod.claims and (starting or not pod.claims_created)


def _path(kind: ObjectKind, namespace: str | None) -> str:
    if kind == "nodes":
        return paths.NODES
    if kind == "slices":
        return paths.collection(RESOURCE_API, "resourceslices")
    makers = {"profiles": paths.profiles, "reports": paths.reports, "jobs": paths.jobs, "pods": paths.pods}
    return makers[kind](namespace)


def _namers(profiles: Profiles) -> Mapping[tuple[str, str], frozenset[tuple[str, int]]]:
    """UID and generation of the profiles that name each ConfigMap."""
    named = grouped((key, (profile.uid, profile.generation)) for profile in profiles for key in wanted.texts([profile]))
    return {key: frozenset(namers) for key, namers in named.items()}
