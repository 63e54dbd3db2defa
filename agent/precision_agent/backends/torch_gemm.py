"""Plain torch on one device: GEMMs and a short training step in bf16 and FP8, on the CPU (a trial) or on a CUDA GPU.

Kernel names are not available on the CPU, and from numerical errors alone no verdict is better than `unknown`. The CUDA
path was never run on a GPU. A mixture of experts has no training step here.
"""

import math
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from precision_agent import __version__, protocol
from precision_agent.backends import torch_step
from precision_agent.backends.profiler import profile_under_load, profiled, told_modules
from precision_agent.cases import UNQUANTIZED, Case, GemmCase, TrainingCase, Variant
from precision_agent.power import nvml
from precision_agent.power.aliasing import pauses
from precision_agent.precision.verification import ERROR_BANDS, numeric_verdict
from precision_agent.protocol import Part
from precision_api.exchange.exits import DEVICE_MISSING, INVALID_REQUEST
from precision_api.exchange.request import MeasurementRequest, digest
from precision_api.exchange.result import Backend as BackendName
from precision_api.exchange.result import Failure, Gpu, Memory, NumericErrors, Software, Verdict, Verification
from precision_api.facts.recipes import Recipe
from precision_api.models.shapes import PASSES, Pass, step_shape_problems
from precision_api.models.workload import ResolvedWorkload, resolve

CHECKED_ROWS = 64
SMALL = GemmCase("probe", "fprop", 128, 256, 96, 1, mode="autocast")
SHORT_LAYERS = 2
PROFILED_STEPS = 10
LOSS_TOKENS = 128
CPU_CACHE_BYTES = 32 << 20
"""Taken for the last-level cache of a CPU, which is not asked."""
MOST_COPIES = 16
TOLD_VARIABLES = ("CUBLAS", "CUDA_", "NVTE_", "NVIDIA_", "NCCL_", "PYTORCH_", "TORCH_", "OMP_NUM_THREADS")


class TorchGemm:
    def __init__(self, request: MeasurementRequest, device: str) -> None:
        self._device = _device(request, device)
        self._cuda = self._device.type == "cuda"
        self.name: BackendName = "torch-cuda" if self._cuda else "torch-cpu"
        self._request = request
        self._workload: ResolvedWorkload = resolve(request.workload)
        self._seed = request.timing.seed
        self._checked: dict[tuple[Recipe, GemmCase], Failure | None] = {}
        self._errors: dict[Recipe, dict[Pass, float]] = {}
        self._models: dict[str, torch_step.ShortModel] = {}

    def device(self) -> protocol.Device:
        """The CPU as product "CPU", or the one GPU that this process sees."""
        versions = {"torch": torch.__version__, "cuda": torch.version.cuda if self._cuda else None}
        stack = digest(versions, 16)
        versions |= {"agent": __version__}
        variables = {name: value for name, value in os.environ.items() if name.startswith(TOLD_VARIABLES)}
        if not self._cuda:
            return protocol.Device("CPU", Software(**versions, stack_hash=stack), environment=variables)
        properties = torch.cuda.get_device_properties(self._device)
        reading = nvml.read()
        uuid = f"GPU-{getattr(properties, 'uuid', '')}"
        seen = next((gpu for gpu in reading.gpus if gpu.uuid == uuid), None)
        gpu = seen or Gpu(uuid=uuid[:64], name=properties.name[:128], memory_bytes=properties.total_memory)
        software = Software(**versions, driver=reading.driver, stack_hash=stack)
        return protocol.Device(gpu.name.removeprefix("NVIDIA ")[:64], software, gpu, variables)

    def provenance(self) -> protocol.ResultProvenance:
        """Measured, here and now; on a CPU no more than a trial of the way."""
        return protocol.ResultProvenance("measured" if self._cuda else "trial")

    def probe(self, variant: Variant) -> protocol.Probe:
        """One small forward and backward against FP32."""
        if variant.recipe not in torch_step.PLAIN_RECIPES:
            message = f"plain torch has no {variant.recipe}: it needs Transformer Engine on a GPU"
            return protocol.Probe("unsupported", message)
        try:
            errors = self._small_errors(variant.recipe)
        except RuntimeError as error:
            return protocol.Probe("probe_failed", f"{variant.recipe} on {self._device}: {error}"[:500])
        return _judged(variant.recipe, errors, self._cuda)

    def prepare(self, case: Case, variant: Variant) -> Failure | None:
        """Numbers are checked before any time; the short model is built and run once."""
        if isinstance(case, GemmCase):
            return self._wrong(case, case.recipe_of(variant))
        model = self._model(variant)
        if isinstance(model, Failure):
            return model
        model.step(self._wait)
        self._wait()
        return None

    def settle(self, variant: Variant, seconds: float, load: protocol.Load | None = None) -> protocol.Sample | Failure:
        """The variant's training step, else small GEMMs of its recipe."""
        model = self._models.get(variant.label)
        if model:
            return torch_step.timed(model, seconds, self._wait)
        return self._timed([self._product(*self._operands(SMALL), SMALL, variant.recipe)], seconds)

    def measure(self, case: Case, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        """Mean seconds of a call; nothing is timed before its numbers were checked against FP32."""
        if isinstance(case, TrainingCase):
            model = self._model(variant)
            return model if isinstance(model, Failure) else torch_step.timed(model, seconds, self._wait)
        recipe = case.recipe_of(variant)
        try:
            return self._wrong(case, recipe) or self._timed(self._rotation(case, recipe), seconds)
        except (RuntimeError, MemoryError) as error:
            if "CUDA error" in str(error):
                raise
            reason = "out_of_memory" if "memory" in str(error).lower() else "failed"
            return Failure(reason=reason, message=f"{case.name} {case.pass_}: {error}"[:500])

    def power_window(
        self, variant: Variant, part: Part, seconds: float, longest_pause_seconds: float, seed: int, calls: int = 1
    ) -> protocol.Sample | Failure:
        """One part of the short model's step, again and again."""
        model = self._model(variant)
        if isinstance(model, Failure):
            return model
        if part not in model.parts:
            return Failure(reason="no_such_part", message=f"the short model has no {part}")
        waits = pauses(seed, longest_pause_seconds) if longest_pause_seconds else None
        return torch_step.replayed(model, part, seconds, self._wait, waits, calls)

    def second_depth(self, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        """The same model with one layer more, built for this and given up again."""
        first = self._model(variant)
        if isinstance(first, Failure):
            return first
        model = self._short(variant, first.measured + 1)
        if model.measured == first.measured:
            return Failure(reason="no_second_depth", message=f"the model has {first.measured} layers in all")
        model.step(self._wait)
        return torch_step.timed(model, seconds, self._wait)

    def own_gemm_calls(
        self, variant: Variant, lead_seconds: float, seconds: float, repeats: int
    ) -> tuple[Mapping[protocol.GemmName, float], ...] | Failure:
        """None: no kernel-only time is made of shares here."""
        return Failure(reason="not_available", message="plain torch times its GEMMs alone")

    def profile(
        self, variant: Variant, load: protocol.Load, lead_seconds: float, trace: Path | None = None
    ) -> protocol.Profile | Failure:
        """Kernels of training steps on a GPU; its GEMMs are timed without anything around them."""
        if not self._cuda:
            return Failure(reason="not_available", message="kernel names are not available on the CPU")
        model = self._models.get(variant.label)
        if load == "gemms" or model is None:
            return Failure(reason="not_available", message="plain torch profiles a training step only")

        def session(work: Callable[[], None], keep: Path | None, lead: Callable[[], None]) -> Mapping[str, Any]:
            return profiled(work, self._wait, keep, lead)

        def lead() -> object:
            return torch_step.timed(model, lead_seconds, self._wait)

        def steps() -> None:
            for _ in range(PROFILED_STEPS):
                model.step(lambda: None)

        with told_modules(model.told_parts()):
            outcome = profile_under_load(session, self._wait, lead, steps, PROFILED_STEPS, trace)
        return outcome if isinstance(outcome, Failure) else outcome[0]

    def inspect(self, variant: Variant) -> protocol.Inspection:
        """The errors of the probe."""
        errors = self._small_errors(variant.recipe)
        return protocol.Inspection(errors=NumericErrors(y=errors["fprop"], dx=errors["dgrad"], dw=errors["wgrad"]))

    def loss_run(self, variant: Variant, plan: protocol.LossPlan) -> protocol.LossTrack | Failure:
        """Trains the short model on the seeded tokens; short sequences, for a CPU has to get through 50 steps."""
        model = self._workload.model
        wrong = self._no_training(variant)
        if wrong or model is None:
            return wrong or Failure(reason="no_model")
        if not model.vocab_size:
            return Failure(reason="no_vocabulary", message="a loss needs a model with a vocabulary")
        length = min(LOSS_TOKENS, self._workload.workload.sequence_length or LOSS_TOKENS)
        layers = min(SHORT_LAYERS, model.num_hidden_layers)
        return torch_step.loss_track(model, layers, length, self._recipes(variant), plan, self._device)

    def memory(self, variant: Variant) -> Memory:
        """Peak of the process so far, of all variants: none has one of its own here."""
        return Memory(process_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        """A forward product of the case's shape, bf16 as a bare matmul, without any check or rotation."""
        if recipe not in torch_step.PLAIN_RECIPES:
            return Failure(reason="unsupported", message=f"plain torch has no {recipe}")
        forward = GemmCase(case.name, "fprop", case.m, case.k, case.n, 1, mode=case.mode)
        call = self._product(*self._operands(forward), forward, recipe)
        self._batch([call], warmups)
        return self._batch([call], calls).seconds

    def _no_training(self, variant: Variant) -> Failure | None:
        """Why the variant has no training step here, or None."""
        model = self._workload.model
        if variant.recipe not in torch_step.PLAIN_RECIPES:
            return Failure(reason="unsupported", message=f"plain torch has no {variant.recipe}")
        parts = (model.no_training_step, *model.step_parts) if model is not None else ()
        part = next(filter(None, parts), None)
        if part:
            message = f"{part}: plain torch has no training step with this; the GEMMs are measured"
            return Failure(reason="not_available", message=message)
        problems = step_shape_problems(self._workload.gemms, variant.recipe)
        wrong = next((problem for problem in problems if problem.severity == "error"), None)
        return Failure(reason="misaligned", message=wrong.message[:1024]) if wrong else None

    def _model(self, variant: Variant) -> torch_step.ShortModel | Failure:
        if variant.label not in self._models:
            if self._workload.workload.tensor_parallel > 1:
                return Failure(reason="not_available", message="tensorParallel: plain torch measures whole layers")
            wrong = self._no_training(variant)
            if wrong:
                return wrong
            self._models[variant.label] = self._short(variant, SHORT_LAYERS)
        return self._models[variant.label]

    def _short(self, variant: Variant, layers: int) -> torch_step.ShortModel:
        model, asked = self._workload.model, self._workload.workload
        assert model is not None
        batch, length = asked.micro_batch_size or 1, asked.sequence_length or 1
        layers = min(layers, model.num_hidden_layers)
        return torch_step.ShortModel(model, batch, length, layers, self._recipes(variant), self._seed, self._device)

    def _recipes(self, variant: Variant) -> tuple[Recipe, Recipe]:
        """Of the attention's projections and of the MLP."""
        kept = self._request.recipe_scope == "mlp"
        return (UNQUANTIZED if kept else variant.recipe), variant.recipe

    def _small_errors(self, recipe: Recipe) -> Mapping[Pass, float]:
        if recipe not in self._errors:
            cases = [GemmCase("probe", pass_, SMALL.m, SMALL.k, SMALL.n, 1, mode="autocast") for pass_ in PASSES]
            self._errors[recipe] = {case.pass_: self._error(case, recipe) for case in cases}
        return self._errors[recipe]

    def _wrong(self, case: GemmCase, recipe: Recipe) -> Failure | None:
        """Why the numbers of this case can't be trusted, or None; found out once."""
        key = (recipe, case)
        if key not in self._checked:
            try:
                error = self._error(case, recipe)
            except (RuntimeError, MemoryError) as caught:
                if "memory" not in str(caught).lower():
                    raise
                return Failure(reason="out_of_memory", message=f"{case.name} {case.pass_}: {caught}"[:500])
            band = ERROR_BANDS[recipe]
            message = f"{case.name} {case.pass_}: relative error {error:.2g} is outside {band.low:g} to {band.high:g}"
            fits = numeric_verdict(recipe, error) == "within"
            self._checked[key] = None if fits else Failure(reason="numerical_error", message=message)
        return self._checked[key]

    def _error(self, case: GemmCase, recipe: Recipe) -> float:
        """Relative error of the first rows of the product against FP32."""
        a, b = self._operands(case)
        rows = min(CHECKED_ROWS, case.m)
        exact = a[:rows].float() @ b.float()
        result = self._product(a, b, case, recipe)()[:rows].float()
        return float((result - exact).norm() / exact.norm())

    def _operands(self, case: GemmCase, copy: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """A (m, k) and B (k, n) in bf16, each in the memory layout that the pass finds it in.

        fprop: x (tokens, in) and the weight (out, in) transposed. dgrad: dy (tokens, out) and the weight as it lies.
        wgrad: x transposed and dy as it lies.
        """
        # on the device itself: a CPU takes a second for what a GPU draws in a millisecond
        chance = torch.Generator(device=self._device).manual_seed(self._seed + copy)

        def normal(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, generator=chance, device=self._device).to(torch.bfloat16)

        a = normal(case.k, case.m).t() if case.pass_ == "wgrad" else normal(case.m, case.k)
        b = normal(case.n, case.k).t() if case.pass_ == "fprop" else normal(case.k, case.n)
        return a, b

    def _rotation(self, case: GemmCase, recipe: Recipe) -> list[torch_step.GemmCall]:
        """The call on as many copies of its operands as make twice the cache, so that none finds them there."""
        cache = torch.cuda.get_device_properties(self._device).L2_cache_size if self._cuda else CPU_CACHE_BYTES
        bytes_a_copy = 2 * (case.m * case.k + case.k * case.n)
        copies = min(MOST_COPIES, max(1, math.ceil(2 * cache / bytes_a_copy)))
        return [self._product(*self._operands(case, copy), case, recipe) for copy in range(copies)]

    def _product(self, a: torch.Tensor, b: torch.Tensor, case: GemmCase, recipe: Recipe) -> torch_step.GemmCall:
        """The call that is timed: with quantisation (autocast) or without (prequantized)."""
        if recipe == "bf16":
            return lambda: a @ b
        return torch_step.fp8_product(a, b, case.pass_, case.mode)

    def _timed(self, calls: Sequence[torch_step.GemmCall], seconds: float) -> protocol.Sample:
        """One round to warm up, one call to know how many fit, then the batch; a long call is its own batch."""
        self._batch(calls, 1)
        once = self._batch(calls, 1)
        number = math.floor(seconds / max(once.seconds, 1e-9))
        return self._batch(calls, number) if number > 1 else once

    def _batch(self, calls: Sequence[torch_step.GemmCall], number: int) -> protocol.Sample:
        self._wait()
        start = monotonic()
        for index in range(number):
            calls[index % len(calls)]()
        self._wait()
        end = monotonic()
        return protocol.Sample((end - start) / number, number, start, end, execution="eager")

    def _wait(self) -> None:
        if self._cuda:  # a CPU is done when it returns
            torch.cuda.synchronize(self._device)


def _device(request: MeasurementRequest, wanted: str) -> torch.device:
    """The device; a GPU node without CUDA is refused rather than measured on its CPU without a word."""
    if wanted not in ("auto", "cuda", "cpu"):
        raise protocol.Refusal(INVALID_REQUEST, f"device {wanted!r}: known are auto, cuda and cpu")
    if wanted == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if wanted == "auto" and request.node.product == "CPU":
        return torch.device("cpu")
    message = f"the request names {request.node.product} but torch sees no CUDA device; for a trial say --device cpu"
    raise protocol.Refusal(DEVICE_MISSING, message)


def _judged(recipe: Recipe, errors: Mapping[Pass, float], cuda: bool) -> protocol.Probe:
    verdicts = {numeric_verdict(recipe, error) for error in errors.values()}
    listed = ", ".join(f"{pass_} {error:.2g}" for pass_, error in errors.items())
    if "too_large" in verdicts:
        high = ERROR_BANDS[recipe].high
        return protocol.Probe("probe_failed", f"{recipe}: relative error against FP32 above {high:g}: {listed}")
    message = f"relative error against FP32: {listed}; kernel names {'not read' if cuda else 'unavailable on the CPU'}"
    verdict: Verdict = "fallback" if "too_exact" in verdicts else "unknown"
    return protocol.Probe("ok", verification=Verification(verdict=verdict, message=message))
