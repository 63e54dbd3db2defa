"""The figures of the page: one function each, from the facts to a drawing, its words, its source and its table.

A function gives nothing where there is nothing to draw; what failed is drawn as a failure, never as 0 and never left
out. Nothing is told by colour alone.
"""

from collections.abc import Iterator

from precision_operator.drawing.figure import Figure
from precision_operator.report.facts import Given, pools
from precision_operator.report.figures.cost import cost
from precision_operator.report.figures.efficiency import efficiency
from precision_operator.report.figures.gemms import gemms, shapes
from precision_operator.report.figures.loss import loss
from precision_operator.report.figures.nodes import distribution
from precision_operator.report.figures.power import power
from precision_operator.report.figures.speedup import speedup
from precision_operator.report.figures.table import gpus, table

POOLS_DRAWN = 4
"""Pools that get figures of their own; the table of nodes has all."""


def figures(facts: Given) -> Iterator[Figure]:
    """All figures of the page, in its order: the main one first."""
    drawn, result = pools(facts)[:POOLS_DRAWN], facts.result
    if result is not None and facts.slow_node is not None:
        yield gpus(result, facts.slow_node)
    yield from speedup(facts, drawn)
    if result is not None:
        yield from gemms(facts, result)
        yield from shapes(result)
    yield from efficiency(facts, drawn)
    for pool in drawn:
        yield from distribution(facts, pool)
    yield from cost(facts, drawn)
    if result is not None:
        yield from power(facts, result)
        yield from loss(facts, result)
        yield table(result)
