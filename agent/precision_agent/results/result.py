"""Everything that a run found out -> its one result. Pure: the same facts give the same result."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from precision_agent.cases import BF16, Variant
from precision_agent.method.full_depth import other_windows
from precision_agent.method.model_memory import model_memory
from precision_agent.power import energy
from precision_agent.power.reasons import COUNTER_DISAGREES
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recordings
from precision_agent.precision import evidence
from precision_agent.protocol import Inspection, Load, Probe, ResultProvenance, Sample
from precision_agent.results import kernel_shares, power_windows
from precision_agent.results.assess import MOST_NOTES, RecipeEvidence, control_ratio, recipe_result, with_meanings
from precision_agent.results.profiling import LOADS, After
from precision_agent.results.recommend import recommend
from precision_agent.results.train import Measured, PowerOrReason, RecipePower
from precision_agent.sampling.calibrate import counter_scope
from precision_agent.sampling.devices import Machine
from precision_agent.sampling.profiles import LoadProfiles
from precision_agent.sampling.sample import Samples
from precision_api.exchange import stats
from precision_api.exchange.rebase import result_over
from precision_api.exchange.request import PLAIN, MeasurementRequest, request_hash, timing_title
from precision_api.exchange.result import Backend as BackendName
from precision_api.exchange.result import GpuHealth, KernelProfiles, MeasurementResult, Memory, Steadiness
from precision_api.facts.recipes import RECIPE_NAMES, mixture_text
from precision_api.models.model import ModelSpec


@dataclass(frozen=True, slots=True)
class RunFacts:
    """All that was found out, up to now; `asked` is the request as it came, `request` as it was measured."""

    asked: MeasurementRequest
    request: MeasurementRequest
    run: Measured
    backend: BackendName
    machine: Machine
    provenance: ResultProvenance
    probes: Mapping[Variant, Probe]
    sensing: SensorFacts
    recordings: Recordings
    began: float
    """Moment of `started_at` on the samples' clock."""
    started_at: float
    steadiness: Steadiness | None = None
    memory: Mapping[str, Memory] = field(default_factory=dict)
    after: After = field(default_factory=After)
    notes: tuple[str, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    """Each phase and when it began, in seconds since 1970; one may come again."""
    timed: Measured | None = None
    """`run` before the kernels' shares were applied to it."""


def result_of(facts: RunFacts, finished_at: float) -> MeasurementResult:
    """The result; `finished_at` is seconds since 1970."""
    facts = replace(facts, timed=facts.run, run=kernel_shares.with_kernel_shares(facts.run, facts.after.profiles))
    run = replace(facts.run, control=control_ratio(facts.run))
    variants = [variant for variant in facts.probes if variant != run.cases.control]
    is_off = _counter_off(facts)
    powers = {variant: _power(variant, facts, is_off) for variant in variants}
    made = (recipe_result(variant, run, _evidence(variant, facts, powers)) for variant in variants)
    recipes = with_meanings(tuple(made), run)
    request, workload, formula = facts.asked, run.workload, run.workload.formula
    variables = facts.machine.environment
    basis = basis_of(request, facts.backend, facts.machine, facts.provenance, facts.started_at, finished_at)
    plain = sorted(name for name in variables if len(name) <= 64 and re.fullmatch(PLAIN, name))
    result = MeasurementResult(
        **basis,
        partial=run.samples.ended,
        phase_seconds=_phase_seconds(facts.phases, finished_at),
        workload_name=workload.name,
        workload_hash=workload.hash,
        timing=timing_title(request),
        formula=f"{formula.name}/{formula.version}" if formula else None,
        training_flops_per_token=workload.training_flops_per_token,
        baseline=run.cases.baseline.recipe,
        recipe_scope=request.recipe_scope,
        health=tuple(GpuHealth.model_validate(gpu, from_attributes=True) for gpu in facts.sensing.health),
        environment={name: variables[name][:1024] for name in plain[:64]},
        steadiness=facts.steadiness,
        sensor=facts.sensing.sensor,
        power_trace=power_windows.power_trace(facts.recordings.gpus, basis["started_at"], facts.began),
        noise_floor=stats.noise_floor(run.control),
        control_ratio=run.control,
        device_memory=power_windows.device_memory(
            facts.recordings.gpus,
            [window for (_, load), spans in run.samples.loads.items() if load == "training" for window in spans],
            facts.machine.gpus,
            facts.sensing.health,
            facts.machine.product,
        ),
        recipes=recipes,
        recommendation=recommend(recipes, run.control, facts.provenance.kind, run.cases.baseline.recipe),
    )
    return result_over(result, result.baseline)[0]


def basis_of(
    asked: MeasurementRequest, backend: str, machine: Machine, origin: ResultProvenance, started: float, finished: float
) -> dict[str, Any]:
    """Fields of every result, whichever method: whose it is, of which machine, and when (seconds since 1970)."""
    return {
        "run": asked.run,
        "request_hash": request_hash(asked),
        "node": asked.node.name,
        "attempt": asked.attempt,
        "backend": backend,
        "provenance": origin.kind,
        "sources": origin.sources,
        "simulated": origin.simulated,
        "product": machine.product,
        "gpus": machine.gpus,
        "software": machine.software,
        "started_at": timestamp(started),
        "finished_at": timestamp(finished),
        "duration_seconds": round(max(0.0, finished - started), 3),
    }


def _phase_seconds(phases: Sequence[tuple[str, float]], finished_at: float) -> dict[str, float]:
    seconds: dict[str, float] = {}
    ends = [*(begun for _, begun in phases[1:]), finished_at]
    for (name, begun), end in zip(phases, ends, strict=True):
        seconds[name] = round(seconds.get(name, 0.0) + max(0.0, end - begun), 3)
    return seconds


def _evidence(variant: Variant, facts: RunFacts, powers: Mapping[Variant, PowerOrReason]) -> RecipeEvidence:
    probe, samples = facts.probes[variant], facts.run.samples
    windows = samples.timed.get(variant.label, ())
    recordings = facts.recordings.gpus
    profiles, timed = facts.after.profiles, facts.timed or facts.run
    gemms, training = (profiles.get((variant.label, load)) for load in LOADS)
    profile = kernel_shares.merged(training) or kernel_shares.merged(gemms)
    inside = facts.after.inspections.get(variant.label, Inspection())
    memory = facts.memory.get(variant.label, Memory())
    fact, run, sensing = _training_fact(variant, facts.run), facts.run, facts.sensing
    accuracy = sensing.sensor.accuracy if sensing.sensor else "unverified"
    taxes, tax_load = _taxes(variant, facts)
    return RecipeEvidence(
        probe=probe,
        metering=RecipePower(
            powers[variant], sensing.idle_watts, accuracy, powers[run.cases.baseline], powers.get(BF16, ())
        ),
        memory=memory,
        model_memory=model_memory(
            variant.parts,
            run.workload,
            memory,
            fact,
            primary_weights=bool(facts.request.primary_weights),
            layers_bf16=run.kept_by(variant),
            fused_attention=not _unfused(training),
        ),
        verification=evidence.verification_of(variant, facts.request.attention_core, probe, profile, inside),
        held_back=power_windows.held_back(recordings, windows),
        clocks=power_windows.clocks(recordings, windows),
        taxes=taxes,
        tax_load=tax_load,
        gradient_quantization_share=kernel_shares.gradient_share(facts.run, variant, profiles),
        kernel_time_share=kernel_shares.kernel_time_share(timed, variant, profiles),
        kernel_profiles=tuple(
            _told(load, load_profiles) for load in LOADS if (load_profiles := profiles.get((variant.label, load)))
        ),
        own_calls=facts.after.own_calls.get(variant.label, {}),
        grouped={case: path for case in facts.run.cases.gemms if (path := kernel_shares.grouped_path(gemms, case))},
        loss=facts.after.losses.get(variant.label),
        listed=facts.request.listed or variant.recipe not in RECIPE_NAMES,
        depth_check=facts.after.depth_checks.get(variant.label),
        notes=_notes(variant, facts),
    )


def _told(load: Load, profiles: LoadProfiles) -> KernelProfiles:
    return KernelProfiles(
        load=load,
        profiles=len(profiles.runs),
        sm_mhz=profiles.sm_mhz,
        windows_sm_mhz=profiles.windows_sm_mhz,
        seconds=round(profiles.seconds, 3),
        launch_gaps=kernel_shares.launch_gaps(profiles),
        failure=profiles.failure,
    )


def _taxes(variant: Variant, facts: RunFacts) -> tuple[tuple[evidence.Tax, ...], Load]:
    """Of the full-depth step, profiled by the few layers of the short model, all in the recipe; else of all GEMMs."""
    run, baseline = facts.run, facts.run.cases.baseline
    loads: tuple[Load, ...] = ("training", "gemms")
    for load in loads if variant != baseline else ():
        mine, plain = (
            (facts.after.profiles.get((side.label, load)), _repeats(side, run, load)) for side in (variant, baseline)
        )
        if taxes := kernel_shares.taxes(variant, mine, plain):
            return taxes, load
    return (), "training"


def _repeats(variant: Variant, run: Measured, load: Load) -> evidence.Repeats:
    fact = _training_fact(variant, run) if load == "training" else None
    depth = repeats(run.workload.model, fact.layers_measured, fact.dense_measured) if fact else evidence.ONCE
    return replace(depth, forwards=2 if run.workload.workload.recompute == "Full" else 1)


def repeats(model: ModelSpec | None, measured: int | None, dense_measured: int) -> evidence.Repeats:
    """How often the full model has the layers that ran, `dense_measured` of them apart from those with experts."""
    if model is None or not measured:
        return evidence.ONCE
    dense = model.dense_layers if dense_measured else 0
    dense_repeats = dense / dense_measured if dense_measured else 1.0
    return evidence.Repeats((model.num_hidden_layers - dense) / measured, dense_repeats)


def _training_fact(variant: Variant, run: Measured) -> Sample | None:
    return run.samples.facts.get((variant.label, run.cases.training)) if run.cases.training else None


def _notes(variant: Variant, facts: RunFacts) -> tuple[str, ...]:
    """What else a reader must know; eager execution where a graph was tried has its reason."""
    run = facts.run
    reasons = {
        fact.execution_reason
        for (label, _), fact in run.samples.facts.items()
        if label == variant.label and fact.execution_reason
    }
    again = (f"palindromes measured twice, for heat or brake: {run.samples.repeated}",) if run.samples.repeated else ()
    kept = facts.run.kept_by(variant)
    message = f"layers that stay in BF16: the last {kept}, computed from times of bf16, not run"
    notes = (
        *_mixed(variant),
        *((message,) if kept else ()),
        *_windows(variant, run),
        *facts.notes,
        *again,
        *_doubts(facts.after.depth_checks.get(variant.label)),
        *facts.after.notes.get(variant.label, ()),
        *_without(facts.after.inspections.get(variant.label)),
        *((evidence.UNFUSED,) if _unfused(facts.after.profiles.get((variant.label, "training"))) else ()),
        *_other_attention(variant, facts),
        *_heat_not_known(variant, facts),
        *_gaps(variant, facts),
        *sorted(reasons),
    )
    if len(notes) > MOST_NOTES:
        notes = (*notes[: MOST_NOTES - 1], f"{len(notes) - MOST_NOTES + 1} more notes")
    return tuple(note[:1024] for note in notes)


def _mixed(variant: Variant) -> tuple[str, ...]:
    """What a mixture is made of."""
    parts = mixture_text(variant.recipe)
    return (f"a mixture of recipes: {parts}; results call it {variant.recipe}",) if parts else ()


def _unfused(training: LoadProfiles | None) -> bool:
    """Whether attention ran unfused in the profiled steps; False where none was profiled."""
    profile = kernel_shares.merged(training)
    return profile is not None and evidence.unfused_attention(profile)


def _other_attention(variant: Variant, facts: RunFacts) -> tuple[str, ...]:
    """That recipes of this run did not all run the same attention."""
    backends = {label: inside.attention for label, inside in facts.after.inspections.items() if inside.attention}
    mine, others = backends.get(variant.label), sorted(set(backends.values()) - {backends.get(variant.label)})
    return (f"attention ran in {mine}, other recipes' in {', '.join(others)}",) if mine and others else ()


def _heat_not_known(variant: Variant, facts: RunFacts) -> tuple[str, ...]:
    """Of which GPUs nobody knows whether they were throttled: to leave them unmarked says nothing then."""
    if not facts.sensing.health:
        return ()
    names = power_windows.blind(facts.recordings.gpus, facts.run.samples.timed.get(variant.label, ()), facts.run.names)
    message = "whether heat or the power brake held the clocks back is not known of"
    return (f"{message} {', '.join(names)}: the driver tells neither counters nor reasons",) if names else ()


def _gaps(variant: Variant, facts: RunFacts) -> tuple[str, ...]:
    """What fills the step beside its kernels: gaps of its graphs, else no more than a bound is known."""
    fact = _training_fact(variant, facts.run)
    share = kernel_shares.kernel_time_share(facts.timed or facts.run, variant, facts.after.profiles)
    profiles = facts.after.profiles.get((variant.label, "training"))
    if fact is None or share is None or profiles is None or share >= evidence.CPU_BOUND:
        return ()
    message = f"profiled kernels lasted {share:.1%} of the timed step"
    if kernel_shares.launch_gaps(profiles) is not None:
        return (f"{message}, a CUDA graph: the rest are gaps between short kernels, or their clock was higher",)
    how = "a CUDA graph whose replays could not be matched" if fact.execution == "graph" else "launched one by one"
    return (f"{message}, {how}: gaps are {1 - share:.1%} at most",)


def _windows(variant: Variant, run: Measured) -> tuple[str, ...]:
    """That the short model has another mix of windowed layers than the full one."""
    fact = _training_fact(variant, run)
    if fact is None or fact.windowed_layers is None or not fact.layers_measured:
        return ()
    note = other_windows(run.workload, fact.layers_measured + fact.dense_measured, fact.windowed_layers)
    return (note,) if note else ()


def _without(inside: Inspection | None) -> tuple[str, ...]:
    """How the measured training step ran, and what of the model it did not have."""
    if inside is None:
        return ()
    note = (f"the training step is without {', '.join(inside.left_out)}",) if inside.left_out else ()
    return (*inside.notes, *note)


def _doubts(depth_check: float | None) -> tuple[str, ...]:
    """What a second depth that was predicted badly says of the full-depth figures."""
    if depth_check is None or stats.depth_agrees(depth_check):
        return ()
    return (f"a second depth was predicted at {depth_check:.3f} of what it took: full depth is that far off",)


def _counter_off(facts: RunFacts) -> bool:
    """Whether any GPU's counter is off, by the windows of all recipes together."""
    samples, spans = facts.run.samples, {"gemms": list[energy.Window](), "training": list[energy.Window]()}
    for (_, load), windows in samples.loads.items():
        spans[load] += windows
    spans["training"] += [made.window for of_variant in samples.windows.values() for made in of_variant]
    loads = [energy.joined(windows) for windows in spans.values()]
    return counter_scope(facts.sensing.sensor) == "gpu" and any(
        energy.counter_off(recording.gpu, loads) for recording in facts.recordings.gpus.values()
    )


def _power(variant: Variant, facts: RunFacts, is_off: bool) -> PowerOrReason:
    sensing, samples = facts.sensing, facts.run.samples
    if sensing.sensors is None:
        return sensing.failure
    if facts.recordings.failure:
        return (facts.recordings.failure,)
    if variant.label in samples.power_failures:
        return samples.power_failures[variant.label]
    if is_off:
        return (COUNTER_DISAGREES,)
    windows = samples.windows.get(variant.label, ())
    return power_windows.node_power_by_part(facts.recordings.gpus, windows, facts.run.names, sensing)


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the second: as Kubernetes writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def measured(facts: RunFacts, samples: Samples) -> RunFacts:
    return replace(facts, run=replace(facts.run, samples=samples))
