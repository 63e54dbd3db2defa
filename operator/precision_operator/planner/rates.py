"""How fast one job runs on so many GPUs of one pool, with which recipe: a rate, its band, and where it comes from.

    tokens/s = GPUs x t(pool, recipe, workload) x scaling(GPUs) x straggler(nodes) x goodput
    days     = tokens / (tokens/s) / 86,400

t is the median synchronous rate of a GPU. A measured rate of a whole job stands for t x scaling x straggler.

The band is meant to hold nine times in ten (`bands`): the measurement (the median node's 95 % half-width x 1.645 /
1.96, not divided by the nodes' number, since nodes share method and sensor), the prediction, the draw of nodes and how
many of them nobody has measured, and what a user declares. `promised` is the rate that is reached or passed nine times
in ten: deadlines are planned with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from precision_api.products import part
from precision_api.recipes import Recipe, support
from precision_api.stats import Z_975
from precision_operator.planner.bands import (
    JOB_RATE_PLUS_MINUS,
    SCALING_PLUS_MINUS,
    Z_95,
    Part,
    combined,
    goodput_part,
    plus_minus,
)
from precision_operator.planner.candidate_pool import CandidatePool, Sample
from precision_operator.planner.evidence import ALLOWABLE
from precision_operator.planner.fleet import WorkloadFacts
from precision_operator.planner.predict import Target, Transfer, recipe_transfer, shape_problem, transfer
from precision_operator.planner.quantities import SECONDS_PER_DAY, age
from precision_operator.planner.straggler import Straggler, fastest, sampled, straggler, stretched
from precision_operator.planner.terms import Goodput, JobRateTerms, JobTerms, Terms

NOT_MEASURED = "was not measured here"
Basis = Literal["measured", "predicted", "declared"]
WHOLE = Transfer(1.0, 1.0, 1.0)
ALONE = Straggler(1.0, 1.0, 1.0, 1.0, 1.0)


def days(tokens: float, tokens_per_second: float) -> float:
    """How long training on `tokens` takes at that rate."""
    return tokens / tokens_per_second / SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Speed:
    """A job's rate at one size: tokens/s, its 90 % band, its factors, and what the band is made of.

    `promised` is reached or passed nine times in ten.
    """

    tokens_per_second: float
    low: float
    high: float
    straggler: float
    scaling: float
    goodput: float
    promised: float
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rate of one pool and recipe for one workload comes from; size is not in it yet."""

    pool: CandidatePool
    recipe: Recipe
    basis: Basis
    per_gpu: float
    """Tokens/s of one GPU of the median node, or of the measured job."""
    step: Transfer
    """Applied in `per_gpu` already; its band is not."""
    half_width: float
    watts_per_gpu: float | None
    power_scope: str
    text: str
    sample: Sample | None = None
    job_rate: JobRateTerms | None = None
    speeds: dict[tuple[int, Goodput | None, int], Speed | str] = field(default_factory=dict, compare=False, repr=False)
    """Rates that were worked out, by GPUs, goodput and placement: jobs of one workload share them."""

    @property
    def upper_bound(self) -> bool:
        """Whether communication is not in the rate."""
        return self.job_rate is None and not self.pool.terms.scaling_of(self.recipe)


def sources(
    pool: CandidatePool, wanted: Target, recipes: Iterable[Recipe], named: bool = False
) -> Mapping[Recipe, Source | str]:
    """By recipe: the best source in this pool, or why there is none; `named`: whether the job names its recipes."""
    return {recipe: _source(pool, wanted, recipe, named) for recipe in recipes}


def _source(pool: CandidatePool, wanted: Target, recipe: Recipe, named: bool) -> Source | str:
    """Measured comes before predicted, a whole job's rate before those of nodes."""
    problem = shape_problem(wanted, recipe)
    if problem:
        return problem
    declared = [rate for rate in pool.terms.job_rates if rate.recipe == recipe]
    exact = next((rate for rate in declared if rate.target.key == wanted.key), None)
    if exact is not None:
        return _of_job(pool, exact, WHOLE, "declared", f"job rate at {exact.gpus} GPUs: {exact.source}")
    sample = pool.samples.get((wanted.key, recipe))
    if sample is not None:
        return _of_sample(pool, sample, WHOLE, "measured", _told(sample))
    return _predicted(pool, wanted, recipe, declared, named)


def _predicted(
    pool: CandidatePool, wanted: Target, recipe: Recipe, declared: Sequence[JobRateTerms], named: bool
) -> Source | str:
    """By the narrowest band: from another model in this recipe, or, where the job names it, from another recipe."""
    found: list[tuple[float, float, str, Source]] = []
    refusals: list[str] = []
    for step, key, made in [
        *_other_models(pool, wanted, recipe, declared),
        *_other_recipes(pool, wanted, recipe, named),
    ]:
        if isinstance(step, str):
            refusals.append(step)
        else:
            source = made(step)
            found.append((step.width, abs(math.log(step.factor)), key, source))
    if not found:
        return refusals[0] if refusals else _absent(pool, recipe)
    return min(found, key=lambda item: item[:3])[3]


_Way = tuple[Transfer | str, str, Callable[[Transfer], Source]]
"""A step (or why there is none), what it starts from, and the source that it makes."""


def _other_models(
    pool: CandidatePool, wanted: Target, recipe: Recipe, declared: Sequence[JobRateTerms]
) -> Iterator[_Way]:
    for rate in declared:
        yield (
            transfer(_facts(rate.target), wanted),
            rate.target.key,
            partial(_from_job, pool, rate, f"predicted by equal FLOP/s from {rate.target.name}"),
        )
    for (key, measured), sample in sorted(pool.samples.items()):
        if measured == recipe:
            text = f"predicted by equal FLOP/s from {sample.workload.name}"
            yield transfer(sample.workload, wanted), key, partial(_from_sample, pool, sample, recipe, text)


def _other_recipes(pool: CandidatePool, wanted: Target, recipe: Recipe, named: bool) -> Iterator[_Way]:
    """Of the same workload. A recipe that was measured and refused here, or that the product can't run, is not one."""
    known = part(pool.product)
    if not named or recipe in pool.refused_recipes or known is None or support(recipe, known.compute) is None:
        return
    for rate in pool.terms.job_rates:
        if rate.recipe != recipe and rate.target.key == wanted.key:
            text = f"predicted from {rate.recipe} by published pairs"
            yield (
                recipe_transfer(wanted, rate.recipe, recipe),
                rate.recipe,
                partial(_from_job, pool, replace(rate, recipe=recipe), text),
            )
    for (key, measured), sample in sorted(pool.samples.items()):
        if measured != recipe and key == wanted.key:
            text = f"predicted from {measured} by published pairs"
            yield recipe_transfer(wanted, measured, recipe), measured, partial(_from_sample, pool, sample, recipe, text)


def _from_job(pool: CandidatePool, rate: JobRateTerms, text: str, step: Transfer) -> Source:
    return _of_job(pool, rate, step, "predicted", f"{text}; job rate at {rate.gpus} GPUs: {rate.source}")


def _from_sample(pool: CandidatePool, sample: Sample, recipe: Recipe, text: str, step: Transfer) -> Source:
    return replace(_of_sample(pool, sample, step, "predicted", f"{text}; {_told(sample)}"), recipe=recipe)


def _facts(wanted: Target) -> WorkloadFacts:
    return WorkloadFacts(
        key=wanted.key,
        name=wanted.name,
        flops_per_token=wanted.flops_per_token,
        sequence_length=wanted.sequence_length,
        model=wanted.model,
    )


def _absent(pool: CandidatePool, recipe: Recipe) -> str:
    if pool.refused:
        words = ", ".join(f"{word} ({number})" for word, number in sorted(pool.refused.items()))
        first = next((word for word in sorted(pool.refused) if word in ALLOWABLE), "")
        remedy = f"; measure again, or put {first} into fleet.allow" if first else "; see kubectl precision report"
        return f"{recipe} has no usable figure: results are refused as {words}{remedy}"
    if pool.notes and not pool.nodes:
        return pool.notes[0]
    return f"{recipe} {NOT_MEASURED}: profile it, or give jobRates"


def _told(sample: Sample) -> str:
    marks = "".join(f", {word.upper()} ({number}/{len(sample.rates)})" for word, number in sorted(sample.marks.items()))
    return (
        f"profile {', '.join(sample.profiles)}, {len(sample.rates)} nodes, {sample.verified} verified, "
        f"oldest {age(sample.oldest_days)}{marks}"
    )


def _of_job(pool: CandidatePool, rate: JobRateTerms, step: Transfer, basis: Basis, text: str) -> Source:
    return Source(
        pool=pool,
        recipe=rate.recipe,
        basis=basis,
        per_gpu=rate.per_gpu * step.factor,
        step=step,
        half_width=0.0,
        watts_per_gpu=rate.watts_per_gpu,
        power_scope=pool.terms.power_scope,
        text=text,
        job_rate=rate,
    )


def _of_sample(pool: CandidatePool, sample: Sample, step: Transfer, basis: Basis, text: str) -> Source:
    return Source(
        pool=pool,
        recipe=sample.recipe,
        basis=basis,
        per_gpu=sample.reference * step.factor,
        step=step,
        half_width=sample.half_width,
        watts_per_gpu=sample.watts_per_gpu,
        power_scope=sample.power_scope,
        text=text,
        sample=sample,
    )


def speed(source: Source, gpus: int, goodput: Goodput | None, fastest_of: int) -> Speed | str:
    """The rate of a job on `gpus` GPUs, or why it can't have that size.

    `fastest_of`: it is placed within so many fastest nodes of the pool; 0: on nodes drawn at random.
    """
    asked = gpus, goodput, fastest_of
    if asked not in source.speeds:
        source.speeds[asked] = _speed(source, gpus, goodput, fastest_of)
    return source.speeds[asked]


def _speed(source: Source, gpus: int, goodput: Goodput | None, fastest_of: int) -> Speed | str:
    kept = _scaling(source, gpus)
    if isinstance(kept, str):
        return kept
    slow = slowest(source, gpus, fastest_of)
    progress = 1.0 if goodput is None else goodput.share
    middle = gpus * source.per_gpu * kept * slow.days * progress
    parts = tuple(band_parts(source, gpus, goodput, slow))
    band = combined(parts)
    return Speed(
        tokens_per_second=middle,
        low=middle * band.low,
        high=middle * band.high,
        straggler=slow.days,
        scaling=kept,
        goodput=progress,
        promised=middle * band.promised,
        parts=parts,
    )


def band_parts(source: Source, gpus: int, goodput: Goodput | None, slow: Straggler) -> Iterator[Part]:
    """Why the rate may be off. What jobs of one pool have in common they share."""
    pool, rate = source.pool, source.job_rate
    if rate is None:
        yield plus_minus("measurement", source.half_width * Z_95 / Z_975, f"measurement {pool.name}")
    else:
        half = JOB_RATE_PLUS_MINUS if rate.plus_minus is None else rate.plus_minus
        yield plus_minus("job rate", half, f"{rate.source} {rate.target.key}")
    if source.basis == "predicted":
        yield Part("prediction", source.step.low, source.step.high, f"{pool.product} {source.recipe} {source.text}")
    if slow.low != slow.high:
        factors = tuple(value / slow.days for value in slow.values)
        yield Part("slow nodes", slow.low / slow.days, slow.high / slow.days, values=factors)
    if pool.terms.scaling_of(source.recipe) and (gpus > pool.gpus_per_node if rate is None else gpus != rate.gpus):
        own = pool.terms.scaling_plus_minus
        yield plus_minus("scaling", SCALING_PLUS_MINUS if own is None else own, f"scaling {pool.name}")
    share = None if goodput is None else goodput.share
    yield goodput_part(share, None if goodput is None else goodput.plus_minus, f"goodput {pool.name}")


def _scaling(source: Source, gpus: int) -> float | str:
    """What communication leaves: linear in log(GPUs) between the user's points; beyond the last nothing is known."""
    points = source.pool.terms.scaling_of(source.recipe)
    if source.job_rate is None:
        return 1.0 if not points else _between(points, gpus, source.pool.gpus_per_node)
    at = source.job_rate.gpus
    if not points:
        # Fewer GPUs lose no more to communication than the measured job; of more, nothing is known.
        text = f"the job rate was measured at {at} GPUs: for {gpus} give the pool's scaling"
        return 1.0 if gpus <= at else text
    here, there = (_between(points, size, source.pool.gpus_per_node) for size in (gpus, at))
    if isinstance(here, str):
        return here
    return there if isinstance(there, str) else here / there


def _between(points: Sequence[tuple[int, float]], gpus: int, node: int) -> float | str:
    if points[0][0] > node:
        points = ((node, 1.0), *points)
    if gpus > points[-1][0]:
        return f"scaling is given up to {points[-1][0]} GPUs, not for {gpus}: add a point"
    if gpus <= points[0][0]:
        return points[0][1]
    for (low, first), (high, second) in itertools.pairwise(points):
        if gpus <= high:
            share = math.log(gpus / low) / math.log(high / low)
            return first + share * (second - first)
    raise AssertionError("a point at or above gpus was found above")


def slowest(source: Source, gpus: int, fastest_of: int) -> Straggler:
    """A job rate holds its own slowest node already."""
    sample = source.sample
    if sample is None:
        return ALONE
    nodes, unmeasured = -(-gpus // source.pool.gpus_per_node), source.pool.unmeasured(sample) > 0
    asked = max(source.pool.nodes, len(sample.quiet)), nodes, placed_on(source.pool, sample, fastest_of)
    if asked not in sample.factors:
        sample.factors[asked] = _drawn(sample, *asked, unmeasured)
    return sample.factors[asked]


def placed_on(pool: CandidatePool, sample: Sample, fastest_of: int) -> int:
    """So many fastest nodes, or 0 where which of them are fast is not known: then they are drawn."""
    return 0 if pool.unmeasured(sample) and fastest_of > len(sample.quiet) else fastest_of


def _drawn(sample: Sample, nodes: int, chosen: int, fastest_of: int, unmeasured: bool) -> Straggler:
    if unmeasured and not fastest_of:
        return sampled(sample.quiet, sample.reference, nodes, chosen)
    if fastest_of:
        known = sample.quiet if unmeasured else stretched(sample.quiet, nodes)
        return fastest(known, sample.reference, fastest_of)
    return straggler(stretched(sample.quiet, nodes), sample.reference, chosen)


def goodput_of(job: JobTerms, pool: CandidatePool, terms: Terms) -> Goodput | None:
    """The share of time that the job makes progress: its own, its pool's, the plan's; None where none is given."""
    return job.goodput or pool.terms.goodput or terms.goodput
