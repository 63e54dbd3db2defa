"""A layer's mixture of experts out of Transformer Engine's modules: norm, router, permutation, grouped linear layers.

The router chooses in earnest, among scores to which a constant was added: so each expert gets the same number of tokens
in every step, and a CUDA graph can hold it. Tokens are sorted by expert on the current stream here, and merged with the
router's weights as Transformer Engine puts them back by index: that kernel is in its library, while those by mask are
compiled by Triton at run time. `moe_permute(map_type="index")` itself sorts with `cub::DeviceRadixSort` and hands it no
stream (permutation.cu, 2.8 to 2.20): on a stream of one's own that sort races the router, and a CUDA graph does not
hold it.

Scores are as Megatron Core multiplies them with `moe_router_dtype: fp32`, and what is kept stays BF16: BF16 operands
and FP32 scores forward, both gradients in FP32 (RouterGatingLinearFunction of
megatron/core/transformer/moe/moe_utils.py). In FP32 forward the product would run without tensor cores, which no job
does.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch

from precision_agent.backends.te.api import Api, general_gemm
from precision_agent.backends.te.steps.weight_gradients import by_autograd
from precision_agent.method.expert_rows import expert_rows, launches
from precision_api.facts.recipes import RECIPES, Recipe
from precision_api.models.model import ModelSpec, MoE
from precision_api.models.shapes import Split

Gemm = Callable[..., Any]
"""`general_gemm` of Transformer Engine, as `api.general_gemm` gives it."""
DTYPE = torch.bfloat16
CHOSEN = 2.0
"""Added to the scores of the experts that a token is sent to: scores are below 1."""
Unpermute = Callable[..., torch.Tensor]
"""`moe_unpermute` of `transformer_engine.pytorch`."""


class _Scores(torch.autograd.Function):  # type: ignore[misc]
    """Of BF16 (tokens, hidden) and (experts, hidden): (tokens, experts) in FP32, with gradients for both in BF16."""

    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, weight: torch.Tensor, gemm: Gemm) -> torch.Tensor:
        ctx.save_for_backward(tokens, weight)
        ctx.gemm = gemm
        return _fp32(gemm, weight, tokens, "TN", grad=False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tokens, weight = ctx.saved_tensors
        whole = gradient.contiguous()
        of_tokens = _fp32(ctx.gemm, weight.float(), whole, "NN", grad=True)
        of_weight = _fp32(ctx.gemm, tokens.float(), whole, "NT", grad=True)
        return of_tokens.to(tokens.dtype), of_weight.to(weight.dtype), None


def _fp32(gemm: Gemm, a: torch.Tensor, b: torch.Tensor, layout: str, grad: bool) -> torch.Tensor:
    product: torch.Tensor = gemm(a, b, out_dtype=torch.float32, layout=layout, grad=grad)[0]
    return product


class Router(torch.nn.Module):  # type: ignore[misc]
    """Scores in FP32, the choice of experts, and the weights of those that were chosen."""

    def __init__(self, hidden: int, moe: MoE, tokens: int, gemm: Gemm, device: torch.device) -> None:
        super().__init__()
        self.gemm, self.top_k = gemm, moe.top_k
        drawn = torch.randn(moe.num_experts, hidden, device=device).to(DTYPE) * hidden**-0.5
        self.weight = by_autograd(torch.nn.Parameter(drawn))
        places = torch.arange(tokens * moe.top_k, device=device).remainder_(moe.num_experts)
        forced = torch.zeros(tokens, moe.num_experts, device=device)
        self.forced = forced.scatter_(1, places.view(tokens, moe.top_k), CHOSEN)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of (tokens, hidden): numbers of the chosen experts and their weights, both (tokens, topK)."""
        scores: torch.Tensor = _Scores.apply(tokens, self.weight, self.gemm).softmax(-1)
        chosen = (scores.detach() + self.forced).topk(self.top_k, dim=-1).indices
        weights = scores.gather(1, chosen)
        return chosen.int(), weights / weights.sum(-1, keepdim=True)


class Experts(torch.nn.Module):  # type: ignore[misc]
    """Norm, router, experts, shared expert and the projections of latent experts: a layer's part behind attention.

    Matrices have the sizes of one GPU's share. `fused`: their weight gradients add up in FP32.
    """

    def __init__(
        self, api: Api, model: ModelSpec, split: Split, tokens: int, fused: bool, recipe: Recipe, device: torch.device
    ) -> None:
        super().__init__()
        moe, te, hidden, width = model.moe, api.pytorch, model.hidden_size, model.expert_input_width
        assert moe is not None, "only a model with experts has such layers"
        self.api, self.size = api, (tokens, hidden)
        gates, local = 2 if model.gated_mlp else 1, moe.num_experts // split.expert
        inner, shared = model.expert_width // split.tensor, moe.shared_expert_intermediate_size // split.tensor
        self.norm = norm(api, hidden, model.norm_bias, device)
        gemm = general_gemm(api)
        assert gemm is not None, "a version without it has no step of experts (STEP_PARTS)"
        self.router = Router(hidden, moe, tokens, gemm, device)
        by_expert = expert_rows(tokens, moe.top_k, moe.num_experts, split.expert, recipe)
        self.rows, self.padded = list(by_expert.rows), list(by_expert.padded)
        self.groups = launches(local, recipe)
        common = {"params_dtype": DTYPE, "device": device, "fuse_wgrad_accumulation": fused}

        def grouped(inputs: int, outputs: int) -> torch.nn.ModuleList:
            sizes = {"in_features": inputs, "out_features": outputs, "bias": moe.expert_bias}
            return torch.nn.ModuleList(te.GroupedLinear(num_gemms=count, **sizes, **common) for count in self.groups)

        def linear(inputs: int, outputs: int) -> Any:
            return te.Linear(in_features=inputs, out_features=outputs, bias=False, **common)

        self.up, self.down = grouped(width, gates * inner), grouped(inner, width)
        self.activation = activation(api, model.gated_mlp, clamped=moe.expert_bias)
        align = {"num_gemms": local, "align_size": RECIPES[recipe].expert_rows_multiple_of}
        self.pad = te.Fp8Padding(**align) if self.padded != self.rows else None
        self.unpad = te.Fp8Unpadding(**align) if self.padded != self.rows else None
        self.latent_down = linear(hidden, width) if width != hidden else None
        self.latent_up = linear(width, hidden) if width != hidden else None
        self.shared_up = linear(hidden, gates * shared) if shared else None
        self.shared_down = linear(shared, hidden) if shared else None

    def forward(self, x: torch.Tensor, is_first_microbatch: bool | None) -> torch.Tensor:
        """Of (sequence, batch, hidden) the same."""
        te, first = self.api.pytorch, is_first_microbatch
        tokens = self.norm(x).reshape(self.size)
        chosen, weights = self.router(tokens)
        sent = tokens if self.latent_down is None else self.latent_down(tokens, is_first_microbatch=first)
        rows, row_map = permuted(sent, chosen, te.moe_unpermute)
        if self.pad is not None:
            rows, _ = self.pad(inp=rows, m_splits=self.rows)
        rows = self._through(rows, first)
        if self.unpad is not None:
            rows = self.unpad(inp=rows, m_splits=self.rows)
        y: torch.Tensor = te.moe_unpermute(inp=rows, row_id_map=row_map, merging_probs=weights, map_type="index")
        if self.latent_up is not None:
            y = self.latent_up(y, is_first_microbatch=first)
        if self.shared_up is not None and self.shared_down is not None:
            inner = self.activation(self.shared_up(tokens, is_first_microbatch=first))
            y = y + self.shared_down(inner, is_first_microbatch=first)
        return y.reshape(x.shape)

    def _through(self, rows: torch.Tensor, first: bool | None) -> torch.Tensor:
        """The experts' two projections with the activation between them, a grouped call after the other."""
        ends = list(accumulate(self.groups))
        splits = [self.padded[end - count : end] for count, end in zip(self.groups, ends, strict=True)]
        # split, not slices: the gradients of slices are filled with zeros to the full size and added
        parts = rows.split([sum(group) for group in splits]) if len(splits) > 1 else (rows,)
        outputs = []
        for group, part, up, down in zip(splits, parts, self.up, self.down, strict=True):
            inner = self.activation(up(part, m_splits=group, is_first_microbatch=first))
            outputs.append(down(inner, m_splits=group, is_first_microbatch=first))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def norm(api: Api, width: int, layer_norm: bool, device: torch.device) -> Any:
    """The norm before a part of a layer whose first matrix has none of its own."""
    kind = api.pytorch.LayerNorm if layer_norm else api.pytorch.RMSNorm
    return kind(width, eps=1e-5, device=device, dtype=DTYPE)


def activation(api: Api, gated: bool, clamped: bool) -> Any:
    """The same fused kernel in every recipe: quantisation is apart. Experts with biases are GPT-OSS's, which clamp."""
    if not gated:
        return api.pytorch.ops.GELU()
    return api.pytorch.ops.ClampedSwiGLU() if clamped else api.pytorch.ops.SwiGLU()


def by_expert(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the experts that each token is sent to, (tokens, topK): the token of each row, and the map of rows.

    Both are (tokens x topK); rows are sorted by expert. Entry j x tokens + t of the map (int32) is the row of token t's
    choice j, as `row_id_map` has it.
    """
    places = chosen.t().flatten().sort(stable=True).indices
    rows = torch.arange(len(places), dtype=torch.int32, device=chosen.device)
    return places.remainder(len(chosen)), torch.empty_like(rows).scatter_(0, places, rows)


def permuted(tokens: torch.Tensor, chosen: torch.Tensor, unpermute: Unpermute) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of (tokens, width) sorted by expert, (tokens x topK, width), and the map that `unpermute` takes them by."""
    token_of_row, row_map = by_expert(chosen)
    ones = torch.ones(chosen.shape, dtype=torch.float32, device=chosen.device)
    rows: torch.Tensor = _Gather.apply(tokens, token_of_row, row_map, ones, unpermute)
    return rows, row_map


class _Gather(torch.autograd.Function):  # type: ignore[misc]
    """A token's gradient is the sum of its rows': unpermuting with weights of one adds them up in a fixed order.

    What autograd would run for `index_select` adds with atomics: twice the same step would give two gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        tokens: torch.Tensor,
        token_of_row: torch.Tensor,
        row_map: torch.Tensor,
        ones: torch.Tensor,
        unpermute: Unpermute,
    ) -> torch.Tensor:
        ctx.save_for_backward(row_map, ones)
        ctx.unpermute = unpermute
        return tokens.index_select(0, token_of_row)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        row_map, ones = ctx.saved_tensors
        whole = ctx.unpermute(
            inp=gradient.contiguous(), row_id_map=row_map, merging_probs=ones, map_type="index"
        )  # fmt: skip
        return whole, None, None, None, None
