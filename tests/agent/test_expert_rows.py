"""Rows of experts: what the shapes list, padded to the recipe's alignment, in calls of as many as the kernels take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.method.expert_rows import MOST_IN_A_LAUNCH, expert_notes, expert_rows, launches
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe
from precision_api.models.model import ModelSpec, MoE
from precision_api.models.shapes import Split, model_gemms
from precision_api.models.workload import Workload, resolve

MODEL = ModelSpec(
    hidden_size=64, intermediate_size=128, num_attention_heads=2, num_hidden_layers=2, gated_mlp=True,
    moe=MoE(num_experts=6, top_k=2),
)  # fmt: skip


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
