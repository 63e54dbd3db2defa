"""Which measured nodes are slow: one decision for the profile's status, the metrics and the alerts.

A node is held against its like: same pool, product, power limit, software, driver and workload (METHOD 8). A node that
heat or the power brake held back stays out of the reference, but not out of the judgement: leaving it out would hide
the worst. What is compared is the rate of a synchronous job, GPUs x slowest GPU: one slow GPU in eight costs such a job
a fifth, and the node's sum only a fortieth.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from precision_api.recipes import Recipe
from precision_api.report import RecipeReport, ReportStatus
from precision_api.stats import mad, middle

ROBUST_SIGMA = 1.4826
"""Median absolute deviation x this = standard deviation, for normal data."""
SLOW_DEVIATIONS = 4
"""A node must stand this many robust deviations below its like to be called slow (OBSERVABILITY 3)."""
LEAST_REFERENCE = 3
"""With fewer nodes to compare with nobody can say which one is the odd one."""
PROVED = ("verified", "emulated")

Figure = Literal["tokens_per_second", "tokens_per_joule"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One node's report, and the pool that it stands in now."""

    node: str
    pool: str
    status: ReportStatus


@dataclass(frozen=True, slots=True)
class Comparable:
    """What one node is judged by, worked out of its report once."""

    node: str
    likeness: tuple[str, ...]
    """Nodes of one likeness are held against each other; its first part is the pool."""
    best: Recipe | None
    rates: Mapping[Recipe, float]
    """Synchronous tokens/s by recipe."""
    throttled: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A node's rate over the median of its like; `slow` when it is too far below."""

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


def judged(nodes: Iterable[Measured], slow_node_percent: float) -> tuple[Judged, ...]:
    """Every node that can be compared, the slowest first; nodes without a figure or without their like are left out."""
    return compared(map(comparable, nodes), slow_node_percent)


def compared(nodes: Iterable[Comparable], slow_node_percent: float) -> tuple[Judged, ...]:
    """The same of nodes whose reports were looked at before."""
    groups: dict[tuple[str, ...], list[Comparable]] = defaultdict(list)
    for node in nodes:
        groups[node.likeness].append(node)
    found = (one for group in groups.values() for one in _judge(group, slow_node_percent))
    return tuple(sorted(found, key=lambda one: (one.relative, one.node)))


def comparable(node: Measured) -> Comparable:
    """What the node is judged by."""
    best = best_of(node.status.results)
    rows = {row.recipe: row for row in reversed(node.status.results)}
    rates = {recipe: rate for recipe, row in rows.items() if (rate := synchronous_rate(row)) is not None}
    return Comparable(node.node, _likeness(node), best.recipe if best else None, rates, throttled(node.status))


def best_recipe(statuses: Iterable[ReportStatus], by: Figure = "tokens_per_second") -> Recipe | None:
    """The recipe that is best on most nodes; ties go to the first by name."""
    return voted(best.recipe for status in statuses if (best := best_of(status.results, by)) is not None)


def voted(recipes: Iterable[Recipe | None]) -> Recipe | None:
    """The recipe that is named most; ties go to the first by name."""
    votes = Counter(recipe for recipe in recipes if recipe is not None)
    return min(votes, key=lambda recipe: (-votes[recipe], recipe), default=None)


def best_of(results: Sequence[RecipeReport], by: Figure = "tokens_per_second") -> RecipeReport | None:
    """The recipe with the highest figure among those whose precision is proved, or emulated and labelled so."""
    proved = [row for row in results if row.verdict in PROVED and getattr(row, by) is not None]
    return max(proved, key=lambda row: float(getattr(row, by)), default=None)


def synchronous_rate(row: RecipeReport) -> float | None:
    """Tokens/s of a synchronous job on the node: GPUs x slowest GPU; the plain rate where GPUs were not compared."""
    if row.tokens_per_second is None:
        return None
    return float(row.tokens_per_second) * float(row.gpu_spread or 1)


def throttled(status: ReportStatus) -> bool:
    """Whether heat or the power brake held the node back in any recipe."""
    return any(row.throttled_share is not None for row in status.results)


def fell_back(status: ReportStatus) -> bool:
    """Whether a recipe did not really run."""
    return any(row.verdict == "fallback" for row in status.results)


def _likeness(node: Measured) -> tuple[str, ...]:
    hardware, software, run = node.status.hardware, node.status.software, node.status.run
    return (
        node.pool,
        f"{hardware.product}/{hardware.gpus}/{hardware.limit_watts}" if hardware else "",
        f"{software.driver}/{software.stack_hash}" if software else "",
        run.workload_hash if run else "",
    )


def _judge(group: Sequence[Comparable], slow_node_percent: float) -> Iterable[Judged]:
    best = voted(node.best for node in group)
    if best is None:
        return ()
    rates = [(node, node.rates[best]) for node in group if best in node.rates]
    reference = [rate for node, rate in rates if not node.throttled]
    if len(reference) < LEAST_REFERENCE:
        return ()
    center = middle(reference)
    margin = max(center * slow_node_percent / 100, SLOW_DEVIATIONS * ROBUST_SIGMA * mad(reference))
    pool, limit = group[0].likeness[0], 1 - margin / center
    return [
        Judged(node.node, pool, rate / center, rate < center - margin, limit, best, len(reference))
        for node, rate in rates
    ]
