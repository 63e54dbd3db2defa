"""What agents left behind that ended or are to be ended, read by tasks of their own: a log that does not come holds up
its node alone. Nothing is written here."""

import asyncio
import re
from collections.abc import Callable, Collection
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

READS_AT_ONCE = 16
LOG_PATIENCE = timedelta(seconds=60)
"""How long a log that can't be read is asked for again before the attempt is told without it."""
EXTRA_LOG_LINES = 200
"""Lines asked for beyond the result's own: stderr shares the log, and a runtime counts pieces of long lines."""
LOG_IS_GONE = re.compile(rb"unable to retrieve container logs for \w+://[0-9a-f]+\s*")
"""What a kubelet says with status 200, as if it were the log, where its runtime has no such container any more."""


class Requeue(Exception):
    """An action that will work later; the message says what it waits for."""


@dataclass(frozen=True)
class Left:
    """What an agent left behind: a result or why there is none, and then the end of its log."""

    ending: ingest.Finding | NoResult
    log: str | None = None


class Collector:
    """Reads what agents left, one read for each Job at a time."""

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._cluster = cluster
        self._now = clock
        self._limit = Room(READS_AT_ONCE)
        self._parsing = Room(1)
        """A hostile result takes seconds to be refused: one at a time, beside the loop, which must renew the lease."""
        self._readings: dict[str, asyncio.Task[Left | Exception]] = {}

    async def left(self, action: Collect | Close, name: str) -> Left | Exception:
        """What was read, or what reading raised; `end` ends it by its name."""
        self._readings[name] = asyncio.create_task(self._left(action), name=f"reading of {action.job.name}")
        try:
            return await self._readings[name]
        finally:
            self._readings.pop(name).cancel()

    def end(self, but: Collection[str] = ()) -> None:
        """Read nothing else any more: nobody asks for it."""
        for task in [task for name, task in self._readings.items() if name not in but]:
            task.cancel()

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
