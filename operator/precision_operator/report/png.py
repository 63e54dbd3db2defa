"""The main figure as a PNG: the page's own drawing, painted."""

from __future__ import annotations

from precision_operator.drawing import raster
from precision_operator.report.facts import Given, pools
from precision_operator.report.figures import POOLS_DRAWN
from precision_operator.report.figures.speedup import speedup


def png(given: Given) -> bytes:
    """The figure; raises raster.NoMatplotlib where it can't be painted, ValueError where there is nothing to draw."""
    for main in speedup(given, pools(given)[:POOLS_DRAWN], heading=given.subject):
        return raster.png(main.svg)
    raise ValueError("there is no recipe beside the baseline, so there is no figure to draw")
