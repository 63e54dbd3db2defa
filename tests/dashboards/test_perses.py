"""The Perses form of the dashboards: the same panels with the same expressions, and what is left out is named."""

import re
from typing import Any

import pytest

from precision_lab.monitoring.perses import dashboard as perses
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.panel import Dashboard, Panel, PanelRow, Query, SeriesColour

pages = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda page: page.uid)


def test_what_perses_cannot_draw_is_named_with_its_reason() -> None:
    missing = {title: why for dashboard in DASHBOARDS for title, why in perses.not_drawn(dashboard).items()}
    assert missing == {
        "Spread of the nodes around their pool's median, over time": "Perses 0.50 has no heatmap",
        "Tokens per joule against tokens per second per GPU": "the scatter chart of Perses 0.50 knows traces only",
    }


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


REPEATED = Panel(
    "timeseries",
    "Rate",
    "D.",
    "speedup",
    "none",
    (Query('max by (recipe) (a{pool=~"$pool"})', "{{recipe}}"),),
    size=(24, 8),
    colours=(SeriesColour("recipe", "bf16", "#767676"), SeriesColour("recipe", "nvfp4", "#D55E00")),
    repeat="pool",
)


def repeated(**values: list[str]) -> list[dict[str, Any]]:
    """The specs of the panels that come of REPEATED."""
    page = Dashboard("uid", "Title", "Words.", (PanelRow("Row", (REPEATED,)),), ())
    return [panel["spec"] for panel in perses.resource(page, values)["spec"]["panels"].values()]


def test_a_repeated_panel_stands_once_for_each_value() -> None:
    made = repeated(pool=["p1", "p2"])
    assert [panel["display"]["name"] for panel in made] == ["Rate: p1 (×)", "Rate: p2 (×)"]
    for panel, pool in zip(made, ("p1", "p2"), strict=True):
        for query in panel["queries"]:
            assert f'pool=~"{pool}"' in query["spec"]["plugin"]["spec"]["query"]


def test_lines_are_asked_for_one_by_one_so_that_each_has_its_colour() -> None:
    (made,) = repeated(pool=["p1"])
    expressions = [query["spec"]["plugin"]["spec"]["query"] for query in made["queries"]]
    assert ['"nvfp4"' in expr for expr in expressions] == [False, True]
    colours = [(setting["queryIndex"], setting["colorValue"]) for setting in made["plugin"]["spec"]["querySettings"]]
    assert colours == [(0, "#767676"), (1, "#D55E00")]
