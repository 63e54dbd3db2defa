"""The narrow door between the run and whatever takes its samples.

A `Backend` measures ONE device and runs in a process of its own (a CUDA error poisons its context, a hung kernel can
only be killed); all that passes this door is frozen and can be pickled. What is of the node (all GPUs in step, sums,
sensors, energy) is made above it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from precision_agent.cases import Case, GemmCase, Variant
from precision_api.exchange import result
from precision_api.exchange.exits import Exit
from precision_api.exchange.result import Backend as BackendName
from precision_api.facts.recipes import Recipe

RegionName = Literal["dense_forward", "layers_forward", "head", "layers_backward", "dense_backward", "optimizer"]
"""The timed parts of a step. `head` is its forward and backward pass together with the loss. Where some of a model's
layers have experts and others a dense MLP, `layers` are those with experts and `dense` the others."""
Part = Literal["layers", "head", "optimizer", "dense"]
PARTS: Mapping[Part, tuple[RegionName, ...]] = {
    "layers": ("layers_forward", "layers_backward"),
    "head": ("head",),
    "optimizer": ("optimizer",),
    "dense": ("dense_forward", "dense_backward"),
}
"""What a power window replays, and its regions: `layers` is one pass forward and back through the layers that ran."""

Load = Literal["gemms", "training"]
"""What a variant is timed and profiled with: its GEMMs in turn, or its training step."""
TracedPass = Literal["forward", "backward", "other"]
GemmName = tuple[str, str]
"""Name and pass of a GEMM case: equal in all modes."""


def parts_of(regions: Mapping[RegionName, float]) -> dict[Part, float]:
    """Seconds of the parts that power windows replay, from the regions that were measured."""
    return {part: sum(regions[name] for name in names) for part, names in PARTS.items() if set(names) <= set(regions)}


class Refusal(Exception):
    """There will be no result: `exit` is the row of the table of exit codes, the message tells this case."""

    def __init__(self, exit_: Exit, message: str) -> None:
        super().__init__(exit_, message)
        self.exit = exit_
        self.message = message


@dataclass(frozen=True, slots=True)
class Device:
    """One device and its software. A CPU has no `gpu`. `environment`: NVTE_*, CUBLAS* and the like, as they are set."""

    product: str
    software: result.Software
    gpu: result.Gpu | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultProvenance:
    """Where the figures come from; a made-up field makes the whole result simulated."""

    kind: result.Provenance
    sources: tuple[str, ...] = ()
    simulated: tuple[result.Simulated, ...] = ()


UNKNOWN = result.Verification(verdict="unknown")


@dataclass(frozen=True, slots=True)
class Probe:
    """What one forward and backward pass of a recipe showed: does it run, and in which precision."""

    availability: result.Availability
    reason: str = ""
    verification: result.Verification = UNKNOWN


@dataclass(frozen=True, slots=True)
class Sample:
    """`calls` calls from `start` to `end` (CLOCK_MONOTONIC seconds), `seconds` each: a figure is never 0.

    For a training case one call is one micro batch of the short model, and `regions` are the seconds of its parts: of
    the layers that ran (`layers_measured` of them together), of the head, and of one optimizer step of the layers and
    what else is in the short model (`optimizer_parameters` weights; None: those of the layers and the head). A region
    that did not fit is left out. Nothing is recomputed, whatever the request says: that is added by arithmetic.
    `running` is the share of a power window in which calls ran, the rest of it are pauses.
    `dense_measured`: layers with a dense MLP that ran beside `layers_measured` with experts, as regions of their own; 0
    where all layers of the model are alike.
    `windowed_layers`: how many of `layers_measured` had the model's sliding window; None where nothing ran.
    `holds_quantization`: of a prequantized case, that `seconds` are those of the step with its casts. Kernel-only time
    is the GEMM kernels' share of them, which profiles tell after all windows.
    """

    seconds: float
    calls: int
    start: float
    end: float
    regions: Mapping[RegionName, float] = field(default_factory=dict)
    layers_measured: int | None = None
    optimizer_parameters: int | None = None
    execution: result.Execution | None = None
    execution_reason: str = ""
    running: float = 1.0
    windowed_layers: int | None = None
    weight_gradients: result.WeightGradients | None = None
    holds_quantization: bool = False
    dense_measured: int = 0


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """A kernel of the profiled step, all its launches in one pass and module together, seconds of one step.

    Of a moment in which several kernels run, each has its equal part.
    """

    name: str
    seconds: float
    pass_: TracedPass = "other"
    module: str = ""
    """`attention`, `mlp`, `head` or empty: where the module is known."""
    dense: bool = False
    """Of a dense layer of a model whose other layers have experts."""


@dataclass(frozen=True, slots=True)
class KernelSeconds:
    """Seconds of the kernels of one GEMM, kernels that run at the same time counted once.

    `gemm`: in which a GEMM kernel ran; `other`: in which only others did. `launches` GEMM kernels ran, on `streams`
    streams. `gaps`: seconds between kernels in replays of the graph that is timed; None of eager steps.
    """

    gemm: float
    other: float
    launches: float = 1.0
    streams: int = 1
    gaps: float | None = None

    @property
    def seconds(self) -> float:
        """In which any kernel ran."""
        return self.gemm + self.other

    @property
    def gemm_share(self) -> float | None:
        """The GEMM kernels' part; None without kernels."""
        return self.gemm / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Kernels of one step of a load, mean of `steps` profiled ones.

    `seconds`: in one step, that some kernel ran; of a training step without its optimizer. `start` to `end`
    (CLOCK_MONOTONIC seconds): the profiled steps and the load right before them. `gemms`: of the load `gemms`, each
    one's kernels, of a single GEMM.
    """

    kernels: tuple[ProfiledKernel, ...]
    seconds: float
    steps: int
    start: float = 0.0
    end: float = 0.0
    gemms: Mapping[GemmName, KernelSeconds] = field(default_factory=dict)
    unplaced: str = ""
    """Why it could not be told which module launched which kernel; empty where it could, or where there are none."""
    gaps: float | None = None
    """Seconds between the kernels of a training step's timed graphs, in replays of them; None of eager steps."""
    clock: float = 1.0
    """Its SM clock over that of its timed windows, where both are known: kernels took so much less time than there."""


NO_KERNELS = result.Failure(
    reason="no_kernels",
    message="the profiler saw no kernel: CUPTI is missing, or another tool (Nsight, a DCGM job, CUPTI_* or "
    "CUDA_INJECTION64_PATH in the environment) holds it; end that and measure again",
)
CLOCK_SECONDS = 0.5
"""So much of the load before profiled steps shows the clock that they had: ten readings of a driver, and no more than a
clock needs to follow a load."""


def window_of_profile(began: float, ready: float) -> float:
    """Where the window of profiled steps starts whose load ran from `began` to `ready`: its second half at most."""
    return max((began + ready) / 2, ready - CLOCK_SECONDS)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What shows from inside that the precision ran: quantizer flags, relative errors, bytes saved for backward.

    `attention`: the backend of attention's core. `left_out`: what of the model the training step does not have.
    `notes`: how it runs what it has, where that bears on its figure.
    """

    flags: Mapping[str, bool] = field(default_factory=dict)
    errors: result.NumericErrors | None = None
    saved: tuple[result.SavedBytes, ...] = ()
    attention: str | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LossPlan:
    """One loss run: tokens from the seeded Markov chain, usual learning rate times `learning_rate_factor`."""

    steps: int
    seed: int
    learning_rate_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class LossTrack:
    """Loss (nats) and gradient norm by step, NaN and infinities as they came; a run may end at its first NaN."""

    loss: tuple[float, ...]
    gradient_norm: tuple[float, ...]


class Backend(Protocol):
    """Takes samples of one device. What can't be had is a Failure, never an exception and never 0.

    Out of memory is `out_of_memory`, a CUDA error `cuda_error` (the process is then ended and begun anew for the other
    variants), an exception of another kind a `failed` that the worker makes of it.
    """

    @property
    def name(self) -> BackendName:
        """Which backend, as the result names it."""

    def device(self) -> Device:
        """The device and the software; raises Refusal where it can't be used."""

    def provenance(self) -> ResultProvenance:
        """Where the figures come from; asked after the last sample."""

    def probe(self, variant: Variant) -> Probe:
        """Runs the variant's recipe once, forward and backward, and checks its numbers."""

    def prepare(self, case: Case, variant: Variant) -> result.Failure | None:
        """Builds, checks, captures and warms up all that `measure` needs, so that all GPUs can begin at once."""

    def settle(self, variant: Variant, seconds: float, load: Load | None = None) -> Sample | result.Failure:
        """Runs the variant's load (left out: training step, else GEMMs): clocks and temperature become its own."""

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | result.Failure:
        """About `seconds` of calls, at least one."""

    def power_window(
        self, variant: Variant, part: Part, seconds: float, longest_pause_seconds: float, seed: int, calls: int = 1
    ) -> Sample | result.Failure:
        """Replays one part of the step, with uniform random pauses of 0 to that long after each group of `calls` calls.

        `Sample.seconds` is the period of a call without the pauses, `Sample.running` the share of the window that they
        left. `no_such_part` where the short model lacks it.
        """

    def second_depth(self, variant: Variant, seconds: float) -> Sample | result.Failure:
        """A training sample at another depth, to check the full-depth model with."""

    def own_gemm_calls(
        self, variant: Variant, lead_seconds: float, seconds: float, repeats: int
    ) -> tuple[Mapping[GemmName, float], ...] | result.Failure:
        """Seconds of each GEMM by the library's own call on quantised operands, timed by events within its load.

        `repeats` times about `seconds` for all GEMMs together, after `lead_seconds` of load.
        """

    def profile(
        self, variant: Variant, load: Load, lead_seconds: float, trace: Path | None = None
    ) -> Profile | result.Failure:
        """Kernels of profiled steps right after `lead_seconds` of the same load; the profiler's trace goes to `trace`.

        Never before the last timed window: what a profiler attaches to the process stays there and slows it down.
        """

    def inspect(self, variant: Variant) -> Inspection:
        """Flags, errors and saved bytes of the variant, outside all timed windows."""

    def loss_run(self, variant: Variant, plan: LossPlan) -> LossTrack | result.Failure:
        """A short training run of its own."""

    def memory(self, variant: Variant) -> result.Memory:
        """Peak memory of the variant, bytes."""

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | result.Failure:
        """Mean seconds of a forward call as NVIDIA's benchmark_gemm.py times it: one pair of events around all calls.

        bf16 is a bare matmul; other recipes a forward-only linear layer (autocast) or quantised operands.
        """
