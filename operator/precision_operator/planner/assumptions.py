"""What rates and their bands assume: a line for each, for the plan's list of everything assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from precision_operator.planner.bands import (
    GOODPUT_PLUS_MINUS,
    JOB_RATE_PLUS_MINUS,
    LEAST_GOODPUT,
    SCALING_PLUS_MINUS,
)
from precision_operator.planner.rates import Source, goodput_of
from precision_operator.planner.schedule import Slot
from precision_operator.planner.straggler import SLOW_NODE_PRIOR
from precision_operator.planner.terms import Terms


def assumptions(slots: Sequence[Slot], terms: Terms) -> Iterator[str]:
    """One line for each default that the chosen rates rest on, with the field that replaces it."""
    yield from _goodput(slots, terms)
    used = {id(slot.option.source): slot.option.source for slot in slots}
    for source in used.values():
        rate, sample = source.job_rate, source.sample
        if rate is not None and rate.plus_minus is None:
            yield (
                f"job rate of {source.pool.name} ({rate.source}): no plusMinus is given, "
                f"{JOB_RATE_PLUS_MINUS:.0%} either way is assumed"
            )
        if sample is not None and source.pool.nodes > len(sample.rates):
            yield _unmeasured(source, len(sample.rates))
    scaled = {slot.option.pool.name for slot in slots if "scaling" in {part.name for part in slot.option.speed.parts}}
    bare = sorted(name for name in scaled if _without_band(slots, name))
    if bare:
        yield (
            f"scaling of {', '.join(bare)}: no plusMinus is given, {SCALING_PLUS_MINUS:.0%} either way is assumed "
            "for each efficiency"
        )


def _goodput(slots: Sequence[Slot], terms: Terms) -> Iterator[str]:
    given = [goodput_of(slot.option.job, slot.option.pool, terms) for slot in slots]
    if None in given:
        yield (
            "goodput is not given: failures, checkpoints and restarts are counted as nothing, "
            f"and at worst as {1 - LEAST_GOODPUT:.0%} of the time"
        )
    if any(each is not None and each.plus_minus is None for each in given):
        yield f"goodput: no goodputPlusMinus is given, {GOODPUT_PLUS_MINUS:.0%} either way is assumed"


def _unmeasured(source: Source, measured: int) -> str:
    least, most = SLOW_NODE_PRIOR
    return (
        f"pool {source.pool.name}: {measured} of {source.pool.nodes} nodes were measured with {source.recipe}; how "
        "many of the others are slow follows from how many were seen (Jeffreys' prior), and one that nobody has seen "
        f"is assumed to be {least:.0%} to {most:.0%} slower"
    )


def _without_band(slots: Sequence[Slot], name: str) -> bool:
    return any(slot.option.pool.name == name and slot.option.pool.terms.scaling_plus_minus is None for slot in slots)
