"""The best plan that a program, a schedule and CP-SAT find, and the bound that is proved for all plans.

Objective after objective: the program (HiGHS) chooses pool, recipe and size of each job and bounds what any plan can
reach (the end of the last job is bounded by prices and room); the schedule puts the choice into time; where that is
further from the bound than asked, CP-SAT chooses and places together, from the best plan on, until the gap is reached
or the time is over.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precision_api.facts.names import grouped
from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.quantities import InputProblem
from precision_operator.planner.inputs.terms import NARROW, NoneFound, OutOfTime, PlanClock, Terms, clock_of
from precision_operator.planner.solving.budgets import dollars_beside_committed, is_committed
from precision_operator.planner.solving.earliest import place_earliest
from precision_operator.planner.solving.linear import run
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.program import PREFER_SHORT, AssignmentProgram, Constraint
from precision_operator.planner.solving.schedule import JobSlot, longest_chain
from precision_operator.planner.solving.search import ALL_ORDERS, Candidate, Rank, Search
from precision_operator.planner.solving.size_work import room_bound
from precision_operator.planner.solving.timetable import Timetable

HELD = 1e-6
"""Relative slack by which a later objective may spoil an earlier one."""
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
    left: str = ""
    """Why some choice of a former plan was left, or what a better plan would gain that was left for it."""

    def gap_to(self, bound: float) -> float:
        """How far it is from a bound of its first objective, as a share of it."""
        return max(0.0, self.values[0] - bound) / abs(self.values[0]) if self.values[0] else 0.0

    @property
    def bound(self) -> float:
        """What is proved of the first objective of all plans."""
        return self.values[0] * (1 - self.gap)

    @property
    def candidate(self) -> Candidate:
        """To begin another search with."""
        return Candidate(tuple(slot.option for slot in self.slots), self.rank, self.slots, 0.0, 0.0, self.values)


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
        for number in range(len(names)):
            mine = clock.part(1 / (len(names) - number))
            known = proved if number == 0 else 0.0
            reached, ended = _reached(search, number, mine, known)
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
    made = Solution(best.slots, search.objectives, best.values, 0.0, late, best.rank)
    return replace(made, gap=made.gap_to(bound))


def _reached(search: Search, number: int, clock: PlanClock, proved: float) -> _Bound:
    """The least of one objective, with what earlier ones hold; `proved` is a bound that is known already."""
    name, offers = search.objectives[number], tuple(search.offers)
    if not all(offer.options for offer in offers):
        raise _Infeasible
    shortest = {offer.job.name: min(option.days for option in offer.options) for offer in offers}
    chain = longest_chain([offer.job for offer in offers], shortest)
    bound = max(proved, *((room_of_offers(offers), chain) if name == "time" else (least_of_each(offers, name),)))
    if name == "time":
        search.try_choice(shortest_of_each(offers), number)
        place_earliest(search, number)
    if name != "time" or search.best is None:
        try:
            bound = max(bound, _chosen(search, number, clock))
        except OutOfTime:
            if search.best is None:
                search.try_choice(shortest_of_each(offers), number)
    return _improved(search, number, clock, bound)


def _chosen(search: Search, number: int, clock: PlanClock) -> float:
    """What the program proves of an objective but time, its choice put into time.

    Raises _Infeasible, OutOfTime without a solution, NoneFound where the program fails.
    """
    program, name = AssignmentProgram(tuple(search.offers), search.terms, clock=clock), search.objectives[number]
    wanted, held = program.objective(name), _held_rows(search, program)
    scale = float(np.abs(wanted).max()) or 1.0
    clock.check()
    model = program.model(wanted / scale + program.short(), search.terms.gap / 2, 0.0, held)
    clock.check()
    solution = run(replace(model, seconds=clock.left / 2))
    if solution.state == "infeasible":
        raise _Infeasible
    if solution.state == "limit":
        clock.ends.append(clock.now())
    if solution.x is None and solution.state == "limit":
        raise OutOfTime(clock.limit)
    if solution.x is None:
        text = f"the solver failed, so whether there is a plan is not known ({solution.text}): {NARROW}"
        raise NoneFound(InputProblem("spec", text))
    search.try_choice(program.taken(solution.x), number)
    return 0.0 if name == "time" else (solution.bound - PREFER_SHORT * len(search.offers)) * scale


def _improved(search: Search, number: int, clock: PlanClock, bound: float) -> _Bound:
    """(what is proved, whether time ended the proof), after CP-SAT has looked for better plans. Raises _Infeasible."""

    def enough() -> bool:
        best = search.best.values[number] if search.best else math.inf
        return best <= bound + (search.terms.gap + HELD) * abs(bound)

    table, forbidden, every = None, list[tuple[Option, ...]](), len(search.offers) <= ALL_ORDERS
    while not clock.over and not enough():
        had = search.best
        if table is None:
            last = had.values[number] if had and search.objectives[number] == "time" else _far(search)
            table = Timetable(search, number, last, forbidden)
        # Where there is no plan yet, the first one is enough: the last day that is looked at is then nearer.
        ended, proved = table.solve(bound * (1 + search.terms.gap) if had else math.inf, clock)
        if ended == "infeasible":
            if search.best is None and table.ordered:  # by priority: whatever the order, there may be a plan
                ended, _ = Timetable(search, number, _far(search), (), ordered=False).solve(math.inf, clock)
            if search.best is None and ended == "infeasible" and (every or not forbidden or table.ordered):
                raise _Infeasible
            if search.best is not None and every:  # of each choice that is forbidden, every order was tried
                bound = search.best.values[number]
            break
        if search.best is not None:
            bound = max(bound, min(proved, search.best.values[number]))
        if ended == "optimal":
            forbidden.append(table.last_chosen)
            table.forbid(table.last_chosen)
        if ended == "limit" and (had or not search.best):
            break
        table = None if had is None and search.best else table
    return bound, not enough()


def least_of_each(offers: Sequence[Offer], name: Objective) -> float:
    """No plan costs (dollars) or takes (megawatt hours) less: each job has its cheapest choice."""
    if not all(offer.options for offer in offers):
        return 0.0
    if name == "energy":
        return sum(min(option.megawatt_hours or 0.0 for option in offer.options) for offer in offers)
    # GPU hours that are paid for: all of them for nothing, or those that the jobs could use at most taken off.
    free = sum(min(map(dollars_beside_committed, offer.options)) for offer in offers)
    whole = sum(min(option.dollars or 0.0 for option in offer.options) for offer in offers)
    paid = {option.pool.name: option for offer in offers for option in offer.options if is_committed(option)}
    hours = sum(o.pool.terms.committed_gpu_hours * (o.gpu_dollars_per_hour or 0.0) for o in paid.values())
    return max(free, whole - hours)


def room_of_offers(offers: Sequence[Offer]) -> float:
    """The room bound of these choices, in days."""
    gpus = {option.pool.name: option.pool.gpus for offer in offers for option in offer.options}
    rows = [grouped((option.pool.name, option.gpu_hours / 24) for option in offer.options) for offer in offers]
    return room_bound(gpus, [{name: min(days) for name, days in row.items()} for row in rows])


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


def _far(search: Search) -> float:
    """A day by which all have ended if there is any plan: one job after the other, the longest of each."""
    last = max(offer.job.not_before for offer in search.offers)
    return last + sum(max(option.days for option in offer.options) for offer in search.offers)


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
