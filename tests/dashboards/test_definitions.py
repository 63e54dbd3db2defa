"""The dashboards as they are committed: complete, in place, and made of expressions that mean what the panel says."""

import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as schema

from precision_api.facts.recipes import by_default
from precision_lab.monitoring.perses import generate
from precision_operator.drawing.figure import RECIPE_COLOURS
from precision_operator.exporter.families.table import FAMILIES
from precision_operator.generate import ROOT
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.grafana import CHART_FOLDER, files
from precision_operator.monitoring.dashboards.panel import UNITS, Dashboard, Panel
from precision_operator.monitoring.rules import GROUPS
from tests.dashboards.promql import Selector, chosen, expressions, selectors

PROCESSES = ("precision_fleet_nodes", "precision_agent_", "precision_operator_", "precision_exporter_")
"""Families of the processes themselves; counters of replicas are added, not taken together."""
FAMILY_UNITS = {family.name: family.unit for family in FAMILIES}
RECORDED_UNITS = {rule.record: rule.unit for group in GROUPS for rule in group.rules}
UNITS_OF = FAMILY_UNITS | RECORDED_UNITS
SHOWN_AS = {
    "tokens/s": {"tokens_per_second", "tokens_per_second_per_gpu"},
    "tokens/J": {"tokens_per_joule"},
    "nodes": {"nodes", "count"},
    "GPUs": {"count"},
    "ratio": {"percent", "speedup"},
    "seconds": {"seconds", "long_seconds"},
    "W": {"kilowatts"},
    "bytes": {"bytes"},
    "J": {"megawatt_hours"},
}
"""The panel units in which a series of this unit may be shown."""

panels = pytest.mark.parametrize(
    ("dashboard", "panel"),
    [pytest.param(page, panel, id=f"{page.uid}: {panel.title}") for page in DASHBOARDS for panel in page.panels],
)
pages = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda page: page.uid)


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """The committed JSON."""
    made: dict[str, Any] = json.loads((ROOT / CHART_FOLDER / f"{dashboard.uid}.json").read_text(encoding="utf-8"))
    return made


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The files, made once."""
    return files()


def test_no_file_is_left_from_a_dashboard_that_is_gone(made: dict[str, str]) -> None:
    committed = [path for folder in (CHART_FOLDER, generate.FOLDER) for path in (ROOT / folder).iterdir()]
    assert sorted(str(path.relative_to(ROOT)) for path in committed) == sorted(made | generate.files())


def test_uids_never_change() -> None:
    kept = ["precision-fleet", "precision-pools", "precision-node", "precision-recipes", "precision-operator"]
    assert [dashboard.uid for dashboard in DASHBOARDS] == kept


def read_back(document: dict[str, Any]) -> dict[str, Any]:
    """The document after a way through the SDK's classes; the menu that it puts links into is taken out again."""
    register_default_plugins()
    made: dict[str, Any] = json.loads(json.dumps(schema.Dashboard.from_json(document), cls=JSONEncoder))
    for shown in (*made["links"], *made["annotations"].get("list", ())):
        del shown["placement"]
    return made


@pages
def test_grafanas_sdk_reads_what_is_committed_writes_the_same_and_loses_a_field_that_it_lacks(
    dashboard: Dashboard,
) -> None:
    document = grafana(dashboard)
    assert read_back(document) == document
    document["panels"][1]["colour"] = "red"
    assert read_back(document) != document


@pages
def test_a_dashboard_lets_choose_data_source_and_pool_and_keeps_them_on_the_way_to_others(dashboard: Dashboard) -> None:
    made = grafana(dashboard)
    assert (made["uid"], made["tags"]) == (dashboard.uid, ["precision-profiler"])
    (link,) = made["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["precision-profiler"])
    assert link["includeVars"]
    assert link["keepTime"]
    variables = {choice["name"]: choice for choice in made["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    asked_for = {name: choice["query"]["query"] for name, choice in variables.items() if choice["type"] == "query"}
    assert asked_for["cluster"] == "label_values(precision_profile_nodes, cluster)"
    assert asked_for["pool"].startswith('label_values(precision_pool_nodes{cluster=~"$cluster"')
    asked = {choice["datasource"]["uid"] for choice in variables.values() if choice["type"] == "query"}
    assert asked == {"${datasource}"}


@pages
def test_every_panel_says_what_it_shows_in_which_unit_and_what_no_value_means(dashboard: Dashboard) -> None:
    units = {unit.grafana for unit in UNITS.values()}
    texts = {panel.shown_title: panel.absent for panel in dashboard.panels}
    assert all(texts.values())
    for panel in grafana(dashboard)["panels"]:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"] in units, panel["title"]
        assert defaults["noValue"] == texts[panel["title"]], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"], panel["title"]


@pages
def test_panels_lie_on_the_grid_and_on_no_other_panel(dashboard: Dashboard) -> None:
    panels = grafana(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    boxes = [panel["gridPos"] for panel in panels]
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= 24 and box["h"] > 0 for box in boxes)
    cells = [(box["x"] + x, box["y"] + y) for box in boxes for x in range(box["w"]) for y in range(box["h"])]
    assert len({*cells}) == len(cells)


@panels
def test_every_expression_is_promql_over_series_that_exist_and_two_exporters_change_none(
    dashboard: Dashboard, panel: Panel
) -> None:
    for part in _selectors(dashboard, panel):
        assert _known(part.metric), part.metric
        single = part.metric.startswith(("precision:", "precision_agent_", "precision_operator_")) or part.metric in (
            "ALERTS",
            "precision_exporter_render_seconds_sum",
            "precision_exporter_render_seconds_count",
        )
        assert single or part.deduplicated, f"{part.metric} is read once for each exporter"


@panels
def test_a_time_series_reads_recorded_or_pool_series_or_one_named_node(dashboard: Dashboard, panel: Panel) -> None:
    if panel.kind in ("timeseries", "heatmap"):
        for selector in _selectors(dashboard, panel, node="gb200-0001"):
            raw = selector.metric.startswith("precision_node_")
            assert not raw or 'node="gb200-0001"' in selector.matchers, f"{selector.metric} of all nodes over time"


@panels
def test_a_value_is_shown_in_the_unit_of_its_series(dashboard: Dashboard, panel: Panel) -> None:
    for number, query in enumerate(panel.queries, 1):
        column = next((column for column in panel.columns if column.query == number), None)
        shown = (column.unit if column else "") or query.unit or panel.unit
        value = query.expr.partition(" and on ")[0]  # what follows chooses series
        units = {unit for s in selectors(chosen(value, dashboard)) if (unit := UNITS_OF.get(s.metric))}
        plain = len(units) == 1 and "/" not in query.expr.replace("$", "") and "count" not in query.expr
        if plain and "timestamp" not in query.expr and (panel.kind != "table" or column):
            assert shown in SHOWN_AS[units.pop()], f"{panel.title}: {query.expr} shown as {shown}"


@panels
def test_a_panel_says_from_which_metrics_level_on_it_sees(dashboard: Dashboard, panel: Panel) -> None:
    levels = {family.name: family.level for family in FAMILIES} | {"precision:node_fault": "node"}
    needed = [levels.get(selector.metric, "pool") for selector in _selectors(dashboard, panel)]
    assert panel.level == max(needed, key=("pool", "node", "detail").index, default="pool")


@pages
def test_a_table_shows_each_value_and_no_label_that_the_expression_drops(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        if panel.kind != "table":
            continue
        labels = [column.name for column in panel.columns if not column.query]
        assert labels, panel.title
        for query in panel.queries:
            for label in labels:
                assert label in query.expr, f"{panel.title}: no {label} in {query.expr}"
        numbers = [column.query for column in panel.columns if column.query]
        assert numbers in ([], list(range(1, len(panel.queries) + 1))), panel.title


@panels
def test_no_panel_takes_what_is_in_two_clusters_for_one(dashboard: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        for selector in selectors(chosen(query.expr, dashboard, cluster="c1")):
            joined = selector.metric.startswith("precision:") and not selector.matchers
            assert joined or 'cluster=~"c1"' in selector.matchers, selector.metric
        if panel.kind in ("timeseries", "table") and "{{" in query.legend and "pool" in query.legend:
            assert "{{cluster}}" in query.legend, query.legend
    if panel.kind == "table" and any(column.name in ("pool", "profile", "plan") for column in panel.columns):
        assert "cluster" in [column.name for column in panel.columns]


@pages
def test_a_banner_says_what_was_not_measured_and_the_word_that_the_chart_replaces_is_the_label(
    dashboard: Dashboard,
) -> None:
    first = dashboard.panels[0]
    assert (first.title, first.size[0]) == ("Figures that were not measured on this hardware", 24)
    assert 'data!="measured"' in first.queries[0].expr
    texts = [dashboard.description, *(text for panel in dashboard.panels for text in (panel.title, panel.description))]
    texts += [variable.description for variable in dashboard.variables]
    assert not [text for text in texts if re.search(r"\bcluster\b", text)]


@pages
def test_a_node_in_a_table_links_to_its_dashboard_with_the_variables_kept(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for column in panel.columns:
            if column.name == "node" and dashboard.uid != "precision-operator":
                text = json.dumps(grafana(dashboard), ensure_ascii=False)
                assert column.link == "precision-node"
                row = "&var-cluster=${__data.fields.cluster}&var-namespace=${__data.fields.profile_namespace}"
                row += "&var-profile=${__data.fields.profile}&${datasource:queryparam}"
                assert f"/d/precision-node?var-node=${{__value.raw}}{row}" in text
                shown = {column.name for column in panel.columns}
                assert shown >= {"cluster", "profile_namespace", "profile"}, "what is hidden has no field to link by"


@panels
def test_a_line_for_each_recipe_has_the_recipes_colour_of_the_report(dashboard: Dashboard, panel: Panel) -> None:
    if panel.kind != "timeseries" or not any(query.legend.startswith("{{recipe}}") for query in panel.queries):
        return
    colours = {line.value: line.colour for line in panel.colours}
    coloured = {recipe: RECIPE_COLOURS[recipe] for recipe in by_default(None)}
    assert coloured.items() <= colours.items()
    (drawn,) = (drawing for drawing in grafana(dashboard)["panels"] if drawing["title"] == panel.shown_title)
    overrides = {rule["matcher"]["options"]: rule["properties"] for rule in drawn["fieldConfig"]["overrides"]}
    for recipe, colour in coloured.items():
        (matched,) = (pattern for pattern in overrides if re.match(pattern.strip("/"), f"{recipe} nightly"))
        assert overrides[matched] == [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]


@panels
def test_colours_belong_to_a_label_with_which_every_legend_begins(dashboard: Dashboard, panel: Panel) -> None:
    for line in panel.colours:
        assert all(query.legend.startswith(f"{{{{{line.label}}}}}") for query in panel.queries)
        red = line.colour == "red"
        assert red == (line.value in ("failed", "fallback", "limit")), "red is for what failed, and for limits"
    words = [mark.pattern for column in panel.columns for mark in column.marks]
    assert all(re.fullmatch(r"[\w ]+", word) for word in words), "Grafana maps words, not patterns"


@panels
def test_no_panel_has_a_line_for_each_recipe_of_each_pool(dashboard: Dashboard, panel: Panel) -> None:
    both = any("{{recipe}}" in query.legend and "{{pool}}" in query.legend for query in panel.queries)
    assert panel.kind != "timeseries" or not both
    if panel.repeat:
        assert panel.size[0] == 24, "a repeated panel has its line for itself"
        assert all(f'{panel.repeat}=~"${panel.repeat}"' in query.expr for query in panel.queries)


def test_alerts_are_sorted_by_rank_and_not_by_name() -> None:
    (panel,) = (panel for panel in DASHBOARDS[4].panels if panel.title == "Alerts of precision")
    (severity,) = (column for column in panel.columns if column.name == "severity")
    shown = [mark.text for mark in sorted(severity.marks, key=lambda mark: mark.pattern)]
    assert shown == ["critical", "warning", "info"]
    assert severity.sort == "asc"
    assert all(f'"{mark.pattern}"' in panel.queries[0].expr for mark in severity.marks)


def _selectors(dashboard: Dashboard, panel: Panel, **choices: str) -> list[Selector]:
    return [selector for query in panel.queries for selector in selectors(chosen(query.expr, dashboard, **choices))]


def _known(metric: str) -> bool:
    if metric.startswith("precision:"):
        return metric in RECORDED_UNITS
    return metric == "ALERTS" or metric in FAMILY_UNITS or metric.startswith(PROCESSES)


def test_every_annotation_reads_recorded_series() -> None:
    for dashboard in DASHBOARDS:
        for annotation in dashboard.annotations:
            chosen_selectors = selectors(chosen(annotation.expr, dashboard))
            assert all(selector.metric in RECORDED_UNITS for selector in chosen_selectors)


def test_all_expressions_of_all_dashboards_are_looked_at() -> None:
    assert sum(1 for dashboard in DASHBOARDS for _ in expressions(dashboard)) > 70
