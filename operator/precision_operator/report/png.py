"""The main figure as a PNG: the training speedup of each recipe, drawn by matplotlib from the same facts."""

from __future__ import annotations

import io
from typing import Any

from precision_operator.report.facts import Given, PoolFigures, PoolRow, pools
from precision_operator.report.figures import POOLS_DRAWN
from precision_operator.report.figures.figure import speedup_text
from precision_operator.report.palette import RECIPE_COLOURS
from precision_operator.report.svg import FAIL

DPI = 150
INCHES_A_ROW = 0.55
HOW = "pip install 'precision-profiler[report]'"


class NoMatplotlib(ValueError):
    """A PNG was asked for, and matplotlib is not installed; the message says what to do."""


def png(given: Given) -> bytes:
    """The figure; raises NoMatplotlib where it can't be drawn, ValueError where there is nothing to draw."""
    try:
        from matplotlib.figure import Figure as Canvas  # only here: the page needs no drawing library
    except ImportError as error:
        raise NoMatplotlib(f"a PNG needs matplotlib: {HOW}, or leave --png out") from error
    drawn = [pool for pool in pools(given)[:POOLS_DRAWN] if _shown(pool)]
    if not drawn:
        raise ValueError("there is no recipe beside the baseline, so there is no figure to draw")
    heights = [len(_shown(pool)) for pool in drawn]
    canvas = Canvas(figsize=(8, 1.0 + sum(0.9 + INCHES_A_ROW * rows for rows in heights)), layout="constrained")
    axes = canvas.subplots(len(drawn), 1, squeeze=False, gridspec_kw={"height_ratios": [rows + 1 for rows in heights]})
    marked = f" ({given.watermark})" if given.watermark else ""
    canvas.suptitle(f"{given.subject}: training speedup, 95 % intervals{marked}", fontsize=12)
    for axis, pool in zip(axes[:, 0], drawn, strict=True):
        _draw(axis, pool)
        if given.watermark:  # on each pool: a picture may be cut
            _mark(axis, given.watermark)
    out = io.BytesIO()
    canvas.savefig(out, format="png", dpi=DPI, metadata={"Software": "precision-profiler"})
    return out.getvalue()


def _mark(axis: Any, word: str) -> None:
    place: dict[str, Any] = {"ha": "center", "va": "center", "transform": axis.transAxes}
    axis.text(0.5, 0.5, word, fontsize=36, color="black", alpha=0.13, rotation=12, **place)


def _shown(pool: PoolFigures) -> list[PoolRow]:
    return [row for row in pool.rows if row.recipe != pool.baseline]


def _draw(axis: Any, pool: PoolFigures) -> None:
    """One pool: a row a recipe, failures in words."""
    rows = _shown(pool)
    known = [bound for row in rows if row.speedup for bound in (row.speedup.lower, row.speedup.upper)]
    low, high = min([0.95, *known]), max([1.2, *known])
    axis.set_xlim(low - 0.02, high + 0.35 * (high - low))
    axis.axvline(1.0, color="#595959", linestyle="--", linewidth=1)
    for at, row in enumerate(rows):
        if row.speedup is None:
            axis.plot([1.0], [at], marker="x", color=FAIL, markersize=8, markeredgewidth=2)
            axis.annotate(row.reason[:60], (1.0, at), (10, -4), textcoords="offset points", color=FAIL, fontsize=9)
            continue
        found, colour = row.speedup, RECIPE_COLOURS[row.recipe]
        axis.plot([1.0, found.value], [at, at], color=colour, linewidth=5, alpha=0.45, solid_capstyle="butt")
        bars = [[found.value - found.lower], [found.upper - found.value]]
        axis.errorbar([found.value], [at], xerr=bars, fmt="o", color=colour, ecolor="#1a1a1a", capsize=5, markersize=8)
        told = speedup_text(found)
        axis.annotate(told, (found.upper, at), (10, -4), textcoords="offset points", fontsize=9)
    axis.set_yticks(range(len(rows)), [row.recipe for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel(f"training tokens/s over {pool.baseline} (1 = no faster)")
    axis.set_title(f"{pool.name}, {len(pool.nodes)} node{'s' if len(pool.nodes) > 1 else ''}", fontsize=10, loc="left")
    axis.grid(axis="x", color="#d0d0d0")
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
