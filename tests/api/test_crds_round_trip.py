"""Any object that the models accept comes back from a real API server as it was written: nothing pruned or changed."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from precision_api.facts.names import API_VERSION
from precision_api.kinds import crdgen
from precision_api.kinds.profile import ProfileSpec, ProfileStatus
from precision_api.kinds.report import ReportSpec, ReportStatus
from tests.support.api_server import ApiServer
from tests.support.custom_resources import SIZES, path

pytestmark = pytest.mark.cluster

Raw = dict[str, Any]
Repair = Callable[[Raw], Raw]
"""Makes a drawn object fit the rules between its fields, which no schema says."""

_LONGEST = 3
"""Items of a list or map: enough to see that none is lost."""
_TEXT = st.characters(exclude_categories=("Cs",))
_TIME = st.datetimes().map(lambda time: time.replace(microsecond=0).isoformat() + "Z")


def documents(model: type[BaseModel], repairs: Mapping[str, Repair] | None = None) -> st.SearchStrategy[Raw]:
    """Dumps of valid `model` objects, drawn from its JSON schema, by alias, absent fields left out.

    `repairs` are by the name of their model.
    """
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


SOURCES = ("model", "preset", "huggingFaceConfig", "shapes")


def _one_source(raw: Raw) -> Raw:
    given = [source for source in SOURCES if source in raw] or ["preset"]
    kept = given[len(raw) % len(given)]
    rest = {name: value for name, value in raw.items() if name not in SOURCES or name == kept}
    if kept == "shapes":
        whole = {"name": "w", **rest, "tensorParallel": 1, "expertParallel": 1}
        return {name: value for name, value in whole.items() if name not in SIZES}
    return {"name": "w", **({"preset": "llama3-8b"} if kept == "preset" else SIZES), **rest}


def _numbers_that_fit(raw: Raw) -> Raw:
    layers = {"numHiddenLayers": 2048, "numKeyValueHeads": raw["numAttentionHeads"], "headDim": 128}
    return {**raw, **layers, "vocabSize": 32000, "causal": True}


def _values_that_fit(raw: Raw) -> Raw:
    without = {name: value for name, value in raw.items() if name != "values"}
    return without if "Exist" in raw["operator"] else {**without, "values": ["1"]}


REPAIRS = {
    "Workload": _one_source,
    "ModelSpec": _numbers_that_fit,
    "MoE": lambda raw: raw | {"topK": min(raw["topK"], raw["numExperts"]), "sharedExpertGate": False, "denseLayers": 1},
    "MatchExpression": _values_that_fit,
    "ProfileStatus": lambda raw: raw | {"conditions": [*{it["type"]: it for it in raw.get("conditions", [])}.values()]},
}


def _round_trip(api: ApiServer, namespace: str, kind: crdgen.ResourceKind, spec: Raw, status: Raw) -> tuple[Raw, Raw]:
    """Spec and status as they are read back after they were written."""
    name, collection = f"fuzz-{uuid4().hex[:8]}", path(namespace, kind.plural)
    body = {"apiVersion": API_VERSION, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    code, made = api.call("POST", collection, body, fieldValidation="Strict")
    assert code == 201, made["message"]
    made["status"] = status
    code, answer = api.call("PUT", f"{collection}/{name}/status", made, fieldValidation="Strict")
    assert code == 200, answer["message"]
    _, read = api.call("GET", f"{collection}/{name}")
    api.call("DELETE", f"{collection}/{name}")
    return read["spec"], read["status"]


FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@FUZZ
@given(drawn=st.tuples(documents(ProfileSpec, REPAIRS), documents(ProfileStatus, REPAIRS)))
def test_any_valid_profile_comes_back_as_it_was_written(drawn: tuple[Raw, Raw], api: ApiServer) -> None:
    assert _round_trip(api, "default", crdgen.PROFILE, *drawn) == drawn


@FUZZ
@given(drawn=st.tuples(documents(ReportSpec), documents(ReportStatus)))
def test_any_valid_report_comes_back_as_it_was_written(drawn: tuple[Raw, Raw], api: ApiServer) -> None:
    assert _round_trip(api, "default", crdgen.REPORT, *drawn) == drawn
