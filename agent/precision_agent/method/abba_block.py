"""The order of measuring: ABBA blocks (A B C ... C B A), each drawn anew from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from precision_agent.cases import Variant


def abba_blocks(variants: tuple[Variant, ...], passes: int, seed: int) -> Iterator[tuple[Variant, ...]]:
    """`passes` ABBA blocks over the variants: each twice, mirrored, so that a linear drift falls out of every ratio."""
    chance = random.Random(f"order/{seed}")
    for _ in range(passes):
        there = chance.sample(variants, len(variants))
        yield (*there, *reversed(there))
