"""CapacityPlans: solved when they or what they are made from have changed, in a process of its own, not in the loop.

The inputs of a plan (its spec, the figures of the reports that it reads, racks, the day) have a hash that stands in its
status: while it is the same there is nothing to do, also after a restart. While a campaign brings in one report after
the other, the plan waits for a pause, but not for ever.
"""

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from precision_api.facts.names import API_VERSION, PLAN_PLURAL, grouped
from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_operator.cluster import ApiError, Cluster, container_memory, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.cluster.object_store import identity
from precision_operator.core.attempts.faults import Fault
from precision_operator.core.observe.kept_report import whole
from precision_operator.core.observe.observed import Raw, ReportView
from precision_operator.core.observe.raw_object import section
from precision_operator.core.observe.views import spec_problem
from precision_operator.core.results.ingest import report_json
from precision_operator.planner.answer.conditions import UNUSABLE, events, finished, refused, status_before
from precision_operator.planner.answer.work import Work, inputs_of
from precision_operator.planner.inputs.snapshot import profile_facts, racks, report_facts
from precision_operator.shell.events import write_event
from precision_operator.shell.leader_election import LeaderElector, LeaseLost
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.patches import whole_status
from precision_operator.shell.plans.plan_processes import PlanProcesses
from precision_operator.shell.room import Room
from precision_operator.shell.telemetry import FaultLog

_log = logging.getLogger(__name__)

REST_SECONDS = 0.1
"""Between two looks, however many plans change: one over 4,000 of them takes 10 ms."""
LOOK_SECONDS = 2.0
"""How often it is looked whether inputs have moved: comparing identities, a millisecond for 10,000 reports."""
PAUSE_SECONDS = 5.0
"""Figures must have been quiet for so long before a plan is solved again,"""
PATIENCE_SECONDS = 60.0
"""unless its last answer is older than this."""
RETRY_SECONDS = 30.0
"""For so long a plan is left alone after it could not be solved or written, unless it is changed itself."""
MOST_BEGUN = 64
"""Plans of a namespace that wait for their turn; its others wait until these have had it."""
ACROSS = "capacityPlans.acrossNamespaces"
CHUNK = 50
"""Reports that are read in one go (20 microseconds each): the loop goes on in between."""


@dataclass
class _Plan:
    """What is kept of a plan: few bytes, whatever it holds. It is read whole at its turn, and only while that lasts."""

    meta: Raw
    namespace: str
    generation: int = 1
    namespaces: frozenset[str] = frozenset()
    """Whose reports it reads."""
    inputs: str = ""
    """Hash of what its answer was made from; empty before the first one."""
    settled: bool = False
    """Whether its answer is to its spec as it is now."""
    solved_at: float = -math.inf
    waits: tuple[float, int | None] = 0.0, None
    """Of one that failed, until when it is left alone, and the generation that failed."""
    look: int | None = None
    """What the world looked like when its answer was last found to be up to date."""

    def take(self, raw: Raw) -> None:
        """Keep what counts of the object, if it is not older than what is kept."""
        if identity(raw).version >= identity({"metadata": self.meta}).version:
            self.meta, self.generation = _meta(raw), int(raw["metadata"].get("generation") or 1)
            names, status = section(section(raw, "spec"), "fleet").get("namespaces"), section(raw, "status")
            self.namespaces = frozenset(map(str, names if isinstance(names, list) else ()))
            self.inputs = str(status.get("inputs", ""))
            self.settled = status.get("observedGeneration") == self.generation


class Planning:
    """Keeps the status of all CapacityPlans as their inputs say."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        namespaces: tuple[str, ...],
        faults: FaultLog | None = None,
        unserved: Callable[[], Mapping[str, str]] = dict,
        processes: PlanProcesses | None = None,
        across: Collection[str] = (),
        most: int | None = None,
    ) -> None:
        """`unserved` tells which of the namespaces can't be read now, and why.

        `across` are those whose plans may read the reports of others. `most` plans of a namespace are served.
        """
        self._most = most
        self._across = across
        self._cluster = cluster
        self._faults = faults or FaultLog()
        self._cache = cache
        self._namespaces = namespaces
        self._unserved = unserved
        self._plans: dict[str, _Plan] = {}
        self._facts: dict[str, tuple[ReportView, bytes]] = {}
        """What the reports hold, each read once; the object itself tells whether it is still the same."""
        self._facts_changed_at = 0.0
        self._facts_changes = 0
        self._moved = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._checks = Room(1)
        """Whether a plan is due is worked out for one after the other: threads are there for others too."""
        self._beyond: frozenset[str] = frozenset()
        """UIDs of plans that are not served: older ones fill their namespace."""
        self._sight = 0
        """Changes when anything does that inputs might hang on; by identity, so it is quick."""
        self._processes = processes or PlanProcesses(limit=container_memory.limit_bytes())

    def see(self, event: Raw) -> None:
        if event["type"] == "DELETED" or event["object"]["metadata"].get("deletionTimestamp"):
            self._plans.pop(event["object"]["metadata"]["uid"], None)
        else:
            self._take(event["object"])
        self._moved.set()

    def _take(self, raw: Raw) -> None:
        """Keep what counts of a plan, new or not."""
        self._plans.setdefault(raw["metadata"]["uid"], _Plan(_meta(raw), raw["metadata"]["namespace"])).take(raw)

    async def list_one(self, namespace: str) -> str:
        """Take in a complete list of one namespace's CapacityPlans. Returns its resourceVersion. Raises ApiError."""
        gone = {uid for uid, plan in self._plans.items() if plan.namespace == namespace}

        def take(raw: dict[str, Any]) -> None:
            gone.discard(raw["metadata"]["uid"])
            self._take(raw)

        path = paths.collection(API_VERSION, PLAN_PLURAL, namespace)
        _, version = await self._cluster.list_trimmed(path, take, limit=PAGE_TENANT)
        for uid in gone:
            self._plans.pop(uid, None)
        self._moved.set()
        return version

    async def run(self, elector: LeaderElector) -> None:
        """Solve what has changed, again and again, while this replica leads."""
        await elector.elected.wait()
        try:
            while True:
                self._moved.clear()
                try:
                    await self._begin()
                except LeaseLost:
                    raise
                except Exception as error:
                    self._faults.looked("plans", [Fault("capacityplan", "", error)])
                    await asyncio.sleep(RETRY_SECONDS)
                await asyncio.sleep(REST_SECONDS)
                try:
                    await asyncio.wait_for(self._moved.wait(), LOOK_SECONDS)
                except TimeoutError:
                    continue
        finally:
            self.end()

    async def look(self) -> None:
        """One pass over all plans, to its end."""
        await asyncio.gather(*await self._begin())

    async def _begin(self) -> list[asyncio.Task[None]]:
        """Start all plans that are due: those of one namespace take turns with those of another.

        Raises LeaseLost where one that has ended did.
        """
        for task in self._busy.values():
            if task.done():
                task.result()
        self._busy = {uid: task for uid, task in self._busy.items() if not task.done()}
        if not self._plans:
            return []
        await self._read_reports()
        ages = sorted(self._plans.items(), key=lambda item: (str(item[1].meta.get("creationTimestamp")), item[0]))
        of = grouped((plan.namespace, uid) for uid, plan in ages)
        self._beyond = frozenset(uid for uids in of.values() for uid in uids[self._most or len(uids) :])
        objects = [id(raw) for kind in ("nodes", "profiles") for raw in self._cache.all(kind).values()]
        today, unserved = datetime.now(UTC).date(), sorted(self._unserved().items())
        self._sight = hash((self._facts_changes, today, *unserved, *objects))
        for uids in of.values():
            due = [uid for uid in uids if uid not in self._busy and self._is_due(uid, self._plans[uid])]
            for uid in due[: MOST_BEGUN - len(self._busy.keys() & set(uids))]:
                self._busy[uid] = asyncio.create_task(self._try(uid, self._plans[uid]))
        return [*self._busy.values()]

    def _look(self, uid: str, plan: _Plan) -> int:
        return hash((self._sight, plan.generation, plan.inputs, uid in self._beyond))

    def _is_due(self, uid: str, plan: _Plan) -> bool:
        """Whether something has moved that its answer might hang on, and it need not wait for a pause."""
        now, (until, generation) = asyncio.get_running_loop().time(), plan.waits
        if plan.look == self._look(uid, plan) or (generation == plan.generation and now < until):
            return False
        quiet = now - self._facts_changed_at >= PAUSE_SECONDS or now - plan.solved_at >= PATIENCE_SECONDS
        return quiet or not plan.settled

    async def _try(self, uid: str, plan: _Plan) -> None:
        """Bring one plan up to date; what fails is logged and tried again later, and never ends the operator."""
        key, generation = f"{plan.namespace}/{plan.meta['name']}", plan.generation
        try:
            await self._one(uid, plan)
            self._faults.looked(f"capacityplan {key}", [])
            return
        except LeaseLost:
            raise
        except ApiError as error:
            if error.status == 404:
                self._plans.pop(uid, None)
                return
            _log.warning("plan %s: %s", key, error)
        except BrokenProcessPool:
            _log.warning("the planner's process ended at plan %s", key)
        except Exception as error:
            self._faults.looked(f"capacityplan {key}", [Fault("capacityplan", key, error)])
        plan.waits = (asyncio.get_running_loop().time() + RETRY_SECONDS, generation)

    async def _read_reports(self) -> None:
        """Take in reports that are new or have changed, a few at a time; forget those that are gone."""
        there, reports = dict(self._cache.all("reports")), self._facts
        gone = reports.keys() - there.keys()
        fresh = [uid for uid, view in there.items() if uid not in reports or reports[uid][0] is not view]
        lost = [reports.pop(uid)[1] for uid in gone]
        changed = any(lost)
        for number, uid in enumerate(fresh):
            before = reports.get(uid)
            facts = report_facts(_object(there[uid]))
            changed = changed or facts != (before[1] if before else b"")
            reports[uid] = (there[uid], facts)
            if number % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
        if changed:
            self._facts_changed_at = asyncio.get_running_loop().time()
            self._facts_changes += 1

    async def _one(self, uid: str, plan: _Plan) -> None:
        """Solve one plan if its inputs are others than those of its answer; while it waits nothing is held of it."""
        async with self._checks.taken(plan.namespace):
            look, now, refusal = self._look(uid, plan), datetime.now(UTC), self._refusal(uid, plan)
            if refusal is not None:
                text, reason, stands = refusal
                inputs = hashlib.sha256(f"{plan.generation} {text}".encode()).hexdigest()[:16]
                if plan.inputs != inputs and not (stands and plan.inputs and plan.settled):
                    await self._tell(plan, await self._read(plan), refused(text), inputs, now, reason)
            else:
                _, inputs = await self._work(plan, now)
        if refusal is None and (plan.inputs != inputs or not plan.settled):
            await self._solve(plan, now)
        plan.look = look

    def _refusal(self, uid: str, plan: _Plan) -> tuple[str, str, bool] | None:
        """Why the plan is not computed, the reason of its condition, and whether an answer that it has stands."""
        home, places, unserved = plan.namespace, plan.namespaces, self._unserved()
        if uid in self._beyond:
            text = (
                f"namespace {home} has {self._most} older plans, as many as are served (profilesPerNamespace.max of "
                "the chart). Delete others, or ask an administrator to raise that value"
            )
            return text, "TooManyPlans", True
        if (others := sorted(places - {home})) and home not in self._across:
            text = (
                f"spec.fleet.namespaces: plans of {home} may not read reports of {', '.join(others)}. "
                f"Leave it out, or ask an administrator to add {home} to the chart value {ACROSS}"
            )
            return text, "NamespacesNotAllowed", False
        if lost := sorted((places or {home}) & unserved.keys()):  # without its nodes an answer would be wrong
            text = f"namespace {lost[0]} can't be read now: the operator may not list {unserved[lost[0]]}"
            return text, UNUSABLE, True
        if unwatched := sorted(places - set(self._namespaces)):
            watched = ", ".join(self._namespaces)
            text = f"spec.fleet.namespaces: {', '.join(unwatched)} is not watched; this operator watches {watched}"
            return text, UNUSABLE, False
        return None

    async def _solve(self, plan: _Plan, now: datetime) -> None:
        """Read the plan once there is a place for it, and solve it there."""
        raw: Raw = {}
        inputs = ""

        async def ready() -> Work:
            nonlocal raw, inputs
            raw = await self._read(plan)
            work, inputs = await self._work(plan, now)
            spec = await asyncio.to_thread(PlanSpec.model_validate, raw.get("spec") or {})
            before = status_before(raw).model_dump_json(by_alias=True, include={"jobs"})
            return replace(work, spec=spec.model_dump_json(by_alias=True, exclude_none=True), before=before)

        try:
            answer = PlanStatus.model_validate_json(await self._processes.answer(ready, plan.namespace))
            plan.solved_at = asyncio.get_running_loop().time()
        except ValidationError as error:
            answer = refused(spec_problem(error))
            if plan.settled and answer.problems == status_before(raw).problems:
                return
        await self._tell(plan, raw, answer, inputs, now)

    async def _read(self, plan: _Plan) -> Raw:
        """The plan as it is now, whole. Raises ApiError."""
        raw = await self._cluster.get(_path(plan))
        plan.take(raw)
        return raw

    async def _work(self, plan: _Plan, now: datetime) -> tuple[Work, str]:
        """What its solve needs but for its spec, and the hash of that; caches are copied: events change them."""
        reports, nodes = [*self._facts.items()], [*self._cache.all("nodes").items()]
        profiles = [*self._cache.all("profiles").values()]
        places = (plan.namespace in self._across and plan.namespaces) or {plan.namespace}
        return await asyncio.to_thread(_work_of, plan.meta, places, now, reports, nodes, profiles)

    def end(self) -> None:
        """End the processes that solve, whatever they are at."""
        for task in self._busy.values():
            task.cancel()
        self._busy = {}
        self._processes.end()

    async def _tell(
        self, plan: _Plan, raw: Raw, answer: PlanStatus, inputs: str, now: datetime, refusal: str = UNUSABLE
    ) -> None:
        """Write the status, then the events; `refusal` is the reason where the answer refuses the spec."""
        meta, before = raw["metadata"], status_before(raw)
        after = finished(answer, before, inputs, int(meta.get("generation") or 1), now, refusal)
        body_status = after.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = whole_status(meta["uid"], str(meta.get("resourceVersion", "")), body_status)
        plan.take(await self._cluster.patch(f"{_path(plan)}/status", body, "json"))
        _log.info("plan %s/%s: %s: %s", meta["namespace"], meta["name"], after.phase, after.recommendation)
        for event in events(raw, before, after, now):
            try:
                await write_event(self._cluster, event)
            except ApiError as error:
                _log.warning("event %s of plan %s: %s", event["reason"], meta["name"], error)


def _path(plan: _Plan) -> str:
    return paths.item(paths.collection(API_VERSION, PLAN_PLURAL, plan.namespace), plan.meta["name"])


def _work_of(
    meta: Raw,
    places: Collection[str],
    now: datetime,
    reports: Sequence[tuple[str, tuple[ReportView, bytes]]],
    nodes: Sequence[tuple[str, Raw]],
    profiles: Sequence[Raw],
) -> tuple[Work, str]:
    """What the solve of one plan needs, with its generation in the place of its spec; and the hash of that."""
    mine = {uid: (facts, report.node_uid) for uid, (report, facts) in reports if facts and report.namespace in places}
    measured = {node for _, node in mine.values()}
    there = [p for p in profiles if p["metadata"].get("namespace") in places]
    campaigns = [campaign for campaign in map(profile_facts, there) if campaign is not None]
    work = Work(
        spec=str(meta.get("generation")),
        created=str(meta.get("creationTimestamp", "")) or now.isoformat(),
        source=f"namespaces {', '.join(sorted(places))}",
        reports=tuple(mine[uid][0] for uid in sorted(mine)),
        campaigns=tuple(sorted(campaigns, key=lambda campaign: (campaign.namespace, campaign.name))),
        racks=racks(node for uid, node in nodes if uid in measured),
        now=now,
    )
    return work, inputs_of(work)


def _object(report: ReportView) -> Raw:
    """A report as the API server has it, as far as plans read it."""
    meta, status = {"namespace": report.namespace, "name": report.name}, report_json(whole(report.status))
    spec = {"profile": report.profile, "nodeName": report.node_name, "nodeUID": report.node_uid}
    return report.unread or {"metadata": meta, "spec": spec, "status": status}


def _meta(raw: Raw) -> dict[str, Any]:
    """What counts of a plan's metadata, without what its tenant may have written beside it."""
    wanted = ("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp")
    return {key: raw["metadata"][key] for key in wanted if key in raw["metadata"]}
