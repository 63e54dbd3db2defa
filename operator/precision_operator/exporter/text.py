"""Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format: a family's samples follow its HELP and
TYPE lines without a gap; label values escape backslash, quote and line feed, HELP escapes backslash and line feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Row = tuple[tuple[str, ...], float]
"""One sample: the values of its labels, in the family's order, and its value."""


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


def samples(template: str, rows: Iterable[Row]) -> bytes:
    """The lines of one family and one object; empty when there is no row."""
    lines = (template.format(*map(escape, labels), v=number(value)) for labels, value in rows)
    return "".join(lines).encode("utf-8", errors="replace")


def number(value: float) -> str:
    """A value as Go's Prometheus libraries write it."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def escape(value: str) -> str:
    """A label value as it stands between quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
