"""Configs of the families that are known, as their publishers keep them on Hugging Face, with the quirks of the files.

Keys that say nothing of shapes are left out. Totals are the safetensors totals of the hub: they hold modules for
multi-token prediction (GLM's with an embedding and a head of their own), which `parameters` leaves out.

Hugging Face configs of the families of 2026 with any numbers in them: read exactly, or refused with the key.
"""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.models.flop_shares import flop_shares
from precision_api.models.flops import parameters, training_flops_per_token
from precision_api.models.huggingface import model_from_config, model_from_mapping
from precision_api.models.model import ModelSpec
from precision_api.models.mtp import mtp_flops_per_token, mtp_parameters
from precision_api.models.room import layer_bytes
from precision_api.models.shapes import Split, model_gemms, split_problems, step_shape_problems
from tests.api.test_expert_families import GLM_4_5_AIR, MAVERICK, MINIMAX_M2, V3, golden, in_no_gemm
from tests.api.test_huggingface import CONFIGS, Json

SUPER = CONFIGS["Nemotron-3-Super-120B-A12B"] | {"time_step_limit": [0.0, float("inf")]}
ULTRA = CONFIGS["Nemotron-3-Ultra-550B-A55B"]
KIMI_K2_5: Json = {
    "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "tie_word_embeddings": False,
    "text_config": golden()["Kimi-K2"]["config"] | {"architectures": ["DeepseekV3ForCausalLM"],
                                                     "model_type": "kimi_k2"},
    "vision_config": {"vt_hidden_size": 1152, "vt_num_hidden_layers": 27},
}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "hub", "copies"),
    [
        pytest.param(SUPER, 123_611_012_096, 0, id="Nemotron-3-Super-120B-A12B"),
        pytest.param(V3 | {"num_nextn_predict_layers": 1}, 684_489_845_504, 2, id="DeepSeek-V3"),
        pytest.param(GLM_4_5_AIR | {"num_nextn_predict_layers": 1}, 110_468_824_832, 2, id="GLM-4.5-Air"),
        pytest.param(CONFIGS["GLM-4.7"], 358_337_791_296, 2, id="GLM-4.7"),
        pytest.param(CONFIGS["GLM-4.7-Flash"], 31_221_488_576, 2, id="GLM-4.7-Flash"),
    ],
)
def test_the_model_its_modules_and_their_copies_are_what_the_hub_has(document: Json, hub: int, copies: int) -> None:
    """`copies`: of the table of vocabulary x hidden that the module in the files has beside the model's own."""
    model = model_from_config(json.dumps(document))
    tables = copies * document["vocab_size"] * document["hidden_size"]
    assert parameters(model).total + mtp_parameters(model) + tables == hub


@pytest.mark.parametrize(
    ("document", "total", "active"),
    [
        pytest.param(SUPER, 120.7, 12.8, id="Nemotron-3-Super-120B-A12B"),
        pytest.param(ULTRA, 549.3, 56.1, id="Nemotron-3-Ultra-550B-A55B"),
        pytest.param(KIMI_K2_5, 1026.4, 32.9, id="Kimi-K2.5"),
        pytest.param(CONFIGS["Qwen3-VL-235B-A22B"], 235.1, 22.2, id="Qwen3-VL-235B-A22B"),
    ],
)
def test_billions_are_those_of_the_name(document: Json, total: float, active: float) -> None:
    """Ultra's name leaves the input embedding out of the active ones; here it is in."""
    counted = parameters(model_from_config(json.dumps(document)))
    assert (round(counted.total / 1e9, 1), round(counted.active / 1e9, 1)) == (total, active)


def test_infinity_in_a_field_that_is_not_read_is_no_fault_and_in_one_that_is_it_is() -> None:
    """Python writes it into JSON: time_step_limit of every Nemotron-H."""
    text = json.dumps(golden()["Nemotron-H-56B"]["config"] | {"time_step_limit": [0.0, float("inf")]})
    assert "Infinity" in text
    assert parameters(model_from_config(text)).total == golden()["Nemotron-H-56B"]["counted"]["total"]
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"config\.json: hidden_size must be a whole number"):
            model_from_config(json.dumps(SUPER | {"hidden_size": value}))


def test_layers_are_counted_where_they_are_listed_and_kimi_k2_5_is_kimi_k2() -> None:
    assert model_from_mapping(ULTRA).num_hidden_layers == len(ULTRA["layers_block_type"]) == 108
    with pytest.raises(ValueError, match=r"108 letters, but there are 107 layers"):
        model_from_mapping(ULTRA | {"num_hidden_layers": 107})
    with pytest.raises(ValueError, match=r"num_hidden_layers is missing"):
        model_from_mapping({key: value for key, value in ULTRA.items() if key != "layers_block_type"})
    assert model_from_mapping(KIMI_K2_5) == model_from_mapping(golden()["Kimi-K2"]["config"])


REFUSED: dict[str, tuple[Json, str]] = {
    "DeepSeek-V3.2": ({**V3, "model_type": "deepseek_v32", "index_topk": 2048}, "sparse attention"),
    "DeepSeek-V4": ({"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}, "compressed attention"),
    "GLM-5": ({**V3, "model_type": "glm_moe_dsa"}, "sparse attention"),
    "Qwen3-Next": ({"model_type": "qwen3_next", "full_attention_interval": 4}, "linear attention"),
    "Qwen3.5": ({"model_type": "qwen3_5_moe", "text_config": {}, "vision_config": {"depth": 27}}, "multimodal"),
    "Kimi-K3": ({"model_type": "kimi_k3", "text_config": {}, "vision_config": {"depth": 27}}, "multimodal"),
    "MiniMax-M1": ({"model_type": "minimax_m1", "attn_type_list": [0, 1]}, "linear attention"),
    "Mamba-Codestral": ({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"]}, "no attention"),
    "another MLA": ({"model_type": "deepseek_ref", "kv_lora_rank": 512}, "MLA"),
}


@pytest.mark.parametrize(("document", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_refused_with_the_reason_and_the_families(document: Json, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        model_from_mapping(document)
    assert f'"{document["model_type"]}"' in str(error.value)
    assert "Supported: llama" in str(error.value)


COUNTS = st.integers(1, 256)
WIDTHS = st.integers(1, 16_384)
HEADS = st.sampled_from([1, 2, 4, 8, 24, 64, 128])
CHANGES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "moe_intermediate_size", "intermediate_size_mlp"), WIDTHS),
    **dict.fromkeys(("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"), WIDTHS),
    **dict.fromkeys(("kv_lora_rank", "moe_latent_size", "ssm_state_size", "vocab_size"), WIDTHS),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "mamba_num_heads", "n_groups"), HEADS),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "head_dim", "mamba_head_dim"), COUNTS),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), st.integers(1, 1024)),
    **dict.fromkeys(("num_experts_per_tok", "n_shared_experts", "first_k_dense_replace"), st.integers(0, 64)),
    "q_lora_rank": st.none() | WIDTHS,
    "num_nextn_predict_layers": st.integers(0, 3),
    "interleave_moe_layer_step": st.integers(1, 8),
    "moe_layer_freq": st.integers(1, 4),
    "mtp_hybrid_override_pattern": st.text("M*E-", min_size=1, max_size=5),
    "tie_word_embeddings": st.booleans(),
    "attention_bias": st.booleans(),
}
"""Values that some model could have, by key."""
NONSENSE = st.sampled_from([-1, 0, 10**12, 1.5, "many", True, [], {}, "\x00", float("inf")])
MIXTRAL = CONFIGS["Mixtral-8x7B"] | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
FAMILIES = (
    V3 | {"num_nextn_predict_layers": 1}, GLM_4_5_AIR, MINIMAX_M2, MAVERICK, SUPER, MIXTRAL,
    golden()["GPT-OSS-120B"]["config"], golden()["Qwen3-Coder-480B-A35B"]["config"],
    golden()["Nemotron-H-56B"]["config"],
)  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> Json:
    """A config of a known family with several of its numbers changed, most of them to something possible."""
    config = dict(draw(st.sampled_from(FAMILIES)))
    for key in draw(st.lists(st.sampled_from([key for key in config if key in CHANGES]), max_size=6, unique=True)):
        config[key] = draw(CHANGES[key])
    return config


def read_or_refused(config: Json) -> ModelSpec | str:
    try:
        return model_from_mapping(config)
    except ValueError as error:
        return str(error)


@given(configs(), st.sampled_from([1, 8]), st.sampled_from([1, 16]))
def test_a_config_is_read_whole_or_refused_with_a_key_of_it(config: Json, tensor: int, expert: int) -> None:
    model = read_or_refused(config)
    if isinstance(model, str):
        assert model.startswith("config.json")
        assert any(key in model for key in config), model
        return
    tokens = 128 * (model.moe.num_experts if model.moe else 1)
    forward = [gemm for gemm in model_gemms(model, tokens) if gemm.pass_ == "fprop"]
    counted = parameters(model)
    tied = counted.embedding if model.tied_embedding else 0
    assert sum(gemm.k * gemm.n * gemm.count for gemm in forward) + in_no_gemm(model) - tied == counted.total
    shares = flop_shares(model, 4096)
    assert all(share.flops_per_token >= 0 for share in shares)
    total = training_flops_per_token(model, 4096)
    work = sum(Fraction(gemm.flops * gemm.count, tokens) for gemm in forward)
    assert 3 * work + sum(share.flops_per_token for share in shares[1:]) == total
    assert (mtp_parameters(model) > 0) == (mtp_flops_per_token(model, 4096) > 0) == (model.mtp is not None)
    split = Split(tensor, expert)
    if not split_problems(model, split):
        for recipe in RECIPE_NAMES:
            step_shape_problems(model_gemms(model, 4096, split), recipe)
            assert layer_bytes(model, 4096, split, (recipe,)) > 0


@given(st.sampled_from(FAMILIES), st.data(), NONSENSE)
def test_nonsense_in_one_key_is_refused_with_that_key(config: Json, data: st.DataObject, nonsense: object) -> None:
    numbers = [key for key, value in config.items() if type(value) is int and key in CHANGES]
    key = data.draw(st.sampled_from(numbers))
    found = read_or_refused(config | {key: nonsense})
    if isinstance(found, str):
        assert key in found, found
    else:  # a key that this family does not read, or one where 0 means none
        changed = model_from_mapping(config | {key: 1}) if nonsense not in (0, -1) else found
        assert changed == found or nonsense == 0
