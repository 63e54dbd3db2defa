"""What there is to choose from in each pool: recipes and sizes with rates and power, made once for alike jobs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from precision_api.facts.plain_text import number_of
from precision_api.facts.recipes import Recipe
from precision_operator.planner.inputs.quantities import SECONDS_PER_DAY
from precision_operator.planner.inputs.terms import ENDLESS, JobRateTerms, JobTerms, PlanClock, RunningTerms, Terms
from precision_operator.planner.rates import pool_sizes
from precision_operator.planner.rates.candidate_pool import CandidatePool, may_use
from precision_operator.planner.rates.speed import RateSource, conditions_of, of_job, sources

EVERY_SIZE = 8
"""Block counts that are all tried; above, two to each doubling, the same ones whatever the pool's size, so that more
nodes never make a plan worse."""
SEEN = 0.05
"""How far off the rate of a running job may be: as before, either way, nine times in ten."""
BLOCKS_SPLIT_NODES = "blocks"
"""How the refusal of a pool begins whose nodes the blocks do not fit."""


class Catalog:
    """What there is in the pools, made once for all jobs that it fits."""

    def __init__(self, pools: Sequence[CandidatePool], terms: Terms, clock: PlanClock = ENDLESS) -> None:
        self.pools, self.terms, self.clock = pools, terms, clock
        self._every: dict[tuple[object, ...], pool_sizes.Sizes] = {}
        self._sources: dict[tuple[object, ...], Mapping[Recipe, RateSource | str]] = {}
        self._arrays: dict[tuple[object, ...], pool_sizes.SizeArrays] = {}

    def sources(self, pool: CandidatePool, job: JobTerms) -> Mapping[Recipe, RateSource | str]:
        """Where the rates of this workload in this pool come from."""
        seen = job.running if job.running and job.running.seen else None
        asked = pool.name, job.target.key, job.recipes, job.named, seen
        if asked not in self._sources:
            usual = sources(pool, job.target, sorted(job.recipes), job.named)
            self._sources[asked] = {seen.recipe: _seen(usual[seen.recipe], pool, job, seen)} if seen else usual
        return self._sources[asked]

    def every(self, pool: CandidatePool, job: JobTerms) -> pool_sizes.Sizes:
        """Every size that the job may get in this pool. Raises OutOfTime."""
        asked = _shape(pool, job, self.terms)
        if asked not in self._every:
            least, most, problem = block_counts(pool, job)
            numbers, of = np.arange(least, most + 1, dtype=np.int64), self.sources(pool, job)
            self._every[asked] = (
                pool_sizes.refused(pool, problem)
                if problem
                else pool_sizes.sizes_of(pool, job, of, numbers, self.terms, self.clock)
            )
        return self._every[asked]

    def spread(self, pool: CandidatePool, job: JobTerms) -> Sequence[int]:
        """Places of some sizes: a spread, and with each recipe the first that are in time. Raises OutOfTime."""
        every = self.every(pool, job)
        if not len(every):
            return ()
        numbers = every.gpus // every.block_gpus
        known = (pool_sizes.known_gpus(row.source) // every.block_gpus for row in every.recipes)
        kept = np.isin(numbers, list(_spread(int(numbers[0]), int(numbers[-1]), *known)))
        if job.deadline_days is not None:
            kept[int(np.argmax(every.deadline_rates))] = True  # what a later deadline must allow at least
            in_time = job.tokens / every.deadline_rates / SECONDS_PER_DAY <= job.deadline_days - job.not_before
            for recipe in range(len(every.recipes)):
                kept[np.flatnonzero(in_time & (every.recipe == recipe))[:2]] = True
        places: Sequence[int] = np.flatnonzero(kept).tolist()
        return places

    def arrays(self, job: JobTerms) -> pool_sizes.SizeArrays:
        """All sizes of all pools that the job may use, pool after pool. Raises OutOfTime."""
        mine = [pool for pool in self.pools if may_use(job, pool)]
        asked = tuple(_shape(pool, job, self.terms) for pool in mine)
        if asked not in self._arrays:
            places = {pool.name: place for place, pool in enumerate(self.pools)}
            by_pool = [(places[pool.name], self.every(pool, job)) for pool in mine]
            self._arrays[asked] = pool_sizes.SizeArrays(by_pool, self.terms)
        return self._arrays[asked]


def _seen(usual: RateSource | str, pool: CandidatePool, job: JobTerms, running: RunningTerms) -> RateSource:
    """The rate that a job was seen to reach: communication, stragglers and stops are in it."""
    per_gpu = (running.seen or 0.0) / running.gpus
    seen = JobRateTerms(job.target, running.recipe, running.gpus, per_gpu, None, f"{job.name} as it ran", SEEN)
    made, rate = of_job(pool, seen), None if isinstance(usual, str) else usual
    text = f"as it ran for {running.days:.3g} days; else: {rate.text if rate else usual}"
    watts, scope = (rate.watts_per_gpu, rate.power_scope) if rate else (None, made.power_scope)
    return replace(made, wanted=job.target, watts_per_gpu=watts, power_scope=scope, text=text)


def _shape(pool: CandidatePool, job: JobTerms, terms: Terms) -> tuple[object, ...]:
    """What decides which sizes a job may get in a pool."""
    limits = job.min_gpus, job.max_gpus, job.block_gpus, job.fit, job.running
    return pool.name, job.target.key, job.recipes, job.named, conditions_of(job, pool, terms), *limits


def block_counts(pool: CandidatePool, job: JobTerms) -> tuple[int, int, str]:
    """(fewest, most) blocks that the job may have there, and why it may have none."""
    node, block = pool.gpus_per_node, pool_sizes.block_of(job, pool)
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
        have, limit = blocks(pool, block) * block, f", maxGPUs {job.max_gpus}" if job.max_gpus else ""
        beside = f" beside {number_of(pool.spares, 'spare node')} (spareNodes)" if pool.spares else ""
        return 1, 0, f"has {have} GPUs in blocks of {block}{beside}; the job wants at least {least * block}{limit}"
    return least, most, ""


def blocks(pool: CandidatePool, block: int) -> int:
    """Whole blocks in the pool; a block of several nodes lies within one rack where racks are known."""
    if block <= pool.gpus_per_node or not pool.racks:
        return pool.gpus // block
    return sum(nodes * pool.gpus_per_node // block for nodes in pool.racks.values())


@lru_cache(maxsize=4096)
def _spread(least: int, most: int, *further: int) -> tuple[int, ...]:
    counts = {*range(1, EVERY_SIZE + 1), least, most, *further}
    doubled = EVERY_SIZE
    while doubled <= most:
        counts |= {doubled, doubled * 3 // 2}
        doubled *= 2
    return tuple(sorted(number for number in counts if least <= number <= most))
