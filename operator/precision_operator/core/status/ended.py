"""Whether a profile has ended or is stopped: conditions of its status.

Of Succeeded and Failed neither is there while it goes on. An admin's stop is in the status since the profile's users
need no right to read the switch, nor to ask who has set it.
"""

from datetime import datetime

from precision_api.facts import names
from precision_api.kinds.profile import Condition, NodeCounts, ProfileStatus
from precision_operator.core.attempts.node_state import AGAIN, ProfilePlan
from precision_operator.core.conditions import condition
from precision_operator.core.observe.stop import REASON, Stop, stop_message, stopped
from precision_operator.core.reasons import Said
from precision_operator.core.results.outliers import Part

NEVER_MEASURED = frozenset({"InvalidSpec", "InvalidWorkload", "InvalidSchedule"})
"""Reasons not to accept a profile that only another spec ends; for the others something may still come."""
STOPPED_ROLLOUT = ("CanaryFailed", "TooManyFailures")
RESTS = (*STOPPED_ROLLOUT, "Quarantined")
"""Reasons to wait that no passing of time ends: somebody has to mend a node."""


def ended(
    plan: ProfilePlan, counts: NodeCounts, measured: Part, complete: tuple[bool, str, str]
) -> tuple[str, bool, str, str] | None:
    """The condition of a profile that has ended, its reason and message; None while it goes on.

    It does so while a node is queued, is measured or waits.
    `complete` is the condition Complete: whether it holds, its reason and its message, which a profile keeps that ends
    as Complete tells.
    """
    if isinstance(plan.asked, Said):
        never = plan.asked.reason in NEVER_MEASURED
        return (names.FAILED, True, plan.asked.reason, plan.asked.message) if never else None
    states, reasons = plan.node_states, plan.node_states.reasons
    resting, is_stopped = sum(reasons[reason] for reason in RESTS), any(reasons[r] for r in STOPPED_ROLLOUT)
    if counts.queued or counts.running or (counts.waiting > resting and not is_stopped):
        return None
    if is_stopped:
        stopped = states.first(*STOPPED_ROLLOUT)
        return names.FAILED, True, stopped.reason, stopped.message
    if not counts.eligible or counts.failed:
        return names.FAILED, True, *complete[1:]
    if resting:
        first = states.first(*RESTS)
        rest = f"Quarantined nodes: {resting} of {counts.eligible}, e.g. {first.facts.name}. "
        return names.FAILED, True, "NodesQuarantined", rest + first.message
    is_each_useful = not states.tallies[AGAIN] and measured.useful == counts.succeeded  # all figures are theirs
    useful = {reading.node for reading in measured if not is_each_useful and reading.marks.useful}
    succeeded = (state.facts.name for state in states if not is_each_useful and state.state == "succeeded")
    useless = [name for name in succeeded if name not in useful]
    if useless:
        text = f"Nodes on which no recipe has a usable result: {len(useless)} of {counts.eligible}, e.g. {useless[0]}."
        return names.FAILED, True, "NoUsableResult", f"{text} See kubectl precision report {useless[0]}."
    return names.SUCCEEDED, True, *complete[1:]


def with_stop(status: ProfileStatus, before: ProfileStatus, stop: Stop | None, now: datetime) -> ProfileStatus:
    """The status with what an admin's stop means for it. Condition Stopped comes with the first stop, and stays."""
    if stop is None and not any(row.type == names.STOPPED for row in before.conditions):
        return status
    generation = status.observed_generation
    row = ("Run", "Agents may start.") if stop is None else (stop.mode, stop_message(stop))
    row_of_stop = condition(before.conditions, names.STOPPED, stop is not None, *row, now, generation)
    if stop is None:
        return status.model_copy(update={"conditions": (*status.conditions, row_of_stop)})
    conditions = tuple(_held(row, before, stop, now) for row in status.conditions)
    changes: dict[str, object] = {"conditions": (*conditions, row_of_stop), "eta": None, "eta_time": None}
    if status.phase in ("Pending", "Running") and not (status.nodes and status.nodes.running):
        changes["phase"] = "Suspended"
    return status.model_copy(update=changes)


def _held(row: Condition, before: ProfileStatus, stop: Stop, now: datetime) -> Condition:
    """A condition that would say that measuring goes on, or that there is nothing to do, says what stops it."""
    changed = {names.PROGRESSING: ("Measuring", "Idle", "Suspended"), names.COMPLETE: ("Measuring",)}
    if row.reason not in changed.get(row.type, ()):
        return row
    return condition(before.conditions, row.type, False, REASON, stopped(stop).message, now, row.observed_generation)
