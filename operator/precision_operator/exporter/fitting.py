"""What of the nodes is served where a shard has not room for all of it.

What was served goes on. Of the others the oldest come first, so that exporters agree, also after a restart: when it
nears the limit, nodes that come get no families of the level detail, and at the end none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

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


@dataclass(frozen=True)
class Served:
    """What of which reports."""

    entries: Sequence[Entry] = ()
    parts: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False)
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
    parts: dict[tuple[str, ...], int] = {}
    fitting = [entry for entries in members.values() for entry in _fitting(entries, before.parts, parts)]
    wanted = sum(entry.size + STANDING_BYTES for entries in members.values() for entry in entries)
    return Served(fitting, parts, wanted)


def _fitting(
    entries: Iterable[Entry], before: Mapping[tuple[str, ...], int], parts: dict[tuple[str, ...], int]
) -> Iterator[Entry]:
    """What fits of one shard; how much of each is put into `parts`."""
    size = 0
    for entry in sorted(entries, key=lambda it: (-before.get(it.key, NONE), it.created, it.uid)):
        parts[entry.key] = NONE
        plain = _plain(entry)
        for part, shown in ((WHOLE, entry), (PLAIN, plain)):
            until = DETAIL_UNTIL if part == WHOLE and plain is not entry else NODES_UNTIL
            share = 1.0 if before.get(entry.key, NONE) >= part else until
            if size + shown.size + STANDING_BYTES <= share * LIMIT_BYTES:
                size += shown.size + STANDING_BYTES
                parts[entry.key] = part
                yield shown
                break


def _plain(entry: Entry) -> Entry:
    """The entry without the level detail; the very same one where it shows none. Equal entries have equal stamps."""
    if not any(entry.lines[index] for index in _DETAIL):
        return entry
    lines = tuple(b"" if index in _DETAIL else text for index, text in enumerate(entry.lines))
    size = sum(map(len, lines))
    return replace(entry, lines=lines, size=size, series=count_lines(lines), stamp=-entry.stamp)
