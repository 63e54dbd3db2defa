"""The operator's side of a plan: solved in another process, written once, and again only when its inputs have moved."""

import asyncio
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from precision_api.facts.names import API_VERSION, PLAN_KIND
from precision_operator.cluster import ApiError
from precision_operator.planner.answer.work import Work, start_of
from precision_operator.shell.leader_election import LeaseLost, NoElection
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.plans.capacity_plans import MOST_BEGUN, Planning
from precision_operator.shell.room import Room
from tests.shell.test_faults import Hostile
from tests.support.report_objects import profile_object, report_object

PATIENCE_SECONDS = 300.0
"""For an answer, on a machine that others use too."""


class Written:
    """Stands for the cluster: keeps what is written, and answers as the API server does."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.gone = False
        self.version = ""
        """resourceVersion of the plan as it is now; plans that tell none are not held against it."""
        self.refused = asyncio.Event()
        self.changed = asyncio.Event()
        self.told = asyncio.Event()
        """Set when both events of a first answer are written."""
        self.plans: dict[str, dict[str, Any]] = {}
        """As they are now, by name."""
        self.reads: list[str] = []
        """Names of those that were read, in that order."""

    async def get(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        self.reads.append(name)
        return self.plans[name]

    async def patch(self, path: str, body: Any, kind: str = "merge") -> dict[str, Any]:
        if self.gone:
            raise ApiError(404, "NotFound", "gone")
        read = next((row["value"] for row in body if row["path"] == "/metadata/resourceVersion"), self.version)
        if read != self.version:
            self.refused.set()
            raise ApiError(422, "Invalid", "the test of the patch fails")
        self.statuses.append(next(row["value"] for row in body if row["op"] == "add"))
        self.changed.set()
        name = path.split("/")[-2]
        self.plans[name] = self.plans[name] | {"status": self.statuses[-1]}
        return self.plans[name]

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.events.append(body)
        if len(self.events) == 2:
            self.told.set()
        return body


def plan_object(generation: int = 1, status: Any = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "q1", "namespace": "ml", "uid": "u1", "generation": generation}
    jobs = [{"name": "a", "workload": {"preset": "llama3-8b"}, "tokens": "1B"}]
    return {
        "apiVersion": API_VERSION,
        "kind": PLAN_KIND,
        "metadata": meta | {"creationTimestamp": "2026-11-20T06:00:00Z"},
        "spec": {"fleet": {"allow": ["simulated"]}, "jobs": jobs, "whatIfs": [], "goodput": "1"} | spec,
        "status": status or {},
    }


class Watched(Planning):
    """What its watch shows is what the cluster has then."""

    def see(self, event: dict[str, Any]) -> None:
        cluster: Any = self._cluster
        cluster.plans[event["object"]["metadata"]["name"]] = event["object"]
        super().see(event)


Scene = tuple[Planning, Cache, Written]


@asynccontextmanager
async def planning(**more: Any) -> AsyncIterator[Scene]:
    """A loop over a cache with four measured nodes."""
    cache, written = Cache(), Written()
    cache.put("profiles", profile_object())
    for number in range(4):
        add_node(cache, number)
    cluster: Any = written
    loop = Watched(cluster, cache, ("ml",), **more)
    task = asyncio.create_task(loop.run(NoElection()))
    yield loop, cache, written
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with planning() as running:
        yield running


async def add(loop: Planning, plan: dict[str, Any]) -> None:
    loop.see({"type": "ADDED", "object": plan})


def add_node(cache: Cache, number: int) -> None:
    name = f"n{number}"
    cache.put("nodes", {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "5", "labels": {}}})
    cache.put("reports", report_object(name))


async def next_status(written: Written) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await written.changed.wait()
    written.changed.clear()
    return written.statuses[-1]


async def test_a_plan_is_answered_and_told_and_figures_that_move_are_answered_anew(scene: Scene) -> None:
    loop, cache, written = scene
    await add(loop, plan_object())
    status = await next_status(written)
    assert (status["phase"], status["pools"][0]["gpus"], status["observedGeneration"]) == ("Solved", 16, 1)
    async with asyncio.timeout(10):
        await written.told.wait()
    assert [event["reason"] for event in written.events] == ["Accepted", "PlanFound"]
    add_node(cache, 9)
    second = await next_status(written)
    assert second["pools"][0]["gpus"] == 20
    assert second["inputs"] != status["inputs"]


async def test_an_answer_to_a_plan_as_it_was_is_not_written_over_one_that_has_changed(scene: Scene) -> None:
    """A leader whose lease was lost while its request was on the way has been followed by another one's answer."""
    loop, _, written = scene
    written.version, old, new = "8", plan_object(), plan_object(generation=2)
    old["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"] = "7", "8"
    await add(loop, old)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await written.refused.wait()
    assert written.statuses == []
    loop.see({"type": "MODIFIED", "object": new})
    loop.see({"type": "MODIFIED", "object": old})
    written.plans["q1"] = new
    assert (await next_status(written))["observedGeneration"] == 2, "an event that comes late brings nothing back"


async def test_reports_that_cannot_be_read_keep_no_plan_from_its_answer_and_are_named_in_it(scene: Scene) -> None:
    loop, cache, written = scene
    damage: list[Any] = [{"status": ["x"]}, {"spec": "x"}, {"status": {"run": 1, "hardware": 1, "results": 1}}]
    damaged = [report_object(f"n{number}", resourceVersion="101") | broken for number, broken in enumerate(damage)]
    for report in damaged:
        cache.put("reports", report)
    await add(loop, plan_object())
    status = await next_status(written)
    assert (status["phase"], status["pools"][0]["gpus"]) == ("Solved", 4)
    assert status["notes"][0].startswith("3 of the reports can't be read and are left out: ")
    assert all(f"ml/{report['metadata']['name']} (" in status["notes"][0] for report in damaged)


async def test_an_answer_that_stands_is_not_solved_again_after_a_restart(scene: Scene) -> None:
    loop, cache, written = scene
    await add(loop, plan_object())
    status = await next_status(written)
    kept: Any = written
    restarted = Watched(kept, cache, ("ml",))
    await add(restarted, plan_object(status=status))
    await restarted.look()
    assert len(written.statuses) == 1
    for uid in [*cache.all("reports")][1:]:
        cache.drop("reports", uid)
    restarted.see({"type": "MODIFIED", "object": plan_object(2, status=status, goodput="0.5")})
    await restarted.look()
    assert written.statuses[-1]["observedGeneration"] == 2
    assert written.statuses[-1]["pools"][0]["gpus"] == 4, "of reports that go together all are forgotten at once"
    restarted.end()


async def test_a_spec_that_can_not_be_read_is_refused_once(scene: Scene) -> None:
    loop, _, written = scene
    await add(loop, plan_object(jobs=[]))
    status = await next_status(written)
    assert status["phase"] == "Refused"
    assert "spec.jobs" in status["problems"][0]
    await loop.look()
    assert len(written.statuses) == 1


async def test_a_poisoned_plan_costs_the_others_nothing_and_is_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    loop, _, written = scene
    bad, good = plan_object(), plan_object()
    good["metadata"] |= {"name": "q2", "uid": "u2"}
    await add(loop, bad)
    written.plans["q1"] = bad | {"spec": Hostile()}
    await add(loop, good)
    assert (await next_status(written))["phase"] == "Solved"
    await loop.look()
    assert len(written.statuses) == 1
    traces = [record for record in caplog.records if record.exc_info and "capacityplan ml/q1" in record.getMessage()]
    assert len(traces) == 1, "it is left alone for a while"
    loop.see({"type": "MODIFIED", "object": bad | {"metadata": bad["metadata"] | {"generation": 2}}})
    assert (await next_status(written))["phase"] == "Solved", "once it is well, it is solved"


async def test_while_a_namespace_may_not_be_read_an_answer_stands_and_a_new_plan_is_told(scene: Scene) -> None:
    loop, _, written = scene
    await add(loop, plan_object())
    solved = await next_status(written)
    kept: Any = written
    lost = {"ml": "reports: forbidden"}
    restarted = Watched(kept, Cache(), ("ml",), unserved=lambda: lost)
    await add(restarted, plan_object(status=solved))
    await restarted.look()
    assert len(written.statuses) == 1, "without its nodes the answer would be another one"
    new = plan_object()
    new["metadata"] |= {"name": "q2", "uid": "u2"}
    await add(restarted, new)
    await restarted.look()
    await restarted.look()
    assert len(written.statuses) == 2
    assert (written.statuses[-1]["phase"], written.statuses[-1]["problems"]) == (
        "Refused",
        ["namespace ml can't be read now: the operator may not list reports: forbidden"],
    )
    restarted.end()


@pytest.mark.parametrize(
    ("across", "problem", "reason"),
    [
        ((), "spec.fleet.namespaces: plans of ml may not read reports of other. Leave it out, or ask an administrator "
             "to add ml to the chart value capacityPlans.acrossNamespaces", "NamespacesNotAllowed"),
        (("ml",), "spec.fleet.namespaces: other is not watched; this operator watches ml", "InputsUnusable"),
    ],
    ids=["by default", "where an admin allows it"],
)  # fmt: skip
async def test_a_plan_reads_other_namespaces_where_an_admin_allows_it(
    across: tuple[str, ...], problem: str, reason: str
) -> None:
    """What is not watched is told only to whom it may concern: the reports of `other` were never looked at."""
    async with planning(across=across) as (loop, _, written):
        await add(loop, plan_object(fleet={"namespaces": ["ml", "other"], "allow": ["simulated"]}))
        status = await next_status(written)
        await loop.look()
        told = status["conditions"][0]
        assert (status["problems"], told["status"], told["reason"]) == ([problem], "False", reason)
        assert len(written.statuses) == 1


async def test_a_plan_beyond_the_bound_keeps_its_answer_says_why_it_has_none_and_takes_its_turn() -> None:
    """The oldest are served; when one goes the next is."""
    cluster: Any = Written()
    loop = Watched(cluster, Cache(), ("ml",), most=1)
    answered = {"observedGeneration": 1, "inputs": "a"}
    for name, created, status in (("q1", 2, {}), ("q2", 3, answered), ("q0", 1, {})):
        plan = plan_object(status=status, jobs=[])
        plan["metadata"] |= {"name": name, "uid": name, "creationTimestamp": f"2026-11-20T06:00:0{created}Z"}
        await add(loop, plan)
    await loop.look()
    said = {name: plan["status"].get("problems", [""])[0] for name, plan in cluster.plans.items()}
    assert said["q0"].startswith("spec.jobs"), "it is served"
    assert (said["q1"], said["q2"]) == (
        "namespace ml has 1 older plans, as many as are served (profilesPerNamespace.max of the chart). Delete others, "
        "or ask an administrator to raise that value",
        "",
    )
    assert cluster.plans["q1"]["status"]["conditions"][0]["reason"] == "TooManyPlans"
    loop.see({"type": "DELETED", "object": cluster.plans["q0"]})
    await loop.look()
    assert cluster.plans["q1"]["status"]["problems"] == [said["q0"]]


class Crowded(Written):
    """A cluster with any number of plans of 200 jobs."""

    def plan(self, name: str, namespace: str) -> dict[str, Any]:
        meta = {"name": name, "uid": name, "namespace": namespace, "generation": 1}
        jobs = [{"name": f"j{number}", "workload": {"preset": "llama3-8b"}, "tokens": "1B"} for number in range(200)]
        return plan_object(jobs=jobs) | {"metadata": meta}

    async def get(self, path: str) -> dict[str, Any]:
        self.reads.append(path)
        return self.plan(path.rpartition("/")[2], path.split("/")[-3])


class Turns:
    """One place for a solve, which takes until it is `over`."""

    def __init__(self) -> None:
        self.places, self.begun, self.over, self.order = Room(1), asyncio.Event(), asyncio.Event(), list[str]()

    async def answer(self, ready: Callable[[], Awaitable[Work]], namespace: str) -> str:
        async with self.places.taken(namespace):
            await ready()
            self.order.append(namespace)
            self.begun.set()
            await self.over.wait()
            raise BrokenProcessPool


async def test_of_a_crowd_of_plans_nothing_is_held_and_another_namespaces_takes_its_turn() -> None:
    cluster, turns = Crowded(), Turns()
    some: Any = (cluster, turns)
    loop = Planning(some[0], Cache(), ("many", "ml"), processes=some[1])
    tracemalloc.start()
    for number in range(500):
        await add(loop, cluster.plan(f"p{number}", "many"))
    looks = [asyncio.create_task(loop.look())]
    await asyncio.wait_for(turns.begun.wait(), 20)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 500 * 4096, "a plan's own 14 KiB of JSON take a hundred when parsed"
    assert len(cluster.reads) == 1, "what waits is not read"
    await add(loop, cluster.plan("q", "ml"))
    looks.append(asyncio.create_task(loop.look()))
    await asyncio.sleep(0.1)
    turns.over.set()
    await asyncio.gather(*looks)
    assert "ml" in turns.order[:3]
    assert len(turns.order) == MOST_BEGUN + 1


async def test_a_plan_that_is_gone_is_forgotten(scene: Scene) -> None:
    loop, _, written = scene
    written.gone = True
    await add(loop, plan_object())
    await loop.look()
    written.gone = False
    await loop.look()
    assert written.statuses == []


def loaded(*modules: str) -> set[str]:
    """What a fresh process has loaded after it imported these."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_other_process_imports_nothing_that_talks_to_a_cluster_and_the_operators_own_no_solver() -> None:
    modules = [f"precision_operator.planner.answer.{name}" for name in ("work", "document", "planning", "what_if")]
    assert {"kopf", "kubernetes", "aiohttp"} & loaded(*modules) == set()
    assert {"numpy", "ortools"} & loaded("precision_operator.__main__") == set()


class Refusing(Written):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.tries = error, 0

    async def patch(self, path: str, body: Any, kind: str = "merge") -> dict[str, Any]:
        self.tries += 1
        raise self.error


@pytest.mark.parametrize("error", [ApiError(500, "InternalError", "no"), OverflowError("date value out of range")])
async def test_a_plan_that_fails_is_left_alone_for_a_while_unless_it_is_changed(error: Exception) -> None:
    cluster: Any = Refusing(error)
    loop = Watched(cluster, Cache(), ("ml",))
    await add(loop, plan_object(1, jobs=[]))
    await loop.look()
    await loop.look()
    assert cluster.tries == 1
    loop.see({"type": "MODIFIED", "object": plan_object(2, jobs=[])})
    await loop.look()
    assert cluster.tries == 2


async def test_a_lost_lease_ends_planning() -> None:
    cluster: Any = Refusing(LeaseLost("another one leads"))
    loop = Watched(cluster, Cache(), ("ml",))
    await add(loop, plan_object(1, jobs=[]))
    with pytest.raises(LeaseLost):
        await loop.look()


def test_without_a_start_jobs_start_today_or_when_the_plan_is_made() -> None:
    now = datetime(2026, 12, 1, 9, tzinfo=UTC)
    for created, hour in (("2026-10-01T06:00:00Z", 0), ("2026-12-01T06:00:00Z", 6)):
        assert start_of(Work("", created, "", (), (), {}, now)) == datetime(2026, 12, 1, hour, tzinfo=UTC)
