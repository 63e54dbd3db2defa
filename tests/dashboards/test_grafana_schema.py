"""The committed JSON read by Grafana's own SDK: each field is one of its schema, or it would not come back."""

import json
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from precision_operator.generate import ROOT
from precision_operator.monitoring.dashboards.grafana import CHART_FOLDER


def read_back(document: dict[str, Any]) -> dict[str, Any]:
    """The document after a way through the SDK's classes; the menu that it puts links into is taken out again."""
    register_default_plugins()
    made: dict[str, Any] = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    for shown in (*made["links"], *made["annotations"].get("list", ())):
        del shown["placement"]
    return made


@pytest.mark.parametrize("path", sorted((ROOT / CHART_FOLDER).glob("*.json")), ids=lambda path: path.stem)
def test_the_sdk_reads_what_is_committed_and_writes_the_same(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert read_back(document) == document


def test_a_field_that_the_schema_lacks_does_not_come_back() -> None:
    document = json.loads((ROOT / CHART_FOLDER / "precision-fleet.json").read_text(encoding="utf-8"))
    document["panels"][1]["colour"] = "red"
    assert read_back(document) != document
