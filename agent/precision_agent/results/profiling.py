"""What is found out after the timed ABBA blocks: a second depth, then kernels and flags, last loss runs.

The second depth is timed too, so it comes before the first profiler.

Loss runs come after all timed windows: of every recipe, one seed after the other, as long as there is time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Protocol

from precision_agent.cases import Variant
from precision_agent.method.full_depth import Values, depth_check, depth_of, window_of
from precision_agent.method.learning import loss_of, loss_run
from precision_agent.method.loss import Source, source
from precision_agent.protocol import GemmName, Inspection, Load, LossPlan, LossTrack, RegionName, Sample
from precision_agent.results.train import Measured, Steps, steps_of
from precision_agent.sampling.devices import Call, Devices
from precision_agent.sampling.profiles import (
    LEADS,
    Leads,
    LoadKey,
    LoadProfiles,
    Recorded,
    WantedProfiles,
    clocks_of,
    profile_loads,
)
from precision_agent.sampling.sample import first_failure
from precision_api.exchange.request import TIMINGS, MeasurementRequest
from precision_api.exchange.result import Failure, Loss, LossRun

OWN_CALL_REPEATS = 3
"""Of each variant: so many times all of its GEMMs in turn, each among its layer's timed steps."""
SECOND_DEPTH_SECONDS = 1.0
"""Of timed steps at the second depth: enough for a check that allows 3 %."""
LOADS: Mapping[Load, str] = {"gemms": "GEMMs", "training": "training step"}
"""What a note calls each load."""
OwnCalls = Mapping[GemmName, tuple[float, ...]]
"""Seconds of each GEMM by the library's own call, means of the devices, by repetition."""
Notes = Mapping[str, tuple[str, ...]]
"""By a variant's label, what its reader must know."""
ReportProgress = Callable[[str, float], None]
"""Hears a phase's name and the share of it that is done."""
LOSS_SECONDS = 120.0
"""What a loss run is expected to take at most; a hung one is killed at three times that."""
Tracks = Sequence[LossTrack | Failure]
"""Of one recipe, by seed."""


@dataclass(frozen=True, slots=True)
class After:
    """By a variant's label; what could not be had is left out, or is its Failure."""

    profiles: Mapping[LoadKey, LoadProfiles] = field(default_factory=dict)
    """By a variant's label and its load."""
    inspections: Mapping[str, Inspection] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)
    depth_checks: Mapping[str, float] = field(default_factory=dict)
    """Of the GPU that was predicted worst."""
    notes: Notes = field(default_factory=dict)
    """Why something is left out: what fails here is told, though no figure fails with it."""
    own_calls: Mapping[str, OwnCalls] = field(default_factory=dict)


class Stops(Protocol):
    """When to end what comes after the ABBA blocks."""

    def sampling(self) -> Failure | None:
        """Why nothing more may be timed: what is kept of the deadline for profiles has begun, or the run was ended."""

    def everything(self) -> Failure | None:
        """Why nothing at all may be begun any more."""

    def profiled(self) -> None:
        """Told when nothing is left for which time is kept."""


@dataclass(frozen=True, slots=True)
class Looking:
    """What is looked at, and with what: `recorded` is asked for the sensors' samples so far."""

    devices: Devices
    request: MeasurementRequest
    run: Measured
    variants: Sequence[Variant]
    stops: Stops
    report_progress: ReportProgress = lambda phase, done: None
    recorded: Recorded = dict
    trace: Path | None = None
    leads: Leads = LEADS

    @property
    def chosen(self) -> tuple[Variant, ...]:
        """The variants that run, the control left out."""
        return tuple(variant for variant in self.variants if variant != self.run.cases.control)


def look(asked: Looking) -> After:
    """All of it; where the run must end, what was timed is profiled as long as there is time kept for that."""
    checks, unchecked = _second_depths(asked)
    own_calls = _own_calls(asked)
    profiles = _profiles(asked)
    asked.stops.profiled()
    inspections, unseen = _inspections(asked)
    losses = losses_of(asked)
    notes = {
        variant.label: (
            *_unprofiled(variant, profiles),
            *_untraced(asked.trace, variant, profiles),
            *unseen.get(variant.label, ()),
            *unchecked.get(variant.label, ()),
        )
        for variant in asked.chosen
    }
    seen = {
        key: load_profiles
        for key, load_profiles in profiles.items()
        if not load_profiles.failure or load_profiles.failure.reason != "not_available"
    }
    return After(seen, inspections, losses, checks, notes, own_calls)


def _profiles(asked: Looking) -> dict[LoadKey, LoadProfiles]:
    """Of each load that was timed; one that a backend has no profiles of at all is left out."""
    names, samples = asked.run.names, asked.run.samples
    recordings = asked.recorded()
    loads = [
        WantedProfiles(variant, load, clocks_of(recordings, names, samples.loads[variant.label, load]))
        for variant in asked.chosen
        for load in LOADS
        if (variant.label, load) in samples.loads
    ]
    report = partial(asked.report_progress, "profile")
    return profile_loads(asked.devices, loads, asked.recorded, asked.stops.everything, report, asked.trace, asked.leads)


def _own_calls(asked: Looking) -> dict[str, OwnCalls]:
    """Where steps with their quantisation were timed: what their GEMMs take by themselves, to hold shares against."""
    facts = asked.run.samples.facts.items()
    held = {label for (label, _), fact in facts if fact.holds_quantization}
    own_calls: dict[str, OwnCalls] = {}
    for place, variant in enumerate(chosen for chosen in asked.chosen if chosen.label in held):
        asked.report_progress("own_calls", place / len(held))
        if asked.stops.sampling():
            break
        lead = 2 * asked.leads.lead_seconds  # longer than before a profile: here no clock is looked at
        wanted = (variant, lead, asked.leads.own_call_seconds, OWN_CALL_REPEATS)
        answers = asked.devices.all(Call("own_gemm_calls", wanted, 1.0, variant))
        if first_failure(asked.run.names, answers):
            continue  # a check that can't be had says nothing against the figure
        all_rows = [row for rows in answers for row in rows]
        shared = [name for name in all_rows[0] if all(name in row for row in all_rows)]
        turns = list(zip(*answers, strict=True))
        own_calls[variant.label] = {name: tuple(fmean(row[name] for row in rows) for rows in turns) for name in shared}
    return own_calls


def _inspections(asked: Looking) -> tuple[dict[str, Inspection], Notes]:
    if asked.stops.everything():
        return {}, {}
    asked.report_progress("verify", 0.0)
    chosen = asked.chosen
    answers = asked.devices.spread([Call("inspect", (variant,), variant=variant) for variant in chosen])
    asked.report_progress("verify", 1.0)
    pairs = [(variant.label, inside) for variant, inside in zip(chosen, answers, strict=True)]
    notes = {label: _note("nothing was seen of the quantizers", inside) for label, inside in pairs}
    return {label: inside for label, inside in pairs if isinstance(inside, Inspection)}, notes


def _unprofiled(variant: Variant, profiles: Mapping[LoadKey, LoadProfiles]) -> Iterator[str]:
    for load, what in LOADS.items():
        load_profiles = profiles.get((variant.label, load))
        if load_profiles:
            yield from _note(f"the kernels of the {what} give no figure", load_profiles.failure)


def _untraced(trace: Path | None, variant: Variant, profiles: Mapping[LoadKey, LoadProfiles]) -> tuple[str, ...]:
    """A word where a trace was asked for and there is none, also where the backend has nothing to trace."""
    its_profiles = [load_profiles for (label, _), load_profiles in profiles.items() if label == variant.label]
    if trace is None or any(load_profiles.seen for load_profiles in its_profiles):
        return ()
    failed = next((load_profiles.failure for load_profiles in its_profiles if load_profiles.failure), None)
    cause = failed.message or failed.reason if failed else "this backend sees no kernels here"
    return (f"no trace was written: {cause}"[:1024],)


def _note(what: str, outcome: object) -> tuple[str, ...]:
    """A failure in words; nothing of what a backend does not have at all."""
    if not isinstance(outcome, Failure) or outcome.reason == "not_available":
        return ()
    return (f"{what}: {outcome.reason}: {outcome.message}"[:1024],)


def _second_depths(asked: Looking) -> tuple[dict[str, float], Notes]:
    """Predicted over measured step at a second depth, in `standard` and longer; why a variant has none is a note.

    As the ABBA blocks were: all GPUs at once, each held against its own first depth; the worst one is told.
    """
    checks: dict[str, float] = {}
    notes: dict[str, tuple[str, ...]] = {}
    run, seconds = asked.run, SECOND_DEPTH_SECONDS
    if run.cases.training is None or asked.request.timing.passes < TIMINGS["standard"].passes:
        return checks, notes
    for place, variant in enumerate(asked.chosen):
        if asked.stops.sampling():
            return checks, notes
        asked.report_progress("second_depth", place / len(asked.chosen))
        steps = steps_of(variant, run)
        if isinstance(steps, Failure):
            continue  # told already, and nothing to check
        answers = asked.devices.all(Call("second_depth", (variant, seconds), seconds, variant))
        ratio = first_failure(run.names, answers) or _worst(variant, steps, run, answers)
        if isinstance(ratio, Failure):
            notes[variant.label] = _note("a second depth was not checked", ratio)
        else:
            checks[variant.label] = ratio
    return checks, notes


def _worst(variant: Variant, steps: Steps, run: Measured, samples: Sequence[Sample]) -> float | Failure:
    """The ratio that is furthest from 1 among the devices; a Failure as soon as one of them has none."""
    ratios = [_checked(variant, steps, run, place, sample) for place, sample in enumerate(samples)]
    failed = first_failure(run.names, ratios)
    valid = [ratio for ratio in ratios if not isinstance(ratio, Failure)]
    return failed or max(valid, key=lambda ratio: abs(ratio - 1))


def _checked(variant: Variant, steps: Steps, run: Measured, place: int, sample: Sample) -> float | Failure:
    """One device's ratio, from its own ABBA blocks' means."""
    if not sample.layers_measured or sample.layers_measured == steps.depth.measured:
        message = f"the second model had {sample.layers_measured or 'no known number of'} layers"
        return Failure(reason="no_other_depth", message=message)
    mixed = _other_mix(variant, run, sample)
    if mixed:
        return mixed
    first: Values = {name: (fmean(values),) for name, values in run.samples.regions_of(variant, place).items()}
    second: dict[RegionName, Sequence[float] | Failure] = {name: (value,) for name, value in sample.regions.items()}
    depth = depth_of(
        run.workload,
        sample.layers_measured,
        optimizer_parameters=sample.optimizer_parameters,
        dense_measured=sample.dense_measured,
    )
    return depth_check(first, steps.depth, second, depth)


def _other_mix(variant: Variant, run: Measured, sample: Sample) -> Failure | None:
    """Why the two depths can't be compared: their layers have sliding windows by different shares."""
    first = run.samples.facts[variant.label, run.cases.training] if run.cases.training else sample
    if window_of(run.workload) is None or first.windowed_layers is None or sample.windowed_layers is None:
        return None
    depths = [(depth.windowed_layers or 0, depth.layers_measured or 1) for depth in (first, sample)]
    if depths[0][0] * depths[1][1] == depths[1][0] * depths[0][1]:
        return None
    shares = " and ".join(f"{windowed} of {layers}" for windowed, layers in depths)
    return Failure(reason="windows_differ", message=f"{shares} layers have a sliding window")


def losses_of(asked: Looking) -> dict[str, Loss]:
    """By label; a failed seed fails its recipe's verdict with its reason. A stop keeps the seeds that all have run."""
    request, variants, stop = asked.request, asked.chosen, asked.stops.everything
    model = asked.run.workload.model
    if request.loss is None or stop():
        return {}
    if model is None or not model.vocab_size:
        failure = Failure(reason="no_vocabulary", message="a loss needs a model with a vocabulary")
        return {variant.label: Loss(failure=failure) for variant in variants}
    seeds = [request.timing.seed + number for number in range(request.loss.seeds)]
    tracks: dict[str, list[LossTrack | Failure]] = {variant.label: [] for variant in variants}
    for place, seed in enumerate(seeds):
        if place and stop():
            break
        asked.report_progress("loss", place / len(seeds))
        plan = LossPlan(request.loss.steps, seed, request.loss.learning_rate_factor)
        calls = [Call("loss_run", (variant, plan), LOSS_SECONDS, variant) for variant in variants]
        answers = asked.devices.spread(calls)
        for variant, answer in zip(variants, answers, strict=True):
            tracks[variant.label].append(answer)
    asked.report_progress("loss", 1.0)
    baseline = next((v.label for v in variants if v == asked.run.cases.baseline), "")
    vocab_size, chain = model.vocab_size, source(model.vocab_size, seeds[0])
    runs = {label: _runs(by_seed, seeds, chain, vocab_size) for label, by_seed in tracks.items()}
    base_runs = runs.get(baseline, ())
    others = () if isinstance(base_runs, Failure) else base_runs
    return {
        label: Loss(failure=recipe_runs, entropy=chain.entropy)
        if isinstance(recipe_runs, Failure)
        else loss_of(recipe_runs, chain, vocab_size, () if label == baseline else others)
        for label, recipe_runs in runs.items()
    }


def _runs(tracks: Tracks, seeds: Sequence[int], chain: Source, vocab_size: int) -> list[LossRun] | Failure:
    failed = next((track for track in tracks if isinstance(track, Failure)), None)
    return failed or [
        loss_run(seed, chain, vocab_size, _rounded(track.loss), _rounded(track.gradient_norm))
        for seed, track in zip(seeds, tracks, strict=False)
        if isinstance(track, LossTrack)
    ]


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    """To five digits: a thousand steps of three seeds and seven recipes must fit into the log."""
    return tuple(float(f"{value:.5g}") for value in values)
