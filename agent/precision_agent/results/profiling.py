"""What is found out after the timed ABBA blocks, outside all timed windows: kernels, flags, second depth, loss runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from precision_agent.cases import Variant
from precision_agent.method.full_depth import Values, depth_check, depth_of, window_of
from precision_agent.protocol import Inspection, Profile, RegionName, Sample
from precision_agent.results.losses import losses_of
from precision_agent.results.train import Measured, Steps, steps_of
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_agent.sampling.sample import first_failure
from precision_api.request import TIMINGS, MeasurementRequest
from precision_api.result import Failure, Loss

SECOND_DEPTH_SECONDS = 1.0
"""Of timed steps at the second depth: enough for a check that allows 3 %."""
Notes = Mapping[str, tuple[str, ...]]
"""By a variant's label, what its reader must know."""
ReportProgress = Callable[[str, float], None]
"""Hears a phase's name and the share of it that is done."""


@dataclass(frozen=True, slots=True)
class After:
    """By a variant's label; what could not be had is left out, or is its Failure."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    inspections: Mapping[str, Inspection] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)
    depth_checks: Mapping[str, float] = field(default_factory=dict)
    """Of the GPU that was predicted worst."""
    notes: Notes = field(default_factory=dict)
    """Why something is left out: what fails here is told, though no figure fails with it."""


def look(
    devices: Devices,
    request: MeasurementRequest,
    run: Measured,
    variants: Sequence[Variant],
    stop: Stop,
    told: ReportProgress,
    trace: Path | None,
) -> After:
    """All of it for the variants that run, the control left out; a stop ends it with what is there."""
    chosen = [variant for variant in variants if variant != run.cases.control]
    profiles, inspections, unseen = _verified(devices, chosen, stop, told, trace)
    checks, unchecked = _second_depths(devices, request, run, chosen, told)
    losses = losses_of(devices, request, run, chosen, stop, told)
    notes = {variant.label: (*unseen.get(variant.label, ()), *unchecked.get(variant.label, ())) for variant in chosen}
    return After(profiles, inspections, losses, checks, notes)


def _verified(
    devices: Devices, variants: Sequence[Variant], stop: Stop, told: ReportProgress, trace: Path | None
) -> tuple[dict[str, Profile], dict[str, Inspection], Notes]:
    told("verify", 0.0)
    if stop():
        return {}, {}, {}
    places = [trace and trace / f"trace-{variant.label}.json" for variant in variants]
    profiles = devices.spread(
        [Call("profile", (variant, place), variant=variant) for variant, place in zip(variants, places, strict=True)]
    )
    told("verify", 0.5)
    inspections = devices.spread([Call("inspect", (variant,), variant=variant) for variant in variants])
    told("verify", 1.0)
    labels = [variant.label for variant in variants]
    notes = {
        label: (
            *_note("no kernels were seen", seen),
            *_untraced(trace, seen),
            *_note("nothing was seen of the quantizers", inside),
        )
        for label, seen, inside in zip(labels, profiles, inspections, strict=True)
    }
    return (
        {label: found for label, found in zip(labels, profiles, strict=True) if isinstance(found, Profile)},
        {label: found for label, found in zip(labels, inspections, strict=True) if isinstance(found, Inspection)},
        notes,
    )


def _untraced(trace: Path | None, found: object) -> tuple[str, ...]:
    """A word where a trace was asked for and there is none, also where the backend has nothing to trace."""
    if trace is None or not isinstance(found, Failure):
        return ()
    return (f"no trace was written: {found.message or found.reason}"[:1024],)


def _note(what: str, found: object) -> tuple[str, ...]:
    """A failure in words; nothing of what a backend does not have at all."""
    if not isinstance(found, Failure) or found.reason == "not_available":
        return ()
    return (f"{what}: {found.reason}: {found.message}"[:1024],)


def _second_depths(
    devices: Devices, request: MeasurementRequest, run: Measured, variants: Sequence[Variant], told: ReportProgress
) -> tuple[dict[str, float], Notes]:
    """Predicted over measured step at a second depth, in `standard` and longer; why a variant has none is a note.

    As the ABBA blocks were: all GPUs at once, each held against its own first depth; the worst one is told.
    """
    checks: dict[str, float] = {}
    notes: dict[str, tuple[str, ...]] = {}
    if run.cases.training is None or request.timing.passes < TIMINGS["standard"].passes:
        return checks, notes
    seconds = SECOND_DEPTH_SECONDS
    for place, variant in enumerate(variants):
        told("second_depth", place / len(variants))
        steps = steps_of(variant, run)
        if isinstance(steps, Failure):
            continue  # told already, and nothing to check
        answers = devices.all(Call("second_depth", (variant, seconds), seconds, variant))
        found = first_failure(run.names, answers) or _worst(variant, steps, run, answers)
        if isinstance(found, Failure):
            notes[variant.label] = _note("a second depth was not checked", found)
        else:
            checks[variant.label] = found
    return checks, notes


def _worst(variant: Variant, steps: Steps, run: Measured, samples: Sequence[Sample]) -> float | Failure:
    """The ratio that is furthest from 1 among the devices; a Failure as soon as one of them has none."""
    ratios = [_checked(variant, steps, run, place, sample) for place, sample in enumerate(samples)]
    failed = first_failure(run.names, ratios)
    known = [ratio for ratio in ratios if not isinstance(ratio, Failure)]
    return failed or max(known, key=lambda ratio: abs(ratio - 1))


def _checked(variant: Variant, steps: Steps, run: Measured, place: int, sample: Sample) -> float | Failure:
    """One device's ratio, from its own ABBA blocks' means."""
    if not sample.layers_measured or sample.layers_measured == steps.depth.measured:
        told = f"the second model had {sample.layers_measured or 'no known number of'} layers"
        return Failure(reason="no_other_depth", message=told)
    mixed = _other_mix(variant, run, sample)
    if mixed:
        return mixed
    passes = [devices[place] for devices in run.samples.regions[variant.label]]
    first: Values = {name: (fmean(one[name] for one in passes),) for name in passes[0]}
    second: dict[RegionName, Sequence[float] | Failure] = {name: (value,) for name, value in sample.regions.items()}
    depth = depth_of(run.workload, sample.layers_measured, optimizer_parameters=sample.optimizer_parameters)
    return depth_check(first, steps.depth, second, depth)


def _other_mix(variant: Variant, run: Measured, sample: Sample) -> Failure | None:
    """Why the two depths can't be compared: their layers have sliding windows by different shares."""
    first = run.samples.facts[variant.label, run.cases.training] if run.cases.training else sample
    if window_of(run.workload) is None or first.windowed_layers is None or sample.windowed_layers is None:
        return None
    depths = [(one.windowed_layers or 0, one.layers_measured or 1) for one in (first, sample)]
    if depths[0][0] * depths[1][1] == depths[1][0] * depths[0][1]:
        return None
    told = " and ".join(f"{windowed} of {layers}" for windowed, layers in depths)
    return Failure(reason="windows_differ", message=f"{told} layers have a sliding window")
