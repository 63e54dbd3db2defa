"""What a field of a spec may hold: as strictly as the API server asks, and told in words, not as a pattern."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from precision_api.facts.json_text import TOO_MUCH, read_json, rows_of

Spec = TypeVar("Spec", bound=BaseModel)
Schema = Mapping[str, Any]

FORMS: Mapping[str, str] = {
    "bool_type": "write true or false, without quotes",
    "int_type": "write a whole number, without quotes",
    "string_type": "this is text: write it in quotes",
    "list_type": "write a list",
    "tuple_type": "write a list",
    "model_type": "write fields and values",
    "model_attributes_type": "write fields and values",
    "dict_type": "write keys and values",
}
"""What to write where a value is of another type, by pydantic's name of the error."""
SPELLED = ("string_pattern_mismatch", "string_too_long", "string_too_short")
"""Errors of text whose field may say in words how it is written."""
BRANCHES = ("constrained-int", "constrained-str")
"""Parts of pydantic's paths that are no fields: what a field that takes a number or text was tried as."""


def strictly(model: type[Spec], raw: Any) -> Spec:
    """`raw` as the API server takes it: 'yes' is no boolean and '5' no number. Raises ValidationError; ValueError where
    a key is no text."""
    try:
        text = json.dumps(raw, default=str)
    except TypeError as error:
        raise ValueError(f"the spec can't be read: {error}") from error
    try:
        read_json(model, text)
    except ValidationError as error:
        if rows_of(error)[0]["type"] == TOO_MUCH.type:
            raise
    return model.model_validate_json(text, strict=True)


def in_words(model: type[BaseModel], path: Sequence[str | int]) -> str:
    """How the field at `path` is written, in the words that the API server has for it; empty where it has none."""
    schema = model.model_json_schema()
    node: Schema = schema
    for part in path:
        inner = _plain(node, schema)
        node = inner.get("items", {}) if isinstance(part, int) else inner.get("properties", {}).get(part, {})
    return _told(node)


def _plain(node: Schema, schema: Schema) -> Schema:
    """`node` itself, without null and references."""
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        else:
            node = next(option for option in node["anyOf"] if option.get("type") != "null")
    return node


def _told(node: Schema) -> str:
    """The message of the first rule of a number or of text."""
    if node.get("type") in ("array", "object"):
        return ""
    rules = node.get("x-kubernetes-validations")
    if rules:
        return str(rules[0]["message"])
    return next((message for option in node.get("anyOf", ()) if (message := _told(option))), "")
