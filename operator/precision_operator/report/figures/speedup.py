"""Training speedup of each recipe over the baseline, with its interval: what the page is for."""

from __future__ import annotations

from collections.abc import Iterator

from precision_api.recipes import Recipe
from precision_operator.report.facts import Given, PoolFigures, PoolRow
from precision_operator.report.figures.figure import Figure, of_nodes, speedup_text, spread_text
from precision_operator.report.palette import RECIPE_COLOURS
from precision_operator.report.svg import (
    FAIL,
    FAINT,
    ROW,
    SMALL,
    WIDTH,
    Scale,
    bottom_axis,
    cross,
    drawing,
    element,
    line,
    whisker,
    words,
)

LEFT, RIGHT = 84, 12
WORDS_AT = LEFT + 16
TOP = 8
CUT = 40
"""Characters of a reason that fit beside the cross; the table has all."""


def speedup(given: Given, pool: PoolFigures) -> Iterator[Figure]:
    """One row for each recipe; a recipe without a figure has its reason there."""
    rows = [row for row in pool.rows if row.recipe != pool.baseline]
    if not rows:
        return
    expected = _expected(given, pool)
    scale = _scale(rows, expected)
    bottom = TOP + 2 * ROW * len(rows)
    inside = bottom_axis(scale, TOP, bottom, f"training tokens/s over {pool.baseline}", "x")
    inside += line(scale(1.0), TOP, scale(1.0), bottom, FAINT, stroke_dasharray="3 3")
    inside += "".join(_row(row, TOP + 2 * ROW * at, scale, expected.get(row.recipe)) for at, row in enumerate(rows))
    caption = f"{_whiskers(pool, rows)} Dashed line: {pool.baseline}. "
    if expected:
        caption += "Hollow diamond: what the GEMMs alone would give; the gap is overhead. "
    if len(pool.nodes) > 1:
        caption += "Throttled nodes are left out. "
    yield Figure(
        key=f"speedup-{pool.name}",
        title=f"Training speedup, {pool.name}",
        svg=drawing(bottom + 32, inside, f"Training speedup by recipe on {pool.name}", given.watermark),
        caption=caption.strip(),
        source=of_nodes(pool.nodes),
        head=("recipe", "speedup", "tokens/s", "nodes", "verdict", "reason"),
        rows=tuple(
            (
                row.recipe,
                spread_text(row.speedup, 3, "x"),
                spread_text(row.rate, 0),
                str(row.nodes),
                row.verdict,
                row.reason,
            )
            for row in pool.rows
        ),
    )


def _whiskers(pool: PoolFigures, rows: list[PoolRow]) -> str:
    """What the marks and their whiskers are."""
    if len(pool.nodes) == 1:
        return "The node's own figures; whiskers: 95 % interval over palindromes of the run."
    if any(row.speedup and row.speedup.kind == "range" for row in rows):
        return "Median of the pool's nodes; whiskers: their range, since they are too few for an interval."
    return "Median of the pool's nodes; whiskers: 95 % interval over nodes (order statistics)."


def _expected(given: Given, pool: PoolFigures) -> dict[Recipe, float]:
    """What the GEMMs' speedup leads to expect, where the page is of one node."""
    if given.result is None or [node.name for node in pool.nodes] != [given.result.node]:
        return {}
    told = {recipe.recipe: recipe.meaning for recipe in given.result.recipes if recipe.meaning}
    return {recipe: found.expected_speedup for recipe, found in told.items() if found.expected_speedup is not None}


def _scale(rows: list[PoolRow], expected: dict[Recipe, float]) -> Scale:
    known = [bound for row in rows if row.speedup for bound in (row.speedup.lower, row.speedup.upper)]
    low, high = min([0.95, *known, *expected.values()]), max([1.2, *known, *expected.values()])
    return Scale(low - 0.02, high + 0.05, LEFT, WIDTH - RIGHT)


def _row(row: PoolRow, top: float, scale: Scale, expected: float | None) -> str:
    """A name, and above the mark its figure in words; or a cross and the reason."""
    name = words(LEFT - 6, top + 1.5 * ROW + 2, row.recipe, "end")
    y = top + 1.5 * ROW - 2
    if row.speedup is None:
        why = row.reason or "no figure"
        told = why if len(why) <= CUT else f"{why[: CUT - 3]}..."
        return name + cross(LEFT + 6, y) + words(WORDS_AT, y + 4, told, size=SMALL, fill=FAIL)
    colour = RECIPE_COLOURS[row.recipe]
    found = row.speedup
    told = speedup_text(found) + (", no difference" if row.difference == "no_difference" else "")
    told += " (emulated)" if row.verdict == "emulated" else ""
    at = scale(found.value)
    parts = [
        name,
        line(scale(1.0), y, at, y, colour, stroke_width=5, stroke_opacity=0.45),
        element("circle", cx=at, cy=y, r=5, fill=colour),
        whisker(scale(found.lower), scale(found.upper), y, 7),
        words(scale(1.0) + 4, y - 10, told, size=SMALL),
    ]
    if expected is not None:
        x = scale(expected)
        parts.append(element("path", d=f"M{x:.2f} {y - 6:.2f}l6 6l-6 6l-6 -6z", fill="none", stroke="#000"))
    return "".join(parts)
