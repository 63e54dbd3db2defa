"""Medians over nodes with their 95 % intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Literal

from precision_api.exchange.result import Interval
from precision_api.exchange.stats import t_quantile


@dataclass(frozen=True)
class Spread:
    """A figure with its bounds: a 95 % interval, or the range where there are too few nodes for one."""

    value: float
    lower: float
    upper: float
    n: int
    kind: Literal["interval", "range", "point"]


def bounds_text(lower: float, upper: float, digits: int = 3) -> str:
    """`[0.976, 0.988]`; empty where both print alike."""
    low, high = f"{lower:,.{digits}f}", f"{upper:,.{digits}f}"
    return f"[{low}, {high}]" if low != high else ""


def median_spread(values: Sequence[float]) -> Spread:
    """The median of several nodes with its 95 % interval from order statistics, which supposes no distribution.

    Below six values there is no such interval: the range stands in for it.
    """
    ordered, n = sorted(values), len(values)
    # Exact and in integers: P(at most `below` of n coin tosses) <= 1/40, each binomial from the one before.
    below, term = -1, 1
    cumulative = term
    while cumulative * 40 <= 1 << n:
        below += 1
        term = term * (n - below) // (below + 1)
        cumulative += term
    if below < 0:
        return Spread(median(ordered), ordered[0], ordered[-1], n, "range")
    return Spread(median(ordered), ordered[below], ordered[n - 1 - below], n, "interval")


def ratio_of_medians(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, Interval | None]:
    """Median over median of two groups of nodes, with an interval where both have at least two.

    The standard errors are those of Bonett and Price (Statistical inference for a linear function of medians,
    Psychological Methods 2002) on logarithms, the quantile is Student's with Welch's degrees of freedom. In a
    simulation it held the true ratio at least 95 times in 100, for 2 to 50 nodes a side, with and without slow nodes.
    """
    value = median(numerators) / median(denominators)
    n = len(numerators) + len(denominators)
    if min(len(numerators), len(denominators)) < 2:
        return value, None
    parts = [(_log_error(side) ** 2, len(side) - 1) for side in (numerators, denominators)]
    total = math.fsum(part for part, _ in parts)
    freedom = total**2 / math.fsum(part**2 / df for part, df in parts) if total > 0 else 1.0
    factor = math.exp(t_quantile(max(1, math.floor(freedom))) * math.sqrt(total))
    return value, Interval(value=value, lower=value / factor, upper=value * factor, n=n)


def _log_error(values: Sequence[float]) -> float:
    """Standard error of the logarithm of the median of at least two values, from a pair of order statistics."""
    ordered, n = sorted(values), len(values)
    rank = max(1, round((n + 1) / 2 - math.sqrt(n)))
    tail = sum(math.comb(n, below) for below in range(rank)) / 2**n
    return math.log(ordered[n - rank] / ordered[rank - 1]) / (2 * NormalDist().inv_cdf(1 - tail))
