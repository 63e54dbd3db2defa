"""Loss runs: what is healthy, what learns nothing, what turns round late, and the distance from the baseline.

Loss runs: the tokens' entropy is what it says, and a run diverges by the rules and by nothing else.
"""

import math
from collections import Counter
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.cases import cases_of
from precision_agent.method.learning import difference, diverged_step, in_words, learnt, loss_of, loss_run
from precision_agent.method.loss import CHANCES, Divergence, divergence, sequence, source
from precision_agent.protocol import LossPlan, LossTrack
from precision_agent.results.profiling import Looking, losses_of
from precision_agent.results.train import Measured
from precision_agent.sampling.sample import Samples
from precision_api.exchange.request import LossRuns, MeasurementRequest
from precision_api.exchange.result import Failure, Loss, LossRun
from precision_api.models.workload import resolve
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.result_objects import request_text

VOCABULARY = 128_256
CHAIN = source(VOCABULARY, 0)
START = math.log(VOCABULARY)
SEEDS = (0, 1, 2)
FALLING = [11.0 - 0.2 * step for step in range(50)]
CALM = [1.0] * 50


def falling(steps: int = 50, floor: float = 2.0, pace: float = 8.0) -> list[float]:
    return [floor + (START - floor) * math.exp(-step / pace) for step in range(steps)]


def noisy(loss: list[float], chance: Random, sigma: float) -> list[float]:
    return [value + sigma * chance.gauss() for value in loss]


def rising(loss: list[float], nats: float, steps: int) -> list[float]:
    """The last `steps` rise to `nats` above where they begin."""
    kept = loss[: len(loss) - steps]
    return kept + [kept[-1] + nats * (step + 1) / steps for step in range(steps)]


def run(loss: list[float], seed: int = 0, norms: tuple[float, ...] = ()) -> LossRun:
    return loss_run(seed, CHAIN, VOCABULARY, loss, norms)


def told(runs: list[LossRun], baseline: list[LossRun] | None = None) -> Loss:
    return loss_of(runs, CHAIN, VOCABULARY, baseline or [])


def test_what_stays_or_falls_by_a_fiftieth_learns_nothing_a_rise_that_is_over_is_healthy_divergence_an_end() -> None:
    output = run([START] * 50, norms=(0.0,) * 50)
    assert (output.verdict, output.reason) == ("not_learning", "loss_stayed")
    assert (output.diverged_step, len(output.loss)) == (None, 50)
    way = START - CHAIN.entropy
    slow = [[START - share * way * step / 49 for step in range(50)] for share in (0.1, 0.02)]
    assert [run(loss).verdict for loss in slow] == ["healthy", "not_learning"]
    stuck = [START, *[START - 0.4 * way + 0.01 * (step % 3) for step in range(49)]]
    assert run(stuck).verdict == run(falling(), norms=(1.0,) * 40 + (0.0,) * 10).verdict == "not_learning"
    bump = [value + (0.3 if 20 <= step < 25 else 0.0) for step, value in enumerate(falling(pace=4))]
    assert run(bump).verdict == "healthy"
    loss = falling()
    loss[11:14] = [math.nan] * 3
    output = run(loss, seed=7, norms=(1.0,) * 50)
    assert (output.seed, output.diverged_step, output.reason, output.verdict) == (7, 12, "non_finite", "diverged")
    assert (len(output.loss), len(output.gradient_norm), output.loss[-1]) == (12, 12, None)


@pytest.mark.parametrize("sigma", [0.01, 0.05, 0.1])
def test_noise_around_a_guess_at_random_is_no_learning(sigma: float) -> None:
    assert run(noisy([START] * 50, Random(1), sigma)).verdict == "not_learning"


@pytest.mark.parametrize(("nats", "steps"), [(0.3, 5), (0.3, 10), (0.4, 10), (0.4, 20)])
@pytest.mark.parametrize("sigma", [0.0, 0.02])
def test_a_loss_that_rises_at_the_end_below_a_divergence_is_diverging(nats: float, steps: int, sigma: float) -> None:
    output = run(noisy(rising(falling(pace=4), nats, steps), Random(2), sigma))
    assert (output.verdict, output.reason, output.diverged_step) == ("diverging", "loss_rose_late", None)
    assert len(output.loss) == 50


def test_the_worst_seed_is_the_recipes_verdict() -> None:
    healthy, still = run(falling(), 0), run([START] * 50, 1)
    turning, gone = run(rising(falling(pace=4), 0.4, 10), 2), run([*falling(), 99.0], 3)
    assert {told(runs).verdict for runs in ([healthy], [healthy, still])} == {"healthy", "not_learning"}
    assert told([still, turning]).verdict == "diverging"
    both = told([turning, gone])
    assert (both.verdict, diverged_step(both)) == ("diverged", 51)
    assert diverged_step(None) is None
    assert told([]).verdict is None


def test_each_verdict_but_healthy_has_words_and_keeps_a_recipe_from_being_named() -> None:
    words = {one: in_words(Loss(verdict=one)) for one in ("not_learning", "diverging", "diverged")}
    assert len(set(words.values())) == 3
    assert all(words.values())
    assert (in_words(None), in_words(Loss()), in_words(Loss(verdict="healthy"))) == ("", "", "")
    assert [learnt(Loss(verdict=one)) for one in ("healthy", "diverging", "not_learning")] == [True, False, False]
    assert learnt(None)


def test_200_noisy_but_sound_recipes_of_three_seeds_give_at_most_two_false_alarms() -> None:
    """Plateaus between 0 and 2.5 nats above the entropy, reached within 3 to 25 steps, steps as noisy as 512 tokens'
    are (0.03 nats) to three times that."""
    chance, alarms = Random("sound"), []
    for number in range(200):
        floor, pace = CHAIN.entropy + chance.uniform(0, 2.5), chance.uniform(3, 25)
        sigma = chance.uniform(0.01, 0.1)
        runs = [run(noisy(falling(50, floor, pace), chance, sigma), seed) for seed in SEEDS]
        if told(runs).verdict != "healthy":
            alarms.append((number, floor, pace, sigma))
    assert len(alarms) <= 2, alarms


def test_a_sound_recipe_at_three_seeds_is_healthy_with_its_distance_from_the_baseline_and_its_band() -> None:
    chance = Random(3)
    common = [noisy(falling(), chance, 0.05) for _ in SEEDS]  # equal seeds see equal tokens
    baseline = [run(loss, seed) for seed, loss in zip(SEEDS, common, strict=True)]
    runs = [run([value + 0.02 + 0.003 * chance.gauss() for value in loss], seed) for seed, loss in enumerate(common)]
    found = told(runs, baseline)
    assert (found.verdict, found.entropy, found.start) == ("healthy", CHAIN.entropy, START)
    distance = found.difference
    assert (distance.seeds, distance.steps) == (3, 10)
    assert distance.lower < 0.02 < distance.upper
    assert distance.upper - distance.lower < 0.02  # the tokens' noise of 0.05 has fallen out


def test_the_band_holds_the_true_distance_as_often_as_it_says() -> None:
    chance, held = Random(4), 0
    for _ in range(300):
        base = [run(falling(), seed) for seed in SEEDS]
        offsets = [0.03 + 0.01 * chance.gauss() for _ in SEEDS]
        runs = [run([value + offset for value in falling()], seed) for seed, offset in enumerate(offsets)]
        distance = difference(runs, base)
        assert distance.lower is not None
        assert distance.upper is not None
        held += distance.lower <= 0.03 <= distance.upper
    assert 0.92 < held / 300 < 0.98


def test_one_seed_has_a_distance_without_a_band_and_seeds_that_diverged_are_left_out() -> None:
    base = [run(falling(), seed) for seed in SEEDS]
    one = difference([run(falling(floor=2.1), 0)], base)
    assert (one.nats, one.lower, one.upper, one.seeds) == (pytest.approx(0.1, abs=0.01), None, None, 1)
    two = difference([run(falling(floor=2.1), 0), run([*falling(49), 99.0], 1), run(falling(floor=2.1), 2)], base)
    assert two.seeds == 2
    assert difference([run([*falling(49), 99.0], 1)], base) is None
    assert difference([run(falling(), 9)], base) is None


def request(**changes: object) -> MeasurementRequest:
    return MeasurementRequest.model_validate_json(request_text(gpus=1, recipes=("bf16", "nvfp4"), **changes))


def losses(asked: MeasurementRequest, backend: FakeBackend, late: object = None) -> dict[str, Loss]:
    devices, cases = devices_of(backend), cases_of(asked, resolve(asked.workload))
    measured = Measured(cases, Samples(0, {}, {}), resolve(asked.workload), devices.machine().names)
    stops = SimpleNamespace(everything=late or (lambda: None))
    return losses_of(Looking(devices, asked, measured, cases.variants, stops))  # type: ignore[arg-type]


def test_at_the_deadline_the_seeds_that_all_recipes_ran_are_kept() -> None:
    ended: list[int] = []

    def track(variant: object, plan: LossPlan) -> LossTrack:
        ended.append(plan.seed)
        return LossTrack(tuple(falling(10)), (1.0,) * 10)

    def late() -> Failure | None:
        return Failure(reason="deadline") if len(ended) >= 2 else None

    found = losses(request(loss=LossRuns(steps=10, seeds=3)), FakeBackend(losses=track), late)
    assert {label: len(loss.runs) for label, loss in found.items()} == {"bf16": 1, "nvfp4": 1}
    assert found["nvfp4"].difference is not None
    assert losses(request(loss=LossRuns(steps=10)), FakeBackend(losses=track), late) == {}


def test_a_recipe_whose_runs_failed_has_the_reason_and_the_others_are_judged() -> None:
    def track(variant: object, plan: LossPlan) -> LossTrack | Failure:
        failed = getattr(variant, "recipe", "") == "bf16"
        return Failure(reason="out_of_memory") if failed else LossTrack(tuple(falling(10)), (1.0,) * 10)

    found = losses(request(loss=LossRuns(steps=10, seeds=2)), FakeBackend(losses=track))
    assert found["bf16"].failure is not None
    assert (found["nvfp4"].verdict, found["nvfp4"].difference) == ("healthy", None)


def test_the_entropy_of_tokens_is_what_the_source_says_and_equal_seeds_give_equal_ones_of_no_small_vocabulary() -> None:
    chain = source(128_256, seed=1)
    tokens = sequence(chain, 200_000, seed=2)
    pairs, firsts = Counter(pairwise(tokens)), Counter(tokens[:-1])
    seen = -sum(count / (len(tokens) - 1) * math.log(count / firsts[first]) for (first, _), count in pairs.items())
    assert seen == pytest.approx(chain.entropy, abs=0.01)
    assert chain.entropy == pytest.approx(0.8018, abs=1e-4)
    assert set(tokens) <= set(range(128_256))
    chain = source(512, seed=1)
    assert sequence(chain, 64, 3) == sequence(source(512, seed=1), 64, 3)
    assert sequence(chain, 64, 3) != sequence(chain, 64, 4)
    assert source(512, seed=2) != chain
    with pytest.raises(ValueError, match="at least 3 tokens, not 2"):
        source(2, 0)


@given(st.integers(3, 300_000), st.integers(0, 5))
def test_every_state_has_distinct_successors_of_the_vocabulary(vocabulary: int, seed: int) -> None:
    chain = source(vocabulary, seed)
    assert len(set(chain.tokens)) == len(chain.tokens) <= vocabulary
    for successors in chain.successors:
        assert len(set(successors)) == len(CHANCES)
        assert max(successors) < len(chain.tokens)


def changed(values: list[float], at: int, to: list[float]) -> list[float]:
    """`values` with those from step `at` (counted from 1) on replaced."""
    return values[: at - 1] + to + values[at - 1 + len(to) :]


@pytest.mark.parametrize(
    ("loss", "norms", "expected"),
    [
        (FALLING, CALM, None),
        (FALLING, [], None),
        (changed(FALLING, 12, [math.nan]), CALM, Divergence(12, "non_finite")),
        (changed(FALLING, 1, [math.inf]), CALM, Divergence(1, "non_finite")),
        (FALLING, changed(CALM, 7, [math.inf]), Divergence(7, "non_finite")),
        (changed(FALLING, 20, [FALLING[18] + 0.49]), CALM, None),
        (changed(FALLING, 20, [FALLING[18] + 0.51]), CALM, Divergence(20, "loss_rose")),
        (FALLING, changed(CALM, 30, [11.0, 11.0]), None),
        (FALLING, changed(CALM, 30, [11.0, 11.0, 11.0]), Divergence(32, "gradient_norm_rose")),
        (FALLING, [0.05, 0.05, *CALM[2:]], None),
        (FALLING, changed(CALM, 30, [9.9] * 9), None),
        (FALLING, changed(CALM, 30, [11.0, 11.0, 5.0, 11.0, 11.0]), None),
    ],
    ids=[
        "healthy", "without norms", "NaN", "infinite at once", "an infinite norm", "a small rise",
        "a rise above half a nat", "two steps of a large norm", "three steps of a large norm",
        "a norm that grows as layers wake up",
        "a norm below ten times its median", "large norms that are not in a row",
    ],
)  # fmt: skip
def test_a_run_diverges_by_these_rules(loss: list[float], norms: list[float], expected: Divergence | None) -> None:
    assert divergence(loss, norms) == expected


EARLY = [5.1, 4.4, 4.0, 3.95, 4.1, 4.68, 3.3, 3.0, 2.8, 2.6, 2.4]
"""The first steps of a sound run of 256 tokens a step, which goes to 1.05."""


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (EARLY, None),
        (changed(EARLY, 6, [5.2]), Divergence(6, "loss_rose")),
        (changed(EARLY, 10, [5.0]), None),
        (changed(EARLY, 11, [4.6]), Divergence(11, "loss_rose")),
    ],
    ids=["a jump", "above the first step", "the tenth step", "the eleventh"],
)
def test_in_its_first_ten_steps_a_run_diverges_above_the_first_ones_loss_only(
    loss: list[float], expected: Divergence | None
) -> None:
    assert divergence(loss) == expected


def test_steps_that_jump_by_half_a_nat_all_along_are_no_divergence() -> None:
    """As with few tokens a step; a rise beyond that is one all the same."""
    chance = Random(0)
    noisy = [2.0 + 0.15 * chance.gauss() for _ in range(60)]
    assert max(value - min(noisy[:at], default=value) for at, value in enumerate(noisy)) > 0.5
    assert divergence(noisy) is None
    assert divergence([*noisy, 4.5]) == Divergence(61, "loss_rose")


@given(st.lists(st.floats(0, 12), max_size=40), st.lists(st.floats(0, 100), max_size=40))
def test_what_comes_later_does_not_change_when_a_run_diverged(loss: list[float], norms: list[float]) -> None:
    found = divergence(loss, norms)
    if found:
        assert divergence(loss[: found.step], norms[: found.step]) == found
        assert divergence(loss[: found.step - 1], norms[: found.step - 1]) is None


@given(st.floats(0.1, 10.0), st.integers(5, 60))
def test_a_loss_that_only_falls_never_diverges(start: float, steps: int) -> None:
    assert divergence([start * 0.9**step for step in range(steps)], [1.0] * steps) is None
