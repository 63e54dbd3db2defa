"""Tokens sorted by expert on the current stream, in the form that Transformer Engine's kernels by index take.

`moe_permute(map_type="index")` itself sorts with `cub::DeviceRadixSort` and hands it no stream (permutation.cu, 2.8 to
2.20): on a stream of one's own that sort races the router, and a CUDA graph does not hold it.
"""

from collections.abc import Callable
from typing import Any

import torch

Unpermute = Callable[..., torch.Tensor]
"""`moe_unpermute` of `transformer_engine.pytorch`."""


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
