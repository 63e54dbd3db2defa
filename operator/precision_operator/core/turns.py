"""Who starts now: free places go to candidates, profile by profile in turn, each held against every budget."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from precision_operator.core import manifest
from precision_operator.core.actions import Start
from precision_operator.core.asking import Ask, request, too_large
from precision_operator.core.budget import (
    NODE_CHECKS,
    PROFILE_CHECKS,
    Live,
    Tally,
    Turn,
    has_physical_limits,
    hindrance,
    recent,
)
from precision_operator.core.clock import parse_time
from precision_operator.core.nodes import NodeFacts
from precision_operator.core.observed import JobView, Observed, PodView, ProfileView
from precision_operator.core.reasons import sentence
from precision_operator.core.stands import ProfilePlan, Stand, newest_attempt

TENTATIVE = ("CheckingIdle", "AgentStarting")
"""Reasons of candidates that take a place in this plan."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_STOPS_ALL = {code for code, _ in PROFILE_CHECKS}


@dataclass
class _Ledger:
    """What is taken while one plan is made: a value local to `take_turns`."""

    live: dict[tuple[str, str], str]
    """Node UID of each agent that runs or may still run, by profile UID and its Job's UID."""
    taken: dict[str, str]
    """Key of the profile whose agent is on the node, by the node's name: one that comes back may still run it."""
    starts: dict[tuple[str, str], datetime]
    """Recent creations by profile UID and node UID, those of this plan included; replaced, never changed in place."""
    limits: Mapping[str, int]
    tallies: Mapping[str, Tally]
    """By profile UID."""
    matched: Mapping[str, frozenset[str]]
    """UIDs of the nodes that each profile's target matches, by profile UID."""
    newest: dict[str, datetime]
    """When each profile's newest agent was created, by profile UID."""
    limited: tuple[ProfilePlan, ...]
    """Profiles that limit places, so that others on their nodes are bound too."""
    own: Counter[str]
    """How many agents each profile has, by its UID."""
    views: dict[str, tuple[Live, ...]] = field(default_factory=dict)
    """All agents as each profile sees them, by its UID, until the next one starts."""

    def lives(self, draft: ProfilePlan) -> tuple[Live, ...]:
        """All agents as one profile sees them: the same value until the next one starts."""
        uid = draft.profile.uid
        if uid not in self.views:
            here, nodes = self.matched[uid], draft.nodes
            self.views[uid] = tuple(Live(o, node, nodes.get(node), node in here) for (o, _), node in self.live.items())
        return self.views[uid]


@dataclass(frozen=True)
class Turns:
    """What came of all turns."""

    plans: tuple[ProfilePlan, ...]
    starts: tuple[Start, ...]
    look_at: tuple[str, ...]
    """Nodes that would start an agent if they are idle."""


def take_turns(drafts: Sequence[ProfilePlan], observed: Observed) -> Turns:
    """Give free places to candidates: the profile with the fewest live agents first, then who has waited longest."""
    ledger = _ledger(observed, drafts)
    queues = {d.profile.uid: deque(s for s in d.stands if s.state == "eligible") for d in drafts}
    by_uid = {d.profile.uid: d for d in drafts}
    settled: dict[tuple[str, str], Stand] = {}
    starts: list[Start] = []
    look_at: list[str] = []
    while any(queues.values()):
        uid = min((u for u, q in queues.items() if q), key=lambda u: _rank(by_uid[u].profile, ledger))
        draft, candidate = by_uid[uid], queues[uid].popleft()
        stand, start = _turn(draft, candidate, observed, ledger)
        settled[uid, candidate.facts.uid] = stand
        starts += [start] if start is not None else []
        look_at += [candidate.facts.name] if stand.reason == "CheckingIdle" else []
        if stand.reason in TENTATIVE:
            _take(ledger, draft.profile, candidate.facts, observed.now)
        if stand.reason in _STOPS_ALL:
            settled |= {(uid, s.facts.uid): _as(s, stand) for s in queues[uid]}
            queues[uid].clear()
    plans = tuple(
        replace(d, stands=tuple(settled.get((d.profile.uid, s.facts.uid), s) for s in d.stands)) for d in drafts
    )
    return Turns(plans, tuple(starts), tuple(dict.fromkeys(look_at)))


def _ledger(observed: Observed, drafts: Sequence[ProfilePlan]) -> _Ledger:
    """What counts: each Job (Kueue's too) until it is deleted, and pods that hold GPUs although their Job is gone."""
    keys = {profile.uid: profile.key for profile in observed.profiles}
    agents: list[JobView | PodView] = [*observed.jobs, *(pod for pod in observed.pods if pod.live)]
    starts = _starts(observed)
    live = {(item.profile_uid, _job_uid(item)): item.node_uid for item in agents}
    return _Ledger(
        live=live,
        taken={item.node_name: keys.get(item.profile_uid, "a deleted profile") for item in reversed(agents)},
        starts=_recent(starts, drafts, observed.now),
        limits=_limits(observed),
        tallies={draft.profile.uid: draft.tally for draft in drafts},
        matched={draft.profile.uid: frozenset(stand.facts.uid for stand in draft.stands) for draft in drafts},
        newest=_newest(starts, observed.now),
        limited=tuple(draft for draft in drafts if _limits_places(draft)),
        own=Counter(profile for profile, _ in live),
    )


def _limits_places(draft: ProfilePlan) -> bool:
    spec = draft.profile.spec
    return isinstance(draft.asked, Ask) and spec is not None and has_physical_limits(spec.rollout)


def _starts(observed: Observed) -> dict[tuple[str, str], datetime]:
    """When agents were last created, by what reports and Jobs say."""
    ended = {(r.profile_uid, r.node_uid): newest_attempt(r) for r in observed.reports}
    starts = {key: parse_time(a.started_at) for key, a in ended.items() if a is not None and a.started_at}
    return starts | {(job.profile_uid, job.node_uid): job.created for job in observed.jobs}


def _newest(starts: Mapping[tuple[str, str], datetime], now: datetime) -> dict[str, datetime]:
    """By profile; a start that lies ahead is from a clock that has jumped back, and says nothing."""
    newest: dict[str, datetime] = {}
    for (profile, _), at in starts.items():
        if at <= now:
            newest[profile] = max(at, newest.get(profile, at))
    return newest


def _recent(
    starts: Mapping[tuple[str, str], datetime], drafts: Sequence[ProfilePlan], now: datetime
) -> dict[tuple[str, str], datetime]:
    """The starts that any profile's ramp may still wait for."""
    ramps = [draft.profile.spec.rollout.ramp_seconds for draft in drafts if draft.profile.spec is not None]
    longest = timedelta(seconds=max(ramps, default=0))
    return {key: at for key, at in starts.items() if recent(at, longest, now)}


def _job_uid(item: JobView | PodView) -> str:
    return item.uid if isinstance(item, JobView) else item.job_uid


def _limits(observed: Observed) -> dict[str, int]:
    """Enforced watts of each node's GPUs, as the newest report of whichever profile tells them."""
    told = [r for r in observed.reports if r.status and r.status.hardware and r.status.run]
    told.sort(key=lambda r: r.status.run.finished_at if r.status and r.status.run else "")
    found = {r.node_uid: r.status.hardware.limit_watts for r in told if r.status and r.status.hardware}
    return {uid: watts for uid, watts in found.items() if watts}


def _rank(profile: ProfileView, ledger: _Ledger) -> tuple[int, datetime, datetime, str]:
    """By its newest start before its age: a profile that is always due again must not keep a younger one out."""
    return ledger.own[profile.uid], ledger.newest.get(profile.uid, _NEVER), profile.created, profile.key


def _take(ledger: _Ledger, profile: ProfileView, facts: NodeFacts, now: datetime) -> None:
    ledger.live[profile.uid, facts.uid] = facts.uid
    ledger.own[profile.uid] += 1
    ledger.views.clear()
    ledger.taken.setdefault(facts.name, profile.key)
    ledger.starts = ledger.starts | {(profile.uid, facts.uid): now}
    ledger.newest[profile.uid] = now


def _as(stand: Stand, other: Stand) -> Stand:
    return replace(stand, reason=other.reason, message=other.message)


def _turn(draft: ProfilePlan, candidate: Stand, observed: Observed, ledger: _Ledger) -> tuple[Stand, Start | None]:
    """One candidate's turn: it starts, or its stand says what it waits for."""
    asked, found = draft.asked, candidate.current
    assert isinstance(asked, Ask)
    assert found is not None
    turn = replace(
        _seen_by(draft, candidate.facts, observed, ledger),
        attempt=found.attempt,
        elsewhere=_elsewhere(draft, candidate, observed, ledger),
    )
    hindered = hindrance(turn, PROFILE_CHECKS) or hindrance(turn, NODE_CHECKS)
    if hindered is not None:
        return replace(candidate, reason=hindered[0], message=hindered[1]), None
    return _start(draft, candidate, asked, observed)


def _seen_by(draft: ProfilePlan, facts: NodeFacts, observed: Observed, ledger: _Ledger) -> Turn:
    """What bears on a start on this node, as one profile sees it; without its attempt."""
    return Turn(
        observed=observed,
        profile=draft.profile,
        facts=facts,
        live=ledger.lives(draft),
        tally=ledger.tallies[draft.profile.uid],
        taken_by=ledger.taken.get(facts.name),
        attempt=None,
        limits=ledger.limits,
        starts=ledger.starts,
    )


def _elsewhere(draft: ProfilePlan, candidate: Stand, observed: Observed, ledger: _Ledger) -> tuple[Turn, ...]:
    """The candidate's node as other profiles see it that match it and limit places."""
    uid = candidate.facts.uid
    others = (other for other in ledger.limited if other.profile.uid != draft.profile.uid)
    matching = (other for other in others if uid in ledger.matched[other.profile.uid])
    return tuple(_seen_by(other, other.nodes[uid], observed, ledger) for other in matching)


def _start(draft: ProfilePlan, candidate: Stand, asked: Ask, observed: Observed) -> tuple[Stand, Start | None]:
    profile, facts, found = draft.profile, candidate.facts, candidate.current
    assert found is not None
    document = request(profile, asked, facts, found.run, found.attempt.number + 1 if found.attempt else 1)
    refused = too_large(document)
    if refused is not None:
        return replace(candidate, reason="ProfileNotAccepted", message=refused.message), None
    message = sentence("AgentStarting", attempt=document.attempt, why="its Job is being created")
    names = (profile.namespace, profile.name, profile.uid, facts.name, facts.uid)
    start = Start(
        profile=profile,
        facts=facts,
        report=manifest.report(*names) if candidate.report is None else None,
        job=manifest.job(profile, facts, asked, found, document, observed.settings),
        reason="AgentStarting",
        message=message,
    )
    return replace(candidate, reason="AgentStarting", message=message), start
