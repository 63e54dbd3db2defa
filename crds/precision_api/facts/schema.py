"""The base models and field types that every document of the contract is made of.

Two spellings, one for each reader: Kubernetes objects are camelCase (`Document`), the agent's JSON is snake_case
(`Record`). Both are frozen and refuse unknown fields: an API that accepts what it ignores lies.
"""

from collections.abc import Callable
from decimal import Decimal as Exact
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel


def cel(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL rules, each with the message that a user sees, as they stand in the schema."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": text} for rule, text in pairs]}


class Rule(NamedTuple):
    """What must hold between the fields of a document: in CEL for the API server, as a predicate for everyone else."""

    cel: str
    message: str
    """The message that users read, from the API server and the plugin alike."""
    holds: Callable[[Any], bool]


def _add_rules(schema: dict[str, Any], document: "type[Document]") -> None:
    if document.RULES:
        schema |= cel(*((rule.cel, rule.message) for rule in document.RULES))


class Document(BaseModel):
    """Part of a custom resource's spec: camelCase on the wire, frozen, unknown fields refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, json_schema_extra=_add_rules
    )
    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        for rule in self.RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class StatusDocument(BaseModel):
    """Part of a custom resource's status: as `Document`, but a newer operator's extra fields are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Record(BaseModel):
    """Part of the agent's JSON (request, result): snake_case on the wire, frozen, unknown fields and NaN refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


DECIMAL_PATTERN = r"^-?[0-9]{1,18}(\.[0-9]{1,12})?$"

Decimal = Annotated[str, Field(pattern=DECIMAL_PATTERN, max_length=32)]
"""A number in a custom resource. The API conventions of Kubernetes forbid floats: they don't survive a round trip."""

Name = Annotated[str, Field(min_length=1, max_length=253)]
Text = Annotated[str, Field(max_length=1024)]
ShortText = Annotated[str, Field(max_length=253)]


def patterned(pattern: str, max_length: int, remedy: str) -> Any:
    """A string's pattern, told twice: by the schema as it is, and by a CEL rule in words that a user understands."""
    return Field(pattern=pattern, max_length=max_length, json_schema_extra=cel((f"self.matches(r'{pattern}')", remedy)))


def decimal(value: float | None, digits: int = 6) -> str | None:
    """`value` as a decimal string of at most `digits` significant digits, without exponent; None stays None."""
    if value is None:
        return None
    text = f"{Exact(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


StringMap = Annotated[dict[ShortText, ShortText], Field(max_length=64)]
