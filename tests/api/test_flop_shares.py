"""Modules for multi-token prediction, and where a token's FLOPs go: what is in the GEMM list, and what can't be.

Parameters and training FLOPs per token, against published rates and against the GEMMs themselves.
"""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.models.flop_shares import GEMMS, flop_shares, weights_in_gemms
from precision_api.models.flops import TRAINING_FLOPS, parameters, published_flops_per_token, training_flops_per_token
from precision_api.models.huggingface import model_from_mapping
from precision_api.models.model import ModelSpec, MoE, MultiTokenPrediction, SlidingWindow
from precision_api.models.mtp import layers_of_a_module, mtp_flops_per_token, mtp_parameters
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.shapes import model_gemms
from precision_api.models.workload import Workload, resolve, workload_hash
from tests.api.test_configs_as_published import SUPER
from tests.api.test_expert_families import GLM_4_5_AIR, MINIMAX_M2, TOKENS, V3, golden, in_no_gemm, models, read
from tests.api.test_huggingface import Json

GOLDEN = Path(__file__).parent.parent / "golden" / "megatron_bridge.json"
ROWS = [tuple(row) for row in json.loads(GOLDEN.read_text())["rows"]]


def test_a_hybrids_module_has_the_layers_of_its_pattern_and_no_module_has_nothing() -> None:
    model = model_from_mapping(SUPER)
    module = layers_of_a_module(model)
    assert (module.attention_layers, module.moe_layers, module.mamba_layers, module.dense_layers) == (1, 1, 0, 0)
    named = model_from_mapping(
        {key: value for key, value in SUPER.items() if key != "mtp_hybrid_override_pattern"}
        | {"mtp_layers_block_type": ["attention", "moe"]}
    )
    assert named == model
    dense = PRESETS["llama3-8b"].model
    assert (mtp_parameters(dense), mtp_flops_per_token(dense, 4096)) == (0, 0)


@pytest.mark.parametrize(
    ("document", "modules"),
    [
        (V3, 1),
        (GLM_4_5_AIR | {"num_nextn_predict_layers": 1}, 1),
        (GLM_4_5_AIR, 0),
        (MINIMAX_M2 | {"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 1}, 3),
        (MINIMAX_M2 | {"use_mtp": False, "num_mtp_modules": 3}, 0),
        (golden()["Kimi-K2"]["config"], 0),
        (golden()["Nemotron-3-Nano-30B-A3B"]["config"] | {"num_nextn_predict_layers": 0}, 0),
    ],
)
def test_modules_are_read_and_left_out_of_everything_that_is_measured(document: Json, modules: int) -> None:
    model = model_from_mapping(document)
    without = model.model_copy(update={"mtp": None})
    assert (model.mtp.modules if model.mtp else 0) == modules
    assert parameters(model) == parameters(without)
    assert training_flops_per_token(model, 4096) == training_flops_per_token(without, 4096)
    assert model_gemms(model, TOKENS) == model_gemms(without, TOKENS)
    sizes = {"micro_batch_size": 1, "sequence_length": 4096}
    assert workload_hash(Workload(name="a", model=model, **sizes)) == workload_hash(
        Workload(name="a", model=without, **sizes)
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (SUPER | {"mtp_hybrid_override_pattern": "*X"}, ("mtp_hybrid_override_pattern", "*X")),
        (SUPER | {"mtp_hybrid_override_pattern": None}, ("num_nextn_predict_layers is 1", "null")),
        (V3 | {"num_nextn_predict_layers": -1}, ("num_nextn_predict_layers", "-1")),
        (
            MINIMAX_M2 | {"use_mtp": True, "num_mtp_modules": 1, "mtp_transformer_layers": 2},
            ("mtp_transformer_layers",),
        ),
    ],
)
def test_modules_that_are_not_known_are_refused_with_the_field(document: Json, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        model_from_mapping(document)
    assert all(word in str(error.value) for word in words)


@given(models(), st.integers(1, 4), st.text("M*E-", min_size=1, max_size=6))
def test_a_modules_gemms_and_what_is_in_none_are_its_parameters(model: ModelSpec, modules: int, pattern: str) -> None:
    pattern = pattern if model.moe else pattern.replace("E", "-")
    mtp = MultiTokenPrediction(modules=modules, pattern=pattern if model.hybrid else None)
    model = model.model_copy(update={"mtp": mtp})
    module = layers_of_a_module(model)
    assert module is not None
    layers = sum(gemm.k * gemm.n * gemm.count for gemm in model_gemms(module, TOKENS) if gemm.pass_ == "fprop")
    projection, norms = 2 * model.hidden_size**2, 2 * model.hidden_size
    assert modules * (layers + projection + in_no_gemm(module) + norms) == mtp_parameters(model)
    assert mtp_flops_per_token(model, 4096) > 6 * modules * model.hidden_size * (model.vocab_size or 0)


@given(models(), st.sampled_from([1, 64, 4096]))
def test_the_shares_are_the_gemms_and_a_named_rest_and_sum_to_the_formula(model: ModelSpec, sequence: int) -> None:
    shares = {share.name: share.flops_per_token for share in flop_shares(model, sequence)}
    assert sum(shares.values()) == training_flops_per_token(model, sequence)
    met = Fraction(model.moe.top_k, model.moe.num_experts) if model.moe else Fraction(1)
    forward = [gemm for gemm in model_gemms(model, TOKENS) if gemm.pass_ == "fprop"]
    listed = sum(gemm.k * gemm.n * gemm.count * (met if gemm.groups > 1 else 1) for gemm in forward)
    assert shares[GEMMS] == 6 * listed == 6 * sum(weights_in_gemms(model).values())
    contexts = model.attention_layers * Fraction(sequence, 2)
    width = model.query_width + model.attention_width
    assert shares["attention products"] == pytest.approx(float(6 * width * contexts), abs=1)
    hybrid = model.hybrid
    if hybrid is not None:
        assert shares["scan of Mamba-2"] == 21 * model.mamba_layers * hybrid.inner_width * hybrid.state_size
    vectors = in_no_gemm(model, model.moe.top_k if model.moe else 0) - parameters(model).embedding
    told = shares["norms, biases and other vectors"] + shares.get("convolution of Mamba-2", 0)
    assert told == 6 * vectors


@pytest.mark.parametrize("preset", ["llama3-8b", "gemma2-9b", "codonfm-5b"])
def test_shares_of_dense_models_sum_too(preset: str) -> None:
    resolved = resolve(Workload.model_validate({"preset": preset}))
    assert resolved.model is not None
    shares = flop_shares(resolved.model, 8192)
    assert [share.name for share in shares] == [GEMMS, "attention products", "norms, biases and other vectors"]
    assert sum(share.flops_per_token for share in shares) == training_flops_per_token(resolved.model, 8192)
    assert sum(share.share for share in shares) == pytest.approx(1)
    forward = [gemm for gemm in resolved.gemms if gemm.pass_ == "fprop"]
    assert shares[0].flops_per_token == 6 * sum(gemm.k * gemm.n * gemm.count for gemm in forward)


def test_only_a_mixer_that_is_not_twice_as_wide_has_other_published_flops() -> None:
    nano, checked = read("Nemotron-3-Nano-30B-A3B"), golden()["Nemotron-3-Nano-30B-A3B"]["training_flops"]
    rate = checked["checked"][0]
    ours = published_flops_per_token(nano, 8192)
    assert ours == pytest.approx(rate["published_tflops"] * 1e12 / rate["published_tokens_per_s"], rel=0.005)
    for name in ("Nemotron-H-56B", "Kimi-K2"):
        assert published_flops_per_token(read(name), 8192) == training_flops_per_token(read(name), 8192)


def tiny(**more: object) -> ModelSpec:
    """64 wide, 4 heads of 16, 2 layers, no vocabulary."""
    dimensions = {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}
    return ModelSpec.model_validate(dimensions | more)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_published_token_rates_times_flops_give_the_published_flop_rates(
    row: tuple[PresetName, str, str, int, float, float],
) -> None:
    model, _, _, sequence, tokens_per_second, tflops = row
    ours = tokens_per_second * training_flops_per_token(PRESETS[model].model, sequence) / 1e12
    assert ours == pytest.approx(tflops, rel=0.0025)


def test_the_formula_is_the_stated_one_with_name_and_version() -> None:
    model = PRESETS["llama3.1-70b"].model
    assert training_flops_per_token(model, 8192) == 6 * (70_553_706_496 - 128256 * 8192) + 6 * 80 * 64 * 128 * 8192
    assert (TRAINING_FLOPS.name, TRAINING_FLOPS.version) == ("active_parameters_and_attention", 1)


@pytest.mark.parametrize(
    ("more", "context"),
    [
        ({}, 2 * 500),
        ({"causal": False}, 2 * 1000),
        ({"sliding_window": SlidingWindow(size=100, windowed_layers=2)}, 2 * (100 - 100**2 / 2000)),
        ({"sliding_window": SlidingWindow(size=100, windowed_layers=1)}, 500 + (100 - 100**2 / 2000)),
        ({"sliding_window": SlidingWindow(size=1000, windowed_layers=2)}, 2 * 500),
        ({"sliding_window": SlidingWindow(size=4096, windowed_layers=2)}, 2 * 500),
        ({"head_dim": 32}, 2 * 2 * 500),
    ],
    ids=["causal", "no mask", "all windowed", "half windowed", "window = s", "window > s", "wide heads"],
)
def test_attention_costs_twelve_times_width_times_context(more: dict[str, object], context: float) -> None:
    model = tiny(**more)
    assert training_flops_per_token(model, 1000) - 6 * parameters(model).active == 12 * 64 * context


def test_a_tied_head_is_work_and_only_active_experts_are() -> None:
    tied, untied = tiny(vocab_size=1000, tied_embedding=True), tiny(vocab_size=1000)
    assert parameters(untied).total - parameters(tied).total == 64 * 1000
    assert training_flops_per_token(tied, 128) == training_flops_per_token(untied, 128)
    few, many = (tiny(moe=MoE(num_experts=number, top_k=2), gated_mlp=True) for number in (8, 16))
    router = 2 * 64 * 8
    assert parameters(many).total - parameters(few).total == 2 * 8 * 3 * 64 * 256 + router
    assert training_flops_per_token(many, 128) - training_flops_per_token(few, 128) == 6 * router


@pytest.mark.parametrize(
    ("more", "added"),
    [
        ({"qkv_bias": True}, 2 * 3 * 64),
        ({"qkv_bias": True, "num_key_value_heads": 1}, 2 * (64 + 32) - 2 * 64 * 2 * 48),
        ({"out_bias": True}, 2 * 64),
        ({"mlp_bias": True}, 2 * (256 + 64)),
        ({"mlp_bias": True, "gated_mlp": True}, 2 * (2 * 256 + 64) + 2 * 64 * 256),
        ({"qk_norm": "PerHead"}, 2 * 2 * 16),
        ({"qk_norm": "Full"}, 2 * 2 * 64),
        ({"norms_per_layer": 4}, 2 * 2 * 64),
        ({"norm_bias": True}, 5 * 64),
        ({"learned_positions": 128}, 128 * 64),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_each_part_adds_its_own_weights(more: dict[str, object], added: int) -> None:
    assert parameters(tiny(**more)).total - parameters(tiny()).total == added
