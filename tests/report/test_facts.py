"""Figures of a pool from its nodes: medians with intervals that suppose nothing, ranges where there are too few."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.results.intervals import median_spread
from precision_operator.drawing.svg import Scale, round_step
from precision_operator.report.facts import pools, reading_of_result
from precision_operator.report.figures.table import table
from tests.report.sample import fleet, fleet_page, full_result, node_page

values = st.lists(st.floats(1, 1e6), min_size=2, max_size=60)


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
    assert pool.best.recipe == "nvfp4"
    assert pool.best.speedup.value == pytest.approx(1.62, abs=0.001)


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
