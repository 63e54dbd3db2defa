"""Creations, each a task of its own: no pass waits for all their answers, least for one that a webhook holds up.

A pass waits a moment for the creations that it begins. What has no answer by then goes on beside the passes, and counts
as an agent until its answer is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from precision_operator.core.attempts.actions import Start
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import JobView
from precision_operator.core.observe.views import job_view
from precision_operator.shell.acting.late_writes import Beside

AT_ONCE = 16
"""Creations of one pass, and those of one namespace, that wait for their answer at the same time."""
GRACE_SECONDS = 0.25
"""A pass waits so long for the creations that it has begun: where the API server is quick, all have their answer."""


class Creations:
    """Runs creations; keeps those that have no answer yet."""

    def __init__(self, beside: Beside, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._beside = beside
        self._now = clock
        self._begun: dict[tuple[str, str], tuple[Start, datetime]] = {}
        """What, and since when, by profile UID and node UID."""
        self.left: set[str] = set()
        """Names of the nodes whose creation the last run did not come to: what was seen of them serves on."""

    async def run(
        self, starts: Sequence[Start], create: Callable[[Start], Awaitable[int]], at_once: int = AT_ONCE
    ) -> int:
        """`create` each, so many side by side; what it gave, summed as `Beside.wait` does.

        One that could not begin within it is left to the next plan, as is one of a namespace that has as many under way
        as may be.
        """
        limit, closing = asyncio.Semaphore(at_once), asyncio.Event()
        self.left = {start.facts.name for start in starts}

        async def one(start: Start) -> int:
            async with limit:
                key, namespace = (start.profile.uid, start.facts.uid), start.profile.namespace
                under_way = sum(begun.profile.namespace == namespace for begun, _ in self._begun.values())
                if closing.is_set() or under_way >= AT_ONCE or key in self._begun:
                    return 0
                self._begun[key] = (start, self._now())
                self.left.discard(start.facts.name)
                try:
                    return await create(start)
                finally:
                    del self._begun[key]

        again = await self._beside.wait([asyncio.create_task(one(start)) for start in starts], GRACE_SECONDS)
        closing.set()
        return again

    def jobs(self) -> tuple[JobView, ...]:
        """The Jobs that may be there by now, as if they were: they count as agents, and nothing is done to them."""
        views = (job_view(_as_created(start, since)) for start, since in self._begun.values())
        return tuple(view for view in views if view is not None)


def _as_created(start: Start, since: datetime) -> dict[str, object]:
    """The Job as it would be; marked as being deleted, so that no plan ends it."""
    meta, at = start.job["metadata"], format_time(since)
    stamp = {"uid": f"creating-{meta['name']}", "creationTimestamp": at, "deletionTimestamp": at}
    return {**start.job, "metadata": {**meta, **stamp}}
