"""What is written to Nodes: a Fail takes True away, a changed subject makes it Unknown, nothing else takes True away.

Decided from what this operator collected itself and from the Nodes. A report opens and closes none; it keeps a Fail.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from precision_api.kinds.report import ReportAcceptance
from precision_operator.core.attempts.node_state import NodeState
from precision_operator.core.attempts.verdicts import change
from precision_operator.core.eligibility.proved import CONFIRM_AFTER, NAMESAKE, changed_subject, waits_for_verdict
from precision_operator.core.observe.clock import format_time, time_or_none
from precision_operator.core.observe.gpu_slices import set_of
from precision_operator.core.observe.node_gate import CONDITION
from precision_operator.core.observe.nodes import NodeFacts

DAY = timedelta(days=1)
MOST_CLOSED = 0.1  # of a pool's nodes go from True to False within a day; one may always
MOST_MESSAGE, MOST_NAMED = 1024, 2  # characters, as the chart's policy takes them, and profiles that it says failed
OTHERS = "others"  # after them: of more, so each must pass
NO_WAIT = {"Busy", "NotReady", "Cordoned", "NodeDeleting"}  # it is at work, or somebody took it out of service


class Evidence(NamedTuple):
    """What one profile's runs that this operator collected itself say of a node, as far as the chart admits them."""

    profile: str  # namespace and name
    verdict: ReportAcceptance = ReportAcceptance()
    ended: datetime = datetime.min.replace(tzinfo=UTC)  # its newest run, or when a health counter refused one
    failed: bool = False  # it, or its report, on this boot, and it has not passed since
    lapsed: str | None = ""  # why its report does not say Pass; empty: it does; None: there is no verdict


class Write(NamedTuple):
    """The condition that a Node is to have, as the API writes it."""

    facts: NodeFacts
    row: Mapping[str, str]

    @property
    def closes(self) -> bool:
        """Whether it takes True away for False."""
        return (self.facts.verdict.status, self.row["status"]) == ("True", "False")


Pools = tuple[tuple[str, str], ...]  # that a node is in: a label of Nodes, and the name that it gives


def writes(
    nodes: Mapping[str, NodeFacts], pools: Mapping[str, Pools], evidence: Mapping[str, Collection[Evidence]],
    closings: Mapping[str, tuple[datetime, Pools]], now: datetime,
) -> tuple[Write, ...]:  # fmt: skip
    """The conditions that are not as they ought to be. At most a tenth of each pool is closed in a day.

    By node UID, `evidence` by each profile, and `closings`: when and where True was taken away within a day, from gone
    Nodes too; one counts where it was, and where the node is now.
    """
    there = [facts for facts in nodes.values() if facts.boot and not facts.deleting]
    sizes = Counter(pool for facts in there if facts.gpus or facts.verdict.status for pool in pools[facts.uid])
    closed = Counter(pool for uid, (_, where) in closings.items() for pool in {*where, *pools.get(uid, ())})
    found = list[Write]()
    for facts in there:
        ours = [
            it if not change(it.verdict.subject, facts) else Evidence(it.profile, lapsed=it.lapsed)
            for it in evidence.get(facts.uid, ())
        ]
        if ours or facts.verdict.status:
            counts = facts.uid in closings  # already: to close it once more closes no other
            has_room = all(closed[pool] < max(1, int(MOST_CLOSED * sizes[pool])) for pool in pools[facts.uid])
            write = _condition(facts, ours, counts or has_room, now)
            if write is not None:
                closed.update(pools[facts.uid] * (write.closes and not counts))
                found.append(write)
    return tuple(sorted(found, key=lambda it: not changed_subject(it.facts)))  # a stale True ends first


def is_unproved(node: NodeState) -> bool:
    """Whether a node that a run could prove, or that a verdict left Unknown, is neither True nor False as it is now."""
    facts, why, status = node.facts, node.said.reason, node.facts.verdict.status
    is_off = facts.out_of_service or why in NO_WAIT or (node.state == "skipped" and status != "Unknown")
    is_closed = status == "False" and not changed_subject(facts)
    return (why == "UntoleratedTaint" or not is_off) and not is_closed and waits_for_verdict(facts)


def waits_in_vain(facts: NodeFacts) -> bool:
    """Whether a node that no listed profile's target matches is in service, and neither True nor False as it is now."""
    is_off = facts.out_of_service or facts.not_ready or facts.unschedulable or facts.deleting
    return not is_off and waits_for_verdict(facts) and (facts.verdict.status != "False" or bool(changed_subject(facts)))


def has_turn(node: NodeState) -> bool:
    """Whether its run is to come, or under way, and the last one did not fail."""
    status = node.report.status if node.report is not None else None
    has_failed = status is not None and status.attempt is not None and status.attempt.outcome == "failed"
    return node.state in ("eligible", "queued", "running") and not has_failed


def _condition(facts: NodeFacts, ours: list[Evidence], room: bool, now: datetime) -> Write | None:
    before, moved = facts.verdict, changed_subject(facts)
    named = {*before.parts.get("failed", "").split(", ")} if moved != NAMESAKE else set[str]()
    if not moved and before.status != "Unknown":
        ours = [_held(it) if it.lapsed and named & {it.profile, OTHERS} else it for it in ours]
    # Each is lifted by its own Pass alone, on whatever boot and GPUs.
    failed = [it.profile for it in ours if it.verdict.verdict != "Pass" and (it.failed or named & {it.profile, OTHERS})]
    ours = [it._replace(failed=it.profile in failed) for it in ours]
    is_open = before.status == "True" and not moved
    _, newest, ended, has_failed, _ = max(ours, key=_weight, default=Evidence(""))
    failing = {"failed": ", ".join(sorted(failed)[:MOST_NAMED] + [OTHERS] * (len(failed) > MOST_NAMED))}
    subject, judged = before.parts if is_open else {}, newest.subject
    if judged is not None and judged.gpus and not (is_open and newest.verdict in (None, "Inconclusive")):
        subject = {"driver": judged.driver or "", "gpus": str(len(judged.gpus)), "until": newest.valid_until or "-"}
        subject |= {"set": set_of(judged.gpus)}
    ends = time_or_none(subject.get("until"))
    reasons = [it.lapsed for it in ours if it.lapsed is not None] if before.status == "True" else [""]
    over = (*reasons, "NoReport")[0] if all(reasons) else "Expired" * (ends is not None and ends <= now)
    write, said = partial(_write, facts, {**subject, **failing}, now), newest.message
    after = f"; after run {newest.runs.run.split()[0]}" if newest.again and newest.runs is not None else ""
    match newest.verdict:
        case "Pass" if is_open and over:
            return write("True", "NotJudgedAgain", f"{over}; it passed before")
        case "Pass" if over != "Expired":
            return write("True", "Pass", "all checks passed; compute only")
        case "Fail" if before.status != "True":
            keeps = before.reason == "FailConfirmed" and not moved
            return write("False", "FailConfirmed" if keeps else "Fail", said)
        case "Fail" if is_open:
            first = before.failing_since
            if before.reason != "FailHeld" and (first is None or not first + CONFIRM_AFTER <= ended <= now):
                return write("True", "FailUnconfirmed", said)
            return write("False", "FailConfirmed", said) if room else write("True", "FailHeld", said)
        case "Inconclusive" if newest.reason != "Expired" and (moved or before.status in ("", "Unknown")):
            return write("Unknown", newest.reason, said + after)
    if moved:
        return _write(facts, failing, now, "Unknown", "SubjectChanged", f"since it was judged {moved}")
    if is_open and newest.verdict and (has_failed or before.failing_since is not None) and before.reason != "FailHeld":
        return write("True", "FailUnconfirmed", f"{newest.reason}; it failed before{after}")
    why = newest.reason or over
    if is_open and not why and before.reason == "NotJudgedAgain":  # its report passes, by runs of another leader
        why, after = "NotMeasured", "; after run unseen"
    if is_open and why and before.reason in ("Pass", "NotJudgedAgain"):
        return write("True", "NotJudgedAgain", f"{why}; it passed before{after}")
    if not before.status:
        return None
    said = before.parts.get("said", before.message)  # of another writer: from now on it is of this boot
    return _write(facts, {**before.parts, **failing}, now, before.status, before.reason or "Unreasoned", said)


def _held(it: Evidence) -> Evidence:
    """A Pass that its report does not share says nothing yet: a new leader's first good run lifts no Fail."""
    held = ReportAcceptance().model_copy(update={"reason": it.lapsed, "subject": it.verdict.subject})
    return it._replace(verdict=held) if it.verdict.verdict == "Pass" else it


def _weight(it: Evidence) -> tuple[bool, bool, bool, bool, datetime]:
    """What counts of several profiles' evidence: a Fail, else what only its own Pass lifts, else a Pass."""
    said = it.verdict.verdict
    return said == "Fail", it.failed, said == "Pass", said is not None, it.ended


def _write(
    facts: NodeFacts, parts: Mapping[str, str], now: datetime, status: str, reason: str, said: str
) -> Write | None:
    """The condition as it is to be; None where it is so already. Its end is what the policy asks for."""
    before = facts.verdict
    closed = now if (before.status, reason) == ("True", "FailConfirmed") else before.closed
    closed = closed and min(closed, now)  # of a clock that was ahead: from now on of this day
    tail = f"; failed by {parts['failed']}" if parts.get("failed") else ""
    if parts.keys() >= {"driver", "gpus", "until"}:
        gpus = f"{parts['gpus']} GPUs {parts.get('set', '')}".rstrip()
        tail += f"; driver {parts['driver']}, {gpus}, valid until {parts['until']}"
    tail += f"; closed {format_time(closed)}" if closed else ""
    tail += f" (node {facts.uid}, boot {facts.boot})"
    message = said[: MOST_MESSAGE - len(tail)] + tail
    is_ahead = before.failing_since is not None and before.failing_since > now  # a clock was: from now
    if before[:3] == (status, reason, message) and not is_ahead:
        return None
    since = before.since if before.status == status else None
    written = before.written if before[:2] == (status, reason) and not is_ahead else None
    times = {"lastTransitionTime": format_time(since or now), "lastHeartbeatTime": format_time(written or now)}
    return Write(facts, {"type": CONDITION, "status": status, "reason": reason, "message": message} | times)
