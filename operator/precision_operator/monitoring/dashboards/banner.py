"""The banner of every dashboard: figures that nobody measured on this hardware, told by the metrics themselves."""

from __future__ import annotations

from typing import Literal

from precision_operator.monitoring.dashboards.panel import Panel, Query, Step

MADE_UP = 'data!="measured"'


def banner(expr: str, level: Literal["pool", "node"] = "pool") -> Panel:
    """Across the page. `expr` counts the nodes whose figures are not measured, by `data`; there may be none."""
    return Panel(
        "stat",
        "Figures that were not measured on this hardware",
        "How many nodes have figures that are simulated, replayed or a trial on a CPU. Such figures are for trying "
        "things out: don't base decisions about this hardware on them.",
        "nodes",
        "all figures are measured",
        (Query(f"{expr} > 0", "{{data}}"),),
        size=(24, 3),
        steps=(Step(None, "green"), Step(1, "orange")),
        empty="all figures were measured on this hardware",
        level=level,
        named=True,
    )
