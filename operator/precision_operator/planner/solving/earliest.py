"""Schedules for the end of the last job: each job in turn gets the pool, recipe and size with which it ends first.

List scheduling of moldable jobs, whose size is chosen when they start, by earliest finish time (Topcuoglu, Hariri and
Wu 2002). The first order is by the longest chain that a job begins, or by the most work that hangs on it. A larger size
ends a job sooner and may waste GPU hours that others need, so each job has a limit of what it may waste. Order and
limits are then changed job by job.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from precision_api.facts.names import grouped
from precision_operator.planner.inputs.terms import OutOfTime, PlanClock
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.schedule import JobSlot, PoolRoom, days_of, in_turn
from precision_operator.planner.solving.search import ALL_ORDERS, Candidate, Rank, Search

WASTES = (math.inf, 0.3, 0.1, 0.05, 0.02, 0.0)
"""Parts by which a choice may take more GPU hours than the job's least in the same pool."""
STEPS = 40_000
"""Jobs that one search may place: 10 s on one core."""
EQUAL = 1e-9
Wastes = Mapping[str, float]


class EarliestEnds:
    """Places the jobs of a search's offers by earliest end; the search keeps the best plan of all that is tried."""

    def __init__(self, search: Search, number: int) -> None:
        """`number` is that of the objective `time`."""
        self.search, self.number = search, number
        self._offers = {offer.job.name: offer for offer in search.offers}
        self._options: dict[float, dict[str, list[Option]]] = {}
        self._now: Candidate | None = None
        self._wastes: Wastes = {}

    def chosen(self, rank: Rank, wastes: Wastes) -> tuple[Option, ...] | None:
        """One option for each job, in the offers' order; None where a job never finds room. Raises OutOfTime."""
        room, done = PoolRoom(self.search.terms.limits), dict[str, JobSlot]()
        for first in in_turn([offer.options[0] for offer in self.search.offers], rank):
            self.search.clock.check()
            job = first.job
            ready = max([job.not_before, *(done[name].end for name in job.after)])
            slot = _earliest(room, self._frugal(job.name, wastes[job.name]), ready)
            if slot is None:
                return None
            room.take(slot.option, slot.start, slot.end)
            done[job.name] = slot
        return tuple(done[offer.job.name].option for offer in self.search.offers)

    def _frugal(self, job: str, waste: float) -> list[Option]:
        """Made when they are first asked for: very many choices take longer to sort than some searches last."""
        by_job = self._options.setdefault(waste, {})
        if job not in by_job:
            by_job[job] = frugal(self._offers[job], waste)
        return by_job[job]

    def place(self) -> None:
        """Try some orders, with one limit of waste for all jobs."""
        for waste, rank in product(WASTES, _ranks(self.search.offers)):
            if self.search.clock.over:
                return
            self._try(rank, {offer.job.name: waste for offer in self.search.offers})

    def change(self, low: float, clock: PlanClock) -> None:
        """Change order and limits while that helps, until steps or time are over, or the plan is proved best.

        No plan ends before `low`.
        """
        search, drawn = self.search, random.Random(0)
        if len(search.offers) <= ALL_ORDERS:
            return
        for _ in range(STEPS // len(search.offers)):
            now, enough = self._now, low * (1 + search.terms.gap)
            if now is None or clock.over or (now.holds and now.values[self.number] <= enough):
                return
            kind = drawn.random()
            rank = _reordered(now, drawn) if kind > 0.4 else now.rank
            self._try(rank, _other_wastes(self._wastes, drawn) if kind < 0.5 else self._wastes)

    def _try(self, rank: Rank, wastes: Wastes) -> None:
        """Go on from these where they are no worse; nothing where time is over before they are placed."""
        try:
            chosen = self.chosen(rank, wastes)
        except OutOfTime:
            return
        tried = self.search.placed(chosen, rank) if chosen is not None else None
        self.search.take(tried, self.number)
        if tried is not None and (self._now is None or tried.score(self.number) <= self._now.score(self.number)):
            self._now, self._wastes = tried, wastes


def frugal(offer: Offer, waste: float) -> list[Option]:
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


def _other_wastes(wastes: Wastes, drawn: random.Random) -> Wastes:
    """Of one to three jobs another limit."""
    names = drawn.sample(sorted(wastes), min(drawn.choice((1, 1, 2, 3)), len(wastes)))
    return {**wastes, **{name: drawn.choice(WASTES) for name in names}}


def _reordered(now: Candidate, drawn: random.Random) -> Rank:
    """One job earlier in the order, half of the time one of those that end last; or two jobs exchanged."""
    names = sorted(now.rank, key=lambda name: now.rank[name])
    if drawn.random() < 0.5:
        late = sorted(now.slots, key=lambda slot: -slot.end)
        place = names.index(late[min(int(drawn.expovariate(0.5)), len(late) - 1)].option.job.name)
        names.insert(drawn.randrange(place + 1), names.pop(place))
    else:
        first, second = drawn.sample(range(len(names)), 2)
        names[first], names[second] = names[second], names[first]
    return {name: place for place, name in enumerate(names)}


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
