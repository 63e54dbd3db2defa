"""The solver against every plan of small random problems; whatever it says holds all limits.

Schedules by earliest end, and the bound on the end of the last job that is proved without a program.
"""

import math
import random
import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.large_plans import large
from benchmarks.node_worth import worth_verdict
from precision_api.kinds.capacity_plan import PlanBudget, PlanStatus
from precision_operator.cli.commands.plan import ENDS
from precision_operator.cli.terminal import NOT_KNOWN
from precision_operator.planner.answer.conditions import finished
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import answer, instead, plan
from precision_operator.planner.answer.table import lines
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import ENDLESS, clock_of
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.solving.budgets import BUDGETS
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.conflict import conflict
from precision_operator.planner.solving.earliest import WASTES, earliest_choice, place_earliest
from precision_operator.planner.solving.options import offers, sizes
from precision_operator.planner.solving.prices import Market, priced
from precision_operator.planner.solving.schedule import schedule
from precision_operator.planner.solving.search import Search
from precision_operator.planner.solving.sizes import MOST
from precision_operator.planner.solving.solve import solve
from tests.planner.exhaustive import least, problem, verdict
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.plan_checker import broken


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_a_plan_never_breaks_a_limit(seed: int) -> None:
    measured, made = problem(seed, wide=True)
    answer = plan(made, measured, NOW)
    assert not answer.problems or answer.solution is None
    if answer.solution is not None and answer.terms is not None:
        assert broken(answer.solution.slots, answer.terms) == []
        assert all(math.isfinite(figure) for figure in answer.solution.values)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_the_same_question_has_the_same_answer_in_any_order(seed: int) -> None:
    measured, made = problem(seed, wide=True)
    turned = made.model_copy(update={"jobs": made.jobs[::-1], "pools": made.pools[::-1]})
    fleets = measured, measured.model_copy(update={"pools": measured.pools[::-1]})
    answers = [plan(made, fleets[0], NOW), plan(turned, fleets[1], NOW)]
    shown = [
        a.solution and [(s.option.job.name, s.option.pool.name, s.option.gpus) for s in a.solution.slots]
        for a in answers
    ]
    assert shown[0] == shown[1]


def test_a_checker_that_is_given_too_few_gpus_says_so() -> None:
    found = plan(spec(job("a", minGPUs=64), job("b", minGPUs=64)), fleet(), NOW)
    assert found.terms is not None
    smaller = [
        replace(s, option=replace(s.option, source=replace(s.option.source, pool=replace(s.option.pool, nodes=8))))
        for s in found.solution.slots
    ]
    assert any("too few GPUs" in text for text in broken(smaller, found.terms))


def test_jobs_wait_for_each_other_by_priority_and_for_their_day() -> None:
    jobs = [
        job("first", minGPUs=128),
        job("low", after=["first"], minGPUs=128, priority=1),
        job("high", after=["first"], minGPUs=128, priority=9),
    ]
    found = plan(spec(*jobs), fleet(), NOW)
    ordered = sorted(found.solution.slots, key=lambda slot: slot.start)
    assert [slot.option.job.name for slot in ordered] == ["first", "high", "low"]
    assert [round(slot.start, 3) for slot in ordered] == [0.0, 0.904, 1.808]
    found = plan(spec(job(notBefore="2026-12-11T00:00:00Z")), fleet(), NOW)
    assert found.solution.slots[0].start == 10


def test_by_cost_a_high_priority_without_a_deadline_keeps_the_cheap_pool_and_an_equal_one_lets_others_first() -> None:
    known = fleet(pool("cheap", node("c", count=16)), pool("dear", node("d", count=16)))
    own = [{"name": "cheap", "dollarsPerGPUHour": "1"}, {"name": "dear", "dollarsPerGPUHour": "3"}]

    def placed(priority: int) -> dict[str, str]:
        jobs = [
            job("bulk", minGPUs=128, tokens="1T", priority=priority),
            job("soon", minGPUs=128, tokens="100B", deadlineDays="2"),
        ]
        found = plan(spec(*jobs, pools=own, objective=["cost"]), known, NOW)
        return {slot.option.job.name: slot.option.pool.name for slot in found.solution.slots}

    assert (placed(9), placed(0)) == ({"bulk": "cheap", "soon": "dear"}, {"bulk": "cheap", "soon": "cheap"})


def test_jobs_that_do_not_fit_side_by_side_wait_and_blocks_lie_within_a_rack() -> None:
    racks = [node(f"r{r}-{i}", gpus=4, rack=f"rack{r}", rates=[rate("bf16", 4e4)]) for r in range(3) for i in range(18)]
    short = [node(f"s-{i}", gpus=4, rack="short", rates=[rate("bf16", 4e4)]) for i in range(17)]
    found = plan(spec(job(blockGPUs=72, minGPUs=72)), fleet(pool("GB200", *racks, *short)), NOW)
    assert found.solution.slots[0].option.gpus == 3 * 72
    known = fleet(pool("H100", node("n", count=250)))
    jobs = [job(name, tokens="10T", minGPUs=1024, deadlineDays="90") for name in "ab"]
    found = plan(spec(*jobs), known, NOW)
    first, second = sorted(found.solution.slots, key=lambda slot: slot.start)
    assert second.start >= first.end
    assert second.end <= 90


@pytest.mark.parametrize(
    ("seed", "wide"), [*((seed, False) for seed in range(40)), *((seed, True) for seed in range(40))]
)
def test_no_plan_at_all_is_better_than_the_printed_gap_allows(seed: int, wide: bool) -> None:
    wrong, gap, _ = verdict(seed, wide)
    assert wrong == ""
    assert gap is None or gap <= 0.005 * (1 + 1e-6), "what was asked"


def test_three_racks_hold_three_blocks_of_64_and_24_more_only_later() -> None:
    racks = [node(f"r{r}-{i}", gpus=8, rack=f"rack{r}", rates=[rate("bf16")]) for r in range(3) for i in range(9)]
    jobs = [job(f"big{n}", blockGPUs=64, minGPUs=64, maxGPUs=64) for n in range(3)]
    small = job("small", blockGPUs=24, minGPUs=24, maxGPUs=24, tokens="1B")
    found = plan(spec(*jobs, small), fleet(pool("GB200", *racks)), NOW)
    slots = {slot.option.job.name: slot for slot in found.solution.slots}
    beside = [s for s in slots.values() if s.start < slots["small"].end and s.end > slots["small"].start]
    assert sum(slot.option.job.name.startswith("big") for slot in beside) < 3


def test_the_fast_nodes_are_given_to_one_job_at_a_time() -> None:
    nodes = [node("ok", count=8), node("slow", [rate("bf16", 64_000.0)], count=8)]
    jobs = [job(name, minGPUs=64, maxGPUs=64) for name in "ab"]
    found = plan(spec(*jobs, fleet={"placement": "fastest"}), fleet(pool("H100", *nodes)), NOW)
    first, second = found.solution.slots
    together = first.start < second.end and second.start < first.end
    paces = sorted(round(slot.option.speed.straggler, 6) for slot in (first, second))
    assert (paces[0] < paces[1]) == together


def test_under_a_power_cap_the_largest_size_that_it_allows_is_taken() -> None:
    known = fleet(pool("H100", node("n", count=250)))
    electric = {"budget": "2MW", "pue": "1.25", "overhead": {"gpu": "1.3"}}
    found = plan(spec(job(tokens="10T"), power=electric), known, NOW)
    per_gpu = 700 * 1.25 * 1.3
    best = int(2e6 // per_gpu // 8 * 8)
    assert found.solution.slots[0].option.gpus >= best * (1 - found.solution.gap)


@pytest.mark.parametrize(
    ("own", "reserved"),
    [({"limitScope": "gpu"}, max(1200 * 1.3, 1275 * 1.15)), ({"limitScope": "module"}, max(1200 * 1.15, 1275 * 1.15))],
)
def test_sensor_and_limit_have_each_their_scope_and_no_less_is_reserved_than_was_measured(
    own: dict[str, Any], reserved: float
) -> None:
    grace = rate("bf16", watts=1275.0 * 4, power_scope="module")
    made = node("g", [grace], gpus=4, count=4).model_copy(update={"limit_watts": 1200.0 * 4})
    electric = {"budget": "1MW", "pue": "1.2", "overhead": {"gpu": "1.3", "module": "1.15"}}
    found = plan(spec(job(), pools=[{"name": "GB200", **own}], power=electric), fleet(pool("GB200", made)), NOW)
    option = found.solution.slots[0].option
    assert option.limit_watts == pytest.approx(reserved * 1.2 * option.gpus)


def test_idle_gpus_draw_what_is_said_and_paid_hours_cost_nothing_more() -> None:
    electric = {"budget": "60kW", "pue": "1", "overhead": {"gpu": "1"}}
    awake, idle = (
        plan(spec(job(), pools=[{"name": "H100", **own}], power=electric), fleet(), NOW)
        for own in ({}, {"idleWattsPerGPU": 100})
    )
    assert awake.solution.slots[0].option.gpus == (60_000 // 700 // 8 * 8)
    assert idle.solution.slots[0].option.gpus == ((60_000 - 128 * 100) // 600 // 8 * 8)
    prices = [{"name": "H100", "dollarsPerGPUHour": "2", "committedGPUHours": "2000"}]
    found = plan(spec(job(deadlineDays="20"), pools=prices, objective=["cost"]), fleet(), NOW)
    assert found.totals.dollars == pytest.approx((found.totals.gpu_hours - 2000) * 2)


def test_a_job_that_runs_keeps_its_place_and_is_held_against_its_rate() -> None:
    running = job("old", tokens="1T", running={"pool": "H100", "recipe": "bf16", "gpus": 64, "tokensDone": "400B"})
    found = plan(spec(running, job("new", minGPUs=128, priority=9)), fleet(), NOW)
    slots = {slot.option.job.name: slot for slot in found.solution.slots}
    assert (slots["old"].option.gpus, slots["old"].start) == (64, 0.0)
    assert slots["old"].end == pytest.approx(600e9 / (8 * 80_000) / 86_400)
    assert slots["new"].start >= slots["old"].end
    started = {"tokensDone": "400B", "startedAt": "2026-11-21T00:00:00Z"}
    running = job(tokens="1T", running={"pool": "H100", "recipe": "bf16", "gpus": 64, **started})
    notes = plan(spec(running), fleet(), NOW).notes
    assert any("train has run at 463,000 tokens/s for 10 days, 27.7% below" in note for note in notes)


def test_the_answer_stands_in_five_lines_and_budgets_and_phases_have_rows() -> None:
    free = status(plan(spec(), fleet(), NOW))
    assert [line.partition(":")[0] for line in [*lines(free)][1:5]] == ["costs", "sure", "bound", "instead"]
    for binding, words in (
        ("GPUs of pool H100", "train by GPUs of pool H100"),
        ("nothing: the last job ends no earlier", "nothing limits train: the last job ends no earlier"),
        (None, "nothing limits train: it has its best choice"),
        ("nothing", "nothing limits train"),
    ):
        jobs = tuple(row.model_copy(update={"binding": binding}) for row in free.jobs)
        assert [*lines(free.model_copy(update={"jobs": jobs}))][3] == f"bound: {words}"
    assert [row.name for row in BUDGETS] == [field.alias for field in PlanBudget.model_fields.values()]
    phases = {word for part in get_args(PlanStatus.model_fields["phase"].annotation) for word in get_args(part)}
    assert phases == ENDS.keys()


@pytest.mark.parametrize(
    ("changes", "clash", "remedy"),
    [
        ({"jobs": [job("a", deadlineDays="0.5")]}, "the deadline of job a", "0.404 more days"),
        ({"jobs": [job("a", deadlineDays="5")], "power": {"budget": "20kW", "pue": "1.2", "overhead": {"gpu": "1.3"}}},
         "the power budget of 0.02 MW", "0.00621 MW more power"),
        ({"pools": [{"name": "H100", "dollarsPerGPUHour": "1"}], "budget": {"dollars": "1000"}},
         "budget.dollars of 1,000", "1,778 dollars more"),
    ],
    ids=["deadline", "power", "money"],
)  # fmt: skip
def test_limits_that_clash_are_named_with_the_smallest_way_out(changes: Any, clash: str, remedy: str) -> None:
    told = status(plan(spec(**({"jobs": [job()]} | changes)), fleet(), NOW))
    assert told.phase == "Infeasible"
    assert clash in told.problems[0]
    assert remedy in told.problems[1]


def test_what_else_there_is_for_the_largest_job_is_another_pool_that_holds_beside_the_others() -> None:
    fast = pool("fast", node("f", [rate("bf16", 100_000.0)], count=16))
    slow = pool("slow", node("s", [rate("bf16", 80_000.0)], count=16))
    prices = [{"name": "fast", "dollarsPerGPUHour": "10"}, {"name": "slow", "dollarsPerGPUHour": "2"}]
    usual = {"pools": prices, "objective": ["cost"]}
    found = plan(spec(job(deadlineDays="20"), **usual), fleet(fast, slow), NOW)
    assert found.solution.slots[0].option.pool.name == "slow"
    assert re.fullmatch(r"train on \d+ GPUs of fast with bf16: \$22,200 for all jobs, 300 % more", instead(found))
    poor = plan(spec(job(deadlineDays="20"), **usual, budget={"dollars": "20000"}), fleet(fast, slow), NOW)
    assert instead(poor) == "no other pool or recipe of train holds beside the other jobs"
    alone = plan(spec(job(pools=["slow"]), **usual), fleet(fast, slow), NOW)
    assert instead(alone) == "no other pool or recipe of train is offered"


@pytest.mark.parametrize("objective", [["cost"], ["energy"], ["time"]])
def test_without_time_there_is_some_answer_and_nothing_is_proved_of_it(objective: list[str]) -> None:
    read = terms(spec(job(), objective=objective, pools=[{"name": "H100", "dollarsPerGPUHour": "2"}]), NOW)
    found = offers(Catalog(pools(fleet(), read, NOW), read))
    hurried, whole = (solve(found, read, clock_of(seconds)) for seconds in (0.0, read.seconds))
    assert hurried.timed_out or hurried.values[0] == pytest.approx(whole.values[0])
    assert hurried.values[0] * (1 - hurried.gap) <= whole.values[0] * (1 + 1e-9)


def test_that_time_ran_out_is_no_fault_of_the_inputs_and_no_clash() -> None:
    made = spec(job("a", deadlineDays="0.5"), job("b"), objective=["energy"])
    read = replace(terms(made, NOW), seconds=0.0)
    outcome = answer(read, pools(fleet(), read, NOW))
    plan_status = status(outcome)
    assert (plan_status.phase, plan_status.summary, outcome.conflict) == ("TimedOut", "0/2", None)
    assert plan_status.problems[0].startswith("spec.solver.timeLimitSeconds: no plan within 0 s: raise it")
    assert (plan_status.recommendation or "").startswith("It is not known whether there is a plan.")
    turned = {c.type: (c.status, c.reason) for c in finished(plan_status, PlanStatus(), "", 1, NOW).conditions}
    assert turned == {
        "Accepted": ("True", "Accepted"),
        "Solved": ("False", "TimeLimit"),
        "DeadlinesPromised": ("False", "NoPlan"),
    }
    assert ENDS["TimedOut"] == NOT_KNOWN


def test_without_time_a_question_is_not_impossible_nor_a_clash_explained_otherwise() -> None:
    electric = {"pue": "1.2", "overhead": {"gpu": "1.3"}}
    asked = [{"name": "less", "powerPercent": -50}]
    made = spec(job(deadlineDays="1"), objective=["energy"], power=electric, whatIfs=asked)
    base = plan(made, fleet(), NOW)
    assert base.terms is not None
    hurried = replace(base, asked=replace(base.terms, seconds=0.0))
    (told,) = status(base, what_ifs(made, fleet(), hurried, NOW)).what_ifs
    assert told.feasible is None
    assert "not known: spec.solver.timeLimitSeconds: no plan within 0 s" in told.answer
    made = spec(job(deadlineDays="0.5"))
    found = plan(made, fleet(), NOW)
    assert found.terms is not None
    hurried = replace(found, conflict=conflict(found.offers, found.terms, clock_of(0.0)))
    assert "which of them clash was not found in time" in status(hurried).problems[0]


def many(jobs: int, nodes: int) -> tuple[Fleet, Any]:
    """Three pools, jobs of which half wait for another one, and power for four GPUs in five."""
    drawn = random.Random(7)
    found = []
    for number in range(3):
        base = drawn.uniform(5e4, 2e5)
        rates = [rate("bf16", base), rate("fp8_current", base * 1.4)]
        found.append(pool(f"p{number}", node(f"p{number}", rates, count=nodes)))
    scaling = [{"gpus": 8, "efficiency": "1"}, {"gpus": 8 * nodes, "efficiency": "0.93"}]
    own = [{"name": each.name, "scaling": scaling} for each in found]
    asked = []
    for number in range(jobs):
        more: dict[str, Any] = {"after": [f"j{drawn.randrange(jobs // 2):02d}"]} if number >= jobs // 2 else {}
        asked.append(job(f"j{number:02d}", tokens=f"{drawn.randint(20, 300)}B", **more))
    electric = {"pue": "1.2", "overhead": {"gpu": "1.3"}, "budget": f"{0.8 * 3 * nodes * 8 * 700 * 1.2 * 1.3:.0f}W"}
    made = spec(*asked, objective=["time"], pools=own, power=electric, solver={"timeLimitSeconds": 60})
    return fleet(*found), made


def test_many_jobs_end_near_the_first_day_and_divisible_ones_leave_no_gpu_idle() -> None:
    known, made = many(jobs=40, nodes=40)
    read = terms(made, NOW)
    assert sizes(pools(known, read, NOW), read) > MOST
    found = plan(made, known, NOW)
    assert found.terms is not None
    assert broken(found.solution.slots, found.terms) == []
    assert 0 <= found.solution.gap <= 0.10
    jobs = [job(f"j{number}", tokens=f"{number + 1}00B") for number in range(6)]
    read = terms(spec(*jobs, objective=["time"]), NOW)
    offered = offers(Catalog(pools(fleet(), read, NOW), read), every=True)
    search = Search(offered, read, ("time",), ENDLESS)
    place_earliest(search, 0)
    alone = sum(min(option.gpu_hours for option in offer.options) for offer in offered) / 128 / 24
    assert search.best.values[0] == pytest.approx(alone, rel=1e-6)


def test_hours_that_are_paid_for_are_in_the_bound_of_all_sizes() -> None:
    known, made = large(1)
    read = terms(made, NOW)
    offered = pools(known, read, NOW)
    assert sizes(offered, read) > MOST
    assert any(pool.committed_gpu_hours for pool in read.pools.values())
    assert answer(read, offered).solution.gap <= 0.02


@pytest.mark.parametrize("seed", range(12))
def test_what_a_node_more_is_worth_holds_against_every_plan_of_small_problems(seed: int) -> None:
    assert worth_verdict(seed, wide=True)[0] == ""


@pytest.mark.parametrize("waste", WASTES)
def test_what_is_chosen_job_by_job_is_what_the_schedule_makes_of_it(waste: float) -> None:
    known, made = many(jobs=12, nodes=8)
    read = terms(made, NOW)
    offered = offers(Catalog(pools(known, read, NOW), read), every=True)
    rank = {offer.job.name: place for place, offer in enumerate(offered)}
    chosen = earliest_choice(Search(offered, read, ("time",), ENDLESS), rank, waste, {})
    assert chosen is not None
    slots = schedule(chosen, read.limits, rank=rank)
    assert slots is not None
    assert broken(slots, read) == []
    assert all(slot.option is option for slot, option in zip(slots, chosen, strict=True))


@pytest.mark.parametrize("seed", [seed for seed in range(60) if problem(seed)[1].objective == ("time",)][:12])
def test_no_plan_at_all_ends_before_the_bound_of_all_sizes(seed: int) -> None:
    known, made = problem(seed)
    read = terms(made, NOW)
    market, best = Market(Catalog(pools(known, read, NOW), read), "time"), least(known, made)
    bound = math.inf if market.infeasible else priced(market, clock_of(60.0))[0]
    assert best is None or bound <= best * (1 + 1e-6)
    assert bound > 0
