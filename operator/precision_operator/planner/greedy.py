"""The answer that people give without a solver: each job in turn takes the best rate that is left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from precision_api.capacity_plan import Objective
from precision_operator.planner.options import Offer, Option
from precision_operator.planner.schedule import SLACK, Slot, fits, schedule
from precision_operator.planner.terms import Limits


def greedy(offers: Sequence[Offer], limits: Limits, name: Objective) -> tuple[Slot, ...] | None:
    """By priority, each job gets the pool and recipe with the highest rate of a GPU that still has room.

    Of its sizes the smallest that meets the deadline. Without a deadline the smallest, or, where time counts, the
    largest within an equal share of all GPUs. None where a job finds no place: the greedy answer is no answer then.
    """
    gpus = {option.pool.name: option.pool.gpus for offer in offers for option in offer.options}
    share = sum(gpus.values()) / len(offers) if name == "time" else 0.0
    chosen: dict[str, Option] = {}
    for offer in sorted(offers, key=lambda offer: (-offer.job.priority, offer.job.name)):
        at_once = [option for option in chosen.values() if not option.job.after]
        ranked = _ranked(offer, share)
        taken = next((o for o in ranked if offer.job.after or fits([*at_once, o], limits)), None)
        if taken is None:
            return None
        chosen[offer.job.name] = taken
    return schedule([chosen[offer.job.name] for offer in offers], limits)


def _ranked(offer: Offer, share: float) -> list[Option]:
    deadline = (offer.job.deadline_days or math.inf) * (1 + SLACK)
    in_time = [option for option in offer.options if option.deadline_days <= deadline]

    def far(option: Option) -> float:
        """Sizes up to the share, largest first, then the larger ones."""
        return -option.gpus if option.gpus <= share else option.gpus

    return sorted(in_time, key=lambda o: (-o.source.per_gpu, far(o), o.pool.name, o.recipe))
