"""Steady means no slope: noise alone passes, drift does not."""

from random import Random

import pytest

from precision_agent.cases import Variant
from precision_agent.power.sensor_sampling import Recording, SensorRow, Tape
from precision_agent.protocol import Sample
from precision_agent.sampling.steady import LEAST_POINTS, Slice, WarmUp, moving, warm_up
from precision_api.exchange.result import Failure
from tests.support.fake_backend import FakeBackend, devices_of

BF16 = Variant("bf16", "bf16")


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


def test_a_still_device_is_warm_soon_and_what_no_driver_tells_holds_nothing_up() -> None:
    assert moving([Slice(one.at, one.step_seconds) for one in slices()]) == ()
    assert warmed(FakeBackend()) == ("steady", 2.0 * LEAST_POINTS)


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


def warmed(device: FakeBackend, recorded: dict[str, Recording] | None = None) -> tuple[str, float]:
    found = warm_up(
        devices_of(device), BF16, lambda: recorded or {}, lambda: None, lambda spent: None, WarmUp(60.0, 2.0)
    )
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


def test_a_device_that_never_settles_is_flagged_after_the_longest_time() -> None:
    class Slowing(FakeBackend):
        def settle(self, variant: Variant, seconds: float) -> Sample | Failure:
            self.now += seconds
            return self._sample(1.0 + self.now / 100, seconds)

    assert warmed(Slowing()) == ("not_steady", 60.0)


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
