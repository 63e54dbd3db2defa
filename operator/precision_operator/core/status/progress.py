"""How far a run is, what it waits for, and when it will end: for an onlooker of `kubectl get`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from heapq import heapify, heapreplace
from math import ceil

from precision_api.kinds.profile import NodeCounts
from precision_operator.core.admission.limits import concurrency_limit
from precision_operator.core.attempts.node_state import NodeStates, ProfilePlan, newest_attempt
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.reasons import REASONS
from precision_operator.core.results.pool import median

FALLBACK_SECONDS = {"quick": 900.0, "standard": 2700.0}
"""A run's assumed length before the first one has ended: half of its deadline."""


def waits_for(node_states: NodeStates) -> str | None:
    """The reason that keeps most nodes from being measured, and how many: `MaxConcurrentReached (12)`.

    Where no agent that has a place measures, the reason is theirs: the others wait for those places.
    """
    stuck = {reason: count for reason, count in node_states.reasons.items() if REASONS[reason].stuck}
    if not stuck or sum(stuck.values()) != node_states.kinds["running"]:
        stuck = {reason: count for reason, count in node_states.reasons.items() if keeps(reason)}
    reason, count = most(stuck) if stuck else ("", 0)
    return f"{reason} ({count})" if count else None


def most(reasons: Mapping[str, int]) -> tuple[str, int]:
    """The most frequent reason, of equal ones the first by name, and how often it is there."""
    return min(reasons.items(), key=lambda item: (-item[1], item[0]))


def keeps(reason: str) -> bool:
    """Whether a node with it waits for something: its turn, a change, its image, its kubelet, or room for its pod."""
    return REASONS[reason].kind in ("queued", "waiting") or REASONS[reason].stuck


def eta(plan: ProfilePlan, counts: NodeCounts, now: datetime) -> datetime | None:
    """When queued and running nodes will be done, by measured durations and the limit.

    None when nothing runs, or when it can't be told (suspended, refused). Nodes that wait for a quota's room are queued
    behind the agents that have it. In whole minutes and counted from when agents
    began, so that it holds still: it moves when an agent ends, or is late by half of its time.
    """
    spec = plan.profile.spec
    if spec is None or spec.suspend or not (counts.queued + counts.running):
        return None
    seconds = _duration(plan) or FALLBACK_SECONDS[spec.benchmarks.preset]
    places = [_end(state.since or now, seconds, now) for state in plan.node_states if state.state == "running"]
    if not places:
        limit = concurrency_limit(spec.rollout.max_concurrent, counts.eligible)
        queued = (state for state in plan.node_states if state.state == "queued")
        tries = (state.said.facts.get("until") if state.reason == "Retrying" else None for state in queued)
        places = sorted(max(now, parse_time(str(until))) if until else now for until in tries)[:limit]
    heapify(places)
    for _ in range(counts.queued + sum(s.reason == "QuotaExceeded" for s in plan.node_states)):
        heapreplace(places, places[0] + timedelta(seconds=seconds))
    return max(places).replace(second=0, microsecond=0) + timedelta(minutes=1)


def eta_text(end: datetime, now: datetime) -> str:
    """`14:35Z`, with the date if it is far."""
    return end.strftime("%H:%MZ" if end - now < timedelta(hours=20) else "%Y-%m-%d %H:%MZ")


def _end(since: datetime, seconds: float, now: datetime) -> datetime:
    """When an agent that began at `since` will end; one that is late gets half of its time more, again and again."""
    late = max(0.0, (now - since).total_seconds() - seconds)
    return since + timedelta(seconds=seconds + seconds / 2 * ceil(late / (seconds / 2)))


def _duration(plan: ProfilePlan) -> float | None:
    """Median seconds from Job to result, of this profile's newest attempts; None where there was none."""
    attempts = (newest_attempt(state.report) for state in plan.node_states)
    durations = [
        (parse_time(a.finished_at) - parse_time(a.started_at)).total_seconds()
        for a in attempts
        if a is not None and a.started_at and a.outcome == "succeeded"
    ]
    measured = median(durations)
    return max(1.0, measured) if measured is not None else None
