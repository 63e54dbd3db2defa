"""The families of a profile: how far its campaign has come."""

from collections.abc import Callable, Iterator
from functools import partial

from precision_api.facts.names import COMPLETE
from precision_operator.core.reasons import REASONS
from precision_operator.exporter.families.family import PROFILE, Family, stable
from precision_operator.exporter.reading import ProfileProgress, seconds
from precision_operator.exporter.text import SampleRow

PHASES = ("skipped", "waiting", "queued", "running", "succeeded", "failed")
"""The states that exclude each other: their sum is the number of matched nodes."""


def _campaign(campaign: ProfileProgress) -> tuple[str, ...]:
    return campaign.namespace, campaign.profile


def _phases(campaign: ProfileProgress) -> Iterator[SampleRow]:
    nodes = campaign.status.nodes
    if nodes:
        yield from (((*_campaign(campaign), phase), float(getattr(nodes, phase))) for phase in PHASES)


def _phase(campaign: ProfileProgress) -> Iterator[SampleRow]:
    if campaign.status.phase:
        yield (*_campaign(campaign), campaign.status.phase), 1.0


def _figure(figure: Callable[[ProfileProgress], float | None]) -> Callable[[ProfileProgress], Iterator[SampleRow]]:

    def rows(campaign: ProfileProgress) -> Iterator[SampleRow]:
        if (value := figure(campaign)) is not None:
            yield _campaign(campaign), float(value)

    return rows


def _marked(kind: str, campaign: ProfileProgress) -> float | None:
    return getattr(campaign.status.nodes, kind, None)


def _progress(campaign: ProfileProgress) -> float | None:
    nodes = campaign.status.nodes
    return (nodes.succeeded + nodes.failed) / nodes.eligible if nodes and nodes.eligible else None


def _completed(campaign: ProfileProgress) -> Iterator[SampleRow]:
    done = (c for c in campaign.status.conditions if c.type == COMPLETE and c.status == "True")
    for condition in done:
        if condition.reason != "NothingEligible" and condition.last_transition_time:
            yield _campaign(campaign), seconds(condition.last_transition_time)


def _reasons(*kinds: str) -> Callable[[ProfileProgress], Iterator[SampleRow]]:

    def rows(campaign: ProfileProgress) -> Iterator[SampleRow]:
        for reason in campaign.status.reasons:
            row = REASONS.get(reason.reason)
            if row is not None and row.kind in kinds:
                node = reason.example if reason.count == 1 else ""
                yield (*_campaign(campaign), reason.reason, node), float(reason.count)

    return rows


PROFILE_FAMILIES: tuple[Family[ProfileProgress], ...] = (
    stable(
        "precision_profile_nodes",
        "Nodes that the profile's target matches, by state; the states add up to all of them.",
        (*PROFILE, "phase"),
        _phases,
    ),
    stable(
        "precision_profile_phase",
        "1 for the profile's phase: Pending, Running, Suspended, Complete, Degraded, Invalid.",
        (*PROFILE, "phase"),
        _phase,
    ),
    *(
        stable(f"precision_profile_{kind}_nodes", words, PROFILE, _figure(partial(_marked, kind)))
        for kind, words in (
            ("slow", "Measured nodes far below their pool's median, as the operator judged."),
            ("simulated", "Measured nodes whose result holds replayed or simulated figures."),
        )
    ),
    stable(
        "precision_profile_progress_ratio",
        "Finished (succeeded or failed) of eligible nodes; absent while no node is eligible.",
        PROFILE,
        _figure(_progress),
    ),
    stable(
        "precision_profile_eta_timestamp_seconds",
        "When the run will end, by measured durations, seconds since 1970; absent while nothing runs.",
        PROFILE,
        _figure(lambda campaign: seconds(campaign.status.eta_time) if campaign.status.eta_time else None),
    ),
    stable(
        "precision_profile_last_completion_timestamp_seconds",
        "When the last node of the run was done, seconds since 1970; absent while a run is in progress.",
        PROFILE,
        _completed,
    ),
    stable(
        "precision_profile_last_result_timestamp_seconds",
        "When the newest result of any node came in, seconds since 1970.",
        PROFILE,
        _figure(lambda campaign: seconds(campaign.status.last_run) if campaign.status.last_run else None),
    ),
    *(
        Family(f"precision_profile_{kinds[0]}_nodes", of, (*PROFILE, "reason", "example"), _reasons(*kinds))
        for of, *kinds in (
            (
                "Nodes that wait for their turn, or for something to change, by reason (the most frequent ones); with "
                "AgentUnschedulable a node counts as running. example is the node's name where it is a single one.",
                *("waiting", "queued", "running"),
            ),
            ("Nodes whose newest measurement failed, likewise.", "failed"),
            ("Nodes that can't be measured as they are, likewise.", "skipped"),
        )
    ),
    Family(
        "precision_profile_refresh_interval_seconds",
        "Longest time between two results that the profile's schedule or its maxAge asks for; absent for a profile "
        "that is measured once, and while it is suspended.",
        PROFILE,
        _figure(lambda campaign: campaign.refresh_seconds),
    ),
)
