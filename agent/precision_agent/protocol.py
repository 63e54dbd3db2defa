"""The narrow door between the run and whatever takes its samples.

A `Backend` measures ONE device and runs in a process of its own (a CUDA error poisons its context, a hung kernel can
only be killed); all that passes this door is frozen and can be pickled. What is of the node (all GPUs in step, sums,
sensors, energy) is made above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from precision_agent.cases import Case, GemmCase, Variant
from precision_api.exits import Exit
from precision_api.recipes import Recipe
from precision_api.result import (
    Availability,
    Execution,
    Failure,
    Gpu,
    Memory,
    NumericErrors,
    Provenance,
    Simulated,
    Software,
    Verification,
    WeightGradients,
)
from precision_api.result import Backend as BackendName

RegionName = Literal["layers_forward", "head", "layers_backward", "optimizer"]
"""The timed parts of a step. `head` is its forward and backward pass together with the loss."""
Part = Literal["layers", "head", "optimizer"]
PARTS: tuple[Part, ...] = ("layers", "head", "optimizer")
"""What a power window replays: `layers` is one forward and backward pass through the layers that are there."""

FATAL_REASONS = frozenset({"cuda_error", "hung", "worker_died"})
"""After these the device's context is worth nothing: its process ends, and the variant is not tried again."""


def parts_of(regions: Mapping[RegionName, float]) -> dict[Part, float]:
    """Seconds of the parts that power windows replay, from the regions that were measured."""
    parts: dict[Part, float] = {}
    if "layers_forward" in regions and "layers_backward" in regions:
        parts["layers"] = regions["layers_forward"] + regions["layers_backward"]
    if "head" in regions:
        parts["head"] = regions["head"]
    if "optimizer" in regions:
        parts["optimizer"] = regions["optimizer"]
    return parts


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
    software: Software
    gpu: Gpu | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultProvenance:
    """Where the figures come from; a made-up field makes the whole result simulated."""

    kind: Provenance
    sources: tuple[str, ...] = ()
    simulated: tuple[Simulated, ...] = ()


UNKNOWN = Verification(verdict="unknown")


@dataclass(frozen=True, slots=True)
class Probe:
    """What one forward and backward pass of a recipe showed: does it run, and in which precision."""

    availability: Availability
    reason: str = ""
    verification: Verification = UNKNOWN


@dataclass(frozen=True, slots=True)
class Sample:
    """`calls` calls from `start` to `end` (CLOCK_MONOTONIC seconds), `seconds` each: a figure is never 0.

    For a training case one call is one micro batch of the short model, and `regions` are the seconds of its parts: of
    the layers that ran (`layers_measured` of them together), of the head, and of one optimizer step of the layers and
    what else is in the short model (`optimizer_parameters` weights; None: those of the layers and the head). A region
    that did not fit is left out. Nothing is recomputed, whatever the request says: that is added by arithmetic. `busy`
    is GPU-busy over wall time; `running` the share of a power window in which calls ran, the rest of it are pauses.
    `windowed_layers`: how many of `layers_measured` had the model's sliding window; None where nothing ran.
    """

    seconds: float
    calls: int
    start: float
    end: float
    regions: Mapping[RegionName, float] = field(default_factory=dict)
    layers_measured: int | None = None
    optimizer_parameters: int | None = None
    execution: Execution | None = None
    execution_reason: str = ""
    busy: float | None = None
    running: float = 1.0
    windowed_layers: int | None = None
    weight_gradients: WeightGradients | None = None


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """A kernel of the profiled step, all its launches in one pass and module together, seconds of one step."""

    name: str
    seconds: float
    pass_: Literal["forward", "backward", "other"] = "other"
    module: str = ""
    """`attention`, `mlp`, `head` or empty: where the module is known."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Kernels of a training step, mean of `steps` profiled ones, which took `step_seconds` of wall time each."""

    kernels: tuple[ProfiledKernel, ...]
    step_seconds: float
    steps: int
    busy: float | None = None
    unplaced: str = ""
    """Why it could not be told which module launched which kernel; empty where it could, or where there are none."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What shows from inside that the precision ran: quantizer flags, relative errors, bytes saved for backward.

    `saved_bytes_ratio` is over BF16's. `gradient_quantization_share`: of the data gradients' kernel time, what
    quantises the incoming gradient. `left_out`: what of the model the training step does not have.
    """

    flags: Mapping[str, bool] = field(default_factory=dict)
    errors: NumericErrors | None = None
    saved_bytes_ratio: float | None = None
    gradient_quantization_share: float | None = None
    left_out: tuple[str, ...] = ()


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

    def prepare(self, case: Case, variant: Variant) -> Failure | None:
        """Builds, checks, captures and warms up all that `measure` needs, so that all GPUs can begin at once."""

    def settle(self, variant: Variant, seconds: float) -> Sample | Failure:
        """Runs the variant's load (training step, else GEMMs) so that clocks and temperature are its own."""

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        """About `seconds` of calls, at least one."""

    def power_window(
        self, variant: Variant, part: Part, seconds: float, longest_pause_seconds: float, seed: int, calls: int = 1
    ) -> Sample | Failure:
        """Replays one part of the step, with uniform random pauses of 0 to that long after each group of `calls` calls.

        `Sample.seconds` is the period of a call without the pauses, `Sample.running` the share of the window that they
        left. `no_such_part` where the short model lacks it.
        """

    def second_depth(self, variant: Variant, seconds: float) -> Sample | Failure:
        """A training sample at another depth, to check the full-depth model with."""

    def profile(self, variant: Variant, trace: Path | None = None) -> Profile | Failure:
        """Kernels of profiled training steps (of GEMMs where there are none); the profiler's trace goes to `trace`."""

    def inspect(self, variant: Variant) -> Inspection:
        """Flags, errors and saved bytes of the variant, outside all timed windows."""

    def loss_run(self, variant: Variant, plan: LossPlan) -> LossTrack | Failure:
        """A short training run of its own."""

    def memory(self, variant: Variant) -> Memory:
        """Peak memory of the variant, bytes."""

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        """Mean seconds of a forward call as NVIDIA's benchmark_gemm.py times it: one pair of events around all calls.

        bf16 is a bare matmul; other recipes a forward-only linear layer (autocast) or quantised operands.
        """
