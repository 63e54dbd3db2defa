"""What docs/security.md claims, and which tests it names."""

from __future__ import annotations

import re

SECTIONS = ("A tenant who writes profiles", "A hostile agent image")
"""Those with a table of claims, each in a row's first cell."""
TEST = re.compile(r"`(tests/[\w/]+\.py)`")


def words(text: str) -> str:
    """The text with single spaces: claims go on in the next line."""
    return " ".join(text.split())


def claims(page: str) -> list[str]:
    """The first cells of the tables of claims, without their heads."""
    cells: list[str] = []
    for section in page.split("\n## "):
        if section.startswith(SECTIONS):
            rows = [line for line in section.splitlines() if line.startswith("|")]
            cells += [row.split("|")[1].strip() for row in rows[2:]]
    return cells


def named_tests(page: str) -> set[str]:
    """The test files that the page names."""
    return set(TEST.findall(page))
