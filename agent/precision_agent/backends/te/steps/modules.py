"""Transformer Engine's modules as the tiers use them: linear and transformer layers, and which recipe holds where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.sizes import Trial, windowed
from precision_agent.backends.te.steps.experts import Experts
from precision_agent.backends.te.steps.latent_attention import LatentAttention
from precision_agent.precision.evidence import CORE, ROUTER
from precision_api.exchange.result import RecipeScope, WeightGradients
from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split

DTYPE = torch.bfloat16
GELU = "qgelu"
"""What a plain GELU runs as: x times the sigmoid of 1.702 x, a kernel of its own in every recipe. Of `gelu` the layer
makes a part of the GEMM in bf16, or a function that torch compiles, and of no other recipe (2.8 to 2.20.2)."""


@dataclass(frozen=True, slots=True)
class LinearShape:
    """One linear layer, as its forward GEMM: (m x k) times (k x n), `groups` of them in one launch."""

    m: int
    k: int
    n: int
    groups: int = 1

    @property
    def rows(self) -> int:
        """Rows of the input of all groups."""
        return self.m * self.groups


def linear(api: Api, shape: LinearShape, device: torch.device) -> Any:
    """A linear layer with delayed weight gradients, without bias; grouped for experts."""
    common = {"bias": False, "params_dtype": DTYPE, "device": device, "delay_wgrad_compute": True}
    sizes = {"in_features": shape.k, "out_features": shape.n}
    if shape.groups > 1:
        return api.pytorch.GroupedLinear(num_gemms=shape.groups, **sizes, **common)
    return api.pytorch.Linear(**sizes, **common)


def call_linear(module: Any, shape: LinearShape, x: torch.Tensor, first: bool | None) -> torch.Tensor:
    """y = x W^T. `first`: quantise the weight now and keep it (True), use the kept one (False), keep none (None)."""
    if shape.groups > 1:
        # A list: newer versions turn it into the tensor that they want, older ones take nothing else.
        return cast(torch.Tensor, module(x, m_splits=[shape.m] * shape.groups, is_first_microbatch=first))
    return cast(torch.Tensor, module(x, is_first_microbatch=first))


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One transformer layer of one GPU of a tensor-parallel group, and what of the model it leaves out.

    `keywords` are TransformerLayer's. With experts or latent attention the layer is put together of parts, with the
    same keywords for those that it shares with TransformerLayer. `dense`: a dense layer of a model with experts.
    """

    keywords: dict[str, Any]
    model: ModelSpec
    split: Split
    tokens: int
    """Of a micro batch."""
    left_out: tuple[str, ...] = ()
    dense: bool = False

    @property
    def has_experts(self) -> bool:
        return self.model.moe is not None and not self.dense


def layer_plans(
    model: ModelSpec, split: Split, trial: Trial, tokens: int, weight_gradients: WeightGradients = "separate"
) -> tuple[LayerPlan, ...]:
    """Each layer of a short model, dense ones first where others have experts; `tokens` are a micro batch's.

    Matrices have the sizes of one GPU's share. Raises ValueError where heads or inner width can't be divided among the
    GPUs.
    """
    parts = split.tensor
    for name, size in (
        ("heads", model.num_attention_heads),
        ("key and value heads", model.kv_heads),
        ("intermediateSize", model.intermediate_size if model.dense_layers else 0),
    ):
        if size % parts:
            raise ValueError(f"tensorParallel {parts} does not divide {size} {name}")
    keywords = {
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size // parts,
        "num_attention_heads": model.num_attention_heads // parts,
        "num_gqa_groups": model.kv_heads // parts,
        "kv_channels": model.head_width,
        "layernorm_epsilon": 1e-5,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "self_attn_mask_type": "causal" if model.causal else "no_mask",
        "normalization": "LayerNorm" if model.norm_bias else "RMSNorm",
        "activation": "swiglu" if model.gated_mlp else GELU,
        "bias": all(_biases(model)),
        "params_dtype": DTYPE,
        "attn_input_format": "sbhd",
        "qk_norm_type": "RMSNorm" if model.qk_norm == "PerHead" else None,
        "fuse_qkv_params": True,
        "fuse_wgrad_accumulation": weight_gradients == "fused",
    }
    if model.attention_sinks:
        keywords["softmax_type"] = "learnable"
    size = model.sliding_window.size if model.sliding_window else 0
    return tuple(
        LayerPlan(
            keywords | {"layer_number": index + 1, "window_size": (size - 1, 0) if short else None},
            *(model, split, tokens, _left_out(model)),
            dense=index < trial.dense,
        )
        for index, short in enumerate(windowed(model, trial.dense + trial.layers))
    )


def _biases(model: ModelSpec) -> tuple[bool, ...]:
    """Of the projections that TransformerLayer has one switch for: attention's, and the dense MLP's where there is one.

    Experts have a switch of their own.
    """
    return (model.qkv_bias, model.out_bias, *((model.mlp_bias,) if model.dense_layers else ()))


def _left_out(model: ModelSpec) -> tuple[str, ...]:
    """What Transformer Engine's layer has no switch for; all of it is small beside the matrices."""
    biases, moe = _biases(model), model.moe
    parts = (
        (any(biases) and not all(biases), "biases of some projections only"),
        (model.qk_norm == "Full", "query and key norms over the full width"),
        (model.norms_per_layer > 2, "norms after attention and MLP"),
        (not model.gated_mlp and moe is None, "the exact GELU (its sigmoid form runs, one kernel in every recipe)"),
        (moe is not None and moe.router_bias, "the router's bias"),
        (moe is not None and moe.shared_expert_gate, "the shared expert's gate"),
    )
    return tuple(name for is_so, name in parts if is_so)


def transformer_layer(api: Api, plan: LayerPlan, recipe: Recipe, device: torch.device) -> Any:
    """The layer of a plan: Transformer Engine's own where it has one."""
    if not plan.has_experts and plan.model.latent_attention is None:
        return api.pytorch.TransformerLayer(**plan.keywords, device=device)
    return AssembledLayer(api, plan, recipe, device)


ATTENTION_KEYWORDS = {
    "self_attn_mask_type": "attn_mask_type",
    "attn_input_format": "qkv_format",
} | {
    name: name
    for name in (
        "hidden_size", "num_attention_heads", "num_gqa_groups", "kv_channels", "layernorm_epsilon",
        "attention_dropout", "window_size", "layer_number", "normalization", "bias", "params_dtype", "qk_norm_type",
        "fuse_qkv_params", "fuse_wgrad_accumulation", "softmax_type")
}  # fmt: skip
"""Keywords of TransformerLayer that it hands to MultiheadAttention, and what they are called there."""
MLP_KEYWORDS = {"layernorm_epsilon": "eps"} | {
    name: name
    for name in (
        "hidden_size", "ffn_hidden_size", "normalization", "activation", "bias", "params_dtype",
        "fuse_wgrad_accumulation")
}  # fmt: skip


class AssembledLayer(torch.nn.Module):  # type: ignore[misc]
    """A layer of parts, called as TransformerLayer is and with the same names for its two halves."""

    def __init__(self, api: Api, plan: LayerPlan, recipe: Recipe, device: torch.device) -> None:
        super().__init__()
        words, te = plan.keywords, api.pytorch
        model, split, fused = plan.model, plan.split, words["fuse_wgrad_accumulation"]
        if model.latent_attention is not None:
            self.self_attention = LatentAttention(api, model, split, fused, words["layer_number"], device)
        else:
            named = {keyword: words[name] for name, keyword in ATTENTION_KEYWORDS.items() if name in words}
            self.self_attention = te.MultiheadAttention(**named, input_layernorm=True, device=device)
        if plan.has_experts:
            self.layernorm_mlp = Experts(api, model, split, plan.tokens, fused, recipe, device)
        else:
            named = {keyword: words[name] for name, keyword in MLP_KEYWORDS.items()}
            self.layernorm_mlp = te.LayerNormMLP(**named, device=device)

    def forward(
        self, x: torch.Tensor, *, is_first_microbatch: bool | None, rotary_pos_emb: torch.Tensor | None
    ) -> torch.Tensor:
        """Of (sequence, batch, hidden) the same."""
        named = {"is_first_microbatch": is_first_microbatch}
        x = x + self.self_attention(x, rotary_pos_emb=rotary_pos_emb, **named)
        out: torch.Tensor = x + self.layernorm_mlp(x, **named)
        return out


def share_weights(module: Any, owner: Any) -> None:
    """Gives `module` the very parameters of `owner`, a like module: variants differ in recipe, not in weights.

    Matrices and vectors each in their order: experts may be in other groups, in the same order.
    """
    for flat in (False, True):
        mine, theirs = _slots(module, flat), _slots(owner, flat)
        for (place, key), (other, name) in zip(mine, theirs, strict=True):
            assert place._parameters[key].shape == other._parameters[name].shape, f"modules differ: {key} and {name}"
            place._parameters[key] = other._parameters[name]


def _slots(module: Any, flat: bool) -> list[tuple[Any, str]]:
    """Where the parameters are, vectors or the others."""
    return [
        (part, key)
        for part in module.modules()
        for key, parameter in part._parameters.items()
        if parameter is not None and (parameter.ndim < 2) == flat
    ]


def keep_attention(api: Api, layer: Any, recipe: Any | None) -> None:
    """Makes the layer's attention, with its projections, run in `recipe` (None: unquantised) whatever is around it."""
    attend = layer.self_attention.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        with api.autocast(recipe):
            return attend(*arguments, **named)

    layer.self_attention.forward = forward


@dataclass(slots=True)
class Stack:
    """The layers of one variant, with the recipe that it owns for life; the first `dense` of them are a part apart."""

    api: Api
    layers: tuple[Any, ...]
    recipe: Any | None
    rotary: torch.Tensor | None = None
    dense: int = 0

    def forward(self, x: torch.Tensor, first: bool | None) -> torch.Tensor:
        return self.through(self.layers, x, first)

    def through(self, layers: Sequence[Any], x: torch.Tensor, first: bool | None) -> torch.Tensor:
        """Through these layers, inside the recipe's autocast."""
        with self.api.autocast(self.recipe):
            for layer in layers:
                x = layer(x, is_first_microbatch=first, rotary_pos_emb=self.rotary)
        return x


def stack(
    api: Api,
    plans: tuple[LayerPlan, ...],
    recipe: Recipe,
    te_recipe: Any | None,
    scope: RecipeScope,
    attention_recipe: Any | None,
    device: torch.device,
) -> Stack:
    """Layers of their own, in `recipe`; with scope `mlp` the attention keeps `attention_recipe`, but of bf16."""
    layers = tuple(transformer_layer(api, plan, recipe, device) for plan in plans)
    if scope == "mlp":
        for layer in layers:
            keep_attention(api, layer, attention_recipe if te_recipe else None)
    return Stack(api, layers, te_recipe, dense=sum(plan.dense for plan in plans))


def rotary(api: Api, model: ModelSpec, sequence: int, device: torch.device) -> torch.Tensor | None:
    """Angles of the rotary embedding, computed once; None for models with a table of positions."""
    if model.learned_positions:
        return None
    latent = model.latent_attention
    made = api.pytorch.RotaryPositionEmbedding(dim=latent.rope_head_dim if latent else model.head_width)
    angles: torch.Tensor = made(max_seq_len=sequence)
    return angles.to(device)


def told_parts(layers: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Modules of the layers with the names that a profile tells: attention, its core (no projections), MLP, router."""
    for layer in layers:
        yield "attention", layer.self_attention
        yield CORE, layer.self_attention.core_attention
        yield "mlp", layer.layernorm_mlp
        if isinstance(layer.layernorm_mlp, Experts):
            yield ROUTER, layer.layernorm_mlp.router
