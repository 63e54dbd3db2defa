"""What is measured: the variants (recipes, baseline, control) and the cases (GEMMs by mode, the training step)."""

from dataclasses import asdict, dataclass, field

from precision_api.exchange.request import MeasurementRequest, Mode
from precision_api.exchange.result import Backend, Failure
from precision_api.facts.recipes import Recipe, alignment_error
from precision_api.models.shapes import Gemm, distinct, padded_rows
from precision_api.models.workload import ResolvedWorkload

UNQUANTIZED: Recipe = "bf16"
"""What the head and other layers that no recipe quantises run in."""
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Variant:
    """A recipe under test, or the control, a second baseline that shows the noise."""

    label: str
    recipe: Recipe


BF16 = Variant(UNQUANTIZED, UNQUANTIZED)
"""What the last layers of NVFP4 stay in."""


@dataclass(frozen=True, slots=True)
class GemmCase(Gemm):
    """One distinct GEMM in one mode: forward (m, k, n), or a gradient in its own layout.

    `quantized` is false for the head, which every recipe runs in bf16; `higher` is bf16 for what the
    request's scope keeps out of every recipe.
    """

    mode: Mode = field(kw_only=True)
    higher: Recipe | None = field(default=None, kw_only=True)

    def recipe_of(self, variant: Variant) -> Recipe:
        """The recipe that the variant really runs this GEMM in."""
        return self.higher or variant.recipe if self.quantized and variant.recipe != UNQUANTIZED else UNQUANTIZED


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


def variants_of(request: MeasurementRequest) -> tuple[Variant, ...]:
    """The baseline first, each asked recipe once, the control last."""
    recipes = dict.fromkeys((request.baseline, *request.recipes))
    return (*(Variant(recipe, recipe) for recipe in recipes), Variant(CONTROL, request.baseline))


def cases_of(request: MeasurementRequest, workload: ResolvedWorkload) -> Cases:
    """Variants and cases of a request whose workload was resolved to shapes.

    Rows of experts are padded to what every recipe of the request can take, in all of them alike.
    """
    recipes = (request.baseline, *request.recipes)
    chosen = distinct(padded_rows(gemm, recipes) for gemm in workload.gemms)
    mixers = dict.fromkeys(MIXERS, UNQUANTIZED) if request.recipe_scope == "mlp" else {}
    gemms = tuple(
        GemmCase(**asdict(gemm), mode=mode, higher=mixers.get(gemm.name))
        for mode in dict.fromkeys(request.gemm_modes)
        for gemm in chosen
    )
    training = _training(request, workload)
    return Cases(
        variants=variants_of(request),
        gemms=gemms,
        training=training if isinstance(training, TrainingCase) else None,
        no_training=training if isinstance(training, Failure) else None,
    )


KERNEL_SHARES: frozenset[Backend] = frozenset({"transformer-engine"})
"""Backends that tell kernel-only time by the kernels' share of a whole step: delayed scaling has one there."""


def refusal_of(case: Case, variant: Variant, backend: Backend) -> Failure | None:
    """Why this variant can't take this case on this backend whatever the hardware, or None."""
    if isinstance(case, TrainingCase) or not case.quantized:
        return None
    recipe = case.recipe_of(variant)
    if case.mode == "prequantized" and recipe == "fp8_delayed" and backend not in KERNEL_SHARES:
        return Failure(reason="no_prequantized_mode", message="delayed scaling learns its scale while it quantises")
    wrong = alignment_error(recipe, {"m": case.m, "k": case.k, "n": case.n})
    return Failure(reason="misaligned", message=f"{case.name} {case.pass_}: {wrong}") if wrong else None


MIXERS = frozenset({"qkv", "attn_out", "q_proj", "q_down", "q_up", "kv_down", "kv_up", "mamba_in", "mamba_out"})
"""GEMMs of the projections of attention and of Mamba-2: with scope `mlp` they stay in BF16."""


def module_of(case: GemmCase) -> str:
    """The module of a layer, as profiled kernels are told by it."""
    if not case.quantized:
        return "router" if "router" in case.name else "head"
    return "attention" if case.name in MIXERS else "mlp"


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
