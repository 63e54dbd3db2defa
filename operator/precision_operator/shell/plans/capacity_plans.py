"""CapacityPlans: solved when they or what they are made from have changed, in a process of its own, not in the loop.

The inputs of a plan (its spec, the figures of the reports that it reads, racks, the day) have a hash that stands in its
status: while it is the same there is nothing to do, also after a restart. While a campaign brings in one report after
the other, the plan waits for a pause, but not for ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from precision_api.facts.names import API_VERSION, PLAN_PLURAL
from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.cluster.object_store import identity
from precision_operator.core.attempts.faults import Fault, Where
from precision_operator.core.observe.observed import Raw
from precision_operator.core.observe.views import spec_problem
from precision_operator.planner.answer.conditions import UNUSABLE, events, finished, refused, status_before
from precision_operator.planner.answer.work import Work, inputs_of
from precision_operator.planner.inputs.snapshot import profile_facts, racks, report_facts
from precision_operator.shell.events import write_event
from precision_operator.shell.fault_log import FaultLog
from precision_operator.shell.leader_election import LeaderElector, LeaseLost
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.patches import whole_status
from precision_operator.shell.plans.plan_processes import PlanProcesses, container_bytes

_log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often it is looked whether inputs have moved: comparing identities, a millisecond for 10,000 reports."""
PAUSE_SECONDS = 5.0
"""Figures must have been quiet for so long before a plan is solved again,"""
PATIENCE_SECONDS = 60.0
"""unless its last answer is older than this."""
RETRY_SECONDS = 30.0
"""For so long a plan is left alone after it could not be solved or written, unless it is changed itself."""
ACROSS = "capacityPlans.acrossNamespaces"
CHUNK = 50
"""Reports that are read in one go (20 microseconds each): the loop goes on in between."""


@dataclass
class _Facts:
    """What the reports hold, each read once; the object itself tells whether it is still the same."""

    by_uid: dict[str, tuple[Raw, bytes]] = field(default_factory=dict)
    changed_at: float = 0.0
    changes: int = 0


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
    ) -> None:
        """`unserved` tells which of the namespaces can't be read now, and why.

        `across` are those whose plans may read the reports of others.
        """
        self._across = across
        self._cluster = cluster
        self._faults = faults or FaultLog()
        self._cache = cache
        self._namespaces = namespaces
        self._unserved = unserved
        self._plans: dict[str, Raw] = {}
        self._facts = _Facts()
        self._told: dict[str, str] = {}
        self._solved_at: dict[str, float] = {}
        self._waits: dict[str, tuple[float, int | None]] = {}
        """By plan that failed, until when it is left alone, and the generation that failed."""
        self._looked: dict[str, int] = {}
        """By plan, what the world looked like when its answer was last found to be up to date."""
        self._moved = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._processes = processes or PlanProcesses(limit=container_bytes())

    async def see(self, event: Any, **_: Any) -> None:
        """A watch event of a CapacityPlan."""
        raw = _slim(event["object"])
        uid = raw["metadata"]["uid"]
        if event["type"] == "DELETED" or raw["metadata"].get("deletionTimestamp"):
            self._forget(uid)
        elif identity(raw).version >= identity(self._plans.get(uid, raw)).version:  # not older than our own write
            self._plans[uid] = raw
        self._moved.set()

    def _forget(self, uid: str) -> None:
        """The plan is gone."""
        self._plans.pop(uid, None)
        self._told.pop(uid, None)
        self._solved_at.pop(uid, None)
        self._waits.pop(uid, None)
        self._looked.pop(uid, None)

    async def list_one(self, namespace: str) -> None:
        """Take in a complete list of one namespace's CapacityPlans. Raises ApiError."""
        before = {uid for uid, raw in self._plans.items() if raw["metadata"]["namespace"] == namespace}
        collection = paths.collection(API_VERSION, PLAN_PLURAL, namespace)
        items, _ = await self._cluster.list_trimmed(collection, _slim, limit=PAGE_TENANT)
        for uid in before - {item["metadata"]["uid"] for item in items}:
            self._forget(uid)
        for item in items:
            if item["metadata"]["uid"] not in self._plans:
                await self.see({"type": None, "object": item})

    async def run(self, elector: LeaderElector) -> None:
        """Solve what has changed, again and again, while this replica leads."""
        await elector.elected.wait()
        try:
            while True:
                self._moved.clear()
                try:
                    self._ended(await self._begin())
                except LeaseLost:
                    raise
                except Exception as error:
                    self._faults.looked("plans", [Fault("capacityplan", "", error)])
                    await asyncio.sleep(RETRY_SECONDS)
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
        """Start all plans that are due, each by itself: none waits for another one. What is still at work stays so."""
        if not self._plans:
            return []
        await self._read_reports()
        for uid, raw in [*self._plans.items()]:
            busy = self._busy.get(uid)
            if (busy is None or busy.done()) and not self._waiting(uid, raw):
                self._busy[uid] = asyncio.create_task(self._try(uid, raw))
        return [*self._busy.values()]

    def _ended(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Forget what has ended. Raises LeaseLost where one of them did."""
        for task in tasks:
            if task.done():
                task.result()
        self._busy = {uid: task for uid, task in self._busy.items() if not task.done()}

    async def _try(self, uid: str, raw: Raw) -> None:
        """Bring one plan up to date; what fails is logged and tried again later, and never ends the operator."""
        try:
            await self._one(uid, raw)
            return
        except LeaseLost:
            raise
        except ApiError as error:
            if error.status == 404:
                self._forget(uid)
                return
            _log.warning("plan %s: %s", raw["metadata"]["name"], error)
        except BrokenProcessPool:
            _log.warning("the planner's process ended at plan %s", raw["metadata"]["name"])
        except Exception as error:
            self._log_fault("capacityplan", raw, error)
        until = asyncio.get_running_loop().time() + RETRY_SECONDS
        self._waits[uid] = (until, raw["metadata"].get("generation"))

    def _waiting(self, uid: str, raw: Raw) -> bool:
        """Whether the plan failed a short while ago, and its spec is still the same."""
        until, generation = self._waits.get(uid, (0.0, None))
        return generation == raw["metadata"].get("generation") and asyncio.get_running_loop().time() < until

    async def _read_reports(self) -> None:
        """Take in reports that are new or have changed, a few at a time; forget those that are gone."""
        there = dict(self._cache.all("reports"))
        reports = self._facts.by_uid
        gone = reports.keys() - there.keys()
        fresh = [uid for uid, raw in there.items() if uid not in reports or reports[uid][0] is not raw]
        changed = False
        for uid in gone:
            changed = changed or bool(reports.pop(uid)[1])
        for number, uid in enumerate(fresh):
            before = reports.get(uid)
            facts = self._facts_of(there[uid])
            changed = changed or facts != (before[1] if before else b"")
            reports[uid] = (there[uid], facts)
            if number % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
        if changed:
            self._facts.changed_at = asyncio.get_running_loop().time()
            self._facts.changes += 1

    def _facts_of(self, report: Raw) -> bytes:
        """What a report tells plans; nothing where reading it raises, which costs the others nothing."""
        try:
            facts = report_facts(report)
        except Exception as error:
            self._log_fault("report", report, error)
            return b""
        return facts

    def _log_fault(self, where: Where, raw: Raw, error: Exception) -> None:
        meta = raw.get("metadata") or {}
        key = f"{meta.get('namespace')}/{meta.get('name')}"
        self._faults.looked(f"{where} {key}", [Fault(where, key, error)])

    async def _one(self, uid: str, raw: Raw) -> None:
        """Solve one plan if its inputs are others than those of its answer."""
        meta, now = raw["metadata"], datetime.now(UTC)
        generation = int(meta.get("generation") or 1)
        before = status_before(raw)
        try:
            spec = PlanSpec.model_validate(raw.get("spec") or {})
        except ValidationError as error:
            inputs = _hash(json.dumps(raw.get("spec"), sort_keys=True, default=str).encode())
            if self._told.get(uid, before.inputs) != inputs:
                await self._tell(raw, before, refused(spec_problem(error)), inputs, generation, now)
            return
        others = sorted(set(spec.fleet.namespaces) - {meta["namespace"]})
        if others and meta["namespace"] not in self._across:
            text = (
                f"spec.fleet.namespaces: plans of {meta['namespace']} may not read reports of {', '.join(others)}. "
                f"Leave it out, or ask an administrator to add {meta['namespace']} to the chart value {ACROSS}"
            )
            inputs = _hash(f"{generation} {text}".encode())
            if self._told.get(uid, before.inputs) != inputs:
                await self._tell(raw, before, refused(text), inputs, generation, now, "NamespacesNotAllowed")
            return
        look = self._sight(raw, now)
        settled = before.observed_generation == generation
        if self._looked.get(uid) == look or (settled and not self._quiet(uid)):
            return
        unserved = self._unserved()
        lost = sorted((set(spec.fleet.namespaces) or {meta["namespace"]}) & unserved.keys())
        if lost:
            await self._tell_lost(raw, before, lost[0], unserved[lost[0]], generation)
            return
        unwatched = sorted(set(spec.fleet.namespaces) - set(self._namespaces))
        work = await asyncio.to_thread(self._work(raw, spec, now))
        inputs = await asyncio.to_thread(inputs_of, work)
        if self._told.get(uid, before.inputs) == inputs and settled:
            self._looked[uid] = look
            return
        if unwatched:
            watched = ", ".join(self._namespaces)
            text = f"spec.fleet.namespaces: {', '.join(unwatched)} is not watched; this operator watches {watched}"
            answer = refused(text)
        else:
            answer = PlanStatus.model_validate_json(await self._processes.answer(work, str(meta["namespace"])))
        self._solved_at[uid] = asyncio.get_running_loop().time()
        await self._tell(raw, before, answer, inputs, generation, now)

    async def _tell_lost(self, raw: Raw, before: PlanStatus, namespace: str, why: str, generation: int) -> None:
        """An answer stands while a namespace can't be read: without its nodes it would be wrong. A new plan is told."""
        inputs = _hash(f"{namespace} can't be read".encode())
        if before.inputs and before.observed_generation == generation:
            return
        if self._told.get(raw["metadata"]["uid"]) != inputs:
            answer = refused(f"namespace {namespace} can't be read now: the operator may not list {why}")
            await self._tell(raw, before, answer, inputs, generation, datetime.now(UTC))

    def _sight(self, raw: Raw, now: datetime) -> int:
        """A number that changes when anything does that the inputs might hang on; by identity, so it is quick."""
        others = [id(raw) for kind in ("nodes", "profiles") for raw in self._cache.all(kind).values()]
        return hash((self._facts.changes, id(raw), now.date(), tuple(others)))

    def _quiet(self, uid: str) -> bool:
        now = asyncio.get_running_loop().time()
        rested = now - self._facts.changed_at >= PAUSE_SECONDS
        return rested or now - self._solved_at.get(uid, -PATIENCE_SECONDS) >= PATIENCE_SECONDS

    def _work(self, raw: Raw, spec: PlanSpec, now: datetime) -> Callable[[], Work]:
        """What makes the work, in any thread: caches are copied here, since watch events change them in the loop."""
        reports, nodes = [*self._facts.by_uid.items()], [*self._cache.all("nodes").items()]
        return partial(_work_of, raw["metadata"], spec, now, reports, nodes, [*self._cache.all("profiles").values()])

    def end(self) -> None:
        """End the processes that solve, whatever they are at."""
        for task in self._busy.values():
            task.cancel()
        self._busy = {}
        self._processes.end()

    async def _tell(
        self,
        raw: Raw,
        before: PlanStatus,
        answer: PlanStatus,
        inputs: str,
        generation: int,
        now: datetime,
        refusal: str = UNUSABLE,
    ) -> None:
        """Write the status, then the events; `refusal` is the reason where the answer refuses the spec."""
        meta = raw["metadata"]
        after = finished(answer, before, inputs, generation, now, refusal)
        path = paths.item(paths.collection(API_VERSION, PLAN_PLURAL, meta["namespace"]), meta["name"], "status")
        body_status = after.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = whole_status(meta["uid"], str(meta.get("resourceVersion", "")), body_status)
        seen = await self._cluster.patch(path, body, "json")
        self._told[meta["uid"]] = inputs
        if self._plans.get(meta["uid"]) is raw:
            self._plans[meta["uid"]] = _slim(seen)
        _log.info("plan %s/%s: %s: %s", meta["namespace"], meta["name"], after.phase, after.recommendation)
        for event in events(raw, before, after, now):
            try:
                await write_event(self._cluster, event)
            except ApiError as error:
                _log.warning("event %s of plan %s: %s", event["reason"], meta["name"], error)


def _work_of(
    meta: Raw,
    spec: PlanSpec,
    now: datetime,
    reports: Sequence[tuple[str, tuple[Raw, bytes]]],
    nodes: Sequence[tuple[str, Raw]],
    profiles: Sequence[Raw],
) -> Work:
    """All that the solve of one plan needs."""
    places = set(spec.fleet.namespaces) or {meta["namespace"]}
    mine = {
        uid: (facts, _node_uid(raw))
        for uid, (raw, facts) in reports
        if facts and raw["metadata"].get("namespace") in places
    }
    measured = {node for _, node in mine.values()}
    there = [p for p in profiles if p["metadata"].get("namespace") in places]
    campaigns = [campaign for campaign in map(profile_facts, there) if campaign is not None]
    return Work(
        spec=spec.model_dump_json(by_alias=True, exclude_none=True),
        created=str(meta.get("creationTimestamp", "")) or now.isoformat(),
        source=f"namespaces {', '.join(sorted(places))}",
        reports=tuple(mine[uid][0] for uid in sorted(mine)),
        campaigns=tuple(sorted(campaigns, key=lambda campaign: (campaign.namespace, campaign.name))),
        racks=racks(node for uid, node in nodes if uid in measured),
        now=now,
    )


def _slim(raw: Raw) -> dict[str, Any]:
    """A plan without what its tenant may have written beside it."""
    wanted = ("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    return {**raw, "metadata": {key: raw["metadata"][key] for key in wanted if key in raw["metadata"]}}


def _node_uid(raw: Raw) -> str:
    """The node of a report; empty where it can't be read, which `report_facts` has told."""
    spec = raw.get("spec")
    return str(spec.get("nodeUID", "")) if isinstance(spec, Mapping) else ""


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
