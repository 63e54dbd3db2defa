"""Where a token's training FLOPs are spent: in GEMMs with a weight, and in what no list of such GEMMs can hold.

The parts add up to `training_flops_per_token` exactly. The formula counts every active weight as one multiply-add, also
those that are added or multiplied one by one (norms, biases, the convolution of Mamba-2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from precision_api.models.flops import parameters, scan_multiply_adds, training_flops_per_token
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import model_gemms


@dataclass(frozen=True, slots=True)
class FlopShare:
    """One part of the work on a token: FLOPs of its forward and backward passes, and their share of all, 0 to 1."""

    name: str
    flops_per_token: int
    share: float


GEMMS, ATTENTION = "GEMMs", "attention products"
"""The part that `model_gemms` lists, router and head among it, and scores and values, which have no weights."""


def flop_shares(model: ModelSpec, sequence_length: int) -> tuple[FlopShare, ...]:
    """The work on a token of a sequence of `sequence_length`, part by part, the listed GEMMs first."""
    total = training_flops_per_token(model, sequence_length)
    return tuple(FlopShare(name, flops, flops / total) for name, flops in _parts(model, sequence_length, total))


def _parts(model: ModelSpec, sequence: int, total: int) -> Iterator[tuple[str, int]]:
    by_weights, gemms = 6 * parameters(model).active_without_embedding, 6 * weights_in_gemms(model)
    scan, convolution = 0, 0
    if model.hybrid is not None:
        scan = round(6 * model.mamba_layers * scan_multiply_adds(model))
        convolution = 6 * model.mamba_layers * model.hybrid.convolved_width * (model.hybrid.conv_kernel + 1)
    yield GEMMS, gemms
    yield ATTENTION, total - by_weights - scan
    if model.hybrid is not None:
        yield "scan of Mamba-2", scan
        yield "convolution of Mamba-2", convolution
    yield "norms, biases and other vectors", by_weights - gemms - convolution
    if model.moe is not None:
        yield ROUTING, 0


ROUTING = "choice of experts, permutation of tokens"
"""Moves data: it takes time, but the formula counts no FLOPs of it. The router's own product is a GEMM."""


def weights_in_gemms(model: ModelSpec) -> int:
    """Weights of the listed GEMMs that one token meets: of a layer's experts as many as the router chooses."""
    share = Fraction(model.moe.top_k, model.moe.num_experts) if model.moe else Fraction(1)
    met = sum(
        gemm.k * gemm.n * gemm.count * (share if gemm.groups > 1 else 1)
        for gemm in model_gemms(model, 1)
        if gemm.pass_ == "fprop"
    )
    return int(met)
