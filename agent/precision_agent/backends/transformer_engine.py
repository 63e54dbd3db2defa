"""Transformer Engine on one GPU, behind the agent's door.

The CUDA path ran on four H100 (benchmarks/results); its control flow, arithmetic and calls are tested on a CPU.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import torch

from precision_agent import protocol
from precision_agent.backends.te import sizes
from precision_agent.backends.te.api import Api, Unusable, general_gemm, load
from precision_agent.backends.te.problem import Problem, problem_of
from precision_agent.backends.te.session.engine import CudaEngine, Engine, device_of
from precision_agent.backends.te.session.graphs import unavailable
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.backends.te.tiers import probe as probing
from precision_agent.backends.te.tiers.core_probe import core_probe, core_question
from precision_agent.backends.te.tiers.gemm_tier import Unit, sample_of, shape_of
from precision_agent.backends.te.tiers.loss_runs import loss_run
from precision_agent.backends.te.tiers.own_gemm import own_seconds
from precision_agent.backends.te.tiers.plain import plain
from precision_agent.backends.te.tiers.probe import Asks, Prober
from precision_agent.backends.te.tiers.profiles import profile_of_model, profile_of_units
from precision_agent.backends.te.tiers.training_runs import training_sample, window
from precision_agent.backends.te.tiers.training_tier import Shared, VariantModel
from precision_agent.cases import UNQUANTIZED, Case, GemmCase, TrainingCase, Variant, cases_of, refusal_of, variants_of
from precision_agent.method.expert_rows import expert_notes
from precision_agent.power import nvml
from precision_agent.power.aliasing import pauses
from precision_agent.protocol import Part
from precision_api.exchange.exits import BACKEND_UNAVAILABLE, DEVICE_MISSING, INVALID_REQUEST
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Availability, Failure, Memory
from precision_api.exchange.result import Backend as BackendName
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import PlainRecipe, Recipe
from precision_api.models.workload import resolve

SHARED = "unquantised"
"""Whose unit the head's is: no recipe touches it, so that all variants may time the same module."""
WORSE: tuple[Availability, ...] = ("ok", "emulated", "probe_failed", "unsupported")
"""Of the recipes of a mixture's parts, the last of these is the mixture's."""
ModuleKey = tuple[str, LinearShape, Recipe]
T = TypeVar("T")


class TransformerEngine:
    """The backend. Prepares on demand too: after a CUDA error a new process goes on with the other variants."""

    name: BackendName = "transformer-engine"

    def __init__(
        self,
        request: MeasurementRequest,
        device: str,
        *,
        api: Api | None = None,
        engine: Engine | None = None,
        prober: Asks | None = None,
    ) -> None:
        if device not in ("auto", "cuda"):
            raise protocol.Refusal(INVALID_REQUEST, f"device {device!r}: Transformer Engine runs on cuda only")
        self._request, self._prober = request, prober or Prober()
        self._api = api or _loaded()
        self._engine = engine or _cuda()
        self._problem = problem_of(request, self._api)
        self._units: dict[ModuleKey, Unit | Failure] = {}
        self._cases: dict[ModuleKey, list[GemmCase]] = {}
        self._taken: dict[tuple[str, GemmCase], protocol.Sample | Failure] = {}
        self._models: dict[str, VariantModel] = {}
        self._shared: Shared | None = None
        self._trial: sizes.Trial | None = None
        self._memory: dict[str, Memory] = {}
        self._asked: set[str] = set()
        self._given_up: set[str] = set()
        """Variants whose models were deeper than what all variants have room for."""
        self._lent: set[str] = set()
        """Variants whose models, timed already, made room for another's profile."""

    def device(self) -> protocol.Device:
        """The GPU by its UUID, and the versions that its figures depend on."""
        if self._engine.device.type != "cuda":
            return device_of(self._api, "CPU", "", self._engine.memory_bytes, nvml.GpuReadings())
        properties = torch.cuda.get_device_properties(self._engine.device)
        uuid = str(getattr(properties, "uuid", ""))
        return device_of(self._api, properties.name, uuid, self._engine.memory_bytes, nvml.read())

    @contextmanager
    def _at_work(self, parts: Parts) -> Iterator[None]:
        """The device's stream, and the variables of these recipes alone."""
        with self._engine.stream(), recipes.variables(*parts.recipes):
            yield

    def provenance(self) -> protocol.ResultProvenance:
        """Measured, here and now."""
        return protocol.ResultProvenance("measured")

    def probe(self, variant: Variant) -> protocol.Probe:
        """One forward and backward pass of each part's recipe in a process beside this one, and of attention's core."""
        quantized = [recipe for recipe in variant.parts.recipes if recipe != UNQUANTIZED]
        probes = [probing.probe_of(recipe, self._prober.ask(recipe)) for recipe in quantized or (UNQUANTIZED,)]
        if isinstance(self._problem, Problem) and quantized and (question := core_question(self._problem)):
            ended = self._prober.ask(question)
            probes.append(core_probe(question, ended.code, ended.stdout, ended.stderr))
        worst = max(probes, key=lambda probe: WORSE.index(probe.availability))
        reason = "; ".join(probe.reason for probe in probes) if worst.availability == "ok" else worst.reason
        return replace(probes[0], availability=worst.availability, reason=reason[:1000])

    def prepare(self, case: Case, variant: Variant) -> Failure | None:
        """The unit or model that the case needs, checked, captured and warm; it stays for the variant's later cases."""
        self._prober.end()  # all recipes were tried: its memory is needed, and no other process may be seen at work
        with self._at_work(variant.parts):
            if variant.label in self._given_up:
                self._revived(variant)
            built = self._model(variant) if isinstance(case, TrainingCase) else self._unit(case, variant)
        return built if isinstance(built, Failure) else None

    def settle(self, variant: Variant, seconds: float, load: protocol.Load | None = None) -> protocol.Sample | Failure:
        """The variant's training step, else its GEMMs in turn."""
        self._taken.clear()
        with self._at_work(variant.parts):
            model = self._made(variant) if load != "gemms" else None
            if model:
                return model if isinstance(model, Failure) else training_sample(model, seconds)
            units = list(self._built(variant)) if load == "gemms" else self._units_of(variant.label, SHARED)
            if not units:
                return Failure(
                    reason="nothing_prepared", message=f"{variant.label} has neither a model nor a GEMM to run"
                )
            loops = [unit.measure(seconds / len(units)) for unit in units]
        cycles = sum(loop.cycles for loop in loops)
        spent = sum(loop.cycle_seconds * loop.cycles for loop in loops)
        return protocol.Sample(spent / cycles, cycles, loops[0].start, loops[-1].end)

    def measure(self, case: Case, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        """One loop gives the samples of all cases of a layer: the others are handed out when they are asked for."""
        with self._at_work(variant.parts):
            if isinstance(case, TrainingCase):
                model = self._model(variant)
                return model if isinstance(model, Failure) else training_sample(model, seconds)
            taken = self._taken.pop((variant.label, case), None)
            if taken is not None:
                return taken
            unit = self._unit(case, variant)
            if isinstance(unit, Failure):
                return unit
            cases = self._cases[variant.label, *self._key(case, variant)[1:]]
            timings = unit.measure(seconds * len(cases))
            for timed_case in cases:
                self._taken[variant.label, timed_case] = sample_of(timed_case, timings, unit)
            return self._taken.pop((variant.label, case))

    def power_window(
        self, variant: Variant, part: Part, seconds: float, longest_pause_seconds: float, seed: int, calls: int = 1
    ) -> protocol.Sample | Failure:
        """Calls of one part until `seconds` are over; what runs before a pause is awaited."""
        with self._at_work(variant.parts):
            model = self._model(variant)
            if isinstance(model, Failure):
                return model
            if not model.has(part):
                return Failure(reason="no_such_part", message=f"the short model has no {part}")
            model.refresh()
            waits = pauses(seed, longest_pause_seconds) if longest_pause_seconds else None
            return window(self._engine, model, part, seconds, waits, calls)

    def second_depth(self, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        """A model of another depth with the same parts, in place of all that was timed: a deeper one needs the room."""
        with self._at_work(variant.parts):
            first = None if self._trial else self._model(variant)
            if isinstance(first, Failure):
                return first
            assert isinstance(self._problem, Problem)
            assert self._trial is not None
            model = self._problem.model
            depth = sizes.second_depth(self._trial.layers, model.moe_layers or model.num_hidden_layers)
            if depth is None:
                return Failure(reason="no_other_depth", message="the model has one layer")
            shared = (self._api, self._engine, self._problem, replace(self._trial, layers=depth))
            lent = set(self._models)
            self._drop_all()
            self._lent |= lent  # profiled afterwards, as deep as they were timed
            self._given_up -= lent
            made = self._with_room(lambda: VariantModel(Shared(*shared), variant.parts))
            return made if isinstance(made, Failure) else made.prepare() or training_sample(made, seconds)

    def own_gemm_calls(
        self, variant: Variant, lead_seconds: float, seconds: float, repeats: int
    ) -> tuple[Mapping[protocol.GemmName, float], ...] | Failure:
        """Of each layer but the experts', which run by another call."""
        call = general_gemm(self._api)
        if call is None:
            return Failure(reason="not_available", message=f"Transformer Engine {self._api.version}: no general_gemm")
        with self._at_work(variant.parts):
            units = {unit: cases for unit, cases in self._built(variant).items() if unit.shape.groups == 1}
            if not units:
                return Failure(reason="not_available", message="all GEMMs are of experts")
            rows = self._with_room(lambda: own_seconds(list(units), call, lead_seconds, seconds, repeats))
        if isinstance(rows, Failure):
            return rows
        return tuple(
            {
                (case.name, case.pass_): by_pass[case.pass_]
                for cases, by_pass in zip(units.values(), row, strict=True)
                for case in cases
            }
            for row in rows
        )

    def profile(
        self, variant: Variant, load: protocol.Load, lead_seconds: float, trace: Path | None = None
    ) -> protocol.Profile | Failure:
        """Kernels of training steps, of replays of the timed graphs where it can, or of the GEMMs of the full model."""
        with self._at_work(variant.parts):
            if load == "gemms":
                return self._gemm_profile(variant, lead_seconds, trace)
            model = self._made(variant)
            if isinstance(model, Failure):
                return model
            if model is None:
                return Failure(reason="nothing_prepared", message=f"{variant.label} has no model to run")
            # Eager steps need memory beside what the graphs hold; nothing but this model is timed any more.
            return self._with_room(
                lambda: profile_of_model(self._engine, model, lead_seconds, trace), keep=variant.label
            )

    def _gemm_profile(self, variant: Variant, lead_seconds: float, trace: Path | None) -> protocol.Profile | Failure:
        """All layers in one session; where memory does not hold all at once, the trace is the last one's alone."""
        units = self._built(variant)
        if not units:
            return Failure(reason="nothing_prepared", message=f"{variant.label} has no GEMM to run")
        there = [unit for unit in units if any(unit is held for held in self._units.values())]
        groups = [list(units)] if len(there) == len(units) else [[unit] for unit in units]
        profiles: list[protocol.Profile] = []
        gemms: dict[protocol.GemmName, protocol.KernelSeconds] = {}
        for group in groups:
            outcome = self._with_room(
                lambda group=group: profile_of_units(  # type: ignore[misc]
                    self._engine, group, lead_seconds, trace, [units[unit] for unit in group]
                ),
                keep=variant.label,
            )
            if isinstance(outcome, Failure):
                return outcome
            profiles.append(outcome[0])
            for unit, passes in zip(group, outcome[1], strict=True):
                gemms |= {(case.name, case.pass_): passes[case.pass_] for case in units[unit]}
        kernels = tuple(kernel for profile in profiles for kernel in profile.kernels)
        seconds = sum(profile.seconds for profile in profiles)
        return replace(profiles[-1], kernels=kernels, seconds=seconds, start=profiles[0].start, gemms=gemms)

    def _built(self, variant: Variant) -> dict[Unit, list[GemmCase]]:
        """Layers and cases of all GEMMs of the variant, those anew that gave way; what can't be built is left out."""
        built: dict[Unit, list[GemmCase]] = {}
        for case in cases_of(self._request, resolve(self._request.workload)).gemms:
            unit = None if refusal_of(case, variant, self.name) else self._unit(case, variant)
            if isinstance(unit, Unit):
                built.setdefault(unit, []).append(case)
        return built

    def inspect(self, variant: Variant) -> protocol.Inspection:
        """Flags of the variant's own quantizers, the worst errors of its layers, bytes kept for backward."""
        with self._at_work(variant.parts):
            made = self._made(variant)
            model = made if isinstance(made, VariantModel) else None
            units = [unit for unit in self._units_of(variant.label) if unit.recipe == variant.parts.mlp]
            flags = model.flags if model else recipes.flags_of(units[0].modules[0]) if units else {}
            worst = max(units, key=lambda unit: unit.errors.y or 0.0, default=None)
            seen = self._with_room(model.saved) if model else None
        saved, attention = ((), None) if seen is None or isinstance(seen, Failure) else seen
        left_out = model.shared.plans[0].left_out if model else ()
        notes = expert_notes(resolve(self._request.workload), variant.parts.mlp) if model else ()
        errors = worst.errors if worst else None
        return protocol.Inspection(flags, errors, saved, attention, left_out, tuple(notes))

    def loss_run(self, variant: Variant, plan: protocol.LossPlan) -> protocol.LossTrack | Failure:
        """A run of its own model, after what was timed has given its memory back."""
        if isinstance(self._problem, Failure) or self._problem is None:
            return self._problem or Failure(reason="no_model", message="a workload of bare shapes has no training step")
        problem = self._problem
        self._drop_all()
        with self._at_work(variant.parts):
            return self._with_room(lambda: loss_run(self._api, self._engine, problem, variant.parts, plan))

    def memory(self, variant: Variant) -> Memory:
        """Peaks of the variant's model as it warmed up: its own and the shared part; reserved, used: the process'."""
        return self._memory.get(variant.label, Memory())

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        """Mean seconds of a forward call by NVIDIA's method."""
        self._prober.end()
        with self._at_work(Parts.of(cast(PlainRecipe, recipe))):
            return self._with_room(lambda: plain(self._api, self._engine, case, recipe, warmups, calls))

    def _made(self, variant: Variant) -> VariantModel | Failure | None:
        """The variant's model, if it has one, anew where it was given up; a new process builds all it is asked for."""
        if variant.label in self._lent:
            return self._rebuilt(variant)
        if variant.label in self._given_up:
            return self._revived(variant)
        if variant.label not in self._asked:
            cases = cases_of(self._request, resolve(self._request.workload))
            for case in cases.all:
                if isinstance(case, GemmCase) and not refusal_of(case, variant, self.name):
                    self._unit(case, variant)
            if cases.training:
                self._model(variant)
        return self._models.get(variant.label)

    def _revived(self, variant: Variant) -> VariantModel | Failure:
        """A model that gave way to a shallower one, as deep as that is."""
        self._given_up.discard(variant.label)
        return self._model(variant)

    def _rebuilt(self, variant: Variant) -> VariantModel | Failure:
        """A model that made room for another's profile: as deep as it was timed, in the room of the others."""
        problem, trial = self._problem, self._trial
        assert isinstance(problem, Problem)
        assert trial is not None
        made = self._with_room(lambda: self._made_model(problem, trial, variant), keep=variant.label)
        if isinstance(made, VariantModel):
            self._lent.discard(variant.label)
            self._models[variant.label] = made
        return made

    def _units_of(self, *labels: str) -> list[Unit]:
        return [unit for key, unit in self._units.items() if key[0] in labels and isinstance(unit, Unit)]

    def _key(self, case: GemmCase, variant: Variant) -> ModuleKey:
        return (variant.label if case.quantized else SHARED, shape_of(case), case.recipe_of(variant))

    def _unit(self, case: GemmCase, variant: Variant) -> Unit | Failure:
        self._asked.add(variant.label)
        key = self._key(case, variant)
        cases = self._cases.setdefault((variant.label, *key[1:]), [])
        if case not in cases:
            cases.append(case)
        if key not in self._units:
            self._units[key] = self._with_room(lambda: self._made_unit(key))
        unit = self._units.pop(key)
        self._units[key] = unit  # the last used is the last to be dropped
        return unit

    def _made_unit(self, key: ModuleKey) -> Unit | Failure:
        _, shape, recipe = key
        accumulation = self._problem.accumulation if isinstance(self._problem, Problem) else 1
        try:
            unit = Unit(self._api, self._engine, shape, recipe, accumulation, self._request.timing.seed)
            return unit.prepare() or unit
        except Exception as error:
            return unavailable(recipe, error)

    def _model(self, variant: Variant) -> VariantModel | Failure:
        self._asked.add(variant.label)
        if variant.label in self._models:
            return self._models[variant.label]
        problem = self._problem
        if problem is None:
            return Failure(reason="no_model", message="a workload of bare shapes has no training step")
        if isinstance(problem, Failure):
            return problem
        trials = sizes.trials_of(problem.model)
        if self._trial is None:
            held = [variant.parts.mlp for variant in variants_of(self._request)]
            memory, beside = self._engine.memory_bytes, self._gemm_bytes(len(held))
            self._trial = sizes.first_trial(problem.model, problem.tokens, problem.split, held, memory, trials, beside)
        for trial in trials[trials.index(self._trial) :]:
            if trial != self._trial:
                # All variants must have the same depth: the deeper ones are built anew when they are next asked for.
                self._drop_models()
                self._trial = trial
            made = self._with_room(lambda trial=trial: self._made_model(problem, trial, variant))  # type: ignore[misc]
            if not (isinstance(made, Failure) and made.reason == "out_of_memory"):
                break
        if isinstance(made, VariantModel):
            self._models[variant.label] = made
        return made

    def _gemm_bytes(self, variants: int) -> int:
        """A guess of what the layers that are timed alone take, of all variants: they stay beside the models."""
        gemms = cases_of(self._request, resolve(self._request.workload)).gemms
        layers = {(shape_of(case), case.quantized) for case in gemms}
        return sum(
            sizes.unit_bytes(shape.m, shape.k, shape.n, shape.groups, self._engine.l2_bytes)
            * (variants if quantized else 1)
            for shape, quantized in layers
        )

    def _made_model(self, problem: Problem, trial: sizes.Trial, variant: Variant) -> VariantModel | Failure:
        before = self._engine.allocated_bytes()
        try:
            if self._shared is None:
                self._shared = Shared(self._api, self._engine, problem, trial)
                self._shared_bytes = 0
            model = VariantModel(self._shared, variant.parts)
            self._shared_bytes = self._shared_bytes or max(0, model.bytes_before - before)
            failed = model.prepare()
        except Exception as error:
            return unavailable(variant.label, error)
        peaks, state = self._engine.peaks(), self._shared_bytes + model.weight_bytes
        self._memory[variant.label] = Memory(
            allocated_peak_bytes=model.own_bytes + state,
            reserved_peak_bytes=peaks.reserved,
            state_bytes=state,
            activation_bytes=model.kept_bytes,
            gradient_bytes=self._shared.gradient_bytes,
        )
        return failed or model

    def _with_room(self, make: Callable[[], T], keep: str | None = None) -> T | Failure:
        """What `make` gives; where memory ends, units that were not used for long are dropped until it fits.

        With `keep` the other variants' models may go too, after the units: they are built anew when they are asked for.
        """
        while True:
            try:
                return make()
            except torch.OutOfMemoryError as error:
                message = str(error)[:900]
            oldest = next((key for key, unit in self._units.items() if isinstance(unit, Unit)), None)
            other = next((label for label in self._models if keep not in (None, label)), None)
            if oldest is not None:
                del self._units[oldest]
            elif other is not None:
                del self._models[other]
                self._lent.add(other)
            self._clean()
            if oldest is None and other is None:
                return Failure(reason="out_of_memory", message=message)

    def _drop_models(self) -> None:
        self._given_up |= set(self._models)
        self._models.clear()
        self._shared = None
        self._clean()

    def _drop_all(self) -> None:
        self._units.clear()
        self._taken.clear()
        self._drop_models()

    def _clean(self) -> None:
        gc.collect()
        self._engine.release()


def _loaded() -> Api:
    try:
        return load()
    except Unusable as error:
        raise protocol.Refusal(BACKEND_UNAVAILABLE, str(error)[:500]) from None


def _cuda() -> Engine:
    if not torch.cuda.is_available():
        raise protocol.Refusal(DEVICE_MISSING, "Transformer Engine needs a GPU, and torch sees no CUDA device")
    return CudaEngine()
