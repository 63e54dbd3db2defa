"""Does what a plan says, each action so that doing it twice does no harm: deterministic names, UID preconditions."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from precision_api import names
from precision_api.report import ReportStatus
from precision_api.request import canonical
from precision_api.result import MeasurementResult, Summary
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.observed import JobView, PodView, ProfileView, ReportView
from precision_operator.core.observe.views import job_view, pod_view, report_view
from precision_operator.core.results import ingest
from precision_operator.core.results.log_tail import LOG_BYTES, LOG_LINES, log_tail, no_log
from precision_operator.core.rollout import manifest
from precision_operator.core.rollout.actions import Action, Close, Collect, Drop, Keeping, MarkFresh, MarkStale, Start
from precision_operator.core.status.events import Note, event
from precision_operator.shell.cache import Cache

_log = logging.getLogger(__name__)

ACTIONS_AT_ONCE = 8
LOG_PATIENCE = timedelta(seconds=60)
"""How long a log that can't be read is asked for again before the attempt is told without it."""
EXTRA_LOG_LINES = 200
"""Lines asked for beyond the result's own: stderr shares the log, and a runtime counts pieces of long lines."""


class Requeue(Exception):
    """An action that will work later; the message says what it waits for."""


class Actor:
    """Writes to the cluster; what the API server answers goes into the cache, so that no watch can lag behind it."""

    def __init__(self, cluster: Cluster, cache: Cache) -> None:
        self._cluster = cluster
        self._cache = cache
        self.unconfirmed: dict[str, Start] = {}
        """Creations without an answer, by Job name: they may have happened. Cleared by `confirm_creates`."""
        self.closed = False
        """No further action begins; those in flight end as they would have."""

    async def act(self, actions: Sequence[Action]) -> int:
        """Do all actions, what ends before what begins. Returns how many must be tried again."""
        ending = [a for a in actions if not isinstance(a, Start)]
        starting = [a for a in actions if isinstance(a, Start)]
        return await self._all(ending) + await self._all(starting)

    async def _all(self, actions: Sequence[Action]) -> int:
        limit = asyncio.Semaphore(ACTIONS_AT_ONCE)

        async def guarded(action: Action) -> int:
            async with limit:
                if self.closed:
                    return 0
                try:
                    await self._one(action)
                except Requeue as reason:
                    _log.info("%s: later: %s", _subject(action), reason)
                    return 1
                except ApiError as error:
                    _log.warning("%s: %s", _subject(action), error)
                    return 1
                except Exception:
                    # One hostile object must not end the operator: the others go on, this one is tried again later.
                    _log.exception("%s: unexpected", _subject(action))
                    return 1
            _log.info("%s: %s: %s", _subject(action), action.reason, action.message)
            return 0

        return sum(await asyncio.gather(*(guarded(action) for action in actions)))

    async def _one(self, action: Action) -> None:
        match action:
            case Start():
                await self._start(action)
            case Collect():
                await self._collect(action)
            case Close():
                problem = ingest.NoResult(action.reason, action.message, action.outcome)
                await self._fail(action.job, action.report, problem, action.keeping)
            case Drop():
                await self._delete(action.kind, action.namespace, action.name, action.uid)
            case MarkStale() | MarkFresh():
                status = ingest.marked_status(action, _now())
                await self._write_status(action.report, status)

    async def confirm_creates(self) -> None:
        """Find out what became of creations without an answer. Raises ApiError while that can't be told."""
        for name, start in list(self.unconfirmed.items()):
            try:
                raw = await self._cluster.get(paths.item(paths.jobs(start.profile.namespace), name))
            except ApiError as error:
                if error.status != 404:
                    raise
            else:
                self._cache.put("jobs", raw)
            del self.unconfirmed[name]

    async def _start(self, start: Start) -> None:
        if start.report is not None:
            await self._create_report(dict(start.report))
        collection = paths.jobs(start.profile.namespace)
        name = start.job["metadata"]["name"]
        try:
            raw = await self._cluster.create(collection, dict(start.job))
        except ApiError as error:
            if error.status == 409:
                raw = await self._ours(start, collection, name)
            elif error.status in (0, 408) or error.status >= 500:
                self.unconfirmed[name] = start
                raise
            else:
                raise
        self._cache.put("jobs", raw)

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
        owner = body["metadata"]["ownerReferences"][0]["uid"]
        if view is None or view.profile_uid != owner or raw["metadata"].get("deletionTimestamp"):
            raise Requeue(f"an older report {body['metadata']['name']} is still being deleted")
        self._cache.put("reports", raw)
        return view

    async def _collect(self, action: Collect) -> None:
        job = action.job
        pod = await self._ended_pod(job, action.pod)
        summary = ingest.summary_of(job, pod)
        if isinstance(summary, ingest.NoResult):
            log = await self._end_of_log(job, pod) if summary.outcome == "failed" else None
            await self._fail(job, action.report, summary, action.keeping, log)
            return
        assert pod is not None
        found = await self._full_result(job, pod, summary)
        report = action.report or await self._new_report(job)
        if found.result is not None:
            await self._write_detail(report, found.result)
        status = ingest.read_status(found, job, report, action.pool, _now(), action.keeping, action.nvlink_domain)
        await self._write_status(report, status)
        await self._delete("Job", job.namespace, job.name, job.uid)

    async def _ended_pod(self, job: JobView, pod: PodView | None) -> PodView | None:
        """The pod as it is now: the watch may show its Job finished before it shows the pod's own end."""
        if pod is not None and not pod.live:
            return pod
        chosen = f"batch.kubernetes.io/job-name={job.name}"
        items, _ = await self._cluster.list_all(paths.pods(job.namespace), chosen)
        views = [view for raw in items if (view := pod_view(raw)) is not None and view.job_uid == job.uid]
        ended = next((view for view in views if not view.live), None)
        if ended is None and views:
            raise Requeue("its pod has not ended yet")
        return ended or (pod if pod is not None and pod.termination else None)

    async def _full_result(self, job: JobView, pod: PodView, summary: Summary) -> ingest.Finding:
        lines = summary.detail.lines + EXTRA_LOG_LINES
        try:
            log = await self._log(job, pod, tail_lines=lines)
        except ApiError as error:
            return ingest.finding(summary, None, error.message)
        return ingest.finding(summary, log.decode("utf-8", "replace"))

    async def _end_of_log(self, job: JobView, pod: PodView | None) -> str | None:
        """The end of a failed agent's log, or in its place why it can't be read; None where no agent ran to its end."""
        if pod is None or pod.termination is None:
            return None
        try:
            return log_tail(await self._log(job, pod, tail_lines=LOG_LINES, limit_bytes=LOG_BYTES))
        except ApiError as error:
            return no_log(error.message)

    async def _log(self, job: JobView, pod: PodView, **bounds: int) -> bytes:
        """The log of an ended agent. Raises ApiError; NotYet while the Job ended just now and the trouble may pass."""
        try:
            return await self._cluster.read_log(pod.namespace, pod.name, names.AGENT_CONTAINER, **bounds)
        except ApiError as error:
            if error.transient and job.finished_at is not None and _now() - job.finished_at < LOG_PATIENCE:
                raise Requeue(f"its log can't be read: {error}") from error
            raise

    async def _fail(
        self,
        job: JobView,
        report: ReportView | None,
        problem: ingest.NoResult,
        keeping: Keeping,
        log: str | None = None,
    ) -> None:
        report = report or await self._new_report(job)
        await self._write_status(report, ingest.failed_status(problem, job, report, _now(), keeping, log))
        await self._delete("Job", job.namespace, job.name, job.uid)

    async def _new_report(self, job: JobView) -> ReportView:
        body = manifest.report(job.namespace, job.profile, job.profile_uid, job.node_name, job.node_uid)
        return await self._create_report(body)

    async def _write_status(self, report: ReportView, status: ReportStatus) -> None:
        path = paths.item(paths.reports(report.namespace), report.name, "status")
        patch = _whole_status(report.uid, report.version, ingest.report_json(status))
        try:
            raw = await self._cluster.patch(path, patch, "json")
        except ApiError as error:
            if error.status == 422:
                raise Requeue(f"the report has changed since it was read: {error.message}") from error
            raise
        self._cache.put("reports", raw)

    async def _write_detail(self, report: ReportView, result: MeasurementResult) -> None:
        text = canonical(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        body = ingest.detail(report, gzip.compress(text.encode(), mtime=0))
        collection = paths.config_maps(report.namespace)
        try:
            await self._cluster.create(collection, body)
        except ApiError as error:
            if error.status != 409:
                raise
            path = paths.item(collection, body["metadata"]["name"])
            await self._cluster.patch(path, {"binaryData": body["binaryData"]}, "merge")

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
        raw = await self._cluster.patch(path, _whole_status(profile.uid, profile.version, status), "json")
        self._cache.put("profiles", raw)

    async def tell(self, profile: ProfileView, notes: Sequence[Note]) -> None:
        """Write events; one that is there already is counted. An event that fails is logged: it decides nothing."""
        collection = paths.collection("v1", "events", profile.namespace)
        for note in notes:
            body = event(profile, note, _now())
            try:
                await self._count(collection, body)
            except ApiError as error:
                _log.warning("event %s of %s: %s", note.reason, profile.key, error)

    async def _count(self, collection: str, body: dict[str, Any]) -> None:
        try:
            await self._cluster.create(collection, body)
        except ApiError as error:
            if error.status != 409:
                raise
            await self._cluster.patch(
                paths.item(collection, body["metadata"]["name"]), {"lastTimestamp": body["lastTimestamp"]}, "merge"
            )


def _whole_status(uid: str, version: str, status: dict[str, Any]) -> list[dict[str, Any]]:
    """A patch that replaces the status, if the object is still the one that was read.

    So a request of a leader that was stopped, and that lands after its successor has written, changes nothing.
    """
    tests = {"/metadata/uid": uid} | ({"/metadata/resourceVersion": version} if version else {})
    return [
        *({"op": "test", "path": path, "value": value} for path, value in tests.items()),
        {"op": "add", "path": "/status", "value": status},
    ]


def _subject(action: Action) -> str:
    match action:
        case Start():
            return f"start {action.facts.name} for {action.profile.key}"
        case Collect() | Close():
            verb = "collect" if isinstance(action, Collect) else "close"
            return f"{verb} {action.job.node_name} for {action.job.namespace}/{action.job.profile}"
        case Drop():
            return f"delete {action.kind} {action.namespace}/{action.name}"
        case MarkStale() | MarkFresh():
            return f"mark {action.report.namespace}/{action.report.name}"


def _now() -> datetime:
    return datetime.now(UTC)
