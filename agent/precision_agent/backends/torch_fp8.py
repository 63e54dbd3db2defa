"""Products in bf16 and in FP8 with current per-tensor scales, by plain torch.

What bounds a GEMM of m x k x n: 2mkn operations at the format's peak, or its operands' and result's bytes at the
memory's bandwidth. FP8 by `torch._scaled_mm` wants the first operand row-major and the second column-major, so that
both run along k; dgrad and wgrad hold one operand the other way round, and its transposed copy is part of their
quantisation. Gradients are E5M2, all else E4M3 (the HYBRID format of Transformer Engine).
"""

from collections.abc import Callable

import torch

from precision_api.exchange.request import Mode
from precision_api.facts.recipes import Recipe
from precision_api.models.shapes import Pass

PLAIN_RECIPES: frozenset[Recipe] = frozenset({"bf16", "fp8_current"})
"""What plain torch can multiply."""
GemmCall = Callable[[], torch.Tensor]


def product(a: torch.Tensor, b: torch.Tensor, pass_: Pass, recipe: Recipe) -> torch.Tensor:
    """a times b in bf16, quantised on the way where the recipe says so."""
    return a @ b if recipe == "bf16" else fp8_product(a, b, pass_, "autocast")()


def fp8_product(a: torch.Tensor, b: torch.Tensor, pass_: Pass, mode: Mode) -> GemmCall:
    """The call that multiplies in FP8, with quantisation (autocast) or with operands quantised before."""
    a_type = torch.float8_e5m2 if pass_ == "dgrad" else torch.float8_e4m3fn
    b_type = torch.float8_e5m2 if pass_ == "wgrad" else torch.float8_e4m3fn

    def quantised() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        a8, a_scale = _quantised(a, a_type)
        b8, b_scale = _quantised(b.t(), b_type)
        return a8, b8.t(), a_scale, b_scale

    def multiplied(a8: torch.Tensor, b8: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        if a8.is_cpu:  # the same numbers: torch's own FP8 product takes a thousand times as long on some Xeons
            return ((a8.float() @ b8.float()) * (a_scale * b_scale)).to(torch.bfloat16)
        return torch._scaled_mm(a8, b8, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)

    if mode == "autocast":
        return lambda: multiplied(*quantised())
    ready = quantised()
    return lambda: multiplied(*ready)


def _quantised(tensor: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """`tensor` in FP8, row-major, and the FP32 scale that undoes it: amax -> the format's largest number."""
    amax = tensor.abs().amax().float().clamp(min=1e-12)
    scale = torch.finfo(kind).max / amax
    return (tensor * scale.to(tensor.dtype)).to(kind).contiguous(), scale.to(tensor.dtype).float().reciprocal()
