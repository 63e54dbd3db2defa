"""The figures of the page: one function each, from the facts to a drawing, its words, its source and its table.

A function gives nothing where there is nothing to draw; what failed is drawn as a failure, never as 0 and never left
out. Nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from precision_operator.drawing.figure import Figure
from precision_operator.report.facts import Given, pools
from precision_operator.report.figures.cost import cost
from precision_operator.report.figures.efficiency import efficiency
from precision_operator.report.figures.gemms import gemms
from precision_operator.report.figures.loss import loss
from precision_operator.report.figures.nodes import distribution
from precision_operator.report.figures.power import power
from precision_operator.report.figures.speedup import speedup
from precision_operator.report.figures.table import table

POOLS_DRAWN = 4
"""Pools that get figures of their own; the table of nodes has all."""


def figures(given: Given) -> Iterator[Figure]:
    """All figures of the page, in its order: the main one first."""
    drawn = pools(given)[:POOLS_DRAWN]
    yield from speedup(given, drawn)
    yield from gemms(given)
    yield from efficiency(given, drawn)
    for pool in drawn:
        yield from distribution(given, pool)
    yield from cost(given, drawn)
    yield from power(given)
    yield from loss(given)
    yield from table(given)
