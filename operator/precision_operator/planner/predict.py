"""A workload that nobody measured, from one that was: equal model FLOP/s (equal MFU), shifted, and with a band.

Equal MFU is biased: a larger model reaches more of the peak, since its matrices are larger. Known of the errors, from
one published release of training rates, 70B to 405B (5.6 x the FLOPs per token), are two ranges (KNOWN_ERRORS, at most
seven pairs: product x recipe; the pairs themselves are not in this repository): 8-14 % low in most, 23-26 % low once,
never high. The prediction is shifted by the median error, as a power of the ratio of FLOPs per token, and its band ends
a margin beyond the extremes of the ranges (`fitted`). The band is called an 80 % band: left out of the fit, six of
seven lie within (86 %; the one that stands alone does not), and the extremes of seven alone promise 6 / 8. More rows
may narrow it or prove it wrong: nothing was fitted to rows that are not named here. Smaller models are the mirror
image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from precision_api.recipes import Recipe
from precision_api.shapes import Gemm, step_shape_problems
from precision_api.workload import ModelSpec
from precision_operator.planner.fleet import WorkloadFacts

KNOWN_RATIO = 5.6
"""FLOPs per token of Llama 3.1 405B over 70B at 8,192 tokens: where the errors are known."""
KNOWN_ERRORS: tuple[tuple[float, float, int], ...] = ((0.08, 0.14, 6), (0.23, 0.26, 1))
"""(least, most, number of pairs) by which equal MFU is low, relative to what is real.

docs/planner.md, "Workloads that were not measured". The ranges are known; the numbers are not ("most", "once"): seven
is the number of published rows of 405B."""
COVERAGE = 0.80
"""How often a prediction's band is meant to hold what is real."""
MARGIN = 1.05
"""The band ends this factor beyond the extremes: about the half-width of the range of most errors (1.034), and more."""
LEAST_SHARE = 0.35
"""Part of the band that stays when models are nearly the same: other widths, depths and sequence lengths."""
FARTHEST_RATIO = 10.0
"""FLOPs per token may differ by so much, either way: twice the (logarithmic) step for which errors are known is too
far; 8B to 70B is 8.7, 8B to 405B is 49."""
FARTHEST_SEQUENCE = 4.0


def pairs_of(errors: Sequence[tuple[float, float, int]]) -> list[tuple[float, float]]:
    """(least, most) of each pair, as real / equal MFU: a range of several is cut in equal parts, one for each pair."""
    found = []
    for least, most, number in errors:
        part = (most - least) / number
        found += [(1 / (1 - least - i * part), 1 / (1 - least - (i + 1) * part)) for i in range(number)]
    return found


def fitted(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """(shift, low, high) of real / equal MFU: the median of the pairs' middles, and the band of what is left."""
    shift = median((low + high) / 2 for low, high in pairs)
    least, most = min(low for low, _ in pairs), max(high for _, high in pairs)
    return shift, least / shift / MARGIN, most / shift * MARGIN


KNOWN_SHIFT, KNOWN_LOW, KNOWN_HIGH = fitted(pairs_of(KNOWN_ERRORS))
"""Of one step of KNOWN_RATIO."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The workload of a job, as far as a prediction needs it. Without a model only its FLOPs are known."""

    key: str
    name: str
    flops_per_token: float
    sequence_length: int | None = None
    model: ModelSpec | None = None
    gemms: tuple[Gemm, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """Factor from the measured tokens/s to the predicted ones, and the band (COVERAGE) of what is real over it."""

    factor: float
    low: float
    high: float


def transfer(measured: WorkloadFacts, wanted: Target) -> Transfer | str:
    """How `wanted` follows from `measured`, or why it doesn't."""
    if measured.flops_per_token is None:
        return f"{measured.name} was measured as explicit shapes, which tell nothing of a model"
    refusal = _too_far(measured, wanted)
    if refusal:
        return refusal
    ratio = wanted.flops_per_token / measured.flops_per_token
    steps = math.log(ratio) / math.log(KNOWN_RATIO)
    width = max(abs(steps), LEAST_SHARE) * (1.5 if wanted.model is None else 1.0)
    low, high = KNOWN_LOW**width, KNOWN_HIGH**width
    if steps < 0:
        low, high = 1 / high, 1 / low
    return Transfer(KNOWN_SHIFT**steps / ratio, low, high)


def _too_far(measured: WorkloadFacts, wanted: Target) -> str:
    ratio = wanted.flops_per_token / (measured.flops_per_token or math.inf)
    if max(ratio, 1 / ratio) > FARTHEST_RATIO:
        return (
            f"{wanted.name} takes {ratio:.3g} x the FLOPs per token of {measured.name}: too far to predict "
            f"(at most {FARTHEST_RATIO:g} x either way)"
        )
    if measured.model is not None and wanted.model is not None and _experts(measured.model) != _experts(wanted.model):
        return f"one of {measured.name} and {wanted.name} is a mixture of experts: nothing is known of that step"
    if measured.sequence_length and wanted.sequence_length:
        longer = wanted.sequence_length / measured.sequence_length
        if max(longer, 1 / longer) > FARTHEST_SEQUENCE:
            return f"sequences of {wanted.sequence_length} tokens are too far from {measured.sequence_length}"
    return ""


def _experts(model: ModelSpec) -> bool:
    return model.moe is not None


@lru_cache(maxsize=4096)
def shape_problem(wanted: Target, recipe: Recipe) -> str:
    """Why the workload's matrices can't be multiplied in `recipe`; empty where they can, or are not known."""
    errors = (problem for problem in step_shape_problems(wanted.gemms, recipe) if problem.severity == "error")
    return next((problem.message for problem in errors), "")
