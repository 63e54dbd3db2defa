"""What the power sensors are worth: their idle power, how often they are renewed, and a square-wave load.

The rules are in docs/development/method.md, "Sensors and idle power".

`calibrated` means that counter and integral agreed within 5 % under a load that goes on and off, on every GPU. Both
probably share one sensor, so this shows that the two ways of reading it fit, not that the sensor itself is right.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

from precision_agent.cases import Variant
from precision_agent.power import reasons as why
from precision_agent.power.energy import (
    LIMITS,
    CounterReading,
    PowerSample,
    Trace,
    Window,
    counted,
    integral,
    sensor_period,
)
from precision_agent.power.reasons import Reason
from precision_agent.power.sensor_sampling import Recording
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_api.result import PowerScope, Sensor

IDLE_SECONDS = 3.0
HALF_WAVE_SECONDS = 0.37
"""Off every small ratio of a 100 ms sensor."""
WAVES = 10
EDGE_UPDATES = 2
"""Sensor periods after the end of a load in which a reading may still hold some of it."""
LEAST_REST_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Wave:
    """When a square-wave load ran: the whole, and its stretches without load."""

    window: Window
    rests: tuple[Window, ...]


def rest_watts(trace: Trace, rests: Iterable[Window], sensor_seconds: float) -> float | None:
    """What a GPU draws when it has nothing to do for a moment: the median reading of `rests`, their first readings left
    out; None below five readings.

    It is warm, our context is on it and its clocks are up, so this is above its idle power, by tens of watts. In a
    pause of some milliseconds it may draw a little more still, which no sensor of 100 ms can show; with pauses of a
    ninth of the time 30 W of it are 4 W of the step's power.
    """
    watts: list[float] = []
    for rest in rests:
        start = bisect_left(trace.power, rest.start + EDGE_UPDATES * sensor_seconds, key=_at)
        watts += [sample.watts for sample in trace.power[start : bisect_right(trace.power, rest.end, key=_at)]]
    return median(watts) if len(watts) >= LEAST_REST_SAMPLES else None


def _at(sample: PowerSample) -> float:
    return sample.at


def idle_watts(
    recordings: Mapping[str, Recording], modules: Mapping[str, str], window: Window
) -> dict[PowerScope, float]:
    """Mean power of all sensors of each scope together; a scope that one GPU lacks is left out."""
    found: dict[PowerScope, float] = {}
    own = {uuid: one.gpu for uuid, one in recordings.items()}
    boards = {modules.get(uuid, uuid): one.module for uuid, one in recordings.items()}
    scopes: tuple[tuple[PowerScope, Mapping[str, Trace]], ...] = (("gpu", own), ("module", boards))
    for scope, traces in scopes:
        joules = [integral(trace.power, window) for trace in traces.values()]
        known = [value for value in joules if not isinstance(value, Reason)]
        if known and len(known) == len(joules):
            found[scope] = math.fsum(known) / window.seconds
    return found


def square_wave(
    devices: Devices,
    variant: Variant,
    stop: Stop,
    waves: int = WAVES,
    sleep: Callable[[float], None] = time.sleep,
) -> Wave | None:
    """Loads all GPUs on and off; when that was, or None where the load failed or the run must end."""
    start = time.monotonic()
    rests: list[Window] = []
    for _ in range(waves):
        answers = devices.all(Call("settle", (variant, HALF_WAVE_SECONDS), HALF_WAVE_SECONDS, variant))
        if stop() or any(not hasattr(answer, "seconds") for answer in answers):
            return None
        ended = time.monotonic()
        sleep(HALF_WAVE_SECONDS)
        rests.append(Window(ended, time.monotonic()))
    end = time.monotonic()
    sleep(0.3)  # the samples around the end: a window's edge lies between two of them
    return Wave(Window(start, end), tuple(rests))


def calibrated(recordings: Mapping[str, Recording], window: Window) -> Sensor:
    """What the samples of a square-wave load say of the sensors; the worst GPU speaks for all."""
    counters: list[list[CounterReading]] = [_inside(one.gpu.counter, window) for one in recordings.values()]
    powers: list[list[PowerSample]] = [_inside(one.gpu.power, window) for one in recordings.values()]
    periods = [sensor_period(readings) for readings in counters]
    power = [_power_period(samples) for samples in powers]
    ratios = [_agreement(one.gpu, window) for one in recordings.values()]
    known = [ratio for ratio in ratios if isinstance(ratio, float)]
    reasons = [ratio.name for ratio in ratios if isinstance(ratio, Reason)]
    worst = max(known, key=lambda ratio: abs(math.log(ratio)), default=None)
    good = worst is not None and not reasons and abs(worst - 1) <= LIMITS.disagreement
    return Sensor(
        accuracy="calibrated" if good else "unverified",
        counter_update_seconds=max((period for period in periods if period), default=None),
        power_update_seconds=max((period for period in power if period), default=None),
        agreement=worst,
        message="" if good else ", ".join(dict.fromkeys(reasons)) or "counter and integral are more than 5 % apart",
    )


def disagrees(sensor: Sensor | None) -> bool:
    """Whether the calibration found counter and integral further apart than energy allows."""
    if sensor is None:
        return False
    apart = sensor.agreement is not None and abs(sensor.agreement - 1) > LIMITS.disagreement
    return apart or why.COUNTER_DISAGREES.name in sensor.message


def _agreement(trace: Trace, window: Window) -> float | Reason:
    by_counter, by_integral = counted(trace.counter, window), integral(trace.power, window)
    if isinstance(by_counter, Reason):
        return by_counter
    if isinstance(by_integral, Reason):
        return by_integral
    return by_counter / by_integral if by_counter > 0 and by_integral > 0 else why.COUNTER_DISAGREES


_Timed = TypeVar("_Timed", CounterReading, PowerSample)


def _inside(points: Iterable[_Timed], window: Window) -> list[_Timed]:
    return [point for point in points if window.start <= point.at <= window.end]


def _power_period(samples: Sequence[PowerSample]) -> float | None:
    """Seconds between two changes of the power reading; None where it hardly changed."""
    changes = [later.at for earlier, later in pairwise(samples) if later.watts != earlier.watts]
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    return median(gaps) if len(gaps) >= 2 else None
