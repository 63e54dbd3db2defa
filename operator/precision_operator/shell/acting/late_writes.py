"""Writes that get no answer: one that an admission webhook holds up must not hold up the pass, and all the others.

A pass waits a moment for each write. What has no answer by then goes on beside the passes, and is not begun a second
time before its end, which wakes the loop. What is deleted is one very object, never another one of its name.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Literal, TypeVar

from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.attempts.actions import Deletable
from precision_operator.shell.observing.cache import Cache

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
AT_ONCE = 8
"""Late writes of one namespace; while there are so many, no other one of it begins."""
GRACE_SECONDS = 2.0
"""A pass waits so long for a write: nearly all are answered within it."""
GRACE_BESIDE_LATE_SECONDS = 0.1
"""And so long for one of a namespace of which another write is late."""


class LateWrites:
    """Runs writes; keeps those that have no answer yet."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when one has ended that a pass did not wait for."""
        self._wake = wake
        self._under_way: dict[str, asyncio.Task[Any]] = {}
        """By the UID of what is written."""
        self._late: Counter[str] = Counter()
        """By namespace."""

    async def run(
        self, uid: str, namespace: str, what: str, write: Callable[[], Coroutine[Any, Any, Result]]
    ) -> Result | None:
        """What `write` gave. Raises what it raised; `what` is said in the log where it is late.

        None where it has no answer yet; also where it did not begin, since one for this `uid` is under way, or too many
        of its namespace are late: it is left to the next plan.
        """
        if uid in self._under_way or self._late[namespace] >= AT_ONCE:
            return None
        task: asyncio.Task[Result] = asyncio.create_task(write(), name=what)
        self._under_way[uid] = task
        grace = GRACE_BESIDE_LATE_SECONDS if self._late[namespace] else GRACE_SECONDS
        done, _ = await asyncio.wait([task], timeout=grace)
        if done:
            del self._under_way[uid]
            return task.result()
        self._late[namespace] += 1
        _log.warning("%s: no answer yet: the pass goes on without it", what)
        task.add_done_callback(lambda task: self._ended(uid, namespace, task))
        return None

    async def answered(self, uid: str) -> None:
        """Returns when what was begun for this UID has its answer."""
        if uid in self._under_way:
            await asyncio.wait([self._under_way[uid]])

    async def settled(self) -> None:
        """Returns when all that was begun has its answer."""
        if self._under_way:
            await asyncio.wait(set(self._under_way.values()))

    def end(self) -> None:
        """Wait for no answer any more."""
        for task in self._under_way.values():
            task.cancel()

    def _ended(self, uid: str, namespace: str, task: asyncio.Task[Any]) -> None:
        del self._under_way[uid]
        self._late[namespace] -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s: %s", task.get_name(), error)
        self._wake()


class Beside:
    """Tasks that go on beside the passes. Each gives how many actions must be tried again, and raises nothing."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when one has ended that a pass did not wait for."""
        self._wake = wake
        self._tasks: set[asyncio.Task[int]] = set()
        self._again, self._ended = 0, set[str]()

    def take_names(self) -> tuple[set[str], set[str]]:
        """Names of tasks that are late, and of late ones that have ended since this was last asked."""
        ended, self._ended = self._ended, set()
        return {task.get_name() for task in self._tasks}, ended

    async def wait(self, tasks: Collection[asyncio.Task[int]], seconds: float) -> int:
        """What they gave that ended within these seconds, and what late ones have since the last wait, summed."""
        self._tasks.update(tasks)
        done, late = await asyncio.wait(tasks, timeout=seconds) if tasks else ((), ())
        self._tasks.difference_update(done)
        for task in late:
            task.add_done_callback(self._end)
        again, self._again = self._again, 0
        return again + sum(task.result() for task in done if not task.cancelled())

    async def settled(self) -> None:
        """Returns when all have ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def cancel(self) -> None:
        """Wait for none any more."""
        for task in self._tasks:
            task.cancel()

    def _end(self, task: asyncio.Task[int]) -> None:
        self._tasks.discard(task)
        self._ended.add(task.get_name())
        self._again += 0 if task.cancelled() else task.result()
        self._wake()


async def delete(cluster: Cluster, cache: Cache, kind: Deletable, namespace: str, name: str, uid: str) -> None:
    """Delete the object of that UID; gone, or another of the same name, is as good. Raises ApiError."""
    collection = paths.jobs(namespace) if kind == "Job" else paths.reports(namespace)
    cached: Literal["jobs", "reports"] = "jobs" if kind == "Job" else "reports"
    try:
        raw = await cluster.delete(paths.item(collection, name), uid=uid)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        raw = {}
    if (raw.get("metadata") or {}).get("deletionTimestamp"):
        cache.put(cached, raw)
    else:
        cache.drop(cached, uid)
