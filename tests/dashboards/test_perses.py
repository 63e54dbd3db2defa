"""The Perses form of the dashboards: the same panels with the same expressions, and what is left out is named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from precision_operator.monitoring.dashboards import perses
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.panel import (
    Dashboard,
    Mark,
    Panel,
    PanelRow,
    Query,
    SeriesColour,
    Step,
    TableColumn,
)
from tests.dashboards.promql import chosen, selectors

pages = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda page: page.uid)


def one_panel(panel: Panel) -> dict[str, object]:
    """The panel as it stands in a dashboard of its own."""
    page = Dashboard("uid", "Title", "Words.", (PanelRow("Row", (panel,)),), ())
    made: dict[str, object] = perses.resource(page)["spec"]["panels"]["panel-1"]["spec"]
    return made


def test_what_perses_cannot_draw_is_named_with_its_reason() -> None:
    missing = {title: why for dashboard in DASHBOARDS for title, why in perses.not_drawn(dashboard).items()}
    assert missing == {
        "Spread of the nodes around their pool's median, over time": "Perses 0.50 has no heatmap",
        "Tokens per joule against tokens per second per GPU": "the scatter chart of Perses 0.50 knows traces only",
    }


@pages
def test_every_other_panel_stands_in_one_place_of_one_row(dashboard: Dashboard) -> None:
    spec = perses.resource(dashboard)["spec"]
    placed = [item["content"]["$ref"] for layout in spec["layouts"] for item in layout["spec"]["items"]]
    assert sorted(placed) == sorted(f"#/spec/panels/{name}" for name in spec["panels"])
    assert len(placed) == len(dashboard.panels) - len(perses.not_drawn(dashboard))


@pages
def test_every_expression_is_promql_and_its_variables_are_defined(dashboard: Dashboard) -> None:
    spec = perses.resource(dashboard)["spec"]
    assert {one["spec"]["name"] for one in spec["variables"]} == {one.name for one in dashboard.variables}
    for panel in spec["panels"].values():
        for query in panel["spec"]["queries"]:
            assert selectors(chosen(query["spec"]["plugin"]["spec"]["query"], dashboard))


def test_a_tables_share_is_told_in_percent_and_coloured_in_percent() -> None:
    column = TableColumn("value 1", "Share", "percent", steps=(Step(None, "red"), Step(0.95, "green")))
    panel = Panel("table", "T", "D.", "percent", "none", (Query("max by (node) (a)"),), columns=(column,))
    made = one_panel(panel)
    assert made["queries"][0]["spec"]["plugin"]["spec"]["query"] == "round (100 * (max by (node) (a)), 1e-1)"  # type: ignore[index]
    options = made["plugin"]["spec"]  # type: ignore[index]
    assert options["columnSettings"][0]["header"] == "Share (%)"
    below, above = (cell["condition"]["spec"] for cell in options["cellSettings"])
    assert below["max"] < 95 <= above["min"]


def test_numbers_of_a_table_with_several_are_not_coloured_for_a_neighbours_limit() -> None:
    limited = TableColumn("value 1", "Share", "percent", steps=(Step(None, "red"),))
    panel = Panel(
        "table",
        "T",
        "D.",
        "percent",
        "none",
        (Query("a"), Query("b")),
        columns=(limited, TableColumn("value 2", "Other")),
    )
    assert one_panel(panel)["plugin"]["spec"]["cellSettings"] == []  # type: ignore[index]


def test_a_mark_matches_the_whole_cell() -> None:
    column = TableColumn("fault", "Fault", marks=(Mark("slow", "orange"),))
    panel = Panel("table", "T", "D.", "count", "none", (Query("a"),), columns=(column,))
    (cell,) = one_panel(panel)["plugin"]["spec"]["cellSettings"]  # type: ignore[index]
    assert cell["condition"] == {"kind": "Regex", "spec": {"expr": "^slow$"}}


@pages
def test_the_banner_names_what_was_not_measured(dashboard: Dashboard) -> None:
    """A stat of Perses 0.50 has no names: there it would be a number alone."""
    spec = perses.resource(dashboard)["spec"]["panels"]["panel-1"]["spec"]
    assert spec["display"]["name"] == "Figures that were not measured on this hardware"
    assert spec["plugin"]["kind"] == "Table"
    options = spec["plugin"]["spec"]
    shown = [column for column in options["columnSettings"] if not column.get("hide")]
    assert [(column["name"], column["header"]) for column in shown] == [("data", "Data"), ("value", "Nodes")]
    (named,) = [cell for cell in options["cellSettings"] if cell["condition"]["kind"] == "Regex"]
    assert re.search(named["condition"]["spec"]["expr"], "simulated")
    assert not re.search(named["condition"]["spec"]["expr"], "24")
    assert named["backgroundColor"] == perses.COLOURS["orange"]


def test_bars_of_several_queries_become_one_query_so_that_all_share_one_order() -> None:
    panel = Panel("bars", "T", "D.", "speedup", "none", (Query("a", "one"), Query("b", "two")), bar="recipe")
    (query,) = one_panel(panel)["queries"]  # type: ignore[misc]
    assert query["spec"]["plugin"]["spec"] == {  # type: ignore[index]
        "query": 'label_replace(a, "series", "one", "", "") or label_replace(b, "series", "two", "", "")',
        "seriesNameFormat": "{{recipe}} {{series}}",
    }


REPEATED = Panel(
    "timeseries",
    "Rate",
    "D.",
    "speedup",
    "none",
    (Query('max by (recipe) (a{pool=~"$pool"})', "{{recipe}}"),),
    width=24,
    colours=(SeriesColour("recipe", "bf16", "#767676"), SeriesColour("recipe", "nvfp4", "#D55E00")),
    repeat="pool",
)


def repeated(**values: list[str]) -> list[dict[str, Any]]:
    """The specs of the panels that come of REPEATED."""
    page = Dashboard("uid", "Title", "Words.", (PanelRow("Row", (REPEATED,)),), ())
    return [panel["spec"] for panel in perses.resource(page, values)["spec"]["panels"].values()]


def test_a_repeated_panel_stands_once_for_each_value() -> None:
    made = repeated(pool=["p1", "p2"])
    assert [one["display"]["name"] for one in made] == ["Rate: p1 (×)", "Rate: p2 (×)"]
    for one, pool in zip(made, ("p1", "p2"), strict=True):
        for query in one["queries"]:
            assert f'pool=~"{pool}"' in query["spec"]["plugin"]["spec"]["query"]


def test_lines_are_asked_for_one_by_one_so_that_each_has_its_colour() -> None:
    (made,) = repeated(pool=["p1"])
    expressions = [query["spec"]["plugin"]["spec"]["query"] for query in made["queries"]]
    assert ['"nvfp4"' in expr for expr in expressions] == [False, True]
    colours = [(one["queryIndex"], one["colorValue"]) for one in made["plugin"]["spec"]["querySettings"]]
    assert colours == [(0, "#767676"), (1, "#D55E00")]


def test_without_values_one_panel_has_them_all_and_tells_them_apart() -> None:
    (made,) = repeated()
    assert made["display"]["name"] == "Rate, by pool (×)"
    (query,) = made["queries"]
    assert query["spec"]["plugin"]["spec"]["seriesNameFormat"] == "{{recipe}} {{pool}}"
    assert "querySettings" not in made["plugin"]["spec"]


def test_the_last_panel_of_a_line_takes_the_room_of_one_that_is_not_drawn() -> None:
    small = Panel("timeseries", "T", "D.", "speedup", "none", (Query("a"),), width=8)
    row = PanelRow("Row", (small, Panel("heatmap", "H", "D.", "nodes", "none", (Query("b"),), width=16)))
    (item,) = perses.resource(Dashboard("uid", "Title", "Words.", (row,), ()))["spec"]["layouts"][0]["spec"]["items"]
    assert item["width"] == 24
