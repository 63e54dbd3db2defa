"""What to do now: one frozen value in, one frozen value out. A dry run is this plan, printed.

Each matched node of each profile gets a stand (where it is, and why); each action carries the reason that it is taken
for. Applied twice, a plan changes nothing: what is started, collected or dropped is seen in the next `Observed`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from precision_api import names
from precision_api.report import ReportAttempt
from precision_operator.core import manifest
from precision_operator.core.asking import Ask, Refusal, ask, refusal, request, too_large
from precision_operator.core.budget import NODE_CHECKS, PROFILE_CHECKS, Turn, concurrency_limit, hindrance
from precision_operator.core.clock import duration, parse_time
from precision_operator.core.eligibility import decide, matches
from precision_operator.core.nodes import NodeFacts, node_facts
from precision_operator.core.observed import JobView, Observed, PodView, ProfileView, ReportView
from precision_operator.core.reasons import REASONS, Kind, sentence


@dataclass(frozen=True)
class Stand:
    """Where one matched node stands in one profile, and why."""

    facts: NodeFacts
    reason: str
    message: str
    report: ReportView | None = None

    @property
    def state(self) -> Kind:
        return REASONS[self.reason].kind


@dataclass(frozen=True)
class Start:
    """Create the node's report if it has none, then the attempt's Job."""

    profile: ProfileView
    facts: NodeFacts
    report: Mapping[str, Any] | None
    job: Mapping[str, Any]
    reason: str
    message: str


@dataclass(frozen=True)
class Collect:
    """Read what a finished agent left behind, write it to the report, then delete the Job."""

    job: JobView
    pod: PodView | None
    report: ReportView | None
    pool: str
    reason: str = "AgentFinished"
    message: str = "the agent ended: its result is read"


@dataclass(frozen=True)
class Close:
    """End an attempt that can't succeed any more: write why to the report, then delete the Job."""

    job: JobView
    report: ReportView | None
    outcome: Literal["failed", "disrupted"]
    reason: str
    message: str


@dataclass(frozen=True)
class Drop:
    """Delete a Job or a report that nobody needs any more."""

    kind: Literal["Job", "NodePrecisionReport"]
    namespace: str
    name: str
    uid: str
    reason: str
    message: str


@dataclass(frozen=True)
class MarkGone:
    """Write to a report that its node is gone: its figures stay until the profile's retention ends."""

    report: ReportView
    reason: str
    message: str


Action = Start | Collect | Close | Drop | MarkGone


@dataclass(frozen=True)
class ProfilePlan:
    """What one profile comes to: what it asks (or why it can't), and where each matched node stands."""

    profile: ProfileView
    asked: Ask | Refusal
    stands: tuple[Stand, ...] = ()
    pools: Mapping[str, str] = field(default_factory=dict)
    """Pool by node UID."""


@dataclass(frozen=True)
class Plan:
    """All profiles at once: two of them must not pick the same node."""

    profiles: tuple[ProfilePlan, ...]
    actions: tuple[Action, ...]
    look_at: tuple[str, ...]
    """Nodes that would start an agent if they are idle: look, and plan again."""


@dataclass
class _Ledger:
    """What is taken while one plan is made: a value local to `plan`."""

    live: dict[str, set[str]]
    """UIDs of the Jobs of agents that run or may still run, by profile UID."""
    taken: dict[str, str]
    """Key of the profile whose agent is on the node, by the node's name: one that comes back may still run it."""


def plan(observed: Observed) -> Plan:
    """The plan for everything that is seen."""
    ledger = _ledger(observed)
    drafts = [_draft(profile, observed, ledger) for profile in observed.profiles]
    decided, starts, look_at = _take_turns(drafts, observed, ledger)
    actions = (*_housekeeping(observed, decided), *starts)
    return Plan(tuple(decided), actions, look_at)


def _ledger(observed: Observed) -> _Ledger:
    """What counts: each Job until it is deleted, and pods that still hold GPUs although their Job is gone."""
    keys = {profile.uid: profile.key for profile in observed.profiles}
    live: dict[str, set[str]] = defaultdict(set)
    taken: dict[str, str] = {}
    running: Iterable[JobView | PodView] = (*observed.jobs, *(pod for pod in observed.pods if pod.live))
    for item in running:
        live[item.profile_uid].add(item.job_uid if isinstance(item, PodView) else item.uid)
        taken.setdefault(item.node_name, keys.get(item.profile_uid, "a deleted profile"))
    return _Ledger(live, taken)


def _draft(profile: ProfileView, observed: Observed, ledger: _Ledger) -> ProfilePlan:
    """Where each node stands before turns are given; a candidate's reason is `Eligible`."""
    asked = ask(profile, observed.settings, observed.config_maps)
    if isinstance(asked, Ask) and not observed.priority_class_exists:
        asked = refusal("PriorityClassMissing", name=observed.settings.priority_class)
    if profile.spec is None:
        return ProfilePlan(profile, asked)
    jobs = {job.node_uid: job for job in observed.jobs if job.profile_uid == profile.uid}
    pods = {pod.job_uid: pod for pod in observed.pods}
    reports = {r.node_uid: r for r in observed.reports if r.profile_uid == profile.uid}
    facts = [node_facts(node, profile.spec.pool_label, observed.slices) for node in observed.nodes.values()]
    matched = sorted((f for f in facts if matches(profile.spec.target, f)), key=lambda f: f.name)
    stands = tuple(_stand(profile, asked, each, jobs.get(each.uid), pods, reports.get(each.uid)) for each in matched)
    return ProfilePlan(profile, asked, stands, {each.uid: each.pool for each in matched})


def _stand(
    profile: ProfileView,
    asked: Ask | Refusal,
    facts: NodeFacts,
    job: JobView | None,
    pods: Mapping[str, PodView],
    report: ReportView | None,
) -> Stand:
    """A running agent first, then what this run has found, then whether the node can be measured at all."""
    assert profile.spec is not None
    if job is not None and not _recorded(job, report):
        return Stand(facts, *_running(job, pods.get(job.uid)), report)
    attempt = attempt_of(report, asked)
    if attempt is not None and attempt.outcome == "succeeded":
        assert report is not None
        return Stand(facts, "Measured", sentence("Measured", attempt=attempt.number, report=report.name), report)
    if attempt is not None and attempt.outcome == "failed":
        reason = attempt.reason or "Failed"
        known = reason in REASONS and REASONS[reason].kind == "failed"
        return Stand(facts, reason if known else "Failed", attempt.message or "", report)
    decision = decide(facts, profile.spec.target, profile.spec.agent.tolerations)
    if decision.kind == "eligible" and isinstance(asked, Refusal):
        return Stand(facts, "ProfileNotAccepted", sentence("ProfileNotAccepted", why=asked.message), report)
    return Stand(facts, decision.reason, decision.message, report)


def attempt_of(report: ReportView | None, asked: Ask | Refusal) -> ReportAttempt | None:
    """The newest attempt of this run on this node; None when there was none."""
    if report is None or report.status is None or report.status.attempt is None or isinstance(asked, Refusal):
        return None
    return report.status.attempt if report.status.attempt.run == asked.run else None


def _recorded(job: JobView, report: ReportView | None) -> bool:
    """Whether the report tells how this attempt ended: what remains of it is to be deleted."""
    attempt = report.status.attempt if report is not None and report.status is not None else None
    return attempt is not None and (attempt.run, attempt.number) == (job.run, job.attempt)


def _running(job: JobView, pod: PodView | None) -> tuple[str, str]:
    if not job.live:
        return "Collecting", sentence("Collecting", attempt=job.attempt)
    if pod is not None and pod.phase == "Running":
        return "AgentRunning", sentence("AgentRunning", attempt=job.attempt, job=job.name)
    why = job.creation_problem or (pod and (pod.waiting_message or pod.waiting_reason or pod.unschedulable)) or ""
    return "AgentStarting", sentence("AgentStarting", attempt=job.attempt, why=why or "its pod is on the way")


def _take_turns(
    drafts: list[ProfilePlan], observed: Observed, ledger: _Ledger
) -> tuple[list[ProfilePlan], list[Start], tuple[str, ...]]:
    """Give free places to candidates: the profile with the fewest live agents first, then the oldest."""
    queues = {d.profile.uid: [s for s in d.stands if s.state == "eligible"] for d in drafts}
    by_uid = {d.profile.uid: d for d in drafts}
    limits = {d.profile.uid: _limit(d) for d in drafts}
    settled: dict[tuple[str, str], Stand] = {}
    starts: list[Start] = []
    look_at: list[str] = []
    while any(queues.values()):
        uid = min((u for u, q in queues.items() if q), key=lambda u: _rank(by_uid[u].profile, ledger))
        draft, candidate = by_uid[uid], queues[uid].pop(0)
        stand, start = _turn(draft, candidate, observed, ledger, limits[uid])
        settled[uid, candidate.facts.uid] = stand
        if start is not None:
            starts.append(start)
        if stand.reason == "CheckingIdle":
            look_at.append(candidate.facts.name)
        if stand.reason in ("CheckingIdle", "AgentStarting"):
            ledger.live[uid].add(candidate.facts.uid)
            ledger.taken.setdefault(candidate.facts.name, draft.profile.key)
        if stand.reason in {code for code, _ in PROFILE_CHECKS}:
            for other in queues[uid]:
                settled[uid, other.facts.uid] = replace(other, reason=stand.reason, message=stand.message)
            queues[uid] = []
    decided = [replace(d, stands=tuple(settled.get((d.profile.uid, s.facts.uid), s) for s in d.stands)) for d in drafts]
    return decided, starts, tuple(dict.fromkeys(look_at))


def _rank(profile: ProfileView, ledger: _Ledger) -> tuple[int, Any, str]:
    return len(ledger.live[profile.uid]), profile.created, profile.key


def _turn(
    draft: ProfilePlan, candidate: Stand, observed: Observed, ledger: _Ledger, limit: int
) -> tuple[Stand, Start | None]:
    """One candidate's turn: it starts, or its stand says what it waits for."""
    profile, facts, asked = draft.profile, candidate.facts, draft.asked
    assert profile.spec is not None
    assert isinstance(asked, Ask)
    attempt = attempt_of(candidate.report, asked)
    turn = Turn(
        observed=observed,
        profile=profile,
        facts=facts,
        live=len(ledger.live[profile.uid]),
        limit=limit,
        taken_by=ledger.taken.get(facts.name),
        attempt=attempt,
    )
    hindered = hindrance(turn, PROFILE_CHECKS) or hindrance(turn, NODE_CHECKS)
    if hindered is not None:
        return replace(candidate, reason=hindered[0], message=hindered[1]), None
    document = request(profile, asked, facts, attempt.number + 1 if attempt else 1)
    refused = too_large(document)
    if refused is not None:
        return replace(candidate, reason="ProfileNotAccepted", message=refused.message), None
    message = sentence("AgentStarting", attempt=document.attempt, why="its Job is being created")
    start = Start(
        profile=profile,
        facts=facts,
        report=manifest.report(profile.namespace, profile.name, profile.uid, facts.name, facts.uid)
        if candidate.report is None
        else None,
        job=manifest.job(profile, facts, asked, document, observed.settings),
        reason="AgentStarting",
        message=message,
    )
    return replace(candidate, reason="AgentStarting", message=message), start


def _limit(draft: ProfilePlan) -> int:
    """Most agents of a profile at once; none where its spec can't be read."""
    if draft.profile.spec is None:
        return 0
    eligible = sum(stand.state != "skipped" for stand in draft.stands)
    return concurrency_limit(draft.profile.spec.rollout.max_concurrent, eligible)


def _housekeeping(observed: Observed, decided: list[ProfilePlan]) -> Iterable[Action]:
    """What becomes of Jobs that are over or hopeless, and of reports whose node is gone."""
    profiles = {p.profile.uid: p for p in decided}
    reports = {(r.profile_uid, r.node_uid): r for r in observed.reports}
    pods = {pod.job_uid: pod for pod in observed.pods}
    for job in observed.jobs:
        if job.deleting:
            continue
        owner = profiles.get(job.profile_uid)
        if owner is None:
            yield _drop_job(job, "ProfileDeleted", "its profile is gone")
            continue
        report = reports.get((job.profile_uid, job.node_uid))
        action = _job_action(job, pods.get(job.uid), report, owner, observed)
        if action is not None:
            yield action
    # One writer a pass: a report whose Job is still there gets that Job's end first, or the one would undo the other.
    written = {(job.profile_uid, job.node_uid) for job in observed.jobs}
    for report in observed.reports:
        if (report.profile_uid, report.node_uid) in written:
            continue
        gone = _report_action(report, profiles.get(report.profile_uid), observed)
        if gone is not None:
            yield gone


def _job_action(
    job: JobView, pod: PodView | None, report: ReportView | None, owner: ProfilePlan, observed: Observed
) -> Action | None:
    if _recorded(job, report):
        return _drop_job(job, "ResultWritten", "its result is in the report")
    if job.finished is not None:
        return Collect(job, pod, report, owner.pools.get(job.node_uid, ""))
    if job.node_uid not in observed.nodes:
        return Close(job, report, "failed", "NodeLost", sentence("NodeLost", node=job.node_name))
    return _stuck(job, pod, report, observed)


def _stuck(job: JobView, pod: PodView | None, report: ReportView | None, observed: Observed) -> Close | None:
    """An attempt that waits for its place, its pod or its image longer than it may gives the place back."""
    timeout = observed.settings.pending_timeout
    if observed.now - job.created < timeout or (pod is not None and pod.phase != "Pending"):
        return None
    seconds = int(timeout.total_seconds())
    if pod is None:
        text = job.creation_problem or "no pod was created"
        return Close(
            job, report, "failed", "PodNotCreated", sentence("PodNotCreated", text=text, namespace=job.namespace)
        )
    if pod.waiting_reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
        message = sentence("ImagePullFailed", image="of the agent", text=pod.waiting_message or pod.waiting_reason)
        return Close(job, report, "failed", "ImagePullFailed", message)
    text = pod.unschedulable or pod.waiting_message or pod.waiting_reason or "no reason is given"
    outcome: Literal["failed", "disrupted"] = "disrupted" if pod.unschedulable else "failed"
    return Close(job, report, outcome, "PendingTooLong", sentence("PendingTooLong", seconds=seconds, text=text))


def _drop_job(job: JobView, reason: str, message: str) -> Drop:
    return Drop("Job", job.namespace, job.name, job.uid, reason, message)


def _report_action(report: ReportView, owner: ProfilePlan | None, observed: Observed) -> Action | None:
    """Reports go with their profile by garbage collection, and with their node after the retention."""
    if owner is None or owner.profile.spec is None or report.node_uid in observed.nodes:
        return None
    fresh = next((c for c in report.status.conditions if c.type == names.FRESH), None) if report.status else None
    if fresh is None or fresh.reason != "NodeGone":
        return MarkGone(report, "NodeGone", sentence("NodeGone", node=report.node_name))
    keep = duration(owner.profile.spec.retention.deleted_nodes)
    if observed.now - parse_time(fresh.last_transition_time) < keep:
        return None
    return Drop("NodePrecisionReport", report.namespace, report.name, report.uid, "RetentionOver", "its node is gone")
