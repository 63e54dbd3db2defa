"""What each recipe is in Transformer Engine: its class and fields, its quantizers, and the flags they must show."""

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from pydantic import TypeAdapter

from precision_agent.backends.te.api import Api, version_of
from precision_api.exchange.request import AttentionCore
from precision_api.facts.recipes import RECIPES, PlainRecipe, Recipe

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
    """All fields of the recipe's class, which class of quantizer comes of it, and these' flags by role.

    Formats are names of Transformer Engine's `Format`, `fp8_gemm_*` whether sums are split. Defaults come from the
    environment, so that none is left. `since`: the first version that has the recipe.
    """

    quantizer: str
    fields: Mapping[str, Any]
    later: Mapping[str, Any]
    """Fields that came after 2.8, left out where a version has none: it does what all rows but the newer ones say."""
    flags: Mapping[QuantizerRole, Mapping[str, bool]] = field(default_factory=dict)
    since: str = "2.8"
    """Fast math: the quantizer of one tensor reads it from 2.14 on, that of several from 2.12."""
    delayed: bool = False
    stochastic: bool = False
    """Gradients are rounded at random: two equal steps differ."""
    prequantized: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    """The quantizer's keywords for input and weight where both are quantised before the product is timed."""


_TABLE = files(__package__).joinpath("recipes.json").read_text(encoding="utf-8")
CALLS: Mapping[Recipe, RecipeCall | None] = TypeAdapter(dict[Recipe, RecipeCall | None]).validate_json(_TABLE)

AVAILABILITY: Mapping[str, str] = {
    "DelayedScaling": "is_fp8_available",
    "Float8CurrentScaling": "is_fp8_available",
    "Float8BlockScaling": "is_fp8_block_scaling_available",
    "MXFP8BlockScaling": "is_mxfp8_available",
    "NVFP4BlockScaling": "is_nvfp4_available",
}
"""Transformer Engine's own word on the hardware, by class: (bool, reason). A hint: NVFP4's says yes on sm_120."""


def make(api: Api, recipe: Recipe, **other: Any) -> Any | None:
    """A new recipe object; None for bf16, which quantises nothing. `other` fields than the row's.
    TypeError where this version lacks a field."""
    call, te_class = CALLS[recipe], RECIPES[recipe].te_class
    if not call or not te_class:
        return None
    built = getattr(api.recipe, te_class)
    offered = inspect.signature(built).parameters
    fields = {**call.fields, **{name: value for name, value in call.later.items() if name in offered}} | other
    return built(**{name: _value(api, name, value) for name, value in fields.items()})


def _value(api: Api, name: str, value: Any) -> Any:
    """The value of a field as Transformer Engine has it."""
    if name.endswith("_format"):
        return getattr(api.recipe.Format, value)
    return api.recipe.MMParams(use_split_accumulator=value) if name.startswith("fp8_gemm_") else value


@contextmanager
def variables(*of: PlainRecipe) -> Iterator[None]:
    """These recipes' own environment variables are set within: forward, backward and captures of their modules alone;
    of a mixture, for all of its parts."""
    names = {name: value for recipe in of for name, value in RECIPES[recipe].variables}
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


def make_core(api: Api, core: AttentionCore) -> Any:
    """A new recipe object for attention's core: `fp8_dpa` alone, for none of its tensors leaves the core in FP8."""
    return make(api, core, fp8_dpa=True)


def hint(api: Api, recipe: Recipe) -> tuple[bool, str]:
    """What Transformer Engine says of this recipe on this hardware, without running it; yes where it has no word."""
    call, te_class = CALLS[recipe], RECIPES[recipe].te_class
    if call and version_of(api.version) < version_of(call.since):
        return False, f"it came with Transformer Engine {call.since}, and this is {api.version}"
    ask = getattr(api.manager, AVAILABILITY[te_class], None) if te_class else None
    if ask is None:
        return True, ""
    available, reason = ask()
    return bool(available), f"Transformer Engine says: {reason}"


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
    """`role.flag` of the MXFP8 and NVFP4 quantizers of a module, and rows' variables, as they stand now."""
    names = ("with_rht", "stochastic_rounding", "with_2d_quantization", "nvfp4_use_4over6")
    of_recipes = {name for row in RECIPES.values() for name, _ in row.variables}
    return dict.fromkeys(sorted(of_recipes & os.environ.keys()), True) | {
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
