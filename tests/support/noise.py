"""Nodes whose truth is known, thousands at once: kinds of noise, the product's order and slots, its pairing as arrays.

Used by the test of coverage and by the benchmark of half-widths. The pairing here is held against the product's own
arithmetic by that test. Every slot is a whole one: discarded seconds, GEMMs, training step, power window.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from precision_agent.cases import Variant
from precision_agent.method.slot import abba_blocks, slot_of
from precision_api.exchange import stats
from precision_api.exchange.request import Timing
from precision_api.exchange.result import Interval

Array = npt.NDArray[np.float64]
Order = npt.NDArray[np.int64]
Kind = Literal["gemms", "training"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The two figures of a slot, each over its own stretch."""
NODES = 4000
POINTS = 3
"""Moments at which a stretch meets what all variants share; its figure is their mean."""
VARIANTS = tuple(Variant(name, "bf16") for name in ("bf16", "a", "b", "c", "d", "control"))
BASELINE, CONTROL = 0, len(VARIANTS) - 1
NOISY_VARIANT = 2
SPEEDUPS = {"a": 1.6, "b": 1.3, "c": 1.002, "d": 0.9}
BAND = (0.93, 0.97)
"""What 95 % intervals may cover: 4,000 nodes tell 95 % from 93 % with 6 standard deviations."""
HALF_WIDTH_GOALS = {"quick": 0.003, "standard": 0.0015}
"""Of the median node's 95 % interval, where clocks drift by 0.3 % with a memory of 60 s."""
Shared = Callable[[Array, int, np.random.Generator], Array]
"""(moments, nodes): what all variants of each node share at these moments."""


def drift(moments: Array, nodes: int, chance: np.random.Generator) -> Array:
    """AR(1) of 0.3 % with a memory of 60 s."""
    keep = np.exp(-np.diff(moments) / 60.0)
    values = np.empty((len(moments), nodes))
    values[0] = chance.normal(0, 0.003, nodes)
    for at, kept in enumerate(keep, start=1):
        values[at] = kept * values[at - 1] + math.sqrt(1 - kept**2) * chance.normal(0, 0.003, nodes)
    return values.T


def warm_up(moments: Array, nodes: int, chance: np.random.Generator) -> Array:
    """1 % that fades over 120 s, as from a cold start."""
    return np.broadcast_to(0.01 * np.exp(-moments / 120.0), (nodes, len(moments)))


def nothing(moments: Array, nodes: int, chance: np.random.Generator) -> Array:
    return np.zeros((nodes, len(moments)))


@dataclass(frozen=True)
class Noise:
    """What moves a stretch's time: something that all variants share, and chance of its own for each stretch."""

    shared: Shared
    own: float
    of_noisy_variant: float = 1.0


DRIFT = "AR(1) 0.3 % with 60 s memory"
NOISES = {
    DRIFT: Noise(drift, 0.001),
    "warm-up 1 % over 120 s": Noise(warm_up, 0.001),
    "white 0.3 %": Noise(nothing, 0.003),
    "recipe noise x3": Noise(nothing, 0.003, of_noisy_variant=3.0),
}


def warming_drift(moments: Array, nodes: int, chance: np.random.Generator) -> Array:
    return drift(moments, nodes, chance) + warm_up(moments, nodes, chance)


DAYS = 0.005
"""Standard deviation of a node's rate between runs: H100 SXM in training went up and down by 1 to 2 % over a day (The
Llama 3 Herd of Models, 3.3.4), 0.35 to 0.7 % as a sine; ../design/GATE.md assumes 0.3 % by day and 0.3 % by run."""
RUNS = {
    "drift": Noise(drift, 0.001),
    "warm-up": Noise(warm_up, 0.001),
    "warm-up and drift": Noise(warming_drift, 0.001),
    "as noisy as an H100": Noise(warming_drift, 0.003),
}
"""What moves the rate within a run. Standard deviations of an H100's blocks in `benchmarks/results` are 0.08 to 0.86 %,
their median 0.33 %: that is the last one."""


def rates_of_runs(noise: Noise, timing: Timing, seed: int, size: float = 1.0) -> tuple[Array, Array]:
    """Tokens/s by block of a run on each node, (nodes, ABBA blocks), and what they would be on a usual day.

    The long-run rate is 1; `size` multiplies all that moves it, by day and within the run.
    """
    larger = Noise(lambda *of: size * noise.shared(*of), size * noise.own)
    seconds = units_of(seconds_by_variant(larger, abba_order(timing), timing, seed, equal=True)["training"])
    rates = 1 / seconds[:, :, BASELINE]
    days = np.exp(np.random.default_rng([seed, 1]).normal(0, size * DAYS, (len(rates), 1)))
    return rates * days, rates


def holds(rates: Array, interval: Callable[[Sequence[float]], Interval]) -> tuple[float, float]:
    """(share of runs whose interval holds the long-run rate, median half-width), by an estimator of the product."""
    of_runs = [interval(blocks) for blocks in rates.tolist()]
    held = [run.lower <= 1 <= run.upper for run in of_runs]
    return fmean(held), median((run.upper - run.lower) / 2 for run in of_runs)


@cache
def abba_order(timing: Timing, nodes: int = NODES) -> Order:
    """(nodes, sweeps, variants): which variant stands where, from the product's own order; two sweeps an ABBA block."""
    place = {variant: index for index, variant in enumerate(VARIANTS)}
    drawn = [
        [place[variant] for abba_block in abba_blocks(VARIANTS, timing.passes, seed) for variant in abba_block]
        for seed in range(nodes)
    ]
    order = np.array(drawn).reshape(nodes, 2 * timing.passes, len(VARIANTS))
    order.flags.writeable = False
    return order


def repeated_order(timing: Timing) -> Order:
    """One order, drawn once for each node and swept again and again in one direction: no ABBA blocks."""
    return np.repeat(abba_order(timing)[:, :1], 2 * timing.passes, axis=1)


def moments_of(timing: Timing, slots: int) -> Array:
    """(slots, kinds, points): seconds from the first slot's begin, for slots that follow each other at once."""
    slot = slot_of(timing, gemms=True, training=True, metered=True)
    begins = np.array([slot.discarded, slot.discarded + slot.gemms])
    lengths = np.array([slot.gemms, slot.training])
    within = begins[:, None] + lengths[:, None] * (np.arange(POINTS) + 0.5) / POINTS
    found: Array = np.arange(slots)[:, None, None] * slot.seconds + within
    return found


def seconds_by_variant(
    noise: Noise, order: Order, timing: Timing, seed: int, equal: bool = False
) -> Mapping[Kind, Array]:
    """(nodes, sweeps, variants) of each kind: seconds in each sweep, as a node with this noise gives them."""
    chance = np.random.default_rng(seed)
    nodes, sweeps, variants = order.shape
    moments = moments_of(timing, sweeps * variants)
    shared = noise.shared(moments.ravel(), nodes, chance).reshape(nodes, *moments.shape).mean(axis=3)
    truth = np.array([1.0 if equal else SPEEDUPS.get(variant.label, 1.0) for variant in VARIANTS])
    found: dict[Kind, Array] = {}
    for place, kind in enumerate(KINDS):
        own = (
            noise.own * np.where(order == NOISY_VARIANT, noise.of_noisy_variant, 1.0) * chance.normal(size=order.shape)
        )
        logs = shared[:, :, place].reshape(order.shape) + own
        by_variant = np.empty_like(logs)
        np.put_along_axis(by_variant, order, logs, axis=2)
        found[kind] = np.exp(by_variant) / truth
    return found


def units_of(seconds: Array) -> Array:
    """(nodes, ABBA blocks, variants): an ABBA block's value is the mean of its two sweeps, as the agent takes it."""
    nodes, sweeps, variants = seconds.shape
    return seconds.reshape(nodes, sweeps // 2, 2, variants).mean(axis=2)


@dataclass(frozen=True)
class Ratios:
    """(nodes, variants): baseline's seconds over each variant's, with the bounds of the 95 % interval."""

    value: Array
    lower: Array
    upper: Array


def ratios(units: Array) -> Ratios:
    """The product's paired ratio, for all nodes and variants at once."""
    logs = np.log(units[:, :, BASELINE : BASELINE + 1]) - np.log(units)
    count = logs.shape[1]
    mean = logs.mean(axis=1)
    half = stats.t_quantile(count - 1) * logs.std(axis=1, ddof=1) / math.sqrt(count)
    return Ratios(np.exp(mean), np.exp(mean - half), np.exp(mean + half))


def half_width(found: Ratios) -> float:
    """The median node's, over all variants but the baseline."""
    return float(np.median((found.upper - found.lower)[:, 1:] / 2))


def coverage(found: Ratios) -> Array:
    """Share of nodes whose interval holds the truth, for each variant but the baseline."""
    truth = np.array([SPEEDUPS.get(variant.label, 1.0) for variant in VARIANTS])
    held: Array = ((found.lower <= truth) & (truth <= found.upper))[:, 1:].mean(axis=0)
    return held


def called_different(found: Ratios) -> Array:
    """(nodes, variants without baseline and control): `stats.differs` for all at once."""
    half = (found.upper - found.lower) / 2
    floor = np.maximum(np.abs(found.value - 1) + half, stats.LEAST_DIFFERENCE)[:, CONTROL : CONTROL + 1]
    excludes = (found.lower > 1) | (found.upper < 1)
    different: Array = (excludes & (np.abs(found.value - 1) > floor))[:, 1:CONTROL]
    return different


def covers(found: Ratios) -> bool:
    """The acceptance: all variants within the band."""
    low, high = BAND
    shares = coverage(found)
    return bool((low <= shares).all() and (shares <= high).all())
