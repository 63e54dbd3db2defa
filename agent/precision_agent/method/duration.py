"""How long a run takes, phase by phase, before it begins: what `run --plan` prints and the progress bar counts with.

ABBA blocks are known but for a moment of each slot, for their length is asked for. All else is an allowance: what a
quick run of llama3-8b took on one H100 (benchmarks/results). Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from precision_agent.cases import variants_of
from precision_agent.method.slot import slot_of
from precision_api.exchange.request import TIMINGS, MeasurementRequest
from precision_api.models.workload import resolve

START_SECONDS = 10.0
"""Importing torch and Transformer Engine, and a CUDA context, on all GPUs at once."""
PREFLIGHT_SECONDS = 1.0
PROBES_START_SECONDS, PROBE_SECONDS = 8.0, 1.5
"""A process beside each GPU's own imports both again, once; then one forward and backward pass of each recipe, on all
GPUs side by side."""
IDLE_SECONDS, SENSOR_SECONDS = 3.0, 12.0
WARM_UP_SECONDS = 16.0
"""Usual (11 and 16 s on an H100): the slope test wants eight slices of 2 s; it ends it at the latest after 180 s."""
PREPARE_SECONDS_A_VARIANT = 5.0
"""Building modules, checking numbers, capturing graphs: 4.9 and 6.6 s on an H100."""
OWN_CALLS_SECONDS_A_VARIANT = 1.6
"""Load, and three times 0.1 s of the library's own GEMM calls."""
PROFILE_SECONDS_A_LOAD = 3.6
"""Three sessions of the profiler, each 0.4 s of load and what the profiler needs to start and to write its trace: 2.6
to 5.4 s on an H100, up to 14.9 where the clock had to be waited for: 5.0 in the mean of one run."""
VERIFY_SECONDS_A_VARIANT = 0.5
"""Flags, errors and saved bytes."""
SECOND_DEPTH_SECONDS_A_VARIANT = 3.0
LOSS_START_SECONDS, LOSS_SECONDS_A_STEP = 2.0, 0.25
"""A model of two layers is built and its optimizer's state made; then a step of at most 4,096 tokens."""
PUBLISH_SECONDS = 1.0
SECOND_DEPTH_FROM_PASSES = TIMINGS["standard"].passes
"""A second depth is checked in `standard` runs only."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of a run; `timed_seconds` of it are windows from which a figure comes."""

    name: str
    seconds: float
    timed_seconds: float
    why: str


def phases(request: MeasurementRequest, gpus: int | None = None) -> tuple[Phase, ...]:
    """The phases of the run that `request` asks for, in their order."""
    request = _without_what_can_not_run(request)
    variants = variants_of(request)
    arms, recipes = len(variants), len({variant.recipe for variant in variants})
    probes = PROBES_START_SECONDS + math.ceil(recipes / (gpus or request.node.gpus)) * PROBE_SECONDS
    rows = [
        Phase("preflight", PREFLIGHT_SECONDS, 0, "allowance: GPU health, limits, who else is there"),
        Phase("idle", IDLE_SECONDS, 0, "the idle draw, before a context of our own"),
        Phase("start", START_SECONDS, 0, "allowance: imports and CUDA contexts"),
        Phase("probe", probes, 0, f"allowance: {recipes} recipes, each by a pass of its own, spread over the GPUs"),
        Phase("prepare", arms * PREPARE_SECONDS_A_VARIANT, 0, f"allowance: {arms} arms' modules and graphs"),
        Phase("sensor", SENSOR_SECONDS, 0, "allowance: a square wave for the power sensor"),
        Phase("warm_up", WARM_UP_SECONDS, 0, "allowance: until temperature, clock and step are steady; at most 180 s"),
        _abba_blocks(request, arms),
    ]
    if request.training and request.timing.passes >= SECOND_DEPTH_FROM_PASSES:
        seconds = recipes * SECOND_DEPTH_SECONDS_A_VARIANT
        rows.append(Phase("second_depth", seconds, 0, "allowance: one more short model"))
    if request.node.product != "CPU" and "prequantized" in request.gemm_modes:
        seconds = recipes * OWN_CALLS_SECONDS_A_VARIANT
        rows.append(Phase("own_calls", seconds, 0, "allowance: the library's own GEMM calls, as a check"))
    rows += [
        Phase("profile", profile_seconds(request), 0, "allowance: three profiles of each load, under that load"),
        Phase("verify", recipes * VERIFY_SECONDS_A_VARIANT, 0, "allowance: a look into each recipe's modules"),
    ]
    if request.node.product == "CPU":
        rows = [phase for phase in rows if phase.name not in ("idle", "sensor", "warm_up", "profile")]
    if request.loss:
        runs_a_gpu = math.ceil(recipes / (gpus or request.node.gpus)) * request.loss.seeds
        spent = runs_a_gpu * (LOSS_START_SECONDS + request.loss.steps * LOSS_SECONDS_A_STEP)
        steps = f"{request.loss.seeds} x {request.loss.steps} steps"
        rows.append(Phase("loss", spent, 0, f"allowance: {steps} of {recipes} recipes, spread over the GPUs"))
    return (*rows, Phase("publish", PUBLISH_SECONDS, 0, "allowance: arithmetic and writing"))


def _without_what_can_not_run(request: MeasurementRequest) -> MeasurementRequest:
    """Of a model that no backend trains yet the GEMMs are measured: a plan has no time for steps and loss runs."""
    model = resolve(request.workload).model
    if model is None or model.no_training_step is None:
        return request
    return request.model_copy(update={"training": False, "loss": None})


def profile_seconds(request: MeasurementRequest) -> float:
    """What the profiles of all recipes are expected to take: of their GEMMs and of their training step."""
    request = _without_what_can_not_run(request)
    recipes = len(dict.fromkeys(variant.recipe for variant in variants_of(request)))
    loads = bool(request.gemm_modes) + bool(request.training)
    return recipes * loads * PROFILE_SECONDS_A_LOAD


def _abba_blocks(request: MeasurementRequest, variants: int) -> Phase:
    """Each ABBA block has every variant twice: a discarded stretch, a segment of training, one of GEMMs."""
    timing = request.timing
    metered = request.training and request.node.product != "CPU"
    slot = slot_of(timing, bool(request.gemm_modes), request.training, metered)
    slots = timing.passes * 2 * variants
    named = ((slot.training, "training"), (slot.power, "power windows"), (slot.gemms, "GEMMs"))
    parts = "".join(f" + {seconds:.3g} s {name}" for seconds, name in named if seconds)
    why = (
        f"{timing.passes} palindromes x 2 x {variants} arms (a control among them) x "
        f"({slot.discarded:g} s discarded{parts} + an allowance of {slot.between:g} s)"
    )
    return Phase("measure", slots * slot.seconds, slots * slot.timed, why)


def total_seconds(phases: Sequence[Phase]) -> float:
    return math.fsum(phase.seconds for phase in phases)


def timed_share(phases: Sequence[Phase]) -> float:
    """Share of the run in windows from which a figure comes."""
    return math.fsum(phase.timed_seconds for phase in phases) / total_seconds(phases)


def as_text(phases: Sequence[Phase]) -> str:
    lines = [f"{'PHASE':<14}{'SECONDS':>9}{'TIMED':>9}   WHY"]
    lines += [f"{row.name:<14}{row.seconds:>9.0f}{row.timed_seconds:>9.0f}   {row.why}" for row in phases]
    timed = math.fsum(row.timed_seconds for row in phases)
    share = f"{timed_share(phases):.0%} of the run is timed"
    return "\n".join([*lines, f"{'all':<14}{total_seconds(phases):>9.0f}{timed:>9.0f}   {share}"])


def as_document(phases: Sequence[Phase]) -> dict[str, object]:
    rows = [
        {"phase": row.name, "seconds": row.seconds, "timed_seconds": row.timed_seconds, "why": row.why}
        for row in phases
    ]
    return {"phases": rows, "seconds": total_seconds(phases), "timed_share": round(timed_share(phases), 4)}
