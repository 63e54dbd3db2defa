"""A plan's spec read into terms, all of it checked: whatever is wrong is a problem with its field and a remedy."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from precision_api.facts.names import grouped
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.kinds.capacity_plan import JobRate, PlanFailures, PlanJob, PlanPool, PlanSpec
from precision_operator.core.observe.clock import duration
from precision_operator.planner.inputs.quantities import (
    InputProblem,
    UnusableInput,
    count,
    moment,
    positive,
    power,
    require,
    share,
)
from precision_operator.planner.inputs.terms import (
    MOST_DAYS,
    NO_PRICE,
    Failures,
    Fit,
    Goodput,
    JobRateTerms,
    JobTerms,
    PlanLimits,
    PoolTerms,
    RunningTerms,
    Scaling,
    Terms,
)
from precision_operator.planner.inputs.workloads import target

T = TypeVar("T")
MOST_TOKENS = 1e16
"""Six hundred times the largest training run that was ever told of: beyond it, a unit is wrong."""
MOST_DOLLARS_PER_GPU_HOUR = 1_000.0
MOST_FLOPS_OF_A_GPU = 1e17
"""Five times the fastest dense rate that any product of precision_api.facts.products has."""
MOST_GAP_PERCENT = 50.0
SAYS_NOTHING = f'% is above {MOST_GAP_PERCENT:g} %: such an answer says nothing. Give for example "0.5"'
MOST_PLUS_MINUS = 0.9
MOST_FACTOR = 5.0
"""Of PUE and overhead: nothing that computes is built worse."""


def terms(spec: PlanSpec, now: datetime, start: datetime | None = None) -> Terms:
    """The spec as numbers; `start` is used where the spec names none. Raises UnusableInput with all problems."""
    collected = _Collector()
    asked = spec.start
    begin = (collected.of(partial(_start, asked, now)) if asked else start) or now
    pools = [collected.of(partial(_pool, p, f"spec.pools[{i}]")) for i, p in enumerate(spec.pools)]
    jobs = [collected.of(partial(_job, j, f"spec.jobs[{i}]", begin, now)) for i, j in enumerate(spec.jobs)]
    collected.add(*_names(spec), *_order(spec))
    made = collected.of(partial(_whole, spec, begin, pools, jobs))
    if collected.problems or made is None:
        raise UnusableInput(*collected.problems)
    return made


def _start(text: str, now: datetime) -> datetime:
    start, at = moment(text, "spec.start"), "spec.start"
    past = f"{text} is over: leave it out, and say of jobs that run already where they do (jobs[].running)"
    require(start >= now.replace(hour=0, minute=0, second=0, microsecond=0), at, past)
    late = f"{text} is over ten years from now: give an earlier one, or leave it out"
    require(start - now <= timedelta(days=MOST_DAYS), at, late)
    return start


class _Collector:
    """Gathers problems, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.problems: list[InputProblem] = []

    def of(self, act: Callable[[], T]) -> T | None:
        """What `act` gives; None, and its problems kept, where it raises UnusableInput."""
        try:
            return act()
        except UnusableInput as error:
            self.add(*error.problems)
            return None

    def add(self, *problems: InputProblem) -> None:
        """Keep problems, each once."""
        self.problems += [problem for problem in problems if problem not in self.problems]


def _whole(spec: PlanSpec, start: datetime, pools: list[PoolTerms | None], jobs: list[JobTerms | None]) -> Terms:
    electric, budgets = spec.power, spec.budget.model_dump(by_alias=True, exclude_none=True)
    overhead = {"gpu": electric.overhead.gpu, "module": electric.overhead.module}
    at, common = "spec.power", _scaling(spec, "spec.scaling")
    made = Terms(
        start=start,
        max_age=duration(spec.fleet.max_age),
        allow=frozenset(spec.fleet.allow),
        profiles=frozenset(spec.fleet.profiles),
        fastest=spec.fleet.placement == "fastest",
        objectives=tuple(dict.fromkeys(spec.objective or ())),
        goodput=_goodput(spec, "spec"),
        failures=_failures(spec.failures),
        pools={pool.name: replace(pool, scaling=pool.scaling or common) for pool in pools if pool is not None},
        scaling=common,
        jobs=tuple(sorted((job for job in jobs if job is not None), key=lambda job: job.name)),
        pue=_factor(electric.pue, f"{at}.pue"),
        overhead={scope: _factor(text, f"{at}.overhead.{scope}") for scope, text in overhead.items()},
        dollars_per_kilowatt_hour=_or_none(
            electric.dollars_per_kilowatt_hour, partial(_price, most=10.0), f"{at}.dollarsPerKilowattHour"
        ),
        limits=PlanLimits(
            watts=_or_none(electric.budget, power, f"{at}.budget"),
            budgets={name: positive(text, f"spec.budget.{name}") for name, text in budgets.items()},
        ),
        gap=_limited(spec.solver.gap_percent, "spec.solver.gapPercent", MOST_GAP_PERCENT, SAYS_NOTHING) / 100,
        seconds=float(spec.solver.time_limit_seconds),
    )
    limited = made.limits.watts is not None or any(pool.power_watts for pool in made.pools.values())
    text = 'a power budget is of the facility: give the factor from IT power to it, for example "1.25"'
    require(made.pue is not None or not limited, "spec.power.pue", text)
    return made


def _limited(text: str, at: str, most: float, problem: str, read: Callable[[str, str], float] = positive) -> float:
    """As `read`. Raises UnusableInput with `text` and this problem where it is above `most`."""
    value = read(text, at)
    require(value <= most, at, f"{text} {problem}")
    return value


def _or_none(text: str | None, read: Callable[[str, str], float], at: str) -> float | None:
    return None if text is None else read(text, at)


def _factor(text: str | None, at: str) -> float | None:
    value = _or_none(text, positive, at)
    problem = f'{text} is not between 1 and {MOST_FACTOR:g}: give a factor such as "1.25"'
    require(value is None or 1 <= value <= MOST_FACTOR, at, problem)
    return value


def _price(text: str, at: str, most: float = MOST_DOLLARS_PER_GPU_HOUR) -> float:
    return _limited(
        text, at, most, f"dollars are more than {most:g}: is the unit right?", partial(positive, remedy=NO_PRICE)
    )


def _pool(pool: PlanPool, at: str) -> PoolTerms:
    rates = sorted((_job_rate(r, f"{at}.jobRates[{i}]") for i, r in enumerate(pool.job_rates)), key=lambda r: r.gpus)
    for (_, recipe, gpus), names in grouped(((r.target.key, r.recipe, r.gpus), r.target.name) for r in rates).items():
        text = f"{names[0]} has {len(names)} rates with {recipe} at {gpus} GPUs: keep one"
        require(len(names) == 1, f"{at}.jobRates", text)
    return PoolTerms(
        name=pool.name,
        product=pool.product or "",
        nodes=pool.nodes,
        gpus_per_node=pool.gpus_per_node,
        limit_watts_per_gpu=None if pool.limit_watts_per_gpu is None else float(pool.limit_watts_per_gpu),
        power_scope=pool.power_scope,
        limit_scope=pool.limit_scope,
        idle_watts_per_gpu=float(pool.idle_watts_per_gpu or 0),
        block_gpus=pool.block_gpus,
        scaling=_scaling(pool, f"{at}.scaling"),
        memory_gibibytes=pool.memory_gib_per_gpu,
        job_rates=tuple(rates),
        goodput=_goodput(pool, at),
        dollars_per_gpu_hour=_or_none(pool.dollars_per_gpu_hour, _price, f"{at}.dollarsPerGPUHour"),
        price_includes_power=pool.price_includes_power,
        committed_gpu_hours=_or_none(pool.committed_gpu_hours, positive, f"{at}.committedGPUHours") or 0.0,
        power_watts=_or_none(pool.power_budget, power, f"{at}.powerBudget"),
        spare_nodes=pool.spare_nodes,
        repair_days=positive(pool.repair_days, f"{at}.repairDays"),
    )


def _per_gpu_hour(text: str, field: str) -> float:
    return positive(text, field, "give a number above 0; where nothing fails, give goodput 1 in place of failures")


def _scaling(said: PlanPool | PlanSpec, at: str) -> Scaling | None:
    if not said.scaling:
        return None
    half_widths = [_or_none(p.plus_minus, _half_width, f"{at}[{i}].plusMinus") for i, p in enumerate(said.scaling)]
    return Scaling(
        {recipe: _points(said, recipe, at) for recipe in {point.recipe for point in said.scaling}},
        max((value for value in half_widths if value is not None), default=None),
    )


def _points(said: PlanPool | PlanSpec, recipe: Recipe | None, at: str) -> tuple[tuple[int, float], ...]:
    """Those of one recipe, or those that name none."""
    mine = [(i, point) for i, point in enumerate(said.scaling) if point.recipe == recipe]
    points = tuple((p.gpus, share(p.efficiency, f"{at}[{i}].efficiency")) for i, p in mine)
    sizes = [gpus for gpus, _ in points]
    require(sizes == sorted(set(sizes)), at, f"gpus are {sizes}: list each size once, smallest first")
    for (small, before), (large, after) in itertools.pairwise(points):
        text = f"it rises from {before:g} at {small} GPUs to {after:g} at {large}: no larger job keeps more"
        require(after <= before, at, text)
    return points


def _job_rate(rate: JobRate, at: str) -> JobRateTerms:
    per_gpu = positive(rate.tokens_per_second_per_gpu, f"{at}.tokensPerSecondPerGPU")
    wanted = target(rate.workload, None, at)
    flops = per_gpu * wanted.flops_per_token
    text = f"{per_gpu:g} are {flops / 1e15:.3g} PFLOP/s of one GPU: is it of the whole job?"
    require(flops <= MOST_FLOPS_OF_A_GPU, f"{at}.tokensPerSecondPerGPU", text)
    return JobRateTerms(
        target=wanted,
        recipe=rate.recipe,
        gpus=rate.gpus,
        per_gpu=per_gpu,
        watts_per_gpu=_or_none(rate.watts_per_gpu, positive, f"{at}.wattsPerGPU"),
        source=rate.source,
        plus_minus=_or_none(rate.plus_minus, _half_width, f"{at}.plusMinus"),
        releases_apart=rate.releases_apart,
        batch=rate.global_batch and float(rate.global_batch * (wanted.sequence_length or 0)),
    )


def _half_width(text: str, at: str) -> float:
    problem = f"is above {MOST_PLUS_MINUS:g}: a figure that may be so far off is none; measure it"
    return _limited(text, at, MOST_PLUS_MINUS, problem, share)


def _goodput(said: PlanSpec | PlanPool | PlanJob, at: str) -> Goodput | None:
    half = _or_none(said.goodput_plus_minus, _half_width, f"{at}.goodputPlusMinus")
    if said.goodput is not None:
        return Goodput(share(said.goodput, f"{at}.goodput"), half)
    require(half is None, f"{at}.goodputPlusMinus", "there is no goodput here for it to be of: give goodput too")
    return None


def _failures(given: PlanFailures) -> Failures:
    at = "spec.failures"
    return Failures(
        per_gpu_hour=_or_none(given.interruptions_per_gpu_hour, _per_gpu_hour, f"{at}.interruptionsPerGPUHour"),
        stall_seconds=float(given.checkpoint_stall_seconds),
        restart_minutes=float(given.restart_minutes),
        interval_minutes=_or_none(given.checkpoint_minutes, positive, f"{at}.checkpointMinutes"),
    )


def _job(job: PlanJob, at: str, start: datetime, now: datetime) -> JobTerms:
    many = "are more than anybody trains on: is the unit right?"
    tokens = _limited(job.tokens, f"{at}.tokens", MOST_TOKENS, many, count)
    allowed: frozenset[Recipe] = frozenset(job.recipes or RECIPE_NAMES) - frozenset(job.deny_recipes)
    none = "no recipe is left: allow one in recipes that denyRecipes does not name"
    require(bool(allowed), f"{at}.denyRecipes", none)
    running = _running(job, f"{at}.running", tokens, start)
    if running is not None:
        tokens, allowed = tokens - running.tokens_done, frozenset({running.recipe})
    return JobTerms(
        name=job.name,
        target=target(job.workload, job.parameters, at),
        tokens=tokens,
        deadline_days=_deadline(job, at, start, now),
        recipes=allowed,
        pools=frozenset(job.pools),
        min_gpus=job.min_gpus or 1,
        max_gpus=job.max_gpus,
        block_gpus=job.block_gpus,
        priority=job.priority,
        after=tuple(dict.fromkeys(job.after)),
        goodput=Goodput(1.0, 0.0) if running and running.seen else _goodput(job, at),  # what was seen holds it
        named=frozenset(job.recipes) | ({running.recipe} if running else frozenset()),
        fit=Fit(job.global_batch, job.global_batch_max, job.gpus_per_replica, job.memory_check == "Ignore"),
        not_before=_not_before(job, f"{at}.notBefore", start),
        running=running,
    )


def _running(job: PlanJob, at: str, tokens: float, start: datetime) -> RunningTerms | None:
    running = job.running
    if running is None:
        return None
    waits = "a job that runs already waits for nothing: take after and notBefore out"
    require(not job.after and not job.not_before, at, waits)
    done = count(running.tokens_done, f"{at}.tokensDone") if running.tokens_done is not None else 0.0
    require(done < tokens, f"{at}.tokensDone", f"{running.tokens_done} of {job.tokens} are all: take the job out")
    days = None
    if running.started_at is not None:
        days = (start - moment(running.started_at, f"{at}.startedAt")).total_seconds() / 86_400
        require(days > 0, f"{at}.startedAt", f"{running.started_at} is after the plan's start: correct one")
    return RunningTerms(running.pool, running.recipe, running.gpus, done, days)


def _not_before(job: PlanJob, at: str, start: datetime) -> float:
    if job.not_before is None:
        return 0.0
    days = (moment(job.not_before, at) - start).total_seconds() / 86_400
    require(days <= MOST_DAYS, at, f"{job.not_before} is over ten years after the start: is that right?")
    return max(0.0, days)


def _deadline(job: PlanJob, at: str, start: datetime, now: datetime) -> float | None:
    if job.deadline_days is not None:
        long = "days are over ten years: is that right?"
        return _limited(job.deadline_days, f"{at}.deadlineDays", MOST_DAYS, long)
    if job.deadline is None:
        return None
    due = moment(job.deadline, f"{at}.deadline")
    what = "now" if due <= now else f"the start, {start:%Y-%m-%d}"
    require(due > max(start, now), f"{at}.deadline", f"{job.deadline} is not after {what}: give a later one")
    return (due - start).total_seconds() / 86_400


def _names(spec: PlanSpec) -> Iterator[InputProblem]:
    for what, names in (("jobs", [j.name for j in spec.jobs]), ("pools", [p.name for p in spec.pools])):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield InputProblem(f"spec.{what}", f"{name} is there twice: give each one its own name")


def _order(spec: PlanSpec) -> Iterator[InputProblem]:
    """What is wrong with `after`: unknown jobs, and circles."""
    before = {job.name: set(job.after) for job in spec.jobs}
    for i, job in enumerate(spec.jobs):
        for name in sorted(set(job.after) - set(before)):
            yield InputProblem(
                f"spec.jobs[{i}].after", f"there is no job {name}: name one of {', '.join(sorted(before)[:8])}"
            )
    while free := [name for name, needs in before.items() if not needs & before.keys()]:
        for name in free:
            del before[name]
    if before:
        circle = ", ".join(sorted(before)[:8])
        yield InputProblem("spec.jobs", f"{circle} wait for each other: take one `after` out")
