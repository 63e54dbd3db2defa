"""The forms in which commands print: aligned columns for people; JSON, YAML and CSV for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Output(StrEnum):
    """What -o takes where all four forms make sense."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


def as_json(document: Any) -> str:
    """`document` as indented JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_yaml(document: Any) -> str:
    """`document` as YAML, keys in their order."""
    import yaml  # only here: the other forms start without it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """`rows` as CSV under a header; all rows have the keys of the first one."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def as_columns(rows: Sequence[Mapping[str, Any]]) -> str:
    """`rows` in aligned columns under a header in capitals, numbers to the right, as kubectl prints."""
    header = list(rows[0])
    cells = [[str(row[key]) for key in header] for row in rows]
    widths = [max(len(title), *(len(line[at]) for line in cells)) for at, title in enumerate(header)]
    numeric = [all(isinstance(row[key], int | float) for row in rows) for key in header]
    lines = [[title.upper() for title in header], *cells]
    return "\n".join(
        "   ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )
