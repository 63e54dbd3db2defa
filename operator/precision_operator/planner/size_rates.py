"""The rates of all sizes of one pool and recipe at once: what `rates.speed` says of one size, as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precision_operator.planner.bands import combined, promised
from precision_operator.planner.candidate_pool import Sample
from precision_operator.planner.clock import Clock
from precision_operator.planner.rates import ALONE, Source, band_parts, placed_on, slowest
from precision_operator.planner.straggler import Stragglers, sampled_stragglers, stragglers, stretched
from precision_operator.planner.terms import Goodput

Figures = NDArray[np.float64]
Counts = NDArray[np.int64]
CELLS = 1 << 17
"""Sizes times nodes that are worked out between two looks at the clock: some ten ms."""


@dataclass(frozen=True, slots=True)
class SizeRates:
    """Tokens/s by size: the middle, and what nine in ten pass; NaN for a size that can't be had."""

    middle: Figures
    promised: Figures


def size_rates(source: Source, gpus: Counts, goodput: Goodput | None, fastest_of: int, clock: Clock) -> SizeRates:
    """As `speed` for each of these numbers of GPUs. Raises OutOfTime."""
    rows = max(1, CELLS // max(source.pool.nodes, 1)) if source.sample else max(1, len(gpus))
    found = []
    for at in range(0, len(gpus), rows):
        clock.check()
        found.append(_size_rates(source, gpus[at : at + rows], goodput, fastest_of))
    return SizeRates(_joined([each.middle for each in found]), _joined([each.promised for each in found]))


def _joined(found: Sequence[Figures]) -> Figures:
    return np.concatenate([np.zeros(0), *found])


def _size_rates(source: Source, gpus: Counts, goodput: Goodput | None, fastest_of: int) -> SizeRates:
    middle = gpus * source.per_gpu * _scaling(source, gpus) * (1.0 if goodput is None else goodput.share)
    if source.sample is None:
        return SizeRates(middle, middle * _promised(source, gpus, goodput, None))
    if placed_on(source.pool, source.sample, fastest_of):  # known, whatever the size
        middle *= slowest(source, int(gpus[0]), fastest_of).days
        return SizeRates(middle, middle * _promised(source, gpus, goodput, None))
    law = _law(source, source.sample, gpus)
    middle *= law.days
    return SizeRates(middle, middle * _promised(source, gpus, goodput, law))


def _law(source: Source, sample: Sample, gpus: Counts) -> Stragglers:
    """Of nodes that are drawn, by size."""
    chosen, total = -(-gpus // source.pool.gpus_per_node), max(source.pool.nodes, len(sample.quiet))
    if source.pool.unmeasured(sample):
        return sampled_stragglers(sample.quiet, sample.reference, total, chosen)
    return stragglers(stretched(sample.quiet, total), sample.reference, chosen)


def _promised(source: Source, gpus: Counts, goodput: Goodput | None, law: Stragglers | None) -> Figures:
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
            drawn = group[(law.low != law.high)[group]]
            made[drawn] = np.minimum(1.0, promised(parts, law.values[drawn]) / law.days[drawn])
    return made


def _scaling(source: Source, gpus: Counts) -> Figures:
    """What communication leaves, by size; NaN beyond what is known."""
    points, rate = source.pool.terms.scaling_of(source.recipe), source.job_rate
    if rate is None:
        return _between(points, gpus, source.pool.gpus_per_node) if points else np.ones(len(gpus))
    if not points:
        return np.where(gpus <= rate.gpus, 1.0, math.nan)
    there = _between(points, np.array([rate.gpus]), source.pool.gpus_per_node)[0]
    return np.asarray(_between(points, gpus, source.pool.gpus_per_node) / there, dtype=np.float64)


def _between(points: Sequence[tuple[int, float]], gpus: Counts, node: int) -> Figures:
    if points[0][0] > node:
        points = ((node, 1.0), *points)
    sizes, efficiencies = np.log([size for size, _ in points]), np.array([share for _, share in points])
    return np.asarray(np.interp(np.log(gpus), sizes, efficiencies, right=math.nan), dtype=np.float64)
