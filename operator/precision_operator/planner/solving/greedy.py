"""The answer that people give without a solver: each job in turn takes the best rate that is left."""

import math
from collections.abc import Sequence

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import PlanLimits
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
