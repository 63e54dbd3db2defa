"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PLAIN = 1e6
"""Below this, Python writes no exponent that Go writes otherwise."""

SampleRow = tuple[tuple[str, ...], float]
"""One sample: the values of its labels, in the family's order, and its value."""


def header(name: str, help_text: str, kind: str) -> bytes:
    """The HELP and TYPE lines of a family."""
    escaped = help_text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n".encode()


class Template(NamedTuple):
    """How one sample is written, in two steps: labels that come again in every object are put in once for all."""

    line: str
    """With %s for each label of a row, and %%s for the shared labels and the sample's value."""
    shared: tuple[int, ...]
    """The places of the line's shared labels among those that are shared."""
    unshared: tuple[int, ...]
    """The places of the line's other labels among those of a row."""


def sample_template(name: str, labels: Sequence[str], shared: int = 0) -> Template:
    """How a sample with these labels is written, of which all rows of an object share the first `shared`.

    Labels are written in alphabetical order, as prometheus-client does, so that the two outputs can be compared.
    """
    places = tuple(map(labels.index, sorted(labels)))
    pairs = ",".join(f'{labels[at]}="{"%%s" if at < shared else "%s"}"' for at in places)
    unshared = tuple(at - shared for at in places if at >= shared)
    return Template(f"{name}{{{pairs}}} %%s\n", tuple(at for at in places if at < shared), unshared)


def samples(template: Template, rows: Iterable[SampleRow], shared: tuple[str, ...] = ()) -> bytes:
    """The lines of an object's rows, in their order; empty when there is none.

    `shared` are the values of the labels that all of them have, which the rows leave out.
    """
    shown = list(rows)
    if not shown:
        return b""
    # A single row's labels, such as the UUID of a GPU, may be those of one node alone; and many, of a GEMM each, are.
    lines_of = _known_lines if 1 < len(shown) <= 32 or not template.unshared else _lines
    lines = lines_of(template, tuple([labels for labels, _ in shown]))
    values: list[str | float] = [*_escaped(shared, template.shared), 0.0]
    texts = values * len(shown)
    texts[len(values) - 1 :: len(values)] = [value if -_PLAIN < value < _PLAIN else number(value) for _, value in shown]
    return (lines % tuple(texts)).encode("utf-8", errors="replace")


def _lines(template: Template, rows: tuple[tuple[str, ...], ...]) -> str:
    """The lines of rows with these labels, with %s for the shared labels and the values: most nodes have the same."""
    escaped = [[escape(labels[at]).replace("%", "%%") for at in template.unshared] for labels in rows]
    return "".join([template.line % tuple(labels) for labels in escaped])


_known_lines = lru_cache(maxsize=1 << 10)(_lines)


@lru_cache(maxsize=16)
def _escaped(shared: tuple[str, ...], order: tuple[int, ...]) -> tuple[str, ...]:
    """Label values as they stand in a line; the same ones in all families of a node."""
    return tuple([escape(shared[at]) for at in order])


def number(value: float) -> str:
    """A value as Go's Prometheus libraries write it."""
    if -_PLAIN < value < _PLAIN:
        return repr(value)
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1 << 15)
def escape(value: str) -> str:
    """A label value as it stands between quotes; the same few come again in every line of a node."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
