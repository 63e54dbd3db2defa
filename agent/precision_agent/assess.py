"""Samples -> results of each recipe: intervals, sums, paired speedups. A sum with a failed part is null, with a reason.

Left out, a failed shape would make its recipe look faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from precision_agent.backends.protocol import Power, Probe
from precision_agent.cases import BASELINE, CONTROL, Arm, Cases, GemmCase, TrainingCase
from precision_agent.sample import LEAST_PALINDROMES, Samples
from precision_api import stats
from precision_api.request import Mode
from precision_api.result import (
    Energy,
    Failure,
    GemmResult,
    GemmSum,
    Interval,
    Memory,
    RecipeResult,
    Training,
)

BASELINE_ARM = Arm(BASELINE, BASELINE)
CONTROL_ARM = Arm(CONTROL, BASELINE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What else is known of one arm, beside its samples."""

    probe: Probe
    power: Power
    memory: Memory


def recipe_result(arm: Arm, cases: Cases, samples: Samples, evidence: Evidence, devices: int) -> RecipeResult:
    """All that the samples and the evidence say of one recipe."""
    probe = evidence.probe
    if probe.availability not in ("ok", "emulated"):
        return RecipeResult(recipe=arm.recipe, availability=probe.availability, availability_reason=probe.reason)
    return RecipeResult(
        recipe=arm.recipe,
        availability=probe.availability,
        availability_reason=probe.reason,
        verification=probe.verification,
        gemms=tuple(_gemm(arm, case, samples) for case in cases.gemms),
        sums=tuple(_sum(arm, mode, cases, samples) for mode in _modes(cases)),
        training=_training(arm, cases, samples, evidence.power, devices),
        memory=evidence.memory,
    )


def control_ratio(cases: Cases, samples: Samples) -> Interval | None:
    """Baseline against a second, equal baseline: by the training step, else by the sum of the first GEMM mode."""
    pairs = [_steps(arm, cases, samples) for arm in (BASELINE_ARM, CONTROL_ARM)]
    for mode in _modes(cases):
        if any(isinstance(values, Failure) for values in pairs):
            pairs = [_totals(arm, mode, cases, samples) for arm in (BASELINE_ARM, CONTROL_ARM)]
    first, second = pairs
    if isinstance(first, Failure) or isinstance(second, Failure):
        return None
    return stats.paired_ratio(first, second)


def _modes(cases: Cases) -> tuple[Mode, ...]:
    return tuple(dict.fromkeys(case.mode for case in cases.gemms))


def _values(arm: Arm, case: GemmCase | TrainingCase, samples: Samples) -> tuple[float, ...] | Failure:
    """The samples of one case, or a Failure; also where there are too few of them for an interval."""
    values = samples.of(arm, case)
    if isinstance(values, Failure) or len(values) >= LEAST_PALINDROMES:
        return values
    return Failure(reason="too_few_palindromes", message=f"{len(values)} complete: an interval needs 2")


def _gemm(arm: Arm, case: GemmCase, samples: Samples) -> GemmResult:
    values = _values(arm, case, samples)
    failure = values if isinstance(values, Failure) else None
    seconds = None if isinstance(values, Failure) else stats.mean_interval(values)
    return GemmResult(
        name=case.name,
        pass_=case.pass_,
        m=case.m,
        k=case.k,
        n=case.n,
        count=case.count,
        mode=case.mode,
        seconds=seconds,
        failure=failure,
    )


def _totals(arm: Arm, mode: Mode, cases: Cases, samples: Samples) -> tuple[float, ...] | Failure:
    """Seconds of all GEMMs of one mode, one value a palindrome; a Failure as soon as one part has failed."""
    parts: list[tuple[float, ...]] = []
    chosen = [case for case in cases.gemms if case.mode == mode]
    for case in chosen:
        values = _values(arm, case, samples)
        if isinstance(values, Failure):
            message = f"{case.name} {case.pass_}: {values.reason}: {values.message}"[:1024]
            named = values.reason in ("no_prequantized_mode", "too_few_palindromes")
            return values if named else Failure(reason="part_failed", message=message)
        parts.append(values)
    return stats.sums(parts, [case.count for case in chosen])


def _sum(arm: Arm, mode: Mode, cases: Cases, samples: Samples) -> GemmSum:
    totals = _totals(arm, mode, cases, samples)
    if isinstance(totals, Failure):
        return GemmSum(mode=mode, failure=totals)
    return GemmSum(
        mode=mode,
        seconds=stats.mean_interval(totals),
        speedup=_speedup(arm, _totals(BASELINE_ARM, mode, cases, samples), totals),
    )


def _speedup(arm: Arm, baseline: tuple[float, ...] | Failure, values: tuple[float, ...]) -> Interval | None:
    """Baseline seconds over these, paired; None for the baseline itself and where the baseline failed."""
    if arm.recipe == BASELINE or isinstance(baseline, Failure):
        return None
    return stats.paired_ratio(baseline, values)


def _steps(arm: Arm, cases: Cases, samples: Samples) -> tuple[float, ...] | Failure:
    if cases.training is None:
        return cases.no_training or Failure(reason="not_requested")
    return _values(arm, cases.training, samples)


def _training(arm: Arm, cases: Cases, samples: Samples, power: Power, devices: int) -> Training:
    steps = _steps(arm, cases, samples)
    if isinstance(steps, Failure) or cases.training is None:
        return Training(failure=steps if isinstance(steps, Failure) else cases.no_training)
    rate = stats.mean_interval([devices * cases.training.tokens / seconds for seconds in steps])
    return Training(
        tokens_per_second=rate,
        step_seconds=stats.mean_interval(steps),
        model_flops_per_second=rate.value * cases.training.flops_per_token,
        speedup=_speedup(arm, _steps(BASELINE_ARM, cases, samples), steps),
        energy=_energy(rate.value, power),
    )


def _energy(tokens_per_second: float, power: Power) -> Energy:
    """Tokens per joule from the mean draw; without a valid draw only the reasons."""
    if power.watts is None or power.watts <= 0:
        return Energy(valid=False, reasons=power.reasons or ("no_power_sensor",), scope=power.scope)
    return Energy(valid=True, scope=power.scope, watts=power.watts, tokens_per_joule=tokens_per_second / power.watts)
