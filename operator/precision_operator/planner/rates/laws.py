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

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from precision_api.facts.plain_text import three_digits
from precision_api.facts.products import part
from precision_api.facts.recipes import RECIPES, Format, Recipe
from precision_api.models.shapes import step_shape_problems
from precision_operator.planner.inputs.fleet import WorkloadFacts
from precision_operator.planner.inputs.workloads import JobWorkload
from precision_operator.planner.rates.published import ModelClass, PublishedModel, described

MODEL_FACTOR: Mapping[ModelClass, float] = {"dense": 1.35, "mixture of experts": 2.2, "hybrid mixture of experts": 2.2}
"""The rate may be so much higher or lower than equal FLOP/s say."""
ONE_MODEL = 1.35
"""High over low of a format that is known from one model: two products of it say little of the next model."""
_FASTER: Mapping[Format, float] = {"bf16": 1.0, "fp8": 2.0, "fp4": 4.0}
"""Peak over that of BF16, where the product's own is not known."""
FARTHEST_WIDTH = 2.0
"""A recipe is predicted for models up to so much narrower or wider than those of which its format is known."""
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

    def level(self, recipe: Recipe, width: float, product: str) -> float:
        """Logarithm of the rate over that of BF16. GEMMs save what peaks say; of one above 4 x, half of the excess."""
        share = 2 * (1 - math.exp(-self.gain * max(0.0, 1 - self.crossing / width)))
        format_, gpu = RECIPES[recipe].format, part(product)
        faster = (gpu.peaks[format_] or 0.0) / gpu.bf16_flops if gpu else 0.0
        saved = 1 - 1 / (min(faster, 2 * math.sqrt(faster)) or _FASTER[format_])
        return -math.log(1 - saved * share) - (self.slower if recipe == "mxfp8" else 0.0)

    def ratio(self, recipes: tuple[Recipe, Recipe], width: float, product: str) -> float:
        """Logarithm of the second recipe's rate over the first one's."""
        return self.level(recipes[1], width, product) - self.level(recipes[0], width, product)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A ratio of rates with the band that is meant to hold nine in ten of what is real."""

    ratio: float
    low: float
    high: float
    note: str = ""

    @property
    def decided(self) -> int:
        """1 faster, -1 slower, 0 not known: whether the band lies on one side of 1."""
        return (self.low > 1) - (self.high < 1)


class KnownFormat(NamedTuple):
    """A format of which something is published, with the model and how wide its matrices are."""

    kind: str
    format: Format
    model: str
    width: float


@dataclass(frozen=True)
class RecipeBook:
    """A fitted law with what it was fitted to, and how far off it is: all that predicting a recipe needs.

    `half_width`, by kind (dense or experts): of the band's logarithm; a kind of which too little is known has none.
    """

    law: RecipeLaw
    known: tuple[KnownFormat, ...]
    half_width: Mapping[str, float]

    def predicted(self, model: PublishedModel, recipes: tuple[Recipe, Recipe], product: str) -> Predicted | str:
        """The second recipe's rate over the first one's, or why it can't be told."""
        half_width, alone = self.half_width.get(kind_of(model.kind)), []
        if model.kind == "hybrid" or half_width is None:
            return f"too few pairs of recipes are published of models of this class ({model.kind}), or too far apart"
        for recipe in recipes:
            known = [k for k in self.known if (k.kind, k.format) == (kind_of(model.kind), RECIPES[recipe].format)]
            problem = self._unknown(model, recipe, known)
            if problem:
                return problem
            if len({k.model for k in known}) == 1:
                alone.append(f"{recipe} is known from one model alone, {known[0].model}; ")
        half_width = max(half_width, math.log(ONE_MODEL) / 2 if alone else 0.0)
        return _banded(self.law.ratio(recipes, model.width, product), half_width, "".join(alone))

    def _unknown(self, model: PublishedModel, recipe: Recipe, known: list[KnownFormat]) -> str:
        """Why nothing is known of `recipe` for models like this one; empty where something is."""
        if not known:
            return f"no published pair tells what {recipe} gains on a model of this class ({model.kind})"
        # Below the crossing no width gains anything: there they are all alike.
        reached, *widths = (max(width, self.law.crossing) for width in (model.width, *(k.width for k in known)))
        nearest = min(widths, key=lambda width: abs(math.log(width / reached)))
        if max(nearest / reached, reached / nearest) <= FARTHEST_WIDTH:
            return ""
        wide = "narrow" if reached < nearest else "wide"
        return (
            f"no published pair tells what {recipe} gains on a model this {wide} (its matrices measure "
            f"{three_digits(model.width)}; the nearest that is known {three_digits(nearest)})"
        )


@lru_cache(maxsize=1)
def published_recipes() -> RecipeBook:
    """What `python -m benchmarks.predictions --write` fitted to the published rows."""
    data = _written()
    return RecipeBook(RecipeLaw(**data["law"]), tuple(KnownFormat(*row) for row in data["known"]), data["half_width"])


def _written() -> dict[str, Any]:
    written: dict[str, Any] = json.loads(files(__package__).joinpath("recipe_law.json").read_text(encoding="utf-8"))
    return written


@lru_cache(maxsize=64)
def releases_apart(wanted: JobWorkload, distance: int) -> float:
    """What a job's rates differ by, as a factor either way, in software so many releases apart: nine times in ten."""
    by_distance = _written()["releases"][kind_of(described(wanted.model).kind if wanted.model else UNKNOWN_CLASS)]
    return float(by_distance[min(distance, len(by_distance)) - 1])


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
    return f"a {kind}" if kind_of(kind) == "experts" else "a dense model"


def kind_of(kind: ModelClass) -> str:
    return "dense" if kind == "dense" else "experts"


def _banded(middle: float, half_width: float, note: str = "") -> Predicted:
    return Predicted(math.exp(middle), math.exp(middle - half_width), math.exp(middle + half_width), note)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Factor from the measured tokens/s to the predicted ones, and the 90 % band of what is real over that."""

    factor: float
    low: float
    high: float
    note: str = ""

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


def recipe_transfer(wanted: JobWorkload, measured: Recipe, recipe: Recipe, product: str) -> Transfer | str:
    """How the rate of `wanted` in `recipe` follows from its rate in `measured`, or why it doesn't."""
    if wanted.model is None:
        return f"{recipe} can't be predicted from {measured}: the job gives no model, so its matrices are not known"
    ratio = published_recipes().predicted(described(wanted.model), (measured, recipe), product)
    if isinstance(ratio, str):
        return f"{recipe} can't be predicted from {measured}: {ratio}; profile it"
    return Transfer(ratio.ratio, ratio.low / ratio.ratio, ratio.high / ratio.ratio, ratio.note)


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
