"""The measurement result: everything that one agent found on one node.

A figure is an `Interval` or it is absent with a `Failure`: never 0 for "did not work". Seconds, bytes, watts, joules,
FLOP/s and tokens/s throughout; ratios are plain numbers (1.31, not 31 %).
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from precision_api.exchange.request import PLAIN, Mode
from precision_api.facts.plain_text import one_line, plain
from precision_api.facts.recipes import MOST_RECIPES, Recipe
from precision_api.facts.schema import Record

RESULT_VERSION = "1"

Backend = Literal["replay", "torch-cpu", "torch-cuda", "transformer-engine"]
Provenance = Literal["measured", "replayed", "simulated", "trial"]
"""`trial`: taken on a CPU, which says nothing of a GPU."""
Availability = Literal["ok", "emulated", "unsupported", "probe_failed"]
Verdict = Literal["verified", "partial", "emulated", "fallback", "unknown", "assumed"]
"""Only kernels that were seen make `verified`; `assumed`, of figures that nobody measured here, is no verdict."""
PowerScope = Literal["gpu", "module"]
SensorAccuracy = Literal["calibrated", "unverified"]
Execution = Literal["graph", "eager"]
Difference = Literal["faster", "slower", "no_difference"]
"""Against the baseline of the same run: beyond the arm's own interval and beyond the run's noise.

The rule: docs/development/method.md, "Intervals and noise"."""
RecipeScope = Literal["all", "mlp"]
"""Which linear layers run in the recipe: all, or the MLP's alone with the attention's kept in BF16."""
Method = Literal["agent", "nvidia"]
"""`nvidia` repeats the method of Transformer Engine's benchmark_gemm.py, for comparison only: never exported."""
THROTTLES = ("software_thermal", "hardware_thermal", "power_brake")
ThrottleReason = Literal["software_thermal", "hardware_thermal", "power_brake"]
Note = Annotated[str, Field(max_length=1024), AfterValidator(plain)]
"""Words for people. Whoever can run code on a node writes them: what is not printable is left out as they are read."""
Line = Annotated[str, Field(max_length=200), AfterValidator(one_line)]
Node = Annotated[str, Field(max_length=253), AfterValidator(one_line)]
Title = Annotated[str, Field(max_length=128), AfterValidator(one_line)]
Uuid = Annotated[str, Field(max_length=64), AfterValidator(one_line)]
Word = Annotated[str, Field(max_length=64, pattern=PLAIN)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
"""A size or a number of things. Bounded: a hostile result must not hand out integers that overflow a float."""


def once_each(recipes: Sequence[Recipe]) -> None:
    """Raises ValueError when a recipe is there twice: its series would collide."""
    twice = {recipe for recipe in recipes if recipes.count(recipe) > 1}
    if twice:
        raise ValueError(f"recipes told of twice: {', '.join(sorted(twice))}")


def assumed_where_made_up(provenance: Provenance, verdicts: Iterable[Verdict]) -> None:
    """Raises ValueError where figures that were measured have a verdict that was not."""
    if provenance not in ("replayed", "simulated") and "assumed" in verdicts:
        raise ValueError(f"verdict assumed in a result of provenance {provenance}: only replays assume")


class Failure(Record):
    """Why a figure is absent."""

    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
    message: Note = ""


FATAL = frozenset({"cuda_error", "hung", "worker_died"})
"""After these the device's context is worth nothing: its process ends, and the variant is not tried again."""


class FigureOrReason(Record):
    """What was measured, or `failure` where its figure is absent."""

    FIGURE: ClassVar[tuple[str, str]]
    """What it is in words, a format of itself; and the field of the figure."""

    @model_validator(mode="after")
    def _figure_or_reason(self) -> Self:
        what, figure = self.FIGURE
        if (getattr(self, figure) is None) == (getattr(self, "failure", None) is None):
            raise ValueError(f"{what.format(self)}: exactly one of {figure} and failure must be there")
        return self


TERMINATED = "terminated"
"""Reason of a partial result whose agent was told to stop."""
UNFINISHED = "unfinished"
"""Reason of what is written between two palindromes, in case that the agent is killed."""
CUT_OFF = (TERMINATED, UNFINISHED)
"""Reasons of a partial result whose agent did not end by itself, as it does at its deadline."""


class Interval(Record):
    """A figure with its 95 % confidence interval; `n` independent units (palindromes) stand behind it.

    Reads its packed form too, [value, lower, upper, n], which saves a third of a summary's bytes.
    """

    value: float
    lower: float
    upper: float
    n: int = Field(ge=1, le=1_000_000)

    @model_validator(mode="before")
    @classmethod
    def _packed(cls, raw: Any) -> Any:
        if isinstance(raw, list | tuple) and len(raw) == 4:
            return dict(zip(("value", "lower", "upper", "n"), raw, strict=True))
        return raw

    @model_validator(mode="after")
    def _ordered(self) -> "Interval":
        if not self.lower <= self.value <= self.upper:
            raise ValueError(f"interval out of order: {self.lower} <= {self.value} <= {self.upper} does not hold")
        return self


class Simulated(Record):
    """A field that nobody measured, and the assumption that it was made up from."""

    field: Title
    assumption: Note


class Gpu(Record):
    """One GPU, by UUID (indices move with CUDA_VISIBLE_DEVICES)."""

    uuid: Uuid
    name: Title
    memory_bytes: Count | None = None
    enforced_limit_watts: float | None = Field(None, ge=0, le=1_000_000)
    pci: Word | None = None


class Software(Record):
    """Versions that the figures depend on; the driver and our own version stay apart from `stack_hash`."""

    agent: Word
    driver: Word | None = None
    cuda: Word | None = None
    torch: Word | None = None
    transformer_engine: Word | None = None
    cudnn: Word | None = None
    stack_hash: Word = Field(description="Hash over all versions but those of driver and agent.")


class KernelSeen(Record):
    """One kernel of the profiled step: its raw name, what it multiplied in, the rule that said so, its time."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    name: Note
    class_: Word = Field(validation_alias="class", serialization_alias="class")
    rule: Word = ""
    seconds: float = Field(ge=0)


class NumericErrors(Record):
    """Relative errors ||found - exact|| / ||exact|| against FP32; None where that product was not checked."""

    y: float | None = None
    dx: float | None = None
    dw: float | None = None


class SavedBytes(Record):
    """What a module of a layer keeps for its backward pass: bytes of an element that its GEMMs multiply by weights."""

    module: Word
    kind: Word = Field(description="Its class in Transformer Engine.")
    kept: float = Field(ge=0, description="Above the format's where an operand stays in BF16, or in both directions.")
    format: float = Field(ge=0, description="Bytes of an element in its recipe's format, one direction, with scales.")


class Verification(Record):
    """Did the precision really run? `share` is the share of GEMM time in the claimed precision.

    The rest is the evidence: kernels of one profiled step (the longest first), the quantizers' flags, errors, bytes
    kept for the backward pass (by module; earlier agents' over BF16's), and attention's backend, by Transformer Engine.
    """

    verdict: Verdict
    share: float | None = None
    message: Note = ""
    kernels: tuple[KernelSeen, ...] = Field((), max_length=24)
    flags: dict[Word, bool] = Field(default_factory=dict, max_length=32)
    errors: NumericErrors | None = None
    saved_bytes_ratio: float | None = None
    saved: tuple[SavedBytes, ...] = Field((), max_length=16)
    attention: Line | None = None


GroupedPath = Literal["one_kernel", "several_streams", "one_stream"]
"""How the GEMMs of experts ran: all in one kernel, or a kernel for each of them, side by side or in turn."""


class GemmResult(FigureOrReason):
    """One distinct GEMM in one recipe and mode; `count` times in a full model's step."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    name: Word
    pass_: Literal["fprop", "dgrad", "wgrad"] = Field(validation_alias="pass", serialization_alias="pass")
    m: Count
    k: Count
    n: Count
    count: Count
    mode: Mode
    seconds: Interval | None = None
    execution: Execution | None = Field(None, description="CUDA graph or eager; absent where there is no such choice.")
    grouped: GroupedPath | None = Field(None, description="Of experts: how their GEMMs ran, by the kernels seen.")
    own_call_seconds: Interval | None = Field(
        None, description="Transformer Engine's GEMM call alone on quantised operands: a check of kernel-only seconds."
    )
    failure: Failure | None = None

    FIGURE: ClassVar = ("gemm {0.name}/{0.pass_}", "seconds")


class GemmSum(FigureOrReason):
    """All GEMMs of the workload in one mode: null with a reason as soon as one part failed.

    With training figures, the GEMMs of layers that stay in BF16 are BF16's.
    """

    mode: Mode
    seconds: Interval | None = None
    speedup: Interval | None = Field(None, description="Baseline seconds / these seconds, paired within palindromes.")
    launch_gaps: float | None = Field(
        None, ge=0, description="Seconds between the kernels of the timed graphs, beside prequantized `seconds`."
    )
    failure: Failure | None = None

    FIGURE: ClassVar = ("gemm sum ({0.mode})", "seconds")


class Energy(Record):
    """Power and energy of the timed windows; the figures stand only where `valid`."""

    valid: bool
    reasons: tuple[Word, ...] = Field((), max_length=8)
    scope: PowerScope = "gpu"
    watts: float | None = Field(None, description="Mean draw of all GPUs of the node.")
    tokens_per_joule: float | None = None
    joules_per_token: float | None = None
    tokens_per_joule_ratio: Interval | None = Field(
        None, description="Tokens per joule over the baseline's, paired within palindromes."
    )
    tokens_per_joule_net: float | None = Field(None, description="With the idle draw taken off.")
    net_reason: Word | None = Field(None, description="Why there is no net figure.")
    idle_watts: float | None = Field(None, description="What the same sensors drew before the run.")
    updates: Count | None = Field(None, description="Distinct updates of the sensor within the windows.")
    seconds: float | None = Field(None, ge=0, description="Length of the windows together.")
    sensor_accuracy: SensorAccuracy = "unverified"
    method: Literal["counter", "integral"] = Field(
        "counter", description="The energy counter, checked by the integral of power; or the integral alone."
    )

    @model_validator(mode="after")
    def _valid_or_absent(self) -> "Energy":
        figures = (self.watts, self.tokens_per_joule)
        if self.valid and None in figures:
            raise ValueError("energy is marked valid but has no figures")
        if not self.valid and (any(f is not None for f in (*figures, self.tokens_per_joule_ratio)) or not self.reasons):
            raise ValueError("invalid energy must carry reasons and no figures")
        return self


class Memory(Record):
    """Peak memory of what ran (the short model) by each way of counting, bytes; absent where the backend can't tell."""

    allocated_peak_bytes: Count | None = Field(None, description="By the allocator, of this recipe alone.")
    reserved_peak_bytes: Count | None = None
    process_peak_bytes: Count | None = None
    state_bytes: Count | None = Field(None, description="Weights, gradients, optimizer and data, before a step.")
    activation_bytes: Count | None = Field(None, description="What the layers keep of a forward pass.")
    gradient_bytes: Count | None = Field(None, description="Of one weight's gradient: 2 is BF16, 4 FP32.")


class DeviceMemory(Record):
    """Memory in use by NVML, the highest while the node trained, of its fullest GPU.

    It is the run's and no recipe's: all of them lie in one process.
    """

    used_bytes: Count
    total_bytes: Count | None = None
    counted: Line = Field("", description="How, where it is not NVML's figure without the driver's reserve alone.")


class ModelMemory(FigureOrReason):
    """Memory of one GPU that trains the full model in this recipe: by the formula named, never by a measurement.

    It stands only where the same formula fits what the short model took: `agreement` is measured over predicted bytes
    of state, activations and peak. Absent with a reason.
    """

    bytes: Count | None = None
    state_bytes: Count | None = Field(None, description="Of it: weights, gradients and the share of the optimizer.")
    formula: Word | None = None
    agreement: dict[Word, float] = Field(default_factory=dict, max_length=4)
    failure: Failure | None = None

    FIGURE: ClassVar = ("model memory", "bytes")


class Utilisation(Record):
    """The time that a step's FLOPs would take, each part at the dense peak of the format it ran in, over the step's;
    None of a fallback, whose formats nobody knows."""

    value: float | None = None
    of_bf16_peak: float | None = Field(None, description="Model FLOP/s of one GPU over its dense BF16 peak.")
    peak_flops_per_second: float | None = Field(
        None, gt=0, description="Model FLOP/s of one GPU at which `value` would be 1."
    )
    peak: Note


class Region(Record):
    """One timed part of a training step of the short model, seconds of one micro batch on the slowest GPU."""

    name: Literal["dense_forward", "layers_forward", "head", "layers_backward", "dense_backward", "optimizer"]
    seconds: Interval


WeightGradients = Literal["fused", "separate"]
"""How the weight gradients of several micro batches add up: in FP32 by the GEMM itself, or in kernels of their own."""


class Training(FigureOrReason):
    """A training figure of the full-depth model, of all GPUs of the node together; absent with a reason.

    `tokens_per_second` is the sum over the GPUs; a synchronous job runs at `synchronous_tokens_per_second`, which is
    GPUs x slowest GPU. `trial_tokens_per_second` is the short model's own rate: never exported, never planned with.
    """

    tokens_per_second: Interval | None = None
    synchronous_tokens_per_second: Interval | None = None
    slowest_gpu: Uuid | None = Field(None, description="UUID.")
    gpu_spread: float | None = Field(None, description="Slowest GPU's rate over the mean of the node's GPUs.")
    tokens_per_second_by_gpu: dict[Uuid, float] = Field(default_factory=dict, max_length=16)
    step_seconds: Interval | None = Field(None, description="One micro batch through the full-depth model.")
    model_flops_per_second: float | None = None
    teraflops_per_gpu: float | None = Field(None, description="The same of one GPU, in 1e12: the mean of the node's.")
    mfu: Utilisation | None = None
    speedup: Interval | None = Field(None, description="Against the baseline of the same run.")
    difference: Difference | None = None
    regions: tuple[Region, ...] = Field((), max_length=6)
    layers: Count | None = Field(None, description="Layers of the full model.")
    layers_measured: Count | None = Field(None, description="Layers of the model that ran.")
    dense_measured: Count | None = Field(
        None, description="Layers with a dense MLP that ran beside those with experts; absent where all are alike."
    )
    trial_tokens_per_second: float | None = None
    missing: tuple[Word, ...] = Field((), max_length=4, description="Parts that are not in the figure.")
    depth_check: float | None = Field(None, description="Predicted over measured step time at a second depth.")
    energy: Energy | None = None
    weight_gradients: WeightGradients | None = Field(
        None,
        description="fused: FP32, by the GEMM; separate: by autograd. Absent where nothing ran, and from agents "
        "that knew separate ones alone.",
    )
    failure: Failure | None = None

    FIGURE: ClassVar = ("training", "tokens_per_second")


class ThrottleShare(Record):
    """Share of the timed windows (0 to 1) in which one reason held the clocks back, on the GPU it hit most."""

    reason: Word
    share: float = Field(ge=0, le=1)
    sampled: bool = Field(False, description="By sampled reasons, which is coarser than by the counters.")


class Clocks(Record):
    """Means over the timed windows of all GPUs; the hottest moment of any."""

    sm_mhz: float | None = None
    celsius: float | None = None


LossVerdict = Literal["healthy", "not_learning", "diverging", "diverged"]
"""not_learning: the loss stays far above the entropy. diverging: it rises at the end. diverged: it left."""


class LossRun(Record):
    """One seed of a loss run: loss in nats and gradient norm by step; it ends where it diverged.

    A value that is no finite number is None.
    """

    seed: int
    loss: tuple[float | None, ...] = Field(max_length=1000)
    gradient_norm: tuple[float | None, ...] = Field((), max_length=1000)
    diverged_step: Count | None = None
    reason: Word | None = Field(
        None, description="non_finite, loss_rose or gradient_norm_rose; loss_rose_late; loss_stayed."
    )
    verdict: LossVerdict | None = Field(None, description="Absent from agents before these verdicts.")


class LossDifference(Record):
    """Mean loss of the last steps minus the baseline's with the same seeds, in nats a token, with its 95 % band."""

    nats: float
    lower: float | None = Field(None, description="Of a t-interval over seeds; absent with one seed.")
    upper: float | None = None
    seeds: Count = Field(description="Seeds that came to their end in both recipes.")
    steps: Count = Field(description="How many of the last steps each mean is over.")


class Loss(Record):
    """Short training runs beside the timed ones: a smoke test, never a proof of parity."""

    verdict: LossVerdict | None = None
    runs: tuple[LossRun, ...] = Field((), max_length=3)
    entropy: float | None = Field(None, description="Nats a token of the data's source: no loss goes below for long.")
    start: float | None = Field(None, description="Nats a token of a guess at random: the vocabulary's logarithm.")
    difference: LossDifference | None = Field(None, description="From the baseline's runs; the baseline itself: none.")
    failure: Failure | None = None


class KernelProfiles(Record):
    """How the kernels of one load were seen: profiles under load, after all timed windows, at their SM clock.

    With a failure no figure is made of their shares; the names of kernels that were seen stand all the same.
    """

    load: Literal["gemms", "training"]
    profiles: int = Field(ge=0, le=1000, description="At the clock of the windows.")
    sm_mhz: float | None = Field(None, description="Mean SM clock of all GPUs while they were profiled.")
    windows_sm_mhz: float | None = Field(None, description="The same in the timed windows of this load.")
    seconds: float = Field(0.0, ge=0, description="Of load and profiles together.")
    launch_gaps: float | None = Field(
        None, ge=0, description="Seconds between the kernels of a micro batch, in replays of its timed graphs."
    )
    failure: Failure | None = None


MeaningKind = Literal["baseline", "gemm_bound", "overhead", "fallback", "not_beneficial", "no_difference", "unknown"]


class Meaning(Record):
    """What the figures say of one recipe: docs/development/method.md, "What figures mean".

    `gap` is the share of the expected gain that did not come, split into the quantisation's and the rest's.
    """

    kind: MeaningKind
    sentence: Note = ""
    gemm_share: float | None = Field(None, description="GEMMs' share of the baseline's step.")
    gemm_speedup: float | None = None
    expected_speedup: float | None = None
    expected_interval: Interval | None = Field(
        None, description="Of expected_speedup, from the intervals of the GEMMs' share and of their speedup."
    )
    quantization_part: float | None = None
    other_part: float | None = None


class RecipeResult(Record):
    """All that is known of one recipe on this node."""

    recipe: Recipe
    availability: Availability
    availability_reason: Note = ""
    verification: Verification = Verification(verdict="unknown")
    gemms: tuple[GemmResult, ...] = Field((), max_length=512)
    sums: tuple[GemmSum, ...] = Field((), max_length=2)
    quantization_tax: float | None = Field(
        None, ge=0, le=1, description="Non-GEMM kernel time beyond the baseline's, as a share of it and the GEMM time."
    )
    quantization_tax_interval: Interval | None = Field(
        None, description="Of the tax, over the profiles; absent with fewer than two, or where a profile saw no cast."
    )
    quantization_tax_most: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Then the tax is a lower bound and this the upper one: kernels could not be split.",
    )
    quantization_tax_load: Literal["gemms", "training"] | None = Field(
        None, description="What was profiled for the tax; absent where it is by times with and without quantisation."
    )
    gradient_quantization_share: float | None = Field(
        None, ge=0, le=1, description="Quantisation's share of the data gradients' kernel time, of the GEMMs alone."
    )
    cpu_bound: bool | None = Field(
        None, description="Kernels ran in less than 95 % of the timed step, which was launched kernel by kernel."
    )
    kernel_time_share: float | None = Field(
        None, ge=0, description="Time in which a kernel ran, over the timed step: below 1 by the gaps between kernels."
    )
    kernel_profiles: tuple[KernelProfiles, ...] = Field((), max_length=2)
    training: Training | None = None
    throttle: tuple[ThrottleShare, ...] = Field((), max_length=8)
    throttled: ThrottleShare | None = Field(None, description="The reason that marks the figures, beyond 0.1 %.")
    clocks: Clocks | None = None
    memory: Memory = Memory()
    model_memory: ModelMemory | None = None
    loss: Loss | None = None
    meaning: Meaning | None = None
    last_layers_bf16: Count | None = Field(None, description="Layers of the model that stay in BF16.")
    listed: bool = Field(False, description="Whether the request lists the recipe by name.")
    notes: tuple[Note, ...] = Field((), max_length=8, description="What else a reader must know, e.g. padding.")


class Recommendation(Record):
    """Which recipe to use here; None where no figure allows an answer, `sentence` says why."""

    by_speed: Recipe | None = None
    by_energy: Recipe | None = None
    fallback: Recipe | None = None
    sentence: Note = ""


class Steadiness(Record):
    """How the warm-up ended: temperature, SM clock and step time without a slope, or the limit of time."""

    state: Literal["steady", "not_steady", "not_checked"]
    seconds: float = Field(0.0, ge=0)
    message: Note = ""


class Sensor(Record):
    """What the calibration of the power sensor found."""

    accuracy: SensorAccuracy = "unverified"
    counter_update_seconds: float | None = None
    power_update_seconds: float | None = None
    agreement: float | None = Field(None, description="Counter's energy over the integral's, square-wave load.")
    counter_scope: Literal["gpu", "more"] | None = Field(
        None, description="What the energy counter covers: the GPU, or more of its module, as on GH200."
    )
    message: Note = ""


class PowerTrace(Record):
    """Draw of all GPUs together through the run, thinned; None where no sample was."""

    started_at: Word
    interval_seconds: float = Field(gt=0)
    watts: tuple[float | None, ...] = Field(max_length=600)


class GpuHealth(Record):
    """One GPU before the run; None where the driver does not tell."""

    uuid: Uuid
    ecc_volatile_uncorrectable: Count | None = None
    ecc_aggregate_uncorrectable: Count | None = None
    remap_pending: bool | None = None
    memory_used_bytes: Count | None = None
    utilisation_percent: Count | None = None


class MeasurementResult(Record):
    """The whole result of one agent run on one node."""

    schema_version: Literal["1"] = "1"
    run: Annotated[str, Field(max_length=63, pattern=PLAIN)]
    request_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    node: Annotated[str, Field(max_length=253, pattern=PLAIN)]
    attempt: Count
    backend: Backend
    provenance: Provenance
    sources: tuple[Note, ...] = Field((), max_length=16, description="Where replayed figures were published.")
    simulated: tuple[Simulated, ...] = Field((), max_length=32)
    partial: Failure | None = Field(None, description="Set when the run ended early; the figures there are good.")
    scope: Literal["node_compute_no_communication"] = "node_compute_no_communication"
    """What every rate is a rate of: all GPUs of one node computing at once, no traffic between them."""
    product: Word
    gpus: tuple[Gpu, ...] = Field(max_length=16)
    software: Software
    started_at: Word
    finished_at: Word
    duration_seconds: float = Field(ge=0)
    phase_seconds: dict[Word, float] = Field(
        default_factory=dict,
        max_length=16,
        description="Of each phase, by the names of `precision-agent run --plan`; preflight holds idle and start.",
    )
    workload_name: Title
    workload_hash: Word
    formula: Word | None = Field(
        None, description="Name/version of the FLOP formula; absent with bare shapes, which have no tokens."
    )
    training_flops_per_token: float | None = None
    method: Method = "agent"
    timing: Word | None = Field(None, description="Number of the timed loop, and its timing: 1/quick.")
    baseline: Recipe = "bf16"
    recipe_scope: RecipeScope = "all"
    health: tuple[GpuHealth, ...] = Field((), max_length=16)
    environment: dict[Word, Note] = Field(
        default_factory=dict, max_length=64, description="NVTE_*, CUBLAS* and the like: as set, or unset."
    )
    steadiness: Steadiness | None = None
    sensor: Sensor | None = None
    power_trace: PowerTrace | None = None
    noise_floor: float | None = Field(
        None, description="A ratio nearer to 1 than this is no difference: max(|control - 1| + half-width, 0.5 %)."
    )
    control_ratio: Interval | None = Field(None, description="A second, equal baseline against the first: the noise.")
    device_memory: DeviceMemory | None = None
    recipes: tuple[RecipeResult, ...] = Field(max_length=MOST_RECIPES)
    recommendation: Recommendation = Recommendation()

    @property
    def limit_watts(self) -> int | None:
        """Enforced limits of all GPUs together; None unless every GPU tells its own."""
        limits = [gpu.enforced_limit_watts for gpu in self.gpus]
        present = [limit for limit in limits if limit is not None]
        return round(sum(present)) if present and len(present) == len(limits) else None

    @property
    def limits_differ(self) -> bool:
        """Whether enforced limits of its GPUs lie over 1 % apart: a GPU can't be compared with the others then."""
        limits = [gpu.enforced_limit_watts for gpu in self.gpus if gpu.enforced_limit_watts]
        return max(limits, default=0) > 1.01 * min(limits, default=0)

    @model_validator(mode="after")
    def _honest(self) -> "MeasurementResult":
        if self.simulated and self.provenance != "simulated":
            raise ValueError("a result with a simulated field must have provenance simulated")
        once_each([recipe.recipe for recipe in self.recipes])
        assumed_where_made_up(self.provenance, [recipe.verification.verdict for recipe in self.recipes])
        return self
