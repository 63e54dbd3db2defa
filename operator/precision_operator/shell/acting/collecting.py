"""What agents left behind that ended or are to be ended, read by tasks of their own: a log that does not come holds up
its node alone.

Nothing is written here. A pass takes what has been read by then and writes it, so that reports keep one writer, and
what is written is still fenced by the lease.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from precision_api.exchange.message import Summary
from precision_api.facts import names
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.core.attempts.actions import Close, Collect
from precision_operator.core.attempts.places import running_since
from precision_operator.core.observe.observed import JobView, PodView
from precision_operator.core.observe.views import pod_view
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult, summary_of
from precision_operator.core.results.log_tail import LOG_BYTES, LOG_LINES, explained, log_tail, no_log
from precision_operator.shell.room import Room

READS_AT_ONCE = 32
GRACE_SECONDS = 0.25
"""A pass waits so long for reads that it has begun: most logs come within it, and are written in the same pass."""
LOG_PATIENCE = timedelta(seconds=60)
"""How long a log that can't be read is asked for again before the attempt is told without it."""
EXTRA_LOG_LINES = 200
"""Lines asked for beyond the result's own: stderr shares the log, and a runtime counts pieces of long lines."""
LOG_IS_GONE = re.compile(rb"unable to retrieve container logs for \w+://[0-9a-f]+\s*")
"""What a kubelet says with status 200, as if it were the log, where its runtime has no such container any more."""


class Requeue(Exception):
    """An action that will work later; the message says what it waits for."""


class StillReading(Exception):
    """What the agent left is being read: a pass follows when it is there."""


@dataclass(frozen=True)
class Left:
    """What an agent left behind: a result or why there is none, and then the end of its log."""

    ending: ingest.Finding | NoResult
    log: str | None = None


@dataclass
class _Reading:
    """One read: it never raises, but gives what it raised."""

    task: asyncio.Task[Left | Exception]
    missed: bool = False
    """Whether a pass has asked for it in vain: then its end is worth another one."""


_Key = tuple[str, bool]
"""The UID of a Job, and whether its agent has ended: one that ends while its log is read has left more than that."""


def _key(action: Collect | Close) -> _Key:
    return action.job.uid, isinstance(action, Collect)


class Collector:
    """Reads what agents left, one read for each Job at a time."""

    def __init__(
        self, cluster: Cluster, wake: Callable[[], None], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`wake` is called when something has been read that a pass had to go on without."""
        self._cluster = cluster
        self._now = clock
        self._wake = wake
        self._limit = Room(READS_AT_ONCE)
        self._parsing = Room(1)
        """A hostile result takes seconds to be refused: one at a time, beside the loop, which must renew the lease."""
        self._readings: dict[_Key, _Reading] = {}

    async def read(self, actions: Sequence[Collect | Close]) -> None:
        """Begin to read for those that are not being read for, and wait a moment; end what nobody asks for any more."""
        wanted = {_key(action): action for action in actions}
        for key in self._readings.keys() - wanted.keys():
            self._readings.pop(key).task.cancel()
        begun = [self._begin(key, wanted[key]) for key in wanted.keys() - self._readings.keys()]
        if begun:
            await asyncio.wait(begun, timeout=GRACE_SECONDS)

    def take(self, action: Collect | Close) -> Left:
        """What was read; it is read anew when it is asked for again. Raises StillReading, or what reading raised."""
        key = _key(action)
        reading = self._readings.get(key)
        if reading is None or not reading.task.done():
            if reading is not None:
                reading.missed = True
            raise StillReading(f"what {action.job.name} left is being read")
        del self._readings[key]
        left = reading.task.result()
        if isinstance(left, Exception):
            raise left
        return left

    def end(self) -> None:
        """Read nothing any more."""
        for reading in self._readings.values():
            reading.task.cancel()
        self._readings.clear()

    def _begin(self, key: _Key, action: Collect | Close) -> asyncio.Task[Left | Exception]:
        task = asyncio.create_task(self._left(action), name=f"reading of {action.job.name}")
        reading = self._readings[key] = _Reading(task)

        def ended(_: object) -> None:
            if reading.missed:
                self._wake()

        task.add_done_callback(ended)
        return task

    async def _left(self, action: Collect | Close) -> Left | Exception:
        async with self._limit.taken(action.job.namespace):
            try:
                if isinstance(action, Close):
                    return await self._before_the_end(action)
                return await self._read(action.job, action.pod, action.drained)
            except Exception as error:
                return error

    async def _before_the_end(self, action: Close) -> Left:
        """Why an agent is ended that still runs, and the end of its log or why there is none; asked for once."""
        job, pod = action.job, action.pod
        assert pod is not None
        log = await self._end_of_log(job, pod)
        problem = NoResult(action.said, action.outcome)
        now = self._now()
        return Left(explained(problem, job.node_name, now - (action.since or now), log), log)

    async def _read(self, job: JobView, pod_seen: PodView | None, drained: bool) -> Left:
        pod = await self._ended_pod(job, pod_seen)
        summary = summary_of(job, pod, drained)
        if isinstance(summary, NoResult):
            if summary.outcome != "failed" or pod is None or pod.termination is None:
                return Left(summary)
            log = await self._end_of_log(job, pod)
            ran = (job.finished_at or self._now()) - running_since(pod)
            return Left(explained(summary, job.node_name, ran, log), log)
        assert pod is not None
        return Left(await self._full_result(job, pod, summary))

    async def _ended_pod(self, job: JobView, pod: PodView | None) -> PodView | None:
        """The pod as it is now: the watch may show its Job finished before it shows the pod's own end."""
        if pod is not None and not pod.live:
            return pod
        chosen = f"batch.kubernetes.io/job-name={job.name}"
        listed, _ = await self._cluster.list_trimmed(paths.pods(job.namespace), pod_view, chosen, limit=PAGE_TENANT)
        views = [view for view in listed if view.job_uid == job.uid]
        ended = next((view for view in views if not view.live), None)
        if ended is None and views:
            raise Requeue("its pod has not ended yet")
        return ended or (pod if pod is not None and pod.termination else None)

    async def _full_result(self, job: JobView, pod: PodView, summary: Summary) -> ingest.Finding:
        try:
            log = await self._log(job, pod, tail_lines=summary.detail.lines + EXTRA_LOG_LINES)
        except ApiError as error:
            return ingest.finding(summary, None, error.message)
        async with self._parsing.taken(job.namespace):
            return await asyncio.to_thread(lambda: ingest.finding(summary, log.decode("utf-8", "replace")))

    async def _end_of_log(self, job: JobView, pod: PodView) -> str:
        """The end of an agent's log, or in its place why it can't be read. Raises Requeue as `_log` does."""
        try:
            return log_tail(await self._log(job, pod, tail_lines=LOG_LINES, limit_bytes=LOG_BYTES))
        except ApiError as error:
            return no_log(error.message)

    async def _log(self, job: JobView, pod: PodView, **bounds: int) -> bytes:
        """The log of an agent. Raises ApiError; Requeue while the Job ended just now and the trouble may pass."""
        try:
            log = await self._cluster.read_log(pod.namespace, pod.name, names.AGENT_CONTAINER, **bounds)
        except ApiError as error:
            young = job.finished_at is not None and self._now() - job.finished_at < LOG_PATIENCE
            if error.transient and young:
                raise Requeue(f"its log can't be read: {error}") from error
            raise
        if LOG_IS_GONE.fullmatch(log):
            raise ApiError(404, "NotFound", log.decode())
        return log
