"""Whether and when a failed node is tried again, and when it is left alone: the reasons' rows say how long.

A bad image stays bad for a while; what the agent itself refused rarely mends itself. A disruption is no failure and
has a rest of its own, which grows while nothing but disruptions happen, so that a node on which no agent ever starts
costs less and less.
"""

import hashlib
from datetime import datetime, timedelta

from precision_api.kinds.profile import Retry
from precision_api.kinds.report import ReportAttempt
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.reasons import reason_of

LONGEST = timedelta(hours=6)
LONGEST_DISRUPTED = timedelta(hours=1)
"""Most that a node rests after disruptions in a row: the scheduler may find room for its agent at any time."""
JITTER = 0.25
"""Largest share by which a rest is longer than its step, so that nodes that were refused together come back apart."""
QUARANTINE_RUNS = 3
"""Runs in a row without a result, retries and all, after which a node is left alone until somebody says `rerun`."""
QUARANTINE_LOSSES = 3
"""Attempts in a row that were lost with the node, after which it is left alone likewise."""


def spent(attempt: ReportAttempt, retry: Retry) -> bool:
    """Whether the run has failed on this node: no retry is left."""
    return attempt.outcome == "failed" and attempt.failures > retry.limit


def backoff(attempt: ReportAttempt, retry: Retry) -> timedelta:
    """How long a node rests after a failed attempt: doubled each time, by the reason's factor, 6 h at most."""
    factor = reason_of(attempt.reason).backoff_factor * 2 ** max(0, attempt.failures - 1)
    return min(LONGEST, timedelta(seconds=retry.backoff_seconds * factor))


def next_try(attempt: ReportAttempt, retry: Retry, now: datetime) -> datetime | None:
    """When a failed attempt may be followed by the next; None: now (also when the clock has jumped back since)."""
    ended, rest = parse_time(attempt.finished_at), backoff(attempt, retry)
    return ended + rest if abs(now - ended) < rest else None


def disruptions(before: ReportAttempt | None, outcome: str, reason: str) -> int:
    """Disrupted attempts in a row with one that ended so: a result or a failure ends the row.

    One that gave way to somebody else says nothing about the node: the rest does not grow.
    """
    if outcome != "disrupted":
        return 0
    earlier = before.disruptions if before is not None and before.outcome == "disrupted" else 0
    return max(1, earlier) if reason_of(reason).gave_way else earlier + 1


def node_losses(before: ReportAttempt | None, reason: str) -> int:
    """Attempts in a row that were lost with the node, with one that ended so; a drain ends the row, a failure doesn't.

    A row that has led to quarantine is over: a node that was released has all its tries again.
    """
    earlier = before.node_losses if before is not None else 0
    if reason == "Drained":
        return 0
    return (0 if earlier >= QUARANTINE_LOSSES else earlier) + reason_of(reason).lost_with_node


def rest(first: timedelta, times: int, key: str, longest: timedelta = LONGEST_DISRUPTED) -> timedelta:
    """How long to rest after the same thing went wrong `times` in a row: `first`, doubled each time, `longest` at most.

    From the second time on a share of up to JITTER is added, the same for the same `key` and `times`: a plan made
    twice is the same plan.
    """
    if times <= 1:
        return first
    step = min(longest, first * (1 << min(times - 1, 32)))
    share = int(hashlib.sha256(f"{key}/{times}".encode()).hexdigest()[:8], 16) / 0x1_0000_0000
    return step + timedelta(seconds=int(step.total_seconds() * JITTER * share))


def rest_over(attempt: ReportAttempt, first: timedelta, node_uid: str) -> datetime:
    """When a node whose newest attempt was disrupted may have the next one."""
    return parse_time(attempt.finished_at) + rest(first, attempt.disruptions, node_uid)
