"""The columns of a command: one table says what programs and what people get of a row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
OutputRow = Mapping[str, Any]


@dataclass(frozen=True)
class Column(Generic[Item]):
    """One column: `key` names it in JSON and CSV, `header` in tables. Where it has none, it does not stand there."""

    key: str = ""
    value: Callable[[Item], Any] | None = None
    """What programs get of an item; None: the item is a row, and has it under the key."""
    header: str = ""
    cell: Callable[[OutputRow], Any] | None = None
    """What people get of a row; None: what it has under the key, or under the header."""
    wide: bool = False
    """Shown with -o wide alone."""


Columns = Sequence[Column[Item]]


def keys(columns: Columns[Any]) -> tuple[str, ...]:
    """The header of the columns in CSV."""
    return tuple(column.key for column in columns if column.key)


def as_row(columns: Columns[Item], item: Item) -> dict[str, Any]:
    row: Any = item
    return {column.key: column.value(item) if column.value else row[column.key] for column in columns if column.key}


def as_cells(columns: Columns[Any], row: OutputRow, wide: bool = False) -> dict[str, Any]:
    """`row` for people, by header; of two columns with one header the later one says more, and stands for both."""
    shown = [column for column in columns if column.header and (wide or not column.wide)]
    return {c.header: c.cell(row) if c.cell else row[c.key or c.header] for c in shown}


def figure(key: str, form: str, unit: str = "") -> Callable[[OutputRow], str | None]:
    """A cell with the number that a row has under `key`; nothing where it is absent."""
    return lambda row: None if row[key] is None else f"{row[key]:{form}}".rstrip(".") + unit
