"""Warming up until temperature, SM clock and step time have no slope any more. The test is pure.

The rules are in docs/development/method.md, "Warm-up".
What drifts during the timed ABBA blocks falls out of paired ratios, but not out of the rates themselves.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from precision_agent.cases import Variant
from precision_agent.power.energy import Window
from precision_agent.power.sensor_sampling import Recording, values_within
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_agent.sampling.sample import STOPPED, first_failure
from precision_api.exchange.result import Failure, Steadiness

LONGEST_SECONDS = 180.0
SLICE_SECONDS = 2.0
LEAST_POINTS = 8
"""Slices that a slope is taken over, 16 s: one H100 was steady after 8, another after 16. Clocks follow a load within
seconds, heat within tens."""
TOLERANCE = {"celsius": 1.0, "sm_mhz": 10.0, "step": 0.003}
"""Assumed, not tried on a GPU: change over those slices that counts as none: one step of the thermometer, less than one
step of the clock (15 MHz), 0.3 % of the step time."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one slice of warm-up showed: the hottest GPU and the slowest clock by the mean of all readings in it, the
    step's seconds. None: not told."""

    at: float
    step_seconds: float
    celsius: float | None = None
    sm_mhz: float | None = None


def moving(slices: Sequence[Slice]) -> tuple[str, ...]:
    """What still has a slope over the last slices: beyond its tolerance and beyond twice its own error; empty: steady.

    With fewer slices than a slope needs everything moves.
    """
    last = slices[-LEAST_POINTS:]
    if len(last) < LEAST_POINTS:
        return ("too_early",)
    mean = fmean(slice_.step_seconds for slice_ in last)
    rows: dict[str, list[float | None]] = {
        "celsius": [slice_.celsius for slice_ in last],
        "sm_mhz": [slice_.sm_mhz for slice_ in last],
        "step": [slice_.step_seconds / mean for slice_ in last],
    }
    times = [slice_.at for slice_ in last]
    return tuple(name for name, values in rows.items() if _moves(times, values, TOLERANCE[name]))


def _moves(times: Sequence[float], values: Sequence[float | None], tolerance: float) -> bool:
    readings = [value for value in values if value is not None]
    if len(readings) < len(times):
        return False  # a driver that does not tell it can't hold the run up
    change, error = _change(times, readings)
    return abs(change) > max(tolerance, 2 * error)


def _change(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Change over the whole time by least squares, and its standard error."""
    middle, mean = fmean(times), fmean(values)
    spread = math.fsum((at - middle) ** 2 for at in times)
    slope = math.fsum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
    residual = math.fsum((value - mean - slope * (at - middle)) ** 2 for at, value in zip(times, values, strict=True))
    length = times[-1] - times[0]
    return slope * length, math.sqrt(residual / (len(times) - 2) / spread) * length


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How to warm up; `longest_seconds` is less than 180 s where the deadline is near."""

    longest_seconds: float = LONGEST_SECONDS
    slice_seconds: float = SLICE_SECONDS


def warm_up(
    devices: Devices,
    variant: Variant,
    recorded: Callable[[], Mapping[str, Recording]],
    stop: Stop,
    report: Callable[[float], None],
    plan: WarmUp,
) -> Steadiness:
    """Runs the variant's load until it is steady or the time is over; never fails a run."""
    slices: list[Slice] = []
    spent = took = 0.0  # a slice counts as `slice_seconds` at least, so that it ends; of whole steps it may take less
    while spent < plan.longest_seconds and not stop():
        answers = devices.all(Call("settle", (variant, plan.slice_seconds), plan.slice_seconds, variant))
        failure = first_failure(devices.machine().names, answers)
        if failure:
            stopped = failure.reason in STOPPED
            return Steadiness(
                state="not_checked" if stopped else "not_steady",
                seconds=took,
                message=f"{failure.reason}: {failure.message}"[:1024],
            )
        lasted = max(answer.end for answer in answers) - min(answer.start for answer in answers)
        spent, took = spent + max(plan.slice_seconds, lasted), took + lasted
        slices.append(_slice(answers, recorded()))
        report(spent)
        if not moving(slices):
            return Steadiness(state="steady", seconds=took)
    left = moving(slices)
    return Steadiness(state="not_steady", seconds=took, message=f"still moving: {', '.join(left)}")


def _slice(answers: Sequence[object], recordings: Mapping[str, Recording]) -> Slice:
    samples: list[Any] = [answer for answer in answers if not isinstance(answer, Failure)]
    span = [Window(min(sample.start for sample in samples), max(sample.end for sample in samples))]
    celsius = [fmean(values) for recording in recordings.values() if (values := values_within(recording.celsius, span))]
    mhz = [fmean(values) for recording in recordings.values() if (values := values_within(recording.sm_mhz, span))]
    return Slice(
        at=span[0].end,
        step_seconds=max(sample.seconds for sample in samples),
        celsius=max(celsius, default=None),
        sm_mhz=min(mhz, default=None),
    )
