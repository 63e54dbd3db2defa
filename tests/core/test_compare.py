"""Two sides held against each other: pairs beat groups, one difference at a time, noise is called noise."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.results.compare import Comparison, Refused, compare
from precision_operator.core.results.sides import DIMENSIONS, ComparedFigure, Point, Setting, Side

HERE = Setting("GB200", "570", "te-2.8", "llama3-8b", "bf16", "measured")


def point(node: str, rate: float, joules: float | None = None, setting: Setting = HERE, **changes: object) -> Point:
    return replace(Point(node, setting, (ComparedFigure("nvfp4", rate, None, joules),)), **changes)  # type: ignore[arg-type]


def side(name: str, *points: Point) -> Side:
    return Side(name, points)


def made(found: Comparison | Refused) -> Comparison:
    assert isinstance(found, Comparison), found
    return found


def refused(found: Comparison | Refused) -> Refused:
    assert isinstance(found, Refused), found
    return found


NEW_DRIVER = replace(HERE, driver="580")
rates = st.lists(st.floats(1e3, 1e6), min_size=2, max_size=20)


@given(rates, st.floats(0.5, 2.0))
def test_a_change_that_is_the_same_on_every_node_is_found_exactly(found: list[float], change: float) -> None:
    a = side("a", *(point(f"n{i}", rate) for i, rate in enumerate(found)))
    b = side("b", *(point(f"n{i}", rate * change, setting=NEW_DRIVER) for i, rate in enumerate(found)))
    (row,) = made(compare(a, b)).rows
    assert row.rate.value == pytest.approx(change)
    expected = "no_difference" if abs(change - 1) <= 0.005 else "more" if change > 1 else "less"
    assert abs(abs(change - 1) - 0.005) < 1e-9 or row.rate.answer == expected


@given(rates, rates)
def test_turned_round_the_ratio_is_its_inverse(first: list[float], second: list[float]) -> None:
    shared = min(len(first), len(second))
    a = side("a", *(point(f"n{i}", rate) for i, rate in enumerate(first[:shared])))
    b = side("b", *(point(f"n{i}", rate, setting=NEW_DRIVER) for i, rate in enumerate(second[:shared])))
    there, back = made(compare(a, b)).rows[0].rate, made(compare(b, a)).rows[0].rate
    assert there.value * back.value == pytest.approx(1)
    assert there.interval.lower * back.interval.upper == pytest.approx(1)


@given(st.integers(2, 12), st.integers(2, 12), st.floats(0.8, 1.25))
def test_two_groups_without_spread_give_the_ratio_itself(n: int, m: int, change: float) -> None:
    a = side("a", *(point(f"a{i}", 1e5) for i in range(n)))
    b = side("b", *(point(f"b{i}", 1e5 * change, setting=replace(HERE, hardware="H100")) for i in range(m)))
    comparison = made(compare(a, b))
    assert (comparison.how, comparison.difference) == ("groups", "hardware")
    assert comparison.rows[0].rate.value == pytest.approx(change)


def test_intervals_are_the_textbooks_of_medians_and_of_one_nodes_two_runs() -> None:
    a = side("a", *(point(f"a{i}", math.exp(x)) for i, x in enumerate((1.0, 2.0, 3.0))))
    b = side("b", *(point(f"b{i}", math.exp(x)) for i, x in enumerate((2.0, 4.0, 6.0))))
    rate = made(compare(a, b)).rows[0].rate
    # Bonett and Price: rank 1 of 3, P = 1/8, z = 1.15035, se = (high - low) / 2z = 0.86930 and 1.73860;
    # Welch's df = 2 (se_a^2 + se_b^2)^2 / (se_a^4 + se_b^4) = 2.94 -> 2, t = 4.3027
    assert math.log(rate.value) == pytest.approx(2)
    assert math.log(rate.interval.upper) == pytest.approx(2 + 4.302653 * math.hypot(0.869301, 1.738603), rel=1e-5)
    a = Point("n", HERE, (ComparedFigure("nvfp4", 1e5, 0.003),))
    b = Point("n", NEW_DRIVER, (ComparedFigure("nvfp4", 1.02e5, 0.004),))
    rate = made(compare(side("a", a), side("b", b))).rows[0].rate
    assert (rate.interval.upper - rate.interval.lower) / 2 / rate.value == pytest.approx(0.005)
    assert rate.answer == "more"


def test_pairs_find_what_groups_of_the_same_figures_cannot() -> None:
    spread = [1e5 * (1 + 0.05 * i) for i in range(6)]
    a = side("a", *(point(f"n{i}", rate) for i, rate in enumerate(spread)))
    better = [rate * 1.02 * (1 + 0.0005 * (i % 2)) for i, rate in enumerate(spread)]
    paired = side("b", *(point(f"n{i}", rate, setting=NEW_DRIVER) for i, rate in enumerate(better)))
    apart = side("b", *(point(f"m{i}", rate, setting=NEW_DRIVER) for i, rate in enumerate(better)))
    assert made(compare(a, paired)).rows[0].rate.answer == "more"
    assert made(compare(a, apart)).rows[0].rate.answer == "not_known"


def scattered(count: int) -> tuple[Side, Side]:
    """Nodes whose rates under a new driver lie 2 % above and below what they were, by turns."""
    a = side("a", *(point(f"n{i}", 1e5) for i in range(count)))
    b = side("b", *(point(f"n{i}", 1e5 * (1.02 if i % 2 else 1 / 1.02), setting=NEW_DRIVER) for i in range(count)))
    return a, b


def test_few_nodes_do_not_show_equality_and_wild_ones_name_no_number() -> None:
    few = made(compare(*scattered(4))).rows[0].rate
    assert few.interval.lower < 0.97
    assert few.answer == "not_known"
    # spread s = ln 1.02 x sqrt(4/3) of the logarithms; t(n - 1) s / sqrt(n) <= ln 1.02 from 8 on: 2.36 x 1.155 / 2.83
    assert few.nodes_needed == 8
    enough = made(compare(*scattered(8))).rows[0].rate
    assert (enough.answer, enough.nodes_needed) == ("no_difference", 7)
    a = side("a", *(point(f"n{i}", 1e5) for i in range(4)))
    b = side("b", *(point(f"n{i}", 1e5 * (9.0 if i % 2 else 1 / 9), setting=NEW_DRIVER) for i in range(4)))
    rate = made(compare(a, b)).rows[0].rate
    assert (rate.answer, rate.nodes_needed) == ("not_known", None)


def powered(node: str, joules: float, scope: str, setting: Setting = HERE) -> Point:
    return Point(node, setting, (ComparedFigure("nvfp4", 1e5, None, joules, power_scope=scope),))


@pytest.mark.parametrize("second", ["n", "m"])
def test_tokens_per_joule_of_gpus_and_of_modules_are_never_compared(second: str) -> None:
    a = side("a", *(powered(f"n{i}", 10.0, "gpu") for i in range(3)))
    b = side("b", *(powered(f"{second}{i}", 7.0, "module", NEW_DRIVER) for i in range(3)))
    comparison = made(compare(a, b))
    assert comparison.rows[0].tokens_per_joule is None
    assert "tokens per joule are not compared: a has watts of gpu, b of module" in comparison.notes


@pytest.mark.parametrize("name", DIMENSIONS)
def test_each_dimension_may_be_the_one_difference(name: str) -> None:
    other = replace(HERE, **{name: "other"})
    comparison = compare(
        side("a", point("n", 1.0), point("m", 1.0)),
        side("b", point("n", 2.0, setting=other), point("m", 2.0, setting=other)),
    )
    assert (made(comparison).difference, made(comparison).now) == (name, "other")


@pytest.mark.parametrize("name", [name for name in DIMENSIONS if name != "driver"])
def test_any_two_differences_are_refused_and_named(name: str) -> None:
    other = replace(NEW_DRIVER, **{name: "other"})
    for second in ("n", "m"):
        refusal = refused(compare(side("a", point("n", 1.0)), side("b", point(second, 2.0, setting=other))))
        assert refusal.reason == "SeveralDifferences"
        assert name in refusal.message
        assert "driver" in refusal.message


def test_nodes_that_differ_in_more_are_left_out_where_one_difference_is_named() -> None:
    both = replace(NEW_DRIVER, software="te-2.9")
    a = side("a", *(point(f"n{i}", 1e5) for i in range(3)))
    b = side(
        "b", point("n0", 1e5, setting=NEW_DRIVER), point("n1", 1e5, setting=NEW_DRIVER), point("n2", 9e5, setting=both)
    )
    assert refused(compare(a, b)).reason == "SeveralDifferences"
    comparison = made(compare(a, b, "driver"))
    assert (comparison.rows[0].rate.nodes, comparison.rows[0].rate.value) == (2, pytest.approx(1.0))
    assert "1 node is left out, since it differs in more than driver" in comparison.notes


def test_nodes_on_which_nothing_has_changed_do_not_dilute_the_difference() -> None:
    a = side("a", *(point(f"n{i}", 1e5) for i in range(4)))
    b = side(
        "b",
        point("n0", 5e4, setting=NEW_DRIVER),
        point("n1", 5e4, setting=NEW_DRIVER),
        point("n2", 1e5),
        point("n3", 1e5),
    )
    comparison = made(compare(a, b))
    assert comparison.rows[0].rate.value == pytest.approx(0.5)
    assert "2 nodes are left out: nothing has changed on them" in comparison.notes


def test_what_was_not_recorded_or_is_told_shorter_is_no_difference() -> None:
    old = Setting(driver="570")
    comparison = made(compare(side("a", point("n", 1.0, setting=old)), side("b", point("n", 1.0, setting=NEW_DRIVER))))
    assert comparison.difference == "driver"
    assert any("hardware, software, workload, method, data" in note for note in comparison.notes)
    long, short = replace(HERE, driver="580.95.05"), replace(HERE, driver="580.95")
    for other in ("n", "m"):
        comparison = compare(side("a", point("n", 1.0, setting=short)), side("b", point(other, 1.0, setting=long)))
        assert made(comparison).difference is None
    later = replace(HERE, driver="580.9")
    comparison = compare(side("a", point("n", 1.0, setting=later)), side("b", point("n", 1.0, setting=long)))
    assert made(comparison).difference == "driver"


@pytest.mark.parametrize(("count", "said"), [(1, "1 node is in a only, and left out"), (2, "2 nodes are in a only")])
def test_one_node_is_told_in_the_singular(count: int, said: str) -> None:
    more = [point(f"m{i}", 1.0) for i in range(count)]
    comparison = made(compare(side("a", point("n", 1.0), *more), side("b", point("n", 1.0))))
    assert comparison.notes[0].startswith(said)


def test_throttled_nodes_stay_in_pairs_and_are_left_out_of_groups() -> None:
    hot = Point("n1", HERE, (ComparedFigure("nvfp4", 1e4, throttled=True),))
    paired = made(compare(side("a", point("n0", 1e5), hot), side("b", point("n0", 1e5), point("n1", 1e4))))
    assert paired.rows[0].rate.nodes == 2
    assert "1 node was throttled on one side or both; it is in the figures" in paired.notes
    groups = made(compare(side("a", point("n0", 1e5), hot), side("b", point("m0", 1e5))))
    assert groups.rows[0].rate.value == pytest.approx(1.0)
    assert "left out, since throttled: 1 node with nvfp4" in groups.notes


def test_a_node_that_a_mean_would_follow_is_named_and_a_little_one_not() -> None:
    a = side("a", *(point(f"a{i}", 1e5 + i) for i in range(9)), point("late", 8e4))
    b = side("b", *(point(f"b{i}", 1.2e5 + i, setting=replace(HERE, hardware="H100")) for i in range(10)))
    comparison = made(compare(a, b))
    assert comparison.rows[0].rate.value == pytest.approx(1.2, abs=1e-4)
    (named,) = [text for text in comparison.notes if "late" in text]
    assert named == (
        "nvfp4: late gives 80.0% of the median of a; a mean over nodes would follow that to 1.227, "
        "the medians give 1.200"
    )
    a = side("a", *(point(f"a{i}", 1e5 * (1 + 0.01 * i)) for i in range(6)))
    b = side("b", *(point(f"b{i}", 1e5 * (1 + 0.012 * i)) for i in range(6)))
    assert made(compare(a, b)).notes == ()


def test_what_one_side_lacks_is_no_row_and_an_empty_side_is_refused() -> None:
    comparison = made(compare(side("a", point("n", 1.0, joules=1.0)), side("b", point("n", 1.0))))
    assert comparison.rows[0].tokens_per_joule is None
    refusal = refused(compare(side("driver 570"), side("b", point("n", 1.0))))
    assert (refusal.reason, "driver 570 has no usable figure" in refusal.message) == ("NothingInCommon", True)
