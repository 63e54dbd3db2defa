"""Everything that a run found out -> its one result. Pure: the same facts give the same result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from precision_agent.cases import Variant
from precision_agent.method.full_depth import depth_agrees, other_windows
from precision_agent.power.reasons import COUNTER_DISAGREES, Reason
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recordings
from precision_agent.precision.evidence import (
    CPU_BOUND,
    ONCE,
    UNFUSED,
    Repeats,
    unfused_attention,
    verification_of,
)
from precision_agent.protocol import Inspection, Load, Probe, ResultProvenance, Sample
from precision_agent.results.assess import RecipeEvidence, control_ratio, recipe_result, with_meanings
from precision_agent.results.kernel_shares import (
    gradient_share,
    grouped_path,
    kernel_time_share,
    merged,
    taxes,
    with_kernel_shares,
)
from precision_agent.results.model_memory import model_memory
from precision_agent.results.power_windows import (
    NodePower,
    WindowSensors,
    blind,
    clocks,
    held_back,
    node_power_by_part,
    power_trace,
    used_bytes,
)
from precision_agent.results.profiling import After
from precision_agent.results.recommend import recommend
from precision_agent.results.train import Measured, RecipePower
from precision_agent.sampling.calibrate import counter_scope, disagrees
from precision_agent.sampling.devices import Machine
from precision_agent.sampling.profiles import LoadProfiles
from precision_agent.sampling.sample import Samples
from precision_api.exchange import stats
from precision_api.exchange.request import PLAIN, MeasurementRequest, request_hash
from precision_api.exchange.result import Backend as BackendName
from precision_api.exchange.result import Failure, GpuHealth, KernelProfiles, MeasurementResult, Memory, Steadiness
from precision_api.models.model import ModelSpec

MOST_NOTES = 8
LOADS: tuple[Load, ...] = ("gemms", "training")
PowerOrReason = NodePower | tuple[Reason, ...] | Failure
"""A variant's power, or why there is none."""


@dataclass(frozen=True, slots=True)
class Found:
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


def result_of(found: Found, finished_at: float) -> MeasurementResult:
    """The result; `finished_at` is seconds since 1970."""
    found = replace(found, timed=found.run, run=with_kernel_shares(found.run, found.after.profiles))
    run = replace(found.run, control=control_ratio(found.run))
    variants = [variant for variant in found.probes if variant != run.cases.control]
    powers = {variant: _power(variant, found) for variant in variants}
    made = (recipe_result(variant, run, _evidence(variant, found, powers)) for variant in variants)
    recipes = with_meanings(tuple(made), run)
    request, workload, formula = found.asked, run.workload, run.workload.formula
    started = _timestamp(found.started_at)
    return MeasurementResult(
        run=request.run,
        request_hash=request_hash(request),
        node=request.node.name,
        attempt=request.attempt,
        backend=found.backend,
        provenance=found.provenance.kind,
        sources=found.provenance.sources,
        simulated=found.provenance.simulated,
        partial=run.samples.ended,
        product=found.machine.product,
        gpus=found.machine.gpus,
        software=found.machine.software,
        started_at=started,
        finished_at=_timestamp(finished_at),
        duration_seconds=round(max(0.0, finished_at - found.started_at), 3),
        phase_seconds=_phase_seconds(found.phases, finished_at),
        workload_name=workload.name,
        workload_hash=workload.hash,
        formula=f"{formula.name}/{formula.version}" if formula else None,
        training_flops_per_token=workload.training_flops_per_token,
        baseline=request.baseline,
        recipe_scope=request.recipe_scope,
        health=tuple(GpuHealth.model_validate(gpu, from_attributes=True) for gpu in found.sensing.health),
        environment=_environment(found.machine.environment),
        steadiness=found.steadiness,
        sensor=found.sensing.sensor,
        power_trace=power_trace(found.recordings.gpus, started, found.began),
        noise_floor=stats.noise_floor(run.control),
        control_ratio=run.control,
        recipes=recipes,
        recommendation=recommend(recipes, run.control, found.provenance.kind, request.baseline),
    )


def _phase_seconds(phases: Sequence[tuple[str, float]], finished_at: float) -> dict[str, float]:
    found: dict[str, float] = {}
    ends = [*(begun for _, begun in phases[1:]), finished_at]
    for (name, begun), end in zip(phases, ends, strict=True):
        found[name] = round(found.get(name, 0.0) + max(0.0, end - begun), 3)
    return found


def partial_of(found: Found, samples: Samples) -> Found:
    """The same with the samples so far, as what a killed run would leave."""
    return replace(found, run=replace(found.run, samples=samples.so_far()))


def _evidence(variant: Variant, found: Found, powers: Mapping[Variant, PowerOrReason]) -> RecipeEvidence:
    probe, samples = found.probes[variant], found.run.samples
    windows = samples.timed.get(variant.label, ())
    recordings = found.recordings.gpus
    profiles, timed = found.after.profiles, found.timed or found.run
    gemms, training = (profiles.get((variant.label, load)) for load in LOADS)
    profile = merged(training) or merged(gemms)
    inside = found.after.inspections.get(variant.label, Inspection())
    used = used_bytes(recordings, windows)
    memory = found.memory.get(variant.label, Memory())
    fact, run = _training_fact(variant, found.run), found.run
    return RecipeEvidence(
        probe=probe,
        metering=_metering(variant, found, powers),
        memory=memory if used is None else memory.model_copy(update={"device_used_bytes": used}),
        model_memory=model_memory(
            variant.recipe,
            run.workload,
            memory,
            fact,
            scope=found.request.recipe_scope if variant.recipe != found.request.baseline else "all",
            kept_higher=run.kept_by(variant),
            fused_attention=not _unfused(training),
        ),
        verification=verification_of(variant.recipe, found.request, probe, profile, inside, found.backend),
        held_back=held_back(recordings, windows),
        clocks=clocks(recordings, windows),
        taxes=_taxes(variant, found.run, training or gemms),
        gradient_quantization_share=gradient_share(found.run, variant, profiles),
        kernel_time_share=kernel_time_share(timed, variant, profiles),
        kernel_profiles=tuple(_told(load, one) for load in LOADS if (one := profiles.get((variant.label, load)))),
        own_calls=found.after.own_calls.get(variant.label, {}),
        grouped={case: path for case in found.run.cases.gemms if (path := grouped_path(gemms, case))},
        loss=found.after.losses.get(variant.label),
        depth_check=found.after.depth_checks.get(variant.label),
        notes=_notes(variant, found),
    )


def _told(load: Load, found: LoadProfiles) -> KernelProfiles:
    return KernelProfiles(
        load=load,
        profiles=len(found.runs),
        sm_mhz=found.sm_mhz,
        windows_sm_mhz=found.windows_sm_mhz,
        seconds=round(found.seconds, 3),
        failure=found.failure,
    )


def _taxes(variant: Variant, run: Measured, found: LoadProfiles | None) -> tuple[float, ...]:
    """Of the full-depth step, all of its layers in the recipe; they were profiled by the few of the short model."""
    if found is None:
        return ()
    fact = _training_fact(variant, run)
    depth = repeats(run.workload.model, fact.layers_measured, fact.dense_measured) if fact else ONCE
    forwards = 2 if run.cases.training and run.workload.workload.recompute == "Full" else 1
    return taxes(variant.recipe, found, forwards, depth)


def repeats(model: ModelSpec | None, measured: int | None, dense_measured: int) -> Repeats:
    """How often the full model has the layers that ran, `dense_measured` of them apart from those with experts."""
    if model is None or not measured:
        return ONCE
    dense = model.dense_layers if dense_measured else 0
    return Repeats((model.num_hidden_layers - dense) / measured, dense / dense_measured if dense_measured else 1.0)


def _training_fact(variant: Variant, run: Measured) -> Sample | None:
    return run.samples.facts.get((variant.label, run.cases.training)) if run.cases.training else None


def _notes(variant: Variant, found: Found) -> tuple[str, ...]:
    """What else a reader must know; eager execution where a graph was tried has its reason."""
    run = found.run
    reasons = {
        fact.execution_reason
        for (label, _), fact in run.samples.facts.items()
        if label == variant.label and fact.execution_reason
    }
    repeated = (
        (f"palindromes measured twice, for heat or brake: {run.samples.repeated}",) if run.samples.repeated else ()
    )
    kept = found.run.kept_by(variant)
    base = found.run.cases.baseline.recipe
    told = f"layers kept in {base}: {kept}, computed from measured layer times, not run"
    notes = (
        *((told,) if kept else ()),
        *_windows(variant, run),
        *found.notes,
        *repeated,
        *_doubts(found.after.depth_checks.get(variant.label)),
        *found.after.notes.get(variant.label, ()),
        *_without(found.after.inspections.get(variant.label)),
        *((UNFUSED,) if _unfused(found.after.profiles.get((variant.label, "training"))) else ()),
        *_heat_not_known(variant, found),
        *_gaps(variant, found),
        *sorted(reasons),
    )
    cut = len(notes) - MOST_NOTES
    if cut > 0:
        notes = (*notes[: MOST_NOTES - 1], f"{cut + 1} more notes")
    return tuple(note[:1024] for note in notes)


def _unfused(training: LoadProfiles | None) -> bool:
    """Whether attention ran unfused in the profiled steps; False where none was profiled."""
    profile = merged(training)
    return profile is not None and unfused_attention(profile)


def _heat_not_known(variant: Variant, found: Found) -> tuple[str, ...]:
    """Of which GPUs nobody knows whether they were throttled: to leave them unmarked says nothing then."""
    if not found.sensing.health:
        return ()
    names = blind(found.recordings.gpus, found.run.samples.timed.get(variant.label, ()), found.run.names)
    told = "whether heat or the power brake held the clocks back is not known of"
    return (f"{told} {', '.join(names)}: the driver tells neither counters nor reasons",) if names else ()


def _gaps(variant: Variant, found: Found) -> tuple[str, ...]:
    """That a step which is one graph has gaps between its kernels: no host can be blamed for them."""
    fact = _training_fact(variant, found.run)
    share = kernel_time_share(found.timed or found.run, variant, found.after.profiles)
    if fact is None or fact.execution != "graph" or share is None or share >= CPU_BOUND:
        return ()
    return (f"kernels ran in {share:.1%} of the timed step, a CUDA graph: the rest are gaps between short kernels",)


def _windows(variant: Variant, run: Measured) -> tuple[str, ...]:
    """That the short model has another mix of windowed layers than the full one."""
    fact = _training_fact(variant, run)
    if fact is None or fact.windowed_layers is None or not fact.layers_measured:
        return ()
    told = other_windows(run.workload, fact.layers_measured + fact.dense_measured, fact.windowed_layers)
    return (told,) if told else ()


def _without(inside: Inspection | None) -> tuple[str, ...]:
    """How the measured training step ran, and what of the model it did not have."""
    if inside is None:
        return ()
    told = (f"the training step is without {', '.join(inside.left_out)}",) if inside.left_out else ()
    return (*inside.notes, *told)


def _doubts(depth_check: float | None) -> tuple[str, ...]:
    """What a second depth that was predicted badly says of the full-depth figures."""
    if depth_check is None or depth_agrees(depth_check):
        return ()
    return (f"a second depth was predicted at {depth_check:.3f} of what it took: full depth is that far off",)


def _metering(variant: Variant, found: Found, powers: Mapping[Variant, PowerOrReason]) -> RecipePower:
    sensing = found.sensing
    accuracy = sensing.sensor.accuracy if sensing.sensor else "unverified"
    return RecipePower(powers[variant], sensing.idle_watts, accuracy, powers[found.run.cases.baseline])


def _power(variant: Variant, found: Found) -> PowerOrReason:
    sensing, samples = found.sensing, found.run.samples
    if sensing.sensors is None:
        return sensing.failure
    if found.recordings.failure:
        return (found.recordings.failure,)
    if variant.label in samples.power_failures:
        return samples.power_failures[variant.label]
    if disagrees(sensing.sensor):
        return (COUNTER_DISAGREES,)
    windows = samples.windows.get(variant.label, ())
    known = WindowSensors(sensing.modules, sensing.sensor_seconds, sensing.rests, counter_scope(sensing.sensor))
    return node_power_by_part(found.recordings.gpus, windows, found.run.names, known)


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """At most 32 variables with plain names, sorted."""
    named = sorted(name for name in given if len(name) <= 64 and re.fullmatch(PLAIN, name))
    return {name: given[name][:1024] for name in named[:32]}


def _timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the second: as Kubernetes writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def measured(found: Found, samples: Samples) -> Found:
    """The same with these samples."""
    return replace(found, run=replace(found.run, samples=samples))
