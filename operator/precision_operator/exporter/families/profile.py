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
    stable("precision_profile_nodes", (*PROFILE, "phase"), _phases),
    stable("precision_profile_phase", (*PROFILE, "phase"), _phase),
    *(
        stable(f"precision_profile_{kind}_nodes", PROFILE, _figure(partial(_marked, kind)))
        for kind in ("slow", "simulated")
    ),
    stable("precision_profile_progress_ratio", PROFILE, _figure(_progress)),
    stable(
        "precision_profile_eta_timestamp_seconds",
        PROFILE,
        _figure(lambda campaign: seconds(campaign.status.eta_time) if campaign.status.eta_time else None),
    ),
    stable("precision_profile_last_completion_timestamp_seconds", PROFILE, _completed),
    stable(
        "precision_profile_last_result_timestamp_seconds",
        PROFILE,
        _figure(lambda campaign: seconds(campaign.status.last_run) if campaign.status.last_run else None),
    ),
    *(
        Family(f"precision_profile_{kinds[0]}_nodes", (*PROFILE, "reason", "example"), _reasons(*kinds))
        for kinds in (("waiting", "queued", "running"), ("failed",), ("skipped",))
    ),
    Family("precision_profile_refresh_interval_seconds", PROFILE, _figure(lambda campaign: campaign.refresh_seconds)),
)
