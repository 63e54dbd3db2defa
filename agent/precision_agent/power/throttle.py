"""How long a GPU held its clocks back, and why: from nanosecond counters, else from sampled reasons.

A power cap is normal for big GEMMs and marks nothing. Heat and the power brake do: above 0.1 % of the time the figure
stands, marked, and stays out of the pool's reference (voiding it would hide the worst nodes).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from precision_api.exchange.result import ThrottleShare

MARKING_SHARE = 0.001
"""Above this share of the time in heat or brake a figure is marked `throttled`:
docs/development/method.md, "Power and energy"."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One reason: its NVML field (ns since the driver was loaded), its bit among the clocks' event reasons."""

    name: str
    field: int
    bit: int
    marks: bool


KINDS: tuple[Kind, ...] = (
    Kind("power_cap", 74, 0x4, marks=False),
    Kind("software_thermal", 269, 0x20, marks=True),
    Kind("hardware_thermal", 270, 0x40, marks=True),
    Kind("power_brake", 271, 0x80, marks=True),
)
"""Fields and bits as in nvml.h. Fields 269 to 271 need a recent driver."""
MARKING = frozenset(kind.name for kind in KINDS if kind.marks)
MARKING_BITS = sum(kind.bit for kind in KINDS if kind.marks)
"""Reasons for which a figure is marked."""


@dataclass(frozen=True, slots=True)
class ThrottleReading:
    """The counters of one moment (monotonic seconds), nanoseconds by field; what the driver does not tell is left out.

    `reasons` is the mask of clocks' event reasons at that moment.
    """

    at: float
    nanoseconds: Mapping[int, int]
    reasons: int | None = None


def shares(readings: Sequence[ThrottleReading], start: float, end: float) -> tuple[ThrottleShare, ...]:
    """What each reason that can be known took of `start` to `end`; a reason without counter and samples is left out."""
    inside = sorted((reading for reading in readings if start <= reading.at <= end), key=lambda reading: reading.at)
    throttles = (_counted(kind, inside) or _sampled(kind, inside) for kind in KINDS)
    return tuple(throttle for throttle in throttles if throttle)


def marking(throttles: Sequence[ThrottleShare]) -> ThrottleShare | None:
    """The worst of those that mark a figure `throttled(reason, share)`, or None."""
    bad = [throttle for throttle in throttles if throttle.reason in MARKING and throttle.share > MARKING_SHARE]
    return max(bad, key=lambda throttle: throttle.share, default=None)


def pooled(parts: Sequence[tuple[float, Sequence[ThrottleShare]]]) -> tuple[ThrottleShare, ...]:
    """Several windows' (seconds, shares) as one: weighted by time, over the windows that know the reason."""
    merged = []
    for kind in KINDS:
        weighted = [(seconds, throttle) for seconds, many in parts for throttle in many if throttle.reason == kind.name]
        whole = math.fsum(seconds for seconds, _ in weighted)
        if whole > 0:
            share = math.fsum(seconds * throttle.share for seconds, throttle in weighted) / whole
            sampled = any(throttle.sampled for _, throttle in weighted)
            merged.append(ThrottleShare(reason=kind.name, share=share, sampled=sampled))
    return tuple(merged)


def _counted(kind: Kind, readings: Sequence[ThrottleReading]) -> ThrottleShare | None:
    counter = [(sample.at, sample.nanoseconds[kind.field]) for sample in readings if kind.field in sample.nanoseconds]
    if len(counter) < 2 or counter[-1][0] <= counter[0][0] or any(b[1] < a[1] for a, b in pairwise(counter)):
        return None
    share = (counter[-1][1] - counter[0][1]) / 1e9 / (counter[-1][0] - counter[0][0])
    # a counter is renewed in steps, so a busy one can show a little more than all of a short window
    return ThrottleShare(reason=kind.name, share=min(1.0, share))


def _sampled(kind: Kind, readings: Sequence[ThrottleReading]) -> ThrottleShare | None:
    masks = [reading.reasons for reading in readings if reading.reasons is not None]
    if not masks:
        return None
    share = sum(bool(mask & kind.bit) for mask in masks) / len(masks)
    return ThrottleShare(reason=kind.name, share=share, sampled=True)
