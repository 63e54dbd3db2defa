"""What is to be written of a plan's profiles: the statuses that are not as they should be."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from precision_api.kinds.profile import ProfileStatus
from precision_operator.core.attempts.faults import Fault, fault_text
from precision_operator.core.attempts.node_state import ProfilePlan, next_run
from precision_operator.core.observe.book import Book, same
from precision_operator.core.observe.observed import Observed
from precision_operator.core.plan import Plan
from precision_operator.core.results.ingest import status_json
from precision_operator.core.results.outliers import Peers
from precision_operator.core.status.ended import with_stop
from precision_operator.core.status.node_readings import distinct_nodes, peers_of_all, readings
from precision_operator.core.status.profile_status import profile_status, status_before, unplanned_status


class Change(NamedTuple):
    """One profile's status as it was, as it is to be, and that as JSON."""

    before: ProfileStatus
    status: ProfileStatus
    document: dict[str, Any]


class Settled(NamedTuple):
    """A status that is as it should be: all that it hangs on, and from when to when no time changes it."""

    objects: tuple[object, ...]
    values: tuple[object, ...]
    since: datetime
    until: datetime


class Told(NamedTuple):
    """What a plan's profiles come to; the next ones take over what has not changed."""

    rows: list[tuple[ProfilePlan, Change | None]]
    """The profiles, those of few nodes first; None where the status is as it should be."""
    peers: Peers
    faults: list[Fault]
    settled: dict[str, Settled]
    """By UID."""
    distinct: dict[str, int]
    """As `distinct_nodes` has them, from `shared`."""
    shared: tuple[tuple[object, ...], tuple[object, ...]]


def tell(decided: Plan, seen: Observed, last: Told | None = None) -> Told:
    """The changes that follow from a plan of what is `seen`. What one profile raises costs the others nothing."""
    peers = peers_of_all(decided.profiles, replace(seen, book=Book(decided.book)), last.peers if last else None)
    shared = (
        tuple((p.profile.namespace, p.profile.name, p.profile.uid) for p in decided.profiles),
        tuple(p.node_states.measurable for p in decided.profiles),
    )
    is_same = last is not None and last.shared[0] == shared[0] and same(last.shared[1], shared[1])
    new = Told([], peers, [], {}, last.distinct if last and is_same else distinct_nodes(decided.profiles), shared)
    for item in sorted(decided.profiles, key=lambda item: len(item.node_states)):
        try:
            _tell(item, seen, last.settled.get(item.profile.uid) if last is not None else None, new)
        except Exception as error:
            new.faults.append(Fault("status", item.profile.key, error))
            with suppress(Exception):
                new.rows.append((item, _change(item, unplanned_status(item, seen.now, fault_text(error)), seen)))
    return new


def _tell(item: ProfilePlan, seen: Observed, settled: Settled | None, new: Told) -> None:
    # What a status hangs on: by identity, and by value.
    spec, part = item.profile.spec, readings(item, Book(new.peers.kept))
    objects = item.profile, item.node_states.words, item.nodes if item.refusals else None, part
    facing = new.peers.facing(part, spec.thresholds.slow_node_percent) if spec is not None else ()
    values = item.asked, item.refusals, item.yields, seen.stop, len(seen.nodes), new.distinct[item.profile.uid], facing
    is_same = settled is not None and same(settled.objects, objects) and settled.values == values
    if settled is None or not is_same or not settled.since <= seen.now < settled.until:
        status = profile_status(item, seen.now, len(seen.nodes), new.peers, new.distinct[item.profile.uid])
        change = _change(item, status, seen)
        new.rows.append((item, change))
        if change is not None or item.node_states.kinds["queued"] + item.node_states.kinds["running"]:
            return  # while agents run or are waited for, time alone changes it
        settled = Settled(objects, values, seen.now, next_run(item, seen.now) or datetime.max.replace(tzinfo=UTC))
    else:
        new.rows.append((item, None))
    new.settled[item.profile.uid] = settled


def _change(item: ProfilePlan, status: ProfileStatus, seen: Observed) -> Change | None:
    before = status_before(item)
    status = with_stop(status, before, seen.stop, seen.now)
    document = status_json(status)
    return None if document == dict(item.profile.status) else Change(before, status, document)
