"""Which sizes are in the program: all where they are few; else those that the prices of all sizes pick.

The gap that is reported is to a bound over all sizes in both cases. When the time is over, the best plan until then
is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from precision_operator.planner.candidate_pool import CandidatePool
from precision_operator.planner.catalog import Catalog
from precision_operator.planner.clock import Clock, OutOfTime
from precision_operator.planner.earliest import EarliestEnds
from precision_operator.planner.highs import begin
from precision_operator.planner.options import Offer, Tried, offers, sizes
from precision_operator.planner.prices import Market, Priced, priced
from precision_operator.planner.quantities import Problem
from precision_operator.planner.schedule import in_turn
from precision_operator.planner.search import Search
from precision_operator.planner.solve import (
    Solution,
    cheapest_of_each,
    objectives_of,
    shortest_of_each,
    solution_of,
    solve,
)
from precision_operator.planner.terms import Terms

MOST = 6_000
"""Sizes of all jobs in all pools with all recipes that are all in the program."""
OF_OPTIONS = 0.4
"""Part of the time in which the options of all sizes must be made, else only some are."""
OF_FIRST = 0.25
"""Part of the time for a first plan where sizes are many,"""
OF_PRICES = 0.5
"""and of what is left then for the bound over all of them."""

Solved = tuple[tuple[Offer, ...], Solution | None, tuple[Problem, ...]]
"""What was offered, the plan or None, and, where None is not proved, why."""


def solve_sizes(found: Sequence[CandidatePool], terms: Terms, clock: Clock) -> Solved:
    """The best plan over the sizes. Raises NotKnown. No offers and no plan: it is proved that some job is late."""
    begin()
    catalog = Catalog(found, terms, clock)
    if sizes(found, terms) <= MOST:
        try:
            every = offers(found, terms, Tried(every=True), catalog, clock.part(OF_OPTIONS))
        except OutOfTime:
            clock.check()
        else:
            return every, solve(every, terms, clock) if all(offer.options for offer in every) else None, ()
    usual = offers(found, replace(terms, jobs=terms.jobs[:1]), None, catalog)
    if not all(offer.options for offer in usual):
        return offers(found, terms, None, catalog), None, ()
    return _priced(found, terms, clock, catalog, usual)


def _priced(
    found: Sequence[CandidatePool], terms: Terms, clock: Clock, catalog: Catalog, usual: tuple[Offer, ...]
) -> Solved:
    names = objectives_of(usual, terms)
    if not terms.objectives and not all(job.deadline_days for job in terms.jobs):
        names = ("time",)
    market = Market(catalog, names[0])
    if market.infeasible:
        return _clashing(found, terms, catalog), None, ()
    quick = offers(found, terms, Tried(every=True, picked=market.quick()), catalog)
    least = market.least(clock)
    search = _first(Search(quick, terms, names, clock.part(OF_FIRST)))
    try:
        told = priced(market, clock.part(OF_PRICES))
        bound = max(told.bound, least)
        made = _picked(found, terms, catalog, told, quick if search.best else None)
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
        return made, None, (Problem("spec.jobs", text),)
    reached = solution.values[0]
    gap = max(0.0, reached - bound) / abs(reached) if reached else 0.0
    return made, replace(solution, gap=gap, timed_out=solution.timed_out or clock.over), ()


def _picked(
    found: Sequence[CandidatePool], terms: Terms, catalog: Catalog, told: Priced, quick: tuple[Offer, ...] | None
) -> tuple[Offer, ...]:
    """The choices for the program: what the prices picked, else those of a first plan, else a spread."""
    if told.picked:
        return offers(found, terms, Tried(every=True, picked=told.picked), catalog)
    return quick or offers(found, terms, None, catalog)


def _clashing(found: Sequence[CandidatePool], terms: Terms, catalog: Catalog) -> tuple[Offer, ...]:
    """What was offered where it is proved that there is no plan, to say why; none where time does not suffice."""
    try:
        return offers(found, terms, None, catalog)
    except OutOfTime:
        return ()


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
        EarliestEnds(search, 0).place()
    return search
