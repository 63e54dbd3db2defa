"""Parameters and training FLOPs per token, against published rates and against the GEMMs themselves."""

import json
from pathlib import Path

import pytest

from precision_api.models.flops import TRAINING_FLOPS, parameters, training_flops_per_token
from precision_api.models.model import ModelSpec, MoE, SlidingWindow
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.shapes import model_gemms

GOLDEN = Path(__file__).parent.parent / "golden" / "megatron_bridge.json"
ROWS = [tuple(row) for row in json.loads(GOLDEN.read_text())["rows"]]


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


@pytest.mark.parametrize("preset", ["llama3-8b", "codonfm-5b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma2-9b"])
def test_the_gemms_do_the_work_that_the_formula_counts(preset: PresetName) -> None:
    """Norms, routers and biases, which are no GEMMs of ours, are below half a per cent."""
    row, tokens = PRESETS[preset], 8192
    work = sum(gemm.count * gemm.flops for gemm in model_gemms(row.model, tokens)) / tokens
    attention = training_flops_per_token(row.model, 8192) - training_flops_per_token(row.model, 1)
    assert work == pytest.approx(training_flops_per_token(row.model, 8192) - attention, rel=0.005)
