"""The best assignment by HiGHS, objective after objective.

Without `after` all jobs run at once. The end of the last job is then found by halving: for a given end each job keeps
the smallest size that meets it in each pool, and whether those fit together is a small program of its own. Other
objectives are one program each, in which a choice that another one of the same pool beats in everything is left out.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import le

import numpy as np

from precision_api.capacity_plan import Objective
from precision_operator.planner.greedy import greedy
from precision_operator.planner.highs import NoneFound, OutOfTime, run, share
from precision_operator.planner.options import Offer, Option
from precision_operator.planner.program import HELD, PREFER_SHORT, Constraint, Program, Vector, cost, energy
from precision_operator.planner.quantities import Problem
from precision_operator.planner.queues import queued
from precision_operator.planner.schedule import SLACK
from precision_operator.planner.solution import Solution, scheduled
from precision_operator.planner.terms import Terms

STEPS = 6
"""One end of the last job is given this part of the time that is left."""
ANY = 10.0
"""A gap that the first solution meets: where only the question is whether there is one."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What earlier objectives have reached: (objective, most)."""

    values: tuple[tuple[Objective, float], ...] = ()
    end: float = math.inf
    """Days in which the last job must have ended."""

    def rows(self, program: Program) -> Iterator[Constraint]:
        for name, most in self.values:
            wanted = program.objective(name)
            columns = np.flatnonzero(wanted)
            scale = float(np.abs(wanted).max()) or 1.0
            yield Constraint(
                tuple(map(int, columns)), tuple(map(float, wanted[columns] / scale)), -np.inf, most / scale
            )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one objective came to."""

    chosen: tuple[Option, ...]
    bound: float
    timed_out: bool


def objectives_of(offers: Sequence[Offer], terms: Terms) -> tuple[Objective, ...]:
    """What the user orders by; else cost where every job has a deadline and every option a price, else time."""
    if terms.objectives:
        return terms.objectives
    options = [option for offer in offers for option in offer.options]
    priced = all(option.dollars is not None for option in options)
    return ("cost",) if priced and all(offer.job.deadline_days for offer in offers) else ("time",)


def solve(offers: Sequence[Offer], terms: Terms, began: float | None = None) -> Solution | None:
    """The best plan; None where it is proved that none holds all limits. Every offer has an option. Raises NotKnown.

    The time limit counts from `began` (time.monotonic(), else now) and covers the building of programs.
    """
    until = (time.monotonic() if began is None else began) + terms.seconds
    objectives = objectives_of(offers, terms)
    if any(offer.job.after for offer in offers):
        return queued(offers, terms, objectives, until)
    found = _flat(tuple(offers), terms, objectives, until)
    if found is None:
        return None
    made = scheduled(found.chosen, objectives, terms, found.bound, found.timed_out)
    if made is None:
        text = "the solver's choice passes a limit by a rounding error, so no plan is known: change that limit a little"
        raise NoneFound(Problem("spec", text))
    return made


def _flat(offers: tuple[Offer, ...], terms: Terms, objectives: tuple[Objective, ...], until: float) -> _Answer | None:
    """All jobs at once: one objective after the other, each with an equal share of the time that is left."""
    held, bound, late = _Held(), 0.0, False
    found: _Answer | None = None
    for number, name in enumerate(objectives):
        mine = share(until, len(objectives) - number)
        try:
            made = _shortest(offers, terms, held, mine) if name == "time" else _least(offers, terms, name, held, mine)
        except OutOfTime:
            if found is None:
                raise
            return replace(found, bound=bound, timed_out=True)
        if made is None:
            return replace(found, bound=bound, timed_out=True) if found else None
        found, late = made, late or made.timed_out
        bound = made.bound if number == 0 else bound
        held = _hold(held, name, made, terms.gap)
    return None if found is None else replace(found, bound=bound, timed_out=late)


def _hold(held: _Held, name: Objective, made: _Answer, gap: float) -> _Held:
    """What later objectives must hold: what was reached, or, where that is more, the bound and the gap."""
    if name == "time":
        reached = max(option.days for option in made.chosen)
        return replace(held, end=max(reached * (1 + HELD), made.bound * (1 + gap)))
    reached = (cost(made.chosen) if name == "cost" else energy(made.chosen)) or 0.0
    return replace(held, values=(*held.values, (name, max(reached * (1 + HELD), made.bound * (1 + gap)))))


def _least(offers: tuple[Offer, ...], terms: Terms, name: Objective, held: _Held, until: float) -> _Answer | None:
    """The least cost or energy."""
    kept = tuple(useful(offer, held.end) for offer in offers)
    if not all(offer.options for offer in kept):
        return None
    program = Program(kept, terms)
    wanted = program.objective(name)
    scale = float(np.abs(wanted).max()) or 1.0
    found = run(program, wanted / scale + program.short(), terms.gap / 2, until, tuple(held.rows(program)))
    if found is None:
        return None
    x, low, late = found
    return _Answer(program.taken(x), (low - PREFER_SHORT * len(kept)) * scale, late)


def _shortest(offers: tuple[Offer, ...], terms: Terms, held: _Held, until: float) -> _Answer | None:
    """The earliest end of the last job, by halving.

    First over linear relaxations, which are quick: before the first end that fits there, nothing does. From there on
    over whole choices, where an end that HiGHS neither meets nor refutes in its share of the time counts as unknown.
    """
    lengths = sorted({option.days for offer in offers for option in offer.options if option.days <= held.end})
    low = _first_fractional(offers, terms, held, lengths, share(until, 2))
    if low is None:
        return None
    best, late, tried = _simple(offers, terms, held), False, low
    high = len(lengths) if best is None else _place(lengths, best)
    rough = best is not None
    while tried < high:
        if time.monotonic() >= until:
            late = True
            break
        # Until something fits, ends are tried further and further out; then between it and what does not.
        middle = _further(lengths, low, tried, terms.gap) if best is None or rough else (tried + high) // 2
        found, proved = _fitting(offers, terms, replace(held, end=lengths[middle]), share(until, STEPS))
        if found is not None:
            best, rough = found, False
            high = _place(lengths, found)
        else:
            low = middle + 1 if proved else low
            late, tried = late or not proved, middle + 1
        if best is not None and (tried >= high or lengths[tried] >= lengths[high] * (1 - terms.gap)):
            break
    if best is None and late:
        raise OutOfTime(terms.seconds)
    return None if best is None else _Answer(best, lengths[min(low, high)], late)


def _place(lengths: Sequence[float], chosen: Sequence[Option]) -> int:
    """Where the end of the longest stands among the ends."""
    return bisect_left(lengths, max(option.days for option in chosen))


def _simple(offers: tuple[Offer, ...], terms: Terms, held: _Held) -> tuple[Option, ...] | None:
    """The greedy answer, to have one when time runs out; None where it might break a budget or what is held."""
    limits = terms.limits
    if held.values or any(limit is not None for limit in (limits.dollars, limits.gpu_hours, limits.megawatt_hours)):
        return None
    slots = greedy(offers, limits, "time")
    return None if slots is None else tuple(slot.option for slot in slots)


def _further(lengths: Sequence[float], low: int, tried: int, gap: float) -> int:
    """An end beyond `tried`, twice as far from the bound as the one before, and at least half the gap."""
    reach = max(lengths[tried] - lengths[low], lengths[low] * gap / 4) * 2
    return min(bisect_left(lengths, lengths[low] + reach, tried), len(lengths) - 1)


def _first_fractional(
    offers: tuple[Offer, ...], terms: Terms, held: _Held, lengths: Sequence[float], until: float
) -> int | None:
    """The first of the ends that could be met if jobs could be split; None where none can."""
    low, high = 0, len(lengths)
    while low < high and (high == len(lengths) or lengths[low] < lengths[high] * (1 - terms.gap / 4)):
        middle = (low + high) // 2
        found, proved = _fitting(offers, terms, replace(held, end=lengths[middle]), until, whole=False)
        if found is None and not proved:
            break
        low, high = (low, middle) if found is not None else (middle + 1, high)
    return low if low < len(lengths) else None


def _fitting(
    offers: tuple[Offer, ...], terms: Terms, held: _Held, until: float, whole: bool = True
) -> tuple[tuple[Option, ...] | None, bool]:
    """Choices that all end in time, or None; and whether None is proved. Not `whole`: jobs may be split."""
    kept = tuple(useful(offer, held.end) for offer in offers)
    if not all(offer.options for offer in kept):
        return None, True
    program = Program(kept, terms)
    try:
        found = _any(program, held, until, whole=False)
        if found is not None and whole:
            # The relaxation splits a few jobs only: with the others as they are, those are a small program.
            fixed = Program(tuple(_fixed(program, offer, found) for offer in kept), terms)
            rounded = _any(fixed, held, until)
            if rounded is not None:
                return fixed.taken(rounded), True
            found = _any(program, held, until)
    except OutOfTime:
        return None, False
    return (None, True) if found is None else (program.taken(found), True)


def _any(program: Program, held: _Held, until: float, whole: bool = True) -> Vector | None:
    """Any solution, few GPUs preferred."""
    gpus = np.array([float(option.gpus) for option in program.options])
    wanted = np.concatenate([gpus / gpus.max(), np.zeros(program.width - len(gpus))]) + program.short()
    found = run(program, wanted, ANY, until, tuple(held.rows(program)), whole)
    return None if found is None else found[0]


def _fixed(program: Program, offer: Offer, x: Vector) -> Offer:
    """The offer with the only choice that the relaxation made, or with all where it split the job."""
    span = program.spans[offer.job.name]
    sure = [i for i in span if x[i] > 1 - SLACK]
    return replace(offer, options=(program.options[sure[0]],)) if sure else offer


def useful(offer: Offer, end: float) -> Offer:
    """The options that end in time, without those that a smaller one of the same pool beats in everything."""
    deadline = (offer.job.deadline_days or math.inf) * (1 + SLACK)
    kept: list[Option] = []
    for ladder in offer.ladders:
        mine: list[Option] = []
        before = False
        for option, worse in ladder:
            in_time = option.days <= end and option.deadline_days <= deadline
            # What is worse than its neighbour is worse than whatever made that one superfluous.
            if in_time and not (worse and before) and not any(all(map(le, o.burden, option.burden)) for o in mine):
                mine.append(option)
            before = in_time
        kept += mine
    return replace(offer, options=tuple(kept))
