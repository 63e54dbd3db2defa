"""The verdict on its way to the Node, on an API server in memory whose policy refuses as the chart's does."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from benchmarks.node_conditions.fleet import NODE, Fleet, One
from benchmarks.node_conditions.reader import wrong
from benchmarks.node_conditions.schedules import GUARDS, schedule
from benchmarks.node_conditions.server import Server
from precision_api.facts.names import ANNOTATION_CLOSED
from precision_api.kinds.report import AcceptanceSubject, ReportAcceptance
from precision_operator.cluster import ApiError, paths
from precision_operator.core.observe.gpu_slices import Gpu, PublishedGpus
from precision_operator.core.observe.node_gate import CONDITION, NodeVerdict, node_verdict
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.results.node_condition import Evidence, writes
from precision_operator.shell.acting import late_writes
from precision_operator.shell.acting.node_conditions import WRITES_AT_ONCE
from tests.support.golden import beside
from tests.support.operator_in_memory import REPORTS

TABLES = beside(__file__)


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
    one = await One.in_service()
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


OTHERS = f"ValidatingAdmissionPolicy 'hold' denied request: not {CONDITION}"


@pytest.mark.parametrize(("status", "message", "refused"), [(403, OTHERS, 1), (422, "", 1), (404, "", 0), (0, "", 1)])
async def test_what_one_node_answers_holds_up_no_other(status: int, message: str, refused: int) -> None:
    fleet = Fleet(size=3)
    fleet.server.refused = {NODE: ApiError(status, "", message)}
    await fleet.all_measured()
    assert [row.get("status") for row in fleet.conditions().values()] == [None, "True", "True"]
    assert (fleet.problem("Unguarded"), fleet.problem("Refused")) == (0, refused)


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
    fleet = await Fleet.in_service(size=20)
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
    fleet = await Fleet.in_service(size=3)
    await fleet.fail(NODE)
    slow = Slow(monkeypatch, NODE)
    await fleet.all_measured()
    await fleet.fail("g1")
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
    one = await One.in_service()
    one.forge_reports(verdict, reason=reason)
    for _ in range(2):
        await one.settle()
        assert (one.says, one.row["message"][:15]) == (("True", "NotJudgedAgain"), "Unreadable; it ")
        one.start()


@pytest.mark.parametrize("said", [FORGED[0], FORGED[1]])
def test_the_end_of_a_message_is_read_alone(said: str) -> None:
    parts = NodeVerdict(message=f"{said}; failed by ml/nightly (node uid, boot b1)").parts
    assert parts == {"said": said, "failed": "ml/nightly", "node": "uid", "boot": "b1"}


@pytest.mark.parametrize(("reason", "said"), [
    ("ByHand", "opened by jan, INC-123"), ("R" * 200, "all passed (node uid-g0-1, boot g0-boot-1, judge v2)"),
])  # fmt: skip
async def test_a_true_of_another_writer_is_of_the_boot_on_which_it_is_first_seen(reason: str, said: str) -> None:
    one = await One.in_service()
    one.row.update(reason=reason, message=said)
    one.start()
    await one.settle()
    assert (one.says, one.row["message"]) == (("True", reason[:128]), f"{said} (node uid-g0-1, boot g0-boot-1)")
    one.boot(NODE)
    await one.settle()
    assert one.says == ("Unknown", "SubjectChanged")


async def test_a_new_operator_keeps_what_stands_and_measures_what_is_not_proved() -> None:
    one = await One.in_service()
    since = one.row["lastTransitionTime"]
    one.start()
    one.save("{}")
    await one.settle()
    assert (one.says, one.row["lastTransitionTime"]) == (("True", "NotJudgedAgain"), since)
    await one.settle()
    assert one.problem("NotJudgedAgain") == 1
    one = One()
    one.server.guarded = False
    assert await one.measure() == ("", "")
    assert one.problem("Unguarded") == 1
    gone, one.server.guarded = one.server.objects.pop(f"{paths.NODES}/{NODE}"), True
    await one.settle()
    assert one.problem("Unguarded") == 0, "nothing is to be written any more"
    one.server._store(f"{paths.NODES}/{NODE}", gone)
    one.start()
    one.server.guarded = True
    await one.settle()
    assert (one.says, list(one.loop.jobs())) == (("", ""), [NODE]), "what a report says opens nothing"
    assert await one.measure() == ("True", "Pass")


@pytest.mark.parametrize("is_new", [False, True])
async def test_what_cannot_be_judged_again_is_so_once_it_can_also_under_a_new_operator(is_new: bool) -> None:
    one = await One.in_service()
    one.save(None)
    await one.settle()
    if is_new:
        one.start()
        await one.settle()
    assert (one.says, one.loop.jobs()) == (("True", "NotJudgedAgain"), {})
    one.save(one.text)
    await one.settle()
    assert list(one.loop.jobs()) == [NODE] * is_new, "the results of before are not this operator's"
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


async def test_a_run_that_is_spoilt_while_the_clock_is_ahead_delays_none() -> None:
    one = One()
    for days in (20, -20):
        one.wait(timedelta(days=days))
        await one.settle()
        assert list(one.loop.jobs()) == [NODE]
        await one.end_agents("Fallback")


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


@pytest.mark.parametrize("what", TABLES["calm"])
async def test_a_label_alone_takes_no_true_away(what: str) -> None:
    one = await One.in_service()
    labels, gpus = TABLES["calm"][what]
    one.server.objects[f"{paths.NODES}/{NODE}"]["metadata"]["labels"] |= labels
    one.offer(gpus, gpus)
    await one.settle()
    assert (one.says, one.loop.jobs()) == (("True", "Pass"), {})


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
    assert len(GUARDS) == 15
