"""What becomes of Jobs that wait: for Kueue, for a place, for an image; and when their place is given back."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from precision_operator.core.attempts.actions import Close, Collect, Drop, MarkStale
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView
from precision_operator.core.observe.views import job_view
from precision_operator.core.plan import plan
from tests.support.golden import beside
from tests.support.world import MINUTE, NOW, at_once, job, measured, nodes, observed, pod, profile, report

TABLES = beside(__file__)

QUEUED = {"agent": {"queueName": "research"}}
OWNER = profile(**QUEUED)
HOURS_AGO = NOW - timedelta(hours=5)
HELD = job(created=HOURS_AGO, suspended=True)


def closed(seen: Observed) -> Close | None:
    return next((action for action in plan(seen).actions if isinstance(action, Close)), None)


def reasons(seen: Observed) -> list[str]:
    return [node_state.reason for node_state in plan(seen).profiles[0].node_states]


def test_a_job_that_kueue_holds_or_suspends_waits_in_its_queue() -> None:
    seen = observed([OWNER], nodes("n1", "n2"), jobs=(HELD,))
    assert reasons(seen) == ["WaitsInQueue", "MaxConcurrentReached"]
    assert "Its agent waits in Kueue queue research." in plan(seen).profiles[0].node_states[0].message
    seen = observed([OWNER], jobs=(replace(HELD, active_since=None),), reports=(report(),))
    assert (reasons(seen), closed(seen)) == (["WaitsInQueue"], None)


def test_a_job_that_kueue_holds_goes_when_its_profile_is_suspended_and_one_that_runs_stays() -> None:
    """Else it would begin when the queue has room, days after somebody has stopped measuring."""
    resting = profile(suspend=True, **QUEUED)
    (drop,) = plan(observed([resting], jobs=(HELD,))).actions
    assert (drop, drop.reason) == (Drop("Job", "ml", HELD.name, HELD.uid, drop.said), "Suspended")
    runs = replace(HELD, suspended=False, active_since=NOW, created=NOW)
    assert plan(observed([resting], jobs=(runs,), pods=(pod(runs),))).actions == ()
    assert plan(observed([OWNER], jobs=(HELD,))).actions == ()


@pytest.mark.parametrize(("seconds", "reason"), [(3600, "QueueTimeout"), (6 * 3600, None)])
def test_the_queue_timeout_gives_the_place_back_and_is_no_failure(seconds: int, reason: str | None) -> None:
    closings = closed(observed([profile(idle={"queueTimeoutSeconds": seconds}, **QUEUED)], jobs=(HELD,)))
    assert (closings.reason if closings else None) == reason
    if closings is not None:
        assert closings.outcome == "disrupted"
        assert f"Kueue did not admit its agent within {seconds} s." in closings.message


def test_after_kueue_took_its_place_away_the_queue_timeout_runs_from_then_on() -> None:
    """Its agent had begun in time: what it waits for is its second turn."""
    (start,) = plan(observed([profile()])).actions
    told = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-11-21T08:30:00Z"}
    raw = {"metadata": start.job["metadata"], "spec": {"suspend": True}, "status": {"conditions": [told]}}  # type: ignore[union-attr]
    view = job_view(raw)
    held = replace(HELD, created=view.queued_since - 5 * 60 * MINUTE, queued_since=view.queued_since)
    seen = observed([profile(idle={"queueTimeoutSeconds": 3600}, **QUEUED)], jobs=(held,))
    found = [closed(replace(seen, now=view.queued_since + minutes * MINUTE)) for minutes in (59, 60)]
    assert [each.reason if each else None for each in found] == [None, "QueueTimeout"]


@pytest.mark.parametrize(("minutes", "reason"), [(4, None), (5, "PodNotCreated")])
def test_from_its_release_on_the_pending_timeout_runs(minutes: int, reason: str | None) -> None:
    freed = replace(HELD, suspended=False, active_since=NOW - minutes * MINUTE)
    closings = closed(observed([OWNER], jobs=(freed,)))
    assert (closings.reason if closings else None) == reason


def test_places_of_two_profiles_are_counted_and_suspended_jobs_are_made_for_queues() -> None:
    (held,), (free,) = (plan(observed([of])).actions for of in (OWNER, profile()))
    assert held.job["spec"]["suspend"] is True  # type: ignore[union-attr]
    assert held.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"  # type: ignore[union-attr]
    assert "suspend" not in free.job["spec"]  # type: ignore[union-attr]
    other = job("n2", "other", suspended=True, created=HOURS_AGO)
    tight = profile(rollout=at_once(4) | {"powerBudgetWatts": 12_000}, **QUEUED)
    seen = observed([tight, profile("other", **QUEUED)], nodes("n1", "n2", "n3"), jobs=(HELD, other))
    assert reasons(seen) == ["WaitsInQueue", "PowerBudgetReached", "PowerBudgetReached"]


@pytest.mark.parametrize(("raw", "suspended", "active"), TABLES["conditions"].values(), ids=TABLES["conditions"])
def test_a_job_tells_if_it_is_held_and_since_when_it_is_not(raw: dict[str, Any], suspended: bool, active: bool) -> None:
    (start,) = plan(observed([profile()])).actions
    view = job_view({**raw, "metadata": start.job["metadata"]})  # type: ignore[union-attr]
    assert (view.suspended, view.active_since is not None) == (suspended, active)


LATE = job(created=NOW - 5 * MINUTE)
WAITING: dict[str, tuple[tuple[PodView, ...], str, str]] = {
    "for a pod": ((), "PodNotCreated", "failed"),
    "for an image": ((pod(LATE, "Pending", waiting_reason="ErrImagePull"),), "ImagePullFailed", "failed"),
    "a place": ((pod(LATE, "Pending", unschedulable="Insufficient nvidia.com/gpu"),), "PendingTooLong", "disrupted"),
    "for a secret": ((pod(LATE, "Pending", waiting_reason="CreateContainerConfigError"),), "StartTooLong", "failed"),
}


@pytest.mark.parametrize(("pods", "reason", "outcome"), WAITING.values(), ids=WAITING)
@pytest.mark.parametrize("timeout", [300, 301])
def test_the_pending_timeout_of_the_profile_ends_an_agent_that_waits(
    pods: tuple[PodView, ...], reason: str, outcome: str, timeout: int
) -> None:
    closings = closed(observed([profile(idle={"pendingTimeoutSeconds": timeout})], jobs=(LATE,), pods=pods))
    if timeout > 300:
        assert closings is None
    else:
        assert (closings.reason, closings.outcome) == (reason, outcome)


def test_an_agent_that_waits_since_before_the_clock_jumped_back_does_not_wait_for_the_clock_to_catch_up() -> None:
    ahead = job(created=NOW + timedelta(days=40))
    closings = closed(
        observed([profile()], jobs=(ahead,), pods=(pod(ahead, "Pending", waiting_reason="ErrImagePull"),))
    )
    assert closings.reason == "ImagePullFailed"


def test_what_a_profile_says_of_retries_and_history_goes_with_the_end_of_an_attempt() -> None:
    owner = profile(rollout={"retry": {"limit": 7}}, retention={"history": 9})
    for of in (LATE, job(finished="Failed", finished_at=NOW)):
        (action,) = plan(observed([owner], jobs=(of,))).actions
        assert isinstance(action, Close | Collect)
        assert (action.keeping.retry.limit, action.keeping.retention.history) == (7, 9)


def marked(*jobs: JobView, of: ProfileView | None = None) -> list[str]:
    told = (report(status=measured(basis={"spec": "older"})),)
    decided = plan(observed([of or profile(suspend=True)], reports=told, jobs=jobs))
    return [action.reason for action in decided.actions if isinstance(action, MarkStale)]


def test_figures_out_of_date_are_marked_where_nothing_may_start_by_one_writer() -> None:
    assert marked() == ["SpecChange"]
    assert marked(job(run="new")) == []
