"""Whether and when a failed node is tried again, and when it is left alone: by reason, as one table.

A node that was lost comes back in a minute; a bad image stays bad for longer; what the agent itself refused rarely
mends itself. A disruption is no failure and has a rest of its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from precision_api.profile import Retry
from precision_api.report import ReportAttempt
from precision_operator.core.observe.clock import parse_time

FACTORS = {
    "ImagePullFailed": 10,
    "BackendUnavailable": 10,
    "AgentRefused": 5,
    "AgentOutOfMemory": 5,
    "PodNotCreated": 5,
    "DeadlineExceeded": 2,
}
"""Back-off relative to the profile's backoffSeconds; 1 for every other reason."""
LONGEST = timedelta(hours=6)
QUARANTINE_RUNS = 3
"""Runs in a row without a result, retries and all, after which a node is left alone until somebody says `rerun`."""


def spent(attempt: ReportAttempt, retry: Retry) -> bool:
    """Whether the run has failed on this node: no retry is left."""
    return attempt.outcome == "failed" and attempt.failures > retry.limit


def backoff(attempt: ReportAttempt, retry: Retry) -> timedelta:
    """How long a node rests after a failed attempt: doubled each time, by the reason's factor, 6 h at most."""
    factor = FACTORS.get(attempt.reason or "", 1) * 2 ** max(0, attempt.failures - 1)
    return min(LONGEST, timedelta(seconds=retry.backoff_seconds * factor))


def next_try(attempt: ReportAttempt, retry: Retry, now: datetime) -> datetime | None:
    """When a failed attempt may be followed by the next; None: now (also when the clock has jumped back since)."""
    ended, rest = parse_time(attempt.finished_at), backoff(attempt, retry)
    return ended + rest if abs(now - ended) < rest else None
