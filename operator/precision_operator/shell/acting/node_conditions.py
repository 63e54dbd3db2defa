"""Writes verdicts to Nodes: from what this process collected itself, behind a guard that is tried before each batch."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from precision_api.facts.names import DEFAULT_POOL_LABEL, grouped
from precision_api.kinds.report import AcceptanceSubject, ReportAcceptance, ReportStatus
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.attempts.verdicts import Terms, run_of
from precision_operator.core.eligibility.proved import changed_subject, waits_for_verdict
from precision_operator.core.observe.gpu_labels import RACK_LABEL
from precision_operator.core.observe.node_gate import NodeGate, NodeVerdict, node_verdict
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView, Raw, ReportView
from precision_operator.core.results.acceptance import decided, with_result
from precision_operator.core.results.node_condition import DAY, Closing, Pools, Write, waits, writes
from precision_operator.shell.acting.reports import Reports
from precision_operator.shell.observing.cache import Cache

_log = logging.getLogger(__name__)
WRITES_AT_ONCE = 8
AGAIN_SECONDS = 5.0
"""When writes that were refused are tried again."""
STARVED_AFTER, DOMAIN_FAILS = timedelta(hours=2), 3
OPEN_FAILS = "FailUnconfirmed", "FailHeld"
ZONES = {"topology.kubernetes.io/zone", "topology.kubernetes.io/region"}  # too large for one cause
_Key = tuple[str, str, str]
"""Namespace and name of a profile, UID of a node."""

ASKS_FOR_MORE = "the chart's acceptance.nodeCondition.profiles asks for more"
NOT_LISTED = {"verdict": "Inconclusive", "reason": "NotListed", "message": ASKS_FOR_MORE, "again": False}


class NodeConditions:
    """The condition of Nodes. What it knows of runs is a memory: a new leader begins with what it collects."""

    def __init__(
        self, cluster: Cluster, cache: Cache, reports: Reports, gate: NodeGate, clock: Callable[[], datetime]
    ) -> None:
        self._cluster, self._cache, self._reports, self._gate, self._now = cluster, cache, reports, gate, clock
        self._left: dict[_Key, tuple[ReportStatus, str]] = {}
        """What agents left, as this process wrote it into the report; the image that the pod ran."""
        self._verdicts: dict[tuple[str, ...], ReportAcceptance] = {}  # of one report: a repaired node's is deleted
        self._evidence: dict[_Key, ReportAcceptance] = {}
        """The same, as far as the chart admits them."""
        self.guard_missing = False
        """Whether the last batch found no policy that holds this account to its condition: nothing was written."""
        self._refused = 0
        """Writes of the last batch that the API server refused."""
        self._pools: Mapping[str, Pools] = {}
        """By node UID: by each label that a profile of the list names, and by product."""
        self._closings: dict[str, Closing] = {}
        """Those of a day, by node UID: a Node that is gone counts as well."""
        self._stale: dict[str, datetime] = {}
        """Since when a node has been seen to be True for another subject, by its UID."""
        self._opened = clock()
        """When a node became True last."""

    def collected(self, job: JobView, pod: PodView | None, status: ReportStatus) -> None:
        """Take what an agent left, as it was just written; `pod` is the Job's own."""
        if self._gate.of(job.namespace, job.profile):
            image = pod.image_id if pod is not None and pod.job_uid == job.uid else ""
            self._left[job.namespace, job.profile, job.node_uid] = status, image

    async def judge(self, report: ReportView, terms: Terms, facts: NodeFacts) -> None:
        """The verdict by what was collected alone, whatever the report holds by now. Raises ApiError."""
        key = report.namespace, report.profile, report.node_uid
        rows, left = self._gate.of(*key[:2]), self._left.get(key)
        if not rows or left is None:
            return
        (status, image), verdict = left, self._verdicts.get((*key, report.uid))
        run, newest = status.run, verdict.runs.run if verdict is not None and verdict.runs is not None else ""
        if run is not None and status.attempt is not None and status.attempt.run == run.run and newest != run_of(run):
            result = await self._reports.result(report, run)
            verdict = with_result(status.model_copy(update={"acceptance": verdict}), result, terms)
        verdict = decided(terms, status.model_copy(update={"acceptance": verdict}), facts, self._now())
        self._verdicts[(*key, report.uid)] = verdict
        on_boot = AcceptanceSubject(boot_id=verdict.unhealthy_boot_id)
        subject = on_boot if verdict.unhealthy and verdict.verdict == "Fail" else verdict.subject or on_boot
        is_listed = any(row.admits(terms.asked, terms.recipes, image) for row in rows)
        is_listed = is_listed or verdict.verdict == "Inconclusive"
        evidence = verdict.model_copy(update={"subject": subject} | ({} if is_listed else NOT_LISTED))
        self._evidence[key] = evidence
        if evidence.verdict != "Inconclusive":  # else it is decided again when what it hangs on changes
            self._left.pop(key, None)

    async def write(self, observed: Observed) -> bool:
        """Write what is not as it ought to be. Returns whether something is to be tried again."""
        if not self._gate.profiles:
            return False
        labels = {DEFAULT_POOL_LABEL, *(it.spec.pool_label for it in self._listed(observed) if it.spec is not None)}
        by_label = {label: observed.facts_of(label) for label in labels}
        nodes = by_label[DEFAULT_POOL_LABEL]
        self._pools = {uid: tuple((label, of[uid].pool) for label, of in by_label.items()) for uid in nodes}
        for uid, facts in nodes.items():
            self._saw_closed(uid, facts.verdict)
        self._closings = {uid: it for uid, it in self._closings.items() if observed.now - it[0] < DAY}
        self._evidence = {key: of for key, of in self._evidence.items() if key[2] in nodes}
        self._verdicts = {key: of for key, of in self._verdicts.items() if key[:3] in self._evidence}
        evidence = grouped((uid, it) for (_, _, uid), it in self._evidence.items())
        lapsed = dict(self._lapsed(observed, nodes))
        due = writes(nodes, self._pools, evidence, lapsed, self._closings, observed.now)
        if not due:
            self.guard_missing, self._refused = False, 0
            return False
        self.guard_missing = not await self._is_guarded(due[0])
        if self.guard_missing:
            _log.error("GuardMissing: no ValidatingAdmissionPolicy %s: no Node is written", self._gate.policy)
            return True
        limit, self._refused = asyncio.Semaphore(WRITES_AT_ONCE), 0
        return not all(await asyncio.gather(*(self._write(it, observed.nodes, limit) for it in due)))

    def figures(
        self, observed: Observed, plans: Iterable[ProfilePlan]
    ) -> tuple[Counter[tuple[str, str]], Mapping[str, float]]:
        """Nodes by status and reason of their condition, and how much there is of each problem now."""
        if not self._gate.profiles:
            return Counter(), {}
        now, judged = self._now(), [it for it in observed.facts_of(DEFAULT_POOL_LABEL).values() if it.verdict.status]
        tally, young = Counter(it.verdict[:2] for it in judged), now - DAY
        moved = (it.uid for it in judged if it.verdict.status == "True" and changed_subject(it))
        self._stale = {uid: self._stale.get(uid, now) for uid in moved}
        fails = [it for it in judged if it.verdict.reason in OPEN_FAILS]
        fails += [it for it in judged if it.verdict.status == "False" and (it.verdict.since or young) > young]
        keys = {"", RACK_LABEL, *(row.key for row in observed.settings.fleet_limits.per_topology)} - ZONES
        racks = Counter(at for it in fails for at in {**it.labels, "": it.clique}.items() if at[0] in keys and at[1])
        listed = [plan for plan in plans if self._gate.of(plan.profile.namespace, plan.profile.name)]
        waiting = len({state.facts.uid for plan in listed for state in plan.node_states if waits(state)})
        self._opened = self._opened if waiting else now
        return tally, {
            "Unguarded": self.guard_missing,
            "Refused": self._refused,
            "StaleSeconds": max(((now - since).total_seconds() for since in self._stale.values()), default=0),
            "Starved": waiting if now - self._opened > STARVED_AFTER else 0,
            **{reason: tally["True", reason] for reason in OPEN_FAILS},
            "DomainFails": max((number for number in racks.values() if number >= DOMAIN_FAILS), default=0),
        }

    def _listed(self, observed: Observed) -> list[ProfileView]:
        return [it for it in observed.profiles if self._gate.of(it.namespace, it.name)]

    def _saw_closed(self, uid: str, verdict: NodeVerdict) -> None:
        if (at := verdict.closed) is not None:
            self._closings[uid] = at, self._pools[uid]

    def _lapsed(self, observed: Observed, nodes: Mapping[str, NodeFacts]) -> Iterator[tuple[str, str]]:
        """Why no report of a profile of the list says Pass, of the nodes whose condition is True."""
        reports = [observed.reports_of[profile.uid] for profile in self._listed(observed)]
        for uid, facts in nodes.items():
            if facts.verdict.status == "True":
                verdicts = [it.status.acceptance for of in reports if (it := of.get(uid)) is not None and it.status]
                reasons = ["" if it.verdict == "Pass" else it.reason for it in verdicts if it is not None]
                if all(reasons):
                    yield uid, (*reasons, "NoReport")[0]

    async def _is_guarded(self, write: Write) -> bool:
        """Whether a forbidden write is refused by the policy: one that would change nothing if it were not."""
        forbidden = {"metadata": {"uid": write.facts.uid, "labels": {"precisionprofiler.io/canary": "x"}}}
        try:
            await self._cluster.patch(_path(write), forbidden, "strategic", {"dryRun": "All"})
        except ApiError as error:
            return bool(self._gate.policy) and f"ValidatingAdmissionPolicy '{self._gate.policy}'" in error.message
        return False

    async def _write(self, write: Write, seen: Mapping[str, Raw], limit: asyncio.Semaphore) -> bool:
        """Write one, if the Node is the one of which this was decided, unchanged. Returns whether that was done."""
        if self._cache.all("nodes").get(write.facts.uid) != seen[write.facts.uid]:
            return False
        meta = {"uid": write.facts.uid, "resourceVersion": self._cache.version("nodes", write.facts.uid)}
        try:
            async with limit:
                body = {"metadata": meta, "status": {"conditions": [write.row]}}
                raw = await self._cluster.patch(_path(write), body, "strategic")
        except ApiError as error:
            self._refused += error.status not in (404, 409)
            _log.warning("condition of node %s: %s", write.facts.name, error)
            return False
        self._cache.put("nodes", raw)
        self._saw_closed(write.facts.uid, node_verdict(raw["status"]))
        if write.row["status"] == "True" and waits_for_verdict(write.facts):
            self._opened = self._now()
        _log.info("node %s: %s", write.facts.name, write.row)
        return True


def _path(write: Write) -> str:
    return paths.item(paths.NODES, write.facts.name, "status")
