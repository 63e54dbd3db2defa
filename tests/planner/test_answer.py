"""What a plan says: figures, bands, promises, questions, provenance."""

import re
from datetime import timedelta
from typing import Any

import pytest

from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.table import narrow
from precision_operator.planner.answer.what_if import _changed
from precision_operator.planner.inputs.quantities import age
from precision_operator.planner.rates.evidence import pools
from tests.support.fleets import NOW, answered, fleet, job, node, pool, rate, spec, workload

FULL: dict[str, Any] = {
    "goodput": "0.9",
    "power": {"pue": "1.2", "overhead": {"gpu": "1.25"}, "dollarsPerKilowattHour": "0.1"},
    "pools": [
        {
            "name": "H100",
            "dollarsPerGPUHour": "2",
            "scaling": [{"gpus": 64, "efficiency": "0.96"}, {"gpus": 256, "efficiency": "0.92"}],
        }
    ],
}


def test_every_figure_of_a_job_follows_from_the_formulas_and_a_price_that_includes_power_pays_for_it_once() -> None:
    task = [job(minGPUs=64, maxGPUs=64)]
    found = answered(jobs=task, **FULL).jobs[0]
    rate_of_job = 64 * (80_000 / 8) * 0.96 * 0.9
    days = 100e9 / rate_of_job / 86_400
    facility = 5000 / 8 * 64 * 1.25 * 1.2
    assert float(found.tokens_per_second) == pytest.approx(rate_of_job)
    assert float(found.days.mid) == pytest.approx(days, rel=1e-5)
    assert float(found.megawatts or 0) == pytest.approx(700 * 64 * 1.25 * 1.2 / 1e6)
    assert float(found.megawatt_hours or 0) == pytest.approx(facility * days * 24 / 1e6, rel=1e-5)
    dollars = 64 * days * 24 * 2 + facility * days * 24 / 1000 * 0.1
    assert float(found.dollars or 0) == pytest.approx(dollars, abs=0.01)
    assert float(found.dollars_per_million_tokens or 0) == pytest.approx(dollars / 100e9 * 1e6, rel=1e-5)
    assert float(found.tokens_per_joule or 0) == pytest.approx(rate_of_job / facility, rel=1e-5)
    own = FULL["pools"][0] | {"priceIncludesPower": True}
    once = answered(jobs=task, **FULL | {"pools": [own]}).jobs[0]
    power = float(found.megawatt_hours or 0) * 1000 * 0.1
    assert float(found.dollars or 0) - float(once.dollars or 0) == pytest.approx(power, abs=0.02)


def test_with_scaling_a_deadline_is_promised_by_the_high_end_of_the_band() -> None:
    found = answered(jobs=[job(deadlineDays="30")], **FULL)
    assert found.jobs[0].deadline == "promised"
    assert float(found.jobs[0].days.high) <= 30
    slow = [node("a", [rate("bf16", error=0.1)], count=60), node("s", [rate("bf16", 60_000.0, error=0.1)], count=4)]
    found = answered(fleet(pool("H100", *slow)), jobs=[job(deadlineDays="3")], **FULL | {"objective": ["cost"]})
    assert float(found.jobs[0].days.mid) < 3 < float(found.jobs[0].days.high)
    assert found.jobs[0].deadline == "promised"


def test_slow_nodes_are_named_and_priced_and_a_throttled_one_is_slow() -> None:
    nodes = [node("ok", count=60), node("slow-1", [rate("bf16", 64_000.0)])]
    found = answered(fleet(pool("H100", *nodes)), jobs=[job(minGPUs=384, maxGPUs=384)], whatIfs=None)
    drained = next(each for each in found.what_ifs if each.name == "drain-slow-nodes")
    assert "without the slow nodes slow-1" in drained.answer
    assert float(drained.days or 0) < 0
    assert found.pools[0].slow_nodes == 1
    nodes = [node("ok", count=9), node("hot", [rate("bf16", 70_000.0, throttled=True)])]
    found = answered(fleet(pool("H100", *nodes)))
    assert found.pools[0].slow_nodes == 1


def test_on_known_fast_nodes_a_job_does_not_wait_for_slow_ones() -> None:
    nodes = [node("ok", count=60), node("slow", [rate("bf16", 64_000.0)], count=4)]
    task = [job(minGPUs=384, maxGPUs=384)]
    drawn = answered(fleet(pool("H100", *nodes)), jobs=task)
    placed = answered(fleet(pool("H100", *nodes)), jobs=task, fleet={"placement": "fastest"})
    assert float(drawn.jobs[0].straggler) == pytest.approx(0.8, abs=0.01)
    assert placed.jobs[0].straggler == "1"


QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "power": ({"powerPercent": -50}, "(-50 %)"),
    "deny": ({"denyRecipes": ["fp8_current"]}, "without fp8_current"),
    "allow": ({"allowRecipes": ["mxfp8"]}, "with mxfp8"),
    "risky": ({"allowRecipes": ["nvfp4_no_rht"]}, "GPUs of pool H100. Risk of nvfp4_no_rht: NVFP4 without RHT"),
    "more": ({"addNodes": {"pool": "H100", "nodes": 16}}, "with 16 nodes (128 GPUs) more in H100"),
    "pool": (
        {"addPool": {"product": "H100", "nodes": 8, "dollarsPerGPUHour": "1"}},
        "with a pool of 8 nodes (64 GPUs)",
    ),
    "rack": ({"loseRack": {"pool": "H100"}}, "without rack a (8 nodes)"),
    "prices": ({"prices": [{"pool": "H100", "dollarsPerGPUHour": "4"}]}, "H100 at 4 dollars a GPU hour"),
    "drain": ({"drainSlowNodes": True}, "no node is slow"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_as_a_difference(question: str) -> None:
    change, words = QUESTIONS[question]
    rates = [rate("bf16"), rate("fp8_current", 100_000.0), rate("mxfp8", 120_000.0), rate("nvfp4_no_rht", 130_000.0)]
    nodes = [node(f"{rack}-{i}", rates, rack=rack) for rack in "ab" for i in range(8)]
    asked = {"name": question, **change}
    task = [job(recipes=["bf16", "fp8_current"])]
    priced: dict[str, Any] = {"pools": [{"name": "H100", "dollarsPerGPUHour": "2"}], "power": FULL["power"]}
    found = answered(fleet(pool("H100", *nodes)), jobs=task, whatIfs=[asked], **priced)
    (answer,) = found.what_ifs
    assert words in answer.answer.replace("rack b", "rack a")
    assert answer.feasible
    signs = {"power": 1, "deny": 1, "allow": -1, "risky": -1, "more": -1, "pool": 0, "rack": 1, "prices": 0, "drain": 0}
    days = float(answer.days or 0)
    assert (days > 0) - (days < 0) == signs[question]
    assert (answer.worth_most is not None) == (question in ("more", "pool"))
    if question == "prices":
        assert float(answer.dollars or 0) == pytest.approx(
            float(found.totals.gpu_hours or 0) * 2 if found.totals else 0, rel=1e-4
        )


WORTH = {
    "room": (["time"], {}, r"-9\.6 hours.*; worth 9\.6 hours \(4\.8 hours a node by the bound\)"),
    "no room": (["time"], {"maxGPUs": 64}, "worth nothing: the last job ends no earlier"),
    "cost": (["cost"], {}, "worth nothing: no deadline, budget or commitment binds here"),
    "deadline": (["cost"], {"deadlineDays": "3.4"}, r"worth \$"),
}


@pytest.mark.parametrize("limit", WORTH)
def test_what_a_rack_more_is_worth_is_asked_for_each_pool_and_said_by_what_is_proved(limit: str) -> None:
    objective, changes, words = WORTH[limit]
    racks = [node(f"{rack}-{i}", rack=rack) for rack in "abcdefgh" for i in range(2)]
    own = [{"name": name, "dollarsPerGPUHour": price} for name, price in (("near", "2"), ("far", "9"))]
    known = fleet(pool("near", *racks), pool("far", node("f", count=2 if objective == ["time"] else 16)))
    tasks = [job(name, tokens=tokens, **changes) for name, tokens in (("a", "250B"), ("b", "150B"))]
    found = answered(known, jobs=tasks, whatIfs=None, objective=objective, pools=own)
    first, second = (answer for answer in found.what_ifs if answer.name.startswith("add-a-rack"))
    assert ("more in near" in first.answer, "more in far" in second.answer) == (True, True)
    assert re.search(words, first.answer), first.answer
    assert float(first.worth_least or 0) <= float(first.worth_most or 0)


def test_idle_gpus_take_of_the_power_budget_once_in_a_question_too() -> None:
    same = [{"name": "same", "prices": [{"pool": "H100", "dollarsPerGPUHour": "2"}]}, {"name": "p", "powerPercent": 10}]
    own = [{"name": "H100", "idleWattsPerGPU": 100, "dollarsPerGPUHour": "2"}]
    electric = {"pue": "1", "overhead": {"gpu": "1"}, "budget": "60kW"}
    changed, raised = answered(pools=own, power=electric, objective=["time"], whatIfs=same).what_ifs
    assert "no change in days" in changed.answer
    assert raised.answer.startswith("with 66 kW (+10 %): -")


def test_a_question_that_leaves_no_plan_says_so_and_names_the_limits_that_clash() -> None:
    asked = {"name": "none", "denyRecipes": ["bf16"]}
    found = answered(jobs=[job(recipes=["bf16"])], whatIfs=[asked])
    assert not found.what_ifs[0].feasible
    assert "no recipe is left" in found.what_ifs[0].answer
    risky = [{"name": "risky", "allowRecipes": ["nvfp4_no_rht"]}]
    (answer,) = answered(jobs=[job(recipes=["bf16"])], whatIfs=risky).what_ifs
    assert "not known: nvfp4_no_rht was not measured here" in answer.answer
    racks = [node(f"{rack}{i}", rack=rack) for rack in "ab" for i in range(8)]
    asked = [{"name": "lost", "loseRack": {"pool": "H100"}}]
    (answer,) = answered(fleet(pool("H100", *racks)), job(deadlineDays="1"), whatIfs=asked).what_ifs
    assert "no plan: This limit can't be kept: the deadline of job train (1 day)" in answer.answer


@pytest.mark.parametrize(("question", "field"), [("addNodes", {"nodes": 4}), ("loseRack", {})])
def test_a_product_of_several_pools_is_no_pool_to_ask_about(question: str, field: dict[str, Any]) -> None:
    known = fleet(pool("rackA", product="H100"), pool("rackB", product="H100"))
    (answer,) = answered(known, whatIfs=[{"name": "more", question: {"pool": "H100", **field}}]).what_ifs
    assert not answer.feasible
    assert f"spec.whatIfs[more].{question}.pool: H100 is the product of 2 pools" in answer.answer
    assert "write the name of one as pool: rackA, rackB" in answer.answer


def test_pools_drop_out_or_come_before_products_by_what_is_told() -> None:
    known = fleet(pool("H100"), pool("other", product="H100"))
    (answer,) = answered(known, whatIfs=[{"name": "lost", "loseRack": {"pool": "H100", "rack": "r"}}]).what_ifs
    assert "pool H100 has no rack r" in answer.answer
    four = pool("GB200", node("g", [rate("bf16", 4e4)], gpus=4, count=12))
    status = answered(fleet(pool("H100"), four), job(blockGPUs=12))
    assert (
        "not offered to train: H100: blocks of 12 GPUs are not whole nodes of 8: give a multiple of 8" in status.notes
    )


@pytest.mark.parametrize(
    ("days", "words"),
    [(0.000809, "1 min"), (0.0004, "34 s"), (3.2 / 24, "3 h"), (1.9, "1 day"), (12.4, "12 days"), (-0.1, "0 s")],
)
def test_an_age_is_told_as_people_tell_it(days: float, words: str) -> None:
    assert age(days) == words
    finished = (NOW - timedelta(days=days)).isoformat()
    found = answered(fleet(pool("H100", node("n", count=16, finished_at=finished))))
    assert found.jobs[0].source.endswith(f"oldest {words}")
    assert found.pools[0].provenance.endswith(f"oldest {words}")


def test_every_rate_carries_its_source_and_a_predicted_one_a_wider_band() -> None:
    found = answered()
    assert found.jobs[0].source == "profile nightly at its micro batch, 16 nodes, 16 verified, oldest 1 day"
    assert (
        found.pools[0].provenance
        == "profiles nightly (at their micro batch); 16 nodes; figures: 16 verified; oldest 1 day"
    )
    assert found.data == "measured"
    near, far = answered().jobs[0], answered(jobs=[job(workload={"preset": "llama3.1-70b"})]).jobs[0]
    assert (near.basis, far.basis) == ("measured", "predicted")
    assert far.source.startswith("predicted by equal FLOP/s from llama3-8b; ")
    found = answered(jobs=[job("near"), job("far", workload={"preset": "llama3.1-70b"})])
    assert (found.recommendation or "").startswith("predicted (far) figures: run ")
    assert "the bands of far are wide: profile that workload for narrower ones" in found.notes
    assert float(far.days.high) / float(far.days.low) > 1.2 > float(near.days.high) / float(near.days.low)


def test_a_job_rate_comes_before_rates_of_nodes_and_holds_communication() -> None:
    job_rate = {
        "workload": {"preset": "llama3-8b"},
        "recipe": "bf16",
        "gpus": 128,
        "tokensPerSecondPerGPU": "9000",
        "source": "run 17 of May",
    }
    answer = answered(pools=[{"name": "H100", "jobRates": [job_rate]}], jobs=[job(minGPUs=128, recipes=["bf16"])])
    assert (answer.jobs[0].tokens_per_second, answer.jobs[0].basis) == (str(9000 * 128), "declared")
    assert "run 17 of May" in answer.jobs[0].source
    nvfp4 = {**job_rate, "recipe": "nvfp4"}
    answer = answered(pools=[{"name": "H100", "jobRates": [nvfp4]}], jobs=[job(minGPUs=128, recipes=["nvfp4"])])
    assert "job rate of H100 with nvfp4: layers that stay in BF16 are not known; without any, at risk" in answer.notes


def test_what_binds_is_named_and_planned_nodes_are_told_to_be_assumed() -> None:
    found = answered(jobs=[job("a", minGPUs=64), job("b")], **FULL | {"objective": ["time"]})
    assert {one.binding for one in found.jobs} & {"GPUs of pool H100", "nothing: the last job ends no earlier"}
    found = answered(pools=[{"name": "H100", "nodes": 32}], jobs=[job(minGPUs=256)])
    assert found.jobs[0].gpus == 256
    assert any("one that nobody has seen is assumed to be 5 % to 35 % slower" in note for note in found.notes)


def test_scaling_binds_where_it_ends_and_shapes_that_do_not_fit_are_left_out() -> None:
    model = {"hiddenSize": 4104, "intermediateSize": 14336, "numAttentionHeads": 27, "numHiddenLayers": 32}
    odd = {"name": "odd", "model": model, "microBatchSize": 1, "sequenceLength": 8192}
    known = fleet(pool("H100", node("n", [rate("bf16"), rate("fp8_current", 1e5)], count=4)))
    assert answered(known, jobs=[job(workload=odd)]).jobs[0].recipe == "bf16"
    measured = fleet(pool("H100", node("n", count=256)))
    scaling = [{"name": "H100", "scaling": [{"gpus": 2048, "efficiency": "0.9"}]}]
    asked = answered(measured, job(tokens="10T"), pools=scaling, whatIfs=more(100))
    assert (
        "train is then bound by scaling is given up to 2048 GPUs, not for 2056: add a point" in asked.what_ifs[0].answer
    )


def test_nodes_that_are_added_to_a_pool_named_by_product_stay_with_that_pool() -> None:
    known = fleet(pool("rackA", product="H100"), pool("rackB", product="H100"))
    dearer = {"prices": [{"pool": "H100", "dollarsPerGPUHour": "3"}]}
    asked = spec(pools=[{"name": "H100", "dollarsPerGPUHour": "2"}], whatIfs=[more(4, "rackA")[0] | dearer])
    base = plan(asked, known, NOW)
    assert base.terms is not None
    (question,) = asked.what_ifs or ()
    changed = _changed(question, known, base, base.terms)
    after = {found.name: found for found in pools(changed.fleet, changed.terms, NOW)}
    assert {name: found.nodes for name, found in after.items()} == {"rackA": 20, "rackB": 16}
    assert {found.terms.dollars_per_gpu_hour for found in after.values()} == {3.0}


def more(nodes: int, pool_name: str = "H100") -> list[dict[str, Any]]:
    return [{"name": "more", "addNodes": {"pool": pool_name, "nodes": nodes}}]


def test_one_node_more_makes_no_block_of_a_rack_and_a_rack_more_does() -> None:
    racks = [node(f"r{r}-{i}", gpus=4, rack=f"rack{r}", rates=[rate("bf16", 4e4)]) for r in range(4) for i in range(18)]
    known = fleet(pool("GB200", *racks))
    asked = answered(known, job(blockGPUs=72, minGPUs=72), whatIfs=more(1, "GB200"))
    assert asked.jobs[0].gpus == 288
    assert asked.what_ifs[0].answer.startswith("with 1 node (4 GPUs) more in GB200: no change in days")
    assert "train is then bound by GPUs of pool GB200" in asked.what_ifs[0].answer
    asked = answered(known, job(blockGPUs=72, minGPUs=72), whatIfs=more(18, "GB200"))
    assert float(asked.what_ifs[0].days or 0) == pytest.approx(-float(asked.jobs[0].days.mid) / 5, rel=1e-4)


@pytest.mark.parametrize("own", [{}, {"nodes": 129}], ids=["question", "plan"])
def test_a_node_more_does_not_verify_a_recipe_on_the_others(own: dict[str, Any]) -> None:
    few = [node("both", [rate("bf16"), rate("fp8_current", 120_000.0)], count=8), node("one", count=120)]
    pools = [{"name": "H100", **own}] if own else []
    asked = answered(fleet(pool("H100", *few)), job(), pools=pools, whatIfs=[] if own else more(1))
    assert (asked.jobs[0].recipe, asked.jobs[0].gpus) == ("bf16", 8 * (129 if own else 128))
    if not own:
        # 1 of 129 nodes more of bf16, and no more than that.
        assert float(asked.what_ifs[0].days or 0) == pytest.approx(-float(asked.jobs[0].days.mid) / 129, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prices": [{"pool": "H1OO", "dollarsPerGPUHour": "4"}]}, ".prices: there is no pool H1OO: name one of H100"),
        ({}, ": it asks for no change: give drainSlowNodes, "),
    ],
    ids=["no such pool", "no question"],
)
def test_a_question_without_sense_is_an_error(change: dict[str, Any], words: str) -> None:
    (answer,) = answered(fleet(), job(), whatIfs=[{"name": "x", **change}]).what_ifs
    assert answer.feasible is False
    assert f"spec.whatIfs[x]{words}" in answer.answer


def test_electricity_alone_has_a_cost() -> None:
    status = answered(fleet(), job(), power=FULL["power"], objective=["cost"])
    assert float(status.jobs[0].dollars or 0) == pytest.approx(
        float(status.jobs[0].megawatt_hours or 0) * 100, abs=0.01
    )
    assert "no pool has dollarsPerGPUHour: cost is that of electricity alone" in status.notes


def test_rows_add_up_to_the_totals_where_hours_are_paid_for() -> None:
    prices = [{"name": "H100", "dollarsPerGPUHour": "2.333", "committedGPUHours": "1000"}]
    status = answered(fleet(), *(job(name, maxGPUs=40) for name in "abc"), pools=prices)
    assert sum(round(float(row.dollars or 0) * 100) for row in status.jobs) == round(
        float(status.totals.dollars or 0) * 100
    )
    hours = float(status.totals.gpu_hours or 0)
    assert float(status.totals.dollars or 0) == pytest.approx((hours - 1000) * 2.333, rel=1e-5)


def test_a_fast_recipe_under_the_scaling_of_all_is_told_to_be_flattered() -> None:
    alike = {"gpus": 128, "efficiency": "0.8"}
    measured = fleet(pool("H100", node("n", [rate("bf16"), rate("fp8_current", 136_000.0)], count=16)))
    flattered = answered(measured, job(minGPUs=128), pools=[{"name": "H100", "scaling": [alike]}])
    slower = alike | {"recipe": "fp8_current", "efficiency": "0.7"}
    honest = answered(measured, job(minGPUs=128), pools=[{"name": "H100", "scaling": [alike, slower]}])
    said = [
        [note for note in answer.notes if note.startswith("flattered by communication")]
        for answer in (flattered, honest)
    ]
    assert (len(said[0]), said[1]) == (1, [])
    assert float(honest.jobs[0].tokens_per_second) == pytest.approx(16 * 136_000 * 0.7)
    assert float(flattered.jobs[0].tokens_per_second) == pytest.approx(16 * 136_000 * 0.8)


def test_rates_with_other_layers_in_bf16_are_parted_and_the_plan_says_what_it_leaves_out() -> None:
    kept = node("a", [rate(), rate("nvfp4", 160_000.0, last_layers_bf16=5)], count=12)
    none = node("b", [rate(), rate("nvfp4", 150_000.0, last_layers_bf16=0)], count=4, profile="bold")
    fewer = node("c", [rate(), rate("nvfp4", 130_000.0, last_layers_bf16=2)], count=4, profile="few")
    found = answered(fleet(pool("B200", kept, none, fewer)), jobs=[job()])
    assert (found.jobs[0].recipe, found.jobs[0].last_layers_bf16) == ("nvfp4", 5)
    assert "12 nodes" in found.jobs[0].source
    said = "4 results of nvfp4 with lastLayersBF16 0 (profile bold) are left out beside 12 with 5; spec.fleet.profiles"
    assert any(said in note for note in found.notes)
    assert any("lastLayersBF16 2 (profile few)" in note for note in found.notes)


def test_a_plan_names_the_attention_and_weights_of_its_steps_and_of_those_that_it_leaves_out() -> None:
    step, rates = "attention's core in mxfp8", [rate(), rate("mxfp8", 150_000.0)]
    core = node("a", rates, count=12, profile="core", workload_hash="b1/1/quick/mxfp8-attention")
    plain = node("b", rates, count=4, profile="plain", workload_hash="b1")
    answer = answered(fleet(pool("B200", core, plain)), jobs=[job()], fleet={"profiles": ["core", "plain"]})
    assert f"GPUs of B200 with mxfp8 ({step}) in " in answer.recommendation
    assert [narrow(row)["recipe"] for row in answer.jobs] == [f"mxfp8 ({step})"]
    assert any(f"mxfp8 (profile core) was measured with {step}" in note for note in answer.notes)
    left = "results at settings without attention's core in mxfp8 (profile plain) are left out"
    assert any(left in note for note in answer.notes)


def test_recipes_of_one_job_are_compared_at_the_same_batch_settings_else_a_note_names_the_difference() -> None:
    demo = node("a", [rate(), rate("nvfp4", 300_000.0)], count=12, profile="demo", workload_hash="b2")
    mine = node("b", [rate("bf16", 50_000.0), rate("mxfp8", 60_000.0)], count=4, profile="mine", workload_hash="b1")
    both = fleet(pool("B200", demo, mine))
    of_one, mixed = (answered(both, jobs=[job(recipes=recipes)]) for recipes in (["bf16", "mxfp8"], ["nvfp4", "mxfp8"]))
    assert (of_one.jobs[0].recipe, "profile mine at its micro batch, 4 nodes" in of_one.jobs[0].source) == (
        "mxfp8",
        True,
    )
    said = "measured at other workload settings (such as the micro batch) than the recipes beside it"
    assert any(f"nvfp4 (profile demo) was {said}" in note for note in of_one.notes), of_one.notes
    assert any("(profile demo) are left out; spec.fleet.profiles chooses" in note for note in of_one.notes)
    assert any(f"mxfp8 (profile mine) was {said}" in note for note in mixed.notes), mixed.notes
    alone = answered(both, jobs=[job(recipes=["bf16"])])
    assert "profile demo at its micro batch, 12 nodes" in alone.jobs[0].source


def test_an_unnamed_risk_is_left_out_and_another_workload_bars_nobody() -> None:
    none = fleet(pool("B200", node("b", [rate(), rate("nvfp4", 150_000.0, last_layers_bf16=0)], count=4)))
    answer = answered(none, jobs=[job()])
    assert answer.jobs[0].recipe == "bf16"
    assert any(
        "B200 nvfp4: nvfp4 has a known risk, with no layers in BF16 (lastLayersBF16: 0)" in note
        and note.endswith("list it in the job's recipes")
        for note in answer.notes
    )
    assert answered(none, jobs=[job(recipes=["nvfp4"])]).jobs[0].recipe == "nvfp4"
    bold = node("a", [rate("nvfp4", 150_000.0, last_layers_bf16=0)], workload=workload("qwen3-8b").key)
    kept = node("b", [rate(), rate("nvfp4", 120_000.0, last_layers_bf16=5)], count=4)
    both = fleet(pool("B200", bold, kept), workloads=(workload(), workload("qwen3-8b")))
    assert answered(both, jobs=[job()]).jobs[0].recipe == "nvfp4"
    # nor does a risk that is taken for another model cross: a profile that lists the recipe, or a job rate of it
    taken = node(
        "a", [rate("nvfp4_no_rht", 150_000.0, listed=True, last_layers_bf16=1)], workload=workload("qwen3-8b").key
    )
    others = fleet(pool("B200", taken, node("b", [rate()], count=4)), workloads=(workload(), workload("qwen3-8b")))
    said = {"workload": {"preset": "qwen3-8b"}, "gpus": 8, "tokensPerSecondPerGPU": "99000", "source": "told"}
    for facts, declared, recipe in (
        (others, [], "nvfp4_no_rht"),
        (none, [{"name": "B200", "jobRates": [said | {"recipe": "nvfp4"}]}], "nvfp4"),
        (
            fleet(pool("B200", node("b", [rate()]))),
            [{"name": "B200", "jobRates": [said | {"recipe": "nvfp4_no_rht"}]}],
            "nvfp4_no_rht",
        ),
    ):
        answer = answered(facts, jobs=[job()], pools=declared)
        assert answer.jobs[0].recipe == "bf16"
        assert any(f"B200 {recipe}: {recipe} has a known risk" in note for note in answer.notes)
        assert answered(facts, jobs=[job(recipes=[recipe])], pools=declared).jobs[0].recipe == recipe
