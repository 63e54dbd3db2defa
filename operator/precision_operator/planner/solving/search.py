"""Choices put into time, and made better by small changes: what a job gets, and which of equal priority goes first.

The steps are counted and drawn from a fixed seed, so the same inputs give the same plan unless the time limit ends the
search.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from precision_api.kinds.capacity_plan import Objective
from precision_operator.planner.inputs.terms import ENDLESS, OutOfTime, PlanClock, Terms
from precision_operator.planner.solving.budgets import budgets_used, cost, energy
from precision_operator.planner.solving.options import Offer, Option
from precision_operator.planner.solving.schedule import SLACK, JobSlot, in_turn, schedule

STEPS = 60_000
"""Placements of a job that one search may try: 3 s on one core where no two steps lead to the same choices."""
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
        self._random = random.Random(0)
        self._deadlines = any(offer.job.deadline_days is not None for offer in self.offers)
        self._names = sorted(offer.job.name for offer in self.offers)
        self._places: dict[int, dict[int, int]] = {}
        self._worst: tuple[Candidate | None, list[int]] = None, []

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
        over = sum(max(0.0, values[place] / most - 1 - SLACK) for place, most in self.held.items() if most > 0)
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

    def try_choice(self, chosen: Sequence[Option], number: int) -> Candidate | None:
        """The best order of these choices."""
        best: Candidate | None = None
        for rank in self.ranks(chosen):
            candidate = self.placed(chosen, rank)
            if candidate is not None and (best is None or candidate.score(number) < best.score(number)):
                best = candidate
            if self.clock.over:
                break
        self.take(best, number)
        return best

    def improve(self, start: Candidate | None, number: int, part: float = 1.0) -> None:
        """Change one job or the order of two, as long as it helps and steps are left."""
        if start is None:
            return
        now, jobs = start, len(self.offers)
        tries = int(STEPS * part / max(jobs, 4) / (1 + jobs / 40))
        # Of few jobs most steps lead to what was tried before.
        tried: dict[tuple[tuple[int, ...], tuple[int, ...]], Candidate | None] = {}
        for _ in range(tries):
            if self.clock.over:
                return
            changed = self._changed(now)
            if changed is None:
                continue
            key = tuple(map(id, changed[0])), tuple(changed[1].values())
            if key not in tried:
                tried[key] = self.placed(*changed)
            candidate = tried[key]
            if candidate is not None and candidate.score(number) <= now.score(number):
                now = candidate
                self.take(candidate, number)

    def _changed(self, now: Candidate) -> tuple[Sequence[Option], Rank] | None:
        chosen, rank = list(now.chosen), now.rank
        kind = self._random.random()
        if kind < 0.35 and len(chosen) > 1:
            first, second = self._random.sample(self._names, 2)
            return chosen, {**rank, first: rank[second], second: rank[first]}
        for _ in range(2 if kind > 0.8 else 1):
            place = self._picked(now)
            options = self.offers[place].options
            if len(options) < 2:
                return None
            if self._random.random() < 0.5:
                at = self._place_of(chosen[place], place)
                step = self._random.choice((-3, -2, -1, 1, 2, 3))
                chosen[place] = options[min(max(at + step, 0), len(options) - 1)]
            else:
                chosen[place] = self._random.choice(options)
        return chosen, rank

    def _place_of(self, option: Option, number: int) -> int:
        """Where an option stands among those of its job's offer; 0 where it is none of them."""
        options = self.offers[number].options
        if number not in self._places:
            self._places[number] = {id(choice): place for place, choice in enumerate(options)}
        at = self._places[number].get(id(option))
        if at is None:  # from a search among other sizes
            at = options.index(option) if option in options else 0
        return at

    def _picked(self, now: Candidate) -> int:
        """Half of the time a job that ends last or late."""
        if self._random.random() < 0.5:
            return self._random.randrange(len(self.offers))
        if self._worst[0] is not now:
            slots = now.slots
            self._worst = now, sorted(range(len(slots)), key=lambda place: (-_late(slots[place]), -slots[place].end))
        worst = self._worst[1]
        return worst[min(int(self._random.expovariate(1.0)), len(worst) - 1)]


def _late(slot: JobSlot) -> float:
    day = slot.option.job.deadline_days
    return 0.0 if day is None or slot.end <= day * (1 + SLACK) else slot.end - day
