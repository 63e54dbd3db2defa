"""A dashboard as a value: rows of panels, each defined once for every tool that draws it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

GRID_WIDTH = 24
"""Columns of the grid, in Grafana and in Perses."""
REPEATED_ON_A_LINE = 3

Colour = Literal["green", "yellow", "orange", "red", "blue", "purple", "grey"]


@dataclass(frozen=True)
class Unit:
    """How a value is written: Grafana's unit id, the nearest of Perses, and the decimals.

    `suffix` is what a reader needs and Perses can't append; it stands in the panel's title there.
    """

    grafana: str
    perses: Literal["decimal", "percent-decimal", "seconds", "bytes"]
    decimals: int
    suffix: str = ""
    scale: float = 1.0
    """Perses' tables show bare numbers: this many of the unit that `scale_header` names."""
    scale_header: str = ""


_UNITS = json.loads(files(__package__).joinpath("units.json").read_text(encoding="utf-8"))
UNITS: dict[str, Unit] = {name: Unit(**row) for name, row in _UNITS.items()}
"""Every unit that a panel may name; a value never carries a unit that the reader has to guess."""


@dataclass(frozen=True)
class Query:
    """One PromQL expression. `legend` is a template over the labels, `{{pool}}`, or the header of a table's value."""

    expr: str
    legend: str = ""
    unit: str = ""
    """Where it differs from the panel's: an axis of a scatter plot."""


@dataclass(frozen=True)
class SeriesColour:
    """The lines whose `label` is `value` have this colour (a name, or `#rrggbb`), on every dashboard.

    The panel's legends begin with the label: Grafana colours by name.
    """

    label: str
    value: str
    colour: str


@dataclass(frozen=True)
class Step:
    """From this value on, this colour; `at` None is the colour below the first step."""

    at: float | None
    colour: Colour


@dataclass(frozen=True)
class Mark:
    """A colour for cells whose whole text is `pattern` (Perses: a regular expression), and what they show."""

    pattern: str
    colour: Colour
    text: str = ""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: a label's name, or `value 1` .. `value n` for the n-th query."""

    name: str
    header: str
    unit: str = ""
    marks: tuple[Mark, ...] = ()
    steps: tuple[Step, ...] = ()
    sort: Literal["asc", "desc"] | None = None
    link: str = ""
    """A dashboard's uid; the cell links to it with the row's node."""
    width: int | None = None

    @property
    def query(self) -> int | None:
        """The number of the query whose value it shows, from 1; None for a label."""
        return int(self.name.removeprefix("value ")) if self.name.startswith("value ") else None


@dataclass(frozen=True)
class Panel:
    """One panel. `empty` says when it rightly shows nothing on a fleet that works; "" when it never does."""

    kind: Literal["stat", "timeseries", "table", "bars", "heatmap", "scatter"]
    title: str
    description: str
    unit: str
    no_value: str
    queries: tuple[Query, ...]
    size: tuple[int, int] = (8, 8)
    """Columns and lines of the grid."""
    steps: tuple[Step, ...] = ()
    columns: tuple[TableColumn, ...] = ()
    bar: str = ""
    """The label that names a bar."""
    stacked: bool = False
    minimum: float | None = None
    empty: str = ""
    level: Literal["pool", "node", "detail"] = "pool"
    """The metricsLevel from which on it has data."""
    colours: tuple[SeriesColour, ...] = ()
    repeat: str = ""
    """The variable of which each chosen value gets a panel of its own: few lines in each, and no name to read twice."""
    named: bool = False
    """Whether a stat shows the legend beside each value."""

    @property
    def shown_title(self) -> str:
        """The title; of a repeated panel with the value that it is about."""
        return f"{self.title}: ${self.repeat}" if self.repeat else self.title

    @property
    def absent(self) -> str:
        """What stands in it when there is no value: at a lower metricsLevel "no fault" would be said of the unseen."""
        return self.no_value if self.level == "pool" else f"{self.no_value} (seen from metricsLevel {self.level} on)"


@dataclass(frozen=True)
class PanelRow:
    """Panels side by side under one headline, flowing to the next line where the grid ends."""

    title: str
    panels: tuple[Panel, ...]


def row(title: str, *panels: Panel) -> PanelRow:
    """These panels under that headline."""
    return PanelRow(title, panels)


@dataclass(frozen=True)
class Variable:
    """What a reader chooses. With `metric`, a list of the label's values; else a text with a default."""

    name: str
    label: str
    description: str
    metric: str = ""
    value_label: str = ""
    """Where it is not called as the variable is."""
    default: str = ""
    multiple: bool = True
    every: bool = True


@dataclass(frozen=True)
class Annotation:
    """Vertical marks on every time series: where the expression has a value."""

    name: str
    expr: str
    title: str


@dataclass(frozen=True)
class Dashboard:
    """A page of rows. `uid` never changes: links and bookmarks carry it."""

    uid: str
    title: str
    description: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...] = ()
    duration: str = "7d"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels in reading order."""
        return tuple(panel for row in self.rows for panel in row.panels)


@dataclass(frozen=True)
class GridPosition:
    """A rectangle on the grid."""

    x: int
    y: int
    width: int
    height: int


def flow(panels: tuple[Panel, ...], top: int) -> Iterator[tuple[Panel, GridPosition]]:
    """Each panel with its place, from the left; a panel that does not fit begins the next line.

    Raises ValueError for one that is wider than the grid.
    """
    x, y, line = 0, top, 0
    for panel in panels:
        width, height = panel.size
        if not 0 < width <= GRID_WIDTH:
            raise ValueError(f"panel {panel.title!r}: a width of {width}, the grid has {GRID_WIDTH}")
        if x + width > GRID_WIDTH:
            x, y, line = 0, y + line, 0
        yield panel, GridPosition(x, y, width, height)
        x, line = x + width, max(line, height)


def bottom(panels: tuple[Panel, ...], top: int) -> int:
    """The first free line below them."""
    return max((place.y + place.height for _, place in flow(panels, top)), default=top)
