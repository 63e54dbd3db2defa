"""Hypothesis strategies for any pydantic model: objects that the model accepts, drawn from its own JSON schema."""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

Raw = dict[str, Any]
Repair = Callable[[Raw], Raw]
"""Makes a drawn object fit the rules between its fields, which no schema says."""

_LONGEST = 3
"""Items of a list or map: enough to see that none is lost."""
_TEXT = st.characters(exclude_categories=("Cs",))
_TIME = st.datetimes().map(lambda time: time.replace(microsecond=0).isoformat() + "Z")


def documents(model: type[BaseModel], repairs: Mapping[str, Repair] | None = None) -> st.SearchStrategy[Raw]:
    """Dumps of valid `model` objects, by alias, absent fields left out. `repairs` are by the name of their model."""
    schema, known = model.model_json_schema(by_alias=True), repairs or {}
    drawn = _value(schema, schema.get("$defs", {}), known).map(known.get(model.__name__, lambda raw: raw))
    return drawn.map(lambda raw: _accepted(model, raw)).filter(lambda dump: dump is not None)


def _accepted(model: type[BaseModel], raw: Raw) -> Raw | None:
    try:
        return model.model_validate(raw).model_dump(mode="json", by_alias=True, exclude_none=True)
    except ValidationError:
        return None


def _value(schema: Raw, defs: Mapping[str, Raw], repairs: Mapping[str, Repair]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _value(defs[name], defs, repairs).map(repairs.get(name, lambda raw: raw))
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        return st.one_of([_value(option, defs, repairs) for option in options])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if schema["type"] == "array":
        items, least = _value(schema["items"], defs, repairs), schema.get("minItems", 0)
        return st.lists(items, min_size=least, max_size=min(schema["maxItems"], least + _LONGEST))
    if schema["type"] == "object":
        return _object(schema, defs, repairs)
    return _scalar(schema)


def _object(schema: Raw, defs: Mapping[str, Raw], repairs: Mapping[str, Repair]) -> st.SearchStrategy[Raw]:
    if "properties" not in schema:
        keys = st.sampled_from(schema.get("propertyNames", {}).get("enum") or ["a", "b.example/c", "d"])
        values = _value(schema["additionalProperties"], defs, repairs)
        return st.dictionaries(keys, values, max_size=min(schema["maxProperties"], _LONGEST))
    fields = {name: _value(field, defs, repairs) for name, field in schema["properties"].items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=fields)


def _scalar(schema: Raw) -> st.SearchStrategy[Any]:
    if schema["type"] == "boolean":
        return st.booleans()
    if schema["type"] == "integer":
        return st.integers(schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1))
    if schema.get("format") == "date-time":
        return _TIME
    least, most = schema.get("minLength", 0), schema["maxLength"]
    if "pattern" in schema:
        matching = st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True)
        return matching.filter(lambda text: least <= len(text) <= most)
    return st.text(_TEXT, min_size=least, max_size=min(most, least + 20))
