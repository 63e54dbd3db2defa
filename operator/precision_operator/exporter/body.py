"""The texts of one scrape: each family once, its samples together, from lines that are already rendered.

`/metrics` has pools, profiles and plans, a shard the nodes that fall to it. A shard is made of groups of nodes, and a
group is joined and compressed again only when one of its reports has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_operator.exporter.entries import Entry, count_lines, newest_of_each
from precision_operator.exporter.families import (
    NODE_FAMILIES,
    PLAN_FAMILIES,
    POOL_FAMILIES,
    PROFILE_FAMILIES,
    STANDING_FAMILIES,
)
from precision_operator.exporter.family import Family
from precision_operator.exporter.pieces import Piece, joined, piece
from precision_operator.exporter.pools import Beside, Pool, pools
from precision_operator.exporter.shards import place
from precision_operator.exporter.store import View
from precision_operator.exporter.text import header, sample_template, samples

LIMIT_BYTES = 16 * 2**20
"""What vmagent takes at most (-promscrape.maxScrapeSize); Prometheus has no limit unless body_size_limit sets one."""
NEAR = 0.8

_NODE_HEADS: tuple[Family[Any], ...] = (*NODE_FAMILIES, *STANDING_FAMILIES)
_SHARD_SERIES = "precision_exporter_shard_series"
_SHARD_HELP = "Node series in this shard; index is its number."


@dataclass(frozen=True)
class Rendered:
    """A pool with its lines by family, and those that its nodes have for standing beside each other."""

    pool: Pool
    lines: tuple[bytes, ...]
    standing_lines: Mapping[str, tuple[bytes, ...]] = field(repr=False)


@dataclass(frozen=True)
class Group:
    """Some nodes of a shard: their lines by family, and the same compressed; empty for a family without lines."""

    entries: tuple[Entry, ...]
    standing_lines: tuple[bytes, ...]
    pieces: tuple[Piece, ...]
    series: int

    def text(self, family: int) -> bytes:
        """The lines of the family at this place of the table."""
        if family < len(NODE_FAMILIES):
            return b"".join(entry.lines[family] for entry in self.entries)
        return self.standing_lines[family - len(NODE_FAMILIES)]


@dataclass(frozen=True)
class Shard:
    """The nodes of one scrape endpoint."""

    index: int
    groups: tuple[Group, ...]
    packed: Piece

    @property
    def series(self) -> int:
        """Number of node series."""
        return sum(group.series for group in self.groups)

    def text(self) -> bytes:
        """The whole text, joined now: scrapers take the compressed one."""
        parts: list[bytes] = []
        for number, family in enumerate(_NODE_HEADS):
            lines = [text for group in self.groups if (text := group.text(number))]
            if lines:
                parts += (family.head, *lines)
        return b"".join((*parts, shard_series(self.index, self.series)))


@dataclass(frozen=True)
class Body:
    """The fleet's families as texts, with the figures that the exporter tells of itself."""

    generation: int
    fleet: bytes
    """Pools, profiles and plans."""
    fleet_packed: Piece
    shards: tuple[Shard, ...]
    groups: Mapping[tuple[int, int], Group] = field(repr=False)
    pools: Mapping[tuple[str, ...], Rendered] = field(repr=False)
    """By labels."""
    series: int
    nodes: int
    replaced_reports: int
    shown_reports: int
    empty_reports: int
    unreadable_reports: int
    unreadable_profiles: int
    unreadable_plans: int

    @property
    def text(self) -> bytes:
        """All of it, nodes first; no family stands in it twice where there is one shard."""
        return b"".join((*(shard.text() for shard in self.shards), self.fleet))

    def sizes(self) -> dict[str, int]:
        """Uncompressed bytes by path."""
        fleet = {"/metrics": self.fleet_packed.size}
        return fleet | {f"/metrics/shard/{shard.index}": shard.packed.size for shard in self.shards}


def build(view: View, shards: int = 1, before: Body | None = None) -> Body:
    """The body of what the store held; half a second or so for 10,000 nodes, so not in the event loop.

    What has not changed is taken over from the body `before`, if that had as many shards.
    """
    reports, replaced = newest_of_each(view.reports)
    profiles, _ = newest_of_each(view.profiles)
    plans, _ = newest_of_each(view.plans)
    percents = {entry.key: entry.percent for entry in view.profiles}
    results = [entry.result for entry in reports if entry.result is not None]
    old = before.pools if before is not None else {}
    found = pools(results, Beside(percents, view.gemms), {at: old[at].pool for at in old})
    rendered = {pool.labels: _rendered(pool, old.get(pool.labels)) for pool in found}
    known = before.groups if before is not None and len(before.shards) == shards else {}
    groups = _groups(reports if view.level != "pool" else (), rendered.values(), shards, known)
    made = tuple(_shard(index, groups) for index in range(shards))
    fleet = b"".join(
        (
            *_families(POOL_FAMILIES, [each.lines for each in rendered.values()]),
            *_families(PROFILE_FAMILIES, [entry.lines for entry in profiles]),
            *_families(PLAN_FAMILIES, [entry.lines for entry in plans]),
        )
    )
    unreadable = sum(1 for entry in view.reports if entry.problem)
    return Body(
        generation=view.generation,
        fleet=fleet,
        fleet_packed=piece(fleet),
        shards=made,
        groups=groups,
        pools=rendered,
        series=sum(shard.series for shard in made) + _samples(fleet),
        nodes=len({entry.key[2] for entry in reports}),
        replaced_reports=replaced,
        shown_reports=len(reports),
        empty_reports=len(view.reports) - len(reports) - replaced - unreadable,
        unreadable_reports=unreadable,
        unreadable_profiles=sum(1 for entry in view.profiles if entry.problem),
        unreadable_plans=sum(1 for entry in view.plans if entry.problem),
    )


def shards_needed(body: Body) -> int:
    """How many shards keep each one half full, 64 at most."""
    total = sum(shard.packed.size for shard in body.shards)
    return min(64, max(1, -(-total // (LIMIT_BYTES // 2))))


def size_warning(body: Body) -> str | None:
    """What to say of the fullest body when it nears the limit; None while there is room."""
    path, size = max(body.sizes().items(), key=lambda item: item[1])
    if size < NEAR * LIMIT_BYTES:
        return None
    beyond = "is beyond what" if size > LIMIT_BYTES else "nears what"
    remedy = (
        f"Raise --shards (exporter.shards in the chart) from {len(body.shards)} to {shards_needed(body)}, or lower "
        "metricsLevel."
        if path != "/metrics"
        else "It holds pools, profiles and plans: fewer pools (spec.poolLabel), profiles or plans make it smaller."
    )
    told = f"{size / 2**20:.1f} MiB for {body.nodes} nodes"
    return f"{path} {beyond} scrapers take (16 MiB; vmagent refuses more): {told}. {remedy}"


def shard_series(index: int, series: int) -> bytes:
    """A shard's own family: that it is there although no node may fall to it."""
    template = sample_template(_SHARD_SERIES, ("index",))
    return header(_SHARD_SERIES, _SHARD_HELP, "gauge") + samples(template, [((str(index),), float(series))])


def _groups(
    reports: Sequence[Entry],
    rendered: Iterable[Rendered],
    shards: int,
    known: Mapping[tuple[int, int], Group],
) -> dict[tuple[int, int], Group]:
    lines = {(*each.pool.labels[:2], node): told for each in rendered for node, told in each.standing_lines.items()}
    members: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    for entry in reports:
        members[place(entry.key[2], shards)].append(entry)
    return {at: _group(tuple(members[at]), lines, known.get(at)) for at in sorted(members)}


def _group(
    entries: tuple[Entry, ...], standing_lines: Mapping[tuple[str, ...], tuple[bytes, ...]], known: Group | None
) -> Group:
    """The group, or as much of the known one as still holds: pools move more often than single reports."""
    compared = [told for entry in entries if (told := standing_lines.get(entry.key)) is not None]
    lines = tuple(b"".join(told[number] for told in compared) for number in range(len(STANDING_FAMILIES)))
    unchanged = known is not None and _same(known.entries, entries)
    if known is not None and unchanged and known.standing_lines == lines:
        return known
    if known is not None and unchanged:
        pieces = known.pieces[: len(NODE_FAMILIES)]
    else:
        numbers = range(len(NODE_FAMILIES))
        pieces = tuple(piece(b"".join(entry.lines[number] for entry in entries)) for number in numbers)
    series = sum(entry.series for entry in entries) + count_lines(lines)
    return Group(entries, lines, (*pieces, *map(piece, lines)), series)


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(old is new for old, new in zip(before, now, strict=True))


def _shard(index: int, groups: Mapping[tuple[int, int], Group]) -> Shard:
    mine = tuple(group for (shard, _), group in groups.items() if shard == index)
    parts: list[Piece] = []
    for number, head in enumerate(_HEADS):
        lines = [group.pieces[number] for group in mine if group.pieces[number].size]
        if lines:
            parts += (head, *lines)
    own = piece(shard_series(index, sum(group.series for group in mine)))
    return Shard(index, mine, joined((*parts, own)))


_HEADS = tuple(piece(family.head) for family in _NODE_HEADS)


def _rendered(pool: Pool, known: Rendered | None) -> Rendered:
    if known is not None and known.pool is pool:
        return known
    nodes = {node: tuple(f.render(standing) for f in STANDING_FAMILIES) for node, standing in pool.standings.items()}
    return Rendered(pool, tuple(family.render(pool) for family in POOL_FAMILIES), nodes)


def _families(families: Sequence[Family[Any]], subjects: Sequence[tuple[bytes, ...]]) -> list[bytes]:
    """Each family once, with the lines of all subjects."""
    parts: list[bytes] = []
    for index, family in enumerate(families):
        lines = [subject[index] for subject in subjects if subject[index]]
        if lines:
            parts += (family.head, *lines)
    return parts


def _samples(text: bytes) -> int:
    return sum(1 for line in text.splitlines() if not line.startswith(b"#"))
