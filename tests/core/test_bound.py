"""More profiles in a namespace than are served: the oldest are, none with an agent is dropped, the rest say so."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from precision_api.facts import names
from precision_api.kinds.report import ReportAcceptance
from precision_operator.core import plan as core_plan
from precision_operator.core.attempts import node_state
from precision_operator.core.attempts.actions import Start
from precision_operator.core.observe.observed import Observed, ProfileView
from precision_operator.core.plan import plan
from precision_operator.core.reasons import Said
from precision_operator.core.status.profile_status import profile_status
from precision_operator.shell.observing import wanted
from tests.support.world import IDLE, NOW, SETTINGS, job, measured, nodes, observed, pod, profile, report

NODES = tuple(f"n{i}" for i in range(6))
FLEET = nodes(*NODES)
AGENT = job("n1", "p0")


def seen(*profiles: ProfileView, most: int | None = 2, **changes: Any) -> Observed:
    settings = replace(SETTINGS, profiles_per_namespace=most)
    return observed(profiles, FLEET, settings=settings, occupancy=dict.fromkeys(NODES, IDLE), **changes)


def of_age(days: int, **changes: Any) -> ProfileView:
    return profile(f"p{days}", created=NOW - timedelta(days=days), **changes)


FOUR = tuple(map(of_age, range(4)))
STOOD = {"nodes": {"matched": 6}, "progress": "6/6"}


OLD = tuple(map(of_age, (0, 1, 3, 2)))
WORLDS = {
    "the youngest": (seen(of_age(1), of_age(3), of_age(2)), {"p1"}),
    "as many as may be": (seen(of_age(1), of_age(2)), set()),
    "no bound": (seen(*OLD, most=None), set()),
    "suspended": (seen(of_age(1), of_age(2), of_age(3, suspend=True)), set()),
    "more suspended": (seen(of_age(0), *(of_age(days, suspend=True) for days in (1, 2, 3))), {"p1"}),
    "unreadable": (seen(of_age(1), of_age(2), of_age(3, problem="no spec")), set()),
    "another namespace": (seen(of_age(1), of_age(3), of_age(2), profile("theirs", namespace="other")), {"p1"}),
    "an agent runs": (seen(*OLD, jobs=(AGENT,), pods=(pod(AGENT),)), {"p1"}),
    "a Job without a pod": (seen(*OLD, jobs=(AGENT,)), {"p0", "p1"}),
    "a Job that the tenant made": (seen(*OLD, jobs=(AGENT,), pods=(pod(AGENT),), own_jobs={}), {"p0", "p1"}),
    "a gated pod": (seen(*OLD, jobs=(AGENT,), pods=(pod(AGENT, "Pending"),)), {"p0", "p1"}),
    "a Job that goes": (seen(*OLD, jobs=(replace(AGENT, deleting=True),), pods=(pod(AGENT),)), {"p0", "p1"}),
}


@pytest.mark.parametrize(("world", "expected"), WORLDS.values(), ids=WORLDS)
def test_the_oldest_are_served_and_those_with_an_agent(world: Observed, expected: set[str]) -> None:
    assert {item.profile.name: item.asked.reason for item in plan(world).profiles if isinstance(item.asked, Said)} == {
        **dict.fromkeys(expected, "TooManyProfiles"),
        **({"p3": "InvalidSpec"} if any(p.problem for p in world.profiles) else {}),
    }
    assert not {action.profile.name for action in plan(world).actions if isinstance(action, Start)} & expected


def test_edited_profiles_of_a_namespace_take_turns_and_hold_up_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool label for each of fifty profiles, edited between passes, cost others five seconds a pass."""
    monkeypatch.setattr(core_plan, "STANDS_ANEW", 2 * len(NODES))
    ours = profile("ours", namespace="other", target={"nodeNames": ["n5"]})
    book, waited = plan(seen(*FOUR, ours)).book, set[str]()
    for edit in range(3):
        changed = seen(*(replace(of_age(n, poolLabel=f"x/{edit}"), status=STOOD) for n in range(4)), ours, most=None)
        decided = plan(changed, book=book)
        (*theirs, mine), book = decided.profiles, decided.book
        late = [item for item in theirs if isinstance(item.asked, Said)]
        assert {profile_status(item, NOW, len(NODES)).progress for item in late} == {"6/6"}, "its status stands"
        assert (len(late), decided.look_again_at, mine.node_states) == (
            2,
            NOW,
            plan(seen(ours)).profiles[0].node_states,
        )
        assert waited & {item.profile.name for item in late} == set(), "whoever waited comes first"
        waited = {item.profile.name for item in late}
    assert not any(isinstance(item.asked, Said) for item in plan(changed, book=book).profiles)
    assert not any(isinstance(item.asked, Said) for item in plan(changed).profiles), "from scratch all are decided"


def test_a_profile_beyond_the_bound_says_so_and_keeps_what_it_found() -> None:
    *_, late = plan(seen(of_age(3), of_age(2), of_age(1, status=STOOD))).profiles
    status = profile_status(late, NOW, len(FLEET))
    [progressing] = [row for row in status.conditions if row.type == names.PROGRESSING]
    assert (progressing.status, progressing.reason, status.progress) == ("False", "TooManyProfiles", "6/6")
    assert "2 older active profiles" in progressing.message
    assert "Suspend or delete others" in progressing.message
    *_, late = plan(seen(*(of_age(days, suspend=True) for days in (3, 2, 1)))).profiles
    assert isinstance(late.asked, Said)
    assert "2 older suspended profiles" in late.asked.message
    assert ". Delete others" in late.asked.message, "to suspend one more frees no place"
    *_, labelled, other = plan(seen(of_age(3), of_age(2), of_age(1, poolLabel="x/1"), of_age(0))).profiles
    assert labelled.nodes is other.nodes, "no facts by a label of its own"


@pytest.mark.parametrize("suspend", [False, True])
def test_a_reference_is_read_for_profiles_that_are_served_and_of_suspended_ones_for_a_pass_alone(suspend: bool) -> None:
    """Of 400 in one namespace each cost the operator a megabyte and a half."""
    asked = [{"reference": {"name": f"r{days}", "sha256": "a" * 64}} for days in range(6)]
    asking = [of_age(n, suspend=suspend, acceptance=it, namespace=f"t{n // 3}") for n, it in enumerate(asked)]
    verdicts = {f"p{n}": ReportAcceptance(verdict="Fail" if n == 2 else "Pass") for n in range(6)}
    statuses = ((of, measured().model_copy(update={"acceptance": verdict})) for of, verdict in verdicts.items())
    world = seen(*asking, most=1, reports=tuple(report("n1", owner=of, status=status) for of, status in statuses))
    oldest = {("t1", "r5")} if suspend else {("t0", "r2"), ("t1", "r5")}
    assert wanted.references(world, asking, ()) == oldest


def test_a_suspended_profile_is_not_worked_out_anew_at_its_schedules_times() -> None:
    """Fifty of them over a thousand nodes would cost a second each minute, for nothing."""
    world = seen(of_age(1, suspend=True, schedule={"cron": "* * * * *"}))
    first = plan(world)
    [before] = first.profiles
    [after] = plan(replace(world, now=NOW + timedelta(minutes=5)), book=first.book).profiles
    assert all(
        a.decision is b.decision and a.current is b.current
        for a, b in zip(before.node_states, after.node_states, strict=True)
    )


def test_a_node_is_compared_with_a_target_once_and_not_at_each_of_the_schedules_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fifty targets as long as they may be over a thousand nodes would cost seven seconds each minute."""
    world = seen(of_age(1, schedule={"cron": "* * * * *"}), of_age(2, target={"nodeNames": ["n1"]}))
    first = plan(world)
    monkeypatch.delattr(node_state, "matches")
    again = plan(replace(world, now=NOW + timedelta(minutes=5)), book=first.book)
    assert [len(item.node_states) for item in again.profiles] == [len(NODES), 1]
    assert first.faults == again.faults == ()
