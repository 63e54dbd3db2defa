"""What a reason is: one row of the tables beside this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "unmatched",
    "eligible",
    "skipped",
    "waiting",
    "queued",
    "running",
    "succeeded",
    "partial",
    "slow",
    "failed",
    "due",
    "profile",
]
"""skipped: can't be measured as it is; waiting: will be, by itself, when something passes; queued: its turn comes;
partial: measured, but the full result is lost and the summary stands alone; slow: measured, and well below its peers;
profile: said of the profile as a whole."""

POLL_SECONDS = 5.0
"""How soon to look again when something waits for what no watch shows (a busy node, a missing ConfigMap)."""


@dataclass(frozen=True)
class Reason:
    """One row: `template` and `next_step` are format strings over the same facts."""

    code: str
    kind: Kind
    template: str
    next_step: str
    poll_seconds: float | None = None
    """How soon to look again at what has this reason, where no watch shows its end."""
