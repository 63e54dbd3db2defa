"""What a formula says of one GPU's memory: of the short model, as the agent runs it, and of the full one. Pure.

Memory of one GPU that trains the full model stands where the formula, that of `precision_api.models.memory`, fits what
the short model took.
"""

from dataclasses import dataclass, replace
from typing import Any

from precision_agent.protocol import Sample
from precision_api.exchange.result import Failure, Memory, ModelMemory
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import Recipe
from precision_api.models.memory import FORMULA, ModelPart, training_memory
from precision_api.models.room import short_model
from precision_api.models.workload import ResolvedWorkload

DATA_TENSORS, STEP_TENSORS = 2, 9
"""Tensors of tokens x hidden in BF16 that the short model has and a full one has not: its data, and with them what
passes between the regions of two kinds of micro batches."""
TENSOR_BYTES = 2
TOLERANCES = {"state": 0.05, "activations": 0.2, "peak": 0.1}
"""Measured over predicted bytes of the short model may be so far from 1. Transformer Engine 2.20.2, whose allocations a
rehearsal sees, is within 0.3 % for the state, 0 to 12 % above in activations (attention not fused, Llama 3 8B and
Qwen3-30B-A3B) and within 1.1 % in the peak; what cuDNN's attention and other versions keep was not seen yet. Above it
the full model's figure would be off by as much."""


@dataclass(frozen=True, slots=True)
class ShortMemory:
    """Bytes of the short model: before its first step, of one forward pass's activations, and at its fullest moment."""

    state: int
    activations: int
    peak: int


def short_memory(
    workload: ResolvedWorkload,
    recipe: Recipe | Parts,
    part: ModelPart,
    gradient_bytes: int,
    *,
    primary_weights: bool = False,
    fused_attention: bool = True,
) -> ShortMemory:
    """The prediction for `part` of the model, with a whole optimizer; nothing is recomputed there. ValueError for bare
    shapes."""
    plain = workload.workload.model_copy(update={"recompute": "None"})
    memory = training_memory(
        replace(workload, workload=plain), recipe, optimizer_shards=1, gradient_bytes=gradient_bytes,
        primary_weights=primary_weights, fused_attention=fused_attention, part=part,
    )  # fmt: skip
    assert workload.model is not None
    assert workload.tokens_per_micro_batch is not None
    tensor = TENSOR_BYTES * workload.model.hidden_size * workload.tokens_per_micro_batch
    return ShortMemory(memory.state + DATA_TENSORS * tensor, memory.activations, memory.total + STEP_TENSORS * tensor)


def model_memory(
    parts: Parts,
    workload: ResolvedWorkload,
    measured: Memory,
    ran: Sample | None,
    *,
    primary_weights: bool = False,
    layers_bf16: int = 0,
    fused_attention: bool = True,
) -> ModelMemory | None:
    """The full model's memory with these recipes; None for bare shapes, which are no model.

    `measured` is what the short model took, `ran` a sample of its step, which tells how much of the model it was. Where
    its attention was not fused, the full model's is not, either.
    """
    if workload.model is None:
        return None
    if ran is None or not ran.layers_measured:
        return _none("not_trained", "no short model of it was trained, so nothing shows that the estimate fits")
    gradient = measured.gradient_bytes
    taken = (measured.state_bytes, measured.activation_bytes, measured.allocated_peak_bytes)
    if gradient is None or None in taken:
        return _none("not_told", "this backend does not report the memory of the short model alone")
    ran_layers, regions = ran.layers_measured + ran.dense_measured, ran.regions
    part = ModelPart(ran_layers, "head" in regions, embedding=False, optimizer="optimizer" in regions)
    short = replace(workload, model=short_model(workload.model, ran.layers_measured, ran.dense_measured))
    held: dict[str, Any] = {"primary_weights": primary_weights, "fused_attention": fused_attention}
    predicted = short_memory(short, parts, part, gradient, **held)
    agreement = _agreement(measured, predicted)
    apart = [f"{name} {ratio:.2f}" for name, ratio in agreement.items() if abs(ratio - 1) > TOLERANCES[name]]
    if apart:
        message = (
            f"measured over predicted bytes of the short model: {', '.join(apart)}: the full one's would be as far off"
        )
        return _none("formula_disagrees", message, agreement)
    full = training_memory(workload, parts, gradient_bytes=gradient, layers_bf16=layers_bf16, **held)
    return ModelMemory(bytes=full.total, state_bytes=full.state, formula=FORMULA, agreement=agreement)


def _none(reason: str, message: str, agreement: dict[str, float] | None = None) -> ModelMemory:
    return ModelMemory(agreement=agreement or {}, failure=Failure(reason=reason, message=message))


def _agreement(measured: Memory, short: ShortMemory) -> dict[str, float]:
    """Measured over predicted bytes."""
    pairs = {
        "state": (measured.state_bytes, short.state),
        "activations": (measured.activation_bytes, short.activations),
        "peak": (measured.allocated_peak_bytes, short.peak),
    }
    return {name: round((took or 0) / predicted, 4) for name, (took, predicted) in pairs.items()}
