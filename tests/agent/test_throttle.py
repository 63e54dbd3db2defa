"""How long the clocks were held back: from counters, from samples, or not known; and what marks a figure."""

import pytest

from precision_agent.power.throttle import ThrottleReading, marking, pooled, shares
from precision_api.exchange.result import ThrottleShare


def throttle(reason: str, share: float, sampled: bool = False) -> ThrottleShare:
    return ThrottleShare(reason=reason, share=share, sampled=sampled)


def counted(field: int, *nanoseconds: int) -> list[ThrottleReading]:
    """One reading a second."""
    return [ThrottleReading(float(at), {field: value}) for at, value in enumerate(nanoseconds)]


def test_a_counters_difference_within_the_window_is_a_share_of_at_most_all() -> None:
    assert shares(counted(269, 0, 10**8, 5 * 10**8), 0.0, 2.0) == (throttle("software_thermal", 0.25),)
    assert [one.share for one in shares(counted(270, 0, 10**9, 10**9, 10**9), 1.0, 3.0)] == [0.0]
    assert [one.share for one in shares(counted(74, 0, 1_040_000_000), 0.0, 1.0)] == [1.0]


@pytest.mark.parametrize(
    "readings",
    [counted(271, 5), counted(271, 10**9, 0), []],
    ids=["a single reading", "a counter that went back", "nothing"],
)
def test_what_can_not_be_known_is_left_out_rather_than_zero(readings: list[ThrottleReading]) -> None:
    assert shares(readings, 0.0, 5.0) == ()


def test_without_a_counter_the_sampled_reasons_tell_and_say_that_they_were_sampled() -> None:
    masks = [0x4, 0x4 | 0x80, 0x4, 0x4]
    readings = [ThrottleReading(float(at), {74: at * 10**9}, mask) for at, mask in enumerate(masks)]
    found = {one.reason: one for one in shares(readings, 0.0, 3.0)}
    assert found["power_cap"] == throttle("power_cap", 1.0)
    assert found["power_brake"] == throttle("power_brake", 0.25, sampled=True)


@pytest.mark.parametrize(
    ("reason", "share", "marked"),
    [
        ("power_cap", 0.9, False),
        ("hardware_thermal", 0.0009, False),
        ("hardware_thermal", 0.0011, True),
        ("software_thermal", 0.5, True),
        ("power_brake", 0.002, True),
    ],
)
def test_heat_and_brake_above_a_tenth_of_a_percent_mark_a_figure_and_the_cap_never(
    reason: str, share: float, marked: bool
) -> None:
    assert (marking([throttle(reason, share)]) is not None) == marked


def test_the_worst_reason_marks_and_windows_pool_by_their_time() -> None:
    found = marking([throttle("power_brake", 0.01), throttle("software_thermal", 0.2)])
    assert found.reason == "software_thermal"
    brake, sampled = throttle("power_brake", 0.1), throttle("power_brake", 0.5, sampled=True)
    found = pooled([(3.0, [brake]), (1.0, [sampled]), (10.0, [])])
    assert [(one.reason, one.sampled) for one in found] == [("power_brake", True)]
    assert found[0].share == pytest.approx(0.2)
