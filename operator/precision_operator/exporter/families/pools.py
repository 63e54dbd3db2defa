"""All reports of one pool looked at together: who is slow, and the figures of all nodes by what they have in common.

Pure. Who is slow is the core's decision, the same one that kubectl shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from typing import Any

from precision_api.facts.names import grouped
from precision_api.kinds.profile import Thresholds
from precision_operator.core.results.outliers import Peers
from precision_operator.core.results.pool import main_group
from precision_operator.core.results.reading import MedianGroup, Reading
from precision_operator.exporter.families.measures import NONE, GroupedValues, group, group_of, updated
from precision_operator.exporter.families.node import GONE
from precision_operator.exporter.reading import GemmTime, RelativeRate


@dataclass(frozen=True)
class PoolNodes:
    """The newest reports of one profile in one pool."""

    namespace: str
    profile: str
    pool: str
    results: tuple[Reading, ...]
    percent: float
    """The profile's threshold for slow nodes."""
    peers: Peers
    """All that may be compared, of all namespaces."""
    nodes_of: str = ""
    """The first, by name, of its namespace's profiles that share nodes of the pool with it, be it through others."""
    gemms: Mapping[str, tuple[GemmTime, ...]] = field(default_factory=dict)
    """By node: the GEMM times of those whose full results were read."""
    figures: GroupedValues = field(default_factory=lambda: NONE, repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """(namespace, profile, pool)"""
        return self.namespace, self.profile, self.pool

    @cached_property
    def standings(self) -> Mapping[str, RelativeRate]:
        """By node: those that can be compared."""
        by_node = {result.node: result for result in self.results}
        ranked = self.peers.judged(self.results, self.percent)
        return {node.node: RelativeRate(by_node[node.node], node.relative, node.slow) for node in ranked}

    @cached_property
    def group(self) -> MedianGroup | None:
        """What the figures behind the pool's medians have in common."""
        return main_group({group_of(labels): values for labels, values in self.figures[group].items()})

    @property
    def data(self) -> str:
        """What its figures are: measured, where any node's are. Those of other kinds are none of the pool's."""
        return self.group.data if self.group is not None else ""

    @cached_property
    def there(self) -> list[Reading]:
        """Results of its kind, of nodes that are in the cluster."""
        results = (result for result in self.results if result.finished_at is not None and result.data == self.data)
        return [result for result in results if result.stale != GONE]


PoolKey = tuple[str, str, str]
KnownPools = Mapping[tuple[str, ...], PoolNodes]
Percents = Mapping[tuple[str, ...], float]
Gemms = Mapping[tuple[str, ...], tuple[GemmTime, ...]]
_NONE: Mapping[tuple[str, ...], Any] = {}


def pools(
    results: Iterable[Reading], percents: Percents = _NONE, gemms: Gemms = _NONE, before: KnownPools = _NONE
) -> tuple[PoolNodes, ...]:
    """The pools of all profiles, in order; thresholds by (namespace, profile), GEMM times by that and the node.

    A pool of which nothing has changed is the very one in `known`, with all that was worked out of it.
    """
    results = tuple(results)
    there = grouped(((result.namespace, result.profile, result.pool), result) for result in results)
    peers = Peers(results, next((pool.peers for pool in before.values()), None))
    of = _nodes_of(results)
    return tuple(_pool(key, tuple(there[key]), percents, gemms, peers, before.get(key), of[key]) for key in sorted(of))


def _nodes_of(results: Iterable[Reading]) -> Mapping[PoolKey, str]:
    """By pool of a profile: the first that shares nodes with it; by name alone, so that it seldom changes."""
    there = ((it.node if it.stale != GONE else f"/{it.profile}", it) for it in results)
    nodes = grouped(((it.namespace, it.pool, node), (it.namespace, it.profile, it.pool)) for node, it in there)
    sharing: dict[PoolKey, frozenset[PoolKey]] = {}
    for keys in set(map(frozenset, nodes.values())):
        merged = keys.union(*(sharing.get(key, ()) for key in keys))
        sharing |= dict.fromkeys(merged, merged)
    return {key: "/".join(min(keys)[:2]) for key, keys in sharing.items()}


def _pool(
    key: PoolKey,
    results: tuple[Reading, ...],
    percents: Percents,
    every: Gemms,
    peers: Peers,
    before: PoolNodes | None,
    nodes_of: str,
) -> PoolNodes:
    percent = percents.get(key[:2], float(Thresholds().slow_node_percent))
    node_times = {result.node: every.get((*key[:2], result.node)) for result in results} if every else {}
    gemms = {node: times for node, times in node_times.items() if times}
    if before is None:
        return PoolNodes(*key, results, percent, peers, nodes_of, gemms, updated(NONE, (), results))
    if (before.percent, before.nodes_of, before.gemms) == (percent, nodes_of, gemms) and same(before.results, results):
        keys = {result.peers for result in results}
        if all(before.peers.groups.get(key) is peers.groups.get(key) for key in keys):
            return before
    old, now = set(map(id, before.results)), set(map(id, results))
    gone = [result for result in before.results if id(result) not in now]
    come = [result for result in results if id(result) not in old]
    return PoolNodes(*key, results, percent, peers, nodes_of, gemms, updated(before.figures, gone, come))


def same(before: Sequence[object], now: Sequence[object]) -> bool:
    """Whether the very same objects are in both, in the same order."""
    return len(before) == len(now) and all(map(is_, before, now))
