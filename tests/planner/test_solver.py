"""The solver against brute force on small random problems; whatever it says holds all limits."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_api.capacity_plan import PlanSpec, PlanStatus
from precision_operator.cli.codes import NOT_KNOWN
from precision_operator.cli.commands.plan import ENDS
from precision_operator.planner.conditions import finished
from precision_operator.planner.conflict import conflict
from precision_operator.planner.document import status
from precision_operator.planner.evidence import pools
from precision_operator.planner.highs import NoneFound, OutOfTime
from precision_operator.planner.options import Offer, offers
from precision_operator.planner.planning import Answer, answer, plan
from precision_operator.planner.schedule import Slot, schedule
from precision_operator.planner.solution import value
from precision_operator.planner.solve import objectives_of, solve
from precision_operator.planner.terms import Terms, terms
from precision_operator.planner.what_if import what_ifs
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.plan_checker import broken, in_every_order

FEW = 4
"""Options of a job that are kept, so that brute force ends."""


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, Any]:
    """A fleet of one to three pools and a plan of one to three jobs with some limits."""
    found, own = [], []
    for number in range(draw(st.integers(1, 3))):
        name = f"p{number}"
        base = draw(st.integers(20_000, 120_000))
        rates = [
            rate(recipe, float(base * (1 + draw(st.integers(0, 9)) / 10)), watts=float(draw(st.integers(2000, 5600))))
            for recipe in ("bf16", "fp8_current")
        ]
        found.append(pool(name, node(f"{name}-n", rates, count=draw(st.integers(1, 8)))))
        terms_of = {"name": name, "dollarsPerGPUHour": str(draw(st.integers(1, 12)))}
        if draw(st.booleans()):
            terms_of["committedGPUHours"] = str(draw(st.integers(1, 5000)))
        own.append(terms_of)
    jobs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        more: dict[str, Any] = {"priority": draw(st.integers(0, 2))}
        if draw(st.booleans()):
            more["deadlineDays"] = str(draw(st.integers(2, 60)))
        if number and draw(st.booleans()):
            more["after"] = [f"j{draw(st.integers(0, number - 1))}"]
        if draw(st.booleans()):
            more["minGPUs"] = draw(st.sampled_from([8, 16, 32]))
        jobs.append(job(f"j{number}", tokens=f"{draw(st.integers(20, 900))}B", **more))
    limits: dict[str, Any] = {"pue": "1.2", "overhead": {"gpu": "1.25"}}
    if draw(st.booleans()):
        limits["budget"] = f"{draw(st.integers(10, 200))}kW"
    budget: dict[str, Any] = {}
    if draw(st.booleans()):
        budget["dollars"] = str(draw(st.integers(500, 60_000)))
    if draw(st.booleans()):
        budget["megawattHours"] = str(draw(st.integers(1, 60)))
    objective = draw(st.sampled_from([["cost"], ["time"], ["energy"], ["cost", "time"], ["time", "cost"]]))
    made = spec(*jobs, pools=own, power=limits, budget=budget, objective=objective)
    return fleet(*found), made


def few(found: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers with a few options each, spread over all of them."""
    return tuple(replace(o, options=o.options[:: max(1, math.ceil(len(o.options) / FEW))][:FEW]) for o in found)


def best(found: Sequence[Offer], read: Terms) -> float | None:
    """The least first objective over all choices that hold, by trying every one."""
    name = objectives_of(found, read)[0]
    values = [
        value(name, slots)
        for chosen in itertools.product(*(offer.options for offer in found))
        if (slots := held(chosen, read)) is not None
    ]
    return min(values, default=None)


def any_plan(found: Sequence[Offer], read: Terms) -> bool:
    """Whether any choice holds all limits in any order of the jobs. All rates are upper bounds: only days count."""
    choices = itertools.product(*(offer.options for offer in found))
    return any(not broken(slots, read) for chosen in choices for slots in in_every_order(chosen, read))


def held(chosen: Sequence[Any], read: Terms) -> tuple[Slot, ...] | None:
    slots = schedule(chosen, read.limits)
    careful = schedule(chosen, read.limits, lambda option: option.deadline_days)
    if slots is None or careful is None or broken(slots, read):
        return None
    late = [s for s in careful if s.option.job.deadline_days and s.end > s.option.job.deadline_days * (1 + 1e-6)]
    return None if late else slots


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_no_choice_is_better_than_the_solvers_by_more_than_the_stated_gap(problem: tuple[Any, Any]) -> None:
    known, made = problem
    read = terms(made, NOW)
    found = few(offers(pools(known, read, NOW), read))
    if not all(offer.options for offer in found):
        return
    wanted = best(found, read)
    try:
        solution = solve(found, read)
    except NoneFound:
        assert any(offer.job.after for offer in found)
        return
    if solution is None:
        assert not any_plan(found, read)
        return
    assert broken(solution.slots, read) == []
    assert wanted is not None
    assert wanted >= solution.values[0] * (1 - solution.gap) * (1 - 1e-5)
    if not any(offer.job.after for offer in found):
        assert solution.values[0] <= wanted * (1 + read.gap) * (1 + 1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_a_plan_never_breaks_a_limit(problem: tuple[Any, Any]) -> None:
    found = plan(problem[1], problem[0], NOW)
    assert not found.problems or found.solution is None
    if found.solution is not None and found.terms is not None:
        assert broken(found.solution.slots, found.terms) == []
        assert all(math.isfinite(figure) for figure in found.solution.values)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_the_same_question_has_the_same_answer_in_any_order(problem: tuple[Any, Any]) -> None:
    known, made = problem
    turned = made.model_copy(update={"jobs": made.jobs[::-1], "pools": made.pools[::-1]})
    fleets = known, known.model_copy(update={"pools": known.pools[::-1]})
    answers = [plan(made, fleets[0], NOW), plan(turned, fleets[1], NOW)]
    shown = [
        a.solution and [(s.option.job.name, s.option.pool.name, s.option.gpus) for s in a.solution.slots]
        for a in answers
    ]
    assert shown[0] == shown[1]


def test_a_checker_that_is_given_too_few_gpus_says_so() -> None:
    found = plan(spec(job("a", minGPUs=64), job("b", minGPUs=64)), fleet(), NOW)
    assert found.solution is not None
    assert found.terms is not None
    smaller = [
        replace(s, option=replace(s.option, source=replace(s.option.source, pool=replace(s.option.pool, nodes=8))))
        for s in found.solution.slots
    ]
    assert any("too few GPUs" in text for text in broken(smaller, found.terms))


def test_jobs_that_wait_run_one_after_the_other_by_priority() -> None:
    jobs = [
        job("first", minGPUs=128),
        job("low", after=["first"], minGPUs=128, priority=1),
        job("high", after=["first"], minGPUs=128, priority=9),
    ]
    found = plan(spec(*jobs), fleet(), NOW)
    assert found.solution is not None
    ordered = sorted(found.solution.slots, key=lambda slot: slot.start)
    assert [slot.option.job.name for slot in ordered] == ["first", "high", "low"]
    assert [round(slot.start, 3) for slot in ordered] == [0.0, 0.904, 1.808]


def test_blocks_of_an_nvlink_domain_lie_within_one_rack() -> None:
    racks = [node(f"r{r}-{i}", gpus=4, rack=f"rack{r}", rates=[rate("bf16", 4e4)]) for r in range(3) for i in range(18)]
    short = [node(f"s-{i}", gpus=4, rack="short", rates=[rate("bf16", 4e4)]) for i in range(17)]
    made = spec(job(blockGPUs=72, minGPUs=72))
    found = plan(made, fleet(pool("GB200", *racks, *short)), NOW)
    assert found.solution is not None
    assert found.solution.slots[0].option.gpus == 3 * 72


@pytest.mark.parametrize(
    ("changes", "clash", "remedy"),
    [
        ({"jobs": [job("a", minGPUs=64), job("b", minGPUs=72)]}, "the 128 GPUs of pool H100", "8 more GPUs"),
        ({"jobs": [job("a", deadlineDays="0.5")]}, "the deadline of job a", "0.404 more days"),
        (
            {
                "jobs": [job("a", deadlineDays="5")],
                "power": {"budget": "20kW", "pue": "1.2", "overhead": {"gpu": "1.3"}},
            },
            "the power budget of 0.02 MW",
            "0.00621 MW more power",
        ),
        (
            {"pools": [{"name": "H100", "dollarsPerGPUHour": "1"}], "budget": {"dollars": "1000"}},
            "budget.dollars of 1,000",
            "1,778 dollars more",
        ),
    ],
    ids=["gpus", "deadline", "power", "money"],
)
def test_limits_that_clash_are_named_with_the_smallest_way_out(changes: Any, clash: str, remedy: str) -> None:
    made = spec(**({"jobs": [job()]} | changes))
    told = status(plan(made, fleet(), NOW))
    assert told.phase == "Infeasible"
    assert clash in told.problems[0]
    assert remedy in told.problems[1]


def test_the_greedy_answer_is_worse_where_the_fastest_pool_is_dear() -> None:
    fast = pool("fast", node("f", [rate("bf16", 100_000.0)], count=16))
    slow = pool("slow", node("s", [rate("bf16", 80_000.0)], count=16))
    prices = [{"name": "fast", "dollarsPerGPUHour": "10"}, {"name": "slow", "dollarsPerGPUHour": "2"}]
    from precision_operator.planner.planning import greedy_text

    found = plan(spec(job(deadlineDays="20"), pools=prices, objective=["cost"]), fleet(fast, slow), NOW)
    assert found.solution is not None
    assert found.solution.slots[0].option.pool.name == "slow"
    assert "worse" in greedy_text(found)
    assert re.search(r"comes to \$\d{1,3}(,\d{3})+: ", greedy_text(found)), greedy_text(found)


def test_gpu_hours_that_are_paid_for_cost_nothing_more() -> None:
    prices = [{"name": "H100", "dollarsPerGPUHour": "2", "committedGPUHours": "2000"}]
    found = plan(spec(job(deadlineDays="20"), pools=prices, objective=["cost"]), fleet(), NOW)
    assert found.totals is not None
    assert found.totals.dollars == pytest.approx((found.totals.gpu_hours - 2000) * 2)


def test_an_answer_can_be_made_from_pools_that_are_known_already() -> None:
    read = terms(spec(), NOW)
    assert answer(read, pools(fleet(), read, NOW)).solution is not None


@pytest.mark.parametrize("objective", [["cost"], ["energy"]])
def test_the_time_limit_covers_what_was_done_before_the_search(objective: list[str]) -> None:
    read = terms(spec(job(), objective=objective, pools=[{"name": "H100", "dollarsPerGPUHour": "2"}]), NOW)
    found = offers(pools(fleet(), read, NOW), read)
    with pytest.raises(OutOfTime, match="no answer within 10 s: raise it, or narrow the choice"):
        solve(found, read, began=time.monotonic() - read.seconds)


def without_time(made: PlanSpec) -> tuple[Answer, PlanStatus]:
    """The answer to a plan for which there is no time at all."""
    read = replace(terms(made, NOW), seconds=0.0)
    found = answer(read, pools(fleet(), read, NOW))
    return found, status(found)


def test_that_time_ran_out_is_no_fault_of_the_inputs_and_no_clash() -> None:
    found, told = without_time(spec(job("a"), job("b"), objective=["energy"]))
    assert (told.phase, told.summary, found.conflict) == ("TimedOut", "0/2", None)
    assert told.problems[0].startswith("spec.solver.timeLimitSeconds: no answer within 0 s: raise it")
    assert (told.recommendation or "").startswith("It is not known whether there is a plan.")
    turned = {c.type: (c.status, c.reason) for c in finished(told, PlanStatus(), "", 1, NOW).conditions}
    assert turned == {
        "Accepted": ("True", "Accepted"),
        "Solved": ("False", "TimeLimit"),
        "DeadlinesPromised": ("False", "NoPlan"),
    }
    assert ENDS["TimedOut"] == NOT_KNOWN


def test_every_phase_has_its_exit_code() -> None:
    phases = {word for part in get_args(PlanStatus.model_fields["phase"].annotation) for word in get_args(part)}
    assert phases == ENDS.keys()


def test_a_question_for_which_time_runs_out_is_not_called_impossible() -> None:
    made = spec(job(), objective=["energy"], whatIfs=[{"name": "less", "denyRecipes": ["nvfp4"]}])
    base = plan(made, fleet(), NOW)
    assert base.terms is not None
    hurried = replace(base, terms=replace(base.terms, seconds=0.0))
    (told,) = status(base, what_ifs(made, fleet(), hurried, NOW)).what_ifs
    assert told.feasible is None
    assert told.answer.startswith("without nvfp4: not known: spec.solver.timeLimitSeconds: no answer within 0 s")


def test_a_clash_that_is_not_found_in_time_is_not_explained_by_something_else() -> None:
    made = spec(job(minGPUs=64), job("b", minGPUs=72))
    found = plan(made, fleet(), NOW)
    assert found.terms is not None
    hurried = replace(found, conflict=conflict(found.offers, replace(found.terms, seconds=0.0)))
    assert "which of them clash was not found in time" in status(hurried).problems[0]


def test_the_earliest_end_has_an_answer_even_without_time_and_tells_no_better_gap_than_is_proved() -> None:
    read = terms(spec(job("a"), job("b"), objective=["time"]), NOW)
    found = offers(pools(fleet(), read, NOW), read)
    hurried = solve(found, read, began=time.monotonic() - read.seconds)
    whole = solve(found, read)
    assert hurried is not None
    assert whole is not None
    assert hurried.timed_out
    assert hurried.values[0] * (1 - hurried.gap) <= whole.values[0] * (1 + 1e-9)
