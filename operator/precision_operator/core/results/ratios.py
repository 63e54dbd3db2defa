"""A figure of one side over that of the other: by nodes in pairs, by two groups of nodes, or by two single runs."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from precision_api.exchange.result import Interval
from precision_api.exchange.stats import differs, paired_ratio, t_quantile
from precision_operator.core.results.intervals import ratio_of_medians
from precision_operator.core.results.sides import ComparedFigure

ComparisonOutcome = Literal["more", "less", "no_difference", "not_known"]
EQUAL_WITHIN = 0.02
"""Two sides are called equal only where the whole interval lies this close to 1: an interval that merely holds 1 may
also hold a loss that matters."""
MOST_NODES_NEEDED = 10_000
"""More nodes than this are never told as needed."""


@dataclass(frozen=True)
class Ratio:
    """B over A. Without an interval nothing can be said of noise; with a wide one that holds 1 it is not known either
    whether the sides differ."""

    value: float
    interval: Interval | None
    nodes: int

    @property
    def answer(self) -> ComparisonOutcome:
        if self.interval is None:
            return "not_known"
        if differs(self.interval, None):
            return "more" if self.value > 1 else "less"
        equal = self.interval.lower >= 1 / (1 + EQUAL_WITHIN) and self.interval.upper <= 1 + EQUAL_WITHIN
        return "no_difference" if equal else "not_known"

    @property
    def nodes_needed(self) -> int | None:
        """About how many nodes, spread as these are, an interval of `EQUAL_WITHIN` takes; None where nodes are no
        sample (one node, or no interval), and where it would be more than `MOST_NODES_NEEDED`."""
        if self.interval is None or self.interval.n < 2:
            return None
        n, wanted = self.interval.n, math.log1p(EQUAL_WITHIN)
        half = math.log(self.interval.upper / self.interval.lower) / 2
        spread = half * math.sqrt(n) / t_quantile(n - 1)
        counts = range(2, MOST_NODES_NEEDED + 1)
        place = bisect_left(counts, True, key=lambda count: t_quantile(count - 1) * spread / math.sqrt(count) <= wanted)
        return counts[place] if place < len(counts) else None


def of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """The geometric mean of B over A with its interval over nodes; none for a single node."""
    if len(pairs) == 1:
        return Ratio(pairs[0][1] / pairs[0][0], None, 1)
    ratio = paired_ratio([b for _, b in pairs], [a for a, _ in pairs])
    return Ratio(ratio.value, ratio, len(pairs))


def single(a: ComparedFigure, b: ComparedFigure) -> Ratio:
    """One node, or one node against another: the interval comes from those of the two runs."""
    value = b.rate / a.rate
    if a.error is None or b.error is None:
        return Ratio(value, None, 1)
    half = math.hypot(a.error, b.error)
    return Ratio(value, Interval(value=value, lower=value * (1 - half), upper=value * (1 + half), n=1), 1)


def of_groups(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The ratio of the groups' medians, which are those that the profiles' status shows."""
    value, interval = ratio_of_medians(b, a)
    return Ratio(value, interval, len(a) + len(b))
