"""Whether a layer fits on a GPU, by recipe, and which split would do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.presets import PRESETS
from precision_api.recipes import RECIPE_NAMES
from precision_api.resolution import ResolvedWorkload, resolve
from precision_api.room import layer_bytes, layer_room
from precision_api.shapes import Split
from precision_api.workload import PresetName, Workload

H100_BYTES, GB200_BYTES = 85_520_809_984, 198_000_000_000


def workload(preset: PresetName, **changes: Any) -> ResolvedWorkload:
    return resolve(Workload(preset=preset, **changes))


def room(wanted: ResolvedWorkload, memory: int = H100_BYTES) -> tuple[bool, str]:
    found = layer_room(wanted, ("bf16", "fp8_current"), memory)
    assert found is not None
    return found


def test_a_layer_of_kimi_k2_does_not_fit_on_an_h100_and_two_way_expert_parallelism_would_do() -> None:
    fits, said = room(workload("kimi-k2"))
    assert not fits
    assert "one layer with 384 experts on each GPU does not fit (bf16 105 GB, fp8_current 139 GB of 86 GB" in said
    assert said.endswith("expertParallel 2 would do")
    spread, told = room(workload("kimi-k2", expert_parallel=2))
    assert spread
    assert told.startswith("one layer with 192 experts on each GPU fits in every recipe: it takes up to ")


def test_experts_are_most_of_such_a_layer() -> None:
    """6 bytes a weight: BF16 and its FP32 gradient; 384 experts of three matrices."""
    model = PRESETS["kimi-k2"].model
    experts = 384 * 3 * 7168 * 2048
    assert layer_bytes(model, 4096, Split(), "bf16") == pytest.approx(6 * experts, rel=0.04)


def test_a_dense_layer_that_does_not_fit_is_to_be_split() -> None:
    fits, said = room(workload("llama3.1-405b"), memory=20_000_000_000)
    assert not fits
    assert "one layer does not fit" in said
    assert said.endswith("raise tensorParallel")


def test_a_micro_batch_that_does_not_fit_is_to_be_smaller() -> None:
    fits, said = room(workload("llama3-8b", micro_batch_size=64))
    assert not fits
    assert said.endswith("lower microBatchSize or sequenceLength")


def test_shapes_have_no_layers() -> None:
    assert layer_room(resolve(Workload(name="g", gemms=("64x64x64",))), ("bf16",), H100_BYTES) is None


def test_the_heaviest_kind_of_layer_counts() -> None:
    """Kimi-K2's one dense layer is small, and so are the mixers of a hybrid."""
    kimi = PRESETS["kimi-k2"].model
    assert kimi.moe is not None
    all_experts = kimi.model_copy(update={"moe": kimi.moe.model_copy(update={"dense_layers": 0})})
    assert layer_bytes(kimi, 4096, Split(), "bf16") == layer_bytes(all_experts, 4096, Split(), "bf16")
    nano = PRESETS["nemotron-3-nano-30b-a3b"].model
    experts = 128 * 2 * 2688 * 1856
    assert layer_bytes(nano, 128, Split(), "bf16") > 6 * experts


@given(
    st.sampled_from(sorted(PRESETS)), st.sampled_from(RECIPE_NAMES), st.sampled_from([1, 2, 4]), st.integers(1, 65_536)
)
def test_a_wider_split_or_fewer_tokens_never_take_more(preset: Any, recipe: Any, parts: int, tokens: int) -> None:
    model = PRESETS[preset].model
    whole = layer_bytes(model, tokens, Split(), recipe)
    assert layer_bytes(model, tokens, Split(expert=parts if model.moe else 1), recipe) <= whole
    assert layer_bytes(model, tokens, Split(tensor=parts), recipe) <= whole
    assert layer_bytes(model, max(1, tokens // 2), Split(), recipe) <= whole


def test_what_is_said_of_a_split_holds() -> None:
    """The number that is named fits, and the next smaller one does not."""
    wanted = workload("qwen3-coder-480b-a35b")
    fits, said = room(wanted, memory=24_000_000_000)
    assert not fits
    number = int(said.split()[-3])
    assert room(workload("qwen3-coder-480b-a35b", expert_parallel=number), memory=24_000_000_000)[0]
    smaller = max(one for one in range(1, number) if 160 % one == 0)
    assert not room(workload("qwen3-coder-480b-a35b", expert_parallel=smaller), memory=24_000_000_000)[0]
    assert room(wanted, memory=GB200_BYTES)[0]
