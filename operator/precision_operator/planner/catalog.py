"""What there is to choose from in each pool: recipes and sizes with rates and power, made once for alike jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from precision_api.products import part
from precision_api.recipes import Recipe
from precision_operator.planner.candidate_pool import CandidatePool
from precision_operator.planner.memory_fit import size_limits
from precision_operator.planner.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.rates import Source, Speed, days, goodput_of, sources, speed
from precision_operator.planner.terms import JobTerms, Terms

EVERY_SIZE = 8
"""Block counts that are all tried; above, two to each doubling, the same ones whatever the pool's size, so that more
nodes never make a plan worse."""


BLOCKS_SPLIT_NODES = "blocks"
"""How the refusal of a pool begins whose nodes the blocks do not fit."""


class Catalog:
    """What there is in the pools, made once for all jobs that it fits."""

    def __init__(self, pools: Sequence[CandidatePool], terms: Terms) -> None:
        self.pools, self.terms = pools, terms
        self._listings: Listings = {}
        self._sources: dict[tuple[str, str, frozenset[Recipe], bool], Mapping[Recipe, Source | str]] = {}
        self._arrays: dict[tuple[int, ...], ConfigurationArrays] = {}

    def sources(self, pool: CandidatePool, job: JobTerms) -> Mapping[Recipe, Source | str]:
        """Where the rates of this workload in this pool come from."""
        asked = pool.name, job.target.key, job.recipes, job.recipes_named
        if asked not in self._sources:
            self._sources[asked] = sources(pool, job.target, sorted(job.recipes), job.recipes_named)
        return self._sources[asked]

    def listing(self, pool: CandidatePool, job: JobTerms, every: bool) -> Listing:
        """What the job may get in this pool, and why it may not get the rest."""
        own = None if every else (job.tokens, job.deadline_days)
        shape = job.min_gpus, job.max_gpus, job.block_gpus, job.goodput, job.not_before, job.running
        asked = pool.name, job.target.key, job.recipes, job.recipes_named, job.fit, shape, own
        if asked not in self._listings:
            self._listings[asked] = _listing(self, pool, job, every)
        return self._listings[asked]

    def arrays(self, job: JobTerms) -> ConfigurationArrays:
        """All sizes of all pools that the job may use, as arrays."""
        listings = [self.listing(pool, job, True) for pool in self.pools if may_use(job, pool)]
        asked = tuple(map(id, listings))
        if asked not in self._arrays:
            self._arrays[asked] = ConfigurationArrays(
                [row for listing, _ in listings for row in listing], self.pools, self.terms
            )
        return self._arrays[asked]


class ConfigurationArrays:
    """All choices of jobs of one shape; figures of one token, or of the choice itself."""

    def __init__(self, configurations: Sequence[Configuration], pools: Sequence[CandidatePool], terms: Terms) -> None:
        place = {pool.name: i for i, pool in enumerate(pools)}

        def figures(of: Callable[[Configuration], float]) -> NDArray[np.float64]:
            return np.fromiter(map(of, configurations), dtype=np.float64, count=len(configurations))

        self.pool = figures(lambda row: place[row.source.pool.name]).astype(np.int64)
        self.gpus = figures(lambda row: float(row.gpus))
        self.watts = figures(lambda row: max(0.0, (row.electric.limit or 0.0) - row.electric.idle) * row.gpus)
        self.days = figures(lambda row: days(1.0, row.speed.tokens_per_second))
        self.deadline_days = figures(lambda row: days(1.0, deadline_rate(row.source, row.speed)))
        self.energy = figures(lambda row: _energy(row) if row.electric.mean is not None else math.nan)
        self.dollars = figures(lambda row: _dollars_of_a_token(row, terms))


def _energy(row: Configuration) -> float:
    """Megawatt hours of one token."""
    return (row.electric.mean or 0.0) * row.gpus * days(1.0, row.speed.tokens_per_second) * 24 / WATTS_PER_MEGAWATT


def _dollars_of_a_token(row: Configuration, terms: Terms) -> float:
    """Dollars of one token; GPU hours that are paid for cost nothing, as a bound; NaN where there is no price."""
    own, price = row.source.pool.terms, terms.dollars_per_kilowatt_hour
    hourly = 0.0 if terms.electricity_alone or own.committed_gpu_hours else own.dollars_per_gpu_hour
    if hourly is None:
        return math.nan
    gpu = row.gpus * days(1.0, row.speed.tokens_per_second) * 24 * hourly
    if own.price_includes_power or price is None:
        return gpu
    return math.nan if row.electric.mean is None else gpu + _energy(row) * 1000 * price


def may_use(job: JobTerms, pool: CandidatePool) -> bool:
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
class Configuration:
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


Listing = tuple[tuple[Configuration, ...], Mapping[str, str]]
"""Configurations, and why others are not among them."""


Listings = dict[tuple[object, ...], Listing]


def _listing(catalog: Catalog, pool: CandidatePool, job: JobTerms, every: bool) -> Listing:
    configurations: dict[tuple[int, int], list[Configuration]] = {}
    refusals: dict[str, str] = {}
    least, most, problem = block_counts(pool, job)
    if problem:
        return (), {pool.name: problem}
    for recipe, source in catalog.sources(pool, job).items():
        if isinstance(source, str):
            refusals[f"{pool.name} {recipe}"] = source
            continue
        for configuration in _sized(source, job, catalog.terms, range(least, most + 1), every):
            if isinstance(configuration, str):
                refusals.setdefault(f"{pool.name} {recipe}", configuration)
            else:
                configurations.setdefault((configuration.gpus, configuration.tier), []).append(configuration)
    return tuple(
        configuration for _, group in sorted(configurations.items()) for configuration in _undominated(group)
    ), refusals


def _undominated(group: Sequence[Configuration]) -> Iterator[Configuration]:
    """Without those that another recipe of the same pool and size beats in everything; of equal ones the first."""
    for i, configuration in enumerate(group):
        mine = configuration.burden
        if not any(_beats(other.burden, mine, j < i) for j, other in enumerate(group) if j != i):
            yield configuration


def _beats(one: tuple[float, ...], other: tuple[float, ...], first: bool) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and (one != other or first)


def _sized(source: Source, job: JobTerms, terms: Terms, counts: range, every: bool) -> Iterator[Configuration | str]:
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
            yield made if isinstance(made, str) else Configuration(source, gpus, block, tier, made, electric)


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


def block_counts(pool: CandidatePool, job: JobTerms) -> tuple[int, int, str]:
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
