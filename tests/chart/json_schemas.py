"""JSON Schemas of an API server's kinds, from its own OpenAPI document, as kubeconform reads them: strict."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"
"""How kubeconform names a schema: kind, then group and version (`deployment-apps-v1`, `service-v1`)."""
INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
KINDS = "x-kubernetes-group-version-kind"
KEEPS_ANY = "x-kubernetes-preserve-unknown-fields"


def write_schemas(openapi: dict[str, Any], wanted: Collection[tuple[str, str]], folder: Path) -> None:
    """One file for each wanted (apiVersion, kind). AssertionError for a kind that the server does not have."""
    definitions = {name: strict(one) for name, one in openapi["definitions"].items()}
    found = {
        ("/".join(filter(None, (kind["group"], kind["version"]))), kind["kind"]): name
        for name, one in openapi["definitions"].items()
        for kind in one.get(KINDS, ())
    }
    assert set(wanted) <= set(found), set(wanted) - set(found)
    for api_version, kind in wanted:
        root = found[api_version, kind]
        schema = {"$ref": f"#/definitions/{root}", "definitions": {n: definitions[n] for n in used(definitions, root)}}
        (folder / file_name(api_version, kind)).write_text(json.dumps(schema))


def used(definitions: dict[str, Any], root: str) -> set[str]:
    """The definition itself, and all that it refers to."""
    seen: set[str] = set()
    todo = {root}
    while todo:
        name = todo.pop()
        seen.add(name)
        todo |= set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(definitions[name]))) - seen
    return seen


def file_name(api_version: str, kind: str) -> str:
    """Where kubeconform looks for a kind under LOCATION: of the group it takes the first part only."""
    group, _, version = api_version.rpartition("/")
    return "-".join(part for part in (kind.lower(), group.partition(".")[0], version) if part) + ".json"


def strict(node: Any) -> Any:
    """The same schema, but an object with named fields takes no others; what is int or string is either."""
    if isinstance(node, list):
        return [strict(part) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "int-or-string" or node.get("x-kubernetes-int-or-string"):
        return INT_OR_STRING
    fields = {name: strict(part) for name, part in node.get("properties", {}).items()}  # any name: also `format`
    made = {name: strict(part) for name, part in node.items() if name != "properties"}
    if fields:
        made["properties"] = fields
    if fields and not node.get(KEEPS_ANY):
        made.setdefault("additionalProperties", False)
    return made
