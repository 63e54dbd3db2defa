"""Field types of the profile: what a user may write, told to the schema, to CEL in words, and to pydantic alike."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from precision_api.exchange.request import Mode
from precision_api.facts.recipes import RECIPE_NAMES, PlainRecipe
from precision_api.facts.schema import cel, patterned

_LABEL_KEY = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
LabelKey = Annotated[str, patterned(_LABEL_KEY, 317, "write a label key, for example topology.kubernetes.io/rack")]
_PERCENT = r"^([1-9][0-9]?|100)%$"
IntOrPercent = Annotated[
    Annotated[int, Field(ge=1, le=100_000)] | Annotated[str, Field(pattern=_PERCENT, max_length=4)],
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            **cel(
                (
                    f"type(self) == int ? self >= 1 : self.matches(r'{_PERCENT}')",
                    'write a number of nodes from 1 on, or a per cent from "1%" to "100%"',
                )
            ),
        }
    ),
]
Watts = Annotated[int, Field(ge=1, le=1_000_000_000)]
Duration = Annotated[
    str, patterned(r"^[1-9][0-9]{0,5}(s|m|h|d)$", 7, "write a number and one unit (s, m, h or d), for example 24h")
]
Quantity = Annotated[
    str,
    patterned(
        r"^([0-9]*[1-9][0-9]*(\.[0-9]+)?|0+\.[0-9]*[1-9][0-9]*)(m|k|M|G|T|Ki|Mi|Gi|Ti)?$",
        32,
        "write a Kubernetes quantity above 0, for example 4, 500m or 32Gi",
    ),
]
"""Not 0: a container whose memory limit is 0 has none, and would take its node's."""
Sha256 = Annotated[str, patterned(r"^[0-9a-f]{64}$", 64, "write the 64 digits that `reference show` prints")]
Deficit = Annotated[int, Field(ge=1, le=15)]
Image = Annotated[
    str,
    patterned(
        r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$", 512, "write an image reference, for example registry.internal/agent:1.0"
    ),
]


def _once_each(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} listed twice: list each one once")
    return values


_NOT_PLAIN = f"write recipes: {', '.join(RECIPE_NAMES)}; only a profile's benchmarks.baseline can name a mixture"


def _plain(name: object) -> object:
    if isinstance(name, str) and name not in RECIPE_NAMES:
        raise ValueError(_NOT_PLAIN)
    return name


def _in_words(schema: dict[str, Any]) -> None:
    """A rule in place of the list: the API server has no words of ours for what is not in a list."""
    schema |= {"maxLength": 40, **cel((f"self in {schema.pop('enum')}", _NOT_PLAIN))}


ONCE_EACH = cel(("self.all(x, self.exists_one(y, x == y))", "list each one once"))
"""Not `x-kubernetes-list-type: set`: server-side apply would then merge a list with its default."""
_Recipe = Annotated[PlainRecipe, BeforeValidator(_plain), Field(json_schema_extra=_in_words)]
Recipes = Annotated[tuple[_Recipe, ...], AfterValidator(_once_each), Field(json_schema_extra=ONCE_EACH)]
Modes = Annotated[tuple[Mode, ...], AfterValidator(_once_each), Field(json_schema_extra=ONCE_EACH)]
Product = Annotated[
    str,
    patterned(
        r"^[A-Za-z0-9]([A-Za-z0-9 ._/-]*[A-Za-z0-9])?$", 63, "write a GPU's name as its label has it, for example H100"
    ),
]
Products = Annotated[tuple[Product, ...], AfterValidator(_once_each), Field(json_schema_extra=ONCE_EACH)]
Cause = Literal["DriverChange", "AgentChange", "HardwareChange", "SpecChange"]
RerunOn = Annotated[tuple[Cause, ...], AfterValidator(_once_each), Field(json_schema_extra=ONCE_EACH)]
