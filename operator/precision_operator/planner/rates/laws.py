"""What published pairs say: how much faster another recipe is, and how alike two models of one class are.

**Recipes.** Of a BF16 step a share s is spent in GEMMs that lower precision speeds up; FP8 takes half of it, FP4 a
quarter (Amdahl): time = 1 - s / 2 and 1 - 3 s / 4. MXFP8 takes a little longer than FP8 with one scale. s follows from
the width w of the model's matrices, as the gain of FP8 is L (1 - c / w), never below 0. L and c are fitted to pairs of
dense models, least absolute deviations, each (model, product) once; nothing is fitted to FP4. Mixtures of experts
follow the same law with the width of an expert; how far they lie off it gives their own, wider band.

The band is a tolerance interval: nine in ten of what is to come lie within, were residuals normal (Howe 1969), with
CONFIDENCE; a residual is what a (model, product) is off when all its rows are left out of the fit. It is never narrower
than the worst one.

**Models.** Equal model FLOP/s. What was tried beyond that, a power of the ratio of widths, predicts left-out pairs
worse. The band is MODEL_FACTOR either way; `python -m benchmarks.predictions` counts how many published steps it holds.

**Predictions.** A rate that nobody measured follows from one that was, in one respect at a time: another model in
another recipe is refused, since two steps in a row were never held against anything published.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median

from precision_api.facts.names import grouped
from precision_api.facts.plain_text import three_digits
from precision_api.facts.recipes import RECIPES, Recipe
from precision_api.models.shapes import step_shape_problems
from precision_operator.planner.inputs.fleet import WorkloadFacts
from precision_operator.planner.inputs.workloads import JobWorkload
from precision_operator.planner.rates.published import (
    ModelClass,
    PublishedModel,
    PublishedRow,
    PublishedStep,
    described,
    model_steps,
    published_rows,
    recipe_steps,
)

CONTENT, CONFIDENCE = 0.90, 0.90
MOST_FACTOR: Mapping[ModelClass, float] = {"dense": 1.16, "mixture of experts": 1.40, "hybrid mixture of experts": 1.40}
"""A wider band says too little to plan with: the prediction is refused."""
MODEL_FACTOR: Mapping[ModelClass, float] = {"dense": 1.35, "mixture of experts": 2.2, "hybrid mixture of experts": 2.2}
"""The rate may be so much higher or lower than equal FLOP/s say."""
_GAINS = [step / 100 for step in range(30, 71, 2)]
_CROSSINGS = [100.0 * step for step in range(61)]
_SAVED = {"bf16": 0.0, "fp8": 0.5, "fp4": 0.75}
"""Share of the GEMMs' BF16 time that a recipe saves, by its format, whose's throughput is 1, 2 or 4 x that of BF16."""
FARTHEST_WIDTH = 2.0
"""A recipe is predicted for models up to so much narrower or wider than those of which its format is known."""
FEWEST_PAIRS = 4
"""(model, product) behind a band."""
Pair = tuple[str, str]
"""(model, product)"""
FARTHEST: Mapping[ModelClass, float] = {"dense": 50.0, "mixture of experts": 12.0, "hybrid mixture of experts": 12.0}
"""FLOPs per token may differ by so much, either way: the farthest published pairs are 8B to 405B (49 x) and Qwen3 30B
to DeepSeek-V3 (11 x)."""
FARTHEST_SEQUENCE = 4.0
UNKNOWN_CLASS: ModelClass = "mixture of experts"
"""Of a job that gives parameters alone: the class with the wider band stands for one that is not known."""


@dataclass(frozen=True, slots=True)
class RecipeLaw:
    """`gain`: logarithm of FP8 over BF16 for an endless width; `crossing`: the width below which FP8 gains nothing;
    `slower`: logarithm of FP8 with one scale over MXFP8."""

    gain: float
    crossing: float
    slower: float

    def level(self, recipe: Recipe, width: float) -> float:
        """Logarithm of the rate over that of BF16."""
        share = 2 * (1 - math.exp(-self.gain * max(0.0, 1 - self.crossing / width)))
        return -math.log(1 - _SAVED[RECIPES[recipe].format] * share) - (self.slower if recipe == "mxfp8" else 0.0)

    def ratio(self, recipes: tuple[Recipe, Recipe], width: float) -> float:
        """Logarithm of the second recipe's rate over the first one's."""
        return self.level(recipes[1], width) - self.level(recipes[0], width)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A ratio of rates with the band that is meant to hold nine in ten of what is real."""

    ratio: float
    low: float
    high: float

    @property
    def decided(self) -> int:
        """1 faster, -1 slower, 0 not known: whether the band lies on one side of 1."""
        return (self.low > 1) - (self.high < 1)


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


@dataclass(frozen=True)
class RecipeBook:
    """A fitted law with what it was fitted to, and how far off it is: all that predicting a recipe needs."""

    law: RecipeLaw
    known: Evidence
    misses: Mapping[tuple[bool, Pair], float]
    """Root mean square of the logarithmic residuals, by whether there are experts, and (model, product)."""

    def predicted(self, model: PublishedModel, recipes: tuple[Recipe, Recipe]) -> Predicted | str:
        """The second recipe's rate over the first one's, or why it can't be told."""
        if model.kind not in MOST_FACTOR:
            return f"no pair of recipes is published for a model of this class ({model.kind})"
        for recipe in recipes:
            problem = self._unknown(model, recipe)
            if problem:
                return problem
        misses = [miss for (experts, _), miss in self.misses.items() if experts == _has_experts(model.kind)]
        if len(misses) < FEWEST_PAIRS:
            return f"only {len(misses)} published pairs of models of this class are known: at least {FEWEST_PAIRS}"
        spread = math.sqrt(fmean(miss * miss for miss in misses))
        half_width = max(spread * tolerance(len(misses)), *misses)
        if half_width > math.log(MOST_FACTOR[model.kind]):
            return f"published pairs lie too far apart (a factor of {math.exp(half_width):.2f} either way)"
        return _banded(self.law.ratio(recipes, model.width), half_width)

    def _unknown(self, model: PublishedModel, recipe: Recipe) -> str:
        """Why nothing is known of `recipe` for models like this one; empty where something is."""
        reached = self._reached(model)
        widths = [
            self._reached(self.known.model(step))
            for step in self.known.recipes
            if _has_experts(self.known.model(step).kind) == _has_experts(model.kind)
            and RECIPES[recipe].format in [RECIPES[measured].format for measured in step.recipes]
        ]
        if not widths:
            return f"no published pair tells what {recipe} gains on a model of this class ({model.kind})"
        nearest = min(widths, key=lambda width: abs(math.log(width / reached)))
        if max(nearest / reached, reached / nearest) <= FARTHEST_WIDTH:
            return ""
        wide = "narrow" if reached < nearest else "wide"
        return (
            f"no published pair tells what {recipe} gains on a model this {wide} (its matrices measure "
            f"{three_digits(model.width)}; the nearest that is known {three_digits(nearest)})"
        )

    def _reached(self, model: PublishedModel) -> float:
        """Below the crossing no width gains anything: there they are all alike."""
        return max(model.width, self.law.crossing)


def recipe_book(published_steps: Evidence) -> RecipeBook:
    """The law of this evidence and its misses, each (model, product) left out once."""
    by_pair: dict[tuple[bool, Pair], list[float]] = {}
    laws: dict[frozenset[Pair], RecipeLaw] = {}
    for step in published_steps.recipes:
        model, pair = published_steps.model(step), (step.models[0], step.product)
        if step.pairs not in laws:
            laws[step.pairs] = fitted(published_steps.without(step.pairs))
        miss = step.log_ratio - laws[step.pairs].ratio(step.recipes, model.width)
        by_pair.setdefault((_has_experts(model.kind), pair), []).append(miss)
    misses = {key: math.sqrt(fmean(miss * miss for miss in values)) for key, values in by_pair.items()}
    return RecipeBook(fitted(published_steps), published_steps, misses)


@lru_cache(maxsize=1)
def published_recipes() -> RecipeBook:
    """The law of the published rows of this package."""
    return recipe_book(published())


def fitted(published_steps: Evidence) -> RecipeLaw:
    """The law of these steps between recipes, dense models alone."""
    points = _points(published_steps)
    first: Recipe = "bf16"
    gains = [(width, value) for recipes, width, value in points if recipes == (first, "fp8_current")]
    _, gain, crossing = min(
        (sum(abs(value - gain * max(0.0, 1 - crossing / width)) for width, value in gains), gain, crossing)
        for gain, crossing in itertools.product(_GAINS, _CROSSINGS)
    )
    law = RecipeLaw(gain, crossing, 0.0)
    slower = [law.ratio(recipes, width) - value for recipes, width, value in points if recipes[1] == "mxfp8"]
    return RecipeLaw(gain, crossing, median(slower) if slower else 0.0)


def _points(published_steps: Evidence) -> list[tuple[tuple[Recipe, Recipe], float, float]]:
    """(recipes, width, median of the logarithmic ratios) of each dense (model, product)."""
    ratios = grouped(
        ((step.models[0], step.product, step.recipes), step.log_ratio)
        for step in published_steps.recipes
        if not _has_experts(published_steps.model(step).kind) and not step.partly_higher
    )
    return [
        (recipes, published_steps.described[model].width, median(values))
        for (model, _, recipes), values in ratios.items()
    ]


def model_band(first: PublishedModel, second: PublishedModel) -> Predicted | str:
    """What is real over equal FLOP/s, between two models; or why it can't be told: they are of different classes."""
    if first.kind != second.kind:
        return (
            f"one is {_article(first.kind)} and the other {_article(second.kind)}: published pairs of two classes lie "
            "up to seven times apart"
        )
    if first.kind not in MODEL_FACTOR:
        return f"no pair of two models of this class ({first.kind}) is published"
    return _banded(0.0, math.log(MODEL_FACTOR[first.kind]))


def _article(kind: ModelClass) -> str:
    return f"a {kind}" if _has_experts(kind) else "a dense model"


def _has_experts(kind: ModelClass) -> bool:
    return kind != "dense"


def _banded(middle: float, half_width: float) -> Predicted:
    return Predicted(math.exp(middle), math.exp(middle - half_width), math.exp(middle + half_width))


def tolerance(number: int) -> float:
    """Standard deviations to either side that hold CONTENT of a normal law with CONFIDENCE, known by `number` values.

    Howe (1969): z sqrt((n - 1) (1 + 1 / n) / chi2), the chi-squared quantile by Wilson and Hilferty (1931).
    """
    free = number - 1
    z = NormalDist().inv_cdf((1 + CONTENT) / 2)
    tail = NormalDist().inv_cdf(1 - CONFIDENCE)
    quantile = free * (1 - 2 / (9 * free) + tail * math.sqrt(2 / (9 * free))) ** 3
    return z * math.sqrt(free * (1 + 1 / number) / quantile)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Factor from the measured tokens/s to the predicted ones, and the 90 % band of what is real over that."""

    factor: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """High over low."""
        return self.high / self.low


def transfer(measured: WorkloadFacts | JobWorkload, wanted: JobWorkload) -> Transfer | str:
    """How `wanted` follows from `measured` in the same recipe, or why it doesn't."""
    if measured.flops_per_token is None:
        return f"{measured.name} was measured as explicit shapes, which tell nothing of a model"
    band = _class_band(measured, wanted)
    refusal = band if isinstance(band, str) else _too_far(measured, wanted)
    if isinstance(band, str) or refusal:
        return refusal
    return Transfer(measured.flops_per_token / wanted.flops_per_token, band.low, band.high)


def _class_band(measured: WorkloadFacts | JobWorkload, wanted: JobWorkload) -> Predicted | str:
    if measured.model is None or wanted.model is None:
        widest = MODEL_FACTOR[UNKNOWN_CLASS]
        return Predicted(1.0, 1 / widest, widest)
    band = model_band(described(measured.model), described(wanted.model))
    return f"{wanted.name} can't be predicted from {measured.name}: {band}" if isinstance(band, str) else band


def recipe_transfer(wanted: JobWorkload, measured: Recipe, recipe: Recipe) -> Transfer | str:
    """How the rate of `wanted` in `recipe` follows from its rate in `measured`, or why it doesn't."""
    if wanted.model is None:
        return f"{recipe} can't be predicted from {measured}: the job gives no model, so its matrices are not known"
    ratio = published_recipes().predicted(described(wanted.model), (measured, recipe))
    if isinstance(ratio, str):
        return f"{recipe} can't be predicted from {measured}: {ratio}; profile it"
    return Transfer(ratio.ratio, ratio.low / ratio.ratio, ratio.high / ratio.ratio)


def _too_far(measured: WorkloadFacts | JobWorkload, wanted: JobWorkload) -> str:
    """Why a step within the class is larger than any published one; empty where it is not."""
    ratio = wanted.flops_per_token / (measured.flops_per_token or 1.0)
    model = measured.model or wanted.model
    kind = UNKNOWN_CLASS if model is None else described(model).kind
    most = FARTHEST.get(kind, FARTHEST[UNKNOWN_CLASS])
    if max(ratio, 1 / ratio) > most:
        return (
            f"{wanted.name} takes {ratio:.3g} x the FLOPs per token of {measured.name}: too far to predict "
            f"(at most {most:g} x either way)"
        )
    if measured.sequence_length and wanted.sequence_length:
        longer = wanted.sequence_length / measured.sequence_length
        if max(longer, 1 / longer) > FARTHEST_SEQUENCE:
            return f"sequences of {wanted.sequence_length} tokens are too far from {measured.sequence_length}"
    return ""


@lru_cache(maxsize=4096)
def shape_problem(wanted: JobWorkload, recipe: Recipe) -> str:
    """Why the workload's matrices can't be multiplied in `recipe`; empty where they can, or are not known."""
    errors = (problem for problem in step_shape_problems(wanted.gemms, recipe) if problem.severity == "error")
    return next((problem.message for problem in errors), "")
