"""An admin's stop in a profile's status: its users need no right to read the switch, nor to ask who has set it."""

from datetime import datetime

from precision_api.facts import names
from precision_api.kinds.profile import Condition, ProfileStatus
from precision_operator.core.conditions import condition
from precision_operator.core.observe.stop import REASON, Stop, stop_message, stopped


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
    holds = (row.type == names.PROGRESSING and row.reason in ("Measuring", "Idle", "Suspended")) or (
        row.type == names.COMPLETE and row.reason == "Measuring"
    )
    if not holds:
        return row
    return condition(before.conditions, row.type, False, REASON, stopped(stop).message, now, row.observed_generation)
