"""Blocks of a page that a command writes between two marks: figures that nobody copies by hand."""

from __future__ import annotations

import re
from pathlib import Path


def marks(command: str) -> tuple[str, str]:
    """The lines before and behind the block that `command` writes."""
    return f"<!-- written by `{command}` -->\n", "<!-- end of what is written -->\n"


def block_of(page: Path, command: str) -> str:
    """What stands in the page's block. Raises ValueError where the page has no such block, or two."""
    begin, end = marks(command)
    found = re.findall(re.escape(begin) + "(.*?)" + re.escape(end), page.read_text(), flags=re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"{page}: {len(found)} blocks begin with {begin.strip()}, one is needed.")
    return str(found[0])


def put(page: Path, command: str, text: str) -> None:
    """Writes the page's block anew. Raises ValueError where the page has no such block, or two."""
    begin, end = marks(command)
    old = begin + block_of(page, command) + end
    page.write_text(page.read_text().replace(old, f"{begin}{text.strip()}\n{end}"))
