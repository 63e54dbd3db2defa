"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Spread:
    """The value of a row of a summary (`quantile` to value) or of a histogram (`le` to cumulative count)."""

    by: str
    """quantile or le."""
    parts: tuple[tuple[float, float], ...]
    sum: float | None = None
    count: int | None = None


Row = tuple[tuple[str, ...], "float | Spread"]
"""One sample: the values of its labels, in the family's order, and its value."""


@dataclass(frozen=True)
class Sampler:
    """Writes the lines of one family: those of a spread are several, each with a name or label of its own."""

    name: str
    labels: tuple[str, ...]

    def lines(self, rows: Iterable[Row]) -> bytes:
        """The lines of one family and one object; empty when there is no row."""
        return b"".join(self._of(rows))

    def _of(self, rows: Iterable[Row]) -> Iterator[bytes]:
        plain: list[tuple[tuple[str, ...], float]] = []
        for labels, value in rows:
            if isinstance(value, Spread):
                yield from self._spread(labels, value)
            else:
                plain.append((labels, value))
        yield samples(self._template, plain)

    @cached_property
    def _template(self) -> str:
        return sample_template(self.name, self.labels)

    def _spread(self, labels: tuple[str, ...], value: Spread) -> Iterator[bytes]:
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


def sample_template(name: str, labels: Sequence[str]) -> str:
    """A format string for one sample: {0}, {1} ... are escaped label values in the order of `labels`, {v} the value.

    Labels are written in alphabetical order, as prometheus-client does, so that the two outputs can be compared.
    """
    pairs = ",".join(f'{label}="{{{labels.index(label)}}}"' for label in sorted(labels))
    return f"{name}{{{{{pairs}}}}} {{v}}\n"


def samples(template: str, rows: Iterable[tuple[tuple[str, ...], float]]) -> bytes:
    """The lines of one family and one object; empty when there is no row."""
    lines = (template.format(*map(escape, labels), v=number(value)) for labels, value in rows)
    return "".join(lines).encode("utf-8", errors="replace")


def number(value: float) -> str:
    """A value as Go's Prometheus libraries write it."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def escape(value: str) -> str:
    """A label value as it stands between quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
