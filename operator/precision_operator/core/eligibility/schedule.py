"""When a schedule begins runs: the newest time at or before now, the next one, and what is wrong with a schedule.

Times are judged from `now` alone: what was missed while the operator was down is made up once; a clock that jumps back
begins nothing twice, because a run remembers the time that it was begun for.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from precision_api.kinds.profile import Schedule
from precision_operator.core.observe.clock import duration, format_time

_SINCE, _SPAN = datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=9 * 366)
_MOST_TIMES = 2100
"""A week of every five minutes, and some more."""


def schedule_problem(schedule: Schedule, now: datetime) -> str | None:
    """What is wrong with a schedule, with the remedy; None when it is good."""
    if schedule.cron is None:
        return None
    if _zone(schedule.time_zone) is None:
        return (
            f"spec.schedule.timeZone {schedule.time_zone} is no time zone that is known: write an IANA name such as "
            "Europe/Berlin or UTC"
        )
    fields = len(schedule.cron.split())
    if fields != 5:
        seconds = " (with six, the first would be seconds, or the last years)" if fields == 6 else ""
        return (
            f"spec.schedule.cron {schedule.cron!r} can't be read: it has {fields} fields{seconds}. Write five, "
            "e.g. 0 2 * * 6"
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
    return _tick(schedule, uid, now, True)


def next_tick(schedule: Schedule, uid: str, now: datetime) -> datetime | None:
    """The first time after `now` at which the schedule begins a run; None without a cron."""
    return _tick(schedule, uid, now, False)


def _tick(schedule: Schedule, uid: str, now: datetime, reverse: bool) -> datetime | None:
    if schedule.cron is None:
        return None
    late = jitter(schedule, uid)
    moment = now - late
    if reverse:
        moment = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    fired = _fire(schedule.cron, schedule.time_zone, moment, reverse)
    return fired + late if fired is not None else None


def refresh_interval(schedule: Schedule) -> float | None:
    """The longest time (s) that the schedule lets pass between two results; None where it asks for no new ones.

    ValueError for a cron or a duration that can't be read.
    """
    limits = [duration(schedule.max_age).total_seconds()] if schedule.max_age is not None else []
    if schedule.cron is not None:
        gap = _longest_gap(schedule.cron)
        limits += [gap] if gap is not None else []
    return min(limits, default=None)


@lru_cache(maxsize=256)
def _longest_gap(cron: str) -> float | None:
    """Seconds between the two neighbouring times that are the furthest apart; None where there are not two.

    Of the first times within nine years, which hold two leap days; those of a cron that fires often show a week.
    """
    try:
        times = list(takewhile(lambda at: at < _SINCE + _SPAN, islice(CronSim(cron, _SINCE), _MOST_TIMES)))
    except CronSimError as error:
        raise ValueError(str(error)) from error
    return max(((later - earlier).total_seconds() for earlier, later in pairwise(times)), default=None)


def jitter(schedule: Schedule, uid: str) -> timedelta:
    """The profile's own delay: a fixed share of jitterSeconds, so that many profiles don't begin at once."""
    share = int(hashlib.sha256(uid.encode()).hexdigest()[:8], 16) / 0x1_0000_0000
    return timedelta(seconds=int(schedule.jitter_seconds * share))


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


@lru_cache(maxsize=1024)
def _fire(cron: str, zone: str, moment: datetime, reverse: bool) -> datetime | None:
    """The next time of `cron` after `moment`, or before it; in UTC. None when there is none within fifty years."""
    where = _zone(zone)
    assert where is not None
    local = moment.astimezone(where)
    minute, hour, *_ = cron.split()
    # A repeated hour has these times twice: CronSim, as Debian's cron, repeats those of each minute or hour.
    if local.fold and not (minute.startswith("*") or hour.startswith("*")):
        local = _end_of_repetition(local) - timedelta(seconds=0 if reverse else 1)
    try:
        tick = next(CronSim(cron, local, reverse=reverse))
    except StopIteration:
        return None
    return tick.astimezone(UTC)


def _end_of_repetition(local: datetime) -> datetime:
    """The local time at which a repeated hour is over.

    Other times fire when the hour comes first, and CronSim does not tell the first from the second: seen from within
    the second, all of them lie behind.
    """
    later = local.replace(second=0, microsecond=0)
    while later.fold:
        later = (later.astimezone(UTC) + timedelta(minutes=1)).astimezone(local.tzinfo)
    return later


def tick_text(moment: datetime | None) -> str:
    """A tick as it stands in a run's basis: sorts by time; empty for none."""
    return format_time(moment) if moment is not None else ""
