"""Without a solver: bounds, so that there always is one, and the answer that people give.

A bound is what each job takes at least, whatever the others do; in the answer each job in turn takes the best rate that
is left.
"""

import math
from collections.abc import Sequence

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import PlanLimits
from precision_operator.planner.solving.budgets import dollars_beside_committed, is_committed
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.schedule import SLACK, JobSlot, schedule


def greedy(offers: Sequence[Offer], limits: PlanLimits, name: Objective) -> tuple[JobSlot, ...] | None:
    """The greedy choice in time; None where a job finds no place: the greedy answer is no answer then."""
    chosen = greedy_choice(offers, name)
    return None if chosen is None else schedule(chosen, limits)


def greedy_choice(offers: Sequence[Offer], name: Objective) -> tuple[Option, ...] | None:
    """Each job gets the pool and recipe with the highest rate of a GPU.

    Of its sizes the smallest that meets the deadline. Without a deadline the smallest, or, where time counts, the
    largest within an equal share of all GPUs. None where no choice meets a job's deadline.
    """
    gpus = {option.pool.name: option.pool.gpus for offer in offers for option in offer.options}
    share = sum(gpus.values()) / len(offers) if name == "time" else 0.0
    ranked = [_ranked(offer, share) for offer in offers]
    return tuple(options[0] for options in ranked) if all(ranked) else None


def _ranked(offer: Offer, share: float) -> list[Option]:
    deadline = (offer.job.deadline_days or math.inf) * (1 + SLACK)
    in_time = [option for option in offer.options if option.deadline_days <= deadline]

    def far(option: Option) -> float:
        """Sizes up to the share, largest first, then the larger ones."""
        return -option.gpus if option.gpus <= share else option.gpus

    return sorted(in_time, key=lambda o: (-o.source.per_gpu, far(o), o.pool.name, o.recipe))


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


def room_bound(offers: Sequence[Offer]) -> float:
    """No plan ends before this day: with any prices of the pools' GPU days, all work costs no more than all room.

    Prices are as the jobs' speeds there: of pools that all do the same work in, none is cheaper than another one.
    """
    gpus: dict[str, int] = {}
    least: list[dict[str, float]] = []
    for offer in offers:
        mine: dict[str, float] = {}
        for option in offer.options:
            name, days = option.pool.name, option.gpu_hours / 24
            gpus[name] = option.pool.gpus
            mine[name] = min(days, mine.get(name, days))
        least.append(mine)
    all_days = {name: [mine[name] for mine in least if name in mine] for name in gpus}
    means = {name: sum(days) / len(days) for name, days in all_days.items()}
    room = sum(gpus[name] / means[name] for name in gpus)
    work = sum(min((days / means[name] for name, days in mine.items()), default=0.0) for mine in least)
    return work / room if room else 0.0
