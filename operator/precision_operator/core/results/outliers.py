"""Which measured nodes are slow: one decision for the profile's status, the metrics and the alerts.

A node is compared with its peers: same pool, product, power limit, software, driver and workload. A peer that heat or
the power brake held back, or that ran another precision, stays out of the reference, but not out of the judgement:
leaving it out would hide the worst. What is compared is the rate of a synchronous job, GPUs x slowest GPU: one slow GPU
in eight costs such a job a fifth, and the node's sum only a fortieth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from precision_api.exchange.stats import MAD_TO_SIGMA, mad
from precision_api.facts.grouping import grouped
from precision_api.facts.recipes import Recipe
from precision_operator.core.results.pool import best_recipe, median
from precision_operator.core.results.reading import Reading

SLOW_DEVIATIONS = 4
"""A node must be this many robust deviations below its peers to be called slow."""
LEAST_REFERENCE = 3
"""With fewer nodes to compare with nobody can say which one is the odd one."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A node's rate over the median of its peers; `slow` when it is too far below."""

    node: str
    pool: str
    relative: float
    slow: bool
    limit: float
    """Below this share of the median a node is slow."""
    recipe: Recipe
    """Whose rates are compared."""
    reference: int
    """How many nodes the median is of."""


def judged(readings: Iterable[Reading], slow_node_percent: float) -> tuple[Judged, ...]:
    """Every node that can be compared, the slowest first; nodes without a figure or without peers are left out.

    Only readings that hold are compared.
    """
    groups = grouped((reading.peers, reading) for reading in readings if reading.holds)
    nodes = (node for group in groups.values() for node in _judge(group, slow_node_percent))
    return tuple(sorted(nodes, key=lambda node: (node.relative, node.node)))


def outliers_of(figures: Mapping[str, float], percent: float) -> list[tuple[str, float]]:
    """Nodes that are slow or fast beyond all others, the furthest first, each with its share of the median."""
    center = median(figures.values())
    if center is None or len(figures) <= LEAST_REFERENCE:
        return []
    margin = _margin(center, list(figures.values()), percent)
    shares = [(node, figure / center) for node, figure in figures.items() if abs(figure - center) > margin]
    return sorted(shares, key=lambda share: (-abs(share[1] - 1), share[0]))


def _margin(center: float, reference: Sequence[float], percent: float) -> float:
    """How far from the median of these values one must be to stand apart: beyond `percent` and beyond their spread."""
    return max(center * percent / 100, SLOW_DEVIATIONS * MAD_TO_SIGMA * mad(reference))


def _judge(group: Sequence[Reading], slow_node_percent: float) -> Iterable[Judged]:
    recipe = best_recipe(group)
    if recipe is None:
        return ()
    rows = [(reading, reading.rows[recipe]) for reading in group if recipe in reading.rows]
    rates = [(reading, row, rate) for reading, row in rows if (rate := row.synchronous_rate) is not None]
    reference = [rate for _, row, rate in rates if row.usable and not row.throttled]
    center = median(reference)
    if center is None or len(reference) < LEAST_REFERENCE:
        return ()
    margin = _margin(center, reference, slow_node_percent)
    pool, limit = group[0].pool, 1 - margin / center
    return [
        Judged(reading.node, pool, rate / center, rate < center - margin, limit, recipe, len(reference))
        for reading, _, rate in rates
    ]
