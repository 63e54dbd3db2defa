"""Plans in which jobs wait for others: choices by HiGHS, each put into time by the schedule, until one holds.

The program is a relaxation: it does not see in which order jobs queue. Its optimum bounds the answer from below, and
where it has no solution there is no plan. If the schedule of its choice breaks a deadline or ends later, that choice is
forbidden and the program solved again, a few times; then all jobs are made as short as they can be, to run one after
the other; then jobs that wait are counted as running at once, which any schedule holds. The gap that is told is that of
the answer to the bound, so it is honest in every case. Where no try gives a plan, nothing is proved: another order, or
a choice that was not tried, may hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from precision_api.capacity_plan import Objective
from precision_operator.planner.highs import NARROW, NoneFound, OutOfTime, run, share
from precision_operator.planner.options import Offer, Option
from precision_operator.planner.program import HELD, PREFER_SHORT, Constraint, Program, Vector
from precision_operator.planner.quantities import Problem
from precision_operator.planner.solution import Solution, lateness, scheduled
from precision_operator.planner.terms import Terms

TRIES = 24
"""How often a choice that no schedule holds is forbidden before the last resorts."""
NAMED = 3
"""Late jobs that a sentence names."""


def queued(offers: Sequence[Offer], terms: Terms, objectives: tuple[Objective, ...], until: float) -> Solution | None:
    """The best plan of some tries; None where it is proved that there is none. Raises OutOfTime and NoneFound."""
    program = Program(tuple(offers), terms)
    best: Solution | None = None
    bound: float | None = None
    cuts: list[Constraint] = []
    missed: list[Mapping[str, float]] = []
    while len(cuts) < TRIES:
        try:
            found = _lexicographic(program, objectives, cuts, until)
        except OutOfTime:
            if best is None:
                raise
            return replace(best, timed_out=True)
        if found is None:
            break
        x, low, late = found
        bound = low if bound is None else bound
        made = scheduled(program.taken(x), objectives, terms, bound, late)
        if made is None:
            missed.append(lateness(program.taken(x), terms.limits) or {})
        elif best is None or made.values < best.values:
            best = made
        if best is not None and best.gap <= terms.gap + HELD:
            return best
        places = program.places(x)
        cuts.append(Constraint(places, (1.0,) * len(places), 0.0, len(places) - 1.0))
    if best is not None or bound is None:
        return best
    for chosen, late in _last_resorts(program, objectives, until):
        made = scheduled(chosen, objectives, terms, bound, late)
        if made is not None:
            return made
        missed.append(lateness(chosen, terms.limits) or {})
    raise NoneFound(Problem("spec.jobs", _nothing_proved(missed)))


def _last_resorts(
    program: Program, objectives: tuple[Objective, ...], until: float
) -> Iterator[tuple[tuple[Option, ...], bool]]:
    """(choice, whether time ran out) with jobs as short as they can be, and with room for all of them at once."""
    found = run(program, program.short() / PREFER_SHORT, program.terms.gap, until)
    if found is not None:
        yield program.taken(found[0]), found[2]
    roomy = Program(program.offers, program.terms, all_at_once=True)
    found = _lexicographic(roomy, objectives, (), until)
    if found is not None:
        yield roomy.taken(found[0]), found[2]


def _nothing_proved(missed: Sequence[Mapping[str, float]]) -> str:
    """What was tried, how near it came, and what to do."""
    nearest = min(filter(None, missed), key=lambda late: max(late.values()), default={})
    worst = sorted(nearest.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{days:.3g} days late for job {job}" for job, days in worst[:NAMED])
    near = f"; the nearest came {named}" if named else ""
    tries = f"{len(missed)} tries" if len(missed) > 1 else "the only try"
    return (
        f"no plan was found in {tries}, which proves nothing: another order or choice may hold. A try gives each job a "
        f"pool, a recipe and a size, and lets jobs that wait queue by priority{near}. Give jobs that are late a higher "
        f"priority or a later deadline, or {NARROW}"
    )


def _lexicographic(
    program: Program, objectives: tuple[Objective, ...], cuts: Sequence[Constraint], until: float
) -> tuple[Vector, float, bool] | None:
    """(columns, bound of the first objective, whether time ran out); None where it is proved that nothing holds."""
    held: list[Constraint] = []
    bound, late = 0.0, False
    x: Vector | None = None
    for number, name in enumerate(objectives):
        wanted = program.objective(name)
        scale = float(np.abs(wanted).max()) or 1.0
        try:
            mine = share(until, len(objectives) - number)
            found = run(program, wanted / scale + program.short(), program.terms.gap, mine, (*cuts, *held))
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
        held.append(
            Constraint(tuple(map(int, columns)), tuple(map(float, wanted[columns] / scale)), -np.inf, most / scale)
        )
    return None if x is None else (x, bound, late)
