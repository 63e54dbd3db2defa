"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


SampleRow = tuple[tuple[str, ...], float]
"""One sample: the values of its labels, in the family's order, and its value."""


def header(name: str, help_text: str, kind: str) -> bytes:
    """The HELP and TYPE lines of a family."""
    told = help_text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {told}\n# TYPE {name} {kind}\n".encode()


class Template(NamedTuple):
    """How one sample is written, in two steps: what all rows of an object share is put in once for all of them."""

    line: str
    """With %s for each shared label, and %%s for the others and the sample's own value."""
    shared: int
    """How many labels, the first ones of a row, are shared."""
    first: tuple[int, ...]
    """The places of the shared label values in a row, as they stand in the line."""
    rest: tuple[int, ...]
    """Those of the others."""


def sample_template(name: str, labels: Sequence[str], shared: int = 0) -> Template:
    """How a sample with these labels is written, of which rows in a row share the first `shared`.

    Labels are written in alphabetical order, as prometheus-client does, so that the two outputs can be compared.
    """
    places = tuple(map(labels.index, sorted(labels)))
    pairs = ",".join(f'{labels[at]}="{"%s" if at < shared else "%%s"}"' for at in places)
    first, rest = (tuple(at for at in places if (at < shared) is wanted) for wanted in (True, False))
    return Template(f"{name}{{{pairs}}} %%s\n", shared, first, rest)


def samples(template: Template, rows: Iterable[SampleRow]) -> bytes:
    """The lines of one family, in the order of the rows; empty when there is none."""
    line, shared, first, rest = template
    lines: list[str] = []
    before: tuple[str, ...] | None = None
    half = ""
    for labels, value in rows:
        if labels[:shared] != before:
            before = labels[:shared]
            half = line % tuple(escape(labels[at]).replace("%", "%%") for at in first)
        lines.append(half % (*[escape(labels[at]) for at in rest], number(value)))
    return "".join(lines).encode("utf-8", errors="replace")


def number(value: float) -> str:
    """A value as Go's Prometheus libraries write it."""
    if -1e6 < value < 1e6:  # where Python writes no exponent that Go writes otherwise
        return repr(value)
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1 << 15)
def escape(value: str) -> str:
    """A label value as it stands between quotes; the same few come again in every line of a node."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
