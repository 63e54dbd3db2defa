"""What the power sensors are worth: their idle power, how often they are renewed, and a square-wave load.

The rules are in docs/development/method.md, "Sensors and idle power".

`calibrated` means that counter and integral agreed within 5 % under a load that goes on and off, on every GPU. Both
probably share one sensor, so this shows that the two ways of reading it fit, not that the sensor itself is right.
"""

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import attrgetter
from statistics import median
from typing import Any, TypeVar

from precision_agent.cases import Variant
from precision_agent.power import energy
from precision_agent.power import reasons as why
from precision_agent.power.aliasing import pauses
from precision_agent.power.reasons import Reason
from precision_agent.power.sensor_sampling import Recording
from precision_agent.protocol import Sample
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_api.exchange.result import PowerScope, Sensor

IDLE_SECONDS = 3.0
HALF_WAVE_SECONDS = 1.2
"""Of each load, at least: it ends with a whole layer, so that equal pauses would make some waves whole sensor periods.
A pause is drawn at random, as long in the mean. What a slow sensor misses at the edges is then a small part: ten waves
of 0.37 s left 3 % of sound simulated nodes unverified, these 0.9 % (benchmarks.sensors)."""
PAUSE_SPREAD_SECONDS = 0.1
"""By how much a pause is shorter or longer, at most: together as much as the slowest sensor's period."""
WAVES = 4
EDGE_UPDATES = 2
"""Sensor periods after the end of a load in which a reading may still hold some of it."""
LEAST_REST_SAMPLES = 5
_at = attrgetter("at")
APART = "counter and integral are more than 5 % apart"
MORE = "the energy counter covers the module, not the GPU alone: energy is the integral of the GPU's power alone"


@dataclass(frozen=True, slots=True)
class Wave:
    """When a square-wave load ran: the whole, and its stretches without load."""

    window: energy.Window
    rests: tuple[energy.Window, ...]


def rest_watts(trace: energy.Trace, rests: Iterable[energy.Window], sensor_seconds: float) -> float | None:
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


def idle_watts(
    recordings: Mapping[str, Recording], modules: Mapping[str, str], window: energy.Window
) -> dict[PowerScope, float]:
    """Mean power of all sensors of each scope together; a scope that one GPU lacks is left out."""
    watts: dict[PowerScope, float] = {}
    gpus = {uuid: recording.gpu for uuid, recording in recordings.items()}
    boards = {modules.get(uuid, uuid): recording.module for uuid, recording in recordings.items()}
    scopes: tuple[tuple[PowerScope, Mapping[str, energy.Trace]], ...] = (("gpu", gpus), ("module", boards))
    for scope, traces in scopes:
        joules = [energy.integral(trace.power, window) for trace in traces.values()]
        energies = [value for value in joules if not isinstance(value, Reason)]
        if energies and len(energies) == len(joules):
            watts[scope] = math.fsum(energies) / window.seconds
    return watts


def wave_pauses(seed: int) -> Iterator[float]:
    """Seconds of the waves' stretches without load, without end; the same for the same seed."""
    return (HALF_WAVE_SECONDS - PAUSE_SPREAD_SECONDS + drawn for drawn in pauses(seed, 2 * PAUSE_SPREAD_SECONDS))


def square_wave(
    devices: Devices,
    variant: Variant,
    stop: Stop,
    seed: int,
    waves: int = WAVES,
    sleep: Callable[[float], None] = time.sleep,
) -> Wave | None:
    """Loads all GPUs on and off; when that was, or None where the load failed or the run must end."""
    start = time.monotonic()
    rests: list[energy.Window] = []
    for pause in islice(wave_pauses(seed), waves):
        answers = _loaded(devices, variant)
        if stop() or any(not hasattr(answer, "seconds") for answer in answers):
            return None
        ended = time.monotonic()
        sleep(pause)
        rests.append(energy.Window(ended, time.monotonic()))
    end = time.monotonic()
    sleep(0.3)  # the samples around the end: a window's edge lies between two of them
    return Wave(energy.Window(start, end), tuple(rests))


def _loaded(devices: Devices, variant: Variant) -> tuple[Any, ...]:
    """One load of all GPUs: the layers of the short model, micro batch by micro batch, else whatever the variant has.

    A whole optimizer step of an 8B model, which `settle` would run, takes four times as long as the load should.
    """
    wanted = Call("power_window", (variant, "layers", HALF_WAVE_SECONDS, 0.0, 0), HALF_WAVE_SECONDS, variant)
    answers = devices.all(wanted)
    if all(isinstance(answer, Sample) for answer in answers):
        return answers
    return devices.all(Call("settle", (variant, HALF_WAVE_SECONDS), HALF_WAVE_SECONDS, variant))


def calibrated(recordings: Mapping[str, Recording], window: energy.Window) -> Sensor:
    """What the samples of a square-wave load say of the sensors; the worst GPU speaks for all."""
    periods = [energy.sensor_period(_inside(recording.gpu.counter, window)) for recording in recordings.values()]
    power = [_power_period(_inside(recording.gpu.power, window)) for recording in recordings.values()]
    ratios = [_agreement(recording.gpu, window) for recording in recordings.values()]
    beyond = bool(ratios) and all(_covers_more(recording, window) for recording in recordings.values())
    measured = [ratio for ratio in ratios if isinstance(ratio, float)]
    reasons = [ratio.name for ratio in ratios if isinstance(ratio, Reason)]
    worst = max(measured, key=lambda ratio: abs(math.log(ratio)), default=None)
    good = worst is not None and not reasons and abs(worst - 1) <= energy.LIMITS.disagreement
    return Sensor(
        accuracy="calibrated" if good else "unverified",
        counter_update_seconds=max((period for period in periods if period), default=None),
        power_update_seconds=max((period for period in power if period), default=None),
        agreement=worst,
        counter_scope="gpu" if good else "more" if beyond else None,
        message="" if good else MORE if beyond else ", ".join(dict.fromkeys(reasons)) or APART,
    )


def counter_scope(sensor: Sensor | None) -> energy.CounterScope:
    """What the energy counters cover; the GPU where nothing else was found."""
    return "more" if sensor and sensor.counter_scope == "more" else "gpu"


def period(sensor: Sensor) -> float | None:
    """Seconds between two updates of the sensor that energy is taken from; None where they were not seen."""
    both = (sensor.counter_update_seconds, sensor.power_update_seconds)
    first, second = both if counter_scope(sensor) == "gpu" else both[::-1]
    return first or second


def _agreement(trace: energy.Trace, window: energy.Window) -> float | Reason:
    by_counter, by_integral = energy.counted(trace.counter, window), energy.integral(trace.power, window)
    if isinstance(by_counter, Reason):
        return by_counter
    if isinstance(by_integral, Reason):
        return by_integral
    return by_counter / by_integral if by_counter > 0 and by_integral > 0 else why.COUNTER_DISAGREES


def _covers_more(recording: Recording, window: energy.Window) -> bool:
    """Whether the counter is the module's, whose draw is so far above the GPU's that no reading of it is off instead.

    Only where the driver tells both draws. A counter that is off on a plain GPU has no such explanation.
    """
    joules = energy.counted(recording.gpu.counter, window)
    gpu, module = energy.integral(recording.gpu.power, window), energy.integral(recording.module.power, window)
    if isinstance(joules, Reason) or isinstance(gpu, Reason) or isinstance(module, Reason):
        return False
    limit = energy.LIMITS.disagreement
    return module > gpu * (1 + 3 * limit) and abs(joules / module - 1) <= limit


_Timed = TypeVar("_Timed", energy.CounterReading, energy.PowerSample)


def _inside(points: Iterable[_Timed], window: energy.Window) -> list[_Timed]:
    return [point for point in points if window.start <= point.at <= window.end]


def _power_period(samples: Sequence[energy.PowerSample]) -> float | None:
    """Seconds between two changes of the power reading; None where it hardly changed."""
    changes = [later.at for earlier, later in pairwise(samples) if later.watts != earlier.watts]
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    return median(gaps) if len(gaps) >= 2 else None
