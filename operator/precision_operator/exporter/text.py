"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Distribution:
    """The value of a row of a summary (`quantile` to value) or of a histogram (`le` to cumulative count)."""

    by: str
    """quantile or le."""
    parts: tuple[tuple[float, float], ...]
    sum: float | None = None
    count: int | None = None


SampleRow = tuple[tuple[str, ...], "float | Distribution"]
"""One sample: the values of its labels, in the family's order, and its value."""


@dataclass(frozen=True)
class Sampler:
    """Writes the lines of one family: those of a spread are several, each with a name or label of its own."""

    name: str
    labels: tuple[str, ...]

    def lines(self, rows: Iterable[SampleRow]) -> bytes:
        """The lines of one family and one object; empty when there is no row."""
        return b"".join(self._of(rows))

    def _of(self, rows: Iterable[SampleRow]) -> Iterator[bytes]:
        plain: list[tuple[tuple[str, ...], float]] = []
        for labels, value in rows:
            if isinstance(value, Distribution):
                yield from self._spread(labels, value)
            else:
                plain.append((labels, value))
        yield samples(self._template, plain)

    @cached_property
    def _template(self) -> Template:
        return sample_template(self.name, self.labels)

    def _spread(self, labels: tuple[str, ...], value: Distribution) -> Iterator[bytes]:
        name = f"{self.name}_bucket" if value.by == "le" else self.name
        parts = [((*labels, number(bound)), found) for bound, found in value.parts]
        yield samples(sample_template(name, (*self.labels, value.by)), parts)
        for suffix, total in (("sum", value.sum), ("count", value.count)):
            if total is not None:
                yield samples(sample_template(f"{self.name}_{suffix}", self.labels), [(labels, float(total))])


def header(name: str, help_text: str, kind: str) -> bytes:
    """The HELP and TYPE lines of a family."""
    told = help_text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {told}\n# TYPE {name} {kind}\n".encode()


class Template(NamedTuple):
    """How one sample is written."""

    line: str
    """With %s for each label's value and the sample's own."""
    order: tuple[int, ...]
    """The places of the label values in a row, as they stand in the line."""


def sample_template(name: str, labels: Sequence[str]) -> Template:
    """How a sample with these labels is written.

    Labels are written in alphabetical order, as prometheus-client does, so that the two outputs can be compared.
    """
    ordered = sorted(labels)
    pairs = ",".join(f'{label}="%s"' for label in ordered)
    return Template(f"{name}{{{pairs}}} %s\n", tuple(map(labels.index, ordered)))


def samples(template: Template, rows: Iterable[tuple[tuple[str, ...], float]]) -> bytes:
    """The lines of one family, in the order of the rows; empty when there is none."""
    line, order = template
    lines = [line % (*[escape(labels[at]) for at in order], number(value)) for labels, value in rows]
    return "".join(lines).encode("utf-8", errors="replace")


def number(value: float) -> str:
    """A value as Go's Prometheus libraries write it."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1 << 15)
def escape(value: str) -> str:
    """A label value as it stands between quotes; the same few come again in every line of a node."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
