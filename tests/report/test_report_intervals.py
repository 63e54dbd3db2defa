"""Intervals on the report page, in `compare` and of the quantisation tax, as people write them."""

from __future__ import annotations

from precision_agent.results.explain import _tax_value
from precision_api.exchange.result import Interval
from precision_operator.cli.compare_words import ratio_text
from precision_operator.core.results.ratios import Ratio
from precision_operator.report.figures.figure import spread_text
from tests.support.result_objects import recipe_result

NARROW = Interval(value=1.62, lower=1.61999, upper=1.62001, n=4)
WIDE = Interval(value=1.62, lower=1.58, upper=1.66, n=4)


def test_bounds_that_print_alike_are_left_out() -> None:
    assert [spread_text(each, unit="x") for each in (NARROW, WIDE)] == ["1.62x", "1.62x [1.58, 1.66]"]
    assert [ratio_text(Ratio(1.62, each, 4)) for each in (NARROW, WIDE)] == ["1.620", "1.620 [1.580, 1.660]"]
    taxes = [Interval(value=0.2, lower=0.2 - half, upper=0.2 + half, n=4) for half in (1e-5, 0.01)]
    rows = [recipe_result("mxfp8", quantization_tax=0.2, quantization_tax_interval=tax) for tax in taxes]
    assert [_tax_value(row) for row in rows] == ["20.0%", "20.0% (19.0% to 21.0%)"]
