"""The values: each in the schema, with a default, in the README's table, and nothing that the schema lets by unseen."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from precision_api.facts.recipes import RECIPE_NAMES
from tests.support.helm import CHART

README = CHART / "README.md"
BEGIN, END = "<!-- values: made from values.schema.json and values.yaml -->\n", "<!-- end of values -->\n"


@dataclass(frozen=True)
class Value:
    """One value that a user may set."""

    name: str
    default: Any
    meaning: str

    def row(self) -> str:
        return f"| `{self.name}` | `{json.dumps(self.default)}` | {self.meaning} |\n"


def schema() -> dict[str, Any]:
    return dict(json.loads((CHART / "values.schema.json").read_text()))


def defaults() -> dict[str, Any]:
    return dict(yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader))


def values(fields: dict[str, Any] | None = None, found: Any = None, at: str = "") -> Iterator[Value]:
    """Every value in the schema's order; an object without fields of its own (labels, resources) is one value."""
    fields = schema()["properties"] if fields is None else fields
    found = defaults() if found is None else found
    for name, field in fields.items():
        if field.get("properties"):
            yield from values(field["properties"], found.get(name, {}), f"{at}{name}.")
        elif f"{at}{name}" != "global":
            yield Value(f"{at}{name}", found.get(name, "not in values.yaml"), field.get("description", ""))


def table() -> str:
    """The table, with its head: meanings from values.schema.json, defaults from values.yaml."""
    return "| value | default | what it is |\n|---|---|---|\n" + "".join(value.row() for value in values())


def in_readme(text: str) -> str:
    """What stands between the marks. Raises ValueError where a mark is missing."""
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


OPEN = {
    "global": "Helm's own, for subcharts",
    "definitions.affinity.nodeAffinity": "the API server's own schema is the judge",
    "definitions.affinity.podAffinity": "the API server's own schema is the judge",
    "definitions.affinity.podAntiAffinity": "the API server's own schema is the judge",
    **{f"serviceMonitor.{of}": "prometheus-operator's" for of in ("spec", "endpoint", "relabelings")},
}
"""Objects of the schema that take any key, and why."""


def test_the_readme_has_the_table_of_all_values() -> None:
    text = README.read_text()
    if os.environ.get("UPDATE_GOLDEN"):
        text = text.replace(in_readme(text), "", 1) if in_readme(text) else text
        README.write_text(text.replace(END, table() + END))
    assert in_readme(README.read_text()) == table(), "look at the schema, then run again with UPDATE_GOLDEN=1"


def test_every_value_is_in_the_schema_has_its_default_and_says_what_it_is() -> None:
    assert [value.name for value in values() if value.default == "not in values.yaml"] == []
    assert _leaves(defaults()) - {value.name for value in values()} == set()
    assert [value.name for value in values() if not value.meaning.endswith(".")] == []
    assert dict(_open_objects(schema())) == dict.fromkeys(OPEN, "open")
    assert str(list(RECIPE_NAMES)).replace("'", '"') in (CHART / "values.schema.json").read_text()


def _leaves(found: dict[str, Any], at: str = "") -> set[str]:
    """Names in values.yaml, down to what the schema calls one value."""
    whole = {value.name for value in values()}
    return {
        leaf
        for name, value in found.items()
        for leaf in (
            _leaves(value, f"{at}{name}.")
            if isinstance(value, dict) and f"{at}{name}" not in whole
            else {f"{at}{name}"}
        )
    }


def _open_objects(node: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every object of the schema that refuses no key: neither closed, nor a map whose values have a type."""
    if isinstance(node, dict):
        if node.get("type") == "object" and node.get("additionalProperties", True) is True:
            yield at, "open"
        for name, part in node.items():
            below = at if name in ("properties", "items") else f"{at}.{name}".lstrip(".")
            yield from _open_objects(part, below)
    elif isinstance(node, list):
        for number, part in enumerate(node):
            yield from _open_objects(part, f"{at}[{number}]")
