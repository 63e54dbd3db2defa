"""The parts of te_fake that layers of experts and of latent attention are made of; numbers are right, times made up."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional

from tests.support.te_device import BATCHED, NORM
from tests.support.te_signatures import signatures


def step_parts(made: Any, holder: type) -> dict[str, Any]:
    """What `transformer_engine.pytorch` has beside the modules of a dense model, by name."""
    told = {"moe_unpermute": _function(made, "pytorch.moe_unpermute", _unpermute)}
    told |= {name: _norm(made, f"pytorch.{name}") for name in ("RMSNorm", "LayerNorm")}
    told |= {name: _padding(made, f"pytorch.{name}", name == "Fp8Padding") for name in ("Fp8Padding", "Fp8Unpadding")}
    activations = {"GELU": functional.gelu, "SwiGLU": _gated, "ClampedSwiGLU": _gated}
    ops = {
        name: _activation(made, f"pytorch.ops.{name}", work)
        for name, work in activations.items()
        if f"pytorch.ops.{name}" in signatures(made.tag)
    }
    rotate = _function(made, "pytorch.attention.rope.apply_rotary_pos_emb", lambda t, **_: t * 1)
    return told | {
        "LayerNormLinear": made.linear("pytorch.LayerNormLinear"),
        "LayerNormMLP": _mlp(made, holder),
        "MultiheadAttention": _attention(made, holder),
        "DotProductAttention": _core(made),
        "ops": SimpleNamespace(**ops),
        "attention": SimpleNamespace(rope=SimpleNamespace(apply_rotary_pos_emb=rotate)),
    }


def _function(made: Any, symbol: str, work: Any) -> Any:
    return made.named(symbol, lambda *arguments, **named: work(**made.world.bind(symbol, *arguments, **named)))


def _unpermute(
    *, inp: torch.Tensor, row_id_map: torch.Tensor, merging_probs: torch.Tensor, map_type: str, **_: Any
) -> torch.Tensor:
    """As moe_unpermute_kernel does it: choice j of token t is row `row_id_map[j * tokens + t]`."""
    assert (map_type, row_id_map.dtype, merging_probs.dtype) == ("index", torch.int32, torch.float32)
    tokens, top_k = merging_probs.shape
    rows = inp.float()[row_id_map.view(top_k, tokens).t().long()]
    return (rows * merging_probs.unsqueeze(2)).sum(1).to(inp.dtype)


def _gated(x: torch.Tensor) -> torch.Tensor:
    gate, value = x.chunk(2, -1)
    return functional.silu(gate) * value


def _activation(made: Any, symbol: str, work: Any) -> Any:
    class Base(torch.nn.Module):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            made.world.bind(symbol, *arguments, **named)
            super().__init__()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = work(x)
            return found

    return made.cls(symbol, Base)


def _norm(made: Any, symbol: str) -> Any:
    class Base(torch.nn.Module):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__()
            width = made.world.bind(symbol, *arguments, **named)["normalized_shape"]
            self.weight = torch.nn.Parameter(torch.ones(width, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made.world.gpu.kernel(*NORM)
            return x * self.weight

    return made.cls(symbol, Base)


def _padding(made: Any, symbol: str, adds: bool) -> Any:
    class Base(torch.nn.Module):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__()
            self.step = made.world.bind(symbol, *arguments, **named)["align_size"]

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        given = made.world.bind(f"{symbol}.forward", *arguments, **named)
        rows, splits = given["inp"], given["m_splits"]
        padded = [-(-rows_ // self.step) * self.step for rows_ in splits]
        if adds:
            pairs = zip(rows.split(splits), padded, strict=True)
            return torch.cat([functional.pad(part, (0, 0, 0, size - len(part))) for part, size in pairs]), padded
        return torch.cat([part[:size] for part, size in zip(rows.split(padded), splits, strict=True)])

    return made.cls(symbol, Base, forward=forward)


def _core(made: Any) -> Any:
    symbol = "pytorch.DotProductAttention"

    class Base(torch.nn.Module):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__()
            self.widths = made.world.bind(symbol, *arguments, **named)["kv_channels"]

        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            assert (query.shape[-1], key.shape[-1], value.shape[-1]) == (self.widths[0], *self.widths)
            assert query.shape[:3] == key.shape[:3] == value.shape[:3]
            made.world.gpu.kernel(*BATCHED)
            met = (query * key).sum(-1, keepdim=True)
            return (value * torch.sigmoid(met)).flatten(2)

    return made.cls(symbol, Base)


class _Core(torch.nn.Module):
    """Unfused, as where neither cuDNN nor flash-attn takes the shapes."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self.world = world

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.world.gpu.kernel(*BATCHED)
        return x * 1


class Attention(torch.nn.Module):
    """Norm, projections and core, in a layer or by themselves."""

    def __init__(self, world: Any, holder: type, given: Mapping[str, Any]) -> None:
        super().__init__()
        heads, kv, width = given["num_attention_heads"], given["num_gqa_groups"], given["kv_channels"]
        fused, hidden = given.get("fuse_wgrad_accumulation", False), given["hidden_size"]
        self.inner = heads * width
        self.layernorm_qkv = holder(world, [((heads + 2 * kv) * width, hidden)], fused=fused)
        self.core_attention = _Core(world)
        self.proj = holder(world, [(hidden, self.inner)], fused=fused)

    def forward(self, x: torch.Tensor, *, first: bool | None) -> tuple[torch.Tensor, None]:
        self.core_attention.world.gpu.kernel(*NORM)
        found = self.layernorm_qkv.product(x, "weight", first)[..., : self.inner]
        return self.proj.forward(self.core_attention(found), first), None


def _attention(made: Any, holder: type) -> Any:
    symbol, world = "pytorch.MultiheadAttention", made.world

    class Base(Attention):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(world, holder, world.bind(symbol, *arguments, **named))

    def forward(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        given = world.bind(f"{symbol}.forward", *arguments, **named)
        return Attention.forward(self, given["hidden_states"], first=given["is_first_microbatch"])[0]

    return made.cls(symbol, Base, forward=forward)


def _mlp(made: Any, holder: type) -> Any:
    symbol, world = "pytorch.LayerNormMLP", made.world

    class Base(holder):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            given = world.bind(symbol, *arguments, **named)
            inner, hidden = given["ffn_hidden_size"], given["hidden_size"]
            sizes = [(2 * inner, hidden), (hidden, inner)]
            super().__init__(world, sizes, fused=given["fuse_wgrad_accumulation"])

    def forward(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        given = world.bind(f"{symbol}.forward", *arguments, **named)
        first = given["is_first_microbatch"]
        world.gpu.kernel(*NORM)
        inner = _gated(self.product(given["inp"], "weight0", first))
        found: torch.Tensor = self.product(inner, "weight1", first)
        return found

    return made.cls(symbol, Base, forward=forward)
