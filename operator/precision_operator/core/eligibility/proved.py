"""Whether a node is proved by its condition of ours, as it is now; and which run is to prove it or confirm a Fail."""

from datetime import UTC, datetime, timedelta

from precision_operator.core.observe.clock import parse_time
from precision_operator.core.observe.nodes import NodeFacts, same_driver
from precision_operator.core.observe.observed import AcceptedProfile, Observed, ReportView

CONFIRM_AFTER = timedelta(hours=1)
NAMESAKE = "it is another Node object"
MOST_DOUBLED = 8  # how often the time until the next run is
NEVER = datetime.max.replace(tzinfo=UTC)


def changed_subject(facts: NodeFacts) -> str:
    """What of the node is not as its condition says, in words; empty where all is, or there is none."""
    subject = facts.verdict.parts
    before, now, gpus = subject.get("driver"), facts.driver, subject.get("gpus")
    checks = {
        NAMESAKE: subject.get("node", facts.uid) != facts.uid,
        "its GPUs changed": gpus is not None and facts.has_other_gpus(int(gpus), subject.get("set", "")),
        "it restarted": subject.get("boot", facts.boot) != facts.boot,
        "its driver changed": bool(before and now) and not same_driver(str(before), str(now)),
    }
    return next((words for words, holds in checks.items() if holds), "")


def waits_for_verdict(facts: NodeFacts) -> bool:
    """Whether the node's condition is not True for the node as it is."""
    return facts.verdict.status != "True" or bool(changed_subject(facts))


def run_to_prove(profile: AcceptedProfile, facts: NodeFacts, report: ReportView | None, observed: Observed) -> str:
    """Which run is to prove the node as it is, or to confirm a Fail of an open one, again after 1, 2, 4... hours."""
    settings = observed.settings
    if not (facts.boot and profile.spec.acceptance and settings.node_gate.of(profile.namespace, profile.name)):
        return ""
    verdict, waits, now = facts.verdict, waits_for_verdict(facts), observed.now
    status = report.status if report is not None else None
    attempt, judged = (status.attempt, status.acceptance) if status is not None else (None, None)
    outcome, mark = judged.verdict if judged is not None else None, f"judge {facts.boot} {settings.started}"
    first, after = None if waits else verdict.failing_since, verdict.parts.get("after", "")
    has_fail = (outcome, verdict.reason) == ("Fail", "NotJudgedAgain")
    if first is not None:
        mark, due = f"{mark} {first.isoformat()}", first + CONFIRM_AFTER
    elif waits or after or has_fail:  # this process has not seen why
        due = now
    else:
        return ""
    _, made, last = (attempt.basis.get("verdict", "") if attempt is not None else "").partition(mark)
    number = int(last.rpartition(" ")[2]) if last[-1:].isdecimal() else 1
    if attempt is not None and last:
        speaks = first is None and verdict.status and outcome in ("Pass", "Fail") and not has_fail
        ended = parse_time(attempt.finished_at)
        is_ahead = first is None and ended > now + CONFIRM_AFTER  # its clock was; a doubt begins anew
        due = now if is_ahead else ended + CONFIRM_AFTER * 2 ** min(number - 1, MOST_DOUBLED)
        due, number = NEVER if speaks else due, number + 1
    if after and f"after {after} " not in last:
        due = now
    return f"{mark}{f' after {after}' * bool(after)} {number}" if due <= now else f"{made}{last}"
