"""Memory of a GPU that trains a model: the published bytes a weight and a token, and what is refused.

Whether a layer fits on a GPU in all recipes at once, and which split or which fewer recipes would do.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.mixtures import Mixture, Parts
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES
from precision_api.models.memory import BF16_GRADIENT_BYTES, ModelPart, too_large, training_memory
from precision_api.models.model import ModelSpec
from precision_api.models.presets import PRESETS
from precision_api.models.room import layer_bytes, layer_room
from precision_api.models.shapes import Shape, Split
from precision_api.models.workload import ResolvedWorkload, Workload, resolve

H100 = Path(__file__).parents[2] / "benchmarks/results/h100"
GB200_BYTES = 186 * 10**9
H100_BYTES, USABLE_BYTES = 85_520_809_984, 198_000_000_000


def workload(preset: Any = "llama3-8b", **changes: Any) -> ResolvedWorkload:
    return resolve(Workload(preset=preset, **changes))


def gpt(tokens: int = 2048, **changes: Any) -> ResolvedWorkload:
    """A GPT-3: as many key heads as query heads, an MLP of four times the width, no gate."""
    fields = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
    model = ModelSpec.model_validate(fields | changes)
    return resolve(Workload(name="gpt", model=model, micro_batch_size=1, sequence_length=tokens))


@pytest.mark.parametrize(("shards", "bytes_a_weight"), [(1, 18), (8, 6 + 12 / 8), (64, 6 + 12 / 64)])
def test_state_is_megatron_cores_bytes_a_parameter(shards: int, bytes_a_weight: float) -> None:
    wanted = workload()
    found = training_memory(wanted, "bf16", optimizer_shards=shards)
    assert found.state == pytest.approx(wanted.parameters.total * bytes_a_weight, rel=1e-6)


@pytest.mark.parametrize(("expert", "shards", "of_experts"), [(1, 8, 8), (8, 8, 1), (8, 64, 8), (8, 1, 1)])
def test_the_optimizer_of_experts_is_shared_by_the_gpus_that_have_copies_of_them(
    expert: int, shards: int, of_experts: int
) -> None:
    """Spread over 8 of 8 data-parallel GPUs each expert is there once, and its state on one GPU."""
    wanted = workload("qwen3-30b-a3b", expert_parallel=expert, optimizer_shards=shards)
    experts = 48 * 128 * 3 * 2048 * 768
    rest = wanted.parameters.total - experts
    found = training_memory(wanted, "bf16")
    assert found.weights == 2 * (rest + experts // expert)
    assert found.optimizer == pytest.approx(12 * (rest / shards + experts / expert / of_experts), abs=1)


def test_bf16_gradients_take_two_bytes_less_and_shards_are_the_workloads() -> None:
    wanted = workload()
    found = training_memory(wanted, "bf16", gradient_bytes=BF16_GRADIENT_BYTES)
    assert found.state == pytest.approx(16 * wanted.parameters.total, rel=1e-6)
    assert training_memory(workload(optimizer_shards=8), "bf16") == training_memory(
        workload(), "bf16", optimizer_shards=8
    )


def test_a_tied_embedding_is_held_once_and_a_short_models_is_not_there() -> None:
    tied = gpt(vocab_size=50_000, tied_embedding=True)
    assert training_memory(tied, "bf16").weights == 2 * tied.parameters.total
    table = 50_000 * 1024
    without = training_memory(tied, "bf16", part=ModelPart(head=False, embedding=False))
    assert without.weights == 2 * (tied.parameters.total - table)
    alone = training_memory(gpt(vocab_size=50_000), "bf16", part=ModelPart(embedding=False))
    assert alone.weights == training_memory(tied, "bf16").weights


def test_activations_are_the_papers_and_recomputed_ones_leave_inputs_and_one_layer() -> None:
    # 34 s b h a layer with selective recomputation (arXiv 2205.05198, table 2), two of which are masks
    assert training_memory(gpt(), "bf16").activations == 24 * 2048 * 1024 * 32
    whole, again = (training_memory(workload(recompute=how), "bf16") for how in ("None", "Full"))
    one_layer = whole.activations / 32
    entered = 2 * 4096 * 8192
    assert (again.activations, again.state) == (pytest.approx(31 * entered + one_layer), whole.state)


@pytest.mark.parametrize(
    ("recipe", "bytes_a_weight"), [("bf16", 0), ("fp8_current", 2), ("mxfp8", 2.0625), ("nvfp4", 1.125)]
)
def test_a_recipe_keeps_its_weights_in_both_directions_beside_the_bf16_ones(recipe: Any, bytes_a_weight: float) -> None:
    found = training_memory(workload(), recipe)
    matrices = 32 * 4096 * (6144 + 4096 + 3 * 14336)
    assert found.quantized_weights == pytest.approx(bytes_a_weight * matrices)


@pytest.mark.parametrize("preset", ["llama3-8b", "codonfm-5b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("parts", [1, 4])
def test_the_weights_that_are_kept_quantised_are_those_of_the_gemms(preset: str, parts: int) -> None:
    wanted = workload(preset, tensor_parallel=parts)
    forward = [gemm for gemm in wanted.gemms if gemm.pass_ == "fprop" and gemm.quantized]
    held = sum(gemm.k * gemm.n * gemm.count for gemm in forward)
    assert training_memory(wanted, "fp8_current").quantized_weights == pytest.approx(2 * held)


def test_layers_in_bf16_take_its_bytes_and_experts_are_spread() -> None:
    bf16, mxfp8 = training_memory(workload(), "bf16"), training_memory(workload(), "mxfp8")
    kept = training_memory(workload(), "mxfp8", layers_bf16=8)
    assert kept.quantized_weights == pytest.approx(mxfp8.quantized_weights * 24 / 32)
    assert kept.activations == pytest.approx((24 * mxfp8.activations + 8 * bf16.activations) / 32)
    mlp = training_memory(workload(), Parts.of("mxfp8", "bf16"))
    assert mlp.quantized_weights == pytest.approx(2.0625 * 32 * 4096 * 3 * 14336)
    held, mixed = (training_memory(workload(), Parts.of("mxfp8", "bf16"), primary_weights=on) for on in (True, False))
    assert (held.quantized_weights, held.total - mixed.total) == (0, -2 * 32 * 4096 * 3 * 14336), "in place of BF16's"
    whole, spread = workload("qwen3-30b-a3b"), workload("qwen3-30b-a3b", expert_parallel=8)
    assert training_memory(spread, "mxfp8").weights < training_memory(whole, "mxfp8").weights / 5
    assert training_memory(spread, "mxfp8").activations == training_memory(whole, "mxfp8").activations


@pytest.mark.parametrize("ran", ["97695a8d/quick-llama3-8b", "85b12659/quick-codonfm-5b"])
def test_what_recipes_keep_beyond_bf16_is_what_an_h100_kept(ran: str) -> None:
    """An H100's allocator, Transformer Engine 2.20.2: LayerNormMLP keeps both operands in both directions, or one."""
    result = json.loads((H100 / f"2026-11-26-{ran}.json").read_text(encoding="utf-8"))
    kept = {row["recipe"]: row["memory"]["activation_bytes"] for row in result["recipes"]}
    part = ModelPart(layers=result["recipes"][0]["training"]["layers_measured"])
    wanted = workload(result["workload_name"])
    activations = {recipe: training_memory(wanted, recipe, part=part).activations for recipe in kept}
    for recipe in ("fp8_delayed", "fp8_current", "fp8_block"):
        beyond = [of[recipe] - of["bf16"] for of in (kept, activations)]
        assert beyond[0] == pytest.approx(beyond[1], abs=0.002 * kept["bf16"]), recipe


def test_scope_mlp_takes_what_its_parts_do() -> None:
    """The MLP's of the recipe, attention's of BF16, which has no second copy of attention's output."""
    whole, plain, mlp = (training_memory(workload(), of) for of in ("mxfp8", "bf16", Parts.of("mxfp8", "bf16")))
    weights, tokens = 2.0625 * 32 * 4096 * (6144 + 4096), 32 * 8192
    assert whole.quantized_weights - mlp.quantized_weights == pytest.approx(weights)
    assert whole.activations - mlp.activations == pytest.approx(tokens * 4096 * (33 / 32 - 2 + 33 / 32))
    assert mlp.activations - plain.activations == pytest.approx(tokens * (2 * 33 / 32 - 2) * (4096 + 14336))
    assert mlp.total - plain.total == mlp.quantized_weights + mlp.activations - plain.activations


@given(
    st.sampled_from(RECIPE_NAMES),
    st.sampled_from(["llama3.1-70b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma2-9b", "codonfm-5b"]),
    st.sampled_from([1, 2, 4]),
)
def test_more_shards_or_a_wider_split_never_take_more(recipe: Any, preset: str, wider: int) -> None:
    one, other = workload(preset), workload(preset, tensor_parallel=wider, optimizer_shards=wider)
    assert training_memory(other, recipe).total <= training_memory(one, recipe).total
    assert training_memory(other, recipe, optimizer_shards=64).total <= training_memory(other, recipe).total


def test_what_does_not_fit_says_what_would_help_and_bare_shapes_have_no_memory() -> None:
    refused = too_large(training_memory(workload("llama3.1-70b"), "bf16", optimizer_shards=4), GB200_BYTES)
    assert "635 GB of a GPU's 186 GB (341%" in refused
    assert "optimizerShards" in refused
    assert too_large(training_memory(workload(), "bf16", optimizer_shards=4), GB200_BYTES) is None
    shapes = resolve(Workload(name="shapes", shapes=(Shape(m=64, k=64, n=64),)))
    with pytest.raises(ValueError, match="bare shapes"):
        training_memory(shapes, "bf16")


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
    mixture = Mixture(name="ours", mlp="nvfp4", attention="bf16")
    for memory, fits in ((needed / 0.85 + 1, True), (needed / 0.85 - 1e8, False)):
        assert layer_room(wanted, recipes, int(memory), "fp8_current")[0] is fits
        assert layer_room(wanted, recipes, int(memory), "fp8_current", [mixture])[0] is False


def test_all_recipes_are_held_at_once() -> None:
    """6 bytes a weight, BF16 and its FP32 gradient, once; each recipe's own weights in both directions beside them."""
    model = PRESETS["kimi-k2"].model
    experts = 384 * 3 * 7168 * 2048
    needs = [layer_bytes(model, 1, Split(), recipes) for recipes in (("bf16",), ("bf16", "mxfp8"), RECIPE_NAMES)]
    dense = 3 * 7168 * 18_432
    attention_and_shared = 187e6 * 2 + 3 * 7168 * 2048  # of two layers, and of the one with experts
    assert needs[0] == pytest.approx(6 * (experts + dense + attention_and_shared), rel=0.01)
    weight_bytes = {"fp8_delayed": 2, "fp8_current": 2, **dict.fromkeys(("fp8_block", "mxfp8", "mxfp8_2d"), 2 + 1 / 16)}
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
    assert room(wanted, memory=USABLE_BYTES)[0]
