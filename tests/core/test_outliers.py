"""Which nodes are slow: one decision for status, metrics and alerts."""

from __future__ import annotations

from typing import Any

import pytest

from precision_api.kinds.report import ReportStatus
from precision_operator.core.results.outliers import judged
from precision_operator.core.results.reading import Reading, read
from tests.support.report_objects import recipe_row, report_status

PERCENT = 5


def node(name: str, rate: float, pool: str = "a", driver: str = "580.95.05", **row: Any) -> Reading:
    found = report_status([recipe_row("bf16", **({"tokensPerSecond": f"{rate:.0f}"} | row))])
    found["software"]["driver"] = driver
    return read(name, pool, ReportStatus.model_validate(found))


def slow(*nodes: Reading) -> list[str]:
    return [one.node for one in judged(nodes, PERCENT) if one.slow]


EVEN = (node("n1", 1000), node("n2", 1001), node("n3", 999), node("n4", 1000))


def test_a_slow_gpu_in_eight_makes_the_node_slow_though_its_sum_is_near_the_others() -> None:
    one_gpu_20_percent_slow = node("bad", 975, gpuSpread="0.8205")
    assert slow(*EVEN, one_gpu_20_percent_slow) == ["bad"]
    assert slow(*EVEN, node("sum-alone", 975)) == []


def test_nodes_are_held_against_their_like_of_the_same_driver() -> None:
    newer = [node(f"d{i}", 920 + i, driver="585.10") for i in range(4)]
    assert slow(*EVEN, *newer) == []
    assert slow(*EVEN, *(node(f"d{i}", 920 + i) for i in range(3))) != []


def test_throttled_nodes_shift_no_reference_and_are_judged_all_the_same() -> None:
    hot = [node(f"hot{i}", 900, throttledShare="0.2", throttleReason="hardware_thermal") for i in range(5)]
    found = judged((*EVEN, *hot), PERCENT)
    assert {one.node for one in found if one.slow} == {f"hot{i}" for i in range(5)}
    assert {round(one.relative, 3) for one in found if one.slow} == {0.9}


def test_a_node_that_fell_back_shifts_no_reference_and_is_judged_all_the_same() -> None:
    fell = [node(f"fell{i}", 900, verdict="fallback") for i in range(5)]
    assert slow(*EVEN, *fell) == [f"fell{i}" for i in range(5)]


def test_the_slowest_comes_first_with_its_rate_over_the_median() -> None:
    found = judged((*EVEN, node("b", 800), node("c", 700)), PERCENT)
    assert [(one.node, round(one.relative, 2), one.slow) for one in found[:2]] == [("c", 0.7, True), ("b", 0.8, True)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_with_fewer_than_three_to_compare_with_nobody_is_judged(count: int) -> None:
    assert judged(EVEN[:count], PERCENT) == ()


def test_a_node_without_a_figure_is_not_judged() -> None:
    silent = node("silent", 1, tokensPerSecond=None)
    assert "silent" not in {one.node for one in judged((*EVEN, silent), PERCENT)}
