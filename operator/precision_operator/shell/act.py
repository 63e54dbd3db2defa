"""Does what a plan says, each action so that doing it twice does no harm: deterministic names, UID preconditions."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

from precision_api import names
from precision_api.report import ReportStatus
from precision_api.request import canonical
from precision_api.result import MeasurementResult
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.observed import JobView, ProfileView, ReportView, Stage, Yield
from precision_operator.core.observe.views import job_view, report_view
from precision_operator.core.reasons import sentence
from precision_operator.core.results import ingest
from precision_operator.core.rollout import manifest
from precision_operator.core.rollout.actions import (
    Action,
    Adopt,
    Close,
    Collect,
    Drop,
    GiveWay,
    Keeping,
    MarkFresh,
    MarkStale,
    Start,
    Withdraw,
)
from precision_operator.core.rollout.owner import owner
from precision_operator.core.rollout.refusal import Answer, classify, cleaned
from precision_operator.core.status.events import Note, event
from precision_operator.shell.cache import Cache
from precision_operator.shell.collecting import LOG_PATIENCE, Collector, Requeue, StillReading
from precision_operator.shell.creating import Creations
from precision_operator.shell.events import write_event
from precision_operator.shell.late_writes import LateWrites
from precision_operator.shell.patches import patch_of, whole_status
from precision_operator.shell.refusals import RefusedCreations, agents_of

_log = logging.getLogger(__name__)

ACTIONS_AT_ONCE = 8


class NotCreated(Exception):
    """The cluster said no to a creation: the plan decides when it is tried again."""

    def __init__(self, answer: Answer, stage: Stage) -> None:
        super().__init__(answer.words)
        self.answer = answer
        self.stage = stage


@dataclass(frozen=True)
class Unanswered:
    """A creation that may have happened, and what came in place of an answer."""

    start: Start
    error: ApiError


class Actor:
    """Writes to the cluster; what the API server answers goes into the cache, so that no watch can lag behind it."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        refusals: RefusedCreations | None = None,
        gave_way: Callable[[Yield], None] = lambda record: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`gave_way` is told of each agent that is ended for a pod of others, before it is."""
        self._now = clock
        self._gave_way = gave_way
        self._cluster = cluster
        self._cache = cache
        self._refusals = refusals or RefusedCreations()
        self.unconfirmed: dict[str, Unanswered] = {}
        """Creations without an answer, by Job name: they may have happened. Cleared by `confirm_creates`."""
        self._collector = Collector(cluster, cache.changed.set, clock)
        self.creations = Creations(cache.changed.set, clock)
        self.writes = LateWrites(cache.changed.set)
        self._templates: set[tuple[str, str]] = set()
        """ResourceClaimTemplates that are there, by namespace and name, as far as this replica knows."""
        self.closed = False
        """No further action begins; those in flight end as they would have."""
        self.refused = False
        """Whether the cluster has refused a creation since the last plan was begun: others may go now."""
        self._held: set[str] = set()
        """UIDs of profiles of which a node has been told, since this pass began, what concerns all its nodes."""

    async def act(self, actions: Sequence[Action]) -> int:
        """Do all actions, what ends before what begins. Returns how many must be tried again.

        What is still being read of an agent is none of them: its end wakes the loop.
        """
        if not self.closed:
            await self._collector.read([action for action in actions if _is_read_for(action)])
        self._held.clear()
        self.refused = False
        ending = [a for a in actions if not isinstance(a, Start)]
        starting = [a for a in actions if isinstance(a, Start)]
        limit = asyncio.Semaphore(ACTIONS_AT_ONCE)
        ended = await asyncio.gather(*(self._limited(action, limit) for action in ending))
        return sum(ended) + await self.creations.run(starting, self._guarded)

    async def _limited(self, action: Action, limit: asyncio.Semaphore) -> int:
        """Do one action that creates no agent; 0 also where a write of it has no answer yet."""
        async with limit:
            return await self.writes.run(*_written_by(action), _subject(action), lambda: self._guarded(action)) or 0

    async def _guarded(self, action: Action) -> int:
        """Do one action. Returns 1 where it must be tried again; what goes wrong is logged, and stops no other one."""
        if self.closed or (isinstance(action, Start) and action.profile.uid in self._held):
            return 0
        try:
            await self._one(action)
        except StillReading as reason:
            _log.debug("%s: %s", _subject(action), reason)
            return 0
        except NotCreated as refusal:
            _log.warning("%s: the %s is refused: %s", _subject(action), refusal.stage, refusal)
            return 0
        except Requeue as reason:
            _log.info("%s: later: %s", _subject(action), reason)
            return 1
        except ApiError as error:
            _log.warning("%s: %s", _subject(action), error)
            return 1
        except Exception as error:
            # One hostile object must not end the operator: the others go on, this one is tried again later.
            _log.exception("%s: unexpected", _subject(action))
            if isinstance(action, Start):
                self._refused(action, Answer(f"the operator itself: {type(error).__name__}: {error}"), "Job")
            return 1
        _log.info("%s: %s: %s", _subject(action), action.reason, action.message)
        return 0

    async def _one(self, action: Action) -> None:
        match action:
            case Start():
                await self._start(action)
            case Withdraw():
                await self._withdraw(action)
            case Adopt():
                await self._adopt(action)
            case Collect():
                await self._collect(action)
            case Close():
                if isinstance(action, GiveWay) and action.record is not None:
                    self._gave_way(action.record)
                await self._close(action)
            case Drop():
                await self._delete(action.kind, action.namespace, action.name, action.uid)
            case MarkStale() | MarkFresh():
                status = ingest.marked_status(action, self._now())
                await self._write_status(action.report, status)

    async def settled(self) -> None:
        """Returns when all that was begun has its answer."""
        await self.creations.settled()
        await self.writes.settled()

    def end(self) -> None:
        """Read and await nothing any more; what has been read and not written is read again by who leads next."""
        self._collector.end()
        self.creations.end()
        self.writes.end()

    async def confirm_creates(self) -> None:
        """Find out what became of creations without an answer. Raises ApiError while that can't be told."""
        for name, unanswered in list(self.unconfirmed.items()):
            start = unanswered.start
            try:
                raw = await self._cluster.get(paths.item(paths.jobs(start.profile.namespace), name))
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                # Without the right to look it can't be told: the name keeps a second one from being made.
                self._refused(start, _answer(unanswered.error if error.status == 404 else error), "Job")
            else:
                self._created(start, raw)
            del self.unconfirmed[name]

    async def _start(self, start: Start) -> None:
        """Create what the attempt needs. Raises NotCreated where the cluster said no: that is remembered."""
        stage: Stage = "report"
        try:
            if start.report is not None:
                await self._create_report(dict(start.report))
            if start.template is not None:
                stage = "ResourceClaimTemplate"
                await self._create_template(dict(start.template))
            stage = "Job"
            raw = await self._create_job(start)
        except Requeue as reason:
            answer = Answer(str(reason), 409, "NameTaken")
        except ApiError as error:
            answer = _answer(error)
        else:
            self._created(start, raw)
            return
        if start.job["metadata"]["name"] in self.unconfirmed:
            raise Requeue(f"whether its Job was created isn't known: {answer.words}")
        self._refused(start, answer, stage)
        raise NotCreated(answer, stage)

    async def _create_job(self, start: Start) -> dict[str, Any]:
        """The Job, also where it was there already. Raises ApiError; Requeue where another one has its name."""
        collection, name = paths.jobs(start.profile.namespace), start.job["metadata"]["name"]
        try:
            return await self._cluster.create(collection, dict(start.job))
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                return await self._ours(start, collection, name)
            if (error.status in (0, 408) or error.status >= 500) and classify(_answer(error)) == "CreationFailed":
                self.unconfirmed[name] = Unanswered(start, error)
            raise

    async def _create_template(self, body: dict[str, Any]) -> None:
        """The template of the agent's claim; one that is there is as good if it asks for the same.

        Raises ApiError; Requeue where another one has its name, or it is being deleted.
        """
        meta = body["metadata"]
        collection = paths.collection(body["apiVersion"], "resourceclaimtemplates", meta["namespace"])
        if (meta["namespace"], meta["name"]) in self._templates:
            return
        try:
            await self._cluster.create(collection, body)
        except ApiError as error:
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
            there = await self._cluster.get(paths.item(collection, meta["name"]))
            if there["metadata"].get("deletionTimestamp") or there.get("spec") != body["spec"]:
                raise Requeue(f"another ResourceClaimTemplate of the name {meta['name']} is still there") from error
        self._templates.add((meta["namespace"], meta["name"]))

    def _created(self, start: Start, raw: dict[str, Any]) -> None:
        self._cache.put("jobs", raw)
        key = (start.profile.uid, start.facts.uid)
        self._refusals.accepted_job(key, raw["metadata"]["uid"], self._cache.all("jobs"))

    def _refused(self, start: Start, answer: Answer, stage: Stage) -> None:
        """Remember the answer; the next candidate's turn comes at once."""
        agents = agents_of(self._cache.all("jobs"), start.profile.uid)
        if self._refusals.refused((start.profile.uid, start.facts.uid), answer, stage, start.mark, agents):
            self._held.add(start.profile.uid)
        self.refused = True
        self._cache.changed.set()

    async def _withdraw(self, action: Withdraw) -> None:
        job = action.job
        await self._delete("Job", job.namespace, job.name, job.uid)
        agents = agents_of(self._cache.all("pods"), job.profile_uid)
        if (
            action.stage == "ResourceClaim"
        ):  # its own pod is there, without a claim; somebody may have taken the template
            agents = max(0, agents - 1)
            self._templates.clear()
        answer = Answer(job.creation_problem)
        self._refusals.withdrawn(job.uid)
        self._refusals.refused((job.profile_uid, job.node_uid), answer, action.stage, action.mark, agents)
        self.refused = True
        self._cache.changed.set()

    async def _adopt(self, action: Adopt) -> None:
        """The profile becomes the owner, if the report is still the one that was read."""
        report, profile = action.report, action.profile
        path = paths.item(paths.reports(report.namespace), report.name)
        changes = {
            "/metadata/ownerReferences": [owner(profile.name, profile.uid)],
            f"/metadata/labels/{names.LABEL_PROFILE_UID.replace('/', '~1')}": profile.uid,
        }
        patch = patch_of(report.uid, report.version, changes)
        self._cache.put("reports", await self._cluster.patch(path, patch, "json"))

    async def _ours(self, start: Start, collection: str, name: str) -> dict[str, Any]:
        """The Job of that name, if it is this very attempt: then somebody (we, before a crash) has created it."""
        raw = await self._cluster.get(paths.item(collection, name))
        view = job_view(raw)
        wanted = start.job["metadata"]["labels"]
        same = view is not None and raw["metadata"].get("labels", {}).items() >= wanted.items()
        if not same or raw["metadata"].get("deletionTimestamp"):
            raise Requeue(f"another Job of the name {name} is still there")
        return raw

    async def _create_report(self, body: dict[str, Any]) -> ReportView:
        collection = paths.reports(body["metadata"]["namespace"])
        try:
            raw = await self._cluster.create(collection, body)
        except ApiError as error:
            if error.status != 409:
                raise
            raw = await self._cluster.get(paths.item(collection, body["metadata"]["name"]))
        view = report_view(raw)
        owner = body["metadata"]["ownerReferences"][0]
        if view is None or raw["metadata"].get("deletionTimestamp"):
            raise Requeue(f"the older report {body['metadata']['name']} is still being deleted")
        if (labels := raw["metadata"].get("labels") or {}).get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
            patch = patch_of(view.uid, view.version, {"/metadata/labels": {**labels, **body["metadata"]["labels"]}})
            self._cache.put("reports", await self._cluster.patch(paths.item(collection, view.name), patch, "json"))
            raise Requeue(f"the report {view.name} had lost its label: what it tells counts again")
        if not view.profile_uid:
            self._cache.put("reports", raw)
            raise Requeue(f"the report {view.name} has no owner: it is adopted first")
        if view.profile_uid != owner["uid"]:
            return await self._replace_report(view, body)
        self._cache.put("reports", raw)
        return view

    async def _replace_report(self, old: ReportView, body: dict[str, Any]) -> ReportView:
        """A new report in the place of one whose profile is gone, as the garbage collector would have made room."""
        meta = body["metadata"]
        owner = meta["ownerReferences"][0]
        profile = await self._cluster.get(paths.item(paths.profiles(old.namespace), owner["name"]))
        if profile["metadata"]["uid"] != owner["uid"]:
            raise Requeue(f"profile {owner['name']} has been replaced")
        await self._delete("NodePrecisionReport", old.namespace, old.name, old.uid)
        raw = await self._cluster.create(paths.reports(old.namespace), body)
        view = report_view(raw)
        assert view is not None
        self._cache.put("reports", raw)
        return view

    async def _collect(self, action: Collect) -> None:
        job, left = action.job, self._collector.take(action)
        found = left.found
        if isinstance(found, ingest.NoResult):
            await self._fail(job, action.report, found, action.keeping, left.log)
            return
        report = action.report or await self._new_report(job)
        found = await self._with_detail(found, job, report)
        place = ingest.Place(action.pool, action.nvlink_domain, action.by_claim)
        status = ingest.read_status(found, job, report, place, self._now(), action.keeping)
        try:
            await self._write_status(report, status)
        except ApiError as error:
            if not error.refuses_fields:
                raise
            why = f"the API server's CRD of NodePrecisionReports refuses the result: {cleaned(error.words)}"
            problem = ingest.NoResult("ResultNewer", sentence("ResultNewer", detail=why))
            await self._fail(job, report, problem, action.keeping)
            return
        await self._delete("Job", job.namespace, job.name, job.uid)

    async def _close(self, action: Close) -> None:
        """End an attempt; an agent that runs past its time goes with the end of its log, which may tell more."""
        problem, log = ingest.NoResult(action.reason, action.message, action.outcome), None
        if action.pod is not None:
            left = self._collector.take(action)
            assert isinstance(left.found, ingest.NoResult)
            problem, log = left.found, left.log
        await self._fail(action.job, action.report, problem, action.keeping, log)

    async def _with_detail(self, found: ingest.Finding, job: JobView, report: ReportView) -> ingest.Finding:
        """The finding, its full result written; marked where the cluster refuses that: the summary stands alone then.

        Raises ApiError while the trouble may pass.
        """
        if found.result is None:
            return found
        try:
            await self._write_detail(report, found.result)
        except ApiError as error:
            if (error.transient or error.status == 409) and self._just_ended(job):
                raise
            return ingest.without_detail(found, cleaned(error.words))
        return found

    def _just_ended(self, job: JobView) -> bool:
        return job.finished_at is not None and self._now() - job.finished_at < LOG_PATIENCE

    async def _fail(
        self,
        job: JobView,
        report: ReportView | None,
        problem: ingest.NoResult,
        keeping: Keeping,
        log: str | None = None,
    ) -> None:
        report = report or await self._new_report(job)
        await self._write_status(report, ingest.failed_status(problem, job, report, self._now(), keeping, log))
        await self._delete("Job", job.namespace, job.name, job.uid)

    async def _new_report(self, job: JobView) -> ReportView:
        body = manifest.report(job.namespace, job.profile, job.profile_uid, job.node_name, job.node_uid)
        return await self._create_report(body)

    async def _write_status(self, report: ReportView, status: ReportStatus) -> None:
        path = paths.item(paths.reports(report.namespace), report.name, "status")
        patch = whole_status(report.uid, report.version, ingest.report_json(status))
        try:
            raw = await self._cluster.patch(path, patch, "json")
        except ApiError as error:
            if error.status == 422 and not error.refuses_fields:
                raise Requeue(f"the report has changed since it was read: {error.message}") from error
            raise
        self._cache.put("reports", raw)

    async def _write_detail(self, report: ReportView, result: MeasurementResult) -> None:
        body = ingest.detail(report, await asyncio.to_thread(_packed, result))
        collection = paths.config_maps(report.namespace)
        try:
            await self._cluster.create(collection, body)
        except ApiError as error:
            if error.status != 409 or error.reason == "Conflict":
                raise
            await self._replace_detail(report, paths.item(collection, body["metadata"]["name"]), body["binaryData"])

    async def _replace_detail(self, report: ReportView, path: str, data: dict[str, str]) -> None:
        """Write into the ConfigMap that is there, if it is this report's, and nobody writes it meanwhile.

        So a request of a leader that was stopped, and that lands after its successor has written, changes nothing.
        """
        there = (await self._cluster.get(path))["metadata"]
        if report.uid not in {owner.get("uid") for owner in there.get("ownerReferences") or ()}:
            raise ApiError(409, "Conflict", f"{path} is there, and belongs to another report")
        guard = {"uid": there["uid"], "resourceVersion": there["resourceVersion"]}
        await self._cluster.patch(path, {"metadata": guard, "binaryData": data}, "merge")

    async def _delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete that very object; gone, or another of the same name, is as good."""
        collection = paths.jobs(namespace) if kind == "Job" else paths.reports(namespace)
        try:
            raw = await self._cluster.delete(paths.item(collection, name), uid=uid)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            raw = {}
        if (raw.get("metadata") or {}).get("deletionTimestamp"):
            self._cache.put("jobs" if kind == "Job" else "reports", raw)
        else:
            self._cache.drop("jobs" if kind == "Job" else "reports", uid)

    async def write_profile_status(self, profile: ProfileView, status: dict[str, Any]) -> None:
        """The status of a profile, whole. Raises ApiError."""
        path = paths.item(paths.profiles(profile.namespace), profile.name, "status")
        raw = await self._cluster.patch(path, whole_status(profile.uid, profile.version, status), "json")
        self._cache.put("profiles", raw)

    async def tell(self, profile: ProfileView, notes: Sequence[Note]) -> None:
        """Write events; one that is there already is counted. An event that fails is logged: it decides nothing."""
        for note in notes:
            try:
                await write_event(self._cluster, event(profile, note, self._now()))
            except ApiError as error:
                _log.warning("event %s of %s: %s", note.reason, profile.key, error)


def _written_by(action: Action) -> tuple[str, str]:
    """UID and namespace of what an action is about: no two are done to it at one time."""
    match action:
        case Collect() | Close() | Withdraw():
            return action.job.uid, action.job.namespace
        case Drop():
            return action.uid, action.namespace
        case Adopt() | MarkStale() | MarkFresh():
            return action.report.uid, action.report.namespace
        case Start():
            return action.facts.uid, action.profile.namespace


def _is_read_for(action: Action) -> TypeGuard[Collect | Close]:
    """Whether the log of its agent is read before it is done."""
    return isinstance(action, Collect) or (isinstance(action, Close) and action.pod is not None)


def _packed(result: MeasurementResult) -> bytes:
    """The full result as it is kept: canonical JSON, gzipped."""
    return gzip.compress(canonical(result.model_dump(mode="json", by_alias=True, exclude_none=True)).encode(), mtime=0)


def _answer(error: ApiError) -> Answer:
    return Answer(error.words, error.status, error.reason, error.causes)


def _subject(action: Action) -> str:
    match action:
        case Start():
            return f"start {action.facts.name} for {action.profile.key}"
        case Collect() | Close():
            verb = "collect" if isinstance(action, Collect) else "close"
            return f"{verb} {action.job.node_name} for {action.job.namespace}/{action.job.profile}"
        case Withdraw():
            return f"withdraw {action.job.node_name} for {action.job.namespace}/{action.job.profile}"
        case Adopt():
            return f"adopt {action.report.namespace}/{action.report.name}"
        case Drop():
            return f"delete {action.kind} {action.namespace}/{action.name}"
        case MarkStale() | MarkFresh():
            return f"mark {action.report.namespace}/{action.report.name}"
