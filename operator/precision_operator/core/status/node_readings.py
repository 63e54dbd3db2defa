"""The readings that a profile's status is made of, each made once for the same report."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

from precision_api.exchange.peers import PeerKey
from precision_api.facts.names import grouped
from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts.node_state import NodeState, NodeStates, ProfilePlan
from precision_operator.core.observe.book import EMPTY, Book, differing
from precision_operator.core.observe.observed import Filed, Observed, Owner
from precision_operator.core.reasons import Said
from precision_operator.core.results.outliers import Part, Peers
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading, read

NO_STATES = NodeStates()
Row = tuple[str, object, Reading] | None
"""The node's pool, the status of its report, and what they were read as; None where its figures do not hold."""


def readings(plan: ProfilePlan, book: Book | None = None) -> Part:
    """The profile's nodes whose figures hold, in the plan's order; `pool` is the node's pool now.

    With a book, those of nodes and reports that are as they were are the same objects; so are all where none differs.
    """
    book, states, key = book or Book(), plan.node_states, ("readings", plan.profile.uid)
    (old,), (before, part) = book.last(key) or ((NodeStates(),), (dict[str, Row](), Part()))
    owner, there = (plan.profile.namespace, plan.profile.name), states.by_uid
    changed = {uid: there.get(uid) for uid in differing(old.by_uid, there)}
    made = {uid: _row(state, before.get(uid), owner) for uid, state in changed.items() if state is not None}
    if len(made) < len(changed) or any(uid not in before or before[uid] is not row for uid, row in made.items()):
        before, part = _together({uid: made[uid] if uid in made else before[uid] for uid in there}, before, part)
    return book.keep(key, (states,), (before, part))[1]


def _together(rows: Mapping[str, Row], before: Mapping[str, Row], part: Part) -> tuple[Mapping[str, Row], Part]:
    if not differing(before, rows):
        return before, part
    return rows, Part(row[2] for row in rows.values() if row is not None).after(part)


def _row(node_state: NodeState, before: Row, owner: tuple[str, str]) -> Row:
    status, facts = node_state.report.status if node_state.report is not None else None, node_state.facts
    due = node_state.current.due if node_state.current is not None else None
    if status is None or not (node_state.state == "succeeded" or due in HOLDS_UNTIL_REPLACED):
        return None  # the plan knows something against its figures; the report is marked only after this pass
    is_same = before is not None and before[0] == facts.pool and before[1] is status
    return before if is_same else _read(facts.name, facts.pool, status, *owner)


def peers_of_all(plans: Iterable[ProfilePlan], seen: Observed, before: Peers | None = None) -> Peers:
    """Who may be compared with whom: all results that hold, also where no profile means the node.

    `before` spares what has not changed. A profile whose reports can't be read is left out: its own status tells.
    """
    book, parts = Book(before.kept if before is not None else EMPTY), list[Part]()
    matched: dict[tuple[str, str], NodeStates] = {}
    for plan in plans:
        if isinstance(plan.asked, Said):
            continue
        matched[plan.profile.namespace, plan.profile.uid] = plan.node_states
        with suppress(Exception):
            parts.append(readings(plan, book))
    for owner, reports in seen.filed.items():
        states = matched.get(owner[:2], NO_STATES)
        parts.append(book.of(("others", owner), (reports, states), partial(_others, owner, reports, states, book))[1])
    statuses = seen.profile_statuses
    rows = ((p, row) for p in seen.profiles if p.uid in statuses for row in statuses[p.uid].peers)
    in_status = grouped((PeerKey(p.namespace, *row.key), (p.name, row)) for p, row in rows)
    return Peers(parts, before, in_status if statuses else None, book.kept)


def distinct_nodes(plans: Iterable[ProfilePlan]) -> dict[str, int]:
    """By UID: how many nodes each profile can measure and none before it in its namespace, by name, can."""
    there: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    counts: dict[str, int] = {}
    for plan in sorted(plans, key=lambda plan: plan.profile.name):
        nodes, before = plan.node_states.measurable, there[plan.profile.namespace]
        counts[plan.profile.uid] = len(nodes - before) if before else len(nodes)
        there[plan.profile.namespace] = before | nodes if before else nodes
    return counts


def _others(owner: Owner, reports: Filed, states: NodeStates, book: Book) -> tuple[Mapping[str, Row], Part]:
    """What the reports on nodes tell that their profile does not match."""
    entry = book.last(("others", owner))
    before, part = entry[1] if entry is not None else (dict[str, Row](), Part())
    rows: dict[str, Row] = {}
    for uid, report in reports.items() if not reports.keys() <= states.by_uid.keys() else ():
        row, status = before.get(uid), report.status
        if uid not in states.by_uid and status is not None:
            rows[uid] = row if row is not None and row[1] is status else None
            with suppress(Exception):
                rows[uid] = rows[uid] or _read(report.node_name, "", status, report.namespace, report.profile)
    return _together(rows, before, part)


def _read(node: str, pool: str, status: ReportStatus, namespace: str, profile: str) -> Row:
    reading = read(node, pool, status, namespace, profile)
    return (pool, status, reading) if reading.holds else None
