"""Who starts now: free places go to candidates, profile by profile in turn, each checked against every limit."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Any

from precision_api.facts.names import ANNOTATION_WATTS, grouped
from precision_operator.core.admission.budget_view import AdmissionRequest, Agent, BudgetView
from precision_operator.core.admission.limits import (
    PROFILE_CHECKS,
    TABLES,
    blocked_by,
    has_physical_limits,
    physical_limit_reached,
)
from precision_operator.core.admission.others import LOST, Others
from precision_operator.core.attempts import manifest
from precision_operator.core.attempts.actions import Drop, Start
from precision_operator.core.attempts.agent_request import measurement_request, too_large
from precision_operator.core.attempts.attempt import Attempt
from precision_operator.core.attempts.faults import Fault, fault_text
from precision_operator.core.attempts.node_state import AcceptedPlan, NodeState, ProfilePlan, plan_failed
from precision_operator.core.attempts.places import is_abandoned
from precision_operator.core.attempts.refusal import mark_of
from precision_operator.core.eligibility.proved import waits_for_verdict
from precision_operator.core.observe.images import is_cold
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import Filed, JobView, Observed, PodView, ProfileView
from precision_operator.core.observe.tenants import comes_last
from precision_operator.core.reasons import REASONS, Said, said

_NEVER = datetime.min.replace(tzinfo=UTC)
MOST_IN_VAIN, LOOKS_PER_PASS = 1_000, 256
"""Bounds of a plan that may be cut: one namespace's candidates in vain while another's wait, and all that may start."""


@dataclass
class _InFlight:
    """What is taken while one plan is made: a value local to `admit`."""

    observed: Observed
    live: dict[str, list[Agent]]
    """Each agent that runs or may still run, by namespace."""
    taken: dict[tuple[str, str], str]
    """Profile of a namespace whose agent is on a node, by both names: one that comes back may still run it."""
    others: Others
    """What agents hold against other namespaces than their own."""
    starts: Mapping[str, dict[tuple[str, str], datetime]]
    """Recent creations by namespace, then by profile UID and node UID, those of this plan included."""
    watts: Mapping[str, Callable[[str], int | None]]
    """Enforced watts of a node by namespace: what one tenant's reports tell bears on its own limits alone."""
    newest: dict[tuple[str, str], datetime]
    """When the newest agent was created, by namespace and profile UID, and without a UID of the whole namespace."""
    limited: Mapping[str, Sequence[AcceptedPlan]]
    """Profiles that limit places by namespace: others of it on their nodes are bound too."""
    agents: Counter[tuple[str, str]]
    """How many agents there are, by the same."""
    trying: Counter[str]
    """How many of each profile have no pod yet, by its UID: the cluster may still refuse that."""
    pulling: Counter[str]
    """How many of each profile may be pulling their image."""
    kinds: dict[tuple[str, str], Hashable] = field(default_factory=dict)
    """The kinds of nodes, by namespace and node UID."""
    views: dict[str, BudgetView] = field(default_factory=dict)
    """The agents of its namespace as each profile sees them, by its UID."""
    totals: dict[str, Any] = field(default_factory=dict)
    """Their sums, which all profiles of a namespace share."""
    full: dict[str, dict[str, tuple[tuple[ProfileView, Said], ...]]] = field(default_factory=dict)
    """Two profiles at most whose limits leave no room on a node, by namespace and its UID; until the next start."""

    def view(self, draft: AcceptedPlan) -> BudgetView:
        """The agents of its namespace as one profile sees them."""
        uid, namespace, seen = draft.profile.uid, draft.profile.namespace, self.observed
        if uid not in self.views:
            status = seen.profile_statuses.get(uid)
            self.views[uid] = BudgetView(
                observed=seen,
                profile=draft.profile,
                live=self.live.setdefault(namespace, []),
                limits=self.watts.get(namespace, partial(_limit, (), seen.watts, namespace)),
                nodes=draft.nodes,
                matched=draft.node_states.by_uid.keys(),
                tally=(status and status.nodes) or draft.node_states.tally,
                starts=self.starts[namespace],
                trying=self.trying[uid],
                pulling=self.pulling[uid],
                hold=draft.hold,
                _totals=self.totals.setdefault(namespace, {}),
            )
        return self.views[uid]

    def full_for(self, namespace: str, node: str) -> tuple[tuple[ProfileView, Said], ...]:
        """Whose limits leave no room on a node, once for all its candidates: two, as none is another than itself."""
        full = self.full.setdefault(namespace, {})
        if node not in full:
            full[node] = (*islice(self._reached(namespace, node), 2),)
        return full[node]

    def _reached(self, namespace: str, node: str) -> Iterator[tuple[ProfileView, Said]]:
        for draft in self.limited.get(namespace, ()):
            view = self.view(draft)
            if node in view.matched:
                reached = physical_limit_reached(AdmissionRequest(view, draft.nodes[node]))
                if reached is not None:
                    yield draft.profile, reached

    def kind(self, draft: AcceptedPlan, facts: NodeFacts) -> Hashable:
        """Candidates of a profile with the same are stopped alike by `KIND_CHECKS`, until the next start."""
        key = draft.profile.namespace, facts.uid
        if key not in self.kinds:
            self.kinds[key] = self.request(draft, facts).kind
        return self.kinds[key], facts.pool

    def request(self, draft: AcceptedPlan, facts: NodeFacts, **more: Any) -> AdmissionRequest:
        """What bears on a start on this node, as one profile sees it; `more` is of the candidate."""
        namespace, fleet = draft.profile.namespace, self.others.fleet_facing(draft.profile.namespace)
        taken_by = self.taken.get((namespace, facts.name)) or self.others.taken_by(namespace, facts.name)
        return AdmissionRequest(self.view(draft), facts, taken_by, elsewhere=self.full_for, fleet=fleet, **more)


@dataclass(frozen=True)
class Admission:
    """What came of all turns."""

    plans: tuple[ProfilePlan, ...]
    starts: tuple[Start, ...]
    nodes_to_probe: tuple[str, ...]
    """Nodes that would start an agent if they are idle."""
    withdrawn: tuple[Drop, ...] = ()
    """Jobs that make room for these starts."""
    cut: bool = False
    """Whether candidates are left that had no turn."""


def admit(
    drafts: Sequence[ProfilePlan], attempts: Sequence[Attempt], observed: Observed, faults: list[Fault], whole: bool
) -> Admission:
    """Give free places to candidates: the namespace with the fewest live agents first, in it the profile with the
    fewest, then who has waited longest. Where it need not be `whole`, a start or look waits for so many alone.
    """
    in_vain, may_start, enough = Counter[str](), Counter[str](), False
    in_flight = _in_flight(observed, drafts, attempts)
    accepted = {d.profile.uid: d for d in drafts if isinstance(d, AcceptedPlan)}
    outcomes: dict[str, dict[str, NodeState | None]] = {d.profile.uid: {} for d in drafts}
    queues = {uid: deque(_by_least_recent_attempt(draft, observed)) for uid, draft in accepted.items()}
    starts: list[Start] = []
    withdrawn: list[Drop] = []
    nodes_to_probe: list[str] = []
    while any(queues.values()) and not enough:
        uid = min((u for u, q in queues.items() if q), key=lambda u: _rank(accepted[u], queues[u][0], in_flight))
        namespace = accepted[uid].profile.namespace
        node_states, start = _until_one_starts(accepted[uid], queues[uid], in_flight, faults)
        outcomes[uid].update((node_state.facts.uid, node_state) for node_state in node_states)
        last = node_states[-1]
        may_start[namespace] += REASONS[last.reason].tentative
        in_vain[namespace] += len(node_states) - REASONS[last.reason].tentative
        if start is not None:
            starts.append(start)
            withdrawn += in_flight.others.make_room(in_flight.request(accepted[uid], start.facts))
        nodes_to_probe += [last.facts.name] if last.reason == "CheckingIdle" else []
        vain = in_vain[namespace] >= MOST_IN_VAIN and may_start.total() > may_start[namespace]
        enough = not whole and (vain or may_start.total() >= LOOKS_PER_PASS)
    plans = tuple(_with_outcomes(d, outcomes[d.profile.uid], observed) for d in drafts)
    probes = tuple(dict.fromkeys(nodes_to_probe))
    return Admission(plans, tuple(starts), probes, tuple(withdrawn), any(queues.values()))


def _with_outcomes(draft: ProfilePlan, outcomes: Mapping[str, NodeState | None], observed: Observed) -> ProfilePlan:
    """The profile with what came of its candidates' turns; where that is as it was before, so are its stands."""
    if not outcomes:
        return draft
    states = observed.book.as_before(("outcomes", draft.profile.uid), draft.node_states.changed(outcomes))
    return replace(draft, node_states=states)


def _by_least_recent_attempt(draft: AcceptedPlan, observed: Observed) -> list[int]:
    """The places of the candidates: who was never tried, then who was tried longest ago; by name among equals.

    So a node that is tried in vain again and again keeps none waiting that has not had its turn. One that somebody asks
    for by name comes before all, once: its next attempt is of the run that was asked for.
    """
    eligible = {place: _turn(state, draft, observed) for place, state in draft.node_states.candidates.items()}
    return sorted(eligible, key=eligible.__getitem__)


def _turn(candidate: NodeState, draft: AcceptedPlan, seen: Observed) -> tuple[datetime, float, bool, bool, datetime]:
    """Sorts candidates: in vain last, before these seen busy; first asked for, unless refused; then those whose
    condition waits for the verdict; then by the last try."""
    due = candidate.current.due if candidate.current is not None else None
    refused = draft.refusals.get(candidate.facts.uid)
    last = _NEVER
    if candidate.report is not None or refused is not None:
        tries = (candidate.report.started if candidate.report is not None else None, refused.at if refused else None)
        gave_back = candidate.report is not None and candidate.report.status is None  # its place, before it began
        never = _NEVER + timedelta(days=gave_back)
        last = max((at for at in tries if at is not None and at <= seen.now), default=never)
    vain = seen.vain.get(draft.profile.namespace)
    in_vain = vain.last(candidate.facts.name) if vain is not None else None
    seen_busy = seen.looked.get(candidate.facts.name, 0.0)
    is_proved = draft.profile.spec.acceptance is not None and not waits_for_verdict(candidate.facts)
    return in_vain or _NEVER, seen_busy, not (due == "RerunNode" and refused is None), is_proved, last


def _until_one_starts(
    draft: AcceptedPlan, queue: deque[int], in_flight: _InFlight, faults: list[Fault]
) -> tuple[Sequence[NodeState], Start | None]:
    """What comes of the profile's next candidates, until it is others' turn: of these the last one may start."""
    node_states: list[NodeState] = []
    answers: dict[Hashable, Said | None] = {}
    is_last = draft.profile.namespace not in in_flight.observed.vain or _comes_last(draft, queue[0], in_flight)
    try:
        stopped = blocked_by(in_flight.request(draft, draft.node_states[queue[0]].facts), PROFILE_CHECKS)
    except Exception as error:
        faults.append(Fault("profile", draft.profile.key, error))
        stopped = said("PlanFailed", why=fault_text(error))
    while queue and (is_last or not _comes_last(draft, queue[0], in_flight)):
        candidate = draft.node_states[queue.popleft()]
        if stopped is not None:
            node_states.append(candidate.waiting(stopped))
            continue
        try:
            node_state, start = _admit_candidate(draft, candidate, in_flight, answers)
        except Exception as error:
            faults.append(Fault("node", f"{candidate.facts.name} for {draft.profile.key}", error))
            node_state, start = plan_failed(candidate.facts, error, candidate.report), None
        node_states.append(node_state)
        if REASONS[node_state.reason].tentative:
            _take(in_flight, draft, candidate)
            return node_states, start
    return node_states, None


def _in_flight(observed: Observed, drafts: Sequence[ProfilePlan], attempts: Sequence[Attempt]) -> _InFlight:
    """What counts: each Job (Kueue's too) until it is gone, and pods that hold GPUs although their Job is deleted.

    But not what nobody is there to end: a pod past its end, or a Job that is deleted and waits for such a pod.
    """
    owners = {profile.uid: f"profile {profile.key}" for profile in observed.profiles}
    filed = grouped((namespace, there) for (namespace, *_), there in observed.filed.items())
    abandoned = {pod.job_uid for pod in observed.pods if is_abandoned(pod, observed.settings, observed.now)}
    jobs = [job for job in observed.jobs if not job.is_gone]
    agents: list[JobView | PodView] = [*jobs, *(pod for pod in observed.pods if pod.live)]
    starts, newest = _starts(observed, drafts)
    active = [draft for draft in drafts if isinstance(draft, AcceptedPlan) and not draft.profile.spec.suspend]
    live = {
        (i.profile_uid, _job_uid(i)): Agent(i.profile_uid, i.namespace, i.node_uid)
        for i in agents
        if not (_job_uid(i) in abandoned and (isinstance(i, PodView) or i.deleting))
    }
    return _InFlight(
        observed=observed,
        live=grouped((agent.namespace, agent) for agent in live.values()),
        taken={(item.namespace, item.node_name): owners.get(item.profile_uid, LOST) for item in reversed(agents)},
        others=Others(observed, live, owners, {draft.profile.namespace for draft in active}),
        starts=starts,
        watts={of: cache(partial(_limit, there, observed.watts, of)) for of, there in filed.items()},
        newest=newest,
        limited=grouped((d.profile.namespace, d) for d in active if has_physical_limits(d.profile.spec.rollout)),
        agents=Counter((agent.namespace, uid) for agent in live.values() for uid in (agent.profile_uid, "")),
        trying=Counter(a.job.profile_uid for a in attempts if a.job.live and not a.job.suspended and a.pod is None),
        pulling=Counter(a.job.profile_uid for a in attempts if _may_pull(a)),
    )


def _may_pull(attempt: Attempt) -> bool:
    """Whether its agent pulls its image or is about to: one that the scheduler has no room for does not."""
    pod, owner = attempt.pod, attempt.owner
    begun = pod is not None and (pod.phase != "Pending" or bool(pod.unschedulable))
    if begun or attempt.facts is None or not isinstance(owner, AcceptedPlan) or not attempt.job.live:
        return False
    return is_cold(attempt.facts, owner.asked.image, owner.asked.image_digest, attempt.report)


def _starts(
    observed: Observed, drafts: Sequence[ProfilePlan]
) -> tuple[dict[str, dict[tuple[str, str], datetime]], dict[tuple[str, str], datetime]]:
    """When agents were last created, by what reports and Jobs say: starts that a ramp may still wait for, and newest.

    A start that lies ahead is from a clock that has jumped back, and says nothing of who was newest.
    """
    by_age = sorted(observed.jobs, key=lambda job: job.created)  # of two of a node the newest counts
    starts = {(job.namespace, job.profile_uid, job.node_uid): job.created for job in by_age}
    ramps = [draft.profile.spec.rollout.ramp_seconds for draft in drafts if draft.profile.spec is not None]
    longest = timedelta(seconds=max(ramps, default=0))
    first, last = observed.now - longest, observed.now + longest
    recent_starts: dict[str, dict[tuple[str, str], datetime]] = {draft.profile.namespace: {} for draft in drafts}
    newest: dict[tuple[str, str], datetime] = {}
    for (namespace, profile, _), there in observed.filed.items():
        at = there.last_start
        if at is not None and at <= min(first, observed.now):  # none of them is recent, and none lies ahead
            for key in ((namespace, profile), (namespace, "")):
                newest[key] = max(at, newest.get(key, at))
        elif at is not None:
            for uid, at in there.starts.items():
                row = starts.get((namespace, profile, uid), at)
                starts[namespace, profile, uid] = max(at, row, key=lambda at: (at <= observed.now, at))
    for (namespace, profile, node), at in starts.items():
        if first < at < last and namespace in recent_starts:
            recent_starts[namespace][profile, node] = at
        for key in ((namespace, profile), (namespace, "")) if at <= observed.now else ():
            newest[key] = max(at, newest.get(key, at))
    return recent_starts, newest


def _job_uid(item: JobView | PodView) -> str:
    return item.uid if isinstance(item, JobView) else item.job_uid


def _limit(filed: Iterable[Filed], stated: Mapping[tuple[str, str], int], namespace: str, node: str) -> int | None:
    """Enforced watts of a node's GPUs, as the newest of these reports tells them, else as they are `stated`."""
    rows = [report.reported_limit for there in filed if (report := there.get(node)) is not None]
    newest = max(filter(None, rows), key=lambda row: row[0], default=None)
    return (newest and newest[1]) or stated.get((namespace, node))


def _comes_last(draft: AcceptedPlan, place: int, in_flight: _InFlight) -> bool:
    return comes_last(draft.profile.namespace, draft.node_states[place].facts.name, in_flight.observed)


def _rank(draft: AcceptedPlan, place: int, in_flight: _InFlight) -> tuple[Any, ...]:
    """By its newest start before its age: a profile that is always due again must not keep a younger one out.

    Namespaces have their turns before profiles: many profiles of one keep nobody of another waiting.
    """
    uid, namespace = draft.profile.uid, draft.profile.namespace
    return (
        _comes_last(draft, place, in_flight),
        in_flight.agents[namespace, ""],
        in_flight.newest.get((namespace, ""), _NEVER),
        in_flight.agents[namespace, uid],
        in_flight.newest.get((namespace, uid), _NEVER),
        draft.profile.created,
        draft.profile.key,
    )


def _take(in_flight: _InFlight, draft: AcceptedPlan, candidate: NodeState) -> None:
    now, profile, facts = in_flight.observed.now, draft.profile, candidate.facts
    agent = Agent(profile.uid, profile.namespace, facts.uid)
    in_flight.live.setdefault(profile.namespace, []).append(agent)
    in_flight.agents.update([(profile.namespace, profile.uid), (profile.namespace, "")])
    in_flight.view(draft).trying += 1
    in_flight.view(draft).pulling += _is_cold(draft, candidate)
    in_flight.taken.setdefault((profile.namespace, facts.name), f"profile {profile.key}")
    in_flight.others.take(agent, profile, facts.name)
    in_flight.starts[profile.namespace][profile.uid, facts.uid] = now
    in_flight.newest[profile.namespace, profile.uid] = in_flight.newest[profile.namespace, ""] = now
    in_flight.full.pop(profile.namespace, None)
    for view in in_flight.views.values():
        if view.profile.namespace == profile.namespace and "newest" in vars(view):
            group = view.ramp_group(profile.uid, facts.labels)
            view.newest[group] = max(now, view.newest.get(group, now))


def _is_cold(draft: AcceptedPlan, candidate: NodeState) -> bool:
    return is_cold(candidate.facts, draft.asked.image, draft.asked.image_digest, candidate.report)


def _admit_candidate(
    draft: AcceptedPlan, candidate: NodeState, in_flight: _InFlight, answers: dict[Hashable, Said | None]
) -> tuple[NodeState, Start | None]:
    """One candidate's turn: it starts, or its stand says what it waits for, `answers` what those like it wait for."""
    profile, facts, run, settings = draft.profile, candidate.facts, candidate.current, in_flight.observed.settings
    assert run is not None
    kind = in_flight.kind(draft, facts)
    domain = (kind, *[facts.labels.get(row.key) for row in profile.spec.rollout.per_topology])
    cold = partial(_is_cold, draft, candidate)
    for key, limits in zip((kind, domain, facts.uid), TABLES[1:], strict=True):
        if key not in answers:
            answers[key] = blocked_by(in_flight.request(draft, facts, attempt=run.attempt, cold=cold), limits)
        if (hindered := answers[key]) is not None:
            return candidate.waiting(hindered), None
    document = measurement_request(draft.asked, facts, run.run, run.attempt.number + 1 if run.attempt else 1)
    refused = too_large(document)
    if refused is not None:
        return candidate.waiting(Said("ProfileNotAccepted", words=refused.message)), None
    starting = said("AgentStarting", attempt=document.attempt, why="its Job is being created")
    names = (profile.namespace, profile.name, profile.uid, facts.name, facts.uid)
    job = manifest.job(draft.asked, facts, run, document, settings)
    job["metadata"]["annotations"][ANNOTATION_WATTS] = str(in_flight.view(draft).watts(facts)[0])
    start = Start(
        profile=profile,
        facts=facts,
        report=manifest.report(*names) if candidate.report is None else None,
        job=job,
        template=manifest.claim_template(profile, facts, document.node.gpus, settings),
        said=starting,
        mark=mark_of(profile, candidate.report),
    )
    return candidate.waiting(starting), start
