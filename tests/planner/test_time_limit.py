"""The time limit holds wherever it ends a plan: time passes here with the work that is done, not with the wall's clock.

So a stage that works on without a look at the clock is too late on every machine. ortools, which counts its own
seconds, takes no time here. At the end stands what ends by force: a plan that hangs or takes all memory. Nothing else
is lost with it.
"""

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import pytest

from benchmarks.planner import problem
from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.cluster import container_memory
from precision_operator.planner.answer.planning import PlanAnswer, answer, with_odds
from precision_operator.planner.answer.work import DATA_BYTES, NO_MEMORY, Work
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import clock_of
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.former import place_of
from precision_operator.planner.solving.linear import Model
from precision_operator.planner.solving.options import offers, sizes
from precision_operator.planner.solving.prices import Market, priced
from precision_operator.planner.solving.program import AssignmentProgram
from precision_operator.planner.solving.sizes import MOST
from precision_operator.shell.plans.plan_processes import AT_ONCE, PlanProcesses, plans_at_once
from precision_operator.shell.room import Room
from tests.planner.test_planning_loop import PATIENCE_SECONDS, Scene, Written, add, plan_object, planning
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.plan_checker import broken
from tests.support.unruly_plans import acts_by_name, takes_memory

CALLS_PER_SECOND = 20_000
"""Calls of functions that are a second here: some hundredths of one on a quiet core, so small problems take long."""


class WorkClock:
    """Counts calls of functions, in Python and in C, while it is entered; `now` is seconds of such work.

    So it is the same on every machine, however busy it is. What ortools does takes no time here.
    """

    def __init__(self) -> None:
        self.calls = 0

    def now(self) -> float:
        """Seconds of work until now."""
        return self.calls / CALLS_PER_SECOND

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


FOR_EVER = 3600.0
"""Seconds."""
LIMITS = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)


def many_sizes(objective: str) -> Any:
    """120,000 sizes, of which prices pick those of the program."""
    return problem(4, 12, (objective,), 10)


def few_sizes(objective: str) -> Any:
    """Sizes that are all in the program; some nodes are slow, and not all were measured."""
    nodes = [node(f"n{i}", [rate("bf16", 8e4 * (0.8 if i < 2 else 1 + i / 1000))]) for i in range(40)]
    jobs = [job(f"j{i}", tokens=f"{i + 1}T", after=["j0"] if i > 4 else []) for i in range(8)]
    own = [{"name": "H100", "nodes": 60, "dollarsPerGPUHour": "2"}]
    return fleet(pool("H100", *nodes)), spec(*jobs, objective=[objective], pools=own)


def clashing(objective: str) -> Any:
    known, made = few_sizes(objective)
    jobs = [each.model_copy(update={"deadline_days": "30"}) for each in made.jobs]
    return known, made.model_copy(update={"jobs": tuple(jobs)})


@pytest.fixture(scope="module", autouse=True)
def _once() -> None:
    """What a process does once is not counted: the solver's start, imports, the memory of the models."""
    for made in (many_sizes, few_sizes, clashing):
        answered_anew(made, "time", LIMITS[-1])


def answered_anew(made: Any, objective: str, seconds: float) -> tuple[PlanAnswer, float]:
    """(the answer, the seconds of work that it took)."""
    known, asked = made(objective)
    read = terms(asked, NOW)
    found = pools(known, read, NOW)
    with WorkClock() as work:
        clock = replace(clock_of(seconds, work.now), search_seconds=0.2)
        return with_odds(answer(read, found, clock), clock), work.now()


answered = cache(answered_anew)
"""The same, worked out once for both tests that ask for it."""


@pytest.mark.parametrize("objective", ["cost", "time"])
@pytest.mark.parametrize("made", [many_sizes, few_sizes, clashing])
@pytest.mark.parametrize("seconds", LIMITS)
def test_a_plan_takes_no_more_than_its_limit_wherever_that_ends_it(made: Any, objective: str, seconds: float) -> None:
    told, took = answered(made, objective, seconds)
    assert took <= 1.2 * seconds
    if told.solution is None:
        assert told.not_known == "TimedOut" or told.conflict is not None
    else:
        assert told.terms is not None
        assert broken(told.solution.slots, told.terms) == []
        assert math.isfinite(told.solution.gap)


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_what_is_proved_before_the_time_is_over_holds_for_the_best_plan(objective: str) -> None:
    known, asked = many_sizes(objective)
    read = terms(asked, NOW)
    found = pools(known, read, NOW)
    assert sizes(found, read) > MOST
    best = answer(read, found).solution
    assert best is not None
    for seconds in LIMITS:
        hurried = answered(many_sizes, objective, seconds)[0].solution
        if hurried is not None:
            assert hurried.values[0] * (1 - hurried.gap) <= best.values[0] * (1 + 1e-6)
            assert hurried.timed_out or [place_of(s.option) for s in hurried.slots] == [
                place_of(s.option) for s in best.slots
            ]


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_a_bound_that_needs_no_program_is_below_the_one_of_the_program_and_above_nothing(objective: Any) -> None:
    known, asked = many_sizes(objective)
    read = terms(asked, NOW)
    market = Market(Catalog(pools(known, read, NOW), read), objective)
    least, (bound, _) = market.least(), priced(market, clock_of(60.0))
    assert 0.5 * bound < least <= bound * (1 + 1e-9)


def model(seconds: float) -> Model:
    read = terms(spec(), NOW)
    program = AssignmentProgram(offers(Catalog(pools(fleet(), read, NOW), read)), read)
    return program.model(program.objective("time"), 0.01, seconds)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """What hangs is ended after a while."""
    seconds: Callable[[Work], float] = lambda work: 1.0 if "short" in work.spec else FOR_EVER  # noqa: E731
    async with planning(processes=PlanProcesses(acts_by_name, seconds)) as running:
        yield running


def named(name: str) -> dict[str, Any]:
    raw = plan_object(jobs=[{"name": name, "workload": {"preset": "llama3-8b"}, "tokens": "1B"}])
    raw["metadata"] |= {"name": f"plan-{name}", "uid": name}
    return raw


async def answers(written: Written, number: int) -> list[PlanStatus]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(written.statuses) < number:
            written.changed.clear()
            await written.changed.wait()
    return [PlanStatus.model_validate(status) for status in written.statuses]


async def test_of_four_plans_one_that_hangs_holds_up_none(scene: Scene) -> None:
    loop, _, written = scene
    for name in ("hangs", "a", "b", "c"):
        await add(loop, named(name))
    told = await answers(written, 3)
    assert [each.phase for each in told] == ["Solved"] * 3
    assert {each.jobs[0].name for each in told} == {"a", "b", "c"}


async def test_as_many_as_there_is_room_for_may_hang_until_their_time_is_over(scene: Scene) -> None:
    loop, _, written = scene
    for number in range(AT_ONCE):
        await add(loop, named(f"hangs-short-{number}"))
    await add(loop, named("a"))
    told = await answers(written, AT_ONCE + 1)
    assert sorted(str(each.phase) for each in told) == ["Solved"] + ["TimedOut"] * AT_ONCE
    late = next(each for each in told if each.phase == "TimedOut")
    assert late.problems[0].startswith("spec.solver.timeLimitSeconds: planning went on long after the time limit")


@pytest.mark.parametrize(
    ("limit", "plans"), [("max", 4), ("", 4), (str(1 << 30), 1), (str(2 << 30), 2), (str(64 << 30), 4), ("1", 1)]
)
def test_as_many_plans_are_solved_at_once_as_the_container_has_room_for(limit: str, plans: int, tmp_path: Path) -> None:
    if limit:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert plans_at_once(container_memory.limit_bytes(tmp_path)) == plans


@pytest.mark.parametrize(
    ("files", "ratio"),
    [
        ({"memory.max": "1000", "memory.current": "950", "memory.stat": "anon 1\ninactive_file 50\n"}, 0.9),
        ({"memory.max": "max", "memory.current": "950", "memory.stat": "inactive_file 50\n"}, None),
        (
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "950",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 50\n",
            },
            0.9,
        ),
        ({"memory/memory.limit_in_bytes": f"{2**63 - 4096}", "memory/memory.usage_in_bytes": "950"}, None),
        ({}, None),
    ],
)
def test_a_containers_memory_is_told_without_the_cache_that_can_be_given_back(
    files: dict[str, str], ratio: float | None, tmp_path: Path
) -> None:
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    used = container_memory.used_ratio(tmp_path)
    assert math.isnan(used) if ratio is None else used == ratio


async def test_the_plans_of_one_namespace_take_turns_with_those_of_another() -> None:
    """However many one tenant has: where two have a plan that waits, the one that has fewer places is next."""
    room, held, order = Room(2), asyncio.Event(), list[str]()

    async def plan(namespace: str, name: str) -> None:
        async with room.taken(namespace):
            order.append(name)
            await held.wait()

    many = [asyncio.create_task(plan("many", f"many-{number}")) for number in range(6)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(plan("few", f"few-{number}")) for number in range(2)]
    await asyncio.sleep(0)
    assert order == ["many-0", "many-1"], "room that nobody else asks for is taken"
    many[5].cancel()
    many[0].cancel()
    await asyncio.sleep(0.01)
    assert order[2:] == ["few-0"]
    held.set()
    await asyncio.gather(*many, *few, return_exceptions=True)
    assert sorted(order) == ["few-0", "few-1", *(f"many-{number}" for number in range(5))]


async def test_in_a_limited_container_a_hungry_plan_is_refused_and_the_next_is_solved() -> None:
    async def work(spec: str = "hungry") -> Work:
        return Work(spec, "", "", (), (), {}, NOW)

    limited, free = (PlanProcesses(takes_memory, lambda _: FOR_EVER, limit) for limit in (2 << 30, None))
    assert await free.answer(work) == str(2 * DATA_BYTES)
    assert NO_MEMORY in await limited.answer(work)
    assert await limited.answer(partial(work, "modest")) == str(DATA_BYTES // 4)


async def test_a_plan_that_takes_all_memory_says_so_and_the_others_are_answered(scene: Scene) -> None:
    loop, _, written = scene
    for name in ("hungry", "a"):
        await add(loop, named(name))
    told = {str(each.phase): each for each in await answers(written, 2)}
    assert set(told) == {"Solved", "NotFound"}
    assert told["NotFound"].problems[0].startswith("spec.jobs: planning takes more memory than there is")
