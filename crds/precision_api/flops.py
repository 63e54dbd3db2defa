"""Parameters of a model and the FLOPs that training spends on one token.

Both follow from the model's dimensions alone. Parameters agree with model cards to the last one; what published totals
sometimes add (rotary buffers of Llama 2, an untied head where the config class ties it, as Falcon 7B) is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from precision_api.shapes import WHOLE, Split
from precision_api.workload import ModelSpec


@dataclass(frozen=True, slots=True)
class Formula:
    """How a number of FLOPs was reached: every result that has one names it."""

    name: str
    version: int
    text: str


TRAINING_FLOPS = Formula(
    name="active_parameters_and_attention",
    version=1,
    text="6 (N - V h) + 12 heads headDim sum over layers of c; N: active parameters; V h: the embedding, subtracted "
    "only where the head has weights of its own; c: s/2 with a causal mask, s without, w - w^2/2s in layers with a "
    "window w < s",
)
"""The convention of Megatron-Bridge's published rates, which it reproduces within 0.24 %."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Weights of the whole model. `active`: those that one token meets. Without a vocabulary there is no embedding."""

    total: int
    active: int
    embedding: int
    """Weights of the embedding table alone (V h); 0 where no vocabulary was given."""

    @property
    def with_embedding(self) -> bool:
        """Whether embedding and head are in the counts."""
        return self.embedding > 0


def parameters(model: ModelSpec) -> Parameters:
    """Total and active parameters of `model`."""
    embedding = (model.vocab_size or 0) * model.hidden_size
    outside = embedding * (1 if model.tied_embedding else 2) + model.learned_positions * model.hidden_size
    attention = _attention(model) + model.norms_per_layer * _norm(model)
    dense_layers = model.num_hidden_layers - model.moe_layers
    everywhere = outside + _norm(model) + model.num_hidden_layers * attention + dense_layers * _dense_mlp(model)
    total = everywhere + model.moe_layers * _moe_mlp(model, model.moe.num_experts if model.moe else 0)
    active = everywhere + model.moe_layers * _moe_mlp(model, model.moe.top_k if model.moe else 0)
    return Parameters(total=total, active=active, embedding=embedding)


def weights_of_one_gpu(model: ModelSpec, layers: int, split: Split = WHOLE) -> int:
    """Weights that one GPU holds of `layers` (from the model's mix of layers), the last norm, and the head.

    What an optimizer step works through there. Matrices are divided by tensor parallelism and experts by expert
    parallelism too; norms and routers are on every GPU. The embedding's table is left out: its lookup is no part of the
    timed regions; a head that shares it is counted once.
    """
    dense, moe = model.num_hidden_layers - model.moe_layers, model.moe
    attention = _divided(_attention(model), split.tensor) + model.norms_per_layer * _norm(model)
    mlp = dense * _divided(_dense_mlp(model), split.tensor)
    if moe is not None:
        experts = moe.num_experts * _mlp(model, model.expert_width)
        everywhere = _moe_mlp(model, 0)
        mlp += model.moe_layers * (_divided(experts, split.tensor * split.expert) + everywhere)
    head = _divided((model.vocab_size or 0) * model.hidden_size, split.tensor)
    return round(Fraction(layers * mlp, model.num_hidden_layers)) + layers * attention + _norm(model) + head


def _divided(weights: int, parts: int) -> int:
    return -(-weights // parts)


def training_flops_per_token(model: ModelSpec, sequence_length: int) -> int:
    """FLOPs of forward and backward for one token in a sequence of `sequence_length`, by `TRAINING_FLOPS`.

    A multiply-add is two FLOPs and the backward pass costs twice the forward one: 6 for each weight. Attention costs
    4 x width x context forward (scores, then values). With a tied embedding nothing is subtracted: the head's GEMM is
    real work. Recomputation is not counted.
    """
    counted = parameters(model)
    lookup_only = 0 if model.tied_embedding else counted.embedding
    return round(6 * (counted.active - lookup_only) + 12 * model.attention_width * _contexts(model, sequence_length))


def _contexts(model: ModelSpec, sequence: int) -> Fraction:
    # Mean number of tokens attended to, summed over layers.
    full = Fraction(sequence, 2) if model.causal else Fraction(sequence)
    window = model.sliding_window
    if window is None or window.size >= sequence:
        return model.num_hidden_layers * full
    windowed = window.size - Fraction(window.size**2, 2 * sequence)
    return window.windowed_layers * windowed + (model.num_hidden_layers - window.windowed_layers) * full


def _norm(model: ModelSpec) -> int:
    return model.hidden_size * (2 if model.norm_bias else 1)


def _attention(model: ModelSpec) -> int:
    query, key = model.attention_width, model.kv_heads * model.head_width
    weights = model.hidden_size * (query + 2 * key) + query * model.hidden_size
    biases = model.qkv_bias * (query + 2 * key) + model.out_bias * model.hidden_size
    return weights + biases + {"None": 0, "PerHead": 2 * model.head_width, "Full": query + key}[model.qk_norm]


def _dense_mlp(model: ModelSpec) -> int:
    bias = (1 + model.gated_mlp) * model.intermediate_size + model.hidden_size
    return _mlp(model, model.intermediate_size) + model.mlp_bias * bias


def _moe_mlp(model: ModelSpec, experts: int) -> int:
    # `experts` of a layer's experts, with the router and the shared expert, which every token meets.
    if model.moe is None:
        return 0
    shared = _mlp(model, model.moe.shared_expert_intermediate_size) + model.moe.shared_expert_gate * model.hidden_size
    return experts * _mlp(model, model.expert_width) + shared + model.hidden_size * model.moe.num_experts


def _mlp(model: ModelSpec, inner: int) -> int:
    return (3 if model.gated_mlp else 2) * model.hidden_size * inner
