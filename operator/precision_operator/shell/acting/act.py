"""Does what a plan says, each action so that doing it twice does no harm: deterministic names, UID preconditions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from precision_api.kinds.report import ReportStatus
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.attempts.actions import (
    Action,
    Adopt,
    Close,
    Collect,
    Drop,
    GiveWay,
    Judge,
    MarkFresh,
    MarkStale,
    Start,
    Withdraw,
)
from precision_operator.core.attempts.refusal import Answer, cleaned
from precision_operator.core.attempts.verdicts import run_of
from precision_operator.core.observe.node_gate import NodeGate
from precision_operator.core.observe.observed import ProfileView, ReportView, Yield
from precision_operator.core.observe.tenants import Stranger
from precision_operator.core.reasons import said
from precision_operator.core.results import ingest
from precision_operator.core.results.acceptance import decided, first_passes, first_speeds, unasked, with_result
from precision_operator.core.results.endings import NoResult
from precision_operator.core.status.events import STRANGER, Note, event
from precision_operator.shell.acting.collecting import Collector, Left, Requeue
from precision_operator.shell.acting.creating import Creations
from precision_operator.shell.acting.late_writes import Beside, LateWrites, delete
from precision_operator.shell.acting.node_conditions import NodeConditions
from precision_operator.shell.acting.reports import Reports
from precision_operator.shell.acting.starts import NotCreated, Starts
from precision_operator.shell.events import write_event
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.refusals import RefusedCreations
from precision_operator.shell.patches import whole_status
from precision_operator.shell.room import Room

_log = logging.getLogger(__name__)

ACTIONS_AT_ONCE = 16
GRACE_SECONDS = 0.25
"""A pass waits so long for the ends that it has begun, and for the verdicts."""
NO_GATE = NodeGate()
ENDED = " ended"
STRANGERS_REST = timedelta(minutes=1)


class Actor:
    """Writes to the cluster; what the API server answers goes into the cache, so that no watch can lag behind it."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        refusals: RefusedCreations | None = None,
        gave_way: Callable[[Yield, str], Awaitable[None]] = lambda *_: asyncio.sleep(0),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        gate: NodeGate = NO_GATE,
    ) -> None:
        """`gave_way` is called before an agent is ended for others' pods, with the record and the agent's namespace."""
        self._now = clock
        self._gave_way = gave_way
        self._cluster = cluster
        self._cache = cache
        self._reports = Reports(cluster, cache, clock)
        self.writes = LateWrites(cache.changed.set)
        self.node_conditions = NodeConditions(cluster, cache, self._reports, gate, clock, self.writes)
        self._refusals = refusals or RefusedCreations()
        self.starts = Starts(cluster, cache, self._reports, self._refusals)
        self._collector = Collector(cluster, clock)
        self._beside, self._room = Beside(cache.changed.set), Room(ACTIONS_AT_ONCE)
        self.creations = Creations(self._beside, clock)
        self._strangers: set[str] = set()
        self._quiet_until: dict[str, datetime] = {}
        self.closed = False
        """No further action begins; those in flight end as they would have."""
        self.ended: list[Action] = []
        """Whose tries have ended, well or not; who counts them takes them out."""

    async def act(self, actions: Sequence[Action], at_once: int = ACTIONS_AT_ONCE) -> int:
        """Begin all actions, so many side by side: what ends, what begins, verdicts; wait a moment for each of these.

        Returns how many that have ended since the last time must be tried again. The end of a late one wakes the loop.
        """
        self._collector.end(but={_name(action) for action in actions})
        self.starts.begin_pass()
        self._reports.begin_pass()
        starting = [a for a in actions if isinstance(a, Start)]
        judging = [a for a in actions if isinstance(a, Judge)]
        ending = [a for a in actions if not isinstance(a, Start | Judge)]
        # What reads the end of an agent deletes its Job, too.
        late, ended = ({*them, *(it.removesuffix(ENDED) for it in them)} for them in self._beside.take_names())
        self._room.places = at_once
        if ended & {_name(action) for action in actions}:
            self._cache.changed.set()  # this plan may not have seen it: the next one tells
        again = await self._beside.wait(self._begin(ending, late | ended), GRACE_SECONDS)
        again += await self.creations.run(starting, self._guarded, at_once)
        return again + await self._beside.wait(self._begin(judging, late | ended), GRACE_SECONDS)

    def _begin(self, actions: Sequence[Action], but: Collection[str]) -> list[asyncio.Task[int]]:
        rows = {_name(action): action for action in actions}
        return [asyncio.create_task(self._limited(it), name=name) for name, it in rows.items() if name not in but]

    async def _limited(self, action: Action) -> int:
        """Do one action that creates no agent, once what is left is read; 0 also where its answer came late."""
        (uid, namespace), left = _written_by(action), None
        if isinstance(action, Collect) or (isinstance(action, Close) and action.pod is not None):
            left = await self._collector.left(action, _name(action))
        async with self._room.taken(namespace):
            again = await self.writes.run(uid, namespace, _subject(action), lambda: self._guarded(action, left))
        await self.writes.answered(uid)
        return again or 0

    async def _guarded(self, action: Action, left: Left | Exception | None = None) -> int:
        """Do one action. Returns 1 where it must be tried again; what goes wrong is logged, and stops no other one."""
        if self.closed or (isinstance(action, Start) and self.starts.is_held(action)):
            return 0
        try:
            if isinstance(left, Exception):
                raise left
            await self._one(action, left)
        except NotCreated as refusal:
            _log.warning("%s: the %s is refused: %s", _subject(action), refusal.stage, refusal)
            return 0
        except Requeue as reason:
            _log.info("%s: later: %s", _subject(action), reason)
            return 1
        except ApiError as error:
            _log.warning("%s: %s", _subject(action), error)
            return 1
        except Exception as error:
            # One hostile object must not end the operator: the others go on, this one is tried again later.
            _log.exception("%s: unexpected", _subject(action))
            if isinstance(action, Start):
                self.starts.note_refusal(action, Answer(f"the operator itself: {type(error).__name__}: {error}"), "Job")
            return 1
        finally:
            self.ended.append(action)
        _log.info("%s: %s: %s", _subject(action), action.reason, action.message)
        return 0

    async def _one(self, action: Action, left: Left | None) -> None:
        match action:
            case Start():
                await self.starts.create(action)
            case Withdraw():
                await self.starts.withdraw(action)
            case Adopt():
                await self._reports.adopt(action)
            case Collect() if left is not None:
                await self._collect(action, left)
            case Close():
                if isinstance(action, GiveWay) and action.record is not None:
                    await self._gave_way(action.record, action.job.namespace)
                await self._close(action, left)
            case Drop():
                await delete(self._cluster, self._cache, action.kind, action.namespace, action.name, action.uid)
            case Judge():
                await self._judge(action)
            case MarkStale() | MarkFresh():
                entire = action.reason == "NodeGone" or action.report.status is None  # its verdict goes with its node
                action = replace(action, report=await self._reports.read(action.report)) if entire else action
                parts = () if entire else ("conditions", "state")
                await self._reports.write_status(action.report, ingest.marked_status(action, self._now()), *parts)

    async def settled(self) -> None:
        """Returns when all that was begun has its answer; once `closed`, nothing is read on."""
        if self.closed:
            self._collector.end()
        await self._beside.settled()
        await self.writes.settled()

    def end(self) -> None:
        """Read and await nothing any more; what has been read and not written is read again by who leads next."""
        self._collector.end()
        self._beside.cancel()
        self.writes.end()

    async def _collect(self, action: Collect, left: Left) -> None:
        job, ending = action.job, left.ending
        if isinstance(ending, NoResult):
            await self._fail(action, action.report, ending, left.log)
            return
        report = await self._reports.of_job(job, action.report)
        is_kept = action.keeping.retention.detail == "Full"
        finding = await self._reports.with_detail(ending, job, report) if is_kept else ingest.without_detail(ending)
        place = ingest.Place(action.pool, action.nvlink_domain, action.by_claim)
        status = ingest.read_status(finding, job, report, place, self._now(), action.keeping)
        try:
            await self._reports.write_status(report, status)
        except ApiError as error:
            if not error.refuses_fields:
                raise
            why = f"the API server's CRD of NodePrecisionReports refuses the result: {cleaned(error.words)}"
            await self._fail(action, report, NoResult(said("ResultNewer", detail=why)))
            return
        if self.starts.has_created(job):
            self.node_conditions.collected(job, action.pod, report, status)
        await delete(self._cluster, self._cache, "Job", job.namespace, job.name, job.uid)

    async def _judge(self, action: Judge) -> None:
        """Read what the newest run gave, decide, keep the GPUs' first Passes, then write the verdict."""
        report, terms, now = await self._reports.read(action.report), action.terms, self._now()
        status = report.status or ReportStatus()
        verdict, run = status.acceptance, status.run
        await self.node_conditions.judge(report, terms, action.facts)
        if terms is None:
            await self._reports.write_status(report, status.model_copy(update={"acceptance": unasked(verdict)}))
            return
        is_new = run is not None and (verdict is None or verdict.runs is None or verdict.runs.run != run_of(run))
        result = await self._reports.result(report, run) if run is not None and is_new else None
        subject = verdict.subject if verdict is not None else None
        gpus = {*(subject.gpus if subject else ()), *(gpu.uuid for gpu in (result.gpus if result else ()))}
        rows = await self._reports.baselines(report.namespace, terms.reference)
        terms = replace(terms, baselines=first_speeds(rows, terms.recipes, gpus))
        if is_new:
            status = status.model_copy(update={"acceptance": with_result(status, result, terms)})
        decision = decided(terms, status, action.facts, now)
        if terms.reference is not None and (new := first_passes(terms, decision)):
            await self._reports.keep_baselines(report.namespace, terms.reference, new)
        await self._reports.write_status(report, status.model_copy(update={"acceptance": decision}))

    async def _close(self, action: Close, left: Left | None) -> None:
        """End an attempt; an agent that runs past its time goes with the end of its log, which may tell more."""
        problem = left.ending if left is not None else NoResult(action.said, action.outcome)
        assert isinstance(problem, NoResult)
        await self._fail(action, action.report, problem, left.log if left is not None else None)

    async def _fail(
        self, action: Collect | Close, report: ReportView | None, problem: NoResult, log: str | None = None
    ) -> None:
        job = action.job
        report = await self._reports.of_job(job, report)
        status = ingest.failed_status(problem, job, report, self._now(), action.keeping, log)
        await self._reports.write_status(report, status)
        if self.starts.has_created(job):
            self.node_conditions.collected(job, action.pod, report, status)
        await delete(self._cluster, self._cache, "Job", job.namespace, job.name, job.uid)

    async def write_profile_status(self, profile: ProfileView, status: dict[str, Any]) -> None:
        """The status of a profile, whole. Raises ApiError."""
        path = paths.item(paths.profiles(profile.namespace), profile.name, "status")
        raw = await self._cluster.patch(path, whole_status(profile.uid, profile.version, status), "json")
        self._cache.put("profiles", raw)

    async def tell(self, of: ProfileView | Stranger, notes: Sequence[Note]) -> None:
        """Write events; one that is there already is counted. An event that fails is logged: it decides nothing."""
        for note in notes:
            try:
                await write_event(self._cluster, event(of, note, self._now()))
            except ApiError as error:
                _log.warning("event %s of %s: %s", note.reason, of.key, error)

    async def tell_strangers(self, strangers: Sequence[Stranger]) -> None:
        """Write an event on each, one a minute in a namespace."""
        now = self._now()
        self._strangers &= {stranger.uid for stranger in strangers}
        for it in strangers:
            if it.uid not in self._strangers and now >= self._quiet_until.get(it.namespace, now):
                self._strangers.add(it.uid)
                self._quiet_until[it.namespace] = now + STRANGERS_REST
                await self.writes.run(it.uid, it.namespace, it.key, partial(self.tell, it, [STRANGER]))


def _name(action: Action) -> str:
    """Of the task that does it: an agent that ends while the log of its end is read has left more than that."""
    return _written_by(action)[0] + ENDED * isinstance(action, Collect)


def _written_by(action: Action) -> tuple[str, str]:
    """UID and namespace of what an action is about: no two are done to it at one time."""
    match action:
        case Collect() | Close() | Withdraw():
            return action.job.uid, action.job.namespace
        case Drop():
            return action.uid, action.namespace
        case Adopt() | MarkStale() | MarkFresh() | Judge():
            return action.report.uid, action.report.namespace
        case Start():
            return action.facts.uid, action.profile.namespace


def _subject(action: Action) -> str:
    match action:
        case Start():
            return f"start {action.facts.name} for {action.profile.key}"
        case Collect() | Close() | Withdraw():
            verb = {Collect: "collect", Withdraw: "withdraw"}.get(type(action), "close")
            return f"{verb} {action.job.node_name} for {action.job.namespace}/{action.job.profile}"
        case Adopt():
            return f"adopt {action.report.namespace}/{action.report.name}"
        case Drop():
            return f"delete {action.kind} {action.namespace}/{action.name}"
        case MarkStale() | MarkFresh() | Judge():
            return f"mark {action.report.namespace}/{action.report.name}"
