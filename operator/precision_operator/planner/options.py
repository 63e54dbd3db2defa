"""What each job may be given: pool, recipe and size, with days, power, energy and money of each choice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import le

from precision_api.products import part
from precision_api.recipes import Recipe
from precision_operator.planner.evidence import CandidatePool
from precision_operator.planner.memory_fit import size_limits
from precision_operator.planner.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.rates import NOT_MEASURED, Source, Speed, days, goodput_of, sources, speed
from precision_operator.planner.terms import MOST_DAYS, JobTerms, Terms

EVERY_SIZE = 8
"""Block counts that are all tried; above, two to each doubling, the same ones whatever the pool's size, so that more
nodes never make a plan worse."""


BLOCKS_SPLIT_NODES = "blocks"
"""How the refusal of a pool begins whose nodes the blocks do not fit."""


@dataclass(frozen=True, slots=True)
class Option:
    """One choice for one job. Power and energy are the facility's; what is not known is None."""

    job: JobTerms
    source: Source
    gpus: int
    block_gpus: int
    speed: Speed
    days: float
    days_low: float
    days_high: float
    gpu_hours: float
    limit_watts: float | None
    megawatt_hours: float | None
    gpu_dollars_per_hour: float | None
    power_dollars: float | None
    dollars: float | None
    """All money, as if nothing were paid for already."""
    deadline_days: float
    """What a deadline is held against: days that suffice nine times in ten; the middle where nothing is promised."""
    burden: tuple[float, ...]
    """GPUs, watts, GPU hours, dollars, energy: what it takes of every limit."""

    @property
    def pool(self) -> CandidatePool:
        """Where."""
        return self.source.pool

    @property
    def recipe(self) -> Recipe:
        """With which precision."""
        return self.source.recipe


@dataclass(frozen=True)
class Offer:
    """The choices of one job, and why pools and recipes are not among them."""

    job: JobTerms
    options: tuple[Option, ...]
    refusals: Mapping[str, str]
    """Pool, or pool and recipe -> why not."""

    @cached_property
    def ladders(self) -> tuple[tuple[tuple[Option, bool], ...], ...]:
        """By pool its options, smallest first, each with whether it is no better in any burden than the one before."""
        found: dict[str, list[Option]] = {}
        for option in self.options:
            found.setdefault(option.source.pool.name, []).append(option)
        return tuple(
            tuple((o, i > 0 and all(map(le, steps[i - 1].burden, o.burden))) for i, o in enumerate(steps))
            for steps in found.values()
        )

    @property
    def reason(self) -> str:
        """Why the job fits nowhere, with remedies."""
        # What was merely never measured says least.
        ordered = sorted(self.refusals.items(), key=lambda item: NOT_MEASURED in item[1])
        told = "; ".join(f"{place}: {why}" for place, why in ordered[:6])
        return told or "There is no pool: profile one, or describe one"


def offers(pools: Sequence[CandidatePool], terms: Terms, every: bool = False) -> tuple[Offer, ...]:
    """One offer for each job, in the jobs' order; no choice in it is worse than another one in every respect.

    `every`: with all sizes, not only those that are tried as a rule.
    """
    menus: Menus = {}
    return tuple(_offer(pools, job, terms, menus, every) for job in terms.jobs)


def sizes(pools: Sequence[CandidatePool], terms: Terms, every: bool = False) -> int:
    """Sizes of all jobs in all pools: those that are tried as a rule, or all that there are."""
    places = ((pool, job) for job in terms.jobs for pool in pools if _may_use(job, pool))
    found = (_sizes(pool, job, every) for pool, job in places)
    return sum(len(each) for each in found if not isinstance(each, str))


def _may_use(job: JobTerms, pool: CandidatePool) -> bool:
    return not job.pools or bool(job.pools & {pool.name, pool.product})


@dataclass(frozen=True, slots=True)
class _Electric:
    """Facility watts of one GPU: by its enforced limit, and as measured."""

    limit: float | None
    mean: float | None


@dataclass(frozen=True, slots=True)
class _Dish:
    """One pool, recipe and size with its rate: what jobs of one workload have in common."""

    source: Source
    gpus: int
    block_gpus: int
    speed: Speed
    electric: _Electric

    @property
    def burden(self) -> tuple[float, float, float]:
        """Seconds of a token by the middle and as promised, and joules of a token."""
        rate = self.speed.tokens_per_second
        joules = math.inf if self.electric.mean is None else self.electric.mean * self.gpus / rate
        return 1 / rate, 1 / self.speed.promised, joules


Menu = tuple[tuple[_Dish, ...], Mapping[str, str]]
"""Dishes, and why others are not among them."""
Menus = dict[tuple[object, ...], Menu]


def _offer(pools: Sequence[CandidatePool], job: JobTerms, terms: Terms, menus: Menus, every: bool) -> Offer:
    found: list[Option] = []
    refusals: dict[str, str] = {}
    unknown = job.pools - {name for pool in pools for name in (pool.name, pool.product)}
    for name in sorted(unknown):
        refusals[name] = f"there is no such pool: name one of {', '.join(pool.name for pool in pools[:8]) or 'none'}"
    for pool in pools:
        if not _may_use(job, pool):
            continue
        asked = (
            pool.name,
            job.target.key,
            job.recipes,
            job.min_gpus,
            job.max_gpus,
            job.block_gpus,
            job.goodput,
            job.recipes_named,
            job.fit,
        )
        if asked not in menus:
            menus[asked] = _menu(pool, job, terms, every)
        dishes, missing = menus[asked]
        refusals |= missing
        for option in (_option(job, dish, terms) for dish in dishes):
            problem = _problem(option, terms)
            if problem:
                refusals[f"{pool.name} {option.recipe}"] = problem
            else:
                found.append(option)
    kept = {f"{option.pool.name} {option.recipe}" for option in found}
    return Offer(job, tuple(found), {place: why for place, why in refusals.items() if place not in kept})


def _menu(pool: CandidatePool, job: JobTerms, terms: Terms, every: bool) -> Menu:
    dishes: dict[int, list[_Dish]] = {}
    refusals: dict[str, str] = {}
    wanted = _sizes(pool, job, every)
    if isinstance(wanted, str):
        return (), {pool.name: wanted}
    for recipe, source in sources(pool, job.target, sorted(job.recipes), job.recipes_named).items():
        if isinstance(source, str):
            refusals[f"{pool.name} {recipe}"] = source
            continue
        for dish in _sized(source, job, terms, wanted):
            if isinstance(dish, str):
                refusals.setdefault(f"{pool.name} {recipe}", dish)
            else:
                dishes.setdefault(dish.gpus, []).append(dish)
    return tuple(dish for _, group in sorted(dishes.items()) for dish in _undominated(group)), refusals


def _undominated(group: Sequence[_Dish]) -> Iterator[_Dish]:
    """Without those that another recipe of the same pool and size beats in everything; of equal ones the first."""
    for i, dish in enumerate(group):
        mine = dish.burden
        if not any(_beats(other.burden, mine, j < i) for j, other in enumerate(group) if j != i):
            yield dish


def _beats(one: tuple[float, ...], other: tuple[float, ...], first: bool) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and (one != other or first)


def _sized(source: Source, job: JobTerms, terms: Terms, wanted: Sequence[tuple[int, int]]) -> Iterator[_Dish | str]:
    pool = source.pool
    electric = _power(source, terms)
    if isinstance(electric, str):
        yield electric
        return
    fit = size_limits(job, pool, source.recipe)
    known = pool.usable(source.sample) * pool.gpus_per_node if source.sample else pool.gpus
    for gpus, block in wanted:
        if gpus > known:
            yield f"{gpus} GPUs are more than the {known} that have a usable figure for {source.recipe}"
            continue
        problem = fit.problem(gpus)
        if problem:
            yield problem
            continue
        made = speed(source, gpus, goodput_of(job, pool, terms), terms.fastest)
        yield made if isinstance(made, str) else _Dish(source, gpus, block, made, electric)


def _problem(option: Option, terms: Terms) -> str:
    """Why a choice can't be made whatever the others are; empty where it can."""
    if option.days > MOST_DAYS:
        return f"{option.gpus} GPUs would take {option.days / 365:.0f} years"
    unpaid = option.dollars is None and ("cost" in terms.objectives or terms.limits.dollars is not None)
    if unpaid and option.gpu_dollars_per_hour is not None:
        return (
            "its power is not known, so dollarsPerKilowattHour can't be counted: measure it again, "
            "or give priceIncludesPower"
        )
    if option.dollars is None and "cost" in terms.objectives:
        return "has no price: give dollarsPerGPUHour, or order by time or energy"
    if option.dollars is None and terms.limits.dollars is not None:
        return "has no price, so a money budget can't be held: give dollarsPerGPUHour"
    if option.megawatt_hours is None and "energy" in terms.objectives:
        return "its power is not known: measure it again, or order by cost or time"
    if option.megawatt_hours is None and terms.limits.megawatt_hours is not None:
        return "its power is not known, so an energy budget can't be held: measure it again"
    return ""


def _power(source: Source, terms: Terms) -> _Electric | str:
    pool = source.pool
    factor, scope = terms.overhead.get(source.power_scope), source.power_scope
    limited = terms.limits.watts is not None or pool.terms.power_watts is not None
    if limited and factor is None:
        return f"a power budget needs the power of the rest of a node: give spec.power.overhead.{scope}"
    whole = (factor or 1.0) * (terms.pue or 1.0)
    limit = limit_watts(pool)
    if limited and limit is None:
        return "a power budget needs the enforced limit of a GPU: give limitWattsPerGPU"
    mean = source.watts_per_gpu
    return _Electric(None if limit is None else limit * whole, None if mean is None else mean * whole)


def limit_watts(pool: CandidatePool) -> float | None:
    """Enforced limit of one GPU: as reported, as the user says, or the product's factory limit."""
    known = pool.limit_watts_per_gpu or pool.terms.limit_watts_per_gpu
    found = part(pool.product) if known is None else None
    return float(found.power_limit_watts) if found else known


def _sizes(pool: CandidatePool, job: JobTerms, every: bool) -> list[tuple[int, int]] | str:
    """(GPUs, block) of each size that is tried, or of every one, smallest first."""
    node = pool.gpus_per_node
    block = job.block_gpus or pool.terms.block_gpus or node
    if block % node:
        return f"{BLOCKS_SPLIT_NODES} of {block} GPUs are not whole nodes of {node}: give a multiple of {node}"
    least = max(1, math.ceil(job.min_gpus / block))
    most = min(blocks(pool, block), (job.max_gpus or pool.gpus) // block)
    if most < least:
        have = blocks(pool, block) * block
        limit = f", maxGPUs {job.max_gpus}" if job.max_gpus else ""
        return f"has {have} GPUs in blocks of {block}; the job wants at least {least * block}{limit}"
    counts = range(least, most + 1) if every else _spread(least, most, pool.measured * node // block)
    return [(number * block, block) for number in counts]


def blocks(pool: CandidatePool, block: int) -> int:
    """Whole blocks in the pool; a block of several nodes lies within one rack where racks are known."""
    if block <= pool.gpus_per_node or not pool.racks:
        return pool.gpus // block
    return sum(nodes * pool.gpus_per_node // block for nodes in pool.racks.values())


@lru_cache(maxsize=4096)
def _spread(least: int, most: int, further: int) -> tuple[int, ...]:
    counts = {*range(1, EVERY_SIZE + 1), least, most, further}
    doubled = EVERY_SIZE
    while doubled <= most:
        counts |= {doubled, doubled * 3 // 2}
        doubled *= 2
    return tuple(sorted(number for number in counts if least <= number <= most))


def _option(job: JobTerms, dish: _Dish, terms: Terms) -> Option:
    made, electric, own = dish.speed, dish.electric, dish.source.pool.terms
    middle = days(job.tokens, made.tokens_per_second)
    hours = middle * 24
    energy = None if electric.mean is None else electric.mean * dish.gpus * hours / WATTS_PER_MEGAWATT
    price = terms.dollars_per_kilowatt_hour
    free = own.price_includes_power or price is None
    electricity = 0.0 if free else None if energy is None else energy * 1000 * (price or 0.0)
    of_gpus = 0.0 if terms.electricity_alone else own.dollars_per_gpu_hour
    dollars = None if of_gpus is None else dish.gpus * hours * of_gpus
    dollars = None if dollars is None or electricity is None else dollars + electricity
    watts = None if electric.limit is None else electric.limit * dish.gpus
    slowest = days(job.tokens, made.low)
    return Option(
        job=job,
        source=dish.source,
        gpus=dish.gpus,
        block_gpus=dish.block_gpus,
        speed=made,
        days=middle,
        days_low=days(job.tokens, made.high),
        days_high=slowest,
        gpu_hours=dish.gpus * hours,
        limit_watts=watts,
        megawatt_hours=energy,
        gpu_dollars_per_hour=of_gpus,
        power_dollars=electricity,
        dollars=dollars,
        deadline_days=middle if dish.source.upper_bound else days(job.tokens, made.promised),
        burden=(dish.gpus, watts or 0.0, dish.gpus * hours, dollars or 0.0, energy or 0.0),
    )
