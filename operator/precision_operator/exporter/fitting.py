"""What is served where a body has not room for all of it.

Namespaces take turns, each time the one that has the least: each has an equal share, and what one leaves is others'.
Within one what was served goes on. Of the rest the oldest come first, so that exporters agree, also after a restart:
when a shard nears the limit, nodes that come get no families of the level detail, and at the end none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import ceil
from typing import Any

from precision_api.facts.names import grouped
from precision_operator.exporter.entries import Entry, count_lines
from precision_operator.exporter.families.table import NODE_FAMILIES
from precision_operator.exporter.shards import MOST_SHARDS, place

LIMIT_BYTES = 16 * 2**20
"""What vmagent takes at most (-promscrape.maxScrapeSize); Prometheus has no limit unless body_size_limit sets one."""
NEAR = 0.8
"""Of it: from here on log and alert say how many shards to set."""
DETAIL_UNTIL, NODES_UNTIL = 0.9, 0.97
"""Of it: up to here a node that was not served yet is, with the level detail and without."""
STANDING_BYTES = 512
"""For the node's lines beside others of its pool."""
_DETAIL = {index for index, family in enumerate(NODE_FAMILIES) if family.detail}
NONE, PLAIN, WHOLE = range(3)
"""How much of a node is served: nothing, all but the level detail, all."""
Key = tuple[str, ...]
"""A namespace, and what of it."""
Choice = tuple[int, int, float]
"""How much of it, in bytes, and up to which share of a body where it was not served before."""


@dataclass(frozen=True)
class Served:
    """What of which reports."""

    entries: Sequence[Entry] = ()
    parts: Mapping[Key, int] = field(default_factory=dict, repr=False)
    """NONE, PLAIN or WHOLE by the reports' keys."""
    wanted_bytes: int = 0
    """Of all reports, whole."""

    @property
    def shards_needed(self) -> int:
        """How many shards keep each one half full, with all that has no room now."""
        return min(MOST_SHARDS, max(1, ceil(2 * self.wanted_bytes / LIMIT_BYTES)))

    def nodes(self, part: int) -> int:
        """How many nodes have no more than that of some report."""
        return len({key[2] for key, had in self.parts.items() if had == part})


def served(reports: Iterable[Entry], shards: int, before: Served) -> Served:
    """The reports as far as they fit into their shards; `before` is what was served last, in as many shards."""
    members = grouped((place(entry.key[2], shards)[0], entry) for entry in reports)
    parts: dict[Key, int] = {}
    fitting: list[Entry] = []
    for entries in members.values():
        wanted = {it.key: ((it.created, it.uid), _choices(it)) for it in entries}
        had = _by_turns(wanted, before.parts, LIMIT_BYTES, tries_all=True)
        shown = ((it, had[it.key]) for it in entries if had[it.key] != NONE)
        fitting += [entry if part == WHOLE else _plain(entry) for entry, part in shown]
        parts |= had
    wanted_bytes = sum(entry.size + STANDING_BYTES for entries in members.values() for entry in entries)
    return Served(fitting, parts, wanted_bytes)


def on_metrics(lines: Mapping[Key, Any], created: Mapping[Key, str], before: Mapping[Key, int]) -> Mapping[Key, int]:
    """What has room on /metrics, beside the exporter's own: profiles and plans, then pools by the age of profiles."""
    ranks = {key: (len(key), created.get(key[:2], "later"), key) for key in lines}
    wanted = {key: (ranks[key], _whole(of, DETAIL_UNTIL if len(key) > 3 else NODES_UNTIL)) for key, of in lines.items()}
    return _by_turns(wanted, before, NODES_UNTIL * LIMIT_BYTES, tries_all=False)


def _by_turns(
    wanted: Mapping[Key, tuple[Any, Iterator[Choice]]], before: Mapping[Key, int], room: float, tries_all: bool
) -> dict[Key, int]:
    """How much of each, by its place, fits into a body of so many bytes; `before` is what was served last.

    After one that comes and has no room smaller ones have some if `tries_all`: not where sizes are dear.
    """
    in_order = sorted(wanted, key=lambda key: (-before.get(key, NONE), wanted[key][0]))
    queues = {namespace: iter(keys) for namespace, keys in grouped((key[0], key) for key in in_order).items()}
    turns, size, parts = sorted((0, namespace) for namespace in queues), 0, dict.fromkeys(wanted, NONE)
    while turns:
        used, namespace = heappop(turns)
        for key in queues[namespace]:
            was = before.get(key, NONE)
            fit = (it for it in wanted[key][1] if size + it[1] <= (1.0 if was >= it[0] else it[2]) * room)
            parts[key], more, _ = next(fit, (NONE, 0, 0.0))
            if parts[key] != NONE:
                size += more
                heappush(turns, (used + more, namespace))
            if parts[key] != NONE or (was == NONE and not tries_all):
                break
    return parts


def _whole(item: Any, until: float) -> Iterator[Choice]:
    yield WHOLE, sum(map(len, item.lines)), until


def _choices(entry: Entry) -> Iterator[Choice]:
    plain = _plain(entry)
    yield WHOLE, entry.size + STANDING_BYTES, NODES_UNTIL if plain is entry else DETAIL_UNTIL
    yield PLAIN, plain.size + STANDING_BYTES, NODES_UNTIL


def _plain(entry: Entry) -> Entry:
    """The entry without the level detail; the very same one where it shows none. Equal entries have equal stamps."""
    if not any(entry.lines[index] for index in _DETAIL):
        return entry
    lines = tuple(b"" if index in _DETAIL else text for index, text in enumerate(entry.lines))
    size = sum(map(len, lines))
    return replace(entry, lines=lines, size=size, series=count_lines(lines), stamp=-entry.stamp)
