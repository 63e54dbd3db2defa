"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """How one sample is written, in two steps: what all rows of an object share is put in once for all of them."""

    line: str
    """With %s for each shared label, and %%s for the others and the sample's own value."""
    shared: tuple[int, ...]
    """The places of the line's shared labels among those that are shared."""
    own: tuple[int, ...]
    """The places of the line's other labels among those of a row."""


def sample_template(name: str, labels: Sequence[str], shared: int = 0) -> Template:
    """How a sample with these labels is written, of which all rows of an object share the first `shared`.

    Labels are written in alphabetical order, as prometheus-client does, so that the two outputs can be compared.
    """
    places = tuple(map(labels.index, sorted(labels)))
    pairs = ",".join(f'{labels[at]}="{"%s" if at < shared else "%%s"}"' for at in places)
    own = tuple(at - shared for at in places if at >= shared)
    return Template(f"{name}{{{pairs}}} %%s\n", tuple(at for at in places if at < shared), own)


def samples(template: Template, rows: Iterable[SampleRow], shared: tuple[str, ...] = ()) -> bytes:
    """The lines of an object's rows, in their order; empty when there is none.

    `shared` are the values of the labels that all of them have, which the rows leave out.
    """
    shown = list(rows)
    if not shown:
        return b""
    line, own = template.line % _in_template(shared, template.shared), template.own
    if not own:
        lines = [line % number(value) for _, value in shown]
    elif len(own) == 1:
        lines = [line % (escape(labels[0]), number(value)) for labels, value in shown]
    else:
        ordered = itemgetter(*own)
        lines = [line % (*map(escape, ordered(labels)), number(value)) for labels, value in shown]
    return "".join(lines).encode("utf-8", errors="replace")


@lru_cache(maxsize=16)
def _in_template(shared: tuple[str, ...], order: tuple[int, ...]) -> tuple[str, ...]:
    """Label values as they stand in a line that is a template still; the same ones in all families of a node."""
    return tuple([escape(shared[at]).replace("%", "%%") for at in order])


def number(value: float) -> str:
    """A value as Go's Prometheus libraries write it."""
    if -1e6 < value < 1e6:  # where Python writes no exponent that Go writes otherwise
        return repr(value)
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1 << 15)
def escape(value: str) -> str:
    """A label value as it stands between quotes; the same few come again in every line of a node."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
