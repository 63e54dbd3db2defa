"""The measurement request: the one JSON document that tells an agent what to measure.

The operator writes it into the agent's environment as canonical JSON; the agent echoes its hash, so that a result can
be held against the request that it answers.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from precision_api.facts.mixtures import NO_BASELINE, MixtureName, Mixtures, named_of
from precision_api.facts.recipes import RECIPE_NAMES, PlainRecipe, Recipe
from precision_api.facts.schema import Record
from precision_api.models.workload import Workload

REQUEST_VERSION = "1"
REQUEST_MAX_BYTES = 32 * 1024
"""Largest request that fits beside the rest of a container's environment (Linux ends one variable at 128 KiB)."""

NO_SCOPE = (
    "scope mlp keeps attention in BF16, and mixtures say what each part runs in: leave out the scope, or mixtures"
)
PLAIN = r"^[ !#-\[\]-~]*$"
"""Printable ASCII without quote and backslash: one byte a character in JSON, so that what is echoed always fits."""

Mode = Literal["autocast", "prequantized"]
AttentionCore = Literal["fp8_delayed", "fp8_current", "mxfp8"]
"""What attention's products of queries, keys and values may run in (Transformer Engine 2.20: `fp8_dpa`)."""


MOST_GPUS = 16
"""Of one node; no machine has more."""
GpuUuid = Annotated[str, Field(pattern=r"^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
"""As NVML prints it."""


class RequestNode(Record):
    """The node to be measured, as the operator saw it when it made the Job."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=PLAIN)]
    uid: str
    product: str = Field(description="Product class, e.g. GB200; the name of a GPU of no known class.")
    gpus: int = Field(ge=1, le=MOST_GPUS, description="GPUs that the agent's container was given.")
    gpu_uuids: tuple[GpuUuid, ...] | None = Field(
        None,
        min_length=1,
        max_length=MOST_GPUS,
        description="GPUs that a resource claim on this node can get; left out where the device plugin hands them out.",
    )


class Timing(Record):
    """How long to measure: `passes` palindromes; in each an arm is visited twice, a segment for each kind of figure."""

    passes: Annotated[int, Field(ge=2, le=64)] = 4
    segment_seconds: Annotated[float, Field(gt=0, le=60)] = 1.75
    discard_seconds: Annotated[float, Field(ge=0, le=10)] = 1.0
    seed: int = 0


class LossRuns(Record):
    """Short untimed training runs that show whether a recipe's loss falls like the baseline's; a smoke test."""

    steps: Annotated[int, Field(ge=10, le=1000)] = 50
    seeds: Annotated[int, Field(ge=1, le=3)] = 1
    learning_rate_factor: Annotated[float, Field(gt=0, le=1000)] = Field(
        1.0, description="Times the usual learning rate; beyond 1 only to show what a divergence looks like."
    )


class MeasurementRequest(Record):
    """What one agent pod measures on one node."""

    schema_version: Literal["1"] = "1"
    namespace: str
    profile: str
    run: Annotated[str, Field(min_length=1, max_length=63, pattern=PLAIN)] = Field(
        description="Identity of the run: equal for all nodes that are measured for the same reasons."
    )
    attempt: int = Field(ge=1)
    node: RequestNode
    workload: Workload = Field(description="Resolved: a preset or a Hugging Face config stands here as its model.")
    recipes: tuple[PlainRecipe, ...] = Field(min_length=1, max_length=len(RECIPE_NAMES))
    mixtures: Mixtures | None = Field(None, description="Mixtures of recipes, measured beside `recipes`.")
    gemm_modes: tuple[Mode, ...] = ("autocast", "prequantized")
    training: bool = True
    baseline: MixtureName = Field("bf16", description="A recipe, or the name of one of `mixtures`.")
    recipe_scope: Literal["all", "mlp"] = "all"
    last_layers_bf16: Annotated[int, Field(ge=0, le=2048)] | None = Field(
        None, description="Last layers that stay in BF16 with NVFP4; computed, not run. Left out: 15 %, rounded up."
    )
    listed: bool = Field(False, description="Whether somebody lists `recipes` by name: only then a risky one is named.")
    loss: LossRuns | None = None
    weight_gradients: Literal["fused", "separate"] | None = Field(
        None, description="fused: FP32, added up by the GEMM; separate: BF16, by autograd. Left out: fused."
    )
    attention_core: AttentionCore | None = Field(
        None, description="Recipe of attention's core in all recipes but bf16. Left out: BF16."
    )
    primary_weights: Literal["recipe"] | None = Field(
        None, description="Layers' weights are held in the recipe's format alone. Left out: in BF16."
    )
    may_halve_micro_batch: bool = Field(
        False, description="Out of memory halves the micro batch for all arms instead of failing."
    )
    trace: bool = Field(False, description="Keep the profiled step's trace beside the result.")
    timing: Timing = Timing()
    deadline_seconds: int = Field(ge=10, le=86400)

    @model_validator(mode="after")
    def _rules_of_mixtures_hold(self) -> "MeasurementRequest":
        if self.mixtures and self.recipe_scope == "mlp":
            raise ValueError(NO_SCOPE)
        if self.baseline not in named_of(self.mixtures):
            raise ValueError(NO_BASELINE)
        return self


TIMINGS: dict[str, Timing] = {
    "quick": Timing(passes=4, segment_seconds=1.75, discard_seconds=1.0),
    "standard": Timing(passes=12, segment_seconds=2.8, discard_seconds=1.0),
}
"""Many short palindromes, not few long ones: docs/development/decisions/0012 says why. In simulation they give
half-widths of 0.22 % and 0.11 % for GEMMs and training alike, both in each visit (0.3 % drift with 60 s memory,
`python -m benchmarks.spread simulate`)."""


TIMED_LOOP = 1
"""Grows when the agent's timed loop changes so that its figures can't be held against those of before."""


def timing_title(request: MeasurementRequest) -> str:
    """The timed loop, its timing and what else bears on rates, equal for results that may be compared: `1/quick`."""
    asked = request.timing.model_copy(update={"seed": 0})
    name = next((name for name, usual in TIMINGS.items() if usual == asked), "") or digest(asked.model_dump(), 8)
    scope = "" if request.recipe_scope == "all" else f"/{request.recipe_scope}"
    scope += KEEPS_BF16 if scope and request.baseline != "bf16" else ""
    gradients = "/separate" if request.weight_gradients == "separate" else ""
    core = f"/{request.attention_core}{_CORE}" if request.attention_core else ""
    weights = "/primary-weights" if request.primary_weights else ""
    return f"{TIMED_LOOP}/{name}{scope}{gradients}{core}{weights}"


KEEPS_BF16 = "-bf16"
"""Follows scope `mlp` in a title whose baseline is another: earlier agents kept attention in the baseline's recipe."""


def attention_recipe(baseline: Recipe, timing: str | None) -> Recipe:
    """What a run of scope `mlp` kept attention's projections in."""
    return "bf16" if KEEPS_BF16 in (timing or "") else baseline


_CORE = "-attention"
_STEPS = {"separate": "weight gradients added by autograd", "primary-weights": "weights in the recipe's format alone"}


def step_words(title: str | None) -> tuple[str, ...]:
    """What a title says of steps that are no plain ones, beside their scope: `attention's core in mxfp8`."""
    parts = (title or "").split("/")
    cores = (f"attention's core in {part.removesuffix(_CORE)}" for part in parts if part.endswith(_CORE))
    return (*cores, *(_STEPS[part] for part in parts if part in _STEPS))


def step_marks(recipe: Recipe, title: str | None) -> str | None:
    """The same for a recipe in columns, None where there is nothing: BF16's attention and weights are never others."""
    return ", ".join(step_words((title or "").replace("/separate", "")) if recipe != "bf16" else ()) or None


LOSS_BY_DEFAULT: dict[str, LossRuns | None] = {"quick": None, "standard": LossRuns(seeds=3)}
"""By preset, where nothing is said of loss runs and the model has a vocabulary."""


def loss_runs(
    preset: str, vocabulary: bool, enabled: bool | None = None, steps: int | None = None, seeds: int | None = None
) -> LossRuns | None:
    """What is asked for, the preset's where it is left out; `vocabulary`: without one the preset asks for none."""
    usual = LOSS_BY_DEFAULT[preset]
    if enabled is False or (enabled is None and not (usual and vocabulary)):
        return None
    asked = {name: value for name, value in (("steps", steps), ("seeds", seeds)) if value is not None}
    return LossRuns.model_validate({**(usual or LossRuns()).model_dump(), **asked})


def canonical(document: Any) -> str:
    """`document` as JSON whose bytes depend on its content alone: sorted keys, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(document: Any, length: int = 64) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical JSON of `document`."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()[:length]


def request_json(request: MeasurementRequest) -> str:
    """The request as canonical JSON, as it travels; defaults are written out, absent values are left out."""
    return canonical(request.model_dump(mode="json", by_alias=True, exclude_none=True))


def request_hash(request: MeasurementRequest) -> str:
    """SHA-256 (hex) of the request as it travels, without the UUIDs: another GPU in a node asks for nothing else."""
    node = request.node.model_copy(update={"gpu_uuids": None})
    return hashlib.sha256(request_json(request.model_copy(update={"node": node})).encode()).hexdigest()
