"""Which nodes are slow: one decision for status, metrics and alerts."""

from typing import Any

import pytest

from precision_api.kinds.report import ReportStatus
from precision_operator.core.results.outliers import Peers, judged
from precision_operator.core.results.reading import Reading, read
from tests.support.golden import beside
from tests.support.report_objects import FINISHED, recipe_row, report_status

TABLES = beside(__file__)

PERCENT = 5


def node(name: str, rate: float, profile: str = "nightly", driver: str = "580.95.05", **row: Any) -> Reading:
    found = report_status([recipe_row(**({"recipe": "bf16", "tokensPerSecond": f"{rate:.0f}"} | row))])
    found["software"]["driver"] = driver
    return read(name, "a", ReportStatus.model_validate(found), "ml", profile)


def like(name: str, rate: float = 1000, at: str = FINISHED, **changes: Any) -> Reading:
    """The same with changes of what it is compared by, as its report has them; `at`: when its run ended."""
    found = report_status(
        [recipe_row("bf16", tokensPerSecond=f"{rate:.0f}")],
        timing="1/quick",
        provenance="measured",
        simulated=[],
        finishedAt=at,
    )
    for part in ("hardware", "software", "run"):
        found[part] |= changes.get(part, {})
    return read(name, "a", ReportStatus.model_validate(found), changes.get("namespace", "ml"), "repair")


def slow(*nodes: Reading) -> list[str]:
    return [one.node for one in judged(nodes, PERCENT) if one.slow]


EVEN = (node("n1", 1000), node("n2", 1001), node("n3", 999), node("n4", 1000))


def test_a_slow_gpu_in_eight_makes_the_node_slow_and_the_slowest_comes_first() -> None:
    assert slow(*EVEN, node("bad", 975, gpuSpread="0.8205")) == ["bad"]
    assert slow(*EVEN, node("sum-alone", 975)) == []
    judgements = judged((*EVEN, node("b", 800), node("c", 700)), PERCENT)
    assert [(one.node, round(one.relative, 2), one.slow) for one in judgements[:2]] == [
        ("c", 0.7, True),
        ("b", 0.8, True),
    ]


def test_nodes_are_held_against_their_like_of_the_same_driver_and_layers() -> None:
    assert slow(*EVEN, *[node(f"d{i}", 920 + i, driver="585.10") for i in range(4)]) == []
    assert slow(*EVEN, *(node(f"d{i}", 920 + i) for i in range(3))) != []
    for of_fleet, of_odd in (
        ({"lastLayersBF16": 0}, {"lastLayersBF16": 5}),
        ({"recipe": "ours.nnnnnb"}, {"recipe": "ours.nmnnnb"}),
    ):
        fleet = [node(f"n{i}", 1000, **of_fleet) for i in range(4)]
        odd = node("odd", 800, **of_odd)
        peers = Peers((*fleet, odd))
        assert "odd" not in {one.node for one in peers.judged((*fleet, odd), PERCENT)}


def test_throttled_nodes_shift_no_reference_and_are_judged_all_the_same() -> None:
    hot = [node(f"hot{i}", 900, throttledShare="0.2", throttleReason="hardware_thermal") for i in range(5)]
    judgements = judged((*EVEN, *hot), PERCENT)
    assert {one.node for one in judgements if one.slow} == {f"hot{i}" for i in range(5)}
    assert {round(one.relative, 3) for one in judgements if one.slow} == {0.9}
    alone = {node: (said.facts["peers"], said.facts["differs"]) for node, said in Peers(hot).alone(hot)}
    assert alone["hot0"] == (0, "; 4 more like it were throttled, fell back or lack its recipes")


def test_a_node_without_a_figure_is_not_judged_and_one_that_fell_back_shifts_no_reference() -> None:
    fell = [node(f"fell{i}", 900, verdict="fallback") for i in range(5)]
    assert slow(*EVEN, *fell) == [f"fell{i}" for i in range(5)]
    assert "silent" not in {one.node for one in judged((*EVEN, node("silent", 1, tokensPerSecond=None)), PERCENT)}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_with_fewer_than_three_others_nobody_is_judged_and_that_is_said(count: int) -> None:
    assert judged(EVEN[:count], PERCENT) == ()
    alone = [(said.facts["peers"], said.facts["differs"]) for _, said in Peers(EVEN[:count]).alone(EVEN[:count])]
    assert alone == [(count - 1, "")] * count


def test_of_a_node_with_two_results_the_newest_counts_and_repaired_ones_have_peers() -> None:
    repaired = node("n4", 800, profile="repair")
    [one] = Peers((*EVEN[:3], repaired)).judged((repaired,), PERCENT)
    assert (one.node, round(one.relative, 2), one.slow, one.peers) == ("n4", 0.8, True, ("n1", "n2", "n3"))
    before, after = (like("n4", rate, at) for rate, at in ((800, FINISHED), (1000, "2027-01-01T00:00:00Z")))
    fleet = [like(f"n{i}") for i in range(3)]
    for mine in (before, after):
        assert [one.slow for one in Peers((*fleet, after, before)).judged((mine,), PERCENT)] == [False]


@pytest.mark.parametrize(("changes", "differs"), TABLES["different"].values(), ids=TABLES["different"])
def test_a_node_that_differs_is_compared_with_nobody_and_is_told_in_what(changes: dict[str, Any], differs: str) -> None:
    fleet = [like(f"n{i}") for i in range(4)]
    odd = like("odd", 500, **changes)
    peers = Peers((*fleet, odd))
    assert "odd" not in {one.node for one in peers.judged((*fleet, odd), PERCENT)}
    alone = [(node, *said.facts.values()) for node, said in peers.alone((*fleet, odd))]
    assert alone == [("odd", 0, 3, differs and f"; {differs}")]


@pytest.mark.parametrize("changes", [{"software": {"agent": "0.2.0"}}, {"hardware": {"pool": "rack-7"}}])
def test_our_own_version_and_the_pool_part_nobody(changes: dict[str, Any]) -> None:
    odd = like("odd", 500, **changes)
    assert [one.node for one in Peers((*(like(f"n{i}") for i in range(4)), odd)).judged((odd,), PERCENT)] == ["odd"]


def rows(name: str, profile: str = "deep", at: str = FINISHED, **rates: float | None) -> Reading:
    """A node with these rates by recipe; None: its recipe failed."""
    found = [
        recipe_row(recipe, tokensPerSecond=None if rate is None else f"{rate:.0f}") for recipe, rate in rates.items()
    ]
    return read(name, "a", ReportStatus.model_validate(report_status(found, finishedAt=at)), "ml", profile)


FAST = {"bf16": 1000.0, "mxfp8": 1500.0}
DEEP = [rows(f"n{i}", **FAST) for i in range(4)]
ODD: dict[str, tuple[list[Reading], Reading, tuple[str, float]]] = {
    "another list of recipes": (DEEP, rows("odd", "repair", bf16=800, fp8_current=900), ("bf16", 0.8)),
    "the best recipe failed": (DEEP, rows("odd", bf16=500, mxfp8=None), ("bf16", 0.5)),
    "a later profile of another list": (
        [*DEEP, *(rows(f"n{i}", "shallow", "2027-01-01T00:00:00Z", bf16=1000) for i in range(4))],
        rows("odd", bf16=1000, mxfp8=750),
        ("mxfp8", 0.5),
    ),
}


@pytest.mark.parametrize(("fleet", "odd", "judgement"), ODD.values(), ids=ODD)
def test_a_node_is_judged_by_its_own_profiles_best_recipe_that_enough_others_have(
    fleet: list[Reading], odd: Reading, judgement: tuple[str, float]
) -> None:
    [one] = Peers((*fleet, odd)).judged((odd,), PERCENT)
    assert (one.recipe, round(one.relative, 2), one.slow) == (*judgement, True)


def test_a_group_of_which_nothing_changed_is_kept() -> None:
    before = Peers(EVEN)
    other = node("n9", 1, driver="590.1")
    assert Peers((*EVEN, other), before).groups[EVEN[0].peers] is before.groups[EVEN[0].peers]
    assert Peers(EVEN[:3], before).groups[EVEN[0].peers] is not before.groups[EVEN[0].peers]
