"""From how an attempt ended to the status of its node's report, and to the ConfigMap of its full result.

What a report keeps of the runs before its newest one is enough to compare with them, and small enough for any number.
"""

import base64
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from precision_api.exchange.message import Summary
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.summary import restored
from precision_api.exchange.wire import WireError, agree, read_log
from precision_api.facts import names
from precision_api.facts.json_text import first_wrong
from precision_api.facts.schema import StatusDocument, decimal
from precision_api.kinds.report import (
    Quarantine,
    ReportAttempt,
    ReportHardware,
    ReportPast,
    ReportRecommendation,
    ReportSoftware,
    ReportStatus,
)
from precision_operator.core.attempts.actions import DEFAULT_KEEPING, Keeping, MarkFresh, MarkStale
from precision_operator.core.attempts.retry import QUARANTINE_LOSSES, QUARANTINE_RUNS, disruptions, node_losses, spent
from precision_operator.core.conditions import condition
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.kept_report import whole
from precision_operator.core.observe.observed import JobView, ReportView
from precision_operator.core.reasons import REASONS, said
from precision_operator.core.results.acceptance import unasked
from precision_operator.core.results.endings import NoResult
from precision_operator.core.results.reading import best_row, provenance_of, read, read_rows
from precision_operator.core.results.rows import DIGITS, recipe_report, report_run

MESSAGE_LIMIT = 512
CONDITION_LIMIT = 128
"""Characters of a problem that a report keeps, in its attempt and once more in its condition: a report stays small."""
AS_REPORTED = 12
"""Digits that write a report's figure as it stood there."""


@dataclass(frozen=True)
class Place:
    """What the operator knows of the measured node beside what the agent says."""

    pool: str
    nvlink_domain: str | None = None
    by_claim: bool = False
    """Whether the agent got its GPUs by resource claim."""


@dataclass(frozen=True)
class Finding:
    """What an attempt gave: the summary, the full result, and why there is none or why it is not kept."""

    summary: Summary
    result: MeasurementResult | None
    detail_problem: str = ""
    detail_sha256: str = ""
    """Of what was written."""


def finding(summary: Summary, log: str | None, log_problem: str = "") -> Finding:
    """The full result from the log, held against its summary; without it the summary stands alone, marked so."""
    if log is None:
        return Finding(summary, None, _without_detail("LogUnavailable", log_problem))
    try:
        result = read_log(log, summary.detail, summary.request_hash)
        agree(summary, result)
    except WireError as error:
        code = DETAIL_CODES.get(error.code, "DetailUnreadable")
        return Finding(summary, None, _without_detail(code, error.message))
    return Finding(restored(summary, result), result)


def without_detail(finding: Finding, why: str = "spec.retention.detail is None") -> Finding:
    """The finding whose full result is not kept."""
    return replace(finding, detail_problem=_without_detail("DetailNotWritten", why))


DETAIL_CODES = {name: name for name, row in REASONS.items() if row.kind == "partial"} | {"ResultNewer": "DetailNewer"}
"""By the code of a full result that can't be read: the reason why a report has none."""


def _without_detail(code: str, detail: str) -> str:
    """A reason of kind `partial` with its sentence."""
    return f"{code}: {said(code, detail=detail).message}"


def read_status(
    finding: Finding,
    job: JobView,
    report: ReportView,
    place: Place | str,
    now: datetime,
    keeping: Keeping = DEFAULT_KEEPING,
) -> ReportStatus:
    """The report after a summary was read: succeeded, or failed when it holds what no report can (1e300 watts)."""
    try:
        hardware = _hardware(finding, place if isinstance(place, Place) else Place(place))
        return _succeeded_status(finding, job, report, hardware, now, keeping)
    except ValidationError as error:
        problem = NoResult(said("ResultDamaged", detail=first_wrong(error)))
        return failed_status(problem, job, report, now, keeping)


def _hardware(finding: Finding, place: Place) -> ReportHardware:
    summary = finding.summary
    return ReportHardware(
        product=summary.product,
        gpus=summary.gpus,
        gpus_by="claim" if place.by_claim else None,
        pool=place.pool[:253] or summary.product,
        nvlink_domain=place.nvlink_domain,
        limit_watts=finding.result.limit_watts if finding.result else None,
        slowest_gpu=summary.slowest_gpu,
        sensor_accuracy=summary.sensor_accuracy,
    )


def _succeeded_status(
    finding: Finding, job: JobView, report: ReportView, hardware: ReportHardware, now: datetime, keeping: Keeping
) -> ReportStatus:
    """Figures, versions, recommendation, conditions, and kubectl's columns."""
    summary = finding.summary
    results = tuple(recipe_report(recipe) for recipe in summary.recipes)
    best, ended = best_row(read_rows(results, summary.baseline).values()), _ended(job, now)
    title = best.title(summary.baseline, summary.timing) if best else None
    past = ReportPast(
        run=job.run,
        outcome="succeeded",
        finished_at=ended,
        best=title,
        tokens_per_second=decimal(best.tokens_per_second, DIGITS) if best else None,
        driver=job.driver or None,
    )
    state = "Partial" if summary.partial else "Measured"
    before = report.status.conditions if report.status else ()
    return ReportStatus(
        conditions=(
            condition(before, names.FRESH, True, "Measured", "", now),
            condition(before, names.SUCCEEDED, True, state, summary.partial or "", now),
        ),
        hardware=hardware,
        software=ReportSoftware.model_validate(summary.software.model_dump()),
        run=report_run(
            summary,
            ended,
            workload=job.workload or None,
            detail=names.detail_name(report.name) if finding.result and not finding.detail_problem else None,
            detail_problem=finding.detail_problem or None,
            detail_sha256=finding.detail_sha256 or None,
        ),
        attempt=_attempt(job, "succeeded", now, failures=_failures(job, report)),
        results=results,
        recommendation=ReportRecommendation.model_validate(summary.recommendation.model_dump()),
        history=remembered(report.status, past, keeping.retention.history),
        acceptance=report.status.acceptance if report.status else None,
        best=title,
        best_recipe=best.recipe if best else None,
        best_speedup=decimal(best.speedup, DIGITS) if best else None,
        teraflops_per_gpu=decimal(best.teraflops_per_gpu, 3) if best else None,
        tokens_per_joule=best.tokens_per_joule_text if best else None,
        data=provenance_of(summary),
        state=state,
    )


def failed_status(
    problem: NoResult,
    job: JobView,
    report: ReportView,
    now: datetime,
    keeping: Keeping = DEFAULT_KEEPING,
    log: str | None = None,
) -> ReportStatus:
    """The report after an attempt without a result: an older result stays, the attempt says why; `log`: its end.

    With the last retry the run has failed; a node that failed run after run is quarantined.
    """
    before = report.status or ReportStatus()
    failures = _failures(job, report) + (problem.outcome == "failed")
    attempt_fields = {"reason": problem.reason, "message": problem.message[:MESSAGE_LIMIT], "log": log}
    counted = {
        "disruptions": disruptions(before.attempt, problem.outcome, problem.reason),
        "node_losses": node_losses(before.attempt, problem.reason),
    }
    attempt = _attempt(job, problem.outcome, now, failures).model_copy(update={**attempt_fields, **counted})
    short = problem.message[:CONDITION_LIMIT]
    failed = condition(before.conditions, names.SUCCEEDED, False, problem.reason, short, now)
    kept = tuple(c for c in before.conditions if c.type != names.SUCCEEDED)
    state = "Failed" if problem.outcome == "failed" else "Disrupted"
    changes: dict[str, Any] = {"attempt": attempt, "conditions": (*kept, failed), "state": state}
    rests = attempt.node_losses >= QUARANTINE_LOSSES
    if spent(attempt, keeping.retry):
        past = ReportPast(run=attempt.run, outcome="failed", reason=attempt.reason, finished_at=attempt.finished_at)
        runs, history = before.failed_runs + 1, remembered(report.status, past, keeping.retention.history)
        changes |= {"failed_runs": runs, "history": history}
        rests = rests or runs >= QUARANTINE_RUNS
    if rests:
        held = Quarantine(since=attempt.finished_at, reason=attempt.reason or "Failed", message=attempt.message or "")
        changes |= {"quarantine": held, "state": "Quarantined"}
    return before.model_copy(update=changes)


def _attempt(
    job: JobView, outcome: Literal["succeeded", "failed", "disrupted"], now: datetime, failures: int
) -> ReportAttempt:
    return ReportAttempt(
        run=job.run,
        number=job.attempt,
        failures=failures,
        basis={part: value for part, value in job.basis.items() if value},
        boot_id=job.boot or None,
        outcome=outcome,
        started_at=format_time(job.created),
        finished_at=_ended(job, now),
    )


def _ended(job: JobView, now: datetime) -> str:
    """When it did by the cluster's clock: it may be collected much later."""
    return format_time(min(now, job.finished_at or now))


def _failures(job: JobView, report: ReportView) -> int:
    """Failed attempts of the job's run before this one."""
    old = report.status.attempt if report.status is not None else None
    return old.failures if old is not None and old.run == job.run else 0


def marked_status(mark: MarkStale | MarkFresh, now: datetime) -> ReportStatus:
    """A report whose figures are out of date, or are so no more: they stay, Fresh tells since when and why."""
    before, fresh = whole(mark.report.status), isinstance(mark, MarkFresh)
    since = [c for c in before.conditions if c.reason == mark.reason]
    marked = condition(since, names.FRESH, fresh, mark.reason, mark.message, now)
    kept = tuple(c for c in before.conditions if c.type != names.FRESH)
    measured = "Partial" if before.run and before.run.partial else "Measured"
    stale = "NodeGone" if mark.reason == "NodeGone" else "Stale"
    changes = {"conditions": (marked, *kept), "state": measured if fresh else stale}
    gone = {"acceptance": unasked(before.acceptance)} if stale == "NodeGone" else {}
    return before.model_copy(update=changes | gone)


def status_json(status: StatusDocument) -> dict[str, Any]:
    """The status as the API server takes it: camelCase, absent fields and empty lists left out."""
    written: dict[str, Any] = _full(status.model_dump(mode="json", by_alias=True, exclude_none=True))
    return written


def _full(value: Any) -> Any:
    """`value` without the empty lists and mappings inside of it."""
    if isinstance(value, dict):
        return {key: _full(item) for key, item in value.items() if item not in ([], {})}
    return [_full(item) for item in value] if isinstance(value, list) else value


def report_json(status: ReportStatus) -> dict[str, Any]:
    """A report's status, as small as it can be (lists of reports are what hurts at scale): no defaults either."""
    return status.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def detail(report: ReportView, packed: bytes) -> dict[str, Any]:
    """The ConfigMap that holds a node's full result, gzipped; it goes with the report, and so with the profile."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.REPORT_KIND, "name": report.name, "uid": report.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.detail_name(report.name),
            "namespace": report.namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_NODE_UID: report.node_uid},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "binaryData": {"result.json.gz": base64.b64encode(packed).decode()},
    }


def remembered(before: ReportStatus | None, past: ReportPast, keep: int) -> tuple[ReportPast, ...]:
    """The last runs, newest first, at most `keep`: `past` is the one that has just ended, in place of its own failure.

    The newest result's figures stand in the report itself, so its run is told in short. Once `past` has figures of its
    own to put in their place, that run's row holds all of its figures. A run's identity may come again, as after a
    rollback.
    """
    if before is None:
        return (past,)
    older = list(before.history)
    if older and older[0].run == past.run:
        del older[0]
    replaced = before.run.run if before.run is not None and past.outcome == "succeeded" else None
    place = next((index for index, old in enumerate(older) if old.run == replaced), None)
    if place is not None:
        older[place] = past_in_full(older[place], before)
    return (past, *older)[:keep]


def past_in_full(past: ReportPast, status: ReportStatus) -> ReportPast:
    """`past` with all that `status`, whose newest result is that run's, knows of it."""
    reading = read("", "", status)
    rows = [row for row in reading.usable_rows if row.tokens_per_second is not None]
    software, run = status.software, status.run
    errors = [row.error for row in rows if row.error is not None]
    largest = max(errors, default=None) if len(errors) == len(rows) else None
    return past.model_copy(
        update={
            "driver": (software.driver if software else None) or past.driver,
            "data": reading.data,
            "workload_hash": run.workload_hash if run else None,
            "stack_hash": software.stack_hash if software else None,
            "throttled": reading.marks.throttled or None,
            "recipe_tokens_per_second": {row.recipe: decimal(row.tokens_per_second, AS_REPORTED) for row in rows},
            "recipe_tokens_per_joule": {
                row.recipe: decimal(row.tokens_per_joule, AS_REPORTED)
                for row in rows
                if row.tokens_per_joule is not None
            },
            "rate_error": decimal(largest, AS_REPORTED),
        }
    )
