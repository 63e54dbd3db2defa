"""Which variants and cases follow from a request, and in which order they are measured.

Rows of experts: what the shapes list, padded to the recipe's alignment, in calls of as many as the kernels take.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.cases import CONTROL, Cases, GemmCase, TrainingCase, Variant, cases_of, refusal_of
from precision_agent.method.expert_rows import MOST_IN_A_LAUNCH, expert_notes, expert_rows, launches
from precision_agent.method.slot import abba_blocks
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe
from precision_api.models.model import ModelSpec, MoE
from precision_api.models.shapes import Shape, Split, model_gemms
from precision_api.models.workload import Workload, resolve
from tests.support.result_objects import request

SHAPES = Workload(name="shapes", shapes=(Shape(m=64, k=128, n=256), Shape(m=64, k=128, n=256)))
MODEL = ModelSpec(
    hidden_size=64, intermediate_size=128, num_attention_heads=2, num_hidden_layers=2, gated_mlp=True,
    moe=MoE(num_experts=6, top_k=2),
)  # fmt: skip


def cases(**changes: object) -> Cases:
    asked = request(**changes)
    return cases_of(asked, resolve(asked.workload))


def gemm(**changes: object) -> GemmCase:
    defaults: dict[str, object] = {"m": 64, "k": 64, "n": 64, "count": 1, "mode": "autocast"}
    return GemmCase("qkv", "fprop", **(defaults | changes))  # type: ignore[arg-type]


def test_the_baseline_comes_first_a_control_last_and_the_head_stays_in_bf16() -> None:
    found = cases(recipes=("nvfp4", "nvfp4"))
    assert [variant.label for variant in found.variants] == ["bf16", "nvfp4", CONTROL]
    assert found.variants[-1].recipe == "bf16"
    found = cases()
    assert found.training.tokens == 64
    assert found.all[0] == found.training, "its clock is that of the load that was discarded"
    heads = [case for case in cases().gemms if case.name == "lm_head"]
    assert heads
    assert {case.recipe_of(Variant("nvfp4", "nvfp4")) for case in heads} == {"bf16"}
    assert gemm().recipe_of(Variant("nvfp4", "nvfp4")) == "nvfp4"


def test_a_mixture_runs_each_part_in_its_recipe_and_equal_shapes_of_two_parts_are_measured_apart() -> None:
    square = {"hiddenSize": 64, "intermediateSize": 64, "numAttentionHeads": 2, "numHiddenLayers": 2, "vocabSize": 96}
    workload = {"name": "square", "model": square, "microBatchSize": 1, "sequenceLength": 64}
    mixture = {"name": "ours", "mlp": "nvfp4", "attention": "mxfp8", "attentionOut": "bf16", "head": "fp8_current"}
    absent = {"name": "absent", "mlp": "mxfp8", "mamba": "nvfp4_no_rht", "head": "nvfp4"}
    found = cases(workload=workload, recipes=("nvfp4",), mixtures=[mixture, absent], gemm_modes=("autocast",))
    assert [variant.label for variant in found.variants] == ["bf16", "nvfp4", "ours", "absent", CONTROL]
    assert [variant.recipe for variant in found.variants[2:4]] == ["ours.nmbnnc", "absent.mmmmmn"]
    assert found.variants[3].parts.layers_in_bf16(20, None) == 0, (
        "the head is in no layer, and Mamba-2 not in the model"
    )
    forward = {case.name: case.recipe_of(found.variants[2]) for case in found.gemms if case.pass_ == "fprop"}
    assert forward == {"qkv": "mxfp8", "attn_out": "bf16", "mlp_up": "nvfp4", "lm_head": "fp8_current"}
    assert found.variants[2].parts.layers_in_bf16(20, None) == 3, "as NVFP4's"
    assert Parts.of("mxfp8", "bf16").layers_in_bf16(20, None) == 0
    plain = cases(workload=workload, recipes=("nvfp4",), gemm_modes=("autocast",))
    assert [case.name for case in plain.gemms if case.pass_ == "fprop"] == ["qkv", "attn_out", "lm_head"]


def test_equal_shapes_are_measured_once_and_delayed_scaling_where_the_share_is_known() -> None:
    found = cases(workload=SHAPES)
    assert Counter((case.pass_, case.mode) for case in found.gemms) == {
        (pass_, mode): 1 for pass_ in ("fprop", "dgrad", "wgrad") for mode in ("autocast", "prequantized")
    }
    assert {case.count for case in found.gemms} == {2}
    case, variant = gemm(mode="prequantized"), Variant("fp8_delayed", "fp8_delayed")
    assert refusal_of(case, variant, "replay")
    assert refusal_of(case, variant, "transformer-engine") is None


@pytest.mark.parametrize(
    ("changes", "reason"), [({"training": False}, "not_requested"), ({"workload": SHAPES}, "no_model")]
)
def test_an_absent_training_case_has_its_reason(changes: dict[str, object], reason: str) -> None:
    found = cases(**changes)
    assert found.training is None
    assert found.no_training.reason == reason


@pytest.mark.parametrize(
    ("recipe", "case", "reason"),
    [
        ("fp8_delayed", gemm(mode="prequantized"), "no_prequantized_mode"),
        ("mxfp8", gemm(m=48), "misaligned"),
        ("fp8_current", gemm(n=24), "misaligned"),
        ("mxfp8", gemm(m=48, quantized=False), None),
        ("bf16", gemm(m=7), None),
        ("mxfp8", TrainingCase(64, 1e9), None),
    ],
)
def test_what_no_hardware_could_run_is_refused_with_a_reason(
    recipe: Recipe, case: GemmCase | TrainingCase, reason: str | None
) -> None:
    refused = refusal_of(case, Variant(recipe, recipe), "torch-cuda")
    assert (refused.reason if refused else None) == reason


VARIANTS = tuple(Variant(recipe, recipe) for recipe in RECIPE_NAMES)


@given(st.integers(1, 7), st.integers(1, 12), st.integers())
def test_each_abba_block_reads_alike_backwards_with_each_variant_twice(variants: int, passes: int, seed: int) -> None:
    made = list(abba_blocks(VARIANTS[:variants], passes, seed))
    assert len(made) == passes
    for one in made:
        assert one == one[::-1]
        assert Counter(one) == dict.fromkeys(VARIANTS[:variants], 2)


def test_the_order_is_drawn_anew_for_each_abba_block_and_again_the_same_from_the_same_seed() -> None:
    made = list(abba_blocks(VARIANTS, 8, 1))
    assert len(set(made)) > 4
    assert made == list(abba_blocks(VARIANTS, 8, 1))
    assert made != list(abba_blocks(VARIANTS, 8, 2))


@given(
    tokens=st.integers(1, 5000),
    local=st.integers(1, 96),
    group=st.integers(1, 8),
    data=st.data(),
    recipe=st.sampled_from(RECIPE_NAMES),
)
def test_rows_are_all_tokens_spread_evenly_and_the_fullest_is_what_the_shapes_list(
    tokens: int, local: int, group: int, data: st.DataObject, recipe: Recipe
) -> None:
    experts = max(2, local * group)
    group = group if experts == local * group else 1
    top_k = data.draw(st.integers(1, min(experts, 16)))
    if tokens * top_k < experts:
        with pytest.raises(ValueError, match="raise microBatchSize or sequenceLength"):
            expert_rows(tokens, top_k, experts, group, recipe)
        return
    found = expert_rows(tokens, top_k, experts, group, recipe)
    assert len(found.rows) == len(found.padded) == experts // group
    assert sum(found.rows) == tokens * top_k
    assert max(found.rows) - min(found.rows) <= group
    step = RECIPES[recipe].expert_rows_multiple_of
    assert all(0 <= more - rows < step for rows, more in zip(found.rows, found.padded, strict=True))
    assert all(rows % step == 0 for rows in found.padded)
    model = MODEL.model_copy(update={"moe": MoE(num_experts=experts, top_k=top_k)})
    listed = next(one for one in model_gemms(model, tokens, Split(expert=group)) if one.name == "experts_up")
    assert listed.groups == len(found.rows)
    assert max(found.rows) <= listed.m * 1 + group - 1
    assert min(found.rows) <= listed.m


@given(experts=st.integers(1, 600), recipe=st.sampled_from(RECIPE_NAMES))
def test_all_experts_are_in_some_grouped_call_and_none_is_too_large(experts: int, recipe: Recipe) -> None:
    found = launches(experts, recipe)
    assert sum(found) == experts
    assert max(found) <= MOST_IN_A_LAUNCH.get(recipe, experts)
    assert (len(found) == 1) is (experts <= MOST_IN_A_LAUNCH.get(recipe, experts))


def workload(model: ModelSpec = MODEL, **more: int) -> Workload:
    return Workload(name="w", model=model, micro_batch_size=1, sequence_length=96, **more)  # type: ignore[arg-type]


def test_what_is_not_in_a_mixtures_figure_and_several_calls_are_told() -> None:
    whole = "".join(expert_notes(resolve(workload()), "bf16"))
    assert "6 of a layer's 6 are on the GPU" in whole
    assert "no load imbalance and no dropped tokens" in whole
    assert "all-to-all" not in whole
    assert "padded" not in whole
    part = expert_notes(resolve(workload(expert_parallel=2)), "nvfp4")
    assert "3 of a layer's 6" in part[0]
    assert "no all-to-all between the GPUs of expertParallel" in part[0]
    assert "padded to multiples of 128, 100.0% more than tokens" in part[1]
    assert expert_notes(resolve(workload(MODEL.model_copy(update={"moe": None}))), "nvfp4") == ()
    many = MODEL.model_copy(update={"moe": MoE(num_experts=130, top_k=2)})
    assert "experts run in 3 grouped calls of at most 64 each" in expert_notes(resolve(workload(many)), "nvfp4")[-1]
