"""What a million tokens cost with each recipe, where a price of a GPU-hour is given."""

from collections.abc import Iterator, Sequence

from precision_operator.drawing.figure import RECIPE_COLOURS, Figure
from precision_operator.drawing.svg import ROW, SMALL, WIDTH, Scale, bottom_axis, box, drawing, whisker, words
from precision_operator.report.facts import Given, PoolFigures, PoolRow
from precision_operator.report.figures.figure import of_nodes, pool_head, row_name

LEFT, RIGHT, TOP = 84, 54, 8
TOKENS = 1_000_000


def dollars(price: float, gpus: int, rate: float) -> float:
    """Dollars for a million tokens at `price` a GPU-hour, `gpus` GPUs and `rate` tokens/s of them together."""
    return price * gpus / 3600 / rate * TOKENS


def cost(facts: Given, drawn: Sequence[PoolFigures]) -> Iterator[Figure]:
    """A bar for each recipe and pool; nothing without a price."""
    price = facts.price
    rows = [(pool, row) for pool in drawn for row in pool.rows if row.rate and pool.gpus]
    if price is None or not rows:
        return
    yield Figure(
        key="cost",
        title="Dollars per million tokens",
        svg=_draw(facts, price, drawn, rows),
        caption=f"At ${price:g} a GPU-hour, as given with --price, and nothing else: at least this much, since "
        "communication between nodes, failures and restarts are not in it.",
        source=of_nodes(tuple(node for pool in drawn for node in pool.nodes)),
        head=("pool", "recipe", "$ per million tokens"),
        rows=tuple((pool.name, row.title, f"{_dollars(price, pool, row)[0]:.4f}") for pool, row in rows),
    )


def _dollars(price: float, pool: PoolFigures, row: PoolRow) -> tuple[float, float, float]:
    """Middle, lower, upper: the faster the cheaper."""
    assert row.rate is not None
    spread = row.rate
    return tuple(dollars(price, pool.gpus, rate) for rate in (spread.value, spread.upper, spread.lower))  # type: ignore[return-value]


def _draw(facts: Given, price: float, drawn: Sequence[PoolFigures], rows: Sequence[tuple[PoolFigures, PoolRow]]) -> str:
    figures = [_dollars(price, pool, row) for pool, row in rows]
    scale = Scale(0, max(upper for _, _, upper in figures) * 1.02, LEFT, WIDTH - RIGHT)
    parts, y, before = [], float(TOP), None
    for (pool, row), (value, lower, upper) in zip(rows, figures, strict=True):
        if len(drawn) > 1 and pool is not before:
            y += 14
            parts.append(pool_head(pool, y))
            y += 4
        before = pool
        parts += [
            row_name(row, LEFT - 6, y + 16),
            box(LEFT, y + 4, scale(value) - LEFT, ROW - 8, RECIPE_COLOURS[row.recipe]),
            whisker(scale(lower), scale(upper), y + ROW / 2, stroke="#7a7a7a"),
            words(scale(upper) + 6, y + 16, f"${value:.3g}", size=SMALL),
        ]
        y += ROW
    axis = bottom_axis(scale, TOP, y, "$ per million tokens")
    return drawing(y + 32, axis + "".join(parts), "Dollars per million tokens by recipe", facts.watermark)
