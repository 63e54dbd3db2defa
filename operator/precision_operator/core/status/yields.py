"""Agents that were ended for others, as a profile's status tells them: for people, and for the next leader."""

from collections.abc import Iterable

from precision_api.kinds.profile import NodeYield, ProfileStatus
from precision_operator.core.observe.clock import format_time, parse_time
from precision_operator.core.observe.observed import ProfileView, Yield

SHOWN = 32
_AS_IT_IS = ("node", "node_uid", "job_uid", "pod", "pod_uid", "priority", "outcome")
"""Fields that mean the same in a record and in its row."""


def yield_rows(yields: Iterable[Yield]) -> tuple[NodeYield, ...]:
    """The rows of a profile's status, newest first, bounded."""
    newest = sorted(yields, key=lambda record: (record.at, record.node), reverse=True)[:SHOWN]
    return tuple(
        NodeYield(
            owner_uid=record.owner,
            at=format_time(record.at),
            ended=format_time(record.ended) if record.ended is not None else None,
            **{name: getattr(record, name) for name in _AS_IT_IS},
        )
        for record in newest
    )


def yields_told(profiles: Iterable[ProfileView]) -> tuple[Yield, ...]:
    """What these profiles' statuses tell; nothing of one that can't be read, or that has a time that is none."""
    return tuple(row for profile in profiles for row in _yields(profile))


def _yields(profile: ProfileView) -> tuple[Yield, ...]:
    try:
        return tuple(
            Yield(
                profile_uid=profile.uid,
                owner=row.owner_uid,
                at=parse_time(row.at),
                ended=parse_time(row.ended) if row.ended is not None else None,
                **{name: getattr(row, name) for name in _AS_IT_IS},
            )
            for row in ProfileStatus.model_validate(dict(profile.status)).yields
        )
    except ValueError:  # pydantic's ValidationError too
        return ()
