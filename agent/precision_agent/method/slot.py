"""The order of measuring, ABBA blocks (A B C ... C B A), and how one slot of a variant in them is spent. Pure.

A stretch is discarded, then training step, power window and GEMMs.

Taking samples, planning a run and simulating its intervals all count with this.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from precision_agent.cases import Variant
from precision_api.exchange.request import Timing

POWER_SECONDS = 10.6
"""Of power windows for each variant: energy needs 10 s of all GPUs at once, and a window begins with the GPU that is
last: 6 % are kept for that (docs/development/method.md, "Power and energy")."""
LEAST_POWER_SHARE, MOST_POWER_SHARE = 0.5, 0.8
"""Of a training segment, for its power window: half where time is plenty; never so much that no step can be timed."""

BETWEEN_SECONDS = 0.4
"""Allowance: each stretch ends with a whole optimizer step, and before a power window the variant's micro batch runs
once. On an H100 llama3-8b's slots took 0.06 s more than with it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Seconds of the parts of one slot, in their order; 0 for what is not asked for. `between` is an allowance."""

    discarded: float
    training: float
    power: float
    gemms: float
    between: float = BETWEEN_SECONDS

    @property
    def timed(self) -> float:
        """All windows from which a figure comes."""
        return self.gemms + self.training + self.power

    @property
    def seconds(self) -> float:
        return self.discarded + self.timed + self.between


def slot_of(timing: Timing, gemms: bool, training: bool, metered: bool) -> Slot:
    """One slot by these timings: all GEMMs share a segment, the training step shares one with its power window."""
    segment = timing.segment_seconds
    power = power_share(timing) * segment if training and metered else 0.0
    return Slot(
        discarded=timing.discard_seconds,
        training=segment - power if training else 0.0,
        power=power,
        gemms=segment if gemms else 0.0,
    )


def power_share(timing: Timing) -> float:
    """Of a training segment: what gives the variant's windows their seconds, within bounds."""
    wanted = POWER_SECONDS / (2 * timing.passes * timing.segment_seconds)
    return min(MOST_POWER_SHARE, max(LEAST_POWER_SHARE, wanted))


def abba_blocks(variants: tuple[Variant, ...], passes: int, seed: int) -> Iterator[tuple[Variant, ...]]:
    """`passes` ABBA blocks over the variants: each twice, mirrored, so that a linear drift falls out of every ratio."""
    chance = random.Random(f"order/{seed}")
    for _ in range(passes):
        there = chance.sample(variants, len(variants))
        yield (*there, *reversed(there))
