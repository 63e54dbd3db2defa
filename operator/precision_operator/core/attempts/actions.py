"""What a plan can hold: each action is a frozen value with the reason that it is taken for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from precision_api.kinds.profile import Retention, Retry
from precision_operator.core.attempts.verdicts import Terms
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import JobView, PodView, ProfileView, ReportView, Stage, Yield
from precision_operator.core.reasons import Reasoned, Said


@dataclass(frozen=True)
class Keeping:
    """What the profile says about failures and the past: goes with whatever writes a report."""

    retry: Retry
    retention: Retention


DEFAULT_KEEPING = Keeping(Retry(), Retention())
AGENT_FINISHED = Said("AgentFinished", words="the agent ended: its result is read")
JUDGED = Said("Judged", words="its verdict is decided")
ADOPTED = Said("Adopted", words="a profile of its name was deleted without it")


@dataclass(frozen=True)
class Start(Reasoned):
    """Create the node's report if it has none, the claim's template if GPUs come by claim, then the attempt's Job."""

    profile: ProfileView
    facts: NodeFacts
    report: Mapping[str, Any] | None
    job: Mapping[str, Any]
    said: Said
    template: Mapping[str, Any] | None = None
    """The ResourceClaimTemplate that the Job names; None where the device plugin hands out the GPUs."""
    mark: str = ""
    """What the user has asked for last: kept with the answer where the cluster refuses."""


@dataclass(frozen=True)
class Collect(Reasoned):
    """Read what a finished agent left behind, write it to the report, then delete the Job."""

    job: JobView
    pod: PodView | None
    report: ReportView | None
    pool: str
    keeping: Keeping = DEFAULT_KEEPING
    nvlink_domain: str | None = None
    by_claim: bool = False
    """Whether the agent got its GPUs by resource claim."""
    drained: bool = False
    """Whether the node takes no pods just now."""
    said: Said = AGENT_FINISHED


@dataclass(frozen=True)
class Close(Reasoned):
    """End an attempt that can't succeed any more: write why to the report, then delete the Job."""

    job: JobView
    report: ReportView | None
    outcome: Literal["failed", "disrupted"]
    said: Said
    keeping: Keeping = DEFAULT_KEEPING
    pod: PodView | None = None
    """The agent whose log is read first; None where it has none, or none that says why it is ended."""
    since: datetime | None = None
    """When the stage began that took too long."""


@dataclass(frozen=True)
class GiveWay(Close):
    """End an agent for a pod of higher priority that waits for its GPUs, where no scheduler would preempt it."""

    record: Yield | None = None
    """What is remembered of it."""


@dataclass(frozen=True)
class Withdraw(Reasoned):
    """Delete the Job of an attempt whose pod or resource claim the cluster refuses: it gives its place back unbegun.

    Nothing is written to the report: it is no failure of the node, and its next Job is of the same attempt.
    """

    job: JobView
    mark: str
    said: Said
    stage: Stage = "pod"
    """What was refused."""


@dataclass(frozen=True)
class Adopt(Reasoned):
    """Make the profile the owner of a report that has none: one of its name was deleted, and its reports were kept."""

    profile: ProfileView
    report: ReportView
    said: Said = ADOPTED


Deletable = Literal["Job", "NodePrecisionReport"]


@dataclass(frozen=True)
class Drop(Reasoned):
    """Delete a Job or a report that nobody needs any more."""

    kind: Deletable
    namespace: str
    name: str
    uid: str
    said: Said


@dataclass(frozen=True)
class MarkStale(Reasoned):
    """Write to a report that its figures are out of date (its node is gone, its driver changed ...); they stay."""

    report: ReportView
    said: Said


@dataclass(frozen=True)
class MarkFresh(Reasoned):
    """Take that mark from a report again: what made its figures out of date was undone before a new run began."""

    report: ReportView
    said: Said


@dataclass(frozen=True)
class Judge(Reasoned):
    """Write the verdict on a node to its report; no `terms`: nobody asks, or can say what is asked."""

    report: ReportView
    terms: Terms | None
    facts: NodeFacts
    said: Said = JUDGED


Action = Start | Collect | Close | Withdraw | Adopt | Drop | MarkStale | MarkFresh | Judge
