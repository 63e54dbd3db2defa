"""Figures of a pool from its nodes: medians with intervals that suppose nothing, ranges where there are too few.

Intervals on the report page, in `compare` and of the quantisation tax, as people write them.
"""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.results.explain import _tax_value
from precision_api.exchange.result import Interval
from precision_operator.cli.commands.compare import ratio_text
from precision_operator.core.results.intervals import median_spread
from precision_operator.core.results.ratios import Ratio
from precision_operator.drawing.svg import Scale, round_step
from precision_operator.report.facts import pools, reading_of_result
from precision_operator.report.figures.figure import spread_text
from precision_operator.report.figures.table import _column, table
from tests.report.sample import fleet, fleet_page, full_result, node_page
from tests.support.result_objects import recipe_result, result

values = st.lists(st.floats(1, 1e6), min_size=2, max_size=60)
NARROW = Interval(value=1.62, lower=1.61999, upper=1.62001, n=4)
WIDE = Interval(value=1.62, lower=1.58, upper=1.66, n=4)


@given(values)
def test_the_median_lies_within_its_bounds_and_bounds_are_nodes_figures(found: list[float]) -> None:
    spread = median_spread(found)
    assert spread.lower <= spread.value <= spread.upper
    assert spread.value == median(found)
    assert {spread.lower, spread.upper} <= set(found)


@pytest.mark.parametrize("n", [6, 7, 15, 100, 999])
def test_the_interval_covers_at_least_95_per_cent_and_no_narrower_one_would(n: int) -> None:
    spread = median_spread([float(i) for i in range(n)])
    below = int(spread.lower)

    def outside(rank: int) -> float:
        return 2 * sum(math.comb(n, i) for i in range(rank + 1)) / 2**n

    assert spread.kind == "interval"
    assert outside(below) <= 0.05 < outside(below + 1)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_too_few_nodes_have_a_range_and_it_is_called_so(n: int) -> None:
    spread = median_spread([float(i) for i in range(n)])
    assert (spread.kind, spread.lower, spread.upper) == ("range", 0.0, n - 1.0)


def test_a_saved_result_tells_the_same_as_its_report_would() -> None:
    (pool,) = pools(node_page(nodes=(reading_of_result(full_result()),)))
    assert (pool.name, pool.gpus, pool.baseline) == ("GB200", 4, "bf16")
    assert (pool.best.recipe, pool.best.speedup.value) == ("nvfp4", pytest.approx(1.62, abs=0.001))


def test_without_a_known_peak_the_page_says_so_and_shows_no_share_of_one() -> None:
    known = full_result()
    recipes = tuple(
        row.model_copy(update={"training": row.training and row.training.model_copy(update={"mfu": None})})
        for row in known.recipes
    )
    figure = table(known.model_copy(update={"recipes": recipes}))
    (shares,) = (row[1:] for row in figure.rows if row[0] == "MFU")
    assert set(shares) <= {"unknown", "–"}
    assert "unknown" in shares
    assert f"MFU: the peak of {known.gpus[0].name} is unknown." in figure.caption


def test_pools_come_largest_first_and_stale_nodes_are_not_judged() -> None:
    assert [pool.name for pool in pools(fleet_page())] == ["NVIDIA-GB200", "NVIDIA-H100-80GB-HBM3"]
    stale = {node.node for node in fleet() if node.stale}
    assert stale
    assert stale.isdisjoint(one.node for one in fleet_page().judged)


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e9))
def test_ticks_are_round_few_and_within_the_scale(low: float, wide: float) -> None:
    ticks = Scale(low, low + wide, 0, 100).ticks()
    assert len(ticks) <= 12
    assert all(low - wide * 1e-6 <= tick <= low + wide * (1 + 1e-6) for tick in ticks)
    assert round_step(wide) >= wide * 0.998


def test_a_rate_has_the_same_bounds_by_the_report_as_by_the_full_result() -> None:
    rate = Interval(value=1000.0, lower=800.0, upper=1250.0, n=4)
    plain = recipe_result("bf16")
    rows = (plain.model_copy(update={"training": plain.training.model_copy(update={"tokens_per_second": rate})}),)
    bounds = reading_of_result(result(recipes=rows)).intervals("bf16")["tokens_per_second"]
    assert (bounds.value, bounds.lower, bounds.upper) == pytest.approx((1000.0, 800.0, 1250.0), rel=1e-3)


def test_bounds_that_print_alike_are_left_out() -> None:
    assert [spread_text(each, unit="x") for each in (NARROW, WIDE)] == ["1.62x", "1.62x [1.58, 1.66]"]
    assert len({spread_text(Interval(value=it, lower=it, upper=it, n=4), 0) for it in (133549.6, 133550.0)}) == 1
    assert [ratio_text(Ratio(1.62, each, 4)) for each in (NARROW, WIDE)] == ["1.620", "1.620 [1.580, 1.660]"]
    taxes = [Interval(value=0.2, lower=0.2 - half, upper=0.2 + half, n=4) for half in (1e-5, 0.01)]
    rows = [recipe_result("mxfp8", quantization_tax=0.2, quantization_tax_interval=tax) for tax in taxes]
    assert [_tax_value(row) for row in rows] == ["20.0%", "20.0% (19.0% to 21.0%)"]
    bound = recipe_result("mxfp8", quantization_tax=0.2, quantization_tax_most=0.3)
    assert _column(bound, True)["quantisation tax"] == "at least 20.0%"
