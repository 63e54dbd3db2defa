"""What nobody measured is predicted from published pairs: how often that holds, and what is refused.

The fewest GPUs that hold a model, the most that a global batch feeds, and who overrides that.
"""

import math
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import predictions
from benchmarks.predictions import APART, Tried, no_gains, tried
from benchmarks.published_rows import OUT, document, read, with_partners
from benchmarks.published_steps import fitted, published, tolerance
from precision_api.facts.products import part
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.flops import training_flops_per_token
from precision_api.models.memory import MOST_STATE_SHARE
from precision_api.models.model import Hybrid
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.workload import Workload
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.workloads import JobWorkload, target
from precision_operator.planner.rates.laws import (
    Predicted,
    Transfer,
    model_band,
    published_recipes,
    recipe_transfer,
    transfer,
)
from precision_operator.planner.rates.memory_fit import GIBIBYTE, fewest_gpus
from precision_operator.planner.rates.published import PublishedModel, described
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec, workload

PAGE = (Path(__file__).parents[2] / "docs" / "development" / "planner.md").read_text()


@pytest.fixture(scope="module")
def steps() -> tuple[Tried, ...]:
    """All published steps, each predicted without its own (model, product)."""
    return tuple(tried())


def of(steps: tuple[Tried, ...], what: str, experts: bool) -> list[Tried]:
    kinds = {"mixture of experts", "hybrid mixture of experts"} if experts else {"dense"}
    return [each for each in steps if each.what == what and each.kind in kinds]


def known(each: Tried) -> Predicted:
    assert not isinstance(each.predicted, str), each.predicted
    return each.predicted


@pytest.mark.parametrize(
    ("what", "experts", "widest"),
    [("recipe", False, 1.162), ("recipe", True, 1.40), ("model", False, 1.35), ("model", True, 2.2)],
)
def test_bands_hold_published_steps_of_pairs_that_were_left_out_and_stand_in_the_manuals_table(
    steps: tuple[Tried, ...], what: str, experts: bool, widest: float
) -> None:
    """No band is wider than is of use."""
    mine = of(steps, what, experts)
    assert len(mine) >= 20
    assert sum(each.held for each in mine) >= 0.88 * len(mine)
    widest_here = max(math.sqrt(known(each).high / known(each).low) for each in mine)
    assert widest_here <= widest * (1 + 1e-9)
    kind = "mixture of experts, hybrids too" if experts else "dense"
    wide = f"at most {widest_here - 1:.0%}".replace("%", " %") if what == "recipe" else f"x {widest_here:.3g}"
    assert f"| {what} | {kind} | {len(mine)} | {sum(each.held for each in mine)} | {wide} |" in PAGE


def test_the_faster_recipe_of_dense_models_is_never_told_wrongly_and_as_the_manual_says(
    steps: tuple[Tried, ...],
) -> None:
    apart = [each for each in of(steps, "recipe", False) if abs(math.expm1(each.step.log_ratio)) >= APART]
    assert len(apart) >= 30
    decided = sum(known(each).decided != 0 for each in apart)
    assert decided >= 0.8 * len(apart)
    assert not [each for each in steps if each.what == "recipe" and each.wrong]
    law = published_recipes().law
    words = " ".join(PAGE.split())
    assert f"the gain of FP8 is {law.gain:.2f} (1 - {law.crossing:,.0f} / width) as a logarithm" in words
    assert f"MXFP8 is {math.expm1(law.slower) * 100:.0f} % slower than FP8 with one scale" in words
    assert f"Of {len(apart)} dense comparisons that lie at least 10 % apart, {decided} are decided" in words


def test_where_low_precision_does_not_help_no_gain_is_told() -> None:
    rows = [*no_gains()]
    assert len(rows) == 12
    for row, found in rows:
        assert isinstance(found, str) or found.decided <= 0, row


def test_classes_are_not_mixed(steps: tuple[Tried, ...]) -> None:
    mixed = [each for each in steps if each.kind == "two classes"]
    assert mixed
    assert all(isinstance(each.predicted, str) for each in mixed)


def test_rows_are_the_references_and_equal_flops_within_a_class() -> None:
    assert OUT.read_text() == document(with_partners(read()))
    assert predictions.OUT.read_text() == predictions.document()
    found = transfer(workload("llama3-8b"), wanted("llama3.1-405b"))
    assert isinstance(found, Transfer)
    flops = [training_flops_per_token(PRESETS[name].model, 8192) for name in ("llama3-8b", "llama3.1-405b")]
    assert found.factor == pytest.approx(flops[0] / flops[1])
    assert (found.low, found.high) == pytest.approx((1 / 1.35, 1.35))
    found = transfer(workload("llama3.1-70b"), wanted("llama3.1-405b"))
    assert isinstance(found, Transfer)
    assert all(found.low < 1 / (1 - low) < found.high for low in (0.08, 0.14, 0.23))


def test_nothing_is_fitted_to_fp4_or_to_experts() -> None:
    """So published NVFP4 rows, and all of mixtures of experts, are a test of the law, whatever was left out."""
    everything = published()
    kept = tuple(
        step for step in everything.recipes if "nvfp4" not in step.recipes and everything.model(step).kind == "dense"
    )
    assert fitted(everything) == fitted(type(everything)(kept, (), everything.described))


@pytest.mark.parametrize(("number", "published_factor"), [(5, 3.5), (10, 2.6), (20, 2.2), (50, 1.9)])
def test_tolerance_factors_are_near_the_tables(number: int, published_factor: float) -> None:
    """Two-sided, 90 % content, 90 % confidence: 3.49, 2.54, 2.15, 1.92 in Hahn and Meeker's table."""
    assert tolerance(number) == pytest.approx(published_factor, rel=0.05)


@given(st.integers(1024, 32768), st.integers(512, 131072), st.sampled_from(RECIPE_NAMES), st.sampled_from(RECIPE_NAMES))
def test_the_way_back_is_the_mirror_of_the_way(hidden: int, inner: int, one: Recipe, other: Recipe) -> None:
    book, model = published_recipes(), PublishedModel("dense", hidden, inner)
    there, back = book.predicted(model, (one, other), "GB200"), book.predicted(model, (other, one), "GB200")
    if isinstance(there, str) or isinstance(back, str):
        assert isinstance(there, str) == isinstance(back, str)
        return
    assert (there.ratio * back.ratio, there.low * back.high) == (pytest.approx(1), pytest.approx(1))


def wanted(preset: str, sequence: int = 8192) -> JobWorkload:
    told = {"preset": preset, "sequenceLength": sequence, "microBatchSize": 1}
    return target(Workload.model_validate(told), None, "")


@pytest.mark.parametrize(
    ("measured", "preset", "sequence", "why"),
    [
        ("llama3-8b", "mixtral-8x7b", 8192, "one is a dense model and the other a mixture of experts"),
        ("qwen3-30b-a3b", "llama3.1-70b", 8192, "one is a mixture of experts and the other a dense model"),
        ("llama3-8b", "llama3.1-70b", 131072, "too far from"),
    ],
)
def test_what_is_too_far_is_refused_with_the_reason(measured: str, preset: str, sequence: int, why: str) -> None:
    found = transfer(workload(measured), wanted(preset, sequence))
    assert isinstance(found, str)
    assert why in found


def test_hybrids_are_classes_of_their_own() -> None:
    """Mamba layers beside attention: nothing is published of those without experts."""
    mixers = Hybrid(mamba_layers=16, attention_layers=4, mamba_heads=64, mamba_head_dim=64, groups=8, state_size=128)
    plain = PRESETS["llama3-8b"].model
    hybrid = plain.model_copy(update={"hybrid": mixers})
    one = PublishedModel("hybrid", plain.hidden_size, plain.intermediate_size)
    assert described(hybrid) == one
    for refusal in (
        model_band(one, one),
        model_band(one, described(plain)),
        published_recipes().predicted(one, ("bf16", "mxfp8"), "GB200"),
    ):
        assert isinstance(refusal, str)
    experts = described(PRESETS["qwen3-30b-a3b"].model.model_copy(update={"hybrid": mixers}))
    assert experts.kind == "hybrid mixture of experts"
    assert isinstance(model_band(experts, experts), Predicted)


@pytest.mark.parametrize(
    ("preset", "recipe", "why"),
    [
        ("llama3-8b", "nvfp4", "no published pair tells what nvfp4 gains on a model this narrow"),
        ("llama3.1-70b", "nvfp4", None),
        ("llama3-8b", "mxfp8", None),
        ("qwen3-30b-a3b", "mxfp8", None),
    ],
)
def test_a_recipe_is_predicted_where_pairs_of_such_models_exist(preset: str, recipe: Recipe, why: str | None) -> None:
    found = recipe_transfer(wanted(preset), "bf16", recipe, "GB200")
    if why is None:
        assert isinstance(found, Transfer)
        assert found.low < 1 < found.high
    else:
        assert isinstance(found, str)
        assert why in found


def made(product: str, *rates: Any, recipes: list[str], **more: Any) -> PlanAnswer:
    """A plan for Llama 3 70B, measured with these rates on 16 nodes."""
    seventy = workload("llama3.1-70b")
    nodes: Fleet = fleet(
        pool(product, node("n", rates, count=16, workload=seventy.key), product=product), workloads=[seventy]
    )
    return plan(spec(job(workload={"preset": "llama3.1-70b"}, recipes=recipes, **more)), nodes, NOW)


def test_a_named_recipe_that_nobody_measured_is_predicted_from_one_that_was() -> None:
    found = made("GB200", rate("bf16"), recipes=["fp8_current"])
    source = found.solution.slots[0].option.source
    assert (source.basis, source.recipe) == ("predicted", "fp8_current")
    assert "predicted from bf16 by published pairs" in source.text
    assert source.per_gpu == pytest.approx(10_000 * source.step.factor)
    speed = found.solution.slots[0].option.speed
    assert speed.low < speed.promised < speed.tokens_per_second < speed.high


def test_what_fell_back_or_nobody_named_is_not_predicted() -> None:
    assert made("H100", rate("bf16"), recipes=["nvfp4"]).solution is None
    anything = made("GB200", rate("bf16"), recipes=[])
    assert {option.recipe for offer in anything.offers for option in offer.options} == {"bf16"}
    fell = rate("fp8_current", verdict="fallback")
    found = made("GB200", rate("bf16"), fell, recipes=["fp8_current"])
    assert found.solution is None
    assert "fallback" in " ".join(map(str, found.problems))


def wanted_at_its_sizes(preset: str) -> JobWorkload:
    return target(Workload.model_validate({"preset": preset}), None, "")


def asked(product: str, gpus: int, recipe: str = "bf16", count: int = 64, **changes: Any) -> PlanAnswer:
    """Llama 3.1 70B on nodes of so many GPUs."""
    seventy = workload("llama3.1-70b")
    rates = [rate(recipe, 10_000.0)]
    nodes = fleet(
        pool(product, node("n", rates, count=count, gpus=gpus, workload=seventy.key), product=product),
        workloads=[seventy],
    )
    task = job(**{"workload": {"preset": "llama3.1-70b"}, "tokens": "100B", "minGPUs": 1} | changes)
    return plan(spec(task, objective=["energy"]), nodes, NOW)


def test_70b_does_not_fit_on_four_gb200_and_the_fewest_that_hold_it_are_offered() -> None:
    found = asked("GB200", 4, maxGPUs=4)
    assert found.solution is None
    assert "at least 8 GPUs hold the model" in str(found.problems[0])
    assert "of which they may take 80%" in str(found.problems[0])
    found = asked("GB200", 4)
    assert min(each.gpus for each in found.offers[0].options) == 8


def test_an_override_is_shown_and_a_copy_that_is_too_small_holds_nothing() -> None:
    found = asked("GB200", 4, maxGPUs=4, memoryCheck="Ignore")
    assert found.solution.slots[0].option.gpus == 4
    (note,) = [note for note in found.notes if note.startswith("OVERRIDDEN")]
    assert "train gets 4 GPUs of GB200, but at least 8 GPUs hold the model" in note
    found = asked("H100", 8, gpusPerReplica=2)
    assert found.solution is None
    assert "no number of GPUs holds it with gpusPerReplica 2" in str(found.problems[0])


def test_given_memory_replaces_the_products_and_an_unknown_one_is_not_checked() -> None:
    seventy = workload("llama3.1-70b")
    nodes = fleet(pool("GB200", node("n", gpus=4, workload=seventy.key), product="GB200"), workloads=[seventy])
    pools = [{"name": "GB200", "memoryGiBPerGPU": 400}]
    task = job(workload={"preset": "llama3.1-70b"}, minGPUs=1, maxGPUs=4)
    assert plan(spec(task, pools=pools), nodes, NOW).solution is not None
    assert plan(spec(task), nodes, NOW).solution is None
    found = asked("Other", 4, maxGPUs=4, globalBatch=2)
    assert found.solution.slots[0].option.gpus == 4
    assert any("memory of the GPUs of Other is not known" in note for note in found.notes)


@pytest.mark.parametrize(("more", "most"), [({}, 64), ({"gpusPerReplica": 16}, 256)])
def test_a_global_batch_feeds_so_many_gpus(more: dict[str, Any], most: int) -> None:
    """70B needs at least 8 H100 for a copy: 8 sequences feed 64."""
    found = asked("H100", 8, globalBatch=8 if not more else 16, **more)
    assert max(each.gpus for each in found.offers[0].options) == most
    more_than_that = asked("H100", 8, globalBatch=8 if not more else 16, minGPUs=most + 8, **more)
    assert more_than_that.solution is None
    assert f"feeds {most} GPUs at most" in str(more_than_that.problems[0])


def test_nothing_that_was_published_is_refused() -> None:
    rows = [row for row in read() if row.model in get_args(PresetName) and part(row.product)]
    assert len(rows) > 50
    for row in rows:
        known = part(row.product)
        assert fewest_gpus(wanted_at_its_sizes(row.model), row.recipe, known.memory_gb * GIBIBYTE) <= row.gpus, row


def test_by_hand() -> None:
    """16 bytes a parameter over 0.8 of the memory."""
    weights = 70_553_706_496
    assert fewest_gpus(wanted_at_its_sizes("llama3.1-70b"), "bf16", 186 * GIBIBYTE) == pytest.approx(
        16 * weights / (MOST_STATE_SHARE * 186 * GIBIBYTE), abs=1
    )
    assert fewest_gpus(target(None, "70B", ""), "bf16", 80 * GIBIBYTE) == 17


@given(st.sampled_from([*PRESETS]), st.sampled_from(RECIPE_NAMES), st.integers(16, 512), st.sampled_from([None, 64]))
def test_more_memory_never_needs_more_gpus(preset: str, recipe: Recipe, gib: int, copy: int | None) -> None:
    if PRESETS[preset].model.vocab_size is None:  # type: ignore[index]
        return
    few, many = (fewest_gpus(wanted_at_its_sizes(preset), recipe, size * GIBIBYTE, copy) for size in (2 * gib, gib))
    assert few <= many


@pytest.mark.parametrize(("product", "gpus"), [("H100", 320), ("B200", 120), ("GB200", 116)])
def test_a_shared_expert_is_split_as_the_other_matrices_are(product: str, gpus: int) -> None:
    """Kimi-K2's shared expert is 2.6 billion weights in 60 layers: whole on every GPU it would ask for 1,816 H100."""
    known = part(product)
    assert known
    assert fewest_gpus(wanted_at_its_sizes("kimi-k2"), "fp8_current", known.memory_gb * GIBIBYTE) == gpus
