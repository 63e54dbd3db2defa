"""Guards that questions, blocks and what users write must not pass: each case was once answered too well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec


def told(known: Fleet, *jobs: dict[str, Any], **changes: Any) -> PlanStatus:
    made = spec(*jobs, **changes)
    found = plan(made, known, NOW)
    return status(found, what_ifs(made, known, found, NOW))


def more(nodes: int, pool_name: str = "H100") -> list[dict[str, Any]]:
    return [{"name": "more", "addNodes": {"pool": pool_name, "nodes": nodes}}]


RACKS = [node(f"r{r}-{i}", gpus=4, rack=f"rack{r}", rates=[rate("bf16", 4e4)]) for r in range(4) for i in range(18)]


def test_one_node_more_makes_no_block_of_a_rack() -> None:
    asked = told(fleet(pool("GB200", *RACKS)), job(blockGPUs=72, minGPUs=72), whatIfs=more(1, "GB200"))
    assert asked.jobs[0].gpus == 288
    assert asked.what_ifs[0].answer.startswith("with 1 nodes (4 GPUs) more in GB200: no change in days")
    assert "train is then bound by GPUs of pool GB200" in asked.what_ifs[0].answer


def test_a_rack_more_makes_a_block() -> None:
    asked = told(fleet(pool("GB200", *RACKS)), job(blockGPUs=72, minGPUs=72), whatIfs=more(18, "GB200"))
    assert float(asked.what_ifs[0].days or 0) == pytest.approx(-float(asked.jobs[0].days.mid) / 5, rel=1e-4)


@pytest.mark.parametrize("own", [{}, {"nodes": 129}], ids=["question", "plan"])
def test_a_node_more_does_not_verify_a_recipe_on_the_others(own: dict[str, Any]) -> None:
    few = [
        node("both", [rate("bf16"), rate("fp8_current", 120_000.0)], count=8),
        node("one", [rate("bf16")], count=120),
    ]
    pools = [{"name": "H100", **own}] if own else []
    asked = told(fleet(pool("H100", *few)), job(), pools=pools, whatIfs=[] if own else more(1))
    assert (asked.jobs[0].recipe, asked.jobs[0].gpus) == ("bf16", 8 * (129 if own else 128))
    if not own:
        # 1 of 129 nodes more of bf16, and no more than that.
        assert float(asked.what_ifs[0].days or 0) == pytest.approx(-float(asked.jobs[0].days.mid) / 129, rel=1e-3)


def test_what_binds_after_a_question_is_told() -> None:
    known = fleet(pool("H100", node("n", count=256)))
    scaling = [{"name": "H100", "scaling": [{"gpus": 2048, "efficiency": "0.9"}]}]
    asked = told(known, job(tokens="10T"), pools=scaling, whatIfs=more(100))
    assert (
        "train is then bound by scaling is given up to 2048 GPUs, not for 2056: add a point" in asked.what_ifs[0].answer
    )


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "no such pool": (
        {"prices": [{"pool": "H1OO", "dollarsPerGPUHour": "4"}]},
        "spec.whatIfs[x].prices: there is no pool H1OO: name one of H100",
    ),
    "no question": ({}, "spec.whatIfs[x]: it asks for no change: give drainSlowNodes, "),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_a_question_without_sense_is_an_error(case: str) -> None:
    change, words = NONSENSE[case]
    (answer,) = told(fleet(), job(), whatIfs=[{"name": "x", **change}]).what_ifs
    assert answer.feasible is False
    assert words in answer.answer


def test_a_question_that_leaves_no_plan_names_the_limits_that_clash() -> None:
    racks = [node(f"{rack}{i}", rack=rack) for rack in "ab" for i in range(8)]
    asked = [{"name": "lost", "loseRack": {"pool": "H100"}}]
    (answer,) = told(fleet(pool("H100", *racks)), job(deadlineDays="1"), whatIfs=asked).what_ifs
    assert "no plan: These limits clash: the deadline of job train (1 days)" in answer.answer


JOB_RATE = {"workload": {"preset": "llama3-8b"}, "recipe": "bf16", "gpus": 128, "source": "x"}
ABSURD: dict[str, tuple[dict[str, Any], str]] = {
    "a rate of a whole job": (
        {"pools": [{"name": "H100", "jobRates": [JOB_RATE | {"tokensPerSecondPerGPU": "100000000000"}]}]},
        "spec.pools[0].jobRates[0].tokensPerSecondPerGPU",
    ),
    "an efficiency that rises": (
        {"pools": [{"name": "H100", "scaling": [{"gpus": g, "efficiency": e} for g, e in ((8, "0.8"), (64, "0.9"))]}]},
        "spec.pools[0].scaling: it rises from 0.8 at 8 GPUs to 0.9 at 64",
    ),
    "a gap that says nothing": ({"solver": {"gapPercent": "500"}}, "spec.solver.gapPercent: 500 % is above 50 %"),
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_figures_are_refused_with_their_field(case: str) -> None:
    changes, words = ABSURD[case]
    found = told(fleet(), job(), **changes)
    assert found.phase == "Refused"
    assert words in found.problems[0]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("results", 0, "finished_at"), "yesterday", "finished_at: 'yesterday' is no time"),
        (("results", 0, "rates", 0, "synchronous_tokens_per_second"), 1e30, "synchronous_tokens_per_second: Input"),
    ],
)
def test_a_fleet_file_with_a_senseless_figure_is_refused_with_the_field(
    path: tuple[str | int, ...], value: object, words: str
) -> None:
    document = json.loads(fleet().model_dump_json())
    place: Any = document["pools"][0]["nodes"][0]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=words):
        read_fleet(json.dumps(document))


def test_a_pool_that_drops_out_by_its_blocks_is_told() -> None:
    four = pool("GB200", node("g", [rate("bf16", 4e4)], gpus=4, count=12))
    found = told(fleet(pool("H100"), four), job(blockGPUs=12))
    assert "not offered to train: H100: blocks of 12 GPUs are not whole nodes of 8: give a multiple of 8" in found.notes


def test_what_keeps_three_jobs_out_is_told_once() -> None:
    found = told(fleet(), *(job(name, minGPUs=4096) for name in "abc"))
    assert len(found.problems) == 1
    assert found.problems[0].startswith("spec.jobs[a]: a, b, c fit nowhere. H100: has 128 GPUs")


def test_electricity_alone_has_a_cost() -> None:
    electric = {"pue": "1.2", "overhead": {"gpu": "1.25"}, "dollarsPerKilowattHour": "0.1"}
    found = told(fleet(), job(), power=electric, objective=["cost"])
    assert float(found.jobs[0].dollars or 0) == pytest.approx(float(found.jobs[0].megawatt_hours or 0) * 100, abs=0.01)
    assert "no pool has dollarsPerGPUHour: cost is that of electricity alone" in found.notes


def test_rows_add_up_to_the_totals_where_hours_are_paid_for() -> None:
    prices = [{"name": "H100", "dollarsPerGPUHour": "2.333", "committedGPUHours": "1000"}]
    found = told(fleet(), *(job(name, maxGPUs=40) for name in "abc"), pools=prices)
    assert sum(round(float(row.dollars or 0) * 100) for row in found.jobs) == round(
        float(found.totals.dollars or 0) * 100
    )
    hours = float(found.totals.gpu_hours or 0)
    assert float(found.totals.dollars or 0) == pytest.approx((hours - 1000) * 2.333, rel=1e-5)


BOTH = [rate("bf16"), rate("fp8_current", 136_000.0)]


def test_a_fast_recipe_under_the_scaling_of_all_is_told_to_be_flattered() -> None:
    alike = {"gpus": 128, "efficiency": "0.8"}
    known = fleet(pool("H100", node("n", BOTH, count=16)))
    flattered = told(known, job(minGPUs=128), pools=[{"name": "H100", "scaling": [alike]}])
    own = alike | {"recipe": "fp8_current", "efficiency": "0.7"}
    honest = told(known, job(minGPUs=128), pools=[{"name": "H100", "scaling": [alike, own]}])
    said = [
        [note for note in found.notes if note.startswith("flattered by communication")] for found in (flattered, honest)
    ]
    assert (len(said[0]), said[1]) == (1, [])
    assert float(honest.jobs[0].tokens_per_second) == pytest.approx(16 * 136_000 * 0.7)
    assert float(flattered.jobs[0].tokens_per_second) == pytest.approx(16 * 136_000 * 0.8)
