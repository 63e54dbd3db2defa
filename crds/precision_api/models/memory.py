"""Memory of one GPU that trains a model, by recipe: what the agent, the planner and `dry-run` reckon with.

Bytes follow from the model's dimensions, the split and the recipe. Per weight: BF16 weight 2, gradient 2 or 4, FP32
master weight and Adam's two moments 12, the last spread over the optimizer's shards (routed experts' over fewer,
`sharded_weights`): 16 or 18 bytes, 4 or 6 + 12 / shards (Megatron Core's docs, "Distributed Optimizer"; Megatron-LM
theoretical_memory_usage.py has 18 and 6 + 12 / shards). Activations are what a layer's modules keep for the backward
pass (Korthikanti et al., arXiv 2205.05198, table 2, counted module by module: without dropout, attention fused unless
told otherwise), the operands of a GEMM in the recipe's format. Pure.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal, cast

from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPES, PlainRecipe, Recipe
from precision_api.models.flops import experts_of_one_gpu, sharded_weights, weights_of_one_gpu
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split, attention_projections
from precision_api.models.workload import ResolvedWorkload

WEIGHT_BYTES = 2
OPTIMIZER_BYTES = 12
"""FP32 master weight, Adam's two moments."""
BF16_GRADIENT_BYTES, FP32_GRADIENT_BYTES = 2, 4
"""FP32 where weight gradients accumulate in `main_grad`, as Megatron does it."""
MOST_STATE_SHARE = 0.8
"""Of a GPU's memory, for weights, gradients and optimizer: published trainings reach 0.79 (Nemotron-H 56B on 32 H100)
and 0.61 at 405B. Above it nobody was seen to train."""
FORMULA = "modules_and_state/3"
"""Name and version: every result that has a figure by it names it."""
LOSS_BYTES = 14
"""For each token and row of the vocabulary, at the fullest moment of torch's cross entropy on FP32 logits: BF16 logits
2, their logarithmic softmax 4, its gradient and the loss's 4 each."""

_PROBABILITY_BYTES = 2
"""Of each pair of tokens in a sequence and head, in BF16 with every recipe; their gradient takes as much."""

_DIRECTIONS = 2
"""A weight is kept quantised for the forward and for the backward pass: scaled by blocks, the two differ; FP8 with one
scale needs a transposed copy on Hopper, none on Blackwell, which is not told apart here."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """What of a model is on the GPU: `layers` of it (None: all), with or without the rest."""

    layers: int | None = None
    head: bool = True
    embedding: bool = True
    optimizer: bool = True


FULL = ModelPart()
"""The whole model."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes of one GPU at the fullest moment of a micro batch.

    `quantized_weights`: what a recipe keeps beside the BF16 weights over the micro batches of a step. `activations`:
    what the layers keep for the backward pass. `peak_beside`: what the loss, or one layer's backward pass, needs for a
    moment, whichever is more. Workspaces of libraries, the CUDA context and fragmentation are not counted.
    """

    weights: int
    gradients: int
    optimizer: int
    quantized_weights: int
    activations: int
    peak_beside: int

    @property
    def state(self) -> int:
        """What stays from step to step in every recipe: weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        return self.state + self.quantized_weights + self.activations + self.peak_beside


def training_memory(
    workload: ResolvedWorkload,
    recipe: Recipe | Parts,
    *,
    optimizer_shards: int | None = None,
    gradient_bytes: int = FP32_GRADIENT_BYTES,
    primary_weights: bool = False,
    layers_bf16: int = 0,
    fused_attention: bool = True,
    part: ModelPart = FULL,
) -> TrainingMemory:
    """The memory of one GPU of a job that trains `workload` in `recipe`.

    Tensor and expert parallelism, micro batch and recomputation are the workload's, and so are `optimizer_shards` where
    they are left out. The tokens of a tensor-parallel group are on each of its GPUs (no sequence parallelism), and
    there is no pipeline. Whole layers stay in BF16, `layers_bf16` of them. `primary_weights`: the others' weights are
    held in their recipe alone. Attention that is not fused keeps its probabilities. ValueError for bare shapes.
    """
    model, plain, tokens = workload.model, workload.workload, workload.tokens_per_micro_batch
    if model is None or tokens is None:
        raise ValueError("bare shapes are no model: nothing is known of its memory")
    return memory_of(
        model,
        tokens,
        Split(plain.tensor_parallel, plain.expert_parallel),
        recipe,
        optimizer_shards=plain.optimizer_shards if optimizer_shards is None else optimizer_shards,
        gradient_bytes=gradient_bytes,
        primary_weights=primary_weights,
        layers_bf16=layers_bf16,
        recompute=plain.recompute,
        unfused_sequence=0 if fused_attention else plain.sequence_length or 0,
        part=part,
    )


def memory_of(
    model: ModelSpec,
    tokens: int,
    split: Split,
    recipe: Recipe | Parts,
    *,
    optimizer_shards: int = 1,
    gradient_bytes: int = FP32_GRADIENT_BYTES,
    primary_weights: bool = False,
    layers_bf16: int = 0,
    recompute: Literal["None", "Full"] = "None",
    unfused_sequence: int = 0,
    part: ModelPart = FULL,
) -> TrainingMemory:
    """The same for a model by itself, with `tokens` in a micro batch. `unfused_sequence`: tokens of a sequence where
    attention is not fused, else 0."""
    layers = model.num_hidden_layers if part.layers is None else part.layers
    parts = recipe if isinstance(recipe, Parts) else Parts.of(cast(PlainRecipe, recipe))
    weights = _weights(model, layers, split, part)
    of_optimizer = sharded_weights(weights, experts_of_one_gpu(model, layers, split), split, optimizer_shards)
    probabilities = _PROBABILITY_BYTES * model.num_attention_heads / split.tensor * unfused_sequence
    unfused = probabilities * model.attention_layers / model.num_hidden_layers
    a_layer = _kept_by_mixers(model, split, parts) + _kept_by_mlp(model, split, parts.mlp) + unfused
    if unfused and parts.attention_out != "bf16":  # then nothing keeps attention's output itself
        a_layer -= 2 * model.attention_width / split.tensor * model.attention_layers / model.num_hidden_layers
    higher = _kept_by_mixers(model, split, Parts.of("bf16")) + _kept_by_mlp(model, split, "bf16") + unfused
    entered = 2 * model.hidden_size  # all that a layer keeps that is computed again, but for the one at hand
    whole = (layers - layers_bf16) * a_layer + layers_bf16 * higher
    kept = layers * entered + max(a_layer, higher if layers_bf16 else 0) - entered
    low = {part: count for part, count in _layer_weights(model, split).items() if getattr(parts, part) != "bf16"}
    quantized = sum(_DIRECTIONS * RECIPES[getattr(parts, part)].operand_bytes * count for part, count in low.items())
    held = quantized - WEIGHT_BYTES * sum(low.values()) if primary_weights else 0
    head = LOSS_BYTES * (model.vocab_size or 0) / split.tensor if part.head else 0
    return TrainingMemory(
        weights=WEIGHT_BYTES * weights + round((layers - layers_bf16) * held),
        gradients=gradient_bytes * weights,
        optimizer=ceil(OPTIMIZER_BYTES * of_optimizer) if part.optimizer else 0,
        quantized_weights=0 if primary_weights else round((layers - layers_bf16) * quantized),
        activations=round(tokens * (kept if recompute == "Full" else whole)),
        peak_beside=round(tokens * max(head, _backward(model, split), probabilities)),
    )


def too_large(memory: TrainingMemory, hbm_bytes: int) -> str | None:
    """Why no such job is to be planned on GPUs of `hbm_bytes`, with what would help; None where its state fits."""
    share = memory.state / hbm_bytes
    if share <= MOST_STATE_SHARE:
        return None
    return (
        f"weights, gradients and optimizer take {memory.state / 1e9:,.0f} GB of a GPU's {hbm_bytes / 1e9:,.0f} GB "
        f"({share:.0%}; no published training has more than {MOST_STATE_SHARE:.0%}): raise optimizerShards (the GPUs "
        "that share the optimizer), tensorParallel or expertParallel"
    )


def _weights(model: ModelSpec, layers: int, split: Split, part: ModelPart) -> int:
    """Weights on one GPU; an embedding that is the head's is there once."""
    weights = weights_of_one_gpu(model, layers, split)
    table = -(-(model.vocab_size or 0) * model.hidden_size // split.tensor)
    if not part.head and not (part.embedding and model.tied_embedding):
        weights -= table
    if part.embedding:
        weights += (0 if model.tied_embedding else table) + model.learned_positions * model.hidden_size
    return weights


def _kept_by_mixers(model: ModelSpec, split: Split, parts: Parts) -> float:
    """Bytes for each token, mean of the model's layers: of attention, and of Mamba-2's projections. What the scan keeps
    is not known and not in it: no training figure is made of such a model."""
    kept = model.attention_layers * _kept_by_attention(model, split, parts)
    if model.hybrid is not None:
        inner = model.hybrid.inner_width / split.tensor
        outputs = 2 * (inner + model.hybrid.convolved_width / split.tensor + model.hybrid.mamba_heads / split.tensor)
        operands = (
            RECIPES[parts.mamba].operand_bytes * model.hidden_size + RECIPES[parts.mamba_out].operand_bytes * inner
        )
        kept += model.mamba_layers * (2 * model.hidden_size + operands + outputs)
    return kept / model.num_hidden_layers


def _kept_by_attention(model: ModelSpec, split: Split, parts: Parts) -> float:
    """Bytes for each token: the layer's input, the norm's output as an operand, queries, keys and values, attention's
    output, and the same as an operand where that is another format. Of latent attention also its ranks, before and
    after their norms, and queries and keys put together with their rotary parts."""
    width, quantized = model.attention_width / split.tensor, RECIPES[parts.attention].operand_bytes
    own_copy = 0 if parts.attention_out == "bf16" else RECIPES[parts.attention_out].operand_bytes * width
    latent = model.latent_attention
    ranks = (latent.query_rank or 0) + latent.key_value_rank if latent else 0
    together = 2 * 2 * model.query_width / split.tensor if latent else 0
    inputs = 2 * model.hidden_size + quantized * (model.hidden_size + ranks)
    projected = sum(projection.n for projection in attention_projections(model, split.tensor)[:-1])  # not the output's
    return inputs + 2 * projected + together + 2 * width + own_copy


def _kept_by_mlp(model: ModelSpec, split: Split, recipe: Recipe) -> float:
    """Bytes for each token, mean of the model's layers: the MLP's input, the norm's output as an operand, the first
    GEMM's output, the activation's output as an operand. A token passes as many experts as the router chooses; each of
    them has its own copy of the token, and what it gives is kept for the gradient of the router's weight. The router
    keeps the norm's output in BF16: in BF16 that is a shared expert's operand, too. A dense layer's LayerNormMLP keeps
    the quantised output of its norm in both directions, and that of its activation where scales are of blocks."""
    row, inner = RECIPES[recipe], model.intermediate_size / split.tensor
    again = {"bf16": 0, "fp8": model.hidden_size}.get(row.kernels, model.hidden_size + inner) * row.operand_bytes
    kept = model.dense_layers * (_kept_by_expert(model, inner, recipe) + again)
    if model.moe is not None:
        inner, width = model.expert_width / split.tensor, model.expert_input_width
        routed = model.moe.top_k * (_kept_by_expert(model, inner, recipe, width) + 2 * width)
        if model.moe.latent_size:  # what enters and leaves the routed experts
            routed += RECIPES[recipe].operand_bytes * (model.hidden_size + width) + 2 * 2 * width
        shared = model.moe.shared_expert_intermediate_size
        everywhere = _kept_by_expert(model, shared / split.tensor, recipe) if shared else 0
        same = recipe == "bf16" and bool(shared or model.moe.latent_size)
        router = 4 * model.moe.num_experts + (0 if same else 2 * model.hidden_size)
        kept += model.moe_layers * (routed + everywhere + router)
    return 2 * model.hidden_size + kept / model.num_hidden_layers


def _kept_by_expert(model: ModelSpec, inner: float, recipe: Recipe, width: int | None = None) -> float:
    gates = 2 if model.gated_mlp else 1
    return RECIPES[recipe].operand_bytes * ((width or model.hidden_size) + inner) + 2 * gates * inner


def _layer_weights(model: ModelSpec, split: Split) -> dict[str, float]:
    """Weights of a layer's matrices by part, mean of the model's layers."""
    *into, out = [gemm.k * gemm.n for gemm in attention_projections(model, split.tensor)]
    mamba, mamba_out = 0, 0
    if model.hybrid is not None:
        features = model.hybrid.inner_width + model.hybrid.convolved_width + model.hybrid.mamba_heads
        mamba = model.mamba_layers * model.hidden_size * features // split.tensor
        mamba_out = model.mamba_layers * model.hidden_size * model.hybrid.inner_width // split.tensor
    per_inner = (3 if model.gated_mlp else 2) * model.hidden_size / split.tensor
    inner, latent = float(model.dense_layers * model.intermediate_size), 0
    if model.moe is not None:
        narrower = model.expert_input_width / model.hidden_size
        routed = narrower * model.moe.num_experts * model.expert_width / split.expert
        inner += model.moe_layers * (routed + model.moe.shared_expert_intermediate_size)
        latent = model.moe_layers * 2 * model.hidden_size * (model.moe.latent_size or 0)
    by_part = {
        "attention": model.attention_layers * sum(into),
        "attention_out": model.attention_layers * out,
        "mlp": per_inner * inner + latent,
        "mamba": mamba,
        "mamba_out": mamba_out,
    }
    return {part: weights / model.num_hidden_layers for part, weights in by_part.items()}


def _backward(model: ModelSpec, split: Split) -> float:
    """Bytes for each token that the last layer's backward pass needs beside what is kept: gradients of the MLP's inner
    tensors and of its input and output, in BF16."""
    gates = 2 if model.gated_mlp else 1
    return 2 * ((gates + 1) * model.intermediate_size / split.tensor + 2 * model.hidden_size)
