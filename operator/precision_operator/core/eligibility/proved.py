"""Whether a node is proved by its condition of ours, as it is now; and from when on a second run may confirm a Fail."""

from datetime import datetime, timedelta

from precision_operator.core.observe.nodes import NodeFacts, same_driver
from precision_operator.core.observe.observed import AcceptedProfile, Settings

CONFIRM_AFTER = timedelta(hours=1)


def changed_subject(facts: NodeFacts) -> str:
    """What of the node is not as its condition says, in words; empty where all is, or there is none."""
    subject = facts.verdict.parts
    before, now, gpus = subject.get("driver"), facts.driver, subject.get("gpus")
    checks = {
        "it is another Node object": subject.get("node", facts.uid) != facts.uid,
        "it restarted": subject.get("boot", facts.boot) != facts.boot,
        "its driver changed": bool(before and now) and not same_driver(str(before), str(now)),
        "its GPUs changed": gpus is not None and int(gpus) != (facts.gpus or facts.all_gpus or int(gpus)),
    }
    return next((words for words, holds in checks.items() if holds), "")


def waits_for_verdict(facts: NodeFacts) -> bool:
    """Whether the node's condition is not True for the node as it is."""
    return facts.verdict.status != "True" or bool(changed_subject(facts))


def run_to_prove(profile: AcceptedProfile, facts: NodeFacts, settings: Settings, now: datetime) -> str:
    """Which run of the profile is to prove the node as it is, or to confirm a Fail of an open one; empty: none."""
    if not (facts.boot and profile.spec.acceptance and settings.node_gate.of(profile.namespace, profile.name)):
        return ""
    verdict = facts.verdict
    if "after" in verdict.parts:
        return f"after {verdict.parts['after']}"
    mark = f"judge {facts.boot} {settings.started}"
    if not waits_for_verdict(facts):
        first = verdict.unconfirmed_since
        if first is None or now < first + CONFIRM_AFTER:
            return ""
        mark += f" {first.isoformat()}"
    return mark
