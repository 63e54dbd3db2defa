"""The page: verdict and main chart at the top, notes, other figures and nodes folded below them."""

from collections.abc import Iterator
from functools import reduce
from html import escape

from precision_api.facts.plain_text import three_digits
from precision_api.facts.recipes import names_of, recipe_name
from precision_operator.core.results.reading import Reading
from precision_operator.drawing.document import banner, document, figure, folded, sentences, table
from precision_operator.report.facts import Given
from precision_operator.report.figures import figures
from precision_operator.report.verdict import verdict

NODES_LISTED = 500
"""Rows of the table of nodes: a bound, for a fleet of ten thousand. kubectl precision nodes has all."""
FOOTER = (
    "Speedups are of training, full-depth model, all GPUs of a node at once, without communication between nodes. "
    "A figure that is absent was not measured or does not stand; it is never 0. Tokens per joule are tokens per "
    "second per watt. Written by kubectl precision report; this page loads nothing from anywhere."
)


def page(facts: Given) -> str:
    return document(f"{facts.subject}: precision report", _named(facts), "kubectl precision report", FOOTER)


def _named(facts: Given) -> Iterator[str]:
    """The page's parts, with each mixture called what its profile calls it, or by its parts too."""
    mixed = names_of(recipe for node in facts.nodes for recipe in node.rows if "." in recipe)
    for part in _parts(facts):
        yield reduce(lambda text, names: text.replace(*names), mixed.items(), part)


def _parts(facts: Given) -> Iterator[str]:
    said, drawn = list(verdict(facts)), list(figures(facts))
    if facts.watermark:
        warned, *said = said
        yield banner(warned.text)
    yield f"<header><h1>{escape(facts.subject)}</h1><p>Made {escape(facts.made_at)}</p></header>\n<main>\n"
    main = "".join(figure(drawing) for drawing in drawn[:1])
    first = sentences(sentence for sentence in said if sentence.kind != "note")
    yield f'<div class="first"><section aria-label="Verdict">{first}</section>{main}</div>\n'
    notes = [sentence for sentence in said if sentence.kind == "note"]
    several = "" if len(notes) == 1 else "s"
    yield folded(f"{len(notes)} note{several} on single recipes and nodes", sentences(notes))
    for drawing in drawn[1:]:
        yield folded(drawing.title, figure(drawing))
    yield _nodes(facts)
    yield "</main>\n"


def _nodes(facts: Given) -> str:
    if len(facts.nodes) < 2:
        return ""
    head = ("node", "pool", "best", "TFLOP/s per GPU", "tokens/J", "data", "driver", "finished", "out of date")
    rows = tuple(map(_node_row, facts.nodes[:NODES_LISTED]))
    more = len(facts.nodes) - NODES_LISTED
    rest = f", the first {NODES_LISTED}; kubectl precision nodes lists {more} more" if more > 0 else ""
    return folded(f"All {len(facts.nodes)} nodes{rest}", table(head, rows), on_paper=False)


def _node_row(node: Reading) -> tuple[str, ...]:
    best = node.rows[node.marks.best] if node.marks.best else None
    title = best and best.title(node.group.baseline, node.timing).replace(recipe_name(best.recipe), best.recipe, 1)
    return (
        node.node,
        node.pool,
        title or "–",
        three_digits(best.teraflops_per_gpu) if best and best.teraflops_per_gpu else "–",
        (best and best.tokens_per_joule_text) or "–",
        node.data or "–",
        node.driver or "–",
        node.finished_at or "–",
        node.stale,
    )
