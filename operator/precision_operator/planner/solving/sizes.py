"""Which sizes are in the program: all where they are few; else those that the prices of all sizes pick.

The gap that is reported is to a bound over all sizes in both cases. When the time is over, the best plan until then
is the answer.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.quantities import InputProblem
from precision_operator.planner.inputs.terms import Failures, NoneFound, NotKnown, OutOfTime, PlanClock, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool, may_use
from precision_operator.planner.rates.speed import conditions_of
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.earliest import place_earliest
from precision_operator.planner.solving.former import NO_FORMER, Former
from precision_operator.planner.solving.options import LIMITS, Offer, offer_of, offers, sizes
from precision_operator.planner.solving.prices import Market, priced
from precision_operator.planner.solving.schedule import in_turn
from precision_operator.planner.solving.search import Search
from precision_operator.planner.solving.solve import (
    Solution,
    cheapest_of_each,
    objectives_of,
    shortest_of_each,
    solution_of,
    solve,
)

MOST = 6_000
"""Sizes of all jobs in all pools with all recipes that are all in the program."""
OF_OPTIONS = 0.4
"""Part of the time in which the options of all sizes must be made, else only some are."""
OF_FIRST = 0.25
"""Part of the time for a first plan where sizes are many,"""
OF_PRICES = 0.5
"""and of what is left then for the bound over all of them."""

ROUNDS, OF_ROUND, MORE = 4, 0.6, 1.1
"""Times that sizes are chosen until stops are those of what is chosen, the time of each, and what of it is taken."""
STOPS = InputProblem("spec.jobs", LIMITS["stops"])

FIRST_REACH, MOST_REACH = 1.3, 20.0
"""Factors on a plan's sizes up to which others are offered too, where it is further from the bound than asked."""

SizesSolution = tuple[tuple[Offer, ...], Solution | None, tuple[InputProblem, ...]]
"""What was offered, the plan or None, and, where None is not proved, why."""


def solve_beside(
    pools: Sequence[CandidatePool], terms: Terms, clock: PlanClock, former: Former = NO_FORMER
) -> tuple[Terms, SizesSolution]:
    """As `solve_sizes`, and the terms with what each job is taken to have beside the others when stops for want of a
    free node are worked out: of jobs without maxGPUs at least what the plan gives them. None is first taken to have
    any: if no plan holds the limits then, none does, and no plan passes its bound. Raises NotKnown."""
    names, terms = (
        [job.name for job in terms.jobs if not job.running and job.max_gpus is None],
        replace(terms, taken={}),
    )
    progress = (conditions_of(job, pool, terms).progress for job in terms.jobs for pool in pools if may_use(job, pool))
    shared = any(isinstance(of, Failures) and of.repairs and of.repairs.others for of in progress)
    terms, bound = replace(terms, taken={name: {} for name in names if shared}), 0.0
    for number in range(ROUNDS):
        part = clock.part(OF_ROUND) if terms.taken and number < ROUNDS - 1 else clock
        made, solution, unproved = solve_sizes(pools, terms, part, former)
        if solution is None:
            return terms, (made, None, (*unproved, STOPS) if number else unproved)
        bound = bound or solution.bound
        chosen = [slot.option for slot in solution.slots if slot.option.job.name in terms.taken]
        taken = {option.job.name: dict(terms.taken[option.job.name]) for option in chosen}
        if all(taken[option.job.name].get(option.pool.name, 0) >= option.gpus for option in chosen):
            return terms, (made, replace(solution, gap=solution.gap_to(bound)), unproved)
        for option in chosen:
            mine = taken[option.job.name]
            mine[option.pool.name] = max(mine.get(option.pool.name, 0), math.ceil(option.gpus * MORE))
        terms = replace(terms, taken=taken)
    raise NoneFound(STOPS)


def solve_sizes(
    pools: Sequence[CandidatePool], terms: Terms, clock: PlanClock, former: Former = NO_FORMER
) -> SizesSolution:
    """The best plan over the sizes, begun with a former one. Raises NotKnown.

    No offers and no plan: it is proved that some job is late.
    """
    catalog = Catalog(pools, terms, clock)
    former = former.offered(catalog)
    if sizes(pools, terms) <= MOST:
        try:
            every = offers(catalog, every=True, clock=clock.part(OF_OPTIONS))
        except OutOfTime:
            clock.check()
        else:
            solution = _few(every, catalog, former) if all(offer.options for offer in every) else None
            return every, solution and _kept(former, every, terms, solution, clock), ()
    usual = offer_of(catalog, terms.jobs[0], None, False, clock)
    if not usual.options:
        return offers(catalog), None, ()
    made, solution, unproved = _priced(catalog, objectives_of([usual], terms), former)
    return made, solution and _kept(former, made, terms, solution, clock), unproved


def _kept(former: Former, made: Sequence[Offer], terms: Terms, solution: Solution, clock: PlanClock) -> Solution:
    """With what is kept of the former plan, and whether any part of the search was ended by its time."""
    kept = former.kept(made, terms, solution, clock)
    return replace(kept, timed_out=solution.timed_out or bool(clock.ends))


def _few(every: Sequence[Offer], catalog: Catalog, former: Former) -> Solution | None:
    """The best plan where all sizes are in the program; the end of the last job is bounded by prices."""
    proved, names = 0.0, objectives_of(every, catalog.terms)
    if names[0] == "time":
        with suppress(OutOfTime):
            market = Market(catalog, "time")
            if market.infeasible:
                return None
            proved, _ = priced(market, catalog.clock.part(OF_FIRST))
    first = former.whole(Search(every, catalog.terms, names, catalog.clock))
    return solve(every, catalog.terms, catalog.clock, first, names, proved)


def _priced(catalog: Catalog, names: tuple[Objective, ...], former: Former) -> SizesSolution:
    terms, clock = catalog.terms, catalog.clock
    if not terms.objectives and not all(job.deadline_days for job in terms.jobs):
        names = ("time",)
    market = Market(catalog, names[0])
    if market.infeasible:
        try:  # it is proved that there is no plan: what was offered says why, where time suffices
            return offers(catalog), None, ()
        except OutOfTime:
            return (), None, ()
    quick = offers(catalog, market.quick())
    least = market.least()
    search = _first(Search(quick, terms, names, clock.part(OF_FIRST)))
    search.take(former.whole(search), 0)
    try:
        proved, picked = priced(market, clock.part(OF_PRICES))
        bound = max(proved, least)
        # Where prices picked none, those of a first plan, else a spread.
        made = quick if search.best and not picked else offers(catalog, picked or None)
        if not all(offer.options for offer in made):
            return made, None, ()
        solution = solve(made, terms, clock, search.best, names, bound)
    except OutOfTime:
        if search.best is None:
            raise
        return quick, solution_of(search, search.best, least, True), ()
    if solution is None:
        text = (
            "no plan was found with the sizes that were tried, which proves nothing. Name a size between with "
            "jobs[].minGPUs and maxGPUs, or narrow the choice with jobs[].pools"
        )
        return made, None, (InputProblem("spec.jobs", text),)
    reach = FIRST_REACH
    with suppress(NotKnown):
        while solution.gap_to(bound) > terms.gap and not clock.over and reach < MOST_REACH:
            near = market.near(solution.slots, reach)
            wider = offers(catalog, {name: near[name] | picked.get(name, frozenset()) for name in near})
            better = solve(wider, terms, clock, solution.candidate, names, bound)
            made, solution, reach = wider, better or solution, reach * FIRST_REACH
    return made, replace(solution, gap=solution.gap_to(bound)), ()


def _first(search: Search) -> Search:
    """With the best of some plans that need no program."""
    if not all(offer.options for offer in search.offers):
        return search
    name = search.objectives[0]
    for chosen in (cheapest_of_each(search.offers, name), shortest_of_each(search.offers)):
        rank = {option.job.name: place for place, option in enumerate(in_turn(chosen))}
        if search.best is None or name == "time":
            search.take(search.placed(chosen, rank), 0)
    if search.best is None or name == "time":
        place_earliest(search, 0)
    return search
