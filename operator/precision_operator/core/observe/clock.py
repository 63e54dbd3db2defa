"""Times as Kubernetes writes them, and back; durations as users write them."""

from datetime import UTC, datetime, timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def format_time(moment: datetime) -> str:
    """`moment` as RFC 3339 in UTC, in whole seconds, as metav1.Time is."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def short_time(text: str) -> str:
    """What `format_time` gives, for columns: `11-28 03:00Z`."""
    return f"{text[5:16].replace('T', ' ')}Z"


def parse_time(text: str) -> datetime:
    """The moment that RFC 3339 `text` names; ValueError when it names none. Without an offset, UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_or_none(text: object) -> datetime | None:
    """The moment of a field that may be absent or hold anything."""
    try:
        return parse_time(str(text)) if text else None
    except ValueError:
        return None


def duration(text: str) -> timedelta:
    """The duration of `90s`, `10m`, `24h`, `7d`; a millennium at most, or there might be no moment so long ago."""
    return min(timedelta(**{_UNITS[text[-1]]: int(text[:-1])}), timedelta(days=366_000))
