"""One figure: a drawing with its words, its source and the same figures as a table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """`svg` may be empty: then the table alone is shown. `rows` have one cell for each of `head`."""

    key: str
    title: str
    svg: str
    caption: str
    source: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
