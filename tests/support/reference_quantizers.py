"""What each recipe does to numbers, in plain torch: quantise and dequantise as its format is defined, on any device.

Gives the error against FP32 that a recipe should show, so that a run which is too exact (or wrong) is found out. Slow,
and meant to be read: nothing here is timed. Sources: OCP 8-bit Floating Point and OCP Microscaling (MX) v1.0; NVIDIA's
"Pretraining Large Language Models with NVFP4" (arXiv 2509.25149); Transformer Engine's recipes for what is
quantised how.

Blocks lie along the last dimension, which must be the GEMM's contraction and a multiple of the block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from precision_api.facts.recipes import RECIPES, Recipe
from precision_api.models.shapes import Pass


@dataclass(frozen=True, slots=True)
class Float:
    """A small float: significand bits after the point, exponent of the least normal number, largest finite number."""

    mantissa_bits: int
    least_exponent: int
    largest: float


E4M3 = Float(3, -6, 448.0)
E5M2 = Float(2, -14, 57344.0)
E2M1 = Float(1, 0, 6.0)

MX_BLOCK, NVFP4_BLOCK, FP8_BLOCK = 32, 16, 128
SCALE_FLOOR = 2.0**-126
"""Least scale: of an all-zero block any scale is right, but 0 / 0 is not."""


def rounded(x: torch.Tensor, kind: Float, chance: torch.Generator | None = None) -> torch.Tensor:
    """`x` (float32) at the nearest number of `kind`: ties to even, beyond the largest saturated, NaN kept.

    With `chance` each number goes up or down at random, in proportion to its distance: right on average.
    """
    exponent = (torch.frexp(x.abs()).exponent - 1).clamp(min=kind.least_exponent)
    step = torch.ldexp(torch.ones_like(x), exponent - kind.mantissa_bits)
    steps = x / step
    if chance is None:
        whole = steps.round()
    else:
        whole = (steps + torch.rand(x.shape, generator=chance, device=x.device)).floor()
    return (whole * step).clamp(-kind.largest, kind.largest)


def power_of_two(x: torch.Tensor, way: Literal["up", "floor"]) -> torch.Tensor:
    """Positive `x` as an E8M0 scale, 2^-127 to 2^127: `floor` as the MX specification, `up` as NVIDIA's hardware does.

    The specification's lets the largest elements of a block saturate; rounded up, none does.
    """
    fraction, exponent = torch.frexp(x)
    exponent = exponent - 1 + ((fraction > 0.5).int() if way == "up" else 0)
    return torch.ldexp(torch.ones_like(x), exponent.clamp(-127, 127))


def per_tensor(x: torch.Tensor, kind: Float, chance: torch.Generator | None = None) -> torch.Tensor:
    """FP8 with one FP32 scale: the tensor's largest number becomes the format's."""
    scale = (x.abs().amax() / kind.largest).clamp(min=SCALE_FLOOR)
    return rounded(x / scale, kind, chance) * scale


def fp8_block(x: torch.Tensor, kind: Float = E4M3, square: bool = False) -> torch.Tensor:
    """FP8 in blocks of 1x128, `square` 128x128 (weights), with power-of-two scales (Transformer Engine's default)."""
    blocks = _blocks(x, FP8_BLOCK, square)
    scale = power_of_two(_amax(blocks) / kind.largest, "up")
    return _whole(rounded(blocks / scale, kind) * scale, x)


def mxfp8(x: torch.Tensor, kind: Float = E4M3, way: Literal["up", "floor"] = "up") -> torch.Tensor:
    """MXFP8: blocks of 32 with E8M0 scales."""
    blocks = _blocks(x, MX_BLOCK, False)
    if way == "up":
        scale = power_of_two(_amax(blocks) / kind.largest, "up")
    else:
        greatest_exponent = torch.frexp(torch.tensor(kind.largest)).exponent - 1
        scale = power_of_two(_amax(blocks), "floor") / 2.0 ** int(greatest_exponent)
    return _whole(rounded(blocks / scale, kind) * scale, x)


def nvfp4(x: torch.Tensor, square: bool = False, chance: torch.Generator | None = None) -> torch.Tensor:
    """NVFP4: E2M1 in blocks of 16 (`square` 16x16, weights), an E4M3 scale each, one FP32 scale over the tensor.

    The tensor's scale maps the largest number to 6 x 448, so that the greatest block scale is E4M3's largest.
    """
    tensor_scale = (x.abs().amax() / (E2M1.largest * E4M3.largest)).clamp(min=SCALE_FLOOR)
    blocks = _blocks(x, NVFP4_BLOCK, square)
    block_scale = rounded(_amax(blocks) / E2M1.largest / tensor_scale, E4M3)
    scale = block_scale * tensor_scale
    quantised = rounded(blocks / scale.clamp(min=SCALE_FLOOR), E2M1, chance) * scale
    return _whole(quantised, x)


def hadamard(x: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Random Hadamard transform: 16 numbers at a time, with 16 `signs` (+-1), by the orthonormal 16x16 Hadamard matrix.

    Both operands of a product are transformed along its contraction: their product stays, outliers spread.
    """
    matrix = torch.ones(1, 1, device=x.device)
    for _ in range(4):
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    turned = (x.reshape(-1, NVFP4_BLOCK) * signs) @ (matrix / 4)
    return turned.reshape(x.shape)


Role = Literal["activation", "weight", "gradient"]
OPERANDS: Mapping[Pass, tuple[Role, Role]] = {
    "fprop": ("activation", "weight"),
    "dgrad": ("gradient", "weight"),
    "wgrad": ("gradient", "activation"),
}


def expected_errors(
    recipe: Recipe, x: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor, seed: int = 0
) -> dict[Pass, float]:
    """Relative error against FP32 of y (fprop), dx (dgrad) and dW (wgrad) of one linear layer in `recipe`.

    x is (tokens, in), weight (out, in), gradient (tokens, out), all dimensions multiples of 128 for fp8_block, 32 for
    mxfp8, 16 for nvfp4. Results are rounded to bf16, as the GEMMs give them.
    """
    chance = torch.Generator(device=x.device).manual_seed(seed)
    signs = torch.randint(0, 2, (NVFP4_BLOCK,), generator=chance, device=x.device) * 2.0 - 1.0
    pairs: Mapping[Pass, tuple[torch.Tensor, torch.Tensor]] = {
        "fprop": (x, weight),
        "dgrad": (gradient, weight.t()),
        "wgrad": (gradient.t(), x.t()),
    }
    errors: dict[Pass, float] = {}
    for pass_, (a, b) in pairs.items():
        exact = a @ b.t()
        if RECIPES[recipe].hadamard and pass_ == "wgrad":  # the transform is applied to wgrad's operands only
            a, b = hadamard(a, signs), hadamard(b, signs)
        first, second = (
            quantised(tensor, recipe, role, chance) for tensor, role in zip((a, b), OPERANDS[pass_], strict=True)
        )
        found = (first @ second.t()).bfloat16().float()
        errors[pass_] = float((found - exact).norm() / exact.norm())
    return errors


def quantised(x: torch.Tensor, recipe: Recipe, role: Role, chance: torch.Generator) -> torch.Tensor:
    """`x` (rows, contraction) as `recipe` rounds an operand of this role, by Transformer Engine's defaults.

    Per-tensor FP8 is HYBRID (gradients E5M2); blocks are E4M3 throughout; NVFP4 rounds gradients stochastically and
    weights in squares. Delayed scaling has current scaling's errors where amax doesn't move.
    """
    match RECIPES[recipe].kernels:
        case "bf16":
            return x.bfloat16().float()
        case "fp8":
            return per_tensor(x, E5M2 if role == "gradient" else E4M3)
        case "fp8_block":
            return fp8_block(x, square=role == "weight")
        case "mxfp8":
            return mxfp8(x)
        case "nvfp4":
            return nvfp4(x, square=role == "weight", chance=chance if role == "gradient" else None)


def _blocks(x: torch.Tensor, size: int, square: bool) -> torch.Tensor:
    """(rows, columns) as (row blocks, height, column blocks, size); height is 1 or, for squares, `size`.

    Raises ValueError for dimensions that the block doesn't divide.
    """
    height = size if square else 1
    rows, columns = x.shape
    if rows % height or columns % size:
        raise ValueError(f"{rows}x{columns} is not made of blocks of {height}x{size}: pad it first")
    return x.reshape(rows // height, height, columns // size, size)


def _amax(blocks: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each block, shaped to be broadcast; never 0."""
    return blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(min=SCALE_FLOOR)


def _whole(blocks: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return blocks.reshape(like.shape)
