"""The table of outcomes in docs/security.md, and what of the page needs a control."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tests.security.controls.control import Control

BEGIN, END = "<!-- controls: begin -->", "<!-- controls: end -->"
HEAD = (
    "| taken out, one at a time | the claim | tests that fail then, of | when, on which commit |",
    "|---|---|---|---|",
)
NOT_SHOWN = "Not shown so far: "
"""Before the names of controls without an outcome."""
SECTIONS = ("A tenant who writes profiles", "A hostile agent image")
"""Those with a table of claims, each in a row's first cell."""
TEST = re.compile(r"`(tests/[\w/]+\.py)`")


def words(text: str) -> str:
    """The text with single spaces: claims go on in the next line."""
    return " ".join(text.split())


def claims(page: str) -> list[str]:
    """The first cells of the tables of claims, without their heads."""
    found: list[str] = []
    for section in page.split("\n## "):
        if section.startswith(SECTIONS):
            rows = [line for line in section.splitlines() if line.startswith("|")]
            found += [row.split("|")[1].strip() for row in rows[2:]]
    return found


def named_tests(page: str) -> set[str]:
    """The test files that the page names before its table of controls."""
    return set(TEST.findall(page.partition(BEGIN)[0]))


def rows_of(page: str) -> dict[str, str]:
    """The rows of the table of outcomes by their first cells."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][len(HEAD) :]
    return {line.split("|")[1].strip(): line for line in lines}


def row(control: Control, failed: int, when: str) -> str:
    """A control's row after its tests failed, `failed` of them with all their parameters."""
    tests = dict.fromkeys(test.partition("::")[0] for test in control.tests)
    where = ", ".join(f"`{file}`" for file in tests)
    return f"| {first_cell(control)} | {control.claim} | {failed} of {where} | {when} |"


def first_cell(control: Control) -> str:
    """By which a control's row is found again."""
    return f"{control.name}: {control.without}"


def with_outcomes(page: str, controls: Sequence[Control], told: Mapping[str, str]) -> str:
    """The page with the rows `told`, by first cell, in place of those that it had; rows of no control are left out."""
    kept = {**rows_of(page), **told}
    lacking = [control.name for control in controls if first_cell(control) not in kept]
    note = f"\n\n{NOT_SHOWN}{'; '.join(lacking)}." if lacking else ""
    table = "\n".join((*HEAD, *_in_order(controls, kept))) + note
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def _in_order(controls: Sequence[Control], rows: Mapping[str, str]) -> Iterator[str]:
    return (rows[first_cell(control)] for control in controls if first_cell(control) in rows)
