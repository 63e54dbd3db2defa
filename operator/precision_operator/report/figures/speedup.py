"""Training speedup of each recipe over the baseline, with its interval: what the page is for."""

from collections.abc import Iterator, Sequence

from precision_api.facts.recipes import Recipe
from precision_operator.drawing import svg
from precision_operator.drawing.figure import RECIPE_COLOURS, Figure
from precision_operator.report.facts import Given, PoolFigures, PoolRow
from precision_operator.report.figures.figure import of_nodes, pool_head, row_name, speedup_text, spread_text

LEFT, RIGHT = 84, 12
TOP, HEAD = 8, 18
CUT = 40
"""Characters of a reason that fit beside the cross; the table has all."""
Expected = dict[Recipe, float]


def speedup(facts: Given, drawn: Sequence[PoolFigures]) -> Iterator[Figure]:
    """All pools on one axis, so that equal lengths are equal speedups."""
    shown = [(pool, rows) for pool in drawn if (rows := [row for row in pool.rows if row.recipe != pool.baseline])]
    if not shown:
        return
    expected = {pool.name: _expected(facts, pool) for pool, _ in shown}
    nodes = tuple(node for pool, _ in shown for node in pool.nodes)
    yield Figure(
        key="speedup",
        title="Training speedup over the baseline",
        svg=_drawing(facts, shown, expected),
        caption=_caption(shown, any(expected.values())),
        source=of_nodes(nodes),
        head=("pool", "recipe", "TFLOP/s per GPU", "speedup", "GEMMs", "tokens/s", "nodes", "verdict", "reason"),
        rows=tuple(
            (
                pool.name,
                row.title,
                spread_text(row.teraflops, 0),
                spread_text(row.speedup, 3, "x"),
                spread_text(row.gemms, 3, "x"),
                spread_text(row.rate, 0),
                str(row.nodes),
                row.verdict,
                row.reason,
            )
            for pool, _ in shown
            for row in pool.rows
        ),
    )


def _caption(shown: Sequence[tuple[PoolFigures, list[PoolRow]]], expected: bool) -> str:
    said = [*dict.fromkeys(_whiskers(pool, rows) for pool, rows in shown), "Dashed line: the baseline, 1x."]
    if any(row.emulated for _, rows in shown for row in rows):
        said.append("emulated: the chip has no kernels of this precision, so others ran in its place.")
    if expected:
        said.append("Hollow diamond: what the GEMMs alone would give; the gap is overhead.")
    if any(len(pool.nodes) > 1 for pool, _ in shown):
        said.append("Throttled nodes are left out.")
    return " ".join(said)


def _whiskers(pool: PoolFigures, rows: list[PoolRow]) -> str:
    """What the marks and their whiskers are."""
    if len(pool.nodes) == 1:
        return "The node's own figures; whiskers: 95 % interval over palindromes of the run."
    if any(row.speedup and row.speedup.kind == "range" for row in rows):
        return f"{pool.name}: median of its nodes; whiskers: their range, since they are too few for an interval."
    return "Median of the pool's nodes; whiskers: 95 % interval over nodes (order statistics)."


def _expected(facts: Given, pool: PoolFigures) -> Expected:
    """What the GEMMs' speedup leads to expect, where the page is of one node."""
    if facts.result is None or [node.node for node in pool.nodes] != [facts.result.node]:
        return {}
    expected = ((row.recipe, row.meaning.expected_speedup) for row in facts.result.recipes if row.meaning)
    return {recipe: speedup for recipe, speedup in expected if speedup is not None}


def _drawing(facts: Given, shown: Sequence[tuple[PoolFigures, list[PoolRow]]], expected: dict[str, Expected]) -> str:
    bounds = [mark for by_recipe in expected.values() for mark in by_recipe.values()]
    bounds += [end for _, rows in shown for row in rows if (it := row.speedup) for end in (it.lower, it.upper)]
    scale = svg.Scale(min([0.95, *bounds]) - 0.02, max([1.2, *bounds]) + 0.05, LEFT, svg.WIDTH - RIGHT)
    parts, y = [], float(TOP)
    for pool, rows in shown:
        parts.append(pool_head(pool, y + 11))
        y += HEAD
        parts.append(
            svg.line(scale(1.0), y - 4, scale(1.0), y + 2 * svg.ROW * len(rows), svg.FAINT, stroke_dasharray="3 3")
        )
        for row in rows:
            parts.append(_row(row, y, scale, expected[pool.name].get(row.recipe)))
            y += 2 * svg.ROW
    baselines = sorted({pool.baseline for pool, _ in shown})
    axis = svg.bottom_axis(scale, TOP, y, f"training tokens/s over {' or '.join(baselines)}", "x")
    return svg.drawing(y + 32, axis + "".join(parts), "Training speedup by pool and recipe", facts.watermark)


def _row(row: PoolRow, top: float, scale: svg.Scale, expected: float | None) -> str:
    """A name, and above the mark its figure in words; or a cross and the reason."""
    name = row_name(row, LEFT - 6, top + 1.5 * svg.ROW + 2)
    y = top + 1.5 * svg.ROW - 2
    if row.speedup is None:
        why = row.reason or "no figure"
        text = why if len(why) <= CUT else f"{why[: CUT - 3]}..."
        return name + svg.cross(LEFT + 6, y) + svg.words(LEFT + 16, y + 4, text, size=svg.SMALL, fill=svg.FAIL)
    colour = RECIPE_COLOURS[row.recipe]
    speedup = row.speedup
    text = speedup_text(speedup) + (", no difference" if row.difference == "no_difference" else "")
    at = scale(speedup.value)
    parts = [
        name,
        svg.line(scale(1.0), y, at, y, colour, stroke_width=5, stroke_opacity=0.45),
        svg.element("circle", cx=at, cy=y, r=5, fill=colour),
        svg.whisker(scale(speedup.lower), scale(speedup.upper), y, 7),
        svg.words(scale(1.0) + 4, y - 10, text, size=svg.SMALL),
    ]
    if expected is not None:
        x = scale(expected)
        parts.append(svg.element("path", d=f"M{x:.2f} {y - 6:.2f}l6 6l-6 6l-6 -6z", fill="none", stroke=svg.INK))
    return "".join(parts)
