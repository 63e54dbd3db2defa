"""From a spec and a fleet to an answer: the one function that the plugin and the operator call."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from precision_api.facts.names import grouped
from precision_api.facts.plain_text import first_of, number_of, three_digits
from precision_api.kinds.capacity_plan import JobPlan, Objective, PlanSpec
from precision_operator.planner.answer.assumptions import NOTES, assumptions
from precision_operator.planner.answer.odds import Odds, odds
from precision_operator.planner.answer.readable import readable_days, readable_dollars, readable_energy
from precision_operator.planner.answer.slack import slack
from precision_operator.planner.inputs import quantities
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import ENDLESS, NotKnown, OutOfTime, PlanClock, Terms, clock_of
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.rates.evidence import ALLOWABLE, pools
from precision_operator.planner.rates.memory_fit import limits_of
from precision_operator.planner.rates.pool_sizes import idle_watts
from precision_operator.planner.rates.speed import UNLISTED, conditions_of, sources, speed
from precision_operator.planner.solving.budgets import budgets_used, cost, energy
from precision_operator.planner.solving.catalog import BLOCKS_SPLIT_NODES, Catalog, blocks
from precision_operator.planner.solving.conflict import Conflict, broken_by_running, conflict
from precision_operator.planner.solving.former import NO_FORMER, Former, JobPlace, place_of
from precision_operator.planner.solving.options import Offer, Option, offer_of
from precision_operator.planner.solving.schedule import SLACK, JobSlot, fits, peak, watts
from precision_operator.planner.solving.search import Search
from precision_operator.planner.solving.sizes import solve_beside
from precision_operator.planner.solving.solve import Solution

OF_SEARCH = 0.9
"""Part of the time limit for the search."""
NO_CHANCES = (
    "the time limit ended before chances of the deadlines, or slack, were known: raise spec.solver.timeLimitSeconds"
)
TRIED = 24
"""Choices of other pools and recipes that are tried in place of a job's."""
NAMED = 4
"""Jobs that a sentence names."""


@dataclass(frozen=True, slots=True)
class Totals:
    """All jobs together; what is not known of every job is None. Energy is the facility's, idle GPUs in it."""

    days: float
    dollars: float | None
    megawatt_hours: float | None
    peak_megawatts: float | None
    gpu_hours: float


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, or why there is none: `problems` with the inputs, a `conflict` of limits, or a search without success."""

    terms: Terms | None = None
    """With power limits less what idle GPUs draw."""
    pools: tuple[CandidatePool, ...] = ()
    offers: tuple[Offer, ...] = ()
    solution: Solution | None = None
    conflict: Conflict | None = None
    problems: tuple[quantities.InputProblem, ...] = ()
    notes: tuple[str, ...] = ()
    odds: Odds | None = None
    """Chances that deadlines are kept."""
    not_known: Literal["TimedOut", "NotFound"] | None = None
    """Whether there is a plan is not known: the search ended without one. `problems` says what to do."""
    slack: Mapping[str, int] = field(default_factory=dict)
    """By job up to how many per cent more tokens all deadlines and budgets hold."""
    asked: Terms | None = None
    """As they were given."""

    @property
    def totals(self) -> Totals | None:
        if self.solution is None or self.terms is None:
            return None
        slots, chosen = self.solution.slots, [slot.option for slot in self.solution.slots]
        idle = sum(idle_watts(pool, self.terms) for pool in self.pools)
        days = max(slot.end for slot in slots)
        of_jobs, unused = energy(chosen), idle * days - sum(o.idle_watts * o.days for o in chosen)
        limits_known = all(option.limit_watts is not None for option in chosen)
        return Totals(
            days=days,
            dollars=cost(chosen),
            megawatt_hours=None if of_jobs is None else of_jobs + unused * 24 / quantities.WATTS_PER_MEGAWATT,
            peak_megawatts=(peak(slots, watts) + idle) / quantities.WATTS_PER_MEGAWATT if limits_known else None,
            gpu_hours=sum(option.gpu_hours for option in chosen),
        )


def plan(
    spec: PlanSpec, fleet: Fleet, now: datetime, start: datetime | None = None, before: Sequence[JobPlan] = ()
) -> PlanAnswer:
    """The answer; never raises for what a user gave. `start` stands for a spec that names none.

    Of `before`, the jobs of an earlier answer, as much is kept as holds and costs little.
    """
    try:
        read = terms(spec, now, start)
        candidates = pools(fleet, read, now)
        clock = clock_of(read.seconds)
        former = Former(tuple(JobPlace(job.name, job.pool, job.recipe, job.gpus) for job in before))
        made = replace(with_odds(answer(read, candidates, clock, former), clock), asked=read)
    except quantities.UnusableInput as error:
        made = PlanAnswer(problems=error.problems)
    return replace(made, notes=(*fleet.notes, *made.notes))


def with_odds(made: PlanAnswer, clock: PlanClock) -> PlanAnswer:
    """With the chances that deadlines are kept, and each job's slack."""
    solution, read = made.solution, made.terms
    if solution is None or read is None:
        return made
    try:
        made = replace(made, odds=odds(solution.slots, read.limits.watts is not None, clock))
        return replace(made, slack=slack(made.offers, read, solution, clock))
    except OutOfTime:
        return replace(made, notes=(*made.notes, NO_CHANCES))


def answer(
    read: Terms, candidates: Sequence[CandidatePool], clock: PlanClock | None = None, former: Former = NO_FORMER
) -> PlanAnswer:
    """The answer for these pools. Raises UnusableInput where the inputs make no plan.

    Without a `clock` the time limit counts from now. The search ends before it, since what is said of the plan takes
    some time too.
    """
    clock = clock or clock_of(read.seconds)
    read, candidates = awake(read, candidates)
    problems = tuple(_empty(candidates, read))
    if problems:
        return PlanAnswer(read, tuple(candidates), problems=problems)
    none = PlanAnswer(read, tuple(candidates), notes=tuple(_notes(read, candidates, None)))
    if clashing := tuple(broken_by_running(candidates, read)):
        return replace(none, conflict=Conflict(clashing, None, ()))
    try:
        read, (made, solution, unproved) = solve_beside(candidates, read, clock.part(OF_SEARCH), former)
    except NotKnown as error:
        return replace(none, problems=error.problems, not_known=error.phase)
    none = replace(none, offers=made, terms=read)
    lost = [offer for offer in made if not offer.options]
    if lost:
        return replace(none, problems=tuple(_nowhere(lost)), notes=())
    if solution is None:
        clash = conflict(made, read, clock) if made else Conflict((), None, (), out_of_time=True)
        if any(limit.kind == "deadline" for limit in clash.clashing):
            sized = ((offer.job.name, f"{at}: {offer.refusals[at]}") for offer in made for at in offer.unknown_sizes())
            unproved += tuple(quantities.InputProblem(f"spec.jobs[{name}]", why) for name, why in sized)
        return replace(none, conflict=clash, problems=unproved, not_known="NotFound" if unproved else None)
    notes = (*moved(former, solution), *_notes(read, candidates, solution), *_left_out(made, solution))
    return PlanAnswer(read, tuple(candidates), made, solution, notes=notes)


def moved(former: Former, solution: Solution) -> Iterator[str]:
    """Which jobs are not where a former plan had them, and why."""
    places, rows = {place.job: place for place in former.places}, []
    for option in (slot.option for slot in solution.slots):
        was = place_of(option)
        if (place := places.get(was.job, was)) != was:
            rows.append(f"{was.job} from {place.gpus} GPUs of {place.pool} with {place.recipe}")
    if rows:
        yield f"moved: {first_of(rows, NAMED)}: {solution.left or 'that is no longer offered'}"
    elif solution.left:
        yield f"kept: {solution.left}"


def awake(read: Terms, candidates: Sequence[CandidatePool]) -> tuple[Terms, Sequence[CandidatePool]]:
    """Power limits less what idle GPUs draw in any case: jobs add to it what they draw beyond that.

    Raises UnusableInput where idle GPUs alone draw more than a limit.
    """
    draws = {pool.name: idle_watts(pool, read) for pool in candidates}
    total = sum(draws.values())
    if not total:
        return read, candidates
    limit = read.limits.watts
    megawatts = total / quantities.WATTS_PER_MEGAWATT
    text = f"idle GPUs alone draw {megawatts:.3g} MW: raise it, or correct pools[].idleWattsPerGPU"
    quantities.require(limit is None or limit > total, "spec.power.budget", text)
    made = [
        pool
        if pool.terms.power_watts is None
        else replace(pool, terms=replace(pool.terms, power_watts=max(1.0, pool.terms.power_watts - draws[pool.name])))
        for pool in candidates
    ]
    limits = read.limits if limit is None else replace(read.limits, watts=limit - total)
    return replace(read, limits=limits), made


def _nowhere(lost: Sequence[Offer]) -> Iterator[quantities.InputProblem]:
    """One problem for all jobs that fit nowhere for the same reason."""
    for reason, names in grouped((offer.reason, offer.job.name) for offer in lost).items():
        fit = "fits" if len(names) == 1 else "fit"
        yield quantities.InputProblem(f"spec.jobs[{names[0]}]", f"{first_of(names, NAMED)} {fit} nowhere. {reason}")


def _empty(candidates: Sequence[CandidatePool], read: Terms) -> Iterator[quantities.InputProblem]:
    if not candidates:
        text = "the fleet has no pool with a result: run a PrecisionProfile there, or describe pools with jobRates"
        yield quantities.InputProblem("spec.fleet", text)
    for pool in candidates:
        if not pool.nodes and pool.name in read.pools and not pool.refused:
            text = f"no report names pool {pool.name}: correct the name, or give its nodes, gpusPerNode and jobRates"
            yield quantities.InputProblem("spec.pools", text)
    if candidates and not any(pool.samples or pool.terms.job_rates for pool in candidates):
        refused = sorted({word for pool in candidates for word in pool.refused})
        words = f"all results are refused as {', '.join(refused)}" if refused else "no pool has a result"
        ask = ", ".join(word for word in refused if word in ALLOWABLE)
        remedy = f": measure again, or set spec.fleet.allow: [{ask}]" if ask else ": profile the fleet first"
        yield quantities.InputProblem("spec.fleet.allow" if refused else "spec.fleet", words + remedy)


def _notes(read: Terms, candidates: Sequence[CandidatePool], solution: Solution | None) -> Iterator[str]:
    """What was assumed or left out; the loudest first."""
    slots = solution.slots if solution else ()
    chosen = [slot.option for slot in slots]
    used = {option.pool.name for option in chosen} if solution else {pool.name for pool in candidates}
    mine = [pool for pool in candidates if pool.name in used]
    marks = _marks(mine, solution)
    for word, meaning in NOTES["doubts"].items():
        counts = ((pool.name, marks[pool.name][word]) for pool in mine if word in marks[pool.name])
        named = [f"{name} ({number_of(count, 'node')})" for name, count in counts]
        if named:
            yield f"{word.upper()}: {meaning}: {', '.join(named)}"
    flattered, guessed = sorted({option.recipe for option in chosen if _flattered(option)}), predicted(chosen)
    doubts = {
        "upper bound": any(option.source.upper_bound for option in chosen),
        "flattered": flattered,
        "wide": guessed,
    }
    words = {"recipes": ", ".join(flattered), "jobs": first_of(guessed, NAMED)}
    yield from (NOTES[name].format(**words) for name, holds in doubts.items() if holds)
    yield from assumptions(slots, read)
    paid_apart = any(option.dollars and not option.pool.terms.price_includes_power for option in chosen)
    missing = {
        "no overhead": not any(read.overhead.values()),
        "no idle": not all(option.pool.terms.idle_watts_per_gpu for option in chosen),
        "no pue": read.pue is None,
        "no electricity": paid_apart and not read.dollars_per_kilowatt_hour,
        "no price": read.electricity_alone,
    }
    yield from (NOTES[name] for name, holds in missing.items() if slots and holds)
    yield from (f"pool {pool.name}: {note}" for pool in mine for note in pool.notes)
    for option in chosen:
        yield from _as_seen(option, read)
    if solution and solution.timed_out and solution.gap > SLACK:
        yield "WallTimeReached: the time limit ended the search: another run may find another plan within the gap"


def _as_seen(option: Option, read: Terms) -> Iterator[str]:
    """That a job is planned by what it was seen to do, with the rate of profiles beside it."""
    job, running = option.job, option.job.running
    if running is None or not running.seen or not running.days:
        return
    said = f"{job.name} has run at {three_digits(running.seen)} tokens/s for {readable_days(running.days)}"
    usual = sources(option.pool, job.target, (option.recipe,), job.named)[option.recipe]
    conditions = conditions_of(replace(job, goodput=None), option.pool, read)
    made = usual if isinstance(usual, str) else speed(usual, option.gpus, conditions, 0)
    beside = ""
    if not isinstance(made, str):
        off = running.seen / made.tokens_per_second - 1
        beside = f", {abs(off):.1%} {'above' if off >= 0 else 'below'} the rate of profiles"
    yield f"{said}{beside}: it is planned with that"


def predicted(chosen: Iterable[Option]) -> list[str]:
    """Names of the jobs whose rates are predicted, by name."""
    return sorted(option.job.name for option in chosen if option.source.basis == "predicted")


def _left_out(made: Sequence[Offer], solution: Solution) -> Iterator[str]:
    """Pools whose nodes a job's blocks do not fit, measured recipes that nobody names, and pools in time only at sizes
    of which nothing is known: they drop out by what the user wrote, or did not give."""
    pools = {slot.option.job.name: slot.option.pool.name for slot in solution.slots}
    unknown = {offer.job.name: {*offer.unknown_sizes(pools[offer.job.name])} for offer in made}
    reasons = grouped(
        (f"{place}: {why}", offer.job.name)
        for offer in made
        for place, why in offer.refusals.items()
        if why.startswith(BLOCKS_SPLIT_NODES) or why.endswith(UNLISTED) or place in unknown[offer.job.name]
    )
    for reason, names in sorted(reasons.items()):
        others = len(names) - 1
        more = f" and {others} more {'job' if others == 1 else 'jobs'}" if others else ""
        yield f"not offered to {names[0]}{more}: {reason}"


def _marks(mine: Sequence[CandidatePool], solution: Solution | None) -> Mapping[str, Mapping[str, int]]:
    """By pool what is doubtful: of the figures that the plan uses, or of all where there is none."""
    if solution is None:
        return {pool.name: pool.marks for pool in mine}
    marks = {pool.name: Counter[str]() for pool in mine}
    for slot in solution.slots:
        if (sample := slot.option.source.sample) is not None:
            marks[slot.option.pool.name] |= Counter(sample.marks)  # the larger number of each
    return marks


def _flattered(option: Option) -> bool:
    """Whether a recipe faster than bf16 is scaled by efficiencies that were given for no recipe in particular."""
    terms, source = option.pool.terms, option.source
    points = terms.scaling.points if terms.scaling else {}
    return source.job_rate is None and None in points and option.recipe not in ("bf16", *points)


def binding(chosen: PlanAnswer, slot: JobSlot) -> str:
    """What keeps the job from a choice that is better by the first objective; with which the plan would break it."""
    assert chosen.solution is not None
    assert chosen.terms is not None
    name = chosen.solution.objectives[0]
    offer = next(offer for offer in chosen.offers if offer.job.name == slot.option.job.name)
    mine = _worth(name, slot.option)
    better = [o for o in offer.options if _worth(name, o) < mine * (1 - SLACK)]
    if not better:
        return _end_of_sizes(slot.option, chosen.terms) or "nothing"
    best = min(better, key=lambda option: (_worth(name, option), option.gpus))
    return _broken(chosen.solution, slot, best, chosen.terms)


def _end_of_sizes(option: Option, read: Terms) -> str:
    """Why the job can't have one block more in its pool; empty where it could."""
    job, pool, more = option.job, option.pool, option.gpus + option.block_gpus
    if job.max_gpus is not None and more > job.max_gpus:
        return f"maxGPUs {job.max_gpus}"
    if more > blocks(pool, option.block_gpus) * option.block_gpus:
        return f"GPUs of pool {pool.name}"
    sample = option.source.sample
    if sample is not None and more > pool.usable(sample) * pool.gpus_per_node:
        return f"nodes of pool {pool.name} with a usable figure for {option.recipe}"
    made = speed(option.source, more, conditions_of(job, pool, read), option.tier and pool.nodes)
    return limits_of(job, pool, option.recipe).problem(more) or (made if isinstance(made, str) else "")


def _worth(name: Objective, option: Option) -> float:
    figure = {"cost": option.dollars, "energy": option.megawatt_hours, "time": option.days}[name]
    return float("inf") if figure is None else figure


def _broken(solution: Solution, slot: JobSlot, other: Option, read: Terms) -> str:
    """The first limit that `other` would break in place of the job's choice."""
    job = slot.option.job
    if job.deadline_days is not None and other.deadline_days + slot.start > job.deadline_days * (1 + SLACK):
        return "deadline"
    beside = [
        s.option for s in solution.slots if s is not slot and s.start < slot.start + other.days and s.end > slot.start
    ]
    beside_in_pool = [*(option for option in beside if option.pool.name == other.pool.name), other]
    if sum(option.gpus for option in beside_in_pool) > other.pool.gpus:
        return f"GPUs of pool {other.pool.name}"
    if not fits(beside_in_pool, replace(read.limits, watts=None)):
        return f"blocks or power of pool {other.pool.name}"
    if not fits([*beside, other], read.limits):
        return "power budget"
    swapped = [other if s is slot else s.option for s in solution.slots]
    broken = [name for name, share in budgets_used(swapped, read).items() if share > 1]
    if broken:
        return f"budget.{broken[0]}"
    return "the other jobs" if solution.objectives[0] != "time" else "nothing: the last job ends no earlier"


def instead(reply: PlanAnswer) -> str:
    """The best plan with another pool or recipe for the largest job, the others as they are."""
    solution = reply.solution
    assert solution is not None
    assert reply.terms is not None
    name, chosen = solution.objectives[0], solution.candidate.chosen
    search = Search(reply.offers, reply.terms, solution.objectives, ENDLESS)
    mine = max(chosen, key=lambda option: (option.gpu_hours, option.job.name))
    offered = offer_of(Catalog(reply.pools, reply.terms), mine.job, None, False, ENDLESS)
    places = grouped(((option.pool.name, option.recipe), option) for option in offered.options)
    places.pop((mine.pool.name, mine.recipe), None)
    part = max(1, TRIED // max(1, len(places)))
    tried = [
        search.placed([option if o is mine else o for o in chosen], solution.rank)
        for options in places.values()
        for option in sorted(options, key=lambda o: (_worth(name, o), o.gpus))[:: -(-len(options) // part)]
    ]
    best = min((made for made in tried if made and made.holds), key=lambda made: made.score(0), default=None)
    if best is None:
        none = f"{mine.job.name} holds beside the other jobs" if places else f"{mine.job.name} is offered"
        return f"no other pool or recipe of {none}"
    option = next(option for option in best.chosen if option.job is mine.job)
    theirs, ours = best.values[0], solution.values[0]
    more = (theirs / ours - 1) * 100 if ours else 0.0
    verdict = "as good" if abs(more) < 0.05 else f"{three_digits(abs(more))} % {'more' if more > 0 else 'less'}"
    readable = {"cost": readable_dollars, "energy": readable_energy, "time": readable_days}[name]
    place = f"{mine.job.name} on {option.gpus} GPUs of {option.pool.name} with {option.title}"
    return f"{place}: {readable(theirs)} for all jobs, {verdict}"
