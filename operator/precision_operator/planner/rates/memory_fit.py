"""The fewest GPUs that hold a job's model, and the most that its global batch feeds.

What is checked is necessary and not sufficient: the model is taken as split evenly over all GPUs, by whatever mix of
parallelism, the optimizer's state as shared as widely as it can be, gradients as BF16 and activations as computed
again. Who trains with a coarser split or FP32 gradients needs more. By `precision_api.models.memory`, the same formula
that the agent and `dry-run` use; weights, gradients and optimizer may take up to 0.8 of a GPU's memory.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from precision_api.facts.plain_text import three_digits
from precision_api.facts.products import part
from precision_api.facts.recipes import Recipe
from precision_api.models.memory import (
    BF16_GRADIENT_BYTES,
    MOST_STATE_SHARE,
    OPTIMIZER_BYTES,
    WEIGHT_BYTES,
    TrainingMemory,
    memory_of,
)
from precision_api.models.shapes import Split
from precision_operator.planner.inputs.terms import JobTerms
from precision_operator.planner.inputs.workloads import JobWorkload
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.rates.size_law import Sized

MOST_GPUS = 1 << 20
GIBIBYTE = 2**30
ASSUMED = ", taken as the fewest that could hold it, or as published (give gpusPerReplica)"


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """GPUs that a job may have in one pool with one recipe, and why not fewer or more; `most` None: no limit known."""

    least: int = 1
    most: int | None = None
    why_least: str = ""
    why_most: str = ""

    def problem(self, gpus: int) -> str:
        """Why the job can't have so many; empty where it can."""
        if gpus < self.least:
            return self.why_least
        return self.why_most if self.most is not None and gpus > self.most else ""


def limits_of(job: JobTerms, pool: CandidatePool, recipe: Recipe, always: bool = False) -> SizeLimits:
    """The limits by memory and batch; none for jobs that run already or ignore them, but where `always` is said."""
    if not always and (job.running or job.fit.ignored):
        return SizeLimits()
    memory, fit = memory_bytes(pool), job.fit
    least, why_least, copy = 1, "", fit.gpus_per_replica
    if memory is not None:
        least = fewest_gpus(job.target, recipe, memory, fit.gpus_per_replica)
        why_least = _too_few(job, pool, recipe, least, memory)
        copy = copy or max(_copy(job.target, recipe, memory), _sharing(job.target, pool))
    sequences = fit.most_batch or fit.global_batch
    if sequences is None or copy is None:
        return SizeLimits(least, None, why_least)
    most = sequences * copy
    assumed = "" if fit.gpus_per_replica else ASSUMED
    why_most = (
        f"a global batch of {sequences} sequences feeds {most} GPUs at most: one sequence for each copy of the "
        f"model, {copy} GPUs a copy{assumed}"
    )
    return SizeLimits(least, most, why_least, why_most)


def memory_bytes(pool: CandidatePool) -> int | None:
    """Memory of one of the pool's GPUs: as given, else what the vendor prints for the product, read as GiB.

    Read so, nothing is refused for the unit alone: an H100 of "80 GB" has 79.6 GiB.
    """
    if pool.terms.memory_gibibytes is not None:
        return pool.terms.memory_gibibytes * GIBIBYTE
    gpu = part(pool.product)
    return None if gpu is None else gpu.memory_gb * GIBIBYTE


@lru_cache(maxsize=4096)
def fewest_gpus(wanted: JobWorkload, recipe: Recipe, memory: int, gpus_per_replica: int | None = None) -> int:
    """The fewest GPUs of so many bytes that hold the model; MOST_GPUS + 1 where none do."""
    return _first(lambda gpus: _fits(_memory(wanted, recipe, gpus, gpus_per_replica), memory))


@lru_cache(maxsize=4096)
def _copy(wanted: JobWorkload, recipe: Recipe, memory: int) -> int:
    """The fewest GPUs that one copy of the model could be split over, a power of two: with its optimizer elsewhere."""
    least = _first(lambda gpus: _fits(_memory(wanted, recipe, MOST_GPUS, gpus), memory))
    return 1 << (least - 1).bit_length()


def _sharing(wanted: JobWorkload, pool: CandidatePool) -> int:
    """The most GPUs that shared one sequence in published jobs."""
    of = Sized(wanted, pool.sold_as, 1, 1.0, (None, None)).published
    return math.ceil((wanted.sequence_length or 1) / of.fewest_tokens) if of else 1


def _first(holds: Callable[[int], bool]) -> int:
    """The least number that `holds`, which no larger one does not; by halving."""
    return 1 + bisect_left(range(1, MOST_GPUS + 1), True, key=holds)


@lru_cache(maxsize=16384)
def _memory(wanted: JobWorkload, recipe: Recipe, gpus: int, gpus_per_replica: int | None) -> TrainingMemory:
    """Of one GPU; without `gpus_per_replica` the copy is split over all GPUs."""
    copy = gpus if gpus_per_replica is None else min(gpus_per_replica, gpus)
    shards = max(1, gpus // copy)
    if wanted.model is None:
        return _of_parameters(wanted, copy, shards)
    return memory_of(
        wanted.model,
        wanted.sequence_length or 1,
        Split(tensor=copy),
        recipe,
        optimizer_shards=shards,
        gradient_bytes=BF16_GRADIENT_BYTES,
        recompute="Full",
    )


def _of_parameters(wanted: JobWorkload, copy: int, shards: int) -> TrainingMemory:
    weights = -(-wanted.flops_per_token // 6 // copy)
    return TrainingMemory(
        weights=round(WEIGHT_BYTES * weights),
        gradients=round(BF16_GRADIENT_BYTES * weights),
        optimizer=round(OPTIMIZER_BYTES * weights / shards),
        quantized_weights=0,
        activations=0,
        peak_beside=0,
    )


def _fits(needed: TrainingMemory, memory: int) -> bool:
    return needed.state <= MOST_STATE_SHARE * memory and needed.total <= memory


def _too_few(job: JobTerms, pool: CandidatePool, recipe: Recipe, least: int, memory: int) -> str:
    whole = _memory(job.target, recipe, 1, None).state / GIBIBYTE
    needs = (
        f"weights, gradients and optimizer of {job.target.name} take {three_digits(whole)} GiB, and {recipe} more "
        f"beside; a GPU of {pool.product} has {three_digits(memory / GIBIBYTE)} GiB, of which they may take "
        f"{MOST_STATE_SHARE:.0%}"
    )
    if least > MOST_GPUS:
        return f"no number of GPUs holds it with gpusPerReplica {job.fit.gpus_per_replica}: {needs}. Raise it"
    return f"at least {least} GPUs hold the model: {needs}"
