"""How often predictions from published rates hold, with whole (model, product) pairs left out.

    python -m benchmarks.predictions [FILE]

FILE has the format of tests/golden/multinode_rows.json, which is read without it. Each step of FILE (two recipes of one
model, or two models of one class) is predicted from what the planner knows without the step's (model, product).
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.plan_sizes import HELD_OUT
from benchmarks.published_rows import GOLDEN, MODELS, read
from benchmarks.published_steps import Evidence, PublishedStep, evidence, published, recipe_book, releases
from precision_operator.planner.rates import laws
from precision_operator.planner.rates.laws import Predicted, RecipeBook, model_band, published_recipes
from precision_operator.planner.rates.published import PublishedModel

OUT = Path(laws.__file__).with_name("recipe_law.json")
APART = 0.10
"""Comparisons whose direction must be decided."""


@dataclass(frozen=True)
class Tried:
    """One published step with its prediction, or why there is none."""

    step: PublishedStep
    kind: str
    what: str
    predicted: Predicted | str

    @property
    def ratio(self) -> float:
        """What was published."""
        return math.exp(self.step.log_ratio)

    @property
    def held(self) -> bool:
        """Whether it lies within the band."""
        return not isinstance(self.predicted, str) and self.predicted.low <= self.ratio <= self.predicted.high

    @property
    def wrong(self) -> bool:
        """Whether the predicted direction is the wrong one."""
        return not isinstance(self.predicted, str) and self.predicted.decided * self.step.log_ratio < 0


@lru_cache(maxsize=256)
def _book(left_out: frozenset[tuple[str, str]]) -> RecipeBook:
    return recipe_book(published().without(left_out))


def tried(path: Path = GOLDEN, way: Literal["pairs", "models", "hold-out"] = "pairs") -> Iterator[Tried]:
    """All steps of a file, each without its (model, product) or whole model; of the hold-out those of its models."""
    rows = evidence(read(path), MODELS)
    products = {row.product for row in read()}
    for step in rows.recipes:
        model = rows.model(step)
        if way == "hold-out" and step.models[0] not in HELD_OUT:
            continue
        without = HELD_OUT if way == "hold-out" else step.models
        every = frozenset((name, product) for name in without for product in products)
        book = _book(step.pairs if way == "pairs" else every)
        yield Tried(step, model.kind, "recipe", book.predicted(model, step.recipes, step.product))
    for step in rows.models:
        first, other = _models(rows, step)
        yield Tried(step, first.kind if first.kind == other.kind else "two classes", "model", model_band(first, other))


def _models(rows: Evidence, step: PublishedStep) -> tuple[PublishedModel, PublishedModel]:
    return rows.described[step.models[0]], rows.described[step.models[1]]


def no_gains(path: Path = GOLDEN) -> Iterator[tuple[Mapping[str, Any], Predicted | str]]:
    """Rows of `low_precision_does_not_help` that name recipes of ours, each with its prediction."""
    for row in json.loads(path.read_text())["low_precision_does_not_help"]["from_rows"]:
        model = MODELS.get(row["model"])
        if model is None:
            continue
        if "rowwise" in row["lower"]:
            yield row, f"{row['lower']} is none of our recipes"
            continue
        book = _book(frozenset({(row["model"], row["product"])}))
        yield row, book.predicted(model, (row["higher"], row["lower"]), row["product"])


def document() -> str:
    """What the planner reads of the law of recipes, and of how far releases lie apart."""
    book = recipe_book(published())
    law = {"gain": book.law.gain, "crossing": book.law.crossing, "slower": book.law.slower}
    whole = {"law": law, "half_width": book.half_width, "known": book.known, "releases": releases(read(), MODELS)}
    return json.dumps(whole, indent=1) + "\n"


def by_kind(steps: Sequence[Tried], way: str) -> None:
    """Prints a table of recipes by class."""
    print(f"\nrecipes, {way} left out")
    print("class                 rows pairs refused in the band   width  10 % apart decided wrong")
    for kind in sorted({attempt.kind for attempt in steps}):
        mine = [attempt for attempt in steps if attempt.kind == kind]
        known = [attempt for attempt in mine if not isinstance(attempt.predicted, str)]
        pairs = {(attempt.step.models[0], attempt.step.product) for attempt in mine}
        widths = [a.predicted.high / a.predicted.low for a in known if not isinstance(a.predicted, str)]
        apart = [attempt for attempt in known if abs(math.expm1(attempt.step.log_ratio)) >= APART]
        decided = [a for a in apart if not isinstance(a.predicted, str) and a.predicted.decided]
        held = sum(attempt.held for attempt in known)
        share = f"{held} ({held / max(len(known), 1):.0%})"
        counts = f"{len(mine):4} {len(pairs):4} {len(mine) - len(known):6}"
        print(
            f"{kind:25} {counts}  {share:11} x {median(widths or [1]):.2f}"
            f" {len(apart):10} {len(decided):8} {sum(a.wrong for a in known):4}"
        )


def main(path: Path) -> int:
    """Prints the tables; 1 where a predicted direction is wrong."""
    steps = [*tried(path)]
    law = published_recipes().law
    print(
        f"gain of FP8: {law.gain:.2f} (1 - {law.crossing:,.0f} / width) as a logarithm; MXFP8 is slower than FP8 with "
        f"one scale by {math.expm1(law.slower):.0%}\n"
    )
    unknown = {raw["model"] for raw in json.loads(path.read_text())["rows"]} - MODELS.keys()
    if unknown:
        print(f"left out, not described in benchmarks/published_rows.py: {', '.join(sorted(unknown))}\n")
    print("step     class                      steps  refused  in the band   half-width")
    for what, kind in sorted({(attempt.what, attempt.kind) for attempt in steps}):
        mine = [attempt for attempt in steps if (attempt.what, attempt.kind) == (what, kind)]
        factors = [attempt.predicted for attempt in mine if not isinstance(attempt.predicted, str)]
        held = sum(attempt.held for attempt in mine)
        widest = max((math.sqrt(attempt.high / attempt.low) for attempt in factors), default=math.nan)
        share = f"{held} ({held / len(factors):.0%})" if factors else "-"
        print(f"{what:8} {kind:26} {len(mine):5}  {len(mine) - len(factors):7}  {share:12}  x {widest:.3f}")
    by_kind([step for step in steps if step.what == "recipe"], "(model, product) pairs")
    for way in ("models", "hold-out"):
        by_kind([step for step in tried(path, way) if step.what == "recipe"], way)
    dense = [s for s in steps if (s.what, s.kind) == ("recipe", "dense") and abs(math.expm1(s.step.log_ratio)) >= APART]
    decided = [s for s in dense if not isinstance(s.predicted, str) and s.predicted.decided]
    wrong = [s for s in steps if s.what == "recipe" and s.wrong]
    print(f"\ndense, recipes at least {APART:.0%} apart: {len(decided)} of {len(dense)} decided")
    print(f"wrong directions (all classes): {len(wrong)}")
    for attempt in wrong:
        step = attempt.step
        print(f"  {step.models[0]} {step.product} {step.recipes} {attempt.ratio:.3f} {attempt.predicted}")
    called = [row for row, found in no_gains(path) if not isinstance(found, str) and found.decided > 0]
    print(f"rows where low precision does not help: {len([*no_gains(path)])}, called a gain: {len(called)}")
    refusals = Counter(attempt.predicted for attempt in steps if isinstance(attempt.predicted, str))
    for why, number in refusals.most_common():
        print(f"refused {number}: {why}")
    return 1 if wrong or called else 0


if __name__ == "__main__":
    if "--write" in sys.argv:
        OUT.write_text(document())
        sys.exit(0)
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN))
