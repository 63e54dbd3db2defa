"""Hugging Face configs of the families of 2026 with any numbers in them: read exactly, or refused with the key."""

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.models.flop_shares import flop_shares
from precision_api.models.flops import parameters, training_flops_per_token
from precision_api.models.huggingface import model_from_mapping
from precision_api.models.model import ModelSpec
from precision_api.models.mtp import mtp_flops_per_token, mtp_parameters
from precision_api.models.room import layer_bytes
from precision_api.models.shapes import Split, model_gemms, split_problems, step_shape_problems
from tests.api.test_configs_as_published import SUPER
from tests.api.test_expert_families import GLM_4_5_AIR, MAVERICK, MINIMAX_M2, V3, Json, golden, in_no_gemm

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
MIXTRAL: Json = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
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
