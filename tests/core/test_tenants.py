"""What one tenant's profiles, Jobs, pods and reports change for another one: nothing but the nodes that they take."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.attempts.actions import Drop, Start
from precision_operator.core.observe.fleet_limits import FleetLimits
from precision_operator.core.observe.observed import Observed, ProfileView
from precision_operator.core.observe.tenants import (
    COMES_LAST,
    STARTED_WITHIN,
    TURN,
    YOUNG,
    fruitless_turns,
    pods_within_namespace,
    within_namespace,
)
from precision_operator.core.plan import Plan, plan
from tests.support.examples import examples
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.world import NOW, SETTINGS, job, measured, nodes, observed, pod, profile, report

RACK = "example.com/rack"
POOL = "NVIDIA-H100-80GB-HBM3"
NAMES = tuple(f"n{i}" for i in range(6))
OURS, THEIRS = NAMES[:4], NAMES[4:]
FLEET = {f"uid-{n}": node_object(EIGHT_H100 | {RACK: f"r{i % 2}"}, name=n) for i, n in enumerate(NAMES)}


@st.composite
def rollouts(draw: st.DrawFn) -> dict[str, Any]:
    """Any mixture of limits, tight ones among them."""
    chosen: dict[str, Any] = {"maxConcurrent": draw(st.integers(1, 6))}
    if draw(st.booleans()):
        chosen["perTopology"] = [{"key": draw(st.sampled_from([RACK, "nowhere"])), "max": draw(st.integers(1, 2))}]
        chosen["rampSeconds"] = draw(st.sampled_from([0, 600]))
    if draw(st.booleans()):
        chosen["powerBudgetWatts"] = draw(st.sampled_from([1, 5600, 12_000]))
    if draw(st.booleans()):
        chosen["pools"] = [{"name": POOL, "maxConcurrent": 1, "powerBudgetWatts": draw(st.sampled_from([1, 9000]))}]
    return chosen


@st.composite
def tenants(draw: st.DrawFn) -> tuple[ProfileView, ...]:
    """Profiles of namespace b: on its own nodes, or suspended on all."""
    return tuple(
        profile(
            f"b{i}",
            namespace="b",
            created=NOW - timedelta(days=i),
            rollout=draw(rollouts()),
            **draw(st.sampled_from([{"suspend": True}, {"target": {"nodeNames": list(THEIRS)}}])),
        )
        for i in range(draw(st.integers(1, 3)))
    )


def seen(*profiles: ProfileView, **changes: Any) -> Observed:
    return observed(profiles, FLEET, **changes)


def of_ours(decided: Plan) -> tuple[Any, ...]:
    """All that the plan says of profile ml/nightly."""
    mine = next(each for each in decided.profiles if each.profile.name == "nightly")
    actions = [a for a in decided.actions if not isinstance(a, Start) or a.profile.namespace == "ml"]
    return tuple((s.facts.name, s.reason, s.message) for s in mine.node_states), actions, mine.asked


@given(own=rollouts(), others=tenants(), running=st.sets(st.sampled_from(NAMES[4:])), limited=st.integers(1, 8000))
@examples(20)
def test_limits_budgets_and_suspension_of_one_tenant_change_nothing_for_another(
    own: dict[str, Any], others: tuple[ProfileView, ...], running: set[str], limited: int
) -> None:
    ours = profile(rollout=own, target={"nodeNames": list(OURS)})
    jobs = tuple(job(n, "b0", namespace="b", created=NOW - timedelta(seconds=5)) for n in sorted(running))
    told = report("n0", "b0", namespace="b", status=measured(limit_watts=limited))
    alone = plan(seen(ours, jobs=(job("n0"),)))
    beside = plan(seen(ours, *others, jobs=(job("n0"), *jobs), pods=tuple(map(pod, jobs)), reports=(told,)))
    assert of_ours(beside) == of_ours(alone)


def test_an_agent_of_another_namespace_takes_the_node_that_it_is_on_and_no_more() -> None:
    ours = profile(rollout={"maxConcurrent": 6, "perTopology": [{"key": RACK, "max": 1}]})
    theirs = job("n0", "b0", namespace="b")
    found = plan(seen(ours, profile("b0", namespace="b", suspend=True), jobs=(theirs,), pods=(pod(theirs),)))
    told = {s.facts.name: s.reason for s in found.profiles[0].node_states}
    assert told["n0"] == "MeasuredByAnotherProfile"
    assert sorted(told.values()).count("AgentStarting") == 2, "one in each rack: the agent of b counts in neither"


def test_a_suspended_profile_binds_nobody_of_its_own_namespace_either() -> None:
    tight = profile("tight", rollout={"perTopology": [{"key": RACK, "max": 1}]}, suspend=True)
    free = profile(rollout={"maxConcurrent": 6})
    assert len([a for a in plan(seen(tight, free)).actions if isinstance(a, Start)]) == 6
    bound = plan(
        seen(replace(tight, spec=tight.spec.model_copy(update={"suspend": False})) if tight.spec else tight, free)
    )
    assert len([a for a in bound.actions if isinstance(a, Start)]) == 2


OLD = NOW - timedelta(seconds=61)
ELSEWHERE = {"nodeNames": ["another"]}
THEIR_JOB = job("n0", "b0", namespace="b", created=OLD)
MEMORY = {THEIR_JOB.uid: "n0"}
COUNTS: dict[str, tuple[bool, bool, dict[str, Any]]] = {
    "a Job that Kueue has not admitted": (True, True, {"jobs": (replace(THEIR_JOB, suspended=True),)}),
    "a Job without a pod": (True, True, {"jobs": (THEIR_JOB,)}),
    "a Job whose pod is not bound": (True, True, {"jobs": (THEIR_JOB,), "pods": (pod(THEIR_JOB, "Pending"),)}),
    "a Job whose pod is bound without GPUs": (
        True,
        True,
        {"jobs": (THEIR_JOB,), "pods": (pod(THEIR_JOB, holds_gpus=False),)},
    ),
    "a finished Job that a finalizer keeps": (
        True,
        False,
        {"jobs": (replace(THEIR_JOB, created=NOW, finished="Complete", deleting=True),)},
    ),
    "a new Job whose annotation names another node": (
        True,
        False,
        {"jobs": (replace(THEIR_JOB, created=NOW),), "own_jobs": {THEIR_JOB.uid: "n5"}},
    ),
    "a new Job": (False, False, {"jobs": (replace(THEIR_JOB, created=NOW),)}),
    "a Job whose pod is bound": (False, False, {"jobs": (THEIR_JOB,), "pods": (pod(THEIR_JOB),)}),
    "a bound pod that ends in a day": (
        False,
        False,
        {"jobs": (THEIR_JOB,), "pods": (pod(THEIR_JOB, deleting_since=NOW + timedelta(days=1)),)},
    ),
    "a bound pod whose Job is gone": (False, False, {"pods": (pod(THEIR_JOB),), "own_jobs": MEMORY}),
}


def withdrawn(decided: Plan) -> list[str]:
    return [a.name for a in decided.actions if isinstance(a, Drop) and a.reason == "Withdrawn"]


@pytest.mark.parametrize("capped", [False, True], ids=["its node", "its place"])
@pytest.mark.parametrize(("starts", "makes_room", "there"), COUNTS.values(), ids=COUNTS)
def test_against_another_namespace_counts_what_is_held(
    starts: bool, makes_room: bool, there: dict[str, Any], capped: bool
) -> None:
    node, limits = ("n1", FleetLimits(max_concurrent=1)) if capped else ("n0", FleetLimits())
    ours = profile(target={"nodeNames": [node]})
    world = seen(ours, profile("b0", namespace="b", target=ELSEWHERE), **({"own_jobs": MEMORY} | there))
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=limits)))
    has_its_place = capped and "n5" in world.own_jobs.values()
    assert [a.facts.name for a in decided.actions if isinstance(a, Start)] == (
        [node] if starts and not has_its_place else []
    )
    waits_beside = not capped and any(there_too.suspended for there_too in there.get("jobs", ()))
    assert withdrawn(decided) == ([THEIR_JOB.name] if makes_room and not waits_beside else [])


FRUITLESS = {"b": (NOW - TURN,)}
"""The last turn of namespace b got no node, so that its next one is longer."""


@pytest.mark.parametrize(("fruitless", "turn"), [({}, YOUNG), (FRUITLESS, TURN)], ids=["at first", "after that"])
def test_the_plan_is_made_again_when_a_job_stops_counting(fruitless: dict[str, Any], turn: timedelta) -> None:
    there = replace(THEIR_JOB, created=NOW - turn + timedelta(seconds=1))
    world = seen(profile(target=ELSEWHERE), profile("b0", namespace="b"), jobs=(there,), fruitless=fruitless)
    assert plan(world).look_again_at == NOW + timedelta(seconds=1)


def test_in_its_own_namespace_a_job_that_holds_nothing_counts() -> None:
    pending = job("n0", "b0", namespace="b", created=OLD, suspended=True)
    theirs = profile("b0", namespace="b", rollout={"maxConcurrent": 6})
    world = seen(theirs, profile("b1", namespace="b", target={"nodeNames": ["n0"]}), jobs=(pending,))
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=3))))
    assert len([a for a in decided.actions if isinstance(a, Start)]) == 2, "with the one that waits for Kueue three"
    (state,) = decided.profiles[1].node_states
    assert (state.reason, state.facts.name) == ("MeasuredByAnotherProfile", "n0")
    assert withdrawn(decided) == []


@pytest.mark.parametrize(("fruitless", "starts"), [({}, 2), (FRUITLESS, 0)], ids=["at first", "after that"])
def test_a_namespace_whose_last_turn_got_no_node_keeps_its_places_longer(
    fruitless: dict[str, Any], starts: int
) -> None:
    waiting = tuple(job(n, "b0", namespace="b", created=OLD) for n in ("n0", "n1"))
    ours = profile(target={"nodeNames": ["n0", "n2"]}, rollout={"maxConcurrent": 2})
    world = seen(ours, profile("b0", namespace="b", target=ELSEWHERE), jobs=waiting, fruitless=fruitless)
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=2))))
    assert len([a for a in decided.actions if isinstance(a, Start)]) == starts
    assert len(withdrawn(decided)) == starts


MINUTE = timedelta(minutes=1)
BEFORE = {"b": (NOW - 2 * TURN,)}
TWICE = {"b": (NOW - 2 * TURN, NOW)}
TURNS: dict[str, tuple[dict[str, Any], timedelta, dict[str, Any], dict[str, Any]]] = {
    "its Job went without a node": ({}, MINUTE, {}, {"b": (NOW,)}),
    "its Job went at once": ({}, MINUTE / 2, {}, {}),
    "its Job still waits": ({}, MINUTE, {"jobs": (THEIR_JOB,)}, {}),
    "so did one of the next turn": (BEFORE, TURN, {}, TWICE),
    "so did another one of the same turn": (BEFORE, 3 * TURN, {}, BEFORE),
    "its pod is bound": (TWICE, MINUTE, {"pods": (pod(THEIR_JOB),)}, {"b": (NOW,)}),
    "its pod is bound without GPUs": (BEFORE, TURN, {"pods": (pod(THEIR_JOB, holds_gpus=False),)}, TWICE),
    "that was long ago": ({"b": (NOW - COMES_LAST,)}, MINUTE / 2, {}, {}),
}


@pytest.mark.parametrize(("before", "age", "there", "after"), TURNS.values(), ids=TURNS)
def test_turns_without_a_node_are_remembered_until_a_pod_is_bound(
    before: dict[str, Any], age: timedelta, there: dict[str, Any], after: dict[str, Any]
) -> None:
    waited = {THEIR_JOB.uid: replace(THEIR_JOB, created=NOW - age)}
    assert fruitless_turns(before, waited, seen(**there)) == after


@pytest.mark.parametrize(
    ("turns", "first"),
    [((), "b"), ((NOW,), "ml"), ((NOW - TURN,), "b"), ((NOW - TURN, NOW - TURN), "ml")],
    ids=["none", "one just now", "one long ago", "two"],
)
def test_a_namespace_whose_turns_got_no_node_comes_last(turns: tuple[datetime, ...], first: str) -> None:
    target = {"nodeNames": ["n0"]}
    theirs = replace(profile("b0", namespace="b", target=target), created=NOW - timedelta(days=99))
    world = seen(profile(target=target), theirs, fruitless={"b": turns} if turns else {})
    assert [a.profile.namespace for a in plan(world).actions if isinstance(a, Start)] == [first]


def test_pods_of_unknown_profiles_are_seen_and_hold_nothing_of_anybody() -> None:
    own, lost = job("n0"), job("n0", "gone", namespace="b")
    assert within_namespace([own, lost], {"uid-nightly": "ml"}) == (own, lost)
    assert pods_within_namespace([pod(own), pod(lost)], {"uid-nightly": "ml"}, {own.uid: "ml"}) == (pod(own), pod(lost))
    beside = seen(profile(target={"nodeNames": ["n0"]}), pods=(pod(lost),), own_jobs={})
    assert [a.facts.name for a in plan(beside).actions if isinstance(a, Start)] == ["n0"], "who holds GPUs is looked at"


@pytest.mark.parametrize(("cap", "stuck", "kept"), [(4, 2, 2), (4, 3, 2), (4, 4, 2), (1, 1, 0)])
def test_agents_that_do_not_start_keep_their_namespaces_share_of_the_places(cap: int, stuck: int, kept: int) -> None:
    """Their image is pulled for longer than half an hour, from a slow registry or from none."""
    begun = NOW - STARTED_WITHIN - MINUTE
    theirs = tuple(job(name, "b0", namespace="b", created=begun) for name in NAMES[:stuck])
    pods = tuple(pod(there, "Pending", scheduled_at=begun) for there in theirs)
    ours = profile(target={"nodeNames": list(NAMES)}, rollout={"maxConcurrent": 6})
    waits = {"startTimeoutSeconds": 86_400}
    world = seen(ours, profile("b0", namespace="b", target=ELSEWHERE, idle=waits), jobs=theirs, pods=pods)
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=cap))))
    started = [a.facts.name for a in decided.actions if isinstance(a, Start)]
    assert len(started) == min(cap - kept, len(NAMES) - stuck)
    assert not {*started} & {*NAMES[:stuck]}
    assert stuck - len(withdrawn(decided)) == kept


def test_pods_on_one_node_are_one_place_however_many_agents_they_name() -> None:
    """A pod of one GPU each, with the UIDs of Jobs that ran there once: else four fill a cap of four for ever."""
    there = job("n5", "b0", namespace="b", created=NOW - timedelta(days=9))
    uids = [f"uid-{number}" for number in range(4)]
    pods = tuple(replace(pod(there), name=uid, job_uid=uid, started_at=there.created) for uid in uids)
    ours = profile(target={"nodeNames": list(OURS)}, rollout={"maxConcurrent": 6})
    world = seen(ours, profile("b0", namespace="b", target=ELSEWHERE), pods=pods)
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=4))))
    assert len([a for a in decided.actions if isinstance(a, Start)]) == 3


@st.composite
def fleet_limits(draw: st.DrawFn) -> FleetLimits:
    cap: dict[str, Any] = {}
    if draw(st.booleans()):
        cap["maxConcurrent"] = draw(st.integers(1, 5))
    if draw(st.booleans()):
        cap["powerBudgetWatts"] = draw(st.sampled_from([5599, 5600, 17_000]))
    if draw(st.booleans()):
        cap["perTopology"] = [{"key": RACK, "max": draw(st.integers(1, 2)), "powerBudgetWatts": 11_200}]
    if draw(st.booleans()):
        cap["pools"] = [{"name": POOL, "maxConcurrent": draw(st.integers(1, 4))}]
    return FleetLimits.model_validate(cap)


@given(limits=fleet_limits(), running=st.sets(st.sampled_from(NAMES), max_size=2))
@examples(20)
def test_the_operators_own_limits_hold_for_the_agents_of_all_namespaces_together(
    limits: FleetLimits, running: set[str]
) -> None:
    world = replace(
        seen(
            *(profile(f"p{i}", namespace=f"ns{i}", rollout={"maxConcurrent": 6}) for i in range(3)),
            jobs=tuple(job(n, "p0", namespace="ns0") for n in sorted(running)),
        ),
        settings=replace(SETTINGS, fleet_limits=limits),
    )
    starts = [a for a in plan(world).actions if isinstance(a, Start)]
    if not starts:
        return
    started = [start.facts.name for start in starts]
    names = [*running, *started]
    racks = [NAMES.index(name) % 2 for name in names]
    assert len(names) <= (limits.max_concurrent or 6)
    assert len(names) * 5600 <= (limits.power_budget_watts or 10**9)
    for row in limits.per_topology:
        for name in started:
            assert racks.count(NAMES.index(name) % 2) <= min(row.max or 6, 2)
    for pool in limits.pools:
        assert len(names) <= (pool.max_concurrent or 6)


def test_nodes_that_lack_the_label_of_a_limit_are_one_group_together() -> None:
    limits = FleetLimits.model_validate({"perTopology": [{"key": "a-key-with-a-typing-eror", "max": 1}]})
    world = replace(seen(profile(rollout={"maxConcurrent": 6})), settings=replace(SETTINGS, fleet_limits=limits))
    states = plan(world).profiles[0].node_states
    assert [s.reason for s in states].count("AgentStarting") == 1
    waiting = next(s for s in states if s.reason == "FleetLimitReached")
    assert "on nodes without the label a-key-with-a-typing-eror" in waiting.message


@given(crowd=st.integers(1, 12), places=st.integers(2, 6))
@examples(10)
def test_many_profiles_of_one_namespace_leave_another_its_share_of_what_all_have(crowd: int, places: int) -> None:
    many = [
        profile(f"b{i}", namespace="b", created=NOW - timedelta(days=9), rollout={"maxConcurrent": 6})
        for i in range(crowd)
    ]
    limits = FleetLimits(max_concurrent=places)
    world = replace(
        observed([*many, profile(rollout={"maxConcurrent": 6})], nodes(*NAMES)),
        settings=replace(SETTINGS, fleet_limits=limits),
    )
    starts = [a.profile.namespace for a in plan(world).actions if isinstance(a, Start)]
    assert len(starts) == places
    assert starts.count("ml") >= places // 2
