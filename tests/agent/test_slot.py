"""How the seconds of a slot are shared out, and that energy gets what it needs of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.method.slot import slot_of
from precision_agent.power.energy import LIMITS
from precision_api.exchange.request import TIMINGS, Timing

SLOW_SENSOR_SECONDS = 0.15
"""A slow sensor: 150 ms from one update to the next."""
LATE_SECONDS = 0.05
"""How much later than the first the last GPU of a node may begin a power window."""


@pytest.mark.parametrize("preset", list(TIMINGS))
def test_power_windows_suffice_and_steps_keep_time_for_several_micro_batches(preset: str) -> None:
    timing = TIMINGS[preset]
    windows = 2 * timing.passes
    seconds = slot_of(timing, gemms=True, training=True, metered=True).power - LATE_SECONDS
    assert windows * seconds >= LIMITS.seconds
    assert windows * int(seconds / SLOW_SENSOR_SECONDS) >= LIMITS.updates
    assert slot_of(TIMINGS[preset], gemms=True, training=True, metered=True).training >= 0.4


@given(
    passes=st.integers(2, 64),
    segment=st.floats(0.01, 60),
    gemms=st.booleans(),
    training=st.booleans(),
    metered=st.booleans(),
)
def test_each_kind_of_figure_has_one_segment(
    passes: int, segment: float, gemms: bool, training: bool, metered: bool
) -> None:
    slot = slot_of(Timing(passes=passes, segment_seconds=segment, discard_seconds=0.5), gemms, training, metered)
    assert slot.timed == pytest.approx(segment * (gemms + training))
    assert slot.seconds == pytest.approx(0.5 + slot.timed + slot.between)
    assert (slot.training > 0) == training
    assert (slot.power > 0) == (training and metered)
    assert not slot.power or 0.199 <= slot.training / segment <= 0.501
