"""Intervals on the report page, in `compare` and of the quantisation tax, as people write them."""

import pytest

from precision_agent.results.explain import _tax_value
from precision_api.exchange.result import Interval
from precision_operator.cli.commands.compare import ratio_text
from precision_operator.core.results.ratios import Ratio
from precision_operator.report.facts import _rate, reading_of_result
from precision_operator.report.figures.figure import spread_text
from precision_operator.report.figures.table import _column
from tests.support.result_objects import recipe_result, result

NARROW = Interval(value=1.62, lower=1.61999, upper=1.62001, n=4)
WIDE = Interval(value=1.62, lower=1.58, upper=1.66, n=4)


def test_a_rate_has_the_same_bounds_by_the_report_as_by_the_full_result() -> None:
    rate = Interval(value=1000.0, lower=800.0, upper=1250.0, n=4)
    plain = recipe_result("bf16")
    rows = (plain.model_copy(update={"training": plain.training.model_copy(update={"tokens_per_second": rate})}),)
    bounds = _rate(reading_of_result(result(recipes=rows)).rows["bf16"])
    assert bounds == pytest.approx((1000.0, 800.0, 1250.0), rel=1e-3)


def test_bounds_that_print_alike_are_left_out() -> None:
    assert [spread_text(each, unit="x") for each in (NARROW, WIDE)] == ["1.62x", "1.62x [1.58, 1.66]"]
    assert len({spread_text(Interval(value=it, lower=it, upper=it, n=4), 0) for it in (133549.6, 133550.0)}) == 1
    assert [ratio_text(Ratio(1.62, each, 4)) for each in (NARROW, WIDE)] == ["1.620", "1.620 [1.580, 1.660]"]
    taxes = [Interval(value=0.2, lower=0.2 - half, upper=0.2 + half, n=4) for half in (1e-5, 0.01)]
    rows = [recipe_result("mxfp8", quantization_tax=0.2, quantization_tax_interval=tax) for tax in taxes]
    assert [_tax_value(row) for row in rows] == ["20.0%", "20.0% (19.0% to 21.0%)"]
    bound = recipe_result("mxfp8", quantization_tax=0.2, quantization_tax_most=0.3)
    assert _column(bound, True)["quantisation tax"] == "at least 20.0%"
