"""The table of values in the chart's README: meanings from values.schema.json, defaults from values.yaml."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

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
        """Its line of the table."""
        return f"| `{self.name}` | `{json.dumps(self.default)}` | {self.meaning} |\n"


def schema() -> dict[str, Any]:
    """values.schema.json."""
    return dict(json.loads((CHART / "values.schema.json").read_text()))


def defaults() -> dict[str, Any]:
    """values.yaml."""
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
    """The table, with its head."""
    return "| value | default | what it is |\n|---|---|---|\n" + "".join(value.row() for value in values())


def in_readme(text: str) -> str:
    """What stands between the marks. Raises ValueError where a mark is missing."""
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
