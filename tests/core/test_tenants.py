"""What one tenant's profiles, Jobs, pods and reports change for another one: nothing but the nodes that they take."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.admission import turns
from precision_operator.core.admission.budget_view import AdmissionRequest
from precision_operator.core.admission.limits import physical_limit_reached
from precision_operator.core.attempts.actions import Close, Collect, Drop, Start
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.observed import Observed, ProfileView, Vain
from precision_operator.core.observe.tenants import (
    KEPT,
    STARTED_WITHIN,
    YOUNG,
    agents_since,
    held_nodes,
    pods_within_namespace,
    time_in_vain,
    turn_on,
    waiting_jobs,
    within_namespace,
)
from precision_operator.core.plan import Plan, plan
from precision_operator.core.reasons import Said
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
    last_report = report("n0", "b0", namespace="b", status=measured(limit_watts=limited))
    alone = plan(seen(ours, jobs=(job("n0"),)))
    beside = plan(seen(ours, *others, jobs=(job("n0"), *jobs), pods=tuple(map(pod, jobs)), reports=(last_report,)))
    assert of_ours(beside) == of_ours(alone)


def test_an_agent_of_another_namespace_takes_the_node_that_it_is_on_and_no_more() -> None:
    ours = profile(rollout={"maxConcurrent": 6, "perTopology": [{"key": RACK, "max": 1}]})
    theirs = job("n0", "b0", namespace="b")
    decided = plan(seen(ours, profile("b0", namespace="b", suspend=True), jobs=(theirs,), pods=(pod(theirs),)))
    told = {s.facts.name: s.reason for s in decided.profiles[0].node_states}
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


def test_limits_of_other_profiles_are_asked_once_a_node_and_only_where_nothing_else_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else fifty profiles over a thousand nodes ask millions of times."""
    asked: list[str] = []

    def counted(request: AdmissionRequest) -> Said | None:
        asked.append(request.facts.name)
        return physical_limit_reached(request)

    monkeypatch.setattr(turns, "physical_limit_reached", counted)
    tight = [profile(f"t{i}", rollout={"maxConcurrent": 6, "perTopology": [{"key": RACK, "max": 1}]}) for i in range(3)]
    free = [profile(f"f{i}", rollout={"maxConcurrent": 6}) for i in range(5)]
    run = tuple(job(name, "t0") for name in ("n0", "n1"))
    decided = plan(seen(*tight, *free, jobs=run, pods=tuple(map(pod, run))))
    waits = [s.reason for item in decided.profiles[3:] for s in item.node_states]
    assert waits.count("LimitOfAnotherProfile") == 5 * 4
    assert sorted(asked) == sorted([*NAMES[2:]] * 2), "two of three profiles are enough for each"


OLD = NOW - timedelta(seconds=61)
ELSEWHERE = {"nodeNames": ["another"]}
THEIR_JOB = job("n0", "b0", namespace="b", created=OLD)
MEMORY = {THEIR_JOB.uid: "n0"}
YOUNG_JOB, HELD_BACK = replace(THEIR_JOB, created=NOW), replace(THEIR_JOB, suspended=True)
ENDED = replace(YOUNG_JOB, finished="Complete", deleting=True)
ELSE, BARE = pod(THEIR_JOB, node_name="n5"), pod(THEIR_JOB, holds_gpus=False)
ENDING = pod(THEIR_JOB, deleting_since=NOW + timedelta(days=1))
COUNTS: dict[str, tuple[bool, bool, dict[str, Any]]] = {
    "a Job that Kueue has not admitted": (True, True, {"jobs": (HELD_BACK,)}),
    "a Job without a pod": (True, True, {"jobs": (THEIR_JOB,)}),
    "a Job whose pod is not bound": (True, True, {"jobs": (THEIR_JOB,), "pods": (pod(THEIR_JOB, "Pending"),)}),
    "a Job whose pod is bound without GPUs": (True, True, {"jobs": (THEIR_JOB,), "pods": (BARE,)}),
    "a suspended Job with a pod by hand": (True, True, {"jobs": (HELD_BACK,), "pods": (pod(THEIR_JOB),)}),
    "a Job with a pod by hand elsewhere": (True, True, {"jobs": (THEIR_JOB,), "pods": (ELSE,), "own_jobs": MEMORY}),
    "a finished Job that a finalizer keeps": (True, False, {"jobs": (ENDED,)}),
    "a new Job of another node": (True, False, {"jobs": (YOUNG_JOB,), "own_jobs": {THEIR_JOB.uid: "n5"}}),
    "a new Job": (False, False, {"jobs": (YOUNG_JOB,)}),
    "a Job whose pod is bound": (False, False, {"jobs": (THEIR_JOB,), "pods": (pod(THEIR_JOB),)}),
    "a bound pod that ends in a day": (False, False, {"jobs": (THEIR_JOB,), "pods": (ENDING,)}),
    "a bound pod whose Job is gone": (False, False, {"pods": (pod(THEIR_JOB),), "own_jobs": MEMORY}),
}


def withdrawn(decided: Plan) -> list[str]:
    return [*dict.fromkeys(a.name for a in decided.actions if isinstance(a, Drop) and a.reason == "Withdrawn")]


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


MINUTE = timedelta(minutes=1)
HOUR = 60 * MINUTE


def vain(minutes: float, ago: timedelta = 10 * MINUTE, *nodes: str) -> dict[str, Vain]:
    """What namespace b has had in vain, on these nodes, else on any."""
    return {"b": Vain(minutes * MINUTE, NOW - ago, NOW - ago, dict.fromkeys(nodes or [""], NOW - ago))}


@pytest.mark.parametrize(("before", "turn"), [({}, YOUNG), (vain(1), 10 * MINUTE), (vain(14.5), MINUTE / 2)])
def test_the_plan_is_made_again_when_a_job_stops_counting(before: dict[str, Vain], turn: timedelta) -> None:
    there = replace(THEIR_JOB, created=NOW - turn + timedelta(seconds=1))
    world = seen(profile(target=ELSEWHERE), profile("b0", namespace="b"), jobs=(there,), vain=before)
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


@pytest.mark.parametrize(("before", "starts"), [({}, 2), (vain(1), 0), (vain(11), 2), (vain(15), 2)])
def test_a_namespace_whose_first_turn_got_no_node_keeps_its_places_longer(before: dict[str, Vain], starts: int) -> None:
    waiting = tuple(job(n, "b0", namespace="b", created=OLD) for n in ("n0", "n1"))
    ours = profile(target={"nodeNames": ["n0", "n2"]}, rollout={"maxConcurrent": 2})
    world = seen(ours, profile("b0", namespace="b", target=ELSEWHERE), jobs=waiting, vain=before)
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=2))))
    assert len([a for a in decided.actions if isinstance(a, Start)]) == starts
    assert len(withdrawn(decided)) == starts


REFUSED = pod(THEIR_JOB, "Failed")
GOING = {"jobs": (replace(THEIR_JOB, created=NOW, deleting=True),)}
TURNS: dict[str, tuple[dict[str, Any], float, dict[str, Any], dict[str, Any]]] = {
    "its Job went without a node": ({}, 1, {}, vain(1, 0 * MINUTE)),
    "its Job went at once": ({}, 0.5, {}, vain(0.5, 0 * MINUTE)),
    "its Job is deleted and a finalizer keeps it": ({}, 0, GOING, {"b": Vain(MINUTE, NOW + MINUTE, NOW)}),
    "its Job went late": ({}, 99, {}, {"b": Vain(MINUTE, NOW - 98 * MINUTE, NOW)}),
    "its Job still waits": ({}, 1, {"jobs": (THEIR_JOB,)}, {}),
    "so did one of the next turn": (vain(1), 10, {}, vain(11, 0 * MINUTE)),
    "so did another one that waited beside it": (vain(11), 11, {}, vain(11)),
    "its pod is bound": (vain(11), 1, {"pods": (pod(THEIR_JOB),)}, vain(11)),
    "its pod is bound without GPUs": (vain(1), 10, {"pods": (pod(THEIR_JOB, holds_gpus=False),)}, vain(11, 0 * MINUTE)),
    "its pod was refused by the kubelet": (vain(1), 10, {"pods": (REFUSED,)}, vain(11, 0 * MINUTE)),
    "its pod ran and failed": (vain(11), 1, {"pods": (replace(REFUSED, started_at=NOW),)}, vain(11)),
    "that was a day ago": (vain(14, KEPT), 1, {}, vain(15, 0 * MINUTE)),
    "that was long ago": (vain(11, 2 * KEPT), 1, {}, vain(1, 0 * MINUTE)),
    "all was spent a day ago": (vain(15, KEPT), 1, {}, {}),
    "its clock is ahead": ({}, -1, {}, {}),
    "there is nothing left": (vain(15), 5, {}, vain(15)),
}


@pytest.mark.parametrize(("before", "age", "there", "after"), TURNS.values(), ids=TURNS)
def test_time_without_a_node_is_remembered_also_when_a_pod_is_bound(
    before: dict[str, Any], age: float, there: dict[str, Any], after: dict[str, Any]
) -> None:
    waited = {THEIR_JOB.uid: replace(THEIR_JOB, created=NOW - age * MINUTE)}
    found = time_in_vain(before, waited, seen(**there))
    assert {name: row[:3] for name, row in found.items()} == {name: row[:3] for name, row in after.items()}


LATE = {"pods": (pod(replace(THEIR_JOB, created=NOW - 5 * MINUTE)),)}
MARKS: dict[str, tuple[dict[str, Any], float, bool, dict[str, Any], dict[str, bool]]] = {
    "its Job went without a node": ({}, 1, False, {}, {"n0": True, "n1": False}),
    "so did another one beside it": (vain(2, MINUTE, "n1"), 2, False, {}, {"n0": True, "n1": True}),
    "its queue did not let it go": ({}, 1, True, {}, {"n0": True, "n1": True}),
    "its pod is bound at once": (vain(1, MINUTE, "n0", "n2"), 0, False, {"pods": (pod(THEIR_JOB),)}, {"n0": False}),
    "its queue let it go at once": (vain(1), 0, False, {"pods": (pod(THEIR_JOB),)}, {"n0": False, "n1": False}),
    "its pod is bound late": (vain(1, HOUR, "n0"), 5, False, LATE, {"n0": True, "n1": True}),
}


@pytest.mark.parametrize(("before", "age", "suspended", "there", "last"), MARKS.values(), ids=MARKS)
def test_where_a_job_went_without_a_node_is_remembered_by_node(
    before: dict[str, Any], age: float, suspended: bool, there: dict[str, Any], last: dict[str, bool]
) -> None:
    waited = {THEIR_JOB.uid: replace(THEIR_JOB, created=NOW - age * MINUTE, suspended=suspended)}
    row = time_in_vain(before, waited, seen(**there))["b"]
    assert {node: row.last(node) is not None for node in last} == last


@pytest.mark.parametrize(
    ("minutes", "turn", "on_another"),
    [(1, 10, 1), (4, 10, 1), (5, 9, 9), (7, 4, 4), (11, 1, 1), (14, 1, 1), (14.5, 0.5, 0.5), (15, 0, 0)],
)
def test_nodes_not_in_vain_are_tried_for_a_minute_one_by_one(minutes: float, turn: float, on_another: float) -> None:
    row = vain(minutes, MINUTE, "n0")
    assert [turn_on(node, row["b"])[0] for node in ("n0", "n1")] == [turn * MINUTE, on_another * MINUTE]


@pytest.mark.parametrize(
    ("before", "nodes", "first"),
    [
        (vain(1, MINUTE, "n0"), ["n0", "n1"], "n1"),
        (vain(13, MINUTE, "n0", "n2"), ["n0", "n1", "n2"], "n1"),
        (vain(1, MINUTE, "n0"), ["n0"], "n3"),
        (vain(14, MINUTE, "n0"), ["n0", "n1"], "n3"),
        (vain(1, MINUTE), ["n0", "n1"], "n3"),
    ],
)
def test_a_node_that_takes_no_agents_comes_last_and_holds_up_no_other(
    before: dict[str, Any], nodes: list[str], first: str
) -> None:
    at_once = {"maxConcurrent": 6}
    theirs = profile("b0", namespace="b", created=NOW - 99 * HOUR, target={"nodeNames": nodes}, rollout=at_once)
    world = seen(profile(target={"nodeNames": ["n3"]}), theirs, vain=before)
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=1))))
    assert [a.facts.name for a in decided.actions if isinstance(a, Start)] == [first]
    free = [a.facts.name for a in plan(world).actions if isinstance(a, Start) and a.profile.namespace == "b"]
    assert free == sorted(nodes, key=lambda name: before["b"].last(name) is not None)


LAST = (
    (0.9, 10 * MINUTE),
    (1, 10 * MINUTE),
    (11, 2 * HOUR),
    (12, 4 * HOUR),
    (13, 8 * HOUR),
    (14, 24 * HOUR),
    (15, 24 * HOUR),
)


@pytest.mark.parametrize(("minutes", "rest"), LAST)
def test_a_namespace_whose_turns_got_no_node_comes_last(minutes: float, rest: timedelta) -> None:
    target = {"nodeNames": ["n0"]}
    theirs = replace(profile("b0", namespace="b", target=target), created=NOW - timedelta(days=99))
    worlds = [seen(profile(target=target), theirs, vain=vain(minutes, ago)) for ago in (rest - MINUTE / 60, rest)]
    first = [a.profile.namespace for world in worlds for a in plan(world).actions if isinstance(a, Start)]
    assert first == (["ml", "b"] if rest else ["b", "b"])


def test_pods_of_unknown_profiles_are_seen_and_hold_nothing_of_anybody() -> None:
    own, lost = job("n0"), job("n0", "gone", namespace="b")
    assert within_namespace([own, lost], {"uid-nightly": "ml"}) == (own, lost)
    pods = [pod(own), pod(lost), replace(pod(own), namespace="b", profile_uid="")]
    assert pods_within_namespace(pods, {"uid-nightly": "ml"}, {own.uid: "ml"}) == (*pods[:2],)
    beside = seen(profile(target={"nodeNames": ["n0"]}), pods=(pod(lost),), own_jobs={})
    assert [a.facts.name for a in plan(beside).actions if isinstance(a, Start)] == ["n0"], "who holds GPUs is looked at"


@pytest.mark.parametrize("scheduled", [NOW - STARTED_WITHIN - MINUTE, NOW], ids=["once", "made anew"])
@pytest.mark.parametrize(("cap", "stuck", "kept"), [(4, 2, 2), (4, 3, 2), (4, 4, 2), (1, 1, 0)])
def test_agents_that_do_not_start_keep_their_namespaces_share_of_the_places(
    cap: int, stuck: int, kept: int, scheduled: datetime
) -> None:
    """Their image is pulled for more than half an hour, from a slow registry or none; or pods by hand stand there."""
    begun = NOW - STARTED_WITHIN - MINUTE
    theirs = tuple(job(name, "b0", namespace="b", created=begun) for name in NAMES[:stuck])
    pods = tuple(pod(there, "Pending", scheduled_at=scheduled, created=scheduled) for there in theirs)
    ours = profile(target={"nodeNames": list(NAMES)}, rollout={"maxConcurrent": 6})
    waits = {"startTimeoutSeconds": 86_400}
    sleeps, bad = profile("c0", namespace="c", suspend=True), replace(profile("d0", namespace="d"), spec=None)
    patient = profile("b0", namespace="b", target=ELSEWHERE, idle=waits)
    profiles = (ours, sleeps, replace(bad, problem="unread"), patient)
    world = seen(*profiles, jobs=theirs, pods=pods)
    world = replace(world, agents_since={there.uid: begun for there in theirs})
    decided = plan(replace(world, settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=cap))))
    started = [a.facts.name for a in decided.actions if isinstance(a, Start)]
    assert len(started) == min(cap - kept, len(NAMES) - stuck)
    assert not {*started} & {*NAMES[:stuck]}
    assert stuck - len(withdrawn(decided)) == kept


@pytest.mark.parametrize("first", [True, False])
def test_a_pod_by_hand_elsewhere_takes_the_place_of_no_agent(first: bool) -> None:
    """For each of its Jobs a tenant makes a pod that names one node: else all their agents are one place."""
    theirs = tuple(job(name, "b0", namespace="b") for name in ("n0", "n1", "n2", "n3"))
    real, forged = ([pod(of, **changes) for of in theirs] for changes in ({}, {"node_name": "n5"}))
    world = seen(jobs=theirs, pods=(*forged, *real) if first else (*real, *forged))
    assert held_nodes(world) == {of.uid: of.node_name for of in theirs}
    waiting = seen(profile("b0", namespace="b"), jobs=theirs, pods=forged)
    assert waiting_jobs(waiting).keys() == {of.uid for of in theirs}, "all wait, and count"
    ends = [a for a in plan(waiting).actions if isinstance(a, Close)]
    assert [(a.job.name, a.outcome, a.reason) for a in ends] == [(of.name, "failed", "ResultForeign") for of in theirs]
    finished = tuple(replace(of, finished="Complete") for of in theirs)
    assert {type(a) for a in plan(replace(waiting, jobs=finished)).actions if not isinstance(a, Start)} == {Collect}
    assert {type(a) for a in plan(replace(waiting, pods=tuple(real))).actions} <= {Start}


@pytest.mark.parametrize("seconds", [1800, 5400, 9**9])
@pytest.mark.parametrize(("gone", "late", "starts"), [(True, -1, 0), (True, 1, 2), (False, -1, 0), (False, 1, 2)])
def test_pods_that_are_made_anew_for_ever_keep_their_namespaces_share_alone(
    gone: bool, late: int, starts: int, seconds: int
) -> None:
    """Half an hour to start, and where their Job is there its own deadline and a minute, the longest one at most."""
    theirs = tuple(job(name, "b0", namespace="b", deadline_seconds=seconds) for name in OURS)
    ago = 30 + late + (0 if gone else min(seconds // 60, 90) + 1)
    ours = profile(target={"nodeNames": list(THEIRS)}, rollout={"maxConcurrent": 6})
    pods = tuple(pod(of, started_at=NOW) for of in theirs)
    world = seen(ours, jobs=() if gone else theirs, pods=pods)
    seen_first = replace(world, now=NOW - ago * MINUTE)
    suspended = replace(world, jobs=tuple(replace(of, suspended=True) for of in world.jobs))
    since = agents_since(agents_since(agents_since({}, seen_first), suspended), world)
    limited = replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=4))
    decided = plan(replace(world, settings=limited, agents_since=since))
    assert len([a for a in decided.actions if isinstance(a, Start)]) == starts


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
def test_the_operators_limits_hold_for_agents_of_all_namespaces_together(
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
    world = replace(
        observed([*many, profile(rollout={"maxConcurrent": 6})], nodes(*NAMES)),
        settings=replace(SETTINGS, fleet_limits=FleetLimits(max_concurrent=places)),
    )
    starts = [a.profile.namespace for a in plan(world).actions if isinstance(a, Start)]
    assert len(starts) == places
    assert starts.count("ml") >= places // 2
