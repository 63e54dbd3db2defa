"""Intervals, paired ratios and robust figures: pure arithmetic over samples that somebody else took.

The independent unit is one full palindrome of the measuring order (A B C ... C B A). Within it the arms see the same
temperature and the same drift, so ratios are paired there; single sweeps as the unit give intervals that cover too
little.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import NormalDist, fmean, median, stdev

from precision_api.exchange.result import Interval

Z_975 = 1.959963984540054
LEAST_DIFFERENCE = 0.005
"""A ratio closer to 1 than this is never called a difference, however narrow its interval.

The rule: docs/development/method.md, "Intervals and noise"."""

LEAST_ENERGY_DIFFERENCE = 0.03
"""Assumed, not tried on a GPU: in simulation the power of paused steps errs by up to 2.8 %, and not all of it shows in
an interval. Less than this is never called a gain."""

BETWEEN_RUNS = 0.005
"""Assumed, not tried on a GPU: relative standard deviation of a node's rate between runs, hours or days apart. H100 SXM
in training went up and down by 1 to 2 % over a day (The Llama 3 Herd of Models, 3.3.4): as a sine 0.35 to 0.7 %."""

DEPTH_TOLERANCE = 0.03
"""docs/development/method.md, "Full depth": a second depth must be predicted this well."""

MAD_TO_SIGMA = 1.482602218505602
"""1 / the 0.75 quantile of a normal: makes the MAD of normal data estimate its standard deviation."""


@cache
def t_quantile(df: float, above: float = 0.025) -> float:
    """Student's t with probability `above` (below a half) beyond it, `df` >= 1 degrees of freedom, within 1e-6.

    By Newton's method on the tail's power series; for many degrees of freedom by Fisher and Cornish (1960), four terms.
    """
    if df < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {df}")
    t = z = NormalDist().inv_cdf(1 - above)
    if df > 200:
        terms = (
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
            (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
        )
        return z + math.fsum(term / float(df) ** power for power, term in enumerate(terms, start=1))
    height = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi * df)
    step = t
    while abs(step) > 1e-12 * t:
        x = df / (df + t * t)
        density, series, term, n = height * x ** ((df + 1) / 2), 1.0, 1.0, 0
        while term > 1e-16 * series:
            term *= x * ((df + 1) / 2 + n) / (df / 2 + 1 + n)
            series, n = series + term, n + 1
        step = t * series / df - above / density
        t += step
    return t


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of independent seconds or rates with a 95 % t-interval on their logarithms, which never reaches 0.

    ValueError below two values (no spread, no interval) and for values that are not positive. Noise of times goes with
    their size: the t-interval of the values themselves goes below 0 for noisy ones, and holds their mean less often.
    """
    if min(values, default=1.0) <= 0:
        raise ValueError("seconds and rates must be positive")
    return _around(fmean(values), [math.log(value) for value in values])


def _around(value: float, logs: Sequence[float]) -> Interval:
    """`value`, times and divided by e to the half-width of the t-interval of independent logarithms."""
    n = len(logs)
    if n < 2:
        raise ValueError(f"an interval needs at least 2 independent values, not {n}")
    return _within(value, t_quantile(n - 1) * stdev(logs) / math.sqrt(n), n)


def _within(value: float, half: float, n: int) -> Interval:
    """`value`, times and divided by e to `half`."""
    return Interval(value=value, lower=value / math.exp(half), upper=value * math.exp(half), n=n)


def rate_interval(values: Sequence[float]) -> Interval:
    """The mean rate (or seconds) of a run's palindromes, in their order, with a 95 % interval for the node on any day.

    Three variances of logarithms add up: `BETWEEN_RUNS`, the mean's as if palindromes were independent, and the change
    from the run's first half to its second, which stands for what makes them alike: warm-up and drift. ValueError below
    two values and for values that are not positive.
    """
    logs, half = [math.log(value) for value in values], len(values) // 2
    change = fmean(logs[-half:]) - fmean(logs[:half])
    deviation = math.hypot(BETWEEN_RUNS, stdev(logs) / math.sqrt(len(logs)), change)
    return _within(fmean(values), Z_975 * deviation, len(logs))


def sums(parts: Sequence[Sequence[float]], counts: Sequence[float]) -> tuple[float, ...]:
    """Per palindrome u the sum of `counts[i]` x `parts[i][u]`; ValueError if parts differ in length or number.

    An interval of these sums keeps what the parts share (drift, clocks) in the spread; adding the parts' intervals in
    quadrature would call it independent and come out too narrow.
    """
    if len(parts) != len(counts) or len({len(part) for part in parts}) != 1:
        raise ValueError("every part needs a count and the same number of palindromes")
    return tuple(
        math.fsum(count * value for count, value in zip(counts, row, strict=True)) for row in zip(*parts, strict=True)
    )


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Geometric mean of the ratios within each palindrome, with a 95 % t-interval on their logarithms."""
    if len(numerators) != len(denominators):
        raise ValueError(f"pairs must match: {len(numerators)} numerators, {len(denominators)} denominators")
    if min(numerators, default=1.0) <= 0 or min(denominators, default=1.0) <= 0:
        raise ValueError("a ratio needs positive values")
    logs = [math.log(a) - math.log(b) for a, b in zip(numerators, denominators, strict=True)]
    return _around(math.exp(fmean(logs)), logs)


def widened(interval: Interval, *repeats: Sequence[float]) -> Interval:
    """The same value with a wider interval, for factors in it that were found apart from its palindromes.

    Each of `repeats` holds what the value, or a factor of it, comes to by each of some independent findings of that
    factor. The half-widths of the logarithms add up in squares; an empty one adds nothing. ValueError for one that is
    not positive or stands alone.
    """
    halves = [_half_width(interval), *(_half_width(mean_interval(repeat)) for repeat in repeats if repeat)]
    return _within(interval.value, math.hypot(*halves), interval.n)


def _half_width(interval: Interval) -> float:
    return math.log(interval.upper / interval.value)


def relative_error(interval: Interval) -> float:
    """Half the interval's width as a share of its value."""
    return (interval.upper - interval.lower) / 2 / interval.value


def around(value: float, error: float) -> Interval:
    """The interval of that relative error, whose ends are as far from the value, as ratios."""
    return _within(value, math.asinh(error), 1)


def ratio(of: Interval, over: Interval) -> Interval:
    """One figure over another of the same palindromes, by the intervals of both.

    The half-widths of their logarithms add up: it is never narrower than that of their pairs, whatever the two share.
    """
    return _within(of.value / over.value, _half_width(of) + _half_width(over), min(of.n, over.n))


def noise_floor(control: Interval | None) -> float:
    """How far from 1 a ratio must be to mean anything: the control's distance and half-width, at least 0.5 %."""
    if control is None:
        return LEAST_DIFFERENCE
    return max(abs(control.value - 1) + (control.upper - control.lower) / 2, LEAST_DIFFERENCE)


def differs(ratio: Interval, control: Interval | None) -> bool:
    """Whether the ratio's own interval excludes 1 and it is further from 1 than the noise floor."""
    excludes_one = ratio.lower > 1 or ratio.upper < 1
    return excludes_one and abs(ratio.value - 1) > noise_floor(control)


def depth_agrees(ratio: float) -> bool:
    """Whether a second depth's predicted over measured step is within the tolerance."""
    return abs(ratio - 1) <= DEPTH_TOLERANCE


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled; 0 for a single value, ValueError for none."""
    centre = median(values)
    return median(abs(value - centre) for value in values)


def biweight(values: Sequence[float], tuning: float = 9.0) -> float:
    """Scale of values by the biweight midvariance: as good as a standard deviation where they are normal, and hardly
    moved by a few that lie far off. Without a median deviation it is the standard deviation; 0 below two values."""
    if len(values) < 2:
        return 0.0
    middle, unit = median(values), tuning * mad(values)
    if not unit:
        return stdev(values)
    near = [(d * d, 1 - (d / unit) ** 2) for d in (value - middle for value in values) if abs(d) < unit]
    weights = math.fsum(w * (5 * w - 4) for _, w in near)
    return math.sqrt(len(values) * math.fsum(square * w**4 for square, w in near)) / abs(weights)


def behind(values: Mapping[str, float]) -> dict[str, float]:
    """Each one's distance from the median of the others; of a single one nothing."""
    others = {name: [value for other, value in values.items() if other != name] for name in values}
    return {name: values[name] - median(rest) for name, rest in others.items() if rest}


def percentile(values: Sequence[float], share: float) -> float:
    """The `share` quantile (0 to 1) by linear interpolation between order statistics, as numpy's default does."""
    if not values:
        raise ValueError("no values, no percentile")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not {share}")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low if low == high else low + (place - below) * (high - low)
