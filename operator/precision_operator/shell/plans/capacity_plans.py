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
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from precision_api.facts.names import API_VERSION, PLAN_PLURAL
from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.cluster.object_store import identity
from precision_operator.core.attempts.faults import Fault
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
class _Plan:
    """One plan as it was seen last, and what is known of its answer."""

    raw: Raw
    inputs: str = ""
    """Hash of what the answer was made from that was written last; empty before the first one."""
    solved_at: float = -math.inf
    waits: tuple[float, int | None] = 0.0, None
    """Of one that failed, until when it is left alone, and the generation that failed."""
    look: int | None = None
    """What the world looked like when its answer was last found to be up to date."""


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
        self._plans: dict[str, _Plan] = {}
        self._facts: dict[str, tuple[Raw, bytes]] = {}
        """What the reports hold, each read once; the object itself tells whether it is still the same."""
        self._facts_changed_at = 0.0
        self._facts_changes = 0
        self._moved = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._processes = processes or PlanProcesses(limit=container_bytes())

    async def see(self, event: Any, **_: Any) -> None:
        """A watch event of a CapacityPlan."""
        raw = _slim(event["object"])
        uid = raw["metadata"]["uid"]
        if event["type"] == "DELETED" or raw["metadata"].get("deletionTimestamp"):
            self._plans.pop(uid, None)
        else:
            plan = self._plans.setdefault(uid, _Plan(raw))
            if identity(raw).version >= identity(plan.raw).version:  # not older than our own write
                plan.raw = raw
        self._moved.set()

    async def list_one(self, namespace: str) -> None:
        """Take in a complete list of one namespace's CapacityPlans. Raises ApiError."""
        before = {uid for uid, plan in self._plans.items() if plan.raw["metadata"]["namespace"] == namespace}
        collection = paths.collection(API_VERSION, PLAN_PLURAL, namespace)
        items, _ = await self._cluster.list_trimmed(collection, _slim, limit=PAGE_TENANT)
        for uid in before - {item["metadata"]["uid"] for item in items}:
            self._plans.pop(uid, None)
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
        for uid, plan in self._plans.items():
            busy = self._busy.get(uid)
            if (busy is None or busy.done()) and not _is_left_alone(plan):
                self._busy[uid] = asyncio.create_task(self._try(uid, plan, plan.raw))
        return [*self._busy.values()]

    def _ended(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Forget what has ended. Raises LeaseLost where one of them did."""
        for task in tasks:
            if task.done():
                task.result()
        self._busy = {uid: task for uid, task in self._busy.items() if not task.done()}

    async def _try(self, uid: str, plan: _Plan, raw: Raw) -> None:
        """Bring one plan up to date; what fails is logged and tried again later, and never ends the operator."""
        try:
            await self._one(plan, raw)
            return
        except LeaseLost:
            raise
        except ApiError as error:
            if error.status == 404:
                self._plans.pop(uid, None)
                return
            _log.warning("plan %s: %s", raw["metadata"]["name"], error)
        except BrokenProcessPool:
            _log.warning("the planner's process ended at plan %s", raw["metadata"]["name"])
        except Exception as error:
            meta = raw.get("metadata") or {}
            key = f"{meta.get('namespace')}/{meta.get('name')}"
            self._faults.looked(f"capacityplan {key}", [Fault("capacityplan", key, error)])
        plan.waits = (asyncio.get_running_loop().time() + RETRY_SECONDS, raw["metadata"].get("generation"))

    async def _read_reports(self) -> None:
        """Take in reports that are new or have changed, a few at a time; forget those that are gone."""
        there, reports = dict(self._cache.all("reports")), self._facts
        gone = reports.keys() - there.keys()
        fresh = [uid for uid, raw in there.items() if uid not in reports or reports[uid][0] is not raw]
        changed = False
        for uid in gone:
            changed = changed or bool(reports.pop(uid)[1])
        for number, uid in enumerate(fresh):
            before = reports.get(uid)
            facts = report_facts(there[uid])
            changed = changed or facts != (before[1] if before else b"")
            reports[uid] = (there[uid], facts)
            if number % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
        if changed:
            self._facts_changed_at = asyncio.get_running_loop().time()
            self._facts_changes += 1

    async def _one(self, plan: _Plan, raw: Raw) -> None:
        """Solve one plan if its inputs are others than those of its answer."""
        meta, now = raw["metadata"], datetime.now(UTC)
        before = status_before(raw)
        answered = plan.inputs or before.inputs
        try:
            spec = PlanSpec.model_validate(raw.get("spec") or {})
        except ValidationError as error:
            inputs = _hash(json.dumps(raw.get("spec"), sort_keys=True, default=str).encode())
            if answered != inputs:
                await self._tell(plan, raw, refused(spec_problem(error)), inputs, now)
            return
        others = sorted(set(spec.fleet.namespaces) - {meta["namespace"]})
        if others and meta["namespace"] not in self._across:
            text = (
                f"spec.fleet.namespaces: plans of {meta['namespace']} may not read reports of {', '.join(others)}. "
                f"Leave it out, or ask an administrator to add {meta['namespace']} to the chart value {ACROSS}"
            )
            inputs = _hash(f"{_generation(raw)} {text}".encode())
            if answered != inputs:
                await self._tell(plan, raw, refused(text), inputs, now, "NamespacesNotAllowed")
            return
        look = self._sight(raw, now)
        settled = before.observed_generation == _generation(raw)
        if plan.look == look or (settled and not self._quiet(plan)):
            return
        unserved = self._unserved()
        lost = sorted((set(spec.fleet.namespaces) or {meta["namespace"]}) & unserved.keys())
        if lost:
            await self._tell_lost(plan, raw, lost[0], unserved[lost[0]])
            return
        unwatched = sorted(set(spec.fleet.namespaces) - set(self._namespaces))
        work = await asyncio.to_thread(self._work(raw, spec, now))
        inputs = await asyncio.to_thread(inputs_of, work)
        if answered == inputs and settled:
            plan.look = look
            return
        if unwatched:
            watched = ", ".join(self._namespaces)
            text = f"spec.fleet.namespaces: {', '.join(unwatched)} is not watched; this operator watches {watched}"
            answer = refused(text)
        else:
            answer = PlanStatus.model_validate_json(await self._processes.answer(work, str(meta["namespace"])))
        plan.solved_at = asyncio.get_running_loop().time()
        await self._tell(plan, raw, answer, inputs, now)

    async def _tell_lost(self, plan: _Plan, raw: Raw, namespace: str, why: str) -> None:
        """An answer stands while a namespace can't be read: without its nodes it would be wrong. A new plan is told."""
        before, inputs = status_before(raw), _hash(f"{namespace} can't be read".encode())
        if before.inputs and before.observed_generation == _generation(raw):
            return
        if plan.inputs != inputs:
            answer = refused(f"namespace {namespace} can't be read now: the operator may not list {why}")
            await self._tell(plan, raw, answer, inputs, datetime.now(UTC))

    def _sight(self, raw: Raw, now: datetime) -> int:
        """A number that changes when anything does that the inputs might hang on; by identity, so it is quick."""
        others = [id(raw) for kind in ("nodes", "profiles") for raw in self._cache.all(kind).values()]
        return hash((self._facts_changes, id(raw), now.date(), tuple(others)))

    def _quiet(self, plan: _Plan) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._facts_changed_at >= PAUSE_SECONDS or now - plan.solved_at >= PATIENCE_SECONDS

    def _work(self, raw: Raw, spec: PlanSpec, now: datetime) -> Callable[[], Work]:
        """What makes the work, in any thread: caches are copied here, since watch events change them in the loop."""
        reports, nodes = [*self._facts.items()], [*self._cache.all("nodes").items()]
        return partial(_work_of, raw["metadata"], spec, now, reports, nodes, [*self._cache.all("profiles").values()])

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
        after = finished(answer, before, inputs, _generation(raw), now, refusal)
        path = paths.item(paths.collection(API_VERSION, PLAN_PLURAL, meta["namespace"]), meta["name"], "status")
        body_status = after.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = whole_status(meta["uid"], str(meta.get("resourceVersion", "")), body_status)
        seen = await self._cluster.patch(path, body, "json")
        plan.inputs = inputs
        if plan.raw is raw:
            plan.raw = _slim(seen)
        _log.info("plan %s/%s: %s: %s", meta["namespace"], meta["name"], after.phase, after.recommendation)
        for event in events(raw, before, after, now):
            try:
                await write_event(self._cluster, event)
            except ApiError as error:
                _log.warning("event %s of plan %s: %s", event["reason"], meta["name"], error)


def _is_left_alone(plan: _Plan) -> bool:
    """Whether it failed a short while ago, and its spec is still the same."""
    until, generation = plan.waits
    return generation == plan.raw["metadata"].get("generation") and asyncio.get_running_loop().time() < until


def _generation(raw: Raw) -> int:
    return int(raw["metadata"].get("generation") or 1)


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
