"""The texts of one scrape: each family once, its samples together, from lines that are already rendered.

`/metrics` has pools, profiles and plans, a shard the nodes that fall to it. Everything is kept compressed, in the
smallest parts that change at once: a family of a group of nodes, since their reports change one by one, or of a pool's
nodes in the shard, since what they are beside each other changes for all of them together. A new body takes over every
part of the one before that still holds, and differs in no byte from one that was made without it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from precision_api.facts.names import PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, grouped
from precision_operator.exporter.chunks import NOTHING, CompressedChunk, joined, piece, unpacked
from precision_operator.exporter.entries import Entry, count_lines, newest_of_each, of_profiles_there
from precision_operator.exporter.families import table
from precision_operator.exporter.families.family import Family
from precision_operator.exporter.families.pools import PoolNodes, pools, same
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.fitting import LIMIT_BYTES, NEAR, NONE, Key, Served, on_metrics, served
from precision_operator.exporter.fleet import FleetNodes, fleet_nodes
from precision_operator.exporter.reading import RelativeRate
from precision_operator.exporter.shards import place
from precision_operator.exporter.store import StoreSnapshot
from precision_operator.exporter.text import header, sample_template, samples

_FLEET: Mapping[str, Sequence[Family[Any]]] = {
    "pools": table.POOL_FAMILIES,
    PROFILE_PLURAL: table.PROFILE_FAMILIES,
    PLAN_PLURAL: table.PLAN_FAMILIES,
}
_SHARD_SERIES = "precision_exporter_shard_series"
_SHARD_HELP = "Node series in this shard; index is its number."


@dataclass(frozen=True)
class Standings:
    """What the nodes of a pool that are in one shard are beside each other: their lines by family, compressed."""

    pieces: tuple[CompressedChunk, ...]
    series: int


@dataclass(frozen=True)
class ChunkGroup(Standings):
    """Some nodes of a shard: their lines by family, compressed.

    The entries themselves are not held: after a change of all reports the old ones would stay until the next scrape.
    """

    stamps: tuple[int, ...]
    """Of the entries, in their order."""
    hashes: tuple[int, ...]
    """Of the texts that were compressed."""


@dataclass(frozen=True)
class Rendered:
    """A pool with its lines by family, and its nodes' standings by shard."""

    pool: PoolNodes
    selection: Selection
    standings: Mapping[int, Standings] = field(repr=False)
    left_out: frozenset[str] = frozenset()
    """Nodes for which there is no room."""

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        """Rendered where there may be room."""
        shown = self.selection.shows
        return tuple(family.render(self.pool) if shown(family) else b"" for family in table.POOL_FAMILIES)


@dataclass(frozen=True)
class FamilyColumn:
    """One family of a shard: the lines of all nodes in parts, and as one under the family's head."""

    parts: tuple[CompressedChunk, ...]
    packed: CompressedChunk


@dataclass(frozen=True)
class Shard:
    """The nodes of one scrape endpoint."""

    index: int
    columns: tuple[FamilyColumn, ...]
    packed: CompressedChunk
    series: int
    """Number of node series."""

    def text(self) -> bytes:
        """The whole text, unpacked now: scrapers take the compressed one."""
        return b"".join(unpacked(self.packed))


@dataclass(frozen=True)
class Body:
    """The fleet's families as texts, with the figures that the exporter tells of itself."""

    generation: int
    fleet: bytes
    """Pools, profiles and plans."""
    fleet_packed: CompressedChunk
    shards: tuple[Shard, ...]
    groups: Mapping[tuple[int, int], ChunkGroup] = field(repr=False)
    pools: Mapping[tuple[str, ...], Rendered] = field(repr=False)
    """By labels."""
    series: int
    nodes: int
    replaced_reports: int
    shown_reports: int
    empty_reports: int
    unreadable: Mapping[str, int]
    """By plural."""
    fleet_nodes: FleetNodes
    served: Served = field(repr=False, compare=False)
    fleet_parts: Mapping[Key, int] = field(repr=False, compare=False)
    """What of pools, profiles and plans is served."""
    left_out: Counter[str]
    """How many pools, profiles, plans and reports of each namespace have no room."""

    @property
    def text(self) -> bytes:
        """All of it, nodes first; no family stands in it twice where there is one shard."""
        return b"".join((*(shard.text() for shard in self.shards), self.fleet))

    def sizes(self) -> dict[str, int]:
        """Uncompressed bytes by path."""
        fleet = {"/metrics": self.fleet_packed.size}
        return fleet | {f"/metrics/shard/{shard.index}": shard.packed.size for shard in self.shards}


def build(view: StoreSnapshot, shards: int = 1, before: Body | None = None) -> Body:
    """The body of what the store held; seconds for 10,000 nodes that are all new, so not in the event loop.

    What has not changed is taken over from the body `before`, if that had as many shards.
    """
    usable = before if before is not None and len(before.shards) == shards else None
    there = of_profiles_there(view.reports, view.profiles)
    reports, older = newest_of_each(there)
    replaced = older + sum(1 for entry in view.reports if entry.shown) - sum(1 for entry in there if entry.shown)
    profiles, plans = ({it.key: it for it in newest_of_each(of)[0]} for of in (view.profiles, view.plans))
    fitting = served(reports if view.selection.nodes else (), shards, usable.served if usable else Served())
    rendered = _pools(view, reports, shards if view.selection.nodes else 0, usable, fitting)
    groups = _groups(fitting.entries, shards, usable)
    made = tuple(_shard(index, groups, rendered, usable) for index in range(shards))
    kinds: Iterable[tuple[str, Mapping[Key, Rendered | Entry]]] = zip(_FLEET, (rendered, profiles, plans), strict=True)
    items = {(*key, kind): of[key] for kind, of in kinds for key in sorted(of)}
    created = {key: entry.created for key, entry in (plans | profiles).items()}
    fleet_parts = on_metrics(items, created, usable.fleet_parts if usable else {})
    shown = grouped((key[-1], it.lines) for key, it in items.items() if fleet_parts[key] != NONE)
    fleet = b"".join(text for kind in _FLEET for text in _families(_FLEET[kind], shown.get(kind, ())))
    entries = {REPORT_PLURAL: view.reports, PROFILE_PLURAL: view.profiles, PLAN_PLURAL: view.plans}
    unreadable = {plural: sum(1 for entry in of if entry.problem) for plural, of in entries.items()}
    return Body(
        generation=view.generation,
        fleet=fleet,
        fleet_packed=piece(fleet),
        shards=made,
        groups=groups,
        pools=rendered,
        series=sum(shard.series for shard in made) + sum(count_lines(lines) for of in shown.values() for lines in of),
        nodes=len({entry.key[2] for entry in reports}),
        replaced_reports=replaced,
        shown_reports=len(reports),
        empty_reports=len(view.reports) - len(reports) - replaced - unreadable[REPORT_PLURAL],
        unreadable=unreadable,
        fleet_nodes=fleet_nodes(reports, profiles.values()),
        served=fitting,
        fleet_parts=fleet_parts,
        left_out=Counter(at[0] for of in (fleet_parts, fitting.parts) for at, part in of.items() if part == NONE),
    )


def size_warning(body: Body) -> str | None:
    """What to say of the fullest body when it nears the limit; None while there is room."""
    path, size = max(body.sizes().items(), key=lambda item: item[1])
    if size < NEAR * LIMIT_BYTES:
        return None
    beyond = "is beyond what" if size > LIMIT_BYTES else "nears what"
    remedy = (
        f"Raise --shards (exporter.shards in the chart) from {len(body.shards)} to {body.served.shards_needed}, or "
        "lower metricsLevel."
        if path != "/metrics"
        else "It holds pools, profiles and plans: fewer pools (spec.poolLabel), profiles or plans make it smaller."
    )
    full = f"(16 MiB; vmagent refuses more): {size / 2**20:.1f} MiB for {body.nodes} nodes"
    without = "".join(f" No room: {count} objects of {of}." for of, count in body.left_out.most_common(3))
    return f"{path} {beyond} scrapers take {full}. {remedy}{without}"


def shard_series(index: int, series: int) -> bytes:
    """A shard's own family: that it is there although no node may fall to it."""
    template = sample_template(_SHARD_SERIES, ("index",))
    return header(_SHARD_SERIES, _SHARD_HELP, "gauge") + samples(template, [((str(index),), float(series))])


def _pools(
    view: StoreSnapshot, reports: Iterable[Entry], shards: int, body: Body | None, fitting: Served
) -> dict[tuple[str, ...], Rendered]:
    """The pools by labels, in order; with the standings of their nodes where there are shards to show them."""
    old = body.pools if body is not None else {}
    percents = {entry.key: entry.percent for entry in view.profiles}
    results = (entry.result for entry in reports if entry.result is not None)
    pools_now = pools(results, percents, view.gemms, {at: old[at].pool for at in old})
    none = grouped((key[:2], key[2]) for key, part in fitting.parts.items() if part == NONE)
    every = ((pool.labels, pool) for pool in pools_now)
    return {at: _rendered(it, view.selection, shards, old.get(at), frozenset(none.get(at[:2], ()))) for at, it in every}


def _rendered(
    pool: PoolNodes, selection: Selection, shards: int, before: Rendered | None, left_out: frozenset[str]
) -> Rendered:
    if before is not None and before.pool is pool and before.left_out == left_out:
        return before
    nodes = sorted(pool.standings.keys() - left_out) if shards else ()
    members = grouped((place(node, shards)[0], pool.standings[node]) for node in nodes)
    return Rendered(pool, selection, {at: _standings(rates, selection) for at, rates in members.items()}, left_out)


def _standings(rates: Sequence[RelativeRate], selection: Selection) -> Standings:
    shown = [family if selection.shows(family) else None for family in table.STANDING_FAMILIES]
    lines = [b"".join(map(family.render, rates)) if family else b"" for family in shown]
    return Standings(tuple(map(piece, lines)), count_lines(lines))


def _groups(reports: Iterable[Entry], shards: int, body: Body | None) -> dict[tuple[int, int], ChunkGroup]:
    members = grouped((place(entry.key[2], shards), entry) for entry in reports)
    old = body.groups if body is not None else {}
    return {at: _group(members[at], old.get(at)) for at in sorted(members)}


def _group(members: Sequence[Entry], before: ChunkGroup | None) -> ChunkGroup:
    stamps = tuple(entry.stamp for entry in members)
    if before is not None and before.stamps == stamps:
        return before
    in_order = sorted(members, key=attrgetter("key"))
    texts = list(map(b"".join, zip(*(entry.lines for entry in in_order), strict=True)))
    hashes = tuple(map(hash, texts))
    old = dict(zip(before.hashes, before.pieces, strict=True)) if before is not None else {}
    # Some, such as versions, stay the same in a new report.
    pieces = tuple(old.get(key) or piece(text) for key, text in zip(hashes, texts, strict=True))
    return ChunkGroup(pieces, sum(entry.series for entry in members), stamps, hashes)


def _shard(
    index: int, groups: Mapping[tuple[int, int], ChunkGroup], done: Mapping[tuple[str, ...], Rendered], old: Body | None
) -> Shard:
    mine = [group for (shard, _), group in groups.items() if shard == index]
    standings = [standing for pool in done.values() if (standing := pool.standings.get(index)) is not None]
    columns_before = old.shards[index].columns if old is not None else (None,) * len(_HEADS)
    parts = (
        *(tuple(group.pieces[number] for group in mine) for number in range(len(table.NODE_FAMILIES))),
        *(tuple(part.pieces[number] for part in standings) for number in range(len(table.STANDING_FAMILIES))),
    )
    columns = tuple(map(_column, _HEADS, parts, columns_before))
    series = sum(group.series for group in mine) + sum(standing.series for standing in standings)
    series_lines = piece(shard_series(index, series))
    return Shard(index, columns, joined((*(column.packed for column in columns), series_lines)), series)


_HEADS = tuple(piece(family.head) for families in (table.NODE_FAMILIES, table.STANDING_FAMILIES) for family in families)


def _column(head: CompressedChunk, parts: tuple[CompressedChunk, ...], before: FamilyColumn | None) -> FamilyColumn:
    if before is not None and same(before.parts, parts):
        return before
    return FamilyColumn(parts, joined((head, *parts)) if any(part.size for part in parts) else NOTHING)


def _families(families: Sequence[Family[Any]], subjects: Sequence[tuple[bytes, ...]]) -> list[bytes]:
    """Each family once, with the lines of all subjects."""
    parts: list[bytes] = []
    for index, family in enumerate(families):
        lines = [subject[index] for subject in subjects if subject[index]]
        if lines:
            parts += (family.head, *lines)
    return parts
