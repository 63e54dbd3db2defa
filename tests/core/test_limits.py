"""Whether one more agent may start now: every row of the tables of checks, one by one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.names import LABEL_WATTS_PER_GPU
from precision_api.kinds.profile import NodeCounts
from precision_api.kinds.report import ReportAttempt
from precision_operator.core.admission import turns
from precision_operator.core.admission.budget_view import AdmissionRequest, Agent, BudgetView, Cap, FleetView
from precision_operator.core.admission.limits import LIMITS, NODE_CHECKS, PROFILE_CHECKS, blocked_by, concurrency_limit
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.device_class import DeviceClass
from precision_operator.core.observe.nodes import NodeFacts, node_facts
from precision_operator.core.observe.observed import Occupancy, ProfileView
from precision_operator.core.observe.pod_requests import Requests
from precision_operator.core.plan import plan
from precision_operator.core.reasons import REASONS
from tests.support.node_objects import EIGHT_H100, node_object, resource_slice
from tests.support.situations import SITUATIONS
from tests.support.world import (
    MINUTE,
    NOW,
    SETTINGS,
    accepted,
    at_once,
    job,
    measured,
    nodes,
    observed,
    pod,
    profile,
    report,
    tried,
)

ALL = tuple(LIMITS.values())
RACK = "example.com/rack"
POOL = "NVIDIA-H100-80GB-HBM3"
OTHER = "uid-of-another-profile"
MINE = "uid-nightly"
OF_THE_CANDIDATE = {"facts", "taken_by", "attempt", "elsewhere", "cold", "fleet"}


def facts(name: str = "n1", rack: str | None = "r1") -> NodeFacts:
    """A node with eight H100 (700 W each by default) in a rack."""
    return node_facts(node_object(EIGHT_H100 if rack is None else EIGHT_H100 | {RACK: rack}, name=name))


RACK_OF = {"n1": "r1", "n2": "r1", "n3": "r1", "n4": "r2", "n5": "r2"}
NODES = {f"uid-{name}": facts(name, rack) for name, rack in RACK_OF.items()}
"""Racks that an agent may be in."""


def request(**changes: Any) -> AdmissionRequest:
    """A turn in which the agent may start, unless `changes` say otherwise."""
    own = {"facts": facts()} | {key: changes.pop(key) for key in OF_THE_CANDIDATE & changes.keys()}
    measured_for = accepted(changes.pop("profile", profile()))
    free = BudgetView(
        observed=observed(),
        profile=measured_for,
        live=(),
        limits={}.get,
        nodes=NODES,
        matched=frozenset(NODES),
        tally=fared(),
        starts={},
    )
    return AdmissionRequest(replace(free, **changes), **own)


def lacking(requests: Requests) -> AdmissionRequest:
    """A turn on an idle node whose pods request that much."""
    here = node_facts(node_object(allocatable={"cpu": "96", "memory": "256Gi", "nvidia.com/gpu": "8"}))
    return request(facts=here, observed=observed(occupancy={here.name: Occupancy(None, requests=requests)}))


def rolled_out(**rollout: Any) -> ProfileView:
    return profile(rollout={"maxConcurrent": 8} | rollout)


def fared(succeeded: int = 0, failed: int = 0) -> NodeCounts:
    return NodeCounts(eligible=10, succeeded=succeeded, failed=failed)


def runs_on(*names: str, owner: str = MINE) -> tuple[Agent, ...]:
    return tuple(Agent(owner, "ml", f"uid-{name}") for name in names)


def fleet(*live: Agent, **limits: Any) -> FleetView:
    """The agents of all namespaces under the operator's own limits; the candidate's node is in rack r1."""
    return FleetView(live, NODES, FleetLimits.model_validate(limits))


def disrupted(seconds_ago: int) -> ReportAttempt | None:
    return tried("disrupted", ago=timedelta(seconds=seconds_ago), reason="Disrupted").attempt


def racks(*names: str, **of: str) -> Any:
    """The world with nodes in racks: rack by node name."""
    return observed(fleet={f"uid-{n}": node_object(EIGHT_H100 | {RACK: of[n]}, name=n) for n in names})


BY_CLAIM = node_facts(node_object(gpus=None), slices=[resource_slice("NVIDIA H100 80GB HBM3", count=8)])
PER_RACK = {"perTopology": [{"key": RACK, "max": 2}]}
TWO_THERE = runs_on("n2", owner=OTHER) + runs_on("n3")
SAME_RACK = racks("n1", "n2", n1="r1", n2="r1")
RAMP = PER_RACK | {"rampSeconds": 60}


ORDER = """
    StoppedByAdmin Suspended TooManyFailures CanaryFailed CanaryFirst QuotaExceeded MaxConcurrentReached
    DeviceClassMissing DeviceClassShares PowerBudgetTooSmall FleetPowerUnknown FleetPowerTooSmall PoolLimitReached
    PowerBudgetReached FleetLimitReached FleetPowerReached TopologyLimitReached Ramping MeasuredByAnotherProfile
    KeptForPod BackingOff ImagePullLimitReached LimitOfAnotherProfile Busy InsufficientCPUAndMemory CheckingIdle
"""
"""Of several reasons the first is told."""


def test_the_checks_stand_in_this_order_and_each_has_a_situation_that_it_stops() -> None:
    assert [limit.code for limit in ALL] == ORDER.split()
    stopped = {code: plan(SITUATIONS[code].seen).profiles[0].node_states for code in ORDER.split()}
    assert [code for code, states in stopped.items() if code not in {state.reason for state in states}] == []
    assert {REASONS[code].kind for code in ORDER.split()} == {"queued", "waiting"}


AT_THE_EDGE: dict[str, AdmissionRequest] = {
    "a DeviceClass that the device plugin's nodes don't need": request(
        observed=observed(device_class=DeviceClass(exists=False))
    ),
    "GPUs by claim": request(facts=BY_CLAIM),
    "a pull beside as many as may run": request(pulling=2),
    "room for one more pull": request(cold=lambda: True, pulling=1),
    "just as much CPU as is left": lacking(Requests(cpu_millis=92_000)),
    "just as much memory as is left": lacking(Requests(memory_bytes=224 * 1024**3)),
    "no budget at all": request(),
    "as many failures as are allowed": request(profile=rolled_out(maxFailures=2), tally=fared(failed=2)),
    "a failure after the canary is through": request(profile=rolled_out(canary=2), tally=fared(succeeded=2, failed=1)),
    "room for one more canary": request(profile=rolled_out(canary=2), tally=fared(succeeded=1)),
    "agents that take no place": request(profile=rolled_out(maxConcurrent=3), live=runs_on("n2", "n3")),
    "agents of others, which maxConcurrent does not count": request(
        profile=rolled_out(maxConcurrent=1), live=runs_on("n2", owner=OTHER)
    ),
    "room in the pool": request(profile=rolled_out(pools=[{"name": POOL, "maxConcurrent": 3}]), live=TWO_THERE),
    "a limit of another pool": request(profile=rolled_out(pools=[{"name": "b", "maxConcurrent": 1}]), live=TWO_THERE),
    "room in the rack": request(profile=rolled_out(**PER_RACK), live=runs_on("n2")),
    "a full rack beside": request(profile=rolled_out(**PER_RACK), live=runs_on("n4", "n5")),
    "a power budget used to the last watt": request(profile=rolled_out(powerBudgetWatts=16_800), live=TWO_THERE),
    "a power budget of another pool": request(profile=rolled_out(pools=[{"name": "b", "powerBudgetWatts": 1}])),
    "an agent on a node that is gone, whose watts nobody knows": request(
        profile=rolled_out(powerBudgetWatts=5600), live=runs_on("n9")
    ),
    "a fleet without limits": request(fleet=fleet(*TWO_THERE)),
    "room in the fleet": request(fleet=fleet(*TWO_THERE, maxConcurrent=3, powerBudgetWatts=16_800)),
    "a full rack of the fleet beside": request(
        fleet=fleet(*runs_on("n4", "n5"), perTopology=[{"key": RACK, "max": 2}])
    ),
    "another pool of the fleet": request(fleet=fleet(*TWO_THERE, pools=[{"name": "b", "maxConcurrent": 1}])),
    "a start just long enough ago": request(
        profile=rolled_out(**RAMP), observed=SAME_RACK, starts={(MINE, "uid-n2"): NOW - MINUTE}
    ),
    "a start in another rack": request(
        profile=rolled_out(**RAMP), observed=racks("n1", "n2", n1="r1", n2="r2"), starts={(MINE, "uid-n2"): NOW}
    ),
    "a start of another profile, where the ramp is the profile's own": request(
        profile=rolled_out(rampSeconds=60), starts={(OTHER, "uid-n2"): NOW}
    ),
    "a start that a clock that has jumped back puts far ahead": request(
        profile=rolled_out(rampSeconds=60), starts={(MINE, "uid-n2"): NOW + timedelta(hours=9)}
    ),
    "a disruption that such a clock puts far ahead": request(attempt=disrupted(-3600)),
    "a rest that is over": request(attempt=disrupted(30)),
    "a busy node where idleness is not asked for": request(
        profile=profile(idle={"required": False}), observed=observed(busy={"n1": "team/train-0"})
    ),
}


@pytest.mark.parametrize("free", AT_THE_EDGE.values(), ids=AT_THE_EDGE)
def test_an_agent_may_start_with(free: AdmissionRequest) -> None:
    assert blocked_by(free, ALL) is None


@pytest.mark.parametrize("seconds", [-5, 0, 5], ids=["a clock that is slow", "in time", "a clock that is fast"])
def test_without_a_topology_key_the_ramp_holds_for_all_nodes_of_the_profile(seconds: int) -> None:
    started = NOW - timedelta(seconds=seconds)
    found = blocked_by(request(profile=rolled_out(rampSeconds=60), starts={(MINE, "uid-n9"): started}), ALL)
    assert found.reason == "Ramping"
    assert f"It may start at {format_time(started + MINUTE)}" in found.message


@pytest.mark.parametrize(
    ("limit", "drawn", "origin"),
    [({}, 5600, "H100 SXM default, not yet measured"), ({"uid-n1": 4000}, 4000, "enforced limits")],
    ids=["before the first report", "after it"],
)
def test_watts_are_of_the_last_report_and_before_it_of_the_product_by_name(
    limit: dict[str, int], drawn: int, origin: str
) -> None:
    assert request(limits=limit.get).view.watts(facts()) == (drawn, origin)


def test_a_gpu_that_is_not_known_counts_as_the_hungriest_until_its_first_report() -> None:
    unknown = node_facts(node_object({"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}, name="n1"))
    drawn, origin = request().view.watts(unknown)
    assert (drawn, "NVIDIA-GH200-480GB is none" in origin) == (8 * 1400, True)
    assert request(limits={"uid-n1": 900}.get).view.watts(unknown) == (900, "enforced limits")
    there = {"uid-n1": node_facts(node_object({"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}))}
    view = FleetView(runs_on("n1"), there, FleetLimits(power_budget_watts=1))
    assert view.used(Cap("all", ("all",), True), "watts") == 8 * 1400


@pytest.mark.parametrize(
    ("labels", "pool", "watts"),
    [
        ({}, {}, (5600, "factory limit of H100 SXM")),
        ({}, {"name": "b", "wattsPerGPU": 500}, (5600, "factory limit of H100 SXM")),
        ({}, {"name": POOL, "wattsPerGPU": 500}, (4000, f"wattsPerGPU of pool {POOL}")),
        ({LABEL_WATTS_PER_GPU: "400"}, {"name": POOL, "wattsPerGPU": 500}, (3200, f"node label {LABEL_WATTS_PER_GPU}")),
        ({LABEL_WATTS_PER_GPU: "some"}, {"name": POOL, "wattsPerGPU": 500}, (4000, f"wattsPerGPU of pool {POOL}")),
        ({"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}, {}, None),
    ],
)
def test_the_fleets_power_is_what_the_admins_say_else_the_products(
    labels: dict[str, str], pool: dict[str, Any], watts: tuple[int, str] | None
) -> None:
    as_a_profile_sees_it = node_facts(node_object(EIGHT_H100 | labels), pool_label="example.com/of-a-tenant")
    assert fleet(pools=[pool] if pool else []).watts(as_a_profile_sees_it) == watts


@pytest.mark.parametrize("told_watts", [8, 10**6])
def test_no_report_changes_whom_the_fleets_power_lets_start(told_watts: int) -> None:
    limits = FleetLimits(power_budget_watts=2 * 5600)
    told = [report(n, status=measured(limit_watts=told_watts, basis={"spec": "older"})) for n in ("n1", "n2", "n3")]
    seen = observed([profile(rollout=at_once(3), rerunOn=["SpecChange"])], nodes("n1", "n2", "n3"))
    seen = replace(seen, settings=replace(SETTINGS, fleet_limits=limits), reports=tuple(told))
    states = plan(seen).profiles[0].node_states
    assert sorted(state.reason for state in states) == ["AgentStarting", "AgentStarting", "FleetPowerReached"]


def test_reports_of_any_profile_make_the_room_that_products_defaults_do_not() -> None:
    fleet = nodes("n1", "n2")
    tight = profile(rollout=at_once(2) | {"powerBudgetWatts": 8000}, rerunOn=["SpecChange"])
    told = tuple(report(n, status=measured(limit_watts=4000, basis={"spec": "older"})) for n in ("n1", "n2"))
    assert [s.reason for s in plan(observed([tight], fleet, reports=told)).profiles[0].node_states] == [
        "AgentStarting"
    ] * 2
    first = plan(observed([tight], fleet)).profiles[0].node_states
    assert [s.reason for s in first] == ["AgentStarting", "PowerBudgetReached"]
    tight = profile(rollout={"powerBudgetWatts": 4000})
    other = profile("other", suspend=True)
    told = report(owner="other", status=measured(limit_watts=4000))
    node_states = plan(observed([tight, other], reports=(told,))).profiles[0].node_states
    assert [node_state.reason for node_state in node_states] == ["AgentStarting"]


def test_each_power_budget_counts_its_own_agents_within_one_plan() -> None:
    fleet = nodes("n1", "n2") | nodes("n3", "n4", labels={"nvidia.com/gpu.product": "NVIDIA-GB200"})
    watts = (8 * 700, 8 * 1200)
    pools = [{"name": POOL, "powerBudgetWatts": watts[0]}, {"name": "NVIDIA-GB200", "powerBudgetWatts": watts[1]}]
    for whole in ({}, {"powerBudgetWatts": sum(watts)}):
        found = plan(observed([profile(rollout=at_once(4) | {"pools": pools} | whole)], fleet)).profiles[0].node_states
        assert {node_state.facts.name: node_state.reason for node_state in found} == {
            "n1": "AgentStarting",
            "n2": "PowerBudgetReached",
            "n3": "AgentStarting",
            "n4": "PowerBudgetReached",
        }


PHYSICAL: dict[str, dict[str, Any]] = {
    "TopologyLimitReached": {"perTopology": [{"key": RACK, "max": 1}]},
    "PoolLimitReached": {"pools": [{"name": POOL, "maxConcurrent": 1}]},
    "PowerBudgetReached": {"powerBudgetWatts": 6000},
}


@pytest.mark.parametrize(("reason", "limits"), PHYSICAL.items(), ids=PHYSICAL)
def test_what_is_physical_counts_agents_of_other_profiles_on_matched_nodes(reason: str, limits: dict[str, Any]) -> None:
    fleet = {f"uid-{n}": node_object(EIGHT_H100 | {RACK: "r1"}, name=n) for n in ("n1", "n2")}
    running = job("n1", "other")
    seen = observed([rolled_out(**limits), profile("other")], fleet, jobs=(running,), pods=(pod(running),))
    node_states = {s.facts.name: s.reason for s in plan(seen).profiles[0].node_states}
    assert node_states == {"n1": reason, "n2": reason}


@pytest.mark.parametrize("limits", PHYSICAL.values(), ids=PHYSICAL)
def test_what_is_physical_binds_profiles_that_name_no_limit(limits: dict[str, Any]) -> None:
    fleet = {f"uid-{n}": node_object(EIGHT_H100 | {RACK: "r1"}, name=n) for n in ("n1", "n2")}
    running = job("n1")
    free = profile("other", rollout={"maxConcurrent": 8})
    seen = observed([rolled_out(**limits), free], fleet, jobs=(running,), pods=(pod(running),))
    node_states = {s.facts.name: s.reason for s in plan(seen).profiles[1].node_states}
    assert node_states == {"n1": "MeasuredByAnotherProfile", "n2": "LimitOfAnotherProfile"}
    unmatched = profile(rollout={"maxConcurrent": 8} | limits, target={"nodeNames": ["n1"]})
    seen = observed([unmatched, free], fleet, jobs=(running,), pods=(pod(running),))
    assert plan(seen).profiles[1].node_states[1].reason == "AgentStarting", (
        "its limits are for the nodes that it matches"
    )


def test_the_first_check_that_says_no_is_told_and_a_limit_below_any_node_binds_nobody_else() -> None:
    seen = observed([rolled_out(powerBudgetWatts=100), profile("other")], nodes("n1"))
    assert [plan(seen).profiles[i].node_states[0].reason for i in (0, 1)] == ["PowerBudgetTooSmall", "AgentStarting"]
    hindered = request(profile=profile(suspend=True), live=runs_on("n2"))
    assert blocked_by(hindered, PROFILE_CHECKS) == blocked_by(request(profile=profile(suspend=True)), PROFILE_CHECKS)


def test_nodes_of_one_kind_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AdmissionRequest] = []
    monkeypatch.setattr(turns, "blocked_by", lambda each, limits: asked.append(each) or blocked_by(each, limits))
    states = plan(observed([rolled_out(powerBudgetWatts=100)], nodes("n1", "n2", "n3"))).profiles[0].node_states
    assert ([state.reason for state in states], len(asked)) == (["PowerBudgetTooSmall"] * 3, 2)


def test_a_node_rests_after_a_disruption_as_long_as_is_set_whenever_asked() -> None:
    longer = observed(settings=replace(SETTINGS, disruption_backoff=timedelta(minutes=5)))
    assert blocked_by(request(observed=longer, attempt=disrupted(299)), NODE_CHECKS).reason == "BackingOff"
    early = blocked_by(request(attempt=disrupted(10)), NODE_CHECKS)
    later = blocked_by(
        request(attempt=disrupted(10), observed=replace(observed(), now=NOW + timedelta(seconds=5))), NODE_CHECKS
    )
    assert early == later


@pytest.mark.parametrize(
    ("limit", "eligible", "most"),
    [(4, 24, 4), (4, 2, 4), ("10%", 24, 2), ("10%", 9, 1), ("1%", 0, 1), ("100%", 24, 24), ("99%", 100, 99)],
)
def test_per_cent_is_of_eligible_nodes_rounded_down_at_least_one(limit: int | str, eligible: int, most: int) -> None:
    assert concurrency_limit(limit, eligible) == most


@given(percent=st.integers(1, 100), eligible=st.integers(0, 20_000))
def test_a_per_cent_gives_no_more_than_its_share_but_for_the_one_always_allowed(percent: int, eligible: int) -> None:
    most = concurrency_limit(f"{percent}%", eligible)
    assert most == 1 or most * 100 <= percent * eligible < (most + 1) * 100
