"""What the operator's metrics say of the condition on Nodes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from benchmarks.node_conditions.fleet import DRIVER, NODE, STACK, Fleet, One, Truth
from precision_api.exchange.result import Software
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import FleetLimits, FleetTopologyLimit
from precision_operator.monitoring.alerts import ALERTS
from tests.support.golden_nodes import measured_node
from tests.support.operator_in_memory import PROFILES

RACK = "topology.kubernetes.io/rack"


async def test_leaders_that_change_hide_no_stale_true_and_nobody_who_waits() -> None:
    one = await One.in_service()
    one.wait(timedelta(days=20))
    one.server.guarded = False
    one.boot(NODE)
    ready = one.server.objects[f"{paths.NODES}/{NODE}"]["status"]["conditions"][0]
    for since in ("2099-01-01T00:00:00Z", format_time(one.now())):
        ready["lastTransitionTime"] = since
        one.start()
        await one.settle(1)
        assert one.problem("StaleSeconds") == pytest.approx(0, abs=1)
    for minutes in (20, 40, 60):
        one.start()
        for _ in range(2):
            one.wait(timedelta(minutes=10))
            await one.settle(1)
        assert one.problem("StaleSeconds") == pytest.approx(60 * minutes, abs=700)
    one.server.guarded = True
    await one.settle()
    assert one.says == ("Unknown", "SubjectChanged")
    for _ in range(9):
        one.start()
        one.wait(timedelta(minutes=20))
        await one.settle(1)
    assert one.problem("Starved") == 1


async def test_each_problem_has_its_alert() -> None:
    one, said = One(), "".join(alert.expr for alert in ALERTS)
    _, problems = one.loop.actor.node_conditions.figures(await one.loop.gatherer.observe(), ())
    assert (len(problems) > 8, [name for name in problems if name not in said]) == (True, [])


@pytest.mark.parametrize("in_service", [False, True])
@pytest.mark.parametrize(("key", "fail"), [(RACK, 3), ("example.com/row", 3), ("topology.kubernetes.io/zone", 0)])
async def test_three_nodes_of_a_rack_that_fail_within_a_day_are_its(key: str, fail: int, in_service: bool) -> None:
    fleet = Fleet(size=5)
    limits = FleetLimits(per_topology=() if key == RACK else (FleetTopologyLimit(key=key, max=9),))
    fleet.loop.gatherer._settings = replace(fleet.loop.gatherer._settings, fleet_limits=limits)
    for at, name in enumerate(fleet.names):
        fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"][key] = f"r{at // 3}"
    if in_service:
        await fleet.all_measured()
        fleet.rerun()
    fleet.truths = dict.fromkeys(fleet.names, Truth(gpu_off=-12))
    for _ in range(1 + in_service):
        await fleet.all_measured()
        assert fleet.problem("DomainFails") == fail
        fleet.wait(timedelta(hours=2))
    closed = [row["status"] for row in fleet.conditions().values()].count("False")
    assert closed == (1 if in_service else 5), "more than a tenth is held open"
    for days in (1, -9):
        fleet.wait(timedelta(days=days))
        await fleet.settle()
        assert fleet.problem("DomainFails") == 0


async def test_hot_nodes_of_a_rack_that_cannot_be_judged_are_its_open_or_not() -> None:
    fleet = Fleet(size=3)
    for name in fleet.names:
        fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"][RACK] = "r"
    for status in ("Unknown", "True"):
        fleet.rerun()
        await fleet.settle()
        await fleet.end_agents("hot")
        says = {row["status"] for row in fleet.conditions().values()}
        assert (says, fleet.problem("DomainFails")) == ({status}, 3)
        await fleet.all_measured(again=True)
    assert fleet.problem("DomainFails") == 0


async def test_nodes_that_wait_for_a_run_for_two_hours_while_none_becomes_true_are_starved() -> None:
    fleet = Fleet(size=3)
    taints = [{"key": "readiness.k8s.io/compute-accepted", "effect": "NoSchedule"}]
    fleet.server.objects[f"{paths.NODES}/{NODE}"]["spec"]["taints"] = taints
    await fleet.all_measured()
    starved = list[float | None]()
    for waits in range(3):
        await fleet.all_measured(again=True)
        starved.append(fleet.problem("Starved"))
        fleet.wait(timedelta(hours=2))
        if waits == 1:
            del fleet.server.objects[f"{paths.NODES}/{NODE}"]["spec"]["taints"]
            fleet.truths[NODE] = Truth(gpu_off=-12)
    assert starved == [0, 1, 0], "others that are True and measured again have not become so; a Fail waits for nothing"


async def reboots_for(fleet: Fleet, hours: int, odd: str = "") -> tuple[float | None, float | None]:
    """How many are starved two hours after all nodes restarted, and later, where runs end in `odd`."""
    for name in fleet.names:
        fleet.boot(name)
    starved = list[float | None]()
    for _ in range(hours):
        await fleet.settle()
        while fleet.loop.jobs() and odd != "hang":
            await fleet.end_agents(odd)
            if odd:
                break
        starved.append(fleet.problem("Starved"))
        fleet.wait(timedelta(hours=1))
        await fleet.settle()
    return starved[1], fleet.problem("Starved")


@pytest.mark.parametrize(("what", "starved"), [("driver", 3), ("", 0), ("Crashed", 3), ("hang", 3), ("list", 3)])
async def test_nodes_that_are_neither_true_nor_false_for_two_hours_are_starved_whatever_the_reason(
    what: str, starved: int
) -> None:
    fleet = await Fleet.in_service(size=3, **{"referenceSha256": "0" * 64} if what == "list" else {})
    fleet.drivers |= dict.fromkeys(fleet.names if what == "driver" else (), "590.10")
    odd = what if what in ("Crashed", "hang") else ""
    assert await reboots_for(fleet, 5, odd) == (0, starved)
    pool = {"pool": "NVIDIA-H100-80GB-HBM3", "status": "Unknown" if starved else "True"}
    (reason,) = {row["reason"] for row in fleet.conditions().values()}
    assert fleet.loop.metric("precision_operator_node_conditions", **pool, reason=reason) == 3


async def test_nodes_that_hang_are_starved_while_another_of_their_pool_opens() -> None:
    fleet = Fleet(size=3)
    for _ in range(4):
        await fleet.settle()
        software = Software(agent="0.2.0", driver=DRIVER, stack_hash=STACK)
        fleet.loop.end_agent(NODE, measured_node(f"{NODE}-0", 1, software=software))
        await fleet.settle()
        fleet.loop.collect_garbage()
        fleet.wait(timedelta(hours=1))
        fleet.boot(NODE)
    await fleet.settle()
    assert fleet.problem("Starved") == 2


async def test_a_row_of_the_list_that_names_no_profile_is_a_problem_and_an_empty_list() -> None:
    one = One()
    assert (await one.measure(), one.problem("NoProfile")) == (("True", "Pass"), 0)
    one.delete("nightly")
    await one.settle()
    assert one.problem("NoProfile") == 1
    one.gate = one.gate.model_copy(update={"profiles": ()})
    one.start()
    one.boot(NODE)
    await one.settle()
    assert (one.says, one.problem("NoProfile")) == (("Unknown", "SubjectChanged"), 1)


@pytest.mark.parametrize("is_cordoned", [False, True])
async def test_a_node_that_left_the_target_of_each_profile_and_restarts_is_starved(is_cordoned: bool) -> None:
    fleet = await Fleet.in_service(size=3)
    fleet.server.objects[f"{PROFILES}/nightly"]["spec"]["target"] = {"nodeNames": fleet.names[1:]}
    for reason, starved in (("Pass", 0), ("SubjectChanged", not is_cordoned)):
        fleet.wait(timedelta(hours=3))
        await fleet.all_measured()
        assert (fleet.problem("Starved"), fleet.conditions()[NODE]["reason"]) == (starved, reason)
        fleet.boot(NODE)
        fleet.server.objects[f"{paths.NODES}/{NODE}"]["spec"]["unschedulable"] = is_cordoned
        await fleet.settle()
