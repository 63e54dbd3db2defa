"""What a reason is: one row of reasons.json."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pydantic import ConfigDict

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
    "alone",
    "failed",
    "due",
    "profile",
]
"""skipped: can't be measured as it is; waiting: will be, by itself, when something passes; queued: its turn comes;
partial: measured, but the full result is lost and the summary stands alone; slow: measured, and well below its peers;
alone: measured, and too few others are like it;
profile: said of the profile as a whole."""

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Rule:
    """How long to wait after the cluster's refusal, and whom it concerns."""

    __pydantic_config__ = _STRICT

    first: timedelta
    longest: timedelta
    """Bounds how late a cause that somebody has mended is noticed."""
    whole: bool = False
    """It concerns every node of the profile: one answer is enough."""
    degrades: bool = True
    """Somebody has to mend something; else it passes by itself."""
    notable: bool = True
    """Worth an event."""


@dataclass(frozen=True)
class Reason:
    """One row: `template` and `next_step` are format strings over the same facts."""

    __pydantic_config__ = _STRICT

    code: str
    kind: Kind
    template: str
    next_step: str
    poll_seconds: float | None = None
    """How soon to look again where no watch shows its end (a busy node, a missing ConfigMap)."""
    refusal: Rule | None = None
    """What follows from it where it is an answer of the cluster that creates nothing."""
    undecided: bool = False
    """Nothing is decided for the profile then: its status stands as it was."""
    # Of a node that waits or runs.
    tentative: bool = False
    """A candidate with it takes a place in this plan."""
    place_taken: bool = False
    """Lets go when other agents end. The operator looks at such a node only then: it may be busy as well."""
    stuck: bool = False
    """The agent has a place and does not measure."""
    # Of an attempt that ended.
    backoff_factor: int = 1
    """Rest after the failure, relative to the profile's backoffSeconds."""
    gave_way: bool = False
    """Somebody took the agent's pod away who wanted the GPUs or the node: it says nothing of the node."""
    lost_with_node: bool = False
    """The attempt was lost with its node, or by its doing."""
    never_ran: bool = False
    """The agent may never have run, so that it tells nothing of the image."""

    @property
    def notable(self) -> bool:
        """Whether nodes with it are worth an event: failed ones, refused ones, and those that we fail at."""
        return self.refusal.notable if self.refusal is not None else self.kind == "failed" or self.code == "PlanFailed"
