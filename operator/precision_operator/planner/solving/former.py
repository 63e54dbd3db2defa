"""The plan that there was: a start for the search, and kept where a better one gains little."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from precision_operator.planner.inputs.terms import PlanClock, Terms
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.options import Offer, Option, option_at
from precision_operator.planner.solving.search import Candidate, Rank, Search
from precision_operator.planner.solving.solve import Solution

GAIN = 0.01
"""Share of an objective that a better plan must gain before it moves a job that has not started."""

OF_KEEPING = 0.05
"""Part of the time limit in which former choices are tried one by one after the search."""


class JobPlace(NamedTuple):
    """What a plan gives to a job."""

    job: str
    pool: str
    recipe: str
    gpus: int


def place_of(option: Option) -> JobPlace:
    return JobPlace(option.job.name, option.pool.name, option.recipe, option.gpus)


@dataclass(frozen=True, slots=True)
class Former:
    """An earlier plan: its places in the order of their starts."""

    places: tuple[JobPlace, ...] = ()
    is_kept: bool = True
    """Whether it is more than a start for the search."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """By job its choice, where the job still has it."""

    def offered(self, catalog: Catalog) -> "Former":
        """With the choices that jobs still have. Raises OutOfTime."""
        jobs = {job.name: job for job in catalog.terms.jobs}
        made = {p.job: option_at(catalog, jobs[p.job], p.pool, p.recipe, p.gpus) for p in self.places if p.job in jobs}
        return replace(self, options={name: option for name, option in made.items() if option})

    def whole(self, search: Search) -> Candidate | None:
        """The former plan now; None where a job is new, or its choice is gone or finds no room."""
        chosen = [self.options.get(offer.job.name) for offer in search.offers] if self.options else [None]
        options = [option for option in chosen if option]
        return search.placed(options, self._rank(options)) if len(options) == len(chosen) else None

    def kept(self, offers: Sequence[Offer], terms: Terms, best: Solution, clock: PlanClock) -> Solution:
        """The plan with as many former choices as limits, and GAIN of each objective, allow."""
        if not self.options or not self.is_kept:
            return best
        search, now = Search(offers, terms, best.objectives, clock), best.candidate
        moved, most = [o.job.name for o in now.chosen if self._moves(o)], [v * (1 + GAIN) for v in best.values]
        late = replace(clock, until=clock.until + OF_KEEPING * clock.limit)
        for names in (moved, *([name] for name in moved)):
            if not any(map(self._moves, now.chosen)) or (names is not moved and late.over):
                break
            chosen = [self.options[o.job.name] if o.job.name in names else o for o in now.chosen]
            for placed in (search.placed(chosen, rank) for rank in (self._rank(chosen), best.rank)):
                if placed and placed.holds and all(v <= m for v, m in zip(placed.values, most, strict=True)):
                    now = placed
        made = replace(best, slots=now.slots, values=now.values, rank=now.rank)
        return replace(made, gap=made.gap_to(best.bound), left=self._left(search, best, now))

    def _rank(self, chosen: Sequence[Option]) -> Rank:
        """The former order; jobs that are new come last."""
        turns = {place.job: turn for turn, place in enumerate(self.places)}
        ordered = sorted((option.job.name for option in chosen), key=lambda name: turns.get(name, len(turns)))
        return {name: turn for turn, name in enumerate(ordered)}

    def _moves(self, option: Option) -> bool:
        """Whether that is another choice than the job's former one, which it still has."""
        return place_of(self.options.get(option.job.name, option)) != place_of(option)

    def _left(self, search: Search, best: Solution, now: Candidate) -> str:
        if not any(map(self._moves, now.chosen)):
            gain = 1 - best.values[0] / now.values[0] if now.values[0] else 0.0
            return f"a plan that gains {gain:.1%} would move jobs: it takes more than {GAIN:.0%}" if gain > 1e-6 else ""
        whole = self.whole(search)
        if whole is not None and whole.holds:
            return f"the former plan is {whole.values[0] / now.values[0] - 1:.1%} worse"
        return f"the former plan no longer holds{f' ({whole.late:.2g} days late)' if whole and whole.late else ''}"


NO_FORMER = Former()
