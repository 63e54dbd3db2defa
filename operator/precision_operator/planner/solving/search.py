"""Choices put into time in some orders, and the best plan of all that was tried."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import ENDLESS, OutOfTime, PlanClock, Terms
from precision_operator.planner.solving.budgets import budgets_used, cost, energy
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.schedule import SLACK, JobSlot, in_turn, schedule

ALL_ORDERS = 5
"""Jobs up to which every order is tried."""
Rank = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Choices with their places in time. `late` are days behind deadlines, `over` shares above budgets and what is
    held: both are 0 where the plan holds."""

    chosen: tuple[Option, ...]
    rank: Rank
    slots: tuple[JobSlot, ...]
    late: float
    over: float
    values: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether all limits and deadlines hold."""
        return self.late <= 0 and self.over <= 0

    def score(self, name: int) -> tuple[float, ...]:
        """Less is better: first what breaks a limit, then the objective of this number, then the others."""
        return (self.late + self.over, self.values[name], *self.values)


def value(name: Objective, slots: Sequence[JobSlot]) -> float:
    chosen = [slot.option for slot in slots]
    if name == "time":
        return max((slot.end for slot in slots), default=0.0)
    total = cost(chosen) if name == "cost" else energy(chosen)
    assert total is not None, "options without this figure are left out"
    return total


@dataclass
class Search:
    """The best plan so far."""

    offers: Sequence[Offer]
    terms: Terms
    objectives: tuple[Objective, ...]
    clock: PlanClock
    held: dict[int, float] = field(default_factory=dict)
    """By number of an objective that is done, the most that it may come to."""
    best: Candidate | None = None
    nearest: Candidate | None = None
    """The least late of those that do not hold."""

    def __post_init__(self) -> None:
        self._deadlines = any(offer.job.deadline_days is not None for offer in self.offers)
        self._tried: set[tuple[int, ...]] = set()

    def placed(self, chosen: Sequence[Option], rank: Rank) -> Candidate | None:
        """These choices in time; None where one never finds room, or time is over and there is a plan already."""
        limits, clock = self.terms.limits, self.clock if self.best is not None else ENDLESS
        try:
            slots = careful = schedule(chosen, limits, rank=rank, clock=clock)
            if self._deadlines:
                careful = schedule(chosen, limits, lambda option: option.deadline_days, rank, clock)
        except OutOfTime:
            return None
        if slots is None or careful is None:
            return None
        late = sum(_late(slot) for slot in careful)
        values = tuple(value(name, slots) for name in self.objectives)
        over = sum(max(0.0, (values[place] - most) / max(most, SLACK) - SLACK) for place, most in self.held.items())
        over += sum(max(0.0, share - 1 - SLACK) for share in budgets_used(chosen, self.terms).values())
        return Candidate(tuple(chosen), rank, slots, late, over, values)

    def ranks(self, chosen: Sequence[Option]) -> Iterator[Rank]:
        """Orders worth a try: what must end first, the longest, the largest; of a few jobs all."""
        if len(chosen) <= ALL_ORDERS:
            for names in itertools.permutations([option.job.name for option in chosen]):
                yield {name: place for place, name in enumerate(names)}
            return
        yield {option.job.name: place for place, option in enumerate(in_turn(chosen))}
        figures = ([o.days for o in chosen], [o.gpu_hours for o in chosen], [float(o.gpus) for o in chosen])
        for figure in figures:
            most = {o.job.name: amount for o, amount in zip(chosen, figure, strict=True)}
            ordered = sorted(chosen, key=lambda o: (-most[o.job.name], o.job.name))
            yield {option.job.name: place for place, option in enumerate(ordered)}

    def take(self, candidate: Candidate | None, number: int) -> bool:
        """Keep a candidate if it is the best; whether it was."""
        if candidate is None:
            return False
        if not candidate.holds:
            if self.nearest is None or candidate.late + candidate.over < self.nearest.late + self.nearest.over:
                self.nearest = candidate
            return False
        if self.best is None or candidate.score(number) < self.best.score(number):
            self.best = candidate
            return True
        return False

    def try_choice(self, chosen: Sequence[Option], number: int, further: Iterable[Rank] = ()) -> Candidate | None:
        """The best order of these choices, `further` ones too; None where they were tried before, or never fit."""
        best: Candidate | None = None
        key = tuple(map(id, chosen))
        if key in self._tried and len(chosen) <= ALL_ORDERS:
            return None
        usual = self.ranks(chosen) if key not in self._tried else ()
        self._tried.add(key)
        for rank in itertools.chain(further, usual):
            candidate = self.placed(chosen, rank)
            if candidate is not None and (best is None or candidate.score(number) < best.score(number)):
                best = candidate
            if self.clock.over:
                break
        self.take(best, number)
        return best


def _late(slot: JobSlot) -> float:
    day = slot.option.job.deadline_days
    return 0.0 if day is None or slot.end <= day * (1 + SLACK) else slot.end - day
