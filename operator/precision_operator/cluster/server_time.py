"""The API server's time, by the Date of its answers: what it stamps objects with, whatever this machine's clock says.

Deadlines of agents are counted from such stamps. By a clock that is ten minutes ahead, each agent would be late as soon
as it is created, and its node would be to blame.
"""

import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

_log = logging.getLogger(__name__)

SLACK_SECONDS = 10.0
"""Clocks that are no further apart count as equal."""
ANSWERS = 16
"""Of so many answers the one that says least counts: behind one address there may be a server whose clock is wrong."""


class ServerTime:
    """What time it is for the API server, as far as its answers have told."""

    def __init__(self, local: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """`local` is this machine's clock."""
        self.local = local
        self._ahead: deque[float] = deque(maxlen=ANSWERS)
        self._told = False

    @property
    def ahead_seconds(self) -> float:
        """How far this machine's clock is ahead, at least; negative where it is behind, 0 where they may be equal."""
        return min(self._ahead, key=abs, default=0.0)

    def now(self) -> datetime:
        """The time, in UTC."""
        return self.local() - timedelta(seconds=self.ahead_seconds)

    def heard(self, began: datetime, date: str | None) -> None:
        """Take the Date header (whole seconds) of an answer that has come to a request of `began`, by this clock."""
        try:
            date_told = parsedate_to_datetime(date or "")
            least, most = (began - date_told).total_seconds() - 1, (self.local() - date_told).total_seconds()
        except (TypeError, ValueError):
            return
        self._ahead.append(least if least > SLACK_SECONDS else most if most < -SLACK_SECONDS else 0.0)
        ahead = self.ahead_seconds
        if bool(ahead) != self._told:
            where = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}" if ahead else "again the same as"
            _log.warning("this machine's clock is %s the API server's, which counts", where)
        self._told = bool(ahead)
