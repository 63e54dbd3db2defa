"""What a tenant makes changes nothing for others but by what it holds: in a thousand worlds, and over hours."""

import pytest

from precision_operator.core.admission import turns
from precision_operator.core.admission.budget_view import FleetView
from precision_operator.core.attempts import yielding
from precision_operator.core.attempts.yielding import MOST_IN_VAIN
from precision_operator.core.observe import tenants
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import Observed
from precision_operator.core.plan import Plan, plan
from tests.support.non_interference import shared_fleet, worlds
from tests.support.non_interference.hostile_objects import TRICKS
from tests.support.non_interference.hostile_waits import most_in_vain
from tests.support.non_interference.shared_fleet import (
    BOUND,
    NEVER_BOUND,
    NODES,
    SOON,
    Behaviour,
    SharedFleet,
    Slow,
    first_start_on_free_nodes,
    fleet,
    kept,
    late,
    longest_short,
    longest_short_of_its_share,
    with_blocked_nodes,
    with_nodes_of_its_own,
)
from tests.support.non_interference.worlds import Drawn, check, first_differing
from tests.support.situations import SITUATIONS
from tests.support.world import MINUTE, profile

WORLDS = 1000
SEEN_TO_DIFFER = (8555,)
"""Worlds beyond these in which something once did."""
FLEETS = 6


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return check([*range(WORLDS), *SEEN_TO_DIFFER])


def test_others_fare_the_same_with_a_tenants_objects_and_with_what_these_hold(drawn: Drawn) -> None:
    assert drawn.differing == {}


def test_each_kind_of_object_is_in_a_fifth_of_the_worlds_and_each_reason_in_some(drawn: Drawn) -> None:
    assert {kind for kind in TRICKS if drawn.kinds[kind] < drawn.worlds / 5} == set()
    assert set(SITUATIONS) - drawn.reasons.keys() == set()


def late_beside(number: int, behaves: Behaviour) -> list[str]:
    return late(fleet(f"late/{number}", behaves, False), fleet(f"late/{number}", behaves, True))


@pytest.mark.parametrize("behaves", NEVER_BOUND)
def test_nobody_starts_late_beside_a_tenant_whose_agents_get_no_node(behaves: Behaviour) -> None:
    assert {number: why for number in range(FLEETS) if (why := late_beside(number, behaves))} == {}


@pytest.mark.parametrize("behaves", NEVER_BOUND)
@pytest.mark.parametrize("cap", [None, 2])
def test_nobody_starts_late_beside_a_tenant_whose_agents_run_on_its_own_node_alone(
    cap: int | None, behaves: Behaviour
) -> None:
    """Than beside one whose agents run on as many nodes, and have its share of the places."""
    alone, beside = (with_nodes_of_its_own(cap, behaves, wants_others) for wants_others in (False, True))
    assert late(alone, beside, steps=60 if cap is None else 100) == []


@pytest.mark.parametrize("behaves", NEVER_BOUND)
def test_a_tenant_keeps_a_place_without_a_pod_for_no_more_than_fifteen_minutes(behaves: Behaviour) -> None:
    assert MINUTE <= kept("kept/1", behaves, steps=300) <= 15 * MINUTE


SLOW = {
    "a queue of eight minutes": Slow({"ml": 8}),
    "a queue of four minutes, four at once": Slow({"ml": 4}, cap=4),
    "a queue of eight minutes, four at once": Slow({"ml": 8}, cap=4, nodes=9),
    "a queue of eight minutes, one at once": Slow({"ml": 8}, cap=1),
    "a scheduler of two minutes": Slow({"ml": 2}, queued=False),
    "a scheduler of four minutes, two at once": Slow({"ml": 4}, cap=2, queued=False),
    "a scheduler of eight minutes, four at once": Slow({"ml": 8}, cap=4, queued=False),
    "a slow one and a fast one": Slow({"ml": 0, "lab": 8}, nodes=3),
    "a slow one and a fast one, two at once": Slow({"ml": 0, "lab": 8}, cap=2, nodes=3),
    "two slow ones, one at once": Slow({"ml": 4, "lab": 8}, cap=1, nodes=2),
    "four of each kind, four at once": Slow({"ml": 0, "lab": 2, "ops": 4, "web": 8}, cap=4, nodes=2, queued=False),
}


@pytest.mark.parametrize("behaves", ["runs", *NEVER_BOUND])
@pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW)
def test_whose_agents_wait_for_a_node_get_it_beside_a_tenant(slow: Slow, behaves: Behaviour) -> None:
    assert slow.unmeasured(behaves, steps=240) == {}


@pytest.mark.parametrize("slow", [slow for slow in SLOW.values() if len(slow.waits) == 1])
@pytest.mark.parametrize("behaves", NEVER_BOUND)
def test_whose_agents_wait_for_a_node_start_no_later_beside_a_tenant(slow: Slow, behaves: Behaviour) -> None:
    assert late(slow.fleet(behaves, False), slow.fleet(behaves, True)) == []


@pytest.mark.parametrize("behaves", BOUND)
def test_each_namespace_has_its_share_of_what_all_may_have(behaves: Behaviour) -> None:
    assert max(longest_short_of_its_share(f"share/{number}", behaves) for number in range(FLEETS)) <= SOON[behaves]


@pytest.mark.parametrize("new_leader", [0, 8])
@pytest.mark.parametrize(("cap", "blocked"), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 5), (4, 1), (4, 2), (4, 5)])
def test_nodes_without_agents_cost_their_namespace_nothing_on_others(cap: int, blocked: int, new_leader: int) -> None:
    alone, beside = (with_blocked_nodes(cap, blocked, with_tenant) for with_tenant in (False, True))
    assert first_start_on_free_nodes(beside, new_leader) <= first_start_on_free_nodes(alone) + 15 * MINUTE


@pytest.mark.parametrize(("cap", "blocked"), [(2, 1), (2, 5), (4, 2)])
def test_nodes_that_take_no_agents_leave_their_namespace_its_share(cap: int, blocked: int) -> None:
    assert longest_short(with_blocked_nodes(cap, blocked, True), 60) <= 15 * MINUTE


@pytest.mark.parametrize("cap", [None, 1])
def test_namespaces_without_time_left_do_not_withdraw_each_others_jobs_for_ever(cap: int | None) -> None:
    """No agent gets a node for 40 minutes; then each does a minute after its Job."""
    names = [*NODES[:4]]
    rollout = {"maxConcurrent": 10}
    profiles = (profile(of, namespace=of, target={"nodeNames": names}, rollout=rollout) for of in ("ml", "lab"))
    shared = SharedFleet(FleetLimits(max_concurrent=cap), (*profiles,), "runs", blocked=frozenset(names))
    for _ in range(40):
        shared.step()
    shared.blocked, shared.slow = frozenset(), dict.fromkeys(("ml", "lab"), MINUTE)
    for _ in range(60):
        shared.step()
    measured = {report.namespace for report in shared.reports.values() if report.status and report.status.run}
    assert measured == {"ml", "lab"}


def test_three_agents_an_hour_are_ended_in_vain_for_pods_that_come_and_go() -> None:
    assert max(most_in_vain(f"waits/{number}") for number in range(16)) == MOST_IN_VAIN


# Each property finds what it is for, where the protection is taken out.


def _by_what_they_say(seen: Observed) -> dict[str, str]:
    """All that is not over holds the node that it names, whoever made it."""
    pods = {pod.job_uid: pod.node_name for pod in seen.pods if pod.live}
    return pods | {job.uid: job.node_name for job in seen.jobs if job.live}


def test_jobs_and_pods_that_count_by_what_they_say_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "held_nodes", _by_what_they_say)
    assert first_differing(range(WORLDS)) is not None


def test_pods_that_hold_no_gpus_where_they_are_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (worlds, shared_fleet):
        monkeypatch.setattr(module, "holding", lambda pods, nodes, claimed: tuple(pods))
    assert first_differing(range(WORLDS)) is not None
    assert any(late_beside(number, "remade") for number in range(FLEETS))


def test_watts_of_the_fleet_that_reports_tell_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Observed] = []
    by_admin = FleetView.watts

    def remembered(world: Observed) -> Plan:
        planned.append(world)
        return plan(world)

    def watts(view: FleetView, facts: NodeFacts) -> tuple[int, str] | None:
        reported = turns._limit(planned[-1].filed.values(), {}, "", facts.uid)
        return (reported, "enforced limits") if reported is not None else by_admin(view, facts)

    monkeypatch.setattr(worlds, "plan", remembered)
    monkeypatch.setattr(FleetView, "watts", watts)
    assert first_differing(range(WORLDS)) is not None


def test_a_queue_that_admits_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "held_nodes", _by_what_they_say)
    assert late_beside(0, "queued")


def test_agents_that_are_ended_for_pods_without_end_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yielding, "may_ask", lambda pod, yields: pod.uid not in {record.pod_uid for record in yields})
    assert max(most_in_vain(f"waits/{number}") for number in range(4)) > MOST_IN_VAIN
