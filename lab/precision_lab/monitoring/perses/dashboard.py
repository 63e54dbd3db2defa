"""A dashboard as Perses' JSON (0.50), for the panels that Perses can draw.

Reference: https://perses.dev/perses/docs/api/dashboard/. What Perses lacks is left out and named: `not_drawn`. Its
tables show values as they come, so they are rounded in the expression, and colours go by a cell's text or number,
whichever column it stands in. Its stats show numbers without their names, so a stat of named values becomes a table.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from precision_operator.monitoring.dashboards.panel import (
    GRID_WIDTH,
    REPEATED_ON_A_LINE,
    UNITS,
    Colour,
    Dashboard,
    Mark,
    Panel,
    Step,
    TableColumn,
    Variable,
    bottom,
    flow,
)

NOT_DRAWN: dict[str, str] = {
    "heatmap": "Perses 0.50 has no heatmap",
    "scatter": "the scatter chart of Perses 0.50 knows traces only",
}

COLOURS: dict[Colour, str] = {
    "green": "#73BF69",
    "yellow": "#FADE2A",
    "orange": "#FF9830",
    "red": "#F2495C",
    "blue": "#8AB8FF",
    "purple": "#CA95E5",
    "grey": "#B7B7B7",
}
"""Light enough for black text."""

LINES = {"green": "#37872D", "yellow": "#E0B400", "orange": "#FA6400", "red": "#C4162A", "blue": "#1F60C4"} | {
    "purple": "#8F3BB8",
    "grey": "#8E8E8E",
}
"""Dark enough for a line on white paper."""

NARROW = 8
_MANY = 1e300
_TABLE_HEIGHT = 5
"""Of a title, a header and two rows."""


def text(dashboard: Dashboard) -> str:
    """The JSON file."""
    return json.dumps(resource(dashboard), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def not_drawn(dashboard: Dashboard) -> dict[str, str]:
    """Title to reason, of the panels that Perses can't draw."""
    return {panel.title: NOT_DRAWN[panel.kind] for panel in dashboard.panels if panel.kind in NOT_DRAWN}


def resource(dashboard: Dashboard, values: Mapping[str, Sequence[str]] = MappingProxyType({})) -> dict[str, Any]:
    """The Dashboard resource. The data source is the server's default.

    Perses repeats no panel before 0.52: of a repeated one there is one for all values, or one for each of the
    variable's `values` where they are given.
    """
    panels: dict[str, Any] = {}
    layouts = []
    for row in dashboard.rows:
        items = []
        drawn = _stretched(_each(_with_names(panel), values) for panel in row.panels if panel.kind not in NOT_DRAWN)
        for panel, place in flow(drawn, 0):
            name = f"panel-{len(panels) + 1}"
            panels[name] = _panel(panel)
            items.append(asdict(place) | {"content": {"$ref": f"#/spec/panels/{name}"}})
        if bottom(drawn, 0):
            layouts.append({"kind": "Grid", "spec": {"display": {"title": row.title}, "items": items}})
    return {
        "kind": "Dashboard",
        "metadata": {"name": dashboard.uid, "project": "precision-profiler"},
        "spec": {
            "display": {"name": dashboard.title, "description": dashboard.description},
            "duration": dashboard.duration,
            "variables": [_variable(variable) for variable in dashboard.variables],
            "layouts": layouts,
            "panels": panels,
        },
    }


def _each(panel: Panel, values: Mapping[str, Sequence[str]]) -> tuple[Panel, ...]:
    """The panel for each value; one for all of them, with the value in the legend, where none is given."""
    if not panel.repeat:
        return (panel,)
    chosen = values.get(panel.repeat, ())
    if not chosen:
        legends = tuple(replace(query, legend=f"{query.legend} {{{{{panel.repeat}}}}}") for query in panel.queries)
        return (replace(panel, title=f"{panel.title}, by {panel.repeat}", queries=legends, colours=(), repeat=""),)
    return tuple(
        replace(
            panel,
            title=f"{panel.title}: {value}",
            queries=tuple(replace(q, expr=q.expr.replace(f"${panel.repeat}", value)) for q in panel.queries),
            size=(GRID_WIDTH // min(len(chosen), REPEATED_ON_A_LINE), panel.size[1]),
            repeat="",
        )
        for value in chosen
    )


def _stretched(groups: Iterable[tuple[Panel, ...]]) -> tuple[Panel, ...]:
    """The panels, the last of each line as wide as the line has room: no hole where one is not drawn."""
    made = [panel for group in groups for panel in group]
    places = [place for _, place in flow(tuple(made), 0)]
    for at, place in enumerate(places):
        last = at + 1 == len(places) or places[at + 1].y != place.y
        if last and made[at].kind != "stat":
            made[at] = replace(made[at], size=(GRID_WIDTH - place.x, place.height))
    return tuple(made)


def _with_names(panel: Panel) -> Panel:
    """A stat of named values as a table of names and values, in the colour of its last step; others as they are."""
    if not panel.named:
        return panel
    label = panel.queries[0].legend.strip("{}")
    name = TableColumn(label, label.capitalize(), marks=(Mark(".*[a-z].*", panel.steps[-1].colour),))
    value = TableColumn("value 1", panel.unit.capitalize(), panel.unit, steps=panel.steps)
    return replace(panel, kind="table", columns=(name, value), size=(panel.size[0], max(panel.size[1], _TABLE_HEIGHT)))


def _panel(panel: Panel) -> dict[str, Any]:
    suffix = UNITS[panel.unit].suffix if panel.kind != "table" else ""
    name = f"{panel.title} ({suffix})" if suffix else panel.title
    return {
        "kind": "Panel",
        "spec": {
            "display": {"name": name, "description": panel.description},
            "plugin": {"kind": _PLUGINS[panel.kind], "spec": _options(panel)},
            "queries": _queries(panel),
        },
    }


_PLUGINS = {"stat": "StatChart", "timeseries": "TimeSeriesChart", "table": "Table", "bars": "BarChart"}


def _queries(panel: Panel) -> list[dict[str, Any]]:
    if panel.kind == "bars":
        return [_bars(panel)]
    if panel.colours:  # a query for the series of one label's value: Perses colours by query
        only = '({0}) and on ({1.label}) label_replace(vector(1), "{1.label}", "{1.value}", "", "")'.format
        return [_asked(only(query.expr, line), query.legend) for query in panel.queries for line in panel.colours]
    if panel.kind == "table":
        return [_asked(_rounded(panel, number), "") for number in range(len(panel.queries))]
    return [_asked(query.expr, query.legend) for query in panel.queries]


def _bars(panel: Panel) -> dict[str, Any]:
    """One query for all series: a range query's answer is in the order of its labels, so equal bars stand together."""
    named = [f'label_replace({query.expr}, "series", "{query.legend}", "", "")' for query in panel.queries]
    several = len(panel.queries) > 1
    return _asked(" or ".join(named), f"{{{{{panel.bar}}}}}{' {{series}}' if several else ''}")


def _asked(expr: str, legend: str) -> dict[str, Any]:
    spec = {"query": expr, **({"seriesNameFormat": legend} if legend else {})}
    return {"kind": "TimeSeriesQuery", "spec": {"plugin": {"kind": "PrometheusTimeSeriesQuery", "spec": spec}}}


def _rounded(panel: Panel, number: int) -> str:
    """The expression in the unit in which the table's header says it, cut to its decimals."""
    expr = panel.queries[number].expr
    column = next((column for column in panel.columns if column.query == number + 1), None)
    if column is None or not column.unit:
        return expr
    unit = UNITS[column.unit]
    scaled = expr if unit.scale == 1 else f"{unit.scale:g} * ({expr})"
    return f"round ({scaled}, 1e-{unit.decimals})"


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "table":
        return _table(panel)
    shape = {"unit": UNITS[panel.unit].perses, "decimalPlaces": UNITS[panel.unit].decimals}
    if panel.kind == "bars":
        return {"calculation": "last", "format": shape, "mode": "value"}
    limits = {"thresholds": _thresholds(panel.steps)} if panel.steps else {}
    if panel.kind == "stat":
        return {"calculation": "last-number", "format": shape, **limits}
    axis = {"format": shape, **({"min": panel.minimum} if panel.minimum is not None else {})}
    visual = {
        "lineWidth": 2,
        "areaOpacity": 0.4 if panel.stacked else 0,
        "stack": "all" if panel.stacked else "none",
        "palette": {"mode": "categorical"},
    }
    legend = {"position": "bottom" if panel.size[0] <= NARROW else "right", "mode": "list", "size": "medium"}
    colours = [
        {"queryIndex": at, "colorMode": "fixed", "colorValue": LINES.get(line.colour, line.colour)}
        for at, line in enumerate(line for _ in panel.queries for line in panel.colours)
    ]
    line_colours = {"querySettings": colours} if panel.colours else {}
    return {"legend": legend, "yAxis": axis, "visual": {**visual, "connectNulls": False}, **limits, **line_colours}


def _table(panel: Panel) -> dict[str, Any]:
    several = len(panel.queries) > 1
    columns = [_column(column, several) for column in panel.columns]
    values = [f"value #{number + 1}" for number in range(len(panel.queries))] if several else ["value"]
    shown = {column["name"] for column in columns}
    hidden = [{"name": name, "hide": True} for name in ("timestamp", *values) if name not in shown]
    return {
        "density": "compact",
        "defaultColumnWidth": "auto",
        "columnSettings": [*columns, *hidden],
        "cellSettings": _cells(panel.columns),
        **({"transforms": [{"kind": "MergeSeries", "spec": {}}]} if several else {}),
    }


def _column(column: TableColumn, several: bool) -> dict[str, Any]:
    name = column.name
    if column.query:
        name = f"value #{column.query}" if several else "value"
    scaled = UNITS[column.unit].scale_header if column.unit else ""
    return {
        "name": name,
        "header": f"{column.header} ({scaled})" if scaled else column.header,
        "enableSorting": True,
        **({"sort": column.sort} if column.sort else {}),
        **({"width": column.width} if column.width else {}),
    }


def _cells(columns: tuple[TableColumn, ...]) -> list[dict[str, Any]]:
    """Colours by text, and by number where the table has one column of numbers: Perses can't tell columns apart."""
    numbers = [column for column in columns if column.query]
    made = [
        _cell({"kind": "Regex", "spec": {"expr": f"^{mark.pattern}$"}}, mark.colour, mark.text)
        for column in columns
        for mark in column.marks
    ]
    steps = numbers[0].steps if len(numbers) == 1 else ()
    if steps:
        scale = UNITS[numbers[0].unit].scale
        for step, following in zip(steps, (*steps[1:], None), strict=True):
            low = -_MANY if step.at is None else step.at * scale
            high = _MANY if following is None or following.at is None else following.at * scale - 1e-9
            made.append(_cell({"kind": "Range", "spec": {"min": low, "max": high}}, step.colour, ""))
    return made


def _cell(condition: dict[str, Any], colour: Colour, shown: str) -> dict[str, Any]:
    text_shown = {"text": shown} if shown else {}
    return {"condition": condition, "backgroundColor": COLOURS[colour], "textColor": "#000000", **text_shown}


def _thresholds(steps: tuple[Step, ...]) -> dict[str, Any]:
    below: Colour = next((step.colour for step in steps if step.at is None), "green")
    marks = [{"value": step.at, "color": COLOURS[step.colour]} for step in steps if step.at is not None]
    return {"mode": "absolute", "defaultColor": COLOURS[below], "steps": marks}


def _variable(variable: Variable) -> dict[str, Any]:
    display = {"name": variable.label, "description": variable.description}
    if not variable.metric:
        return {"kind": "TextVariable", "spec": {"name": variable.name, "display": display, "value": variable.default}}
    asked = {"labelName": variable.value_label or variable.name, "matchers": [variable.metric]}
    every = {"allowAllValue": True, "customAllValue": ".*", "defaultValue": ["$__all"]} if variable.every else {}
    return {
        "kind": "ListVariable",
        "spec": {
            "name": variable.name,
            "display": display,
            "allowMultiple": variable.multiple,
            "allowAllValue": variable.every,
            "sort": "alphabetical-asc",
            "plugin": {"kind": "PrometheusLabelValuesVariable", "spec": asked},
            **every,
        },
    }
