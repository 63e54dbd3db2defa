"""What each job may be given: pool, recipe and size, with days, power, energy and money of each choice."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil, inf
from typing import Any

from precision_api.facts.recipes import Recipe, recipe_text
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.inputs.terms import MOST_DAYS, JobTerms, PlanClock, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool, may_use
from precision_operator.planner.rates.pool_sizes import Sizes
from precision_operator.planner.rates.size_law import FASTEST, NOT_KNOWN
from precision_operator.planner.rates.speed import NOT_MEASURED, RateSource, Speed, conditions_of, days, speed
from precision_operator.planner.solving.catalog import Catalog, block_counts

LIMITS: Mapping[str, Any] = json.loads(files(__package__).joinpath("limits.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Option:
    """One choice for one job. Power and energy are the facility's; what is not known is None."""

    job: JobTerms
    source: RateSource
    gpus: int
    block_gpus: int
    tier: int
    """It is placed within so many fastest nodes of the pool; 0: on nodes drawn at random."""
    speed: Speed
    days: float
    days_low: float
    days_high: float
    gpu_hours: float
    limit_watts: float | None
    """What must be reserved: enforced limits with all around them, and not less than what was measured."""
    idle_watts: float
    """What these GPUs draw where no job uses them."""
    megawatt_hours: float | None
    gpu_dollars_per_hour: float | None
    power_dollars: float | None
    dollars: float | None
    """All money, as if nothing were paid for already."""
    deadline_days: float
    """What a deadline is held against: days that suffice nine times in ten; the middle where nothing is promised."""

    @property
    def pool(self) -> CandidatePool:
        return self.source.pool

    @property
    def recipe(self) -> Recipe:
        return self.source.recipe

    @property
    def layers_bf16(self) -> int | None:
        """The last layers of the job's model that stay in BF16 in its rate: of another model, as large a share."""
        sample, model = self.source.sample, self.job.target.model
        if sample is None or sample.layers_bf16 is None or model is None or sample.workload.model is None:
            return sample.layers_bf16 if sample else None
        return ceil(sample.layers_bf16 * model.num_hidden_layers / sample.workload.model.num_hidden_layers)

    @property
    def title(self) -> str:
        """The recipe, what is special in its step, and its layers in BF16."""
        sample = self.source.sample
        return recipe_text(self.recipe, None, self.layers_bf16, "bf16", sample.step if sample else None)


@dataclass(frozen=True)
class Offer:
    """The choices of one job, and why pools and recipes, or some of their sizes, are not among them."""

    job: JobTerms
    options: tuple[Option, ...]
    refusals: Mapping[str, str]
    """Pool, or pool and recipe -> why not."""

    @property
    def reason(self) -> str:
        """Why the job fits nowhere, with remedies."""
        # What was merely never measured says least.
        ordered = sorted(self.refusals.items(), key=lambda item: NOT_MEASURED in item[1])
        reasons = "; ".join(f"{place}: {why}" for place, why in ordered[:6])
        return reasons or "There is no pool: profile one, or describe one"

    def unknown_sizes(self, chosen: str = "") -> Iterator[str]:
        """Places where sizes may be in time of which nothing is known; beside a `chosen` pool, those that drop out."""
        for place in (place for place, why in self.refusals.items() if NOT_KNOWN in why):
            here = [option for option in self.options if place.startswith(f"{option.pool.name} ")]
            mine = [option for option in here if place.endswith(f" {option.recipe}")] or here  # others are no slower
            fastest = max((o.speed.high / o.gpus * o.pool.gpus for o in mine), default=inf) * FASTEST
            out = all(chosen != o.pool.name and o.deadline_days > (self.job.deadline_days or 0.0) for o in mine)
            if days(self.job.tokens, fastest) <= (self.job.deadline_days or inf) and (out or not chosen):
                yield place


Picked = Mapping[str, frozenset[int]]
"""By job, the places of some of its choices in the arrays of all."""


def offers(
    catalog: Catalog, picked: Picked | None = None, every: bool = False, clock: PlanClock | None = None
) -> tuple[Offer, ...]:
    """One offer for each job, in the jobs' order; of one pool and size no recipe is worse than another one.

    Of sizes those that are `picked`, or `every` one; else a spread with the break points. `clock` limits the making of
    options, else the catalog's. Raises OutOfTime.
    """
    return tuple(offer_of(catalog, job, picked, every, clock or catalog.clock) for job in catalog.terms.jobs)


def sizes(pools: Sequence[CandidatePool], terms: Terms) -> int:
    """Sizes of all jobs in all pools, with each recipe that has a figure there."""
    recipes = {pool.name: max(1, len({recipe for _, recipe in pool.samples})) for pool in pools}
    places = ((pool, job) for job in terms.jobs for pool in pools if may_use(job, pool))
    counts = ((block_counts(pool, job), recipes[pool.name]) for pool, job in places)
    return sum((most - least + 1) * many for (least, most, _), many in counts)


def offer_of(catalog: Catalog, job: JobTerms, picked: Picked | None, every: bool, clock: PlanClock) -> Offer:
    options: list[Option] = []
    refusals = dict(_unknown(job, catalog.pools))
    places = sorted(picked.get(job.name, ())) if picked is not None else None
    begin = 0
    for pool in catalog.pools:
        if not may_use(job, pool):
            continue
        mine = catalog.every(pool, job)
        refusals |= mine.refusals
        first, begin = begin, begin + len(mine)
        wanted: Sequence[int] = range(len(mine)) if every else catalog.spread(pool, job) if places is None else ()
        wanted = wanted or [place - first for place in places or () if first <= place < begin]
        for place in wanted:
            clock.check()
            option = _option(job, mine, place, catalog.terms)
            problem = _problem(option, catalog.terms)
            if problem:
                why = mine.refusals.get(at := f"{pool.name} {option.recipe}", "")
                refusals[at] = f"{problem}; {why}" if NOT_KNOWN in why else problem
            else:
                options.append(option)
    return Offer(job, tuple(options), refusals)


def option_at(catalog: Catalog, job: JobTerms, name: str, recipe: str, gpus: int) -> Option | None:
    """The choice of this pool, recipe and size; None where the job does not have it. Raises OutOfTime."""
    pool = next((pool for pool in catalog.pools if pool.name == name and may_use(job, pool)), None)
    if pool is None:
        return None
    mine = catalog.every(pool, job)
    alike = [at for at in (mine.gpus == gpus).nonzero()[0] if mine.recipes[mine.recipe[at]].source.recipe == recipe]
    if not alike:
        return None
    option = _option(job, mine, max(alike, key=lambda at: float(mine.deadline_rates[at])), catalog.terms)
    return None if _problem(option, catalog.terms) else option


def _unknown(job: JobTerms, pools: Sequence[CandidatePool]) -> Iterator[tuple[str, str]]:
    """Pools that the job names and nobody has, each with what to do."""
    names = ", ".join(pool.name for pool in pools[:8]) or "none"
    for name in sorted(job.pools - {name for pool in pools for name in (pool.name, pool.product)}):
        yield name, f"there is no such pool: name one of {names}"


def _problem(option: Option, terms: Terms) -> str:
    """Why a choice can't be made whatever the others are; empty where it can."""
    if option.days > MOST_DAYS:
        return f"{option.gpus} GPUs would take {option.days / 365:.0f} years"
    asked, money = {*terms.objectives, *terms.limits.budgets}, {"cost", "dollars"}
    lacking = [name for name in LIMITS["unknown"] if name in asked and _is_unknown(option, name in money)]
    unpaid = money & {*lacking} and option.gpu_dollars_per_hour is not None
    text: str = LIMITS["unknown"]["electricity" if unpaid else lacking[0]] if lacking else ""
    return text


def _is_unknown(option: Option, money: bool) -> bool:
    return (option.dollars if money else option.megawatt_hours) is None


def _option(job: JobTerms, sizes: Sizes, place: int, terms: Terms) -> Option:
    """The choice at this place of a pool's sizes."""
    offered, gpus, tier = sizes.recipes[int(sizes.recipe[place])], int(sizes.gpus[place]), int(sizes.tier[place])
    source, electric, pool_terms = offered.source, offered.electric, sizes.pool.terms
    made = speed(source, gpus, conditions_of(job, sizes.pool, terms), tier)
    assert not isinstance(made, str), "sizes without a rate are left out"
    middle = days(job.tokens, made.tokens_per_second)
    hours = middle * 24
    energy = None if electric.mean is None else electric.mean * gpus * hours / WATTS_PER_MEGAWATT
    price = terms.dollars_per_kilowatt_hour
    free = pool_terms.price_includes_power or price is None
    electricity = 0.0 if free else None if energy is None else energy * 1000 * (price or 0.0)
    of_gpus = 0.0 if terms.electricity_alone else pool_terms.dollars_per_gpu_hour
    dollars = None if of_gpus is None else gpus * hours * of_gpus
    dollars = None if dollars is None or electricity is None else dollars + electricity
    watts = None if electric.limit is None else electric.limit * gpus
    slowest = days(job.tokens, made.low)
    return Option(
        job=job,
        source=source,
        gpus=gpus,
        block_gpus=sizes.block_gpus,
        tier=tier,
        speed=made,
        days=middle,
        days_low=days(job.tokens, made.high),
        days_high=slowest,
        gpu_hours=gpus * hours,
        limit_watts=watts,
        idle_watts=electric.idle * gpus,
        megawatt_hours=energy,
        gpu_dollars_per_hour=of_gpus,
        power_dollars=electricity,
        dollars=dollars,
        deadline_days=middle if source.upper_bound else days(job.tokens, made.promised),
    )
