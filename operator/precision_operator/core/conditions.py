"""Conditions as Kubernetes means them: lastTransitionTime moves when the status does, and not before."""

from collections.abc import Iterable
from datetime import datetime

from precision_api.kinds.profile import Condition
from precision_operator.core.observe.clock import format_time

MESSAGE_LIMIT = 4096


def condition(
    before: Iterable[Condition],
    kind: str,
    holds: bool,
    reason: str,
    message: str,
    now: datetime,
    generation: int | None = None,
) -> Condition:
    """The condition `kind`; it keeps its time of transition when `before` holds it with the same status."""
    status = "True" if holds else "False"
    old = next((c for c in before if c.type == kind), None)
    same = old is not None and old.status == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old and same else format_time(now),
    )
