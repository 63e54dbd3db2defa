"""Our own SVG as a PNG, painted by matplotlib: a picture is the page's figure, and never a second drawing of it.

It knows the elements that `svg` writes (rect, circle, line, path, text) and nothing else; it raises for others, so that
no part of a figure is left out in silence.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from precision_operator.drawing.svg import LIGHT

DPI = 150
UNITS_AN_INCH = 60.0
MARGIN = 8.0
"""Of paper around the drawing: letters of another font may be wider than the browser's."""
HOW = "in a checkout, pip install '.[report]'"
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}
_STEP = re.compile(r"([MLHVlhvmz])([^MLHVlhvmz]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+")
Attributes = Mapping[str, str]


class NoMatplotlib(ValueError):
    """A PNG was asked for, and matplotlib is not installed; the message says what to do."""


def png(svg: str) -> bytes:
    """The drawing on white paper. Raises NoMatplotlib where it can't be painted, ValueError for foreign elements."""
    try:
        from matplotlib.figure import Figure as Canvas  # only here: the page needs no drawing library
    except ImportError as error:
        raise NoMatplotlib(f"a PNG needs matplotlib: {HOW}, or leave --png out") from error
    root = ElementTree.fromstring(svg)
    _, _, width, height = (float(each) for each in root.attrib["viewBox"].split())
    canvas = Canvas(figsize=((width + 2 * MARGIN) / UNITS_AN_INCH, (height + 2 * MARGIN) / UNITS_AN_INCH), dpi=DPI)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set_xlim(-MARGIN, width + MARGIN)
    axes.set_ylim(height + MARGIN, -MARGIN)
    axes.axis("off")
    for element in root:
        kind = element.tag.rpartition("}")[2]
        if kind not in _PAINTERS:
            raise ValueError(f"a PNG can't show the SVG element {kind}")
        _PAINTERS[kind](axes, element.attrib, element.text or "")
    out = io.BytesIO()
    canvas.savefig(out, format="png", dpi=DPI, metadata={"Software": "precision-profiler"})
    return out.getvalue()


def _colour(told: str | None) -> str:
    """A colour as matplotlib knows it; variables are those of light paper."""
    if told is None or told == "none":
        return "none"
    name = re.fullmatch(r"var\(--(.+)\)", told)
    return LIGHT[name[1]] if name else LIGHT["fail"] if told.startswith("url(") else told


def _pen(given: Attributes) -> dict[str, Any]:
    """Outline and filling of a shape."""
    dash = given.get("stroke-dasharray")
    width = float(given.get("stroke-width", 1 if "stroke" in given else 0)) * 72 / UNITS_AN_INCH
    style: Any = (0, [float(each) for each in dash.split()]) if dash else "-"
    return {"edgecolor": _colour(given.get("stroke")), "linewidth": width, "linestyle": style}


def _alpha(given: Attributes, key: str) -> float:
    return float(given.get(f"{key}-opacity", given.get("opacity", 1)))


def _rect(axes: Any, given: Attributes, _: str) -> None:
    from matplotlib.patches import Rectangle

    hatch = "////" if given["fill"].startswith("url(") else None
    fill = "none" if hatch else _colour(given["fill"])
    place = (float(given["x"]), float(given["y"]))
    pen = _pen(given) | ({"edgecolor": LIGHT["fail"]} if hatch else {})
    size = float(given["width"]), float(given["height"])
    axes.add_patch(Rectangle(place, *size, facecolor=fill, alpha=_alpha(given, "fill"), hatch=hatch, **pen))


def _circle(axes: Any, given: Attributes, _: str) -> None:
    from matplotlib.patches import Circle

    middle = (float(given["cx"]), float(given["cy"]))
    axes.add_patch(Circle(middle, float(given["r"]), facecolor=_colour(given.get("fill")), **_pen(given)))


def _line(axes: Any, given: Attributes, _: str) -> None:
    d = f"M{given['x1']} {given['y1']}L{given['x2']} {given['y2']}"
    _path(axes, {**given, "d": d, "fill": "none"}, "")


def _path(axes: Any, given: Attributes, _: str) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes, points = zip(*steps(given["d"]), strict=True)
    path = Path(points, [{"M": Path.MOVETO, "L": Path.LINETO}[code] for code in codes])
    fill = _colour(given.get("fill"))
    alpha = _alpha(given, "fill" if fill != "none" else "stroke")
    axes.add_patch(PathPatch(path, facecolor=fill, alpha=alpha, capstyle="butt", **_pen(given)))


def steps(d: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """A path's data as moves and lines to absolute places."""
    x = y = 0.0
    start = (x, y)
    for command, rest in _STEP.findall(d):
        numbers = [float(each) for each in _NUMBER.findall(rest)]
        for dx, dy in _moves(command, numbers):
            x, y = (dx if dx is not None else x, dy if dy is not None else y) if command.isupper() else (
                x + (dx or 0.0), y + (dy or 0.0))  # fmt: skip
            if command in "Mm":
                start = (x, y)
            yield ("M" if command in "Mm" else "L"), (x, y)
        if command == "z":
            x, y = start
            yield "L", start


def _moves(command: str, numbers: Sequence[float]) -> Iterator[tuple[float | None, float | None]]:
    """Places or distances, in x and y; None where a command says nothing of one."""
    if command in "Hh":
        yield from ((number, None) for number in numbers)
    elif command in "Vv":
        yield from ((None, number) for number in numbers)
    else:
        yield from zip(numbers[::2], numbers[1::2], strict=True)


def _text(axes: Any, given: Attributes, said: str) -> None:
    from matplotlib.patheffects import withStroke

    turned = re.match(r"rotate\((-?[\d.]+)", given.get("transform", ""))
    axes.text(
        float(given["x"]),
        float(given["y"]),
        said.replace("$", r"\$"),
        ha=_ANCHORS[given.get("text-anchor", "start")],
        va="baseline",
        fontsize=float(given["font-size"]) * 72 / UNITS_AN_INCH,
        fontweight=int(given.get("font-weight", 400)),
        color=_colour(given.get("fill", "var(--ink)")),
        alpha=_alpha(given, "fill"),
        rotation=-float(turned[1]) if turned else 0,
        path_effects=[] if turned else [withStroke(linewidth=2, foreground=LIGHT["paper"])],
    )


_PAINTERS: Mapping[str, Callable[[Any, Attributes, str], None]] = {
    "rect": _rect,
    "circle": _circle,
    "line": _line,
    "path": _path,
    "text": _text,
}
