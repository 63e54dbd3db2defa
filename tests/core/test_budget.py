"""Whether one more agent may start now: every row of the tables of checks, one by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.report import ReportAttempt
from precision_operator.core.budget import NODE_CHECKS, PROFILE_CHECKS, Turn, concurrency_limit, hindrance
from precision_operator.core.nodes import node_facts
from precision_operator.core.reasons import REASONS
from tests.support.node_objects import node_object
from tests.support.world import NOW, SETTINGS, observed, profile, tried


def turn(**changes: Any) -> Turn:
    """A turn in which the agent may start, unless `changes` say otherwise."""
    free = Turn(
        observed=observed(),
        profile=profile(),
        facts=node_facts(node_object(name="n1")),
        live=0,
        limit=1,
        taken_by=None,
        attempt=None,
    )
    return replace(free, **changes)


def disrupted(seconds_ago: int) -> ReportAttempt | None:
    return tried("disrupted", ago=timedelta(seconds=seconds_ago), reason="Disrupted").attempt


HINDERED = {
    "Suspended": (turn(profile=profile(suspend=True)), "The profile is suspended. Set spec.suspend to false"),
    "MaxConcurrentReached": (turn(live=3, limit=3), "3 agents run, as many as spec.rollout.maxConcurrent allows."),
    "MeasuredByAnotherProfile": (turn(taken_by="ml/other"), "Profile ml/other is measuring it."),
    "BackingOff": (turn(attempt=disrupted(29)), "The next one starts by itself at 2026-11-21T09:00:01Z."),
    "Busy": (turn(observed=observed(busy={"n1": "team/train-0"})), "Pod team/train-0 holds 8 of its GPUs."),
    "CheckingIdle": (turn(observed=observed(occupancy={})), "It starts by itself if they are."),
}


@pytest.mark.parametrize(("hindered", "words"), HINDERED.values(), ids=HINDERED)
def test_what_stops_an_agent_is_named_with_what_happens_next(
    hindered: Turn, words: str, request: pytest.FixtureRequest
) -> None:
    found = hindrance(hindered, (*PROFILE_CHECKS, *NODE_CHECKS))
    assert found is not None
    assert found[0] == request.node.callspec.id
    assert words in found[1]


def test_every_check_has_a_turn_that_it_stops_and_a_reason_that_users_can_read() -> None:
    codes = [code for code, _ in (*PROFILE_CHECKS, *NODE_CHECKS)]
    assert codes == list(HINDERED)
    assert {REASONS[code].kind for code in codes} == {"queued", "waiting"}


def test_a_free_idle_node_of_a_profile_with_room_may_start() -> None:
    assert hindrance(turn(), (*PROFILE_CHECKS, *NODE_CHECKS)) is None


def test_a_node_rests_after_a_disruption_just_as_long_as_is_set() -> None:
    assert hindrance(turn(attempt=disrupted(30)), NODE_CHECKS) is None
    longer = observed(settings=replace(SETTINGS, disruption_backoff=timedelta(minutes=5)))
    found = hindrance(turn(observed=longer, attempt=disrupted(299)), NODE_CHECKS)
    assert found is not None
    assert found[0] == "BackingOff"


def test_the_first_check_that_says_no_is_told() -> None:
    hindered = turn(profile=profile(suspend=True), live=5)
    assert hindrance(hindered, PROFILE_CHECKS) == hindrance(turn(profile=profile(suspend=True)), PROFILE_CHECKS)


@pytest.mark.parametrize(
    ("limit", "eligible", "most"),
    [(4, 24, 4), (4, 2, 4), ("10%", 24, 2), ("10%", 9, 1), ("1%", 0, 1), ("100%", 24, 24), ("99%", 100, 99)],
)
def test_per_cent_is_of_the_eligible_nodes_rounded_down_and_at_least_one(
    limit: int | str, eligible: int, most: int
) -> None:
    assert concurrency_limit(limit, eligible) == most


@given(percent=st.integers(1, 100), eligible=st.integers(0, 20_000))
def test_a_per_cent_never_gives_more_than_its_share_but_for_the_one_that_is_always_allowed(
    percent: int, eligible: int
) -> None:
    most = concurrency_limit(f"{percent}%", eligible)
    assert most == 1 or most * 100 <= percent * eligible < (most + 1) * 100


def test_the_time_of_the_next_attempt_does_not_depend_on_when_it_is_asked_for() -> None:
    early = hindrance(turn(attempt=disrupted(10)), NODE_CHECKS)
    later = hindrance(
        turn(attempt=disrupted(10), observed=replace(observed(), now=NOW + timedelta(seconds=5))), NODE_CHECKS
    )
    assert early == later
