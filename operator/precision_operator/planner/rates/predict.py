"""A rate that nobody measured, from one that was: another recipe of the same workload, or another model of the class.

What a step is worth, and its band, comes from published pairs (`laws`). One respect at a time: another model in another
recipe is refused, since two steps in a row were never held against anything published.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from precision_api.facts.recipes import Recipe
from precision_api.models.shapes import step_shape_problems
from precision_operator.planner.inputs.fleet import WorkloadFacts
from precision_operator.planner.inputs.workloads import JobWorkload
from precision_operator.planner.rates.laws import MODEL_FACTOR, Predicted, model_band, published_recipes
from precision_operator.planner.rates.published import ModelClass, described

FARTHEST_RATIO: Mapping[ModelClass, float] = {
    "dense": 50.0,
    "mixture of experts": 12.0,
    "hybrid mixture of experts": 12.0,
}
"""FLOPs per token may differ by so much, either way: the farthest published pairs are 8B to 405B (49 x) and Qwen3 30B
to DeepSeek-V3 (11 x)."""
FARTHEST_SEQUENCE = 4.0
UNKNOWN_CLASS: ModelClass = "mixture of experts"
"""Of a job that gives parameters alone: the class with the wider band stands for one that is not known."""


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
    most = FARTHEST_RATIO.get(kind, FARTHEST_RATIO[UNKNOWN_CLASS])
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
