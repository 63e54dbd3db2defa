"""What the formula of `precision_api.models.memory` says of the short model, as the agent runs it. Pure."""

from dataclasses import dataclass, replace

from precision_api.exchange.result import RecipeScope
from precision_api.facts.recipes import Recipe
from precision_api.models.memory import ModelPart, training_memory
from precision_api.models.workload import ResolvedWorkload

DATA_TENSORS, STEP_TENSORS = 2, 9
"""Tensors of tokens x hidden in BF16 that the short model has and a full one has not: its data, and with them what
passes between the regions of two kinds of micro batches."""
TENSOR_BYTES = 2


@dataclass(frozen=True, slots=True)
class ShortMemory:
    """Bytes of the short model: before its first step, of one forward pass's activations, and at its fullest moment."""

    state: int
    activations: int
    peak: int


def short_memory(
    workload: ResolvedWorkload,
    recipe: Recipe,
    part: ModelPart,
    gradient_bytes: int,
    scope: RecipeScope = "all",
    *,
    fused_attention: bool = True,
) -> ShortMemory:
    """The prediction for `part` of the model, with a whole optimizer; nothing is recomputed there. ValueError for bare
    shapes."""
    plain = workload.workload.model_copy(update={"recompute": "None"})
    memory = training_memory(
        replace(workload, workload=plain), recipe, optimizer_shards=1, gradient_bytes=gradient_bytes, scope=scope,
        fused_attention=fused_attention, part=part,
    )  # fmt: skip
    assert workload.model is not None
    assert workload.tokens_per_micro_batch is not None
    tensor = TENSOR_BYTES * workload.model.hidden_size * workload.tokens_per_micro_batch
    return ShortMemory(memory.state + DATA_TENSORS * tensor, memory.activations, memory.total + STEP_TENSORS * tensor)
