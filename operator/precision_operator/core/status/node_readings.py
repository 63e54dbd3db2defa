"""The readings that a profile's status is made of, each made once for the same report."""

from __future__ import annotations

from precision_api.report import ReportStatus
from precision_operator.core.observe.memo import Once
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading, read
from precision_operator.core.rollout.node_state import ProfilePlan, Stand

_READINGS: Once[Reading] = Once()


def readings(plan: ProfilePlan) -> tuple[Reading, ...]:
    """The profile's nodes whose figures hold, in the plan's order; `pool` is the node's pool now."""
    reports = ((stand.facts, stand.report) for stand in plan.stands if _holds(stand))
    found = (
        _reading(plan.profile.uid, facts, report.status)
        for facts, report in reports
        if report is not None and report.status is not None
    )
    return tuple(reading for reading in found if reading.holds)


def _holds(stand: Stand) -> bool:
    """Whether the plan knows nothing against the node's figures: the report is marked only after this pass."""
    due = stand.current.due if stand.current is not None else None
    return stand.state == "succeeded" or due in HOLDS_UNTIL_REPLACED


def _reading(profile_uid: str, facts: NodeFacts, status: ReportStatus) -> Reading:
    return _READINGS.of((profile_uid, facts.uid), (facts, status), lambda: read(facts.name, facts.pool, status))
