"""From raw Kubernetes objects to the values that decisions are made from; a damaged one becomes a problem, or None.

What pydantic remembers of each model - which of its fields were given - is held once for all models that have the same:
of a report with five recipes these sets are nearly half of its memory, and there are thousands of reports.
"""

import json
import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from precision_api.facts import names
from precision_api.facts.json_text import rows_of
from precision_api.kinds.profile import ProfileSpec, Toleration
from precision_api.kinds.report import ReportStatus
from precision_operator.core.observe import claims, observed
from precision_operator.core.observe.claims import Claims
from precision_operator.core.observe.clock import time_or_none
from precision_operator.core.observe.configuration import filled
from precision_operator.core.observe.kept_report import with_shared_field_sets
from precision_operator.core.observe.pod_requests import NOTHING, needed, pod_requests
from precision_operator.core.observe.raw_object import condition_of, entries, section, turned

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ATTEMPT = re.compile(r"[1-9][0-9]{0,8}")
_BASIS_PARTS, _LENGTH, _JOB_NAME = 9, 253, "batch.kubernetes.io/job-name"
"""Parts of a basis that a report holds, of a place, and characters of each."""


def profile_view(raw: observed.Raw, problem: str = "") -> observed.ProfileView:
    """A PrecisionProfile; a spec that can't be read becomes `problem`, first error first. With one, it isn't read."""
    meta = section(raw, "metadata")
    spec: ProfileSpec | None = None
    try:
        spec = None if problem else ProfileSpec.model_validate(section(raw, "spec"))
    except ValidationError as error:
        problem = spec_problem(error)
    return observed.ProfileView(
        name=str(meta.get("name", "")),
        namespace=str(meta.get("namespace", "default")),
        uid=str(meta.get("uid") or meta.get("name", "")),
        generation=int(meta.get("generation") or 1),
        created=time_or_none(meta.get("creationTimestamp")) or _EPOCH,
        spec=spec,
        problem=problem,
        status=section(raw, "status"),
        rerun=str(section(meta, "annotations").get(names.ANNOTATION_RERUN, "")),
        deleting=bool(meta.get("deletionTimestamp")),
        version=str(meta.get("resourceVersion", "")),
    )


def with_operator_defaults(profile: observed.ProfileView, settings: observed.Settings) -> observed.ProfileView:
    """The same profile, its agent's fields filled; one that can't be read stays as it is.

    Agents of a profile whose verdict reaches Nodes tolerate the taints that wait for it.
    """
    defaults = settings.agent_defaults
    if keys := settings.node_gate.taints_for(profile.namespace, profile.name):
        taints = tuple(Toleration(key=key, operator="Exists") for key in keys)
        defaults = defaults.model_copy(update={"tolerations": (*defaults.tolerations, *taints)})
    return replace(profile, spec=profile.spec and filled(profile.spec, defaults))


def spec_problem(error: ValidationError, start: str = "spec") -> str:
    """The first thing that is wrong with a spec: field and message, and how many more there are."""
    first, others = rows_of(error)[0], error.error_count() - 1
    field = ".".join([start, *(str(part) for part in first["loc"])])
    more = f" (and {others} more)" if others else ""
    return f"{field}: {first['msg'].removeprefix('Value error, ')}{more}"


def job_view(raw: observed.Raw) -> observed.JobView | None:
    """A Job of ours; None when its labels do not say whose attempt it is."""
    meta, status = section(raw, "metadata"), section(raw, "status")
    labels, notes = section(meta, "labels"), section(meta, "annotations")
    attempt = str(labels.get(names.LABEL_ATTEMPT, ""))
    if not _ATTEMPT.fullmatch(attempt) or not all(k in labels for k in (names.LABEL_PROFILE_UID, names.LABEL_NODE_UID)):
        return None
    ends = (c for c in entries(status, "conditions") if c.get("status") == "True" and _finish(c))
    end, suspended = next(ends, {}), condition_of(status, "Suspended")
    return observed.JobView(
        name=str(meta["name"]),
        namespace=str(meta["namespace"]),
        uid=str(meta.get("uid", "")),
        profile=str(notes.get(names.ANNOTATION_PROFILE, "")),
        profile_uid=str(labels[names.LABEL_PROFILE_UID]),
        node_name=str(notes.get(names.ANNOTATION_NODE, "")),
        node_uid=str(labels[names.LABEL_NODE_UID]),
        run=str(labels.get(names.LABEL_RUN, "")),
        attempt=int(attempt),
        request_hash=str(notes.get(names.ANNOTATION_REQUEST_HASH, "")),
        created=time_or_none(meta.get("creationTimestamp")) or _EPOCH,
        workload=str(notes.get(names.ANNOTATION_WORKLOAD, "")),
        driver=str(notes.get(names.ANNOTATION_DRIVER, "")),
        boot=str(notes.get(names.ANNOTATION_BOOT, "")),
        watts=_number(notes.get(names.ANNOTATION_WATTS)) or 0,
        basis=_texts(notes.get(names.ANNOTATION_BASIS), _BASIS_PARTS),
        # Let go, but its controller has not told so: its pod can't be waited for yet.
        suspended=section(raw, "spec").get("suspend") is True or suspended.get("status") == "True",
        active_since=turned(suspended, "False"),
        queued_since=turned(suspended, "True"),
        finished=_finish(end),
        finished_at=time_or_none(end.get("lastTransitionTime")),
        failure_reason=str(end.get("reason", "")) if end.get("type") == "Failed" else "",
        failure_message=str(end.get("message", "")) if end.get("type") == "Failed" else "",
        giving_up_since=turned(condition_of(status, "FailureTarget"), "True"),
        deadline_seconds=_number(notes.get(names.ANNOTATION_DEADLINE)),
        deleting=bool(meta.get("deletionTimestamp")),
    )


def marked(raw: observed.Raw, job: observed.Raw) -> observed.Raw:
    """A Job of ours or its pod with the labels that `job`, the Job's metadata, was made with; empty: not ours."""
    meta = section(raw, "metadata")
    labels = {**section(meta, "labels"), _JOB_NAME: job.get("name"), **section(job, "labels")}
    return {**raw, "metadata": {**meta, "labels": labels}} if job else raw


def _number(text: object) -> int | None:
    return int(str(text)) if str(text).isascii() and str(text).isdigit() and len(str(text)) < 7 else None


def _texts(text: object, most: int) -> Mapping[str, str]:
    """The texts in a Job's annotation; one that was tampered with counts as none."""
    try:
        document = json.loads(str(text or "{}"))
    except (ValueError, RecursionError):
        return {}
    texts = {str(k): str(v) for k, v in document.items()} if isinstance(document, dict) else {}
    return texts if len(texts) <= most and all(max(len(k), len(v)) <= _LENGTH for k, v in texts.items()) else {}


def _finish(condition: Mapping[str, Any]) -> Literal["Complete", "Failed"] | None:
    kind = condition.get("type")
    return "Complete" if kind == "Complete" else "Failed" if kind == "Failed" else None


def pod_view(raw: observed.Raw) -> observed.PodView | None:
    """An agent's pod; None when it is not one of a Job of ours."""
    meta, spec, status = section(raw, "metadata"), section(raw, "spec"), section(raw, "status")
    labels, asked = section(meta, "labels"), asked_gpus(raw, (names.GPU_RESOURCE,))
    if not (job := labels.get(_JOB_NAME)) or names.LABEL_PROFILE_UID not in labels:
        return None
    container = next((c for c in entries(status, "containerStatuses") if c.get("name") == names.AGENT_CONTAINER), {})
    state = section(container, "state")
    conditions = {str(c.get("type")): c for c in entries(status, "conditions")}
    return observed.PodView(
        name=str(meta["name"]),
        namespace=str(meta["namespace"]),
        job=str(job),
        job_uid=job_uid(raw),
        profile_uid=str(labels[names.LABEL_PROFILE_UID]),
        node_uid=str(labels.get(names.LABEL_NODE_UID, "")),
        phase=str(status.get("phase", "Pending")),
        created=time_or_none(meta.get("creationTimestamp")) or _EPOCH,
        node_name=str(spec.get("nodeName") or ""),
        holds_gpus=bool(spec.get("nodeName")) and (claims.are_created(raw) or asked > 0),
        gpus=asked,
        image_id=str(container.get("imageID") or ""),
        scheduled_at=turned(conditions.get("PodScheduled", {}), "True"),
        started_at=_started(state),
        deleting_since=time_or_none(meta.get("deletionTimestamp")),
        waiting_reason=str(section(state, "waiting").get("reason", "")),
        waiting_message=str(section(state, "waiting").get("message", "")),
        unschedulable=_message(conditions.get("PodScheduled", {}), "False"),
        uid=str(meta.get("uid") or ""),
        priority=spec["priority"] if isinstance(spec.get("priority"), int) else 0,
        claims=bool(entries(section(raw, "spec"), "resourceClaims")),
        claims_created=claims.are_created(raw),
        disruption=_message(conditions.get("DisruptionTarget", {}), "True"),
        disruption_reason=str(conditions.get("DisruptionTarget", {}).get("reason", "")),
        failure=str(status.get("reason") or ""),
        failure_message=str(status.get("message") or ""),
        termination=_termination(section(state, "terminated")),
    )


def job_uid(raw: observed.Raw) -> str:
    """UID of the Job that made a pod. Labels say it too, but a Job with a selector of its own sets them as it likes."""
    meta = section(raw, "metadata")
    owners = (str(row.get("uid", "")) for row in entries(meta, "ownerReferences") if row.get("controller") is True)
    return next(owners, "") or str(section(meta, "labels").get("batch.kubernetes.io/controller-uid", ""))


def _started(state: Mapping[str, Any]) -> datetime | None:
    times = (time_or_none(section(state, part).get("startedAt")) for part in ("running", "terminated"))
    return next(filter(None, times), None)


def _message(condition: Mapping[str, Any], status: str) -> str:
    if condition.get("status") != status:
        return ""
    return str(condition.get("message") or condition.get("reason") or "no reason is given")


def _termination(state: Mapping[str, Any]) -> observed.Termination | None:
    if "exitCode" not in state:
        return None
    return observed.Termination(int(state["exitCode"]), str(state.get("reason", "")), str(state.get("message", "")))


def report_view(raw: observed.Raw) -> observed.ReportView | None:
    """A report; a status that can't be read, or with a time that is none, counts as none: the node is measured anew."""
    meta, spec = section(raw, "metadata"), section(raw, "spec")
    owner = next((o for o in entries(meta, "ownerReferences") if o.get("kind") == names.PROFILE_KIND), {})
    if "nodeUID" not in spec:
        return None
    report = observed.ReportView(
        name=str(meta["name"]),
        namespace=str(meta["namespace"]),
        uid=str(meta.get("uid", "")),
        profile=str(spec.get("profile", "")),
        profile_uid=str(owner.get("uid", "")),
        node_name=str(spec.get("nodeName", "")),
        node_uid=str(spec["nodeUID"]),
        status=_report_status(raw.get("status")),
        rerun=str(section(meta, "annotations").get(names.ANNOTATION_RERUN, "")),
        closed=str(section(meta, "annotations").get(names.ANNOTATION_CLOSED, "")),
        version=str(meta.get("resourceVersion", "")),
    )
    try:
        _ = report.started, report.reported_limit, report.not_fresh
    except ValueError as error:
        return replace(report, status=None, unreadable=error)
    return report


def _report_status(raw: object) -> ReportStatus | None:
    if not isinstance(raw, Mapping):
        return None
    try:
        return with_shared_field_sets(ReportStatus.model_validate(dict(raw)))
    except ValidationError:
        return None


def occupancy(
    pods: list[observed.Raw], claimed: Claims | None = None, offered: Container[str] | None = None
) -> observed.Occupancy:
    """Who holds GPUs among the pods of one node, terminal ones left out; the first by name. And what all request.

    `claimed`: GPUs of the pods' claims, each counted once; a claim that could not be read (None) counts as one GPU.
    `offered`: the node's resources, None: any. Requests for others give a pod nothing.
    """
    live = [pod for pod in pods if section(pod, "status").get("phase") not in ("Succeeded", "Failed")]
    requests = sum((pod_requests(pod) for pod in live), NOTHING)
    asked = {_key(pod): asked_gpus(pod, offered) for pod in live}
    claims_of = {_key(pod): [(claimed or {}).get(name) for name in claims.claim_keys(pod)] for pod in live}
    unread = {key: sum(gpus is None for gpus in claims) for key, claims in claims_of.items()}
    devices = {key: frozenset().union(*(gpus for gpus in claims if gpus)) for key, claims in claims_of.items()}
    holders = sorted(key for key in asked if asked[key] or unread[key] or devices[key])
    if not holders:
        return observed.Occupancy(None, requests=requests)
    distinct: frozenset[claims.Device] = frozenset().union(*devices.values())
    return observed.Occupancy(holders[0], sum(asked.values()) + sum(unread.values()) + len(distinct), requests)


def _key(pod: observed.Raw) -> str:
    meta = section(pod, "metadata")
    return f"{meta.get('namespace')}/{meta.get('name')}"


def asked_gpus(pod: observed.Raw, offered: Container[str] | None = None) -> int:
    """GPUs that a pod has by the device plugin; none of a pod whose request the scheduler has made a claim of."""
    return 0 if claims.is_mapped(pod) else needed(section(pod, "spec"), partial(_gpus, offered)).total()


def _gpus(offered: Container[str] | None, container: Mapping[str, Any]) -> Counter[str]:
    """Whole GPUs, MIG slices and shared GPUs alike: each is somebody at work on the node's GPUs."""
    resources = section(container, "resources")
    asked = {**section(resources, "limits"), **section(resources, "requests")}
    named = (key for key in asked if key.startswith(("nvidia.com/gpu", "nvidia.com/mig-")))
    mine = {key: str(asked[key]) for key in named if offered is None or key in offered}
    return Counter({key: int(text) for key, text in mine.items() if text.isdigit()})
