"""Tokens per joule against tokens per second: the fastest recipe is not always the most energy-efficient."""

from collections.abc import Iterator, Mapping, Sequence

from precision_api.facts.recipes import Recipe, in_order
from precision_operator.drawing import svg
from precision_operator.drawing.figure import RECIPE_COLOURS, Figure
from precision_operator.report.facts import Given, PoolFigures, PoolRow
from precision_operator.report.figures.figure import cell, named, of_nodes, spread_text

LEFT, RIGHT, TOP, BOTTOM = 44, 14, 24, 214
APART = 12


def efficiency(facts: Given, drawn: Sequence[PoolFigures]) -> Iterator[Figure]:
    """One mark for each recipe and pool that has both figures; what has no energy figure is told why."""
    marks = [(pool, row) for pool in drawn for row in pool.rows if row.rate and row.tokens_per_joule]
    missing = [(pool, row) for pool in drawn for row in pool.rows if row.rate and not row.tokens_per_joule]
    if not marks and not missing:
        return
    reasons = [f"{row.title} on {pool.name}: {row.power_reason or 'no power was read'}" for pool, row in missing]
    without = f" No energy figure: {'; '.join(reasons)}." if reasons else ""
    nodes = tuple(node for pool in drawn for node in pool.nodes)
    scopes = sorted({row.power_scope for node in nodes for row in node.rows.values() if row.power_scope})
    yield Figure(
        key="efficiency",
        title="Tokens per joule against tokens per second",
        svg=_drawing(facts, drawn, marks) if marks else "",
        caption="Up is more energy-efficient, right is faster; the axes do not begin at 0. "
        f"Tokens per joule are tokens/s per watt; watts of: {' and '.join(scopes) or 'nothing valid'}.{without}",
        source=of_nodes(nodes),
        head=("pool", "recipe", "TFLOP/s per GPU", "tokens/s", "tokens/J", "watts", "why not"),
        rows=tuple(
            (
                pool.name,
                row.title,
                spread_text(row.teraflops, 0),
                spread_text(row.rate, 0),
                spread_text(row.tokens_per_joule, 2),
                cell(row.watts),
                "" if row.tokens_per_joule else row.power_reason or "no power was read",
            )
            for pool in drawn
            for row in pool.rows
            if row.rate
        ),
    )


def _drawing(facts: Given, drawn: Sequence[PoolFigures], marks: Sequence[tuple[PoolFigures, PoolRow]]) -> str:
    rates = [row.rate.value for _, row in marks if row.rate]
    joules = [row.tokens_per_joule.value for _, row in marks if row.tokens_per_joule]
    across = svg.Scale(*svg.around(rates, 0.12), LEFT, svg.WIDTH - RIGHT)
    upward = svg.Scale(*svg.around(joules, 0.12), BOTTOM, TOP)
    axes = svg.bottom_axis(across, TOP, BOTTOM, "tokens/s of a node") + svg.left_axis(
        upward, LEFT, svg.WIDTH - RIGHT, "tokens per joule"
    )
    places = [(across(rate), upward(per_joule)) for rate, per_joule in zip(rates, joules, strict=True)]
    parts = [
        _mark(drawn.index(pool), x, y, RECIPE_COLOURS[row.recipe])
        for (pool, row), (x, y) in zip(marks, places, strict=True)
    ]
    names = _names([named(row) for _, row in marks], places, must=len(drawn) == 1)
    legend = _legend(drawn, {row.recipe: row.title for _, row in marks}) if len(drawn) > 1 else []
    height = BOTTOM + 34 + (15 * len(legend) + 6 if legend else 0)
    return svg.drawing(
        height, axes + "".join(parts + names + legend), "Tokens per joule against tokens per second", facts.watermark
    )


def _legend(drawn: Sequence[PoolFigures], titles: Mapping[Recipe, str]) -> list[str]:
    """A line for each: pools by shape on the left, recipes by colour on the right, since not every mark has a name."""
    lines: dict[int, str] = {}
    for at, pool in enumerate(drawn):
        y = BOTTOM + 44 + 15 * at
        lines[at] = _mark(at, 10, y - 4, svg.FAINT) + svg.words(22, y, pool.name, size=svg.SMALL)
    for at, recipe in enumerate(in_order(titles)):
        y = BOTTOM + 44 + 15 * at
        lines[at] = lines.get(at, "") + _mark(0, svg.WIDTH / 2 + 30, y - 4, RECIPE_COLOURS[recipe])
        lines[at] += svg.words(svg.WIDTH / 2 + 42, y, titles[recipe], size=svg.SMALL)
    return list(lines.values())


def _mark(pool: int, x: float, y: float, colour: str) -> str:
    """A circle, square, diamond or triangle: the pool."""
    shapes = (
        svg.element("circle", cx=x, cy=y, r=5.5, fill=colour),
        svg.element("rect", x=x - 5, y=y - 5, width=10, height=10, fill=colour),
        svg.element("path", d=f"M{x:.2f} {y - 7:.2f}l7 7l-7 7l-7 -7z", fill=colour),
        svg.element("path", d=f"M{x:.2f} {y - 6:.2f}l6 11h-12z", fill=colour),
    )
    return shapes[pool % len(shapes)]


def _names(recipes: Sequence[str], places: Sequence[tuple[float, float]], must: bool) -> list[str]:
    """Each mark's recipe beside it, moved up or down until it lies on no other name and on no mark.

    Where it can't, it is left out (the legend has it), or with `must` drawn at its mark.
    """
    shifts = (0, -APART, APART, -2 * APART, 2 * APART) if must else (0, -APART, APART)
    taken = [(x - 6, x + 6, y - 5, y + 5) for x, y in places]
    drawn = []
    for recipe, (x, y) in zip(recipes, places, strict=True):
        right = x < svg.WIDTH * 0.6
        wide = 6.2 * len(recipe)
        left = x + 8 if right else x - 8 - wide
        boxes = [(left, left + wide, y + shift - 5, y + shift + 5) for shift in shifts]
        room = (a for a in boxes if not any(a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3] for b in taken))
        free = next(room, None)
        if free is None and not must:
            continue
        chosen = free or boxes[0]
        taken.append(chosen)
        anchor = ("start", x + 8) if right else ("end", x - 8)
        drawn.append(svg.words(anchor[1], chosen[3] - 1, recipe, anchor[0], 10))
    return drawn
