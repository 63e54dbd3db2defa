"""One pass of the core over raw Kubernetes objects: plain data in, all that it decides and writes as plain data out.

The same calls in the same order as the operator's shell makes them. The keys of what comes out stay when names in the
core change, so that two commits, each with its own copy of this file, can be compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from precision_api.exchange.request import canonical
from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts import manifest
from precision_operator.core.attempts.actions import Action, Adopt, Close, Collect, Drop, Judge, Start, Withdraw
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan
from precision_operator.core.observe import observed as seen
from precision_operator.core.observe.book import EMPTY, Kept
from precision_operator.core.observe.configuration import AgentDefaults
from precision_operator.core.observe.gpu_slices import slice_view
from precision_operator.core.observe.observed import JobView, Observed, ProfileView, Reports, ReportView, Settings
from precision_operator.core.observe.stop import stop_of
from precision_operator.core.observe.views import (
    job_view,
    occupancy,
    pod_view,
    profile_view,
    report_view,
    with_operator_defaults,
)
from precision_operator.core.plan import Plan, plan
from precision_operator.core.results import ingest
from precision_operator.core.results.acceptance import decided, with_result
from precision_operator.core.results.endings import NoResult, summary_of
from precision_operator.core.results.log_tail import log_tail
from precision_operator.core.status.events import event, notes
from precision_operator.core.status.telling import Change, Told, tell
from precision_operator.core.status.why import why

Raw = Mapping[str, Any]
ROUNDS = 8
"""How often a plan may ask for looks at nodes; more would be a defect, which shows as a difference in `rounds`."""


class Core:
    """One world's objects as the core sees them: an unchanged object is the very same view, pass after pass."""

    def __init__(self, objects: Sequence[Raw], takes_over: bool = True) -> None:
        """Unless it `takes_over` what has not changed, each plan is made from scratch."""
        self._objects, self._takes_over = objects, takes_over
        self._book: Kept = EMPTY
        self._told: Told | None = None
        self._reports = Reports()
        self._views: dict[tuple[Any, ...], Any] = {}
        self._settings: dict[str, Settings] = {}

    def step(self, step: Raw) -> dict[str, Any]:
        """All that is decided and written in one pass over the world as `step` describes it."""
        probed = list(step["looked"])
        rounds: list[dict[str, Any]] = []
        for _ in range(ROUNDS):
            observed = self._observed(step, probed)
            decided = plan(observed, book=self._book if self._takes_over else EMPTY)
            self._book = decided.book
            nodes = [_state(item.profile, state) for item in decided.profiles for state in item.node_states]
            rounds.append({"probe": [*decided.nodes_to_probe], "nodes": nodes})
            if not decided.nodes_to_probe:
                break
            probed += decided.nodes_to_probe
        self._told = tell(decided, observed, self._told if self._takes_over else None)
        now = observed.now
        return {
            "rounds": rounds,
            "actions": [_action(action) for action in decided.actions],
            "writes": [written for action in decided.actions for written in _writes(action, step, now)],
            "profiles": sorted((_profile(*row, now) for row in self._told.rows), key=lambda row: row["uid"]),
            "why": [row for node in step["asked"] for row in _why(decided, observed, node)],
        }

    def _observed(self, step: Raw, probed: Sequence[str]) -> Observed:
        settings = self._settings_of(step["settings"])
        jobs = self._all(job_view, step["jobs"])
        problems = step["refusals"]
        holders = {name: [self._objects[number] for number in step["holders"].get(name, ())] for name in probed}
        return Observed(
            own_jobs={job.uid: job.node_name for job in jobs},
            now=datetime.fromisoformat(step["now"]),
            settings=settings,
            profiles=tuple(self._profile_view(number, settings) for number in step["profiles"]),
            nodes={uid: self._objects[number] for uid, number in step["nodes"].items()},
            jobs=tuple(
                replace(job, creation_problem=problems[job.uid]) if job.uid in problems else job for job in jobs
            ),
            pods=self._all(pod_view, step["pods"]),
            reports=self._reports_of(step["reports"]),
            occupancy={name: occupancy(pods) for name, pods in holders.items()},
            stop=stop_of(step.get("stop") or "Run", "", "chart"),
            references=dict.fromkeys(map(tuple, step.get("references", ()))),
            config_maps={(namespace, name): data for namespace, name, data in step["config_maps"]},
            slices=None if step["slices"] is None else self._all(slice_view, step["slices"]),
            priority_class_exists=step["priority_class_exists"],
            queues={(namespace, name): exists for namespace, name, exists in step["queues"]},
            refusals={tuple(key): seen.RefusedCreation(**_with_times(row)) for *key, row in step["refused"]},
            yields=tuple(seen.Yield(**_with_times(row)) for row in step["yields"]),
        )

    def _reports_of(self, numbers: Sequence[int]) -> Reports:
        """As the gatherer has them: those of owners of which none has changed are the same objects."""
        if not self._takes_over:
            return Reports(self._all(report_view, numbers))
        before = {report.uid: report for report in self._reports}
        now = {report.uid: report for report in self._all(report_view, numbers)}
        changed = [uid for uid in {**before, **now} if before.get(uid) is not now.get(uid)]
        self._reports = self._reports.changed((before.get(uid), now.get(uid)) for uid in changed)
        return self._reports

    def _all(self, parse: Any, numbers: Sequence[int]) -> tuple[Any, ...]:
        views = [self._view((parse, number), parse, self._objects[number]) for number in numbers]
        return tuple(view for view in views if view is not None)

    def _profile_view(self, number: int, settings: Settings) -> ProfileView:
        view = self._view((profile_view, number), profile_view, self._objects[number])
        served: ProfileView = self._view((number, id(settings)), with_operator_defaults, view, settings)
        return served

    def _view(self, key: tuple[Any, ...], parse: Any, *arguments: Any) -> Any:
        if key not in self._views:
            self._views[key] = parse(*arguments)
        return self._views[key]

    def _settings_of(self, row: Raw) -> Settings:
        """The same instance for the same settings, as in a running operator."""
        key = canonical(dict(row))
        if key not in self._settings:
            defaults = AgentDefaults.model_validate(row["agent_defaults"])
            backoff = timedelta(seconds=row["disruption_backoff_seconds"])
            words = {"allowed_images": tuple(row["allowed_images"]), "agent_image": row["agent_image"]}
            words |= {name: row[name] for name in ("priority_class", "agent_service_account")}
            self._settings[key] = Settings(**words, agent_defaults=defaults, disruption_backoff=backoff)
        return self._settings[key]


def _with_times(row: Raw) -> dict[str, Any]:
    return {key: datetime.fromisoformat(value) if key in ("at", "until") else value for key, value in row.items()}


def _state(profile: ProfileView, state: NodeState) -> dict[str, Any]:
    row: dict[str, Any] = {"profile": profile.key, "node": state.facts.uid, "state": state.state}
    row |= {"reason": state.reason, "message": state.message, "since": state.since and state.since.isoformat()}
    if state.current:
        begins = state.current.begins
        row |= {"run": state.current.run, "basis": dict(state.current.basis)}
        row |= {"due": begins and {"reason": begins.reason, "message": begins.message}}
    return row


def _action(action: Action) -> dict[str, Any]:
    """An action, whole: manifests as they are, views by name."""
    row: dict[str, Any] = {"kind": type(action).__name__, "reason": action.reason, "message": action.message}
    match action:
        case Start():
            row |= {"profile": action.profile.key, "node": action.facts.name, "node_uid": action.facts.uid}
            row |= {"new_report": action.report, "job": action.job, "template": action.template}
        case Drop():
            row |= {"of": action.kind, "namespace": action.namespace, "name": action.name, "uid": action.uid}
        case Withdraw():
            row |= {"job": action.job.name}
        case _:
            row |= {"report": action.report and action.report.name}
    if isinstance(action, Collect | Close):
        keeping = action.keeping
        row |= {"job": action.job.name, "pod": action.pod and action.pod.name}
        row |= {"retry": keeping.retry.model_dump(mode="json"), "retention": keeping.retention.model_dump(mode="json")}
    if isinstance(action, Collect):
        row |= {"pool": action.pool, "nvlink_domain": action.nvlink_domain, "by_claim": action.by_claim}
    if isinstance(action, Close):
        row |= {"outcome": action.outcome}
    return row


def _writes(action: Action, step: Raw, now: datetime) -> Iterator[dict[str, Any]]:
    """The report that an action writes: its name, its body where it is created now, its new status."""
    if isinstance(action, Start | Drop | Withdraw | Adopt):
        return
    body, report = None, action.report
    if report is None:
        assert isinstance(action, Collect | Close)
        body, report = _new_report(action.job)
    if isinstance(action, Close):
        problem = NoResult(action.said, action.outcome)
        status = ingest.failed_status(problem, action.job, report, now, action.keeping)
    elif isinstance(action, Judge):
        status, terms = report.status or ReportStatus(), action.terms
        if terms is not None and status.run is not None:  # as where the full result is lost
            status = status.model_copy(update={"acceptance": with_result(status, None, terms)})
        verdict = terms and decided(terms, status, action.facts, now)
        status = status.model_copy(update={"acceptance": verdict})
    elif isinstance(action, Collect):
        status = _collected(action, report, step["logs"].get(action.job.uid, ""), now)
    else:
        status = ingest.marked_status(action, now)
    yield {"name": report.name, "uid": report.uid, "body": body, "status": ingest.report_json(status)}


def _new_report(job: JobView) -> tuple[dict[str, Any], ReportView]:
    body = manifest.report(job.namespace, job.profile, job.profile_uid, job.node_name, job.node_uid)
    view = report_view(body)
    assert view is not None
    return body, view


def _collected(action: Collect, report: ReportView, log: str | None, now: datetime) -> Any:
    """The status of what an agent left; `log` None: it can't be read."""
    summary = summary_of(action.job, action.pod, action.drained)
    if isinstance(summary, NoResult):
        tail = log_tail(log.encode()) if log is not None and summary.outcome == "failed" else None
        return ingest.failed_status(summary, action.job, report, now, action.keeping, tail)
    finding = ingest.finding(summary, log, "the kubelet does not answer" if log is None else "")
    place = ingest.Place(action.pool, action.nvlink_domain, action.by_claim)
    return ingest.read_status(finding, action.job, report, place, now, action.keeping)


def _profile(item: ProfilePlan, change: Change | None, now: datetime) -> dict[str, Any]:
    said = notes(change.before, change.status) if change is not None else ()
    status = change.document if change is not None else dict(item.profile.status)
    events = [event(item.profile, note, now) for note in said]
    return {"uid": item.profile.uid, "key": item.profile.key, "status": status, "events": events}


def _why(decided: Plan, observed: Observed, node: str) -> Iterator[dict[str, Any]]:
    for answer in why(decided, observed, node):
        slow, attempt = answer.standing, answer.past.attempt
        row: dict[str, Any] = {"profile": answer.profile.key, "node": node, "job": answer.job}
        row |= {"reason": answer.reason, "message": answer.message, "blocked_by": [*answer.blocked_by]}
        row |= {"due": answer.due, "due_message": answer.due_message, "detail_problem": answer.past.detail_problem}
        row |= {"slow": slow and {"reason": slow.reason, "message": slow.message}}
        yield row | {"attempt": attempt and attempt.model_dump(mode="json")}
