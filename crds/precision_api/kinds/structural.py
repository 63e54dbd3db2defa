"""From a pydantic model to the structural OpenAPI v3 schema that a CustomResourceDefinition may hold.

Whatever the API server would refuse, prune or let grow without end is an error here, at generation time: a field
without a description, a string, list or map without a bound, a float, a union, a keyword that has no counterpart.
Source: "Specifying a structural schema" in the Kubernetes documentation of CustomResourceDefinitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_VALIDATIONS = "x-kubernetes-validations"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_ANY_TYPE = frozenset({"type", "title", "description", "default", "enum", "const"})
_BY_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset(
        {"properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"}
    ),
}
"""JSON Schema keywords that are understood, by type; any other one is an error."""
_COPIED = ("enum", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems")


_DEEPEST = 24


class Unmappable(ValueError):
    """A model that has no faithful structural schema; the message names the field and what to do."""


@dataclass(frozen=True)
class _At:
    """Where the walk stands: the path for messages, the shared definitions, and whether defaults are kept."""

    path: str
    definitions: Mapping[str, Schema]
    defaults: bool

    def down(self, step: str) -> "_At":
        return replace(self, path=f"{self.path}{step}")

    def error(self, message: str) -> Unmappable:
        return Unmappable(f"{self.path}: {message}")


def structural(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The structural schema of `model`, by alias. Without `defaults` for status, which only its writer fills.

    Raises Unmappable for what can't be said in a CustomResourceDefinition.
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    definitions = document.pop("$defs", {})
    return _node(document, _At(model.__name__, definitions, defaults))


def _node(raw: Schema, at: _At) -> Schema:
    if at.path.count(".") > _DEEPEST:
        raise at.error("nested too deep; a model that holds itself has no structural schema")
    schema = _flat(raw, at)
    if schema.get(_INT_OR_STRING):
        return _int_or_string(schema, at)
    kind = str(schema.get("type"))
    if kind not in _BY_TYPE:
        raise at.error(f"type {kind!r} has no place in a custom resource (floats are written as decimal strings)")
    unknown = [key for key in schema if key not in _ANY_TYPE | _BY_TYPE[kind] and not key.startswith("x-kubernetes-")]
    if unknown:
        raise at.error(f"{', '.join(sorted(unknown))} can't be mapped to a structural schema")
    node: Schema = {"type": kind, **_said(schema)}
    if "const" in schema:
        node["enum"] = [schema["const"]]
    node.update((key, schema[key]) for key in _COPIED if key in schema)
    node.update(_OF_TYPE[kind](schema, at))
    node.update((key, value) for key, value in schema.items() if key.startswith("x-kubernetes-"))
    return {**node, **_default(schema, at)}


def _flat(raw: Schema, at: _At) -> Schema:
    """`raw` with its reference and its `X or null` union taken in; what stands beside them wins."""
    fields = {key: value for key, value in raw.items() if key not in ("$ref", "anyOf")}
    if "$ref" in raw:
        return _beside(_flat(at.definitions[raw["$ref"].removeprefix("#/$defs/")], at), fields)
    if "anyOf" not in raw or raw.get(_INT_OR_STRING):
        return raw
    options = [option for option in raw["anyOf"] if option.get("type") != "null"]
    if len(options) != 1:
        raise at.error("a union can't be mapped; use one type, or one optional field for each")
    return _beside(_flat(options[0], at), fields)


def _beside(inner: Schema, outer: Schema) -> Schema:
    merged = {**inner, **outer}
    if _VALIDATIONS in inner and _VALIDATIONS in outer:
        merged[_VALIDATIONS] = [*inner[_VALIDATIONS], *outer[_VALIDATIONS]]
    return merged


def _said(schema: Schema) -> Schema:
    text = " ".join(str(schema.get("description", "")).split())
    return {"description": text} if text else {}


def _int_or_string(schema: Schema, at: _At) -> Schema:
    """An integer or a string in one field: bounds of both stand side by side, each counts for its own type only."""
    parts = {option.get("type"): option for option in schema.get("anyOf", []) if option.get("type") != "null"}
    if set(parts) != {"integer", "string"} or "minimum" not in parts["integer"] or "pattern" not in parts["string"]:
        raise at.error(f"{_INT_OR_STRING} wants exactly an integer with a minimum and a string with a pattern")
    node: Schema = {**_said(schema), "anyOf": [{"type": "integer"}, {"type": "string"}]}
    node.update((key, part[key]) for part in parts.values() for key in _COPIED if key in part)
    node.update((key, value) for key, value in schema.items() if key.startswith("x-kubernetes-"))
    return {**node, **_default(schema, at)}


def _string(schema: Schema, at: _At) -> Schema:
    if not {"maxLength", "enum", "const"} & set(schema):
        raise at.error("a string needs max_length")
    if schema.get("format") not in (None, "date-time"):
        raise at.error(f"format {schema['format']} is not checked by the API server; use a pattern")
    return {"format": schema["format"]} if "format" in schema else {}


def _integer(schema: Schema, _: _At) -> Schema:
    """OpenAPI 3.0 says exclusive bounds by a boolean beside the bound, JSON Schema by a number of its own."""
    node: Schema = {"format": "int64"}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:
            node |= {bound: schema[exclusive], exclusive: True}
    return node


def _array(schema: Schema, at: _At) -> Schema:
    if "maxItems" not in schema:
        raise at.error("a list needs max_length")
    items = schema.get("prefixItems") or [schema.get("items")]
    if items[0] is None or any(item != items[0] for item in items):
        raise at.error("a list needs one type for all of its items")
    return {"items": _node(items[0], at.down("[]"))}


def _object(schema: Schema, at: _At) -> Schema:
    extra = schema.get("additionalProperties", False)
    if "properties" not in schema:
        return _map(schema, at)
    if extra is not False:
        raise at.error("fields of its own and a free map can't stand together; make the map a field")
    properties = {name: _property(raw, at.down(f".{name}")) for name, raw in schema["properties"].items()}
    return {"properties": properties} | ({"required": schema["required"]} if schema.get("required") else {})


def _map(schema: Schema, at: _At) -> Schema:
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        raise at.error("an object needs fields, or a type for all of its values")
    if "maxProperties" not in schema:
        raise at.error("a map needs max_length")
    return {"additionalProperties": _node(values, at.down("{}")), "maxProperties": schema["maxProperties"]}


def _property(raw: Schema, at: _At) -> Schema:
    node = _node(raw, at)
    if "description" not in node:
        raise at.error("a field needs a description")
    return node


_OF_TYPE = {"string": _string, "integer": _integer, "boolean": lambda _, __: {}, "array": _array, "object": _object}


def _default(schema: Schema, at: _At) -> Schema:
    """The default in full where it says something: an absent list, map or string is empty without being told so.

    In full, since the API server holds a default against the CEL rules before it fills in the fields' own defaults.
    """
    default = _stated(schema.get("default"))
    if not at.defaults or (default in (None, [], {}, "") and "properties" not in schema):
        return {}
    return {} if default is None else {"default": default}


def _stated(default: Any) -> Any:
    if not isinstance(default, dict):
        return default
    fields = {name: _stated(value) for name, value in default.items()}
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}
