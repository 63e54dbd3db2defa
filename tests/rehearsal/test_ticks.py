"""The sampler's clock in a rehearsal: it keeps its ticks on a machine that is too busy for them."""

from typing import Any

import pytest

from tests.rehearsal.ticks import SAMPLER, Ticks, is_sampler


class Busy:
    """A machine whose waits take `late` seconds longer than asked for."""

    def __init__(self, late: float) -> None:
        self.late, self.at, self.asked, self.told = late, 100.0, [0.0], [0.0]
        self.asked.clear()
        self.told.clear()

    def now(self) -> float:
        return self.at

    def wait(self, read: Any, write: Any, error: Any, timeout: float) -> tuple[list[Any], ...]:
        self.asked.append(timeout)
        self.at += timeout + self.late
        return [], [], []


@pytest.mark.parametrize("late", [0.0, 0.03, 2.0])
def test_the_sensor_is_asked_at_every_tick_however_late_the_process_wakes_up(late: float) -> None:
    machine = Busy(late)
    ticks = Ticks(machine.now, machine.wait, machine.told.append)
    seen = [ticks.monotonic()]
    for _ in range(20):
        ticks.select([], [], [], 0.05)
        seen.append(ticks.monotonic())
    assert seen == machine.told == pytest.approx([100 + 0.05 * tick for tick in range(21)])
    assert all(timeout >= 0 for timeout in machine.asked)


def test_late_ticks_are_made_up_for_by_the_sampler_alone() -> None:
    machine = Busy(late=1.0)
    ticks = Ticks(machine.now, machine.wait, machine.told.append)
    for _ in range(3):
        ticks.select([], [], [], 0.05)
    assert machine.asked == pytest.approx([0.05, 0.0, 0.0])
    assert is_sampler(["python", "-m", SAMPLER, "file", "0.05", "1", "GPU-0"])
    assert not is_sampler(["python", "-m", "precision_agent", "run", SAMPLER])
