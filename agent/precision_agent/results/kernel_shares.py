"""Kernel-only times: the GEMM kernels' shares of profiled steps, applied to the timed ones. Pure.

The shares of each device are applied to its own times. Profiles are repeated, and what the figure would be by each of
them alone is kept: that spread belongs into every interval in which the shares have a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from precision_agent.cases import CONTROL, GemmCase, Variant
from precision_agent.precision.evidence import CPU_BOUND, Repeats, Tax, quantization_tax
from precision_agent.protocol import GemmName, KernelSeconds, Profile, ProfiledKernel, Sample
from precision_agent.results.train import Measured
from precision_agent.sampling.profiles import CLOCK_TOLERANCE, LoadKey, LoadProfiles
from precision_agent.sampling.sample import CaseKey
from precision_api.exchange.result import Execution, Failure, GroupedPath
from precision_api.facts.recipes import RECIPES

LEAST_KERNEL_TIME, MOST_KERNEL_TIME = 0.8, 1.25
"""Kernels, at least with their gaps, over the timed step. Of eager ones on H100 at their power cap it was 0.89 to 0.94
for the largest FP8 GEMMs of a layer, 0.98 to 1.03 for training steps, 1.06 for a small layer: supposedly the clock,
which follows what runs."""
Profiles = Mapping[LoadKey, LoadProfiles]
NONE = KernelSeconds(0.0, 0.0, 0.0, 0)


def with_kernel_shares(run: Measured, profiles: Profiles) -> Measured:
    """The same with kernel-only seconds where steps with their quantisation were timed; without shares a failure."""
    samples = run.samples
    seconds, failures, repeats = dict(samples.seconds), dict(samples.failures), dict[CaseKey, tuple[float, ...]]()
    gaps = dict[CaseKey, float | None]()
    baseline = run.cases.baseline.label
    for key, fact in samples.facts.items():
        label, case = key
        if not fact.holds_quantization or not isinstance(case, GemmCase):
            continue
        # the control is a second baseline: the same kernels in steps of its own
        load_profiles = profiles.get((baseline if label == CONTROL else label, "gemms"))
        applied = _applied(samples.seconds[key], case, fact, load_profiles)
        if isinstance(applied, Failure):
            failures[key] = applied
            del seconds[key]
        else:
            seconds[key], repeats[key], gaps[key] = applied
    return replace(run, samples=replace(samples, seconds=seconds, failures=failures), repeats=repeats, gaps=gaps)


def _applied(
    timed: Sequence[Sequence[float]], case: GemmCase, fact: Sample, profiles: LoadProfiles | None
) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...], float | None] | Failure:
    """Kernel-only seconds by ABBA block and device, their mean by each profile alone, and the gaps beside them."""
    if profiles is None:
        return Failure(reason="not_profiled", message="the run ended before its kernels were seen")
    if profiles.failure:
        return profiles.failure
    kernels = [[_at_windows_clock(profile, case) for profile in devices] for devices in profiles.runs]
    if any(seen.gemm <= 0 for devices in kernels for seen in devices):
        return Failure(reason="no_kernels", message=f"{case.name} {case.pass_}: the profiler saw no kernel")
    device_seconds = [fmean(values) for values in zip(*timed, strict=True)]
    wrong = _misfit(kernels, device_seconds, fact.execution)
    if wrong:
        return wrong
    gaps = [[_between(*pair) for pair in zip(devices, device_seconds, strict=True)] for devices in kernels]
    pairs = [list(zip(*rows, strict=True)) for rows in zip(kernels, gaps, strict=True)]
    shares = [[spent.gemm / (spent.seconds + gap) for spent, gap in devices] for devices in pairs]
    mean_shares = [fmean(values) for values in zip(*shares, strict=True)]
    return (
        tuple(tuple(t * share for t, share in zip(block, mean_shares, strict=True)) for block in timed),
        tuple(fmean(t * share for t, share in zip(device_seconds, devices, strict=True)) for devices in shares),
        fmean(map(fmean, gaps)) if all(seen.gaps is not None for devices in kernels for seen in devices) else None,
    )


def _at_windows_clock(profile: Profile, case: GemmCase) -> KernelSeconds:
    """The GEMM's kernels as long as at the clock of its windows; gaps don't follow a clock."""
    seen = profile.gemms.get(_name(case), NONE)
    return replace(seen, gemm=seen.gemm * profile.clock, other=seen.other * profile.clock)


def _between(seen: KernelSeconds, timed: float) -> float:
    """Seconds between the kernels of a timed graph: what a replay showed, but no more than its kernels leave.

    A profiler may make gaps longer than they are without it. Of eager steps nothing: kernels all but fill them.
    """
    return min(seen.gaps or 0.0, max(0.0, timed - seen.seconds))


def _misfit(
    kernels: Sequence[Sequence[KernelSeconds]], timed: Sequence[float], execution: Execution | None
) -> Failure | None:
    """Why the GEMMs' share of the kernels says nothing of the timed step: they are too small or too large a part."""
    devices = list(zip(zip(*kernels, strict=True), timed, strict=True))
    busy = [fmean(seen.seconds for seen in gpu) / whole for gpu, whole in devices]
    filled = [fmean(seen.seconds + (seen.gaps or 0.0) for seen in gpu) / whole for gpu, whole in devices]
    if min(busy) < CPU_BOUND and any(seen.gaps is None for gpu, _ in devices for seen in gpu):
        low = min(fmean(seen.gemm for seen in gpu) for gpu, _ in devices) * (1 - CLOCK_TOLERANCE)
        slow = 1 + CLOCK_TOLERANCE  # GEMMs, not casts, follow the clock, which was the windows' within that
        high = max(whole * fmean(1 / (1 + seen.other / seen.gemm / slow) for seen in gpu) for gpu, whole in devices)
        reason, cause = "cpu_bound", "the host launched too slowly"
        if execution == "graph":
            reason, cause = "kernel_gaps", "the replays of its graph could not be matched to forward, dgrad and wgrad"
        message = f"kernels ran in {min(busy):.1%} of the timed step, eager ones: {cause}; kernel-only time is"
        return Failure(reason=reason, message=f"{message} {low * 1e6:.3g} to {high * 1e6:.3g} us")
    for reason, ratio, wrong in (
        ("kernels_too_short", min(filled), min(filled) < LEAST_KERNEL_TIME),
        ("kernels_exceed_step", max(busy), max(busy) > MOST_KERNEL_TIME),
    ):
        if wrong:
            message = f"the profiled kernels lasted {ratio:.2f} times as long as the timed step that holds them"
            return Failure(reason=reason, message=message)
    return None


def kernel_time_share(run: Measured, variant: Variant, profiles: Profiles) -> float | None:
    """Time in which a kernel ran over the timed step, on the device with the least of it: of the training step, else of
    the GEMMs with their quantisation; None where it was not seen at the clock of the windows."""
    training = profiles.get((variant.label, "training"))
    if run.cases.training and training and not training.failure:
        timed = run.samples.by_device(variant, run.cases.training)
        if not isinstance(timed, Failure):
            return _least([[sample.seconds * sample.clock for sample in devices] for devices in training.runs], timed)
    return _of_gemms(run, variant, profiles)


def launch_gaps(profiles: LoadProfiles) -> float | None:
    """Mean seconds between the kernels of a micro batch, by the profiles of replays; None without any."""
    gaps = [profile.gaps for devices in profiles.runs for profile in devices if profile.gaps is not None]
    return fmean(gaps) if gaps else None


def _of_gemms(run: Measured, variant: Variant, profiles: Profiles) -> float | None:
    gemms = profiles.get((variant.label, "gemms"))
    if gemms is None or gemms.failure:
        return None
    shares = []
    for case in run.cases.gemms:
        fact = run.samples.facts.get((variant.label, case))
        timed = run.samples.seconds.get((variant.label, case), ())
        if fact is None or not fact.holds_quantization or not timed:
            continue
        kernels = [[_at_windows_clock(profile, case).seconds for profile in devices] for devices in gemms.runs]
        shares.append(_least(kernels, timed))
    return min(shares, default=None)


def _least(kernels: Sequence[Sequence[float]], timed: Sequence[Sequence[float]]) -> float:
    spent, whole = ([fmean(device) for device in zip(*rows, strict=True)] for rows in (kernels, timed))
    return min(kernel_seconds / step_seconds for kernel_seconds, step_seconds in zip(spent, whole, strict=True))


def gradient_share(run: Measured, variant: Variant, profiles: Profiles) -> float | None:
    """Over the GEMMs that quantise: quantisation's share of their data gradients' kernel time; None without kernels."""
    gemms = profiles.get((variant.label, "gemms"))
    names = {
        (case.name, case.pass_)
        for case in run.cases.gemms
        if case.pass_ == "dgrad" and RECIPES[case.recipe_of(variant)].format != "bf16"
    }
    if gemms is None or gemms.failure:
        return None
    at_clock = [profile for devices in gemms.runs for profile in devices]
    seen = [kernels for profile in at_clock for name, kernels in profile.gemms.items() if name in names]
    whole = sum(kernels.seconds for kernels in seen)
    return sum(kernels.other for kernels in seen) / whole if whole > 0 else None


def grouped_path(profiles: LoadProfiles | None, case: GemmCase) -> GroupedPath | None:
    """How the GEMMs of experts ran; None for a single one, and where no kernels were seen."""
    if case.groups == 1 or profiles is None:
        return None
    seen = next((profile.gemms[_name(case)] for profile in profiles.seen if _name(case) in profile.gemms), NONE)
    if seen.gemm <= 0:
        return None
    if seen.launches < 2:
        return "one_kernel"
    return "several_streams" if seen.streams > 1 else "one_stream"


def _name(case: GemmCase) -> GemmName:
    return case.name, case.pass_


Taxed = tuple[LoadProfiles | None, Repeats]
"""The profiles of a load, and how often the full model has what they saw."""


def taxes(variant: Variant, profiles: Taxed, baseline: Taxed) -> tuple[Tax, ...]:
    """The quantisation tax by each profile, mean of its devices; empty without both at the clock of their windows."""
    (of_recipe, repeats), (plain, plain_repeats) = profiles, baseline
    if not of_recipe or not plain or of_recipe.failure or plain.failure:
        return ()
    means: list[Tax] = []
    for pairs in zip(of_recipe.runs, plain.runs, strict=False):
        by_device = [
            quantization_tax(variant.recipe, (mine, repeats), (its, plain_repeats), variant.parts.head != "bf16")
            for mine, its in zip(*pairs, strict=True)
        ]
        present = [tax for tax in by_device if tax]
        if present:
            means.append(Tax(fmean(tax.least for tax in present), fmean(tax.most for tax in present)))
    return tuple(means)


def merged(profiles: LoadProfiles | None) -> Profile | None:
    """All profiles of a load as one, of the mean step on the mean device; None without any."""
    if profiles is None or not profiles.seen:
        return None
    seconds: dict[ProfiledKernel, float] = {}
    for kernel in (kernel for profile in profiles.seen for kernel in profile.kernels):
        place = replace(kernel, seconds=0.0)
        seconds[place] = seconds.get(place, 0.0) + kernel.seconds / len(profiles.seen)
    rows = sorted(seconds, key=lambda place: -seconds[place])
    unplaced = next((profile.unplaced for profile in profiles.seen if profile.unplaced), "")
    kernels = tuple(replace(place, seconds=seconds[place]) for place in rows)
    return replace(profiles.seen[0], kernels=kernels, unplaced=unplaced)
