"""One HTML document without scripts, fonts or addresses of anything else: for phone, screen (light, dark) and paper.

What a reader came for stands open at the top; everything else is folded, and unfolds by itself on paper.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
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
_CSS += "\n" + files(__package__).joinpath("document.css").read_text(encoding="utf-8")


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
