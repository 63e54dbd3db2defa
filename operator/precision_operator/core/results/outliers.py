"""Which measured nodes are slow: one decision for the profile's status, the metrics and the alerts.

A node is compared with its peers: the newest result of each node of its namespace that has the same PeerKey, of
whichever profile. A peer that was throttled by heat or the power brake, or that ran another precision, stays out of the
reference, but not out of the judgement: leaving it out would hide the worst. What is compared is the rate of a
synchronous job, GPUs x slowest GPU: one slow GPU in eight costs such a job a fifth, and the node's sum only a fortieth.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from precision_api.exchange.peers import PeerKey
from precision_api.exchange.stats import MAD_TO_SIGMA, mad
from precision_api.facts.names import grouped
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import decimal
from precision_api.kinds.profile import PeerStatus
from precision_operator.core.observe.memo import same
from precision_operator.core.reasons import Said, said
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
    """The first others among them, by name, where the node is slow."""
    others: int = 0
    """How many others are among them."""


class PeerGroup:
    """The results of one namespace that may be compared with each other, recipe by recipe."""

    def __init__(self, readings: tuple[Reading, ...], rows: Sequence[tuple[str, PeerStatus]] = ()) -> None:
        """`rows` are what statuses of profiles, by name, say of it where its `readings` are of one node alone."""
        self.readings = readings
        self._in_order = sorted(readings, key=lambda reading: (reading.finished_at or "", reading.profile))
        self.size = rows[0][1].nodes if rows else len({reading.node for reading in readings})
        """Its nodes."""
        by_profile = grouped((reading.profile, reading) for reading in readings)
        self._best = {profile: best_recipe(group) for profile, group in by_profile.items()}
        self._best |= {profile: row.recipe for profile, row in reversed(rows)}
        self._rows = {(row.recipe, row.last_layers_bf16): row for _, row in rows}
        self._rates: dict[tuple[Recipe, int | None], PeerRates] = {}

    def rates(self, reading: Reading) -> "PeerRates | None":
        """The rates that its node is held against; None where it has none.

        Of the recipe that is best on most nodes of its profile; where its own has no rate or too few have one, of the
        fastest of its others that enough have; where none is, of that which the most have.
        """
        best, most = self._best.get(reading.profile), None
        for row in sorted(reading.rows.values(), key=lambda row: (row.recipe != best, -(row.synchronous_rate or 0.0))):
            rates = self._of(row.recipe, row.last_layers_bf16)
            if row.synchronous_rate is None or reading.node not in rates.rate:
                continue
            if rates.others(reading.node) >= LEAST_PEERS:
                return rates
            most = max(most or rates, rates, key=lambda rates: rates.others(reading.node))
        return most

    def _of(self, recipe: Recipe, layers: int | None) -> "PeerRates":
        if (recipe, layers) not in self._rates:
            newest = {
                reading.node: reading
                for reading in self._in_order
                if recipe in reading.rows and reading.rows[recipe].last_layers_bf16 == layers
            }
            rows = {node: reading.rows[recipe] for node, reading in newest.items()}
            rates = {node: rate for node, row in rows.items() if (rate := row.synchronous_rate) is not None}
            steady = frozenset(node for node in rates if rows[node].usable and not rows[node].throttled)
            counts = sorted(rates[node] for node in steady)
            row = self._rows.get((recipe, layers)) or PeerStatus.model_construct(
                key=self.readings[0].peers[1:],
                nodes=self.size,
                recipe=recipe,
                last_layers_bf16=layers,
                rate=decimal(median(counts) or 0.0, 12) or "0",
                spread=decimal(_spread(counts), 12) or "0",
                count=len(steady),
                examples=(*nsmallest(4, steady),),
            )
            self._rates[recipe, layers] = PeerRates(newest, rates, steady, row)
        return self._rates[recipe, layers]


@dataclass(frozen=True, slots=True, eq=False)
class PeerRates:
    """The newest synchronous rates with one recipe, and the statuses' row of those that count."""

    newest: Mapping[str, Reading]
    """By node."""
    rate: Mapping[str, float]
    reference: frozenset[str]
    row: PeerStatus

    def others(self, node: str) -> int:
        """How many of the reference are other nodes."""
        return self.row.count - (node in self.reference)

    def judge(self, reading: Reading, percent: float) -> Judged:
        """The reading's node, whose newest rate is among these."""
        row, center, others = self.row, float(self.row.rate), self.others(reading.node)
        rate, margin = self.rate[reading.node], max(center * percent / 100, float(row.spread))
        slow, limit = rate < center - margin, 1 - margin / center
        names = tuple(node for node in row.examples if slow and node != reading.node)
        share, decisive = rate / center, self.newest[reading.node]
        return Judged(reading.node, reading.pool, share, slow, limit, row.recipe, row.count, decisive, names, others)


class Peers:
    """All results that hold, by who may be compared with whom."""

    def __init__(
        self,
        readings: Iterable[Reading],
        before: "Peers | None" = None,
        in_status: Mapping[PeerKey, Sequence[tuple[str, PeerStatus]]] | None = None,
    ) -> None:
        """A group of which nothing has changed is the one of `before`, with what was worked out of it.

        Where `readings` are of one node alone, `in_status` is what statuses say of all; of others nothing can be said.
        """
        old, rows = before.groups if before is not None else {}, in_status or {}
        members = grouped((reading.peers, reading) for reading in readings if reading.holds)
        groups = {key: tuple(members.get(key, ())) for key in (members if in_status is None else in_status)}
        self.groups: dict[PeerKey, PeerGroup] = {
            key: old[key] if key in old and same(old[key].readings, group) else PeerGroup(group, rows.get(key, ()))
            for key, group in groups.items()
        }

    def rates(self, reading: Reading) -> PeerRates | None:
        """The rates that its node is held against; None where it has none, or none that hold."""
        group = self.groups.get(reading.peers) if reading.holds else None
        return group.rates(reading) if group is not None else None

    def rows(self, readings: Iterable[Reading]) -> list[PeerStatus]:
        """What the nodes of these readings are held against, for a status; that of most of them first."""
        return [rates.row for rates, _ in Counter(filter(None, map(self.rates, readings))).most_common()]

    def judged(self, readings: Iterable[Reading], percent: float) -> tuple[Judged, ...]:
        """The nodes of these readings that can be compared, the slowest first."""
        pairs = ((reading, self.rates(reading)) for reading in readings)
        nodes = (r.judge(reading, percent) for reading, r in pairs if r and r.others(reading.node) >= LEAST_PEERS)
        return tuple(sorted(nodes, key=lambda node: (node.relative, node.node)))

    def alone(self, readings: Iterable[Reading]) -> tuple[tuple[str, Said], ...]:
        """Nodes that have a rate and too few peers, in their order; each with that, and who comes nearest."""
        counts = ((reading, r.others(reading.node)) for reading in readings if (r := self.rates(reading)))
        rows = ((reading, peers, self._others(reading, peers)) for reading, peers in counts if peers < LEAST_PEERS)
        return tuple((r.node, said("NoPeers", peers=n, needed=LEAST_PEERS, differs=differs)) for r, n, differs in rows)

    def _others(self, reading: Reading, peers: int) -> str:
        """Why nodes like it don't count; where there are none, the kind that differs in the least, in words."""
        key_of_node = reading.peers
        spoiled = self.groups[key_of_node].size - 1 - peers
        if spoiled > 0:
            return f"; {spoiled} more like it were throttled, fell back or lack its recipes"
        others = [key for key in self.groups if key != key_of_node and key.namespace == key_of_node.namespace]
        if not others:
            return ""
        nearest = min(others, key=lambda key: (len(key_of_node.differing(key)), -self.groups[key].size, key))
        count = self.groups[nearest].size
        return f"; {count} {'others differ' if count > 1 else 'other differs'}: {key_of_node.against(nearest)}"


def judged(readings: Iterable[Reading], slow_node_percent: float) -> tuple[Judged, ...]:
    """Every node that can be compared with others of these, the slowest first."""
    readings = tuple(readings)
    return Peers(readings).judged(readings, slow_node_percent)


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
