"""Modules for multi-token prediction, and where a token's FLOPs go: what is in the GEMM list, and what can't be."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.models.flop_shares import GEMMS, flop_shares, weights_in_gemms
from precision_api.models.flops import parameters, published_flops_per_token, training_flops_per_token
from precision_api.models.huggingface import model_from_mapping
from precision_api.models.model import ModelSpec, MultiTokenPrediction
from precision_api.models.mtp import layers_of_a_module, mtp_flops_per_token, mtp_parameters
from precision_api.models.presets import PRESETS
from precision_api.models.shapes import model_gemms
from precision_api.models.workload import Workload, resolve, workload_hash
from tests.api.test_configs_as_published import SUPER
from tests.api.test_expert_families import GLM_4_5_AIR, MINIMAX_M2, TOKENS, V3, Json, golden, in_no_gemm, models, read


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


def test_only_a_mixer_that_is_not_twice_as_wide_has_other_published_flops() -> None:
    nano, checked = read("Nemotron-3-Nano-30B-A3B"), golden()["Nemotron-3-Nano-30B-A3B"]["training_flops"]
    rate = checked["checked"][0]
    ours = published_flops_per_token(nano, 8192)
    assert ours == pytest.approx(rate["published_tflops"] * 1e12 / rate["published_tokens_per_s"], rel=0.005)
    for name in ("Nemotron-H-56B", "Kimi-K2"):
        assert published_flops_per_token(read(name), 8192) == training_flops_per_token(read(name), 8192)
