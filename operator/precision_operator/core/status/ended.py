"""Whether a profile has ended: its conditions Succeeded and Failed, neither of which is there while it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from precision_api.facts import names
from precision_api.kinds.profile import NodeCounts
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.reasons import Said
from precision_operator.core.results.reading import Reading

NEVER_MEASURED = frozenset({"InvalidSpec", "InvalidWorkload", "InvalidSchedule"})
"""Reasons not to accept a profile that only another spec ends; for the others something may still come."""
STOPPED_ROLLOUT = ("CanaryFailed", "TooManyFailures")
RESTS = (*STOPPED_ROLLOUT, "Quarantined")
"""Reasons to wait that no passing of time ends: somebody has to mend a node."""


@dataclass(frozen=True)
class Ended:
    """The condition of a profile that has ended."""

    condition: str
    reason: str
    message: str


def ended(
    plan: ProfilePlan, counts: NodeCounts, measured: Sequence[Reading], complete: tuple[bool, str, str]
) -> Ended | None:
    """How the profile has ended; None while it goes on, which it does while a node is queued, is measured or waits.

    `complete` is the condition Complete: whether it holds, its reason and its message, which a profile keeps that ends
    as Complete tells.
    """
    if isinstance(plan.asked, Said):
        never = plan.asked.reason in NEVER_MEASURED
        return Ended(names.FAILED, plan.asked.reason, plan.asked.message) if never else None
    resting = [state for state in plan.node_states if state.reason in RESTS]
    stopped = next((state for state in resting if state.reason in STOPPED_ROLLOUT), None)
    if counts.queued or counts.running or (counts.waiting > len(resting) and stopped is None):
        return None
    if stopped is not None:
        return Ended(names.FAILED, stopped.reason, stopped.message)
    if not counts.eligible or counts.failed:
        return Ended(names.FAILED, *complete[1:])
    if resting:
        rest = f"Quarantined nodes: {len(resting)} of {counts.eligible}, e.g. {resting[0].facts.name}. "
        return Ended(names.FAILED, "NodesQuarantined", rest + resting[0].message)
    useful = {reading.node for reading in measured if reading.usable_rows}
    states = (state for state in plan.node_states if state.state == "succeeded")
    useless = [state.facts.name for state in states if state.facts.name not in useful]
    if useless:
        text = f"Nodes on which no recipe has a usable result: {len(useless)} of {counts.eligible}, e.g. {useless[0]}."
        return Ended(names.FAILED, "NoUsableResult", f"{text} See kubectl precision report {useless[0]}.")
    return Ended(names.SUCCEEDED, *complete[1:])
