"""The statistics against known values, independent computations and simulated truth.

Decimals as custom resources hold them: no exponent, no artefacts of a float; and sentences, cut between words.
"""

import math
import re
import statistics
from collections.abc import Callable
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.exchange import stats
from precision_api.exchange.result import Interval
from precision_api.facts.plain_text import shortened
from precision_api.facts.schema import DECIMAL_PATTERN, decimal

positive = st.floats(min_value=1e-9, max_value=1e9)
positives = st.lists(positive, min_size=2, max_size=12)


def t_probability(t: float, df: int) -> float:
    """P(T <= t) by Simpson's rule over the density, which knows nothing of the code under test."""
    steps = 2_000
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    width = t / steps

    def density(x: float) -> float:
        return float(scale * (1 + x * x / df) ** (-(df + 1) / 2))

    inner = sum((4 if i % 2 else 2) * density(i * width) for i in range(1, steps))
    return float(0.5 + width / 3 * (density(0) + inner + density(t)))


@pytest.mark.parametrize("df", [*range(1, 40), 60, 63, 100, 200, 5000])
def test_the_t_quantile_leaves_two_and_a_half_per_cent_above_it(df: int) -> None:
    assert t_probability(stats.t_quantile(df), df) == pytest.approx(0.975, abs=1e-7)


def test_mean_intervals_are_those_of_a_worked_example_and_stay_above_0() -> None:
    # mean 3; logarithms 0 to ln 5 have s = 0.635507; t(4) = 2.776445: e^(t s / sqrt 5) = 2.201390
    found = stats.mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.value, found.n, found.upper / found.value) == (3.0, 5, pytest.approx(2.201390, abs=1e-6))
    assert found.value / found.lower == pytest.approx(2.201390, abs=1e-6)
    seconds = [0.4, 1.0, 0.2, 3.0]
    plain = fmean(seconds) - stats.t_quantile(3) * stdev(seconds) / 2
    found = stats.mean_interval(seconds)
    assert plain < 0 < found.lower < found.value == fmean(seconds)


def test_an_interval_of_a_rate_has_two_spreads_and_percentiles_are_numpys() -> None:
    still, moving = stats.rate_interval([100.0] * 4), stats.rate_interval([98.0, 99.0, 101.0, 102.0])
    assert math.log(still.upper / 100) == pytest.approx(stats.Z_975 * stats.BETWEEN_RUNS)
    # logarithms over that of 100: s = 0.018268, of the mean 0.009134; the halves -0.015127 and 0.014877
    assert math.log(moving.upper / 100) == pytest.approx(stats.Z_975 * math.hypot(0.005, 0.009134, 0.030003), rel=1e-4)
    assert (moving.value, moving.n) == (100.0, 4)
    with pytest.raises(ValueError):
        stats.rate_interval([1.0])
    assert stats.percentile([10.0, 20.0, 30.0, 40.0], 0.9) == pytest.approx(37.0)
    assert stats.mad([1.0, 1.1, 0.9, 1.0, 99.0]) == pytest.approx(0.1)


@pytest.mark.parametrize(("spread", "least"), [(0.003, 0.94), (0.3, 0.94), (0.6, 0.92)])
def test_intervals_of_levels_hold_the_true_mean_also_where_noise_is_great(spread: float, least: float) -> None:
    chance, truth = Random(7), math.exp(spread**2 / 2)
    nodes = [[chance.lognormvariate(0.0, spread) for _ in range(4)] for _ in range(4000)]
    found = [stats.mean_interval(seconds) for seconds in nodes]
    assert sum(one.lower <= truth <= one.upper for one in found) / len(found) >= least


@given(positives)
def test_a_mean_lies_within_its_interval_and_equal_values_leave_no_width(values: list[float]) -> None:
    found = stats.mean_interval(values)
    assert found.lower <= found.value <= found.upper
    same = stats.mean_interval([values[0]] * 3)
    assert same.upper - same.lower <= 1e-12 * values[0]


@given(positives, st.floats(min_value=0.1, max_value=10.0))
def test_the_ratio_of_a_series_to_its_multiple_is_that_multiple(values: list[float], factor: float) -> None:
    found = stats.paired_ratio([factor * value for value in values], values)
    assert found.value == pytest.approx(factor, rel=1e-9)
    assert found.upper - found.lower <= 1e-6 * factor


@given(positives, st.randoms(use_true_random=False))
def test_a_ratio_turned_over_is_its_inverse_with_swapped_bounds(values: list[float], chance: Random) -> None:
    others = [value * chance.uniform(0.5, 2) for value in values]
    one, other = stats.paired_ratio(values, others), stats.paired_ratio(others, values)
    assert (one.value * other.value, one.lower * other.upper) == (pytest.approx(1), pytest.approx(1))


def test_pairing_removes_a_shared_drift_and_sums_keep_it() -> None:
    drift = [1.0, 1.3, 0.8, 1.1]
    found = stats.paired_ratio([2 * d for d in drift], drift)
    assert found.upper - found.lower < 1e-9
    assert stats.sums([[1.0, 2.0], [10.0, 20.0]], [3, 1]) == (13.0, 26.0)
    drift = [1.0, 1.1, 0.9]
    shared = stats.mean_interval(stats.sums([drift, drift], [1, 1]))
    alone = stats.mean_interval(drift)
    assert (shared.lower, shared.upper) == pytest.approx((2 * alone.lower, 2 * alone.upper))


def ratio(value: float, half: float) -> Interval:
    return Interval(value=value, lower=value - half, upper=value + half, n=3)


@pytest.mark.parametrize(
    ("arm", "control", "expected"),
    [
        (ratio(1.30, 0.01), ratio(1.001, 0.002), True),
        (ratio(0.80, 0.01), ratio(1.001, 0.002), True),
        (ratio(1.30, 0.31), ratio(1.001, 0.002), False),
        (ratio(1.004, 0.001), None, False),
        (ratio(1.02, 0.001), ratio(1.01, 0.015), False),
        (ratio(1.006, 0.001), None, True),
    ],
    ids=["faster", "slower", "its interval holds 1", "below half a per cent", "within the control", "no control"],
)
def test_a_difference_needs_its_own_interval_and_the_control(arm: Interval, control: Interval, expected: bool) -> None:
    assert stats.differs(arm, control) is expected


@pytest.mark.parametrize(
    ("control", "floor"),
    [(None, 0.005), (ratio(1.0, 0.002), 0.005), (ratio(1.004, 0.003), 0.007), (ratio(0.99, 0.001), 0.011)],
    ids=["no control", "quiet", "its distance and half-width", "a control below 1"],
)
def test_the_noise_floor_is_the_controls_distance_and_half_width_or_half_a_per_cent(
    control: Interval | None, floor: float
) -> None:
    assert stats.noise_floor(control) == pytest.approx(floor)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_intervals_cover_the_truth_in_95_of_100_simulated_runs(n: int) -> None:
    chance = Random(n)
    runs = 4000

    def covers() -> bool:
        arm, baseline = ([scale * math.exp(chance.gauss(0, 0.01)) for _ in range(n)] for scale in (2.0, 1.0))
        found = stats.paired_ratio(arm, baseline)
        return found.lower <= 2 <= found.upper

    # 3.5 standard deviations of a binomial of this size are 0.012
    assert sum(covers() for _ in range(runs)) / runs == pytest.approx(0.95, abs=0.012)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_percentiles_are_ordered_and_agree_with_the_median(values: list[float]) -> None:
    low, mid, high = (stats.percentile(values, share) for share in (0.1, 0.5, 0.9))
    assert min(values) <= low <= mid <= high <= max(values)
    assert mid == pytest.approx(statistics.median(values), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: stats.t_quantile(0), "at least 1"),
        (lambda: stats.mean_interval([1.0]), "at least 2"),
        (lambda: stats.mean_interval([1.0, 0.0]), "positive"),
        (lambda: stats.paired_ratio([1.0, 0.0], [1.0, 1.0]), "positive values"),
        (lambda: stats.paired_ratio([1.0, 1.0], [1.0, -1.0]), "positive values"),
        (lambda: stats.paired_ratio([1.0], [1.0, 1.0]), "pairs must match: 1 numerators, 2 denominators"),
        (lambda: stats.sums([[1.0], [1.0, 2.0]], [1, 1]), "same number"),
        (lambda: stats.percentile([1.0], -0.1), "between 0 and 1"),
        (lambda: stats.percentile([1.0], 1.1), "between 0 and 1"),
        (lambda: stats.mad([]), "no median for empty data"),
    ],
)
def test_what_has_no_statistic_is_an_error(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wrong()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (12345.7, "12345.7"),
        (1234567.89, "1234570"),
        (1e-9, "0.000000001"),
        (-0.0, "0"),
        (100.0, "100"),
        (None, None),
    ],
)
def test_a_number_is_told_as_a_person_would_write_it(value: float | None, text: str | None) -> None:
    assert decimal(value) == text


@given(st.floats(min_value=-1e15, max_value=1e15).filter(lambda value: value == 0 or abs(value) > 1e-5))
def test_no_more_digits_are_told_than_were_asked_for_and_the_schema_takes_them(value: float) -> None:
    text = decimal(value) or ""
    assert re.fullmatch(DECIMAL_PATTERN, text)
    assert len(text.lstrip("-0.").replace(".", "").rstrip("0")) <= 6
    assert float(text) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("it fits", 7, "it fits"),
        ("the loss was not measured here", 20, "the loss was not ..."),
        ("supercalifragilistic", 10, "superc ..."),
    ],
)
def test_a_sentence_ends_with_a_whole_word(text: str, limit: int, cut: str) -> None:
    assert shortened(text, limit) == cut


@given(st.text("ab c", min_size=0, max_size=60), st.integers(8, 60))
def test_what_is_cut_holds_and_all_its_words_are_the_texts_own(text: str, limit: int) -> None:
    found = shortened(text, limit)
    assert len(found) <= limit
    if found != text and " " in text[: limit - 3].strip():
        assert text.split()[: len(found.removesuffix(" ...").split())] == found.removesuffix(" ...").split()
