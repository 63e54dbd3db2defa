"""How fast one job runs on so many GPUs of one pool, with which recipe: a rate, its band, and where it comes from.

    tokens/s = GPUs x t(pool, recipe, workload) x scaling(GPUs) x straggler(nodes) x goodput
    days     = tokens / (tokens/s) / 86,400

t is the median synchronous rate of a GPU. A measured rate of a whole job stands for t x scaling x straggler.

The band is meant to hold nine times in ten (`bands`): the measurement (the median node's 95 % half-width x 1.645 /
1.96, not divided by the nodes' number, since nodes share method and sensor), the prediction, the draw of nodes and how
many of them nobody has measured, and what a user declares. `promised` is the rate that is reached or passed nine times
in ten: deadlines are planned with it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from precision_api.exchange.stats import Z_975
from precision_api.facts.plain_text import number_of
from precision_api.facts.products import part
from precision_api.facts.recipes import Recipe, risk_of, support
from precision_api.kinds.capacity_plan import Basis
from precision_operator.planner.inputs.quantities import SECONDS_PER_DAY, age
from precision_operator.planner.inputs.terms import Conditions, Failures, JobRateTerms, JobTerms, Repairs, Terms
from precision_operator.planner.inputs.workloads import JobWorkload
from precision_operator.planner.rates import bands, straggler
from precision_operator.planner.rates.candidate_pool import CandidatePool, PoolSample, may_use, verdict_counts
from precision_operator.planner.rates.evidence import ALLOWABLE
from precision_operator.planner.rates.failures import progress, repair_band
from precision_operator.planner.rates.laws import Transfer, recipe_transfer, releases_apart, shape_problem, transfer
from precision_operator.planner.rates.size_law import CLUSTERS_OWN, Kept, Sized, size_class

NOT_MEASURED = "was not measured here"
UNLISTED = "and neither the job nor a profile of its model names it: list it in the job's recipes"
MADE_UP: tuple[Basis, ...] = ("simulated", "replayed")
WHOLE = Transfer(1.0, 1.0, 1.0)
ALONE = straggler.Straggler(1.0, 1.0, 1.0)
NOBODYS = JobWorkload("", "", 1.0)


def days(tokens: float, tokens_per_second: float) -> float:
    """How long training on `tokens` takes at that rate."""
    return tokens / tokens_per_second / SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Speed:
    """A job's rate at one size: tokens/s, its 90 % band, the factor of its slowest node, and what the band is made of.

    `promised` is reached or passed nine times in ten.
    """

    tokens_per_second: float
    low: float
    high: float
    straggler: float
    promised: float
    parts: tuple[bands.BandPart, ...] = ()


@dataclass(frozen=True, slots=True)
class RateSource:
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
    sample: PoolSample | None = None
    job_rate: JobRateTerms | None = None
    wanted: JobWorkload = NOBODYS
    speeds: dict[tuple[int, Conditions, int], Speed | str] = field(default_factory=dict, compare=False, repr=False)
    """Rates that were worked out, by GPUs, conditions and placement: jobs of one workload share them."""

    @property
    def upper_bound(self) -> bool:
        """Whether nothing tells what communication takes of it: only sizes of a node are offered then."""
        return self.job_rate is None and not self.pool.terms.scaling_of(self.recipe) and not sized(self).anchored


def sources(
    pool: CandidatePool, wanted: JobWorkload, recipes: Iterable[Recipe], named: frozenset[Recipe] = frozenset()
) -> Mapping[Recipe, RateSource | str]:
    """By recipe: the best source in this pool, or why there is none; `named`: those that the plan names."""
    made = {recipe: _source(pool, wanted, recipe, recipe in named) for recipe in recipes}
    return {recipe: of if isinstance(of, str) else replace(of, wanted=wanted) for recipe, of in made.items()}


def _source(pool: CandidatePool, wanted: JobWorkload, recipe: Recipe, named: bool) -> RateSource | str:
    """Measured comes before predicted, a whole job's rate before those of nodes; a risk is taken for one model."""
    problem = shape_problem(wanted, recipe)
    if problem:
        return problem
    declared = [rate for rate in pool.terms.job_rates if rate.recipe == recipe]
    exact = next((rate for rate in declared if rate.target.key == wanted.key), None)
    if exact is not None:
        return of_job(pool, exact)
    measured = {key: sample for (key, of), sample in sorted(pool.samples.items()) if of == recipe}
    offered = {
        key: sample
        for key, sample in measured.items()
        if named or not (sample.barred if key == wanted.key else risk_of(recipe, sample.layers_bf16))
    }
    unlisted = len(offered) < len(measured) or bool(declared and not named and risk_of(recipe))
    if unlisted and not offered:
        risk = "a known risk" if risk_of(recipe) else "a known risk, with no layers in BF16 (lastLayersBF16: 0)"
        return f"{recipe} has {risk}, {UNLISTED}"
    if wanted.key in offered:
        return _of_sample(pool, offered[wanted.key], recipe)
    declared = [] if unlisted else declared  # how many layers they keep in BF16 is not known
    ways = [*_other_models(pool, wanted, declared, offered), *_other_recipes(pool, wanted, recipe, named)]
    return _narrowest(ways) or next((why for _, why in ways), _absent(pool, recipe))


_Way = tuple[str, RateSource | str]
"""What a step starts from, and the source that it makes, or why it makes none."""


def _narrowest(ways: Sequence[_Way]) -> RateSource | None:
    """The source with the narrowest band: from another model in this recipe, or from another recipe that is named."""
    candidates = [
        (source.step.width, abs(math.log(source.step.factor)), key, source)
        for key, source in ways
        if not isinstance(source, str)
    ]
    return min(candidates, key=lambda item: item[:3])[3] if candidates else None


def _other_models(
    pool: CandidatePool, wanted: JobWorkload, declared: Sequence[JobRateTerms], measured: Mapping[str, PoolSample]
) -> Iterator[_Way]:
    way = "predicted by equal FLOP/s from"
    for rate in declared:
        yield (
            rate.target.key,
            _stepped(of_job(pool, rate), transfer(rate.target, wanted), f"{way} {rate.target.name}; "),
        )
    for key, sample in measured.items():
        step = transfer(sample.workload, wanted)
        yield key, _stepped(_of_sample(pool, sample, sample.recipe), step, f"{way} {sample.workload.name}; ")


def _other_recipes(pool: CandidatePool, wanted: JobWorkload, recipe: Recipe, named: bool) -> Iterator[_Way]:
    """Of the same workload. A recipe that was measured and refused here, or that the product can't run, is not one."""
    gpu = part(pool.product)
    if not named or recipe in pool.refused_recipes or gpu is None or support(recipe, gpu.compute) is None:
        return
    pairs = "by published pairs; "
    for rate in pool.terms.job_rates:
        if rate.recipe != recipe and rate.target.key == wanted.key:
            step = recipe_transfer(wanted, rate.recipe, recipe, pool.product)
            way = f"predicted from {rate.recipe} {pairs}"
            yield rate.recipe, _stepped(of_job(pool, replace(rate, recipe=recipe)), step, way)
    for (key, measured), sample in sorted(pool.samples.items()):
        if measured != recipe and key == wanted.key:
            step, way = recipe_transfer(wanted, measured, recipe, pool.product), f"predicted from {measured} {pairs}"
            yield measured, _stepped(_of_sample(pool, sample, recipe), step, way)


def _absent(pool: CandidatePool, recipe: Recipe) -> str:
    if pool.refused:
        words = ", ".join(f"{word} ({number})" for word, number in sorted(pool.refused.items()))
        first = next((word for word in sorted(pool.refused) if word in ALLOWABLE), "")
        remedy = f"; measure again, or put {first} into fleet.allow" if first else "; see kubectl precision report"
        return f"{recipe} has no usable figure: results are refused as {words}{remedy}"
    if pool.notes and not pool.nodes:
        return pool.notes[0]
    return f"{recipe} {NOT_MEASURED}: profile it, or give jobRates"


def _told(sample: PoolSample) -> str:
    marks = "".join(f", {word.upper()} ({number}/{len(sample.rates)})" for word, number in sorted(sample.marks.items()))
    return (
        f"profile {', '.join(sample.profiles)} at its micro batch, {number_of(len(sample.rates), 'node')}, "
        f"{verdict_counts(sample.verdicts)}, oldest {age(sample.oldest_days)}{marks}"
    )


def of_job(pool: CandidatePool, rate: JobRateTerms) -> RateSource:
    """A declared rate."""
    text, scope = f"job rate at {rate.gpus} GPUs: {rate.source}", pool.terms.power_scope
    return RateSource(
        pool, rate.recipe, "declared", rate.per_gpu, WHOLE, 0.0, rate.watts_per_gpu, scope, text, job_rate=rate
    )


def _of_sample(pool: CandidatePool, of: PoolSample, recipe: Recipe) -> RateSource:
    """Measured rates."""
    basis: Basis = next((word for word in MADE_UP if word in of.marks), "measured")
    figures = of.reference, WHOLE, of.half_width, of.watts_per_gpu, of.power_scope, _told(of)
    return RateSource(pool, recipe, basis, *figures, sample=of)


def _stepped(source: RateSource, step: Transfer | str, way: str) -> RateSource | str:
    """What is predicted from it by `way`; without a step, why there is none."""
    if isinstance(step, str):
        return step
    text = f"{way}{step.note}{source.text}"
    return replace(source, basis="predicted", per_gpu=source.per_gpu * step.factor, step=step, text=text)


def by_size(source: RateSource) -> Iterator[tuple[RateSource, float]]:
    """The source, then by each rate that was measured of more GPUs of the same job, with the GPUs of the next one."""
    rate, rates = source.job_rate, source.pool.terms.job_rates
    mine = next((of for of in rates if rate and replace(of, recipe=rate.recipe) == rate), None)
    alike = [of for of in rates if mine and (of.target.key, of.recipe) == (mine.target.key, mine.recipe)]
    yield source, alike[1].gpus if alike[1:] else math.inf
    for of, end in zip(alike[1:], [*(of.gpus for of in alike[2:]), math.inf], strict=False):
        made, per_gpu = of_job(source.pool, replace(of, recipe=source.recipe)), of.per_gpu * source.step.factor
        text = source.text.removesuffix(of_job(source.pool, rate or of).text) + made.text
        yield replace(made, basis=source.basis, per_gpu=per_gpu, step=source.step, text=text, wanted=source.wanted), end


def speed(source: RateSource, gpus: int, conditions: Conditions, fastest_of: int) -> Speed | str:
    """The rate of a job on `gpus` GPUs, or why it can't have that size.

    `fastest_of`: it is placed within so many of the fastest nodes of the pool; 0: on nodes drawn at random.
    """
    asked = gpus, conditions, fastest_of
    if asked not in source.speeds:
        source.speeds[asked] = _speed(source, gpus, conditions, fastest_of)
    return source.speeds[asked]


def _speed(source: RateSource, gpus: int, conditions: Conditions, fastest_of: int) -> Speed | str:
    at = np.array([gpus])
    kept = float(scaling(source, at, conditions).middle[0])
    if math.isnan(kept):
        return _unscaled(source, gpus, conditions)
    slow, share = slowest(source, gpus, fastest_of), float(progress(conditions.progress, at).middle[0])
    middle = gpus * source.per_gpu * kept * slow.days * share
    parts = tuple(band_parts(source, gpus, conditions, slow))
    band = bands.combined(parts)
    return Speed(
        tokens_per_second=middle,
        low=middle * band.low,
        high=middle * band.high,
        straggler=slow.days,
        promised=middle * band.promised,
        parts=parts,
    )


def band_parts(
    source: RateSource, gpus: int, conditions: Conditions, slow: straggler.Straggler
) -> Iterator[bands.BandPart]:
    """Why the rate may be off. What jobs of one pool have in common they share."""
    for name, low, high, shared in normal_parts(source, np.array([gpus]), conditions):
        if low[0] < high[0]:
            yield bands.BandPart(name, float(low[0]), float(high[0]), shared)
    if slow.low != slow.high:
        factors = tuple(value / slow.days for value in slow.values)
        yield bands.BandPart("slow nodes", slow.low / slow.days, slow.high / slow.days, values=factors)


def normal_parts(
    source: RateSource, gpus: straggler.Counts, conditions: Conditions
) -> Iterator[tuple[bands.Name, bands.Figures, bands.Figures, str]]:
    """All but the slow nodes, as BandPart is made of, by size."""
    pool, rate, ones = source.pool, source.job_rate, np.ones(len(gpus))
    if rate is None:
        half, shared = source.half_width * bands.Z_95 / Z_975, f"measurement {pool.name}"
        yield "measurement", (1 - half) * ones, (1 + half) * ones, shared
    else:
        half, factor = rate.plus_minus or 0.0, releases_apart(rate.target, rate.releases_apart)
        low, high = (1 / factor, factor) if rate.plus_minus is None else (1 - half, 1 + half)
        yield "job rate", low * ones, high * ones, f"{rate.source} {rate.target.key}"
    if source.basis == "predicted":
        shared = f"{pool.product} {source.recipe} {source.text}"
        yield "prediction", source.step.low * ones, source.step.high * ones, shared
    kept, share = scaling(source, gpus, conditions), progress(conditions.progress, gpus)
    who = pool.name if pool.terms.scaling_of(source.recipe) else f"by published jobs, {size_class(source.wanted)}"
    yield "scaling", kept.low / kept.middle, kept.high / kept.middle, f"scaling {who}"
    who = "failures" if isinstance(conditions.progress, Failures) else pool.name
    yield "goodput", share.low / share.middle, share.high / share.middle, f"goodput {who}"
    if isinstance(conditions.progress, Failures) and (repairs := conditions.progress.repairs):
        rates = gpus * source.per_gpu * kept.middle * share.middle
        yield "repairs", *repair_band(conditions.progress, gpus, repairs.tokens / rates / 3600), ""


def sized(source: RateSource, batch: tuple[float | None, float | None] = (None, None)) -> Sized:
    """What published jobs tell of this one's sizes."""
    per_gpu = source.per_gpu * source.wanted.flops_per_token / 1e15
    rate = source.job_rate
    base, measured = (rate.gpus, rate.batch) if rate else (source.pool.gpus_per_node, None)
    return Sized(source.wanted, source.pool.sold_as, base, per_gpu, batch, rate is None, measured)


def scaling(source: RateSource, gpus: straggler.Counts, conditions: Conditions) -> Kept:
    """What communication leaves, by size: linear in log(GPUs) between the user's points, else by published jobs.

    NaN beyond what is known. Fewer GPUs lose no more than the measured job.
    """
    points, rate = source.pool.terms.scaling_of(source.recipe), source.job_rate
    if not points:
        return sized(source, conditions.batch).kept(gpus.astype(np.float64))
    if points[0][0] > source.pool.gpus_per_node:
        points = ((source.pool.gpus_per_node, 1.0), *points)
    sizes, efficiencies = np.log([size for size, _ in points]), np.array([share for _, share in points])
    at = gpus if rate is None else np.append(gpus, rate.gpus)
    kept = np.asarray(np.interp(np.log(at), sizes, efficiencies, right=math.nan), dtype=np.float64)
    kept = kept if rate is None else kept[:-1] / kept[-1]
    given = source.pool.terms.scaling.plus_minus if source.pool.terms.scaling else None
    here = gpus <= source.pool.gpus_per_node if rate is None else gpus == rate.gpus
    half = np.where(here, 0.0, bands.SCALING_PLUS_MINUS if given is None else given)
    return Kept(kept, kept * (1 - half), kept * (1 + half))


def by_law(source: RateSource, gpus: straggler.Counts, conditions: Conditions | None = None) -> NDArray[np.bool_]:
    """Whether published jobs tell what these sizes keep."""
    law = sized(source, conditions.batch) if conditions else sized(source)
    return np.asarray(law.loses(gpus.astype(np.float64)) & (not source.pool.terms.scaling_of(source.recipe)))


def _unscaled(source: RateSource, gpus: int, conditions: Conditions) -> str:
    """Why nothing is known of so many GPUs."""
    points, rate = source.pool.terms.scaling_of(source.recipe), source.job_rate
    if not points:
        return sized(source, conditions.batch).problem(gpus)
    last = points[-1][0]
    unknown = rate.gpus if rate is not None and gpus <= last else gpus
    return f"scaling is given up to {last} GPUs, not for {unknown}: add a point"


def slowest(source: RateSource, gpus: int, fastest_of: int) -> straggler.Straggler:
    """A job rate holds its own slowest node already."""
    pool, sample, at = source.pool, source.sample, np.array([gpus])
    if sample is None:
        return ALONE
    placed, nodes = placed_on(pool, sample, fastest_of), -(-gpus // pool.gpus_per_node)
    asked = max(pool.nodes, len(sample.quiet)), nodes, placed
    if asked not in sample.factors:
        if placed:
            rates = sample.quiet if pool.unmeasured(sample) else straggler.stretched(sample.quiet, asked[0])
            sample.factors[asked] = straggler.fastest(rates, sample.reference, placed)
        else:
            sample.factors[asked] = drawn(pool, sample, at).at(0)
    raw = sample.factors[asked]
    row = np.array([[raw.days, raw.low, raw.high, *raw.values]])
    days, low, high, *values = beyond_published(source, at, row)[0].tolist()
    return straggler.Straggler(days, low, high, tuple(values))


def placed_on(pool: CandidatePool, sample: PoolSample, fastest_of: int) -> int:
    """So many of the fastest nodes, or 0 where which of them are fast is not known: then they are drawn."""
    return 0 if pool.unmeasured(sample) and fastest_of > len(sample.quiet) else fastest_of


def drawn(pool: CandidatePool, sample: PoolSample, gpus: straggler.Counts) -> straggler.Stragglers:
    """Of nodes that are drawn, by size."""
    chosen, total = -(-gpus // pool.gpus_per_node), max(pool.nodes, len(sample.quiet))
    if pool.unmeasured(sample):
        return straggler.sampled(sample.quiet, sample.reference, total, chosen)
    return straggler.stragglers(straggler.stretched(sample.quiet, total), sample.reference, chosen)


def beyond_published(source: RateSource, gpus: straggler.Counts, factors: bands.Figures) -> bands.Figures:
    """Factors of the slowest node (a row a size): once, where published rates hold those of their clusters."""
    own = np.where(by_law(source, gpus), CLUSTERS_OWN, 1.0)
    return np.asarray(np.minimum(1.0, factors.T / own).T if (own < 1).any() else factors)


def _most_gpus(job: JobTerms, pool: CandidatePool, terms: Terms) -> int:
    most = job.running.gpus if job.running else job.max_gpus or pool.gpus
    return min(most, pool.gpus, terms.taken.get(job.name, {pool.name: most}).get(pool.name, 0))


def conditions_of(job: JobTerms, pool: CandidatePool, terms: Terms) -> Conditions:
    """Goodput is the job's own, its pool's, the plan's; where none is given it follows from failures."""
    fit, length = job.fit, job.target.sequence_length or 0
    given, most = (number and float(number * length) for number in (fit.global_batch, fit.most_batch))
    node = pool.gpus_per_node
    beside = (other for other in terms.jobs if other.name != job.name and may_use(other, pool))
    others = sum(
        -(-_most_gpus(other, pool, terms) // node)
        for other in beside
        if other.name not in job.after and job.name not in other.after
    )
    others = min(others, pool.nodes)
    repairs = Repairs(pool.terms.repair_days * 24, node, pool.nodes + pool.spares, pool.nodes, others, job.tokens)
    failures = replace(terms.failures, repairs=repairs)
    return Conditions(job.goodput or pool.terms.goodput or terms.goodput or failures, (given, most))
