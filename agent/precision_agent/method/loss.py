"""Loss runs: tokens with a known entropy, and the rules by which a run counts as diverged. Pure, seeded.

Uniformly random tokens start at ln V nats and nothing can fall. A Markov chain over few states, of which each is
followed by a few others with fixed chances, can be learnt: no model goes below its entropy for long. A smoke test of
some ten steps: that two recipes train equally well can't be shown in minutes, and is never claimed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import median
from typing import Literal

from precision_api.exchange.stats import mad

STATES = 64
"""Tokens of the vocabulary that occur: few enough for their successors to be learnt in some tens of steps."""
CHANCES = (0.7, 0.2, 0.1)
"""How likely each of a token's successors is: 0.80 nats a token."""
RISE_NATS, RISE_SIGMAS = 0.5, 10.0
"""With few tokens a step a healthy run jumps by half a nat: its steps' own noise is allowed for."""
LEAST_DIFFERENCES = 8
"""From one step to the next, for their spread to say anything."""
LEAST_TOKENS = 2048
"""Of one step: of 256 a sound run's loss rose by 0.7 nats within its first steps."""
EARLY_STEPS = 10
"""A run that has just begun may jump, and its noise is not known yet: it diverges above its first step's loss only,
and whatever its gradient norm does."""
NORM_FACTOR, NORM_STEPS = 10.0, 3
MAD_TO_SIGMA = 1.4826
"""Of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Source:
    """A Markov chain over `tokens`: token i is followed by those at `successors[i]`, with CHANCES."""

    tokens: tuple[int, ...]
    successors: tuple[tuple[int, ...], ...]

    @property
    def entropy(self) -> float:
        """Nats a token, exactly: every state has the same chances, so it does not matter how often each occurs."""
        return -math.fsum(chance * math.log(chance) for chance in CHANCES)


def source(vocab_size: int, seed: int) -> Source:
    """The chain of this seed; ValueError for a vocabulary that is too small to have one."""
    if vocab_size < len(CHANCES):
        raise ValueError(f"a loss run needs a vocabulary of at least {len(CHANCES)} tokens, not {vocab_size}")
    chance = Random(f"loss/{seed}/{vocab_size}")
    states = min(STATES, vocab_size)
    tokens = tuple(chance.sample(range(vocab_size), states))
    successors = tuple(tuple(chance.sample(range(states), len(CHANCES))) for _ in range(states))
    return Source(tokens, successors)


def sequence(chain: Source, length: int, seed: int) -> list[int]:
    """`length` tokens of the chain; equal seeds give equal tokens, so that all recipes see the same ones."""
    chance = Random(f"tokens/{seed}")
    state = chance.randrange(len(chain.tokens))
    tokens: list[int] = []
    for which in chance.choices(range(len(CHANCES)), CHANCES, k=length):
        tokens.append(chain.tokens[state])
        state = chain.successors[state][which]
    return tokens


def noise(loss: Sequence[float]) -> float:
    """Standard deviation of a step's loss around its course, from the differences in the latter half of the steps.

    Robust against a fall or a rise, which moves their median, and against single jumps; 0 where there are too few.
    """
    late = loss[-max(len(loss) // 2, LEAST_DIFFERENCES + 1) :]
    steps = [after - before for before, after in pairwise(late)]
    if len(steps) < LEAST_DIFFERENCES or not all(map(math.isfinite, steps)):
        return 0.0
    return MAD_TO_SIGMA * mad(steps) / math.sqrt(2)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step (from 1) at which a run counts as diverged, and by which rule."""

    step: int
    reason: Literal["non_finite", "loss_rose", "gradient_norm_rose"]


def divergence(loss: Sequence[float], norms: Sequence[float] = ()) -> Divergence | None:
    """When and why this run diverged; None while it is healthy (docs/development/method.md, "What figures mean").

    Loss or norm is no finite number; the loss is more than 0.5 nat, and 10 times the noise of its steps, above its
    minimum so far, in the first ten steps above the first one's too; or after these the gradient norm is for the third
    step in a row more than 10 times its median so far. `norms` may be shorter than `loss`, or empty.
    """
    least, above = math.inf, 0
    for step, value in enumerate(loss, start=1):
        norm = norms[step - 1] if step <= len(norms) else 0.0
        if not (math.isfinite(value) and math.isfinite(norm)):
            return Divergence(step, "non_finite")
        bound = least + max(RISE_NATS, RISE_SIGMAS * noise(loss[: step - 1]))
        if value > (max(bound, loss[0]) if step <= EARLY_STEPS else bound):
            return Divergence(step, "loss_rose")
        least = min(least, value)
        before = norms[: min(step - 1 - above, len(norms))]
        above = above + 1 if step > EARLY_STEPS and before and norm > NORM_FACTOR * median(before) else 0
        if above == NORM_STEPS:
            return Divergence(step, "gradient_norm_rose")
    return None
