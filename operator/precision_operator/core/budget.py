"""Whether one more agent may start now: a table of small checks, each named for what is wrong.

A new budget is one function, one row here, one reason in the table of reasons, one test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from precision_api.fields import IntOrPercent
from precision_api.report import ReportAttempt
from precision_operator.core.clock import format_time, parse_time
from precision_operator.core.nodes import NodeFacts
from precision_operator.core.observed import Observed, ProfileView
from precision_operator.core.reasons import sentence


@dataclass(frozen=True)
class Turn:
    """One candidate node of one profile, and all that bears on whether its agent may start at this moment."""

    observed: Observed
    profile: ProfileView
    facts: NodeFacts
    live: int
    """Agents of the profile that run or are about to."""
    limit: int
    """Most agents of the profile at once."""
    taken_by: str | None
    """Key of the profile whose agent is on the node."""
    attempt: ReportAttempt | None
    """The newest attempt of this profile on this node, in this run."""


Check = Callable[[Turn], str | None]


def concurrency_limit(limit: IntOrPercent, eligible: int) -> int:
    """Most agents at once: `limit`, or that per cent of `eligible` nodes, rounded down, at least 1."""
    if isinstance(limit, int):
        return limit
    return max(1, eligible * int(limit.removesuffix("%")) // 100)


def suspended(turn: Turn) -> str | None:
    assert turn.profile.spec is not None
    return sentence("Suspended") if turn.profile.spec.suspend else None


def max_concurrent_reached(turn: Turn) -> str | None:
    return sentence("MaxConcurrentReached", limit=turn.limit) if turn.live >= turn.limit else None


def measured_by_another_profile(turn: Turn) -> str | None:
    return sentence("MeasuredByAnotherProfile", profile=turn.taken_by) if turn.taken_by else None


def backing_off(turn: Turn) -> str | None:
    if turn.attempt is None:
        return None
    until = parse_time(turn.attempt.finished_at) + turn.observed.settings.disruption_backoff
    if turn.observed.now >= until:
        return None
    return sentence("BackingOff", until=format_time(until), why=turn.attempt.reason or "Disrupted")


def busy(turn: Turn) -> str | None:
    occupancy = turn.observed.occupancy.get(turn.facts.name)
    if occupancy is None or occupancy.holder is None:
        return None
    return sentence("Busy", pod=occupancy.holder, gpus=occupancy.gpus)


def not_looked_at(turn: Turn) -> str | None:
    return sentence("CheckingIdle") if turn.facts.name not in turn.observed.occupancy else None


PROFILE_CHECKS: tuple[tuple[str, Check], ...] = (
    ("Suspended", suspended),
    ("MaxConcurrentReached", max_concurrent_reached),
)
"""What stops every candidate of the profile alike."""

NODE_CHECKS: tuple[tuple[str, Check], ...] = (
    ("MeasuredByAnotherProfile", measured_by_another_profile),
    ("BackingOff", backing_off),
    ("Busy", busy),
    ("CheckingIdle", not_looked_at),
)
"""What stops one candidate; the next one may go."""


def hindrance(turn: Turn, checks: tuple[tuple[str, Check], ...]) -> tuple[str, str] | None:
    """(reason, message) of the first check that says no; None when all let the agent start."""
    return next(((code, text) for code, check in checks if (text := check(turn)) is not None), None)
