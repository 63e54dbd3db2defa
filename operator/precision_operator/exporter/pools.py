"""All reports of one pool looked at together: who is slow, what the others give, and how much power they draw.

Pure. Who is slow is the core's decision, the same one that kubectl shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from precision_api.profile import Thresholds
from precision_api.report import RecipeReport
from precision_operator.core.outliers import PROVED, Measured, judged, throttled
from precision_operator.exporter.reading import GemmTime, NodeResult


@dataclass(frozen=True, slots=True)
class Standing:
    """One node beside its like: its rate over their median, and whether that is too little."""

    result: NodeResult
    relative: float
    slow: bool


Member = tuple[NodeResult, RecipeReport]


@dataclass(frozen=True, slots=True)
class Arm:
    """One recipe of one workload in a pool: the nodes whose precision is proved, each with its figures."""

    labels: tuple[str, ...]
    """(namespace, profile, pool, workload, recipe)"""
    members: Sequence[Member]
    free: Sequence[Member]
    """The members that were not throttled, or all if there are no others: what medians are made of."""


@dataclass(frozen=True)
class Pool:
    """The newest reports of one profile in one pool."""

    namespace: str
    profile: str
    pool: str
    results: tuple[NodeResult, ...]
    percent: float
    """The profile's threshold for slow nodes."""
    gemms: Mapping[str, tuple[GemmTime, ...]] = field(default_factory=dict)
    """By node: the GEMM times of those whose full results were read."""

    @property
    def labels(self) -> tuple[str, ...]:
        """(namespace, profile, pool)"""
        return self.namespace, self.profile, self.pool

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """By node: those that can be compared. Nodes are held against others of their pool only."""
        by_node = {result.node: result for result in self.results}
        fresh = (Measured(result.node, self.pool, result.status) for result in self.results if result.fresh)
        return {one.node: Standing(by_node[one.node], one.relative, one.slow) for one in judged(fresh, self.percent)}

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """Its recipes by workload, in order."""
        found: dict[tuple[str, str], list[Member]] = defaultdict(list)
        held_back = {result.node for result in self.results if throttled(result.status)}
        for result in self.results:
            for row in result.status.results:
                if row.verdict in PROVED:
                    found[result.workload, row.recipe].append((result, row))
        return tuple(_arm((*self.labels, *key), found[key], held_back) for key in sorted(found))


def _arm(labels: tuple[str, ...], members: Sequence[Member], held_back: Set[str]) -> Arm:
    return Arm(labels, members, [member for member in members if member[0].node not in held_back] or members)


Known = Mapping[tuple[str, ...], Pool]
_NONE: Known = {}


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known beside reports: thresholds by (namespace, profile), GEMM times by (namespace, profile, node)."""

    percents: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = field(default_factory=dict)


def pools(results: Iterable[NodeResult], beside: Beside, known: Known = _NONE) -> tuple[Pool, ...]:
    """The pools of all profiles, in order.

    A pool of which nothing has changed is the very one in `known`, with all that was worked out of it.
    """
    members: dict[tuple[str, str, str], list[NodeResult]] = defaultdict(list)
    for result in results:
        members[result.namespace, result.profile, result.pool].append(result)
    return tuple(_pool(key, tuple(members[key]), beside, known.get(key)) for key in sorted(members))


def _pool(key: tuple[str, str, str], results: tuple[NodeResult, ...], beside: Beside, known: Pool | None) -> Pool:
    percent = beside.percents.get(key[:2], float(Thresholds().slow_node_percent))
    found = {result.node: beside.gemms.get((*key[:2], result.node)) for result in results} if beside.gemms else {}
    gemms = {node: times for node, times in found.items() if times}
    if known is not None and (known.percent, known.gemms) == (percent, gemms) and _same(known.results, results):
        return known
    return Pool(*key, results, percent, gemms)


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(old is new for old, new in zip(before, now, strict=True))
