"""GEMMs by plain torch: bf16 and FP8 with current per-tensor scales, on the CPU (a trial) or on one CUDA GPU.

What bounds a GEMM of m x k x n: 2mkn operations at the format's peak, or its operands' and result's bytes at the
memory's bandwidth. FP8 by `torch._scaled_mm` wants the first operand row-major and the second column-major, so that
both run along k; dgrad and wgrad hold one operand the other way round, and its transposed copy is part of their
quantisation. Gradients are E5M2, all else E4M3 (the HYBRID format of Transformer Engine).

Kernel names are not available on the CPU: there the verdict stands on numerical error alone. The CUDA path was never
run on a GPU.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from time import perf_counter
from typing import Literal

import torch

from precision_agent import __version__
from precision_agent.backends.protocol import Machine, Origin, Power, Probe, Refusal
from precision_agent.cases import Arm, Case, GemmCase, TrainingCase
from precision_agent.sensors import nvml
from precision_agent.verification import ERROR_BANDS, numeric_verdict
from precision_api.exits import DEVICE_MISSING, INVALID_REQUEST
from precision_api.recipes import Recipe
from precision_api.request import MeasurementRequest, Mode, digest
from precision_api.result import Backend as BackendName
from precision_api.result import Failure, Memory, Software, Verdict, Verification

PLAIN_RECIPES: frozenset[Recipe] = frozenset({"bf16", "fp8_current"})
"""What plain torch can multiply."""
CHECKED_ROWS = 64
PROBE = GemmCase("probe", "fprop", 128, 256, 96, 1, "autocast")
Call = Callable[[], torch.Tensor]
Pass = Literal["fprop", "dgrad", "wgrad"]


class TorchGemm:
    """The backend on one device."""

    def __init__(self, request: MeasurementRequest, device: str) -> None:
        self._device = _device(request, device)
        self._cuda = self._device.type == "cuda"
        self.name: BackendName = "torch-cuda" if self._cuda else "torch-cpu"
        self._promised = request.node.gpus
        self._seed = request.timing.seed
        self._checked: dict[tuple[Recipe, GemmCase], Failure | None] = {}
        # Before our own context is on the GPU: afterwards its memory would look used by somebody else.
        self._reading = nvml.read() if self._cuda else nvml.Reading()

    def machine(self) -> Machine:
        """The CPU as product "CPU" without GPUs, or the one GPU that is measured."""
        if self._cuda and torch.cuda.device_count() < self._promised:
            told = f"the request names {self._promised} GPUs, torch sees {torch.cuda.device_count()}"
            raise Refusal(DEVICE_MISSING, told)
        found = nvml.refusal(self._reading.gpus, self._promised) if self._reading.gpus else None
        if found:
            raise Refusal(*found)
        versions = {
            "agent": __version__,
            "torch": torch.__version__,
            "cuda": torch.version.cuda if self._cuda else None,
        }
        software = Software(**versions, driver=self._reading.driver, stack_hash=digest(versions, 16))
        if not self._cuda:
            return Machine("CPU", 1, (), software)
        properties = torch.cuda.get_device_properties(self._device)
        measured = [gpu for gpu in self._reading.gpus if gpu.uuid.endswith(str(getattr(properties, "uuid", "-")))]
        return Machine(properties.name[:64], 1, tuple(gpu.as_gpu() for gpu in measured), software)

    def origin(self) -> Origin:
        """Measured, here and now."""
        return Origin("measured")

    def probe(self, arm: Arm) -> Probe:
        """One small forward and backward against FP32."""
        if arm.recipe not in PLAIN_RECIPES:
            return Probe("unsupported", f"plain torch has no {arm.recipe}: it needs Transformer Engine on a GPU")
        passes: tuple[Pass, ...] = ("fprop", "dgrad", "wgrad")
        cases = [GemmCase("probe", pass_, 128, 256, 96, 1, "autocast") for pass_ in passes]
        try:
            errors = {case.pass_: self._error(case, arm.recipe) for case in cases}
        except RuntimeError as error:
            return Probe("probe_failed", f"{arm.recipe} on {self._device}: {error}"[:500])
        return _judged(arm.recipe, errors, self._cuda)

    def settle(self, arm: Arm, seconds: float) -> None:
        """Small GEMMs of the arm's recipe, untimed."""
        call = self._call(PROBE, arm.recipe)
        ends = perf_counter() + seconds
        while perf_counter() < ends:
            call()
        self._wait()

    def measure(self, case: Case, arm: Arm, seconds: float) -> float | Failure:
        """Mean seconds of a call; nothing is timed before its numbers were checked against FP32."""
        if isinstance(case, TrainingCase):
            told = "training runs through Transformer Engine's layers, which plain torch does not have"
            return Failure(reason="not_available", message=told)
        try:
            recipe = case.recipe_of(arm)
            return self._wrong(case, recipe) or self._timed(self._call(case, recipe), seconds)
        except (RuntimeError, MemoryError) as error:
            reason = "out_of_memory" if "memory" in str(error).lower() else "failed"
            return Failure(reason=reason, message=f"{case.name} {case.pass_}: {error}"[:500])

    def power(self, arm: Arm) -> Power:
        """None: power belongs to training segments, and plain torch has none."""
        return Power(None, ("no_training_segment",))

    def memory(self, arm: Arm) -> Memory:
        """Peak of the process so far (all arms), and on a GPU the allocator's."""
        process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if not self._cuda:
            return Memory(process_peak_bytes=process)
        return Memory(
            allocated_peak_bytes=torch.cuda.max_memory_allocated(self._device),
            reserved_peak_bytes=torch.cuda.max_memory_reserved(self._device),
            process_peak_bytes=process,
        )

    def _wrong(self, case: GemmCase, recipe: Recipe) -> Failure | None:
        """Why the numbers of this case can't be trusted, or None; found out once."""
        key = (recipe, case)
        if key not in self._checked:
            error = self._error(case, recipe)
            band = ERROR_BANDS[recipe]
            told = f"{case.name} {case.pass_}: relative error {error:.2g} is outside {band.low:g} to {band.high:g}"
            fits = numeric_verdict(recipe, error) == "within"
            self._checked[key] = None if fits else Failure(reason="numerical_error", message=told)
        return self._checked[key]

    def _error(self, case: GemmCase, recipe: Recipe) -> float:
        """Relative error of the first rows of the product against FP32."""
        a, b = self._operands(case)
        rows = min(CHECKED_ROWS, case.m)
        exact = a[:rows].float() @ b.float()
        found = self._product(a, b, case, recipe)()[:rows].float()
        return float((found - exact).norm() / exact.norm())

    def _operands(self, case: GemmCase) -> tuple[torch.Tensor, torch.Tensor]:
        """A (m, k) and B (k, n) in bf16, each in the memory layout that the pass finds it in.

        fprop: x (tokens, in) and the weight (out, in) transposed. dgrad: dy (tokens, out) and the weight as it lies.
        wgrad: x transposed and dy as it lies.
        """
        chance = torch.Generator(device="cpu").manual_seed(self._seed)

        def normal(rows: int, columns: int) -> torch.Tensor:
            drawn = torch.randn(rows, columns, generator=chance, dtype=torch.float32)
            return drawn.to(self._device, torch.bfloat16)

        a = normal(case.k, case.m).t() if case.pass_ == "wgrad" else normal(case.m, case.k)
        b = normal(case.n, case.k).t() if case.pass_ == "fprop" else normal(case.k, case.n)
        return a, b

    def _call(self, case: GemmCase, recipe: Recipe) -> Call:
        return self._product(*self._operands(case), case, recipe)

    def _product(self, a: torch.Tensor, b: torch.Tensor, case: GemmCase, recipe: Recipe) -> Call:
        """The call that is timed: with quantisation (autocast) or without (prequantized)."""
        if recipe == "bf16":
            return lambda: a @ b
        return _fp8_product(a, b, case.pass_, case.mode)

    def _timed(self, call: Call, seconds: float) -> float:
        """One call to warm up, one to know how many fit, then the batch; a long call is its own batch."""
        call()
        once = self._batch(call, 1)
        calls = math.floor(seconds / max(once, 1e-9))
        return self._batch(call, calls) if calls > 1 else once

    def _batch(self, call: Call, calls: int) -> float:
        self._wait()
        start = perf_counter()
        for _ in range(calls):
            call()
        self._wait()
        return (perf_counter() - start) / calls

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)


def _device(request: MeasurementRequest, wanted: str) -> torch.device:
    """The device; a GPU node without CUDA is refused rather than measured on its CPU without a word."""
    if wanted not in ("auto", "cuda", "cpu"):
        raise Refusal(INVALID_REQUEST, f"device {wanted!r}: known are auto, cuda and cpu")
    if wanted == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if wanted == "auto" and request.node.product == "CPU":
        return torch.device("cpu")
    told = f"the request names {request.node.product} but torch sees no CUDA device; for a trial say --device cpu"
    raise Refusal(DEVICE_MISSING, told)


def _fp8_product(a: torch.Tensor, b: torch.Tensor, pass_: Pass, mode: Mode) -> Call:
    a_type = torch.float8_e5m2 if pass_ == "dgrad" else torch.float8_e4m3fn
    b_type = torch.float8_e5m2 if pass_ == "wgrad" else torch.float8_e4m3fn

    def quantised() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        a8, a_scale = _quantised(a, a_type)
        b8, b_scale = _quantised(b.t(), b_type)
        return a8, b8.t(), a_scale, b_scale

    def multiplied(a8: torch.Tensor, b8: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a8, b8, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)

    if mode == "autocast":
        return lambda: multiplied(*quantised())
    ready = quantised()
    return lambda: multiplied(*ready)


def _quantised(tensor: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """`tensor` in FP8, row-major, and the FP32 scale that undoes it: amax -> the format's largest number."""
    amax = tensor.abs().amax().float().clamp(min=1e-12)
    scale = torch.finfo(kind).max / amax
    return (tensor * scale.to(tensor.dtype)).to(kind).contiguous(), scale.to(tensor.dtype).float().reciprocal()


def _judged(recipe: Recipe, errors: dict[Pass, float], cuda: bool) -> Probe:
    found = {numeric_verdict(recipe, error) for error in errors.values()}
    told = ", ".join(f"{pass_} {error:.2g}" for pass_, error in errors.items())
    if "too_large" in found:
        high = ERROR_BANDS[recipe].high
        return Probe("probe_failed", f"{recipe}: relative error against FP32 above {high:g}: {told}")
    message = f"relative error against FP32: {told}; kernel names {'not read' if cuda else 'unavailable on the CPU'}"
    verdict: Verdict = "fallback" if "too_exact" in found else "verified"
    return Probe("ok", verification=Verification(verdict=verdict, message=message))
