"""How fast one job runs on so many GPUs of one pool, with which recipe: a rate, its band, and where it comes from.

    tokens/s = GPUs x t(pool, recipe, workload) x scaling(GPUs) x straggler(nodes) x goodput
    days     = tokens / (tokens/s) / 86,400

t is the median synchronous rate of a GPU. A measured rate of a whole job stands for t x scaling x straggler.

The band is meant to hold nine times in ten. Three parts, each as a factor on the rate: the measurement (the median
node's 95 % half-width x 1.645 / 1.96, not divided by the nodes' number, since nodes share method and sensor), the
prediction (its own 80 % band: what is predicted promises no more), the draw of nodes (5 % and 95 % quantiles of the
slowest node). They are taken as independent: their logarithms are added in quadrature, below and above the middle
apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from precision_api.recipes import Recipe
from precision_api.stats import Z_975
from precision_operator.planner.evidence import ALLOWABLE, CandidatePool, Sample
from precision_operator.planner.fleet import WorkloadFacts
from precision_operator.planner.predict import Target, Transfer, shape_problem, transfer
from precision_operator.planner.quantities import SECONDS_PER_DAY, age
from precision_operator.planner.straggler import Straggler, fastest, straggler, stretched
from precision_operator.planner.terms import JobRateTerms, JobTerms, Terms

Z_95 = 1.6448536269514722
"""Two-sided 90 %."""
NOT_MEASURED = "was not measured here"
Basis = Literal["measured", "predicted", "declared"]
WHOLE = Transfer(1.0, 1.0, 1.0)
ALONE = Straggler(1.0, 1.0, 1.0, 1.0)


def days(tokens: float, tokens_per_second: float) -> float:
    """How long training on `tokens` takes at that rate."""
    return tokens / tokens_per_second / SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Speed:
    """A job's rate at one size: tokens/s, its 90 % band, and its factors."""

    tokens_per_second: float
    low: float
    high: float
    straggler: float
    scaling: float
    goodput: float


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
    speeds: dict[tuple[int, float, bool], Speed | str] = field(default_factory=dict, compare=False, repr=False)
    """Rates that were worked out, by GPUs, goodput and placement: jobs of one workload share them."""

    @property
    def upper_bound(self) -> bool:
        """Whether communication is not in the rate."""
        return self.job_rate is None and not self.pool.terms.scaling_of(self.recipe)


def sources(pool: CandidatePool, wanted: Target, recipes: Iterable[Recipe]) -> Mapping[Recipe, Source | str]:
    """By recipe: the best source in this pool, or why there is none."""
    return {recipe: _source(pool, wanted, recipe) for recipe in recipes}


def _source(pool: CandidatePool, wanted: Target, recipe: Recipe) -> Source | str:
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
    return _predicted(pool, wanted, recipe, declared)


def _predicted(pool: CandidatePool, wanted: Target, recipe: Recipe, declared: Sequence[JobRateTerms]) -> Source | str:
    """From the workload that is nearest in FLOPs per token."""
    found: list[tuple[float, str, Source]] = []
    refusals: list[str] = []
    for rate in declared:
        step = transfer(_facts(rate.target), wanted)
        if isinstance(step, str):
            refusals.append(step)
        else:
            text = f"predicted by equal MFU from {rate.target.name}; job rate at {rate.gpus} GPUs: {rate.source}"
            source = _of_job(pool, rate, step, "predicted", text)
            found.append((abs(math.log(wanted.flops_per_token / rate.target.flops_per_token)), rate.target.key, source))
    for (key, measured), sample in sorted(pool.samples.items()):
        if measured != recipe:
            continue
        step = transfer(sample.workload, wanted)
        if isinstance(step, str):
            refusals.append(step)
            continue
        text = f"predicted by equal MFU from {sample.workload.name}; {_told(sample)}"
        distance = abs(math.log(wanted.flops_per_token / (sample.workload.flops_per_token or 1.0)))
        found.append((distance, key, _of_sample(pool, sample, step, "predicted", text)))
    if not found:
        return refusals[0] if refusals else _absent(pool, recipe)
    return min(found, key=lambda item: item[:2])[2]


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


def speed(source: Source, gpus: int, goodput: float, place_fastest: bool) -> Speed | str:
    """The rate of a job on `gpus` GPUs, or why it can't have that size."""
    asked = gpus, goodput, place_fastest
    if asked not in source.speeds:
        source.speeds[asked] = _speed(source, gpus, goodput, place_fastest)
    return source.speeds[asked]


def _speed(source: Source, gpus: int, goodput: float, place_fastest: bool) -> Speed | str:
    kept = _scaling(source, gpus)
    if isinstance(kept, str):
        return kept
    slow = _slowest(source, gpus, place_fastest)
    middle = gpus * source.per_gpu * kept * slow.days * goodput
    noise = source.half_width * Z_95 / Z_975
    below = _quadrature(1 - noise, source.step.low, slow.low / slow.days)
    above = _quadrature(1 + noise, source.step.high, slow.high / slow.days)
    return Speed(middle, middle * math.exp(-below), middle * math.exp(above), slow.days, kept, goodput)


def _quadrature(*factors: float) -> float:
    return math.sqrt(sum(math.log(factor) ** 2 for factor in factors))


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


def _slowest(source: Source, gpus: int, place_fastest: bool) -> Straggler:
    """A job rate holds its own slowest node already."""
    sample = source.sample
    if sample is None:
        return ALONE
    nodes = -(-gpus // source.pool.gpus_per_node)
    asked = max(source.pool.nodes, len(sample.quiet)), nodes, place_fastest
    if asked not in sample.factors:
        ordered = stretched(sample.quiet, asked[0])
        sample.factors[asked] = (fastest if place_fastest else straggler)(ordered, sample.reference, nodes)
    return sample.factors[asked]


def goodput_of(job: JobTerms, pool: CandidatePool, terms: Terms) -> float:
    """The share of time that the job makes progress: its own, its pool's, the plan's, else all of it."""
    for value in (job.goodput, pool.terms.goodput, terms.goodput):
        if value is not None:
            return value
    return 1.0
