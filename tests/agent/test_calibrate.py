"""What is made of the samples of an idle node and of a square-wave load."""

from __future__ import annotations

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
from precision_agent.power.sensor_sampling import SensorRow, Tape
from precision_agent.protocol import Sample
from precision_agent.sampling.calibrate import calibrated, counter_scope, idle_watts, period, square_wave, wave_pauses
from precision_api.exchange.result import Failure, Sensor
from tests.support.fake_backend import FakeBackend, devices_of

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


def test_a_square_wave_tells_when_the_gpus_were_at_rest() -> None:
    found = square_wave(devices_of(FakeBackend()), BF16, lambda: None, 1, 3, lambda seconds: time.sleep(seconds / 100))
    assert len(found.rests) == 3
    edges = [at for rest in found.rests for at in (rest.start, rest.end)]
    assert edges == sorted(edges)
    assert found.window.start < edges[0] < edges[-1] <= found.window.end


def test_a_load_is_the_layers_alone_where_there_is_a_training_step_to_cut() -> None:
    device = FakeBackend()
    square_wave(devices_of(device), BF16, lambda: None, 1, 3, lambda seconds: None)
    assert device.windows == [("bf16", "layers", 0.0)] * 3


def test_without_a_training_step_the_load_is_whatever_the_variant_has() -> None:
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


def test_a_square_wave_that_must_end_tells_nothing() -> None:
    told = Failure(reason="terminated", message="the agent was told to stop")
    assert square_wave(devices_of(FakeBackend()), BF16, lambda: told, 1, 3, lambda seconds: None) is None


def test_a_counter_that_agrees_under_a_square_wave_is_calibrated() -> None:
    found = calibrated(Tape(rows()).recordings(), WINDOW)
    assert (found.accuracy, found.message) == ("calibrated", "")
    assert found.agreement == pytest.approx(1.0, abs=0.02)
    assert found.counter_update_seconds == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_counter_ten_percent_off_is_not(factor: float) -> None:
    found = calibrated(Tape([*rows(factor), *rows(uuid="GPU-1")]).recordings(), WINDOW)
    assert found.accuracy == "unverified"


def test_a_gpu_without_a_counter_leaves_the_accuracy_unverified_with_the_reason() -> None:
    found = calibrated(
        Tape([SensorRow(row.at, row.gpu, milliwatts=row.milliwatts) for row in rows()]).recordings(), WINDOW
    )
    assert (found.accuracy, found.message) == ("unverified", "no_energy_counter")


def on_a_module(factor: float, uuid: str = "GPU-0", cpu_watts: int = 150) -> list[SensorRow]:
    """The square wave of a GPU whose module's sensor sees it and a CPU."""
    return [
        replace(row, module_milliwatts=(row.milliwatts or 0) + cpu_watts * 1000) for row in rows(factor, uuid)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "cpu_watts", "scope"),
    [
        (1.0, 150, "gpu"),
        (1.375, 150, "more"),  # 400 W of a GPU and 150 of a CPU
        (1.2, 150, "more"),  # the GPU and its memory, say
        (1.6, 150, None),  # more than the module draws
        (0.8, 150, None),  # less than the GPU draws
        (1.2, 0, None),
    ],
    ids=["of-the-gpu", "of-the-module", "of-a-part-of-it", "above-the-module", "below-the-gpu", "module-is-the-gpu"],
)
def test_a_counter_between_the_gpus_draw_and_its_modules_covers_more(
    factor: float, cpu_watts: int, scope: str | None
) -> None:
    found = calibrated(Tape(on_a_module(factor, cpu_watts=cpu_watts)).recordings(), WINDOW)
    assert found.counter_scope == scope
    assert found.agreement == pytest.approx(factor, rel=0.03)


def test_a_counter_that_covers_more_leaves_the_accuracy_unverified_and_says_how_energy_is_taken() -> None:
    found = calibrated(Tape([*on_a_module(1.375), *on_a_module(1.375, "GPU-1")]).recordings(), WINDOW)
    assert (found.accuracy, counter_scope(found)) == ("unverified", "more")
    assert "integral of the GPU's power alone" in found.message


def test_one_gpu_whose_counter_is_its_own_leaves_the_node_without_an_explanation() -> None:
    found = calibrated(Tape([*on_a_module(1.375), *rows(uuid="GPU-1")]).recordings(), WINDOW)
    assert found.counter_scope is None


def test_the_period_is_that_of_the_sensor_that_energy_is_taken_from() -> None:
    both = Sensor(counter_update_seconds=0.1, power_update_seconds=0.025)
    assert period(both) == 0.1
    assert period(both.model_copy(update={"counter_scope": "more"})) == 0.025
    assert period(Sensor(counter_update_seconds=0.1, counter_scope="more")) == 0.1


def test_idle_power_adds_up_over_gpus_and_counts_a_module_once() -> None:
    two = Tape([*rows(module=900_000), *rows(uuid="GPU-1", module=900_000)]).recordings()
    found = idle_watts(two, {"GPU-0": "board", "GPU-1": "board"}, WINDOW)
    assert found["gpu"] == pytest.approx(800, rel=0.05)
    assert found["module"] == pytest.approx(900)


def test_a_scope_that_one_gpu_lacks_has_no_idle_power() -> None:
    two = Tape([*rows(module=900_000), *rows(uuid="GPU-1")]).recordings()
    assert set(idle_watts(two, {}, WINDOW)) == {"gpu"}


def test_pauses_are_drawn_from_the_seed_over_a_whole_period_of_the_slowest_sensor() -> None:
    slept = list[float]()
    square_wave(devices_of(FakeBackend()), BF16, lambda: None, 7, 40, slept.append)
    assert slept[:40] == list(islice(wave_pauses(7), 40)) != list(islice(wave_pauses(8), 40))
    assert max(slept[:40]) - min(slept[:40]) > 0.17
    assert fmean(islice(wave_pauses(1), 2000)) == pytest.approx(0.37, rel=0.01)


@pytest.mark.parametrize("layer", [0.106, 0.142, 0.214, 0.262, 0.364])
def test_no_layers_length_locks_the_square_wave_to_a_sensor_of_100_ms(layer: float) -> None:
    """Equal pauses of 0.37 s make a load of whole layers and its pause whole periods: a third lay beyond 5 %."""
    apart = []
    for seed in range(60):
        chance, line = Random(seed), sensors.Timeline()
        window = sensors._square(line, sensors.Layer(layer, 0.7, 1.0), chance)
        recording = sensors.Sensor(0.1, 0.025, chance.uniform(0, 0.1), True).recording(line, chance)
        apart.append(calibrated({"GPU-0": recording}, window).accuracy != "calibrated")
    assert sum(apart) <= 6


def test_no_sound_node_loses_its_energy_and_every_counter_that_is_5_percent_off_is_found() -> None:
    """200 of the 10,000 nodes of `python -m benchmarks.sensors`."""
    for seed in range(200):
        node = sensors.node(seed)
        assert not node.voids(), seed
        assert node.with_fault(0.95).voids(), seed
        assert node.with_fault(1.05).voids(), seed
