"""What is measured: the arms (recipes, baseline, control) and the cases (GEMMs by mode, the training step)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from precision_api.recipes import Recipe, alignment_error
from precision_api.request import MeasurementRequest, Mode
from precision_api.resolution import ResolvedWorkload
from precision_api.result import Failure
from precision_api.shapes import Gemm, distinct

BASELINE: Recipe = "bf16"
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Arm:
    """One contender of a palindrome: a recipe, or the control, a second baseline that shows the noise."""

    label: str
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class GemmCase:
    """One distinct GEMM in one mode: forward (m, k, n), or a gradient in its own layout.

    `quantized` is false for the head, which every recipe runs in bf16; `groups` experts share one launch.
    """

    name: str
    pass_: Literal["fprop", "dgrad", "wgrad"]
    m: int
    k: int
    n: int
    count: int
    mode: Mode
    groups: int = 1
    quantized: bool = True

    def recipe_of(self, arm: Arm) -> Recipe:
        """The recipe that the arm really runs this GEMM in."""
        return arm.recipe if self.quantized else BASELINE

    @property
    def flops(self) -> int:
        """Floating-point operations of one call."""
        return 2 * self.m * self.k * self.n


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One micro-batch through the full-depth model on one GPU."""

    tokens: int
    flops_per_token: float


Case = GemmCase | TrainingCase


@dataclass(frozen=True, slots=True)
class Cases:
    """All that one run measures; an absent training case has its reason."""

    arms: tuple[Arm, ...]
    gemms: tuple[GemmCase, ...]
    training: TrainingCase | None
    no_training: Failure | None

    @property
    def all(self) -> tuple[Case, ...]:
        """Every case in the order of an arm's segment."""
        return (*self.gemms, self.training) if self.training else self.gemms


def arms_of(request: MeasurementRequest) -> tuple[Arm, ...]:
    """The baseline first, each asked recipe once, the control last."""
    recipes = dict.fromkeys((BASELINE, *request.recipes))
    return (*(Arm(recipe, recipe) for recipe in recipes), Arm(CONTROL, BASELINE))


def cases_of(request: MeasurementRequest, workload: ResolvedWorkload) -> Cases:
    """Arms and cases of a request whose workload was resolved to shapes."""
    gemms = tuple(_case(gemm, mode) for mode in dict.fromkeys(request.gemm_modes) for gemm in distinct(workload.gemms))
    training = _training(request, workload)
    return Cases(
        arms=arms_of(request),
        gemms=gemms,
        training=training if isinstance(training, TrainingCase) else None,
        no_training=training if isinstance(training, Failure) else None,
    )


def refusal_of(case: Case, arm: Arm) -> Failure | None:
    """Why this arm can't take this case whatever the hardware, or None."""
    if isinstance(case, TrainingCase) or not case.quantized:
        return None
    if case.mode == "prequantized" and arm.recipe == "fp8_delayed":
        return Failure(reason="no_prequantized_mode", message="delayed scaling learns its scale while it quantises")
    wrong = alignment_error(arm.recipe, {"m": case.m, "k": case.k, "n": case.n})
    return Failure(reason="misaligned", message=f"{case.name} {case.pass_}: {wrong}") if wrong else None


def _case(gemm: Gemm, mode: Mode) -> GemmCase:
    return GemmCase(
        gemm.name, gemm.pass_, gemm.m, gemm.k, gemm.n, gemm.count, mode, groups=gemm.groups, quantized=gemm.quantized
    )


def _training(request: MeasurementRequest, workload: ResolvedWorkload) -> TrainingCase | Failure:
    if not request.training:
        return Failure(reason="not_requested", message="the request asks for no training figure")
    if workload.training_flops_per_token is None or workload.tokens_per_micro_batch is None:
        return Failure(reason="no_model", message="a workload of bare shapes has no training step")
    return TrainingCase(workload.tokens_per_micro_batch, float(workload.training_flops_per_token))
