"""Whether a layer fits on a GPU in all recipes at once, and which split or which fewer recipes would do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.recipes import RECIPE_NAMES, RECIPES
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.room import layer_bytes, layer_room
from precision_api.models.shapes import Split
from precision_api.models.workload import ResolvedWorkload, Workload, resolve

H100_BYTES, GB200_BYTES = 85_520_809_984, 198_000_000_000


def workload(preset: PresetName, **changes: Any) -> ResolvedWorkload:
    return resolve(Workload(preset=preset, **changes))


def room(wanted: ResolvedWorkload, memory: int = H100_BYTES) -> tuple[bool, str]:
    found = layer_room(wanted, ("bf16", "fp8_current"), memory)
    assert found is not None
    return found


def test_a_layer_that_does_not_fit_says_what_would_and_a_baseline_in_fp8_is_held_twice() -> None:
    fits, said = room(workload("kimi-k2"))
    assert not fits
    assert "one layer with 384 experts on each GPU beside a dense one does not fit with all recipes at once" in said
    assert "(bf16, fp8_current: 148 GB of 86 GB, 85% of them usable; bf16 alone: 113 GB)" in said
    assert said.endswith("so there is no training figure: expertParallel 3 would do")
    spread, told = room(workload("kimi-k2", expert_parallel=3))
    assert spread
    assert told.startswith("one layer with 128 experts on each GPU beside a dense one fits with all recipes at once: ")
    wanted, recipes = workload("kimi-k2"), ("fp8_current", "mxfp8")
    needed = layer_bytes(PRESETS["kimi-k2"].model, 4096, Split(), ("fp8_current", "fp8_current", "mxfp8"))
    for memory, fits in ((needed / 0.85 + 1, True), (needed / 0.85 - 1e8, False)):
        assert layer_room(wanted, recipes, int(memory), "fp8_current")[0] is fits


def test_all_recipes_are_held_at_once() -> None:
    """6 bytes a weight, BF16 and its FP32 gradient, once; each recipe's own weights in both directions beside them."""
    model = PRESETS["kimi-k2"].model
    experts = 384 * 3 * 7168 * 2048
    needs = [layer_bytes(model, 1, Split(), recipes) for recipes in (("bf16",), ("bf16", "mxfp8"), RECIPE_NAMES)]
    dense = 3 * 7168 * 18_432
    attention_and_shared = 187e6 * 2 + 3 * 7168 * 2048  # of two layers, and of the one with experts
    assert needs[0] == pytest.approx(6 * (experts + dense + attention_and_shared), rel=0.01)
    weight_bytes = {"fp8_delayed": 2, "fp8_current": 2, "fp8_block": 2 + 1 / 16, "mxfp8": 2 + 1 / 16}
    fp4 = [recipe for recipe, facts in RECIPES.items() if facts.format == "fp4"]
    quantized = experts + dense + attention_and_shared
    assert needs[1] - needs[0] == pytest.approx(weight_bytes["mxfp8"] * quantized, rel=0.01)
    assert needs[2] - needs[0] == pytest.approx((sum(weight_bytes.values()) + 9 / 8 * len(fp4)) * quantized, rel=0.01)


def test_fewer_recipes_are_offered_where_they_would_fit() -> None:
    wanted, memory = workload("kimi-k2"), 193_000_000_000
    room = layer_room(wanted, RECIPE_NAMES[:7], memory)
    assert room is not None
    fits, said = room
    assert not fits
    assert "so some get no training figure: expertParallel 2 would do, or fewer recipes would do (bf16, " in said
    fewer: Any = said.rpartition("(")[2].rstrip(")").split(", ")
    assert fewer == list(RECIPE_NAMES[: len(fewer)])
    for recipes, wide in ((fewer, True), (RECIPE_NAMES[: len(fewer) + 1], False)):
        assert layer_room(wanted, recipes, memory)[0] is wide


def test_shapes_and_hybrids_have_no_layer_to_hold() -> None:
    assert layer_room(workload("nemotron-h-56b"), ("bf16",), H100_BYTES) is None
    assert layer_room(resolve(Workload(name="g", gemms=("64x64x64",))), ("bf16",), H100_BYTES) is None


def test_what_does_not_fit_is_to_be_split_or_smaller() -> None:
    fits, said = room(workload("llama3.1-405b"), memory=20_000_000_000)
    assert not fits
    assert "one layer does not fit with all recipes at once" in said
    assert said.endswith("raise tensorParallel")
    fits, said = room(workload("llama3-8b", micro_batch_size=64))
    assert not fits
    assert said.endswith("lower microBatchSize or sequenceLength")


@given(
    st.sampled_from(sorted(PRESETS)),
    st.lists(st.sampled_from(RECIPE_NAMES), min_size=1),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 65_536),
)
def test_a_wider_split_fewer_recipes_or_tokens_never_take_more(
    preset: Any, recipes: Any, parts: int, tokens: int
) -> None:
    model = PRESETS[preset].model
    whole = layer_bytes(model, tokens, Split(), recipes)
    assert layer_bytes(model, tokens, Split(expert=parts if model.moe else 1), recipes) <= whole
    assert layer_bytes(model, tokens, Split(tensor=parts), recipes) <= whole
    assert layer_bytes(model, max(1, tokens // 2), Split(), recipes) <= whole
    assert layer_bytes(model, tokens, Split(), recipes[1:]) <= whole


def test_what_is_said_of_a_split_holds() -> None:
    """The number that is named fits, and the next smaller one does not."""
    wanted = workload("qwen3-coder-480b-a35b")
    fits, said = room(wanted, memory=24_000_000_000)
    assert not fits
    number = int(said.split(" would do")[0].split()[-1])
    assert room(workload("qwen3-coder-480b-a35b", expert_parallel=number), memory=24_000_000_000)[0]
    smaller = max(one for one in range(1, number) if 160 % one == 0)
    assert not room(workload("qwen3-coder-480b-a35b", expert_parallel=smaller), memory=24_000_000_000)[0]
    assert room(wanted, memory=GB200_BYTES)[0]
