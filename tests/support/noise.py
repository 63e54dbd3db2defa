"""Nodes whose truth is known, thousands at once: kinds of noise, the product's own order, its pairing as arrays.

Used by the test of coverage and by the benchmark of half-widths. The pairing here is held against the product's own
arithmetic by that test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from precision_agent.cases import Arm
from precision_agent.order import palindromes
from precision_api import stats
from precision_api.request import Timing

Array = npt.NDArray[np.float64]
Order = npt.NDArray[np.int64]
NODES = 4000
ARMS = tuple(Arm(name, "bf16") for name in ("bf16", "a", "b", "c", "d", "control"))
BASELINE, CONTROL = 0, len(ARMS) - 1
NOISY_ARM = 2
SPEEDUPS = {"a": 1.6, "b": 1.3, "c": 1.002, "d": 0.9}
BAND = (0.93, 0.97)
"""What 95 % intervals may cover: 4,000 nodes tell 95 % from 93 % with 6 standard deviations."""


def drift(moments: Array, chance: np.random.Generator) -> Array:
    """AR(1) of 0.3 % with a memory of 60 s, which all arms of a node share."""
    nodes, count = moments.shape
    keep = np.exp(-np.diff(moments, axis=1) / 60.0)
    values = np.empty_like(moments)
    values[:, 0] = chance.normal(0, 0.003, nodes)
    for at in range(1, count):
        fresh = np.sqrt(1 - keep[:, at - 1] ** 2) * chance.normal(0, 0.003, nodes)
        values[:, at] = keep[:, at - 1] * values[:, at - 1] + fresh
    return values


def warm_up(moments: Array, chance: np.random.Generator) -> Array:
    """1 % that fades over 120 s, as from a cold start."""
    return 0.01 * np.exp(-moments / 120.0)


def nothing(moments: Array, chance: np.random.Generator) -> Array:
    return np.zeros_like(moments)


@dataclass(frozen=True)
class Noise:
    """What moves a segment's time: something that all arms share, and chance of its own for each segment."""

    shared: Callable[[Array, np.random.Generator], Array]
    own: float
    of_noisy_arm: float = 1.0


NOISES = {
    "AR(1) 0.3 % with 60 s memory": Noise(drift, 0.001),
    "warm-up 1 % over 120 s": Noise(warm_up, 0.001),
    "white 0.3 %": Noise(nothing, 0.003),
    "recipe noise x3": Noise(nothing, 0.003, of_noisy_arm=3.0),
}


def palindrome_order(timing: Timing, nodes: int = NODES) -> Order:
    """(nodes, sweeps, arms): which arm stands where, from the product's own order; two sweeps a palindrome."""
    place = {arm: index for index, arm in enumerate(ARMS)}
    drawn = [
        [place[arm] for palindrome in palindromes(ARMS, timing.passes, seed) for arm in palindrome]
        for seed in range(nodes)
    ]
    return np.array(drawn).reshape(nodes, 2 * timing.passes, len(ARMS))


def repeated_order(timing: Timing) -> Order:
    """One order, drawn once for each node and swept again and again in one direction: no palindromes."""
    return np.repeat(palindrome_order(timing)[:, :1], 2 * timing.passes, axis=1)


def seconds_by_arm(noise: Noise, order: Order, timing: Timing, seed: int, equal: bool = False) -> Array:
    """(nodes, sweeps, arms): seconds of each arm in each sweep, as a node with this noise would give them."""
    chance = np.random.default_rng(seed)
    nodes, sweeps, arms = order.shape
    length = timing.discard_seconds + timing.segment_seconds
    moments = np.broadcast_to(np.arange(sweeps * arms) * length + timing.discard_seconds, (nodes, sweeps * arms))
    own = noise.own * np.where(order == NOISY_ARM, noise.of_noisy_arm, 1.0) * chance.normal(size=order.shape)
    logs = noise.shared(moments, chance).reshape(order.shape) + own
    by_arm = np.empty_like(logs)
    np.put_along_axis(by_arm, order, logs, axis=2)
    truth = np.array([1.0 if equal else SPEEDUPS.get(arm.label, 1.0) for arm in ARMS])
    return np.exp(by_arm) / truth


def units_of(seconds: Array) -> Array:
    """(nodes, palindromes, arms): a palindrome's value is the mean of its two sweeps, as the agent takes it."""
    nodes, sweeps, arms = seconds.shape
    return seconds.reshape(nodes, sweeps // 2, 2, arms).mean(axis=2)


@dataclass(frozen=True)
class Ratios:
    """(nodes, arms): baseline's seconds over each arm's, with the bounds of the 95 % interval."""

    value: Array
    lower: Array
    upper: Array


def ratios(units: Array) -> Ratios:
    """The product's paired ratio, for all nodes and arms at once."""
    logs = np.log(units[:, :, BASELINE : BASELINE + 1]) - np.log(units)
    count = logs.shape[1]
    mean = logs.mean(axis=1)
    half = stats.t_quantile(count - 1) * logs.std(axis=1, ddof=1) / math.sqrt(count)
    return Ratios(np.exp(mean), np.exp(mean - half), np.exp(mean + half))


def coverage(found: Ratios) -> Array:
    """Share of nodes whose interval holds the truth, for each arm but the baseline."""
    truth = np.array([SPEEDUPS.get(arm.label, 1.0) for arm in ARMS])
    held: Array = ((found.lower <= truth) & (truth <= found.upper))[:, 1:].mean(axis=0)
    return held


def called_different(found: Ratios) -> Array:
    """(nodes, arms without baseline and control): METHOD 4.10 for all at once."""
    half = (found.upper - found.lower) / 2
    floor = np.maximum(np.abs(found.value - 1) + half, stats.LEAST_DIFFERENCE)[:, CONTROL : CONTROL + 1]
    excludes = (found.lower > 1) | (found.upper < 1)
    different: Array = (excludes & (np.abs(found.value - 1) > floor))[:, 1:CONTROL]
    return different


def covers(found: Ratios) -> bool:
    """The acceptance: all arms within the band."""
    low, high = BAND
    shares = coverage(found)
    return bool((low <= shares).all() and (shares <= high).all())
