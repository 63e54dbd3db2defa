"""Loss runs: the tokens' entropy is what it says, and a run diverges by the rules and by nothing else."""

import math
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.method.loss import Divergence, divergence, sequence, source

FALLING = [11.0 - 0.2 * step for step in range(50)]
CALM = [1.0] * 50


def test_the_entropy_of_the_tokens_is_what_the_source_says() -> None:
    chain = source(128_256, seed=1)
    tokens = sequence(chain, 200_000, seed=2)
    pairs, firsts = Counter(pairwise(tokens)), Counter(tokens[:-1])
    seen = -sum(count / (len(tokens) - 1) * math.log(count / firsts[first]) for (first, _), count in pairs.items())
    assert seen == pytest.approx(chain.entropy, abs=0.01)
    assert chain.entropy == pytest.approx(0.8018, abs=1e-4)
    assert set(tokens) <= set(range(128_256))


def test_equal_seeds_give_equal_tokens_of_a_vocabulary_that_is_no_chain_too_small() -> None:
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
        assert len(set(successors)) == len(chain.chances)
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
def test_a_run_diverges_by_the_rules_of_the_method(
    loss: list[float], norms: list[float], expected: Divergence | None
) -> None:
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
