"""One HTML document without scripts, fonts or addresses of anything else: for phone, screen (light, dark) and paper.

What a reader came for stands open at the top; everything else is folded, and unfolds by itself on paper.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from precision_operator.drawing.figure import Figure
from precision_operator.drawing.svg import DARK, LIGHT, PATTERNS

NoticeKind = Literal["answer", "warning", "note"]
_MARKS: dict[NoticeKind, str] = {"answer": "→", "warning": "!", "note": "·"}


@dataclass(frozen=True)
class Notice:
    """One sentence; `kind` decides the mark before it, and whether it is folded: notes are."""

    kind: NoticeKind
    text: str


def _colours(names: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in names.items())


_CSS = f"""
:root{{color-scheme:light dark;{_colours(LIGHT)}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_colours(DARK)}}}}}
"""
_CSS += """
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:72rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink)}
html,body{background:var(--paper)}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:0 0 .4rem}
svg text{font-family:system-ui,sans-serif;paint-order:stroke;stroke:var(--paper);stroke-width:3px}
svg text[transform]{stroke:none}
figure svg{display:block;width:100%;height:auto;max-width:34rem}
figure svg.broad{max-width:none}
.mark{background:var(--fail);color:var(--paper);font-weight:700;padding:.4rem .8rem;border-radius:.3rem}
.first{display:grid;margin-bottom:1rem;grid-template-columns:repeat(auto-fit,minmax(min(24rem,100%),1fr));gap:1.2rem;align-items:start}
.first>*{min-width:0}
.said{list-style:none;padding:0;margin:.4rem 0}
.said li{padding:.25rem 0 .25rem 1.6rem;position:relative;overflow-wrap:anywhere}
.said li::before{content:attr(data-mark);position:absolute;left:.2rem;font-weight:700}
.said .answer{font-size:1.1rem;font-weight:600}
.said .warning::before{color:var(--fail)}
figure{margin:0;padding:1rem;border:1px solid var(--grid);border-radius:.4rem;min-width:0;break-inside:avoid}
figcaption{font-size:.85rem;margin-top:.5rem}
.source{color:var(--faint);font-size:.78rem;margin:.3rem 0 0;overflow-wrap:anywhere}
summary{cursor:pointer}
.fold{border-top:1px solid var(--grid);padding:.5rem 0}
.fold>summary{font-weight:600}
.fold>figure{border:0;padding:.5rem 0 .5rem 1.1rem}
.fold>figure>h2{display:none}
.fold>.wide,.fold>.said{padding-left:1.1rem}
figure details{font-size:.85rem;margin-top:.4rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.82rem;width:100%}
th,td{text-align:left;padding:.2rem .3rem;border-bottom:1px solid var(--grid);vertical-align:top}
td{font-variant-numeric:tabular-nums}
#gpus :is(th,td){white-space:nowrap;font-size:.68rem;padding:.2rem .25rem}
footer{margin-top:2rem;font-size:.8rem;color:var(--faint)}
@media(max-width:30rem){body{padding:.6rem}figure{padding:.5rem}.fold>figure{padding:.5rem 0}}
@media print{
 body{max-width:none;padding:0;font-size:11pt}
 .first{display:block}
 figure{margin:0 0 1rem;border:0;padding:0}
 .mark{color:#000;background:#fff;border:2px solid #000}
 details:not(.screen)::details-content{content-visibility:visible;display:block}
 summary{list-style:none}
 .fold:not(.screen)>summary{display:none}
 .fold>figure>h2{display:block}
 .fold>figure{break-inside:avoid}
 *{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
"""


def document(title: str, parts: Iterable[str], generator: str, footer: str) -> str:
    """The whole document. `parts` are HTML; all else is text, and is escaped here."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n"
        f'<meta name="generator" content="{escape(generator)}">\n<link rel="icon" href="data:,">\n</head>\n<body>\n'
        f'<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{PATTERNS}</defs></svg>\n'
        f"{''.join(parts)}<footer>{escape(footer)}</footer>\n</body>\n</html>\n"
    )


def banner(text: str) -> str:
    """A coloured line over the page; nothing for no text."""
    return f'<p class="mark">{escape(text)}</p>\n' if text else ""


def sentences(said: Iterable[Notice]) -> str:
    """A list of sentences with their marks; nothing for none."""
    lines = "".join(
        f'<li class="{sentence.kind}" data-mark="{_MARKS[sentence.kind]}">{escape(sentence.text)}</li>'
        for sentence in said
    )
    return f'<ul class="said">{lines}</ul>\n' if lines else ""


def figure(shown: Figure) -> str:
    """The figure, open, with its table folded below it."""
    rows = table(shown.head, shown.rows)
    if shown.svg and rows:
        rows = f"<details><summary>The same as a table</summary>{rows}</details>"
    return (
        f'<figure id="{escape(shown.key)}"><h2>{escape(shown.title)}</h2>'
        f"{shown.svg}<figcaption>{escape(shown.caption)}</figcaption>{rows}"
        f'<p class="source">Source: {escape(shown.source)}</p></figure>\n'
    )


def folded(summary: str, inside: str, on_paper: bool = True) -> str:
    """`inside` (HTML), behind its summary; nothing for nothing. `on_paper`: whether it unfolds in print."""
    style = "fold" if on_paper else "fold screen"
    return f'<details class="{style}"><summary>{escape(summary)}</summary>{inside}</details>\n' if inside else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls sideways where it is too wide; nothing for no rows."""
    if not rows:
        return ""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
