"""Grafana's panel builders: one function for each kind of panel, options and colours in one place."""

from collections.abc import Callable, Sequence
from typing import Any

from grafana_foundation_sdk.builders import barchart, common, heatmap, stat, table, timeseries, xychart
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import xychart as xychart_models

from precision_operator.monitoring.dashboards.panel import REPEATED_ON_A_LINE, UNITS, Mark, Panel, Step, TableColumn

_MERGE = models.DataTransformerConfig(id_val="merge", options={})


def builder(panel: Panel) -> Any:
    """The panel's builder with everything that depends on its kind; title, place and targets are still to come."""
    unit = UNITS[panel.unit]
    made = _KINDS[panel.kind](panel).unit(unit.grafana).decimals(unit.decimals)
    for line in panel.colours:
        fixed = {"mode": "fixed", "fixedColor": line.colour}
        made = made.override_by_regexp(f"/^{line.value}\\b/", [models.DynamicConfigValue(id_val="color", value=fixed)])
    if panel.repeat:
        made = made.repeat(panel.repeat).repeat_direction("h").max_per_row(REPEATED_ON_A_LINE)
    return made


def _stat(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .text_mode(options.BigValueTextMode.VALUE_AND_NAME if panel.named else options.BigValueTextMode.AUTO)
        .color_mode(options.BigValueColorMode.BACKGROUND)
        .graph_mode(options.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(panel.steps or (Step(None, "blue"),)))
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )


def _timeseries(panel: Panel) -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.TABLE)
        .placement(options.LegendPlacement.BOTTOM if panel.repeat else options.LegendPlacement.RIGHT)
        .show_legend(True)
        .calcs(["lastNotNull"])
    )
    made = (
        timeseries.Panel()
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
        .line_width(2)
        .fill_opacity(40 if panel.stacked else 0)
        .show_points(options.VisibilityMode.AUTO)
    )
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))
    if panel.minimum is not None:
        made = made.min(panel.minimum)
    if panel.steps:
        line = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
        made = made.thresholds(_thresholds(panel.steps)).thresholds_style(line)
    return made


def _bars(panel: Panel) -> barchart.Panel:
    """Bars side by side: the queries' tables are joined on their labels, one of which names the bar."""
    shown = dict(zip(_values(panel), (query.legend for query in panel.queries), strict=True))
    return (
        barchart.Panel()
        .orientation(options.VizOrientation.HORIZONTAL)
        .show_value(options.VisibilityMode.AUTO)
        .legend(common.VizLegendOptions().show_legend(len(panel.queries) > 1).placement(options.LegendPlacement.BOTTOM))
        .x_field(panel.bar)
        .with_transformation(_MERGE)
        .with_transformation(_organize({}, shown, ["Time"]))
    )


def _heatmap(_: Panel) -> heatmap.Panel:
    scheme = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    axis = heatmap.YAxisConfig().unit(UNITS["percent"].grafana)
    return heatmap.Panel().calculate(False).color(scheme).y_axis(axis).show_legend()


def _scatter(panel: Panel) -> xychart.Panel:
    """The first query is across, the second up."""
    names = dict(zip(_values(panel), (query.legend for query in panel.queries), strict=True))
    made = (
        xychart.Panel()
        .mapping(xychart_models.SeriesMapping.AUTO)
        .show(xychart_models.XYShowMode.POINTS)
        .point_size(xychart.XychartFieldConfigPointSize().fixed(10))
        .legend(common.VizLegendOptions().show_legend(False))
        .with_transformation(_MERGE)
        .with_transformation(_organize({name: place for place, name in enumerate(names)}, names, ["Time"]))
    )
    for query in panel.queries:
        if query.unit:
            made = made.override_by_name(query.legend, _unit(query.unit))
    return made


def _table(panel: Panel) -> table.Panel:
    values = _values(panel)
    names = {values[it.query - 1] if it.query else it.name: it.header for it in panel.columns}
    order = {field: place for place, field in enumerate(names)}
    unused = ["Time"] + [f for f in values if f not in names]
    made = table.Panel().show_header(True).with_transformation(_MERGE)
    made = made.with_transformation(_organize(order, names, unused))
    sorting: list[Any] = [
        common.TableSortByFieldState().display_name(column.header).desc(column.sort == "desc")
        for column in panel.columns
        if column.sort
    ]
    made = made.sort_by(sorting) if sorting else made
    for column in panel.columns:
        properties = _properties(column)
        made = made.override_by_name(column.header, properties) if properties else made
    return made


def _organize(order: dict[str, int], names: dict[str, str], hidden: Sequence[str]) -> models.DataTransformerConfig:
    chosen = {"excludeByName": dict.fromkeys(hidden, True), "indexByName": order, "renameByName": names}
    return models.DataTransformerConfig(id_val="organize", options=chosen)


def _values(panel: Panel) -> list[str]:
    """Grafana's names of the queries' values: `Value`, or `Value #A`, `Value #B` when there are several."""
    if len(panel.queries) == 1:
        return ["Value"]
    return [f"Value #{chr(ord('A') + place)}" for place in range(len(panel.queries))]


def _properties(column: TableColumn) -> list[models.DynamicConfigValue]:
    coloured = bool(column.steps or column.marks)
    values = {
        "thresholds": column.steps and _thresholds(column.steps).build(),
        "color": column.steps and {"mode": "thresholds"},
        "custom.cellOptions": coloured and {"type": "color-background"},
        "mappings": column.marks and [_mapping(column.marks)],
        "links": column.link and [_node_link(column.link)],
        "custom.width": column.width,
    }
    shown = [models.DynamicConfigValue(id_val=key, value=value) for key, value in values.items() if value]
    return [*(_unit(column.unit) if column.unit else ()), *shown]


def _unit(name: str) -> list[models.DynamicConfigValue]:
    unit = UNITS[name]
    values = {"unit": unit.grafana, "decimals": unit.decimals}
    return [models.DynamicConfigValue(id_val=key, value=value) for key, value in values.items()]


def _node_link(uid: str) -> dict[str, Any]:
    """To the row's node in its cluster, namespace and profile, with data source and time as they are here."""
    labels = {"cluster": "cluster", "namespace": "profile_namespace", "profile": "profile"}
    row = "&".join(f"var-{name}=${{__data.fields.{label}}}" for name, label in labels.items())
    kept = "${datasource:queryparam}&${__url_time_range}"
    return {"title": "Show this node", "url": f"/d/{uid}?var-node=${{__value.raw}}&{row}&{kept}"}


def _mapping(marks: Sequence[Mark]) -> dict[str, Any]:
    shown = [
        {"color": mark.colour, "index": n} | ({"text": mark.text} if mark.text else {}) for n, mark in enumerate(marks)
    ]
    return {"type": "value", "options": dict(zip((mark.pattern for mark in marks), shown, strict=True))}


def _thresholds(steps: Sequence[Step]) -> builders.ThresholdsConfig:
    made = [models.Threshold(value=step.at, color=step.colour) for step in steps]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


_KINDS: dict[str, Callable[[Panel], Any]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "table": _table,
    "bars": _bars,
    "heatmap": _heatmap,
    "scatter": _scatter,
}
