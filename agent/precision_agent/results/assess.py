"""Samples -> results of each recipe: intervals, sums, paired speedups. A sum with a failed part is null, with a reason.

Left out, a failed shape would make its recipe look faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from precision_agent.cases import GemmCase, Variant
from precision_agent.protocol import Probe
from precision_agent.results.meaning import facts_of, meaning
from precision_agent.results.power_windows import HeldBack
from precision_agent.results.train import Measured, RecipePower, steps_of, training_of
from precision_agent.sampling.sample import LEAST_ABBA_BLOCKS
from precision_api import stats
from precision_api.request import Mode
from precision_api.result import (
    Clocks,
    Failure,
    GemmResult,
    GemmSum,
    Interval,
    Loss,
    Memory,
    ModelMemory,
    RecipeResult,
    Verification,
)

NAMED = frozenset({"no_prequantized_mode", "too_few_palindromes"})
"""Reasons that a sum tells as its own: they are of all its parts."""

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
    quantization_tax: float | None = None
    gradient_quantization_share: float | None = None
    cpu_bound: bool | None = None
    loss: Loss | None = None
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
    return RecipeResult(
        recipe=variant.recipe,
        availability=probe.availability,
        availability_reason=probe.reason[:1024],
        verification=evidence.verification or probe.verification,
        gemms=tuple(_gemm(variant, case, run) for case in run.cases.gemms),
        sums=sums,
        quantization_tax=_tax(variant, run) if evidence.quantization_tax is None else evidence.quantization_tax,
        gradient_quantization_share=evidence.gradient_quantization_share,
        cpu_bound=evidence.cpu_bound,
        training=training_of(variant, run, evidence.metering, evidence.depth_check),
        throttle=evidence.held_back.shares,
        throttled=evidence.held_back.marked,
        clocks=evidence.clocks,
        memory=evidence.memory,
        model_memory=evidence.model_memory,
        loss=evidence.loss,
        notes=evidence.notes,
    )


def with_meanings(results: tuple[RecipeResult, ...], run: Measured) -> tuple[RecipeResult, ...]:
    """The same results, each told what it means against the baseline."""
    share, floor, baseline = gemm_share(run), stats.noise_floor(run.control), run.cases.baseline.recipe

    def told(result: RecipeResult) -> RecipeResult:
        speedups = gemm_speedups(Variant(result.recipe, result.recipe), run)
        facts = facts_of(result, baseline, share, floor, _kept_share(result, run), speedups)
        doubt = (share.message,) if isinstance(share, Failure) and result.recipe == baseline else ()
        return result.model_copy(update={"meaning": meaning(facts), "notes": (*doubt, *result.notes)[:8]})

    return tuple(told(result) if result.availability in ("ok", "emulated") else result for result in results)


def _kept_share(result: RecipeResult, run: Measured) -> float:
    """Share of the model's layers that the recipe leaves to the baseline's."""
    kept, model = run.kept_by(Variant(result.recipe, result.recipe)), run.workload.model
    return kept / model.num_hidden_layers if kept and model else 0.0


def gemm_share(run: Measured) -> float | Failure | None:
    """The GEMMs' share of the baseline's full-depth step, from kernel times where there are any; None without both.

    A Failure where they take longer than the step that holds them: one of the two times is wrong then.
    """
    baseline = run.cases.baseline
    steps = steps_of(baseline, run)
    if isinstance(steps, Failure) or steps.missing:
        return None
    found = (_totals(baseline, mode, run, in_a_step=True) for mode in sorted(run.cases.modes, reverse=True))
    seconds = next((fmean(totals) for totals in found if not isinstance(totals, Failure)), None)
    if seconds is None:
        return None
    step = fmean(value for values in steps.seconds.values() for value in values)
    share = seconds / step
    if share > 1 + SHARE_ROUNDING:
        told = f"the GEMMs take {share - 1:.1%} longer than the {baseline.recipe} step that holds them"
        return Failure(reason="gemms_exceed_step", message=told)
    return min(1.0, share)


def gemm_speedups(variant: Variant, run: Measured) -> dict[Mode, Interval]:
    """Baseline over recipe of all GEMMs of a step, by mode: where activations are recomputed, forward ones twice.

    A mode in which one of the two has no sum is left out.
    """
    found: dict[Mode, Interval] = {}
    for mode in run.cases.modes:
        mine, base = (_totals(one, mode, run, in_a_step=True) for one in (variant, run.cases.baseline))
        if not isinstance(mine, Failure) and not isinstance(base, Failure):
            found[mode] = stats.paired_ratio(base, mine)
    return found


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


def control_ratio(run: Measured) -> Interval | None:
    """Baseline against a second, equal baseline: by the training step, else by the sum of the first GEMM mode."""
    baseline, control = run.cases.baseline, run.cases.control
    first, second = steps_of(baseline, run), steps_of(control, run)
    if not isinstance(first, Failure) and not isinstance(second, Failure):
        return stats.paired_ratio(second.rates.per_abba_block, first.rates.per_abba_block)
    for mode in run.cases.modes:
        one, two = _totals(baseline, mode, run), _totals(control, mode, run)
        if not isinstance(one, Failure) and not isinstance(two, Failure):
            return stats.paired_ratio(one, two)
    return None


def _values(variant: Variant, case: GemmCase, run: Measured) -> tuple[float, ...] | Failure:
    """The samples of one case, or a Failure; also where there are too few of them for an interval."""
    values = run.samples.of(variant, case)
    if isinstance(values, Failure) or len(values) >= LEAST_ABBA_BLOCKS:
        return values
    return Failure(reason="too_few_palindromes", message=f"{len(values)} complete: an interval needs 2")


def _gemm(variant: Variant, case: GemmCase, run: Measured) -> GemmResult:
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
        seconds=None if isinstance(values, Failure) else stats.mean_interval(values),
        execution=fact.execution if fact and not failed else None,
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
        seconds=stats.mean_interval(totals),
        speedup=None if alike or isinstance(baseline, Failure) else stats.paired_ratio(baseline, totals),
    )
