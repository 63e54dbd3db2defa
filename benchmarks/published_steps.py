"""Published training rates in pairs: two recipes of one model, or two models in one recipe, all else being equal.

And the law of recipes that is fitted to them.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from statistics import NormalDist, fmean, median, quantiles

from precision_api.facts.names import grouped
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe
from precision_operator.planner.rates.laws import KnownFormat, RecipeBook, RecipeLaw, kind_of
from precision_operator.planner.rates.published import PublishedModel, PublishedRow, published_rows

LONGEST_SEQUENCE = 8192
"""Of rows that are held against other models: attention takes another share of longer ones."""
Pair = tuple[str, str]
"""(model, product)"""
CONTENT, CONFIDENCE = 0.90, 0.90
MOST_FACTOR = {"dense": 1.16, "experts": 1.40}
"""A wider band says too little to plan with: the prediction is refused."""
FEWEST_PAIRS = 4
"""(model, product) behind a band."""
GAINS = [step / 100 for step in range(30, 71, 2)]
CROSSINGS = [100.0 * step for step in range(61)]


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """Two rows that differ in one respect; `log_ratio`: logarithm of the second one's rate over the first one's."""

    product: str
    models: tuple[str, str]
    recipes: tuple[Recipe, Recipe]
    log_ratio: float
    rows: tuple[str, str]
    partly_higher: bool

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """(model, product): what is left out together."""
        return frozenset((model, self.product) for model in self.models)


def recipe_steps(rows: Iterable[PublishedRow]) -> Iterator[PublishedStep]:
    """Two recipes of one model, on as many GPUs with the same batch; in the order of the table of recipes."""
    alike = attrgetter("model", "product", "gpus", "sequence_length", "global_batch", "release", "setup")
    for first, second in _partners(rows, alike):
        low, high = sorted((first, second), key=lambda row: RECIPE_NAMES.index(row.recipe))
        ratio = _ratio(low, high)
        if low.recipe != high.recipe and ratio is not None:
            yield _step(low, high, ratio)


def model_steps(rows: Iterable[PublishedRow]) -> Iterator[PublishedStep]:
    """Two models in one recipe, by model FLOP/s, whatever their sizes; without recomputation, which costs a third."""
    short = [row for row in rows if row.sequence_length <= LONGEST_SEQUENCE and "recomputation" not in row.setup]
    for first, second in _partners(short, attrgetter("product", "recipe", "release")):
        if first.model != second.model and first.teraflops and second.teraflops:
            low, high = sorted((first, second), key=lambda row: row.model)
            yield _step(low, high, math.log((high.teraflops or 1) / (low.teraflops or 1)))


def _step(low: PublishedRow, high: PublishedRow, log_ratio: float) -> PublishedStep:
    return PublishedStep(
        product=low.product,
        models=(low.model, high.model),
        recipes=(low.recipe, high.recipe),
        log_ratio=log_ratio,
        rows=(low.id, high.id),
        partly_higher=low.partly_higher or high.partly_higher,
    )


def _ratio(low: PublishedRow, high: PublishedRow) -> float | None:
    """TFLOP/s where both have them: tokens/s are rounded in some releases."""
    if low.teraflops and high.teraflops:
        return math.log(high.teraflops / low.teraflops)
    if low.tokens_per_second and high.tokens_per_second:
        return math.log(high.tokens_per_second / low.tokens_per_second)
    return None


def _partners(
    rows: Iterable[PublishedRow], alike: Callable[[PublishedRow], tuple[object, ...]]
) -> Iterator[tuple[PublishedRow, PublishedRow]]:
    for group in grouped((alike(row), row) for row in rows).values():
        yield from itertools.combinations(group, 2)


@dataclass(frozen=True)
class Evidence:
    """Published steps of one kind, with the models that they are of."""

    recipes: tuple[PublishedStep, ...]
    models: tuple[PublishedStep, ...]
    described: Mapping[str, PublishedModel]

    def without(self, left_out: frozenset[Pair]) -> "Evidence":
        """Without all steps of these (model, product)."""
        kept = [tuple(s for s in steps if not s.pairs & left_out) for steps in (self.recipes, self.models)]
        return Evidence(kept[0], kept[1], self.described)

    def model(self, step: PublishedStep) -> PublishedModel:
        """The model of a step between recipes."""
        return self.described[step.models[0]]


def evidence(rows: Sequence[PublishedRow], described: Mapping[str, PublishedModel]) -> Evidence:
    return Evidence(tuple(recipe_steps(rows)), tuple(model_steps(rows)), described)


@lru_cache(maxsize=1)
def published() -> Evidence:
    """What the published rows of this package say."""
    return evidence(*published_rows())


def tolerance(number: int) -> float:
    """Standard deviations to either side that hold CONTENT of a normal law with CONFIDENCE, known by `number` values.

    Howe (1969): z sqrt((n - 1) (1 + 1 / n) / chi2), the chi-squared quantile by Wilson and Hilferty (1931).
    """
    free = number - 1
    z = NormalDist().inv_cdf((1 + CONTENT) / 2)
    tail = NormalDist().inv_cdf(1 - CONFIDENCE)
    quantile = free * (1 - 2 / (9 * free) + tail * math.sqrt(2 / (9 * free))) ** 3
    return z * math.sqrt(free * (1 + 1 / number) / quantile)


def recipe_book(published_steps: Evidence) -> RecipeBook:
    """The law of this evidence and its misses, each (model, product) left out once."""
    by_pair: dict[tuple[str, Pair], list[float]] = {}
    laws: dict[frozenset[Pair], RecipeLaw] = {}
    known: dict[KnownFormat, None] = {}
    for step in published_steps.recipes:
        model, pair = published_steps.model(step), (step.models[0], step.product)
        if step.pairs not in laws:
            laws[step.pairs] = fitted(published_steps.without(step.pairs))
        miss = step.log_ratio - laws[step.pairs].ratio(step.recipes, model.width, step.product)
        by_pair.setdefault((kind_of(model.kind), pair), []).append(miss)
        for recipe in step.recipes:
            known[KnownFormat(kind_of(model.kind), RECIPES[recipe].format, pair[0], round(model.width, 1))] = None
    half_widths = {}
    for kind, of in grouped(
        (kind, math.sqrt(fmean(miss * miss for miss in values))) for (kind, _), values in by_pair.items()
    ).items():
        spread = math.sqrt(fmean(miss * miss for miss in of))
        if len(of) >= FEWEST_PAIRS:
            half_widths[kind] = round(max(spread * tolerance(len(of)), *of), 6)
    kept = {kind: half for kind, half in half_widths.items() if half <= math.log(MOST_FACTOR[kind])}
    return RecipeBook(fitted(published_steps), tuple(known), kept)


def fitted(published_steps: Evidence) -> RecipeLaw:
    """The law of these steps between recipes, dense models alone."""
    points = _points(published_steps)
    first: Recipe = "bf16"
    gains = [(width, value) for recipes, width, value, _ in points if recipes == (first, "fp8_current")]
    _, gain, crossing = min(
        (sum(abs(value - gain * max(0.0, 1 - crossing / width)) for width, value in gains), gain, crossing)
        for gain, crossing in itertools.product(GAINS, CROSSINGS)
    )
    law = RecipeLaw(gain, crossing, 0.0)
    slower = [law.ratio(recipes, width, at) - value for recipes, width, value, at in points if recipes[1] == "mxfp8"]
    return RecipeLaw(gain, crossing, round(median(slower), 6) if slower else 0.0)


def _points(published_steps: Evidence) -> list[tuple[tuple[Recipe, Recipe], float, float, str]]:
    """(recipes, width, median of the logarithmic ratios, product) of each dense (model, product)."""
    ratios = grouped(
        ((step.models[0], step.product, step.recipes), step.log_ratio)
        for step in published_steps.recipes
        if kind_of(published_steps.model(step).kind) == "dense" and not step.partly_higher
    )
    return [
        (recipes, published_steps.described[model].width, median(values), product)
        for (model, product, recipes), values in ratios.items()
    ]


DISTANCES, FEWEST = 3, 20
"""Releases apart that are told apart, the last one and above it; of fewer pairs the worst stands for the quantile."""


def releases(rows: Sequence[PublishedRow], described: Mapping[str, PublishedModel]) -> dict[str, list[float]]:
    """By kind and distance what a job's rates differ by, as a factor, between releases of Megatron-Bridge: nine in ten.

    Of fewer than FEWEST pairs the largest.
    """
    mine = [row for row in rows if row.release.startswith("mb-") and row.global_batch]
    order = sorted({_release(row) for row in mine})
    alike = attrgetter("model", "product", "gpus", "recipe", "sequence_length", "global_batch", "setup")
    apart: dict[tuple[str, int], list[float]] = {}
    for first, second in _partners(mine, alike):
        distance, ratio = abs(order.index(_release(second)) - order.index(_release(first))), _ratio(first, second)
        if distance and ratio is not None:
            kind = kind_of(described[first.model].kind)
            apart.setdefault((kind, min(distance, DISTANCES)), []).append(math.exp(abs(ratio)))
    ends = {
        key: max(of) if len(of) < FEWEST else quantiles(of, n=10, method="inclusive")[-1] for key, of in apart.items()
    }
    return {kind: [round(ends[kind, n], 3) for n in range(1, DISTANCES + 1)] for kind in ("dense", "experts")}


def _release(row: PublishedRow) -> str:
    return row.release.partition(", ")[2]
