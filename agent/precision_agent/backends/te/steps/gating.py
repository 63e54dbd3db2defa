"""A router's scores as Megatron Core multiplies them with `moe_router_dtype: fp32`: what is kept stays BF16.

BF16 operands and FP32 scores forward, both gradients in FP32 (RouterGatingLinearFunction of megatron/core/transformer/
moe/moe_utils.py). In FP32 forward the product would run without tensor cores, which no job does.
"""

from collections.abc import Callable
from typing import Any

import torch

Gemm = Callable[..., Any]
"""`general_gemm` of Transformer Engine, as `api.general_gemm` gives it."""


def gating_scores(tokens: torch.Tensor, weight: torch.Tensor, gemm: Gemm) -> torch.Tensor:
    """Of BF16 (tokens, hidden) and (experts, hidden): (tokens, experts) in FP32, with gradients for both in BF16."""
    scores: torch.Tensor = _Scores.apply(tokens, weight, gemm)
    return scores


class _Scores(torch.autograd.Function):  # type: ignore[misc]
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
