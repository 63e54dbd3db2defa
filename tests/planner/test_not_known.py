"""That there is no plan is only said where it is proved; where the search gives up, it says so through every door."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.cli.commands.plan import ENDS
from precision_operator.cli.terminal import NO_ANSWER, NOT_KNOWN
from precision_operator.planner.answer.conditions import events, finished
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.linear import run
from precision_operator.planner.solving.options import offers, sizes
from tests.planner.test_time_limit import model
from tests.support.fleets import NOW, fleet, job, node, pool, spec
from tests.support.golden import beside
from tests.support.plan_checker import broken, in_every_order

SMALL = {"tokens": "10B"}
WHOLE = {"minGPUs": 128}
"""All of the fleet's one pool: 0.904 days for 100B tokens."""


def waiting(name: str, **changes: Any) -> dict[str, Any]:
    return job(name, after=["first"], **changes)


def answered(*jobs: dict[str, Any], **changes: Any) -> tuple[PlanAnswer, PlanStatus]:
    found = plan(spec(job("first", **SMALL), *jobs, **changes), fleet(), NOW)
    return found, status(found)


PROVED = beside(__file__)


@pytest.mark.parametrize("case", PROVED)
def test_what_no_queue_can_hold_is_proved_and_its_limits_are_named(case: str) -> None:
    clash = PROVED[case]["clash"]
    found, told = answered(*(job(**row) for row in PROVED[case]["jobs"]), **PROVED[case].get("changes", {}))
    assert (told.phase, ENDS[told.phase]) == ("Infeasible", NO_ANSWER)
    assert found.not_known is None
    begin = "This limit can't be kept: " if len(clash) == 1 else "These limits clash: "
    assert {*told.problems[0].removeprefix(begin).split(" and ")} == {*clash}
    assert told.problems[1].startswith("At least this is needed, and it may not be enough for jobs that wait for room")


HIGH_FIRST = [waiting("long", priority=9, tokens="200B", **WHOLE), waiting("short", deadlineDays="1.2", **WHOLE)]


def test_a_search_that_gives_up_says_that_this_proves_nothing_in_conditions_and_events_too() -> None:
    """Another order holds a plan."""
    found, told = answered(*HIGH_FIRST)
    assert (told.phase, told.summary, found.conflict) == ("NotFound", "0/3", None)
    assert (told.recommendation or "").startswith("It is not known whether there is a plan.")
    (text,) = told.problems
    assert "days late" in text
    assert "no plan was found, which proves nothing" in text
    assert "Give late jobs a higher priority or a later deadline, or narrow the choice" in text
    assert ENDS["NotFound"] == NOT_KNOWN != NO_ANSWER
    assert found.terms is not None
    terms_of = found.terms
    offered = offers(Catalog(pools(fleet(), terms_of, NOW), terms_of))
    chosen = [max(offer.options, key=lambda option: option.gpus) for offer in offered]
    assert any(not broken(slots, terms_of) for slots in in_every_order(chosen, terms_of))
    raw = {"metadata": {"name": "q1", "namespace": "ml", "uid": "u"}}
    after = finished(told, PlanStatus(), "", 1, NOW)
    assert {c.type: (c.status, c.reason) for c in after.conditions} == {
        "Accepted": ("True", "Accepted"),
        "Solved": ("False", "NoneFound"),
        "DeadlinesPromised": ("False", "NoPlan"),
    }
    said = {event["reason"]: event["message"] for event in events(raw, PlanStatus(), after, NOW)}
    assert "which proves nothing" in said["NoneFound"]


def test_what_fits_in_sum_alone_is_impossible_and_the_advice_makes_a_plan() -> None:
    found, told = answered(*(waiting(name, minGPUs=72, maxGPUs=72, deadlineDays="2.5") for name in "bc"))
    assert (told.phase, found.not_known) == ("Infeasible", None)
    long, short = HIGH_FIRST
    assert answered(long, short | {"priority": 10})[1].phase == "Solved"


def test_jobs_go_one_after_the_other_the_one_that_must_end_first_first() -> None:
    last = job("c", after=["b"], deadlineDays="2", **SMALL)
    found, _ = answered(waiting("a-long", tokens="200B", **WHOLE), waiting("b", **WHOLE), last)
    assert [slot.option.job.name for slot in sorted(found.solution.slots, key=lambda s: s.start)][1] == "b"
    last = job("last", after=["b", "c"], deadlineDays="2", **SMALL)
    found, _ = answered(waiting("b"), waiting("c"), last)
    assert found.solution.values[0] <= 2


def test_a_solver_that_fails_has_proved_nothing() -> None:
    fine = model(10.0)
    odd = replace(fine, low=np.full(len(fine.low), 2.0), high=np.full(len(fine.high), 1.0))
    assert run(odd).state != "optimal"


def test_where_sizes_are_too_many_nothing_is_proved_and_the_clash_of_the_usual_ones_is_told() -> None:
    jobs = [waiting(f"j{number}", tokens="4T", deadlineDays="0.5") for number in range(5)]
    told = status(plan(spec(job("first", **SMALL), *jobs), fleet(pool("H100", node("n", count=5000))), NOW))
    assert told.phase == "NotFound"
    unproved, clash, *_ = told.problems
    assert unproved.startswith("spec.jobs: no plan was found with the sizes that were tried, which proves nothing")
    assert clash.startswith("With the sizes that were tried, these limits clash: the ")


def test_every_size_is_offered_only_where_it_is_asked_for() -> None:
    read = terms(spec(), NOW)
    found = pools(fleet(pool("H100", node("n", count=20))), read, NOW)
    usual, every = (
        [option.gpus // 8 for option in offers(Catalog(found, read), every=all_)[0].options] for all_ in (False, True)
    )
    assert (usual, every) == ([*range(1, 9), 12, 16, 20], [*range(1, 21)])
    assert sizes(found, read) == len(every)
