"""The state of each matched node of a profile, and why: before admission, and without any rollout limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from precision_api.kinds.profile import NodeCounts, ProfileSpec
from precision_api.kinds.report import ReportAttempt
from precision_operator.core.attempts.faults import Fault, fault_text
from precision_operator.core.attempts.places import NO_IMAGE, end_of, is_failing_to_start, is_starting
from precision_operator.core.attempts.refusal import RULES, hold_of, refusal_facts
from precision_operator.core.attempts.retry import QUARANTINE_LOSSES, QUARANTINE_RUNS, next_try, spent
from precision_operator.core.eligibility.checks import decide, matches
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.eligibility.schedule import last_tick, next_tick
from precision_operator.core.eligibility.triggers import (
    CurrentRun,
    current_run,
    not_due_yet,
    run_inputs,
    waits_for_gpus,
)
from precision_operator.core.observe.clock import duration, format_time, parse_time
from precision_operator.core.observe.images import is_cold
from precision_operator.core.observe.memo import Memo
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import (
    AcceptedProfile,
    JobView,
    Observed,
    PodView,
    ProfileView,
    RefusedCreation,
    ReportView,
    Settings,
    Yield,
)
from precision_operator.core.observe.tenants import shown_pod
from precision_operator.core.reasons import REASONS, Facts, Kind, Reasoned, Said, said

_DRAINED = ("NodeDeleting", "UntoleratedTaint")
ANTI_AFFINITY = "; they may be of a pod of any namespace: see docs/security.md, What the cluster must enforce"


@dataclass(frozen=True)
class NodeState(Reasoned):
    """Where one matched node stands in one profile, and why."""

    facts: NodeFacts
    said: Said
    report: ReportView | None = None
    current: CurrentRun | None = None
    """The run that the node is in; None where the profile can't be measured."""
    since: datetime | None = None
    """When the agent that is there got its place; None where there is none."""
    decision: Said | None = field(default=None, compare=False)
    """Whether the node can be measured at all, where that was asked."""

    @property
    def state(self) -> Kind:
        return self.said.kind

    def waiting(self, said: Said) -> "NodeState":
        """The same node, with another reason; `replace` takes half as long again, for each of 50,000."""
        return NodeState(self.facts, said, self.report, self.current, self.since, self.decision)


@dataclass(frozen=True)
class ProfilePlan:
    """What one profile comes to: what it asks (or why it can't), and where each matched node stands."""

    profile: ProfileView
    asked: ResolvedProfile | Said
    node_states: tuple[NodeState, ...] = ()
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """Facts of all nodes by UID, matched or not, with their pools as this profile sees them."""
    refusals: Mapping[str, RefusedCreation] = field(default_factory=dict)
    """What the cluster refused to create last, by node UID."""
    hold: RefusedCreation | None = None
    """The one of them that concerns the profile as a whole."""
    drained: frozenset[str] = frozenset()
    """UIDs of nodes with an attempt on which somebody wants no pods just now."""
    yields: tuple[Yield, ...] = ()
    """Its agents that were ended for pods of others within the last hour."""

    @property
    def poll_seconds(self) -> float | None:
        """Seconds until the profile is to be looked at again; None where watches show all that it waits for."""
        reasons = {node_state.reason for node_state in self.node_states}
        if isinstance(self.asked, Said) and not REASONS[self.asked.reason].undecided:
            reasons.add("ProfileNotAccepted")
        polls = [REASONS[reason].poll_seconds for reason in reasons]
        return min([seconds for seconds in polls if seconds is not None], default=None)

    @property
    def tally(self) -> NodeCounts:
        """How many nodes are eligible, and how these have fared in their runs."""
        states = [node_state.state for node_state in self.node_states]
        return NodeCounts(
            eligible=sum(state != "skipped" for state in states),
            succeeded=states.count("succeeded"),
            failed=states.count("failed"),
        )


@dataclass(frozen=True)
class AcceptedPlan(ProfilePlan):
    """What a profile comes to that can be measured."""

    profile: AcceptedProfile
    asked: ResolvedProfile


def draft(profile: ProfileView, observed: Observed, faults: list[Fault] | None = None) -> ProfilePlan:
    """Where each node stands before turns are given; a candidate's reason is `Eligible`.

    A node for which that can't be worked out waits as PlanFailed, and its exception is added to `faults`.
    """
    problems = [] if faults is None else faults
    asked = resolve_profile(profile, observed)
    if profile.spec is None:
        return ProfilePlan(profile, asked)
    facts = observed.facts_of(profile.spec.pool_label)
    target = profile.spec.target
    named = frozenset(target.node_names)  # of as many names as a target may have, each node would be compared with all
    meant = (f for f in facts.values() if not named or f.name in named)
    matched = sorted((f for f in meant if matches(target, f)), key=lambda f: f.name)
    objects = _Found(
        jobs={job.node_uid: job for job in observed.jobs if job.profile_uid == profile.uid},
        pods={pod.job_uid: pod for pod in observed.pods},
        reports=observed.reports_of[profile.uid],
    )
    terms = _terms(profile, profile.spec, asked, observed.now)
    node_states = tuple(_judged(terms, node, objects, observed, problems) for node in matched)
    refusals = observed.refused_of.get(profile.uid, {})
    hold = hold_of(refusals.values())
    if refusals:
        node_states = tuple(_or_refused(node, hold, profile, objects, observed) for node in node_states)
    records = (record for record in observed.yields if record.profile_uid == profile.uid)
    yields = tuple(replace(r, pod=shown_pod(r.pod, profile.namespace, observed)) for r in records)
    more = (node_states, facts, refusals, hold, drained_nodes(profile, facts, observed), yields)
    if isinstance(asked, ResolvedProfile):
        return AcceptedPlan(asked.profile, asked, *more)
    return ProfilePlan(profile, asked, *more)


def drained_nodes(profile: ProfileView, facts: Mapping[str, NodeFacts], observed: Observed) -> frozenset[str]:
    """UIDs of the nodes with an attempt of the profile on which somebody wants no pods just now."""
    spec, jobs = profile.spec, (job for job in observed.jobs if job.profile_uid == profile.uid)
    attempted = [facts[job.node_uid] for job in jobs if job.node_uid in facts]
    return frozenset(
        node.uid
        for node in attempted
        if spec is not None
        and (node.unschedulable or decide(node, spec.target, spec.agent.tolerations).reason in _DRAINED)
    )


@dataclass(frozen=True)
class _Found:
    """What belongs to one profile: Jobs and reports by node UID, pods by their Job's UID."""

    jobs: Mapping[str, JobView]
    pods: Mapping[str, PodView]
    reports: Mapping[str, ReportView]


@dataclass(frozen=True)
class _Terms:
    """All of a profile, and of the moment, that the stands of its nodes hang on: equal terms give equal stands."""

    uid: str
    created: datetime
    spec: ProfileSpec
    rerun: str
    asked: ResolvedProfile | Said
    ticks: tuple[datetime | None, datetime | None]
    """The schedule's last and next time; none while it is suspended, so that its ticks cost nothing."""


_TERMS: Memo[_Terms] = Memo()
_NODE_STATES: Memo[NodeState] = Memo()


def _terms(profile: ProfileView, spec: ProfileSpec, asked: ResolvedProfile | Said, now: datetime) -> _Terms:
    """The profile's, the same object as long as nothing in them changes."""
    fires = isinstance(asked, ResolvedProfile) and not spec.suspend
    ticks = (last_tick(spec.schedule, profile.uid, now), next_tick(spec.schedule, profile.uid, now)) if fires else None
    _, before = _TERMS.last(profile.uid) or (None, None)
    spec = before.spec if before is not None and before.spec == spec else spec
    terms = _Terms(profile.uid, profile.created, spec, profile.rerun, asked, ticks or (None, None))
    return _TERMS.keep(terms.uid, (), before if before is not None and before == terms else terms)


def next_round() -> None:
    """A plan begins, which asks for every node of every profile: what the last two did not ask for is forgotten."""
    _NODE_STATES.next_round()
    _TERMS.next_round()


def _judged(terms: _Terms, facts: NodeFacts, objects: _Found, observed: Observed, faults: list[Fault]) -> NodeState:
    """The node's stand; PlanFailed where it can't be worked out."""
    if facts.unreadable is not None:
        return plan_failed(facts, facts.unreadable, objects.reports.get(facts.uid))
    try:
        return _node_state_once(terms, facts, objects, observed)
    except Exception as error:
        faults.append(Fault("node", facts.name, error))
        return plan_failed(facts, error, objects.reports.get(facts.uid))


def plan_failed(facts: NodeFacts, error: Exception, report: ReportView | None = None) -> NodeState:
    """The stand of a node for which nothing could be planned."""
    return NodeState(facts, said("PlanFailed", why=fault_text(error)), report)


def _node_state_once(terms: _Terms, facts: NodeFacts, objects: _Found, observed: Observed) -> NodeState:
    """The node's stand, from before where nothing that it hangs on has changed.

    Time passes, and bears on three things: the schedule's ticks are in the terms, a result grows too old at one moment,
    and a node whose agent failed is tried again: its stand is always made anew.
    """
    report, job = objects.reports.get(facts.uid), objects.jobs.get(facts.uid)
    pod = objects.pods.get(job.uid) if job is not None else None
    key, inputs = (terms.uid, facts.uid), (terms, facts, report, job, pod, _aged(terms.spec, report, observed.now))
    before = _NODE_STATES.known(key, inputs)
    if before is not None:
        return before
    node_state = _node_state(terms, facts, objects, observed)
    attempt = newest_attempt(report)
    if attempt is not None and attempt.outcome == "failed":
        return node_state
    return _NODE_STATES.keep(key, inputs, node_state)


def _or_refused(
    node_state: NodeState, hold: RefusedCreation | None, profile: ProfileView, objects: _Found, observed: Observed
) -> NodeState:
    """The node's stand, or the cluster's refusal where its agent may not be tried again yet, or has no pod again."""
    refusals, job = observed.refused_of[profile.uid], objects.jobs.get(node_state.facts.uid)
    refused = refusals.get(node_state.facts.uid)
    if node_state.state == "eligible":
        holds = refused is not None and not RULES[refused.reason].whole and observed.now < refused.until
    else:
        refused = refused or hold
        waits_for_pod = node_state.reason == "AgentStarting" and job is not None and job.uid not in objects.pods
        holds = waits_for_pod and refused is not None and refused.stage == "pod"
    if refused is None or not holds:
        return node_state
    return replace(node_state, said=Said(refused.reason, refusal_facts(refused, profile)), since=None)


def _aged(spec: ProfileSpec, report: ReportView | None, now: datetime) -> bool:
    """Whether the newest good result is older than the profile allows."""
    limit, run = spec.schedule.max_age, report.status.run if report is not None and report.status is not None else None
    return limit is not None and run is not None and now - parse_time(run.finished_at) > duration(limit)


def next_run(plan: ProfilePlan, now: datetime) -> datetime | None:
    """When time alone begins a run of the profile: at its schedule's next tick, or when a result is too old."""
    if not isinstance(plan, AcceptedPlan) or plan.profile.spec.suspend:
        return None
    schedule = plan.profile.spec.schedule
    moments = [next_tick(schedule, plan.profile.uid, now)]
    if schedule.max_age is not None:
        limit = duration(schedule.max_age)
        statuses = (state.report.status for state in plan.node_states if state.report and state.state == "succeeded")
        times = [status.run.finished_at for status in statuses if status is not None and status.run is not None]
        young = [time for time in times if time >= format_time(now - limit)]
        moments += [parse_time(min(young)) + limit + timedelta(seconds=1)] if young else []
    return min((moment for moment in moments if moment is not None), default=None)


def newest_attempt(report: ReportView | None) -> ReportAttempt | None:
    """The newest attempt on a node, of whatever run; None when there was none."""
    return report.status.attempt if report is not None and report.status is not None else None


def recorded(job: JobView, report: ReportView | None) -> bool:
    """Whether the report tells how this attempt ended: what remains of it is to be deleted."""
    attempt = newest_attempt(report)
    return attempt is not None and (attempt.run, attempt.number) == (job.run, job.attempt)


def _node_state(terms: _Terms, facts: NodeFacts, objects: _Found, observed: Observed) -> NodeState:
    """A running agent first, then what the current run has found, then whether the node can be measured at all."""
    spec, asked = terms.spec, terms.asked
    report, job = objects.reports.get(facts.uid), objects.jobs.get(facts.uid)
    now = current_run(run_inputs(asked, facts, report, observed.now)) if isinstance(asked, ResolvedProfile) else None
    if job is not None and not recorded(job, report):
        cold = isinstance(asked, ResolvedProfile) and is_cold(facts, asked.image, asked.image_digest, report)
        running = _running(job, objects.pods.get(job.uid), facts, spec, observed.settings, cold)
        return NodeState(facts, running, report, now, job.active_since or job.created)
    if now is not None and now.attempt is not None:
        ended = _ended(now.attempt, spec, report, observed)
        if ended is not None:
            return NodeState(facts, ended, report, now)
    question = (spec.target, spec.agent.tolerations, observed.settings.startup_taints)
    decision = _decision_before(terms, facts) or decide(facts, *question)
    if decision.kind != "eligible":
        return NodeState(facts, decision, report, now, decision=decision)
    if isinstance(asked, Said) or now is None:
        why = asked.message if isinstance(asked, Said) else ""
        return NodeState(facts, said("ProfileNotAccepted", why=why), report)
    for code, held in (
        ("NotDueYet", not_due_yet(asked.profile, now, observed.now)),
        ("GPUsMissing", waits_for_gpus(facts, now, newest_attempt(report))),
        ("Quarantined", _quarantined(report, now, facts)),
    ):
        if held is not None:
            return NodeState(facts, Said(code, held), report, now, decision=decision)
    return NodeState(facts, decision, report, now, decision=decision)


def _decision_before(terms: _Terms, facts: NodeFacts) -> Said | None:
    """Whether the node can be measured, as worked out last: no schedule bears on it. None where that may differ."""
    before = _NODE_STATES.last((terms.uid, facts.uid))
    if before is None or before[0][1] is not facts:
        return None
    old = before[0][0]
    return before[1].decision if isinstance(old, _Terms) and old.spec is terms.spec else None


def _running(
    job: JobView, pod: PodView | None, facts: NodeFacts, spec: ProfileSpec, settings: Settings, cold: bool
) -> Said:
    """Where an attempt stands whose end is not in its report; `cold`: its node has to pull the image."""
    if not job.live:
        return said("Collecting", attempt=job.attempt)
    if job.suspended:
        return said("WaitsInQueue", queue=spec.agent.queue_name or "of another name")
    if pod is None or (pod.phase == "Pending" and not is_starting(pod)):
        return _unscheduled(job, pod)
    end = end_of(job, pod, facts, spec, settings)
    over = format_time(end.at) if end is not None else ""
    facts_of_attempt = {"attempt": job.attempt, "node": facts.name, "until": over}
    if facts.not_ready is not None:
        until = f"at {over}" if end is not None else "when Kubernetes gives its pod up"
        return said("AgentUnreachable", **facts_of_attempt | {"why": facts.not_ready, "until": until})
    if not is_starting(pod):
        return said("AgentRunning", attempt=job.attempt, job=job.name)
    if pod.waiting_reason in NO_IMAGE:
        why = pod.waiting_message or pod.waiting_reason
        return said("ImagePullFailing", **facts_of_attempt, why=why)
    if cold and not is_failing_to_start(pod):
        since = format_time(pod.scheduled_at or pod.created)
        return said("PullingImage", **facts_of_attempt, since=since)
    why = pod.claim_problem or pod.waiting_message or pod.waiting_reason or "its container is being created"
    return said("AgentStarting", attempt=job.attempt, why=why)


def _unscheduled(job: JobView, pod: PodView | None) -> Said:
    if pod is not None and pod.unschedulable:
        of_others = ANTI_AFFINITY if "existing pods anti-affinity rules" in pod.unschedulable else ""
        return said("AgentUnschedulable", attempt=job.attempt, why=f"{pod.unschedulable}{of_others}")
    waits = "its resource claim is on the way" if pod is not None and pod.claims else "its pod is on the way"
    return said("AgentStarting", attempt=job.attempt, why=job.creation_problem or waits)


def _ended(attempt: ReportAttempt, spec: ProfileSpec, report: ReportView | None, observed: Observed) -> Said | None:
    """What an attempt of the current run comes to: a result, a failure for good, a retry later; None: go on."""
    if attempt.outcome == "succeeded":
        run = report.status.run if report is not None and report.status is not None else None
        which = f"{attempt.number}, not completely ({run.partial})" if run and run.partial else str(attempt.number)
        return said("Measured", attempt=which, node=report.node_name if report is not None else "NODE")
    if attempt.outcome == "disrupted":
        return None
    retry = spec.rollout.retry
    if spent(attempt, retry):
        reason = attempt.reason or "Failed"
        is_failure = reason in REASONS and REASONS[reason].kind == "failed"
        return Said(reason if is_failure else "Failed", words=attempt.message or said("Failed").message)
    until = next_try(attempt, retry, observed.now)
    if until is None:
        return None
    facts = {"attempt": attempt.number, "why": attempt.message or attempt.reason or "", "until": format_time(until)}
    return said("Retrying", retry=attempt.failures, limit=retry.limit, **facts)


def _quarantined(report: ReportView | None, now: CurrentRun, facts: NodeFacts) -> Facts | None:
    """A node that failed run after run is left alone, until somebody asks for it or something on it has changed."""
    status = report.status if report is not None else None
    if status is None or status.quarantine is None:
        return None
    if now.due in ("RerunNode", "Rerun", "HardwareChange", "DriverChange"):
        return None
    attempt = newest_attempt(report)
    lost = attempt.node_losses if attempt is not None else 0
    if now.attempt is not None and lost < QUARANTINE_LOSSES:
        return None
    runs = f"{lost} attempts" if lost >= QUARANTINE_LOSSES else f"{max(QUARANTINE_RUNS, status.failed_runs)} runs"
    return {"runs": runs, "why": status.quarantine.reason, "node": facts.name}
