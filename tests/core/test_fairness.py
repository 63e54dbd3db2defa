"""Profiles that always have something to measure share the nodes: none waits for ever, and none is favoured."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.attempts.actions import Start
from precision_operator.core.observe.observed import ProfileView
from precision_operator.core.plan import plan
from tests.support.examples import examples
from tests.support.node_objects import node_object
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.world import MINUTE, NOW, at_once, job, measured, nodes, observed, profile, report, tried

ALWAYS = {"schedule": {"maxAge": "1s"}}
NODES = ("n1", "n2", "n3")


@st.composite
def greedy(draw: st.DrawFn) -> list[ProfileView]:
    """Two to four profiles of different ages that are always due, each on one node or more."""
    count = draw(st.integers(2, 4))
    ages = draw(st.permutations(range(count)))
    return [
        profile(
            f"p{i}",
            created=NOW - ages[i] * MINUTE,
            rollout=at_once(draw(st.integers(1, 3))),
            target={"nodeNames": sorted(draw(st.sets(st.sampled_from(NODES), min_size=1)))},
            **ALWAYS,
        )
        for i in range(count)
    ]


def measure_a_round(cluster: SimulatedCluster) -> None:
    """Whoever may start starts, and whoever runs ends."""
    cluster.reconcile()
    cluster.create_pods()
    cluster.schedule()
    for name in cluster.running():
        cluster.end(name, "succeeded")
    cluster.pass_time(5 * MINUTE)


@given(profiles=greedy())
@examples(10, many=400)
def test_each_profile_gets_a_start_within_as_many_turns_as_there_are_profiles(profiles: list[ProfileView]) -> None:
    cluster = SimulatedCluster()
    cluster.nodes = nodes(*NODES)
    cluster.profiles = {each.uid: each for each in profiles}
    turns = 2 * len(profiles)  # a turn takes two rounds: one starts agents, one reads what they have left
    for _ in range(4):
        before = dict(cluster.starts)
        for _ in range(turns):
            measure_a_round(cluster)
        assert all(cluster.starts[uid] > before.get(uid, 0) for uid in cluster.profiles), (before, cluster.starts)


def test_the_young_and_the_idle_come_first_whatever_a_wrong_clock_says() -> None:
    old, young = profile("old", created=NOW - 9 * MINUTE, **ALWAYS), profile("young")
    done = report(owner="old", status=measured(startedAt="2026-11-21T08:50:00Z", ago=timedelta(minutes=1)))
    decided = plan(observed([old, young], reports=(done,)))
    assert [item.node_states[0].reason for item in decided.profiles] == ["MeasuredByAnotherProfile", "AgentStarting"]
    first, second = profile("first", created=NOW - MINUTE, **ALWAYS), profile("second", **ALWAYS)
    ahead = report(owner="first", status=measured(startedAt="2030-01-01T00:00:00Z", ago=timedelta(minutes=9), basis={}))
    lately = report(owner="second", status=measured(startedAt="2026-11-21T08:50:00Z", ago=timedelta(minutes=1)))
    decided = plan(observed([first, second], reports=(ahead, lately)))
    assert [item.node_states[0].reason for item in decided.profiles] == ["AgentStarting", "MeasuredByAnotherProfile"]
    busy, idle = profile("busy", created=NOW - MINUTE, rollout=at_once(9)), profile("idle")
    seen = observed([busy, idle], nodes("n1", "n2"), jobs=(job("n1", "busy"),))
    second = {item.profile.name: item.node_states[1].reason for item in plan(seen).profiles}
    assert second == {"busy": "MeasuredByAnotherProfile", "idle": "AgentStarting"}


def test_what_somebody_asks_for_comes_first_and_the_order_of_lists_is_none() -> None:
    fleet = {f"uid-{n}": node_object(name=n) for n in NODES}
    three = [replace(profile(f"p{i}"), created=NOW - i * MINUTE) for i in range(3)]
    one, other = (plan(observed(order, fleet)) for order in (three, three[::-1]))
    told = [{(p.profile.name, s.facts.name): s.reason for p in d.profiles for s in p.node_states} for d in (one, other)]
    assert told[0] == told[1]
    asked = report("n9", status=tried("succeeded", startedAt="2026-11-21T08:40:00Z"), rerun="now")
    world = observed([profile()], nodes("n1", "n9"), reports=(asked,))
    (start,) = (action for action in plan(world).actions if isinstance(action, Start))
    assert start.facts.name == "n9"


def test_nodes_that_were_never_tried_come_before_one_that_was_and_the_longest_ago_before_the_newest() -> None:
    tried_then = {"n1": "2026-11-21T08:40:00Z", "n2": "2026-11-21T08:30:00Z", "n4": "2031-01-01T00:00:00Z"}
    reports = tuple(
        report(name, status=tried("disrupted", ago=9 * MINUTE, startedAt=at)) for name, at in tried_then.items()
    )
    order: list[str] = []
    for _ in range(4):
        seen = observed([profile()], nodes("n1", "n2", "n3", "n4"), dict.fromkeys(order, "team/train"), reports=reports)
        order += [action.facts.name for action in plan(seen).actions if isinstance(action, Start)]
    assert order == ["n3", "n4", "n2", "n1"], "a start that lies ahead is from a clock that has jumped back"


def test_nodes_that_no_agent_is_ever_scheduled_on_do_not_keep_the_others_waiting() -> None:
    cluster = SimulatedCluster()
    bad, good = {"a1", "a2"}, {f"n{i:02}" for i in range(20)}
    cluster.nodes = nodes(*sorted(bad | good))
    cluster.unschedulable = set(bad)
    cluster.profiles = {"uid-nightly": profile()}
    second_try: list[str] = []
    for _ in range(3 * len(bad | good)):
        measure_a_round(cluster)
        cluster.collect_garbage()
        if measured_nodes(cluster) == good:
            break
        tries = Counter(start.node_uid for start in cluster.begun)
        second_try += [uid for uid, times in tries.items() if times > 1]
    assert second_try == [], "before every good node was measured"
    assert measured_nodes(cluster) == good


def measured_nodes(cluster: SimulatedCluster) -> set[str]:
    return {node_uid.removeprefix("uid-") for _, node_uid in cluster.results}


LONGEST = {"unschedulable": 5 * MINUTE, "hangs": 31 * MINUTE, "dies": 7 * MINUTE, "refuses": 0 * MINUTE}
"""How long the worst attempt on such a node may hold its place, by what is wrong with the node."""
RUN = 2 * MINUTE
"""How long a good node's agent takes."""
STEP = MINUTE
REFUSAL = 'admission webhook "policy.example" denied the request: not on this node'


@st.composite
def mixed(draw: st.DrawFn) -> tuple[int, list[str], int]:
    """(good nodes, what is wrong with each bad one, maxConcurrent)."""
    bad = draw(st.lists(st.sampled_from(sorted(LONGEST)), max_size=4))
    return draw(st.integers(1, 4)), bad, draw(st.integers(1, 3))


def fleet(good: int, bad: list[str], limit: int) -> SimulatedCluster:
    """Bad nodes come first by name."""
    cluster = SimulatedCluster()
    wrong = {f"a{place}-{what}": what for place, what in enumerate(bad)}
    cluster.nodes = nodes(*wrong, *(f"n{i}" for i in range(good)))
    cluster.unschedulable = {name for name, what in wrong.items() if what == "unschedulable"}
    cluster.dying = {name for name, what in wrong.items() if what == "dies"}
    cluster.refusing = {f"uid-{name}": REFUSAL for name, what in wrong.items() if what == "refuses"}
    cluster.profiles = {"uid-nightly": profile(rollout=at_once(limit))}
    return cluster


def a_minute_passes(cluster: SimulatedCluster) -> None:
    """Everybody does their work; agents of good nodes end when their time has come, those of hanging nodes never."""
    cluster.reconcile()
    cluster.create_pods()
    cluster.schedule()
    cluster.look_after_silent_nodes()
    for name in cluster.running():
        pod = cluster.pods[cluster.jobs[name].uid]
        works = pod.node_name not in cluster.silent and not pod.node_name.endswith("hangs")
        if works and pod.started_at is not None and cluster.now - pod.started_at >= RUN:
            cluster.end(name, "succeeded")
    cluster.collect_garbage()
    cluster.pass_time(STEP)


@given(world=mixed())
@examples(40)
def test_every_good_node_is_measured_in_time_whatever_the_others_do(world: tuple[int, list[str], int]) -> None:
    good, bad, limit = world
    cluster = fleet(*world)
    longest = max([RUN, *(LONGEST[what] for what in bad)]) + 2 * STEP  # a step to start, one to read the end
    rests = 10 * MINUTE * bad.count("refuses")
    last = cluster.now + ceil((good + len(bad)) / limit) * longest + rests
    while cluster.now <= last and len(cluster.results) < good:
        a_minute_passes(cluster)
    assert len(measured_nodes(cluster)) == good, f"{cluster.results} by {cluster.now}, asked for by {last}"


def test_a_bad_node_costs_less_and_less_and_is_measured_once_it_is_mended() -> None:
    cluster = fleet(1, ["dies", "hangs", "unschedulable"], 3)
    for _ in range(10 * 60):
        a_minute_passes(cluster)
    tries = Counter(start.node_uid.removeprefix("uid-") for start in cluster.begun)
    assert (tries["a0-dies"], tries["a1-hangs"]) == (3, 3), "quarantined, and out of retries"
    assert 8 <= tries["a2-unschedulable"] <= 16, "an hour's rest at most: there may be room tomorrow"
    cluster.unschedulable.clear()
    for _ in range(2 * 60):
        a_minute_passes(cluster)
    assert measured_nodes(cluster) == {"n0", "a2-unschedulable"}
