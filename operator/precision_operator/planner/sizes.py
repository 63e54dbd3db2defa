"""Which sizes are in the program: all where they are few; else those that the prices of all sizes pick.

The gap that is told is to a bound over all sizes in both cases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from precision_operator.planner.candidate_pool import CandidatePool
from precision_operator.planner.catalog import Catalog
from precision_operator.planner.highs import share
from precision_operator.planner.options import Offer, Tried, offers, sizes
from precision_operator.planner.prices import priced
from precision_operator.planner.quantities import Problem
from precision_operator.planner.solve import Solution, objectives_of, solve
from precision_operator.planner.terms import Terms

MOST = 6_000
"""Sizes of all jobs in all pools with all recipes that are all in the program."""

Solved = tuple[tuple[Offer, ...], Solution | None, tuple[Problem, ...]]
"""What was offered, the plan or None, and, where None is not proved, why."""


def solve_sizes(found: Sequence[CandidatePool], terms: Terms, began: float) -> Solved:
    """The best plan over the sizes. Raises NotKnown."""
    catalog = Catalog(found, terms)
    if sizes(found, terms) <= MOST:
        every = offers(found, terms, Tried(every=True), catalog)
        if not all(offer.options for offer in every):
            return every, None, ()
        return every, solve(every, terms, began), ()
    usual = offers(found, replace(terms, jobs=terms.jobs[:1]), None, catalog)
    if not all(offer.options for offer in usual):
        return offers(found, terms, None, catalog), None, ()
    return _priced(found, terms, began, catalog, usual)


def _priced(
    found: Sequence[CandidatePool], terms: Terms, began: float, catalog: Catalog, usual: tuple[Offer, ...]
) -> Solved:
    names = objectives_of(usual, terms)
    if not terms.objectives and not all(job.deadline_days for job in terms.jobs):
        names = ("time",)
    told = priced(catalog, names[0], share(began + terms.seconds, 2))
    if not told.picked:
        made = offers(found, terms, None, catalog)
        if not all(offer.options for offer in made) or told.infeasible:
            return made, None, ()
    else:
        made = offers(found, terms, Tried(every=True, picked=told.picked), catalog)
    proved = told.bound if math.isfinite(told.bound) else 0.0
    solution = solve(made, terms, began, objectives=names, proved=proved)
    if solution is None:
        text = (
            "no plan was found with the sizes that were tried, which proves nothing. Name a size between with "
            "jobs[].minGPUs and maxGPUs, or narrow the choice with jobs[].pools"
        )
        return made, None, (Problem("spec.jobs", text),)
    reached, bound = solution.values[0], told.bound
    gap = max(0.0, reached - bound) / abs(reached) if reached and math.isfinite(bound) else solution.gap
    over = time.monotonic() > began + terms.seconds
    return made, replace(solution, gap=gap, timed_out=solution.timed_out or over), ()
