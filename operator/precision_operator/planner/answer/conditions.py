"""What a CapacityPlan's status says beside the answer: conditions, and the events that their turning is worth."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from precision_api.facts import names
from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.core.conditions import condition
from precision_operator.core.observe.clock import format_time
from precision_operator.core.status.events import Note, event_about

_WARN = {(names.ACCEPTED, "False"), (names.SOLVED, "False"), (names.DEADLINES_PROMISED, "False")}
UNUSABLE = "InputsUnusable"
_UNSOLVED = {"Infeasible": "LimitsClash", "TimedOut": "TimeLimit", "NotFound": "NoneFound"}
"""Why there is no plan, by phase."""


def status_before(raw: Mapping[str, Any]) -> PlanStatus:
    """The status that the object has; one that can't be read counts as none."""
    try:
        return PlanStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        return PlanStatus()


def finished(
    answer: PlanStatus, before: PlanStatus, inputs: str, generation: int, now: datetime, refusal: str = UNUSABLE
) -> PlanStatus:
    """The whole status: the answer, what it was made from and when, and conditions that keep their times.

    `refusal` is why a refused spec is not accepted.
    """
    rows = (
        (names.ACCEPTED, *_accepted(answer, refusal)),
        (names.SOLVED, *_solved(answer)),
        (names.DEADLINES_PROMISED, *_promised(answer)),
    )
    conditions = tuple(condition(before.conditions, *row, now=now, generation=generation) for row in rows)
    progress = {"observed_generation": generation, "inputs": inputs, "solved_at": format_time(now)}
    return answer.model_copy(update=progress | {"conditions": conditions})


def refused(problem: str) -> PlanStatus:
    """The answer to a spec that can't be read at all."""
    return PlanStatus(phase="Refused", problems=(problem[:1024],), recommendation=f"There is no plan. {problem}"[:1024])


def _accepted(answer: PlanStatus, refusal: str) -> tuple[bool, str, str]:
    if answer.phase == "Refused":
        return False, refusal, "; ".join(answer.problems) or "The inputs make no plan."
    return True, "Accepted", "The spec is understood and there are figures to plan with."


def _solved(answer: PlanStatus) -> tuple[bool, str, str]:
    if answer.phase == "Solved":
        near = answer.totals is None or answer.totals.gap_reached is not False
        return True, "PlanFound" if near else "GapNotReached", answer.recommendation or ""
    return False, _UNSOLVED.get(answer.phase or "", UNUSABLE), "; ".join(answer.problems)


def _promised(answer: PlanStatus) -> tuple[bool, str, str]:
    if answer.phase != "Solved":
        return False, "NoPlan", "No plan was found that could promise any."
    wanted = [job for job in answer.jobs if job.deadline != "none"]
    missed = [job for job in wanted if job.deadline != "promised"]
    if not wanted:
        return True, "NoDeadlines", "No job has a deadline."
    if not missed:
        return True, "AllPromised", f"All {len(wanted)} deadlines are kept nine times in ten."
    bound = any(job.upper_bound for job in missed)
    why = (
        "their rates are upper bounds: give scaling or jobRates"
        if bound
        else "they are kept less than nine times in ten"
    )
    shown = ", ".join(job.name for job in missed[:8])
    return False, "NotPromised", f"{len(missed)} of {len(wanted)} deadlines are not promised ({shown}): {why}."


def events(raw: Mapping[str, Any], before: PlanStatus, after: PlanStatus, now: datetime) -> list[dict[str, Any]]:
    """One event for each condition that turned or has another reason, and one for a plan that says something else."""
    old = {c.type: (c.status, c.reason) for c in before.conditions}
    notes = [
        Note("Warning" if (c.type, c.status) in _WARN else "Normal", c.reason, c.message)
        for c in after.conditions
        if old.get(c.type) != (c.status, c.reason) and c.reason not in ("NoPlan", "NoDeadlines")
    ]
    if before.phase == after.phase == "Solved" and before.recommendation != after.recommendation:
        notes.append(Note("Normal", "PlanChanged", after.recommendation or ""))
    identity = {key: raw["metadata"][key] for key in ("name", "namespace", "uid")}
    about = {"apiVersion": names.API_VERSION, "kind": names.PLAN_KIND, **identity}
    return [event_about(about, note, now) for note in notes]
