"""What a Fail does to a Node's condition, and by what it is lifted."""

from datetime import timedelta

import pytest

from benchmarks.node_conditions.fleet import NODE, Fleet, One, Truth
from benchmarks.node_conditions.reader import wrong
from precision_api.facts.names import ANNOTATION_CLOSED, ANNOTATION_PROFILE, DEFAULT_POOL_LABEL
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from tests.support.operator_in_memory import PROFILES, REPORTS


@pytest.mark.parametrize("again", [False, True])
async def test_a_fail_of_an_open_node_is_confirmed_by_a_run_an_hour_later_that_speaks(again: bool) -> None:
    one = await One.in_service()
    one.rerun()
    assert (await one.measure(broken=True), one.loop.jobs()) == (("True", "FailUnconfirmed"), {})
    if again:
        one.start()
    one.wait(timedelta(minutes=59))
    await one.settle()
    assert one.loop.jobs() == {}
    one.wait(timedelta(minutes=2))
    await one.settle()
    assert list(one.loop.jobs()) == [NODE]
    for begun in ([NODE], [], [NODE]):
        await one.end_agents("Fallback")
        assert (one.says, one.loop.jobs()) == (("True", "FailUnconfirmed"), {}), "it says nothing"
        one.wait(timedelta(hours=1))
        await one.settle()
        assert list(one.loop.jobs()) == begun, "after 2 and 4 hours"
    assert await one.measure(broken=True) == ("False", "FailConfirmed")
    assert "; closed 20" in one.row["message"]


@pytest.mark.parametrize("is_forged", [False, True])
async def test_a_closing_that_is_to_come_counts_as_now(is_forged: bool) -> None:
    fleet = await Fleet.in_service(size=3)
    for path, report in fleet.server.objects.items() if is_forged else ():
        if path.startswith(f"{REPORTS}/") and report["spec"]["nodeName"] == "g0":
            closed = f"2099-01-01T00:00:00Z; {DEFAULT_POOL_LABEL}=NVIDIA-H100-80GB-HBM3"
            report["metadata"]["annotations"] = {ANNOTATION_CLOSED: closed}
    await fleet.fail_twice(*["g0", "g1"][is_forged:])
    for hours in (-3, 29):
        held = [name for name, row in fleet.conditions().items() if row["reason"] == "FailHeld"]
        assert len(held) == 1, "a clock that steps back makes no room"
        fleet.wait(timedelta(hours=hours))
        await fleet.all_measured()
    assert fleet.conditions()[held[0]]["reason"] == "FailConfirmed"


async def test_a_closing_that_a_kubelet_writes_holds_up_no_other() -> None:
    fleet = await Fleet.in_service(size=3)
    row = fleet.conditions()["g2"]
    row["message"] = row["message"].replace(" (node", f"; closed {format_time(fleet.now())} (node")
    await fleet.fail_twice("g0")
    assert fleet.conditions()["g0"]["reason"] == "FailConfirmed"


async def test_a_closing_of_a_clock_that_was_ahead_for_a_month_counts_for_a_day() -> None:
    fleet = await Fleet.in_service(size=3)
    fleet.wait(timedelta(days=30))
    await fleet.fail_twice("g0")
    assert fleet.conditions()["g0"]["reason"] == "FailConfirmed"
    fleet.wait(timedelta(days=-30))
    await fleet.fail_twice("g1")
    assert fleet.conditions()["g1"]["reason"] == "FailHeld"
    fleet.wait(timedelta(hours=25))
    await fleet.all_measured(again=True)
    assert fleet.conditions()["g1"]["reason"] == "FailConfirmed"


async def test_a_doubt_of_a_clock_that_was_ahead_counts_from_now_and_its_run_confirms_nothing() -> None:
    one = await One.in_service()
    one.wait(timedelta(days=2))
    one.rerun()
    assert await one.measure(broken=True) == ("True", "FailUnconfirmed")
    one.wait(timedelta(minutes=62))
    await one.settle()
    await one.end_agents("Fallback")
    one.wait(-timedelta(days=2, minutes=62))
    for minutes in (0, 50):
        one.wait(timedelta(minutes=minutes))
        await one.settle()
        assert (one.says, one.loop.jobs()) == (("True", "FailUnconfirmed"), {})
    one.wait(timedelta(minutes=12))
    assert await one.measure(broken=True) == ("False", "FailConfirmed")


async def test_an_open_node_that_fails_under_a_new_operator_gets_its_second_run() -> None:
    one = await One.in_service()
    one.rerun()
    one.server.guarded = False
    await one.measure(broken=True)
    one.server.guarded = True
    one.start()
    assert await one.measure(broken=True) == ("True", "FailUnconfirmed"), "the report says that it failed"
    one.rerun()
    await one.settle()
    await one.end_agents("Fallback")
    assert (one.says, one.row["message"][:26]) == (("True", "FailUnconfirmed"), "Fallback; it failed before")


async def test_a_run_that_another_operator_waited_for_is_made_again_by_the_new_one() -> None:
    one = One()
    one.repair(NODE, True)
    await one.settle()
    await one.end_agents()
    assert "; after run " in one.row["message"]
    one.server.guarded = False
    await one.end_agents()
    one.server.guarded = True
    one.start()
    assert await one.measure(broken=True) == ("False", "Fail")


@pytest.mark.parametrize("is_new", [False, True])
async def test_an_ill_gpu_of_an_open_node_is_confirmed_by_the_second_agent_that_is_refused(is_new: bool) -> None:
    one = await One.in_service()
    one.truths[NODE] = Truth(sick=True)
    one.server.guarded = not is_new
    await one.all_measured(again=True)
    one.server.guarded = True
    if is_new:
        one.start()
    await one.all_measured()
    assert one.says == ("True", "FailUnconfirmed"), "the same refusal under a new operator is read as well"
    one.wait(timedelta(minutes=62))
    await one.settle()
    one.loop.fail_agent(NODE)
    await one.settle()
    assert one.says == ("True", "FailUnconfirmed"), "no agent began: nothing confirms it"
    await one.all_measured(again=True)
    assert one.says == ("False", "FailConfirmed")


async def test_a_node_that_was_closed_is_closed_again_whatever_else_was_that_day() -> None:
    fleet = await Fleet.in_service(size=3)
    await fleet.fail_twice(NODE)
    for _ in range(2):
        assert [row["reason"] for row in fleet.conditions().values()] == ["FailConfirmed", "Pass", "Pass"]
        fleet.conditions()[NODE].update(status="True", reason="ByHand", message="opened by jan")
        await fleet.fail_twice(NODE)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_held_fail_closes_nothing_once_nobody_says_it_any_more(is_deleted: bool) -> None:
    fleet = await Fleet.in_service(size=3)
    await fleet.fail_twice("g0", "g1")
    held = {name for name, row in fleet.conditions().items() if row["reason"] == "FailHeld"}
    assert (len(held), len({*held} & {"g0", "g1"})) == (1, 1)
    fleet.delete("nightly") if is_deleted else fleet.ask(mustDetectPercent={"reference": 10, "node": 10})
    for _ in range(2):
        await fleet.settle()
        assert {fleet.conditions()[name]["status"] for name in held} == {"True"}
        fleet.wait(timedelta(hours=25))
    says = {row["status"] for row in fleet.conditions().values()}
    assert says == ({"True", "False"} if is_deleted else {"True"}), "an edit opens what it lets pass, without a run"


async def test_a_held_fail_is_measured_again_by_a_new_operator() -> None:
    fleet = await Fleet.in_service(size=3)
    await fleet.fail_twice("g0", "g1")
    fleet.start()
    fleet.wait(timedelta(hours=25))
    await fleet.all_measured()
    reasons = [row["reason"] for row in fleet.conditions().values()]
    assert sorted(reasons) == ["FailConfirmed", "FailConfirmed", "Pass"]


async def test_what_one_profile_failed_no_other_opens_and_it_ends_with_its_row_of_the_list() -> None:
    one = await One.in_service(profiles=("nightly", "other"))
    one.truths[NODE] = Truth(gpu_off=-12, by="other")
    await one.all_measured(again=True)
    assert one.says == ("True", "FailUnconfirmed")
    for is_new in (False, True):
        if is_new:
            one.start()
        one.rerun()
        await one.settle()
        while jobs := one.loop.jobs():
            await one.end_agents("Fallback" * (jobs[NODE]["metadata"]["annotations"][ANNOTATION_PROFILE] == "other"))
        assert one.says == ("True", "FailUnconfirmed"), "nightly passes"
    one.delete("other")
    await one.settle()
    assert one.says == ("True", "FailUnconfirmed")
    one.gate = one.gate.model_copy(update={"profiles": one.gate.profiles[:1]})
    one.start()
    await one.all_measured(again=True)
    assert one.says == ("True", "Pass")


@pytest.mark.parametrize("what", ["deleted", "made again", "no acceptance", "its report"])
async def test_a_closed_node_opens_by_a_pass_of_the_profile_that_failed_it_alone(what: str) -> None:
    one = One(profiles=("nightly", "other"))
    one.truths[NODE] = Truth(gpu_off=-12, by="other")
    await one.all_measured()
    one.wait(timedelta(minutes=62))
    await one.all_measured()
    assert one.says == ("False", "FailConfirmed")
    if what == "no acceptance":
        del one.server.objects[f"{PROFILES}/other"]["spec"]["acceptance"]
    elif what == "its report":
        one.forget(NODE)
    else:
        one.delete("other")
    if what == "made again":
        one.ask()
    await one.settle()
    assert one.says[0] == "False"
    one.boot(NODE)
    await one.all_measured(again=True)
    assert one.says[0] != "True", "nightly passes"
    one.ask()
    one.forget(NODE)
    one.rerun()
    assert await one.measure() == ("True", "Pass")


async def test_each_of_three_profiles_that_failed_a_node_must_pass_on_the_next_boot() -> None:
    one = One(profiles=("aa", "bb", "cc", "dd"))
    one.truths[NODE] = Truth(gpu_off=-12)
    await one.all_measured()
    assert "; failed by ml/aa, ml/bb, others; driver " in one.row["message"]
    one.truths[NODE] = Truth(gpu_off=-12, by="cc")
    one.wait(timedelta(hours=25))
    one.boot(NODE)
    await one.settle()
    for _ in range(8):
        await one.end_agents()
        assert one.says[0] != "True", "aa and bb pass"
    assert "; failed by ml/cc; driver " in one.row["message"]


@pytest.mark.parametrize("gpus", [8, 7])
@pytest.mark.parametrize("is_new", [False, True])
async def test_what_one_profile_failed_no_other_opens_on_the_next_boot(is_new: bool, gpus: int) -> None:
    one = One(profiles=("nightly", "other"))
    one.truths[NODE] = Truth(gpu_off=-12, by="other")
    await one.all_measured()
    one.boot(NODE)
    one.offer(gpus, gpus)
    if is_new:
        one.start()
    await one.settle()
    assert one.says == ("Unknown", "SubjectChanged")
    one.boot(NODE)
    await one.settle()
    for _ in range(3):
        while jobs := one.loop.jobs():
            await one.end_agents("Fallback" * (jobs[NODE]["metadata"]["annotations"][ANNOTATION_PROFILE] == "other"))
        assert one.says[0] != "True", "nightly passes"
        one.wait(timedelta(hours=2))
        await one.settle()


@pytest.mark.parametrize("is_forged", [False, True])
async def test_a_new_operator_opens_nothing_that_another_profile_failed(is_forged: bool) -> None:
    one = One(profiles=("nightly", "other"))
    one.truths[NODE] = Truth(gpu_off=-12, by="nightly")
    for _ in range(2):
        await one.all_measured()
        assert "; failed by ml/nightly; driver " in one.row["message"]
        one.wait(timedelta(minutes=62))
    one.start()
    one.ask(**{} if is_forged else {"mustDetectPercent": {"reference": 15, "node": 15}})
    await one.settle()
    for _ in range(4):
        await one.end_agents()
        if is_forged:
            one.forge_reports("Pass")
    assert (one.says[0], one.loop.jobs(), wrong(one.record)) == ("False", {}, [])
    one.ask()
    one.forget(NODE)
    assert await one.measure() == ("True", "Pass")


async def test_a_run_confirms_by_when_it_ended_and_not_when_it_is_collected() -> None:
    one = await One.in_service()
    one.rerun()
    assert await one.measure(broken=True) == ("True", "FailUnconfirmed")
    one.rerun()
    await one.settle()
    await one.end_agents(late=timedelta(minutes=61))
    assert one.says == ("True", "FailUnconfirmed")


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_tenth_of_a_pool_is_closed_in_a_day_and_nodes_that_are_gone_or_relabelled_count(is_gone: bool) -> None:
    fleet, label = Fleet(size=20), "example.com/team"
    fleet.server.objects[f"{PROFILES}/nightly"]["spec"]["poolLabel"] = label
    for at, name in enumerate(fleet.names):
        fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"][label] = "AB"[at // 10]
    await fleet.all_measured()
    fleet.truths |= dict.fromkeys(fleet.names[:3], Truth(gpu_off=-12))
    await fleet.all_measured(again=True)
    for hours, most, is_new in ((2, 1, False), (9, 0, True), (9, 0, False), (24, 1, True), (2, 0, False)):
        fleet.wait(timedelta(hours=hours))
        if is_new:
            fleet.start()
        await fleet.all_measured()
        closed = [name for name, row in fleet.conditions().items() if row["status"] == "False"]
        assert len(closed) == most
        for name in closed:
            fleet.names.remove(name)
            fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"][label] = "repair"
            if is_gone:
                del fleet.server.objects[f"{paths.NODES}/{name}"]


@pytest.mark.parametrize("failing", [1, 2])
async def test_a_new_operators_first_good_run_lifts_no_fail_of_this_boot_that_the_report_holds(failing: int) -> None:
    fleet = await Fleet.in_service(size=3)
    await fleet.fail_twice(*fleet.names[:failing])
    says = {name: row["reason"] for name, row in fleet.conditions().items()}
    fleet.start()
    fleet.truths.clear()
    fleet.truths |= dict.fromkeys(fleet.names, Truth())
    for hours in (0, 2):
        fleet.wait(timedelta(hours=hours))
        await fleet.settle()
        await fleet.end_agents()
        assert {name: row["reason"] for name, row in fleet.conditions().items()} == says, "FailHeld is no less"
        assert {*says.values()} == {"Pass", "FailConfirmed", *["FailHeld"] * (failing - 1)}
    fleet.wait(timedelta(hours=25))
    await fleet.all_measured(again=True)
    assert {row["reason"] for row in fleet.conditions().values()} == {"Pass"}


async def test_a_true_that_a_failing_report_does_not_renew_is_measured_again_until_it_does() -> None:
    one = await One.in_service()
    one.server.guarded = False
    one.truths[NODE] = Truth(gpu_off=-12)
    for _ in range(2):
        await one.all_measured(again=True)
    one.server.guarded = True
    one.start()
    one.truths[NODE] = Truth()
    for minutes, begun in ((0, [NODE]), (59, []), (2, [NODE])):
        one.wait(timedelta(minutes=minutes))
        await one.settle()
        assert (one.says, list(one.loop.jobs())) == (("True", "NotJudgedAgain"), begun)
        await one.end_agents()
    one.wait(timedelta(hours=25))
    await one.all_measured()
    assert one.says == ("True", "Pass")


async def test_the_second_run_passes_a_taint_of_gate_taints_and_no_cordon() -> None:
    one = One()
    one.gate = one.gate.model_copy(update={"taints": ("example.com/suspect",)})
    one.start()
    await one.all_measured()
    await one.fail(NODE)
    spec = one.server.objects[f"{paths.NODES}/{NODE}"]["spec"]
    spec["unschedulable"] = True
    await one.all_measured()
    assert one.says == ("True", "FailUnconfirmed")
    spec["unschedulable"], spec["taints"] = False, [{"key": "example.com/suspect", "effect": "NoExecute"}]
    await one.all_measured()
    assert one.says == ("False", "FailConfirmed")


async def test_a_pool_that_is_renamed_makes_no_room() -> None:
    fleet = await Fleet.in_service(size=3)
    await fleet.fail_twice("g0")
    for name in fleet.names:
        labels = fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"]
        labels["nvidia.com/gpu.product"] = "H100_NVLINK_80GB"
    await fleet.settle()
    await fleet.fail_twice("g1")
    assert [row["reason"] for row in fleet.conditions().values()] == ["FailConfirmed", "FailHeld", "Pass"]
