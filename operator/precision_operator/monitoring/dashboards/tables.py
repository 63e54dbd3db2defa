"""Panels that several dashboards have: tables, whose columns are labels of the series or queries with their values, and
the banner that tells of figures which nobody measured on this hardware."""

from dataclasses import replace
from typing import Any, Literal

from precision_operator.monitoring.dashboards.panel import Panel, Query, Step, TableColumn

MADE_UP = 'data!="measured"'
HEADERS = {
    "profile_namespace": "Namespace",
    "plan_namespace": "Namespace",
    "nvlink_domain": "NVLink domain",
    "gpu_product": "GPU",
    "gpus": "GPUs",
    "cuda": "CUDA",
    "te": "Transformer Engine",
    "alertstate": "State",
    "alertname": "Alert",
    "power_scope": "Power of",
}
"""How a label's column is headed, where that is not its name."""
ValueColumn = tuple[Query, TableColumn]


def label(name: str, header: str = "", **options: Any) -> TableColumn:
    """The column of a label."""
    return TableColumn(name, header or HEADERS.get(name, name.capitalize()), **options)


def labels(*names: str) -> tuple[TableColumn, ...]:
    """The columns of labels that are shown as they are."""
    return tuple(map(label, names))


def value(expr: str, header: str, unit: str, legend: str = "", **options: Any) -> ValueColumn:
    """A query, and the column of its value."""
    return Query(expr, legend or header), TableColumn("", header, unit, **options)


def table(
    title: str,
    description: str,
    unit: str,
    no_value: str,
    *columns: TableColumn | ValueColumn,
    query: str = "",
    **options: Any,
) -> Panel:
    """A table with these columns, the queries in their order; of `query` where none of them is a value."""
    queries: list[Query] = []
    shown: list[TableColumn] = []
    for column in columns:
        if isinstance(column, tuple):
            queries.append(column[0])
            column = replace(column[1], name=f"value {len(queries)}")
        shown.append(column)
    asked = tuple(queries) or (Query(query),)
    return Panel("table", title, description, unit, no_value, asked, columns=tuple(shown), **options)


def banner(expr: str, level: Literal["pool", "node"] = "pool") -> Panel:
    """Across the page. `expr` counts the nodes whose figures are not measured, by `data`; there may be none."""
    return Panel(
        "stat",
        "Figures that were not measured on this hardware",
        "How many nodes have figures that are simulated, replayed or a trial on a CPU: don't base decisions about "
        "this hardware on them.",
        "nodes",
        "all figures are measured",
        (Query(f"{expr} > 0", "{{data}}"),),
        size=(24, 3),
        steps=(Step(None, "green"), Step(1, "orange")),
        empty="all figures were measured on this hardware",
        level=level,
        named=True,
    )
