"""When a schedule begins runs: the newest time at or before now, the next one, and what is wrong with a schedule.

Times are judged from `now` alone: what was missed while the operator was down is made up once; a clock that jumps back
begins nothing twice, because a run remembers the time that it was begun for.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from precision_api.profile import Schedule
from precision_operator.core.observe.clock import format_time


def schedule_problem(schedule: Schedule, now: datetime) -> str | None:
    """What is wrong with a schedule, with the remedy; None when it is good."""
    if schedule.cron is None:
        return None
    if _zone(schedule.time_zone) is None:
        return (
            f"spec.schedule.timeZone {schedule.time_zone} is no time zone that is known: write an IANA name such as "
            "Europe/Berlin or UTC"
        )
    try:
        first = _fire(schedule.cron, schedule.time_zone, now, False)
    except CronSimError as error:
        return f"spec.schedule.cron {schedule.cron!r} can't be read: {error}. Write five fields, e.g. 0 2 * * 6"
    if first is None:
        return f"spec.schedule.cron {schedule.cron!r} never fires: correct day and month"
    return None


def last_tick(schedule: Schedule, uid: str, now: datetime) -> datetime | None:
    """The newest time at or before `now` at which the schedule begins a run; None without a cron."""
    if schedule.cron is None:
        return None
    late = jitter(schedule, uid)
    fired = _fire(schedule.cron, schedule.time_zone, _minute(now - late) + timedelta(minutes=1), True)
    return fired + late if fired is not None else None


def next_tick(schedule: Schedule, uid: str, now: datetime) -> datetime | None:
    """The first time after `now` at which the schedule begins a run; None without a cron."""
    if schedule.cron is None:
        return None
    late = jitter(schedule, uid)
    fired = _fire(schedule.cron, schedule.time_zone, now - late, False)
    return fired + late if fired is not None else None


def jitter(schedule: Schedule, uid: str) -> timedelta:
    """The profile's own delay: a fixed share of jitterSeconds, so that many profiles don't begin at once."""
    share = int(hashlib.sha256(uid.encode()).hexdigest()[:8], 16) / 0x1_0000_0000
    return timedelta(seconds=int(schedule.jitter_seconds * share))


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _fire(cron: str, zone: str, moment: datetime, reverse: bool) -> datetime | None:
    """The next time of `cron` after `moment`, or before it; in UTC. None when there is none within fifty years."""
    where = _zone(zone)
    assert where is not None
    try:
        found = next(CronSim(cron, moment.astimezone(where), reverse=reverse))
    except StopIteration:
        return None
    return found.astimezone(UTC)


def tick_text(moment: datetime | None) -> str:
    """A tick as it stands in a run's basis: sorts by time; empty for none."""
    return format_time(moment) if moment is not None else ""
