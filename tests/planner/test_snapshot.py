"""Reports, as the operator writes them, become the fleet that plans are made from."""

from dataclasses import replace
from typing import Any

import pytest

from precision_api.kinds.report import ReportStatus
from precision_operator.core.results.outliers import judged
from precision_operator.core.results.reading import read
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, racks, report_facts
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.rates.evidence import pools
from tests.support.fleets import NOW, fleet, node, pool, rate, spec
from tests.support.report_objects import fresh_no_more, profile_object, recipe_row, report_object, report_status


def node_object(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}}


def fleet_from(*reports: dict[str, Any], nodes: list[dict[str, Any]] | None = None, slow_percent: int = 5) -> Fleet:
    nodes = [node_object(report["spec"]["nodeName"]) for report in reports] if nodes is None else nodes
    owner = profile_facts(profile_object())
    assert owner is not None
    owner = replace(owner, slow_node_percent=slow_percent)
    return fleet_of(map(report_facts, reports), [owner], racks(nodes), NOW, "a test")


def test_a_report_becomes_a_node_with_its_rates() -> None:
    row = recipe_row("bf16", tokensPerSecondError="0.012", gpuSpread="0.9")
    known = fleet_from(report_object("a", status=report_status([row], passes=7)))
    (pool,) = known.pools
    (node,) = pool.nodes
    (result,) = node.results
    mixed = report_object("a", status=report_status([row, recipe_row("nemotron3-super", 1.4)]))
    (same,) = fleet_from(mixed).pools[0].nodes[0].results
    assert same.rates == result.rates, "no law of the planner holds for a mixture"
    (rate,) = result.rates
    assert (pool.name, pool.product, node.name, node.gpus) == ("NVIDIA-GB200", "GB200", "a", 4)
    assert rate.synchronous_tokens_per_second == pytest.approx(95_000 * 0.9)
    assert (rate.error, rate.watts, rate.power_scope) == (0.012, 4870.5, "module")
    assert (result.provenance, result.passes) == ("simulated", 7)
    assert known.workloads[0].name == "llama3-8b"


def test_invalid_power_gone_nodes_and_those_without_a_result_are_absent_and_stale_ones_known() -> None:
    row = recipe_row("bf16", watts="0", powerInvalid=["phase_locked"])
    (result,) = fleet_from(report_object("a", status=report_status([row]))).pools[0].nodes[0].results
    assert result.rates[0].watts is None
    assert fleet_from(report_object("a"), nodes=[]).pools == ()
    assert fleet_from(report_object("a", status={}), report_object("b")).pools[0].nodes[0].name == "b"
    stale = report_status() | {"conditions": [fresh_no_more("DriverChanged")]}
    assert fleet_from(report_object("a", status=stale)).pools[0].nodes[0].results[0].stale == "DriverChanged"


@pytest.mark.parametrize("verdict", ["diverged", "diverging", "not_learning"])
def test_no_plan_takes_a_recipe_whose_loss_runs_were_not_healthy(verdict: str) -> None:
    rows = [recipe_row("bf16"), recipe_row("nvfp4", 1.6, lossVerdict=verdict)]
    known = fleet_from(*(report_object(name, status=report_status(rows)) for name in ("a", "b")))
    found = status(plan(spec(fleet={"allow": ["simulated"]}), known, NOW))
    assert [job.recipe for job in found.jobs] == ["bf16"]
    asked = status(plan(spec(fleet={"allow": ["simulated", "unhealthyLoss"]}), known, NOW))
    assert [job.recipe for job in asked.jobs] == ["nvfp4"]
    assert any(note.startswith("UNHEALTHYLOSS: in loss runs the recipe diverged") for note in asked.notes)


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "a field": ({"status": report_status() | {"hardware": {"gpus": "x"}}}, "hardware.product: Field required"),
    "a recipe": (
        {"status": report_status() | {"results": [{"recipe": "FP1"}]}},
        "recipe: Value error, 'FP1' is neither a recipe",
    ),
    "no mapping": ({"status": ["x"]}, "AttributeError"),
    "conditions": ({"status": report_status() | {"conditions": ["Fresh"]}}, "AttributeError"),
    "the spec": ({"spec": ["x"]}, "TypeError: spec is no mapping"),
    "the time": ({"status": report_status(finishedAt="yesterday")}, "yesterday"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_report_that_cannot_be_read_is_named_in_the_plans_notes_with_the_reason(damage: str) -> None:
    broken, why = DAMAGED[damage]
    nodes = [node_object("a"), node_object("b")]
    known = fleet_from(report_object("a") | broken, report_object("b"), nodes=nodes)
    assert [node.name for node in known.pools[0].nodes] == ["b"]
    (note,) = status(plan(spec(fleet={"allow": ["simulated"]}), known, NOW)).notes[:1]
    name = report_object("a")["metadata"]["name"]
    assert note.startswith(f"1 of the reports can't be read and are left out: ml/{name} (")
    assert why in note
    assert read_fleet(known.model_dump_json(by_alias=True)).notes == (note,)


def test_many_damaged_reports_make_one_short_note_and_are_told_without_a_plan_too() -> None:
    known = fleet_from(*(report_object(f"n{i}", status={"status": 1, "run": [1]}) for i in range(9)), nodes=[])
    assert known.notes == ()
    broken = [report_object(f"n{i}") | {"status": "x" * 9999} for i in range(9)]
    told = status(plan(spec(), fleet_from(*broken), NOW))
    assert told.phase == "Refused"
    (note,) = told.notes
    assert note.startswith("9 of the reports")
    assert "and 4 more" in note
    assert len(note) < 1024


def test_a_profile_brings_its_threshold_and_the_nvlink_domain_comes_before_the_rack() -> None:
    labels = {"nvidia.com/gpu.clique": "d.1", "topology.kubernetes.io/rack": "r7"}
    nodes = [node_object("a", **labels), node_object("b", **{"topology.kubernetes.io/rack": "r7"}), node_object("c")]
    known = fleet_from(*(report_object(name) for name in "abc"), nodes=nodes)
    assert [node.rack for node in known.pools[0].nodes] == ["d.1", "r7", ""]
    raw = profile_object()
    raw["spec"]["thresholds"] = {"slowNodePercent": 12}
    assert profile_facts(raw).slow_node_percent == 12


def test_two_profiles_are_two_results_known_by_their_flops_without_one() -> None:
    status_of_it = report_status(trainingFlopsPerToken="50000000000")
    (left,) = fleet_from(report_object("a", profile="gone", status=status_of_it)).workloads
    assert (left.flops_per_token, left.model) == (5e10, None)
    known = fleet_from(report_object("a"), report_object("a", profile="other"), nodes=[node_object("a")])
    assert (len(known.pools[0].nodes), len(known.pools[0].nodes[0].results)) == (1, 2)


@pytest.mark.parametrize("step", ["separate", "mxfp8-attention", "primary-weights"])
def test_rates_of_steps_that_are_no_plain_ones_are_refused_unless_their_profile_is_named(step: str) -> None:
    timings = {"a": "1/quick", "b": f"1/quick/{step}"}
    reports = [report_object(name, name, status=report_status(timing=timing)) for name, timing in timings.items()]
    seen, allow = fleet_from(*reports), {"allow": ["simulated"]}
    (found,) = pools(seen, terms(spec(fleet=allow), NOW), NOW)
    assert {name for sample in found.samples.values() for name in sample.names} == {"a"}
    assert [word.startswith("steps with ") for word in found.refused] == [True]
    (both,) = pools(seen, terms(spec(fleet=allow | {"profiles": ["a", "b"]}), NOW), NOW)
    assert {len(sample.names) for sample in both.samples.values()} == {1}, "one step or the other, never both"


def test_what_is_saved_is_read_again_and_gives_the_same_plan() -> None:
    known = fleet_from(*(report_object(f"n{i}") for i in range(4)))
    again = read_fleet(known.model_dump_json(by_alias=True, exclude_none=True))
    assert again == known
    made = spec(fleet={"allow": ["simulated"]})
    assert status(plan(made, again, NOW)) == status(plan(made, known, NOW))
    assert status(plan(made, again, NOW)).phase == "Solved"


RATES = {"a": 100_000, "b": 101_000, "c": 99_500, "d": 100_400, "late": 92_000, "lame": 100_000}


@pytest.mark.parametrize(("percent", "slow"), [(5, {"late", "lame"}), (10, {"lame"}), (30, set())])
def test_the_planner_calls_those_nodes_slow_that_kubectl_and_the_alerts_do(percent: int, slow: set[str]) -> None:
    """One GPU of `lame` is a fifth slow: its sum hides it, a synchronous job does not."""
    spreads = {"lame": "0.80"}
    rows = [recipe_row("bf16", tokensPerSecond=str(RATES[name]), gpuSpread=spreads.get(name)) for name in RATES]
    reports = [report_object(name, status=report_status([row])) for name, row in zip(RATES, rows, strict=True)]
    measured = [
        read(name, "NVIDIA-GB200", ReportStatus.model_validate(raw["status"]))
        for name, raw in zip(RATES, reports, strict=True)
    ]
    told = {one.node for one in judged(measured, percent) if one.slow}
    seen = fleet_from(*reports, slow_percent=percent)
    (pool,) = pools(seen, terms(spec(fleet={"allow": ["simulated"]}), NOW), NOW)
    assert pool.slow == told == slow


def test_a_file_by_hand_in_which_nobody_judged_is_judged_by_the_same_rule() -> None:
    alike = [node(f"ok-{i}", [rate("bf16", 80_000.0 + i)]) for i in range(6)]
    odd = node("odd", [rate("bf16", 70_000.0)])
    (found,) = pools(fleet(pool("H100", *alike, odd)), terms(spec(), NOW), NOW)
    assert found.slow == {"odd"}
    (few,) = pools(fleet(pool("H100", alike[0], odd)), terms(spec(), NOW), NOW)
    assert few.slow == set(), "of two nobody can say which one is the odd one"


@pytest.mark.parametrize("order", [("One", "All"), ("All", "One")])
def test_each_result_is_divided_by_the_gpus_that_ran_for_it(order: tuple[str, str]) -> None:
    whole, single = report_status(), report_status()
    single["hardware"] = {**single["hardware"], "gpus": 1, "limitWatts": "1200"}
    told = {"All": report_object("a", status=whole), "One": report_object("a", status=single)}
    ((node,),) = [found.nodes for found in fleet_from(*(told[name] for name in order)).pools]
    assert (node.gpus, node.limit_watts) == (4, fleet_from(told["All"]).pools[0].nodes[0].limit_watts)
    assert sorted(result.gpus or 0 for result in node.results) == [1, 4]


def test_rates_of_one_gpu_are_not_divided_by_the_nodes_gpus() -> None:
    whole = node(rates=[rate(tokens_per_second=10_000.0, watts=700.0)])
    single = whole.model_copy(update={"results": (whole.results[0].model_copy(update={"gpus": 1}),)})
    (found,) = pools(fleet(pool("H100", single)), terms(spec(), NOW), NOW)
    (sample,) = found.samples.values()
    assert (sample.rates.tolist(), sample.watts_per_gpu) == ([10_000.0], 700.0)
