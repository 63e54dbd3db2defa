"""The world as the operator sees it, as far as the user may look, and what the operator would plan now.

What a user may not read is left out and said so, where an answer is possible without it; else it is an error. A profile
that stands in a file is put in among those that are there: it is planned for beside them, as the operator would.
"""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from precision_operator.cli.connection_options import or_if_forbidden
from precision_operator.cli.operator_settings import configured, served_places, settings_told_by, without_agent_change
from precision_operator.cli.results import status_of
from precision_operator.cluster import ApiError, Cluster, get_or_none, paths
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.observe.clock import time_or_none
from precision_operator.core.observe.nodes import NodeFacts, facts_of_all
from precision_operator.core.observe.observed import (
    JobView,
    Observed,
    Occupancy,
    PodView,
    ProfileView,
    RefusedCreation,
    ReportView,
)
from precision_operator.core.observe.stop import Stop, stop_told_by, strictest
from precision_operator.core.observe.views import job_view, profile_view, with_operator_defaults
from precision_operator.core.plan import Plan, plan
from precision_operator.core.reasons import REASONS
from precision_operator.shell.observing import wanted
from precision_operator.shell.observing.cache import OF_CLUSTER, Cache, ObjectKind
from precision_operator.shell.observing.gather import Gatherer, Texts, list_into
from precision_operator.shell.observing.reader import ClaimProblems, Reader

Namespaced = TypeVar("Namespaced", JobView, PodView, ReportView)

LOOKS_PER_ANSWER = 256
"""How many nodes are looked at for one answer: a bound, for a fleet that is busy throughout."""
NOT_APPLIED = "not-applied-yet"
"""UID of a profile that stands in a file only: what is written there may be the UID of another one."""
HOST_LABEL, MOST_LABEL = "kubernetes.io/hostname", 63
"""A label that nearly every node has with its name as the value, and the most characters of one."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_KINDS: tuple[ObjectKind, ...] = ("nodes", "slices", "jobs", "pods", "reports")
"""What is listed once it is clear which profiles count."""


@dataclass(frozen=True)
class ProfileInFile:
    """A profile as it stands in a file, and the texts of ConfigMaps that came with it, by (namespace, name)."""

    profile: ProfileView
    config_maps: Texts = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """The world, what the operator would plan now, and what could not be seen (one sentence each)."""

    observed: Observed
    plan: Plan
    notes: tuple[str, ...]
    unread: frozenset[str] = frozenset()
    """UIDs of profiles that are known by name alone: no answer is given for them."""


async def gathered(cluster: Cluster, namespace: str | None, node: str, whole: bool = False) -> Seen:
    """The world and the plan, good enough to answer for `node`. Raises ApiError.

    Unless the `whole` world is read, Jobs and the statuses of profiles tell of other nodes. All namespaces are read,
    since agents of other profiles count; who may not, sees `namespace` (or the context's).
    """
    world = await _world(cluster, namespace, None, None if whole else node)
    wanted = [node] if any(raw["metadata"]["name"] == node for raw in world.observed.nodes.values()) else []
    return await _looked(world, wanted)


async def gathered_fleet(cluster: Cluster, namespace: str | None) -> Seen:
    """The world and the plan, with a look at the nodes that wait for their turn. Raises ApiError."""
    world = await _world(cluster, namespace, None)
    return await _looked_at_waiting(world, await _looked(world, ()))


async def planned(cluster: Cluster, question: ProfileInFile) -> Seen:
    """The world and the plan with the profile in it. Raises ApiError.

    Who may not list pods everywhere is told so, and sees idle nodes: a plan is what was asked for.
    """
    world = await _world(cluster, question.profile.namespace, question)
    return await _looked_at_waiting(world, await _looked(world, (), taken_for_idle=True))


async def facts_of_nodes(cluster: Cluster, place: str, pool_label: str, notes: list[str]) -> Collection[NodeFacts]:
    """The facts of all nodes as the operator of `place` has them, their pools by that label. Raises ApiError."""
    lists, operators = _Lists(cluster, place, notes, None), await configured(cluster, place, [])
    await lists.take("nodes")
    if operators is None or operators.serving.settings.resource_claims:
        await lists.take("slices")
    return facts_of_all(lists.cache.all("nodes"), pool_label, lists.cache.slices()).values()


@dataclass(frozen=True)
class _World:
    """The world before any node is looked at, what looks at nodes, and what could not be seen."""

    observed: Observed
    gatherer: Gatherer
    notes: list[str]
    unread: frozenset[str]


async def _world(
    cluster: Cluster, namespace: str | None, question: ProfileInFile | None, node: str | None = None
) -> _World:
    notes: list[str] = []
    lists = _Lists(cluster, namespace or cluster.namespace, notes, node)
    await lists.take("profiles")
    asked = question.profile if question is not None else None
    there = tuple(p for p in map(profile_view, lists.cache.all("profiles").values()) if not p.deleting)
    profiles = there if asked is None else put_in(there, asked, datetime.now(UTC))
    refusals = {p.uid: refusals_told(before) for p in profiles if (before := _unchanged(p, there)) is not None}
    operators = await configured(cluster, lists.namespace, notes)
    only: frozenset[str] | None = None
    if operators is not None:
        settings = operators.serving.settings
        only, profiles = served_places(operators, profiles, namespace, notes)
    else:
        settings = settings_told_by(there, asked)
        profiles = tuple(map(without_agent_change, profiles))
    profiles = tuple(with_operator_defaults(profile, settings) for profile in profiles)
    reader = _PermittedReader(cluster, question, node)
    unread = await reader.read_texts(profiles, notes)
    lists.cache.image_prefixes = settings.allowed_images
    for kind in _KINDS:
        if (kind != "slices" or settings.resource_claims) and (kind != "nodes" or node is None):
            await lists.take(kind)
    statuses = {p.uid: status_of(p) for p in profiles} if node is not None else {}
    left_out = sum(status.peers_left_out for status in statuses.values())
    notes += [f"peers by {left_out} keys are not known, which statuses leave out; --plan reads all"] if left_out else []
    homes = {p.uid: p.namespace for p in there}
    jobs = [job for raw in lists.cache.all("jobs").values() if (job := job_view(raw)) is not None and node is not None]
    jobs = [job for job in jobs if homes.get(job.profile_uid) == job.namespace]
    settings = replace(settings, show_other_namespaces=True)  # what the user may list, the user may read
    if node is not None:
        await lists.take_nodes(node, {job.node_name for job in jobs} - {node})
        is_missing = bool(settings_told_by(profiles).priority_class)
        reader.asks_class = not is_missing and not all(profile.status.get("conditions") for profile in profiles)
        settings = settings if is_missing or reader.asks_class else replace(settings, priority_class="")
    gatherer = Gatherer(cluster, lists.cache, settings, (), reader, patience=None, clock=cluster.server_time.now)
    # A profile whose ConfigMap may not be read is known by its name alone.
    unreadable = "its ConfigMap may not be read"
    shown = (replace(p, spec=None, problem=unreadable) if p.uid in unread else p for p in profiles)
    seen = await gatherer.observe_with(tuple(shown))
    uids = {str(raw["metadata"]["name"]): uid for uid, raw in seen.nodes.items()}
    named = ((p, name, refusal) for p, by_node in refusals.items() for name, refusal in by_node.items())
    refused = {(p, uids.get(name, name)): refusal for p, name, refusal in named if name in uids or statuses}
    observed = replace(
        seen,
        stop=strictest(settings.stop, *map(stop_told, profiles)),
        refusals=refused,
        profile_statuses=statuses,
        watts={(job.namespace, job.node_uid): job.watts for job in jobs if job.watts},
        jobs=_within(seen.jobs, only),
        pods=_within(seen.pods, only),
        reports=_within(seen.reports, only),
    )
    return _World(observed, gatherer, notes, unread)


@dataclass
class _Lists:
    """Lists kinds in all namespaces where the user may, else in his own one, which is noted."""

    cluster: Cluster
    namespace: str
    notes: list[str]
    node: str | None
    """The only one of which more is listed than Jobs and pods; None: all."""
    cache: Cache = field(default_factory=lambda: Cache(whole_reports=True))
    everywhere: bool = True

    async def take(self, kind: ObjectKind) -> None:
        """All objects of a kind that the user may list, into the cache. Raises ApiError."""
        at_once = self.everywhere or kind in OF_CLUSTER
        try:
            await list_into(self.cache, self.cluster, kind, None if at_once else self.namespace, self.node)
        except ApiError as error:
            if kind == "slices" and error.status in (403, 404):  # 404: before Kubernetes 1.34
                words = "GPUs by resource claim are not seen, since you may not list resourceslices"
                self.notes += [words] if error.status == 403 else []
                return
            if error.status != 403 or not self.everywhere or kind == "nodes":
                raise
            await list_into(self.cache, self.cluster, kind, self.namespace, self.node)
            self.notes.append(
                f"only {kind} of namespace {self.namespace} are known, since you may not list those of others"
            )
            self.everywhere = kind != "profiles"  # who may not list these elsewhere gets answers for his own alone

    async def take_nodes(self, node: str, others: Set[str]) -> None:
        """The node, and those with agents as such that get none, into the cache. Raises ApiError.

        One list has those whose host has their name; the others are read one by one.
        """
        wanted = [name for name in (node, *sorted(others)[:LOOKS_PER_ANSWER]) if _NAME.fullmatch(name)]
        hosts = ",".join(name for name in wanted if len(name) <= MOST_LABEL)
        listed = await self.cluster.list_all(paths.NODES, f"{HOST_LABEL} in ({hosts})") if hosts else ((), "")
        there = {name: raw for raw in listed[0] if (name := raw["metadata"]["name"]) in wanted}
        read = (get_or_none(self.cluster, paths.item(paths.NODES, name)) for name in wanted if name not in there)
        for raw in (*there.values(), *filter(None, await asyncio.gather(*read))):
            gone = {} if raw["metadata"]["name"] == node else {"deletionTimestamp": "now"}
            self.cache.put("nodes", raw | {"metadata": raw["metadata"] | gone})
        if len(others) > LOOKS_PER_ANSWER:
            self.notes.append(f"what agents on more than {LOOKS_PER_ANSWER} nodes may draw is not known")


class _PermittedReader(Reader):
    """Reads what the user may read. What he may not counts as there; ConfigMaps of the question come from its files."""

    def __init__(self, cluster: Cluster, question: ProfileInFile | None, node: str | None) -> None:
        super().__init__(cluster)
        self.asks_class = node is None
        self._own_left *= node is None  # pods of agents count as having the GPUs that they claim
        self._asked = question.profile.key if question is not None else ""
        self._texts: dict[tuple[str, str], Mapping[str, str] | None] = {}
        if question is not None:
            self._texts.update(question.config_maps)

    async def read_texts(self, profiles: Sequence[ProfileView], notes: list[str]) -> frozenset[str]:
        """Read the ConfigMaps that models are taken from; the UIDs of the profiles whose ConfigMap may not be read."""
        unread, keys = set[str](), wanted.texts(profiles)
        for profile in profiles:
            for key in wanted.texts([profile]).keys() - self._texts.keys():
                try:
                    self._texts[key] = await super().config_map(*key, keys[key])
                except ApiError as error:
                    if error.status != 403 or profile.key == self._asked:
                        raise
                    unread.add(profile.uid)
                    notes.append(f"profile {profile.key} is left out, since you may not read ConfigMap {'/'.join(key)}")
        return frozenset(unread)

    async def config_map(self, namespace: str, name: str, keys: Collection[str]) -> Mapping[str, str] | None:
        """One that was read before, or stands in a file."""
        return self._texts[namespace, name]

    async def has_priority_class(self, name: str) -> bool:
        """Whether agents have their PriorityClass; for one node as the operator has said, once it has said anything."""
        return not name or (self.asks_class and await or_if_forbidden(super().has_priority_class(name), True))

    async def has_queue(self, namespace: str, name: str) -> bool:
        """Whether there is such a queue; one that may not be looked at counts as there."""
        return await or_if_forbidden(super().has_queue(namespace, name), True)

    async def claim_problems(self, namespace: str) -> ClaimProblems:
        """Not read, as `creation_problems`."""
        return {}

    async def creation_problems(self, namespace: str) -> Mapping[str, str]:
        """Not read: users seldom have the right to list events, and the operator tells of them."""
        return {}


def _within(views: tuple[Namespaced, ...], only: frozenset[str] | None) -> tuple[Namespaced, ...]:
    """The views of these namespaces; None: of all."""
    return tuple(view for view in views if only is None or view.namespace in only)


def _unchanged(profile: ProfileView, there: Sequence[ProfileView]) -> ProfileView | None:
    """The profile as the operator has judged it, if nothing else is asked for now."""
    before = next((other for other in there if other.uid == profile.uid), None)
    same = before is not None and (before.spec, before.rerun) == (profile.spec, profile.rerun)
    return before if same else None


def stop_told(profile: ProfileView) -> Stop | None:
    """The admin's stop that the profile's status tells of: users may seldom read the operator's own switch."""
    return stop_told_by(status_of(profile).conditions)


def refusals_told(profile: ProfileView) -> dict[str, RefusedCreation]:
    """What the cluster refused to create for a profile, by node name, as its status tells: until it says otherwise."""
    status = status_of(profile)
    if status.observed_generation != profile.generation:
        return {}
    tries = ((row, time_or_none(row.last_try)) for row in status.refusals if row.reason in RULES)
    return {
        row.node: RefusedCreation(row.reason, row.message, row.stage, at, datetime.max.replace(tzinfo=UTC), row.times)
        for row, at in tries
        if at is not None
    }


def put_in(profiles: Sequence[ProfileView], asked: ProfileView, now: datetime) -> tuple[ProfileView, ...]:
    """The profiles with one more, or with another in the place of the one of its name, as `kubectl apply` would.

    One that replaces another keeps its identity, so that what that one has measured counts; a new one is the youngest,
    whatever this machine's clock says.
    """
    there = next((other for other in profiles if other.key == asked.key), None)
    others = tuple(other for other in profiles if other is not there)
    if there is None:
        youngest = max([now, *(other.created + timedelta(seconds=1) for other in others)])
        return (replace(asked, uid=NOT_APPLIED, created=youngest), *others)
    rerun = asked.rerun or there.rerun
    applied = replace(asked, uid=there.uid, created=there.created, status=there.status, rerun=rerun)
    return (applied, *others)


async def _looked(world: _World, wanted: Sequence[str], taken_for_idle: bool = False) -> Seen:
    """Plans, looks at the nodes that the plan asks about, and plans again, as the operator does.

    Where the user may not look, all nodes are `taken_for_idle`, or else nothing is known of them; either is noted.
    """
    seen, notes = world.observed, world.notes
    while True:
        try:
            occupancy = await world.gatherer.probe(wanted)
        except ApiError as error:
            if error.status != 403:
                raise
            if not taken_for_idle:
                notes.append(f"whether GPUs are free is not known, since you may not list all pods: {error}")
                return Seen(seen, plan(seen), tuple(notes), world.unread)
            notes.append(f"nodes count as idle, since you may not see all pods: {error}")
            occupancy = {str(raw["metadata"]["name"]): Occupancy(None) for raw in seen.nodes.values()}
        seen = replace(seen, occupancy={**occupancy, **seen.occupancy})
        decided = plan(seen)
        wanted = decided.nodes_to_probe
        if not wanted:
            return Seen(seen, decided, tuple(notes), world.unread)
        if len(seen.occupancy) >= LOOKS_PER_ANSWER:
            notes.append(f"{LOOKS_PER_ANSWER} nodes were looked at; whether the GPUs of others are free is not known")
            return Seen(seen, decided, tuple(notes), world.unread)


async def _looked_at_waiting(world: _World, seen: Seen) -> Seen:
    """The same with a look at nodes that wait for a place: the operator looks when it has one, users want to know now.

    As many as LOOKS_PER_ANSWER allows; where the user may not look, what is known stays as it is.
    """
    states = (node_state for profile in seen.plan.profiles for node_state in profile.node_states)
    waiting = dict.fromkeys(state.facts.name for state in states if REASONS[state.reason].place_taken)
    occupancy = seen.observed.occupancy
    left = [name for name in waiting if name not in occupancy]
    looks = left[: max(0, LOOKS_PER_ANSWER - len(occupancy))]
    looked = await or_if_forbidden(world.gatherer.probe(looks), None)
    if looked is None:
        return seen
    more = len(left) - len(looks)
    note = f"{LOOKS_PER_ANSWER} nodes were looked at; whether the GPUs of {more} that wait are free is not known"
    notes = (*seen.notes, note) if more else seen.notes
    return replace(seen, observed=replace(seen.observed, occupancy={**looked, **occupancy}), notes=notes)
