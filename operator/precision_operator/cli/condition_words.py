"""What the condition on a Node says, and what changes it, in the words of `why` and `acceptance`."""

from collections.abc import Iterable, Mapping
from typing import Any

from precision_api.facts.names import grouped
from precision_operator.core.eligibility.proved import changed_subject
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.nodes import NodeFacts

_ACTS = (
    ("TooSlow RowRemapFailed", "run NVIDIA's field diagnostics on the GPU"),
    ("Throttled", "cool it, or look at its power feed"),
    ("UncorrectableECC RowRemapPending GPUUnhealthy", "reset the GPU, or fix its driver"),
    ("NotYet BetweenLimits SubjectChanged Expired RunsLost", "wait, or measure it again: kubectl precision rerun NODE"),
    ("Crashed", "look for Xid errors in its kernel's log, then measure it again"),
    ("Fallback Unverified OtherLayers NumericalError Partial NotMeasured", "nobody at the node: it is software"),
    ("HostBound OtherDepth", "look what else runs on its host, or give the agent more CPU"),
    ("WithinLimits Simulated", "nothing, as far as this profile goes"),
    ("OtherKey OtherGPUs NoReference NotDetectable FewGoldenNodes ReferenceDrifted ReferenceTooOld ReferenceReplaced",
     "make a reference: kubectl precision reference create NAME --dry-run"),
)  # fmt: skip
ACTS = {reason: act for reasons, act in _ACTS for reason in reasons.split()}
"""What one does, by the reason of a verdict."""
SEE = "see docs/verdict.md of the operator's version"
TAKES_AWAY = "a Fail, or another boot, driver or GPUs, takes True away"
NEXT: Mapping[str, str] = {
    "False": "a Pass of each profile that it is failed by opens it; who repairs the node deletes its reports",
    "NotJudgedAgain": f"a Pass renews it; {TAKES_AWAY}",
    "FailUnconfirmed": "drain it: a second run, at the earliest an hour after the first, makes it False or Pass",
    "FailHeld": "drain it: it becomes False once less than a tenth of its pool was closed within 24 hours",
    "NotListed": "no run: bring the profile and the chart's acceptance.nodeCondition.profiles together",
    "stale": "the operator, unless it is down, makes it Unknown within a minute, and measures the node",
}
"""What changes the condition, by status or reason, or what one does."""


def condition_said(facts: NodeFacts) -> dict[str, Any] | None:
    """For programs; `stale`: why it isn't of the node as it is, null where it is. None where the Node has none."""
    status, reason, message, since, _ = facts.verdict
    if not status:
        return None
    stale, usual = changed_subject(facts), TAKES_AWAY if status == "True" else ACTS.get(reason, SEE)
    change = NEXT.get("stale" if stale else "False" if status == "False" else reason, usual)
    row = {"status": status, "reason": reason, "since": format_time(since) if since else "unknown"}
    return row | {"stale": stale or None, "message": message, "next": change}


def headline(row: Mapping[str, Any]) -> str:
    """`True, FailHeld, of this boot`."""
    whose = f"stale: {row['stale']}" if row["stale"] else "of this boot"
    return f"{row['status']}, {row['reason']}, {whose}"


def sentences(nodes: Iterable[NodeFacts]) -> list[str]:
    """A sentence on each thing that their conditions say: of how many, since when at the longest, and what is next."""
    rows = [(row, facts.name) for facts in nodes if (row := condition_said(facts))]
    says = grouped((headline(row), (row["since"], name, row["next"])) for row, name in rows)
    oldest = ((words, len(of), *min(of)) for words, of in sorted(says.items()))
    return [f"{number} {words}, since {since} ({name}): {change}" for words, number, since, name, change in oldest]
