"""Writes the reports of nodes and their full results, each if it is still the one that was read."""

import asyncio
import base64
import gzip
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from precision_api.acceptance.reference import Reference
from precision_api.exchange.request import canonical, digest
from precision_api.exchange.result import MeasurementResult
from precision_api.facts import names
from precision_api.kinds.report import ReportRun, ReportStatus
from precision_operator.cluster import ApiError, Cluster, get_or_none, paths
from precision_operator.core.attempts import manifest
from precision_operator.core.attempts.actions import Adopt
from precision_operator.core.attempts.manifest import owner
from precision_operator.core.attempts.refusal import cleaned
from precision_operator.core.observe.kept_report import whole
from precision_operator.core.observe.observed import JobView, ReportView
from precision_operator.core.observe.views import report_view
from precision_operator.core.results import ingest
from precision_operator.shell.acting.collecting import LOG_PATIENCE, Requeue
from precision_operator.shell.acting.late_writes import delete
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.patches import patch_of

_log = logging.getLogger(__name__)
ROW_CHARACTERS, MOST_ROWS, MOST_MAPS = 4096, 4096, 16
"""Of a node's first Pass (16 GPUs); rows kept of a ConfigMap; ConfigMaps kept in a pass."""
DIGITS = 24  # of a full result's SHA-256, in its report


class Reports:
    """Writes NodePrecisionReports and the ConfigMaps of their full results; what is answered goes into the cache."""

    def __init__(
        self, cluster: Cluster, cache: Cache, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._now = clock
        self._reading = asyncio.Lock()
        self._first_passes: dict[str, list[str]] = {}

    async def adopt(self, action: Adopt) -> None:
        """The profile becomes the owner, if the report is still the one that was read."""
        report, profile = action.report, action.profile
        path = paths.item(paths.reports(report.namespace), report.name)
        changes = {
            "/metadata/ownerReferences": [owner(profile.name, profile.uid)],
            f"/metadata/labels/{names.LABEL_PROFILE_UID.replace('/', '~1')}": profile.uid,
        }
        patch = patch_of(report.uid, report.version, changes)
        self._cache.put("reports", await self._cluster.patch(path, patch, "json"))

    async def create(self, body: dict[str, Any]) -> ReportView:
        """The report of a node, new or the one that is there.

        Raises ApiError; Requeue where the one that is there is not yet ours.
        """
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
            return await self._replace(view, body)
        self._cache.put("reports", raw)
        return view

    async def of_job(self, job: JobView, report: ReportView | None) -> ReportView:
        """The report of a Job's node with its whole status, as `read` or `create` gives it."""
        if report is not None:
            return await self.read(report)
        body = manifest.report(job.namespace, job.profile, job.profile_uid, job.node_name, job.node_uid)
        return await self.create(body)

    async def read(self, report: ReportView) -> ReportView:
        """The report with its whole status, of which a part is kept. Raises ApiError; Requeue as `write_status`."""
        if whole(report.status) == ReportStatus():  # nothing has been written yet
            return replace(report, status=None)
        view = report_view(await self._cluster.get(paths.item(paths.reports(report.namespace), report.name)))
        if view is None or (view.uid, view.version) != (report.uid, report.version):
            raise Requeue("the report has changed since it was read")
        return view

    async def write_status(self, report: ReportView, status: ReportStatus, *parts: str) -> None:
        """The status of a report, whole or these parts. Raises ApiError; Requeue where it has changed since."""
        path = paths.item(paths.reports(report.namespace), report.name, "status")
        written = ingest.report_json(status)
        changes = {f"/status/{part}": written[part] for part in parts} if parts else {"/status": written}
        try:
            raw = await self._cluster.patch(path, patch_of(report.uid, report.version, changes), "json")
        except ApiError as error:
            if error.status == 422 and not error.refuses_fields:
                raise Requeue(f"the report has changed since it was read: {error.message}") from error
            raise
        self._cache.put("reports", raw)

    async def with_detail(self, finding: ingest.Finding, job: JobView, report: ReportView) -> ingest.Finding:
        """The finding, its full result written; marked where the cluster refuses that: the summary stands alone then.

        Raises ApiError while the trouble may pass.
        """
        if finding.result is None:
            return finding
        packed = await asyncio.to_thread(_packed, finding.result)
        try:
            await self._write_detail(report, packed)
        except ApiError as error:
            just_ended = job.finished_at is not None and self._now() - job.finished_at < LOG_PATIENCE
            if (error.transient or error.status == 409) and just_ended:
                raise
            return ingest.without_detail(finding, cleaned(error.words))
        return replace(finding, detail_sha256=hashlib.sha256(packed).hexdigest()[:DIGITS])

    async def result(self, report: ReportView, run: ReportRun) -> MeasurementResult | None:
        """The full result as it was written; None where it is not there any more, or not that one. Raises ApiError."""
        raw = await get_or_none(self._cluster, paths.item(paths.config_maps(report.namespace), run.detail or "none"))
        text = ((raw or {}).get("binaryData") or {}).get("result.json.gz") or ""
        with suppress(ValueError):
            packed = base64.b64decode(text, validate=True)
            if run.detail_sha256 and hashlib.sha256(packed).hexdigest()[:DIGITS] == run.detail_sha256:
                return MeasurementResult.model_validate_json(await asyncio.to_thread(gzip.decompress, packed))
        return None

    async def baselines(self, namespace: str, reference: Reference | None) -> Sequence[str]:
        """First Passes under the reference's key as `first_passes` gives them, the oldest first. Raises ApiError."""
        if reference is None:
            return ()
        path = _baselines(namespace, reference)
        async with self._reading:  # one megabyte at a time, once for all that wait for it
            if path not in self._first_passes:
                self._take_in(path, await get_or_none(self._cluster, path))
            return self._first_passes[path]

    def begin_pass(self) -> None:
        """First Passes are read anew."""
        self._first_passes.clear()

    def _take_in(self, path: str, raw: Mapping[str, Any] | None) -> None:
        """Keep what may be rows of a ConfigMap that anybody may write."""
        data = ((raw or {}).get("data") or {}).items()
        rows = [row for row in data if '"gpus"' in row[1] and len(row[1]) <= ROW_CHARACTERS and row[1].isascii()]
        self._first_passes[path] = [text for _, text in sorted(rows)[:MOST_ROWS]]
        if len(self._first_passes) > MOST_MAPS:
            del self._first_passes[next(iter(self._first_passes))]

    async def keep_baselines(self, namespace: str, reference: Reference, new: Mapping[str, Any]) -> None:
        """Add first Passes: nobody deletes them, so that they outlive the Node object. Raises ApiError if it may do."""
        path, data = _baselines(namespace, reference), {run: canonical(rates) for run, rates in new.items()}
        meta = {"name": path.rpartition("/")[2], "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        try:
            if self._first_passes.get(path) or await get_or_none(self._cluster, path) is not None:
                raw = await self._cluster.patch(path, {"data": data}, "merge")
            else:
                raw = await self._cluster.create(paths.config_maps(namespace), body)
            self._take_in(path, raw)
        except ApiError as error:
            if error.status == 409:
                raise Requeue(f"{path} has just been made") from error
            if error.transient:
                raise
            _log.warning("%s: %s", path, error)  # full, or forbidden: the GPUs go on without a check of change

    async def _replace(self, old: ReportView, body: dict[str, Any]) -> ReportView:
        """A new report in the place of one whose profile is gone, as the garbage collector would have made room."""
        meta = body["metadata"]
        owner = meta["ownerReferences"][0]
        profile = await self._cluster.get(paths.item(paths.profiles(old.namespace), owner["name"]))
        if profile["metadata"]["uid"] != owner["uid"]:
            raise Requeue(f"profile {owner['name']} has been replaced")
        await delete(self._cluster, self._cache, "NodePrecisionReport", old.namespace, old.name, old.uid)
        raw = await self._cluster.create(paths.reports(old.namespace), body)
        view = report_view(raw)
        assert view is not None
        self._cache.put("reports", raw)
        return view

    async def _write_detail(self, report: ReportView, packed: bytes) -> None:
        body = ingest.detail(report, packed)
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


def _baselines(namespace: str, reference: Reference) -> str:
    """Where the ConfigMap with first Passes is: one for each namespace, and key that results must share."""
    return paths.item(paths.config_maps(namespace), f"precision-baseline-{digest(reference.key, 10)}")


def _packed(result: MeasurementResult) -> bytes:
    """The full result as it is kept: canonical JSON, gzipped."""
    return gzip.compress(canonical(result.model_dump(mode="json", by_alias=True, exclude_none=True)).encode(), mtime=0)
