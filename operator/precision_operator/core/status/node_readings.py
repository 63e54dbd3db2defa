"""The readings that a profile's status is made of, each made once for the same report."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from precision_api.exchange.peers import PeerKey
from precision_api.facts.names import grouped
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan
from precision_operator.core.observe.memo import Memo
from precision_operator.core.observe.observed import Observed
from precision_operator.core.reasons import Said
from precision_operator.core.results.outliers import Peers
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading, read

_READINGS: Memo[Reading] = Memo()
"""By UID of profile and node; a round is a look at all of them."""


def readings(plan: ProfilePlan) -> tuple[Reading, ...]:
    """The profile's nodes whose figures hold, in the plan's order; `pool` is the node's pool now."""
    uid, owner = plan.profile.uid, (plan.profile.namespace, plan.profile.name)
    reports = ((state.facts, state.report.status) for state in plan.node_states if state.report and _holds(state))
    readings = (
        _READINGS.of((uid, facts.uid), (facts, status), partial(read, facts.name, facts.pool, status, *owner))
        for facts, status in reports
        if status is not None
    )
    return tuple(reading for reading in readings if reading.holds)


def _holds(node_state: NodeState) -> bool:
    """Whether the plan knows nothing against the node's figures: the report is marked only after this pass."""
    due = node_state.current.due if node_state.current is not None else None
    return node_state.state == "succeeded" or due in HOLDS_UNTIL_REPLACED


def peers_of_all(plans: Iterable[ProfilePlan], seen: Observed, before: Peers | None = None) -> Peers:
    """Who may be compared with whom: all results that hold, also where no profile means the node.

    `before` spares what has not changed. A profile whose reports can't be read is left out: its own status tells.
    """
    results: list[Reading] = []
    decided: set[tuple[str, str]] = set()
    _READINGS.next_round()
    for plan in plans:
        if isinstance(plan.asked, Said):
            continue
        decided |= {(plan.profile.uid, node_state.facts.uid) for node_state in plan.node_states}
        with suppress(Exception):
            results += readings(plan)
    for report in seen.reports:
        key, status = (report.profile_uid, report.node_uid), report.status
        if key in decided or status is None:
            continue
        words = (report.node_name, "", status, report.namespace, report.profile)
        with suppress(Exception):
            results.append(_READINGS.of(key, (status,), partial(read, *words)))
    rows = [
        (p, row) for p in seen.profiles if p.uid in seen.profile_statuses for row in seen.profile_statuses[p.uid].peers
    ]
    in_status = grouped((PeerKey(p.namespace, *row.key), (p.name, row)) for p, row in rows)
    return Peers(results, before, in_status if seen.profile_statuses else None)
