"""The page: one HTML document without scripts, fonts or addresses of anything else, for phone, screen and paper."""

from __future__ import annotations

from html import escape

from precision_operator.report.facts import Given, Node
from precision_operator.report.figures import figures
from precision_operator.report.figures.figure import Figure
from precision_operator.report.svg import HATCH
from precision_operator.report.verdict import Said, verdict

NODES_LISTED = 500
"""Rows of the table of nodes: a bound, for a fleet of ten thousand. kubectl precision nodes has all."""
_WHOLE_ROW = ' class="row"'
_MARKS = {"answer": "→", "warning": "!", "note": "·"}
_CSS = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:70rem;font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0}
h2{font-size:1.1rem;margin:0 0 .4rem}
svg text{font-family:system-ui,sans-serif}
svg{display:block;width:100%;height:auto;max-width:32rem}
.mark{background:#b03000;color:#fff;font-weight:700;padding:.4rem .8rem;border-radius:.3rem}
.verdict{list-style:none;padding:0;margin:1rem 0}
.verdict li{padding:.25rem 0 .25rem 1.6rem;position:relative}
.verdict li::before{content:attr(data-mark);position:absolute;left:.2rem;font-weight:700}
.verdict .answer{font-size:1.1rem;font-weight:600}
.verdict .warning::before{color:#b03000}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr));gap:1.2rem;align-items:start}
figure{margin:0;padding:1rem;border:1px solid #d0d0d0;border-radius:.4rem;min-width:0;break-inside:avoid}
.row{grid-column:1/-1}
figcaption{font-size:.85rem;margin-top:.5rem}
.source{color:#595959;font-size:.78rem;margin:.3rem 0 0;overflow-wrap:anywhere}
details{font-size:.85rem;margin-top:.4rem}
summary{cursor:pointer}
@media(max-width:30rem){body{padding:.6rem}figure{padding:.5rem}}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.82rem;width:100%}
th,td{text-align:left;padding:.2rem .5rem;border-bottom:1px solid #d0d0d0;vertical-align:top}
td{font-variant-numeric:tabular-nums}
footer{margin-top:2rem;font-size:.8rem;color:#595959}
@media print{
 body{max-width:none;padding:0;font-size:11pt}
 .figures{display:block}
 figure{margin:0 0 1rem;border:0;padding:0}
 .mark{color:#000;background:#fff;border:2px solid #000}
 details::details-content{content-visibility:visible;display:block}
 summary{list-style:none}
 *{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
"""


def page(given: Given) -> str:
    """The whole document."""
    title = f"{given.subject}: precision report"
    mark = f'<p class="mark">{escape(given.watermark)}</p>' if given.watermark else ""
    said = "".join(map(_sentence, verdict(given)))
    drawn = "".join(map(_figure, figures(given)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n"
        '<link rel="icon" href="data:,">\n</head>\n<body>\n'
        f'<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{HATCH}</defs></svg>\n'
        f"<header>{mark}<h1>{escape(given.subject)}</h1><p>Made {escape(given.made_at)}</p></header>\n"
        f'<main>\n<section aria-label="Verdict"><ul class="verdict">{said}</ul></section>\n'
        f'<section class="figures" aria-label="Figures">\n{drawn}</section>\n{_nodes(given)}\n</main>\n'
        f"<footer>{_footer()}</footer>\n</body>\n</html>\n"
    )


def _sentence(said: Said) -> str:
    return f'<li class="{said.kind}" data-mark="{_MARKS[said.kind]}">{escape(said.text)}</li>'


def _figure(figure: Figure) -> str:
    table = _table(figure.head, figure.rows)
    if figure.svg and table:
        table = f"<details><summary>The same as a table</summary>{table}</details>"
    return (
        f'<figure id="{escape(figure.key)}"{"" if figure.svg else _WHOLE_ROW}><h2>{escape(figure.title)}</h2>'
        f"{figure.svg}<figcaption>{escape(figure.caption)}</figcaption>{table}"
        f'<p class="source">Source: {escape(figure.source)}</p></figure>\n'
    )


def _table(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    if not rows:
        return ""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def _nodes(given: Given) -> str:
    if len(given.nodes) < 2:
        return ""
    head = ("node", "pool", "best", "tokens/J", "data", "driver", "finished", "out of date")
    rows = tuple(map(_node_row, given.nodes[:NODES_LISTED]))
    more = len(given.nodes) - NODES_LISTED
    rest = f", the first {NODES_LISTED}; kubectl precision nodes lists {more} more" if more > 0 else ""
    return f"<details><summary>All {len(given.nodes)} nodes{rest}</summary>{_table(head, rows)}</details>"


def _node_row(node: Node) -> tuple[str, ...]:
    status = node.status
    return (
        node.name,
        node.pool,
        status.best or "–",
        status.tokens_per_joule or "–",
        node.reading.data or "–",
        (status.software.driver if status.software else None) or "–",
        status.run.finished_at if status.run else "–",
        node.stale,
    )


def _footer() -> str:
    return (
        "Speedups are of training, full-depth model, all GPUs of a node at once, without communication between nodes. "
        "A figure that is absent was not measured or does not stand; it is never 0. Tokens per joule are tokens per "
        "second per watt. Written by kubectl precision report; this page loads nothing from anywhere."
    )
