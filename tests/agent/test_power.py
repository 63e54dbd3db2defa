"""Samples to joules: exact on curves whose integral is known, absent with a reason where they can't be trusted."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_agent.power import energy
from precision_agent.power import reasons as why
from precision_agent.power.aliasing import lock, lock_with_pauses, pauses, sure_pause, uneven_share
from precision_agent.power.reasons import REASONS, Reason
from tests.support.golden import beside

TABLES = beside(__file__)

WINDOW = energy.Window(10.0, 22.0)
QUIET = energy.StepPace(step_seconds=0.233)
Function = Callable[[float], float]


def polls(interval: float = 0.05, start: float = 9.0, end: float = 23.0) -> list[float]:
    return [start + tick * interval for tick in range(round((end - start) / interval) + 1)]


def samples(watts: Function, times: list[float] | None = None) -> tuple[energy.PowerSample, ...]:
    return tuple(energy.PowerSample(at, watts(at)) for at in times or polls())


def readings(
    joules: Function, times: list[float] | None = None, period: float = 0.1
) -> tuple[energy.CounterReading, ...]:
    """A counter renewed every `period`, whose value at time 0 is large."""
    base = 10**12
    return tuple(
        energy.CounterReading(at, base + round(1e3 * joules(math.floor(at / period + 1e-9) * period)))
        for at in times or polls()
    )


def steady(watts: float = 500.0) -> energy.Trace:
    return energy.Trace(samples(lambda at: watts), readings(lambda at: watts * at))


def joules_of(found: float | Reason) -> float:
    assert isinstance(found, float), found
    return found


def square(at: float) -> float:
    return 700.0 if at % 2.0 < 1.0 else 100.0


CURVES: dict[str, tuple[Function, Function, float]] = {
    "constant": (lambda at: 500.0, lambda at: 500.0 * at, 1e-9),
    "ramp": (lambda at: 50.0 * at, lambda at: 25.0 * at**2, 1e-9),
    "sine of 1 s": (
        lambda at: 400 + 300 * math.sin(math.tau * at),
        lambda at: 400 * at - 300 / math.tau * math.cos(math.tau * at),
        1e-3,
    ),
    "square wave of 2 s": (square, lambda at: 800 * (at // 2) + 700 * min(at % 2, 1) + 100 * max(at % 2 - 1, 0), 1e-2),
}
"""Power, its integral from 0, and how near the trapezoids at 20 Hz must come."""


@pytest.mark.parametrize("name", CURVES)
def test_a_known_curve_gives_its_energy_by_integral_counter_and_late_samples(name: str) -> None:
    watts, joules, tolerance = CURVES[name]
    truth = joules(WINDOW.end) - joules(WINDOW.start)
    assert joules_of(energy.integral(samples(watts), WINDOW)) == pytest.approx(truth, rel=tolerance)
    assert joules_of(energy.counted(readings(joules), WINDOW)) == pytest.approx(truth, rel=0.01)
    reading = energy.mean_power(energy.Trace(samples(watts), readings(joules)), [WINDOW], QUIET)
    assert (reading.reasons, reading.joules) == ((), pytest.approx(truth, rel=0.01))
    assert reading.watts == pytest.approx(truth / 12, rel=0.01)
    chance = Random(5)
    times = [at + chance.uniform(0, 0.04) for at in polls() if chance.random() > 0.15]
    kept = list(samples(watts, times) + samples(watts, times[::3]))
    chance.shuffle(kept)
    assert joules_of(energy.integral(kept, WINDOW)) == pytest.approx(truth, rel=max(10 * tolerance, 1e-6))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(9.0, 23.0), min_size=1, max_size=40, unique=True), st.randoms(use_true_random=False))
def test_order_and_duplicates_never_change_the_integral(extra: list[float], chance: Random) -> None:
    kept = list(samples(lambda at: 50 * at, sorted({*polls(), *extra})))
    shuffled = kept + chance.sample(kept, 20)
    chance.shuffle(shuffled)
    assert energy.integral(shuffled, WINDOW) == energy.integral(kept, WINDOW)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.0, 1500.0), min_size=281, max_size=281), st.floats(11.0, 21.0))
def test_energy_lies_between_least_and_most_power_and_adds_up_over_neighbours(watts: list[float], cut: float) -> None:
    kept = [energy.PowerSample(at, value) for at, value in zip(polls(), watts, strict=True)]
    whole = joules_of(energy.integral(kept, WINDOW))
    assert min(watts) * 12 - 1e-6 <= whole <= max(watts) * 12 + 1e-6
    parts = [joules_of(energy.integral(kept, part)) for part in (energy.Window(10.0, cut), energy.Window(cut, 22.0))]
    assert sum(parts) == pytest.approx(whole, rel=1e-9, abs=1e-6)


@given(st.floats(0.1, 2.0), st.floats(10.3, 21.7))
def test_a_hole_wider_than_the_bound_gives_no_figure_and_a_narrower_one_does(width: float, middle: float) -> None:
    kept = [sample for sample in samples(lambda at: 500.0) if abs(sample.at - middle) > width / 2]
    hole = max((b.at - a.at for a, b in pairwise(kept) if b.at > WINDOW.start and a.at < WINDOW.end), default=0.0)
    joules = energy.integral(kept, WINDOW)
    if hole <= energy.LIMITS.gap_seconds:
        assert joules == pytest.approx(6000.0)
    else:
        assert joules is why.SAMPLE_GAP


@pytest.mark.parametrize("bad", [math.nan, math.inf, -5.0])
def test_what_is_no_power_is_a_missing_sample(bad: float) -> None:
    kept = [replace(sample, watts=bad) if i % 4 == 0 else sample for i, sample in enumerate(steady().power)]
    assert energy.integral(kept, WINDOW) == pytest.approx(6000.0)


def test_a_window_has_a_length_and_with_the_first_reading_shapes_a_figure_or_reasons() -> None:
    assert energy.integral(steady().power, energy.Window(22.0, 30.0)) is why.SAMPLE_GAP
    assert energy.counted(steady().counter, energy.Window(22.0, 30.0)) is why.SAMPLE_GAP
    assert energy.sensor_period(()) is None
    assert energy.sensor_period(readings(lambda at: 500 * at, period=10.0)) is None
    for end in (2.0, 1.0):
        with pytest.raises(ValueError, match="must end after it starts"):
            energy.Window(2.0, end)


def without(trace: energy.Trace, start: float, end: float) -> energy.Trace:
    power = tuple(sample for sample in trace.power if not start < sample.at < end)
    counter = tuple(reading for reading in trace.counter if not start < reading.at < end)
    return energy.Trace(power, counter)


def broken_counter(change: Callable[[energy.CounterReading], int]) -> energy.Trace:
    trace = steady()
    return replace(trace, counter=tuple(replace(reading, millijoules=change(reading)) for reading in trace.counter))


VOID: dict[str, tuple[energy.Trace, tuple[Reason, ...], *tuple[Any, ...]]] = {
    "no counter": (replace(steady(), counter=()), (why.NO_ENERGY_COUNTER, why.TOO_FEW_UPDATES)),
    "no power": (replace(steady(), power=()), (why.NO_INSTANT_POWER,)),
    "GPU lost": (replace(steady(), lost=True), (why.SENSOR_LOST,)),
    "hole in both": (without(steady(), 15.0, 15.8), (why.SAMPLE_GAP,)),
    "counter wraps at 32 bits": (
        broken_counter(lambda reading: (reading.millijoules - 10**12 + 2**32 - 7_000_000) % 2**32),
        (why.COUNTER_RESET,),
    ),
    "counter begins anew": (
        broken_counter(lambda reading: reading.millijoules - (10**12 if reading.at > 15 else 0)),
        (why.COUNTER_RESET,),
    ),
    "counter stands still": (broken_counter(lambda reading: 7), (why.TOO_FEW_UPDATES,)),
    "9 s": (steady(), (why.TOO_SHORT,), [energy.Window(10, 14), energy.Window(15, 20)]),
    "counter renewed every 0.3 s": (
        energy.Trace(samples(lambda at: 500.0), readings(lambda at: 500 * at, period=0.3)),
        (why.TOO_FEW_UPDATES,),
    ),
    "step of one sensor period": (steady(), (why.PHASE_LOCKED,), [WINDOW], energy.StepPace(0.1)),
    "0 W": (steady(0.0), (why.TOO_FEW_UPDATES,)),
    "one bad window of two": (
        without(steady(), 20.0, 20.9),
        (why.SAMPLE_GAP,),
        [energy.Window(9.5, 19.5), energy.Window(19.6, 22.0)],
    ),
}
"""What was recorded and the reasons; windows and pace where they are not WINDOW and QUIET."""


@pytest.mark.parametrize("name", VOID)
def test_what_can_not_be_trusted_gives_no_figure_but_its_reason(name: str) -> None:
    trace, reasons, *asked = VOID[name]
    reading = energy.mean_power(trace, *asked, *([WINDOW], QUIET)[len(asked) :])
    assert (reading.joules, reading.watts, set(reading.reasons)) == (None, None, set(reasons))


@pytest.mark.parametrize(("factor", "off"), [(0.95, True), (0.98, False), (1.02, False), (1.05, True)])
def test_a_counter_is_off_by_all_windows_together_and_is_the_figure(factor: float, off: bool) -> None:
    fast = broken_counter(lambda reading: round(reading.millijoules * factor))
    beyond = energy.Window(40.0, 50.0)
    assert energy.counter_off(fast, [[WINDOW, beyond]]) is off, "a window without samples says nothing"
    assert not energy.counter_off(replace(fast, counter_scope="more"), [[WINDOW]])
    figure = energy.mean_power(fast, [WINDOW], QUIET)
    assert (figure.reasons, figure.joules) == ((), pytest.approx(6000.0 * factor, rel=1e-3))


def test_windows_pool_their_energy_late_polls_lengthen_no_period_and_a_module_is_judged_by_its_power_alone() -> None:
    apart = [energy.Window(9.5, 13.0), energy.Window(13.5, 17.0), energy.Window(17.5, 22.0)]
    reading = energy.mean_power(steady(), apart, QUIET)
    assert (reading.reasons, reading.seconds) == ((), pytest.approx(11.5))
    assert (reading.joules, reading.updates) == (pytest.approx(5750.0), pytest.approx(115, abs=3))
    late = [at for tick, at in enumerate(polls()) if tick % 12 not in (3, 4, 5, 6, 7)]
    assert energy.sensor_period(readings(lambda at: 500 * at, late)) == pytest.approx(0.1, rel=0.02)
    chance = Random(1)
    noisy = [1200 + chance.uniform(-1, 1) for _ in range(200)]
    trace = energy.Trace(samples(lambda at: noisy[math.floor(at / 0.1 + 1e-9) - 80]), scope="module")
    reading = energy.mean_power(trace, [WINDOW], QUIET)
    assert (reading.reasons, reading.scope, reading.watts) == ((), "module", pytest.approx(1200, rel=1e-3))
    still = replace(trace, power=samples(lambda at: 1200.0))
    assert energy.mean_power(still, [WINDOW], QUIET).reasons == (why.TOO_FEW_UPDATES,)


@pytest.mark.parametrize("period", [0.06, 0.1, 0.137, 0.25])
def test_the_sensors_period_is_read_from_its_counter_whatever_the_polls(period: float) -> None:
    assert energy.sensor_period(readings(lambda at: 500 * at, period=period)) == pytest.approx(period, rel=0.02)
    assert energy.updates(energy.Trace(counter=readings(lambda at: 500 * at, period=period)), WINDOW) == pytest.approx(
        12 / period, abs=2
    )


def test_a_power_is_a_figure_or_reasons_which_have_names_and_sentences_of_their_own() -> None:
    with pytest.raises(ValueError, match="absent with reasons"):
        energy.EnergyReading(5.0, 1.0, 1, reasons=(why.TOO_SHORT,))
    with pytest.raises(ValueError, match="absent with reasons"):
        energy.EnergyReading(None, 1.0, 1)
    assert len({reason.name for reason in REASONS}) == len(REASONS)
    assert all(reason.sentence.endswith(".") and len(reason.sentence) > 30 for reason in REASONS)


@pytest.mark.parametrize(
    ("step", "ratio"),
    [
        *((0.1, "1"), (0.2, "2"), (0.15, "3/2"), (0.05, "1/2"), (0.102, "1"), (0.3, "3")),
        *((0.077, None), (0.233, None), (0.013, None)),
    ],
    ids=str,
)
def test_a_step_near_a_ratio_of_small_numbers_is_locked(step: float, ratio: str | None) -> None:
    assert lock(step, 0.1) == (None if ratio is None else Fraction(ratio))


def test_a_sensor_that_looks_all_the_time_is_never_locked_and_no_period_is_no_question() -> None:
    assert all(lock(step / 1e3, 0.1, duty=1.0) is None for step in range(20, 2000, 7))
    with pytest.raises(ValueError, match="above 0"):
        lock(0.0, 0.1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.1, 0.25, 0.6, 1.0]))
def test_the_uneven_share_is_the_worst_error_of_a_load_that_is_on_for_one_stretch(p: int, q: int, duty: float) -> None:
    ratio = Fraction(p, q)
    p, cells = ratio.numerator, 60 * ratio.numerator
    wide = round(cells * duty / float(ratio))
    seen = [0] * cells
    for look in range(p):
        for cell in range(wide):
            seen[(look * cells // p + cell) % cells] += 1
    mean = sum(seen) / cells
    summed = [0.0, *accumulate((count / mean - 1) / cells for count in seen)]
    assert uneven_share(ratio, wide * float(ratio) / cells) == pytest.approx(max(summed) - min(summed), abs=1e-9)


@pytest.mark.parametrize(("step", "pause"), TABLES["pauses"])
def test_only_a_locked_step_is_paused_and_only_as_long_as_leads_out_of_every_lock(step: float, pause: float) -> None:
    assert sure_pause([step], 0.1)[0] == pause


def test_pauses_that_lead_into_a_lock_are_told_chosen_for_a_slow_gpu_too_random_bounded_and_equal_for_equal_seeds() -> (
    None
):
    assert lock_with_pauses(0.188, 0.1, 0.025) == 2
    locked = energy.StepPace(0.188, longest_pause_seconds=0.025)
    assert energy.mean_power(steady(), [WINDOW], locked).reasons == (why.PHASE_LOCKED,)
    assert sure_pause([0.16], 0.1)[0] == 0.0
    pause, calls = sure_pause([0.16, 0.2], 0.1)
    assert pause > 0
    assert not lock_with_pauses(0.2, 0.1, pause, calls)
    assert not lock_with_pauses(0.16, 0.1, pause, calls)
    first, again = pauses(7, 0.025), pauses(7, 0.025)
    drawn = [next(first) for _ in range(200)]
    assert drawn == [next(again) for _ in range(200)]
    assert 0 <= min(drawn) < 0.001 < 0.024 < max(drawn) <= 0.025


@given(st.floats(0.002, 3.0), st.sampled_from([0.02, 0.1, 0.2]))
def test_every_step_is_free_or_has_a_pause_that_frees_it_or_is_told_to_be_locked(step: float, sensor: float) -> None:
    pause, calls = sure_pause([step], sensor)
    left = [lock_with_pauses(step, sensor, other, calls) for other in (0.0, 0.025, 0.05)]
    assert lock_with_pauses(step, sensor, pause, calls) is None or all(left)
    assert pause > 0 or lock(step, sensor) is None


class Machine:
    """A load of equal steps (busy, then idle part, then a pause) with a sensor that looks 25 ms in each 100 ms.

    Counter and reading share the sensor, as on an A100: their agreement shows nothing.
    """

    PERIOD, LOOK = 0.1, 0.025

    def __init__(self, step: float, busy: float, phase: float, waits: Iterator[float], seconds: float = 14.0) -> None:
        self._corners = [(-1.0, 0.0)]
        at = phase * step - step - 1.0
        while at < seconds + 1:
            for length, watts in ((busy * step, 690.0), ((1 - busy) * step, 400.0), (next(waits), 400.0)):
                start = max(at, -1.0)
                at += length
                if at > start:
                    self._corners.append((at, self._corners[-1][1] + watts * (at - start)))
        self._times = [corner[0] for corner in self._corners]

    def joules(self, start: float, end: float) -> float:
        return self._until(end) - self._until(start)

    def trace(self) -> energy.Trace:
        looked = [self.joules(k * self.PERIOD - self.LOOK, k * self.PERIOD) / self.LOOK for k in range(141)]
        counter = [0.0]
        for watts in looked:
            counter.append(counter[-1] + watts * self.PERIOD)
        ticks = [0.003 + 0.05 * k for k in range(279)]
        power = tuple(energy.PowerSample(at, looked[int(at / self.PERIOD)]) for at in ticks)
        return energy.Trace(
            power, tuple(energy.CounterReading(at, round(1e3 * counter[int(at / self.PERIOD)])) for at in ticks)
        )

    def _until(self, at: float) -> float:
        place = bisect_right(self._times, at)
        (a, x), (b, y) = self._corners[place - 1], self._corners[place]
        return x + (y - x) * (at - a) / (b - a)


def never() -> Iterator[float]:
    while True:
        yield 0.0


SEEN = energy.Window(1.0, 13.0)
BUSY, PHASE = st.floats(0.3, 0.9), st.floats(0.0, 1.0)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([0.1, 0.15, 0.2]), BUSY, PHASE)
def test_a_sensor_that_looks_a_quarter_of_the_time_is_caught_or_right(step: float, busy: float, phase: float) -> None:
    machine = Machine(step, busy, phase, never())
    reading = energy.mean_power(machine.trace(), [SEEN], energy.StepPace(step))
    truth = machine.joules(SEEN.start, SEEN.end)
    assert reading.reasons == (why.PHASE_LOCKED,) or reading.joules == pytest.approx(truth, rel=0.02)


def test_the_lock_is_real_and_nearly_every_step_has_a_pause_that_holds() -> None:
    worst = 0.0
    for phase in range(20):
        machine = Machine(0.1, 0.5, phase / 20, never())
        unaware = energy.mean_power(machine.trace(), [SEEN], energy.StepPace(0.1, sensor_seconds=0.0137))
        worst = max(worst, abs(unaware.joules / machine.joules(SEEN.start, SEEN.end) - 1))
    assert worst > 0.2
    steps = [thousandth / 1000 for thousandth in range(20, 1000)]
    held = [not any(lock_with_pauses(s * f, 0.1, *sure_pause([s], 0.1)) for f in (0.995, 1.0, 1.005)) for s in steps]
    assert sum(held) / len(held) > 0.995


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([0.077, 0.12, 0.233, 0.0137]), BUSY, PHASE)
def test_steps_off_every_ratio_are_measured_within_two_percent(step: float, busy: float, phase: float) -> None:
    machine = Machine(step, busy, phase, never())
    reading = energy.mean_power(machine.trace(), [SEEN], energy.StepPace(step))
    assert reading.reasons == ()
    assert reading.joules == pytest.approx(machine.joules(SEEN.start, SEEN.end), rel=0.02)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", [0.1, 0.15, 0.2])
def test_random_pauses_break_the_lock(step: float, seed: int) -> None:
    machine = Machine(step, 0.7, 0.3, pauses(seed, 0.025))
    reading = energy.mean_power(machine.trace(), [SEEN], energy.StepPace(step, longest_pause_seconds=0.025))
    assert reading.reasons == ()
    assert reading.joules == pytest.approx(machine.joules(SEEN.start, SEEN.end), rel=0.02)


@given(step=st.floats(0.02, 1.0), drift=st.floats(-0.005, 0.005), sensor=st.sampled_from([0.02, 0.05, 0.1]))
def test_a_chosen_pause_holds_when_the_windows_steps_drift_a_little(step: float, drift: float, sensor: float) -> None:
    pause, calls = sure_pause([step], sensor)
    if not any(lock_with_pauses(step * factor, sensor, pause, calls) for factor in (0.99, 1.0, 1.01)):
        assert lock_with_pauses(step * (1 + drift), sensor, pause, calls) is None
