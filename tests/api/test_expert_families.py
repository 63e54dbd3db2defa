"""Mixtures of experts and latent attention as people train them in 2026: parameters, FLOPs and GEMMs of their configs.

Configs, counts and GEMM lists stand in tests/golden/models_2026.json with their sources.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from precision_agent.cases import cases_of, refusal_of
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.flops import (
    parameters,
    published_flops_per_token,
    training_flops_per_token,
    weights_of_one_gpu,
)
from precision_api.models.huggingface import model_from_mapping
from precision_api.models.memory import memory_of
from precision_api.models.model import Hybrid, LatentAttention, ModelSpec, MoE, SlidingWindow
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.shapes import Gemm, Split, model_gemms, split_problems, step_shape_problems
from precision_api.models.workload import Workload, resolve, written_out
from tests.api.test_huggingface import CONFIGS, Json
from tests.support.golden import beside
from tests.support.result_objects import request

TABLES = beside(__file__)

GOLDEN = Path(__file__).parents[1] / "golden" / "models_2026.json"
KNOWN = (
    *("Kimi-K2", "GPT-OSS-120B", "Nemotron-H-56B", "Nemotron-3-Nano-30B-A3B", "Qwen3-Coder-480B-A35B"),
    "Llama-4-Scout",
)
TOKENS = 384 * 160 * 128
"""Spread evenly over the experts of each of them."""


@cache
def golden() -> dict[str, Json]:
    return {row["name"]: row for row in json.loads(GOLDEN.read_text())["models"]}


def read(name: str) -> ModelSpec:
    return model_from_mapping(golden()[name]["config"])


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_flops_and_gemms_are_the_published_ones(name: str) -> None:
    counted, expected = parameters(read(name)), golden()[name]["counted"]
    assert (counted.total, counted.active) == (expected["total"], expected["active"])
    assert counted.active_without_embedding == expected["active_without_input_embedding"]
    flops = golden()[name]["training_flops"]
    for row in flops["checked"]:
        sequence = row["sequence_length"]
        assert published_flops_per_token(read(name), sequence) == pytest.approx(row["flops_per_token"], rel=0.005)
        true_width = flops.get("counted_flops_true_width", row["flops_per_token"])
        assert training_flops_per_token(read(name), sequence) == pytest.approx(true_width, rel=0.005)
    ours = [
        (gemm.name, gemm.m, gemm.k, gemm.n, gemm.count, gemm.quantized)
        for gemm in model_gemms(read(name), TOKENS)
        if gemm.pass_ == "fprop"
    ]
    listed = [
        (row["name"], rows(row["m"]), row["k"], row["n"], row["count"], "kept in high" not in row.get("note", ""))
        for row in golden()[name]["forward_gemms"]
    ]
    assert sorted(ours) == sorted(listed)


def rows(formula: str) -> int:
    """`T` or `T*8/384` for TOKENS tokens."""
    _, _, factor = formula.partition("*")
    top, _, experts = (factor or "1/1").partition("/")
    return TOKENS * int(top) // int(experts)


V3, GLM_4_5_AIR, MINIMAX_M2, MAVERICK = (
    CONFIGS[name] for name in ("DeepSeek-V3", "GLM-4.5-Air", "MiniMax-M2", "Llama-4-Maverick")
)


def test_llama_4_is_read_as_its_text_model_with_chunks() -> None:
    whole = {"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"], "text_config": MAVERICK}
    assert model_from_mapping(whole) == model_from_mapping(MAVERICK)
    assert read("Llama-4-Scout").sliding_window == SlidingWindow(size=8192, windowed_layers=36, chunked=True)
    model = read("Llama-4-Scout").model_copy(update={"sliding_window": None})
    whole, cut = (training_flops_per_token(one, 16_384) for one in (model, read("Llama-4-Scout")))
    assert whole - cut == 12 * 40 * 128 * 36 * (8192 - 4096)


def test_latent_experts_are_narrower_and_have_a_way_in_and_out() -> None:
    config = golden()["Nemotron-3-Nano-30B-A3B"]["config"]
    plain, latent = model_from_mapping(config), model_from_mapping(config | {"moe_latent_size": 1024})
    fewer = 23 * 128 * 2 * 1856 * (2688 - 1024) - 23 * 2 * 2688 * 1024
    assert parameters(plain).total - parameters(latent).total == fewer
    by_name = {gemm.name: gemm for gemm in model_gemms(latent, TOKENS) if gemm.pass_ == "fprop"}
    assert (by_name["experts_up"].k, by_name["experts_down"].n) == (1024, 1024)
    assert (by_name["latent_down"].n, by_name["latent_up"].k, by_name["latent_up"].count) == (1024, 1024, 23)
    assert (by_name["shared_up"].k, by_name["shared_down"].n) == (2688, 2688)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (V3 | {"attention_bias": True}, ("attention_bias",)),
        ({key: value for key, value in V3.items() if key != "v_head_dim"}, ("v_head_dim is missing",)),
        (V3 | {"index_topk": 2048}, ("index_topk is 2048", "sparse attention")),
        (V3 | {"kv_lora_rank": 0}, ("kv_lora_rank", "not 0")),
        (
            V3 | {"num_experts_per_tok": 300},
            ("moe.topK must be at most moe.numExperts", "num_experts_per_tok", "n_routed_experts"),
        ),
        (V3 | {"vocab_size": 10_000_000}, ("vocabSize", "vocab_size")),
        (V3 | {"n_routed_experts": 1}, ("numExperts", "n_routed_experts")),
        (MINIMAX_M2 | {"attn_type_list": [0, 1]}, ("attn_type_list",)),
        (MINIMAX_M2 | {"qk_norm_type": "other"}, ("qk_norm_type", '"other"')),
        (MAVERICK | {"layer_types": ["linear_attention"] * 48}, ("linear_attention",)),
        ({"model_type": "llama4"}, ("text_config",)),
        (golden()["Nemotron-H-56B"]["config"] | {"hybrid_override_pattern": "M-X"}, ("hybrid_override_pattern", "M-X")),
        (golden()["Nemotron-H-56B"]["config"] | {"num_hidden_layers": 3}, ("118 letters", "3 layers")),
        (golden()["Nemotron-H-56B"]["config"] | {"mamba_proj_bias": True}, ("mamba_proj_bias",)),
        (golden()["Nemotron-3-Nano-30B-A3B"]["config"] | {"moe_latent_size": -1}, ("moe_latent_size", "not -1")),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_the_field(document: Json, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        model_from_mapping(document)
    assert str(error.value).startswith("config.json")
    for word in words:
        assert word in str(error.value)


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    """Any model with latent attention, experts, or both, or a hybrid of Mamba-2 and attention."""
    heads, width = draw(st.sampled_from([1, 4, 24, 128])), draw(st.sampled_from([16, 48, 192]))
    latent = LatentAttention(
        query_rank=draw(st.none() | st.integers(1, 2048)),
        key_value_rank=draw(st.integers(1, 1024)),
        rope_head_dim=draw(st.integers(1, width - 1)),
        value_head_dim=draw(st.integers(1, 256)),
    )
    is_latent, is_mixture, is_hybrid = draw(
        st.sampled_from([(True, True, False), (True, False, False), (False, True, False), (False, False, True)])
    )
    experts, layers = draw(st.integers(2, 512)), draw(st.integers(1, 80))
    moe = MoE(
        num_experts=experts,
        top_k=draw(st.integers(1, experts)),
        expert_intermediate_size=draw(st.integers(1, 4096)),
        shared_expert_intermediate_size=draw(st.sampled_from([0, 1408, 8192])),
        dense_layers=draw(st.integers(0, layers - 1)),
        latent_size=draw(st.none() | st.integers(1, 2048)),
        router_bias=draw(st.booleans()),
        expert_bias=draw(st.booleans()),
    )
    groups = draw(st.sampled_from([1, 2, 8]))
    mixers = draw(st.integers(1, layers))
    hybrid = Hybrid(
        mamba_layers=mixers,
        attention_layers=draw(st.integers(0, layers - mixers)),
        mamba_heads=groups * draw(st.integers(1, 32)),
        mamba_head_dim=draw(st.integers(1, 128)),
        groups=groups,
        state_size=draw(st.integers(1, 256)),
        conv_kernel=draw(st.integers(1, 8)),
    )
    return ModelSpec(
        hidden_size=draw(st.integers(1, 8192)),
        intermediate_size=draw(st.integers(1, 32768)),
        num_attention_heads=heads,
        head_dim=width,
        num_hidden_layers=layers,
        vocab_size=draw(st.integers(1, 200_000)),
        gated_mlp=draw(st.booleans()),
        latent_attention=latent if is_latent else None,
        attention_sinks=draw(st.booleans()),
        moe=moe if is_mixture else None,
        hybrid=hybrid if is_hybrid else None,
        norms_per_layer=1 if is_hybrid else 2,
    )


def forward(model: ModelSpec) -> list[Gemm]:
    return [gemm for gemm in model_gemms(model, TOKENS) if gemm.pass_ == "fprop"]


def in_no_gemm(model: ModelSpec, experts: int | None = None) -> int:
    """Weights of embedding, norms and sinks, of the router beside its matrix, of a mixer beside its projections, and
    the biases of so many of a layer's experts (None: all)."""
    layers, hidden, moe, latent = model.num_hidden_layers, model.hidden_size, model.moe, model.latent_attention
    attention = model.num_attention_heads if model.attention_sinks else 0
    attention += (latent.query_rank or 0) + latent.key_value_rank if latent else 0
    keys = model.kv_heads * model.head_width
    attention += model.qkv_bias * (model.query_width + 2 * keys) + model.out_bias * hidden
    attention += {"None": 0, "PerHead": 2 * model.head_width, "Full": model.query_width + keys}[model.qk_norm]
    norms = (1 + layers * model.norms_per_layer) * hidden
    weights = (model.vocab_size or 0) * hidden + norms + model.attention_layers * attention
    if model.hybrid is not None:
        beside = model.hybrid.convolved_width * (model.hybrid.conv_kernel + 1) + model.hybrid.inner_width
        weights += model.mamba_layers * (beside + 3 * model.hybrid.mamba_heads)
    if moe is not None:
        biases = (1 + model.gated_mlp) * model.expert_width + model.expert_input_width if moe.expert_bias else 0
        router = moe.num_experts * moe.router_bias + moe.shared_expert_gate * hidden
        weights += model.moe_layers * (router + biases * (moe.num_experts if experts is None else experts))
    return weights


@given(models(), st.sampled_from([1, 2, 4]), st.sampled_from([1, 4, 64]))
def test_a_gpu_holds_its_gemms_weights_and_beside_them_only_vectors(model: ModelSpec, tensor: int, expert: int) -> None:
    """Norms, biases, sinks, a mixer's convolution and scalars, and gates: `in_no_gemm` without the embedding."""
    split, wider = Split(tensor, expert if model.moe else 1), divisible(model, tensor, expert)
    assume(not split_problems(wider, split))
    gemms = [gemm for gemm in model_gemms(wider, TOKENS, split) if gemm.pass_ == "fprop"]
    listed = sum(gemm.k * gemm.n * gemm.count for gemm in gemms)
    held = weights_of_one_gpu(wider, wider.num_hidden_layers, split)
    assert listed <= held <= listed + in_no_gemm(wider) - parameters(wider).embedding


def divisible(model: ModelSpec, tensor: int, expert: int) -> ModelSpec:
    """`model` with MLPs, experts, heads and a vocabulary that both numbers divide."""
    changes: dict[str, Any] = {
        name: tensor * getattr(model, name) for name in ("intermediate_size", "num_attention_heads", "vocab_size")
    }
    if model.moe:
        experts = {"num_experts": expert * model.moe.num_experts}
        moe = {**experts, "expert_intermediate_size": tensor * model.expert_width}
        changes["moe"] = model.moe.model_copy(update=moe)
    if model.hybrid:
        groups = {"groups": tensor * model.hybrid.groups, "mamba_heads": tensor * model.hybrid.mamba_heads}
        changes["hybrid"] = model.hybrid.model_copy(update=groups)
    return model.model_copy(update=changes)


@given(models(), st.sampled_from([1, 2, 8]), st.sampled_from([1, 4, 64]), st.sampled_from(RECIPE_NAMES))
def test_gpus_of_a_group_hold_such_a_model_together(model: ModelSpec, tensor: int, expert: int, recipe: Any) -> None:
    split = Split(tensor, expert)
    if split_problems(model, split):
        return
    one, layers = weights_of_one_gpu(model, model.num_hidden_layers, split), model.num_hidden_layers
    whole = weights_of_one_gpu(model, layers)
    assert whole <= one * tensor * expert + layers
    assert one <= whole
    memory = memory_of(model, 4096, split, recipe)
    table = -(-(model.vocab_size or 0) * model.hidden_size // tensor)
    assert memory.weights == 2 * (one + table)
    assert memory.activations > 0


@pytest.mark.parametrize(("preset", "name"), TABLES["presets"])
def test_a_preset_is_the_model_of_its_config(preset: PresetName, name: str) -> None:
    assert written_out(PRESETS[preset].model) == written_out(read(name))
    assert PRESETS[preset].sequence_length == golden()[name]["training_flops"]["checked"][0]["sequence_length"]


@pytest.mark.parametrize(("name", "parts"), TABLES["parts"])
def test_the_parts_of_a_training_step_beside_a_dense_layers_are_named(name: str, parts: list[str]) -> None:
    model = read(name)
    assert (model.no_training_step, [*model.step_parts]) == (None, parts)


def test_hybrids_and_chunked_attention_have_no_training_step_on_any_backend() -> None:
    assert read("Nemotron-H-56B").no_training_step == "hybrid"
    assert read("Llama-4-Scout").no_training_step == "slidingWindow.chunked"
    workload = Workload(name="h", model=read("Nemotron-H-56B"), micro_batch_size=1, sequence_length=128)
    cases = cases_of(request(workload=workload), resolve(workload))
    assert cases.training is None
    assert "scan" in cases.no_training.message
    assert {case.name for case in cases.gemms} >= {"mamba_in", "mamba_out", "mlp_up", "qkv"}


@pytest.mark.parametrize("name", ["Kimi-K2", "Nemotron-3-Nano-30B-A3B"])
def test_with_scope_mlp_the_projections_of_attention_and_mamba_stay_in_bf16(name: str) -> None:
    workload = Workload(name="m", model=read(name), micro_batch_size=1, sequence_length=384)
    cases = cases_of(request(workload=workload, recipe_scope="mlp"), resolve(workload))
    quantized = next(variant for variant in cases.variants if variant.recipe != "bf16")
    kept = {case.name for case in cases.gemms if case.recipe_of(quantized) == "bf16"} - {"router", "lm_head"}
    mlps = ("mlp", "experts", "shared", "router", "lm_head")
    assert kept == {case.name for case in cases.gemms if not case.name.startswith(mlps)}
    assert kept >= {"attn_out", "kv_down" if name == "Kimi-K2" else "mamba_in"}


@pytest.mark.parametrize(("recipe", "rows"), [("bf16", 86), ("fp8_current", 96), ("mxfp8", 96), ("nvfp4", 128)])
def test_rows_of_experts_are_padded_to_what_the_recipes_need_and_refuse_none(recipe: Recipe, rows: int) -> None:
    """4,096 tokens x 8 of 384 experts are 85.3 rows each."""
    workload = resolve(Workload(preset="kimi-k2"))
    assert not step_shape_problems([gemm for gemm in workload.gemms if gemm.of_experts], recipe)
    cases = cases_of(request(workload=workload.workload, recipes=("bf16", recipe)), workload)
    experts = [case for case in cases.gemms if case.name == "experts_up"]
    assert {(case.pass_, case.k if case.pass_ == "wgrad" else case.m) for case in experts} == {
        (pass_, rows) for pass_ in ("fprop", "dgrad", "wgrad")
    }
    variant = next(variant for variant in cases.variants if variant.recipe == recipe)
    assert not [case for case in experts if refusal_of(case, variant, "transformer-engine")]
    assert {case.m for case in cases.gemms if case.name == "router" and case.pass_ == "fprop"} == {4096}
