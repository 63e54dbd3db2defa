"""One figure: a drawing with its words, its source and the same figures as a table; and the colours of all.

People with any kind of colour vision tell these apart (Okabe and Ito, 2008). Nothing on the page is told by colour
alone: recipes have their own marker and dash, and their name stands beside.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle

from precision_api.facts.recipes import RECIPE_NAMES, Recipe

_MARKS: tuple[tuple[str, str], ...] = (
    ("#767676", ""),
    ("#0072B2", "6 2"),
    ("#56B4E9", "2 2"),
    ("#009E73", "8 2 2 2"),
    ("#E69F00", "4 4"),
    ("#D55E00", "10 3"),
    ("#CC79A7", "1 3"),
    ("#8C6BB1", "12 2 2 2"),
    ("#44AA99", "3 3"),
    ("#A6761D", "14 3 2 3"),
)
"""Colour and dash of each recipe, in the order of the table of recipes. BF16 is grey: light and dark show it."""


class _Marks(dict[Recipe, str]):
    """By recipe; a mixture has one by the letters of its name."""

    def __init__(self, of: int) -> None:
        super().__init__({recipe: marks[of] for recipe, marks in zip(RECIPE_NAMES, cycle(_MARKS), strict=False)})
        self._of = of

    def __missing__(self, name: Recipe) -> str:
        return _MARKS[1 + sum(name.encode()) % (len(_MARKS) - 1)][self._of]


RECIPE_COLOURS: Mapping[Recipe, str] = _Marks(0)
RECIPE_DASHES: Mapping[Recipe, str] = _Marks(1)
PARTS = ("#0072B2", "#56B4E9", "#E69F00", "#F0E442", "#009E73", "#CC79A7", "#D55E00", "#999999")
"""For the parts of a stack, in their order."""


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
