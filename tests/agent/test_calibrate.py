"""What is made of the samples of an idle node and of a square-wave load.

Steady means no slope: noise alone passes, drift does not.
"""

import time
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any

import pytest

from benchmarks import sensors
from precision_agent.cases import Variant
from precision_agent.power.energy import Window
from precision_agent.power.sensor_sampling import Recording, SensorRow, Tape
from precision_agent.protocol import Sample
from precision_agent.sampling.calibrate import calibrated, counter_scope, idle_watts, period, square_wave, wave_pauses
from precision_agent.sampling.steady import LEAST_POINTS, Slice, WarmUp, moving, warm_up
from precision_api.exchange.result import Failure, Sensor
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.golden import beside

TABLES = beside(__file__)

WINDOW = Window(1.0, 9.0)
BF16 = Variant("bf16", "bf16")


def rows(factor: float = 1.0, uuid: str = "GPU-0", module: int | None = None) -> list[SensorRow]:
    """A square wave of 200 and 600 W, renewed every 100 ms, polled every 50; a counter `factor` times as fast."""
    found, joules = [], 0.0
    for poll in range(201):
        renewed = poll // 2
        watts = 600 if renewed // 4 % 2 else 200
        if poll % 2 == 0 and poll:
            joules += (600 if (renewed - 1) // 4 % 2 else 200) * 0.1
        found.append(
            SensorRow(poll * 0.05, uuid, milliwatts=watts * 1000, millijoules=round(joules * factor * 1000),
                module_milliwatts=module)
        )  # fmt: skip
    return found


def test_a_square_wave_tells_the_rests_and_is_of_the_layers_or_whatever_there_is() -> None:
    found = square_wave(devices_of(FakeBackend()), BF16, lambda: None, 1, 3, lambda seconds: time.sleep(seconds / 100))
    assert len(found.rests) == 3
    edges = [at for rest in found.rests for at in (rest.start, rest.end)]
    assert edges == sorted(edges)
    assert found.window.start < edges[0] < edges[-1] <= found.window.end
    device = FakeBackend()
    square_wave(devices_of(device), BF16, lambda: None, 1, 3, lambda seconds: None)
    assert device.windows == [("bf16", "layers", 0.0)] * 3

    class Untrained(FakeBackend):
        loads = 0

        def power_window(self, *_: Any) -> Sample | Failure:
            return Failure(reason="no_model")

        def settle(self, variant: Variant, seconds: float) -> Sample | Failure:
            self.loads += 1
            return FakeBackend.settle(self, variant, seconds)

    device = Untrained()
    assert square_wave(devices_of(device), BF16, lambda: None, 1, 3, lambda seconds: None) is not None
    assert device.loads == 3
    told = Failure(reason="terminated", message="the agent was told to stop")
    assert square_wave(devices_of(FakeBackend()), BF16, lambda: told, 1, 3, lambda seconds: None) is None


def test_a_counter_that_agrees_is_calibrated_none_is_unverified_and_one_that_covers_more_is_told() -> None:
    found = calibrated(Tape(rows()).recordings(), WINDOW)
    assert (found.accuracy, found.message, found.agreement) == ("calibrated", "", pytest.approx(1.0, abs=0.02))
    assert found.counter_update_seconds == pytest.approx(0.1, rel=0.02)
    found = calibrated(
        Tape([SensorRow(row.at, row.gpu, milliwatts=row.milliwatts) for row in rows()]).recordings(), WINDOW
    )
    assert (found.accuracy, found.message) == ("unverified", "no_energy_counter")
    found = calibrated(Tape([*on_a_module(1.375), *on_a_module(1.375, "GPU-1")]).recordings(), WINDOW)
    assert (found.accuracy, counter_scope(found)) == ("unverified", "more")
    assert "integral of the GPU's power alone" in found.message
    found = calibrated(Tape([*on_a_module(1.375), *rows(uuid="GPU-1")]).recordings(), WINDOW)
    assert found.counter_scope is None


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_counter_ten_percent_off_is_not(factor: float) -> None:
    found = calibrated(Tape([*rows(factor), *rows(uuid="GPU-1")]).recordings(), WINDOW)
    assert found.accuracy == "unverified"


def on_a_module(factor: float, uuid: str = "GPU-0", cpu_watts: int = 150) -> list[SensorRow]:
    """The square wave of a GPU whose module's sensor sees it and a CPU."""
    return [replace(row, module_milliwatts=(row.milliwatts or 0) + cpu_watts * 1000) for row in rows(factor, uuid)]


@pytest.mark.parametrize(
    ("factor", "cpu_watts", "scope"),
    TABLES["scopes"].values(),
    ids=TABLES["scopes"],
)  # fmt: skip
def test_a_counter_of_the_modules_draw_covers_more_and_hides_no_reading_that_is_off(
    factor: float, cpu_watts: int, scope: str | None
) -> None:
    found = calibrated(Tape(on_a_module(factor, cpu_watts=cpu_watts)).recordings(), WINDOW)
    assert (found.counter_scope, found.agreement) == (scope, pytest.approx(factor, rel=0.03))


def test_the_period_is_that_of_the_sensor_that_energy_is_taken_from() -> None:
    both = Sensor(counter_update_seconds=0.1, power_update_seconds=0.025)
    assert (period(both), period(both.model_copy(update={"counter_scope": "more"}))) == (0.1, 0.025)
    assert period(Sensor(counter_update_seconds=0.1, counter_scope="more")) == 0.1


def test_idle_power_adds_up_over_gpus_and_lacks_where_one_does() -> None:
    two = Tape([*rows(module=900_000), *rows(uuid="GPU-1", module=900_000)]).recordings()
    found = idle_watts(two, {"GPU-0": "board", "GPU-1": "board"}, WINDOW)
    assert (found["gpu"], found["module"]) == (pytest.approx(800, rel=0.05), pytest.approx(900))
    two = Tape([*rows(module=900_000), *rows(uuid="GPU-1")]).recordings()
    assert set(idle_watts(two, {}, WINDOW)) == {"gpu"}


def test_pauses_are_drawn_from_the_seed_over_a_whole_period_of_the_slowest_sensor() -> None:
    slept = list[float]()
    square_wave(devices_of(FakeBackend()), BF16, lambda: None, 7, 40, slept.append)
    assert slept[:40] == list(islice(wave_pauses(7), 40)) != list(islice(wave_pauses(8), 40))
    assert max(slept[:40]) - min(slept[:40]) > 0.17
    assert fmean(islice(wave_pauses(1), 2000)) == pytest.approx(1.2, rel=0.01)


def test_no_sound_node_loses_its_energy_and_each_counter_or_reading_that_is_5_percent_off_is_found() -> None:
    """120 of the 10,000 nodes of `python -m benchmarks.sensors`, and two whose sensors see their layers unevenly."""
    for seed in (*range(120), 2714, 3420):
        node = sensors.node(seed)
        assert not node.voids(), seed
        for of_reading in (False, True):
            assert node.with_module().with_fault(0.95 if seed % 2 else 1.05, of_reading).voids(), seed


@pytest.mark.parametrize("seed", [200031, 200041, 200043, 200077, 200101])
def test_a_slow_sensor_that_misses_edges_is_calibrated_by_long_waves(seed: int) -> None:
    assert not sensors.node(seed).square_apart()


def slices(celsius: float = 0.0, mhz: float = 0.0, step: float = 0.0, noise: float = 0.001) -> list[Slice]:
    """Slices of 2 s with these slopes a second and noise in the step time."""
    chance = Random(3)
    return [
        Slice(2.0 * n, 0.1 * (1 + step * 2 * n + noise * chance.gauss()), 60 + celsius * 2 * n, 1800 + mhz * 2 * n)
        for n in range(LEAST_POINTS)
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (slices(), ()),
        (slices(noise=0.01), ()),
        (slices(celsius=0.5), ("celsius",)),
        (slices(mhz=-5.0), ("sm_mhz",)),
        (slices(step=0.001), ("step",)),
        (slices()[1:], ("too_early",)),
    ],
    ids=["still", "noisy", "warming", "slowing clock", "slowing step", "too early"],
)
def test_what_moves_is_named(found: list[Slice], expected: tuple[str, ...]) -> None:
    assert moving(found) == expected


def test_a_still_device_is_warm_soon_what_no_driver_tells_holds_nothing_up_and_what_never_settles_is_flagged() -> None:
    assert moving([Slice(one.at, one.step_seconds) for one in slices()]) == ()
    assert warmed(FakeBackend()) == ("steady", 2.0 * LEAST_POINTS)

    class Slowing(FakeBackend):
        def settle(self, variant: Variant, seconds: float) -> Sample | Failure:
            self.now += seconds
            return self._sample(1.0 + self.now / 100, seconds)

    assert warmed(Slowing()) == ("not_steady", 60.0)


def test_all_readings_of_a_slice_count_and_none_from_before_it() -> None:
    """The clock of each slice ends lower than that of the slice before, 1 of 40 readings; its mean is still."""
    device = FakeBackend()
    rows = [SensorRow(-1.0, "GPU-0", celsius=20, sm_mhz=300)]

    def recorded() -> dict[str, Recording]:
        at = device.now
        rows.extend(SensorRow(at - 0.05 * (39 - n), "GPU-0", celsius=60, sm_mhz=1800) for n in range(39))
        rows.append(SensorRow(at, "GPU-0", celsius=60, sm_mhz=1800 - 10 * round(at)))
        return Tape(rows).recordings()

    found = warm_up(devices_of(device), BF16, recorded, lambda: None, lambda spent: None, WarmUp(40.0, 2.0))
    assert (found.state, found.seconds) == ("steady", 2.0 * LEAST_POINTS)


def warmed(device: FakeBackend) -> tuple[str, float]:
    found = warm_up(devices_of(device), BF16, dict, lambda: None, lambda spent: None, WarmUp(60.0, 2.0))
    return found.state, found.seconds


def test_slices_that_end_early_and_a_load_that_fails_are_told() -> None:
    class Early(FakeBackend):
        def settle(self, variant: Variant, seconds: float) -> Sample | Failure:
            return super().settle(variant, seconds / 2)

    assert warmed(Early()) == ("steady", 1.0 * LEAST_POINTS)

    class Broken(FakeBackend):
        def settle(self, variant: Variant, seconds: float) -> Sample | Failure:
            return Failure(reason="cuda_error", message="bad")

    found = warm_up(devices_of(Broken()), BF16, dict, lambda: None, lambda spent: None, WarmUp(10.0, 1.0))
    assert (found.state, found.message) == ("not_steady", "cuda_error: bad")


@pytest.mark.parametrize(("uuid", "expected"), [("GPU-0", "celsius"), ("GPU-1", "sm_mhz")])
def test_the_hottest_gpu_and_the_slowest_clock_are_watched(uuid: str, expected: str) -> None:
    """GPU-0 warms up and is the hotter one; GPU-1 slows down and is the slower one."""
    device = FakeBackend()

    def recorded() -> dict[str, Recording]:
        moved = round(device.now) if uuid == "GPU-0" else 0
        slowed = 5 * round(device.now) if uuid == "GPU-1" else 0
        rows = [
            SensorRow(device.now, "GPU-0", celsius=70 + moved, sm_mhz=1900),
            SensorRow(device.now, "GPU-1", celsius=50, sm_mhz=1800 - slowed),
        ]
        return Tape(rows).recordings()

    found = warm_up(devices_of(device), BF16, recorded, lambda: None, lambda spent: None, WarmUp(40.0, 2.0))
    assert (found.state, found.message) == ("not_steady", f"still moving: {expected}")
