"""Where a token's training FLOPs are spent: in GEMMs with a weight, and in what no list of such GEMMs can hold.

The parts add up to `training_flops_per_token` exactly. The formula counts every active weight as one multiply-add, also
those that are added or multiplied one by one (norms, biases, the convolution of Mamba-2).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from precision_api.facts.recipes import RECIPES, Format, Recipe
from precision_api.models.flops import parameters, scan_multiply_adds, training_flops_per_token
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Gemm, model_gemms


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
    by_weights, gemms = 6 * parameters(model).active_without_embedding, 6 * int(sum(weights_in_gemms(model).values()))
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


def weights_in_gemms(model: ModelSpec) -> dict[Gemm, Fraction]:
    """Weights of each listed forward GEMM that one token meets: of a layer's experts as many as the router chooses."""
    share = Fraction(model.moe.top_k, model.moe.num_experts) if model.moe else Fraction(1)
    forward = (gemm for gemm in model_gemms(model, 1) if gemm.pass_ == "fprop")
    return {gemm: gemm.k * gemm.n * gemm.count * (share if gemm.groups > 1 else Fraction(1)) for gemm in forward}


def flops_by_format(
    model: ModelSpec, sequence_length: int, recipes: Mapping[str, Recipe], recipe: Recipe, layers_bf16: int = 0
) -> dict[Format, float]:
    """Training FLOPs of a token by the format they run in, all of `training_flops_per_token`.

    A GEMM runs in the recipe that `recipes` has for its name, else, where it is quantized, in `recipe`; all else runs
    in BF16, and the last `layers_bf16` layers too, taken to be like the others.
    """
    flops: dict[Format, float] = {}
    for gemm, weights in weights_in_gemms(model).items():
        kind = RECIPES[recipes.get(gemm.name, recipe if gemm.quantized else "bf16")].format
        if gemm.quantized or kind != "bf16":
            kept = Fraction(layers_bf16, model.num_hidden_layers) if gemm.quantized else 0
            low = 6 * weights * (1 - kept)
            flops[kind] = flops.get(kind, 0.0) + float(low)
    low_precision = sum(flops[kind] for kind in flops if kind != "bf16")
    return flops | {"bf16": training_flops_per_token(model, sequence_length) - low_precision}


def mfu(flops: Mapping[Format, float], peaks: Mapping[Format, float | None], seconds: float) -> float | None:
    """The time that FLOPs would take, each at the dense peak of its format, over `seconds`; None where one is unknown.

    `peaks` in FLOP/s. No recipe is ever ranked by it: it tells how much is left, not what is fast.
    """
    at_peak = [count / peak if (peak := peaks.get(kind)) else None for kind, count in flops.items()]
    return None if None in at_peak else sum(filter(None, at_peak)) / seconds
