"""The forms in which commands print: aligned columns for people; JSON, YAML and CSV for programs.

Nothing is coloured: what a terminal shows is what a pipe gets, with or without NO_COLOR.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any


class Form(StrEnum):
    """What -o takes, for every command."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


Output = Form
WIDTH = 120
"""Characters of a line that tables keep to, where names allow it; -o wide does not."""
Row = Mapping[str, Any]


def printed(
    document: Any, form: Form, people: Callable[[bool], str], rows: Sequence[Row], columns: Sequence[str] = ()
) -> str:
    """`document` for programs, `rows` as CSV (with `columns` as header where there are none), else `people(wide)`."""
    if form is Form.JSON:
        return as_json(document)
    if form is Form.YAML:
        return as_yaml(document)
    if form is Form.CSV:
        return as_csv(rows) if rows else ",".join(columns)
    return people(form is Form.WIDE)


def as_json(document: Any) -> str:
    """`document` as indented JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_yaml(document: Any) -> str:
    """`document` as YAML, keys in their order."""
    import yaml  # only here: the other forms start without it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")


def as_csv(rows: Sequence[Row]) -> str:
    """`rows` as CSV under a header; all rows have the keys of the first one. Lists are joined by `; `."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue().rstrip("\n")


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return "; ".join(str(each) for each in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def as_columns(rows: Sequence[Row]) -> str:
    """`rows` in aligned columns under a header in capitals, numbers to the right, as kubectl prints; `-` for None.

    Nothing where there are no rows.
    """
    if not rows:
        return ""
    header = list(rows[0])
    cells = [["-" if row[key] in (None, "") else str(row[key]) for key in header] for row in rows]
    widths = [max(len(title), *(len(line[at]) for line in cells)) for at, title in enumerate(header)]
    numeric = [all(isinstance(row[key], int | float | None) for row in rows) for key in header]
    lines = [[title.upper() for title in header], *cells]
    return "\n".join(
        "   ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )
