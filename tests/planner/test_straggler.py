"""What waiting for the slowest node costs: exact, against simulation, and with measurement noise removed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.rates.straggler import Rates, Straggler, escape, fastest, quiet, stragglers, stretched
from tests.support import fleets


def pool(nodes: int, slow: int, by: float = 0.2) -> Rates:
    """`nodes` equal nodes, `slow` of them slower."""
    rates = np.ones(nodes)
    rates[:slow] = 1 - by
    return rates


def straggler(ordered: Rates, reference: float, chosen: int) -> Straggler:
    return stragglers(ordered, reference, np.array([chosen])).at(0)


@given(st.integers(1, 400), st.data())
def test_the_chances_are_those_of_drawing_without_replacement(nodes: int, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(1, nodes))
    found = escape(nodes, np.arange(nodes + 1), np.array([chosen]))[0]
    wanted = [math.comb(nodes - marked, chosen) / math.comb(nodes, chosen) for marked in range(nodes + 1)]
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)


def test_slow_nodes_cost_their_job_a_fifth() -> None:
    found = straggler(np.sort(pool(10_000, 100)), 1.0, 256)
    assert found.days == pytest.approx(0.813, abs=0.005)
    assert pool(10_000, 100).mean() == pytest.approx(0.998)
    assert straggler(np.sort(pool(300, 3)), 1.0, 256).days == pytest.approx(0.80, abs=0.005)
    gpus = np.array([1.0] * 7 + [0.8])
    assert gpus.mean() == pytest.approx(0.975)
    nodes = np.ones(16)
    nodes[0] = 8 * gpus.min() / 8
    assert straggler(np.sort(nodes), 1.0, 16).days == pytest.approx(0.8)


@pytest.mark.parametrize(("nodes", "chosen"), [(300, 256), (1000, 256), (5000, 1024), (64, 8)])
@pytest.mark.parametrize("seed", range(20))
def test_equal_nodes_with_one_percent_of_noise_are_not_called_slow(nodes: int, chosen: int, seed: int) -> None:
    noisy = np.random.default_rng(seed).normal(1, 0.01, nodes)
    known = quiet(noisy, 0.01)
    assert straggler(known, float(np.median(known)), chosen).days == pytest.approx(1.0, abs=0.005)
    assert straggler(np.sort(noisy), 1.0, chosen).days < 0.99


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_hide_slow_nodes(seed: int) -> None:
    truth = pool(1000, 10)
    noisy = truth * np.random.default_rng(seed).normal(1, 0.01, len(truth))
    known = quiet(noisy, 0.01)
    wanted = straggler(np.sort(truth), 1.0, 256).days
    assert straggler(known, float(np.median(known)), 256).days == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize(("error", "noise"), [(0.003, 0.003 / 3.182), (0.0107, 0.0022), (0.0197, 0.0087)])
def test_what_differs_between_runs_is_no_noise_of_a_run(error: float, noise: float) -> None:
    """0.98 % of a rate's half-width is the spread between runs: it is in the nodes' rates, and a job meets it."""
    nodes = fleets.pool("H100", fleets.node(rates=[fleets.rate(error=error)], count=4, passes=4))
    (found,) = pools(fleets.fleet(nodes), terms(fleets.spec(), fleets.NOW), fleets.NOW)
    (sample,) = found.samples.values()
    assert sample.noise == pytest.approx(noise, rel=0.01)


DISTRIBUTIONS = {
    "one percent slow": lambda rng, n: np.where(rng.random(n) < 0.01, 0.8, 1.0),
    "normal": lambda rng, n: rng.normal(1, 0.03, n),
    "long tail": lambda rng, n: 1 - np.minimum(rng.exponential(0.02, n), 0.6),
    "uniform": lambda rng, n: rng.uniform(0.85, 1.0, n),
    "two kinds": lambda rng, n: np.where(rng.random(n) < 0.3, 0.9, 1.0),
}


@pytest.mark.parametrize("chosen", [8, 64, 256, 1024])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_the_formula_agrees_with_simulation(kind: str, chosen: int) -> None:
    rng = np.random.default_rng(7)
    rates = np.sort(DISTRIBUTIONS[kind](rng, 2000))
    slowest = np.array([rng.choice(rates, chosen, replace=False).min() for _ in range(4000)])
    found = straggler(rates, 1.0, chosen)
    assert found.days == pytest.approx(1 / (1 / slowest).mean(), abs=0.004)
    assert found.low <= np.quantile(slowest, 0.1) + 1e-9
    assert found.high >= np.quantile(slowest, 0.9) - 1e-9


@pytest.mark.parametrize("chosen", [8, 64, 256])
@pytest.mark.parametrize("kind", ["one percent slow", "normal", "long tail", "two kinds"])
def test_with_noise_removed_it_still_agrees(kind: str, chosen: int) -> None:
    rng = np.random.default_rng(11)
    truth = DISTRIBUTIONS[kind](rng, 2000)
    known = quiet(truth * rng.normal(1, 0.01, len(truth)), 0.01)
    assert straggler(known, 1.0, chosen).days == pytest.approx(straggler(np.sort(truth), 1.0, chosen).days, abs=0.015)


def test_the_fastest_nodes_are_known_and_more_nodes_have_the_same_quantiles() -> None:
    assert fastest(np.sort(pool(300, 3)), 1.0, 256).days == 1.0
    assert fastest(np.sort(pool(300, 3)), 1.0, 298).days == 0.8
    assert stretched(np.array([0.8, 1.0]), 4).tolist() == [0.8, 0.8, 1.0, 1.0]
    assert stretched(np.arange(10.0), 5).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=60), st.floats(0, 0.05))
def test_quiet_rates_stay_among_the_measured_ones(rates: list[float], noise: float) -> None:
    found = quiet(np.array(rates), noise)
    assert len(found) == len(rates)
    assert np.all(np.diff(found) >= 0)
    assert found[0] >= min(rates) * (1 - 1e-9)
    assert found[-1] <= max(rates) * (1 + 1e-9)
