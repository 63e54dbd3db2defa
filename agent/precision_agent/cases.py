"""What is measured: the variants (recipes, baseline, control) and the cases (GEMMs by mode, the training step)."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import cast

from precision_api.exchange.request import MeasurementRequest, Mode
from precision_api.exchange.result import Backend, Failure
from precision_api.facts.mixtures import Parts, part_of
from precision_api.facts.recipes import PlainRecipe, Recipe, alignment_error, with_bf16
from precision_api.models.shapes import Gemm, distinct, padded_rows
from precision_api.models.workload import ResolvedWorkload

UNQUANTIZED: PlainRecipe = "bf16"
"""What the head and other layers that no recipe quantises run in."""
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Variant:
    """A recipe under test, or the control, a second baseline that shows the noise.

    `parts` are what each part of a layer runs in: of a recipe of the table, itself.
    """

    label: str
    recipe: Recipe
    parts: Parts = None  # type: ignore[assignment]  # its own everywhere, where it is left out

    def __post_init__(self) -> None:
        if self.parts is None:
            object.__setattr__(self, "parts", Parts.of(cast(PlainRecipe, self.recipe)))


BF16 = Variant(UNQUANTIZED, UNQUANTIZED)
"""What the last layers of NVFP4 stay in."""


@dataclass(frozen=True, slots=True)
class GemmCase(Gemm):
    """One distinct GEMM in one mode: forward (m, k, n), or a gradient in its own layout.

    `quantized` is false for the head, which every recipe of the table runs in bf16, and for routers.
    """

    mode: Mode = field(kw_only=True)

    def recipe_of(self, variant: Variant) -> PlainRecipe:
        """The recipe that the variant really runs this GEMM in."""
        part = part_of(self.name, self.quantized)
        return getattr(variant.parts, part) if part else UNQUANTIZED


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One micro batch on one GPU: what runs is a short model at true width, what is told is the full-depth one.

    `layers` are the full model's; an optimizer step comes once in `gradient_accumulation` micro batches.
    """

    tokens: int
    flops_per_token: float
    layers: int = 1
    gradient_accumulation: int = 1


Case = GemmCase | TrainingCase


@dataclass(frozen=True, slots=True)
class Cases:
    """All that one run measures; an absent training case has its reason."""

    variants: tuple[Variant, ...]
    gemms: tuple[GemmCase, ...]
    training: TrainingCase | None
    no_training: Failure | None

    @property
    def baseline(self) -> Variant:
        """What speedups are held against: the first variant."""
        return self.variants[0]

    @property
    def control(self) -> Variant:
        """The second baseline: the last variant."""
        return self.variants[-1]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes of the GEMMs, each once."""
        return tuple(dict.fromkeys(case.mode for case in self.gemms))

    @property
    def all(self) -> tuple[Case, ...]:
        """Every case in the order of a variant's slot: training first, right after the discarded stretch of its load.

        After GEMMs at the power cap its clock may be another one for a while. Half-widths of 0.4 to 1.3 % on an H100
        are supposed to come from that: no run has compared both orders."""
        return (self.training, *self.gemms) if self.training else self.gemms


def variants_of(request: MeasurementRequest, gemms: Iterable[Gemm] = ()) -> tuple[Variant, ...]:
    """The baseline first, each asked recipe once, then mixtures, of the parts that `gemms` have; the control last."""
    mixers = UNQUANTIZED if request.recipe_scope == "mlp" else None
    recipes = with_bf16(request.baseline, request.recipes, 0)
    plain = (Variant(recipe, recipe, Parts.of(recipe, mixers)) for recipe in recipes)
    present = {part_of(gemm.name, gemm.quantized) for gemm in gemms}
    parts = {it.name: it.parts.only(present) if present else it.parts for it in request.mixtures or ()}
    mixed = (Variant(name, f"{name}.{of.letters}", of) for name, of in parts.items())
    variants = sorted((*plain, *mixed), key=lambda variant: variant.label != request.baseline)
    return (*variants, replace(variants[0], label=CONTROL))


def cases_of(request: MeasurementRequest, workload: ResolvedWorkload) -> Cases:
    """Variants and cases of a request whose workload was resolved to shapes.

    Rows of experts are padded to what every recipe of the request can take, in all of them alike.
    """
    variants = variants_of(request, workload.gemms)
    recipes = {recipe for variant in variants for recipe in variant.parts.recipes}
    mixed = any(len(variant.parts.of_layers) > 1 for variant in variants)
    chosen = distinct(
        (padded_rows(gemm, recipes) for gemm in workload.gemms),
        lambda gemm: part_of(gemm.name, gemm.quantized) if mixed else None,
    )
    gemms = tuple(GemmCase(**asdict(gemm), mode=mode) for mode in dict.fromkeys(request.gemm_modes) for gemm in chosen)
    training = _training(request, workload)
    return Cases(
        variants=variants,
        gemms=gemms,
        training=training if isinstance(training, TrainingCase) else None,
        no_training=training if isinstance(training, Failure) else None,
    )


KERNEL_SHARES: frozenset[Backend] = frozenset({"transformer-engine"})
"""Backends that tell kernel-only time by the kernels' share of a whole step: delayed scaling has one there."""


def refusal_of(case: Case, variant: Variant, backend: Backend) -> Failure | None:
    """Why this variant can't take this case on this backend whatever the hardware, or None."""
    if isinstance(case, TrainingCase):
        return None
    recipe = case.recipe_of(variant)
    if case.mode == "prequantized" and recipe == "fp8_delayed" and backend not in KERNEL_SHARES:
        return Failure(reason="no_prequantized_mode", message="delayed scaling learns its scale while it quantises")
    wrong = alignment_error(recipe, {"m": case.m, "k": case.k, "n": case.n})
    return Failure(reason="misaligned", message=f"{case.name} {case.pass_}: {wrong}") if wrong else None


def module_of(case: GemmCase) -> str:
    """The module of a layer, as profiled kernels are told by it."""
    return part_of(case.name, case.quantized) or "router"


NO_SCAN = (
    "hybrid: the convolution and scan of Mamba-2 are in no backend, and a step is not put together without them; the "
    "GEMMs are measured"
)


def _training(request: MeasurementRequest, workload: ResolvedWorkload) -> TrainingCase | Failure:
    if not request.training:
        return Failure(reason="not_requested", message="the request asks for no training figure")
    if workload.training_flops_per_token is None or workload.tokens_per_micro_batch is None:
        return Failure(reason="no_model", message="a workload of bare shapes has no training step")
    if workload.model is not None and workload.model.hybrid is not None:
        return Failure(reason="not_available", message=NO_SCAN)
    assert workload.model is not None, "what has tokens has a model"
    split = workload.workload
    return TrainingCase(
        workload.tokens_per_micro_batch,
        float(workload.training_flops_per_token),
        workload.model.num_hidden_layers,
        split.gradient_accumulation,
    )
