"""Builders of what the operator's core decides from: a test names only what matters to it, the rest has defaults."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from precision_api.facts.names import FRESH, job_name, report_name
from precision_api.kinds.profile import Condition, ProfileSpec
from precision_api.kinds.report import ReportAttempt, ReportHardware, ReportRun, ReportStatus
from precision_operator.core.observe import observed as seen
from precision_operator.core.observe.clock import format_time
from tests.support.node_objects import AGENT_IMAGE, node_object

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
IDLE = seen.Occupancy(None)
SETTINGS = seen.Settings(
    agent_image=AGENT_IMAGE,
    allowed_images=("registry.example/",),
    priority_class="precision-profiler-agent",
    agent_service_account="precision-agent",
)
WORKLOAD = {"name": "one", "shapes": [{"m": 128, "k": 256, "n": 512}]}


def spec(**changes: Any) -> ProfileSpec:
    """A spec of one GEMM over all nodes, one at a time; `changes` are fields of the YAML."""
    return ProfileSpec.model_validate({"workload": WORKLOAD} | changes)


def profile(name: str = "nightly", **changes: Any) -> seen.ProfileView:
    """A profile; names of ProfileView's fields replace those, anything else goes into its spec."""
    own = {"namespace", "uid", "generation", "created", "problem", "status", "deleting", "rerun"}
    fields = {key: changes.pop(key) for key in own & changes.keys()}
    defaults: dict[str, Any] = {"namespace": "ml", "uid": f"uid-{name}", "generation": 1, "created": NOW}
    return seen.ProfileView(name=name, spec=None if "problem" in fields else spec(**changes), **(defaults | fields))


def accepted(of: seen.ProfileView) -> seen.AcceptedProfile:
    """The same profile, as the operator takes it once it has found nothing wrong with it."""
    assert of.spec is not None
    return seen.AcceptedProfile.of(of, of.spec)


def at_once(limit: int | str) -> dict[str, Any]:
    """spec.rollout for `limit` agents at once."""
    return {"maxConcurrent": limit}


def nodes(*names: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """Nodes by UID, all with eight H100; `changes` are those of node_object."""
    return {f"uid-{name}": node_object(name=name, **changes) for name in names}


def job(node: str = "n1", owner: str = "nightly", run: str = "r1", attempt: int = 1, **changes: Any) -> seen.JobView:
    """A live Job of the profile `owner` on `node`."""
    profile_uid, node_uid = f"uid-{owner}", changes.pop("node_uid", f"uid-{node}")
    name = job_name(profile_uid, node_uid, run, attempt)
    defaults: dict[str, Any] = {"namespace": "ml", "uid": f"uid-{name}", "request_hash": "ab" * 32, "created": NOW}
    defaults |= {"profile_uid": profile_uid, "node_uid": node_uid, "run": run, "attempt": attempt}
    return seen.JobView(name=name, profile=owner, node_name=node, **(defaults | changes))


def pod(
    of: seen.JobView, phase: str = "Running", message: str | None = None, exit_code: int = 0, **changes: Any
) -> seen.PodView:
    """The pod of a Job; with a `message` or another exit code than 0 its container has ended."""
    ended = message is not None or exit_code != 0
    defaults: dict[str, Any] = {"created": of.created, "node_name": of.node_name, "holds_gpus": True}
    if phase == "Pending" and "scheduled_at" not in changes:
        defaults |= {"node_name": "", "holds_gpus": False}
    if ended:
        defaults["termination"] = seen.Termination(exit_code, "Completed" if exit_code == 0 else "Error", message or "")
    defaults |= {"job": of.name, "job_uid": of.uid, "profile_uid": of.profile_uid, "node_uid": of.node_uid}
    return seen.PodView(name=f"{of.name}-x", namespace=of.namespace, phase=phase, **(defaults | changes))


def report(
    node: str = "n1", owner: str = "nightly", status: ReportStatus | None = None, **changes: Any
) -> seen.ReportView:
    """The report of the profile `owner` on `node`."""
    node_uid = changes.pop("node_uid", f"uid-{node}")
    name = report_name(owner, node_uid)
    defaults: dict[str, Any] = {"namespace": "ml", "uid": f"uid-{name}", "profile_uid": f"uid-{owner}"}
    return seen.ReportView(
        name=name, profile=owner, node_name=node, node_uid=node_uid, status=status, **(defaults | changes)
    )


def tried(
    outcome: str = "succeeded", run: str = "r1", number: int = 1, ago: timedelta = MINUTE, **changes: Any
) -> ReportStatus:
    """The status of a report whose newest attempt ended `ago` before NOW; `changes` are fields of the attempt."""
    told = {"run": run, "number": number, "outcome": outcome, "finishedAt": format_time(NOW - ago)} | changes
    return ReportStatus(attempt=ReportAttempt.model_validate(told))


def measured(ago: timedelta = MINUTE, limit_watts: int | None = None, run: str = "r1", **changes: Any) -> ReportStatus:
    """The status of a report with a result that came in `ago` before NOW; `changes` are fields of the attempt."""
    finished = format_time(NOW - ago)
    told = {"run": run, "requestHash": "ab" * 32, "backend": "replay", "provenance": "replayed"}
    told |= {"finishedAt": finished, "durationSeconds": "60", "workloadHash": "0123456789abcdef"}
    hardware = {"product": "H100", "gpus": 8, "pool": "p", "limitWatts": limit_watts}
    return tried(run=run, ago=ago, **changes).model_copy(
        update={"run": ReportRun.model_validate(told), "hardware": ReportHardware.model_validate(hardware)}
    )


def gone(since: timedelta) -> ReportStatus:
    """The status of a report whose node has been known to be gone for `since`."""
    fresh = {"type": FRESH, "status": "False", "reason": "NodeGone", "lastTransitionTime": format_time(NOW - since)}
    return ReportStatus(conditions=(Condition.model_validate(fresh),))


def observed(
    profiles: Sequence[seen.ProfileView] = (),
    fleet: Mapping[str, Mapping[str, Any]] | None = None,
    busy: Mapping[str, str] | None = None,
    **changes: Any,
) -> seen.Observed:
    """The world at NOW: every node has been looked at and is idle, but for those that `busy` names with their pod.

    All Jobs are the leader's own, as far as it remembers, unless `own_jobs` says otherwise.
    """
    known = nodes("n1") if fleet is None else fleet
    names = [str(node["metadata"]["name"]) for node in known.values()]
    looks = {name: seen.Occupancy((busy or {}).get(name), 8 if name in (busy or {}) else 0) for name in names}
    defaults: dict[str, Any] = {"now": NOW, "settings": SETTINGS, "occupancy": looks}
    defaults["own_jobs"] = {pod.job_uid: pod.node_name for pod in changes.get("pods", ())}
    defaults["own_jobs"] |= {job.uid: job.node_name for job in changes.get("jobs", ())}
    return seen.Observed(profiles=tuple(profiles), nodes=known, **(defaults | changes))
