"""Runs the planner core of whatever version is imported over raw Kubernetes objects; plain data in, plain data out.

The same calls in the same order as the operator's shell makes them: views, plan, looks at nodes until the plan asks for
none, what the actions write to reports, then each profile's status and its events. Nothing here imports product code by
name, so that a version with other modules and types needs new rows in `layouts` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from .layouts import changed, field, make, placed, symbol

Raw = Mapping[str, Any]
JOB_ACTIONS = ("Collect", "Close", "Withdraw")
ROUNDS = 8
"""How often a plan may ask for looks at nodes; more would be a defect, which shows as a difference in `rounds`."""
ACTIONS = ("Start", "Collect", "Close", "Drop", "MarkStale", "MarkFresh")
NEWER_ACTIONS = ("Withdraw", "Adopt")
"""Those that not every version has."""


class Core:
    """One world's objects as this version sees them: an unchanged object is the very same view, step after step."""

    def __init__(self, objects: Sequence[Raw]) -> None:
        self._objects = objects
        self._views: dict[tuple[str, int, str], Any] = {}
        self._settings: dict[str, Any] = {}
        self._kinds = {kind: symbol(kind) for kind in ACTIONS} | placed(*NEWER_ACTIONS)

    def step(self, step: Raw) -> dict[str, Any]:
        """All that this version decides and writes in one pass over the world as `step` describes it."""
        looked = list(step["looked"])
        rounds: list[dict[str, Any]] = []
        for _ in range(ROUNDS):
            observed = self._observed(step, looked)
            decided = symbol("plan")(observed)
            rounds.append(self._round(decided))
            wanted = [*field(decided, "look_at")]
            if not wanted:
                break
            looked += wanted
        now = _time(step["now"])
        return {
            "rounds": rounds,
            "actions": [self._action(action) for action in field(decided, "actions")],
            "writes": [written for a in field(decided, "actions") for written in self._writes(a, step, now)],
            "profiles": [self._profile(item, now, len(observed.nodes)) for item in field(decided, "profiles")],
            "why": [row for node in step["asked"] for row in self._why(decided, observed, node)],
        }

    # Raw objects to the observation.

    def _observed(self, step: Raw, looked: list[str]) -> Any:
        settings = self._settings_of(step["settings"])
        jobs = [view for n in step["jobs"] if (view := self._view("job_view", n)) is not None]
        holders = step["holders"]
        return make(
            "Observed",
            now=_time(step["now"]),
            settings=settings,
            profiles=tuple(self._profile_view(n, settings) for n in step["profiles"]),
            nodes={uid: self._objects[n] for uid, n in step["nodes"].items()},
            jobs=tuple(self._with_refusal(job, step["refusals"]) for job in jobs),
            pods=tuple(view for n in step["pods"] if (view := self._view("pod_view", n)) is not None),
            reports=tuple(view for n in step["reports"] if (view := self._view("report_view", n)) is not None),
            occupancy={name: symbol("occupancy")([self._objects[n] for n in holders.get(name, ())]) for name in looked},
            config_maps={(namespace, name): data for namespace, name, data in step["config_maps"]},
            slices=tuple(self._view("slice_view", n) for n in step["slices"]),
            priority_class_exists=step["priority_class_exists"],
            queues={(namespace, name): there for namespace, name, there in step["queues"]},
        )

    def _view(self, parse: str, number: int, key: str = "") -> Any:
        if (parse, number, key) not in self._views:
            self._views[parse, number, key] = symbol(parse)(self._objects[number])
        return self._views[parse, number, key]

    def _profile_view(self, number: int, settings: Any) -> Any:
        key = ("served", number, str(id(settings)))
        if key not in self._views:
            self._views[key] = symbol("served")(symbol("profile_view")(self._objects[number]), settings)
        return self._views[key]

    def _with_refusal(self, job: Any, refusals: Mapping[str, str]) -> Any:
        return changed(job, creation_problem=refusals[job.uid]) if job.uid in refusals else job

    def _settings_of(self, told: Raw) -> Any:
        """The same instance for the same settings, as in a running operator."""
        key = symbol("canonical")(dict(told))
        if key not in self._settings:
            self._settings[key] = make(
                "Settings",
                agent_image=told["agent_image"],
                allowed_images=tuple(told["allowed_images"]),
                priority_class=told["priority_class"],
                agent_service_account=told["agent_service_account"],
                agent_defaults=symbol("AgentDefaults").model_validate(told["agent_defaults"]),
                disruption_backoff=timedelta(seconds=told["disruption_backoff_seconds"]),
            )
        return self._settings[key]

    # Decisions to plain data.

    def _round(self, decided: Any) -> dict[str, Any]:
        return {
            "look_at": [*field(decided, "look_at")],
            "actions": [
                [kind, a.reason, _subject(kind, a)] for a in field(decided, "actions") for kind in [self._kind(a)]
            ],
            "nodes": [
                _state(item.profile, state) for item in field(decided, "profiles") for state in field(item, "stands")
            ],
        }

    def _kind(self, action: Any) -> str:
        return next(kind for kind, made in self._kinds.items() if isinstance(action, made))

    def _action(self, action: Any) -> dict[str, Any]:
        """An action, whole: manifests as they are, views by name."""
        kind = self._kind(action)
        told: dict[str, Any] = {"kind": kind, "reason": action.reason, "message": action.message}
        if kind == "Start":
            facts = field(action, "facts")
            told |= {"profile": action.profile.key, "node": facts.name, "node_uid": facts.uid}
            told |= {"new_report": action.report, "job": action.job}
        elif kind == "Drop":
            told |= {"of": action.kind, "namespace": action.namespace, "name": action.name, "uid": action.uid}
        elif kind == "Withdraw":
            told |= {"job": action.job.name}
        else:
            told |= {"report": action.report.name if action.report is not None else None}
        if kind in ("Collect", "Close"):
            told |= {"job": action.job.name, "keeping": _keeping(field(action, "keeping"))}
        if kind == "Collect":
            told |= {"pod": action.pod.name if action.pod is not None else None, "pool": action.pool}
            told |= {"nvlink_domain": action.nvlink_domain}
        if kind == "Close":
            told |= {"outcome": action.outcome}
        return told

    def _profile(self, item: Any, now: datetime, nodes: int) -> dict[str, Any]:
        """The status that is written, and the events of the change."""
        after = symbol("profile_status")(item, now, nodes)
        told = symbol("notes")(symbol("status_before")(item), after)
        return {
            "uid": item.profile.uid,
            "key": item.profile.key,
            "status": symbol("status_json")(after),
            "events": [symbol("event")(item.profile, note, now) for note in told],
        }

    # What actions write.

    def _writes(self, action: Any, step: Raw, now: datetime) -> Iterator[dict[str, Any]]:
        """The report that an action writes: its name, its body where it is created now, its new status."""
        kind = self._kind(action)
        if kind in ("Start", "Drop", *NEWER_ACTIONS):
            return
        if kind in ("MarkStale", "MarkFresh"):
            yield _write(action.report, None, symbol("marked_status")(action, now))
            return
        body, report = None, action.report
        if report is None:
            job = action.job
            names = (job.namespace, job.profile, job.profile_uid, job.node_name, job.node_uid)
            body = symbol("manifest.report")(*names)
            report = symbol("report_view")(body)
        status = self._closed(action, report, now) if kind == "Close" else self._collected(action, report, step, now)
        yield _write(report, body, status)

    def _closed(self, action: Any, report: Any, now: datetime) -> Any:
        told = (action.said,) if hasattr(action, "said") else (action.reason, action.message)
        problem = symbol("Problem")(*told, action.outcome)
        return symbol("failed_status")(problem, action.job, report, now, field(action, "keeping"))

    def _collected(self, action: Any, report: Any, step: Raw, now: datetime) -> Any:
        found = symbol("summary_of")(action.job, action.pod)
        log = step["logs"].get(action.job.uid, "")
        keeping = field(action, "keeping")
        if isinstance(found, symbol("Problem")):
            tail = symbol("log_tail")(log.encode()) if log is not None and found.outcome == "failed" else None
            return symbol("failed_status")(found, action.job, report, now, keeping, tail)
        whole = symbol("finding")(found, log, "the kubelet does not answer" if log is None else "")
        if not hasattr(action, "by_claim"):  # before GPUs came by resource claim
            return symbol("read_status")(whole, action.job, report, action.pool, now, keeping, action.nvlink_domain)
        place = symbol("Place")(action.pool, action.nvlink_domain, action.by_claim)
        return symbol("read_status")(whole, action.job, report, place, now, keeping)

    # What people are told of one node.

    def _why(self, decided: Any, observed: Any, node: str) -> Iterator[dict[str, Any]]:
        for answer in symbol("why")(decided, observed, node):
            standing, past = field(answer, "standing"), field(answer, "past")
            yield {
                "profile": answer.profile.key,
                "node": node,
                "reason": answer.reason,
                "message": answer.message,
                "job": answer.job,
                "due": field(answer, "due"),
                "due_message": answer.due_message,
                "slow": [standing.reason, standing.message] if standing is not None else None,
                "detail_problem": field(past, "detail_problem"),
                "attempt": past.attempt.model_dump(mode="json") if past.attempt is not None else None,
                "blocked_by": [*answer.blocked_by],
            }


def reasons() -> list[list[str]]:
    """Every row of the table of reasons: code, kind, template, next step."""
    return [[row.code, row.kind, row.template, row.next_step] for row in symbol("REASONS").values()]


def _state(profile: Any, state: Any) -> list[Any]:
    facts, current, since = field(state, "facts"), field(state, "current"), state.since
    run = [current.run, dict(current.basis), field(current, "due"), _due_message(current)] if current else None
    return [profile.key, facts.uid, state.state, state.reason, state.message, run, since.isoformat() if since else None]


def _due_message(current: Any) -> str:
    """Why a run begins anew, in words; empty where it does not."""
    if hasattr(current, "message"):  # before a reason was one value
        return str(current.message)
    return current.begins.message if current.begins is not None else ""


def _subject(kind: str, action: Any) -> str:
    """The name of the node, Job or report that an action is about."""
    if kind == "Drop":
        return str(action.name)
    about = field(action, "facts") if kind == "Start" else action.job if kind in JOB_ACTIONS else action.report
    return str(about.name)


def _keeping(keeping: Any) -> dict[str, Any]:
    return {"retry": keeping.retry.model_dump(mode="json"), "retention": keeping.retention.model_dump(mode="json")}


def _write(report: Any, body: Raw | None, status: Any) -> dict[str, Any]:
    return {"name": report.name, "uid": report.uid, "body": body, "status": symbol("report_json")(status)}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
