"""Do 95 % intervals hold the truth in 95 of 100 runs? 4,000 simulated nodes for each kind of noise, in seconds.

The order, the slots and the timings are the product's own: each slot has its GEMMs and its training step, and both
figures are held to everything. The pairing is worked out for all nodes at once, and held against the product's own
arithmetic on a sample of them.
"""

from functools import cache

import numpy as np
import pytest

from precision_agent.results.train import difference
from precision_api.exchange import stats
from precision_api.exchange.request import TIMINGS
from tests.support import noise as sim

CASES = [(noise, preset) for noise in sim.NOISES for preset in TIMINGS]


@cache
def found_for(noise: str, preset: str, equal: bool) -> dict[sim.Kind, sim.Ratios]:
    timing = TIMINGS[preset]
    seconds = sim.seconds_by_variant(sim.NOISES[noise], sim.abba_order(timing), timing, seed=1 + equal, equal=equal)
    return {kind: sim.ratios(sim.units_of(seconds[kind])) for kind in sim.KINDS}


@pytest.mark.parametrize(("noise", "preset"), CASES)
def test_the_vectorised_pairing_is_the_products_own(noise: str, preset: str) -> None:
    timing = TIMINGS[preset]
    seconds = sim.seconds_by_variant(sim.NOISES[noise], sim.abba_order(timing, 40), timing, seed=5, equal=True)[
        "training"
    ]
    units = sim.units_of(seconds)
    ratios, different = sim.ratios(units), sim.called_different(sim.ratios(units))
    for node in range(40):
        one = [
            stats.paired_ratio(units[node, :, sim.BASELINE].tolist(), units[node, :, variant].tolist())
            for variant in (1, 2, 5)
        ]
        for interval, variant in zip(one, (1, 2, 5), strict=True):
            assert interval.value == pytest.approx(ratios.value[node, variant], rel=1e-12)
            assert interval.lower == pytest.approx(ratios.lower[node, variant], rel=1e-12)
            assert interval.upper == pytest.approx(ratios.upper[node, variant], rel=1e-12)
        told = [difference(interval, one[2]) != "no_difference" for interval in one[:2]]
        assert told == different[node, :2].tolist()


@pytest.mark.parametrize("kind", sim.KINDS)
@pytest.mark.parametrize(("noise", "preset"), CASES)
def test_abba_blocks_intervals_hold_the_truth_and_differ_on_one_equal_node_in_twenty(
    noise: str, preset: str, kind: sim.Kind
) -> None:
    found = found_for(noise, preset, equal=False)[kind]
    assert sim.covers(found), sim.coverage(found)
    assert sim.called_different(found_for(noise, preset, equal=True)[kind]).mean(axis=0).max() <= 0.05


@pytest.mark.parametrize("preset", list(TIMINGS))
@pytest.mark.parametrize("within", list(sim.RUNS))
def test_intervals_of_rates_hold_the_long_run_rate_on_93_to_97_of_100_days(within: str, preset: str) -> None:
    """A run's t-interval, as ratios have it, holds that day's rate in 84 % of runs, in 47 % that warm up."""
    low, high = sim.BAND
    rates, _ = sim.rates_of_runs(sim.RUNS[within], TIMINGS[preset], seed=1)
    assert low <= sim.holds(rates, stats.rate_interval)[0] <= high


@pytest.mark.parametrize("preset", list(TIMINGS))
def test_where_all_that_moves_a_rate_is_twice_as_large_three_of_four_intervals_still_hold_it(preset: str) -> None:
    rates, _ = sim.rates_of_runs(sim.RUNS["warm-up and drift"], TIMINGS[preset], seed=1, size=2)
    assert sim.holds(rates, stats.rate_interval)[0] >= 0.75


@pytest.mark.parametrize("kind", sim.KINDS)
@pytest.mark.parametrize("preset", list(TIMINGS))
def test_half_widths_keep_the_goals_where_clocks_drift_with_both_figures_in_a_slot(preset: str, kind: sim.Kind) -> None:
    assert sim.half_width(found_for(sim.DRIFT, preset, equal=True)[kind]) <= sim.HALF_WIDTH_GOALS[preset]


@pytest.mark.parametrize("preset", list(TIMINGS))
def test_neither_single_sweeps_nor_an_abba_blocks_two_are_units(preset: str) -> None:
    """One sweep in one direction, again and again, each a unit: warm-up then always favours the later variant."""
    timing, noise = TIMINGS[preset], sim.NOISES["warm-up 1 % over 120 s"]
    for seconds in sim.seconds_by_variant(noise, sim.repeated_order(timing), timing, seed=1).values():
        ratios = sim.ratios(seconds)
        assert not sim.covers(ratios)
        assert sim.coverage(ratios).max() < sim.BAND[0], sim.coverage(ratios)
    timing, noise = TIMINGS[preset], sim.Noise(sim.warm_up, 0.0003)
    seconds = sim.seconds_by_variant(noise, sim.abba_order(timing), timing, seed=1)["training"]
    whole, halves = sim.ratios(sim.units_of(seconds)), sim.ratios(seconds)
    assert sim.covers(whole), sim.coverage(whole)
    assert not sim.covers(halves), sim.coverage(halves)


@pytest.mark.parametrize("preset", list(TIMINGS))
def test_a_steady_drift_falls_out_of_every_ratio(preset: str) -> None:
    """What the mirrored half is for: without it, each ratio would keep the drift between its two variants."""
    timing = TIMINGS[preset]
    drifting = sim.Noise(lambda moments, nodes, chance: np.broadcast_to(1e-5 * moments, (nodes, len(moments))), 0.0)
    for seconds in sim.seconds_by_variant(drifting, sim.abba_order(timing, 100), timing, seed=1, equal=True).values():
        ratios = sim.ratios(sim.units_of(seconds))
        assert np.abs(ratios.value - 1).max() < 1e-6
        assert (ratios.upper - ratios.lower).max() < 1e-5


def test_a_true_difference_beyond_the_noise_is_found_on_nearly_every_node() -> None:
    timing = TIMINGS["quick"]
    seconds = sim.seconds_by_variant(sim.NOISES["white 0.3 %"], sim.abba_order(timing), timing, seed=3)["training"]
    power = dict(
        zip(
            (variant.label for variant in sim.VARIANTS[1 : sim.CONTROL]),
            sim.called_different(sim.ratios(sim.units_of(seconds))).mean(axis=0),
            strict=True,
        )
    )
    assert min(power["a"], power["b"], power["d"]) > 0.95
    assert power["c"] < 0.05  # 0.2 % is below the floor of half a per cent
