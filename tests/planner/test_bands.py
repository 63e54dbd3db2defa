"""How sure a rate is: parts, defaults, and pools of which only some nodes were measured.

With them the chance that deadlines are kept: of each job, and of all together.

What waiting for the slowest node costs: exact, against simulation, and with measurement noise removed.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sampled_pool import CHOSEN, MEASURED, NODES, SLOW, SLOW_RATE, kept, simulated
from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.answer.table import lines
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import Goodput
from precision_operator.planner.rates import bands
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.rates.failures import progress
from precision_operator.planner.rates.straggler import (
    SLOW_NODE_PRIOR,
    Rates,
    Straggler,
    escape,
    fastest,
    quiet,
    sampled,
    stragglers,
    stretched,
)
from precision_operator.planner.solving.options import Option
from tests.support.fleets import NOW, UNMEASURED, declared, fleet, job, node, pool, rate, spec

ROOT = Path(__file__).parents[2]
shares = st.floats(0.001, 0.4)
SCALING = [{"gpus": 8, "efficiency": "1"}, {"gpus": 2048, "efficiency": "0.9"}]


@given(st.lists(shares, min_size=1, max_size=5))
def test_normal_parts_add_in_quadrature(halves: list[float]) -> None:
    found = bands.combined([bands.BandPart("scaling", 1 - half, 1 + half) for half in halves])
    below = math.sqrt(sum(math.log(1 - half) ** 2 for half in halves))
    assert math.log(found.low) == pytest.approx(-below)
    assert found.low < found.promised < 1 < found.high


def test_a_law_with_two_values_is_not_taken_for_a_normal_one() -> None:
    """Nine draws in ten lie between the ends, and nine in ten pass what is promised, whatever the law."""
    law = bands.BandPart("slow nodes", 0.8, 1.1, values=(0.8,) * 16 + (1.1,) * 24)
    found = bands.combined([law, bands.BandPart("measurement", 0.98, 1.02)])
    rng = np.random.default_rng(3)
    draws = rng.choice(law.values, 20_000) * np.exp(rng.normal(0, 0.02 / bands.Z_95, 20_000))
    assert np.mean((found.low <= draws) & (draws <= found.high)) == pytest.approx(0.9, abs=0.02)
    assert np.mean(draws >= found.promised) == pytest.approx(0.9, abs=0.02)


def test_nine_in_ten_pass_what_is_promised_of_parts_whose_ends_differ() -> None:
    low, high = np.array([[0.6, 0.86], [0.75, 0.86], [1.0, 0.7]]), np.array([[1.0, 1.16], [1.05, 1.16], [1.0, 1.05]])
    z = np.random.default_rng(1).standard_normal((3, 1, 200_000))
    ends = np.where(z > 0, np.log(high)[..., None], -np.log(low)[..., None])
    draws = np.exp((ends * z / bands.Z_95).sum(axis=0))
    assert (draws >= bands.passed(low, high)[:, None]).mean(axis=1) == pytest.approx([0.9, 0.9], abs=0.005)


def test_goodput_never_passes_all_time_and_declared_rates_are_never_certain() -> None:
    assert progress(Goodput(0.97, 0.1), np.array([8])).high == 1.0
    given_none, given_some = option(declared()), option(declared(plusMinus="0.2"))
    assert given_none.speed.low < given_none.speed.tokens_per_second < given_none.speed.high
    assert given_some.speed.low < given_none.speed.low
    assert {part.name for part in given_none.speed.parts} == {"job rate", "goodput"}
    made = plan(spec(job(), goodput=None, goodputPlusMinus="0.02"), fleet(), NOW)
    assert [str(problem) for problem in made.problems] == [
        "spec.goodputPlusMinus: there is no goodput here for it to be of: give goodput too"
    ]


def option(*pools: dict[str, Any], **more: Any) -> Option:
    made = plan(spec(job(minGPUs=512, maxGPUs=512, tokens="10T"), pools=list(pools), **more), UNMEASURED, NOW)
    return made.solution.slots[0].option


def test_scaling_and_goodput_have_bands_of_their_own() -> None:
    points = [{"gpus": 256, "efficiency": "0.9"}, {"gpus": 512, "efficiency": "0.8", "plusMinus": "0.1"}]
    rates = declared()["jobRates"][0] | {"gpus": 256}
    found = option({**declared(), "jobRates": [rates], "scaling": points}, goodput="0.9", goodputPlusMinus="0.02")
    by_name = {part.name: part for part in found.speed.parts}
    assert (by_name["scaling"].low, by_name["goodput"].low) == (pytest.approx(0.9), pytest.approx(0.98))


PLACES: dict[str, Any] = {
    "spec.goodputPlusMinus": lambda text: {"goodput": "0.9", "goodputPlusMinus": text},
    "spec.pools[0].jobRates[0].plusMinus": lambda text: {"pools": [declared(plusMinus=text)]},
    "spec.pools[0].scaling[0].plusMinus": lambda text: {
        "pools": [declared() | {"scaling": [{"gpus": 64, "efficiency": "0.9", "plusMinus": text}]}]
    },
}


@pytest.mark.parametrize("text", ["1", "0.95", "0"])
@pytest.mark.parametrize("field", PLACES)
def test_a_plus_minus_that_says_nothing_is_refused_with_its_field(field: str, text: str) -> None:
    made = plan(spec(job(), **PLACES[field](text)), fleet(), NOW)
    assert [problem.field for problem in made.problems] == [field]


def test_a_deadline_is_planned_with_what_is_reached_nine_times_in_ten() -> None:
    free = option(declared())
    assert free.days < free.deadline_days < free.days_high
    late = f"{(free.days + free.deadline_days) / 2:.6f}"
    made = plan(spec(job(tokens="10T", minGPUs=512, deadlineDays=late), pools=[declared()]), UNMEASURED, NOW)
    assert made.solution is None
    assert made.conflict is not None


@pytest.mark.parametrize("number", MEASURED)
def test_of_a_sampled_pool_the_band_holds_what_jobs_meet(number: int) -> None:
    """1 % of 1,000 nodes at 0.8, jobs of 256: measured are `number` nodes, the others nobody knows."""
    found = simulated(number)
    assert found.held >= 0.88
    assert found.promised >= 0.88
    assert found.high / found.low < 1.6
    page = (ROOT / "docs" / "development" / "planner.md").read_text()
    assert f"| {number} | {found.held:.0%} | {found.low:.2f} to {found.high:.2f} |".replace("%", " %") in page


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_promises_are_kept_where_slow_nodes_differ_and_a_quarter_was_measured(share: float) -> None:
    """They are 5 to 35 % slower, all equally likely; jobs of 16 and of 64 nodes."""
    assert np.mean([kept(share, (0.65, 0.95), chosen, 400, 100, 1000) for chosen in (16, 64)]) >= 0.88


def test_a_measured_pool_needs_no_prior_and_more_nodes_promise_more() -> None:
    truth = np.ones(NODES)
    truth[:SLOW] = SLOW_RATE
    chosen = np.array([CHOSEN])
    found = stragglers(np.sort(truth), 1.0, chosen).at(0)
    almost = sampled(np.sort(truth)[1:], 1.0, NODES, chosen).at(0)
    assert found.low == pytest.approx(0.8)
    assert almost.days == pytest.approx(found.days, abs=0.01)
    laws = [sampled(np.ones(number), 1.0, NODES, np.array([16])).at(0) for number in (10, 40, 150, 600, 990)]
    found = [
        bands.combined([bands.BandPart("slow nodes", law.low, law.high, values=law.values)]).promised for law in laws
    ]
    assert found == sorted(found)
    assert found[0] < 1 - SLOW_NODE_PRIOR[0]
    assert found[-1] == 1.0


def test_nodes_that_nobody_measured_widen_a_plans_band() -> None:
    nodes = pool("H100", node("n", [rate(error=0.01)], count=40))
    scaling = [{"gpus": 8, "efficiency": "1"}, {"gpus": 8000, "efficiency": "0.9"}]

    def found(number: int) -> Option:
        pools = [{"name": "H100", "nodes": number, "scaling": scaling}]
        made = plan(spec(job(minGPUs=256, maxGPUs=256, tokens="1T"), pools=pools), fleet(nodes), NOW)
        return made.solution.slots[0].option

    measured, sampled_pool = found(40), found(1000)
    assert sampled_pool.speed.promised < measured.speed.promised
    assert "slow nodes" in {part.name for part in sampled_pool.speed.parts}


def test_only_measured_nodes_are_taken_for_fast_ones() -> None:
    nodes = [node("ok", [rate(error=0.01)], count=36), node("slow", [rate("bf16", 64_000.0, error=0.01)], count=4)]
    pools = [
        {"name": "H100", "nodes": 400, "scaling": [{"gpus": 8, "efficiency": "1"}, {"gpus": 3200, "efficiency": "1"}]}
    ]

    def found(gpus: int, placement: str) -> Option:
        asked = spec(job(minGPUs=gpus, maxGPUs=gpus, tokens="1T"), pools=pools, fleet={"placement": placement})
        made = plan(asked, fleet(pool("H100", *nodes)), NOW)
        assert any("only measured nodes are taken for fast ones" in note for note in made.notes) == (
            placement == "fastest"
        )
        return made.solution.slots[0].option

    among_measured, beyond = found(36 * 8, "fastest"), found(120 * 8, "fastest")
    assert among_measured.speed.straggler == pytest.approx(1.0)
    assert "slow nodes" not in {part.name for part in among_measured.speed.parts}
    assert beyond.speed.straggler == found(120 * 8, "random").speed.straggler < 0.9
    assert "slow nodes" in {part.name for part in beyond.speed.parts}


def made(*jobs: dict[str, Any], count: int = 64, error: float = 0.05, **pool_changes: Any) -> PlanAnswer:
    """A plan by cost on one pool with scaling and a price, noisy measurements, and a goodput that is known well."""
    nodes = fleet(pool("H100", node("n", [rate(error=error)], count=count)))
    own = {"name": "H100", "scaling": SCALING, "dollarsPerGPUHour": "2", "priceIncludesPower": True} | pool_changes
    return plan(spec(*jobs, pools=[own], objective=["cost"], goodput="0.9", goodputPlusMinus="0.01"), nodes, NOW)


def told(found: PlanAnswer) -> PlanStatus:
    assert found.solution is not None, found.problems
    return status(found)


def fixed(name: str, day: float | None = None, **more: Any) -> dict[str, Any]:
    deadline = {} if day is None else {"deadlineDays": f"{day:.6f}"}
    return job(name, minGPUs=64, maxGPUs=64, tokens="1T", **deadline, **more)


def lengths() -> tuple[float, float]:
    """Days of such a job: in the middle, and what suffices nine times in ten."""
    option = made(fixed("a")).solution.slots[0].option
    return option.days, option.deadline_days


def test_chances_are_the_same_each_time_nine_in_ten_nearly_certain_far_away_and_none_without_a_deadline() -> None:
    middle, careful = lengths()
    found = told(made(fixed("a", careful)))
    assert found.jobs[0].deadline == "promised"
    assert float(found.jobs[0].probability or 0) == pytest.approx(0.9, abs=0.01)
    one, other = (told(made(fixed("a", careful), fixed("b", 1.5 * careful))) for _ in range(2))
    assert one.model_dump_json() == other.model_dump_json()
    assert told(made(fixed("a", 3 * middle))).jobs[0].probability == "0.999"
    free = told(made(fixed("a")))
    assert (free.jobs[0].probability, free.totals.joint_probability) == (None, None)


def test_jobs_of_one_pool_or_one_after_the_other_are_late_together() -> None:
    """Two jobs, each kept nine times in ten: were they independent, both would be 81 % of the time."""
    _, careful = lengths()
    found = told(made(fixed("a", careful), fixed("b", careful)))
    together = float(found.totals.joint_probability or 0) if found.totals else 0.0
    assert 0.81 < together < min(float(each.probability or 0) for each in found.jobs) + 1e-9
    assert any(line.startswith("sure: ") and "all are kept with a chance of " in line for line in lines(found))
    found = told(made(fixed("a"), fixed("b", 2 * careful, after=["a"])))
    by_name = {each.name: each for each in found.jobs}
    assert by_name["a"].probability is None
    assert float(by_name["b"].probability or 0) == pytest.approx(0.9, abs=0.05)


def test_the_chances_are_those_of_plain_simulation() -> None:
    """Against draws that are neither stratified nor shared by name: of one job's parts."""
    middle, careful = lengths()
    day = (middle + careful) / 2
    found = made(fixed("a"))
    parts = found.solution.slots[0].option.speed.parts
    rng = np.random.default_rng(1)
    factors = np.ones(40_000)
    for part in parts:
        assert not part.values
        z = rng.normal(size=len(factors))
        factors *= np.exp(np.where(z > 0, np.log(part.high), -np.log(part.low)) * z / 1.6448536)
    wanted = float(np.mean(middle / factors <= day))
    # By the parts alone: the same job with that deadline would be given another size.
    from precision_operator.planner.answer.odds import _factors

    ours = float(np.mean(middle / _factors([found.solution.slots[0].option])["a"] <= day))
    assert ours == pytest.approx(wanted, abs=0.015)
    assert [part.name for part in parts] == ["measurement", "scaling", "goodput"]


def nodes_of_which_slow(nodes: int, slow: int) -> Rates:
    rates = np.ones(nodes)
    rates[:slow] = 0.8
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
    found = straggler(np.sort(nodes_of_which_slow(10_000, 100)), 1.0, 256)
    assert found.days == pytest.approx(0.813, abs=0.005)
    assert nodes_of_which_slow(10_000, 100).mean() == pytest.approx(0.998)
    assert straggler(np.sort(nodes_of_which_slow(300, 3)), 1.0, 256).days == pytest.approx(0.80, abs=0.005)
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


@pytest.mark.parametrize(("error", "noise"), [(0.003, 0.003 / 3.182), (0.0107, 0.0022), (0.0197, 0.0087)])
def test_what_differs_between_runs_is_no_noise_of_a_run(error: float, noise: float) -> None:
    """0.98 % of a rate's half-width is the spread between runs: it is in the nodes' rates, and a job meets it."""
    nodes = pool("H100", node(rates=[rate(error=error)], count=4, passes=4))
    (found,) = pools(fleet(nodes), terms(spec(), NOW), NOW)
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
    assert fastest(np.sort(nodes_of_which_slow(300, 3)), 1.0, 256).days == 1.0
    assert fastest(np.sort(nodes_of_which_slow(300, 3)), 1.0, 298).days == 0.8
    assert stretched(np.array([0.8, 1.0]), 4).tolist() == [0.8, 0.8, 1.0, 1.0]
    assert stretched(np.arange(10.0), 5).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=60), st.floats(0, 0.05))
def test_quiet_rates_stay_among_the_measured_ones(rates: list[float], noise: float) -> None:
    found = quiet(np.array(rates), noise)
    assert len(found) == len(rates)
    assert np.all(np.diff(found) >= 0)
    assert found[0] >= min(rates) * (1 - 1e-9)
    assert found[-1] <= max(rates) * (1 + 1e-9)
