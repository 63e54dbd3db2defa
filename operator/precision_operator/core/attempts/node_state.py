"""The state of each matched node of a profile, and why: before admission, and without any rollout limit."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain

from precision_api.facts.mixtures import named_of
from precision_api.kinds.profile import NodeCounts, ProfileSpec
from precision_api.kinds.report import ReportAttempt
from precision_operator.core.attempts.faults import Fault, fault_text
from precision_operator.core.attempts.places import NO_IMAGE, end_of, is_failing_to_start, is_starting
from precision_operator.core.attempts.refusal import RULES, hold_of, refusal_facts
from precision_operator.core.attempts.retry import QUARANTINE_LOSSES, QUARANTINE_RUNS, next_try, spent
from precision_operator.core.eligibility import triggers
from precision_operator.core.eligibility.checks import decide, matches
from precision_operator.core.eligibility.proved import run_to_prove, waits_for_verdict
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.eligibility.schedule import last_tick, next_tick
from precision_operator.core.observe.book import differing, same
from precision_operator.core.observe.clock import duration, format_time, parse_time
from precision_operator.core.observe.images import is_cold
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import (
    AcceptedProfile,
    Filed,
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

KEPT = "its Job is deleted, and finalizers keep it"
AGAIN, BEING_MEASURED_AGAIN, QUARANTINED = "to be measured again", "being measured again", "in quarantine"
"""Marks of a node: it rests since its last runs all failed, also where the run that did so is still the newest."""


@dataclass(slots=True)
class NodeState(Reasoned):
    """Where one matched node stands in one profile, and why. Never changed, as `Said`."""

    facts: NodeFacts
    said: Said
    report: ReportView | None = None
    current: triggers.CurrentRun | None = None
    """The run that the node is in; None where the profile can't be measured."""
    since: datetime | None = None
    """When the agent that is there got its place; None where there is none."""
    decision: Said | None = field(default=None, compare=False)
    """Whether the node can be measured at all, where that was asked."""

    @property
    def state(self) -> Kind:
        return self.said.kind

    @property
    def marks(self) -> Sequence[str]:
        """The reason, and what else a status counts of it."""
        marks, status = [self.said.reason], self.report.status if self.report is not None else None
        if self.current is not None and self.current.due not in (None, "FirstRun"):
            marks += [AGAIN, BEING_MEASURED_AGAIN] if self.state in ("queued", "running") else [AGAIN]
        if self.said.reason == "Quarantined" or (status is not None and status.quarantine is not None):
            marks.append(QUARANTINED)
        if status is not None and status.acceptance is not None:
            marks.append(f"verdict {status.acceptance.verdict}")
        return marks

    def waiting(self, said: Said) -> "NodeState":
        """The same node, with another reason; `replace` takes half as long again, for each of 50,000."""
        return NodeState(self.facts, said, self.report, self.current, self.since, self.decision)


class NodeStates(tuple[NodeState, ...]):
    """Where a profile's nodes stand, by name; what follows from that alone is worked out once."""

    @cached_property
    def by_uid(self) -> Mapping[str, NodeState]:
        return {node_state.facts.uid: node_state for node_state in self}

    @cached_property
    def tallies(self) -> Counter[str]:
        """How many nodes have each reason and mark."""
        return Counter(chain.from_iterable(node_state.marks for node_state in self))

    @cached_property
    def reasons(self) -> Counter[str]:
        """How many nodes have each reason."""
        return Counter({mark: count for mark, count in self.tallies.items() if mark in REASONS})

    def first(self, *reasons: str) -> NodeState:
        """The first node with one of these reasons; there must be one."""
        return next(node_state for node_state in self if node_state.said.reason in reasons)

    @cached_property
    def kinds(self) -> Counter[Kind]:
        """How many nodes are in each state."""
        kinds: Counter[Kind] = Counter()
        for reason, count in self.reasons.items():
            kinds[REASONS[reason].kind] += count
        return kinds

    @cached_property
    def words(self) -> object:
        """The same object while all that a status says of these nodes beside their results is the same."""
        return object()

    @cached_property
    def measurable(self) -> frozenset[str]:
        """UIDs of the nodes that are not skipped."""
        return frozenset(state.facts.uid for state in self if state.state != "skipped")

    @cached_property
    def candidates(self) -> Mapping[int, NodeState]:
        """Those that may start, by their places."""
        starts = self.kinds["eligible"]
        return {place: state for place, state in enumerate(self) if state.state == "eligible"} if starts else {}

    @cached_property
    def tally(self) -> NodeCounts:
        """How many nodes are eligible, and how these have fared in their runs."""
        kinds = self.kinds
        eligible = len(self) - kinds["skipped"]
        return NodeCounts(eligible=eligible, succeeded=kinds["succeeded"], failed=kinds["failed"])

    @cached_property
    def finished(self) -> Sequence[str]:
        """When the results of those that succeeded came in, in order."""
        reports = (state.report for state in self if state.report is not None and state.state == "succeeded")
        return sorted(r.status.run.finished_at for r in reports if r.status is not None and r.status.run is not None)

    def changed(self, changes: Mapping[str, NodeState | None]) -> "NodeStates":
        """With these in their places, by UID; None: it is matched no more. The same object where none differs."""
        pairs = [(self.by_uid.get(uid), state) for uid, state in changes.items()]
        if all(old == new for old, new in pairs):
            return self
        states = dict(self.by_uid)
        for uid, node_state in changes.items():
            if node_state is not None:
                states[uid] = node_state
            else:
                states.pop(uid, None)
        before = {uid: self.by_uid[uid].facts.name for uid in changes if uid in self.by_uid}
        if any(state is not None and before.get(uid) != state.facts.name for uid, state in changes.items()):
            states = dict(sorted(states.items(), key=lambda item: (item[1].facts.name, item[0])))
        made = NodeStates(states.values())
        made.by_uid = states
        if all(map(is_told_alike, *zip(*pairs, strict=True))):
            made.words, made.measurable = self.words, self.measurable
        if "tallies" in vars(self) and 2 * len(changes) < len(states):
            made.tallies = self.tallies.copy()
            for uid, node_state in changes.items():
                made.tallies.subtract(self.by_uid[uid].marks if uid in self.by_uid else ())
                made.tallies.update(node_state.marks if node_state is not None else ())
            made.tallies += Counter()  # none that has come to 0 stays
        return made


def is_told_alike(old: NodeState | None, new: NodeState | None) -> bool:
    """Whether a status says the same of a node on which no agent is waited for; of its result its reading tells."""
    if old is None or new is None:
        return old is new
    return old.said == new.said and old.marks == new.marks


@dataclass(frozen=True)
class ProfilePlan:
    """What one profile comes to: what it asks (or why it can't), and where each matched node stands."""

    profile: ProfileView
    asked: ResolvedProfile | Said
    node_states: NodeStates = field(default_factory=NodeStates)
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

    def __post_init__(self) -> None:
        if not isinstance(self.node_states, NodeStates):
            object.__setattr__(self, "node_states", NodeStates(self.node_states))

    @property
    def poll_seconds(self) -> float | None:
        """Seconds until the profile is to be looked at again; None where watches show all that it waits for."""
        reasons = {*self.node_states.reasons}
        if isinstance(self.asked, Said) and not REASONS[self.asked.reason].undecided:
            reasons.add("ProfileNotAccepted")
        polls = [REASONS[reason].poll_seconds for reason in reasons]
        return min([seconds for seconds in polls if seconds is not None], default=None)


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
    jobs, reports, limit = observed.jobs_of.get(profile.uid, {}), observed.reports_of[profile.uid], None
    if profile.spec.schedule.max_age is not None:
        limit = observed.now - duration(profile.spec.schedule.max_age)
    objects = _Found(
        terms=_terms(profile, profile.spec, asked, observed),
        facts=facts,
        jobs=jobs,
        pods={job.uid: observed.pods_of[job.uid] for job in jobs.values() if job.uid in observed.pods_of},
        reports=reports,
        aged=reports.finished_before(limit) if limit is not None else frozenset(),
    )
    node_states = _node_states(objects, observed, problems)
    refusals = observed.refused_of.get(profile.uid, {})
    hold = hold_of(refusals.values())
    if refusals:
        concerned = (node_states.by_uid.get(uid) for uid in {*refusals, *jobs})
        states = [_or_refused(node, hold, profile, objects, observed) for node in concerned if node is not None]
        node_states = node_states.changed({state.facts.uid: state for state in states})
    records = (record for record in observed.yields if record.profile_uid == profile.uid)
    yields = tuple(replace(r, pod=shown_pod(r.pod, profile.namespace, observed)) for r in records)
    more = (node_states, facts, refusals, hold, drained_nodes(profile, facts, observed), yields)
    if isinstance(asked, ResolvedProfile):
        return AcceptedPlan(asked.profile, asked, *more)
    return ProfilePlan(profile, asked, *more)


def drained_nodes(profile: ProfileView, facts: Mapping[str, NodeFacts], observed: Observed) -> frozenset[str]:
    """UIDs of the nodes with an attempt of the profile on which somebody wants no pods just now."""
    spec, jobs = profile.spec, observed.jobs_of.get(profile.uid, {})
    attempted = [facts[uid] for uid in jobs if uid in facts]
    return frozenset(
        node.uid
        for node in attempted
        if spec is not None
        and (node.unschedulable or decide(node, spec.target, spec.agent.tolerations).reason in _DRAINED)
    )


@dataclass(frozen=True)
class _Terms:
    """All of a profile, and of the moment, that the stands of its nodes hang on: equal terms give equal stands."""

    uid: str
    created: datetime
    spec: ProfileSpec
    settings: Settings
    rerun: str
    asked: ResolvedProfile | Said
    ticks: tuple[datetime | None, datetime | None]
    """The schedule's last and next time; none while it is suspended, so that its ticks cost nothing."""


@dataclass(frozen=True)
class _Found:
    """All that the stands of a profile's nodes hang on: Jobs and reports by node UID, pods by their Job's UID."""

    terms: _Terms
    facts: Mapping[str, NodeFacts]
    jobs: Mapping[str, JobView]
    pods: Mapping[str, PodView]
    reports: Filed
    aged: frozenset[str]
    """UIDs of nodes whose newest good result is older than the profile allows."""

    def attempt(self, uid: str) -> tuple[JobView | None, PodView | None]:
        job = self.jobs.get(uid)
        return job, self.pods.get(job.uid) if job is not None else None


def _terms(profile: ProfileView, spec: ProfileSpec, asked: ResolvedProfile | Said, observed: Observed) -> _Terms:
    """The profile's, the same object as long as nothing in them changes."""
    schedule, uid, now = spec.schedule, profile.uid, observed.now
    fires = isinstance(asked, ResolvedProfile) and not spec.suspend
    ticks = (last_tick(schedule, uid, now), next_tick(schedule, uid, now)) if fires else (None, None)
    spec = observed.book.as_before(("spec", uid), spec)
    terms = _Terms(uid, profile.created, spec, observed.settings, profile.rerun, asked, ticks)
    return observed.book.as_before(("terms", uid), terms)


def _node_states(objects: _Found, observed: Observed, faults: list[Fault]) -> NodeStates:
    """The nodes' stands, from before where nothing that one hangs on has changed.

    Time passes, and bears on four things: the schedule's ticks are in the terms, a result grows too old at one moment,
    from some on a run may confirm a Fail or prove a node, and one whose agent failed is tried again: these are always
    made anew.
    """
    key, target = ("node states", objects.terms.uid), objects.terms.spec.target
    entry = observed.book.last(key)
    before, timed = entry[1] if entry is not None else (NodeStates(), frozenset())
    old: _Found | None = entry[0][0] if entry is not None else None
    changed: Iterable[str] = _changed(old, objects) | timed if old is not None else objects.facts
    met = old.facts if old is not None and old.terms.spec.target == target else {}
    changes: dict[str, NodeState | None] = {}
    again = {*timed}
    for uid in changed:
        facts, state = objects.facts.get(uid), None
        again.discard(uid)
        is_as_before = facts is not None and met.get(uid) is facts
        if facts is not None and (uid in before.by_uid if is_as_before else matches(target, facts)):
            state, is_timed = _judged(facts, objects, old, before.by_uid.get(uid), observed, faults)
            again |= {uid} if is_timed else set()
        changes[uid] = state
    states: NodeStates = before.changed(changes)
    observed.book.keep(key, (objects,), (states, frozenset(again)))
    return states


def _changed(old: _Found, objects: _Found) -> set[str]:
    """UIDs of the nodes of which something has changed that their stands hang on."""
    if old.terms is not objects.terms:
        return {*old.facts, *objects.facts}
    changed = {*differing(old.facts, objects.facts), *differing(old.reports, objects.reports)}
    changed |= {uid for uid in (*old.jobs, *objects.jobs) if not same(old.attempt(uid), objects.attempt(uid))}
    return changed | (old.aged ^ objects.aged)


def _judged(
    facts: NodeFacts, objects: _Found, old: _Found | None, before: NodeState | None, seen: Observed, faults: list[Fault]
) -> tuple[NodeState, bool]:
    """The node's stand, PlanFailed where it can't be worked out; and whether time alone may change it."""
    report = objects.reports.get(facts.uid)
    if facts.unreadable is not None:
        return plan_failed(facts, facts.unreadable, report), False
    is_same = old is not None and old.terms.spec is objects.terms.spec and old.terms.settings == seen.settings
    decision = before.decision if before is not None and is_same and before.facts is facts else None
    try:
        made, attempt = _node_state(facts, objects, seen, decision), newest_attempt(report)
    except Exception as error:
        faults.append(Fault("node", facts.name, error))
        return plan_failed(facts, error, report), True
    proves = attempt is not None and "judge " in attempt.basis.get("verdict", "")
    unsure = waits_for_verdict(facts) or facts.verdict.reason == "NotJudgedAgain"
    waits = facts.verdict.failing_since is not None or (proves and unsure)
    return made, waits or (attempt is not None and attempt.outcome == "failed")


def plan_failed(facts: NodeFacts, error: Exception, report: ReportView | None = None) -> NodeState:
    """The stand of a node for which nothing could be planned."""
    return NodeState(facts, said("PlanFailed", why=fault_text(error)), report)


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


def next_run(plan: ProfilePlan, now: datetime) -> datetime | None:
    """When time alone begins a run of the profile: at its schedule's next tick, or when a result is too old."""
    if not isinstance(plan, AcceptedPlan) or plan.profile.spec.suspend:
        return None
    schedule = plan.profile.spec.schedule
    moments = [next_tick(schedule, plan.profile.uid, now)]
    if schedule.max_age is not None:
        limit = duration(schedule.max_age)
        times = plan.node_states.finished
        young = times[bisect_left(times, format_time(now - limit)) :][:1]
        moments += [parse_time(time) + limit + timedelta(seconds=1) for time in young]
    return min((moment for moment in moments if moment is not None), default=None)


def newest_attempt(report: ReportView | None) -> ReportAttempt | None:
    """The newest attempt on a node, of whatever run; None when there was none."""
    return report.status.attempt if report is not None and report.status is not None else None


def recorded(job: JobView, report: ReportView | None) -> bool:
    """Whether the report tells how this attempt ended: what remains of it is to be deleted."""
    attempt = newest_attempt(report)
    return attempt is not None and (attempt.run, attempt.number) == (job.run, job.attempt)


def _node_state(facts: NodeFacts, objects: _Found, observed: Observed, decision: Said | None) -> NodeState:
    """A running agent first, then what the current run has found, then whether the node can be measured at all.

    `decision` is what was found for the same node and spec; None: it is worked out.
    """
    spec, asked = objects.terms.spec, objects.terms.asked
    report, (job, pod) = objects.reports.get(facts.uid), objects.attempt(facts.uid)
    now, gate = None, tuple[str, ...]()
    if isinstance(asked, ResolvedProfile):
        proof = run_to_prove(asked.profile, facts, report, observed)
        now = triggers.current_run(triggers.run_inputs(asked, facts, report, observed.now, proof))
        gate = observed.settings.node_gate.taints_for(asked.profile.namespace, asked.profile.name)
    if job is not None and not recorded(job, report):
        cold = isinstance(asked, ResolvedProfile) and is_cold(facts, asked.image, asked.image_digest, report)
        running = _running(job, pod, facts, spec, observed.settings, cold)
        return NodeState(facts, running, report, now, job.active_since or job.created)
    if now is not None and now.attempt is not None:
        ended = _ended(now.attempt, spec, report, observed)
        if ended is not None:
            return NodeState(facts, ended, report, now)
    keys = [row.key for row in spec.rollout.per_topology]
    startup, tolerations = observed.settings.startup_taints, spec.agent.tolerations
    baseline = named_of(spec.mixtures)[spec.benchmarks.baseline].recipes
    decision = decision or decide(facts, spec.target, tolerations, startup, gate, keys, baseline)
    if decision.kind != "eligible":
        return NodeState(facts, decision, report, now, decision=decision)
    if isinstance(asked, Said) or now is None:
        why = asked.message if isinstance(asked, Said) else ""
        return NodeState(facts, said("ProfileNotAccepted", why=why), report)
    for code, held in (
        ("NotDueYet", triggers.not_due_yet(asked.profile, now, observed.now)),
        ("GPUsMissing", triggers.waits_for_gpus(facts, now, newest_attempt(report))),
        ("Quarantined", _quarantined(report, now, facts)),
    ):
        if held is not None:
            return NodeState(facts, Said(code, held), report, now, decision=decision)
    return NodeState(facts, decision, report, now, decision=decision)


def _running(
    job: JobView, pod: PodView | None, facts: NodeFacts, spec: ProfileSpec, settings: Settings, cold: bool
) -> Said:
    """Where an attempt stands whose end is not in its report; `cold`: its node has to pull the image."""
    if not job.live:
        return said("Collecting", attempt=job.attempt, why=KEPT if job.deleting else "its result is being read")
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
    return said("AgentStarting", attempt=job.attempt, why=KEPT if job.deleting else job.creation_problem or waits)


def _ended(attempt: ReportAttempt, spec: ProfileSpec, report: ReportView | None, observed: Observed) -> Said | None:
    """What an attempt of the current run comes to: a result, a failure for good, a retry later; None: go on."""
    if attempt.outcome == "succeeded":
        run = report.status.run if report is not None and report.status is not None else None
        which = f"{attempt.number}, not completely ({run.partial})" if run and run.partial else attempt.number
        node = report.node_name if report is not None else "NODE"  # what is said of it is kept once for all profiles
        return observed.book.of(("measured", node, which), (), lambda: said("Measured", attempt=which, node=node))
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


def _quarantined(report: ReportView | None, now: triggers.CurrentRun, facts: NodeFacts) -> Facts | None:
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
