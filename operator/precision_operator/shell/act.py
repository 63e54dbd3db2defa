"""Does what a plan says, each action so that doing it twice does no harm: deterministic names, UID preconditions."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from precision_api.report import ReportStatus
from precision_api.request import canonical
from precision_api.result import MeasurementResult
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.observed import JobView, ProfileView, ReportView
from precision_operator.core.observe.views import job_view, report_view
from precision_operator.core.results import ingest
from precision_operator.core.rollout import manifest
from precision_operator.core.rollout.actions import Action, Close, Collect, Drop, Keeping, MarkFresh, MarkStale, Start
from precision_operator.core.status.events import Note, event
from precision_operator.shell.cache import Cache
from precision_operator.shell.collecting import Collector, Requeue, StillReading

_log = logging.getLogger(__name__)

ACTIONS_AT_ONCE = 8


class Actor:
    """Writes to the cluster; what the API server answers goes into the cache, so that no watch can lag behind it."""

    def __init__(self, cluster: Cluster, cache: Cache) -> None:
        self._cluster = cluster
        self._cache = cache
        self.unconfirmed: dict[str, Start] = {}
        """Creations without an answer, by Job name: they may have happened. Cleared by `confirm_creates`."""
        self._collector = Collector(cluster, cache.changed.set)
        self.closed = False
        """No further action begins; those in flight end as they would have."""

    async def act(self, actions: Sequence[Action]) -> int:
        """Do all actions, what ends before what begins. Returns how many must be tried again.

        What is still being read of a finished agent is none of them: its end wakes the loop.
        """
        if not self.closed:
            await self._collector.read([action for action in actions if isinstance(action, Collect)])
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
                except StillReading as reason:
                    _log.debug("%s: %s", _subject(action), reason)
                    return 0
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

    def end(self) -> None:
        """Read nothing any more; what has been read and not written is read again by who leads next."""
        self._collector.end()

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
        job, left = action.job, self._collector.take(action.job)
        found = left.found
        if isinstance(found, ingest.NoResult):
            await self._fail(job, action.report, found, action.keeping, left.log)
            return
        report = action.report or await self._new_report(job)
        if found.result is not None:
            await self._write_detail(report, found.result)
        status = ingest.read_status(found, job, report, action.pool, _now(), action.keeping, action.nvlink_domain)
        await self._write_status(report, status)
        await self._delete("Job", job.namespace, job.name, job.uid)

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
