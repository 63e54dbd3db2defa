"""The rates of all sizes of one pool and recipe at once: what `rates.speed` says of one size, as arrays."""

from __future__ import annotations

import numpy as np

from precision_operator.planner.inputs.clock import PlanClock
from precision_operator.planner.inputs.terms import Goodput
from precision_operator.planner.rates.bands import Figures, combined, promised
from precision_operator.planner.rates.speed import ALONE, RateSource, band_parts, drawn, placed_on, scaling, slowest
from precision_operator.planner.rates.straggler import Counts, Stragglers

CELLS = 1 << 17
"""Sizes times nodes that are worked out between two looks at the clock: some ten ms."""


SizeRates = tuple[Figures, Figures]
"""Tokens/s by size: the middle, and what nine in ten pass; NaN for a size that can't be had."""


def size_rates(
    source: RateSource, gpus: Counts, goodput: Goodput | None, fastest_of: int, clock: PlanClock
) -> SizeRates:
    """As `speed` for each of these numbers of GPUs. Raises OutOfTime."""
    rows = max(1, CELLS // max(source.pool.nodes, 1)) if source.sample else max(1, len(gpus))
    parts: list[SizeRates] = [(np.zeros(0), np.zeros(0))]
    for at in range(0, len(gpus), rows):
        clock.check()
        parts.append(_size_rates(source, gpus[at : at + rows], goodput, fastest_of))
    return np.concatenate([middle for middle, _ in parts]), np.concatenate([promised for _, promised in parts])


def _size_rates(source: RateSource, gpus: Counts, goodput: Goodput | None, fastest_of: int) -> SizeRates:
    middle = gpus * source.per_gpu * scaling(source, gpus) * (1.0 if goodput is None else goodput.share)
    law = None
    if source.sample is not None and placed_on(source.pool, source.sample, fastest_of):  # known, whatever the size
        middle *= slowest(source, int(gpus[0]), fastest_of).days
    elif source.sample is not None:
        law = drawn(source.pool, source.sample, gpus)
        middle *= law.days
    return middle, middle * _promised(source, gpus, goodput, law)


def _promised(source: RateSource, gpus: Counts, goodput: Goodput | None, law: Stragglers | None) -> Figures:
    """What nine in ten pass, relative to the middle; `law` of the slowest node, where it has a band."""
    made = np.ones(len(gpus))
    rate = source.job_rate
    unscaled = gpus <= source.pool.gpus_per_node if rate is None else gpus == rate.gpus
    for group in (np.flatnonzero(unscaled), np.flatnonzero(~unscaled)):
        if not len(group):
            continue
        parts = tuple(band_parts(source, int(gpus[group[0]]), goodput, ALONE))
        made[group] = combined(parts).promised
        if law is not None and (law.low != law.high)[group].any():
            uncertain = group[(law.low != law.high)[group]]
            made[uncertain] = np.minimum(1.0, promised(parts, law.values[uncertain]) / law.days[uncertain])
    return made
