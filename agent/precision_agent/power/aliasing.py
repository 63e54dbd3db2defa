"""Does the sensor see the same part of each step again and again, and which pauses between the steps help?

A100 and H100 sensors look a quarter of the time: 25 ms in each 100 ms (arXiv 2312.02741). A step period of p/q sensor
periods (lowest terms) meets them at p phases only, 1/p of a step apart, however long the window. The p looks together
cover a step c = q x duty times: where c is not whole, some parts are seen once more than others (not at all, with
c < 1). Steps off such ratios drift through all phases. Counter and reading share the sensor: their agreement can't
show this.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from random import Random

DUTY = 0.25
"""Share of its period that the sensor looks at, where nothing better is known of it (A100, H100)."""
TOLERANCE = 0.03
"""Nearer than this to a ratio counts as locked (docs/development/method.md, "Power and energy"). Assumed, not tried on
a GPU: at 3 % off, ten seconds drift through three periods."""
UNEVEN_SHARE = 0.05
"""Assumed, not tried on a GPU: a lock whose looks are less uneven than this is let pass: it errs by this times the
load's swing over its mean, 2.5 % for a power that swings by half its mean, less where edges are soft."""
PAUSED_UNEVEN_SHARE = 0.15
"""Assumed, not tried on a GPU: the same with random pauses, which spread the looks. By simulation, locks weaker than
this vanish in them."""
DRIFT = 0.01
"""Assumed, not tried on a GPU: how far a step may drift between the one that pauses are chosen by and those of
the window."""
FASTER = (-0.05, -0.03)
"""With pauses steps run so much faster where the power cap holds the mean. On an H100 steps of 98 ms that were paused
against a lock were locked: 1.5 % is enough for that, and 8 % more power was measured."""
UNPAUSED_SECONDS = 0.1
"""Assumed, not tried on a GPU: work between two pauses, at least. What a pause draws is taken off by arithmetic, and
that must stay a small part: with a pause after each call of 11 ms a window would be half pauses. By simulation (a
quarter of the time seen, 690 W on 120 W at rest, 12 s) the power of steps of 5 to 700 ms then errs by 0.4 to 1.6 %
(root mean square), and by 2 to 3 % with a pause after each step of less than 50 ms."""
LONGEST_PAUSES_SECONDS = (0.025, 0.05)
"""Pauses of 0 to 25 ms (docs/development/method.md, "Power and energy") lengthen what repeats by 12.5 ms. That can lead
from one lock into the next (293 ms to 305 ms at a sensor of 100 ms, 391 to 403): then twice as long ones don't."""


def lock(
    step_seconds: float, sensor_seconds: float, duty: float = DUTY, least: float = UNEVEN_SHARE
) -> Fraction | None:
    """The ratio p/q that the step's period is locked to, the worst one, or None; ValueError unless both are above 0."""
    if step_seconds <= 0 or sensor_seconds <= 0:
        raise ValueError(f"periods must be above 0 s, not {step_seconds:g} and {sensor_seconds:g}")
    ratio = step_seconds / sensor_seconds
    near = [candidate for candidate, value in _ratios(duty, least) if abs(ratio / value - 1) <= TOLERANCE + 1e-9]
    return max(near, key=lambda candidate: uneven_share(candidate, duty), default=None)


def calls_between_pauses(step_seconds: float) -> int:
    """Steps that follow each other before a pause: so many that they take `UNPAUSED_SECONDS`, at least one."""
    return max(1, math.ceil(UNPAUSED_SECONDS / step_seconds - 1e-9))


def lock_with_pauses(
    step_seconds: float, sensor_seconds: float, longest_pause_seconds: float, calls: int | None = None
) -> Fraction | None:
    """The lock that is left with uniform pauses of 0 to `longest_pause_seconds` between groups of steps; 0: no pauses.

    What repeats is then the group with its mean pause: the steps within it begin anew at random. `calls`: steps in a
    group; left out, as many as `calls_between_pauses` says.
    """
    if not longest_pause_seconds:
        return lock(step_seconds, sensor_seconds)
    group = (calls or calls_between_pauses(step_seconds)) * step_seconds
    return lock(group + longest_pause_seconds / 2, sensor_seconds, least=PAUSED_UNEVEN_SHARE)


def sure_pause(steps: Sequence[float], sensor_seconds: float) -> tuple[float, int]:
    """Seconds and calls: a longest pause that helps all these steps, and how many of them follow each other before one.

    `steps` are the same step's periods on the GPUs that run it at once: each has a sensor of its own, and a slow GPU
    may be locked where the others are not. The pause also helps where the steps to come are a little longer or shorter:
    without that margin a step just outside a lock gets no pauses, and the window's own, 0.3 % away, lie inside. Steps
    that aren't locked get none: pauses could lock them (188 ms to 200 ms).
    """
    calls = calls_between_pauses(min(steps))
    for drifts in ((*FASTER, -DRIFT, 0.0, DRIFT), (-DRIFT, 0.0, DRIFT), (0.0,)):
        for pause in (0.0, *LONGEST_PAUSES_SECONDS):
            near = [step * (1 + drift) for step in steps for drift in drifts if pause or abs(drift) <= DRIFT]
            if not any(lock_with_pauses(step, sensor_seconds, pause, calls) for step in near):
                return pause, calls
    return LONGEST_PAUSES_SECONDS[-1], calls


def uneven_share(ratio: Fraction, duty: float = DUTY) -> float:
    """How unevenly a sensor locked at `ratio` sees a step: the worst error for a load that is on for one stretch of it.

    In units of the load's swing over its mean. Coverage c is floor(c) or one more; the part f = c - floor(c) that is
    seen once more, in p pieces, weighs f (1 - f) / c too much.
    """
    coverage = ratio.denominator * duty
    part = coverage - math.floor(coverage)
    return part * (1 - part) / coverage / ratio.numerator


def pauses(seed: int, longest_pause_seconds: float) -> Iterator[float]:
    """Seconds to wait after each group of steps in a power window, without end; the same for the same seed."""
    chance = Random(seed)
    while True:
        yield chance.uniform(0.0, longest_pause_seconds)


@cache
def _ratios(duty: float, least: float) -> tuple[tuple[Fraction, float], ...]:
    """Every ratio in lowest terms that sees a step more unevenly than `least`; beyond these limits none does."""
    tops, bottoms = range(1, int(1 / least) + 1), range(1, int(1 / (least * duty)) + 1)
    ratios = (Fraction(p, q) for q in bottoms for p in tops if math.gcd(p, q) == 1)
    return tuple((ratio, float(ratio)) for ratio in ratios if uneven_share(ratio, duty) > least)
