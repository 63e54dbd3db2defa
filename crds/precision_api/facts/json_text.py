"""JSON that anybody may have written, read into a model at a cost that its size bounds.

Pydantic collects a row for all that is wrong: of 1 MB of `{},{}` it makes 700 MiB, and its `errors()` twice as much.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError, SchemaValidator, from_json
from pydantic_core.core_schema import with_info_wrap_validator_function

M = TypeVar("M", bound=BaseModel)
MOST_ELEMENTS, MOST_KEYS, MOST_ROWS = 150_000, 12_000, 100
"""Bounds: elements of a text, thrice the fullest result's; keys of an object (nodes); wrong values that are told."""
COUNTED = "keys_schema", "values_schema", "items_schema"
TOO_MUCH = PydanticCustomError("too_much", "it has too many elements, or too many of them are wrong")


class _TooMuch(Exception):
    """No ValueError, so that it ends a validation."""


def read_json(model: type[M], text: str | bytes) -> M:
    """The model in a text. Raises ValidationError, as pydantic does, and RecursionError and OverflowError."""
    marks: tuple[Any, ...] = (b",", b"[", b"{") if isinstance(text, bytes) else (",", "[", "{")
    try:
        if sum(map(text.count, marks)) <= MOST_ELEMENTS and _widest(document := from_json(text)) <= MOST_KEYS:
            return read_document(model, document)
    except ValueError as error:
        if isinstance(error, ValidationError):
            raise
        return model.model_validate_json(text)  # it is no JSON, and that says so
    raise _too_much(model)


def read_document(model: type[M], document: object) -> M:
    """The model in a parsed document. Raises ValidationError."""
    try:
        read: M = _validator(model).validate_python(document, context=[])
        return read
    except _TooMuch:
        raise _too_much(model) from None


def _too_much(model: type[BaseModel]) -> ValidationError:
    return ValidationError.from_exception_data(model.__name__, [{"type": TOO_MUCH, "input": None}])


def rows_of(error: ValidationError, values: bool = False) -> list[Any]:
    """What is wrong, first things first, without values: they may be hostile. One row where it is more than a few."""
    if error.error_count() > MOST_ROWS:
        return [{"type": TOO_MUCH.type, "loc": (), "msg": f"{error.error_count()} things are wrong", "input": None}]
    return error.errors(include_url=False, include_input=values, include_context=False)


def first_wrong(error: ValidationError) -> str:
    """Place and message of the first thing that is wrong, each cut; never a value."""
    first = rows_of(error)[0]
    place = ".".join(str(part)[:40] for part in first["loc"][:6])
    return f"{place}: {first['msg'][:200]}" if place else first["msg"][:200]


def _widest(part: Any) -> int:
    """Keys of the largest object in it."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return max((len(part) if isinstance(part, dict) else 0, *map(_widest, inner)))


@cache
def _validator(model: type[BaseModel]) -> SchemaValidator:
    return SchemaValidator(_counting(model.__pydantic_core_schema__), _use_prebuilt=False)


def _counting(schema: Any) -> Any:
    """The same schema, ending after some wrong items of lists, keys and values of mappings."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_counting, schema))
    if not isinstance(schema, dict):
        return schema
    return {key: _wrapped(_counting(part)) if key in COUNTED else _counting(part) for key, part in schema.items()}


def _wrapped(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_wrapped, schema))
    return with_info_wrap_validator_function(_count, schema)


def _count(value: Any, handler: Callable[[Any], Any], info: ValidationInfo[list[None]]) -> Any:
    try:
        return handler(value)
    except ValidationError:
        info.context.append(None)
        if len(info.context) > MOST_ROWS:
            raise _TooMuch from None
        raise
