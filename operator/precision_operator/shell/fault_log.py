"""Faults, as an admin meets them: each counted, and logged with its trace when it is new."""

import logging
from collections.abc import Callable, Iterable

from precision_operator.core.attempts.faults import Fault

_log = logging.getLogger(__name__)


class FaultLog:
    """Counts every fault; logs one with its trace when it comes, and again after it had gone."""

    def __init__(self, count: Callable[[str], None] = lambda where: None) -> None:
        """`count` is called with the place of each fault."""
        self._count = count
        self._seen: dict[str, set[tuple[str, str]]] = {}
        """Faults of the last look, by who looks: name and exception."""

    def looked(self, who: str, faults: Iterable[Fault]) -> bool:
        """Take in all faults of one look of `who` at everything; whether there are any."""
        now: set[tuple[str, str]] = set()
        for fault in faults:
            mark = (f"{fault.where} {fault.name}", fault.why)
            self._count(fault.where)
            if mark not in self._seen.get(who, ()) and mark not in now:
                _log.error("PlanFailed: %s: it is left out and tried again", mark[0], exc_info=fault.error)
            now.add(mark)
        self._seen[who] = now
        return bool(now)
