"""The generator of the CustomResourceDefinitions: what it maps, what it refuses, and what lies in the repository."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from precision_api.facts.schema import Document, Rule
from precision_api.kinds import crdgen
from precision_api.kinds.fields import IntOrPercent
from precision_api.kinds.structural import Unmappable, structural
from precision_api.kinds.yaml_text import yaml_text
from tests.support.golden import beside

TABLES = beside(__file__)


class Part(Document):
    """One part."""

    RULES = (Rule("self.size > 0", "size must be above 0", lambda part: part.size > 0),)

    size: int = Field(1, ge=0, lt=10, description="Size.")
    note: Annotated[str, Field(max_length=9)] | None = Field(None, description="Note.")


class Whole(Document):
    """Of parts."""

    kind: Literal["only"] = Field(description="Kind.")
    part: Part = Field(Part(), description="The part.")
    more_parts: tuple[Part, ...] = Field((), max_length=4, description="More.")
    pair: tuple[bool, bool] = Field((True, False), description="Two.")
    labels: Annotated[dict[Literal["a", "b"], Annotated[str, Field(max_length=5)]], Field(max_length=2)] = Field(
        {}, description="Labels."
    )
    most: IntOrPercent = Field(1, description="Most.")
    at: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})] | None = Field(
        None, description="When."
    )


PART = TABLES["part"]


def test_a_model_becomes_one_schema_without_references_titles_and_unions() -> None:
    schema = structural(Whole)
    most = schema["properties"].pop("most")
    assert schema == {
        "type": "object",
        "description": "Of parts.",
        "properties": {
            "kind": {"type": "string", "description": "Kind.", "enum": ["only"]},
            "part": PART | {"description": "The part.", "default": {"size": 1}},
            "moreParts": {"type": "array", "description": "More.", "maxItems": 4, "items": PART},
            "pair": {
                "type": "array", "description": "Two.", "minItems": 2, "maxItems": 2, "items": {"type": "boolean"},
                "default": [True, False],
            },
            "labels": {
                "type": "object", "description": "Labels.", "maxProperties": 2,
                "additionalProperties": {"type": "string", "maxLength": 5},
            },
            "at": {"type": "string", "description": "When.", "maxLength": 32, "format": "date-time"},
        },
        "required": ["kind"],
    }  # fmt: skip
    assert most.pop("x-kubernetes-validations")[0]["message"].startswith("write a number of nodes")
    assert most == {
        "description": "Most.", "anyOf": [{"type": "integer"}, {"type": "string"}], "minimum": 1, "maximum": 100_000,
        "maxLength": 4, "pattern": "^([1-9][0-9]?|100)%$", "x-kubernetes-int-or-string": True, "default": 1,
    }  # fmt: skip


def test_a_status_has_no_defaults_and_a_file_says_that_it_is_generated() -> None:
    assert '"default"' not in json.dumps(structural(Whole, defaults=False))
    for kind in crdgen.KINDS:
        text = crdgen.files()[f"{kind.plural}.yaml"]
        assert text.splitlines()[0].endswith("Do not edit.")
        assert yaml.load(text, yaml.CSafeLoader) == crdgen.definition(kind)


def model_of(field: Any, **more: Any) -> type[BaseModel]:
    return type("Model", (BaseModel,), {"__annotations__": {"it": field}, "it": Field(**{"description": "It."} | more)})


class Looped(BaseModel):
    """Holds itself."""

    it: "Looped | None" = Field(None, description="It.")


class Open(BaseModel, extra="allow"):
    """Takes anything beside its field."""

    it: bool = Field(description="It.")


UNMAPPABLE: dict[str, tuple[type[BaseModel], str]] = {
    "no description": (model_of(bool, description=None), "Model.it: a field needs a description"),
    "an endless string": (model_of(str), "Model.it: a string needs max_length"),
    "an endless list": (model_of(tuple[bool, ...]), "Model.it: a list needs max_length"),
    "an endless map": (model_of(dict[str, bool]), "Model.it: a map needs max_length"),
    "an endless string in a list": (model_of(tuple[str, ...], max_length=2), "Model.it[]: a string needs max_length"),
    "an endless string in a map": (model_of(dict[str, str], max_length=2), "Model.it{}: a string needs max_length"),
    "a float": (model_of(float), "floats are written as decimal strings"),
    "anything": (model_of(Any), "Model.it: type 'None' has no place"),
    "a union": (model_of(bool | Annotated[str, Field(max_length=1)]), "Model.it: a union can't be mapped"),
    "a mixed tuple": (model_of(tuple[bool, int]), "a list needs one type for all of its items"),
    "any object": (model_of(dict[str, Any], max_length=2), "an object needs fields, or a type"),
    "a set": (model_of(frozenset[bool], max_length=2), "uniqueItems can't be mapped"),
    "an unchecked format": (
        model_of(Annotated[str, Field(max_length=9)], json_schema_extra={"format": "uri"}),
        "format uri is not checked by the API server",
    ),
    "an integer or any string": (
        model_of(int | Annotated[str, Field(max_length=9)], json_schema_extra={"x-kubernetes-int-or-string": True}),
        "wants exactly an integer with a minimum and a string with a pattern",
    ),
    "a model that holds itself": (Looped, "a model that holds itself has no structural schema"),
    "fields and a free map": (Open, "can't stand together"),
}


@pytest.mark.parametrize(("model", "told"), UNMAPPABLE.values(), ids=UNMAPPABLE.keys())
def test_what_the_api_server_would_drop_or_let_grow_is_refused(model: type[BaseModel], told: str) -> None:
    with pytest.raises(Unmappable) as refused:
        structural(model)
    assert told in str(refused.value)


def test_a_check_fails_with_a_diff_until_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crdgen.main(["--check", str(tmp_path)]) == 1
    assert "+kind: CustomResourceDefinition" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert (crdgen.main([str(tmp_path)]), crdgen.main(["--check", str(tmp_path)])) == (0, 0)
    written = tmp_path / "precisionprofiles.yaml"
    written.write_text(written.read_text().replace("- pp\n", "- old\n"))
    assert crdgen.main(["--check", str(tmp_path)]) == 1
    assert "-    - old\n+    - pp\n" in capsys.readouterr().out


_TEXT = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")))
_SCALARS = _TEXT | st.booleans() | st.integers() | st.just("two\nlines\t")
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4), max_leaves=8
)


@given(document=st.dictionaries(_TEXT, _TREES, min_size=1, max_size=4))
def test_the_yaml_writer_writes_what_a_yaml_reader_reads(document: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text(document)) == document


AMBIGUOUS = ["yes", "No", "null", "~", "1.5", "1e3", "0x1f", "2026-01-01", "="]
AMBIGUOUS += ["a: b", "a #b", "- a", "", " a", "{{ x }}"]


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_a_string_that_looks_like_something_else_stays_a_string(text: str) -> None:
    assert yaml.safe_load(yaml_text({"it": [text], text: text})) == {"it": [text], text: text}


@pytest.mark.parametrize("value", [1.5, None])
def test_the_yaml_writer_refuses_what_a_custom_resource_does_not_hold(value: object) -> None:
    with pytest.raises(TypeError, match="has no place in a generated file"):
        yaml_text({"it": value})
