"""What each recipe is in Transformer Engine: its class and arguments, its quantizers, and the flags they must show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from precision_agent.backends.te.api import Api
from precision_api.facts.recipes import RECIPES, Recipe

QuantizerRole = Literal["input", "weight", "gradient"]
SLOTS: Mapping[QuantizerRole, tuple[str, str, int]] = {
    "input": ("scaling_fwd", "input", 0),
    "weight": ("scaling_fwd", "weight", 1),
    "gradient": ("scaling_bwd", "grad_output", 0),
}
"""Where a linear module keeps its quantizers: [input, weight, output] and [grad_output, grad_input], 2.8 to 2.20.

A grouped one has these for every GEMM in turn, and tells by name where each kind begins.
"""


@dataclass(frozen=True, slots=True)
class RecipeCall:
    """What the recipe's class is built with, which class of quantizer comes of it, and these' flags by role."""

    quantizer: str
    keywords: Mapping[str, bool] = field(default_factory=dict)
    flags: Mapping[QuantizerRole, Mapping[str, bool]] = field(default_factory=dict)
    delayed: bool = False
    stochastic: bool = False
    """Gradients are rounded at random: two equal steps differ."""
    prequantized: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    """The quantizer's keywords for input and weight where both are quantised before the product is timed."""


def _nvfp4(rht: bool) -> RecipeCall:
    # All three are named, for their defaults come from the environment (NVTE_NVFP4_DISABLE_*).
    return RecipeCall(
        "NVFP4Quantizer",
        {"disable_rht": not rht, "disable_stochastic_rounding": False, "disable_2d_quantization": False},
        {
            "input": {"with_rht": rht, "stochastic_rounding": False, "with_2d_quantization": False},
            "weight": {"with_rht": False, "stochastic_rounding": False, "with_2d_quantization": True},
            "gradient": {"with_rht": rht, "stochastic_rounding": True, "with_2d_quantization": False},
        },
        stochastic=True,
    )


_BOTH = {"rowwise": True, "columnwise": True}
CALLS: Mapping[Recipe, RecipeCall | None] = {
    "bf16": None,
    "fp8_delayed": RecipeCall("Float8Quantizer", delayed=True),
    "fp8_current": RecipeCall("Float8CurrentScalingQuantizer"),
    "fp8_block": RecipeCall(
        "Float8BlockQuantizer", prequantized=(_BOTH | {"block_scaling_dim": 1}, _BOTH | {"block_scaling_dim": 2})
    ),
    "mxfp8": RecipeCall("MXFP8Quantizer"),
    "nvfp4": _nvfp4(rht=True),
    "nvfp4_no_rht": _nvfp4(rht=False),
}

AVAILABILITY: Mapping[str, str] = {
    "DelayedScaling": "is_fp8_available",
    "Float8CurrentScaling": "is_fp8_available",
    "Float8BlockScaling": "is_fp8_block_scaling_available",
    "MXFP8BlockScaling": "is_mxfp8_available",
    "NVFP4BlockScaling": "is_nvfp4_available",
}
"""Transformer Engine's own word on the hardware, by class: (bool, reason). A hint: NVFP4's says yes on sm_120."""


def make(api: Api, recipe: Recipe) -> Any | None:
    """A new recipe object; None for bf16, which quantises nothing."""
    call, te_class = CALLS[recipe], RECIPES[recipe].te_class
    return getattr(api.recipe, te_class)(**call.keywords) if call and te_class else None


def hint(api: Api, recipe: Recipe) -> tuple[bool, str]:
    """What Transformer Engine says of this recipe on this hardware, without running it; yes where it has no word."""
    te_class = RECIPES[recipe].te_class
    ask = getattr(api.manager, AVAILABILITY[te_class], None) if te_class else None
    if ask is None:
        return True, ""
    available, reason = ask()
    return bool(available), str(reason)


def quantizers(module: Any) -> dict[QuantizerRole, Any]:
    """The quantizers of a linear module by role; empty before its first quantised call."""
    held, begins = getattr(module, "quantizers", None) or {}, getattr(module, "_offsets", None) or {}
    by_role = {}
    for role, (key, kind, usual) in SLOTS.items():
        slots, index = held.get(key) or (), begins.get(kind, usual)
        if len(slots) > index:
            by_role[role] = slots[index]
    return by_role


def flags_of(module: Any) -> dict[str, bool]:
    """`role.flag` of the NVFP4 quantizers of a module, as they stand now; empty for other recipes."""
    names = ("with_rht", "stochastic_rounding", "with_2d_quantization")
    return {
        f"{role}.{name}": bool(getattr(quantizer, name))
        for role, quantizer in quantizers(module).items()
        for name in names
        if hasattr(quantizer, name)
    }


def wrong_quantizers(recipe: Recipe, by_role: Mapping[QuantizerRole, Any]) -> str | None:
    """Why these quantizers are not the recipe's, or None.

    Transformer Engine returns early when a module's recipe has the same class: nvfp4 after nvfp4_no_rht on one module
    keeps the transform off. Then the flags differ from what the recipe says.
    """
    call = CALLS[recipe]
    if call is None:
        return f"bf16 quantises: {', '.join(sorted(by_role))}" if by_role else None
    absent = [role for role in SLOTS if by_role.get(role) is None]
    if absent:
        return f"{recipe}: no quantizer for {', '.join(absent)}"
    for role, quantizer in by_role.items():
        name = type(quantizer).__name__
        if name != call.quantizer:
            return f"{recipe}: the {role}'s quantizer is {name}, not {call.quantizer}"
        for flag, wanted in call.flags.get(role, {}).items():
            if bool(getattr(quantizer, flag, None)) != wanted:
                return f"{recipe}: the {role}'s {flag} is {getattr(quantizer, flag, None)}, not {wanted}"
    return None
