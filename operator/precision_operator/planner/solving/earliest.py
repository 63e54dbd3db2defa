"""Schedules for the end of the last job: each job in turn gets the pool, recipe and size with which it ends first.

List scheduling of moldable jobs, whose size is chosen when they start, by earliest finish time (Topcuoglu, Hariri and
Wu 2002). The first order is by the longest chain that a job begins, or by the most work that hangs on it. A larger size
ends a job sooner and may waste GPU hours that others need, so there is a limit of what a job may waste.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from precision_api.facts.names import grouped
from precision_operator.planner.inputs.terms import OutOfTime
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.schedule import JobSlot, PoolRoom, days_of, in_turn
from precision_operator.planner.solving.search import Rank, Search

WASTES = (math.inf, 0.3, 0.1, 0.05, 0.02, 0.0)
"""Parts by which a choice may take more GPU hours than the job's least in the same pool."""
EQUAL = 1e-9


def place_earliest(search: Search, number: int) -> None:
    """Try some orders and limits of waste for the objective `time` of this number; the search keeps the best plan."""
    for waste in WASTES:
        sorted_options: dict[str, list[Option]] = {}
        for rank in _ranks(search.offers):
            try:
                chosen = earliest_choice(search, rank, waste, sorted_options)
            except OutOfTime:
                return
            search.take(search.placed(chosen, rank) if chosen else None, number)


def earliest_choice(
    search: Search, rank: Rank, waste: float, sorted_options: dict[str, list[Option]]
) -> tuple[Option, ...] | None:
    """One option for each job, in the offers' order; None where a job never finds room. Raises OutOfTime.

    `sorted_options` keeps each job's for the next order.
    """
    room, done = PoolRoom(search.terms.limits), dict[str, JobSlot]()
    by_job = {offer.job.name: offer for offer in search.offers}
    for first in in_turn([offer.options[0] for offer in search.offers], rank):
        search.clock.check()
        job = first.job
        if job.name not in sorted_options:
            sorted_options[job.name] = _frugal(by_job[job.name], waste)
        slot = _earliest(room, sorted_options[job.name], max([job.not_before, *(done[name].end for name in job.after)]))
        if slot is None:
            return None
        room.take(slot.option, slot.start, slot.end)
        done[job.name] = slot
    return tuple(done[name].option for name in by_job)


def _frugal(offer: Offer, waste: float) -> list[Option]:
    """The options that waste no more, shortest first."""
    hours = grouped((option.pool.name, option.gpu_hours) for option in offer.options)
    most = {pool: min(mine) * (1 + waste) * (1 + EQUAL) for pool, mine in hours.items()}
    return sorted((o for o in offer.options if o.gpu_hours <= most[o.pool.name]), key=lambda o: (o.days, o.gpus))


def _earliest(room: PoolRoom, options: Sequence[Option], ready: float) -> JobSlot | None:
    """The slot that ends first. Options are shortest first, so once one can't end sooner no later one can."""
    best: JobSlot | None = None
    for option in options:
        if best is not None and ready + option.days >= best.end:
            break
        start = 0.0 if option.job.running else room.first(option, ready, option.days)
        if start < math.inf and (best is None or start + option.days < best.end):
            best = JobSlot(option, start, start + option.days)
    return best


def _ranks(offers: Sequence[Offer]) -> Iterator[Rank]:
    """Orders by the longest chain and by the most work that begins with a job, and by what must end first."""
    figures: tuple[Callable[[Option], float], ...] = (lambda option: option.days, lambda option: option.gpu_hours)
    for figure in figures:
        least = {offer.job.name: min(map(figure, offer.options)) for offer in offers}
        _, latest = days_of([offer.job for offer in offers], least, False, 0.0)
        ordered = sorted((latest[name] - amount, name) for name, amount in least.items())
        yield {name: place for place, (_, name) in enumerate(ordered)}
    if any(offer.job.deadline_days for offer in offers):
        yield {option.job.name: place for place, option in enumerate(in_turn([offer.options[0] for offer in offers]))}
