"""Intervals on the report page, as people write them."""

from __future__ import annotations

from precision_api.exchange.result import Interval
from precision_operator.report.figures.figure import spread_text


def test_bounds_that_print_alike_are_left_out() -> None:
    assert spread_text(Interval(value=1.62, lower=1.6199, upper=1.6201, n=4), unit="x") == "1.62x"
    assert spread_text(Interval(value=1.62, lower=1.58, upper=1.66, n=4), unit="x") == "1.62x [1.58, 1.66]"
