"""How sure a rate is: the reasons why it may be off, each with its own 90 % band, and what they come to together.

Each part is a factor on the rate, and they are taken as independent. Those of a normal law add their logarithms in
quadrature, below and above the middle apart; the slowest node's law, which is not normal, is multiplied in. A figure
that a user declares without `plusMinus` has a stated default: nothing is known exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Z_95: Final = 1.6448536269514722
"""Standard deviations of a two-sided 90 %."""
Z_90: Final = 1.2815515655446004
"""Standard deviations that nine in ten of a normal law lie below."""
PROMISED: Final = 0.90
"""A deadline is promised where it is kept so often."""
SCALING_PLUS_MINUS: Final = 0.05
"""Of an efficiency without one."""
GOODPUT_PLUS_MINUS: Final = 0.05
"""Of a goodput without one."""
_GRID: Final = np.array([NormalDist().inv_cdf((i + 0.5) / 41) for i in range(41)])
Figures = NDArray[np.float64]
Name = Literal["measurement", "prediction", "slow nodes", "job rate", "scaling", "goodput", "repairs"]


@dataclass(frozen=True, slots=True)
class BandPart:
    """One reason why a rate may be off: factors at the ends of its 90 % band, low <= 1 <= high.

    Jobs whose parts have the same `shared` are off together (one method, one table); empty: each by itself. Where the
    law is known, `values` are equally likely factors, ascending, in place of a normal law between the ends.
    """

    name: Name
    low: float
    high: float
    shared: str = ""
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Band:
    """Factors on a rate: the ends of its 90 % band, and what is reached or passed nine times in ten."""

    low: float
    promised: float
    high: float


def combined(parts: Sequence[BandPart]) -> Band:
    """All parts together; what is promised is never more than the middle."""
    below, above = _deviations(parts)
    laws = [part.values for part in parts if part.values]
    if not laws:
        tenth = float(passed(np.array([part.low for part in parts]), np.array([part.high for part in parts])))
        return Band(math.exp(-Z_95 * below), tenth, math.exp(Z_95 * above))
    product = reduce(np.multiply.outer, (np.array(values) for values in laws), _spread(below, above))
    ordered = np.sort(product, axis=None)
    low, tenth, high = (float(ordered[round(share * (len(ordered) - 1))]) for share in (0.05, 1 - PROMISED, 0.95))
    return Band(low, min(1.0, tenth), high)


def passed(low: Figures, high: Figures) -> Figures:
    """What nine in ten pass of parts of a normal law (the first axis): by the moments of their sum, since it is skewed
    where ends differ (Cornish and Fisher 1938); never more than the middle."""
    below, above = -np.log(low) / Z_95, np.log(high) / Z_95
    mean, second = (above - below) / math.sqrt(2 * math.pi), (below**2 + above**2) / 2
    third = (above**3 - below**3) * math.sqrt(2 / math.pi) - 3 * mean * second + 2 * mean**3
    spread = np.sqrt(np.maximum((second - mean**2).sum(axis=0), 1e-300))
    skewed = (Z_90**2 - 1) / 6 * third.sum(axis=0) / spread**3
    return np.asarray(np.exp(np.minimum(mean.sum(axis=0) + spread * (skewed - Z_90), 0.0)))


def promised(below: Figures, above: Figures, values: Figures) -> Figures:
    """What nine in ten pass, by size: of a normal law with each row of `values` (equally likely factors)."""
    place = round((1 - PROMISED) * (len(_GRID) * values.shape[1] - 1))
    different, rows = np.unique(np.column_stack([below, above, values]), axis=0, return_inverse=True)
    made = [np.partition(np.multiply.outer(_spread(*row[:2]), row[2:]), place, axis=None)[place] for row in different]
    return np.array(made, dtype=np.float64)[rows.reshape(-1)]


def _deviations(parts: Sequence[BandPart]) -> tuple[float, float]:
    """Standard deviations of the logarithm, below and above the middle, of the parts of a normal law."""
    normal = [part for part in parts if not part.values]
    below = math.sqrt(sum(math.log(part.low) ** 2 for part in normal)) / Z_95
    return below, math.sqrt(sum(math.log(part.high) ** 2 for part in normal)) / Z_95


def _spread(below: float, above: float) -> Figures:
    return np.exp(np.where(_GRID < 0, _GRID * below, _GRID * above))
