"""The decision and the references that it is taken against: what passes, what fails, and what must do neither."""

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from precision_api.acceptance.create import without_itself
from precision_api.acceptance.judge import drifted, judge, limits
from precision_api.acceptance.reference import Reference, look_at, read_reference, sha256_of, text_of
from precision_api.acceptance.values import NO_LIMITS, Golden, Look, Verdict
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.stats import biweight, t_quantile
from precision_api.facts.recipes import Recipe
from tests.support import golden_nodes
from tests.support.golden import beside
from tests.support.golden_nodes import GPUS, NONE_FAILS, golden_draft, gpu_names, hot, made, measured_node, verified

TABLES = beside(__file__)

SEED = 1
REFERENCE = golden_draft(SEED)
GOLDEN = REFERENCE.recipes["bf16"]
D_NODE, D_GPU = (limits(GOLDEN, check, 1).detect for check in ("reference", "node"))  # type: ignore[union-attr]
PLAIN = measured_node("new", SEED)
SLOW_GPU = measured_node("new", SEED, gpu_off=-2 * D_GPU)
SLOW_NODE = measured_node("new", SEED, off=-2 * D_NODE)


def verdict(*results: MeasurementResult, against: Reference = REFERENCE, **options: Any) -> Verdict:
    return judge(against.recipes, [look_at(found, against) for found in results], list(against.recipes), **options)


@pytest.mark.parametrize(("df", "above", "printed"), TABLES["quantiles"])
def test_quantiles_are_those_of_printed_tables(df: float, above: float, printed: float) -> None:
    assert t_quantile(df, above) == pytest.approx(printed, rel=2e-5)


def test_the_biweight_is_a_standard_deviation_that_outliers_hardly_move() -> None:
    normal = [*map(Random(3).gauss, [0] * 4000, [1] * 4000)]
    assert biweight(normal) == pytest.approx(1, abs=0.03)
    assert biweight([*normal, *[-50.0] * 40]) == pytest.approx(1, abs=0.04)
    assert (biweight([1.0]), biweight([1.0, 1.0, 1.0, 3.0])) == (0.0, 1.0)


@pytest.mark.parametrize("place", [9.0, 0.0, -0.999, -1.5, -2.001])
def test_one_run_passes_or_asks_for_another_and_never_fails(place: float) -> None:
    """`place`: a GPU at -1 is at the limit up to which it passes, at -2 at that from which it fails."""
    least = (limits(GOLDEN, "node", 1) or NO_LIMITS).least
    bounds = limits(GOLDEN, "node", 1, least) or NO_LIMITS
    off = place * bounds.passes if place > -1 else -bounds.passes + (place + 1) * (bounds.fail - bounds.passes)
    speeds = {name: GOLDEN.level + off * (at == 0) for at, name in enumerate(gpu_names("new"))}
    decided = judge({"bf16": GOLDEN}, [Look({"bf16": speeds})], ["bf16"], {"node": least})
    assert (decided.outcome, decided.again) == (("Pass", False) if place > -1 else ("Inconclusive", True))


@pytest.mark.parametrize("reason", NONE_FAILS)
def test_what_no_measurement_shows_neither_passes_nor_fails_however_slow(reason: str) -> None:
    for found, mirror in ((PLAIN, "Pass"), (SLOW_NODE, "Fail")):
        spoiled = verdict(*[NONE_FAILS[reason](found)] * 3)
        assert (spoiled.outcome, spoiled.reason, spoiled.again) == ("Inconclusive", reason, False)
        assert verdict(found, found).outcome == mirror


def test_two_runs_fail_what_is_slow_and_name_the_worst_first() -> None:
    assert (verdict(SLOW_GPU).outcome, verdict(SLOW_GPU).again) == ("Inconclusive", True)
    failed = verdict(SLOW_GPU, SLOW_GPU)
    told = failed.outcome, failed.reason, failed.rows[0].check, failed.rows[0].gpu
    assert told == ("Fail", "TooSlow", "node", gpu_names("new")[0])
    assert failed.rows[0].off == pytest.approx(-2 * D_GPU, abs=1.5)
    assert [row.check for row in verdict(SLOW_NODE, SLOW_NODE).rows if row.outcome == "Fail"] == ["reference"]
    plain, slow, gpu = (look_at(run, REFERENCE).speeds["bf16"] for run in (PLAIN, SLOW_NODE, SLOW_GPU))
    looks = Look({"bf16": gpu, "mxfp8": plain}, {}, {"mxfp8": 0.2}), Look({"bf16": gpu, "mxfp8": slow})
    rows = judge({"bf16": GOLDEN, "mxfp8": GOLDEN}, looks, ["mxfp8", "bf16"]).rows
    assert [row.recipe for row in rows if row.outcome == "Fail"] == ["bf16"], "the other has one cool run"


def test_runs_average_and_do_not_vote() -> None:
    lucky = measured_node("new", SEED, gpu_off=1.0)
    assert verdict(lucky, SLOW_GPU, SLOW_GPU).outcome == "Fail"
    assert verdict(lucky, lucky, measured_node("new", SEED, gpu_off=-1.0)).outcome == "Pass"


@pytest.mark.parametrize(("options", "found", "outcome", "reason"), [
    ({"unhealthy": "UncorrectableECC"}, PLAIN, "Fail", "UncorrectableECC"),
    ({"shift": -4.0}, PLAIN, "Inconclusive", "ReferenceDrifted"),
    ({"shift": -4.0}, SLOW_NODE, "Inconclusive", "ReferenceDrifted"),
    ({"shift": -0.6}, PLAIN, "Pass", "WithinLimits"),
    ({"alike": {"bf16": 3.0}}, SLOW_GPU, "Inconclusive", "ReferenceDrifted"),
    ({"alike": {"bf16": 1.0}}, SLOW_GPU, "Fail", "TooSlow"),
    ({"alike": {"bf16": 9.0}}, SLOW_NODE, "Fail", "TooSlow"),
    ({"detect": {"node": 1.0}}, PLAIN, "Inconclusive", "NotDetectable"),
    ({"detect": {"reference": 17.0}}, SLOW_NODE, "Inconclusive", "NotDetectable"),
    ({}, hot(PLAIN), "Inconclusive", "Throttled"),
    ({}, hot(SLOW_NODE), "Fail", "Throttled"),
])  # fmt: skip
def test_health_season_heat_wishes(
    options: dict[str, Any], found: MeasurementResult, outcome: str, reason: str
) -> None:
    decided = verdict(found, found, **options)
    assert (decided.outcome, decided.reason) == (outcome, reason)


def test_a_pool_of_few_fails_no_node_by_its_reference_but_still_a_gpu() -> None:
    small = golden_draft(SEED, nodes=6)
    judged = [verdict(run, run, against=small).reason for run in (SLOW_NODE, SLOW_GPU, PLAIN)]
    assert judged == ["FewGoldenNodes", "TooSlow", "WithinLimits"]
    fast = measured_node("new", SEED, gpus=3, gpu_off=9.0)
    assert verdict(fast, fast, fast, against=golden_draft(SEED, gpus=3)).reason == "BetweenLimits", "two are sound"
    assert verdict(SLOW_NODE, SLOW_NODE, against=golden_draft(SEED, nodes=2)).outcome == "Inconclusive"
    near = golden_draft(2084, nodes=2, gpus=4)  # five of its eight GPUs lie within 0.02 %, the others 0.4 % off
    sound = ([measured_node(f"s{at}", 2084, gpus=4, day=day) for day in (1, 2, 3)] for at in range(9))
    assert "Fail" not in {verdict(*runs, against=near).outcome for runs in sound}


def test_seven_of_eight_gpus_are_no_whole_node() -> None:
    fewer = measured_node("new", SEED, gpus=7)
    assert verdict(fewer, fewer).reason == "OtherKey"
    gone = {recipe: dict(list(speeds.items())[:-1]) for recipe, speeds in look_at(PLAIN, REFERENCE).speeds.items()}
    assert judge(REFERENCE.recipes, [Look(gone)], ["bf16"]).reason == "OtherGPUs"
    assert judge(REFERENCE.recipes, [look_at(PLAIN, REFERENCE), Look(gone)], ["bf16"]).reason == "NotMeasured"


def test_who_has_passed_once_is_held_to_that_and_to_all_fail_limits() -> None:
    again = {f"n{at}": measured_node(f"n{at}", SEED, day=2) for at in range(8)}
    values = made(again, {}, old=REFERENCE)[0].recipes["bf16"]
    assert (values.again, REFERENCE.recipes["bf16"].change) == (8, None)
    bounds, of_node = (limits(values, "change", 1) or NO_LIMITS), (limits(values, "node", 1) or NO_LIMITS)
    assert bounds.detect < of_node.detect
    speeds = dict.fromkeys(gpu_names("new"), values.level)
    baselines = {"bf16": dict.fromkeys(speeds, speeds)}
    assert verdict(PLAIN, baselines=baselines).outcome == "Pass", "no change is judged of nodes that ran on one day"
    worn = speeds | {gpu_names("new")[0]: values.level - bounds.fail - 0.01}
    swapped = {"bf16": dict.fromkeys(gpu_names("new")[1:], speeds)}
    for of, firsts, outcome in (
        (worn, None, "Pass"), (worn, baselines, "Fail"), (speeds, baselines, "Pass"), (worn, swapped, "Pass"),
    ):  # fmt: skip
        assert judge({"bf16": values}, [Look({"bf16": of})] * 2, ["bf16"], baselines=firsts).outcome == outcome
    wide = {"bf16": replace(values, within=2.5)}
    spread = {gpu: values.level + 1.5 * at for at, gpu in enumerate(speeds)}
    for new, checks in ((1, {"reference", "node", "change"}), (6, {"reference", "node"})):
        after = dict([*spread.items()][new:]) | {f"GPU-{at}": values.level + 12 + at for at in range(new)}
        decided = judge(wide, [Look({"bf16": after})], ["bf16"], baselines={"bf16": dict.fromkeys(spread, spread)})
        assert (decided.outcome, {row.check for row in decided.rows}) == ("Pass", checks), "others were swapped"


def test_the_guard_knows_another_season_and_scales_that_say_nothing_promise_nothing() -> None:
    assert not drifted(GOLDEN, 0.69)
    assert drifted(GOLDEN, 3 * (GOLDEN.between or 0) * math.sqrt(1.57 / 20 + 1 / 8) + 0.71)
    assert limits(Golden(1.0, None, None, None, 1, 0, GPUS), "reference", 1) is None
    assert limits(Golden(1.0, 0.0, 0.0, None, 8, 0, GPUS), "node", 1) is None


OUT: Mapping[str, tuple[MeasurementResult, str]] = {
    "replayed": (NONE_FAILS["Simulated"](PLAIN), "replayed, not measured"),
    "capped": (golden_nodes.capped(PLAIN), "limits of its GPUs differ"),
    "hot": (hot(PLAIN), "throttled: hardware_thermal"), "partial": (NONE_FAILS["Partial"](PLAIN), "ended early"),
    "driver": (NONE_FAILS["OtherKey"](PLAIN), "its driver is 590.10, theirs 580.95.05"),
    "host": (NONE_FAILS["HostBound"](PLAIN), "bf16: HostBound"),
    "fallback": (NONE_FAILS["Fallback"](PLAIN), "bf16: Fallback"), "slow": (SLOW_NODE, "% from the median"),
    "undated": (PLAIN.model_copy(update={"finished_at": "yesterday"}), "measured at yesterday"),
    "others": (PLAIN.model_copy(update={"gpus": measured_node("other", SEED).gpus}), "bf16: NotMeasured"),
    "endless": (golden_nodes.with_training(PLAIN, tokens_per_second_by_gpu=dict.fromkeys(gpu_names("new"), math.inf)),
                "bf16: NotMeasured"),
    "old": (PLAIN.model_copy(update={"finished_at": "2099-08-22T09:00:00Z"}), "measured at 2099-08-22T09:00:00Z"),
    "ahead": (PLAIN.model_copy(update={"finished_at": "2099-11-20T10:06:00Z"}), "measured at 2099-11-20T10:06:00Z"),
}  # fmt: skip


def test_a_reference_leaves_out_who_is_not_golden_and_says_why() -> None:
    sound = {f"n{at}": measured_node(f"n{at}", SEED) for at in range(8)}
    draft, _ = made(sound | {name: found for name, (found, _) in OUT.items()}, {"n0": "by --except"})
    assert ([*draft.nodes], draft.left_out["n0"]) == ([f"n{at}" for at in range(1, 8)], "by --except")
    for name, (_, why) in OUT.items():
        assert why in draft.left_out[name]
    without, _ = made({name: found for name, found in sound.items() if name != "n0"}, {})
    assert draft.recipes == without.recipes
    with pytest.raises(ValueError, match="no node can be in a reference: replayed: its figures are replayed"):
        made({"replayed": OUT["replayed"][0]}, {})
    waits = dict.fromkeys(map(str, range(999)), "not measured yet") | {253 * "x": 99 * "x y "}
    fleet = made({253 * "n": sound["n0"]}, waits)[0]
    assert ([*fleet.nodes], len(fleet.left_out), len(fleet.left_out[253 * "x"])) == ([253 * "n"], 201, 199)
    assert "(800 others)" in fleet.left_out


def test_a_reference_travels_as_text_and_keeps_its_name() -> None:
    text = text_of(REFERENCE)
    assert (read_reference(text), len(text) < 9_000) == (REFERENCE, True)
    assert sha256_of(f"{text}\n") == sha256_of(text) != sha256_of(text.replace("somebody", "nobody"))
    early = text.replace("2099-11-01T10:00:00Z", "0001-01-01T00:00:00+14:00")
    for bad in ("{}", text.replace('"between":', '"between":-'), early):
        with pytest.raises(ValueError, match="it is no reference"):
            read_reference(bad)


def test_a_reference_of_324_trays_and_four_recipes_on_two_days_fits_a_config_map_four_times() -> None:
    recipes: tuple[Recipe, ...] = ("bf16", "fp8_current", "mxfp8", "nvfp4")

    def tray(name: str, day: int) -> MeasurementResult:
        rates = dict.fromkeys(gpu_names(name, 4), 9999.5)
        return measured_node(name, SEED, gpus=4, day=day, recipes=tuple(verified(recipe, rates) for recipe in recipes))

    first, again = ({name: tray(name, day) for name in (f"{at:034}" for at in range(324))} for day in (1, 2))
    text = text_of(made(again, {}, old=made(first, {})[0])[0])
    assert (len(text) < 2**18, read_reference(text).recipes["nvfp4"].again) == (True, 324)
    many = {f"{at:034}": measured_node(f"{at:034}", SEED, gpus=1) for at in range(401)}
    draft = made(many, {}, old=made(dict([*many.items()][:9]), {})[0])[0]
    assert ({*[*many][:9]} <= draft.nodes.keys(), len(draft.nodes)) == (True, 400 - len(draft.left_out) + 1)
    assert draft.left_out["(1 more)"] == "a reference holds 400 nodes"


def test_a_first_rack_shows_its_one_bad_gpu_and_not_that_all_of_it_is_slow() -> None:
    rack = {f"n{at}": measured_node(f"n{at}", SEED, gpu_off=-9.0 * (at == 3), off=-20.0) for at in range(9)}
    judged = without_itself(made(rack, {})[1], ["bf16"])
    assert [name for name, one in judged.items() if one.rows[0].outcome == "Fail"] == ["n3"]
    assert judged["n3"].rows[0].gpu == gpu_names("n3")[0]
    assert {name for name, one in judged.items() if one.outcome == "Pass"} == rack.keys() - {"n3"}


PLAIN_GOLDEN = Golden(1000.0, between=0.5, within=0.6, change=0.3, nodes=8, again=8, gpus=8)


@pytest.mark.parametrize(("check", "detect", "fail", "passes", "clear", "least"), TABLES["limits"])
def test_limits_are_those_of_the_formulas(
    check: Any, detect: float | None, fail: float, passes: float, clear: float, least: float
) -> None:
    """By hand: t(2.48e-4, 7) = 6.0899, t(0.005, 7) = 3.4995,
    t(3.1e-5, 44.8) = 4.4202, t(0.005, 44.8) = 2.6900, t(0.003125, 44.8) = 2.8697."""
    bounds = limits(PLAIN_GOLDEN, check, 1, detect) or NO_LIMITS
    told = [bounds.fail, bounds.passes, bounds.clear, bounds.least]
    assert told == pytest.approx([fail, passes, clear, least], abs=2e-4)


def test_a_baseline_takes_the_place_of_the_node_check_where_eight_ran_twice() -> None:
    bounds = limits(PLAIN_GOLDEN, "node", 1, 3.5) or NO_LIMITS
    speeds = dict.fromkeys(gpu_names("new"), 1000.0) | {gpu_names("new")[0]: 1000 - (bounds.passes + bounds.fail) / 2}
    first = speeds | {gpu_names("new")[0]: 1000.01 - bounds.passes}
    known, laxer = ({"bf16": dict.fromkeys(speeds, passed)} for passed in (first, speeds))
    for changes, outcome in (({}, "Pass"), ({"again": 7}, "Inconclusive"), ({"change": None}, "Inconclusive")):
        golden = replace(PLAIN_GOLDEN, **changes)
        for baselines, expected in ((known, outcome), (laxer, "Inconclusive"), (None, "Inconclusive")):
            decided = judge({"bf16": golden}, [Look({"bf16": speeds})], ["bf16"], {"node": 3.5}, baselines)
            assert (decided.outcome, decided.reason) == (expected, "WithinLimits" if expected == "Pass" else "NotYet")


def test_a_second_run_of_the_same_day_is_no_second_day() -> None:
    for ended, twice in (("2099-11-01T18:00:00Z", 0), ("2099-11-02T05:59:00Z", 0), ("2099-11-02T06:00:00Z", 8)):
        later = {f"n{at}": measured_node(f"n{at}", SEED, finished_at=ended) for at in range(8)}
        again, _ = made(later, {}, old=REFERENCE)
        assert (again.recipes["bf16"].again, again.nodes["n0"].ended) == (twice, ended)
    old = read_reference(text_of(REFERENCE).replace("2099-11-01", "2026-01-01"))
    assert [*made({"m0": measured_node("m0", SEED)}, {}, old=old)[0].nodes] == ["m0"], "an old one is not made young"


def test_a_recipe_of_few_nodes_is_in_no_reference_and_layers_in_bf16_must_be_as_many() -> None:
    sound = {f"n{at}": measured_node(f"n{at}", SEED) for at in range(8)}
    for name in ("n0", "n1", "n2"):
        row = sound[name].recipes[0].model_copy(update={"recipe": "nvfp4", "last_layers_bf16": 5})
        sound[name] = sound[name].model_copy(update={"recipes": (*sound[name].recipes, row)})
    with pytest.raises(ValueError, match=r"nvfp4 ran alike, and proved, on few nodes \(n3: no figure; n4"):
        made(sound, {})
    assert list(made(sound, {}, recipes=("bf16",))[0].recipes) == ["bf16"]
    few, _ = made(sound, {}, recipes=("bf16", "nvfp4"))
    assert ([*few.nodes], few.left_out["n3"]) == (["n0", "n1", "n2"], "nvfp4: NotMeasured")
    assert verdict(golden_nodes.with_rows(PLAIN, last_layers_bf16=5)).reason == "OtherLayers"
    assert verdict(golden_nodes.with_training(PLAIN, depth_check=0.9)).reason == "OtherDepth"


def test_an_older_reference_is_added_to_by_what_ran_as_it_did_and_was_measured() -> None:
    rows = {f"n{at}": golden_nodes.many(measured_node(f"n{at}", SEED), "nvfp4", last_layers_bf16=5) for at in range(8)}
    old = made(rows, {})[0]
    new = {f"m{at}": golden_nodes.many(measured_node(f"m{at}", SEED), "nvfp4", last_layers_bf16=0) for at in range(9)}
    both, _ = made(new, {}, old=old)
    assert ([*both.nodes], both.left_out["m0"], both.recipes["nvfp4"].last_layers_bf16) == (
        [f"n{at}" for at in range(8)], "nvfp4: OtherLayers", 5)  # fmt: skip
    for lost in (new, {name: golden_nodes.many(result, "bf16") for name, result in new.items()}):
        with pytest.raises(ValueError, match="fp8_block ran alike, and proved, on few nodes"):
            made(lost, {}, old=old.model_copy(update={"recipes": {"fp8_block": GOLDEN}}))
    more, _ = made({"n0": golden_nodes.many(measured_node("n0", SEED, day=2), "bf16", "nvfp4")}, {}, old=REFERENCE)
    assert (more.left_out["n1"], more.recipes["bf16"].again) == ("the older reference lacks recipes of it", 1)
    with pytest.raises(ValueError, match="the older reference is simulated"):
        made({"m0": PLAIN}, {}, old=REFERENCE.model_copy(update={"provenance": "simulated"}))


def test_no_gpu_is_golden_twice_and_some_node_has_all_recipes() -> None:
    sound = {f"n{at}": measured_node(f"n{at}", SEED) for at in range(8)}
    draft, _ = made(sound | {"twin": sound["n0"]}, {})
    assert (draft.left_out.keys(), {*draft.nodes}) == ({"n0", "twin"}, sound.keys() - {"n0"})
    renamed, _ = made({"anew": measured_node("n0", SEED, day=2)}, {}, old=REFERENCE)
    assert {*renamed.nodes} == sound.keys() - {"n0"} | {"anew"}
    three: tuple[Recipe, ...] = ("bf16", "fp8_current", "mxfp8")
    for at, (name, result) in enumerate(sound.items()):
        sound[name] = golden_nodes.many(result, *(recipe for place, recipe in enumerate(three) if place != at % 3))
    with pytest.raises(ValueError, match="no node has trained with all of fp8_current, mxfp8, bf16"):
        made(sound, {})
