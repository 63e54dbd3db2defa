"""Nothing is promised against the evidence: jobs that run, idle GPUs, and bounds that look exact."""

from dataclasses import replace
from typing import Any

import pytest

from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.exporter.families.plan import PLAN_FAMILIES, PlanShown
from precision_operator.planner.answer.charts import cost_against_time, gantt
from precision_operator.planner.answer.conditions import finished
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.table import lines, wide
from tests.support.fleets import NOW, answered, fleet, job, node, pool, spec

SMALL = fleet(pool("H100", node("n", count=4)))
PRICED = {"name": "H100", "dollarsPerGPUHour": "2"}
SCALED = PRICED | {"scaling": [{"gpus": 8, "efficiency": "1"}, {"gpus": 128, "efficiency": "0.9"}]}


def running(name: str, gpus: int, **changes: Any) -> dict[str, Any]:
    return job(name, tokens="2T", running={"pool": "H100", "recipe": "bf16", "gpus": gpus} | changes)


def test_a_running_job_is_planned_by_what_it_was_seen_to_do() -> None:
    seen = running("old", 64, tokensDone="800B", startedAt="2026-11-17T00:00:00Z")
    made = answered(None, seen, goodput="0.9")
    assert float(made.jobs[0].days.mid) == pytest.approx(21)
    assert (made.jobs[0].basis, made.jobs[0].upper_bound) == ("declared", False)
    assert any("old has run at 661,000 tokens/s for 14 days, 14.8% above the rate of profiles" in n for n in made.notes)
    whole = answered(fleet(pool("H100", node("n", count=8))), seen)
    assert any(note.endswith("; the rate as it ran must hold such stops") for note in whole.notes)
    late = answered(None, seen | {"deadlineDays": "20"})
    assert late.phase == "Infeasible"
    assert "the deadline of job old (20 days)" in late.problems[0]
    assert float(answered(None, running("old", 64, tokensDone="800B")).jobs[0].days.mid) == pytest.approx(
        21.7, abs=0.05
    )


@pytest.mark.parametrize(
    ("gpus", "power", "words"),
    [
        ((16, 16, 8), {}, "a, b, c run already and take 125% of the GPUs of pool H100"),
        ((16, 8), {"power": {"budget": "20kW", "pue": "1.25", "overhead": {"gpu": "1.6"}}},
         "a, b run already and take 168% of the power budget"),
    ],
)  # fmt: skip
def test_running_jobs_that_break_a_limit_together_are_named(gpus: tuple[int, ...], power: Any, words: str) -> None:
    jobs = [running(name, count) for name, count in zip("abc", gpus, strict=False)]
    made = answered(SMALL, *jobs, job("new"), **power)
    assert made.phase == "Infeasible"
    assert words in made.problems[0]
    assert answered(SMALL, jobs[0], job("new")).phase == "Solved"


def test_idle_gpus_are_in_the_facilitys_energy() -> None:
    own = [SCALED | {"idleWattsPerGPU": 100}]
    awake, idle = (answered(SMALL, job(maxGPUs=8), pools=pools) for pools in ([SCALED], own))
    assert awake.totals is not None
    assert idle.totals is not None
    hours = float(idle.totals.days or 0) * 24
    more = float(idle.totals.megawatt_hours or 0) - float(awake.totals.megawatt_hours or 0)
    assert more == pytest.approx(24 * 100 * hours / 1e6)
    assert idle.jobs[0].megawatt_hours == awake.jobs[0].megawatt_hours


def test_both_bills_are_told() -> None:
    own = [SCALED | {"committedGPUHours": "2000"}]
    made = answered(SMALL, job(), pools=own, objective=["cost"])
    assert made.totals is not None
    assert made.totals.committed_dollars == "4000.00"
    used = float(made.totals.gpu_hours or 0)
    assert float(made.totals.dollars or 0) == pytest.approx((used - 2000) * 2, abs=0.01)
    assert " on top of $4,000 that is paid anyway, " in [*lines(made)][1]
    assert "paid anyway" not in [*lines(answered(SMALL, job(), pools=[SCALED], objective=["cost"]))][1]


def samples(made: PlanStatus) -> set[str]:
    shown = PlanShown("ml", "p", made)
    return {family.name for family in PLAN_FAMILIES if [*family.rows(shown)]}


def test_a_bound_never_looks_exact() -> None:
    asked = spec(job(deadlineDays="20"), pools=[PRICED | {"name": "GB200"}], objective=["cost"], scaling=[])
    answer = plan(asked, fleet(pool("GB200")), NOW)  # no published job tells of such models there
    bound, exact = status(answer), answered(None, job(deadlineDays="20"), pools=[SCALED], objective=["cost"])
    told, cells = [*lines(bound)], wide(bound.jobs[0])
    for words in ("after at least ", "for at least $", "with at least "):
        assert words in told[0]
        assert words not in (exact.recommendation or "")
    assert all(figure.startswith("at least") or figure.endswith("at most") for figure in told[1][7:].split(", $"))
    assert told[2].startswith("sure: all figures are bounds")
    assert {name for name, cell in cells.items() if str(cell).startswith(">=")} == {
        "time",
        "mwh",
        "cost",
        "$/mtoken",
        "end",
    }
    assert {name for name, cell in cells.items() if str(cell).startswith("<=")} == {
        "TFLOP/s/GPU",
        "tokens/s",
        "tokens/J",
    }
    assert [str(text).startswith(">=") for text in (bound.days, bound.cost, exact.days, exact.cost)] == [True] * 2 + [
        False
    ] * 2
    names = {f"precision_plan_{name}" for name in ("duration_seconds", "cost_dollars", "energy_joules")}
    least = {name.replace("plan_", "plan_least_") for name in names}
    assert (samples(bound) & (names | least), samples(exact) & (names | least)) == (least, names)
    for figure in (*gantt(bound, answer, ""), *cost_against_time(answer, "")):
        assert "at least these" in figure.caption
    assert "at least" in next(gantt(bound, answer, "")).svg


def test_a_gap_that_was_not_reached_is_a_reason() -> None:
    answer = plan(spec(pools=[SCALED]), fleet(), NOW)
    assert answer.solution is not None
    reasons, told = [], []
    for gap in (0.005, 0.3):
        made = status(replace(answer, solution=replace(answer.solution, gap=gap)))
        after = finished(made, PlanStatus(), "", 1, NOW)
        reasons.append(next((c.status, c.reason) for c in after.conditions if c.type == "Solved"))
        told.append("more than was asked for" in [*lines(made)][2])
    assert told == [False, True]
    assert reasons == [("True", "PlanFound"), ("True", "GapNotReached")]
