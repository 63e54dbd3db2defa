"""Does the sensor see the same part of each step again and again?

A100 and H100 sensors look a quarter of the time: 25 ms in each 100 ms (arXiv 2312.02741). A step period of p/q sensor
periods (lowest terms) meets them at p phases only, 1/p of a step apart, and each look covers `q x duty / p` of a step;
so (1 - q x duty) / p of a step between two looks is never seen, however long the window. Steps off such ratios drift
through all phases. Counter and reading share the sensor: their agreement can't show this.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random

DUTY = 0.25
"""Share of its period that the sensor looks at, where nothing better is known of it (A100, H100)."""
TOLERANCE = 0.03
"""METHOD 7 [try]: nearer than this to a ratio counts as locked. At 3 % off, ten seconds drift through three periods."""
BLIND_SHARE = 0.05
"""[try] A lock that hides at most this share of a step is let pass: with a draw that swings by half its mean it errs by
2.5 % at most, and by less where edges are soft."""
LONGEST_PAUSE_SECONDS = 0.025
"""Pauses of 0 to this, mean 12.5 ms, move the phase by a whole sensor period within eight steps."""


def lock(step_seconds: float, sensor_seconds: float, duty: float = DUTY) -> Fraction | None:
    """The ratio p/q that the step's period is locked to, the worst one, or None; ValueError unless both are above 0."""
    if step_seconds <= 0 or sensor_seconds <= 0:
        raise ValueError(f"periods must be above 0 s, not {step_seconds:g} and {sensor_seconds:g}")
    ratio = step_seconds / sensor_seconds
    near = [found for found in _locking(duty) if abs(ratio / float(found) - 1) <= TOLERANCE]
    return max(near, key=lambda found: blind_share(found, duty), default=None)


def blind_share(ratio: Fraction, duty: float = DUTY) -> float:
    """Share of a step between two looks that a sensor locked at `ratio` never sees; 0 where its looks touch."""
    return max(0.0, 1 - ratio.denominator * duty) / ratio.numerator


def pauses(seed: int) -> Iterator[float]:
    """Seconds to wait after each step of a power window, without end; the same for the same seed."""
    chance = Random(seed)
    while True:
        yield chance.uniform(0.0, LONGEST_PAUSE_SECONDS)


def _locking(duty: float) -> Iterator[Fraction]:
    """Every ratio that hides more than BLIND_SHARE of a step: q x duty < 1, and p not too large."""
    for q in range(1, 20):
        for p in range(1, int(1 / BLIND_SHARE) + 1):
            found = Fraction(p, q)
            if found.denominator == q and blind_share(found, duty) > BLIND_SHARE:
                yield found
