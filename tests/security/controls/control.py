"""What a control is: the claim, the protection that is taken out, and the tests that must fail then."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

ROOT = Path(__file__).parents[3]
STRICT = ConfigDict(extra="forbid")

Needs = Literal["nothing", "cluster", "node"]
"""What the tests run on: nothing but Python and Helm, the lab's control plane, the lab's real nodes."""
NEEDS: tuple[Needs, ...] = get_args(Needs)


RULE = "no claim"
"""In place of a claim, of a rule that the fast tests hold and docs/security.md does not claim."""


@dataclass(frozen=True, config=STRICT)
class Change:
    """In the file at `path`, `old`, which stands there once, becomes `new`; without `new` it is left out."""

    path: str
    old: str
    new: str = ""

    def applied(self, tree: Path) -> str:
        """The file's text after the change. Raises ValueError unless `old` stands in it exactly once."""
        text = (tree / self.path).read_text(encoding="utf-8")
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self.path} has {self.old!r} {times} times instead of once: correct the control")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, config=STRICT)
class Control:
    """One protection that is taken out."""

    claim: str
    """Words of docs/security.md: the first cell of a row, or a sentence; of a rule that is no claim, RULE."""
    without: str
    """What is missing then, by which the control is called."""
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    """Node IDs of pytest; without brackets, all parameters of a test. At least one test of each must fail."""
    needs: Needs = "nothing"
    raised: str = ""
    """An exception that the protection keeps from its callers: without it a test may also end by this one."""
