"""Parameters of a model and the FLOPs that training spends on one token.

Both follow from the model's dimensions alone. Parameters agree with model cards to the last one; what published totals
sometimes add (rotary buffers of Llama 2, an untied head where the config class ties it, as Falcon 7B) is not counted.
"""

from dataclasses import dataclass
from fractions import Fraction

from precision_api.models.model import ModelSpec
from precision_api.models.shapes import WHOLE, Split, attention_projections


@dataclass(frozen=True, slots=True)
class Formula:
    """How a number of FLOPs was reached: every result that has one names it."""

    name: str
    version: int
    text: str


TRAINING_FLOPS = Formula(
    name="active_parameters_and_attention",
    version=1,
    text="6 (N - V h) + 6 heads (headDim of keys + of values) sum over layers of c + 21 d n for each Mamba-2 mixer of "
    "width d and state n; N: active parameters; V h: the embedding, subtracted "
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
    active_without_embedding: int
    """Active weights without a table that is only looked up: what OpenAI's and NVIDIA's cards call active. Cards of
    DeepSeek, Moonshot, Qwen and Meta count the table. One that is the head's too is in here, since the head is work."""


def parameters(model: ModelSpec) -> Parameters:
    """Total and active parameters of `model`."""
    embedding = (model.vocab_size or 0) * model.hidden_size
    outside = embedding * (1 if model.tied_embedding else 2) + model.learned_positions * model.hidden_size
    norms = (1 + model.num_hidden_layers * model.norms_per_layer) * _norm(model)
    mixers = model.attention_layers * _attention(model) + model.mamba_layers * _mamba(model)
    everywhere = outside + norms + mixers + model.dense_layers * _dense_mlp(model)
    total = everywhere + model.moe_layers * _moe_mlp(model, model.moe.num_experts if model.moe else 0)
    active = everywhere + model.moe_layers * _moe_mlp(model, model.moe.top_k if model.moe else 0)
    lookup_only = 0 if model.tied_embedding else embedding
    return Parameters(total, active, embedding, active_without_embedding=active - lookup_only)


def weights_of_one_gpu(model: ModelSpec, layers: int, split: Split = WHOLE) -> int:
    """Weights that one GPU holds of `layers` (from the model's mix of layers), the last norm, and the head.

    What an optimizer step works through there. Matrices, a shared expert's too, are divided by tensor parallelism and
    routed experts by expert parallelism as well; norms, routers and latents' projections are on every GPU. The
    embedding's table is left out: its lookup is no part of the timed regions; a head that shares it is counted once.
    """
    moe = model.moe
    matrices = _attention(model) if model.latent_attention is None else _latent_share(model, split.tensor)
    attention, norms = _divided(matrices, split.tensor), layers * model.norms_per_layer * _norm(model)
    rest = model.dense_layers * _divided(_dense_mlp(model), split.tensor)
    if moe is not None:
        shared = _mlp(model, moe.shared_expert_intermediate_size)
        whole = _moe_mlp(model, 0) - shared
        rest += model.moe_layers * (_experts_of_one_gpu(model, split) + _divided(shared, split.tensor) + whole)
    head = _divided((model.vocab_size or 0) * model.hidden_size, split.tensor)
    rest += model.attention_layers * attention + model.mamba_layers * _divided(_mamba(model), split.tensor)
    return round(Fraction(layers * rest, model.num_hidden_layers)) + norms + _norm(model) + head


def experts_of_one_gpu(model: ModelSpec, layers: int, split: Split = WHOLE) -> int:
    """Those of `weights_of_one_gpu` that are routed experts'; 0 without experts."""
    return round(Fraction(layers * model.moe_layers * _experts_of_one_gpu(model, split), model.num_hidden_layers))


def sharded_weights(weights: int, experts: int, split: Split, shards: int) -> Fraction:
    """Of a GPU's `weights`, those whose optimizer state it holds where `shards` GPUs share the optimizer.

    `shards` are the data-parallel GPUs of the dense part. Spread over `split.expert` of these, the `experts` among the
    weights have copies on shards / split.expert GPUs only, which share their state (Megatron Core, "Distributed
    Optimizer": expert parameters have data-parallel groups of their own).
    """
    return Fraction(weights - experts, shards) + Fraction(experts, max(1, shards // split.expert))


def _experts_of_one_gpu(model: ModelSpec, split: Split) -> int:
    """Weights of one layer's routed experts on one GPU."""
    experts = model.moe.num_experts if model.moe else 0
    return _divided(experts * _expert(model), split.tensor * split.expert)


def _latent_share(model: ModelSpec, parts: int) -> int:
    """`parts` times what one GPU holds of latent attention: its projections down to the ranks are whole on each."""
    whole, share = (sum(matrix.k * matrix.n for matrix in attention_projections(model, count)) for count in (1, parts))
    return parts * (share + _attention(model) - whole)


def _divided(weights: int, parts: int) -> int:
    return -(-weights // parts)


def training_flops_per_token(model: ModelSpec, sequence_length: int) -> int:
    """FLOPs of forward and backward for one token in a sequence of `sequence_length`, by `TRAINING_FLOPS`.

    A multiply-add is two FLOPs and the backward pass costs twice the forward one: 6 for each weight. Attention costs
    4 x width x context forward (scores, then values). With a tied embedding nothing is subtracted: the head's GEMM is
    real work. Recomputation is not counted.
    """
    core = (model.query_width + model.attention_width) * _contexts(model, sequence_length)
    scan = model.mamba_layers * scan_multiply_adds(model)
    return round(6 * (parameters(model).active_without_embedding + core + scan))


def published_flops_per_token(model: ModelSpec, sequence_length: int) -> int:
    """The same as NVIDIA's published TFLOP/s take it: Megatron-Bridge's flop_utils.py counts every mixer as if it were
    twice hiddenSize wide. Other than `training_flops_per_token` only where a mixer has another width (Nemotron 3 Nano:
    4,096 at hiddenSize 2,688, which the exact number of parameters confirms)."""
    ours, hybrid, hidden = training_flops_per_token(model, sequence_length), model.hybrid, model.hidden_size
    if hybrid is None:
        return ours
    wider = 2 * hidden - hybrid.inner_width
    return ours + round(6 * model.mamba_layers * wider * (3 * hidden + Fraction(7, 2) * hybrid.state_size))


def _contexts(model: ModelSpec, sequence: int) -> Fraction:
    # Mean number of tokens attended to, summed over layers.
    full = Fraction(sequence, 2) if model.causal else Fraction(sequence)
    window = model.sliding_window
    if window is None or window.size >= sequence:
        return model.attention_layers * full
    within = _chunked(window.size, sequence) if window.chunked else window.size - Fraction(window.size**2, 2 * sequence)
    return window.windowed_layers * within + (model.num_hidden_layers - window.windowed_layers) * full


def _chunked(size: int, sequence: int) -> Fraction:
    # Mean over tokens of half the chunk that they are in; the last chunk may be shorter.
    whole, rest = divmod(sequence, size)
    return Fraction(whole * size * size + rest * rest, 2 * sequence)


def _norm(model: ModelSpec) -> int:
    return model.hidden_size * (2 if model.norm_bias else 1)


def _attention(model: ModelSpec) -> int:
    query, key = model.query_width, model.kv_heads * model.head_width
    weights = sum(projection.k * projection.n for projection in attention_projections(model))
    biases = model.qkv_bias * (query + 2 * key) + model.out_bias * model.hidden_size
    sinks = model.num_attention_heads if model.attention_sinks else 0
    norms = {"None": 0, "PerHead": 2 * model.head_width, "Full": query + key}[model.qk_norm]
    latent = model.latent_attention
    of_ranks = (latent.query_rank or 0) + latent.key_value_rank if latent else 0
    return weights + biases + sinks + norms + of_ranks


def _mamba(model: ModelSpec) -> int:
    """Weights of a Mamba-2 mixer: projections, convolution with its bias, A, D and the step's bias, the norm."""
    hybrid = model.hybrid
    if hybrid is None:
        return 0
    inner, convolved = hybrid.inner_width, hybrid.convolved_width
    projections = model.hidden_size * (inner + convolved + hybrid.mamba_heads) + inner * model.hidden_size
    return projections + convolved * (hybrid.conv_kernel + 1) + 3 * hybrid.mamba_heads + inner


def scan_multiply_adds(model: ModelSpec) -> Fraction:
    """Multiply-adds of one mixer's scan for one token, forward, by Megatron-Bridge's flop_utils.py at its own width."""
    hybrid = model.hybrid
    return Fraction(7, 2) * hybrid.inner_width * hybrid.state_size if hybrid else Fraction(0)


def _dense_mlp(model: ModelSpec) -> int:
    bias = (1 + model.gated_mlp) * model.intermediate_size + model.hidden_size
    return _mlp(model, model.intermediate_size) + model.mlp_bias * bias


def _moe_mlp(model: ModelSpec, experts: int) -> int:
    # `experts` of a layer's experts, with the router and the shared expert, which every token meets.
    if model.moe is None:
        return 0
    shared = _mlp(model, model.moe.shared_expert_intermediate_size) + model.moe.shared_expert_gate * model.hidden_size
    router = (model.hidden_size + model.moe.router_bias) * model.moe.num_experts
    latent = 2 * model.hidden_size * (model.moe.latent_size or 0)
    return experts * _expert(model) + shared + router + latent


def _expert(model: ModelSpec) -> int:
    biased = model.moe is not None and model.moe.expert_bias
    weights = (3 if model.gated_mlp else 2) * model.expert_input_width * model.expert_width
    return weights + biased * ((1 + model.gated_mlp) * model.expert_width + model.expert_input_width)


def _mlp(model: ModelSpec, inner: int) -> int:
    return (3 if model.gated_mlp else 2) * model.hidden_size * inner
