"""Which measured nodes are slow: one decision for the profile's status, the metrics and the alerts.

A node is compared with its peers: the newest result of each node of its namespace that has the same PeerKey, of
whichever profile. A peer that was throttled by heat or the power brake, or that ran another precision, stays out of the
reference, but not out of the judgement: leaving it out would hide the worst. What is compared is the rate of a
synchronous job, GPUs x slowest GPU: one slow GPU in eight costs such a job a fifth, and the node's sum only a fortieth.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from itertools import chain
from typing import Any

from precision_api.exchange.peers import PeerKey
from precision_api.exchange.stats import MAD_TO_SIGMA, mad
from precision_api.facts.names import grouped
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import decimal
from precision_api.kinds.profile import PeerStatus
from precision_operator.core.observe.book import EMPTY, Kept, same
from precision_operator.core.reasons import Said, said
from precision_operator.core.results.pool import Pool, median, most_voted
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


class Part(tuple[Reading, ...]):
    """Some of the results that hold; what follows from these alone is worked out once."""

    @cached_property
    def by_peers(self) -> "Mapping[PeerKey, Part]":
        """By who may be compared with whom."""
        return {key: Part(group) for key, group in grouped((reading.peers, reading) for reading in self).items()}

    @cached_property
    def by_pool(self) -> "Mapping[str, Part]":
        return {name: Part(group) for name, group in grouped((reading.pool, reading) for reading in self).items()}

    def after(self, before: "Part") -> "Part":
        """This one, its parts those of `before` where they hold the very same readings."""
        for name in ("by_peers", "by_pool"):
            old, new = getattr(before, name), getattr(self, name)
            vars(self)[name] = {key: old[key] if key in old and same(old[key], it) else it for key, it in new.items()}
        return self

    @cached_property
    def pool(self) -> Pool:
        return Pool(self)

    @cached_property
    def useful(self) -> int:
        """How many have a figure that may be used."""
        return sum(reading.marks.useful for reading in self)

    @cached_property
    def marked(self) -> Counter[str]:
        """How many readings fell back, were throttled, are made up, or come of a trial."""
        names = ("fallback", "throttled", "made up", "trial")
        rows = ((bool(it.marks.fallen_back), it.marks.throttled, it.made_up, it.data == "trial") for it in self)
        return Counter(dict(zip(names, map(sum, zip(*rows, strict=True)), strict=False)))

    @cached_property
    def last_run(self) -> str | None:
        """When the newest result came in."""
        return max((reading.finished_at for reading in self if reading.finished_at is not None), default=None)

    @cached_property
    def nodes(self) -> Set[str]:
        return {reading.node for reading in self}

    @cached_property
    def votes(self) -> Mapping[str, Counter[Recipe]]:
        """On how many nodes each recipe is best, by profile."""
        rows = grouped((reading.profile, reading.marks.best) for reading in self)
        return {profile: Counter(recipe for recipe in best if recipe is not None) for profile, best in rows.items()}

    @cached_property
    def newest(self) -> "Mapping[tuple[Recipe, int | None], Mapping[str, Reading]]":
        """The newest result of each node with a recipe, and so many last layers in BF16."""
        newest: dict[tuple[Recipe, int | None], dict[str, Reading]] = {}
        for reading in sorted(self, key=_age):
            for key in reading.marks.listed:
                newest.setdefault(key, {})[reading.node] = reading
        first = next(iter(newest.values()), {})  # as a rule all nodes have the same recipes: kept once
        return {key: first if of == first else of for key, of in newest.items()}

    @cached_property
    def rated(self) -> "Mapping[tuple[Recipe, int | None], Mapping[str, Reading]]":
        """Of these results those with a rate."""
        all_of = self.newest
        rated = {key: {node: it for node, it in of.items() if key[0] in it.marks.rated} for key, of in all_of.items()}
        return {key: all_of[key] if len(all_of[key]) == len(of) else of for key, of in rated.items()}


def _age(reading: Reading) -> tuple[str, str]:
    return reading.finished_at or "", reading.profile


@dataclass(frozen=True)
class Compared:
    """What one part's readings are held against in their group."""

    held: "Mapping[PeerRates, Mapping[str, Reading]]"
    """Those with the recipe of most, which have enough peers, by node."""
    pairs: "Sequence[tuple[Reading, PeerRates]]"
    """Of the others those that have enough peers."""
    alone: Sequence[tuple[Reading, int]]
    """Those that have a rate and too few peers, with how many."""
    rows: "Counter[PeerRates]"
    """How many readings are held against each."""

    def slow(self, percent: float) -> Sequence[Judged]:
        """The slow ones."""
        of_most = [(of[node], rates) for rates, of in self.held.items() for node in rates.below(percent) if node in of]
        others = [(reading, rates) for reading, rates in self.pairs if reading.node in rates.below(percent)]
        return [rates.judge(reading, percent) for reading, rates in (*of_most, *others)]


class PeerGroup:
    """The results of one namespace that may be compared with each other, recipe by recipe."""

    def __init__(self, parts: Sequence[Part], rows: Sequence[tuple[str, PeerStatus]] = ()) -> None:
        """`rows` are what statuses of profiles, by name, say of it where its `parts` are of one node alone."""
        self.parts = tuple(parts)
        self.size = rows[0][1].nodes if rows else len(set[str]().union(*(part.nodes for part in parts)))
        """Its nodes."""
        votes = grouped(chain.from_iterable(part.votes.items() for part in parts))
        self._best = {profile: most_voted(sum(of_parts, Counter[Recipe]())) for profile, of_parts in votes.items()}
        self._best |= {profile: row.recipe for profile, row in reversed(rows)}
        self._compared: dict[int, tuple[Part, Compared]] = {}
        """By the id of the part."""
        self._rows = {(row.recipe, row.last_layers_bf16): row for _, row in rows}
        self._rates: dict[tuple[Recipe, int | None], PeerRates] = {}

    def rates(self, reading: Reading) -> "PeerRates | None":
        """The rates that its node is held against; None where it has none.

        Of the recipe that is best on most nodes of its profile; where its own has no rate or too few have one, of the
        fastest of its others that enough have; where none is, of that which the most have.
        """
        best, most = self._best.get(reading.profile), None
        row = reading.rows.get(best) if best is not None else None
        if row is not None and row.synchronous_rate is not None:
            rates = self._of(row.recipe, row.last_layers_bf16)
            if reading.node in rates.rate and rates.others(reading.node) >= LEAST_PEERS:
                return rates
        for row in sorted(reading.rows.values(), key=lambda row: (row.recipe != best, -(row.synchronous_rate or 0.0))):
            rates = self._of(row.recipe, row.last_layers_bf16)
            if row.synchronous_rate is None or reading.node not in rates.rate:
                continue
            if rates.others(reading.node) >= LEAST_PEERS:
                return rates
            most = max(most or rates, rates, key=lambda rates: rates.others(reading.node))
        return most

    def compared(self, part: Part) -> Compared:
        """What the readings of one of its parts are held against."""
        if id(part) not in self._compared:
            held = dict(self._held(part))
            is_all = sum(map(len, held.values())) == len(part)
            rest = () if is_all else (it for it in part if not any(it.node in of for of in held.values()))
            pairs = [(reading, rates) for reading in rest if (rates := self.rates(reading)) is not None]
            counts = [(reading, rates, rates.others(reading.node)) for reading, rates in pairs]
            enough = [(reading, rates) for reading, rates, others in counts if others >= LEAST_PEERS]
            alone = [(reading, others) for reading, _, others in counts if others < LEAST_PEERS]
            rows = Counter({rates: len(of) for rates, of in held.items()}) + Counter([rates for _, rates in pairs])
            self._compared[id(part)] = part, Compared(held, enough, alone, rows)
        return self._compared[id(part)][1]

    def _held(self, part: Part) -> "Iterator[tuple[PeerRates, Mapping[str, Reading]]]":
        """The readings for which `rates` gives the rates of their profile's best recipe, where each is another node."""
        (profile, *others), nodes = part.votes, part.nodes
        for key, of in part.rated.items() if not others and len(nodes) == len(part) else ():
            if key[0] == self._best.get(profile) and of and (rates := self._of(*key)).row.count > LEAST_PEERS:
                is_whole = of.keys() <= rates.rate.keys()
                yield rates, of if is_whole else {node: it for node, it in of.items() if node in rates.rate}

    def _of(self, recipe: Recipe, layers: int | None) -> "PeerRates":
        if (recipe, layers) not in self._rates:
            newest: dict[str, Reading] = {}
            for part in self.parts:
                for node, reading in part.newest.get((recipe, layers), {}).items():
                    if node not in newest or _age(reading) >= _age(newest[node]):
                        newest[node] = reading
            rows = {node: reading.rows[recipe] for node, reading in newest.items()}
            rates = {node: rate for node, row in rows.items() if (rate := row.synchronous_rate) is not None}
            steady = frozenset(node for node in rates if rows[node].usable and not rows[node].throttled)
            counts = sorted(rates[node] for node in steady)
            row = self._rows.get((recipe, layers)) or PeerStatus.model_construct(
                key=next(chain.from_iterable(self.parts)).peers[1:],
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


@dataclass(frozen=True, eq=False)
class PeerRates:
    """The newest synchronous rates with one recipe, and the statuses' row of those that count."""

    newest: Mapping[str, Reading]
    """By node."""
    rate: Mapping[str, float]
    reference: frozenset[str]
    row: PeerStatus
    _below: dict[float, Set[str]] = field(default_factory=dict)

    def below(self, percent: float) -> Set[str]:
        """Slow nodes."""
        if percent not in self._below:
            least = self.least(percent)
            self._below[percent] = {node for node, rate in self.rate.items() if rate < least}
        return self._below[percent]

    def others(self, node: str) -> int:
        """How many of the reference are other nodes."""
        return self.row.count - (node in self.reference)

    def least(self, percent: float) -> float:
        """A rate below this one is slow."""
        center = float(self.row.rate)
        return center - max(center * percent / 100, float(self.row.spread))

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
        readings: Iterable[Reading] | Sequence[Part],
        before: "Peers | None" = None,
        in_status: Mapping[PeerKey, Sequence[tuple[str, PeerStatus]]] | None = None,
        kept: Kept = EMPTY,
    ) -> None:
        """A group of which nothing has changed is the one of `before`, with what was worked out of it.

        Readings may come in parts, which hold; a part of which nothing has changed is the same object.

        Where `readings` are of one node alone, `in_status` is what statuses say of all; of others nothing can be said.
        `kept` is what the readings were made of, for the next ones.
        """
        self.kept = kept
        old, rows = before.groups if before is not None else {}, in_status or {}
        items = list[Any](readings)
        parts = items if items and isinstance(items[0], Part) else [Part(r for r in items if r.holds)]
        members = grouped(chain.from_iterable(part.by_peers.items() for part in parts))
        groups = {key: tuple(members.get(key, ())) for key in (members if in_status is None else in_status)}
        self.groups: dict[PeerKey, PeerGroup] = {
            key: old[key] if key in old and _same(old[key].parts, group) else PeerGroup(group, rows.get(key, ()))
            for key, group in groups.items()
        }

    def rates(self, reading: Reading) -> PeerRates | None:
        """The rates that its node is held against; None where it has none, or none that hold."""
        group = self.groups.get(reading.peers) if reading.holds else None
        return group.rates(reading) if group is not None else None

    def compared(self, part: Part) -> list[Compared]:
        """What these readings are held against, group by group."""
        groups = ((self.groups[key], of_group) for key, of_group in part.by_peers.items() if key in self.groups)
        return [group.compared(of_group) for group, of_group in groups]

    def facing(self, part: Part, percent: float) -> tuple[object, ...]:
        """All that is said of these readings beside their peers hangs on: what is equal gives the same words."""
        is_alone = any(compared.alone for compared in self.compared(part))
        return self if is_alone else None, self.rows(part), self.slow(part, percent)

    def rows(self, part: Part) -> list[PeerStatus]:
        """What the nodes of these readings are held against, for a status; that of most of them first."""
        counts = sum((compared.rows for compared in self.compared(part)), Counter[PeerRates]())
        return [rates.row for rates, _ in counts.most_common()]

    def slow(self, part: Part, percent: float) -> tuple[Judged, ...]:
        """The nodes of these readings that are slow, the slowest first."""
        slow = chain.from_iterable(compared.slow(percent) for compared in self.compared(part))
        return tuple(sorted(slow, key=lambda node: (node.relative, node.node)))

    def judged(self, readings: Iterable[Reading], percent: float) -> tuple[Judged, ...]:
        """The nodes of these readings that can be compared, the slowest first."""
        pairs = ((reading, self.rates(reading)) for reading in readings)
        nodes = (r.judge(reading, percent) for reading, r in pairs if r and r.others(reading.node) >= LEAST_PEERS)
        return tuple(sorted(nodes, key=lambda node: (node.relative, node.node)))

    def alone(self, readings: Iterable[Reading]) -> tuple[tuple[str, Said], ...]:
        """Nodes that have a rate and too few peers, in their order; each with that, and who comes nearest."""
        counts = ((reading, r.others(reading.node)) for reading in readings if (r := self.rates(reading)))
        return tuple((r.node, self.no_peers(r, peers)) for r, peers in counts if peers < LEAST_PEERS)

    def no_peers(self, reading: Reading, peers: int) -> Said:
        """That a node has only so many peers, and why nodes like it don't count; else who differs in the least."""
        mine = reading.peers
        spoiled = self.groups[mine].size - 1 - peers
        differs = f"; {spoiled} more like it were throttled, fell back or lack its recipes" if spoiled > 0 else ""
        others = [key for key in self.groups if not differs and key != mine and key.namespace == mine.namespace]
        if others:
            nearest = min(others, key=lambda key: (len(mine.differing(key)), -self.groups[key].size, key))
            count = self.groups[nearest].size
            differs = f"; {count} {'others differ' if count > 1 else 'other differs'}: {mine.against(nearest)}"
        return said("NoPeers", peers=peers, needed=LEAST_PEERS, differs=differs)


def _same(some: Sequence[Part], others: Sequence[Part]) -> bool:
    """Whether these are the very same parts, or hold the very same readings."""
    return len(some) == len(others) and all(map(same, some, others))


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
