"""Which measured nodes are slow: one decision for the profile's status, the metrics and the alerts.

A node is compared with its peers: the newest result of each node of its namespace that has the same PeerKey, of
whichever profile. A peer that was throttled by heat or the power brake, or that ran another precision, stays out of the
reference, but not out of the judgement: leaving it out would hide the worst. What is compared is the rate of a
synchronous job, GPUs x slowest GPU: one slow GPU in eight costs such a job a fifth, and the node's sum only a fortieth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

from precision_api.exchange.peers import PeerKey
from precision_api.exchange.stats import MAD_TO_SIGMA, mad
from precision_api.facts.grouping import grouped
from precision_api.facts.recipes import Recipe
from precision_operator.core.results.pool import best_recipe, median
from precision_operator.core.results.reading import Reading

SLOW_DEVIATIONS = 4
"""A node must be this many robust deviations below its peers to be called slow."""
LEAST_PEERS = 3
"""With fewer others to compare with nobody can say which one is the odd one."""


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
    reading: Reading = field(compare=False)
    """The result that decided."""
    peers: tuple[str, ...] = ()
    """The others among them, by name, where the node is slow."""


@dataclass(frozen=True, slots=True)
class NoPeers:
    """A measured node of which nothing can be said, since too few others are like it."""

    node: str
    peers: int
    """Other nodes that have its key and a rate that counts."""
    differs: str
    """Who comes nearest, and in what it differs; empty where no other kind was measured in the namespace."""


class PeerGroup:
    """The results of one namespace that may be compared with each other, recipe by recipe."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.readings = tuple(readings)
        self._in_order = sorted(readings, key=lambda reading: (reading.finished_at or "", reading.profile))
        self.nodes = {reading.node for reading in readings}
        by_profile = grouped((reading.profile, reading) for reading in readings)
        self._best = {profile: best_recipe(group) for profile, group in by_profile.items()}
        self._rates: dict[tuple[Recipe, int | None], _Rates] = {}

    def judge(self, reading: Reading, percent: float) -> Judged | int | None:
        """The reading's node; how many peers it has where these are too few, None where it has no rate.

        By the recipe that is best on most nodes of its profile; where its own has no rate or too few have one, by the
        fastest of its others that enough have.
        """
        fastest = sorted(reading.rows.values(), key=lambda row: -(row.synchronous_rate or 0.0))
        best = self._best.get(reading.profile)
        rows = sorted(fastest, key=lambda row: row.recipe != best)
        most = None
        for row in rows:
            rates = self._of(row.recipe, row.last_layers_bf16)
            if row.synchronous_rate is None or reading.node not in rates.rate:
                continue
            peers = rates.count - (reading.node in rates.reference)
            if peers >= LEAST_PEERS:
                return rates.judge(reading, percent)
            most = max(peers, most or 0)
        return most

    def _of(self, recipe: Recipe, layers: int | None) -> "_Rates":
        key = recipe, layers
        if key not in self._rates:
            self._rates[key] = _Rates.of(self._in_order, recipe, layers)
        return self._rates[key]


@dataclass(frozen=True, slots=True)
class _Rates:
    """The newest synchronous rates with one recipe, and the center and spread of those that count."""

    recipe: Recipe
    newest: Mapping[str, Reading]
    """By node."""
    rate: Mapping[str, float]
    reference: frozenset[str]
    center: float
    spread: float

    @classmethod
    def of(cls, in_order: Sequence[Reading], recipe: Recipe, layers: int | None) -> "_Rates":
        newest = {
            reading.node: reading
            for reading in in_order
            if recipe in reading.rows and reading.rows[recipe].last_layers_bf16 == layers
        }
        rows = {node: reading.rows[recipe] for node, reading in newest.items()}
        rates = {node: rate for node, row in rows.items() if (rate := row.synchronous_rate) is not None}
        steady = frozenset(node for node in rates if rows[node].usable and not rows[node].throttled)
        reference = sorted(rates[node] for node in steady)
        return cls(recipe, newest, rates, steady, median(reference) or 0.0, _spread(reference))

    @property
    def count(self) -> int:
        return len(self.reference)

    def judge(self, reading: Reading, percent: float) -> Judged:
        """The reading's node, whose newest rate is among these."""
        rate, margin = self.rate[reading.node], max(self.center * percent / 100, self.spread)
        slow, limit = rate < self.center - margin, 1 - margin / self.center
        names = tuple(sorted(self.reference - {reading.node})) if slow else ()
        share, decisive = rate / self.center, self.newest[reading.node]
        return Judged(reading.node, reading.pool, share, slow, limit, self.recipe, self.count, decisive, names)


class Peers:
    """All results that hold, by who may be compared with whom."""

    def __init__(self, readings: Iterable[Reading], before: "Peers | None" = None) -> None:
        """A group of which nothing has changed is the one of `before`, with what was worked out of it."""
        old = before.groups if before is not None else {}
        members = grouped((reading.peers, reading) for reading in readings if reading.holds)
        self.groups: dict[PeerKey, PeerGroup] = {
            key: _same(old.get(key), group) or PeerGroup(group) for key, group in members.items()
        }

    def judged(self, readings: Iterable[Reading], percent: float) -> tuple[Judged, ...]:
        """The nodes of these readings that can be compared, the slowest first."""
        nodes = (self._judge(reading, percent) for reading in readings)
        judgements = (node for node in nodes if isinstance(node, Judged))
        return tuple(sorted(judgements, key=lambda node: (node.relative, node.node)))

    def alone(self, readings: Iterable[Reading]) -> tuple[NoPeers, ...]:
        """Those that have a rate and too few peers, in their order."""
        counts = ((reading, self._judge(reading, 0.0)) for reading in readings)
        rows = ((reading, peers) for reading, peers in counts if isinstance(peers, int))
        return tuple(NoPeers(reading.node, peers, self._others(reading, peers)) for reading, peers in rows)

    def _judge(self, reading: Reading, percent: float) -> Judged | int | None:
        return self.groups[reading.peers].judge(reading, percent) if reading.holds else None

    def _others(self, reading: Reading, peers: int) -> str:
        """Why nodes like it don't count; where there are none, the kind that differs in the least, in words."""
        key_of_node = reading.peers
        spoiled = len(self.groups[key_of_node].nodes) - 1 - peers
        if spoiled > 0:
            return f"{spoiled} more like it were throttled, fell back or lack its recipes"
        others = [key for key in self.groups if key != key_of_node and key.namespace == key_of_node.namespace]
        if not others:
            return ""
        nearest = min(others, key=lambda key: (len(key_of_node.differing(key)), -len(self.groups[key].nodes), key))
        count = len(self.groups[nearest].nodes)
        return f"{count} {'others differ' if count > 1 else 'other differs'}: {key_of_node.against(nearest)}"


def judged(readings: Iterable[Reading], slow_node_percent: float) -> tuple[Judged, ...]:
    """Every node that can be compared with others of these, the slowest first."""
    readings = tuple(readings)
    return Peers(readings).judged(readings, slow_node_percent)


def _same(before: PeerGroup | None, readings: Sequence[Reading]) -> PeerGroup | None:
    """The group of before, where it is of the very same readings."""
    if before is None or len(before.readings) != len(readings):
        return None
    return before if all(map(is_, before.readings, readings)) else None


def outliers_of(figures: Mapping[str, float], percent: float) -> list[tuple[str, float]]:
    """Nodes that are slow or fast beyond all others, the furthest first, each with its share of the median."""
    center = median(figures.values())
    if center is None or len(figures) <= LEAST_PEERS:
        return []
    margin = max(center * percent / 100, _spread(list(figures.values())))
    shares = [(node, figure / center) for node, figure in figures.items() if abs(figure - center) > margin]
    return sorted(shares, key=lambda share: (-abs(share[1] - 1), share[0]))


def _spread(reference: Sequence[float]) -> float:
    """How far from the median of these values one must be to stand apart by their own spread."""
    return SLOW_DEVIATIONS * MAD_TO_SIGMA * mad(reference) if reference else 0.0
