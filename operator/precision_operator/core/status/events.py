"""What is worth an event: a change of a profile's conditions, or a new reason to fail. Never one event a node."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from precision_api.facts import names
from precision_api.facts.plain_text import shortened
from precision_api.kinds.profile import ProfileStatus
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import ProfileView
from precision_operator.core.observe.tenants import Stranger, words
from precision_operator.core.reasons import REASONS

_WARN = {(names.ACCEPTED, "False"), (names.DEGRADED, "True"), (names.STOPPED, "True")}
_TELL = {*_WARN, (names.STOPPED, "False"), (names.ACCEPTED, "True"), (names.COMPLETE, "True")}


@dataclass(frozen=True)
class Note:
    """One event to be: type, reason, text."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def notes(before: ProfileStatus, after: ProfileStatus) -> tuple[Note, ...]:
    """The events of one change of status: conditions that turned, and failures for a reason that was not there."""
    old = {c.type: (c.status, c.reason) for c in before.conditions}
    turned = [
        Note("Warning" if (c.type, c.status) in _WARN else "Normal", c.reason, c.message)
        for c in after.conditions
        if (c.type, c.status) in _TELL and old.get(c.type) != (c.status, c.reason) and c.reason not in RULES
    ]
    reasons_before = {r.reason for r in before.reasons}
    failed = [
        Note("Warning", r.reason, f"{r.count} node(s), e.g. {r.example}: {r.message}")
        for r in after.reasons
        if r.reason not in reasons_before and REASONS[r.reason].notable
    ]
    return (*turned, *failed, *_yields(before, after))


def _yields(before: ProfileStatus, after: ProfileStatus) -> Iterator[Note]:
    """Agents that were ended for a pod, and those whose end did not help it."""
    old = {row.job_uid: row.outcome for row in before.yields}
    for row in reversed(after.yields):
        what = f"the agent on node {row.node} was ended for {words(row.pod)} (priority {row.priority})"
        if row.job_uid not in old:
            yield Note("Normal", "Yielded", f"{what}, which waited for its GPUs")
        if row.outcome == "NotHelped" and old.get(row.job_uid) != "NotHelped":
            yield Note("Warning", "YieldInVain", f"{what}, which still waits: for an hour no agent is ended for it")


STRANGER = Note(
    "Warning",
    "NotAnAgent",
    f"it bears the label {names.LABEL_APP}={names.AGENT_APP}, but the operator did not make it: it counts for nothing",
)
"""Of what bears the agents' label."""


def event(of: ProfileView | Stranger, note: Note, now: datetime) -> dict[str, Any]:
    """A core/v1 Event about a profile, or about what bears the agents' label."""
    api, kind = (of.api, of.kind) if isinstance(of, Stranger) else (names.API_VERSION, names.PROFILE_KIND)
    about = {"apiVersion": api, "kind": kind, "name": of.name, "namespace": of.namespace, "uid": of.uid}
    return event_about(about, note, now)


def event_about(about: Mapping[str, str], note: Note, now: datetime) -> dict[str, Any]:
    """A core/v1 Event; its name depends on what it says, so that a repetition is counted, not added."""
    mark = hashlib.sha256(f"{about['uid']}/{note.reason}/{note.message}".encode()).hexdigest()[:12]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name'][:200].rstrip('-.')}.{mark}", "namespace": about["namespace"]},
        "involvedObject": about,
        "type": note.type,
        "reason": note.reason,
        "message": shortened(note.message, 1000),
        "source": {"component": names.MANAGED_BY},
        "reportingComponent": names.MANAGED_BY,
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }
