"""What a decision is made of: what a reference knows, what a run showed, and what follows. Plain frozen values."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from precision_api.exchange.result import Verdict as Kernels
from precision_api.facts.recipes import Recipe

Outcome = Literal["Pass", "Fail", "Inconclusive"]
Check = Literal["reference", "node", "change"]
"""The node against the reference; each GPU against the node's others; each GPU against its own first Pass."""
UNHEALTHY = {
    "ecc_uncorrectable": "UncorrectableECC",
    "row_remap_pending": "RowRemapPending",
    "row_remap_failed": "RowRemapFailed",
}
"""Verdict's reason by the word of an agent that refused to run on a GPU."""
Finite = Annotated[float, Field(ge=-1e6, le=1e6)]
Scale = Annotated[float, Field(ge=0, le=1e6)]
Speeds = Mapping[str, float]
"""100 ln(tokens/s) by GPU (UUID): differences are what is judged, in hundredths of a natural logarithm."""
Kind = tuple[Kernels, int | None, int | None]
"""How a recipe ran: what its kernels proved, the last layers that stayed in BF16, the layers that were measured."""


def percent(difference: float) -> float:
    """What people read: a difference of speeds, or a limit below 0, in per cent of what is expected (-22.7: -20.3)."""
    return 100 * math.expm1(min(difference / 100, 9))


def logs(per_cent: float) -> float:
    """The difference of speeds that people know as so much per cent: `percent` the other way round."""
    return 100 * math.log1p(max(per_cent, -99.99) / 100)


@dataclass(frozen=True, slots=True)
class Golden:
    """What a reference knows of one recipe; scales in per cent, None where too few ran."""

    level: Finite  # 100 ln(tokens/s) of one GPU
    between: Scale | None  # standard deviation of node medians
    within: Scale | None  # scale of how far a GPU lies from its node's others
    change: Scale | None  # scale of how far that moves between two days
    nodes: PositiveInt
    again: NonNegativeInt  # nodes that ran on two days
    gpus: PositiveInt
    kernels: Kernels = "verified"  # what they proved
    last_layers_bf16: int | None = None
    layers_measured: int | None = None

    def is_beyond(self, speeds: Speeds) -> bool:
        """Whether any is more than twice the level, as no GPU of the kind is: deficits alone are judged below that."""
        return max(speeds.values(), default=0) > self.level + 100 * math.log(2)


@dataclass(frozen=True, slots=True)
class GoldenNode:
    """A node's newest measurement, and the one of another day before it: speeds by recipe in the order of its GPUs."""

    gpus: tuple[str, ...]
    speeds: Mapping[Recipe, tuple[float, ...]]
    before: Mapping[Recipe, tuple[float, ...]] = field(default_factory=dict)
    ended: str = ""  # when the newest did

    def by_gpu(self, speeds: tuple[float, ...]) -> Speeds:
        """Its speeds with their GPUs."""
        return dict(zip(self.gpus, speeds, strict=True))


@dataclass(frozen=True, slots=True)
class Look:
    """One run: speeds by recipe, or the reason why a recipe can't be judged."""

    speeds: Mapping[Recipe, Speeds]
    troubles: Mapping[Recipe, str] = field(default_factory=dict)
    throttled: Mapping[Recipe, float] = field(default_factory=dict)
    """Share of the time (0 to 1) that recipes ran throttled, by heat or the power brake."""

    def is_hot(self, recipe: Recipe, rows: "Sequence[Row]") -> bool:
        """Whether heat explains all of its `rows` that don't pass: ten times its share of the time, at most."""
        most = 10 * 100 * self.throttled.get(recipe, 0)
        return most > 0 and all(it.outcome == "Pass" or -it.off <= most for it in rows if it.recipe == recipe)


@dataclass(frozen=True, slots=True)
class Limits:
    """Per cent below what is expected: at or beyond `fail` a check fails, up to `passes` it passes."""

    fail: float
    passes: float
    detect: float  # the deficit that passes in one of 200 looks at most
    least: float  # the smallest that the reference can promise to find
    clear: float  # the smallest at which no healthy node is left undecided


NO_LIMITS = Limits(math.inf, -math.inf, math.inf, math.inf, math.inf)
"""Of a check that the reference can't promise anything by."""


@dataclass(frozen=True, slots=True)
class Row:
    """One check of one recipe, of one GPU (empty: of the node): per cent off, its limits, its outcome."""

    check: Check
    recipe: Recipe
    gpu: str
    off: float
    limits: Limits
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer on a node, its rows the worst first; `again`: one more run of the same timing may end the doubt."""

    outcome: Outcome
    reason: str
    rows: tuple[Row, ...] = ()
    again: bool = False

    def doubting(self, once: Collection[tuple[Recipe, str]]) -> "Verdict":
        """With what fails by one run, by recipe and GPU, in doubt and behind the others that fail."""
        fails = [row for row in self.rows if row.outcome == "Fail"]
        doubts = [replace(row, outcome="Inconclusive") for row in fails if (row.recipe, row.gpu) in once]
        sure = [row for row in fails if (row.recipe, row.gpu) not in once]
        return replace(self, rows=(*sure, *doubts, *self.rows[len(fails) :]))
