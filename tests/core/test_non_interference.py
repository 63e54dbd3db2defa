"""What a tenant makes changes nothing for others but by what it holds: in a thousand worlds, and over hours."""

from __future__ import annotations

from random import Random

import pytest

from precision_operator.core.admission import others, turns
from precision_operator.core.admission.budget_view import FleetView
from precision_operator.core.attempts import yielding
from precision_operator.core.attempts.yielding import MOST_IN_VAIN
from precision_operator.core.observe.fleet_limits import FleetLimits
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import Observed
from precision_operator.core.plan import Plan, plan
from tests.support.non_interference import worlds
from tests.support.non_interference.hostile_objects import TENANT, TRICKS
from tests.support.non_interference.hostile_waits import most_in_vain
from tests.support.non_interference.shared_fleet import (
    BOUND,
    NEVER_BOUND,
    NODES_OF,
    QUEUE,
    SOON,
    Behaviour,
    fleet,
    late,
    longest_short_of_its_share,
)
from tests.support.non_interference.worlds import Drawn, check, first_differing
from tests.support.situations import SITUATIONS
from tests.support.world import MINUTE, profile

WORLDS = 1000
FLEETS = 12


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return check(range(WORLDS))


def test_others_fare_the_same_with_a_tenants_objects_and_with_what_these_hold(drawn: Drawn) -> None:
    assert drawn.differing == {}


def test_each_kind_of_object_is_in_a_fifth_of_the_worlds_and_each_reason_in_some(drawn: Drawn) -> None:
    assert {kind for kind in TRICKS if drawn.kinds[kind] < drawn.worlds / 5} == set()
    assert set(SITUATIONS) - drawn.reasons.keys() == set()


@pytest.mark.parametrize("behaves", NEVER_BOUND)
def test_nobody_starts_late_beside_a_tenant_whose_agents_get_no_node(behaves: Behaviour) -> None:
    assert {number: why for number in range(FLEETS) if (why := late(f"late/{number}", behaves))} == {}


def test_a_queue_that_takes_its_time_gets_its_agents_beside_a_tenant_whose_agents_get_no_node() -> None:
    """Each of these takes the node for a minute, without a queue: a Job that waits for Kueue must not go for it."""
    shared = fleet(Random("queue"), "unschedulable", True)
    shared.limits, shared.admits_after = FleetLimits(), 4 * MINUTE
    queued = profile(target={"nodeNames": [*NODES_OF["ml"]]}, rollout={"maxConcurrent": 10}, agent={"queueName": QUEUE})
    shared.profiles = (queued, *(each for each in shared.profiles if each.namespace == TENANT))
    for _ in range(20):
        shared.step()
    measured = [report for (uid, _), report in shared.reports.items() if uid == queued.uid and report.status]
    assert len(measured) == len(NODES_OF["ml"])


@pytest.mark.parametrize("behaves", BOUND)
def test_each_namespace_has_its_share_of_what_all_may_have(behaves: Behaviour) -> None:
    assert max(longest_short_of_its_share(f"share/{number}", behaves) for number in range(FLEETS)) <= SOON[behaves]


def test_three_agents_an_hour_are_ended_in_vain_for_pods_that_come_and_go() -> None:
    assert max(most_in_vain(f"waits/{number}") for number in range(16)) == MOST_IN_VAIN


# Each property finds what it is for, where the protection is taken out.


def _by_what_they_say(seen: Observed) -> dict[str, str]:
    """All that is not over holds the node that it names, whoever made it."""
    pods = {pod.job_uid: pod.node_name for pod in seen.pods if pod.live}
    return pods | {job.uid: job.node_name for job in seen.jobs if job.live}


def test_jobs_and_pods_that_count_by_what_they_say_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "held_nodes", _by_what_they_say)
    assert first_differing(range(WORLDS)) is not None


def test_watts_of_the_fleet_that_reports_tell_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Observed] = []
    by_admin = FleetView.watts

    def remembered(world: Observed) -> Plan:
        planned.append(world)
        return plan(world)

    def watts(view: FleetView, facts: NodeFacts) -> tuple[int, str] | None:
        reported = turns._limits(planned[-1].reports).get(facts.uid)
        return (reported, "enforced limits") if reported is not None else by_admin(view, facts)

    monkeypatch.setattr(worlds, "plan", remembered)
    monkeypatch.setattr(FleetView, "watts", watts)
    assert first_differing(range(WORLDS)) is not None


def test_a_queue_that_admits_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "held_nodes", _by_what_they_say)
    assert late("late/0", "queued")


def test_agents_that_are_ended_for_pods_without_end_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yielding, "may_ask", lambda pod, yields: pod.uid not in {record.pod_uid for record in yields})
    assert max(most_in_vain(f"waits/{number}") for number in range(4)) > MOST_IN_VAIN
