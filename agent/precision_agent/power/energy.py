"""Power samples and energy counter readings -> joules that are valid, or absent with their reasons.

Pure: samples come in, a figure goes out. Times are monotonic seconds, power is watts, energy is joules; the counter's
millijoules stay whole numbers until their difference is taken, so that no digit is lost.

Two ways to the same energy: the counter's difference (primary) and the trapezoid over instant power (cross-check). Both
are read by polling, so a window's edges fall between readings and are interpolated there. The rules are in
docs/development/method.md, "Power and energy".
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, median
from typing import Literal, TypeVar

from precision_agent.power import reasons as why
from precision_agent.power.aliasing import lock_with_pauses
from precision_agent.power.reasons import Reason
from precision_api.exchange.result import PowerScope

CounterScope = Literal["gpu", "more"]
Curve = tuple[tuple[float, float], ...]
"""(seconds, value), times strictly rising."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a figure needs: docs/development/method.md, "Power and energy"."""

    updates: int = 60
    seconds: float = 10.0
    disagreement: float = 0.05
    """Of a square-wave load, for a sensor to count as calibrated."""
    counter_off: float = 0.025
    """Of the windows of all recipes. By simulation chance explains more there in 1 of 10,000 nodes."""
    least_scatter: float = 1e-4
    """Of a load's windows together: none is so even that the others count for nothing."""
    gap_seconds: float = 0.5
    """Assumed, not tried on a GPU: ten samples at 20 Hz, five updates of a sensor. This hole is a third of the shortest
    power window."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class PowerSample:
    at: float
    watts: float


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The energy counter at one moment, millijoules since the driver was loaded."""

    at: float
    millijoules: int


_Timed = TypeVar("_Timed", PowerSample, CounterReading)


@dataclass(frozen=True, slots=True)
class Trace:
    """All that one sensor told, in any order; a module has no energy counter. `lost`: it stopped to answer.

    `counter_scope` is `more` where the counter covers more than the GPU (GH200: the whole module, Zeus' pull request
    172): its energy is then another thing's, and only the integral is the GPU's.
    """

    power: tuple[PowerSample, ...] = ()
    counter: tuple[CounterReading, ...] = ()
    scope: PowerScope = "gpu"
    lost: bool = False
    counter_scope: CounterScope = "gpu"

    @property
    def counts(self) -> bool:
        """Whether its counter and its power are of the same thing."""
        return self.scope == "gpu" and self.counter_scope == "gpu"


@dataclass(frozen=True, slots=True)
class Window:
    """A timed segment; ValueError unless it has a length."""

    start: float
    end: float

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ValueError(f"a window must end after it starts: {self.start:g} to {self.end:g}")

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StepPace:
    """What ran in the windows: the step's period, and how long the random pauses after each step were at most.

    `sensor_seconds` is the sensor's period as calibrated; None takes it from the readings. `calls`: steps between two
    pauses, None where they follow from the step.
    """

    step_seconds: float
    longest_pause_seconds: float = 0.0
    sensor_seconds: float | None = None
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Energy over the windows of one recipe, `seconds` long together; None where there are `reasons`.

    `counted`: by the energy counter, which the integral of power agrees with; else by the integral alone.
    """

    joules: float | None
    seconds: float
    updates: int
    scope: PowerScope = "gpu"
    reasons: tuple[Reason, ...] = ()
    counted: bool = True

    def __post_init__(self) -> None:
        if (self.joules is None) != bool(self.reasons):
            raise ValueError("energy is there, or absent with reasons")

    @property
    def watts(self) -> float | None:
        """Mean power over the windows."""
        return None if self.joules is None else self.joules / self.seconds


def mean_power(trace: Trace, windows: Sequence[Window], pace: StepPace, limits: Limits = LIMITS) -> EnergyReading:
    """One sensor's energy over all windows of a recipe; one bad window voids it, for a sum must not lose a part."""
    ordered = in_order(trace)
    parts = [(window, near(ordered, window, limits)) for window in windows]
    seconds = math.fsum(window.seconds for window in windows)
    renewed = sum(updates(part, window) for window, part in parts)
    integrals = [integral(part.power, window, limits) for window, part in parts]
    counts = [counted(part.counter, window, limits) for window, part in parts] if trace.counts else integrals
    reasons = [outcome for outcome in (*integrals, *counts) if isinstance(outcome, Reason)]
    reasons += _too_little(trace, seconds, renewed, limits) + _locked(trace, pace)
    joules = math.fsum(count for count in counts if not isinstance(count, Reason))
    distinct = tuple(dict.fromkeys(reasons))
    return EnergyReading(None if distinct else joules, seconds, renewed, trace.scope, distinct, trace.counts)


def counter_off(trace: Trace, loads: Iterable[Sequence[Window]], limits: Limits = LIMITS) -> bool:
    """Whether counter and integral of a trace in order of time are apart over the windows of all loads together.

    A sensor that looks at a part of each period is wrong in single windows by per cents: one recipe's show nothing. Of
    a load that it sees unevenly, locked to it maybe, windows scatter: a load weighs by how little its own do.
    """
    apart = weights = 0.0
    for windows in loads if trace.counts else ():
        joules: list[tuple[float, float]] = []
        for window in windows:
            part = near(trace, window, limits)
            count, area = counted(part.counter, window, limits), integral(part.power, window, limits)
            if not isinstance(count, Reason) and not isinstance(area, Reason):
                joules.append((count, area))
        whole = math.fsum(area for _, area in joules)
        if whole <= 0:
            continue
        off = math.fsum(count for count, _ in joules) / whole - 1
        scatter = math.fsum(((count - (1 + off) * area) / whole) ** 2 for count, area in joules)
        weight = 1 / (limits.least_scatter**2 + (scatter if len(joules) > 1 else limits.disagreement**2))
        apart, weights = apart + weight * off, weights + weight
    return abs(apart) > limits.counter_off * weights


def joined(windows: Iterable[Window], limits: Limits = LIMITS) -> list[Window]:
    """In order of time; those that follow each other within the longest gap of samples are one."""
    whole: list[Window] = []
    for window in sorted(windows, key=lambda window: window.start):
        if whole and window.start - whole[-1].end < limits.gap_seconds:
            window = Window(whole[-1].start, max(whole.pop().end, window.end))
        whole.append(window)
    return whole


def without_pauses(figure: EnergyReading, paused_seconds: float, rest_watts: float | None) -> EnergyReading:
    """The power of the steps alone, of windows in which there were pauses for `paused_seconds` at `rest_watts`.

    Void where the power at rest is not known or not below the windows' mean.
    """
    if figure.joules is None or paused_seconds <= 0:
        return figure
    if rest_watts is None:
        return replace(figure, joules=None, reasons=(why.REST_UNKNOWN,))
    if rest_watts * figure.seconds >= figure.joules:
        return replace(figure, joules=None, reasons=(why.REST_ABOVE_LOAD,))
    return replace(figure, joules=figure.joules - rest_watts * paused_seconds, seconds=figure.seconds - paused_seconds)


def in_order(trace: Trace) -> Trace:
    return replace(trace, power=tuple(sorted(trace.power, key=_at)), counter=tuple(sorted(trace.counter, key=_at)))


def near(trace: Trace, window: Window, limits: Limits = LIMITS) -> Trace:
    """What a trace in order of time tells of a window and just outside it, where its edges are interpolated."""
    start, end = window.start - limits.gap_seconds, window.end + limits.gap_seconds

    def part(samples: tuple[_Timed, ...]) -> tuple[_Timed, ...]:
        return samples[bisect_left(samples, start, key=_at) : bisect_right(samples, end, key=_at)]

    return replace(trace, power=part(trace.power), counter=part(trace.counter))


def integral(samples: Iterable[PowerSample], window: Window, limits: Limits = LIMITS) -> float | Reason:
    """Joules by the trapezoid rule over samples in any order, with any spacing below the bound."""
    curve = _rising((sample.at, sample.watts) for sample in samples)
    if not curve:
        return why.NO_INSTANT_POWER
    inside = tuple(point for point in curve if window.start < point[0] < window.end)
    if _widest(curve, window) > limits.gap_seconds:
        return why.SAMPLE_GAP
    edges = ((window.start, _value(curve, window.start)), (window.end, _value(curve, window.end)))
    points = (edges[0], *inside, edges[1])
    return math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


def counted(readings: Iterable[CounterReading], window: Window, limits: Limits = LIMITS) -> float | Reason:
    """Joules by the counter's difference, interpolated between the moments at which the counter was seen to move."""
    ordered = _whole(readings)
    if not ordered:
        return why.NO_ENERGY_COUNTER
    if any(later.millijoules < earlier.millijoules for earlier, later in pairwise(ordered)):
        return why.COUNTER_RESET
    moved = _moved(ordered)
    if len(moved) < 2:
        return why.TOO_FEW_UPDATES if len(ordered) > 1 else why.SAMPLE_GAP
    base = moved[0].millijoules
    curve = tuple((reading.at, (reading.millijoules - base) / 1e3) for reading in moved)
    if _widest(curve, window) > limits.gap_seconds:
        return why.SAMPLE_GAP
    return _extended(curve, window.end) - _extended(curve, window.start)


def updates(trace: Trace, window: Window) -> int:
    """How often the sensor was renewed within the window: its counter moved, or without one of its own its power
    changed."""
    if trace.counts:
        moments = [reading.at for reading in _moved(_whole(trace.counter))]
    else:
        points = _rising((sample.at, sample.watts) for sample in trace.power)
        moments = [later[0] for earlier, later in pairwise(points) if later[1] != earlier[1]]
    return sum(window.start <= at <= window.end for at in moments)


def sensor_period(readings: Iterable[CounterReading]) -> float | None:
    """Seconds between two movements of the counter, None below three; polling blurs one gap but not their mean.

    A gap more than one poll above the median has missed a movement and is left out. A sensor that is renewed faster
    than it is polled shows the poll's interval.
    """
    ordered = _whole(readings)
    gaps = [later.at - earlier.at for earlier, later in pairwise(_moved(ordered))]
    if len(gaps) < 2:
        return None
    poll = median(later.at - earlier.at for earlier, later in pairwise(ordered))
    longest = median(gaps) + 1.1 * poll
    return fmean(gap for gap in gaps if gap <= longest)


def _too_little(trace: Trace, seconds: float, renewed: int, limits: Limits) -> list[Reason]:
    checks = (
        (trace.lost, why.SENSOR_LOST),
        (seconds < limits.seconds * (1 - 1e-9), why.TOO_SHORT),
        (renewed < limits.updates, why.TOO_FEW_UPDATES),
    )
    return [reason for failed, reason in checks if failed]


def _locked(trace: Trace, pace: StepPace) -> list[Reason]:
    sensor = pace.sensor_seconds or sensor_period(trace.counter)  # of a counter of more, too: nothing better is known
    if sensor is None:
        return []
    locked = lock_with_pauses(pace.step_seconds, sensor, pace.longest_pause_seconds, pace.calls)
    return [why.PHASE_LOCKED] if locked else []


def _rising(points: Iterable[tuple[float, float]]) -> Curve:
    """In order of time, one point a moment; what is not a power (NaN, infinite, negative) is a missing sample."""
    good = sorted(point for point in points if all(map(math.isfinite, point)) and point[1] >= 0)
    return tuple(dict(good).items())


_at = attrgetter("at")


def _whole(readings: Iterable[CounterReading]) -> list[CounterReading]:
    """In order of time, one reading a moment."""
    return list({reading.at: reading for reading in sorted(readings, key=lambda r: (r.at, r.millijoules))}.values())


def _moved(readings: Sequence[CounterReading]) -> list[CounterReading]:
    """The readings that differ from the one before: the moments at which the sensor was renewed, to within a poll."""
    return [later for earlier, later in pairwise(readings) if later.millijoules != earlier.millijoules]


def _widest(curve: Curve, window: Window) -> float:
    """The longest stretch of the window between two known points; where none lies outside, the edge is the end."""
    before = max((at for at, _ in curve if at <= window.start), default=window.start)
    after = min((at for at, _ in curve if at >= window.end), default=window.end)
    inside = [at for at, _ in curve if window.start < at < window.end]
    return max(later - earlier for earlier, later in pairwise((before, *inside, after)))


def _value(curve: Curve, at: float) -> float:
    """Between two points on their line; outside, the nearest point's."""
    place = bisect_left(curve, (at,))
    if place == 0:
        return curve[0][1]
    if place == len(curve):
        return curve[-1][1]
    (start, first), (end, last) = curve[place - 1], curve[place]
    return first + (last - first) * (at - start) / (end - start)


def _extended(curve: Curve, at: float) -> float:
    """As `_value`, but outside it goes on at the mean slope: energy grows where power stays."""
    if curve[0][0] <= at <= curve[-1][0]:
        return _value(curve, at)
    slope = (curve[-1][1] - curve[0][1]) / (curve[-1][0] - curve[0][0])
    end = curve[0] if at < curve[0][0] else curve[-1]
    return end[1] + slope * (at - end[0])
