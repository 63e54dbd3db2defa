"""Whether a node is proved by its condition of ours, as it is now; and from when on a second run may confirm a Fail."""

from datetime import timedelta

from precision_operator.core.observe.nodes import NodeFacts, same_driver
from precision_operator.core.observe.observed import AcceptedProfile, Observed, ReportView

CONFIRM_AFTER = timedelta(hours=1)


def changed_subject(facts: NodeFacts) -> str:
    """What of the node is not as its condition says, in words; empty where all is, or there is none."""
    subject = facts.verdict.parts
    before, now, gpus = subject.get("driver"), facts.driver, subject.get("gpus")
    checks = {
        "it is another Node object": subject.get("node", facts.uid) != facts.uid,
        "it restarted": subject.get("boot", facts.boot) != facts.boot,
        "its driver changed": bool(before and now) and not same_driver(str(before), str(now)),
        "its GPUs changed": gpus is not None and facts.has_other_gpus(int(gpus), subject.get("set", "")),
    }
    return next((words for words, holds in checks.items() if holds), "")


def waits_for_verdict(facts: NodeFacts) -> bool:
    """Whether the node's condition is not True for the node as it is."""
    return facts.verdict.status != "True" or bool(changed_subject(facts))


def run_to_prove(profile: AcceptedProfile, facts: NodeFacts, report: ReportView | None, observed: Observed) -> str:
    """Which run of the profile is to prove the node as it is, or to confirm a Fail of an open one; empty: none."""
    settings = observed.settings
    if not (facts.boot and profile.spec.acceptance and settings.node_gate.of(profile.namespace, profile.name)):
        return ""
    verdict = facts.verdict
    if "after" in verdict.parts:
        return f"after {verdict.parts['after']}"
    mark, first = f"judge {facts.boot} {settings.started}", verdict.unconfirmed_since
    if not waits_for_verdict(facts) and first is not None:
        hours = (observed.now - first) // CONFIRM_AFTER  # until a run speaks, after 1, 2, 4, 8... of them
        return f"{mark} {first.isoformat()} {hours.bit_length()}" if hours > 0 else ""
    judged = report.status.acceptance if report is not None and report.status is not None else None
    # its report says Fail, and its condition that it passed: this process has not seen why
    has_failed = judged is not None and judged.verdict == "Fail" and verdict.reason == "NotJudgedAgain"
    return mark if waits_for_verdict(facts) or has_failed else ""
