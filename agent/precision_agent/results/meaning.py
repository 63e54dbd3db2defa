"""What the figures of one recipe mean, in a word and in a sentence. Pure.

The rules are in docs/development/method.md, "What figures mean".
With g the GEMMs' share of the baseline's step and S their speedup, a step can be 1 / (1 - g + g / S) times as fast.
What was measured is held against that: as fast as the GEMMs allow, or slower because something else eats the gain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from precision_api.exchange.request import Mode
from precision_api.exchange.result import Difference, Failure, Interval, Meaning, MeaningKind, RecipeResult, Verdict
from precision_api.exchange.stats import LEAST_DIFFERENCE
from precision_api.exchange.summary import complete
from precision_api.facts.plain_text import shortened
from precision_api.facts.recipes import Recipe, recipe_name

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
    tax_is_bound: bool = False
    noise_floor: float = LEAST_DIFFERENCE
    tax_in_speedup: bool = False
    layers_bf16: int = 0
    """Layers that stay in BF16, whose GEMMs are in `gemm_speedup` as BF16's."""
    own_share: float = 1.0
    """Of the GEMM kernels' time in the recipe's step, what does not lie in these layers: only this has a tax."""
    no_share: str = "no share of the GEMMs in the step"
    """Why `gemm_share` is None."""
    cast_speedup: Interval | None = None
    """Of the GEMMs with their casts, where `gemm_speedup` is that of the kernels alone."""
    share_bounds: tuple[float, float] | None = None
    """The interval of `gemm_share`; None where it is not known."""
    cast_share: Interval | None = None
    """As `gemm_share`, with their casts: what explains more than the kernels alone do, where the baseline casts too."""

    @property
    def gemms(self) -> str:
        """The recipe's GEMMs, with what was timed with them and what is not its own among them."""
        last = "last layer's" if self.layers_bf16 == 1 else f"last {self.layers_bf16} layers'"
        kept = f" (the {last} in BF16)" if self.layers_bf16 else ""
        return f"its GEMMs {'with their casts' if self.tax_in_speedup else 'alone'}{kept}"


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
    gain, unsure = facts.gemm_speedup.value - 1, facts.gemm_speedup.lower <= 1
    if gain <= facts.noise_floor or (unsure and facts.gemm_speedup.upper < MOST_UNSURE):
        said = f"{facts.recipe} is not beneficial at these shapes: {facts.gemms} run {_bounded(facts.gemm_speedup)}"
        return _with_figures(facts, "not_beneficial", f"{said} as fast as {facts.baseline}'s.")
    if unsure:
        said = f"whether {facts.recipe} has faster GEMMs than {facts.baseline} is unknown: {facts.gemms} run"
        return _with_figures(facts, "unknown", f"{said} {_bounded(facts.gemm_speedup)} as fast.")
    if facts.measured is None or facts.gemm_share is None:
        lacking = "no training figure" if facts.measured is None else facts.no_share
        said = f"{facts.recipe}: {facts.gemms} run {facts.gemm_speedup.value:.2f}x as fast as {facts.baseline}'s"
        said += f", with their casts {facts.cast_speedup.value:.2f}x" if facts.cast_speedup else ""
        return _with_figures(facts, "unknown", f"{said}; {lacking}, so what a step gains is unknown.")
    return _held_against(facts, facts.gemm_share, facts.gemm_speedup, facts.measured)


def _bounded(speedup: Interval) -> str:
    """The speedup, with its interval where that is wide."""
    wide = speedup.upper - speedup.lower > 0.1 * speedup.value
    return f"{speedup.value:.2f}x" + (f" ({speedup.lower:.2f} to {speedup.upper:.2f})" if wide else "")


def _held_against(facts: Facts, share: float, speedup: Interval, measured: Interval) -> Meaning:
    expected = expected_speedup(share, speedup.value)
    least, most = _bounds(facts, share, speedup)
    gap = expected - 1 > 1e-9 and measured.upper < least and measured.value < expected * (1 - facts.noise_floor)
    if gap:
        return _overhead(facts, share, speedup.value, measured.value, expected)
    trained = f"{facts.recipe} trains {measured.value:.2f}x as fast as {facts.baseline}"
    if facts.difference == "no_difference":
        said = f"{trained}, which is within the noise; {facts.gemms}, {share:.0%} of the step, allow {expected:.2f}x."
        return _with_figures(facts, "no_difference", said)
    if measured.lower > most * (1 + facts.noise_floor):
        casts, casting = facts.cast_share, facts.cast_speedup
        if casts and casting and expected_speedup(casts.value, casting.value) > expected:
            facts = replace(facts, gemm_share=casts.value, gemm_speedup=casting, cast_share=None, tax_in_speedup=True)
            facts = replace(facts, share_bounds=(casts.lower, casts.upper))
            return _held_against(facts, casts.value, casting, measured)
        said = f"{trained}, more than the {expected:.2f}x that {facts.gemms} explain: other kernels are faster too."
        return _with_figures(facts, "gemm_bound", said)
    said = f"{trained}, as {facts.gemms} allow ({expected:.2f}x): they are {share:.0%} of the step and"
    return _with_figures(facts, "gemm_bound", f"{said} {speedup.value:.2f}x as fast. GEMM-bound.")


def _bounds(facts: Facts, share: float, speedup: Interval) -> tuple[float, float]:
    """The least and the most that a step can gain, by the intervals of the GEMMs' share and of their speedup."""
    shares = facts.share_bounds or (share, share)
    speedups = [expected_speedup(g, s) for g in shares for s in (speedup.lower, speedup.upper)]
    return min(speedups), max(speedups)


def _overhead(facts: Facts, share: float, speedup: float, measured: float, expected: float) -> Meaning:
    """The gap in time, as shares of the time that the GEMMs would save; quantisation's part is at most all of it."""
    saved = 1 - 1 / expected
    gap = (1 / measured - 1 / expected) / saved
    quantization = _quantization(facts, share, speedup, saved, gap)
    other = None if quantization is None else gap - quantization
    trained = f"{facts.recipe} trains {measured:.2f}x as fast as {facts.baseline}"
    lost = f"overhead eats {'all' if gap > 1 else f'{gap:.0%}'} of the time saved" + (" and more" if gap > 1 else "")
    said = f"{trained}; {facts.gemms} would give {expected:.2f}x: {lost}"
    if facts.tax_in_speedup:
        said += ", quantisation not among it."
    elif quantization is None:
        said += "; how much of it is quantisation was not measured."
    else:
        part = f"{'at least ' if facts.tax_is_bound else ''}{quantization / gap:.0%}"
        said += f", {'all' if quantization > 0.995 * gap else part} of that by quantisation."
    return _with_figures(facts, "overhead", said, quantization, other)


def _quantization(facts: Facts, share: float, speedup: float, saved: float, gap: float) -> float | None:
    """Quantisation's share of the time that the GEMMs would save; 0 where the speedup held it already."""
    if facts.tax_in_speedup:
        return 0.0
    tax = facts.quantization_tax
    if tax is None or not 0 <= tax < 1:
        return None
    # the recipe's GEMM kernels last share / speedup of a baseline step; tax is a share of them and the tax
    return min(share * facts.own_share / speedup * tax / (1 - tax) / saved, gap)


def _with_figures(
    facts: Facts, kind: MeaningKind, sentence: str, quantization: float | None = None, other: float | None = None
) -> Meaning:
    speedup = facts.gemm_speedup.value if facts.gemm_speedup else None
    both = speedup is not None and facts.gemm_share is not None
    expected = expected_speedup(facts.gemm_share or 0.0, speedup or 1.0) if both else None
    return Meaning(
        kind=kind,
        sentence=shortened(sentence, 1024),
        gemm_share=facts.gemm_share,
        gemm_speedup=speedup,
        expected_speedup=expected,
        expected_interval=_expected_interval(facts, expected),
        quantization_part=quantization,
        other_part=other,
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
    speedups: Mapping[Mode, Interval] | None = None,
) -> Facts:
    """The facts of a finished recipe result; `gemm_share` is the baseline's, or why that says nothing.

    GEMM kernels alone are the prequantized sum; where that failed, the autocast sum stands in, tax and all. `speedups`:
    of the GEMMs as a step runs them; left out, or without a step, those of the result's sums, which count each once.
    """
    training = complete(result.training)
    if speedups is None or training is None or training.speedup is None:
        speedups = {part.mode: part.speedup for part in result.sums if part.speedup}
    alone = speedups.get("prequantized")
    facts = Facts(
        recipe=recipe_name(result.recipe),
        baseline=recipe_name(baseline),
        verdict=result.verification.verdict,
        gemm_share=None if isinstance(gemm_share, Failure) else gemm_share,
        gemm_speedup=alone or speedups.get("autocast"),
        measured=training.speedup if training else None,
        difference=training.difference if training else None,
        quantization_tax=result.quantization_tax,
        tax_is_bound=result.quantization_tax_most is not None,
        noise_floor=noise_floor,
        tax_in_speedup=alone is None,
        cast_speedup=speedups.get("autocast") if alone else None,
        layers_bf16=result.last_layers_bf16 or 0,
    )
    return replace(facts, no_share=gemm_share.message) if isinstance(gemm_share, Failure) else facts
