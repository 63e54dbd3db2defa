"""Transformer Engine's modules as the tiers use them: linear and transformer layers, and which recipe holds where."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.sizes import Trial, windowed
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.experts import Experts
from precision_agent.backends.te.steps.latent_attention import LatentAttention
from precision_agent.precision.evidence import CORE, ROUTER
from precision_api.exchange.request import AttentionCore
from precision_api.exchange.result import WeightGradients
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import PlainRecipe, Recipe
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


def share_weights(module: Any, owner: Any) -> list[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
    """Gives `module` the very parameters of `owner`, a like module: variants differ in recipe, not in weights.

    Matrices and vectors each in their order: experts may be in other groups, in the same order. Comes back with the
    pairs, its own and the owner's, where one of the two is held quantised.
    """
    apart = []
    for flat in (False, True):
        for (place, key), (other, name) in zip(_slots(module, flat), _slots(owner, flat), strict=True):
            mine, theirs = place._parameters[key], other._parameters[name]
            assert mine.shape == theirs.shape, f"modules differ: {key} and {name}"
            if is_quantized(mine) or is_quantized(theirs):
                apart.append((mine, theirs))
            else:
                place._parameters[key] = theirs
    return apart


def is_quantized(weight: torch.nn.Parameter) -> bool:
    """Whether the weight is held in a recipe's format: a subclass of torch's own."""
    return type(weight) is not torch.nn.Parameter


def _slots(module: Any, flat: bool) -> list[tuple[Any, str]]:
    """Where the parameters are, vectors or the others."""
    return [
        (part, key)
        for part in module.modules()
        for key, parameter in part._parameters.items()
        if parameter is not None and (parameter.ndim < 2) == flat
    ]


def run_in(api: Api, module: Any, recipe: Any | None) -> None:
    """Makes the module run in `recipe` (None: unquantised) whatever is around it."""
    run = module.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        with api.autocast(recipe):
            return run(*arguments, **named)

    module.forward = forward


@dataclass(slots=True)
class Stack:
    """The layers of one variant, with the recipes that it owns for life; the first `dense` of them are a part apart.

    All runs in the MLP's recipe but for modules with an autocast of their own.
    """

    api: Api
    layers: tuple[Any, ...]
    parts: Parts
    recipes: Mapping[PlainRecipe, Any | None]
    core: AttentionCore | None = None
    rotary: torch.Tensor | None = None
    dense: int = 0

    def forward(self, x: torch.Tensor, first: bool | None) -> torch.Tensor:
        return self.through(self.layers, x, first)

    def through(self, layers: Sequence[Any], x: torch.Tensor, first: bool | None) -> torch.Tensor:
        """Through these layers, inside the outermost autocast."""
        with self.api.autocast(self.recipes[self.parts.mlp]):
            for layer in layers:
                x = layer(x, is_first_microbatch=first, rotary_pos_emb=self.rotary)
        return x


def stack(
    api: Api,
    plans: tuple[LayerPlan, ...],
    parts: Parts,
    device: torch.device,
    core: AttentionCore | None = None,
    primary_weights: bool = False,
) -> Stack:
    """Layers of their own, each part in its recipe; `core`: of attention's core, but of bf16. ValueError where
    the core's scales would never move."""
    made = {recipe: recipes.make(api, recipe) for recipe in parts.recipes}
    core = core if parts.recipes != ("bf16",) else None
    te_core = recipes.make_core(api, core) if core else None
    if core == "fp8_delayed" and parts.mlp == "bf16":
        raise ValueError("attentionCore fp8_delayed needs an MLP that is quantised: its scales are updated with it")
    layers = []
    for plan in plans:
        layer = (
            _held(api, plan, parts, made, device)
            if primary_weights
            else transformer_layer(api, plan, parts.mlp, device)
        )
        attention = layer.self_attention
        if parts.attention != parts.mlp:
            run_in(api, attention, made[parts.attention])
        if parts.attention_out != parts.attention:
            run_in(api, attention.proj, made[parts.attention_out])
        if te_core:
            run_in(api, attention.core_attention, te_core)
        layers.append(layer)
    return Stack(api, tuple(layers), parts, made, core, dense=sum(plan.dense for plan in plans))


def _held(api: Api, plan: LayerPlan, parts: Parts, made: Mapping[PlainRecipe, Any | None], device: torch.device) -> Any:
    """A layer that holds each part's weights in the part's recipe: of a mixture, put together of whole layers."""
    whole = {}
    for recipe in parts.of_layers:
        with api.primary_weights(made[recipe]):
            whole[recipe] = transformer_layer(api, plan, parts.mlp, device)
    layer = whole[parts.mlp]
    projection = whole[parts.attention_out].self_attention.proj
    layer.self_attention = whole[parts.attention].self_attention
    layer.self_attention.proj = projection
    return layer


def rotary(api: Api, model: ModelSpec, sequence: int, device: torch.device) -> torch.Tensor | None:
    """Angles of the rotary embedding, computed once; None for models with a table of positions."""
    if model.learned_positions:
        return None
    latent = model.latent_attention
    made = api.pytorch.RotaryPositionEmbedding(dim=latent.rope_head_dim if latent else model.head_width)
    angles: torch.Tensor = made(max_seq_len=sequence)
    return angles.to(device)


def told_parts(layers: tuple[Any, ...], parts: Parts) -> Iterator[tuple[str, Any]]:
    """Modules of the layers with the names that a profile tells: attention, its core (no projections), MLP, router."""
    for layer in layers:
        yield "attention", layer.self_attention
        if parts.attention_out != parts.attention:
            yield "attention_out", layer.self_attention.proj
        yield CORE, layer.self_attention.core_attention
        yield "mlp", layer.layernorm_mlp
        if isinstance(layer.layernorm_mlp, Experts):
            yield ROUTER, layer.layernorm_mlp.router
