"""The best plan that a program, a schedule and a search find, and the bound that is proved for all plans.

Objective after objective: the program (HiGHS) chooses pool, recipe and size of each job and bounds what any plan can
reach; the schedule puts the choice into time; where that breaks a limit, choices are forbidden or the room is made
smaller and the program solved again; the search changes single jobs. For the end of the last job the program is asked
whether all can have ended by a day, and the day is halved.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.quantities import InputProblem
from precision_operator.planner.inputs.terms import NARROW, NoneFound, OutOfTime, PlanClock, Terms, clock_of
from precision_operator.planner.solving.earliest import EarliestEnds
from precision_operator.planner.solving.greedy import greedy_choice, least_of_each, room_bound
from precision_operator.planner.solving.linear import Solved, Vector, run
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.program import PREFER_SHORT, AssignmentProgram, Constraint
from precision_operator.planner.solving.schedule import SLACK, JobSlot, longest_chain, spans_of
from precision_operator.planner.solving.search import Candidate, Rank, Search

HELD = 1e-6
"""Relative slack by which a later objective may spoil an earlier one."""
TRIES = 24
"""How often a choice that does not hold, or is not good enough in time, is forbidden."""
SMALL = 8
"""Jobs up to which choices are forbidden: of more, one among very many."""
TIGHTER = (0.97, 0.92, 0.85, 0.75, 0.6)
"""Parts of the room with which the program is solved again where the schedule does not hold its choice."""
LATER = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0)
"""Ends of the last job that are tried, as multiples of the bound."""
MOST_WHOLE = 8_000
"""Choices up to which the program is asked, as one of whole numbers, for an end of the last job."""
HALVINGS = 12
ROUGH = 10.0
"""A gap that the first solution meets: where only the question is whether there is one."""
NAMED = 3
"""Late jobs that a sentence names."""


@dataclass(frozen=True, slots=True)
class Solution:
    """One slot for each job, in the jobs' order. `gap` is of the first objective, relative to its value."""

    slots: tuple[JobSlot, ...]
    objectives: tuple[Objective, ...]
    values: tuple[float, ...]
    gap: float
    timed_out: bool
    rank: Rank
    """The order in which jobs were placed, as `schedule` takes it."""


def objectives_of(offers: Sequence[Offer], terms: Terms) -> tuple[Objective, ...]:
    """What the user orders by; else cost where every job has a deadline and every option a price, else time."""
    if terms.objectives:
        return terms.objectives
    options = [option for offer in offers for option in offer.options]
    priced = all(option.dollars is not None for option in options)
    return ("cost",) if priced and all(offer.job.deadline_days for offer in offers) else ("time",)


_Bound = tuple[float, bool]
"""What is proved of one objective, and whether time ended the proof."""


class _Infeasible(Exception):
    """It is proved that these choices hold no plan."""


def solve(
    offers: Sequence[Offer],
    terms: Terms,
    clock: PlanClock | None = None,
    first: Candidate | None = None,
    objectives: tuple[Objective, ...] = (),
    proved: float = 0.0,
) -> Solution | None:
    """The best plan of these choices; None where it is proved that none of them holds all limits. Raises NotKnown.

    Without a `clock` the time limit counts from now; it covers the building of programs. `first` is a plan to begin
    with, `proved` a bound of the first objective that is known already.
    """
    clock = clock or clock_of(terms.seconds)
    names = objectives or objectives_of(offers, terms)
    search = Search(offers, terms, names, clock)
    search.take(first, 0)
    bound, late = 0.0, False
    try:
        for number, name in enumerate(names):
            mine = clock.part(1 / (len(names) - number))
            known = proved if number == 0 else 0.0
            reached, ended = (_time if name == "time" else _least)(search, number, mine, known)
            late = late or ended
            bound = reached if number == 0 else bound
            if search.best is None:
                break
            most = max(search.best.values[number] * (1 + HELD), reached * (1 + terms.gap))
            search.held[number] = most if math.isfinite(most) else search.best.values[number] * (1 + HELD)
    except _Infeasible:
        if search.best is None:
            return None
    if search.best is None:
        raise OutOfTime(clock.limit) if clock.over else NoneFound(_nothing_proved(search))
    return solution_of(search, search.best, bound, late)


def solution_of(search: Search, best: Candidate, bound: float, late: bool) -> Solution:
    """A plan with its gap to what is proved of the first objective; `late`: whether time ended the proof."""
    first_value = best.values[0]
    gap = max(0.0, first_value - bound) / abs(first_value) if first_value else 0.0
    return Solution(best.slots, search.objectives, best.values, gap, late, best.rank)


def _asked(
    program: AssignmentProgram,
    wanted: Vector,
    gap: float,
    clock: PlanClock,
    further: Sequence[Constraint] = (),
    whole: bool = True,
) -> tuple[Solved, tuple[Option, ...]]:
    """One run, and its choice. Raises _Infeasible, OutOfTime without a solution, NoneFound where it fails."""
    if not all(offer.options for offer in program.offers):
        raise _Infeasible
    clock.check()
    model = program.model(wanted, gap, 0.0, further, whole)
    clock.check()
    solution = run(replace(model, seconds=clock.left))
    if solution.state == "infeasible":
        raise _Infeasible
    if solution.x is None and solution.state == "limit":
        raise OutOfTime(clock.limit)
    if solution.x is None:
        text = f"the solver failed, so whether there is a plan is not known ({solution.text}): {NARROW}"
        raise NoneFound(InputProblem("spec", text))
    return solution, program.taken(solution.x)


def _least(search: Search, number: int, clock: PlanClock, proved: float) -> _Bound:
    """The least cost or energy, with what earlier objectives hold; `proved` is a bound that is known already."""
    terms, name = search.terms, search.objectives[number]
    program = AssignmentProgram(tuple(search.offers), terms, _held_end(search), clock=clock)
    cuts: list[Constraint] = []
    bound = max(proved, least_of_each(search.offers, name))
    try:
        wanted, held = program.objective(name), _held_rows(search, program)
    except OutOfTime:
        if search.best is None:
            _simple(search, number)
        return bound, True
    scale = float(np.abs(wanted).max()) or 1.0
    for attempt in range(TRIES):
        try:
            solution, chosen = _asked(program, wanted / scale + program.short(), terms.gap / 2, clock, (*held, *cuts))
        except OutOfTime:
            if attempt == 0 and search.best is None:
                _roomier(search, number, wanted, clock)
            return bound, True
        except _Infeasible:
            # All that is left was forbidden: each of these choices was put into every order.
            if attempt == 0:
                raise
            return search.best.values[number] if search.best else bound, False
        proved = (solution.bound - PREFER_SHORT * len(search.offers)) * scale
        bound = max(bound, proved) if attempt == 0 or len(search.offers) <= SMALL else bound
        candidate = search.try_choice(chosen, number)
        best = search.best
        if best is not None and best.values[number] <= bound + terms.gap * abs(bound) + HELD * abs(bound):
            return bound, solution.state == "limit"
        if attempt == 0:
            search.improve(candidate, number, 0.3 if len(search.offers) <= SMALL else 1.0)
        if len(search.offers) > SMALL or clock.over:
            break
        places = program.places(chosen)
        cuts.append(Constraint(places, np.ones(len(places)), 0.0, len(places) - 1.0))
    if search.best is None or len(search.offers) > SMALL:
        _roomier(search, number, wanted, clock)
    return bound, clock.over


def _roomier(search: Search, number: int, wanted: Vector, clock: PlanClock) -> None:
    """The same with less room, so that the schedule has some to spare; then as short as jobs can be, then greedy."""
    scale = float(np.abs(wanted).max()) or 1.0
    for room in TIGHTER:
        program = AssignmentProgram(tuple(search.offers), search.terms, _held_end(search), room, clock=clock)
        try:
            _, chosen = _asked(program, wanted / scale + program.short(), search.terms.gap, clock.part(1 / 3))
        except (_Infeasible, OutOfTime):
            break
        before = search.best
        candidate = search.try_choice(chosen, number)
        if candidate is not None and candidate.holds:
            search.improve(candidate, number, 0.5)
            if before is not None or search.best is not None:
                break
        else:
            search.improve(candidate, number, 0.2)
    if search.best is None:
        _simple(search, number)


def _simple(search: Search, number: int) -> None:
    """Choices that need no program: the greedy one, and the shortest of every job."""
    for chosen in (greedy_choice(search.offers, search.objectives[number]), shortest_of_each(search.offers)):
        if chosen is not None:
            search.improve(search.try_choice(chosen, number), number, 0.3)


def cheapest_of_each(offers: Sequence[Offer], name: Objective) -> tuple[Option, ...]:
    """The choices that cost or take least; by time, those with the least GPU hours."""
    figures: dict[Objective, Callable[[Option], float]] = {
        "cost": lambda option: option.dollars or 0.0,
        "energy": lambda option: option.megawatt_hours or 0.0,
        "time": lambda option: option.gpu_hours,
    }
    return tuple(min(offer.options, key=figures[name]) for offer in offers)


def shortest_of_each(offers: Sequence[Offer]) -> tuple[Option, ...]:
    """The choices with which each job ends soonest."""
    return tuple(min(offer.options, key=lambda option: (option.deadline_days, option.gpus)) for offer in offers)


def _time(search: Search, number: int, clock: PlanClock, proved: float) -> _Bound:
    """The earliest end of the last job: the first day by which the program can end, and schedules of its choices.

    The program is not asked for that day where one is `proved`.
    """
    offers, terms = tuple(search.offers), search.terms
    if not all(offer.options for offer in offers):
        raise _Infeasible
    least = {offer.job.name: min(option.days for option in offer.options) for offer in offers}
    low = max(proved, room_bound(offers), longest_chain([offer.job for offer in offers], least))
    late = False
    for chosen in (greedy_choice(offers, "time"), shortest_of_each(offers)):
        if chosen is not None:
            search.try_choice(chosen, number)
    earliest = EarliestEnds(search, number)
    earliest.place()
    if search.best is None:
        try:
            _within(search, number, _far(search), clock.part(1 / 2), True, 1.0)
        except OutOfTime:
            late = True
    search.improve(search.best or search.nearest, number, 0.3)
    high = search.best.values[number] if search.best else _far(search)
    for whole in (False, True):
        if proved or (whole and sum(len(offer.options) for offer in offers) > MOST_WHOLE):
            break
        low, late = _halved(search, number, low, high, whole, clock.part(1 / 2))
        high = search.best.values[number] if search.best else high
    earliest.change(low)
    for factor in LATER if sum(len(offer.options) for offer in offers) <= MOST_WHOLE else ():
        if search.best is not None and search.best.values[number] <= low * max(factor, 1 + terms.gap):
            break
        if clock.over:
            late = True
            break
        try:
            _within(search, number, low * factor, clock.part(1 / 3), True, 0.25)
        except _Infeasible:
            continue
        except OutOfTime:
            late = True
    return low, late


def _halved(search: Search, number: int, low: float, high: float, whole: bool, clock: PlanClock) -> tuple[float, bool]:
    """(day before which no plan has ended, whether time ended the search for it)."""
    gap = search.terms.gap / 4
    for _ in range(HALVINGS):
        best = search.best
        high = min(high, best.values[number]) if best is not None else high
        if high <= low * (1 + gap):
            break
        middle = math.sqrt(low * high)
        try:
            _within(search, number, middle, clock.part(1 / 2), whole, 0.05)
            high = middle
        except _Infeasible:
            low = middle
        except OutOfTime:
            return low, True
    return low, False


def _far(search: Search) -> float:
    """A day by which all have ended if there is any plan: one job after the other, the longest of each."""
    last = max(offer.job.not_before for offer in search.offers)
    return last + sum(max(option.days for option in offer.options) for offer in search.offers)


def _within(search: Search, number: int, end: float, clock: PlanClock, whole: bool, part: float) -> None:
    """Choices with the least work that end by a day, put into time. Raises _Infeasible where there are none."""
    ready, latest = spans_of(search.offers, False, end)
    most = {name: (latest[name] * (1 + SLACK)) for name in ready}  # room for what comes before and after
    fits = ((of, [o for o in of.options if ready[of.job.name] + o.days <= most[of.job.name]]) for of in search.offers)
    kept = tuple(replace(offer, options=tuple(options)) for offer, options in fits)
    program = AssignmentProgram(kept, search.terms, end, clock=clock)
    if not all(offer.options for offer in kept):
        raise _Infeasible
    wanted = program.objective("time")
    _, chosen = _asked(
        program,
        wanted / (wanted.max() or 1.0) + program.short(),
        ROUGH if whole else 0.0,
        clock,
        _held_rows(search, program),
        whole,
    )
    candidate = search.try_choice(chosen, number)
    if candidate is not None and candidate.values[number] > end * (1 + SLACK):
        search.improve(candidate, number, part)


def _held_end(search: Search) -> float | None:
    return next((most for place, most in search.held.items() if search.objectives[place] == "time"), None)


def _held_rows(search: Search, program: AssignmentProgram) -> tuple[Constraint, ...]:
    rows = []
    for place, most in search.held.items():
        name = search.objectives[place]
        if name != "time":
            wanted = program.objective(name)
            columns = np.flatnonzero(wanted)
            scale = float(np.abs(wanted).max()) or 1.0
            rows.append(Constraint(columns, wanted[columns] / scale, -np.inf, most / scale))
    return tuple(rows)


def _nothing_proved(search: Search) -> InputProblem:
    """How near it came, and what to do."""
    late = search.nearest.late if search.nearest is not None else 0.0
    near = f"; the nearest came {late:.3g} days late" if late > 0 else ""
    text = (
        f"no plan was found, which proves nothing: another order or choice may hold{near}. Give late jobs a higher "
        f"priority or a later deadline, or {NARROW}"
    )
    return InputProblem("spec.jobs", text)
