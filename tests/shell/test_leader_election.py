"""Who leads: a Lease in a store that fails as a network does, clocks that disagree, and replicas that are stopped."""

import asyncio
import gc
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from aiohttp import web
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from precision_operator.__main__ import arguments
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.watch_loop import WatchState
from precision_operator.core.observe.observed import Settings
from precision_operator.handlers import targets
from precision_operator.shell import leader_election
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import Gatherer
from precision_operator.shell.reconcile import Reconciler
from precision_operator.shell.telemetry import Telemetry
from tests.cluster.test_client import facing
from tests.cluster.test_watching import until
from tests.support.examples import examples

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
Trouble = Literal["none", "refused", "answer lost", "conflict"]


class HandClock(leader_election.Clock):
    """Time that passes when a test says so; `rate` and `wrong_by` make a bad clock of it."""

    def __init__(self, rate: float = 1.0, wrong_by: float = 0.0) -> None:
        self.passed = 0.0
        self.rate = rate
        self.wrong_by = wrong_by

    def now(self) -> float:
        return 1000.0 + self.passed * self.rate

    def utc(self) -> datetime:
        return START + timedelta(seconds=self.passed + self.wrong_by)

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds
        await asyncio.sleep(0)


class Shelf:
    """One Lease, as an API server keeps it; `road` is one replica's way to it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0

    @property
    def holder(self) -> str:
        return leader_election.holder(self.lease or {})

    @property
    def spec(self) -> dict[str, Any]:
        return dict((self.lease or {}).get("spec", {}))

    def keep(self, lease: leader_election.Lease) -> None:
        known = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if lease.get("metadata", {}).get("resourceVersion") != known:
            raise ApiError(409, "Conflict", "PUT lease: the object has been modified")
        self.version += 1
        self.writes += 1
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": dict(lease["spec"])}


class Road:
    """One replica's way to the shelf, with the troubles that the next requests shall have."""

    stepped = False
    """Whether another replica may be quicker, before and after each request."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.troubles: list[Trouble] = []
        self.asked = 0

    async def read(self) -> leader_election.Lease | None:
        trouble = await self._set_out()
        found = None if self._shelf.lease is None else {**self._shelf.lease}
        await self._return(trouble)
        return found

    async def write(self, lease: leader_election.Lease) -> None:
        trouble = await self._set_out()
        self._shelf.keep(lease)
        await self._return(trouble)

    async def _set_out(self) -> Trouble:
        self.asked += 1
        if self.stepped:
            await asyncio.sleep(0)
        trouble = self.troubles.pop(0) if self.troubles else "none"
        if trouble == "refused":
            raise ApiError(0, "Unreachable", "connection refused")
        if trouble == "conflict":
            raise ApiError(409, "Conflict", "the object has been modified")
        return trouble

    async def _return(self, trouble: Trouble) -> None:
        if self.stepped:
            await asyncio.sleep(0)
        if trouble == "answer lost":
            raise ApiError(0, "Timeout", "no answer")


class Replica:
    """One candidate with its clock and its way to the shelf."""

    def __init__(self, shelf: Shelf, name: str, clock: HandClock | None = None) -> None:
        self.clock = clock or HandClock()
        self.road = Road(shelf)
        self.election = leader_election.LeaseElection(self.road, name, leader_election.LeaseTimings(), self.clock)

    async def tries(self, after: float = 0.0, *troubles: Trouble) -> bool:
        """One try `after` seconds; whether it leads then."""
        self.clock.passed += after
        self.road.troubles = list(troubles)
        await self.election.attempt()
        return self.election.leads


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def a(shelf: Shelf) -> Replica:
    """A replica that leads."""
    replica = Replica(shelf, "a")
    assert await replica.tries()
    return replica


async def test_a_lease_that_is_not_there_is_created_and_says_who_and_since_when(shelf: Shelf) -> None:
    assert await Replica(shelf, "a").tries()
    assert shelf.spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-03-01T12:00:00.000000Z",
        "renewTime": "2026-03-01T12:00:00.000000Z",
        "leaseTransitions": 0,
    }


async def test_a_renewal_changes_its_own_time_and_a_failed_one_is_made_good(shelf: Shelf, a: Replica) -> None:
    before = shelf.spec
    assert await a.tries(2.5)
    assert shelf.spec == before | {"renewTime": "2026-03-01T12:00:02.500000Z"}
    assert await a.tries(6, "none", "answer lost")
    assert await a.tries(2)
    a.clock.passed += 9
    a.election.check()


@pytest.mark.parametrize(("said", "wait"), [(15, 15), (40, 40), (None, 15)], ids=["same", "longer", "unsaid"])
async def test_a_silent_holder_is_waited_for_as_long_as_it_said(shelf: Shelf, said: int | None, wait: float) -> None:
    shelf.keep({"spec": {"holderIdentity": "gone", "leaseDurationSeconds": said, "leaseTransitions": 4}})
    b = Replica(shelf, "b")
    assert not await b.tries()
    assert not await b.tries(wait - 0.1)
    assert await b.tries(0.1)
    assert (shelf.holder, shelf.spec["leaseTransitions"]) == ("b", 5)


async def test_each_renewal_that_is_seen_begins_the_wait_anew(shelf: Shelf) -> None:
    a, b = Replica(shelf, "a"), Replica(shelf, "b")
    for _ in range(10):
        assert await a.tries(5)
        assert not await b.tries(5)


@pytest.mark.parametrize("hours", [-1000, 1000])
async def test_the_wall_clocks_of_the_replicas_may_be_wrong(shelf: Shelf, hours: float) -> None:
    a, b = Replica(shelf, "a", HandClock(wrong_by=hours * 3600)), Replica(shelf, "b")
    assert await a.tries()
    assert not await b.tries(0)
    assert not await b.tries(14.9)
    assert await b.tries(0.1)


async def test_the_right_to_write_counts_from_the_start_of_a_renewal(shelf: Shelf) -> None:
    a = Replica(shelf, "a")
    slow = a.election.attempt()
    a.clock.passed += 3  # a coroutine has not begun before it is awaited
    await slow
    a.clock.passed += 9.9
    a.election.check()
    a.clock.passed += 0.1
    with pytest.raises(leader_election.LeaseLost):
        a.election.check()


@pytest.mark.parametrize("trouble", ["refused", "answer lost", "conflict"])
async def test_a_renewal_without_a_clear_yes_prolongs_nothing(a: Replica, trouble: Trouble) -> None:
    assert await a.tries(6, "none", trouble)
    a.clock.passed += 4
    assert not a.election.leads


async def test_a_lease_that_was_taken_without_our_knowing_is_ours_at_the_next_look(shelf: Shelf) -> None:
    a = Replica(shelf, "a")
    assert not await a.tries(0, "none", "answer lost")
    assert shelf.holder == "a"
    assert await a.tries(2)
    assert shelf.spec["leaseTransitions"] == 0


async def test_who_sees_another_holder_stops_writing_at_once(shelf: Shelf, a: Replica) -> None:
    shelf.keep({**(shelf.lease or {}), "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}})
    assert not await a.tries(1)
    assert shelf.holder == "b"


async def test_of_two_that_find_the_lease_free_one_gets_it(shelf: Shelf) -> None:
    a, b = Replica(shelf, "a"), Replica(shelf, "b")
    assert await a.tries(0)
    assert not await b.tries(0, "none", "conflict")
    assert shelf.holder == "a"


async def test_a_lease_that_somebody_deleted_is_made_again(shelf: Shelf, a: Replica) -> None:
    shelf.lease = None
    assert await a.tries(2)
    assert shelf.holder == "a"


async def test_a_lease_that_was_given_back_is_taken_without_waiting(shelf: Shelf, a: Replica) -> None:
    b = Replica(shelf, "b")
    assert not await b.tries()
    await a.election.release()
    with pytest.raises(leader_election.LeaseLost):
        a.election.check()
    assert (shelf.holder, shelf.spec["leaseDurationSeconds"]) == ("", 1)
    assert await b.tries(1)
    assert shelf.spec["leaseTransitions"] == 1


async def test_a_lease_is_given_back_by_its_holder_alone_and_failing_is_none(shelf: Shelf, a: Replica) -> None:
    await Replica(shelf, "b").election.release()
    assert shelf.holder == "a"
    a.road.troubles = ["refused"]
    await a.election.release()
    assert (a.election.leads, shelf.holder) == (False, "a")


async def test_a_leader_that_can_not_renew_gives_up_before_another_may_begin() -> None:
    shelf = Shelf()
    a = Replica(shelf, "a")
    running = asyncio.create_task(a.election.run())
    await asyncio.wait_for(a.election.elected.wait(), 60)
    a.road.troubles = ["refused"] * 1000
    with pytest.raises(leader_election.LeaseLost):
        await running
    renewed = datetime.fromisoformat(shelf.spec["renewTime"])
    assert timedelta(seconds=10) <= a.clock.utc() - renewed < timedelta(seconds=15)


async def test_a_leader_that_slept_too_long_asks_nobody_and_gives_up_even_if_the_lease_still_names_it() -> None:
    shelf = Shelf()
    a = Replica(shelf, "a")
    running = asyncio.create_task(a.election.run())
    await asyncio.wait_for(a.election.elected.wait(), 60)
    asked = a.road.asked
    a.clock.passed += 60
    with pytest.raises(leader_election.LeaseLost):
        await running
    assert (a.road.asked, shelf.holder) == (asked, "a")


async def test_a_loop_that_is_silent_for_20_s_is_renewed_for_no_more_and_takes_no_lease() -> None:
    shelf, clock, calls = Shelf(), HandClock(), list[Callable[[], None]]()
    election = leader_election.LeaseElection(Road(shelf), "a", leader_election.LeaseTimings(), clock, calls.append)
    with pytest.raises(leader_election.LeaseLost):
        await asyncio.wait_for(election.run(), 10)
    renewed = datetime.fromisoformat(shelf.spec["renewTime"])
    assert timedelta(seconds=17) < renewed - START < timedelta(seconds=20) < clock.utc() - START < timedelta(seconds=32)
    shelf.lease = None
    running = asyncio.create_task(election.run())
    await until(lambda: clock.passed > 100)
    assert shelf.lease is None
    running.cancel()


async def test_a_replica_stands_by_as_long_as_another_one_renews() -> None:
    shelf, clock = Shelf(), HandClock()
    a, b = Replica(shelf, "a", clock), Replica(shelf, "b", clock)
    await a.tries()
    running = asyncio.create_task(b.election.run())
    await asyncio.wait_for(b.election.first_attempt_done.wait(), 60)
    for _ in range(50):
        assert await a.tries()
        await asyncio.sleep(0)
    assert not b.election.elected.is_set()
    await asyncio.wait_for(b.election.elected.wait(), 60)
    assert shelf.holder == "b"
    running.cancel()


class Stepped(Replica):
    """A replica whose requests go forth and back one step at a time."""

    _trying: Coroutine[Any, Any, None] | None = None

    def step(self) -> None:
        """One step of its try; the next step after the last begins a new try."""
        self.road.stepped = True
        self._trying = self._trying or self.election.attempt()
        try:
            self._trying.send(None)
        except StopIteration:
            self._trying = None

    def stop(self) -> None:
        """Ends its try, as a process does that is told to end."""
        if self._trying:
            self._trying.close()
        self._trying = None


class Candidates(RuleBasedStateMachine):
    """Three replicas with clocks that run differently, stopped at any point for any time, over a bad network."""

    @initialize(rates=st.lists(st.floats(0.85, 1.15), min_size=3, max_size=3))
    def begin(self, rates: list[float]) -> None:
        self.shelf = Shelf()
        self.replicas = [Stepped(self.shelf, name, HandClock(rate)) for name, rate in zip("abc", rates, strict=True)]

    def pass_time(self, seconds: float) -> None:
        for replica in self.replicas:
            replica.clock.passed += seconds

    @rule(who=st.integers(0, 2), steps=st.integers(1, 6))
    def go_on(self, who: int, steps: int) -> None:
        for _ in range(steps):
            self.replicas[who].step()

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 4.9, 9.0, 11.0, 16.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    @rule(who=st.integers(0, 2), trouble=st.sampled_from(["refused", "answer lost"]))
    def trouble(self, who: int, trouble: Trouble) -> None:
        self.replicas[who].road.troubles.append(trouble)

    @rule(who=st.integers(0, 2))
    def give_back(self, who: int) -> None:
        self.replicas[who].stop()
        giving = self.replicas[who].election.release()
        for _ in range(10):
            try:
                giving.send(None)
            except StopIteration:
                return

    @invariant()
    def never_two(self) -> None:
        assert len([replica for replica in self.replicas if replica.election.leads]) <= 1

    def teardown(self) -> None:
        for replica in self.replicas:
            replica.road.troubles.clear()
        for _ in range(30):
            self.pass_time(2)
            for replica in self.replicas:
                for _ in range(5):
                    replica.step()
                self.never_two()
        assert [replica.election.leads for replica in self.replicas].count(True) == 1
        for replica in self.replicas:
            replica.stop()


def test_there_are_never_two_leaders_and_in_quiet_times_there_is_one() -> None:
    run_state_machine_as_test(Candidates, settings=examples(50, stateful_step_count=60))


@pytest.mark.parametrize(
    "times",
    [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 10.0, 0.0), (15, math.nan, 2.0)],
    ids=["lease", "renew", "retry", "nan"],
)
def test_times_that_can_not_keep_replicas_apart_are_refused(times: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="the first must be longer than the second"):
        leader_election.LeaseTimings(*times)


async def test_a_lone_replica_leads_and_times_that_do_not_fit_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--watch-namespaces=a", "--leader-elect", "--lease-seconds=5"])
    assert "the lease lasts 5 s, its holder gives up after 10 s" in capsys.readouterr().err
    alone = leader_election.NoElection()
    alone.check()
    assert (alone.leads, alone.first_attempt_done.is_set(), alone.elected.is_set()) == (True, True, True)


def test_a_scrape_tells_who_leads() -> None:
    telemetry, a = Telemetry(), Replica(Shelf(), "a")
    telemetry.follow(lambda: a.election.leads, {}, {})
    assert value_of(telemetry, "precision_operator_leader") == 0
    asyncio.run(a.tries())
    assert value_of(telemetry, "precision_operator_leader") == 1


def test_a_scrape_tells_of_each_kind_and_namespace_how_its_watch_fares() -> None:
    telemetry, kinds = Telemetry(), targets(["red", "blue"])
    states = {}
    for target in kinds:
        is_lost, heard_at = target.namespace == "blue", time.monotonic() - 100 * (target.namespace != "red")
        states[target] = WatchState(watched=not is_lost, ends=2, forbidden=is_lost, heard_at=heard_at)
    telemetry.follow(lambda: True, kinds, states)
    age = "precision_operator_watch_age_seconds"
    red = value_of(telemetry, f'{age}{{kind="jobs",namespace="red"}}')
    blue = value_of(telemetry, f'{age}{{kind="jobs",namespace="blue"}}')
    assert 0 <= red < 100 <= min(blue, value_of(telemetry, f'{age}{{kind="nodes",namespace=""}}'))
    seen = [value_of(telemetry, f'precision_operator_watched{{kind="plans",namespace="{n}"}}') for n in ("red", "blue")]
    assert seen == [1, 0]
    assert value_of(telemetry, 'precision_operator_watch_ends_total{kind="pods",namespace="red"}') == 2
    forbidden = [
        value_of(telemetry, f'precision_operator_forbidden{{kind="jobs",namespace="{n}"}}') for n in ("red", "blue")
    ]
    assert forbidden == [0, 1]


def value_of(telemetry: Telemetry, series: str) -> float:
    [found] = [line for line in telemetry.text().decode().splitlines() if line.startswith(f"{series} ")]
    return float(found.rpartition(" ")[2])


Asked = list[tuple[str, str]]
"""Method and path of each request that reached the server."""


@asynccontextmanager
async def empty_cluster(folder: Path) -> AsyncIterator[tuple[Cluster, Asked]]:
    """A server on which every list is empty, and what it was asked."""
    asked: Asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.path))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with facing(answer, folder) as cluster:
        yield cluster, asked


async def test_who_does_not_lead_reads_and_sends_no_write(tmp_path: Path) -> None:
    a = Replica(Shelf(), "a")
    async with empty_cluster(tmp_path) as (cluster, asked):
        cluster.before_write = a.election.check
        for write in (
            cluster.create("/c", {}),
            cluster.replace("/c/1", {}),
            cluster.patch("/c/1", {}),
            cluster.apply("/c/1", {}, "us"),
            cluster.delete("/c/1"),
        ):
            with pytest.raises(leader_election.LeaseLost):
                await write
        await cluster.get("/c/1")
        assert asked == [("GET", "/c/1")]
        assert await a.tries()
        await cluster.create("/c", {})
        assert asked[1:] == [("POST", "/c")]


async def test_who_loses_the_lease_while_a_write_waits_for_a_connection_does_not_send_it(tmp_path: Path) -> None:
    asked: Asked = []
    let_go = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.path))
        await let_go.wait()
        return web.json_response({})

    a = Replica(Shelf(), "a")
    async with facing(answer, tmp_path) as cluster:
        cluster._rest.maxsize = 1
        cluster.before_write = a.election.check
        assert await a.tries()
        read = asyncio.create_task(cluster.get("/c/1"))
        await until(lambda: len(asked) == 1)
        write = asyncio.create_task(cluster.create("/c", {}))
        await asyncio.sleep(0.05)
        a.clock.passed += 3600
        let_go.set()
        with pytest.raises(leader_election.LeaseLost):
            await write
        assert await read == {}
        assert asked == [("GET", "/c/1")]
        assert await a.tries()
        await cluster.create("/c", {})


class Chair(leader_election.NoElection):
    """An office that is taken when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.elected.clear()


def reconciler_of(cluster: Cluster) -> Reconciler:
    cache = Cache()
    gatherer = Gatherer(cluster, cache, Settings("agent", (), "low", "agents"), ["team"])
    return Reconciler(cache, gatherer, Actor(cluster, cache), Telemetry())


async def test_no_garbage_is_collected_while_a_pass_is_worked_out_nor_later_what_it_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with empty_cluster(tmp_path) as (cluster, _):
        reconciler, made, frozen = reconciler_of(cluster), list[object](), gc.get_freeze_count()
        monkeypatch.setattr("precision_operator.shell.reconcile.MOST_COLLECTED", 1000)
        for each, spared in ((100, False), (1000, True)):
            assert not await reconciler._aside(
                lambda count: made.extend([] for _ in range(count)) or gc.isenabled(), each
            )
            assert gc.isenabled()
            assert (gc.get_freeze_count() > frozen) == spared


@pytest.mark.parametrize(("led", "kinds"), [(True, ()), (False, (paths.jobs, paths.pods))], ids=["at first", "later"])
async def test_who_comes_to_lead_after_the_first_lists_lists_agents_alone_anew(
    led: bool, kinds: Sequence[Callable[[str], str]], tmp_path: Path
) -> None:
    listed = [("GET", path("team")) for path in kinds]
    async with empty_cluster(tmp_path) as (cluster, asked):
        chair, reconciler = leader_election.NoElection() if led else Chair(), reconciler_of(cluster)
        running = asyncio.create_task(reconciler.run(chair))
        async with asyncio.timeout(60):
            await until(lambda: reconciler.ready)
            assert not asked, "who stands by is ready too"
            chair.elected.set()
            await until(lambda: len(asked) == len(listed))
            await reconciler.finish()
        assert asked == listed
        running.cancel()
