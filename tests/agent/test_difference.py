"""Faster, slower, or no difference: beyond the variant's own interval and beyond the run's noise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.results.train import difference
from precision_api.exchange import stats
from precision_api.exchange.result import Interval


def ratio(value: float, half: float) -> Interval:
    return Interval(value=value, lower=value - half, upper=value + half, n=3)


QUIET = ratio(1.0, 0.001)


@pytest.mark.parametrize(
    ("variant", "control", "expected"),
    [
        (ratio(1.3, 0.01), QUIET, "faster"),
        (ratio(0.8, 0.01), QUIET, "slower"),
        (ratio(1.3, 0.31), QUIET, "no_difference"),
        (ratio(1.004, 0.0001), QUIET, "no_difference"),
        (ratio(1.02, 0.001), ratio(1.01, 0.015), "no_difference"),
        (ratio(1.03, 0.001), ratio(1.01, 0.015), "faster"),
        (ratio(0.97, 0.001), ratio(0.99, 0.015), "slower"),
        (ratio(1.006, 0.0005), None, "faster"),
    ],
)
def test_a_difference_needs_both(variant: Interval, control: Interval | None, expected: str) -> None:
    assert difference(variant, control) == expected


@given(st.floats(0.5, 2.0), st.floats(0, 0.2), st.floats(0.9, 1.1), st.floats(0, 0.1))
def test_nothing_within_the_noise_floor_is_a_difference(value: float, half: float, other: float, noise: float) -> None:
    variant, control = ratio(value, half), ratio(other, noise)
    told = difference(variant, control)
    if abs(value - 1) <= stats.noise_floor(control) or variant.lower <= 1 <= variant.upper:
        assert told == "no_difference"
    else:
        assert told == ("faster" if value > 1 else "slower")
