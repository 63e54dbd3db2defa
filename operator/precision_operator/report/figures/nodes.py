"""How a pool's nodes lie around their median, and the names of those that stand apart."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from precision_api.facts.plain_text import number_of
from precision_api.facts.recipes import Recipe
from precision_operator.core.results.outliers import LEAST_PEERS, Judged
from precision_operator.core.results.reading import Reading
from precision_operator.drawing import svg
from precision_operator.drawing.figure import RECIPE_COLOURS, Figure
from precision_operator.report.facts import Given, PoolFigures
from precision_operator.report.figures.figure import named, of_nodes

LEFT, RIGHT, TOP, BOTTOM = 30, 14, 12, 132
BINS = 40
NAMED = 12
"""Names that the drawing has room for; the table has all that stand apart."""


def distribution(facts: Given, pool: PoolFigures) -> Iterator[Figure]:
    """A histogram of the nodes against their peers; nothing where there are too few to compare."""
    nodes, recipe = {node.node: node for node in pool.nodes}, pool.recipe
    places = [node for node in facts.judged if node.pool == pool.name and node.node in nodes]
    if len(places) <= LEAST_PEERS or recipe is None:
        return
    name = next((named(row) for row in pool.rows if row.recipe == recipe), recipe)
    apart = {place: why for place in places if (why := _apart(place, nodes[place.node]))}
    missing = len(pool.nodes) - len(places)
    who = f"Outliers, named: {len(apart)}." if apart else "There are no outliers."
    without = f" {missing} of {len(pool.nodes)} nodes can't be compared: no such figure, or out of date."
    yield Figure(
        key=f"nodes-{pool.name}",
        title=f"Nodes of {pool.name}",
        svg=_drawing(facts, places, list(apart), recipe, name),
        caption=f"{len(places)} nodes with {name} by the rate of a synchronous job (GPUs x slowest GPU), over the "
        "median of their peers: same GPUs, power limit, software, driver, workload and timing; throttled ones stay "
        f"out of it. {who}{without if missing else ''}",
        source=of_nodes(pool.nodes),
        head=("node", "of the median", "why it is named"),
        rows=tuple((place.node, f"{place.relative:.1%}", why) for place, why in apart.items()),
    )


def _apart(judged: Judged, reading: Reading) -> str:
    """Why a node is named; empty for one of many."""
    held = next((row for row in reading.rows.values() if row.throttled), None)
    fell = ", ".join(reading.marks.fallen_back)
    reasons = (
        "slow, as the operator judges" if judged.slow else "",
        f"throttled {held.throttled_share or 0:.1%} of the time ({held.throttle_reason})" if held else "",
        f"fallback: {fell}" if fell else "",
    )
    return "; ".join(filter(None, reasons))


def _drawing(facts: Given, places: Sequence[Judged], apart: Sequence[Judged], recipe: Recipe, name: str) -> str:
    low, high = min(place.relative for place in places), max(place.relative for place in places)
    step = svg.round_step(max(high - low, 0.01) / BINS)
    first, last = math.floor(low / step), math.floor(high / step) + 1
    scale = svg.Scale((first - 1) * step * 100, (last + 1) * step * 100, LEFT, svg.WIDTH - RIGHT)
    bins = Counter(math.floor(place.relative / step) for place in places)
    tallest = max(bins.values())
    height = svg.Scale(0, tallest, BOTTOM, TOP)
    bars = "".join(
        svg.box(
            scale(at * step * 100),
            height(count),
            scale((at + 1) * step * 100) - scale(at * step * 100),
            BOTTOM - height(count),
            RECIPE_COLOURS[recipe],
            f"{number_of(count, 'node')} between {at * step:.1%} and {(at + 1) * step:.1%}",
            stroke=svg.PAPER,
            stroke_width=0.5,
        )
        for at, count in sorted(bins.items())
    )
    axis = svg.bottom_axis(scale, TOP, BOTTOM, f"{name}, of the pool's median", " %")
    axis += svg.words(LEFT - 4, TOP + 8, str(tallest), "end", svg.SMALL)
    axis += svg.words(LEFT - 4, BOTTOM, "0", "end", svg.SMALL)
    axis += svg.line(LEFT, BOTTOM, svg.WIDTH - RIGHT, BOTTOM)
    marks = "".join(svg.cross(scale(place.relative * 100), BOTTOM - 4, 3.5) for place in apart)
    names, below = _names(apart)
    return svg.drawing(below, axis + bars + marks + names, "Nodes by their share of the median", facts.watermark)


def _names(apart: Sequence[Judged]) -> tuple[str, float]:
    """Who stands apart, in a list below; and where the drawing ends."""
    top, parts = BOTTOM + 42.0, []
    for y, place in zip(range(0, 14 * NAMED, 14), apart, strict=False):
        name = svg.words(18, top + y, f"{place.node}  {place.relative:.1%}", size=10, fill=svg.FAIL)
        parts.append(svg.cross(8, top + y - 4, 3.5) + name)
    if len(apart) > NAMED:
        more = f"and {len(apart) - NAMED} more, in the table"
        parts.append(svg.words(18, top + 14 * NAMED, more, size=10, fill=svg.FAIL))
    return "".join(parts), top + 14 * len(parts) - 6 if apart else BOTTOM + 32
