"""What a synchronous job loses by waiting for its slowest node: noise removed, then exact order statistics.

A job on n of a pool's N nodes, drawn without replacement, goes at the pace of the slowest. With the rates in ascending
order, P(slowest is x_(i)) = C(N-i, n-1) / C(N, n). Days are proportional to 1 / rate, so the factor that makes days
right is 1 / E[1 / slowest], a little below E[slowest].

Measured rates scatter by their own noise, and the smallest of many scattered values is small: equal nodes with 1 %
noise would look 2.8 % slow. So the noise is removed first. Rates are cut into groups (one for most pools; slow nodes
make one of their own) wherever that explains them better by more than it costs, a normal law for each. A group that
scatters no more than the noise becomes one value; another is drawn together until its spread is what noise leaves. What
is lost: a few nodes that are slow by less than about four noise widths can't be told from noise, and count as equal.

Where only a part of the pool was measured, slow nodes are met that nobody has seen. Their share follows from how many
were seen (Jeffreys' prior: half a node among one more than were measured), how slow they are from those that were seen:
between any two of them, and between them and the ends of SLOW_NODE_PRIOR, the next one is as likely (Hill 1968).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]
Counts = NDArray[np.int64]

SIGNIFICANT = 3.2
"""Standard errors by which a group's variance must pass the noise's before any of it counts as real."""
NEGLIGIBLE = 1e-6
"""Noise that nothing has to be done about; its square still is a number."""
LOW, HIGH = 0.05, 0.95
"""Ends of the band of what the slowest node may be: nine draws in ten lie between."""
VALUES = 40
"""Equally likely values that stand for what the slowest node may be."""
SLOW_BELOW = 0.95
"""Of the reference rate: slower nodes are a kind of their own where not all nodes were measured."""
SLOW_NODE_PRIOR = (0.05, 0.35)
"""A slow node that nobody has seen is slower by a share between these, all equally likely."""
TIED = 1e-9
_ENDS = np.array([LOW, HIGH, *((np.arange(VALUES) + 0.5) / VALUES)])
_LEVELS = 30
_SHARES = np.geomspace(1e-6, 0.999, 60)


@dataclass(frozen=True, slots=True)
class Straggler:
    """Relative to the reference rate: `days` makes days right, low and high are a 90 % band.

    `values` are VALUES equally likely ones, ascending.
    """

    days: float
    low: float
    high: float
    values: tuple[float, ...] = ()


def quiet(rates: Rates, noise: float) -> Rates:
    """`rates` (positive, any order) in ascending order without measurement noise of relative deviation `noise`."""
    ordered = np.sort(np.asarray(rates, dtype=np.float64))
    if noise < NEGLIGIBLE or len(ordered) < 2:
        return ordered
    # Relative noise is additive noise of the logarithms, the same for slow and fast nodes.
    logs = np.log(ordered)
    return np.sort(np.exp(np.concatenate([_drawn_together(group, noise) for group in _groups(logs, noise)])))


def _drawn_together(group: Rates, noise: float) -> Rates:
    size = len(group)
    middle = float(np.mean(group))
    variance = float(np.var(group, ddof=1)) if size > 1 else 0.0
    least = noise**2 * (1 + SIGNIFICANT * math.sqrt(2 / max(size - 1, 1)))
    if variance <= least:
        return np.full(size, middle)
    return middle + (group - middle) * math.sqrt(1 - noise**2 / variance)


def _groups(ordered: Rates, noise: float) -> list[Rates]:
    """Contiguous groups, split in two as long as the likelihood gains more than three parameters cost (BIC)."""
    total = len(ordered)
    penalty = 1.5 * math.log(total) + 2.0
    waiting, done = [ordered], []
    while waiting:
        group = waiting.pop()
        cut = _best_cut(group, noise, total, penalty)
        if cut is None:
            done.append(group)
        else:
            waiting += [group[cut:], group[:cut]]
    return done


def _best_cut(group: Rates, noise: float, total: int, penalty: float) -> int | None:
    size = len(group)
    if size < 2 or group[-1] - group[0] <= 2 * noise:
        return None
    shifted = group - group[0]
    ones, twos = np.cumsum(shifted), np.cumsum(shifted**2)
    left = np.arange(1, size, dtype=np.float64)
    below = _fit(left, ones[:-1], twos[:-1], noise, total)
    above = _fit(size - left, ones[-1] - ones[:-1], twos[-1] - twos[:-1], noise, total)
    whole = _fit(np.array([float(size)]), ones[-1:], twos[-1:], noise, total)[0]
    gains = below + above - whole
    best = int(np.argmax(gains))
    return best + 1 if gains[best] > penalty else None


def _fit(sizes: Rates, ones: Rates, twos: Rates, noise: float, total: int) -> Rates:
    """Log-likelihood of groups of these sizes, sums and sums of squares; no group is narrower than the noise."""
    variance = np.maximum(twos / sizes - (ones / sizes) ** 2, 0.0)
    held = np.maximum(variance, noise**2)
    return np.asarray(sizes * (np.log(sizes / total) - 0.5 * np.log(held) - 0.5 * variance / held), dtype=np.float64)


def escape(nodes: int, marked: Counts, chosen: Counts) -> Rates:
    """P(none of `marked` nodes is among `chosen` of `nodes`), a row for each of `chosen`: C(N - k, n) / C(N, n)."""
    if len(chosen) and not 1 <= chosen.min() <= chosen.max() <= nodes:
        raise ValueError(f"{chosen.min()} to {chosen.max()} of {nodes} nodes can't be chosen")
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, nodes + 1)))])  # of factorials
    left = nodes - marked[None, :] - chosen[:, None]
    chances = logs[nodes - marked][None, :] - logs[np.maximum(left, 0)] - (logs[nodes] - logs[nodes - chosen])[:, None]
    return np.where(left < 0, 0.0, np.exp(chances))


@dataclass(frozen=True, slots=True)
class Stragglers:
    """The factors of jobs of several sizes, each as in Straggler; `values` has a row for each size."""

    days: Rates
    low: Rates
    high: Rates
    values: Rates

    def at(self, place: int) -> Straggler:
        return Straggler(
            days=float(self.days[place]),
            low=float(self.low[place]),
            high=float(self.high[place]),
            values=tuple(self.values[place].tolist()),
        )


def stragglers(ordered: Rates, reference: float, chosen: Counts) -> Stragglers:
    """The factors of jobs on `chosen` nodes drawn from those with the rates `ordered` (ascending, noise removed)."""
    rates, numbers = np.unique(ordered / reference, return_counts=True)
    return _of_laws(rates, escape(len(ordered), np.cumsum(numbers), chosen))


def _of_laws(slowest: Rates, above: Rates) -> Stragglers:
    """`slowest` ascending, and by size (a row) the chance that the slowest is above each of them."""
    weights = np.concatenate([np.ones((len(above), 1)), above[:, :-1]], axis=1) - above
    if len(slowest) == 1:
        places = np.zeros((len(above), len(_ENDS)), dtype=np.int64)
    else:
        # Chances that meet an end exactly may be off by a rounding: an end is met by what nearly meets it.
        places = np.array([np.searchsorted(1 - row, _ENDS - TIED) for row in above])
    ends = slowest[np.minimum(places, len(slowest) - 1)]
    return Stragglers(days=1 / (weights / slowest).sum(axis=1), low=ends[:, 0], high=ends[:, 1], values=ends[:, 2:])


def sampled(ordered: Rates, reference: float, nodes: int, chosen: Counts) -> Stragglers:
    """Of jobs on `chosen` of `nodes` nodes, of which those with the rates `ordered` were measured."""
    slow = ordered[ordered < SLOW_BELOW * reference] / reference
    usual, numbers = np.unique(stretched(ordered[len(slow) :], nodes) / reference, return_counts=True)
    ends = np.linspace(1 - SLOW_NODE_PRIOR[1], 1 - SLOW_NODE_PRIOR[0], _LEVELS + 1)
    levels = np.unique(np.concatenate([slow, ends[1:]]))
    below = np.concatenate([ends[:1], levels[:-1]])
    slowest = np.where(np.isin(levels, slow), levels, np.maximum(below, levels - (ends[1] - ends[0])))
    none = _none_slower(levels, slow, len(ordered), nodes, chosen)
    above = none[:, -1:] * escape(nodes, np.cumsum(numbers), chosen)
    return _of_laws(np.concatenate([slowest, usual]), np.concatenate([none, above], axis=1))


def _none_slower(levels: Rates, slow: Rates, measured: int, nodes: int, chosen: Counts) -> Rates:
    """By size and level, the chance that no node at or below it is among the `chosen` ones; falling."""
    seen = np.searchsorted(np.sort(slow), levels, side="right")
    numbers, places = np.unique(seen, return_inverse=True)
    escaped = escape(nodes, numbers, chosen)[:, places]
    ends = [min([1 - SLOW_NODE_PRIOR[1], *slow]), *np.sort(slow), 1 - SLOW_NODE_PRIOR[0]]
    deeper = np.maximum(np.interp(levels, ends, np.arange(len(slow) + 2)), seen) / (len(slow) + 1)
    deeper[-1] = 1.0
    logs = (len(slow) - 0.5) * np.log(_SHARES) + (measured - len(slow) - 0.5) * np.log1p(-_SHARES)
    density = np.exp(logs - logs.max()) * _SHARES  # equal steps of the logarithm
    unseen = chosen * (nodes - measured) / nodes
    none = np.log1p(-_SHARES[None, :] * deeper[:, None])
    passed = np.exp(unseen[:, None, None] * none[None]) @ (density / density.sum())
    return np.asarray(escaped * passed, dtype=np.float64)


def fastest(ordered: Rates, reference: float, chosen: int) -> Straggler:
    """The factor where somebody places the job on the `chosen` fastest nodes: known, so there is no band."""
    slowest = float(ordered[len(ordered) - chosen] / reference)
    return Straggler(slowest, slowest, slowest)


def stretched(ordered: Rates, nodes: int) -> Rates:
    """The rates of `nodes` nodes that are distributed like the measured ones: the same quantiles."""
    if nodes == len(ordered):
        return ordered
    places = (np.arange(nodes) + 0.5) / nodes * len(ordered)
    return ordered[np.minimum(places.astype(np.int64), len(ordered) - 1)]
