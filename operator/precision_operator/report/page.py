"""The page: verdict and main chart at the top, notes, other figures and nodes folded below them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from precision_operator.core.results.reading import driver_of
from precision_operator.drawing.document import Said, banner, document, figure, folded, sentences, table
from precision_operator.report.facts import Given, Node
from precision_operator.report.figures import figures
from precision_operator.report.verdict import verdict

NODES_LISTED = 500
"""Rows of the table of nodes: a bound, for a fleet of ten thousand. kubectl precision nodes has all."""
FOOTER = (
    "Speedups are of training, full-depth model, all GPUs of a node at once, without communication between nodes. "
    "A figure that is absent was not measured or does not stand; it is never 0. Tokens per joule are tokens per "
    "second per watt. Written by kubectl precision report; this page loads nothing from anywhere."
)


def page(given: Given) -> str:
    """The whole document."""
    return document(f"{given.subject}: precision report", _parts(given), "kubectl precision report", FOOTER)


def _parts(given: Given) -> Iterator[str]:
    said, drawn = list(verdict(given)), list(figures(given))
    if given.watermark:
        warned, *said = said
        yield banner(warned.text)
    yield f"<header><h1>{escape(given.subject)}</h1><p>Made {escape(given.made_at)}</p></header>\n<main>\n"
    main = "".join(figure(each) for each in drawn[:1])
    first = sentences(one for one in said if one.kind != "note")
    yield f'<div class="first"><section aria-label="Verdict">{first}</section>{main}</div>\n'
    notes = [one for one in said if one.kind == "note"]
    yield folded(_notes_summary(notes), sentences(notes))
    for each in drawn[1:]:
        yield folded(each.title, figure(each))
    yield _nodes(given)
    yield "</main>\n"


def _notes_summary(notes: list[Said]) -> str:
    return f"{len(notes)} note{'' if len(notes) == 1 else 's'} on single recipes and nodes"


def _nodes(given: Given) -> str:
    if len(given.nodes) < 2:
        return ""
    head = ("node", "pool", "best", "tokens/J", "data", "driver", "finished", "out of date")
    rows = tuple(map(_node_row, given.nodes[:NODES_LISTED]))
    more = len(given.nodes) - NODES_LISTED
    rest = f", the first {NODES_LISTED}; kubectl precision nodes lists {more} more" if more > 0 else ""
    return folded(f"All {len(given.nodes)} nodes{rest}", table(head, rows), on_paper=False)


def _node_row(node: Node) -> tuple[str, ...]:
    status = node.status
    return (
        node.name,
        node.pool,
        status.best or "–",
        status.tokens_per_joule or "–",
        node.reading.data or "–",
        driver_of(status) or "–",
        status.run.finished_at if status.run else "–",
        node.stale,
    )
