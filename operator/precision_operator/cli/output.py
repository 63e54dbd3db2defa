"""The forms in which commands print: aligned columns for people; JSON, YAML and CSV for programs.

Nothing is coloured: what a terminal shows is what a pipe gets, with or without NO_COLOR.
"""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from textwrap import fill
from typing import Any

import typer

from precision_api.facts.names import GROUP
from precision_api.facts.plain_text import one_line, plain
from precision_operator.cli.columns import OutputRow
from precision_operator.cli.terminal import fail


class OutputFormat(StrEnum):
    """What -o takes: the forms of every command that prints a list."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"


FORMS = "|".join(OutputFormat)
"""The forms as help shows them."""


def read_output(text: str) -> OutputFormat:
    """The form that `text` names, for -o. Raises typer.BadParameter with what there is."""
    if text not in tuple(OutputFormat):
        raise typer.BadParameter(f"{text!r} is none of {', '.join(OutputFormat)}")
    return OutputFormat(text)


WIDTH = 120
"""Characters of a line that tables keep to where nobody knows how wide the terminal is; -o wide does not."""
NARROW = 100
"""A terminal with fewer characters a line shows less."""
FORMULA = re.compile(r"[=@+-](?!\d+(\.\d+)?%?$).")
"""What a spreadsheet would take for a formula: as CSV it begins with an apostrophe."""


def terminal_width() -> int:
    """Characters of a line by COLUMNS or the terminal; 0 where neither says, as in a pipe."""
    return shutil.get_terminal_size((0, 0)).columns


def wrapped(text: str, hang: int = 0) -> str:
    """`text` broken between words where the terminal's lines end, further lines begun with `hang` spaces."""
    width = terminal_width()
    fit = partial(fill, width=width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(fit, text.splitlines())) if width > hang else text


def printed(
    document: Any, form: OutputFormat, people: Callable[[bool], str], rows: Sequence[OutputRow], header: Sequence[str]
) -> str:
    """`document` for programs, `rows` as CSV under `header`, else `people(wide)`."""
    for_programs: Mapping[OutputFormat, Callable[[], str]] = {
        OutputFormat.JSON: lambda: as_json(document),
        OutputFormat.YAML: lambda: as_yaml(document),
        OutputFormat.CSV: lambda: as_csv(rows, header),
        OutputFormat.NAME: lambda: as_names(rows),
    }
    return for_programs[form]() if form in for_programs else people(form is OutputFormat.WIDE)


def as_names(rows: Sequence[OutputRow]) -> str:
    """The object of each row as kubectl writes it, TYPE/NAME, each once. Ends the command where rows are of none."""
    names = [name for row in rows if (name := _object_name(row))]
    if rows and not names:
        fail("-o name: this command lists no objects; use table, wide, json, yaml or csv")
    return "\n".join(dict.fromkeys(names))


def _object_name(row: OutputRow) -> str:
    if row.get("node") or row.get("kind") == "node":
        return f"node/{row.get('node') or row['name']}"
    if row.get("kind") == "report":
        return f"nodeprecisionreport.{GROUP}/{row['name']}"
    profile = row.get("profile") or (row.get("name") if row.get("kind") == "profile" else "")
    return f"precisionprofile.{GROUP}/{profile}" if profile else ""


def as_json(document: Any) -> str:
    """`document` as indented JSON; what is not printable is escaped, so that programs read it as it was."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return "".join(sign if sign == "\n" or sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def as_yaml(document: Any) -> str:
    """`document` as YAML, keys in their order."""
    import yaml  # only here: the other forms start without it

    def dumped(every_letter: bool) -> str:
        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=every_letter, width=120)).rstrip("\n")

    text = dumped(True)
    return text if text == plain(text) else dumped(False)


def as_csv(rows: Sequence[OutputRow], header: Sequence[str]) -> str:
    """`rows` as CSV under `header`, the keys of every row. Lists are joined by `; `."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=header, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue().rstrip("\n")


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return _cell("; ".join(str(part) for part in value))
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    text = one_line(value) if isinstance(value, str) else value
    return f"'{text}" if isinstance(text, str) and FORMULA.match(text) else text


def as_columns(
    rows: Sequence[OutputRow], folds: Sequence[str] = (), folds_last: Sequence[str] = (), drops: Sequence[str] = ()
) -> str:
    """`rows` in aligned columns under a header in capitals, numbers to the right, as kubectl prints; `-` for None.

    Where they would be wider than the terminal, cells go on in the next line: those of the columns `folds`, the widest
    first, broken between words and parts of names; where that is not enough, they and those of `folds_last`, which
    people copy, broken anywhere. A terminal of fewer than NARROW characters has no columns `drops`. Nothing where
    there are no rows.
    """
    if not rows:
        return ""
    narrow = bool(folds) and 0 < terminal_width() < NARROW
    gap = "  " if narrow else "   "
    header = [title for title in rows[0] if not (narrow and title in drops)]
    cells = [["-" if row[key] in (None, "") else one_line(str(row[key])) for key in header] for row in rows]
    lines = [[title.upper() for title in header], *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    room = (terminal_width() or WIDTH) - len(gap) * (len(header) - 1)
    places = [header.index(title) for title in folds if title in header]
    parts = {at: [part.rstrip() for line in lines for part in _PARTS.findall(line[at])] for at in places}
    widths = _narrowed(widths, {at: max(map(len, parts[at])) for at in places}, room)
    last = [header.index(title) for title in (*folds, *folds_last) if title in header]
    widths = _narrowed(widths, {at: len(header[at]) for at in last}, room)
    numeric = [all(isinstance(row[key], int | float | None) for row in rows) for key in header]
    # a cell that is too long goes on in the next line
    folded = (piece for line in lines for piece in zip_longest(*map(_pieces, line, widths), fillvalue=""))
    return "\n".join(gap.join(_aligned(piece, widths, numeric)).rstrip() for piece in folded)


_PARTS = re.compile(r"(?:[^-._/ ]|(?<=\d)\.(?=\d))*[-._/ ]*")
"""A word or number, or a part of a name, with what ends it."""


def _narrowed(widths: Sequence[int], least: Mapping[int, int], room: int) -> list[int]:
    """`widths`, those in `least` smaller - the widest first - until they come to `room` or none can give way."""
    narrowed = list(widths)
    for _ in range(sum(widths) - room):
        wide = [at for at in least if narrowed[at] > least[at]]
        if not wide:
            break
        narrowed[max(wide, key=narrowed.__getitem__)] -= 1
    return narrowed


def _pieces(cell: str, width: int) -> list[str]:
    cell = cell.rstrip()
    if len(cell) <= width:
        return [cell]
    pieces = [""]
    for part in _PARTS.findall(cell):
        if len(pieces[-1]) + len(part.rstrip()) > width and pieces[-1]:
            pieces.append("")
        pieces[-1] += part
        while len(pieces[-1].rstrip()) > width:
            pieces[-1:] = [pieces[-1][:width], pieces[-1][width:]]
    return [piece.rstrip() for piece in pieces]


def _aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> Iterator[str]:
    columns = zip(cells, widths, numeric, strict=True)
    return (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns)
