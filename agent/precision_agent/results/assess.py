"""Samples -> results of each recipe: intervals, sums, paired speedups. A sum with a failed part is null, with a reason.

Left out, a failed shape would make its recipe look faster.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from precision_agent.cases import BF16, UNQUANTIZED, GemmCase, Variant
from precision_agent.precision.evidence import CPU_BOUND, Tax
from precision_agent.protocol import GemmName, Load, Probe
from precision_agent.results.meaning import facts_of, meaning
from precision_agent.results.power_windows import HeldBack
from precision_agent.results.train import Measured, RecipePower, steps_of, training_of
from precision_agent.sampling.sample import LEAST_ABBA_BLOCKS
from precision_api.exchange import stats
from precision_api.exchange.request import Mode
from precision_api.exchange.result import (
    Clocks,
    Failure,
    GemmResult,
    GemmSum,
    GroupedPath,
    Interval,
    KernelProfiles,
    Loss,
    Memory,
    ModelMemory,
    RecipeResult,
    Verification,
)
from precision_api.facts.recipes import KEEPING

MOST_NOTES = 8
NAMED = frozenset({"no_prequantized_mode", "too_few_palindromes"})
"""Reasons that a sum tells as its own: they are of all its parts."""

TAX_TOLD = 0.001
"""So far apart are the bounds of a tax that are told."""
Part = tuple[Variant, GemmCase, float]
"""A GEMM as one variant runs it, and how often."""
SHARE_ROUNDING = 1e-9
"""So much above 1 a share may come out by rounding alone."""


@dataclass(frozen=True, slots=True)
class RecipeEvidence:
    """What else is known of one variant, beside its samples."""

    probe: Probe
    metering: RecipePower
    memory: Memory = field(default_factory=Memory)
    model_memory: ModelMemory | None = None
    verification: Verification | None = None
    held_back: HeldBack = field(default_factory=HeldBack)
    clocks: Clocks | None = None
    taxes: tuple[Tax, ...] = ()
    """Quantisation tax by each profile."""
    tax_load: Load = "training"
    """What the profiles are of."""
    gradient_quantization_share: float | None = None
    kernel_time_share: float | None = None
    kernel_profiles: tuple[KernelProfiles, ...] = ()
    grouped: Mapping[GemmCase, GroupedPath] = field(default_factory=dict)
    own_calls: Mapping[GemmName, tuple[float, ...]] = field(default_factory=dict)
    """Seconds of each GEMM by the library's own call, by repetition."""
    loss: Loss | None = None
    listed: bool = False
    """Whether the request lists its recipes by name."""
    depth_check: float | None = None
    notes: tuple[str, ...] = ()


SEEN = (
    *("gradient_quantization_share", "kernel_time_share", "kernel_profiles"),
    *("clocks", "memory", "model_memory", "loss", "listed"),
)
"""Evidence that a result has as it is, under the same name."""


def recipe_result(variant: Variant, run: Measured, evidence: RecipeEvidence) -> RecipeResult:
    """All that the samples and the evidence say of one recipe; what it means comes after all recipes are known."""
    probe = evidence.probe
    if probe.availability not in ("ok", "emulated"):
        return RecipeResult(
            recipe=variant.recipe,
            availability=probe.availability,
            availability_reason=probe.reason[:1024],
            notes=evidence.notes,
        )
    sums = tuple(_sum(variant, mode, run) for mode in run.cases.modes)
    gemms = tuple(_gemm(variant, case, run, evidence) for case in run.cases.gemms)
    taxes, most = [tax.least for tax in evidence.taxes], [tax.most for tax in evidence.taxes]
    verification = evidence.verification or probe.verification
    training = training_of(variant, run, evidence.metering, evidence.depth_check)
    if verification.verdict == "fallback" and training.mfu:  # the asked format's peak says nothing of the one that ran
        unknown = training.mfu.model_copy(update={"value": None, "peak_flops_per_second": None})
        training = training.model_copy(update={"mfu": unknown})
    return RecipeResult(
        recipe=variant.recipe,
        availability=probe.availability,
        availability_reason=probe.reason[:1024],
        verification=verification,
        gemms=gemms,
        sums=sums,
        quantization_tax=fmean(taxes) if taxes else _tax(variant, run),
        quantization_tax_interval=_interval(taxes),
        quantization_tax_most=fmean(most) if taxes and fmean(most) - fmean(taxes) >= TAX_TOLD else None,
        quantization_tax_load=evidence.tax_load if taxes else None,
        cpu_bound=_cpu_bound(variant, run, evidence.kernel_time_share),
        training=training,
        throttle=evidence.held_back.shares,
        throttled=evidence.held_back.marked,
        last_layers_bf16=run.kept_by(variant) if run.workload.model and KEEPING & {*variant.parts.of_layers} else None,
        notes=(*disagreements(gemms), *evidence.notes)[:MOST_NOTES],
        **{name: getattr(evidence, name) for name in SEEN},
    )


def with_meanings(results: tuple[RecipeResult, ...], run: Measured) -> tuple[RecipeResult, ...]:
    """The same results, each told what it means against the baseline."""
    floor, baseline = stats.noise_floor(run.control), run.cases.baseline.recipe

    def explained(result: RecipeResult) -> RecipeResult:
        variant = next(variant for variant in run.cases.variants if variant.recipe == result.recipe)
        speedups = gemm_speedups(variant, run)
        share = gemm_share(run, "prequantized" if "prequantized" in speedups else "autocast")
        value = share.value if isinstance(share, Interval) else share
        bounds = (share.lower, share.upper) if isinstance(share, Interval) else None
        facts = facts_of(result, baseline, value, floor, speedups)
        casts = gemm_share(run, "autocast")
        facts = replace(facts, own_share=_own_share(variant, run), share_bounds=bounds)
        facts = replace(facts, cast_share=casts if isinstance(casts, Interval) else None)
        doubt = (share.message,) if isinstance(share, Failure) and result.recipe == baseline else ()
        return result.model_copy(update={"meaning": meaning(facts), "notes": (*doubt, *result.notes)[:MOST_NOTES]})

    return tuple(explained(result) if result.availability in ("ok", "emulated") else result for result in results)


def _own_share(variant: Variant, run: Measured) -> float:
    """Of the GEMM kernels' time in a step, what does not lie in layers that stay in BF16; 1 where it is not known."""
    if "prequantized" not in run.cases.modes:
        return 1.0
    parts = _parts(variant, "prequantized", run, in_a_step=True)
    quantized, whole = (_totals(chosen, run) for chosen in ([part for part in parts if part[0] == variant], parts))
    return 1.0 if isinstance(quantized, Failure) or isinstance(whole, Failure) else fmean(quantized) / fmean(whole)


def gemm_share(run: Measured, mode: Mode) -> Interval | Failure | None:
    """The GEMMs' share of the baseline's full-depth step, in the mode of what is held against it; None without both.

    A Failure where they take longer than the step that holds them: one of the two times is wrong then.
    """
    baseline = run.cases.baseline
    steps = steps_of(baseline, run)
    if isinstance(steps, Failure) or steps.rates.missing:
        return None
    parts = _parts(baseline, mode, run, in_a_step=True)
    totals = _totals(parts, run) if parts else None
    if totals is None or isinstance(totals, Failure):
        return None
    step = [fmean(devices) for devices in zip(*steps.seconds.values(), strict=True)]
    paired = stats.widened(stats.paired_ratio(totals, step), _repeats(parts, run))
    share = fmean(totals) / fmean(step)
    if share > 1 + SHARE_ROUNDING:
        message = f"the GEMMs take {share - 1:.1%} longer than the {baseline.recipe} step that holds them"
        return Failure(reason="gemms_exceed_step", message=message)
    value, factor = min(1.0, share), paired.upper / paired.value
    return Interval(value=value, lower=value / factor, upper=min(1.0, value * factor), n=paired.n)


def gemm_speedups(variant: Variant, run: Measured) -> dict[Mode, Interval]:
    """Baseline over recipe of all GEMMs of a step, by mode: where activations are recomputed, forward ones twice.

    A mode in which one of the two has no sum is left out.
    """
    ratios = {mode: _ratio(variant, mode, run, in_a_step=True) for mode in run.cases.modes}
    return {mode: ratio for mode, ratio in ratios.items() if ratio is not None}


def _tax(variant: Variant, run: Measured) -> float | None:
    """Where no kernels were seen: what the GEMMs alone are below the GEMMs with their quantisation, as a share.

    None where they are not below it.
    """
    modes: tuple[Mode, Mode] = ("prequantized", "autocast")
    if variant.recipe == run.cases.baseline.recipe or set(modes) - set(run.cases.modes):
        return None
    by_mode = ([part for part in _parts(variant, mode, run, in_a_step=True) if part[0] == variant] for mode in modes)
    alone, whole = (_totals(parts, run) for parts in by_mode)
    if isinstance(alone, Failure) or isinstance(whole, Failure):
        return None
    tax = 1 - fmean(alone) / fmean(whole)
    return tax if tax >= 0 else None  # less than nothing is noise, and no measured zero


def _interval(values: Sequence[float]) -> Interval | None:
    """The mean of repeated findings, or None where they are too few, or none at all for some of them."""
    return stats.mean_interval(values) if len(values) > 1 and min(values) > 0 else None


def _cpu_bound(variant: Variant, run: Measured, kernel_time: float | None) -> bool | None:
    """Whether the host held the step up: a graph is launched at once, and has gaps of its own."""
    if kernel_time is None:
        return None
    training = run.cases.training
    timed_cases = (training,) if training and (variant.label, training) in run.samples.facts else run.cases.gemms
    facts = (run.samples.facts.get((variant.label, case)) for case in timed_cases)
    return kernel_time < CPU_BOUND and any(fact is not None and fact.execution == "eager" for fact in facts)


def control_ratio(run: Measured) -> Interval | None:
    """Baseline against a second, equal baseline: by the training step, else by the sum of the first GEMM mode."""
    baseline, control = run.cases.baseline, run.cases.control
    first, second = steps_of(baseline, run), steps_of(control, run)
    if not isinstance(first, Failure) and not isinstance(second, Failure):
        return stats.paired_ratio(second.rates.per_abba_block, first.rates.per_abba_block)
    for mode in run.cases.modes:
        base_totals, control_totals = (_totals(_parts(side, mode, run), run) for side in (baseline, control))
        if not isinstance(base_totals, Failure) and not isinstance(control_totals, Failure):
            return stats.paired_ratio(base_totals, control_totals)
    return None


def _values(variant: Variant, case: GemmCase, run: Measured) -> tuple[float, ...] | Failure:
    """The samples of one case, or a Failure; also where there are too few of them for an interval."""
    values = run.samples.of(variant, case)
    if isinstance(values, Failure) or len(values) >= LEAST_ABBA_BLOCKS:
        return values
    return Failure(reason="too_few_palindromes", message=f"{len(values)} complete: an interval needs 2")


def disagreements(gemms: Sequence[GemmResult]) -> tuple[str, ...]:
    """That kernel-only times and the library's own calls differ by more than both of their intervals."""
    rows = [(row, row.seconds, row.own_call_seconds) for row in gemms]
    pairs = [(row, alone, by_library) for row, alone, by_library in rows if alone and by_library]
    apart = [(row, alone.value / by_library.value) for row, alone, by_library in pairs if not _agree(alone, by_library)]
    if not apart:
        return ()
    worst, ratio = max(apart, key=lambda pair: abs(math.log(pair[1])))
    message = (
        f"kernel-only times of {len(apart)} of {len(pairs)} GEMMs differ from Transformer Engine's own GEMM call by "
        f"more than both intervals; most of all {worst.name} {worst.pass_}, {ratio:.2f} times as long"
    )
    return (message,)


def _agree(alone: Interval, by_library: Interval) -> bool:
    """Whether their intervals overlap, or they are nearer than anything that is ever called a difference."""
    near = abs(alone.value / by_library.value - 1) <= stats.LEAST_DIFFERENCE
    return near or (alone.lower <= by_library.upper and by_library.lower <= alone.upper)


def _gemm(variant: Variant, case: GemmCase, run: Measured, evidence: RecipeEvidence) -> GemmResult:
    values, fact = _values(variant, case, run), run.samples.facts.get((variant.label, case))
    own_calls, timed = evidence.own_calls.get((case.name, case.pass_), ()), dict[str, Any](failure=values)
    if not isinstance(values, Failure):
        seconds = stats.widened(stats.mean_interval(values), run.repeats.get((variant.label, case), ()))
        timed = {"seconds": seconds, "execution": fact and fact.execution}
    return GemmResult(
        **{name: getattr(case, name) for name in ("name", "pass_", "m", "k", "n", "count", "mode")},
        grouped=evidence.grouped.get(case),
        own_call_seconds=_interval(own_calls) if case.mode == "prequantized" else None,
        **timed,
    )


def _parts(variant: Variant, mode: Mode, run: Measured, in_a_step: bool = False) -> list[Part]:
    """All GEMMs of one mode, each as often as the model has it, or as a step runs it.

    Those of a model's layers that stay in BF16 are BF16's: the sums are those of what trains.
    """
    model = run.workload.model
    kept = run.kept_by(variant) / model.num_hidden_layers if model else 0.0
    return [
        (side, _stepped(side, case, run), share * case.count * (_runs(case, run) if in_a_step else 1))
        for side, share in ((variant, 1 - kept), (BF16, kept))
        for case in run.cases.gemms
        if share and case.mode == mode
    ]


def _stepped(side: Variant, case: GemmCase, run: Measured) -> GemmCase:
    """The case as a step runs it: what casts nothing has two timings of equal GEMMs, and its step that of autocast.

    But of kernel-only times: a step's kernels are those.
    """
    fact = run.samples.facts.get((side.label, case))
    kernels_seen = fact is None or fact.holds_quantization
    if kernels_seen or case.recipe_of(side) != UNQUANTIZED or "autocast" not in run.cases.modes:
        return case
    return replace(case, mode="autocast")


def _totals(parts: Sequence[Part], run: Measured) -> tuple[float, ...] | Failure:
    """Seconds of the parts, one value an ABBA block; a Failure as soon as one has failed."""
    seconds: list[tuple[float, ...]] = []
    for variant, case, _ in parts:
        values = _values(variant, case, run)
        if isinstance(values, Failure):
            message = f"{case.name} {case.pass_}: {values.reason}: {values.message}"[:1024]
            return values if values.reason in NAMED else Failure(reason="part_failed", message=message)
        seconds.append(values)
    return stats.sums(seconds, [count for *_, count in parts])


def _repeats(parts: Sequence[Part], run: Measured) -> tuple[float, ...]:
    """What `_totals` come to by each profile of their kernels alone; empty where no kernels' share is in them."""
    repeats = [run.repeats.get((variant.label, case)) for variant, case, _ in parts]
    seen = [seconds for seconds in repeats if seconds is not None]
    return stats.sums(seen, [count for *_, count in parts]) if len(seen) == len(parts) else ()


def _ratio(variant: Variant, mode: Mode, run: Measured, in_a_step: bool = False) -> Interval | None:
    """Baseline over recipe, None without a sum of both; the spreads of both kernels' shares are in its interval."""
    mine, base = (_parts(side, mode, run, in_a_step) for side in (variant, run.cases.baseline))
    mine_totals, base_totals = _totals(mine, run), _totals(base, run)
    if isinstance(mine_totals, Failure) or isinstance(base_totals, Failure):
        return None
    return stats.widened(stats.paired_ratio(base_totals, mine_totals), _repeats(mine, run), _repeats(base, run))


def _runs(case: GemmCase, run: Measured) -> int:
    """How often a step runs a GEMM of the model: a forward one again where activations are recomputed, but the head's.

    The head's activations are used at once and kept.
    """
    again = run.workload.workload.recompute == "Full" and case.pass_ == "fprop" and case.quantized
    return 2 if again else 1


def _sum(variant: Variant, mode: Mode, run: Measured) -> GemmSum:
    parts = _parts(variant, mode, run)
    totals = _totals(parts, run)
    if isinstance(totals, Failure):
        return GemmSum(mode=mode, failure=totals)
    return GemmSum(
        mode=mode,
        seconds=stats.widened(stats.mean_interval(totals), _repeats(parts, run)),
        speedup=None if variant.recipe == run.cases.baseline.recipe else _ratio(variant, mode, run),
        launch_gaps=_launch_gaps(parts, run),
    )


def _launch_gaps(parts: Sequence[Part], run: Measured) -> float | None:
    """What lies between the kernels of the parts; None where no replays showed it."""
    gaps = [(run.gaps.get((variant.label, case)), count) for variant, case, count in parts]
    seen = [gap * count for gap, count in gaps if gap is not None]
    return sum(seen) if len(seen) == len(gaps) else None
