"""Pauses against phase lock: what a step draws is told without them, for a sensor that looks a quarter of the time.

Which part of the step a power window replays: in turn by slot, the same again where an ABBA block is repeated.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.cases import Case, TrainingCase, Variant, cases_of
from precision_agent.power import aliasing
from precision_agent.power import reasons as why
from precision_agent.power.energy import CounterReading, EnergyReading, PowerSample, Trace, Window, without_pauses
from precision_agent.power.reasons import Reason
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording
from precision_agent.power.throttle import ThrottleReading
from precision_agent.protocol import Part, RegionName, Sample
from precision_agent.results.power_windows import NodePower, node_power_by_part
from precision_agent.sampling.calibrate import rest_watts
from precision_agent.sampling.sample import HOOKS, POWER_PARTS, Hooks, PowerWindow, Samples, take
from precision_api.exchange.request import Timing
from precision_api.exchange.result import Failure
from precision_api.models.workload import resolve
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.result_objects import request

PERIOD, LOOK = 0.1, 0.025
WAVES, HALF_WAVE, REST_WATTS = 10, 0.37, 120.0
FROM = WAVES * 2 * HALF_WAVE
"""The steps begin where the square wave has ended."""
TIMING = Timing(passes=4, segment_seconds=1.0, discard_seconds=0.0, seed=100)
WHOLE: dict[RegionName, float] = {"layers_forward": 0.3, "head": 0.1, "layers_backward": 0.6, "optimizer": 0.2}


@dataclass(frozen=True)
class Steps:
    """Equal steps, each at 690 W and then at 400 W, with a pause after each `calls` of them."""

    seconds: float
    busy: float
    waits: Iterator[float]
    calls: int = 1

    @property
    def watts(self) -> float:
        """While a step runs, in the mean: the truth."""
        return 690.0 * self.busy + 400.0 * (1 - self.busy)

    def pieces(self) -> Iterator[tuple[float, float, bool]]:
        """Seconds, watts, and whether a step runs; without end."""
        while True:
            for _ in range(self.calls):
                yield self.busy * self.seconds, 690.0, True
                yield (1 - self.busy) * self.seconds, 400.0, True
            yield next(self.waits), REST_WATTS, False


class SeldomSensor:
    """A GPU whose sensor looks 25 ms in each 100 ms (A100, H100): of the load every joule is known.

    A square wave between rest and 650 W, then the steps until `seconds` after `FROM`.
    """

    def __init__(self, steps: Steps, seconds: float = 14.0) -> None:
        self._times, self._joules, self._worked = [-1.0], [0.0], [0.0]
        self._add(1.0, REST_WATTS, False)
        for _ in range(WAVES):
            self._add(HALF_WAVE, 650.0, False)
            self._add(HALF_WAVE, REST_WATTS, False)
        self.end = FROM + seconds
        for length, watts, works in steps.pieces():
            self._add(length, watts, works)
            if self._times[-1] > self.end + 1:
                break

    @property
    def rests(self) -> tuple[Window, ...]:
        """The waves' second halves."""
        return tuple(Window((2 * n + 1) * HALF_WAVE, (2 * n + 2) * HALF_WAVE) for n in range(WAVES))

    def running(self, window: Window) -> float:
        """The share of a window in which steps ran."""
        return (self._at(self._worked, window.end) - self._at(self._worked, window.start)) / window.seconds

    def recording(self) -> Recording:
        """Polled at 20 Hz; counter and reading share the sensor, so that their agreement shows nothing."""
        looks = range(int(self.end / PERIOD) + 1)
        seen = [self._mean(k * PERIOD - LOOK, k * PERIOD) for k in looks]
        counter = [0.0]
        for watts in seen:
            counter.append(counter[-1] + watts * PERIOD)
        ticks = [0.003 + 0.05 * k for k in range(int(self.end / 0.05) - 1)]
        power = tuple(PowerSample(at, seen[int(at / PERIOD)]) for at in ticks)
        readings = tuple(CounterReading(at, round(1e3 * counter[int(at / PERIOD)])) for at in ticks)
        return Recording(Trace(power, readings), Trace(scope="module"), (), (), ())

    def _mean(self, start: float, end: float) -> float:
        return (self._at(self._joules, end) - self._at(self._joules, start)) / (end - start)

    def _add(self, length: float, watts: float, works: bool) -> None:
        self._times.append(self._times[-1] + length)
        self._joules.append(self._joules[-1] + watts * length)
        self._worked.append(self._worked[-1] + (length if works else 0.0))

    def _at(self, sums: list[float], at: float) -> float:
        place = bisect_right(self._times, at)
        a, b = self._times[place - 1], self._times[place]
        return sums[place - 1] + (sums[place] - sums[place - 1]) * (at - a) / (b - a)


SEEN = Window(FROM + 1.0, FROM + 13.0)


def windows(gpu: SeldomSensor, steps: Steps, longest: float, name: str = "GPU-0") -> list[PowerWindow]:
    return [PowerWindow("layers", SEEN, steps.seconds, longest, {name: gpu.running(SEEN)})]


def told(step: float, seed: int, busy: float = 0.7) -> tuple[float, float]:
    """Watts as told and as they were, for steps that are paused as a run pauses them."""
    longest, calls = aliasing.sure_pause([step], 0.1)
    assert longest, "this step is paused"
    steps = Steps(step, busy, aliasing.pauses(seed, longest), calls)
    gpu = SeldomSensor(steps)
    found = node_power_by_part(
        {"GPU-0": gpu.recording()},
        windows(gpu, steps, longest),
        ["GPU-0"],
        SensorFacts(sensor_seconds=0.1, rests=gpu.rests),
    )
    assert isinstance(found, NodePower), found
    return found.watts["layers"], steps.watts


@pytest.mark.parametrize("step", [0.0111, 0.0333, 0.05, 0.1, 0.15, 0.2, 0.293])
def test_what_a_step_draws_is_right_within_two_percent_though_its_windows_have_pauses(step: float) -> None:
    errors = [watts / truth - 1 for watts, truth in (told(step, seed) for seed in range(16))]
    assert abs(fmean(errors)) < 0.01
    assert math.sqrt(fmean(error * error for error in errors)) < 0.02


@pytest.mark.parametrize("step", [0.1, 0.15, 0.2])
def test_the_windows_mean_is_no_steps_power(step: float) -> None:
    steps = Steps(step, 0.7, aliasing.pauses(1, 0.025))
    gpu = SeldomSensor(steps)
    [window] = windows(gpu, steps, 0.025)
    found = node_power_by_part(
        {"GPU-0": gpu.recording()}, [replace(window, running={})], ["GPU-0"], SensorFacts(sensor_seconds=0.1)
    )
    assert found.watts["layers"] / steps.watts < 0.97, "this test can tell the two apart"


@pytest.mark.parametrize(("share", "subtracted"), [(0.95, False), (0.2, True)])
def test_at_the_power_cap_steps_draw_the_mean_that_the_cap_allows(share: float, subtracted: bool) -> None:
    """Seen on an H100 of 700 W: 744 W for steps of 129 ms, its pauses taken off though the cap had held the mean."""
    steps = Steps(0.129, 0.95, aliasing.pauses(1, 0.025))
    gpu = SeldomSensor(steps)
    [window], recording = windows(gpu, steps, 0.025), gpu.recording()
    cap = tuple(ThrottleReading(at, {74: round(share * at * 1e9)}) for at in range(int(FROM), int(SEEN.end) + 2))
    recorded = {"GPU-0": replace(recording, throttle=cap)}
    found = node_power_by_part(recorded, [window], ["GPU-0"], SensorFacts(sensor_seconds=0.1, rests=gpu.rests))
    mean = steps.watts - (1 - gpu.running(SEEN)) * (steps.watts - REST_WATTS)
    assert found.watts["layers"] == pytest.approx(steps.watts if subtracted else mean, rel=0.015)
    assert steps.watts / mean > 1.06


def test_the_powers_of_all_gpus_lose_each_its_own_pauses() -> None:
    made = [Steps(0.15, 0.7, aliasing.pauses(1, 0.025)), Steps(0.15, 0.4, aliasing.pauses(2, 0.05))]
    gpus = {f"GPU-{n}": SeldomSensor(steps) for n, steps in enumerate(made)}
    running = {name: gpu.running(SEEN) for name, gpu in gpus.items()}
    window = PowerWindow("layers", SEEN, 0.15, 0.025, running)
    recorded = {name: gpu.recording() for name, gpu in gpus.items()}
    found = node_power_by_part(
        recorded, [window], list(gpus), SensorFacts(sensor_seconds=0.1, rests=gpus["GPU-0"].rests)
    )
    assert found.watts["layers"] == pytest.approx(sum(steps.watts for steps in made), rel=0.03)
    assert found.seconds == pytest.approx(12.0), "the windows are as long as they were"


def names(found: object) -> list[str]:
    assert isinstance(found, tuple)
    return [reason.name for reason in found if isinstance(reason, Reason)]


def test_pauses_without_power_or_with_more_of_it_leave_a_reason() -> None:
    steps = Steps(0.15, 0.7, aliasing.pauses(1, 0.025))
    gpu = SeldomSensor(steps)
    recorded, made = {"GPU-0": gpu.recording()}, windows(gpu, steps, 0.025)
    assert names(node_power_by_part(recorded, made, ["GPU-0"], SensorFacts(sensor_seconds=0.1))) == ["rest_unknown"]
    slow = SensorFacts(sensor_seconds=0.3, rests=gpu.rests)
    assert rest_watts(recorded["GPU-0"].gpu, gpu.rests, 0.3) is None, "no reading is surely free of the load"
    assert "rest_unknown" in names(node_power_by_part(recorded, made, ["GPU-0"], slow))
    assert without_pauses(EnergyReading(1000.0, 10.0, 100), 1.0, 100.0).reasons == (why.REST_ABOVE_LOAD,)
    void = EnergyReading(None, 10.0, 0, reasons=(why.SENSOR_LOST,))
    assert without_pauses(void, 1.0, None) is void


def test_without_pauses_nothing_is_taken_off_and_rest_is_read_after_the_load() -> None:
    steps = Steps(0.233, 0.7, repeat(0.0))
    gpu = SeldomSensor(steps)
    found = node_power_by_part(
        {"GPU-0": gpu.recording()}, windows(gpu, steps, 0.0), ["GPU-0"], SensorFacts(sensor_seconds=0.1)
    )
    assert found.watts["layers"] == pytest.approx(steps.watts, rel=0.02)
    gpu = SeldomSensor(Steps(0.1, 0.7, repeat(0.0)))
    assert rest_watts(gpu.recording().gpu, gpu.rests, 0.1) == pytest.approx(REST_WATTS)
    assert rest_watts(gpu.recording().gpu, gpu.rests[:1], 0.1) is None, "a few readings are no level"
    assert rest_watts(Trace(), gpu.rests, 0.1) is None


def test_a_module_loses_the_pauses_of_all_its_gpus_in_the_mean() -> None:
    watts = {True: 500.0, False: 200.0}
    power = tuple(PowerSample(0.05 * n, watts[n > 100] + n % 2 / 1e3) for n in range(500))
    module = Recording(Trace(), Trace(power, scope="module"), (), (), ())
    window = PowerWindow("layers", Window(8.0, 20.0), 0.233, 0.025, {"GPU-0": 0.9, "GPU-1": 0.7})
    known = SensorFacts(modules={"GPU-0": "board", "GPU-1": "board"}, sensor_seconds=0.05, rests=(Window(0.0, 4.0),))
    found = node_power_by_part({"GPU-0": module, "GPU-1": module}, [window], ["GPU-0", "GPU-1"], known)
    assert found.watts["layers"] == pytest.approx((500 - 0.2 * 200) / 0.8, rel=1e-3)


@dataclass
class Pausing(FakeBackend):
    """Writes down how it was asked to pause, and says that a tenth of each window was pauses."""

    asked_for: list[tuple[float, int]] = field(default_factory=list)

    def power_window(self, variant: Variant, part: Part, *more: Any) -> Sample | Failure:
        _, longest, _, calls = more
        self.asked_for.append((longest, calls))
        found = super().power_window(variant, part, *more)
        assert isinstance(found, Sample)
        return replace(found, running=0.9)


@pytest.mark.parametrize(("step", "calls"), [(0.0111, 10), (0.1, 1), (0.15, 1)])
def test_a_run_asks_for_pauses_between_groups_and_keeps_what_each_device_says_of_them(step: float, calls: int) -> None:
    one, other = (Pausing(lambda case, variant: step, uuid=f"GPU-{n}") for n in range(2))
    asked = request(recipes=("bf16",), gpus=2)
    cases = cases_of(asked, resolve(asked.workload))
    timing = Timing(passes=2, segment_seconds=1.0, discard_seconds=0.0)
    samples = take(devices_of(one, other), cases, cases.variants, timing, lambda: None, 0.1)
    assert set(one.asked_for) == set(other.asked_for) == {(0.025, calls)}
    assert {tuple(window.running.items()) for window in samples.windows["bf16"]} == {(("GPU-0", 0.9), ("GPU-1", 0.9))}


@given(st.floats(150, 700), st.floats(50, 140), st.floats(0.2, 1.0))
def test_steps_and_pauses_add_up_to_the_window(step: float, rest: float, running: float) -> None:
    whole = EnergyReading(10.0 * (running * step + (1 - running) * rest), 10.0, 100)
    assert without_pauses(whole, 10.0 * (1 - running), rest).watts == pytest.approx(step)


@given(st.floats(0.001, 3.0))
def test_pauses_stay_a_small_part_of_a_window(step: float) -> None:
    work = aliasing.calls_between_pauses(step) * step
    assert aliasing.UNPAUSED_SECONDS * (1 - 1e-6) <= work < aliasing.UNPAUSED_SECONDS + step
    assert max(aliasing.LONGEST_PAUSES_SECONDS) / 2 / work <= 0.25 + 1e-6


@dataclass
class Metered(FakeBackend):
    """Writes down each power window: variant, part, seed."""

    regions: dict[RegionName, float] = field(default_factory=lambda: WHOLE)
    replayed: list[tuple[str, Part, int]] = field(default_factory=list)

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        found = super().measure(case, variant, seconds)
        if isinstance(case, TrainingCase) and isinstance(found, Sample):
            return replace(found, regions=self.regions)
        return found

    def power_window(self, variant: Variant, part: Part, *more: Any) -> Sample | Failure:
        self.replayed.append((variant.label, part, more[2]))
        return super().power_window(variant, part, *more)

    def of(self, label: str) -> list[tuple[Part, int]]:
        return [(part, seed) for variant, part, seed in self.replayed if variant == label]


def taken(*devices: Metered, hooks: Hooks = HOOKS) -> Samples:
    asked = request(recipes=("nvfp4",))
    cases = cases_of(asked, resolve(asked.workload))
    return take(devices_of(*devices), cases, cases.variants, TIMING, lambda: None, 0.1, hooks)


def test_windows_replay_the_parts_in_turn_and_again_where_measured_again() -> None:
    device = Metered()
    for label in taken(device).windows:
        slots = 2 * TIMING.passes
        expected = [POWER_PARTS[i % len(POWER_PARTS)] for i in range(slots)]
        assert [part for part, _ in device.of(label)] == ["layers" if part == "dense" else part for part in expected]
        assert [seed for _, seed in device.of(label)] == [TIMING.seed + i for i in range(slots)]
    assert set(POWER_PARTS[: 2 * 3]) == {"layers", "head", "optimizer", "dense"}
    device = Metered()
    taken(device, hooks=hot_in(1))
    first, again = device.of("nvfp4")[:2], device.of("nvfp4")[2:4]
    assert first == again
    assert device.of("nvfp4")[4][0] == POWER_PARTS[2]
    windows = taken(Metered(), hooks=hot_in(2))
    assert windows.repeated == 1
    assert [one.abba_block for one in windows.windows["nvfp4"]] == [0, 0, 1, 1, 2, 2, 3, 3]


def hot_in(abba_block: int) -> Hooks:
    asked = count(1)
    return Hooks(hot=lambda windows: next(asked) == abba_block)


def test_layers_stand_in_for_lacking_parts_and_each_gpus_steps_choose_the_pause() -> None:
    device = Metered(regions={"layers_forward": 0.3, "layers_backward": 0.6})
    taken(device)
    assert {part for part, _ in device.of("bf16")} == {"layers"}
    quick = {"layers_forward": 0.06, "layers_backward": 0.1}
    slow = {name: seconds * 1.25 for name, seconds in quick.items()}
    window = taken(Metered(regions=quick), Metered(regions=slow)).windows["bf16"][0]  # type: ignore[arg-type]
    assert window.longest_pause_seconds > 0
    assert len(window.steps) == len(window.running) == 2
