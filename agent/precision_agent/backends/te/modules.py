"""Transformer Engine's modules as the tiers use them: linear and transformer layers, and which recipe holds where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.sizes import windowed
from precision_agent.precision.evidence import CORE
from precision_api.result import RecipeScope, WeightGradients
from precision_api.shapes import Split
from precision_api.workload import ModelSpec

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


def weights_of(module: Any) -> list[torch.nn.Parameter]:
    """The parameters of a module."""
    return list(module.parameters())


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One transformer layer of one GPU of a tensor-parallel group, and what of the model it leaves out."""

    keywords: dict[str, Any]
    left_out: tuple[str, ...] = ()


def layer_plans(
    model: ModelSpec, split: Split, depth: int, weight_gradients: WeightGradients = "separate"
) -> tuple[LayerPlan, ...]:
    """Arguments of TransformerLayer for each layer of a short model. Matrices have the sizes of one GPU's share.

    Raises ValueError where heads or inner width can't be divided among the GPUs.
    """
    parts = split.tensor
    for name, size in (
        ("heads", model.num_attention_heads),
        ("key and value heads", model.kv_heads),
        ("intermediateSize", model.intermediate_size),
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
        "bias": model.qkv_bias and model.out_bias and model.mlp_bias,
        "params_dtype": DTYPE,
        "attn_input_format": "sbhd",
        "qk_norm_type": "RMSNorm" if model.qk_norm == "PerHead" else None,
        "fuse_qkv_params": True,
        "fuse_wgrad_accumulation": weight_gradients == "fused",
    }
    size = model.sliding_window.size if model.sliding_window else 0
    return tuple(
        LayerPlan(
            keywords | {"layer_number": index + 1, "window_size": (size - 1, 0) if short else None}, _left_out(model)
        )
        for index, short in enumerate(windowed(model, depth))
    )


def _left_out(model: ModelSpec) -> tuple[str, ...]:
    """What Transformer Engine's layer has no switch for; all of it is small beside the matrices."""
    biases = (model.qkv_bias, model.out_bias, model.mlp_bias)
    found = (
        (any(biases) and not all(biases), "biases of some projections only"),
        (model.qk_norm == "Full", "query and key norms over the full width"),
        (model.norms_per_layer > 2, "norms after attention and MLP"),
        (not model.gated_mlp, "the exact GELU (its sigmoid form runs, one kernel in every recipe)"),
    )
    return tuple(name for is_so, name in found if is_so)


def transformer_layer(api: Api, plan: LayerPlan, device: torch.device) -> Any:
    """The layer of a plan."""
    return api.pytorch.TransformerLayer(**plan.keywords, device=device)


def share_weights(module: Any, owner: Any) -> None:
    """Gives `module` the very parameters of `owner`, an equal module: variants differ in recipe, not in weights."""
    for (name, mine), (other, theirs) in zip(module.named_modules(), owner.named_modules(), strict=True):
        assert name == other, f"modules differ: {name} and {other}"
        for key in list(mine._parameters):
            mine._parameters[key] = theirs._parameters[key]


def keep_attention(api: Api, layer: Any, recipe: Any | None) -> None:
    """Makes the layer's attention, with its projections, run in `recipe` (None: unquantised) whatever is around it."""
    attend = layer.self_attention.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        with api.autocast(recipe):
            return attend(*arguments, **named)

    layer.self_attention.forward = forward


@dataclass(slots=True)
class Stack:
    """The layers of one variant, with the recipe that it owns for life."""

    api: Api
    layers: tuple[Any, ...]
    recipe: Any | None
    rotary: torch.Tensor | None = None
    attention_recipe: Any | None = field(default=None)

    def forward(self, x: torch.Tensor, first: bool | None) -> torch.Tensor:
        """Through all layers, inside the recipe's autocast."""
        with self.api.autocast(self.recipe):
            for layer in self.layers:
                x = layer(x, is_first_microbatch=first, rotary_pos_emb=self.rotary)
        return x


def stack(
    api: Api,
    plans: tuple[LayerPlan, ...],
    recipe: Any | None,
    scope: RecipeScope,
    attention_recipe: Any | None,
    device: torch.device,
) -> Stack:
    """Layers of their own; with scope `mlp` the attention keeps `attention_recipe`."""
    layers = tuple(transformer_layer(api, plan, device) for plan in plans)
    if scope == "mlp":
        for layer in layers:
            keep_attention(api, layer, attention_recipe)
    return Stack(api, layers, recipe, attention_recipe=attention_recipe)


def rotary(api: Api, model: ModelSpec, sequence: int, device: torch.device) -> torch.Tensor | None:
    """Angles of the rotary embedding, computed once; None for models with a table of positions."""
    if model.learned_positions:
        return None
    made = api.pytorch.RotaryPositionEmbedding(dim=model.head_width)
    angles: torch.Tensor = made(max_seq_len=sequence)
    return angles.to(device)


def told_parts(layers: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Modules of the layers with the names that a profile tells: attention, its core without projections, MLP."""
    for layer in layers:
        yield "attention", layer.self_attention
        yield CORE, layer.self_attention.core_attention
        yield "mlp", layer.layernorm_mlp
