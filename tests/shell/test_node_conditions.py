"""The verdict on its way to the Node, on an API server in memory whose policy refuses as the chart's does."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from benchmarks.node_conditions.fleet import DRIVER, STACK, Fleet, Truth
from benchmarks.node_conditions.reader import wrong
from benchmarks.node_conditions.schedules import GUARDS, schedule
from benchmarks.node_conditions.server import Server
from precision_api.exchange.result import Software
from precision_api.facts.names import ANNOTATION_CLOSED, ANNOTATION_PROFILE, DEFAULT_POOL_LABEL
from precision_api.kinds.report import AcceptanceSubject, ReportAcceptance
from precision_operator.cluster import ApiError, paths
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import FleetLimits, FleetTopologyLimit
from precision_operator.core.observe.gpu_slices import Gpu, PublishedGpus
from precision_operator.core.observe.node_gate import CONDITION, NodeVerdict, node_verdict
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.results.node_condition import Evidence, writes
from precision_operator.monitoring.alerts import ALERTS
from precision_operator.shell.acting import late_writes
from precision_operator.shell.acting.node_conditions import WRITES_AT_ONCE
from tests.support.golden import beside
from tests.support.golden_nodes import measured_node
from tests.support.operator_in_memory import PROFILES, REPORTS

NODE, RACK = "g0", "topology.kubernetes.io/rack"
TABLES = beside(__file__)


def problem(fleet: Fleet, name: str) -> float | None:
    return fleet.loop.metric("precision_operator_node_condition_problems", problem=name)


class One(Fleet):
    """One sound node, which was never judged."""

    def __init__(self, **listed: Any) -> None:
        super().__init__(size=1, **listed)

    @property
    def row(self) -> dict[str, Any]:
        return self.conditions()[NODE]

    @property
    def says(self) -> tuple[str, str]:
        return self.row.get("status", ""), self.row.get("reason", "")

    def offer(self, allocatable: int, capacity: int) -> None:
        status = self.server.objects[f"{paths.NODES}/{NODE}"]["status"]
        offered = {"allocatable": allocatable, "capacity": capacity}
        status |= {part: {**status[part], "nvidia.com/gpu": f"{gpus}"} for part, gpus in offered.items()}

    async def measure(self, broken: bool = False) -> tuple[str, str]:
        """What the condition says after as many runs as are asked for."""
        self.repair(NODE, broken)
        await self.all_measured()
        return self.says


async def test_a_pass_opens_a_node_and_names_its_boot_and_a_reboot_closes_it_until_a_quick_run_passes() -> None:
    one = One()
    await one.settle()
    assert one.says == ("", ""), "nothing is said of a node that was never judged"
    assert await one.measure() == ("True", "Pass")
    assert one.row["message"].endswith(" (node uid-g0-1, boot g0-boot-1)")
    written = len(one.server.patches)
    await one.settle()
    assert len(one.server.patches) == written, "what is so already is not written again"
    one.boot(NODE)
    await one.settle()
    assert (one.says, list(one.loop.jobs())) == (("Unknown", "SubjectChanged"), [NODE])
    assert await one.measure() == ("True", "Pass")
    one.boot(NODE)
    assert await one.measure(broken=True) == ("False", "Fail")
    one.boot(NODE)
    assert await one.measure() == ("False", "Fail"), "its runs count for a day"
    one.forget(NODE)
    assert await one.measure() == ("True", "Pass"), "who repairs a node deletes its report"


async def test_a_device_plugin_that_starts_again_takes_nothing_away_and_other_gpus_do() -> None:
    one = One()
    await one.measure()
    for allocatable, capacity, says in ((0, 8, "True"), (0, 0, "True"), (8, 8, "True"), (4, 4, "Unknown")):
        one.offer(allocatable, capacity)
        await one.settle()
        assert one.says[0] == says


UUIDS = [f"GPU-0000000{at}-0000-0000-0000-000000000000" for at in range(9)]


def claimable(uuids: list[str], *taints: str) -> PublishedGpus:
    return PublishedGpus((Gpu("0", uuids[0], taints=taints), *(Gpu(uuid, uuid) for uuid in uuids[1:])))


CHANGES: dict[str, tuple[PublishedGpus, str | None, bool]] = {
    "a GPU is swapped": (claimable(UUIDS[1:]), None, True),
    "a GPU is gone": (claimable(UUIDS[:7]), None, True),
    "a device taint on one": (claimable(UUIDS[:8], "x:NoSchedule"), None, False),
    "slices are missing": (replace(claimable(UUIDS[:4]), incomplete="2 of 3"), None, False),
    "MIG": (claimable(UUIDS[:8]), "it offers slices", True),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_swapped_gpus_and_mig_change_a_node_whose_gpus_are_claimed_and_a_device_taint_does_not(what: str) -> None:
    one = One()
    await one.settle()
    (facts,) = (await one.loop.gatherer.observe()).facts_of("").values()
    subject = AcceptanceSubject(boot_id=facts.boot, driver=facts.driver, gpus=tuple(UUIDS[:8]))
    judged = Evidence("", ReportAcceptance(verdict="Pass", subject=subject))

    def written(facts: NodeFacts, *evidence: Any) -> list[Mapping[str, str]]:
        return [it.row for it in writes({facts.uid: facts}, {facts.uid: ()}, {facts.uid: evidence}, {}, one.now())]

    here, mig, is_changed = CHANGES[what]
    stands = node_verdict({"conditions": written(facts, judged)})
    free = 0 if here.incomplete else len(here.free_of_taints)
    claimed = replace(facts, way="claim", gpus=free, capacity_gpus=0, published=here, verdict=stands, mig=mig)
    for evidence in ((judged,), (Evidence(""),)):
        rows = [(row["status"], row["reason"]) for row in written(claimed, *evidence)]
        assert rows == [("Unknown", "SubjectChanged")] * is_changed


@pytest.mark.parametrize("again", [False, True])
async def test_a_fail_of_an_open_node_is_confirmed_by_a_run_an_hour_later_that_speaks(again: bool) -> None:
    one = One()
    await one.measure()
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


OTHERS = f"ValidatingAdmissionPolicy 'hold' denied request: not {CONDITION}"


@pytest.mark.parametrize(("status", "message", "refused"), [(403, OTHERS, 1), (422, "", 1), (404, "", 0), (0, "", 1)])
async def test_what_one_node_answers_holds_up_no_other(status: int, message: str, refused: int) -> None:
    fleet = Fleet(size=3)
    fleet.server.refused = {NODE: ApiError(status, "", message)}
    await fleet.all_measured()
    assert [row.get("status") for row in fleet.conditions().values()] == [None, "True", "True"]
    assert (problem(fleet, "Unguarded"), problem(fleet, "Refused")) == (0, refused)


class Slow:
    """An API server that answers patches of Nodes, or of some alone, and of reports' annotations once it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "") -> None:
        self.answers, self.asked, real = asyncio.Semaphore(0), list[str](), Server.patch

        async def late(server: Server, path: str, body: Any, kind: str = "merge", query: Any = None) -> dict[str, Any]:
            if (kind == "strategic" and name in path) or ANNOTATION_CLOSED in str(body):
                self.asked.append(path)
                await self.answers.acquire()
            return await real(server, path, body, kind, query)

        monkeypatch.setattr(Server, "patch", late)
        monkeypatch.setattr(late_writes, "GRACE_SECONDS", 0.1)

    def answer(self, number: int) -> None:
        for _ in range(number):
            self.answers.release()


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_slow_writes_hold_up_no_pass_and_moved_nodes_are_written_next(
    is_under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(size=20)
    await fleet.all_measured()
    fleet.save(None)
    slow = Slow(monkeypatch)
    for _ in range(is_under_way):
        await fleet.once()
    fleet.boot("g19")
    await fleet.once()
    asked, begun = [*slow.asked], WRITES_AT_ONCE * is_under_way
    number = len(fleet.record.written)
    slow.answer(99)
    await fleet.loop.actor.settled()
    written = [(it.name, it.row["reason"]) for it in fleet.record.written[number:]]
    assert (len(asked), len(written), len({*written})) == (WRITES_AT_ONCE, 20, 20)
    assert ("g19", "SubjectChanged") in written[: begun + 1]


async def test_a_closing_counts_while_it_is_written_and_is_kept_beside_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(size=3)
    await fleet.all_measured()
    await fails_once(fleet, NODE)
    slow = Slow(monkeypatch, NODE)
    await fleet.all_measured()
    await fails_once(fleet, "g1")
    await fleet.all_measured()
    says = {name: row["reason"] for name, row in fleet.conditions().items()}
    assert says == {NODE: "FailUnconfirmed", "g1": "FailHeld", "g2": "Pass"}
    slow.answer(2)
    async with asyncio.timeout(30):
        while not slow.asked[-1].startswith(REPORTS):
            await fleet.once()
    assert fleet.conditions()[NODE]["reason"] == "FailConfirmed"


FORGED = "x (node u, boot ", "x; closed 2099-01-01T00:00:00Z (node u, boot b)", "Drifted; failed by ml/other", "R" * 65


@pytest.mark.parametrize("reason", FORGED)
@pytest.mark.parametrize("verdict", ["Inconclusive", "Fail"])
async def test_a_forged_reason_is_no_part_of_a_condition(reason: str, verdict: str) -> None:
    one = One()
    await one.measure()
    one.forge_reports(verdict, reason=reason)
    for _ in range(2):
        await one.settle()
        assert (one.says, one.row["message"][:15]) == (("True", "NotJudgedAgain"), "Unreadable; it ")
        one.start()


@pytest.mark.parametrize("said", [FORGED[0], FORGED[1]])
def test_the_end_of_a_message_is_read_alone(said: str) -> None:
    parts = NodeVerdict(message=f"{said}; failed by ml/nightly (node uid, boot b1)").parts
    assert parts == {"said": said, "failed": "ml/nightly", "node": "uid", "boot": "b1"}


@pytest.mark.parametrize("is_forged", [False, True])
async def test_a_closing_that_is_to_come_counts_as_now(is_forged: bool) -> None:
    fleet = Fleet(size=3)
    await fleet.all_measured()
    for path, report in fleet.server.objects.items() if is_forged else ():
        if path.startswith(f"{REPORTS}/") and report["spec"]["nodeName"] == "g0":
            closed = f"2099-01-01T00:00:00Z; {DEFAULT_POOL_LABEL}=NVIDIA-H100-80GB-HBM3"
            report["metadata"]["annotations"] = {ANNOTATION_CLOSED: closed}
    await fails_twice(fleet, *["g0", "g1"][is_forged:])
    for hours in (-3, 29):
        held = [name for name, row in fleet.conditions().items() if row["reason"] == "FailHeld"]
        assert len(held) == 1, "a clock that steps back makes no room"
        fleet.wait(timedelta(hours=hours))
        await fleet.all_measured()
    assert fleet.conditions()[held[0]]["reason"] == "FailConfirmed"


async def test_a_closing_of_a_clock_that_was_ahead_for_a_month_counts_for_a_day() -> None:
    fleet = Fleet(size=3)
    await fleet.all_measured()
    fleet.wait(timedelta(days=30))
    await fails_twice(fleet, "g0")
    assert fleet.conditions()["g0"]["reason"] == "FailConfirmed"
    fleet.wait(timedelta(days=-30))
    await fails_twice(fleet, "g1")
    assert fleet.conditions()["g1"]["reason"] == "FailHeld"
    fleet.wait(timedelta(hours=25))
    fleet.rerun()
    await fleet.all_measured()
    assert fleet.conditions()["g1"]["reason"] == "FailConfirmed"


async def test_a_doubt_of_a_clock_that_was_ahead_counts_from_now_and_its_run_confirms_nothing() -> None:
    one = One()
    await one.measure()
    one.wait(timedelta(days=2))
    one.rerun()
    assert await one.measure(broken=True) == ("True", "FailUnconfirmed")
    one.wait(-timedelta(days=2))
    for minutes in (0, 50):
        one.wait(timedelta(minutes=minutes))
        await one.settle()
        assert (one.says, one.loop.jobs()) == (("True", "FailUnconfirmed"), {})
    one.wait(timedelta(minutes=12))
    assert await one.measure(broken=True) == ("False", "FailConfirmed")


@pytest.mark.parametrize("said", ["opened by jan, INC-123", "all passed (node uid-g0-1, boot g0-boot-1, judge v2)"])
async def test_a_true_of_another_writer_is_of_the_boot_on_which_it_is_first_seen(said: str) -> None:
    one = One()
    await one.measure()
    one.row.update(reason="ByHand", message=said)
    one.start()
    await one.settle()
    assert (one.says, one.row["message"]) == (("True", "ByHand"), f"{said} (node uid-g0-1, boot g0-boot-1)")
    one.boot(NODE)
    await one.settle()
    assert one.says == ("Unknown", "SubjectChanged")


async def test_a_new_operator_keeps_what_stands_and_measures_what_is_not_proved() -> None:
    one = One()
    await one.measure()
    since = one.row["lastTransitionTime"]
    one.start()
    one.save("{}")
    await one.settle()
    assert (one.says, one.row["lastTransitionTime"]) == (("True", "NotJudgedAgain"), since)
    await one.settle()
    assert problem(one, "NotJudgedAgain") == 1
    one = One()
    one.server.guarded = False
    assert await one.measure() == ("", "")
    assert problem(one, "Unguarded") == 1
    gone, one.server.guarded = one.server.objects.pop(f"{paths.NODES}/{NODE}"), True
    await one.settle()
    assert problem(one, "Unguarded") == 0, "nothing is to be written any more"
    one.server._store(f"{paths.NODES}/{NODE}", gone)
    one.start()
    one.server.guarded = True
    await one.settle()
    assert (one.says, list(one.loop.jobs())) == (("", ""), [NODE]), "what a report says opens nothing"
    assert await one.measure() == ("True", "Pass")


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("what", ["driver", "GPU", "reboot", "namesake"])
async def test_a_node_that_changes_between_decision_and_write_is_not_opened(what: str, watched: bool) -> None:
    one = One()
    one.server.meanwhile = what, watched
    assert await one.measure() in {("", ""), ("Unknown", "OtherKey"), ("True", "Pass")}
    assert (one.server.meanwhile, wrong(one.record)) == (None, [])


@pytest.mark.parametrize("what", ["Job", "pod"])
async def test_a_forged_agent_opens_nothing(what: str) -> None:
    one = One()
    await one.settle()
    one.forge(NODE, what)
    assert (await one.measure(broken=True), wrong(one.record)) == (("False", "Fail"), [])


async def test_an_open_node_that_fails_under_a_new_operator_gets_its_second_run() -> None:
    one = One()
    await one.measure()
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


async def fails_once(of: Fleet, *names: str) -> None:
    """Nodes in service fail, an hour ago."""
    of.truths |= dict.fromkeys(names, Truth(gpu_off=-8))
    of.rerun()
    await of.all_measured()
    of.wait(timedelta(minutes=62))


async def fails_twice(of: Fleet, *names: str) -> None:
    """Nodes in service fail, and again an hour later."""
    await fails_once(of, *names)
    await of.all_measured()
    of.wait(timedelta(minutes=62))
    await of.settle()


@pytest.mark.parametrize("is_new", [False, True])
async def test_an_ill_gpu_of_an_open_node_is_confirmed_by_the_second_agent_that_is_refused(is_new: bool) -> None:
    one = One()
    await one.measure()
    one.truths[NODE] = Truth(sick=True)
    one.server.guarded = not is_new
    one.rerun()
    await one.all_measured()
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
    one.rerun()
    await one.all_measured()
    assert one.says == ("False", "FailConfirmed")


async def test_a_node_that_was_closed_is_closed_again_whatever_else_was_that_day() -> None:
    fleet = Fleet(size=3)
    await fleet.all_measured()
    await fails_twice(fleet, NODE)
    for _ in range(2):
        assert [row["reason"] for row in fleet.conditions().values()] == ["FailConfirmed", "Pass", "Pass"]
        fleet.conditions()[NODE].update(status="True", reason="ByHand", message="opened by jan")
        await fails_twice(fleet, NODE)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_held_fail_closes_nothing_once_nobody_says_it_any_more(is_deleted: bool) -> None:
    fleet = Fleet(size=3)
    await fleet.all_measured()
    await fails_twice(fleet, "g0", "g1")
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
    fleet = Fleet(size=3)
    await fleet.all_measured()
    await fails_twice(fleet, "g0", "g1")
    fleet.start()
    fleet.wait(timedelta(hours=25))
    await fleet.all_measured()
    reasons = [row["reason"] for row in fleet.conditions().values()]
    assert sorted(reasons) == ["FailConfirmed", "FailConfirmed", "Pass"]


async def test_what_one_profile_failed_no_other_opens_and_it_ends_with_its_row_of_the_list() -> None:
    one = One(profiles=("nightly", "other"))
    await one.measure()
    one.truths[NODE] = Truth(gpu_off=-12, by="other")
    one.rerun()
    await one.all_measured()
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
    one.rerun()
    await one.all_measured()
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
    one.rerun()
    await one.all_measured()
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
    one = One()
    await one.measure()
    one.rerun()
    assert await one.measure(broken=True) == ("True", "FailUnconfirmed")
    one.rerun()
    await one.settle()
    await one.end_agents(late=timedelta(minutes=61))
    assert one.says == ("True", "FailUnconfirmed")


@pytest.mark.parametrize("odd", ["Partial", "Crashed", "Fallback", "hot"])
async def test_a_node_that_waits_is_measured_again_an_hour_after_a_spoilt_run(odd: str) -> None:
    one = One()
    await one.settle()
    for hours in (1, 2, 4):
        await one.end_agents(odd)
        one.wait(timedelta(hours=hours, minutes=-1))
        await one.settle()
        assert (one.says[0], one.loop.jobs()) == ("Unknown", {})
        one.wait(timedelta(minutes=2))
        await one.settle()
        assert list(one.loop.jobs()) == [NODE]
    assert await one.measure() == ("True", "Pass")


@pytest.mark.parametrize("broken", [False, True])
async def test_a_node_whose_condition_is_removed_is_measured_again(broken: bool) -> None:
    one = One()
    await one.measure(broken)
    one.remove(NODE)
    one.repair(NODE, False)
    await one.settle()
    assert (one.says, one.loop.jobs()) == (("", ""), {})
    one.wait(timedelta(hours=25))
    await one.settle()
    assert list(one.loop.jobs()) == [NODE]
    assert await one.measure() == ("True", "Pass")


async def test_a_pass_that_ends_before_it_can_be_written_leaves_no_true_of_another_boot() -> None:
    one = One()
    one.ask(validFor="1d")
    await one.measure()
    one.server.guarded = False
    one.boot(NODE)
    assert await one.measure() == ("True", "Pass")
    one.wait(timedelta(hours=25))
    one.server.guarded = True
    await one.settle()
    assert one.says == ("Unknown", "SubjectChanged")
    assert await one.measure() == ("True", "Pass")


async def test_leaders_that_change_hide_no_stale_true_and_nobody_who_waits() -> None:
    one = One()
    await one.measure()
    one.wait(timedelta(days=20))
    one.server.guarded = False
    one.boot(NODE)
    ready = one.server.objects[f"{paths.NODES}/{NODE}"]["status"]["conditions"][0]
    ready["lastTransitionTime"] = format_time(one.now())
    for minutes in (20, 40, 60):
        one.start()
        for _ in range(2):
            one.wait(timedelta(minutes=10))
            await one.settle(1)
        assert problem(one, "StaleSeconds") == pytest.approx(60 * minutes, abs=700)
    one.server.guarded = True
    await one.settle()
    assert one.says == ("Unknown", "SubjectChanged")
    for _ in range(9):
        one.start()
        one.wait(timedelta(minutes=20))
        await one.settle(1)
    assert problem(one, "Starved") == 1


@pytest.mark.parametrize("what", TABLES["calm"])
async def test_a_label_alone_takes_no_true_away(what: str) -> None:
    one = One()
    await one.measure()
    labels, gpus = TABLES["calm"][what]
    one.server.objects[f"{paths.NODES}/{NODE}"]["metadata"]["labels"] |= labels
    one.offer(gpus, gpus)
    await one.settle()
    assert (one.says, one.loop.jobs()) == (("True", "Pass"), {})


async def test_each_problem_has_its_alert() -> None:
    one, said = One(), "".join(alert.expr for alert in ALERTS)
    _, problems = one.loop.actor.node_conditions.figures(await one.loop.gatherer.observe(), ())
    assert (len(problems) > 8, [name for name in problems if name not in said]) == (True, [])


@pytest.mark.parametrize("what", TABLES["listed"])
async def test_what_the_list_does_not_admit_opens_and_closes_nothing_and_says_what(what: str) -> None:
    for broken in (False, True):
        one = One(**TABLES["listed"][what])
        assert await one.measure(broken) == ("Unknown", "NotListed")
        assert what in one.row["message"]


@pytest.mark.parametrize(("most", "opens"), [(7, True), (6, False)])
async def test_a_profile_that_asks_for_no_deficit_is_held_to_the_usual_one(most: int, opens: bool) -> None:
    one = One(mostDetectPercent={"node": 3, "reference": most})
    one.ask(mustDetectPercent=None)
    assert await one.measure() == (("True", "Pass") if opens else ("Unknown", "NotListed"))


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
        assert problem(fleet, "DomainFails") == fail
        fleet.wait(timedelta(hours=2))
    closed = [row["status"] for row in fleet.conditions().values()].count("False")
    assert closed == (1 if in_service else 5), "more than a tenth is held open"
    fleet.wait(timedelta(days=1))
    await fleet.settle()
    assert problem(fleet, "DomainFails") == 0


async def test_hot_nodes_of_a_rack_that_cannot_be_judged_are_its_open_or_not() -> None:
    fleet = Fleet(size=3)
    for name in fleet.names:
        fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"][RACK] = "r"
    for status in ("Unknown", "True"):
        fleet.rerun()
        await fleet.settle()
        await fleet.end_agents("hot")
        says = {row["status"] for row in fleet.conditions().values()}
        assert (says, problem(fleet, "DomainFails")) == ({status}, 3)
        fleet.rerun()
        await fleet.all_measured()
    assert problem(fleet, "DomainFails") == 0


async def test_nodes_that_wait_for_a_run_for_two_hours_while_none_becomes_true_are_starved() -> None:
    fleet = Fleet(size=3)
    taints = [{"key": "readiness.k8s.io/compute-accepted", "effect": "NoSchedule"}]
    fleet.server.objects[f"{paths.NODES}/{NODE}"]["spec"]["taints"] = taints
    await fleet.all_measured()
    starved = list[float | None]()
    for waits in range(3):
        fleet.rerun()
        await fleet.all_measured()
        starved.append(problem(fleet, "Starved"))
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
        starved.append(problem(fleet, "Starved"))
        fleet.wait(timedelta(hours=1))
        await fleet.settle()
    return starved[1], problem(fleet, "Starved")


@pytest.mark.parametrize(("what", "starved"), [("driver", 3), ("", 0), ("Crashed", 3), ("hang", 3), ("list", 3)])
async def test_nodes_that_are_neither_true_nor_false_for_two_hours_are_starved_whatever_the_reason(
    what: str, starved: int
) -> None:
    fleet = Fleet(size=3, **{"referenceSha256": "0" * 64} if what == "list" else {})
    await fleet.all_measured()
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
    assert problem(fleet, "Starved") == 2


async def test_a_row_of_the_list_that_names_no_profile_is_a_problem() -> None:
    one = One()
    assert (await one.measure(), problem(one, "NoProfile")) == (("True", "Pass"), 0)
    one.delete("nightly")
    await one.settle()
    assert problem(one, "NoProfile") == 1


async def test_a_tenth_of_a_pool_by_the_profiles_label_is_closed_in_a_day_and_nodes_that_are_gone_count() -> None:
    fleet, label = Fleet(size=20), "example.com/team"
    fleet.server.objects[f"{PROFILES}/nightly"]["spec"]["poolLabel"] = label
    for at, name in enumerate(fleet.names):
        fleet.server.objects[f"{paths.NODES}/{name}"]["metadata"]["labels"][label] = "AB"[at // 10]
    await fleet.all_measured()
    fleet.truths |= dict.fromkeys(fleet.names[:3], Truth(gpu_off=-12))
    fleet.rerun()
    await fleet.all_measured()
    for hours, most, is_new in ((2, 1, False), (9, 0, True), (9, 0, False), (24, 1, True), (2, 0, False)):
        fleet.wait(timedelta(hours=hours))
        if is_new:
            fleet.start()
        await fleet.all_measured()
        closed = [name for name, row in fleet.conditions().items() if row["status"] == "False"]
        assert len(closed) == most
        for name in closed:
            fleet.names.remove(name)
            del fleet.server.objects[f"{paths.NODES}/{name}"]


async def test_a_verdict_opens_a_node_once_its_profile_asks_for_what_the_list_admits() -> None:
    one = One()
    (row,) = one.gate.profiles  # and to move to another reference, one row for each
    other = row.model_copy(update={"reference_sha256": "0" * 64})
    one.gate = one.gate.model_copy(update={"profiles": (other, row)})
    one.start()
    one.ask(mustDetectPercent={"reference": 15, "node": 15})
    assert await one.measure() == ("Unknown", "NotListed")
    one.ask()
    await one.settle()
    assert (one.says, one.loop.jobs()) == (("True", "Pass"), {})


@pytest.mark.parametrize("first", [0, 4, 8])
async def test_no_schedule_opens_or_closes_a_node_wrongly(first: int) -> None:
    """500 by command: python -m benchmarks.node_conditions."""
    for seed in range(first, first + 4):
        assert await schedule(seed) == []
    assert len(GUARDS) == 14
