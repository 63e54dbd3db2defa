"""What becomes of Jobs that are over or hopeless, and of reports that are out of date or whose node is gone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from precision_api.facts.names import DEFAULT_POOL_LABEL
from precision_operator.core.attempts import actions
from precision_operator.core.attempts.attempt import Attempt
from precision_operator.core.attempts.faults import Fault
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan, recorded
from precision_operator.core.attempts.places import is_abandoned
from precision_operator.core.attempts.refusal import Answer, classify, cleaned, mark_of
from precision_operator.core.attempts.verdicts import is_due, is_over, terms_of, turns_at
from precision_operator.core.observe.book import differing, same
from precision_operator.core.observe.clock import duration
from precision_operator.core.observe.observed import JobView, Observed, PodView, ReportView, Stage
from precision_operator.core.observe.stop import Stop, stopped
from precision_operator.core.reasons import Said, said

Mark = actions.MarkStale | actions.MarkFresh


def cleanup(
    observed: Observed, plans: Sequence[ProfilePlan], attempts: Sequence[Attempt], faults: list[Fault]
) -> Iterator[actions.Action]:
    """All that is to be ended, collected, marked or deleted. What one Job or report raises goes to `faults`."""
    for attempt in attempts:
        try:
            action = _of_job(attempt, observed)
        except Exception as error:
            faults.append(Fault("job", f"{attempt.job.namespace}/{attempt.job.name}", error))
            continue
        if action is not None and not attempt.job.deleting:
            yield action
    # One writer a pass: a report whose Job is still there gets that Job's end first, or the one would undo the other.
    written = {(job.profile_uid, job.node_uid) for job in observed.jobs if not job.is_gone}
    ending = {(job.profile_uid, job.node_uid) for job in observed.jobs if not job.live and not job.is_gone}
    profiles = {profile.uid: profile for profile in observed.profiles}
    for uid, orphan in observed.orphans:
        if (uid, orphan.node_uid) not in written and observed.reports_of[uid][orphan.node_uid] is orphan:
            written.add((uid, orphan.node_uid))
            yield actions.Adopt(profiles[uid], orphan)
    for plan in plans:
        uid, spec = plan.profile.uid, plan.profile.spec
        keep = spec.retention.deleted_nodes if spec is not None else None
        reports, nodes = observed.reports_of[uid], plan.nodes or observed.nodes
        lost = observed.book.of(("lost", uid), (reports, nodes), partial(_absent, reports, nodes))
        for report in lost:
            if (uid, report.node_uid) not in written:
                yield from _of_lost_node(report, keep, observed.now)
    for plan in plans:
        try:
            marks: list[Mark] = observed.book.of_each(("marks", plan.profile.uid), plan.node_states.by_uid, _mark)
            marks = [mark for mark in marks if (plan.profile.uid, mark.report.node_uid) not in written]
            ending |= {(plan.profile.uid, mark.report.node_uid) for mark in marks}
            yield from marks
            yield from _verdicts(plan, observed, ending)
        except Exception as error:
            faults.append(Fault("profile", plan.profile.key, error))


def next_end(observed: Observed, attempts: Sequence[Attempt]) -> datetime | None:
    """The first moment ahead at which an attempt's time is over, or a pod that nobody ends stops counting."""
    grace = observed.settings.unresponsive_grace
    ends = [pod.deleting_since + grace for pod in observed.pods if pod.live and pod.deleting_since is not None]
    for attempt in attempts:
        if attempt.owner is None or not attempt.job.live or attempt.job.deleting:
            continue
        with suppress(Exception):  # `cleanup` has met the same, and tells of it
            ends += [attempt.end.at] if attempt.end is not None else []
    return min((at for at in ends if at > observed.now), default=None)


def _of_job(attempt: Attempt, observed: Observed) -> actions.Action | None:
    job, pod, report, facts = attempt.job, attempt.pod, attempt.report, attempt.facts
    if attempt.owner is None:
        return _drop_job(job, "ProfileDeleted", "its profile is gone")
    if recorded(job, report):
        return _drop_job(job, "ResultWritten", "its result is in the report")
    is_gone = job.node_uid not in observed.nodes
    if is_gone and job.uid not in observed.own_jobs:
        return _drop_job(job, "NodeLost", "its node is not there, and no leader has made it")
    keeping = attempt.keeping
    job = replace(job, node_name=facts.name) if facts is not None else job  # by its UID, as its report
    if job.finished is not None and (pod is None or not is_abandoned(pod, observed.settings, observed.now)):
        pool, domain = (facts.pool, facts.clique) if facts else ("", None)
        by_claim, is_drained = pod is not None and pod.claims, job.node_uid in attempt.owner.drained
        return actions.Collect(job, pod, report, pool, keeping, domain, by_claim, is_drained)
    if is_gone:
        return actions.Close(job, report, "disrupted", said("NodeLost", node=job.node_name), keeping)
    if pod and pod.live and pod.holds_gpus and observed.own_jobs.get(job.uid, pod.node_name) != pod.node_name:
        return actions.Close(job, report, "failed", said("ResultForeign", detail="its pod is on another node"), keeping)
    if pod is None and job.suspended and attempt.spec is not None and attempt.spec.suspend:
        return _drop_job(job, "Suspended", "its profile is suspended, and Kueue has not let it begin")
    lacks_claim = pod is not None and pod.phase == "Pending" and pod.claims and not pod.claims_created
    if job.creation_problem and not job.suspended and (pod is None or lacks_claim):
        stage: Stage = "pod" if pod is None else "ResourceClaim"
        answer = {"stage": stage, "words": cleaned(job.creation_problem), "namespace": job.namespace}
        mark = mark_of(attempt.owner.profile, report)
        return actions.Withdraw(job, mark, Said(classify(Answer(job.creation_problem)), answer), stage)
    if observed.stop is not None and job.finished is None and _takes_back(observed.stop, pod):
        return actions.Close(job, report, "disrupted", stopped(observed.stop), keeping)
    end = attempt.end
    if end is None or not end.is_over(observed.now):
        return None
    read = pod if end.has_log else None
    return actions.Close(job, report, end.outcome, end.said, keeping, read, end.since)


def _takes_back(stop: Stop, pod: PodView | None) -> bool:
    """Whether an admin's stop ends this agent. One that waits for its place or image would begin although all are held;
    it is left alone where nobody knows what the admin wants.
    """
    begun = pod is not None and pod.phase != "Pending"
    return stop.mode == "End" or not (begun or stop.garbled)


def _drop_job(job: JobView, reason: str, message: str) -> actions.Drop:
    return actions.Drop("Job", job.namespace, job.name, job.uid, Said(reason, words=message))


def _of_lost_node(report: ReportView, keep: str | None, now: datetime) -> Iterator[actions.Action]:
    """A report outlives its node by the retention; with its profile it goes by garbage collection."""
    since = report.not_fresh.get("NodeGone")
    if since is None:
        yield actions.MarkStale(report, said("NodeGone", node=report.node_name))
    elif keep is not None and now - since >= duration(keep):
        over = Said("RetentionOver", words="its node is gone")
        yield actions.Drop("NodePrecisionReport", report.namespace, report.name, report.uid, over)


def _verdicts(plan: ProfilePlan, observed: Observed, written: set[tuple[str, str]]) -> Iterator[actions.Judge]:
    """Reports whose verdict is not what it would be now; where nobody can say, those whose Pass is over."""
    profile, book, terms, check = plan.profile, observed.book, None, is_over
    reports = observed.reports_of[profile.uid]
    nodes = plan.nodes if profile.spec is not None else observed.facts_of(DEFAULT_POOL_LABEL)
    with suppress(KeyError):
        terms = terms_of(profile.spec, profile.namespace, observed, reports)
        terms, check = book.as_before(("terms of verdicts", profile.uid), terms), is_due
    key, objects = ("verdicts", profile.uid), (terms, check, reports, nodes)
    before, (due, turns, past) = book.last(key) or ((), (set[str](), dict[str, datetime](), set[str]()))
    gone_by = {uid for uid, at in turns.items() if at <= observed.now}
    if before and same(before[:2], objects[:2]):
        changed = {*differing(before[2], reports), *differing(before[3], nodes), *(gone_by ^ past)}
    else:
        changed = {*reports, *turns}
    due, turns = due - changed, {uid: at for uid, at in turns.items() if uid not in changed}
    for uid in changed & reports.keys() & nodes.keys():
        status = reports[uid].status if reports[uid].profile_uid else None
        due |= {uid} if reports[uid].profile_uid and check(terms, status, nodes[uid], observed.now) else set()
        at = turns_at(terms, status)
        turns |= {uid: at} if at is not None else {}
    past = {uid for uid, at in turns.items() if at <= observed.now}
    book.keep(key, objects, (due, turns, past))
    for uid in reports if due else ():
        if uid in due and (profile.uid, uid) not in written:
            yield actions.Judge(reports[uid], terms, nodes[uid])


def _absent(reports: Mapping[str, ReportView], nodes: Mapping[str, object]) -> list[ReportView]:
    """Those of nodes that are not there."""
    return [] if reports.keys() <= nodes.keys() else [report for node, report in reports.items() if node not in nodes]


def _mark(node_state: NodeState) -> Mark | None:
    """A result that a new run will replace stays until it has, marked with the reason; undone, the mark goes again."""
    run, report = node_state.current, node_state.report
    if run is None or report is None or report.status is None or report.status.run is None:
        return None
    marked = report.not_fresh
    newest = report.status.attempt  # where that one failed, the result is an older one's
    if run.due is None and marked and newest is not None and newest.run == report.status.run.run:
        undone = f"what made it stale ({', '.join(marked)}) is undone"
        return actions.MarkFresh(report, Said("Measured", words=undone))
    is_stale = run.begins is not None and run.due not in ("FirstRun", "VerdictOpen") and not marked
    return actions.MarkStale(report, run.begins) if is_stale and run.begins is not None else None
