"""Which recipe each part of a layer runs in: the same in all of them, or a mixture that a profile names.

Published recipes mix formats by projection: Nemotron 3 Super trains attention in BF16, Mamba-2's output projection in
MXFP8 and the rest in NVFP4 (Megatron-Bridge, perf_recipes/nemotronh).
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Annotated

from pydantic import AfterValidator, Field

from precision_api.facts.recipes import LETTERS, MOST_MIXTURES, RECIPE_NAMES, RECIPES, PlainRecipe, layers_in_bf16
from precision_api.facts.schema import Document, Rule, cel, patterned

_NOT_DELAYED = (
    "fp8_delayed can't be part of a mixture: its scales are updated only where the outermost autocast is its own; use "
    "fp8_current"
)
_SAME_NAME = "two mixtures have one name: give each its own"


def _scaled_at_once(recipe: PlainRecipe) -> PlainRecipe:
    if recipe == "fp8_delayed":
        raise ValueError(_NOT_DELAYED)
    return recipe


PartRecipe = Annotated[
    PlainRecipe,
    AfterValidator(_scaled_at_once),
    Field(json_schema_extra=cel(("self != 'fp8_delayed'", _NOT_DELAYED))),
]
MixtureName = Annotated[
    str,
    patterned(r"^[a-z][a-z0-9_-]{0,32}$", 33, "write lower case letters, digits, - and _, for example nemotron3-super"),
]


@dataclass(frozen=True, slots=True)
class Parts:
    """The recipe of each part. A plain recipe has itself everywhere but in the head, which stays in BF16."""

    mlp: PlainRecipe
    attention: PlainRecipe
    attention_out: PlainRecipe
    mamba: PlainRecipe
    mamba_out: PlainRecipe
    head: PlainRecipe = "bf16"

    @staticmethod
    def of(mlp: PlainRecipe, mixers: PlainRecipe | None = None) -> "Parts":
        """One recipe in all layers; `mixers`: of attention's and Mamba-2's projections, where it is another one."""
        return Parts(mlp, *[mixers or mlp] * 4)

    def only(self, present: Collection[str | None]) -> "Parts":
        """The same in a model that has just these parts: one that it lacks, by the name of its field, is like another,
        or like a plain recipe's head."""
        parts = asdict(self)
        other = next((recipe for name, recipe in parts.items() if name in present and name != "head"), self.mlp)
        return Parts(
            **{
                name: recipe if name in present else "bf16" if name == "head" else other
                for name, recipe in parts.items()
            }
        )

    @property
    def letters(self) -> str:
        """Of each part's recipe: what results add to a mixture's name."""
        return "".join(LETTERS[recipe] for recipe in astuple(self))

    @property
    def recipes(self) -> tuple[PlainRecipe, ...]:
        """Each once, the MLP's first."""
        return tuple(dict.fromkeys(astuple(self)))

    @property
    def of_layers(self) -> tuple[PlainRecipe, ...]:
        """The same without the head's."""
        return tuple(dict.fromkeys(astuple(self)[:-1]))

    def layers_in_bf16(self, layers: int, asked: int | None) -> int:
        """How many of a model's layers stay in BF16: as many as the recipe of any part says."""
        return max(layers_in_bf16(recipe, layers, asked) for recipe in self.of_layers)


_WITH_DEFAULT = ("attention", "attentionOut", "mamba", "mambaOut")
_IN_CEL = ", ".join(
    ("self.mlp", *(f"has(self.{name}) ? self.{name} : self.mlp" for name in _WITH_DEFAULT), "self.head")
)


def _alone(recipe: str) -> Rule:
    """That a recipe which sets environment variables has no part beside it that would quantise by them unasked."""
    row = RECIPES[recipe]
    others = [it.recipe for it in RECIPES.values() if it.te_class == row.te_class and it.variables != row.variables]
    return Rule(
        f"!('{recipe}' in [{_IN_CEL}] && [{_IN_CEL}].exists(part, part in {others}))",
        f"{recipe} sets {row.variables[0][0]} for all parts of its class: it can't be beside {', '.join(others)}",
        lambda mixture: recipe not in mixture.parts.recipes or not {*others} & {*mixture.parts.recipes},
    )


class Mixture(Document):
    """A recipe of several: each part of a layer in its own."""

    RULES = (
        Rule(
            f"!(self.name in {[*RECIPES]})",
            "a recipe has this name: give the mixture another one",
            lambda mixture: mixture.name not in RECIPES,
        ),
        *(_alone(recipe) for recipe, row in RECIPES.items() if row.variables),
    )

    name: MixtureName = Field(
        description="What it is called; results, metrics and tables add a dot and a letter for each part."
    )
    mlp: PartRecipe = Field(description="Of the MLP, or the experts; both of its projections are one module.")
    attention: PartRecipe | None = Field(None, description="Of the projections into attention; left out, mlp's.")
    attention_out: PartRecipe | None = Field(None, description="Of attention's output projection; left out, mlp's.")
    mamba: PartRecipe | None = Field(None, description="Of Mamba-2's input projection; left out, mlp's.")
    mamba_out: PartRecipe | None = Field(None, description="Of Mamba-2's output projection; left out, mlp's.")
    head: PartRecipe = Field("bf16", description="Of the output layer over the vocabulary.")

    @property
    def parts(self) -> Parts:
        """The recipe of each part."""
        return Parts(**{field.name: getattr(self, field.name) or self.mlp for field in fields(Parts)})


def _names_once(mixtures: tuple[Mixture, ...]) -> tuple[Mixture, ...]:
    if len({mixture.name for mixture in mixtures}) < len(mixtures):
        raise ValueError(_SAME_NAME)
    return mixtures


Mixtures = Annotated[
    Annotated[tuple[Mixture, ...], Field(max_length=MOST_MIXTURES)],
    AfterValidator(_names_once),
    Field(json_schema_extra=cel(("self.all(x, self.exists_one(y, x.name == y.name))", _SAME_NAME))),
]


NO_BASELINE = f"baseline is neither a recipe nor one of mixtures: write {', '.join(RECIPE_NAMES)} or a mixture's name"


_PLAIN: Mapping[str, Parts] = {name: Parts.of(name) for name in RECIPE_NAMES}


def named_of(mixtures: tuple[Mixture, ...] | None) -> Mapping[str, Parts]:
    """What a baseline may be, by name: mixtures, and every recipe of the table."""
    return {**_PLAIN, **{it.name: it.parts for it in mixtures}} if mixtures else _PLAIN


def of_mixtures(mixtures: tuple[Mixture, ...] | None) -> tuple[PlainRecipe, ...]:
    """The recipes of all parts of these in layers, each once."""
    return tuple(dict.fromkeys(recipe for mixture in mixtures or () for recipe in mixture.parts.of_layers))


_GEMM_PARTS = {
    **dict.fromkeys(("qkv", "q_proj", "q_down", "q_up", "kv_down", "kv_up"), "attention"),
    "attn_out": "attention_out",
    "mamba_in": "mamba",
    "mamba_out": "mamba_out",
}


def part_of(gemm: str, quantized: bool) -> str | None:
    """The part that a listed GEMM is of; None of a router, which no recipe quantises."""
    if not quantized:
        return None if "router" in gemm else "head"
    return _GEMM_PARTS.get(gemm, "mlp")
