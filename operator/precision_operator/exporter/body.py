"""The text of one scrape: each family once, its samples together, from lines that are already rendered."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from precision_operator.exporter.entries import Entry, newest_of_each
from precision_operator.exporter.families import NODE_FAMILIES, PROFILE_FAMILIES, Family
from precision_operator.exporter.store import View

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1
"""Metric text shrinks to a twentieth at level 1 (measured); level 6 takes twice the time for a thirtieth."""


@dataclass(frozen=True)
class Body:
    """The fleet's families as text, with the figures that the exporter tells of itself."""

    generation: int
    text: bytes
    series: int
    replaced_reports: int
    shown_reports: int
    empty_reports: int
    unreadable_reports: int
    unreadable_profiles: int


@dataclass(frozen=True)
class Packed:
    """A text that has been compressed but for its end: `finish` adds one, again and again."""

    start: bytes
    compressor: Any

    def finish(self, end: bytes) -> bytes:
        """One gzip member with the text and `end` in it (some readers stop after the first member)."""
        compressor = self.compressor.copy()
        return b"".join((self.start, compressor.compress(end), compressor.flush()))


def build(view: View) -> Body:
    """The body of what the store held; takes 0.1 s or so for 10,000 nodes, so not in the event loop."""
    reports, replaced = newest_of_each(view.reports)
    profiles, _ = newest_of_each(view.profiles)
    parts = [*_families(NODE_FAMILIES, reports), *_families(PROFILE_FAMILIES, profiles)]
    unreadable = sum(1 for entry in view.reports if entry.problem)
    text = b"".join(parts)
    return Body(
        generation=view.generation,
        text=text,
        series=sum(entry.series for entry in (*reports, *profiles)),
        replaced_reports=replaced,
        shown_reports=len(reports),
        empty_reports=len(view.reports) - len(reports) - replaced - unreadable,
        unreadable_reports=unreadable,
        unreadable_profiles=sum(1 for entry in view.profiles if entry.problem),
    )


def pack(text: bytes) -> Packed:
    """`text` compressed, open at its end."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return Packed(compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH), compressor)


def _families(families: Sequence[Family[Any]], entries: Sequence[Entry]) -> list[bytes]:
    parts: list[bytes] = []
    for index, family in enumerate(families):
        lines = [entry.lines[index] for entry in entries if entry.lines[index]]
        if lines:
            parts += (family.head, *lines)
    return parts
