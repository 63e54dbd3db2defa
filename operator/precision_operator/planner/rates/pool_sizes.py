"""Sizes of one pool with each recipe: rates, power and money as arrays, and the one that is chosen as a value."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_api.facts.products import part
from precision_api.facts.recipes import Recipe
from precision_operator.planner.inputs.quantities import SECONDS_PER_DAY, WATTS_PER_MEGAWATT
from precision_operator.planner.inputs.terms import Conditions, JobTerms, PlanClock, Terms
from precision_operator.planner.rates import bands
from precision_operator.planner.rates.bands import Figures
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.rates.failures import progress
from precision_operator.planner.rates.memory_fit import SizeLimits, limits_of
from precision_operator.planner.rates.size_law import NOT_KNOWN
from precision_operator.planner.rates.speed import (
    RateSource,
    beyond_published,
    by_size,
    conditions_of,
    drawn,
    normal_parts,
    placed_on,
    scaling,
    slowest,
    speed,
)
from precision_operator.planner.rates.straggler import Counts, Stragglers

CELLS = 1 << 17
"""Sizes times nodes that are worked out between two looks at the clock: some ten ms."""
SizeRates = tuple[Figures, Figures]
"""Tokens/s by size: the middle, and what nine in ten pass; NaN for a size that can't be had."""


@dataclass(frozen=True, slots=True)
class Electric:
    """Facility watts of one GPU: what must be reserved for it, as measured, and where no job uses it."""

    limit: float | None
    mean: float | None
    idle: float


@dataclass(frozen=True, slots=True)
class OfferedRecipe:
    """One recipe of a pool and what a job may get of it."""

    source: RateSource
    electric: Electric
    limits: SizeLimits
    known: int
    """GPUs with a usable figure."""


@dataclass(frozen=True)
class Sizes:
    """What a job may get in one pool, by size, then by recipe; of one size and tier no recipe is worse in everything.

    `rates` are tokens/s by the middle, `deadline_rates` what deadlines are held against.
    """

    pool: CandidatePool
    block_gpus: int
    recipes: tuple[OfferedRecipe, ...]
    recipe: Counts
    """Places in `recipes`."""
    gpus: Counts
    tier: Counts
    rates: Figures
    deadline_rates: Figures
    refusals: Mapping[str, str]
    """Pool and recipe, or pool -> why not (all sizes)."""

    def __len__(self) -> int:
        return len(self.gpus)


class SizeArrays:
    """Sizes of several pools, one pool after the other; figures of one token, or of the choice itself."""

    def __init__(self, by_pool: Sequence[tuple[int, Sizes]], terms: Terms) -> None:
        """`found` names the pools by number."""

        def joined(of: Iterable[Figures]) -> Figures:
            return np.concatenate([np.zeros(0), *of])

        def figures(name: str) -> Figures:
            return joined(
                np.array([_figure(row, name, terms) for row in sizes.recipes] or [0.0])[sizes.recipe]
                for _, sizes in by_pool
            )

        self.pool = joined(np.full(len(sizes), number) for number, sizes in by_pool).astype(np.int64)
        self.gpus = joined(sizes.gpus.astype(np.float64) for _, sizes in by_pool)
        self.days = 1 / joined(sizes.rates for _, sizes in by_pool) / SECONDS_PER_DAY
        self.deadline_days = 1 / joined(sizes.deadline_rates for _, sizes in by_pool) / SECONDS_PER_DAY
        self.watts = figures("watts") * self.gpus
        self.energy = figures("mean") * self.gpus * self.days * 24 / WATTS_PER_MEGAWATT
        self.dollars = figures("dollars") * self.gpus * self.days * 24


def _figure(row: OfferedRecipe, name: str, terms: Terms) -> float:
    """Of one GPU: watts beyond idle, mean watts, or dollars per hour; NaN where it is not known.

    GPU hours that are paid for cost nothing, as a bound.
    """
    electric, pool, price = row.electric, row.source.pool.terms, terms.dollars_per_kilowatt_hour
    mean = math.nan if electric.mean is None else electric.mean
    if name == "watts":
        return max(0.0, (electric.limit or 0.0) - electric.idle)
    if name == "mean":
        return mean
    hourly = 0.0 if terms.electricity_alone or pool.committed_gpu_hours else pool.dollars_per_gpu_hour
    if hourly is None:
        return math.nan
    return hourly if pool.price_includes_power or price is None else hourly + mean / 1000 * price


def refused(pool: CandidatePool, why: str) -> Sizes:
    none, nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    return Sizes(pool, 1, (), none, none, none, nothing, nothing, {pool.name: why})


def sizes_of(
    pool: CandidatePool,
    job: JobTerms,
    sources: Mapping[Recipe, RateSource | str],
    numbers: Counts,
    terms: Terms,
    clock: PlanClock,
) -> Sizes:
    """What a job may get of these numbers of blocks (ascending). Raises OutOfTime."""
    block, refusals = block_of(job, pool), dict[str, str]()
    recipes, rows = list[OfferedRecipe](), list[_Rows]()
    for recipe, source in sources.items():
        clock.check()
        left = numbers * block
        for of, end in [(source, math.inf)] if isinstance(source, str) else by_size(source):
            electric = of if isinstance(of, str) else electric_of(of, terms)
            if isinstance(of, str) or isinstance(electric, str):
                refusals[f"{pool.name} {recipe}"] = str(electric)
                continue
            row = OfferedRecipe(of, electric, limits_of(job, pool, recipe), known_gpus(of))
            offered, why = _rows(row, left[left < end], block, conditions_of(job, pool, terms), clock)
            left = np.setdiff1d(left, offered[0])  # where this rate tells nothing, that of a larger job does
            rows.append(offered)
            recipes.append(row)
            if why:
                refusals[f"{pool.name} {recipe}"] = why
    made = _undominated(rows, [row.electric.mean for row in recipes])
    return Sizes(pool, block, tuple(recipes), *made, refusals)


_Rows = tuple[Figures, ...]
"""What one recipe offers: GPUs, tiers, rates, and what nine in ten pass."""


def _rows(row: OfferedRecipe, gpus: Counts, block: int, conditions: Conditions, clock: PlanClock) -> tuple[_Rows, str]:
    """(what can be had, why other sizes can't: those of which nothing is known before those without memory)."""
    pool, sample = row.source.pool, row.source.sample
    allowed = (gpus >= row.limits.least) & (gpus <= min(row.known, row.limits.most or row.known))
    refusals = [(size, _refusal(row, size)) for size in gpus[~allowed][:1].tolist()]
    mine = gpus[allowed]
    if pool.fastest and block > pool.gpus_per_node and pool.racks:
        mine, refusals = mine[:0], [(0, FASTEST_BLOCKS)]
    columns = []
    for tier in pool.tiers if pool.fastest and sample else (0,):
        inside = mine[-(-mine // pool.gpus_per_node) <= tier] if tier else mine
        middle, promised = size_rates(row.source, inside, conditions, tier, clock)
        held = ~np.isnan(middle)
        refusals += [(size, str(speed(row.source, size, conditions, tier))) for size in inside[~held][:1].tolist()]
        tiers = np.full(len(inside), tier)
        columns.append([column[held] for column in (inside, tiers, middle, promised)])
    why = max(refusals, key=lambda item: (NOT_KNOWN in item[1], item[0]), default=(0, ""))[1]
    return tuple(map(np.concatenate, zip(*columns, strict=True))), why


def size_rates(
    source: RateSource, gpus: Counts, conditions: Conditions, fastest_of: int, clock: PlanClock
) -> SizeRates:
    """As `speed` for each of these numbers of GPUs. Raises OutOfTime."""
    rows = max(1, CELLS // max(source.pool.nodes, 1)) if source.sample else max(1, len(gpus))
    parts: list[SizeRates] = [(np.zeros(0), np.zeros(0))]
    for at in range(0, len(gpus), rows):
        clock.check()
        parts.append(_size_rates(source, gpus[at : at + rows], conditions, fastest_of))
    return np.concatenate([middle for middle, _ in parts]), np.concatenate([promised for _, promised in parts])


def _size_rates(source: RateSource, gpus: Counts, conditions: Conditions, fastest_of: int) -> SizeRates:
    middle = gpus * source.per_gpu * scaling(source, gpus, conditions).middle
    middle *= progress(conditions.progress, gpus).middle
    law = None
    if source.sample is not None and placed_on(source.pool, source.sample, fastest_of):  # known, whatever the size
        middle *= [slowest(source, size, fastest_of).days for size in gpus.tolist()]
    elif source.sample is not None:
        raw = drawn(source.pool, source.sample, gpus)
        law = Stragglers(*(beyond_published(source, gpus, part) for part in (raw.days, raw.low, raw.high, raw.values)))
        middle *= law.days
    return middle, middle * _promised(source, gpus, conditions, law)


def _promised(source: RateSource, gpus: Counts, conditions: Conditions, law: Stragglers | None) -> Figures:
    """What nine in ten pass, relative to the middle; `law` of the slowest node, where it has a band."""
    ends = np.array([(low, high) for _, low, high, _ in normal_parts(source, gpus, conditions)])
    below, above = np.sqrt((np.log(ends) ** 2).sum(axis=0)) / bands.Z_95
    made = bands.passed(ends[:, 0], ends[:, 1])
    if law is not None:
        rows = np.flatnonzero((law.low != law.high) & ~np.isnan(below))
        made[rows] = np.minimum(1.0, bands.promised(below[rows], above[rows], law.values[rows]) / law.days[rows])
    return np.asarray(made)


def _refusal(row: OfferedRecipe, gpus: int) -> str:
    if gpus > row.known:
        return f"{gpus} GPUs are more than the {row.known} that have a usable figure for {row.source.recipe}"
    return row.limits.problem(gpus)


_Columns = tuple[Counts, Counts, Counts, Figures, Figures]


def _undominated(rows: Sequence[_Rows], means: Sequence[float | None]) -> _Columns:
    """Recipe, GPUs, tier and rates, by GPUs and tier; of one size those that no other recipe beats in everything.

    Of equal ones the first.
    """
    recipe = np.concatenate([np.zeros(0), *(np.full(len(row[0]), i) for i, row in enumerate(rows))]).astype(np.int64)
    gpus, tier, rates, promised = map(np.concatenate, zip((np.zeros(0),) * 4, *rows, strict=True))
    watts = np.array([math.inf if mean is None else mean for mean in means] or [0.0])[recipe]
    burden = np.stack([1 / rates, 1 / promised, watts * gpus / rates])
    order = np.lexsort((recipe, tier, gpus))
    places, sizes = _by_size(recipe[order], gpus[order], tier[order])
    table = np.full((max(len(rows), 1), sizes, 3), np.nan)
    table[recipe[order], places] = burden[:, order].T
    beaten = np.zeros(table.shape[:2], dtype=bool)
    for i, mine in enumerate(table):
        for j, other in enumerate(table):
            if i != j:
                beats = (other <= mine).all(axis=1)
                beaten[i] |= beats if j < i else beats & (other != mine).any(axis=1)
    kept = order[~beaten[recipe[order], places]]
    return recipe[kept], gpus[kept].astype(np.int64), tier[kept].astype(np.int64), rates[kept], promised[kept]


def _by_size(recipe: Counts, gpus: Figures, tier: Figures) -> tuple[Counts, int]:
    """(of each row the number of its size and tier, how many there are); rows are sorted by size and tier."""
    if not len(recipe):
        return recipe, 0
    new = (gpus[1:] != gpus[:-1]) | (tier[1:] != tier[:-1])
    places = np.concatenate([[0], np.cumsum(new)])
    return places, int(places[-1]) + 1


FASTEST_BLOCKS = "blocks of several nodes can't be placed on the fastest nodes: set fleet.placement: random"


def known_gpus(source: RateSource) -> int:
    """GPUs with a usable figure of the source's recipe."""
    pool = source.pool
    return pool.usable(source.sample) * pool.gpus_per_node if source.sample else pool.gpus


def electric_of(source: RateSource, terms: Terms) -> Electric | str:
    """Sensor and limit each have their scope; what is reserved is never less than what was measured."""
    pool_terms, pue = source.pool.terms, terms.pue or 1.0
    factor = {scope: (terms.overhead.get(scope) or 1.0) * pue for scope in (source.power_scope, pool_terms.limit_scope)}
    mean = None if source.watts_per_gpu is None else source.watts_per_gpu * factor[source.power_scope]
    if terms.limits.watts is not None or pool_terms.power_watts is not None:
        for scope in (pool_terms.limit_scope, *((source.power_scope,) if mean is not None else ())):
            if terms.overhead.get(scope) is None:
                return f"a power budget needs the power of the rest of a node: give spec.power.overhead.{scope}"
        if limit_watts(source.pool) is None:
            return "a power budget needs the enforced limit of a GPU: give limitWattsPerGPU"
    limit = limit_watts(source.pool)
    reserved = None if limit is None else max(limit * factor[pool_terms.limit_scope], mean or 0.0)
    return Electric(reserved, mean, pool_terms.idle_watts_per_gpu * factor[pool_terms.limit_scope])


def idle_watts(pool: CandidatePool, terms: Terms) -> float:
    """Facility watts of all its GPUs where no job uses them."""
    factor = (terms.overhead.get(pool.terms.limit_scope) or 1.0) * (terms.pue or 1.0)
    return pool.terms.idle_watts_per_gpu * factor * pool.gpus


def limit_watts(pool: CandidatePool) -> float | None:
    """Enforced limit of one GPU: as reported, as the user says, or the product's factory limit."""
    watts = pool.limit_watts_per_gpu or pool.terms.limit_watts_per_gpu
    gpu = part(pool.product) if watts is None else None
    return float(gpu.power_limit_watts) if gpu else watts


def block_of(job: JobTerms, pool: CandidatePool) -> int:
    """GPUs of the blocks that the job gets there."""
    return job.block_gpus or pool.terms.block_gpus or pool.gpus_per_node
