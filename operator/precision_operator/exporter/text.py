"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
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
    """How one sample is written."""

    line: str
    """With %s for each label's value and the sample's own."""
    pick: Callable[[tuple[str, ...]], tuple[str, ...]]
    """Puts the label values of a row in the order in which they stand in the line."""


def sample_template(name: str, labels: Sequence[str]) -> Template:
    """How a sample with these labels is written.

    Labels are written in alphabetical order, as prometheus-client does, so that the two outputs can be compared.
    """
    ordered = sorted(labels)
    pairs = ",".join(f'{label}="%s"' for label in ordered)
    places = tuple(map(labels.index, ordered))
    return Template(f"{name}{{{pairs}}} %s\n", itemgetter(*places) if len(places) > 1 else tuple)


def samples(template: Template, rows: Iterable[SampleRow]) -> bytes:
    """The lines of one family, in the order of the rows; empty when there is none."""
    line, pick = template
    lines = [line % (*map(escape, pick(labels)), number(value)) for labels, value in rows]
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
