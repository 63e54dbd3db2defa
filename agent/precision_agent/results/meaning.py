"""What the figures of one recipe mean, in a word and in a sentence. Pure.

The rules are in docs/development/method.md, "What figures mean".
With g the GEMMs' share of the baseline's step and S their speedup, a step can be 1 / (1 - g + g / S) times as fast.
What was measured is held against that: as fast as the GEMMs allow, or slower because something else eats the gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from precision_api.exchange.request import Mode
from precision_api.exchange.result import Difference, Failure, Interval, Meaning, RecipeResult, Verdict
from precision_api.exchange.stats import LEAST_DIFFERENCE
from precision_api.exchange.summary import complete
from precision_api.facts.plain_text import shortened
from precision_api.facts.recipes import Recipe

MOST_UNSURE = 1.1
"""Assumed, not tried on a GPU: an interval that holds 1 and reaches to more than this says nothing, for the GEMMs may
gain a tenth or more."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one recipe. Ratios are baseline seconds / recipe seconds; None where nothing was measured.

    `gemm_speedup` is that of the GEMM kernels alone; where only GEMMs with their quantisation were timed,
    `tax_in_speedup` is set, and the expectation then holds the tax already. `quantization_tax` is what
    kernels other than GEMMs take beyond the baseline's, as a share of it and the GEMMs'.
    """

    recipe: Recipe
    baseline: Recipe
    verdict: Verdict
    gemm_share: float | None = None
    gemm_speedup: Interval | None = None
    measured: Interval | None = None
    difference: Difference | None = None
    quantization_tax: float | None = None
    noise_floor: float = LEAST_DIFFERENCE
    tax_in_speedup: bool = False
    kept_share: float = 0.0
    """Share of the layers that stay in BF16."""
    kept_speedup: float = 1.0
    """What the GEMMs of these layers gain over the baseline's: nothing over BF16, less than nothing over FP8."""
    no_share: str = "no share of the GEMMs in the step"
    """Why `gemm_share` is None."""
    share_bounds: tuple[float, float] | None = None
    """The interval of `gemm_share`; None where it is not known."""

    def of_all_layers(self, speedup: float) -> float:
        """`speedup` of the low-precision GEMMs -> that of all layers' GEMMs, the kept ones among them."""
        return 1 / ((1 - self.kept_share) / speedup + self.kept_share / self.kept_speedup)


def expected_speedup(gemm_share: float, gemm_speedup: float) -> float:
    """1 / (1 - g + g / S); ValueError for a share outside 0 to 1 or a speedup that is not positive."""
    if not 0 <= gemm_share <= 1 or gemm_speedup <= 0:
        raise ValueError(f"no GEMM share and speedup: {gemm_share}, {gemm_speedup}")
    return 1 / (1 - gemm_share + gemm_share / gemm_speedup)


def meaning(facts: Facts) -> Meaning:
    """The verdict: the first of these that holds.

    baseline; fallback (another precision ran); unknown (a figure is absent or says too little); not_beneficial (the
    GEMMs themselves are no faster beyond the noise); overhead (slower than the GEMMs allow, beyond the intervals);
    no_difference; gemm_bound.
    """
    if facts.recipe == facts.baseline:
        return Meaning(kind="baseline", sentence=f"{facts.recipe} is the baseline of the others.")
    if facts.verdict == "fallback":
        said = f"{facts.recipe} fell back to another precision: its figures are not {facts.recipe}'s."
        return _with_figures(facts, "fallback", said)
    if facts.gemm_speedup is None:
        said = f"{facts.recipe} has no GEMM figure to compare with {facts.baseline}'s: its speed is not explained."
        return _with_figures(facts, "unknown", said)
    if _no_gain(facts.gemm_speedup, facts.noise_floor):
        said = f"{facts.recipe} is not beneficial at these shapes: its GEMMs run {_bounded(facts.gemm_speedup)}"
        return _with_figures(facts, "not_beneficial", f"{said} as fast as {facts.baseline}'s.")
    if facts.gemm_speedup.lower <= 1:
        said = f"whether {facts.recipe}'s GEMMs are faster than {facts.baseline}'s is unknown: they run"
        return _with_figures(facts, "unknown", f"{said} {_bounded(facts.gemm_speedup)} as fast.")
    if facts.measured is None or facts.gemm_share is None:
        lacking = "no training figure" if facts.measured is None else facts.no_share
        gemms = f"{facts.recipe}'s GEMMs run {facts.gemm_speedup.value:.2f}x as fast as {facts.baseline}'s"
        return _with_figures(facts, "unknown", f"{gemms}; {lacking}, so what a step gains is unknown.")
    return _held_against(facts, facts.gemm_share, facts.gemm_speedup, facts.measured)


def _no_gain(speedup: Interval, noise_floor: float) -> bool:
    """S ~ 1 or below: not above it by more than the noise, or an interval around it that holds 1 and no great gain."""
    return speedup.value - 1 <= noise_floor or (speedup.lower <= 1 and speedup.upper < MOST_UNSURE)


def _bounded(speedup: Interval) -> str:
    """The speedup, with its interval where that is wide."""
    wide = speedup.upper - speedup.lower > 0.1 * speedup.value
    return f"{speedup.value:.2f}x" + (f" ({speedup.lower:.2f} to {speedup.upper:.2f})" if wide else "")


def _held_against(facts: Facts, share: float, speedup: Interval, measured: Interval) -> Meaning:
    expected = expected_speedup(share, facts.of_all_layers(speedup.value))
    least, most = _bounds(facts, share, speedup)
    gap = expected - 1 > 1e-9 and measured.upper < least and measured.value < expected * (1 - facts.noise_floor)
    if gap:
        return _overhead(facts, share, speedup.value, measured.value, expected)
    trained = f"{facts.recipe} trains {measured.value:.2f}x as fast as {facts.baseline}"
    if facts.difference == "no_difference":
        said = f"{trained}, which is within the noise; its GEMMs, {share:.0%} of the step, allow {expected:.2f}x."
        return _with_figures(facts, "no_difference", said)
    if measured.lower > most * (1 + facts.noise_floor):
        said = f"{trained}, more than the {expected:.2f}x that its GEMMs explain: other kernels are faster too."
        return _with_figures(facts, "gemm_bound", said)
    said = f"{trained}, as its GEMMs allow ({expected:.2f}x): they are {share:.0%} of the step and {speedup.value:.2f}x"
    return _with_figures(facts, "gemm_bound", f"{said} as fast. GEMM-bound.")


def _bounds(facts: Facts, share: float, speedup: Interval) -> tuple[float, float]:
    """The least and the most that a step can gain, by the intervals of the GEMMs' share and of their speedup."""
    shares = facts.share_bounds or (share, share)
    speedups = [expected_speedup(g, facts.of_all_layers(s)) for g in shares for s in (speedup.lower, speedup.upper)]
    return min(speedups), max(speedups)


def _overhead(facts: Facts, share: float, speedup: float, measured: float, expected: float) -> Meaning:
    """The gap in time, as shares of the time that the GEMMs would save; quantisation's part is at most all of it."""
    saved = 1 - 1 / expected
    gap = (1 / measured - 1 / expected) / saved
    quantization = _quantization(facts, share, speedup, saved, gap)
    other = None if quantization is None else gap - quantization
    trained = f"{facts.recipe} trains {measured:.2f}x as fast as {facts.baseline}"
    lost = f"overhead eats {min(gap, 1):.0%} of the time saved" + (" and more" if gap > 1 else "")
    said = f"{trained}; its GEMMs alone would give {expected:.2f}x: {lost}"
    if facts.tax_in_speedup:
        said += ", quantisation not among it (the GEMMs were timed with theirs)."
    elif quantization is None:
        said += "; how much of it is quantisation was not measured."
    else:
        said += f", {quantization:.0%} by quantisation and {gap - quantization:.0%} by the rest."
    return _with_figures(facts, "overhead", said, quantization, other)


def _quantization(facts: Facts, share: float, speedup: float, saved: float, gap: float) -> float | None:
    """Quantisation's share of the time that the GEMMs would save; 0 where the speedup held it already."""
    if facts.tax_in_speedup:
        return 0.0
    tax = facts.quantization_tax
    if tax is None or not 0 <= tax < 1:
        return None
    # the recipe's GEMM kernels last share / speedup of a baseline step; tax is a share of them and the tax
    return min(share * (1 - facts.kept_share) / speedup * tax / (1 - tax) / saved, gap)


def _with_figures(
    facts: Facts, kind: str, sentence: str, quantization: float | None = None, other: float | None = None
) -> Meaning:
    speedup = facts.gemm_speedup.value if facts.gemm_speedup else None
    both = speedup is not None and facts.gemm_share is not None
    expected = expected_speedup(facts.gemm_share or 0.0, facts.of_all_layers(speedup or 1.0)) if both else None
    return Meaning.model_validate(
        {
            "kind": kind,
            "sentence": shortened(sentence, 1024),
            "gemm_share": facts.gemm_share,
            "gemm_speedup": speedup,
            "expected_speedup": expected,
            "expected_interval": _expected_interval(facts, expected),
            "quantization_part": quantization,
            "other_part": other,
        }
    )


def _expected_interval(facts: Facts, expected: float | None) -> Interval | None:
    if expected is None or facts.gemm_speedup is None or facts.gemm_share is None or facts.share_bounds is None:
        return None
    least, most = _bounds(facts, facts.gemm_share, facts.gemm_speedup)
    return Interval(value=expected, lower=min(least, expected), upper=max(most, expected), n=facts.gemm_speedup.n)


def facts_of(
    result: RecipeResult,
    baseline: Recipe,
    gemm_share: float | Failure | None,
    noise_floor: float = LEAST_DIFFERENCE,
    kept_share: float = 0.0,
    speedups: Mapping[Mode, Interval] | None = None,
) -> Facts:
    """The facts of a finished recipe result; `gemm_share` is the baseline's, or why that says nothing.

    GEMM kernels alone are the prequantized sum; where that failed, the autocast sum stands in, tax and all. `speedups`:
    of the GEMMs as a step runs them; left out, those of the result's sums, in which each counts once.
    """
    if speedups is None:
        speedups = {part.mode: part.speedup for part in result.sums if part.speedup}
    alone = speedups.get("prequantized")
    training = complete(result.training)
    facts = Facts(
        recipe=result.recipe,
        baseline=baseline,
        verdict=result.verification.verdict,
        gemm_share=None if isinstance(gemm_share, Failure) else gemm_share,
        gemm_speedup=alone or speedups.get("autocast"),
        measured=training.speedup if training else None,
        difference=training.difference if training else None,
        quantization_tax=result.quantization_tax,
        noise_floor=noise_floor,
        tax_in_speedup=alone is None,
        kept_share=kept_share,
    )
    return replace(facts, no_share=gemm_share.message) if isinstance(gemm_share, Failure) else facts
