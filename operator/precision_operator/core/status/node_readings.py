"""The readings that a profile's status is made of, each made once for the same report."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

from precision_api.facts.grouping import grouped
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan
from precision_operator.core.observe.memo import Memo
from precision_operator.core.observe.observed import ReportView
from precision_operator.core.reasons import Said
from precision_operator.core.results.outliers import Peers
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading, read

MOST_PROFILES = 1_000
"""Whose readings are kept; then all are forgotten, so that those of deleted ones go."""
_READINGS: dict[str, Memo[Reading]] = {}
"""By profile UID."""


def readings(plan: ProfilePlan) -> tuple[Reading, ...]:
    """The profile's nodes whose figures hold, in the plan's order; `pool` is the node's pool now."""
    if len(_READINGS) >= MOST_PROFILES:
        _READINGS.clear()
    once = _READINGS.setdefault(plan.profile.uid, Memo())
    once.next_round()
    reports = ((node_state.facts, node_state.report) for node_state in plan.node_states if _holds(node_state))
    owner = (plan.profile.namespace, plan.profile.name)
    readings = (
        once.of(facts.uid, (facts, report.status), partial(read, facts.name, facts.pool, report.status, *owner))
        for facts, report in reports
        if report is not None and report.status is not None
    )
    return tuple(reading for reading in readings if reading.holds)


def _holds(node_state: NodeState) -> bool:
    """Whether the plan knows nothing against the node's figures: the report is marked only after this pass."""
    due = node_state.current.due if node_state.current is not None else None
    return node_state.state == "succeeded" or due in HOLDS_UNTIL_REPLACED


_OTHERS: Memo[Reading] = Memo()
"""Of reports that no plan's node stands for."""


def peers_by_namespace(
    plans: Iterable[ProfilePlan], reports: Iterable[ReportView], before: Mapping[str, Peers] | None = None
) -> dict[str, Peers]:
    """Who may be compared with whom in each namespace: all results that hold, also where no profile means the node.

    `before` spares what has not changed. A profile whose reports can't be read is left out: its own status tells.
    """
    results: list[tuple[str, Reading]] = []
    decided: set[tuple[str, str]] = set()
    _OTHERS.next_round()
    for plan in plans:
        if isinstance(plan.asked, Said):
            continue
        decided |= {(plan.profile.uid, node_state.facts.uid) for node_state in plan.node_states}
        with suppress(Exception):
            results += [(plan.profile.namespace, reading) for reading in readings(plan)]
    for report in reports:
        key, status = (report.profile_uid, report.node_uid), report.status
        if key in decided or status is None:
            continue
        words = (report.node_name, "", status, report.namespace, report.profile)
        with suppress(Exception):
            results.append((report.namespace, _OTHERS.of(key, (status,), partial(read, *words))))
    old = before or {}
    return {namespace: Peers(group, old.get(namespace)) for namespace, group in grouped(results).items()}
