"""Samples -> results of each recipe: intervals, sums, paired speedups. A sum with a failed part is null, with a reason.

Left out, a failed shape would make its recipe look faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from precision_agent.cases import BF16, GemmCase, Variant
from precision_agent.precision.evidence import CPU_BOUND, Tax
from precision_agent.protocol import GemmName, Probe
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
    taxes = [tax.least for tax in evidence.taxes]
    verification = evidence.verification or probe.verification
    training = training_of(variant, run, evidence.metering, evidence.depth_check)
    if verification.verdict == "fallback":  # the asked format's peak says nothing of the one that ran
        training = training.model_copy(update={"mfu": None})
    return RecipeResult(
        recipe=variant.recipe,
        availability=probe.availability,
        availability_reason=probe.reason[:1024],
        verification=verification,
        gemms=gemms,
        sums=sums,
        quantization_tax=fmean(taxes) if taxes else _tax(variant, run),
        quantization_tax_interval=_interval(taxes),
        gradient_quantization_share=evidence.gradient_quantization_share,
        cpu_bound=_cpu_bound(variant, run, evidence.kernel_time_share),
        kernel_time_share=evidence.kernel_time_share,
        kernel_profiles=evidence.kernel_profiles,
        training=training,
        throttle=evidence.held_back.shares,
        throttled=evidence.held_back.marked,
        clocks=evidence.clocks,
        memory=evidence.memory,
        model_memory=evidence.model_memory,
        loss=evidence.loss,
        last_layers_bf16=run.kept_by(variant) if run.cases.training and variant.recipe in KEEPING else None,
        listed=evidence.listed,
        notes=(*disagreements(gemms), *_bound(evidence.taxes), *evidence.notes)[:MOST_NOTES],
    )


def _bound(taxes: Sequence[Tax]) -> tuple[str, ...]:
    """That kernels which no rule knows, and the baseline lacks, may be casts or GEMMs or both."""
    if not taxes:
        return ()
    least, most = fmean(tax.least for tax in taxes), fmean(tax.most for tax in taxes)
    if most - least < TAX_TOLD:
        return ()
    return (f"the quantisation tax is {least:.1%} to {most:.1%}: no rule knows what some of its kernels do",)


def with_meanings(results: tuple[RecipeResult, ...], run: Measured) -> tuple[RecipeResult, ...]:
    """The same results, each told what it means against the baseline."""
    share, floor, baseline = gemm_share(run), stats.noise_floor(run.control), run.cases.baseline.recipe
    of_bf16 = gemm_speedups(BF16, run) if BF16 in run.cases.variants and baseline != BF16.recipe else {}

    def explained(result: RecipeResult) -> RecipeResult:
        speedups = gemm_speedups(Variant(result.recipe, result.recipe), run)
        value = share.value if isinstance(share, Interval) else share
        facts = facts_of(result, baseline, value, floor, _kept_share(result, run), speedups)
        kept = of_bf16.get("prequantized" if "prequantized" in speedups else "autocast")
        facts = replace(facts, kept_speedup=kept.value if kept else 1.0)
        if isinstance(share, Interval):
            facts = replace(facts, share_bounds=(share.lower, min(1.0, share.upper)))
        doubt = (share.message,) if isinstance(share, Failure) and result.recipe == baseline else ()
        return result.model_copy(update={"meaning": meaning(facts), "notes": (*doubt, *result.notes)[:MOST_NOTES]})

    return tuple(explained(result) if result.availability in ("ok", "emulated") else result for result in results)


def _kept_share(result: RecipeResult, run: Measured) -> float:
    """Share of the model's layers that stay in BF16 with the recipe."""
    kept, model = run.kept_by(Variant(result.recipe, result.recipe)), run.workload.model
    return kept / model.num_hidden_layers if kept and model else 0.0


def gemm_share(run: Measured) -> Interval | Failure | None:
    """The GEMMs' share of the baseline's full-depth step, from kernel times where there are any; None without both.

    A Failure where they take longer than the step that holds them: one of the two times is wrong then.
    """
    baseline = run.cases.baseline
    steps = steps_of(baseline, run)
    if isinstance(steps, Failure) or steps.rates.missing:
        return None
    modes: list[Mode] = sorted(run.cases.modes, reverse=True)
    by_mode = ((mode, _totals(baseline, mode, run, in_a_step=True)) for mode in modes)
    complete = next(((mode, totals) for mode, totals in by_mode if not isinstance(totals, Failure)), None)
    if complete is None:
        return None
    mode, totals = complete
    step = [fmean(devices) for devices in zip(*steps.seconds.values(), strict=True)]
    paired = stats.widened(stats.paired_ratio(totals, step), _repeats(baseline, mode, run, in_a_step=True))
    share = fmean(totals) / fmean(step)
    if share > 1 + SHARE_ROUNDING:
        message = f"the GEMMs take {share - 1:.1%} longer than the {baseline.recipe} step that holds them"
        return Failure(reason="gemms_exceed_step", message=message)
    value, factor = min(1.0, share), paired.upper / paired.value
    return Interval(value=value, lower=value / factor, upper=value * factor, n=paired.n)


def gemm_speedups(variant: Variant, run: Measured) -> dict[Mode, Interval]:
    """Baseline over recipe of all GEMMs of a step, by mode: where activations are recomputed, forward ones twice.

    A mode in which one of the two has no sum is left out.
    """
    speedups: dict[Mode, Interval] = {}
    for mode in run.cases.modes:
        mine, base = (_totals(side, mode, run, in_a_step=True) for side in (variant, run.cases.baseline))
        if not isinstance(mine, Failure) and not isinstance(base, Failure):
            speedups[mode] = _ratio(variant, mode, run, base, mine, in_a_step=True)
    return speedups


def _tax(variant: Variant, run: Measured) -> float | None:
    """Where no kernels were seen: what the GEMMs alone are below the GEMMs with their quantisation, as a share.

    None where they are not below it.
    """
    modes: tuple[Mode, Mode] = ("prequantized", "autocast")
    if variant.recipe == run.cases.baseline.recipe or set(modes) - set(run.cases.modes):
        return None
    alone, whole = (_totals(variant, mode, run, in_a_step=True) for mode in modes)
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
        base_totals, control_totals = _totals(baseline, mode, run), _totals(control, mode, run)
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
    values = _values(variant, case, run)
    fact = run.samples.facts.get((variant.label, case))
    failed = isinstance(values, Failure)
    return GemmResult(
        name=case.name,
        pass_=case.pass_,
        m=case.m,
        k=case.k,
        n=case.n,
        count=case.count,
        mode=case.mode,
        seconds=None
        if isinstance(values, Failure)
        else stats.widened(stats.mean_interval(values), run.repeats.get((variant.label, case), ())),
        execution=fact.execution if fact and not failed else None,
        grouped=evidence.grouped.get(case),
        own_call_seconds=_interval(evidence.own_calls.get((case.name, case.pass_), ()))
        if case.mode == "prequantized"
        else None,
        failure=values if isinstance(values, Failure) else None,
    )


def _totals(variant: Variant, mode: Mode, run: Measured, in_a_step: bool = False) -> tuple[float, ...] | Failure:
    """Seconds of all GEMMs of one mode, one value an ABBA block; a Failure as soon as one part has failed.

    Each counts as often as the model has it, or as often as a step runs it.
    """
    parts: list[tuple[float, ...]] = []
    chosen = [case for case in run.cases.gemms if case.mode == mode]
    for case in chosen:
        values = _values(variant, case, run)
        if isinstance(values, Failure):
            message = f"{case.name} {case.pass_}: {values.reason}: {values.message}"[:1024]
            return values if values.reason in NAMED else Failure(reason="part_failed", message=message)
        parts.append(values)
    return stats.sums(parts, [case.count * (_runs(case, run) if in_a_step else 1) for case in chosen])


def _repeats(variant: Variant, mode: Mode, run: Measured, in_a_step: bool = False) -> tuple[float, ...]:
    """What `_totals` come to by each profile of their kernels alone; empty where no kernels' share is in them."""
    parts: list[tuple[float, ...]] = []
    chosen = [case for case in run.cases.gemms if case.mode == mode]
    for case in chosen:
        repeats = run.repeats.get((variant.label, case))
        if repeats is None:
            return ()
        parts.append(repeats)
    return stats.sums(parts, [case.count * (_runs(case, run) if in_a_step else 1) for case in chosen])


def _ratio(
    variant: Variant, mode: Mode, run: Measured, base: Sequence[float], mine: Sequence[float], in_a_step: bool = False
) -> Interval:
    """Baseline over recipe; the spreads of both kernels' shares are in its interval."""
    recipe_repeats, base_repeats = (_repeats(side, mode, run, in_a_step) for side in (variant, run.cases.baseline))
    return stats.widened(stats.paired_ratio(base, mine), recipe_repeats, base_repeats)


def _runs(case: GemmCase, run: Measured) -> int:
    """How often a step runs a GEMM of the model: a forward one again where activations are recomputed, but the head's.

    The head's activations are used at once and kept.
    """
    again = run.workload.workload.recompute == "Full" and case.pass_ == "fprop" and case.quantized
    return 2 if again else 1


def _sum(variant: Variant, mode: Mode, run: Measured) -> GemmSum:
    totals = _totals(variant, mode, run)
    if isinstance(totals, Failure):
        return GemmSum(mode=mode, failure=totals)
    baseline = _totals(run.cases.baseline, mode, run)
    alike = variant.recipe == run.cases.baseline.recipe or isinstance(baseline, Failure)
    return GemmSum(
        mode=mode,
        seconds=stats.widened(stats.mean_interval(totals), _repeats(variant, mode, run)),
        speedup=None if alike or isinstance(baseline, Failure) else _ratio(variant, mode, run, baseline, totals),
        launch_gaps=_launch_gaps(variant, mode, run),
    )


def _launch_gaps(variant: Variant, mode: Mode, run: Measured) -> float | None:
    """What lies between the kernels of all GEMMs of a mode; None where no replays showed it."""
    gaps = [(run.gaps.get((variant.label, case)), case.count) for case in run.cases.gemms if case.mode == mode]
    seen = [gap * count for gap, count in gaps if gap is not None]
    return sum(seen) if len(seen) == len(gaps) else None
