"""Writes verdicts to Nodes: from what this process collected itself, behind a guard that is tried before each batch."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from precision_api.facts.names import ANNOTATION_CLOSED, DEFAULT_POOL_LABEL, grouped
from precision_api.kinds.report import AcceptanceSubject, ReportAcceptance, ReportStatus
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.attempts.verdicts import Terms, change, refused, run_of
from precision_operator.core.eligibility.proved import changed_subject
from precision_operator.core.observe.clock import format_time, parse_time, time_or_none
from precision_operator.core.observe.gpu_labels import RACK_LABEL
from precision_operator.core.observe.kept_report import kept_report, whole
from precision_operator.core.observe.node_gate import CONDITION, NodeGate, NodeVerdict, node_verdict
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView, Raw, ReportView
from precision_operator.core.observe.raw_object import condition_of
from precision_operator.core.results.acceptance import decided, with_result
from precision_operator.core.results.node_condition import (
    DAY,
    OTHERS,
    Evidence,
    Pools,
    Write,
    has_turn,
    is_unproved,
    waits_in_vain,
    writes,
)
from precision_operator.shell.acting.collecting import Requeue
from precision_operator.shell.acting.late_writes import LateWrites
from precision_operator.shell.acting.reports import Reports
from precision_operator.shell.observing.cache import Cache

_log = logging.getLogger(__name__)
WRITES_AT_ONCE = 8
AGAIN_SECONDS = 5.0  # after which writes that were refused are tried again
STARVED_AFTER, DOMAIN_FAILS = timedelta(hours=2), 3
OPEN_FAILS = "FailUnconfirmed", "FailHeld"
OPEN_PROBLEMS = *OPEN_FAILS, "NotJudgedAgain"
ZONES = {"topology.kubernetes.io/zone", "topology.kubernetes.io/region"}  # too large for one cause
Says = tuple[str, str, str]  # a node's pool, its condition's status and reason
_Key = tuple[str, str, str]  # namespace and name of a profile, UID of a node
_Due = tuple[str, bool, Callable[[], Awaitable[str]]]  # UID, whether it takes True away, the write: why it isn't done

ASKS_FOR_MORE = "the chart's acceptance.nodeCondition.profiles asks for more: "
NOT_LISTED = {"verdict": "Inconclusive", "reason": "NotListed", "again": False}


class Collected(NamedTuple):
    """What agents of one profile left on one node, and what this process has decided from it."""

    report: str  # UID of the one that it was written into
    status: ReportStatus  # what is kept of it as it was written
    image: str  # which the newest pod ran
    verdict: ReportAcceptance | None = None
    evidence: Evidence | None = None  # the same, as far as the chart admits it; None: not decided, or nobody asks


_NOTHING = Collected("", ReportStatus(), "")


class NodeConditions:
    """The condition of Nodes. What runs said is a memory: a new leader begins with what it collects."""

    def __init__(
        self, cluster: Cluster, cache: Cache, reports: Reports, gate: NodeGate, clock: Callable[[], datetime],
        late: LateWrites,
    ) -> None:  # fmt: skip
        self._cluster, self._cache, self._reports, self._gate, self._now = cluster, cache, reports, gate, clock
        self._late = late
        self._collected: dict[_Key, Collected] = {}
        self._judged: Set[str] = frozenset()  # UIDs of the nodes that had a condition when they were last seen
        self._guard_missing = False  # a forbidden write of this pass was taken: the rest isn't tried
        self._due: Iterator[_Due] = iter(())  # of the last pass
        self._limit = asyncio.Semaphore(WRITES_AT_ONCE)
        self._under_way: dict[str, bool] = {}  # by UID: whether it takes True away, which counts before it is done
        self._undone: dict[str, str] = {}  # why, by UID of what was tried; empty: it is done
        self._pools: Mapping[str, Pools] = {}  # by node UID: by each label that a listed profile names, and by product
        self._closings: dict[str, tuple[datetime, Pools]] = {}  # of a day: a Node that is gone counts as well
        self._stale: dict[str, datetime] = {}  # since when a node, by UID, is True for another subject
        self._has_looked = False
        self._unproved: dict[str, datetime] = {}  # since when, by UID, as far as this process can tell
        self._opened: dict[str, datetime] = {}  # when a node of each pool became True last

    def collected(self, job: JobView, pod: PodView | None, report: ReportView, status: ReportStatus) -> None:
        """Take what an agent left, as it was just written into its report; `pod` is the Job's own."""
        if self._gate.of(job.namespace, job.profile):
            key = job.namespace, job.profile, job.node_uid
            image = pod.image_id if pod is not None and pod.job_uid == job.uid else ""
            kept = status.model_copy(update={"results": (), "history": (), "acceptance": None})
            before = self._collected.get(key, _NOTHING)
            before = before if before.report == report.uid else _NOTHING  # a repaired node's report is deleted
            self._collected[key] = before._replace(report=report.uid, status=kept, image=image)

    async def judge(self, report: ReportView, terms: Terms | None, facts: NodeFacts) -> None:
        """The verdict by what was collected alone, by these terms, whatever the report holds by now. Raises ApiError.

        What a profile failed is lifted by nothing but a Pass of its own on this boot.
        """
        key = report.namespace, report.profile, report.node_uid
        rows, before = self._gate.of(*key[:2]), self._collected.get(key, _NOTHING)
        attempt = before.status.attempt
        if not rows or before.report != report.uid or attempt is None:
            return
        if terms is None:
            self._collected[key] = before._replace(evidence=None)
            return
        status, verdict = whole(before.status), before.verdict
        run, runs = status.run, verdict.runs if verdict is not None else None
        if run is not None and attempt.run == run.run and (runs is None or runs.run != run_of(run)):
            result = await self._reports.result(report, run)
            if self._collected.get(key) is not before:
                raise Requeue("another agent's result has come meanwhile")
            verdict = with_result(status.model_copy(update={"acceptance": verdict}), result, terms)
        verdict = decided(terms, status.model_copy(update={"acceptance": verdict}), facts, self._now())
        shown = terms.asked.reference.sha256, terms.recipes, terms.finds, before.image
        lacks = [row.lacks(*shown) for row in rows]
        is_listed = verdict.verdict == "Inconclusive" or not all(lacks)
        changes = {} if is_listed else NOT_LISTED | {"message": ASKS_FOR_MORE + "; or ".join(lacks)}
        said = verdict.model_copy(update={"subject": _subject(verdict)} | changes)
        was = before.evidence or Evidence("/".join(key[:2]))
        has_failed = was.failed and not change(was.verdict.subject, facts)
        failed = said.verdict == "Fail" or (has_failed and said.verdict != "Pass")
        ended = (attempt.finished_at if refused(attempt) else "") or (verdict.runs.ended if verdict.runs else "")
        # an attempt whose agent never began confirms nothing: what was found before ended when it did
        evidence = was._replace(verdict=said, ended=parse_time(ended) if ended else was.ended, failed=failed)
        self._collected[key] = before._replace(status=kept_report(status), verdict=verdict, evidence=evidence)

    async def write(self, observed: Observed) -> bool:
        """Write what is not as it ought to be. Returns whether something is to be tried again."""
        if not self._gate.policy:
            return False
        specs, now = [it.spec for it in self._listed(observed) if it.spec is not None], observed.now
        by_label = {label: observed.facts_of(label) for label in {DEFAULT_POOL_LABEL, *(it.pool_label for it in specs)}}
        nodes = by_label[DEFAULT_POOL_LABEL]
        self._pools = {uid: tuple((label, of[uid].pool) for label, of in by_label.items()) for uid in nodes}
        closings = [*self._keep_closings(observed)]
        for uid, facts in nodes.items():
            if facts.verdict.status == "False" or uid not in self._judged:  # what a kubelet adds is not ours
                self._saw_closed(uid, facts.verdict)
        closed = self._closings.items()  # none of them is to come
        self._closings = {uid: (min(at, now), where) for uid, (at, where) in closed if now - at < DAY}
        self._forget(observed, nodes)
        evidence = self._with_missing(grouped(self._evidence(observed, nodes)), observed, nodes)
        closing = {uid for uid, closes in self._under_way.items() if closes} & nodes.keys()
        counted = self._closings | {uid: (now, self._pools[uid]) for uid in closing}
        due = writes(nodes, self._pools, evidence, counted, now)
        rows: list[_Due] = [(it.facts.uid, it.closes, partial(self._write, it, observed.nodes)) for it in due]
        rows = sorted([*rows, *closings], key=lambda it: self._undone.get(it[0]) == "Refused")  # it holds up no other
        self._undone = {uid: self._undone[uid] for uid, *_ in rows if uid in self._undone}
        self._due, self._guard_missing = iter(rows), False
        await self._late.run(f"{now}", "Nodes", "conditions of Nodes", self._batch)
        if self._guard_missing:
            _log.error("Unguarded: no ValidatingAdmissionPolicy %s: no Node is written", self._gate.policy)
        return any(self._undone.values()) or bool(self._under_way)

    async def _batch(self) -> None:
        """Write what is due, some at once. Passes go on meanwhile, and what the last one decided is written next."""
        await asyncio.gather(*(self._write_due() for _ in range(WRITES_AT_ONCE)))

    async def _write_due(self) -> None:
        while True:
            async with self._limit:
                if (due := next(self._due, None)) is None:
                    return
                uid, closes, write = due
                if uid not in self._under_way:
                    self._under_way[uid] = closes
                    try:
                        self._undone[uid] = await write()
                    finally:
                        del self._under_way[uid]

    def figures(self, observed: Observed, plans: Iterable[ProfilePlan]) -> tuple[Counter[Says], Mapping[str, float]]:
        """Nodes by pool, status and reason of their condition, and how much there is of each problem now."""
        if not self._gate.policy:
            return Counter(), {}
        now, nodes = self._now(), observed.facts_of(DEFAULT_POOL_LABEL)
        judged, young = [it for it in nodes.values() if it.verdict.status], now - DAY
        listed = (plan.node_states for plan in plans if self._gate.of(plan.profile.namespace, plan.profile.name))
        states = grouped((node.facts.uid, node) for of in listed for node in of if node.facts.uid in nodes)
        tally = Counter((it.pool, *it.verdict[:2]) for it in judged)
        tally.update((nodes[uid].pool, "", "NeverJudged") for uid in states if not nodes[uid].verdict.status)
        moved = [it for it in judged if it.verdict.status == "True" and changed_subject(it)]
        since = {it.uid: now if self._has_looked else _since(observed.nodes[it.uid], it.verdict, now) for it in moved}
        self._stale = {uid: self._stale.get(uid, at) for uid, at in since.items()}
        because = ((it, {it.verdict.reason, it.verdict.message.partition(";")[0]}) for it in judged)
        fails = [it for it, reasons in because if it.verdict.reason in OPEN_FAILS or "Throttled" in reasons]
        fails += [it for it in judged if it.verdict.status == "False" and young < (it.verdict.since or young) <= now]
        keys = {"", RACK_LABEL, *(row.key for row in observed.settings.fleet_limits.per_topology)} - ZONES
        racks = Counter(at for it in fails for at in {**it.labels, "": it.clique}.items() if at[0] in keys and at[1])
        for pool, at in ((it.pool, it.verdict.since) for it in judged if it.verdict.status == "True"):
            self._opened |= {pool: max(at, self._opened.get(pool, at))} if at and at <= now else {}
        moving = {pool for pool, at in self._opened.items() if now - at <= STARVED_AFTER}
        unproved = [uid for uid, of in states.items() if all(map(is_unproved, of))]
        unproved += [it.uid for it in judged if it.uid not in states and waits_in_vain(it)]
        unknown = {uid: it.since for uid in unproved if (it := nodes[uid].verdict).status == "Unknown"}
        self._unproved = {uid: unknown.get(uid) or self._unproved.get(uid, now) for uid in unproved}
        starved = [uid for uid, at in self._unproved.items() if now - at > STARVED_AFTER]
        stuck = {uid for uid in starved if not any(map(has_turn, states.get(uid, ())))}
        self._has_looked, profiles = True, {(it.namespace, it.name) for it in observed.profiles}
        names = {(it.namespace, it.profile) for it in self._gate.profiles} or {("", "")}  # a list of nobody
        return tally, {
            **{why: [*self._undone.values()].count(why) for why in ("Unguarded", "Refused")},
            "StaleSeconds": max(((now - since).total_seconds() for since in self._stale.values()), default=0),
            "Starved": sum(uid in stuck or nodes[uid].pool not in moving for uid in starved),
            "NoProfile": len(names - profiles),
            **{why: sum(it.verdict[:2] == ("True", why) for it in judged) for why in OPEN_PROBLEMS},
            "DomainFails": max((number for number in racks.values() if number >= DOMAIN_FAILS), default=0),
        }

    def _listed(self, observed: Observed) -> list[ProfileView]:
        return [it for it in observed.profiles if self._gate.of(it.namespace, it.name)]

    def _judging(self, observed: Observed) -> Iterable[ProfileView]:
        return (it for it in self._listed(observed) if it.spec is None or it.spec.acceptance is not None)

    def _saw_closed(self, uid: str, verdict: NodeVerdict) -> None:
        """It counts where the node was then: to relabel it makes no room."""
        if (at := verdict.closed) is not None:
            self._closings[uid] = at, self._closings.get(uid, (at, self._pools.get(uid, ())))[1]

    def _keep_closings(self, observed: Observed) -> Iterator[_Due]:
        """What keeps the time and the pools of a closing in the node's reports, and takes them from there: they outlive
        the Node and this process."""
        for report in (it for of in self._listed(observed) for it in observed.reports_of[of.uid].values()):
            at, *pools = report.closed.split("; ")
            if (time := time_or_none(at)) is not None:
                where = tuple((label, name) for label, _, name in (pool.partition("=") for pool in pools))
                self._closings.setdefault(report.node_uid, (time, where))
            if (closing := self._closings.get(report.node_uid)) is not None:
                text = "; ".join([format_time(closing[0]), *map("=".join, closing[1])])
                if text != report.closed:
                    yield report.uid, False, partial(self._keep_closing, report, text)

    async def _keep_closing(self, report: ReportView, text: str) -> str:
        body = {"metadata": {"uid": report.uid, "annotations": {ANNOTATION_CLOSED: text}}}
        with suppress(ApiError):  # the next pass tries again
            path = paths.item(paths.reports(report.namespace), report.name)
            self._cache.put("reports", await self._cluster.patch(path, body))
        return ""

    def _forget(self, observed: Observed, nodes: Mapping[str, NodeFacts]) -> None:
        """Drop what was collected where its node, report or profile is gone, or the condition was removed by hand."""
        profiles, reports = {(it.namespace, it.name) for it in self._listed(observed)}, self._cache.all("reports")
        judged = {uid for uid, facts in nodes.items() if facts.verdict.status}
        there, self._judged = nodes.keys() - (self._judged - judged), judged
        kept = {key for key, it in self._collected.items() if it.report in reports and key[:2] in profiles}
        self._collected = {key: self._collected[key] for key in kept if key[2] in there}

    def _evidence(self, observed: Observed, nodes: Mapping[str, NodeFacts]) -> Iterator[tuple[str, Evidence]]:
        """By node UID. What a report says opens and closes nothing; its Fail is lifted by no other profile's Pass."""
        for profile in self._judging(observed):
            reports = observed.reports_of[profile.uid]
            for uid in reports.keys() & nodes.keys():
                key, status = (profile.namespace, profile.name, uid), reports[uid].status
                before, judged = self._collected.get(key, _NOTHING), status.acceptance if status is not None else None
                evidence = before.evidence or Evidence("/".join(key[:2]))
                collected, subject = evidence.verdict, _subject(judged or ReportAcceptance())
                is_fail = judged is not None and judged.verdict == "Fail" and not change(subject, nodes[uid])
                if judged is not None and is_fail and collected.verdict != "Pass" and collected.reason != "NotListed":
                    # with the driver that the node shows, and not the report's word for it
                    of = AcceptanceSubject(boot_id=subject.boot_id, gpus=subject.gpus, driver=nodes[uid].driver)
                    if collected.verdict is None or change(collected.subject, nodes[uid]):
                        collected = ReportAcceptance().model_copy(update={"reason": _reason(judged), "subject": of})
                    evidence = evidence._replace(verdict=collected, failed=True)
                    self._collected[key] = before._replace(report=reports[uid].uid, evidence=evidence)
                lapsed = None if judged is None else "" if judged.verdict == "Pass" else _reason(judged)
                yield uid, evidence._replace(lapsed=lapsed)

    def _with_missing(
        self, evidence: Mapping[str, Collection[Evidence]], observed: Observed, nodes: Mapping[str, NodeFacts]
    ) -> Mapping[str, Collection[Evidence]]:
        """And of the profiles of the list that failed a node and say nothing of it any more: each must pass, so one
        that is deleted, or asks for no verdict, opens nothing."""
        listed = {f"{it.namespace}/{it.profile}" for it in self._gate.profiles}
        gone = listed - {f"{it.namespace}/{it.name}" for it in self._judging(observed)}
        added = dict[str, Collection[Evidence]]()
        for uid, facts in nodes.items():
            named = {*facts.verdict.parts.get("failed", "").split(", ")}
            missing = (gone if OTHERS in named else named & listed) - {it.profile for it in evidence.get(uid, ())}
            if missing:
                added[uid] = [*evidence.get(uid, ()), *map(Evidence, sorted(missing))]
        return {**evidence, **added}

    async def _is_guarded(self, write: Write) -> bool:
        """Whether the policy refuses our condition without its end, as no other would. ApiError: it can't be told."""
        canary = {"type": CONDITION, "status": "Unknown", "reason": "Canary", "message": "it names no node and no boot"}
        forbidden = {"metadata": {"uid": write.facts.uid}, "status": {"conditions": [canary]}}
        try:
            await self._cluster.patch(_path(write), forbidden, "strategic", {"dryRun": "All"})
        except ApiError as error:
            if f"ValidatingAdmissionPolicy '{self._gate.policy}'" not in error.message:
                raise
            return True
        return False

    async def _write(self, write: Write, seen: Mapping[str, Raw]) -> str:
        """Write one, if the Node is as it was `seen` when this was decided. Returns why not."""
        uid = write.facts.uid
        try:
            if self._guard_missing or not await self._is_guarded(write):
                self._guard_missing = True
                return "Unguarded"
            if self._cache.all("nodes").get(uid) != seen[uid]:
                return "Changed"
            meta = {"uid": uid, "resourceVersion": self._cache.version("nodes", uid)}
            body = {"metadata": meta, "status": {"conditions": [write.row]}}
            raw = await self._cluster.patch(_path(write), body, "strategic")
        except ApiError as error:
            _log.warning("condition of node %s: %s", write.facts.name, error)
            return "Refused" if error.status not in (404, 409) else "Changed"
        self._cache.put("nodes", raw)
        if write.closes:
            self._saw_closed(uid, node_verdict(raw["status"]))
        _log.info("node %s: %s", write.facts.name, write.row)
        return ""


def _since(node: Raw, verdict: NodeVerdict, now: datetime) -> datetime:
    """When a True came to be of another boot, for a process that did not see it: not before the node became ready."""
    ready = time_or_none(condition_of(node["status"], "Ready").get("lastTransitionTime"))
    return max((min(at, now) for at in (ready, verdict.since) if at), default=now)


def _reason(verdict: ReportAcceptance) -> str:
    """As far as it is one: whoever may write a report's status writes no more than that into a Node's."""
    return verdict.reason if re.fullmatch("[A-Za-z]{1,64}", verdict.reason or "") else "Unreadable"


def _subject(verdict: ReportAcceptance) -> AcceptanceSubject:
    """Whom it is on: what a health counter says is of a boot."""
    on_boot = AcceptanceSubject(boot_id=verdict.unhealthy_boot_id)
    return on_boot if verdict.unhealthy and verdict.verdict == "Fail" else verdict.subject or on_boot


def _path(write: Write) -> str:
    return paths.item(paths.NODES, write.facts.name, "status")
