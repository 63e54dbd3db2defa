"""The precision recipes as one table: what each is called, where it runs, and which shapes it takes.

"Recipe" is Transformer Engine's word for how a layer's matrix multiplications are quantised. What this table says of
hardware is a hint that saves a useless attempt; the agent proves each recipe by one forward and backward pass.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from math import ceil
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, TypeAdapter

_Newer = Literal["nvfp4_fast_math", "nvfp4_4over6_weights", "mxfp8_2d"]
PlainRecipe = Literal["bf16", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4", "nvfp4_no_rht", _Newer]


def _name(name: str) -> str:
    if not re.fullmatch(rf"[a-z][a-z0-9_-]{{0,39}}(\.[{''.join(LETTERS.values())}]{{6}})?", name):
        raise ValueError(f"{name[:40]!r} is neither a recipe nor the name of a mixture")
    return name


RECIPE_NAMES: tuple[PlainRecipe, ...] = get_args(PlainRecipe)
LETTERS: Mapping[str, str] = dict(zip(RECIPE_NAMES, "bdckmnrfwx", strict=True))
"""One for each recipe, for good: results name a mixture by them."""
PARTS = ("mlp", "attention", "attentionOut", "mamba", "mambaOut", "head")
"""What a mixture's letters are of, in their order."""
Recipe = Annotated[str, Field(max_length=40), AfterValidator(_name)]
"""Of the table; or a mixture: the profile's name for it, a dot and the letter of each part. So one name with other
parts is another recipe to every reader."""
Support = Literal["native", "emulated"]
Format = Literal["bf16", "fp8", "fp4"]
Compute = tuple[int, int]
"""CUDA compute capability, (major, minor)."""


@dataclass(frozen=True)
class RecipeFacts:
    """One recipe. `native` and `emulated` are inclusive ranges of compute capability."""

    recipe: PlainRecipe
    te_class: str | None
    """Class in transformer_engine.common.recipe; None where no quantisation happens."""
    format: Format
    """Number format of the multiplication: names the peak that its FLOPs are held against."""
    kernels: Literal["bf16", "fp8", "fp8_block", "mxfp8", "nvfp4"]
    """Class of GEMM kernels that must be seen in a profile."""
    operand_bytes: float
    """Bytes of an operand's element in one direction, with its scales: FP8 blocks of 128 have FP32 scales, MXFP8's
    blocks of 32 and NVFP4's of 16 scales of a byte."""
    native: tuple[tuple[Compute, Compute], ...]
    emulated: tuple[tuple[Compute, Compute], ...]
    """10.0 (B200, GB200) and 10.3 (B300, GB300) instead of family blackwell, which also covers compute 12 (workstation
    parts), where training kernels of these recipes fail."""
    multiple_of: int
    """Every dimension of every GEMM must be a multiple of this: a training step leads with each of m, n and k once."""
    expert_rows_multiple_of: int
    """An expert's rows are padded to it: get_align_size_for_quantization of Transformer Engine 2.20.2. NVFP4's cast of
    several tensors in one call takes only rows that are multiples of 64."""
    hadamard: bool = False
    """Whether operands of the weight gradient get a random Hadamard transform."""
    risk: str = ""
    """What speaks against training in it, with its source; a risky recipe is named only where somebody lists it."""
    variant_of: "Recipe | None" = None
    """The recipe that it is but for a few fields; a variant is measured only where somebody lists it."""
    variables: tuple[tuple[str, str], ...] = ()
    """Of the environment, while the recipe's modules work and at no other time: read at each quantization."""
    last_layers_bf16: float = 0.0
    """Share of a model's layers, the last ones, that stay in BF16 where nobody says otherwise: none is a risk."""


_NONE_IN_BF16 = (
    'no layers stay in BF16, and NVIDIA advises: "keep the last 15% of the layers in BF16 precision for better '
    'stability" (Megatron-Bridge, low-precision tutorial)'
)
_TABLE = files(__package__).joinpath("recipes.json").read_text(encoding="utf-8")
_ROWS = TypeAdapter(tuple[RecipeFacts, ...]).validate_json(_TABLE)
_NARROWEST = next(row for row in _ROWS if row.recipe == "nvfp4")


class _Rows(dict[str, RecipeFacts]):
    def __missing__(self, name: str) -> RecipeFacts:
        return _mixed(name.partition(".")[2])


@lru_cache(1_000)
def _mixed(letters: str) -> RecipeFacts:
    """The row of a mixture of these parts, the head's last: what speaks against any part speaks against it."""
    parts = [row for letter in letters for row in _ROWS if LETTERS[row.recipe] == letter]
    risk = "; ".join(dict.fromkeys(row.risk for row in parts if row.risk))
    kept = max((row.last_layers_bf16 for row in parts[:-1]), default=_NARROWEST.last_layers_bf16)
    return replace(_NARROWEST, te_class=None, native=(), hadamard=False, risk=risk, last_layers_bf16=kept)


RECIPES: Mapping[str, RecipeFacts] = _Rows({row.recipe: row for row in _ROWS})
"""By name. A mixture, whose parts have rows of their own, counts as the narrowest that they can be."""
MOST_MIXTURES = 4
"""Of a profile: each is a recipe in the labels of its metrics."""
MOST_RECIPES = len(RECIPE_NAMES) + MOST_MIXTURES
"""Of a result."""
MOST_LISTED = 6
"""In one run, beside BF16 and the baseline: summaries of eight fit into a kubelet's message, whatever they hold."""
KEEPING = frozenset(row.recipe for row in _ROWS if row.last_layers_bf16)
"""Recipes with which the last layers stay in BF16."""


def support(recipe: Recipe, compute: Compute) -> Support | None:
    """Whether hardware of `compute` runs `recipe` natively, through another recipe's kernels, or not at all (None)."""
    row = RECIPES[recipe]
    if any(low <= compute <= high for low, high in row.native):
        return "native"
    return "emulated" if any(low <= compute <= high for low, high in row.emulated) else None


def recipes_for(compute: Compute) -> tuple[tuple[PlainRecipe, Support], ...]:
    """All recipes that hardware of `compute` can run, in the table's order, each with how."""
    return tuple((recipe, how) for recipe in RECIPE_NAMES if (how := support(recipe, compute)) is not None)


def by_default(compute: Compute | None) -> tuple[PlainRecipe, ...]:
    """What is measured where nobody lists recipes: no variants; of a product in the table, what it runs natively.

    `compute` is None for every other product: all are tried there, and Transformer Engine decides.
    """
    native = RECIPE_NAMES if compute is None else (recipe for recipe, how in recipes_for(compute) if how == "native")
    return tuple(recipe for recipe in native if RECIPES[recipe].variant_of is None)


def in_order(names: Iterable[Recipe]) -> tuple[Recipe, ...]:
    """Each once: recipes in the table's order, then mixtures by name."""
    return tuple(sorted({*names}, key=lambda name: ([*RECIPE_NAMES, name].index(name), name)))


def layers_in_bf16(recipe: Recipe, layers: int, asked: int | None = None) -> int:
    """How many of a model's `layers` stay in BF16: as `asked`, else the recipe's share, rounded up; never all."""
    share = RECIPES[recipe].last_layers_bf16
    return min(ceil(share * layers) if asked is None else asked, layers - 1) if share else 0


def with_bf16(
    baseline: Recipe, recipes: Iterable[PlainRecipe], asked: int | None = None, mixed: Iterable[PlainRecipe] = ()
) -> tuple[PlainRecipe, ...]:
    """Recipes of the table to measure, first a baseline that is no mixture: BF16 too where a recipe, or a part of
    mixtures, keeps layers in it."""
    recipes = tuple(recipes)
    needed = ("bf16",) if asked != 0 and KEEPING & {*recipes, *mixed} else ()
    return tuple(dict.fromkeys(RECIPES[name].recipe for name in (baseline, *recipes, *needed) if name in RECIPES))


def risk_of(recipe: Recipe, in_bf16: int | None = None) -> str:
    """What speaks against training in it, with its source; `in_bf16`: layers, None where no layers were trained."""
    without = _NONE_IN_BF16 if in_bf16 == 0 and RECIPES[recipe].last_layers_bf16 else ""
    return "; ".join(filter(None, (RECIPES[recipe].risk, without)))


def recipe_name(recipe: Recipe) -> str:
    """What people call it: of a mixture the profile's name for it."""
    return recipe.partition(".")[0]


def mixture_text(recipe: Recipe) -> str:
    """What the parts of a mixture run in, as `nvfp4, but attention in bf16`; empty of a recipe of the table."""
    names = {letter: name for name, letter in LETTERS.items()}
    parts = dict(zip(PARTS, (names[letter] for letter in recipe.partition(".")[2]), strict=False))
    usual = {**dict.fromkeys(PARTS, parts.get("mlp")), "head": "bf16"}
    others = ", ".join(f"{part} in {name}" for part, name in parts.items() if name != usual[part])
    return ", but ".join(filter(None, (parts.get("mlp"), others)))


def names_of(named: Iterable[Recipe]) -> Mapping[Recipe, str]:
    """What to call each of these: `recipe_name`, with the letters of mixtures that have one name and other parts."""
    keys = dict.fromkeys(named)
    shared = Counter(map(recipe_name, keys))
    return {key: recipe_name(key) if shared[recipe_name(key)] == 1 else key for key in keys}


def recipe_text(recipe: Recipe, gain: float | None, kept: int | None, over: Recipe = "bf16", *marks: str | None) -> str:
    """A recipe for columns, such as `nvfp4_no_rht 1.80x over mxfp8 (at risk, last 5 in BF16)`, with further marks."""
    risk, last = "at risk" if risk_of(recipe, kept) else "", f"last {kept} in BF16" if kept else ""
    more = ", ".join(filter(None, (*marks, risk, last)))
    faster = f" {gain:.2f}x{'' if over == 'bf16' else f' over {recipe_name(over)}'}" if gain else ""
    return f"{recipe_name(recipe)}{faster}{f' ({more})' if more else ''}"


def mixtures_of(named: Iterable[Recipe]) -> list[str]:
    """A sentence for each mixture among these: what its parts run in, and what results call it."""
    words = "{} is a mixture: {}; metrics and JSON add .{} to its name."
    mixed = names_of(sorted(recipe for recipe in {*named} if "." in recipe)).items()
    return [words.format(name, mixture_text(recipe), recipe.partition(".")[2]) for recipe, name in mixed]


def risks_of(named: Iterable[tuple[Recipe, int | None]]) -> list[str]:
    """A sentence for each risk of these (recipe, layers in BF16)."""
    return sorted({f"Risk of {recipe_name(it)}: {why}." for it, kept in named if (why := risk_of(it, kept))})


def notes_of(named: Iterable[tuple[Recipe, int | None]]) -> list[str]:
    """Of these (recipe, layers in BF16) what mixtures are, and all risks."""
    pairs = dict.fromkeys(named)
    return mixtures_of(recipe for recipe, _ in pairs) + risks_of(pairs)


def misaligned(recipe: Recipe, dimensions: Mapping[str, int]) -> tuple[str, ...]:
    """The names of `dimensions` (for example m, k, n) that `recipe` can't take; empty when the shape fits."""
    step = RECIPES[recipe].multiple_of
    return tuple(name for name, size in dimensions.items() if size % step)


def alignment_error(recipe: Recipe, dimensions: Mapping[str, int]) -> str | None:
    """A sentence for the user on why `recipe` can't take a GEMM of `dimensions`, with the next step; None if it can."""
    wrong = misaligned(recipe, dimensions)
    if not wrong:
        return None
    step = RECIPES[recipe].multiple_of
    shown = ", ".join(f"{name}={dimensions[name]}" for name in wrong)
    nearest = ", ".join(f"{name}={-(-dimensions[name] // step) * step}" for name in wrong)
    return f"{recipe} needs dimensions that are multiples of {step}, but {shown}; use {nearest}, or leave {recipe} out"
