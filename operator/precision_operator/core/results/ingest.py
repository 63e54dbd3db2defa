"""From what a finished agent left behind to the status of its node's report: a result, or a reason why there is none.

What comes back may be damaged, foreign or hostile; whatever it is, it ends as a value.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from precision_api import names
from precision_api.exits import BACKEND_UNAVAILABLE, exit_of
from precision_api.message import Summary
from precision_api.recipes import Recipe
from precision_api.report import (
    Quarantine,
    ReportAttempt,
    ReportHardware,
    ReportPast,
    ReportRecommendation,
    ReportRun,
    ReportSoftware,
    ReportStatus,
)
from precision_api.result import CUT_OFF, MeasurementResult
from precision_api.schema import StatusDocument, decimal
from precision_api.summary import restored
from precision_api.wire import AgentRefused, WireError, agree, read_log, read_message
from precision_operator.core.conditions import condition
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import JobView, PodView, ReportView, Termination
from precision_operator.core.reasons import REASONS, sentence
from precision_operator.core.results.history import remembered
from precision_operator.core.results.provenance import provenance_of
from precision_operator.core.results.reading import RecipeRow, best_row, read_rows
from precision_operator.core.results.rows import DIGITS, recipe_report, report_run
from precision_operator.core.rollout.actions import DEFAULT_KEEPING, Keeping, MarkFresh, MarkStale
from precision_operator.core.rollout.retry import (
    QUARANTINE_LOSSES,
    QUARANTINE_RUNS,
    disruptions,
    node_losses,
    spent,
)

KILLED = (137, 143)
"""Exit codes of a container that was told to end: by SIGKILL, by SIGTERM."""
LOST = ("Unknown", "ContainerStatusUnknown")
"""Reasons of a container whose end nobody saw: containerd's after a restart of its node, and the kubelet's."""
MESSAGE_LIMIT = 512
CONDITION_LIMIT = 128
"""Characters of a problem that a report keeps, in its attempt and once more in its condition: a report stays small."""


@dataclass(frozen=True)
class Place:
    """What the operator knows of the measured node beside what the agent says."""

    pool: str
    nvlink_domain: str | None = None
    by_claim: bool = False
    """Whether the agent got its GPUs by resource claim."""


@dataclass(frozen=True)
class NoResult:
    """Why an attempt gave no result; `disrupted` attempts do not count against the node."""

    reason: str
    message: str
    outcome: Literal["failed", "disrupted"] = "failed"


@dataclass(frozen=True)
class Finding:
    """What an attempt gave: the summary, the full result, and why there is none or why it is not kept."""

    summary: Summary
    result: MeasurementResult | None
    detail_problem: str = ""


def summary_of(job: JobView, pod: PodView | None, drained: bool = False) -> Summary | NoResult:
    """The summary in the pod's termination message, or why there is none.

    What an agent hands in whose pod Kubernetes took before it was done is none: the node is measured again.

    `drained` says that the node takes no pods just now: then an eviction is a drain.
    """
    if pod is None:
        return _without_pod(job)
    end = pod.termination
    if end is None:
        return _disrupted(pod, drained) if pod.disruption else _ended_by_kubelet(job, pod) or _without_end(job)
    try:
        summary = read_message(end.message, job.request_hash)
    except WireError as error:
        if pod.disruption:
            return _disrupted(pod, drained)
        if _was_deleted(pod, end):
            return _without_end(job)
        if isinstance(error, AgentRefused):
            return _refused(job, error.reason, end.exit_code, error.message)
        # First what the kubelet did to the pod: it may lose sight of the container that it has just evicted.
        return _ended_by_kubelet(job, pod) or _unreadable(job, end, error)
    if summary.partial and summary.partial.partition(":")[0] in CUT_OFF:
        if pod.disruption:
            return _disrupted(pod, drained)
        if pod.deleting_since is not None:
            return NoResult("PodLost", sentence("PodLost"), "disrupted")
    return summary


_EVICTED_BY = {
    "EvictionByEvictionAPI": "an eviction",
    "DeletionByTaintManager": "a NoExecute taint of the node",
    "TerminationByKubelet": "its kubelet",
    "DeletionByPodGC": "the collector of pods whose node is gone",
}
"""Reasons of the condition DisruptionTarget (k8s.io/api/core/v1) but for preemption, in words."""


def _disrupted(pod: PodView, drained: bool) -> NoResult:
    if pod.disruption_reason == "PreemptionByScheduler":
        return NoResult("Preempted", sentence("Preempted", text=pod.disruption), "disrupted")
    by = _EVICTED_BY.get(pod.disruption_reason)
    if by is None:
        return NoResult("Disrupted", sentence("Disrupted", text=pod.disruption), "disrupted")
    if drained:
        return NoResult("Drained", sentence("Drained", text=pod.disruption), "disrupted")
    return NoResult("Evicted", sentence("Evicted", by=by, text=pod.disruption), "disrupted")


def _ended_by_kubelet(job: JobView, pod: PodView) -> NoResult | None:
    """An end that no DisruptionTarget tells of: too much local storage, the deadline, no admission."""
    text = pod.failure_message.strip(" .") or pod.failure
    if pod.failure == "Evicted":
        return NoResult("AgentOutOfStorage", sentence("AgentOutOfStorage", text=text))
    if pod.failure == "DeadlineExceeded":
        return _deadline(job)
    if pod.failure and pod.termination is None:
        return NoResult("PodRejected", sentence("PodRejected", node=job.node_name, text=text), "disrupted")
    return None


def _was_deleted(pod: PodView, end: Termination) -> bool:
    """Whether somebody deleted the pod, and its container ended by the signal that follows."""
    return pod.deleting_since is not None and end.exit_code in KILLED and end.reason != "OOMKilled"


def _refused(job: JobView, name: str, exit_code: int, detail: str) -> NoResult:
    """What the agent refused: for its image's sake, or for what it met on the node."""
    code = name if name == BACKEND_UNAVAILABLE.reason else "AgentRefused"
    return NoResult(code, sentence(code, name=name, exit_code=exit_code, detail=detail, node=job.node_name))


def _without_pod(job: JobView) -> NoResult:
    if job.failure_reason == "PodFailurePolicy":  # its only rule is for disruptions, which often take the pod at once
        return NoResult("Disrupted", sentence("Disrupted", text=job.failure_message), "disrupted")
    return _without_end(job)


def _without_end(job: JobView) -> NoResult:
    """The pod is gone or over, and its container's end was never seen: the kubelet or the node went away under it."""
    if job.failure_reason == "DeadlineExceeded":
        return _deadline(job)
    return NoResult("PodLost", sentence("PodLost"), "disrupted")


def _deadline(job: JobView) -> NoResult:
    seconds = int((job.finished_at - job.created).total_seconds()) if job.finished_at else 0
    what = "its log is gone"
    return NoResult("DeadlineExceeded", sentence("DeadlineExceeded", seconds=seconds, what=what))


def _unreadable(job: JobView, end: Termination, error: WireError) -> NoResult:
    """No readable summary: a crash says more than its missing message; a clean exit makes the message the problem."""
    exit_code = end.exit_code
    if end.reason in LOST:
        text = end.message or f"exit code {exit_code}, reason {end.reason}"
        return NoResult("ContainerLost", sentence("ContainerLost", node=job.node_name, text=text), "disrupted")
    if end.reason == "OOMKilled":
        return NoResult("AgentOutOfMemory", sentence("AgentOutOfMemory", limit="limit"))
    if job.failure_reason == "DeadlineExceeded":
        return _deadline(job)
    named = exit_of(exit_code)
    if 10 <= exit_code <= 29 and named.code == exit_code and error.code == "ResultMissing":
        return _refused(job, named.reason, exit_code, named.sentence)
    if exit_code != 0:
        return NoResult("AgentCrashed", sentence("AgentCrashed", exit_code=exit_code, node=job.node_name))
    code = error.code if error.code in ("ResultMissing", "ResultForeign", "ResultNewer") else "ResultDamaged"
    return NoResult(code, sentence(code, detail=error.message, node=job.node_name))


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


def without_detail(found: Finding, why: str) -> Finding:
    """The finding whose full result could not be kept."""
    return replace(found, detail_problem=_without_detail("DetailNotWritten", why))


DETAIL_CODES = {name: name for name, reason in REASONS.items() if reason.kind == "partial"} | {
    "ResultNewer": "DetailNewer"
}
"""By the code of a full result that can't be read: the reason why a report has none."""


def _without_detail(code: str, detail: str) -> str:
    """A reason of kind `partial` with its sentence."""
    return f"{code}: {sentence(code, detail=detail)}"


def read_status(
    found: Finding,
    job: JobView,
    report: ReportView,
    place: Place | str,
    now: datetime,
    keeping: Keeping = DEFAULT_KEEPING,
) -> ReportStatus:
    """The report after a summary was read: succeeded, or failed when it holds what no report can (1e300 watts)."""
    try:
        hardware = _hardware(found, place if isinstance(place, Place) else Place(place))
        return _succeeded_status(found, job, report, hardware, now, keeping)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        detail = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        problem = NoResult("ResultDamaged", sentence("ResultDamaged", detail=detail))
        return failed_status(problem, job, report, now, keeping)


def _hardware(found: Finding, place: Place) -> ReportHardware:
    summary = found.summary
    return ReportHardware(
        product=summary.product,
        gpus=summary.gpus,
        gpus_by="claim" if place.by_claim else None,
        pool=place.pool[:253] or summary.product,
        nvlink_domain=place.nvlink_domain,
        limit_watts=_limit_watts(found.result),
        slowest_gpu=summary.slowest_gpu,
        sensor_accuracy=summary.sensor_accuracy,
    )


def _succeeded_status(
    found: Finding, job: JobView, report: ReportView, hardware: ReportHardware, now: datetime, keeping: Keeping
) -> ReportStatus:
    """Figures, versions, recommendation, conditions, and kubectl's columns."""
    summary = found.summary
    results = tuple(recipe_report(recipe) for recipe in summary.recipes)
    best = best_row(read_rows(results, summary.baseline).values())
    best_text, best_recipe, best_speedup = _best(best)
    past = ReportPast(
        run=job.run,
        outcome="succeeded",
        finished_at=format_time(now),
        best=best_text,
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
        software=_software(summary),
        run=_run(found, job, report, now),
        attempt=_attempt(job, "succeeded", now, failures=_failures(job, report)),
        results=results,
        recommendation=ReportRecommendation.model_validate(summary.recommendation.model_dump()),
        history=remembered(report.status, past, keeping.retention.history),
        best=best_text,
        best_recipe=best_recipe,
        best_speedup=best_speedup,
        tokens_per_joule=decimal(best.tokens_per_joule, 3) if best else None,
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
    told = {"reason": problem.reason, "message": problem.message[:MESSAGE_LIMIT], "log": log}
    counted = {
        "disruptions": disruptions(before.attempt, problem.outcome, problem.reason),
        "node_losses": node_losses(before.attempt, problem.reason),
    }
    attempt = _attempt(job, problem.outcome, now, failures).model_copy(update={**told, **counted})
    short = problem.message[:CONDITION_LIMIT]
    failed = condition(before.conditions, names.SUCCEEDED, False, problem.reason, short, now)
    kept = tuple(c for c in before.conditions if c.type != names.SUCCEEDED)
    state = "Failed" if problem.outcome == "failed" else "Disrupted"
    changes: dict[str, Any] = {"attempt": attempt, "conditions": (*kept, failed), "state": state}
    if spent(attempt, keeping.retry):
        changes |= _run_failed(before, report, attempt, keeping)
    if attempt.node_losses >= QUARANTINE_LOSSES:
        changes |= _quarantined(attempt)
    return before.model_copy(update=changes)


def _run_failed(before: ReportStatus, report: ReportView, attempt: ReportAttempt, keeping: Keeping) -> dict[str, Any]:
    past = ReportPast(run=attempt.run, outcome="failed", reason=attempt.reason, finished_at=attempt.finished_at)
    runs = before.failed_runs + 1
    history = remembered(report.status, past, keeping.retention.history)
    changes: dict[str, Any] = {"failed_runs": runs, "history": history}
    return changes | (_quarantined(attempt) if runs >= QUARANTINE_RUNS else {})


def _quarantined(attempt: ReportAttempt) -> dict[str, Any]:
    held = Quarantine(since=attempt.finished_at, reason=attempt.reason or "Failed", message=attempt.message or "")
    return {"quarantine": held, "state": "Quarantined"}


def _attempt(
    job: JobView, outcome: Literal["succeeded", "failed", "disrupted"], now: datetime, failures: int
) -> ReportAttempt:
    return ReportAttempt(
        run=job.run,
        number=job.attempt,
        failures=failures,
        basis={part: value for part, value in job.basis.items() if value},
        outcome=outcome,
        started_at=format_time(job.created),
        finished_at=format_time(now),
    )


def _failures(job: JobView, report: ReportView) -> int:
    """Failed attempts of the job's run before this one."""
    old = report.status.attempt if report.status is not None else None
    return old.failures if old is not None and old.run == job.run else 0


def _limit_watts(result: MeasurementResult | None) -> int | None:
    """Enforced limits of all GPUs together; None unless every GPU tells its own."""
    limits = [gpu.enforced_limit_watts for gpu in result.gpus] if result is not None else []
    known = [watts for watts in limits if watts is not None]
    return round(sum(known)) if known and len(known) == len(limits) else None


def _best(best: RecipeRow | None) -> tuple[str | None, Recipe | None, str | None]:
    """(text for kubectl's column, recipe, speedup) of the best recipe."""
    if best is None:
        return None, None, None
    times = f" {best.speedup:.2f}x" if best.speedup else ""
    return f"{best.recipe}{times}", best.recipe, decimal(best.speedup, DIGITS)


def marked_status(mark: MarkStale | MarkFresh, now: datetime) -> ReportStatus:
    """A report whose figures are out of date, or are so no more: they stay, Fresh tells since when and why."""
    before, fresh = mark.report.status or ReportStatus(), isinstance(mark, MarkFresh)
    since = [c for c in before.conditions if c.reason == mark.reason]
    marked = condition(since, names.FRESH, fresh, mark.reason, mark.message, now)
    kept = tuple(c for c in before.conditions if c.type != names.FRESH)
    measured = "Partial" if before.run and before.run.partial else "Measured"
    stale = "NodeGone" if mark.reason == "NodeGone" else "Stale"
    return before.model_copy(update={"conditions": (marked, *kept), "state": measured if fresh else stale})


def _software(summary: Summary) -> ReportSoftware:
    return ReportSoftware.model_validate(summary.software.model_dump())


def _run(found: Finding, job: JobView, report: ReportView, now: datetime) -> ReportRun:
    return report_run(
        found.summary,
        format_time(now),
        workload=job.workload or None,
        detail=names.detail_name(report.name) if found.result and not found.detail_problem else None,
        detail_problem=found.detail_problem or None,
    )


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
