"""The full model's memory is told only where its formula fits what the short model took."""

from typing import Any

import pytest

from precision_agent.method.model_memory import model_memory
from precision_agent.protocol import Sample
from precision_api.exchange.result import Memory, ModelMemory
from precision_api.facts.recipes import Recipe
from precision_api.models.memory import training_memory
from precision_api.models.shapes import Shape
from precision_api.models.workload import Workload, resolve
from tests.support.golden import beside

TABLES = beside(__file__)

LLAMA = resolve(Workload(preset="llama3-8b", micro_batch_size=64, sequence_length=128))
REGIONS: Any = {"layers_forward": 1.0, "head": 1.0, "layers_backward": 1.0, "optimizer": 1.0}
STATE = 15_552_874_496
REHEARSED: dict[Recipe, Memory] = {
    recipe: Memory(
        state_bytes=STATE, activation_bytes=kept, allocated_peak_bytes=STATE + beside, gradient_bytes=2
    )
    for recipe, kept, beside in (
        ("bf16", 2_483_159_040, 17_662_346_752),
        ("fp8_current", 2_114_064_384, 18_098_562_048),
        ("mxfp8", 2_373_582_848, 18_405_786_112),
        ("nvfp4", 2_027_034_624, 17_633_918_464),
    )
}  # fmt: skip
"""Two layers of Llama 3 8B with head and optimizer, 64 sequences of 128 tokens: what the real Transformer Engine 2.20.2
allocated in a rehearsal (docs/development/rehearsal.md), BF16 gradients; MXFP8 and NVFP4 at compute capability 10.0."""


def sample(layers: int | None = 2, **regions: float | None) -> Sample:
    left = {name: spent for name, spent in (REGIONS | regions).items() if spent is not None}
    return Sample(1.0, 1, 0.0, 1.0, left, layers)


def told(recipe: Recipe = "bf16", ran: Sample | None = None, **changes: Any) -> ModelMemory:
    measured = REHEARSED[recipe].model_copy(update=changes)
    found = model_memory(recipe, LLAMA, measured, ran or sample(), fused_attention=False)
    assert found is not None
    return found


@pytest.mark.parametrize("recipe", REHEARSED)
def test_the_formula_fits_what_transformer_engine_allocates(recipe: Recipe) -> None:
    found = told(recipe)
    assert found.failure is None
    assert found.agreement["state"] == pytest.approx(1, abs=0.005)
    assert found.agreement["activations"] == pytest.approx(1.032, abs=0.005)
    assert found.agreement["peak"] == pytest.approx(1, abs=0.01)
    full = training_memory(LLAMA, recipe, gradient_bytes=2, fused_attention=False)
    assert (found.bytes, found.state_bytes) == (full.total, full.state)
    assert (found.bytes or 0) > 5 * (REHEARSED[recipe].allocated_peak_bytes or 0)


@pytest.mark.parametrize(
    ("recipe", "kept", "peak"),
    TABLES["layers"],
)
def test_the_formula_fits_a_layer_with_experts_if_unfused_attentions_probabilities_are_counted(
    recipe: Recipe, kept: int, peak: int
) -> None:
    """One layer of Qwen3-30B-A3B with head and optimizer, one sequence of 4,096 tokens, at compute capability 9.0.

    Recorded while the router still kept FP32 copies of its tokens and of its weight. It now keeps the tokens in BF16:
    the difference, 1 % of the activations, is taken off by arithmetic and was not recorded anew.
    """
    kept -= 4096 * 2048 * (4 - 2) + 128 * 2048 * 4
    workload, ran = resolve(Workload(preset="qwen3-30b-a3b")), sample(layers=1)
    measured = Memory(state_bytes=16_893_730_304, activation_bytes=kept, allocated_peak_bytes=peak, gradient_bytes=4)
    found = model_memory(recipe, workload, measured, ran, fused_attention=False)
    assert found.failure is None
    for name, (ratio, tolerance) in {"state": (1, 0.005), "activations": (1.041, 0.003), "peak": (1, 0.015)}.items():
        assert found.agreement[name] == pytest.approx(ratio, abs=tolerance)
    assert "activations" in model_memory(recipe, workload, measured, ran).failure.message


def test_probabilities_are_of_heads_and_tokens_and_without_training_there_is_no_figure() -> None:
    for recompute, layers in (("None", 32), ("Full", 1)):
        plain = Workload(preset="llama3-8b", micro_batch_size=2, sequence_length=256, recompute=recompute)  # type: ignore[arg-type]
        fused, unfused = (training_memory(resolve(plain), "mxfp8", fused_attention=one) for one in (True, False))
        probabilities, output = 2 * 32 * 2 * 256 * 256, 2 * 4096 * 2 * 256  # which is kept in MXFP8 alone
        assert unfused.activations - fused.activations == layers * (probabilities - output)
        assert unfused.state == fused.state
    assert model_memory("bf16", LLAMA, REHEARSED["bf16"], None).failure.reason == "not_trained"
    shapes = resolve(Workload(name="shapes", shapes=(Shape(m=64, k=64, n=64),)))
    assert model_memory("bf16", shapes, Memory(), None) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    TABLES["short_models"],
)
def test_a_short_model_that_took_something_else_leaves_no_figure(changes: dict[str, int], named: str) -> None:
    found = told(**changes)
    assert (found.bytes, found.failure and found.failure.reason) == (None, "formula_disagrees")
    assert named in found.failure.message


def test_what_the_short_model_lacked_is_left_out_and_fp32_gradients_take_more() -> None:
    head = 128_256 * 4096 * 16
    found = told(ran=sample(head=None), state_bytes=STATE - head, allocated_peak_bytes=STATE - head + 3_000_000_000)
    assert found.bytes == told().bytes
    short = 961_560_576 * 2
    found = told(state_bytes=STATE + short, allocated_peak_bytes=STATE + short + 17_662_346_752, gradient_bytes=4)
    assert (found.bytes or 0) - (told().bytes or 0) == 2 * LLAMA.parameters.total


@pytest.mark.parametrize("lacking", ["state_bytes", "activation_bytes", "allocated_peak_bytes", "gradient_bytes"])
def test_a_backend_that_does_not_tell_the_parts_has_no_figure(lacking: str) -> None:
    found = told(**{lacking: None})
    assert (found.bytes, found.failure and found.failure.reason) == (None, "not_told")
