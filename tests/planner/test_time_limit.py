"""The time limit holds wherever it ends a plan: time passes here with the work that is done, not with the wall's clock.

So a stage that works on without a look at the clock is too late on every machine. HiGHS, in its own process, takes no
time here; that it is ended when it passes its time is in test_solver_processes.
"""

import math
import sys
from functools import cache
from types import FrameType, TracebackType
from typing import Any, Self

import pytest

from benchmarks.planner import problem
from precision_operator.planner.answer.planning import PlanAnswer, answer, with_odds
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import clock_of
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.options import sizes
from precision_operator.planner.solving.prices import Market, priced
from precision_operator.planner.solving.sizes import MOST
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.plan_checker import broken

CALLS_PER_SECOND = 20_000
"""Calls of functions that are a second here: some hundredths of one on a quiet core, so small problems take long."""


class WorkClock:
    """Counts calls of functions, in Python and in C, while it is entered; `now` is seconds of such work.

    So it is the same on every machine, however busy it is. What another process does takes no time here.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.looks = 0
        self._last = 0
        self.longest = (0.0, "")
        """The most seconds between two looks at the clock, and where the second look was."""

    def now(self) -> float:
        """Seconds of work until now."""
        self.looks += 1
        passed = (self.calls - self._last) / CALLS_PER_SECOND
        if passed > self.longest[0]:
            self.longest = passed, _where(sys._getframe(1))
        self._last = self.calls
        return self.calls / CALLS_PER_SECOND

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


def _where(frame: FrameType | None) -> str:
    names = []
    while frame is not None and len(names) < 6:
        names.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)


LIMITS = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)
ALLOWED = 1.2
"""Parts of its limit that a plan may take."""


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
        clock = clock_of(seconds, work.now)
        told = with_odds(answer(read, found, clock), clock)
        return told, work.now()


answered = cache(answered_anew)
"""The same, worked out once for both tests that ask for it."""


@pytest.mark.parametrize("objective", ["cost", "time"])
@pytest.mark.parametrize("made", [many_sizes, few_sizes, clashing])
@pytest.mark.parametrize("seconds", LIMITS)
def test_a_plan_takes_no_more_than_its_limit_wherever_that_ends_it(made: Any, objective: str, seconds: float) -> None:
    told, took = answered(made, objective, seconds)
    assert took <= ALLOWED * seconds
    if told.solution is None:
        assert told.not_known == "TimedOut" or told.conflict is not None
    else:
        assert told.terms is not None
        assert broken(told.solution.slots, told.terms) == []
        assert math.isfinite(told.solution.gap)


@cache
def unhurried(objective: str) -> PlanAnswer:
    known, asked = many_sizes(objective)
    read = terms(asked, NOW)
    found = pools(known, read, NOW)
    assert sizes(found, read) > MOST
    return answer(read, found)


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_what_is_proved_before_the_time_is_over_holds_for_the_best_plan(objective: str) -> None:
    best = unhurried(objective).solution
    assert best is not None
    for seconds in LIMITS:
        hurried = answered(many_sizes, objective, seconds)[0].solution
        if hurried is not None:
            assert hurried.values[0] * (1 - hurried.gap) <= best.values[0] * (1 + 1e-6)


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_a_bound_that_needs_no_program_is_below_the_one_of_the_program_and_above_nothing(objective: Any) -> None:
    known, asked = many_sizes(objective)
    read = terms(asked, NOW)
    market = Market(Catalog(pools(known, read, NOW), read), objective)
    least, (bound, _) = market.least(clock_of(60.0)), priced(market, clock_of(60.0))
    assert 0.5 * bound < least <= bound * (1 + 1e-9)
