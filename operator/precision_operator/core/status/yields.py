"""Agents that were ended for others, as a profile's status tells them: for people, and for the next leader."""

from __future__ import annotations

from collections.abc import Iterable

from precision_api.kinds.profile import NodeYield, ProfileStatus
from precision_operator.core.observe.clock import format_time, parse_time
from precision_operator.core.observe.observed import ProfileView, Yield

SHOWN = 32


def yield_rows(yields: Iterable[Yield]) -> tuple[NodeYield, ...]:
    """The rows of a profile's status, newest first, bounded."""
    newest = sorted(yields, key=lambda record: (record.at, record.node), reverse=True)[:SHOWN]
    return tuple(
        NodeYield(
            node=record.node,
            node_uid=record.node_uid,
            job_uid=record.job_uid,
            pod=record.pod,
            pod_uid=record.pod_uid,
            owner_uid=record.owner,
            priority=record.priority,
            at=format_time(record.at),
            outcome=record.outcome,
            ended=format_time(record.ended) if record.ended is not None else None,
        )
        for record in newest
    )


def yields_told(profiles: Iterable[ProfileView]) -> tuple[Yield, ...]:
    """What these profiles' statuses tell; nothing of one that can't be read, or that has a time that is none."""
    return tuple(row for profile in profiles for row in _yields(profile))


def _yields(profile: ProfileView) -> tuple[Yield, ...]:
    try:
        return tuple(_yield(profile, row) for row in ProfileStatus.model_validate(dict(profile.status)).yields)
    except ValueError:  # pydantic's ValidationError too
        return ()


def _yield(profile: ProfileView, row: NodeYield) -> Yield:
    return Yield(
        profile_uid=profile.uid,
        node=row.node,
        node_uid=row.node_uid,
        job_uid=row.job_uid,
        pod=row.pod,
        pod_uid=row.pod_uid,
        owner=row.owner_uid,
        priority=row.priority,
        at=parse_time(row.at),
        outcome=row.outcome,
        ended=parse_time(row.ended) if row.ended is not None else None,
    )
