"""The best assignment by HiGHS, objective after objective, and a schedule that really holds.

Without `after` all jobs run at once. The end of the last job is then found by halving: for a given end each job keeps
the smallest size that meets it in each pool, and whether those fit together is a small program of its own. Other
objectives are one program each, in which a choice that another one of the same pool beats in everything is left out.

Where jobs wait for others the program is a relaxation: it does not see queues. Its optimum bounds the answer from
below. If the schedule of its choice breaks a deadline or ends later, that choice is forbidden and the program solved
again, a few times; then jobs that wait are counted as running at once, which any schedule holds. The gap that is told
is that of the answer to the bound, so it is honest in every case.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import le

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

from precision_api.capacity_plan import Objective
from precision_operator.planner.options import Offer, Option
from precision_operator.planner.program import Program, Row, Vector, cost, energy
from precision_operator.planner.quantities import Problem, Unusable
from precision_operator.planner.schedule import SLACK, Slot, schedule
from precision_operator.planner.terms import Terms

TRIES = 24
"""How often a choice that no schedule holds is forbidden before waiting jobs are counted as running at once."""
HALVINGS = 24
ANY = 10.0
"""A gap that the first solution meets: where only the question is whether there is one."""
HELD = 1e-6
"""Relative slack by which a later objective may spoil an earlier one."""
PREFER_SHORT = 1e-7
"""Weight of days beside an objective's own, both scaled to 1: of equal choices the shorter one, so none is chance."""


class OutOfTime(Unusable):
    """HiGHS found no plan at all within its time; whether there is one is not known."""

    def __init__(self, seconds: float) -> None:
        text = f"no plan was found in {seconds:g} s: give more time, or fewer pools, recipes or sizes to choose from"
        super().__init__(Problem("spec.solver.timeLimitSeconds", text))


@dataclass(frozen=True, slots=True)
class Solution:
    """One slot for each job, in the jobs' order. `gap` is of the first objective, relative to its value."""

    slots: tuple[Slot, ...]
    objectives: tuple[Objective, ...]
    values: tuple[float, ...]
    gap: float
    timed_out: bool

    @property
    def chosen(self) -> tuple[Option, ...]:
        """The options."""
        return tuple(slot.option for slot in self.slots)


@dataclass(frozen=True, slots=True)
class _Held:
    """What earlier objectives have reached: (objective, most)."""

    values: tuple[tuple[Objective, float], ...] = ()
    end: float = math.inf
    """Days in which the last job must have ended."""

    def rows(self, program: Program) -> Iterator[Row]:
        for name, most in self.values:
            wanted = program.objective(name)
            columns = np.flatnonzero(wanted)
            scale = float(np.abs(wanted).max()) or 1.0
            yield Row(tuple(map(int, columns)), tuple(map(float, wanted[columns] / scale)), -np.inf, most / scale)


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


def solve(offers: Sequence[Offer], terms: Terms) -> Solution | None:
    """The best plan; None where no choice holds all limits. Every offer has an option. Raises OutOfTime."""
    objectives = objectives_of(offers, terms)
    if any(offer.job.after for offer in offers):
        return _with_queues(offers, terms, objectives)
    found = _flat(tuple(offers), terms, objectives)
    if found is None:
        return None
    return _scheduled(found.chosen, objectives, terms, found.bound, found.timed_out)


def _flat(offers: tuple[Offer, ...], terms: Terms, objectives: tuple[Objective, ...]) -> _Answer | None:
    """All jobs at once: one objective after the other."""
    held, bound, late = _Held(), 0.0, False
    found: _Answer | None = None
    seconds = terms.seconds / len(objectives)
    for number, name in enumerate(objectives):
        try:
            made = (
                _shortest(offers, terms, held, seconds)
                if name == "time"
                else _least(offers, terms, name, held, seconds)
            )
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


def _least(offers: tuple[Offer, ...], terms: Terms, name: Objective, held: _Held, seconds: float) -> _Answer | None:
    """The least cost or energy."""
    kept = tuple(_kept(offer, held.end) for offer in offers)
    if not all(offer.options for offer in kept):
        return None
    program = Program(kept, terms)
    wanted = program.objective(name)
    scale = float(np.abs(wanted).max()) or 1.0
    found = run(program, wanted / scale + _short(program), terms.gap / 2, seconds, tuple(held.rows(program)))
    if found is None:
        return None
    x, low, late = found
    return _Answer(_taken(program, x), (low - PREFER_SHORT * len(kept)) * scale, late)


def _short(program: Program) -> Vector:
    days = np.array([option.days for option in program.options])
    return np.concatenate([PREFER_SHORT * days / days.max(), np.zeros(program.width - len(days))])


def _taken(program: Program, x: Vector) -> tuple[Option, ...]:
    return tuple(program.options[int(i)] for i in np.flatnonzero(x[: len(program.options)] > 0.5))


def _shortest(offers: tuple[Offer, ...], terms: Terms, held: _Held, seconds: float) -> _Answer | None:
    """The earliest end of the last job, by halving.

    First over linear relaxations, which are quick: before the first end that fits there, nothing does. From there on
    over whole choices, where an end that HiGHS neither meets nor refutes in its share of the time counts as unknown.
    """
    lengths = sorted({option.days for offer in offers for option in offer.options if option.days <= held.end})
    low = _first_fractional(offers, terms, held, lengths, seconds / HALVINGS)
    if low is None:
        return None
    best, late, tried = None, False, low
    high = len(lengths)
    step = seconds / HALVINGS
    while tried < high:
        # Until something fits, ends are tried further and further out; then between it and what does not.
        middle = _further(lengths, low, tried, terms.gap) if best is None else (tried + high) // 2
        found, proved = _fitting(offers, terms, replace(held, end=lengths[middle]), step)
        if found is not None:
            best = found
            longest = max(option.days for option in found)
            high = next(i for i, days in enumerate(lengths) if days >= longest)
        else:
            low = middle + 1 if proved else low
            late, tried = late or not proved, middle + 1
        if best is not None and (tried >= high or lengths[tried] >= lengths[high] * (1 - terms.gap)):
            break
    if best is None and late:
        raise OutOfTime(step)
    return None if best is None else _Answer(best, lengths[min(low, high)], late)


def _further(lengths: Sequence[float], low: int, tried: int, gap: float) -> int:
    """An end beyond `tried`, twice as far from the bound as the one before, and at least half the gap."""
    reach = max(lengths[tried] - lengths[low], lengths[low] * gap / 4) * 2
    return min(bisect_left(lengths, lengths[low] + reach, tried), len(lengths) - 1)


def _first_fractional(
    offers: tuple[Offer, ...], terms: Terms, held: _Held, lengths: Sequence[float], seconds: float
) -> int | None:
    """The first of the ends that could be met if jobs could be split; None where none can."""
    low, high = 0, len(lengths)
    while low < high and (high == len(lengths) or lengths[low] < lengths[high] * (1 - terms.gap / 4)):
        middle = (low + high) // 2
        if _fitting(offers, terms, replace(held, end=lengths[middle]), seconds, whole=False)[0] is None:
            low = middle + 1
        else:
            high = middle
    return low if low < len(lengths) else None


def _fitting(
    offers: tuple[Offer, ...], terms: Terms, held: _Held, seconds: float, whole: bool = True
) -> tuple[tuple[Option, ...] | None, bool]:
    """Choices that all end in time, or None; and whether None is proved. Not `whole`: jobs may be split."""
    kept = tuple(_kept(offer, held.end) for offer in offers)
    if not all(offer.options for offer in kept):
        return None, True
    program = Program(kept, terms)
    try:
        found = _any(program, held, seconds, whole=False)
        if found is not None and whole:
            # The relaxation splits a few jobs only: with the others as they are, those are a small program.
            fixed = Program(tuple(_fixed(program, offer, found) for offer in kept), terms)
            rounded = _any(fixed, held, seconds)
            if rounded is not None:
                return _taken(fixed, rounded), True
            found = _any(program, held, seconds)
    except OutOfTime:
        return None, False
    return (None, True) if found is None else (_taken(program, found), True)


def _any(program: Program, held: _Held, seconds: float, whole: bool = True) -> Vector | None:
    """Any solution, few GPUs preferred."""
    gpus = np.array([float(option.gpus) for option in program.options])
    wanted = np.concatenate([gpus / gpus.max(), np.zeros(program.width - len(gpus))]) + _short(program)
    found = run(program, wanted, ANY, seconds, tuple(held.rows(program)), whole)
    return None if found is None else found[0]


def _fixed(program: Program, offer: Offer, x: Vector) -> Offer:
    """The offer with the only choice that the relaxation made, or with all where it split the job."""
    span = program.spans[offer.job.name]
    sure = [i for i in span if x[i] > 1 - SLACK]
    return replace(offer, options=(program.options[sure[0]],)) if sure else offer


def _kept(offer: Offer, end: float) -> Offer:
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


def _with_queues(offers: Sequence[Offer], terms: Terms, objectives: tuple[Objective, ...]) -> Solution | None:
    program = Program(tuple(offers), terms)
    best: Solution | None = None
    bound: float | None = None
    cuts: list[Row] = []
    for _ in range(TRIES):
        found = _lexicographic(program, objectives, terms, cuts)
        if found is None:
            break
        x, low, late = found
        bound = low if bound is None else bound
        made = _scheduled(_taken(program, x), objectives, terms, bound, late)
        if made is not None and (best is None or made.values < best.values):
            best = made
        if best is not None and best.gap <= terms.gap + HELD:
            return best
        chosen = tuple(int(i) for i in np.flatnonzero(x[: len(program.options)] > 0.5))
        cuts.append(Row(chosen, (1.0,) * len(chosen), 0.0, len(chosen) - 1.0))
    if best is None and bound is not None:
        roomy = Program(tuple(offers), terms, all_at_once=True)
        found = _lexicographic(roomy, objectives, terms, ())
        if found is not None:
            best = _scheduled(_taken(roomy, found[0]), objectives, terms, bound, found[2])
    return best


def _lexicographic(
    program: Program, objectives: tuple[Objective, ...], terms: Terms, cuts: Sequence[Row]
) -> tuple[Vector, float, bool] | None:
    """(columns, bound of the first objective, whether time ran out) of one program; None where nothing holds."""
    held: list[Row] = []
    bound, late = 0.0, False
    x: Vector | None = None
    for number, name in enumerate(objectives):
        wanted = program.objective(name)
        scale = float(np.abs(wanted).max()) or 1.0
        try:
            found = run(
                program, wanted / scale + _short(program), terms.gap, terms.seconds / len(objectives), (*cuts, *held)
            )
        except OutOfTime:
            if x is None:
                raise
            late = True
            break
        if found is None:
            break
        x, low, over = found
        late, reached = late or over, float(wanted @ x)
        bound = min((low - PREFER_SHORT * len(program.offers)) * scale, reached) if number == 0 else bound
        columns = np.flatnonzero(wanted)
        most = reached + HELD * max(abs(reached), 1e-9)
        held.append(Row(tuple(map(int, columns)), tuple(map(float, wanted[columns] / scale)), -np.inf, most / scale))
    return None if x is None else (x, bound, late)


def _scheduled(
    chosen: Sequence[Option], objectives: tuple[Objective, ...], terms: Terms, bound: float, timed_out: bool
) -> Solution | None:
    """The choice in time, if its limits and deadlines hold."""
    slots = schedule(chosen, terms.limits)
    careful = schedule(chosen, terms.limits, lambda option: option.deadline_days)
    if slots is None or careful is None or not all(map(_in_time, careful)):
        return None
    values = tuple(value(name, slots) for name in objectives)
    gap = max(0.0, values[0] - bound) / abs(values[0]) if values[0] else 0.0
    return Solution(slots, objectives, values, gap, timed_out)


def _in_time(slot: Slot) -> bool:
    deadline = slot.option.job.deadline_days
    return deadline is None or slot.end <= deadline * (1 + SLACK)


def value(name: Objective, slots: Sequence[Slot]) -> float:
    """What an objective comes to."""
    chosen = [slot.option for slot in slots]
    if name == "time":
        return max((slot.end for slot in slots), default=0.0)
    found = cost(chosen) if name == "cost" else energy(chosen)
    assert found is not None, "options without this figure are left out"
    return found


def run(
    program: Program, wanted: Vector, gap: float, seconds: float, further: Sequence[Row] = (), whole: bool = True
) -> tuple[Vector, float, bool] | None:
    """(columns, lower bound, whether time ran out) of one run of HiGHS; None where there is no solution.

    Not `whole`: the linear relaxation.

    `wanted` may be longer than the program is wide: further rows bring continuous columns of their own. Raises
    OutOfTime.
    """
    matrix, low, high = program.matrix(further)
    width = max(matrix.shape[1], len(wanted))
    if matrix.shape[1] < width:
        matrix.resize((matrix.shape[0], width))
    integrality = np.concatenate([program.integrality, np.zeros(width - program.width)])
    answer = milp(
        np.concatenate([wanted, np.zeros(width - len(wanted))]),
        integrality=integrality if whole else np.zeros(width),
        bounds=Bounds(np.zeros(width), np.where(integrality > 0, 1.0, np.inf)),
        constraints=LinearConstraint(matrix, low, high),
        options={"time_limit": max(seconds, 0.1), "mip_rel_gap": gap, "presolve": True},
    )
    if answer.x is None and answer.status == 1:
        raise OutOfTime(seconds)
    if answer.x is None:
        return None
    bound = answer.mip_dual_bound
    known = bound is not None and math.isfinite(bound)
    return np.asarray(answer.x), float(bound) if known else -math.inf, answer.status == 1
