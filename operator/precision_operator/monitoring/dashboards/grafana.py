"""A dashboard as Grafana's JSON (classic schema, v1), through Grafana's own SDK.

The SDK's builders check names and types of every option; what is written is what Grafana itself would export.
Reference: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.grafana_panels import builder
from precision_operator.monitoring.dashboards.panel import (
    Annotation,
    Dashboard,
    GridPosition,
    Panel,
    PanelRow,
    Variable,
    bottom,
    flow,
)

CHART_FOLDER = "charts/precision-profiler/files/dashboards"
TAG = "precision-profiler"
DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
_INSTANT = ("table", "bars", "scatter", "stat")
"""Kinds that show now: they ask for one moment, never for a range."""


def files() -> dict[str, str]:
    """Path within the repository to text, of all dashboards."""
    return {f"{CHART_FOLDER}/{dashboard.uid}.json": text(dashboard) for dashboard in DASHBOARDS}


def text(dashboard: Dashboard) -> str:
    """The JSON file."""
    return json.dumps(_built(dashboard), cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _built(dashboard: Dashboard) -> models.Dashboard:
    page = (
        builders.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(f"now-{dashboard.duration}", "now")
        .refresh("1m")
        .timezone("browser")
        .link(
            builders.DashboardLink("Precision dashboards")  # of all with our tag; variables and time go along
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in dashboard.variables:
        page = page.with_variable(_variable(variable))
    for annotation in dashboard.annotations:
        page = page.annotation(_annotation(annotation))
    built = page.build()
    built.panels = _panels(dashboard.rows)
    for shown in (*(built.links or ()), *(built.annotations.list_val or ())):
        shown.placement = None  # the SDK would put them into a menu
    return built


def _panels(rows: tuple[PanelRow, ...]) -> list[models.Panel | models.RowPanel]:
    """Rows and panels with their places, numbered from 1; places are our own, as for Perses."""
    made: list[models.Panel | models.RowPanel] = []
    top = 0
    for row in rows:
        headline = builders.Row(row.title).id(len(made) + 1).grid_pos(models.GridPos(h=1, w=24, x=0, y=top)).build()
        made.append(headline)
        for panel, place in flow(row.panels, top + 1):
            made.append(_panel(panel, place, len(made) + 1))
        top = bottom(row.panels, top + 1)
    return made


def _panel(panel: Panel, place: GridPosition, number: int) -> models.Panel:
    made = builder(panel)
    for position, query in enumerate(panel.queries):
        target = prometheus.Dataquery().ref_id(chr(ord("A") + position)).expr(query.expr).legend_format(query.legend)
        target = target.instant() if panel.kind in _INSTANT else target.range()
        if panel.kind in ("table", "scatter", "bars"):
            target = target.format(prometheus_models.PromQueryFormat.TABLE)
        if panel.kind == "heatmap":
            target = target.format(prometheus_models.PromQueryFormat.HEATMAP)
        made = made.with_target(target)
    spot = models.GridPos(h=place.height, w=place.width, x=place.x, y=place.y)
    made = made.id(number).title(panel.shown_title).description(panel.description).datasource(DATASOURCE).grid_pos(spot)
    built: models.Panel = made.no_value(panel.absent).build()
    return built


def _variable(variable: Variable) -> Any:
    if not variable.metric:
        value = models.VariableOption(selected=True, text=variable.default, value=variable.default)
        return (
            builders.TextBoxVariable(variable.name)
            .label(variable.label)
            .description(variable.description)
            .default_value(variable.default)
            .current(value)
        )
    query = f"label_values({variable.metric}, {variable.value_label or variable.name})"
    asked = (
        builders.QueryVariable(variable.name)
        .label(variable.label)
        .description(variable.description)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": f"variable-{variable.name}"})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(variable.multiple)
    )
    if variable.every:
        every = models.VariableOption(selected=True, text="All", value="$__all")
        asked = asked.include_all(True).all_value(".*").current(every)
    return asked


def _annotation(annotation: Annotation) -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(annotation.name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("blue")
        .expr(annotation.expr)
        .title_format(annotation.title)
        .step("60s")
    )
