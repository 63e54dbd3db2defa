"""Untrusted text as plain words: nothing in it moves a terminal's cursor, hides, or runs backwards. Pure.

Whoever can run code on a node writes the agent's message and its log; they end in reports, events, logs and terminals.
"""

import math
import re
from collections.abc import Sequence

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
"""What colours a terminal, moves its cursor or names its window (ECMA-48)."""
_BLANKS = re.compile(r"\s+")


def plain(text: str) -> str:
    """Printable characters and line ends alone: other white space is a space, all else is left out."""
    return text if text.isprintable() else "".join(_shown(sign) for sign in uncontrolled(text))


def uncontrolled(text: str) -> str:
    """Without the sequences that control a terminal; single control characters stay."""
    return _TERMINAL.sub("", text)


def _shown(sign: str) -> str:
    if sign == "\n" or sign.isprintable():
        return sign
    return " " if sign.isspace() else ""


def shortened(text: str, limit: int) -> str:
    """`text`, or as many of its words as `limit` characters hold with ` ...` behind them; a single word that is too
    long is cut in itself."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 3]  # its last word may go on
    return f"{cut.rpartition(' ')[0].rstrip() or cut[:-1]} ..."


def three_digits(value: float) -> str:
    """A figure for sentences, thousands with commas: `1.6`, `812`, `121,000`."""
    return f"{float(f'{value:.3g}'):,.15g}"


def digits(value: float, count: int = 4) -> str:
    """A figure for tables, of `count` digits, zeros among them: `13,060`, `152.0`, `1.180`."""
    value = float(f"{value:.{count}g}")
    return f"{value:,.{max(0, count - 1 - math.floor(math.log10(abs(value)))) if value else 0}f}"


def number_of(count: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_of(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """`a, b and 3 more`: the first of these names, and how many others there are."""
    others = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + others


def one_line(text: str) -> str:
    """The same on one line, single spaces between its words."""
    return _BLANKS.sub(" ", plain(text)).strip()
