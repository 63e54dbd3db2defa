"""The end of the last job: schedules by earliest end, and the bound that is proved without a program."""

import math
import random
from typing import Any

import pytest

from precision_operator.planner.answer.planning import plan
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import ENDLESS, clock_of
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.earliest import WASTES, EarliestEnds
from precision_operator.planner.solving.options import offers, sizes
from precision_operator.planner.solving.prices import Market, priced
from precision_operator.planner.solving.schedule import schedule
from precision_operator.planner.solving.search import Search
from precision_operator.planner.solving.sizes import MOST
from tests.planner.exhaustive import least, problem
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.plan_checker import broken

WANTED = 0.10
"""The widest gap that a plan for very many jobs may have."""


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
    assert 0 <= found.solution.gap <= WANTED
    jobs = [job(f"j{number}", tokens=f"{number + 1}00B") for number in range(6)]
    read = terms(spec(*jobs, objective=["time"]), NOW)
    offered = offers(Catalog(pools(fleet(), read, NOW), read), every=True)
    search = Search(offered, read, ("time",), ENDLESS)
    EarliestEnds(search, 0).place()
    alone = sum(min(option.gpu_hours for option in offer.options) for offer in offered) / 128 / 24
    assert search.best.values[0] == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("waste", WASTES)
def test_what_is_chosen_job_by_job_is_what_the_schedule_makes_of_it(waste: float) -> None:
    known, made = many(jobs=12, nodes=8)
    read = terms(made, NOW)
    offered = offers(Catalog(pools(known, read, NOW), read), every=True)
    rank = {offer.job.name: place for place, offer in enumerate(offered)}
    wastes = {offer.job.name: waste for offer in offered}
    chosen = EarliestEnds(Search(offered, read, ("time",), ENDLESS), 0).chosen(rank, wastes)
    assert chosen is not None
    slots = schedule(chosen, read.limits, rank=rank)
    assert slots is not None
    assert broken(slots, read) == []
    assert all(slot.option is option for slot, option in zip(slots, chosen, strict=True))


TIMED = [seed for seed in range(60) if problem(seed)[1].objective == ("time",)][:12]


@pytest.mark.parametrize("seed", TIMED)
def test_no_plan_at_all_ends_before_the_bound_of_all_sizes(seed: int) -> None:
    known, made = problem(seed)
    read = terms(made, NOW)
    market, best = Market(Catalog(pools(known, read, NOW), read), "time"), least(known, made)
    bound = math.inf if market.infeasible else priced(market, clock_of(60.0))[0]
    assert best is None or bound <= best * (1 + 1e-6)
    assert bound > 0
