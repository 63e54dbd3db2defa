"""When a schedule begins runs: cron fields, time zones, jitter, clocks that jump, and what is wrong with a schedule."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.kinds.profile import Schedule
from precision_operator.core.eligibility.schedule import jitter, last_tick, next_tick, schedule_problem
from precision_operator.core.observe.observed import Observed
from precision_operator.core.plan import plan
from tests.support.golden import beside
from tests.support.world import MINUTE, NOW, measured, observed, profile, report

TABLES = beside(__file__)

UID = "uid-nightly"


def at(text: str) -> datetime:
    """`2026-11-21 09:00` in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(cron: str | None = None, zone: str = "UTC", jitter_seconds: int = 0) -> Schedule:
    return Schedule(cron=cron, time_zone=zone, jitter_seconds=jitter_seconds)


@pytest.mark.parametrize(("fields", "now", "last", "following"), TABLES["ticks"].values(), ids=TABLES["ticks"])
def test_the_last_and_the_next_time_of_a_schedule(fields: list[str], now: str, last: str, following: str) -> None:
    assert last_tick(schedule(*fields), UID, at(now)) == at(last)
    assert next_tick(schedule(*fields), UID, at(now)) == at(following)


def test_an_hour_that_a_clock_leaves_out_or_repeats_begins_its_run_once() -> None:
    """In Berlin there is no 02:30 on 2027-03-28: the run is neither lost nor begun twice."""
    night = schedule("30 2 * * *", "Europe/Berlin")
    ticks = {last_tick(night, UID, at("2027-03-27 12:00") + timedelta(minutes=m)) for m in range(0, 48 * 60, 10)}
    assert len(ticks) == 3, "the nights before, of, and after the change"
    night = schedule("30 2 * * *", "Europe/Berlin")
    ticks = {last_tick(night, UID, at("2026-10-24 12:00") + timedelta(minutes=m)) for m in range(0, 48 * 60, 10)}
    assert len(ticks) == 3, "the nights before, of, and after the change"


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 2 * * *", "45 1,2 * * *", "0 3 * * *", "*/30 * * * *"])
@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Berlin", "2026-10-24 22:00"),
        ("America/New_York", "2026-11-01 03:00"),
        ("Europe/Berlin", "2027-03-27 22:00"),
    ],
)
def test_while_a_clock_is_set_back_or_forward_the_last_tick_never_goes_back_and_the_next_one_lies_ahead(
    cron: str, zone: str, begin: str
) -> None:
    """A tick that was taken back would measure again, an hour later, the nodes that had begun for it."""
    given_, times = schedule(cron, zone), [at(begin) + timedelta(minutes=5 * step) for step in range(96)]
    ticks = [(last_tick(given_, UID, now), next_tick(given_, UID, now)) for now in times]
    lasts = [last for last, _ in ticks if last is not None]
    assert lasts == sorted(lasts)
    for now, (last, following) in zip(times, ticks, strict=True):
        assert following is not None
        assert last <= now < following
        assert last_tick(given_, UID, following) == following


@given(
    cron=st.sampled_from(["*/7 * * * *", "0 2 * * 6", "30 2 * * *", "5 4 1 * *"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Chatham"]),
    late=st.integers(0, 86_400),
    minutes=st.integers(0, 3 * 365 * 24 * 60),
    uid=st.text(max_size=8),
)
def test_the_last_tick_is_not_after_now_and_the_next_one_follows_it(
    cron: str, zone: str, late: int, minutes: int, uid: str
) -> None:
    given_, now = schedule(cron, zone, late), NOW + timedelta(minutes=minutes)
    last, following = last_tick(given_, uid, now), next_tick(given_, uid, now)
    assert last <= now < following
    assert last_tick(given_, uid, following) == following, "what is next becomes the last when its time has come"
    assert last_tick(given_, uid, following - timedelta(seconds=1)) == last, "and nothing lies between them"


def test_without_a_cron_there_are_no_times_and_jitter_spreads_profiles() -> None:
    assert last_tick(schedule(), UID, NOW) is None
    assert next_tick(schedule(), UID, NOW) is None
    late = {jitter(schedule("0 2 * * *", jitter_seconds=3600), f"uid-{i}") for i in range(20)}
    assert len(late) > 15
    assert max(late) - min(late) > timedelta(minutes=30)


@given(seconds=st.integers(0, 86_400), uid=st.text(max_size=20))
def test_jitter_is_fixed_for_a_profile_and_within_its_bound(seconds: int, uid: str) -> None:
    late = jitter(schedule("0 2 * * *", jitter_seconds=seconds), uid)
    assert late == jitter(schedule("* * * * *", jitter_seconds=seconds), uid)
    assert timedelta(0) <= late <= timedelta(seconds=seconds)


@pytest.mark.parametrize(("fields", "words"), TABLES["problems"].values(), ids=TABLES["problems"])
def test_a_schedule_that_cannot_be_kept_is_refused_with_its_field_and_the_remedy(fields: list[str], words: str) -> None:
    problem = schedule_problem(schedule(*fields), NOW)
    assert words in problem
    assert problem.startswith("spec.schedule.")
    refused = profile(schedule=schedule(*fields).model_dump(by_alias=True, exclude_none=True))
    asked = plan(observed([refused])).profiles[0].asked
    assert getattr(asked, "reason", None) == "InvalidSchedule"
    assert words in getattr(asked, "message", "")


@pytest.mark.parametrize("given_", [schedule("0 2 * * 6"), schedule("0 0 29 2 *"), schedule()])
def test_a_schedule_that_can_be_kept_has_no_problem(given_: Schedule) -> None:
    assert schedule_problem(given_, NOW) is None


# What comes of it: a node that was measured at some time, under a schedule, looked at later.

NIGHTLY = {"schedule": {"cron": "0 2 * * *"}}


def node_state(seen: Observed) -> tuple[str, str | None]:
    """The reason where the node stands, and why it is measured again."""
    found = plan(seen).profiles[0].node_states[0]
    return found.reason, found.current.due if found.current else None


def world(now: datetime, basis: dict[str, str] | None = None, created: datetime = NOW - timedelta(days=9)) -> Observed:
    """A node that was measured a minute before NOW for `basis` (None: never), at `now`."""
    told = () if basis is None else (report(status=measured(basis=basis)),)
    return observed([profile(created=created, **NIGHTLY)], reports=told, now=now)


def test_a_schedule_waits_for_its_first_time_which_begins_its_first_run_once() -> None:
    found = plan(world(NOW, created=NOW - MINUTE)).profiles[0].node_states[0]
    assert found.reason == "NotDueYet"
    assert "starts at 2026-11-22T02:00:00Z: the schedule has not started a run yet. To start it now" in found.message
    assert node_state(world(at("2026-11-22 02:00"), created=NOW)) == ("AgentStarting", "FirstRun")
    assert node_state(world(NOW, {"schedule": "2026-11-21T02:00:00Z"})) == ("Measured", None)
    assert node_state(world(NOW, {})) == ("AgentStarting", "Scheduled")


def test_missed_runs_are_made_up_once_and_wrong_clocks_begin_none_twice() -> None:
    seen = world(at("2026-12-21 09:00"), {"schedule": "2026-11-21T02:00:00Z"})
    found = plan(seen).profiles[0].node_states[0]
    assert (found.reason, found.current.due if found.current else "") == ("AgentStarting", "Scheduled")
    assert found.current.basis["schedule"] == "2026-12-21T02:00:00Z"
    assert node_state(world(at("2026-12-21 09:00"), dict(found.current.basis))) == ("Measured", None)
    ahead = plan(world(NOW + timedelta(days=400), {"schedule": "2026-11-21T02:00:00Z"})).profiles[0].node_states[0]
    assert ahead.current.due == "Scheduled"
    assert node_state(world(NOW, dict(ahead.current.basis))) == ("Measured", None)
    told = (report(status=measured(basis={"schedule": "2030-01-01T02:00:00Z"})),)
    seen = observed([profile(created=at("2026-01-01 00:00"), rerun="now", **NIGHTLY)], reports=told)
    found = plan(seen).profiles[0].node_states[0]
    assert (found.current.due, found.current.basis["schedule"]) == ("Rerun", "2026-11-21T02:00:00Z")


@pytest.mark.parametrize("days", [-400, -2, -1], ids=str)
def test_a_clock_that_jumps_back_begins_nothing_twice(days: int) -> None:
    assert node_state(world(NOW + timedelta(days=days), {"schedule": "2026-11-21T02:00:00Z"})) == ("Measured", None)
