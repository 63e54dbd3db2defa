"""How much longer each job may take before the plan breaks a deadline or a budget."""

from collections.abc import Mapping
from dataclasses import replace

from precision_operator.planner.answer.odds import upper_bounds
from precision_operator.planner.inputs.terms import PlanClock, Terms
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.search import Search
from precision_operator.planner.solving.solve import Solution

STEPS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100)
"""Per cent more tokens that are tried, one after the other."""
MOST_JOBS = 40
"""Of larger plans it is not worked out: each step places all jobs."""


def slack(offers: tuple[Offer, ...], terms: Terms, solution: Solution, clock: PlanClock) -> Mapping[str, int]:
    """By job the largest step up to which every one holds, the order of the jobs as it is.

    Of plans of up to MOST_JOBS with a deadline or a budget; not of jobs whose rate is an upper bound. Raises OutOfTime.
    """
    chosen, bounded = solution.candidate.chosen, upper_bounds(solution.slots)
    limited = terms.limits.budgets or any(offer.job.deadline_days for offer in offers)
    if not limited or len(chosen) > MOST_JOBS:
        return {}
    search, made = Search(offers, terms, solution.objectives, clock), dict[str, int]()
    for option in (option for option in chosen if option.job.name not in bounded):
        made[option.job.name] = 0
        for percent in STEPS:
            clock.check()
            longer = _longer(option, 1 + percent / 100)
            placed = search.placed([longer if o is option else o for o in chosen], solution.rank)
            if placed is None or not placed.holds:
                break
            made[option.job.name] = percent
    return made


def _longer(option: Option, factor: float) -> Option:
    """The choice for so many times the tokens."""
    names = ("days", "deadline_days", "gpu_hours", "megawatt_hours", "power_dollars", "dollars")
    figures = {name: value * factor for name in names if (value := getattr(option, name)) is not None}
    return replace(option, **figures)
