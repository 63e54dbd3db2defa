"""SVG by hand: elements, scales, axes. Every drawing is WIDTH units wide, so that text has one size on all of them.

WIDTH is that of a phone: there a unit is about a pixel, and on a wide screen the drawing grows with its text.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 340
ROW = 24
"""Height of one row of a chart."""
SMALL = 10.5
NORMAL = 12.0
LIGHT = {"ink": "#1a1a1a", "faint": "#595959", "grid": "#d0d0d0", "fail": "#b03000", "paper": "#ffffff"}
DARK = {"ink": "#e6e6e6", "faint": "#a6a6a6", "grid": "#454545", "fail": "#ff8a5c", "paper": "#16181c"}
"""Colours by role; the page's style sheet gives each role its colour, so one drawing serves light and dark."""
INK, FAINT, GRID, FAIL, PAPER = (f"var(--{role})" for role in LIGHT)

Number = float | int


def element(name: str, inside: str = "", /, **attributes: Number | str | None) -> str:
    """One element; an attribute's underscores are hyphens (`class_`: class), None leaves it out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def _plain(value: Number | str) -> str:
    """Numbers with two decimals at most: a drawing is the same on every machine, and small."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def words(x: Number, y: Number, said: str, anchor: str = "start", size: Number = NORMAL, fill: str = INK) -> str:
    """A line of text at its baseline."""
    return element("text", escape(said), x=x, y=y, text_anchor=anchor, font_size=size, fill=fill)


def line(x1: Number, y1: Number, x2: Number, y2: Number, stroke: str = INK, **more: Number | str | None) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **more)


def box(x: Number, y: Number, width: Number, height: Number, fill: str, title: str = "", **more: Number | str) -> str:
    """A rectangle; `title` is what a mouse over it and a screen reader say."""
    inside = element("title", escape(title)) if title else ""
    return element("rect", inside, x=x, y=y, width=max(width, 0), height=height, fill=fill, **more)


def cross(x: Number, y: Number, size: Number = 4, stroke: str = FAIL) -> str:
    """A failure's mark."""
    return element(
        "path",
        d=f"M{x - size:.2f} {y - size:.2f}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} {2 * size}",
        stroke=stroke,
        stroke_width=2,
        fill="none",
    )


def whisker(x1: Number, x2: Number, y: Number, reach: Number = 4, stroke: str = INK) -> str:
    """A horizontal interval with its ends."""
    d = f"M{x1:.2f} {y - reach:.2f}v{2 * reach}M{x1:.2f} {y:.2f}H{x2:.2f}M{x2:.2f} {y - reach:.2f}v{2 * reach}"
    return element("path", d=d, stroke=stroke, stroke_width=1.5, fill="none")


@dataclass(frozen=True)
class Scale:
    """From figures to places on the paper, straight."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of `value`, held on the paper."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, about: int = 5) -> tuple[float, ...]:
        """Round values within the scale."""
        step = round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return tuple(round((first + i) * step, 12) for i in range(max(count, 0)))


def round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below `rough`."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = float(10.0 ** math.floor(math.log10(rough)))
    return next((m * power for m in (1, 2, 5) if m * power >= rough * 0.999), 10 * power)


def around(values: Iterable[float], room: float = 0.08) -> tuple[float, float]:
    """Bounds a little outside of the values; (0, 1) for none."""
    present = list(values)
    if not present:
        return 0.0, 1.0
    low, high = min(present), max(present)
    margin = (high - low) * room or abs(high) * room or 1.0
    return low - margin, high + margin


def bottom_axis(scale: Scale, top: Number, bottom: Number, title: str, unit: str = "") -> str:
    """Grid lines, their values and the title below the drawing."""
    marks = scale.ticks()
    parts = [line(scale(at), top, scale(at), bottom, GRID) for at in marks]
    parts += [words(scale(at), bottom + 12, f"{short(at)}{unit}", "middle", SMALL, FAINT) for at in marks]
    parts.append(words((scale.start + scale.end) / 2, bottom + 26, title, "middle", SMALL, FAINT))
    return "".join(parts)


def left_axis(scale: Scale, left: Number, right: Number, title: str) -> str:
    """Grid lines, their values and the title above the drawing, at the left."""
    marks = scale.ticks(4)
    parts = [line(left, scale(at), right, scale(at), GRID) for at in marks]
    parts += [words(left - 4, scale(at) + 3.5, short(at), "end", SMALL, FAINT) for at in marks]
    parts.append(words(2, min(scale.start, scale.end) - 8, title, "start", SMALL, FAINT))
    return "".join(parts)


def short(value: float) -> str:
    """A figure for an axis: 1.2M, 96k, 0.35."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}"


def polyline(points: Sequence[tuple[float, float] | None], stroke: str, dash: str = "", width: Number = 1.5) -> str:
    """A line through the points, broken where one is None: what was not measured is not drawn."""
    d, pen_up = [], True
    for point in points:
        if point is not None:
            d.append(f"{'M' if pen_up else 'L'}{point[0]:.2f} {point[1]:.2f}")
        pen_up = point is None
    return element("path", d="".join(d), stroke=stroke, stroke_width=width, fill="none", stroke_dasharray=dash or None)


def in_lines(widths: Iterable[float], top: float, height: float = 15) -> list[tuple[float, float]]:
    """Where things of these widths begin that stand beside each other, on as many lines of a drawing as they need."""
    places, x, y = [], 2.0, top
    for width in widths:
        if x + width > WIDTH:
            x, y = 2.0, y + height
        places.append((x, y))
        x += width
    return places


def drawing(height: Number, inside: str, label: str, watermark: str = "", width: Number = WIDTH) -> str:
    """The whole drawing; `label` is what it shows in words, `watermark` is written across it."""
    mark = ""
    if watermark:
        mark = element(
            "text",
            escape(watermark),
            x=width / 2,
            y=height / 2,
            text_anchor="middle",
            font_size=30,
            font_weight=700,
            fill=INK,
            fill_opacity=0.13,
            transform=f"rotate(-18 {width / 2:.0f} {height / 2:.0f})",
        )
    return element(
        "svg",
        inside + mark,
        class_="broad" if width > WIDTH else None,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=label,
    )


PATTERNS = "".join(
    f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="6" height="6" fill="{PAPER}"/><rect width="1.5" height="6" fill="{ink}"/></pattern>'
    for name, ink in (("failed", FAIL), ("missing", GRID))
)
"""What failed, and where nothing was measured; once a page."""
FAILED, MISSING = "url(#failed)", "url(#missing)"
