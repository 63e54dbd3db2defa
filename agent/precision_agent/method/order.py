"""The order of measuring: palindromes (A B C ... C B A), each drawn anew from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from precision_agent.cases import Arm


def palindromes(arms: tuple[Arm, ...], passes: int, seed: int) -> Iterator[tuple[Arm, ...]]:
    """`passes` palindromes over the arms: each arm twice, mirrored, so that a linear drift falls out of every ratio."""
    chance = random.Random(f"order/{seed}")
    for _ in range(passes):
        there = chance.sample(arms, len(arms))
        yield (*there, *reversed(there))
