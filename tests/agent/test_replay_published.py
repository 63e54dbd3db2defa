"""The replay beside what was published: every cell, what stands beside one, and steps that no GEMM can explain."""

import json
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product
from typing import Any, get_args

import pytest

from precision_agent.backends.replay import regions_of
from precision_agent.backends.replay_tables import GEMM_SECONDS_LIKE, Published, published_for
from precision_agent.cases import BF16, GemmCase, Variant, cases_of
from precision_agent.method.full_depth import depth_of, full_depth
from precision_api.exchange.request import Mode, Timing
from precision_api.facts.mixtures import Parts
from precision_api.facts.products import PRODUCT_CLASSES, part
from precision_api.facts.recipes import Recipe, layers_in_bf16, recipes_for
from precision_api.models.presets import PRESETS
from precision_api.models.shapes import PASSES, Pass
from precision_api.models.workload import Workload, resolve
from tests.agent.test_replay import CODONFM, replayed, replayed_anew
from tests.support.golden import FOLDER
from tests.support.result_objects import of, request

TABLE: dict[str, Any] = json.loads((FOLDER / "te_gemm_profiling.json").read_text(encoding="utf-8"))
STEPS: dict[str, Any] = json.loads((FOLDER / "training_steps.json").read_text(encoding="utf-8"))["rows"][0]
TABLES = {"b300_sxm6": "B300", "h200_nvl": "NVIDIA-H200-NVL"}
MODES: tuple[Mode, ...] = get_args(Mode)
SPLIT = {"recompute": "Full", "tensor_parallel": 2, "expert_parallel": 8, "gradient_accumulation": 1}
TRAINED = tuple(name for name, preset in PRESETS.items() if preset.model.hybrid is None)


def cells() -> list[Any]:
    rows = []
    for (table, label), mode in product(TABLES.items(), MODES):
        published = TABLE[f"{table}_{mode}"]
        alone = {("fprop", (name,)): row for name, row in published.get("fprop_ops", {}).items()}
        for (pass_, names), row in ({(pass_, ()): published[pass_] for pass_ in PASSES} | alone).items():
            recipes = [recipe for recipe in row if (mode, recipe) != ("prequantized", "fp8_delayed")]
            rows += [(label, mode, pass_, names, recipe, row[recipe]) for recipe in recipes]
    return [pytest.param(*row, id=" ".join([row[0], row[1], row[2], *row[3], row[4]])) for row in rows]


@pytest.mark.parametrize(("label", "mode", "pass_", "names", "recipe", "milliseconds"), cells())
def test_every_published_cell_comes_back(
    label: str, mode: Mode, pass_: Pass, names: tuple[str, ...], recipe: Recipe, milliseconds: float
) -> None:
    gemms = [gemm for gemm in of(replayed(product=label, workload=CODONFM), recipe).gemms if gemm.mode == mode]
    seconds = [gemm.seconds.value for gemm in gemms if gemm.pass_ == pass_ and (not names or gemm.name in names)]
    assert (len(seconds), sum(seconds) * 1e3) == (len(names) or 4, pytest.approx(milliseconds, rel=0.03))


def published(label: str) -> Published:
    found_part = part(label)
    assert found_part is not None
    return published_for(found_part)


@cache
def gemms_of(mode: Mode) -> tuple[GemmCase, ...]:
    return cases_of(request(workload=CODONFM, gemm_modes=(mode,)), resolve(CODONFM)).gemms


@pytest.mark.parametrize(("label", "mode"), list(product(TABLES.values(), MODES)))
def test_a_shape_one_per_cent_larger_takes_at_most_three_per_cent_longer(label: str, mode: Mode) -> None:
    figures = published(label)
    for gemm, recipe, size in product(gemms_of(mode), figures.laws[mode], ("m", "k", "n")):
        larger = replace(gemm, **{size: round(1.01 * getattr(gemm, size))})
        grown = figures.seconds(larger, recipe) / figures.seconds(gemm, recipe)
        assert 1 <= grown < 1.03, (gemm, recipe, size)


@pytest.mark.parametrize("size", ["m", "k", "n"])
def test_no_shape_jumps_far_from_the_published_ones(size: str) -> None:
    figures, shape = published("GB200"), gemms_of("autocast")[0]
    for pass_, recipe in product(PASSES, figures.laws["autocast"]):
        sizes = [round(64 * 1.01**step) for step in range(700)]
        seconds = [figures.seconds(replace(shape, pass_=pass_, **{size: value}), recipe) for value in sizes]
        grown = [later / before for before, later in pairwise(seconds)]
        assert min(grown) >= 1, (pass_, recipe)
        assert max(grown) < 1.03, (pass_, recipe)


@pytest.mark.parametrize("preset", [name for name in TRAINED if PRESETS[name].model.moe])
def test_a_call_of_experts_casts_their_weights_together(preset: Any) -> None:
    gemms = cases_of(request(gemm_modes=("autocast",)), resolve(Workload(preset=preset))).gemms
    for gemm, recipe in product([gemm for gemm in gemms if gemm.groups > 1], ("mxfp8", "nvfp4")):
        times = {name: published("GB200").seconds(gemm, name) for name in (recipe, "bf16")}
        assert 0.3 < times["bf16"] / times[recipe] < 2.5, (gemm, times)


def test_no_part_of_a_law_is_negative_and_gradients_have_forward_figures() -> None:
    laws = [law for label in TABLES.values() for mode in MODES for law in published(label).laws[mode].values()]
    assert min(law.call for law in laws) >= 4e-6
    assert min(min(law.element, law.multiply_add) for law in laws) >= 0
    of_pass = {(gemm.name, gemm.pass_): gemm for gemm in gemms_of("autocast")}
    pairs = (("attn_out", "attn_out"), ("mlp_up", "mlp_down"), ("mlp_down", "mlp_up"))
    figures = published("B300")
    for (gradient, forward), recipe in product(pairs, figures.laws["autocast"]):
        seconds = figures.seconds(of_pass[gradient, "dgrad"], recipe)
        assert seconds == pytest.approx(figures.seconds(of_pass[forward, "fprop"], recipe))


def step(label: str, workload: Workload, recipe: Recipe, kept: int = 0, scope: Any = "all") -> float:
    """Seconds of a micro batch at full depth, `kept` layers of it in bf16."""
    asked, whole = request(product=label, workload=workload, recipe_scope=scope), resolve(workload)
    depth = depth_of(whole, min(4, whole.model.num_hidden_layers))
    seconds = []
    for variant in (Variant(recipe, recipe, Parts.of(recipe, "bf16" if scope == "mlp" else None)), BF16):
        regions = regions_of(published(label), asked, variant)
        stepped = full_depth({name: (value,) for name, value in regions.items()}, depth)
        seconds.append(stepped.values[0])
    return seconds[0] + (seconds[1] - seconds[0]) * kept / depth.layers


@pytest.mark.parametrize(("recipe", "kept"), [("bf16", 0), ("fp8_current", 2), ("mxfp8", 0), ("nvfp4", 4)])
def test_published_steps_of_one_mapping_come_back_with_their_layers_in_bf16(recipe: Recipe, kept: int) -> None:
    micro_batches = STEPS["global_batch"] / STEPS["gpus"] / STEPS["micro_batch"]
    workload = Workload(preset="llama3-8b", micro_batch_size=STEPS["micro_batch"])
    replayed_step = micro_batches * step("GB200", workload, recipe, kept)
    assert replayed_step == pytest.approx(STEPS["recipes"][recipe]["step_seconds"], rel=0.01)


def test_the_published_step_of_nvfp4_comes_back_from_a_whole_run_that_keeps_as_many_layers() -> None:
    workload = Workload(preset="llama3-8b", micro_batch_size=STEPS["micro_batch"])
    ran = replayed(product="GB200", workload=workload, recipes=("bf16", "nvfp4"), last_layers_bf16=4, gemm_modes=())
    published_step = STEPS["recipes"]["nvfp4"]["step_seconds"]
    tokens_per_second = STEPS["global_batch"] * STEPS["sequence"] / STEPS["gpus"] / published_step
    assert of(ran, "nvfp4").training.tokens_per_second.value == pytest.approx(tokens_per_second, rel=0.03)


@pytest.mark.parametrize("label", PRODUCT_CLASSES)
@pytest.mark.parametrize(("preset", "settings"), [*((name, {}) for name in TRAINED), ("qwen3-30b-a3b", SPLIT)])
def test_no_recipe_trains_faster_than_its_gemms_allow(label: str, preset: Any, settings: Any) -> None:
    workload, figures = Workload(preset=preset, **settings), published(label)
    recipes = [recipe for recipe, _ in recipes_for(part(label).compute)]
    gemms = cases_of(request(workload=workload, gemm_modes=("autocast",)), resolve(workload)).gemms
    again = {"fprop": 2 if workload.recompute == "Full" else 1}
    sums = {
        recipe: sum(
            gemm.count * again.get(gemm.pass_, 1) * figures.seconds(gemm, recipe if gemm.quantized else "bf16")
            for gemm in gemms
        )
        for recipe in recipes
    }
    steps = {}
    for recipe in recipes:  # the last layers of NVFP4 are in bf16, those of its GEMMs too
        kept = layers_in_bf16(recipe, PRESETS[preset].model.num_hidden_layers)
        sums[recipe] += (sums["bf16"] - sums[recipe]) * kept / PRESETS[preset].model.num_hidden_layers
        steps[recipe] = step(label, workload, recipe, kept)
    for first, second in combinations(recipes, 2):
        of_gemms, of_steps = sums[first] / sums[second], steps[first] / steps[second]
        assert min(1, of_gemms) - 1e-9 <= of_steps <= max(1, of_gemms) + 1e-9, (first, second)


@pytest.mark.parametrize("label", PRODUCT_CLASSES)
@pytest.mark.parametrize("preset", TRAINED)
def test_printed_sums_of_gemms_hold_the_ratio_of_any_two_steps(label: str, preset: Any) -> None:
    ran = replayed(product=label, workload=Workload(preset=preset), timing=Timing(passes=2), gemm_modes=("autocast",))
    printed = {
        row.recipe: (row.training.tokens_per_second.value, row.sums[0].seconds.value) for row in ran.recipes if row.sums
    }
    assert printed
    for (rate, sum_), (other_rate, other_sum) in combinations(printed.values(), 2):
        of_gemms, of_steps = other_sum / sum_, rate / other_rate
        assert 0.99 * min(1, of_gemms) < of_steps < 1.01 * max(1, of_gemms), printed


@pytest.mark.parametrize("label", PRODUCT_CLASSES)
@pytest.mark.parametrize("preset", ["llama3-8b", "qwen3-30b-a3b"])
def test_of_what_the_gemms_would_save_a_replay_loses_nothing_but_casts(label: str, preset: Any) -> None:
    """For one rest is every recipe's: GEMMs with their casts give the step, alone they lack the casts and no more."""
    for row in replayed(product=label, workload=Workload(preset=preset)).recipes:
        meaning = row.meaning
        if meaning is None or meaning.kind in ("baseline", "not_beneficial"):
            continue
        saved, lost = 1 - 1 / meaning.expected_speedup, 1 / row.training.speedup.value - 1 / meaning.expected_speedup
        if meaning.kind == "overhead":
            assert meaning.other_part == pytest.approx(0, abs=0.01), row.recipe
            assert meaning.quantization_part + meaning.other_part == pytest.approx(lost / saved)
        else:
            assert lost == pytest.approx(0, abs=0.01), meaning.sentence
            assert "more than the" not in meaning.sentence


def test_where_the_baseline_casts_too_a_replay_names_no_other_kernels() -> None:
    ran = replayed(product="H200", workload=Workload(preset="llama3.1-405b"), baseline="fp8_block")
    assert "as its GEMMs with their casts allow" in of(ran, "fp8_current").meaning.sentence
    bf16 = of(ran, "bf16")
    assert bf16.meaning.gemm_speedup == next(total.speedup.value for total in bf16.sums if total.mode == "prequantized")


def test_the_scope_keeps_the_mixers_out_of_a_recipes_step() -> None:
    workload, figures = Workload(preset="llama3-8b"), published("GB200")
    gemms = cases_of(request(workload=workload, gemm_modes=("autocast",)), resolve(workload)).gemms
    mixers = [gemm for gemm in gemms if gemm.name in ("qkv", "attn_out")]
    apart = sum(gemm.count * (figures.seconds(gemm, "bf16") - figures.seconds(gemm, "nvfp4")) for gemm in mixers)
    whole, inner = (step("GB200", workload, "nvfp4", scope=scope) for scope in ("all", "mlp"))
    assert inner - whole == pytest.approx(apart)


def test_a_mixture_draws_what_its_parts_do() -> None:
    mixtures = [{"name": "whole", "mlp": "mxfp8"}, {"name": "mixed", "mlp": "nvfp4", "attention": "mxfp8"}]
    ran = replayed_anew(product="B300", workload=Workload(preset="llama3-8b"), mixtures=mixtures)
    watts = {row.recipe.partition(".")[0]: row.training.energy.watts for row in ran.recipes}
    assert watts["whole"] == pytest.approx(watts["mxfp8"], rel=1e-4)
    assert watts["nvfp4"] < watts["mixed"] < watts["mxfp8"]


def test_steps_of_other_mappings_are_not_replayed_and_lacking_recipes_are_taken_from_others() -> None:
    assert any("no slower" in row.assumption for row in replayed(product="NVIDIA-H200-NVL").simulated)
    rows = {row.field: row.assumption for row in replayed(product="GB300").simulated}
    assert "not replayed: fp8_current 2646, mxfp8 2403, nvfp4 3575" in rows["training.tokens_per_second"]
    gemm = gemms_of("autocast")[0]
    for recipe, likes in GEMM_SECONDS_LIKE.items():
        (like, factor), figures = likes[0], published("GB200")
        assert figures.seconds(gemm, recipe) == pytest.approx(factor * figures.seconds(gemm, like))


@pytest.mark.parametrize(("label", "teraflops"), [("GB300", 2646), ("H100", 822)])
def test_products_stand_beside_gb200_as_published_steps_have_it(label: str, teraflops: float) -> None:
    workload = Workload(preset="llama3.1-405b")
    ratio = step("GB200", workload, "fp8_current") / step(label, workload, "fp8_current")
    assert ratio == pytest.approx(teraflops / 2129, rel=0.1)
