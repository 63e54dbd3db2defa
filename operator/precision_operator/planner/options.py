"""What each job may be given: pool, recipe and size, with days, power, energy and money of each choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import le

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Tried:
    """Which sizes are offered: every one, or a spread with the break points and, of some jobs and pools, more."""

    every: bool = False
    picked: Mapping[str, frozenset[int]] | None = None
    """By job, the places of its choices on the shelf of all; None: all of them."""


class Kitchen:
    """What there is in the pools, made once for all jobs that it fits."""

    def __init__(self, pools: Sequence[CandidatePool], terms: Terms) -> None:
        self.pools, self.terms = pools, terms
        self._menus: Menus = {}
        self._sources: dict[tuple[str, str, frozenset[Recipe], bool], Mapping[Recipe, Source | str]] = {}
        self._shelves: dict[tuple[int, ...], Shelf] = {}

    def sources(self, pool: CandidatePool, job: JobTerms) -> Mapping[Recipe, Source | str]:
        """Where the rates of this workload in this pool come from."""
        asked = pool.name, job.target.key, job.recipes, job.recipes_named
        if asked not in self._sources:
            self._sources[asked] = sources(pool, job.target, sorted(job.recipes), job.recipes_named)
        return self._sources[asked]

    def menu(self, pool: CandidatePool, job: JobTerms, every: bool) -> Menu:
        """What the job may get in this pool, and why it may not get the rest."""
        own = None if every else (job.tokens, job.deadline_days)
        shape = job.min_gpus, job.max_gpus, job.block_gpus, job.goodput, job.not_before, job.running
        asked = pool.name, job.target.key, job.recipes, job.recipes_named, job.fit, shape, own
        if asked not in self._menus:
            self._menus[asked] = _menu(self, pool, job, every)
        return self._menus[asked]

    def shelf(self, job: JobTerms) -> Shelf:
        """All sizes of all pools that the job may use, as arrays."""
        menus = [self.menu(pool, job, True) for pool in self.pools if _may_use(job, pool)]
        asked = tuple(map(id, menus))
        if asked not in self._shelves:
            self._shelves[asked] = Shelf([dish for menu, _ in menus for dish in menu], self.pools, self.terms)
        return self._shelves[asked]


class Shelf:
    """All choices of jobs of one shape; figures of one token, or of the choice itself."""

    def __init__(self, dishes: Sequence[Dish], pools: Sequence[CandidatePool], terms: Terms) -> None:
        place = {pool.name: i for i, pool in enumerate(pools)}

        def figures(of: Callable[[Dish], float]) -> NDArray[np.float64]:
            return np.fromiter(map(of, dishes), dtype=np.float64, count=len(dishes))

        self.pool = figures(lambda dish: place[dish.source.pool.name]).astype(np.int64)
        self.gpus = figures(lambda dish: float(dish.gpus))
        self.watts = figures(lambda dish: max(0.0, (dish.electric.limit or 0.0) - dish.electric.idle) * dish.gpus)
        self.days = figures(lambda dish: days(1.0, dish.speed.tokens_per_second))
        self.deadline_days = figures(lambda dish: days(1.0, deadline_rate(dish.source, dish.speed)))
        self.energy = figures(lambda dish: _energy(dish) if dish.electric.mean is not None else math.nan)
        self.dollars = figures(lambda dish: _dollars_of_a_token(dish, terms))


def _energy(dish: Dish) -> float:
    """Megawatt hours of one token."""
    return (dish.electric.mean or 0.0) * dish.gpus * days(1.0, dish.speed.tokens_per_second) * 24 / WATTS_PER_MEGAWATT


def _dollars_of_a_token(dish: Dish, terms: Terms) -> float:
    """Dollars of one token; GPU hours that are paid for cost nothing, as a bound; NaN where there is no price."""
    own, price = dish.source.pool.terms, terms.dollars_per_kilowatt_hour
    hourly = 0.0 if terms.electricity_alone or own.committed_gpu_hours else own.dollars_per_gpu_hour
    if hourly is None:
        return math.nan
    gpu = dish.gpus * days(1.0, dish.speed.tokens_per_second) * 24 * hourly
    if own.price_includes_power or price is None:
        return gpu
    return math.nan if dish.electric.mean is None else gpu + _energy(dish) * 1000 * price


def offers(
    pools: Sequence[CandidatePool], terms: Terms, tried: Tried | None = None, kitchen: Kitchen | None = None
) -> tuple[Offer, ...]:
    """One offer for each job, in the jobs' order; of one pool and size no recipe is worse than another one."""
    made = kitchen or Kitchen(pools, terms)
    return tuple(_offer(made, job, tried or Tried()) for job in terms.jobs)


def sizes(pools: Sequence[CandidatePool], terms: Terms) -> int:
    """Sizes of all jobs in all pools, with each recipe that has a figure there."""
    recipes = {pool.name: max(1, len({recipe for _, recipe in pool.samples})) for pool in pools}
    places = ((pool, job) for job in terms.jobs for pool in pools if _may_use(job, pool))
    found = ((_counts(pool, job), recipes[pool.name]) for pool, job in places)
    return sum((most - least + 1) * many for (least, most, _), many in found)


def _may_use(job: JobTerms, pool: CandidatePool) -> bool:
    if job.running is not None:
        return job.running.pool == pool.name
    return not job.pools or bool(job.pools & {pool.name, pool.product})


@dataclass(frozen=True, slots=True)
class _Electric:
    """Facility watts of one GPU: what must be reserved for it, as measured, and where no job uses it."""

    limit: float | None
    mean: float | None
    idle: float


@dataclass(frozen=True, slots=True)
class Dish:
    """One pool, recipe and size with its rate: what jobs of one workload have in common."""

    source: Source
    gpus: int
    block_gpus: int
    tier: int
    speed: Speed
    electric: _Electric

    @property
    def burden(self) -> tuple[float, float, float]:
        """Seconds of a token by the middle and as promised, and joules of a token."""
        rate = self.speed.tokens_per_second
        joules = math.inf if self.electric.mean is None else self.electric.mean * self.gpus / rate
        return 1 / rate, 1 / self.speed.promised, joules


Menu = tuple[tuple[Dish, ...], Mapping[str, str]]
"""Dishes, and why others are not among them."""
Menus = dict[tuple[object, ...], Menu]


def _offer(kitchen: Kitchen, job: JobTerms, tried: Tried) -> Offer:
    pools, terms = kitchen.pools, kitchen.terms
    found: list[Option] = []
    refusals: dict[str, str] = {}
    unknown = job.pools - {name for pool in pools for name in (pool.name, pool.product)}
    for name in sorted(unknown):
        refusals[name] = f"there is no such pool: name one of {', '.join(pool.name for pool in pools[:8]) or 'none'}"
    picked = tried.picked.get(job.name) if tried.picked is not None else None
    at = 0
    for pool in pools:
        if not _may_use(job, pool):
            continue
        dishes, missing = kitchen.menu(pool, job, tried.every)
        refusals |= missing
        mine = [dish for i, dish in enumerate(dishes, at) if picked is None or i in picked]
        at += len(dishes)
        for option in (_option(job, dish, terms) for dish in mine):
            problem = _problem(option, terms)
            if problem:
                refusals[f"{pool.name} {option.recipe}"] = problem
            else:
                found.append(option)
    kept = {f"{option.pool.name} {option.recipe}" for option in found}
    return Offer(job, tuple(found), {place: why for place, why in refusals.items() if place not in kept})


def _menu(kitchen: Kitchen, pool: CandidatePool, job: JobTerms, every: bool) -> Menu:
    dishes: dict[tuple[int, int], list[Dish]] = {}
    refusals: dict[str, str] = {}
    least, most, problem = _counts(pool, job)
    if problem:
        return (), {pool.name: problem}
    for recipe, source in kitchen.sources(pool, job).items():
        if isinstance(source, str):
            refusals[f"{pool.name} {recipe}"] = source
            continue
        for dish in _sized(source, job, kitchen.terms, range(least, most + 1), every):
            if isinstance(dish, str):
                refusals.setdefault(f"{pool.name} {recipe}", dish)
            else:
                dishes.setdefault((dish.gpus, dish.tier), []).append(dish)
    return tuple(dish for _, group in sorted(dishes.items()) for dish in _undominated(group)), refusals


def _undominated(group: Sequence[Dish]) -> Iterator[Dish]:
    """Without those that another recipe of the same pool and size beats in everything; of equal ones the first."""
    for i, dish in enumerate(group):
        mine = dish.burden
        if not any(_beats(other.burden, mine, j < i) for j, other in enumerate(group) if j != i):
            yield dish


def _beats(one: tuple[float, ...], other: tuple[float, ...], first: bool) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and (one != other or first)


def _sized(source: Source, job: JobTerms, terms: Terms, counts: range, every: bool) -> Iterator[Dish | str]:
    pool, block = source.pool, block_of(job, source.pool)
    electric = _power(source, terms)
    if isinstance(electric, str):
        yield electric
        return
    fit = size_limits(job, pool, source.recipe)
    known = pool.usable(source.sample) * pool.gpus_per_node if source.sample else pool.gpus
    if every:
        wanted = [*counts]
    else:
        counts_of = _spread(counts.start, counts.stop - 1, known // block)
        wanted = sorted({*counts_of, *_break_points(source, job, terms, counts, electric)} & {*counts})
    for number in wanted:
        gpus = number * block
        if gpus > known:
            yield f"{gpus} GPUs are more than the {known} that have a usable figure for {source.recipe}"
            continue
        problem = "" if job.running else fit.problem(gpus)
        if problem:
            yield problem
            continue
        if pool.fastest and block > pool.gpus_per_node and pool.racks:
            yield "blocks of several nodes can't be placed on the fastest nodes: set fleet.placement: random"
            return
        nodes = -(-gpus // pool.gpus_per_node)
        for tier in [tier for tier in pool.tiers if tier >= nodes] if pool.fastest and source.sample else [0]:
            made = speed(source, gpus, goodput_of(job, pool, terms), tier)
            yield made if isinstance(made, str) else Dish(source, gpus, block, tier, made, electric)


def _break_points(source: Source, job: JobTerms, terms: Terms, counts: range, electric: _Electric) -> Iterator[int]:
    """Blocks at which something changes: the power, the deadline, the end of what is known of scaling."""
    pool, block = source.pool, block_of(job, source.pool)
    each = (electric.limit or 0.0) - electric.idle
    for watts in (terms.limits.watts, pool.terms.power_watts):
        if watts is not None and each > 0:
            yield int(watts * (1 + 1e-9) // (each * block))
    points = pool.terms.scaling_of(source.recipe)
    for gpus in [points[-1][0]] if points else [source.job_rate.gpus] if source.job_rate else []:
        yield gpus // block
    if job.deadline_days is not None:
        goodput, time = goodput_of(job, pool, terms), job.deadline_days - job.not_before

        def late(number: int) -> bool:
            made = speed(source, number * block, goodput, pool.nodes if pool.fastest else 0)
            return not isinstance(made, str) and days(job.tokens, deadline_rate(source, made)) > time

        low, high = counts.start, counts.stop
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if late(middle) else (low, middle)
        yield from (low, low + 1)


def deadline_rate(source: Source, made: Speed) -> float:
    """What deadlines are held against: what is kept nine times in ten; the middle where nothing is promised."""
    return made.tokens_per_second if source.upper_bound else made.promised


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
    """Sensor and limit each have their scope; what is reserved is never less than what was measured."""
    own, pue = source.pool.terms, terms.pue or 1.0
    factors = {scope: (terms.overhead.get(scope) or 1.0) * pue for scope in (source.power_scope, own.limit_scope)}
    mean = None if source.watts_per_gpu is None else source.watts_per_gpu * factors[source.power_scope]
    if terms.limits.watts is not None or own.power_watts is not None:
        for scope in (own.limit_scope, *((source.power_scope,) if mean is not None else ())):
            if terms.overhead.get(scope) is None:
                return f"a power budget needs the power of the rest of a node: give spec.power.overhead.{scope}"
        if limit_watts(source.pool) is None:
            return "a power budget needs the enforced limit of a GPU: give limitWattsPerGPU"
    limit = limit_watts(source.pool)
    reserved = None if limit is None else max(limit * factors[own.limit_scope], mean or 0.0)
    return _Electric(reserved, mean, own.idle_watts_per_gpu * factors[own.limit_scope])


def idle_watts(pool: CandidatePool, terms: Terms) -> float:
    """Facility watts of all its GPUs where no job uses them."""
    factor = (terms.overhead.get(pool.terms.limit_scope) or 1.0) * (terms.pue or 1.0)
    return pool.terms.idle_watts_per_gpu * factor * pool.gpus


def limit_watts(pool: CandidatePool) -> float | None:
    """Enforced limit of one GPU: as reported, as the user says, or the product's factory limit."""
    known = pool.limit_watts_per_gpu or pool.terms.limit_watts_per_gpu
    found = part(pool.product) if known is None else None
    return float(found.power_limit_watts) if found else known


def block_of(job: JobTerms, pool: CandidatePool) -> int:
    """GPUs of the blocks that the job gets there."""
    return job.block_gpus or pool.terms.block_gpus or pool.gpus_per_node


def _counts(pool: CandidatePool, job: JobTerms) -> tuple[int, int, str]:
    """(fewest, most) blocks that the job may have there, and why it may have none."""
    node, block = pool.gpus_per_node, block_of(job, pool)
    if job.running is not None:
        number = job.running.gpus // block
        if job.running.gpus % block or number > blocks(pool, block):
            have = blocks(pool, block) * block
            return 1, 0, f"it is said to run on {job.running.gpus} GPUs; the pool has {have} in blocks of {block}"
        return number, number, ""
    if block % node:
        return 1, 0, f"{BLOCKS_SPLIT_NODES} of {block} GPUs are not whole nodes of {node}: give a multiple of {node}"
    least = max(1, math.ceil(job.min_gpus / block))
    most = min(blocks(pool, block), (job.max_gpus or pool.gpus) // block)
    if most < least:
        have = blocks(pool, block) * block
        limit = f", maxGPUs {job.max_gpus}" if job.max_gpus else ""
        return 1, 0, f"has {have} GPUs in blocks of {block}; the job wants at least {least * block}{limit}"
    return least, most, ""


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


def _option(job: JobTerms, dish: Dish, terms: Terms) -> Option:
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
        tier=dish.tier,
        speed=made,
        days=middle,
        days_low=days(job.tokens, made.high),
        days_high=slowest,
        gpu_hours=dish.gpus * hours,
        limit_watts=watts,
        idle_watts=electric.idle * dish.gpus,
        megawatt_hours=energy,
        gpu_dollars_per_hour=of_gpus,
        power_dollars=electricity,
        dollars=dollars,
        deadline_days=middle if dish.source.upper_bound else days(job.tokens, made.promised),
        burden=(dish.gpus, watts or 0.0, dish.gpus * hours, dollars or 0.0, energy or 0.0),
    )
