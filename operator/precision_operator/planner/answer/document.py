"""The answer as the resource's status: the one document that kubectl, the plugin, metrics and the page show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from precision_api.facts.plain_text import first_of, number_of
from precision_api.facts.recipes import KEEPING
from precision_api.facts.schema import decimal
from precision_api.kinds.capacity_plan import JobPlan, PlanDays, PlanStatus, PlanTotals, PoolUse, WhatIfAnswer
from precision_operator.core.observe.clock import format_time, parse_time
from precision_operator.planner.answer.odds import upper_bounds
from precision_operator.planner.answer.planning import NAMED, PlanAnswer, Totals, binding, instead, predicted
from precision_operator.planner.answer.readable import readable_days, readable_dollars, readable_energy, readable_watts
from precision_operator.planner.answer.what_if import cut, risks_in
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT, age
from precision_operator.planner.rates.candidate_pool import CandidatePool, verdict_counts
from precision_operator.planner.rates.speed import MADE_UP
from precision_operator.planner.solving.budgets import committed_dollars, paid_dollars, paid_shares
from precision_operator.planner.solving.conflict import clash_words, told, way_out
from precision_operator.planner.solving.schedule import SLACK, JobSlot, peak, schedule, watts

LINES = 32
AT_LEAST = "at least "
"""Before a figure that is a bound: communication is not in it."""
SURE = ("measured", "declared")
DOUBTS = (*MADE_UP, "stale", "unverified", "unhealthyLoss", "powerInvalid")


_NO_POWER = {"power.overhead": "the rest of a node", "power.pue": "cooling or losses", "pools[].idle": "idle GPUs"}


def power_scope(notes: Sequence[str]) -> str:
    """What the plan's power leaves out, since it is not given; empty where nothing is."""
    left_out = [
        words
        for field, words in _NO_POWER.items()
        if any(note.startswith(field) and "is not given" in note for note in notes)
    ]
    return f"without {', '.join(left_out)}" if left_out else ""


def status(answer: PlanAnswer, what_ifs: Sequence[WhatIfAnswer] = ()) -> PlanStatus:
    """Everything but conditions, times of writing and the inputs' hash."""
    solution, totals = answer.solution, answer.totals
    if solution is None or totals is None:
        return _refused(answer)
    slots = sorted(solution.slots, key=lambda slot: (slot.start, slot.option.job.name))
    paid = paid_shares([slot.option for slot in slots])
    kept = _kept(answer)
    jobs = tuple(_job(answer, slot, paid, kept) for slot in slots)
    wanted = [job for job in jobs if job.deadline != "none"]
    bound = ">=" if upper_bounds(slots) else ""
    power = readable_watts(totals.peak_megawatts * WATTS_PER_MEGAWATT) if totals.peak_megawatts is not None else None
    return PlanStatus(
        phase="Solved",
        recommendation=cut(_recommendation(answer, solution.slots, totals)),
        totals=_totals(answer, totals, solution.gap, jobs),
        jobs=jobs,
        pools=tuple(_pool(answer, pool, slots) for pool in answer.pools)[:64],
        what_ifs=tuple(what_ifs),
        notes=tuple(cut(note) for note in answer.notes[:LINES]),
        summary=f"{len(jobs)}/{len(jobs)}",
        days=f"{bound}{readable_days(totals.days)}",
        power=power,
        cost=f"{bound}{readable_dollars(totals.dollars)}" if totals.dollars is not None else None,
        deadlines=f"{sum(job.deadline == 'promised' for job in wanted)}/{len(wanted)}" if wanted else None,
        data=data(slots),
    )


def _refused(answer: PlanAnswer) -> PlanStatus:
    problems = [str(problem) for problem in answer.problems]
    conflict = answer.conflict
    if conflict is not None:
        clash = clash_words(conflict, answer.not_known is not None)
        if clash:
            problems.append(clash)
        elif not answer.not_known:
            late = "was not found in time: raise spec.solver.timeLimitSeconds"
            why = late if conflict.out_of_time else "can't be told"
            problems.append(f"The limits can't all hold; which of them clash {why}")
        if way := way_out(conflict, answer.not_known is not None):
            problems.append(way)
        best = conflict.smallest and told(conflict.smallest)
        others = [words for words in map(told, conflict.others) if words != best]
        if others:
            problems.append(f"Or by one limit alone: {'; '.join(others)}")
    jobs = len(answer.terms.jobs) if answer.terms else 0
    verdict = "It is not known whether there is a plan. " if answer.not_known else "There is no plan. "
    return PlanStatus(
        phase=answer.not_known or ("Infeasible" if conflict is not None else "Refused"),
        recommendation=cut(verdict + ". ".join(problems[:3])),
        problems=tuple(cut(problem) for problem in problems[:LINES]),
        notes=tuple(cut(note) for note in answer.notes[:LINES]),
        summary=f"0/{jobs}" if jobs else None,
    )


def _money(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _always(value: float) -> str:
    return decimal(value) or "0"


def _totals(answer: PlanAnswer, totals: Totals, gap: float, jobs: Sequence[JobPlan]) -> PlanTotals:
    """Money is the sum of the rows as they are printed."""
    return PlanTotals(
        days=decimal(totals.days),
        dollars=_money(_sum([job.dollars for job in jobs])),
        committed_dollars=_money(committed_dollars(answer.pools) or None),
        megawatt_hours=decimal(totals.megawatt_hours, 12),
        peak_megawatts=decimal(totals.peak_megawatts),
        gpu_hours=decimal(totals.gpu_hours),
        objective=answer.solution.objectives[0] if answer.solution else None,
        gap_percent=decimal(round(gap * 100, 4)) if gap < 1e6 else None,
        gap_reached=answer.terms is None or gap <= answer.terms.gap + SLACK,
        instead=instead(answer) or None,
        joint_probability=_share(answer.odds.all if answer.odds else None),
    )


def _sum(rows: Sequence[str | None]) -> float | None:
    """The rows together; None where one is not known."""
    values = [float(row) for row in rows if row is not None]
    return sum(values) if len(values) == len(rows) else None


def _moment(answer: PlanAnswer, days: float) -> str:
    assert answer.terms is not None
    return format_time(answer.terms.start + timedelta(days=days))


def _job(answer: PlanAnswer, slot: JobSlot, paid: Mapping[str, float], kept: set[str]) -> JobPlan:
    option = slot.option
    dollars = paid_dollars(option, paid)
    energy = option.megawatt_hours
    joules = None if energy is None else energy * 3.6e9
    deadline = "promised" if option.job.name in kept else "notPromised"
    return JobPlan(
        name=option.job.name,
        pool=option.pool.name,
        recipe=option.recipe,
        last_layers_bf16=option.layers_bf16,
        step=option.source.sample and option.source.sample.step,
        gpus=option.gpus,
        start=_moment(answer, slot.start),
        end=_moment(answer, slot.end),
        days=PlanDays(low=_always(option.days_low), mid=_always(option.days), high=_always(option.days_high)),
        teraflops_per_gpu=decimal(
            option.speed.tokens_per_second * option.job.target.flops_per_token / option.gpus / 1e12
        ),
        tokens_per_second=_always(option.speed.tokens_per_second),
        straggler=_always(round(option.speed.straggler, 5)),
        megawatts=decimal(None if option.limit_watts is None else option.limit_watts / WATTS_PER_MEGAWATT),
        megawatt_hours=decimal(energy),
        dollars=_money(dollars),
        dollars_per_million_tokens=decimal(None if dollars is None else dollars / option.job.tokens * 1e6),
        tokens_per_joule=decimal(None if not joules else option.job.tokens / joules),
        basis=option.source.basis,
        upper_bound=option.source.upper_bound,
        deadline="none" if option.job.deadline_days is None else deadline,
        probability=_share(answer.odds.by_job.get(option.job.name) if answer.odds else None),
        slack_percent=answer.slack.get(option.job.name),
        binding=binding(answer, slot)[:253],
        source=cut(option.source.text),
    )


def _share(value: float | None) -> str | None:
    """A chance; never told as certain, since it is simulated."""
    return None if value is None else f"{min(max(value, 0.001), 0.999):.3f}"


def _kept(answer: PlanAnswer) -> set[str]:
    """Jobs that, with all that they wait for, end in time nine times in ten, where no rate is an upper bound."""
    assert answer.solution is not None
    assert answer.terms is not None
    chosen = [slot.option for slot in answer.solution.slots]
    careful = schedule(chosen, answer.terms.limits, lambda option: option.deadline_days, answer.solution.rank) or ()
    due = ((slot.option.job.name, slot.end, slot.option.job.deadline_days) for slot in careful)
    in_time = {name for name, end, day in due if day is not None and end <= day * (1 + SLACK)}
    return in_time - upper_bounds(answer.solution.slots)


def _pool(answer: PlanAnswer, pool: CandidatePool, slots: Sequence[JobSlot]) -> PoolUse:
    mine = [slot for slot in slots if slot.option.pool.name == pool.name]
    limits_known = bool(mine) and all(slot.option.limit_watts is not None for slot in mine)
    return PoolUse(
        name=pool.name,
        gpus=pool.gpus,
        peak_gpus=round(peak(mine, lambda option: float(option.gpus))),
        gpu_hours=_always(sum(slot.option.gpu_hours for slot in mine)),
        megawatts=decimal(peak(mine, watts) / WATTS_PER_MEGAWATT) if limits_known else None,
        slow_nodes=len(pool.slow),
        data=_pool_data(pool)[:253],
        provenance=cut(provenance(pool)),
    )


def _pool_data(pool: CandidatePool) -> str:
    if not pool.samples:
        return "declared" if pool.terms.job_rates else "none"
    return ", ".join(f"{word} ({n}/{pool.nodes + pool.spares})" for word, n in pool.marks.items()) or "measured"


def provenance(pool: CandidatePool) -> str:
    """Profiles, nodes, verdicts and age of all that is known of a pool."""
    samples = list(pool.samples.values())
    rows = [f"job rates: {', '.join(sorted({r.source for r in pool.terms.job_rates}))}"] if pool.terms.job_rates else []
    if samples:
        verdicts: Counter[str] = sum((sample.verdicts for sample in samples), Counter())
        made_up = "made-up " if {*MADE_UP} & {*pool.marks} else ""
        profiles = sorted({name for sample in samples for name in sample.profiles})
        rows.append(
            f"profiles {', '.join(profiles)} (at their micro batch); "
            f"{number_of(max(len(sample.rates) for sample in samples), 'node')}; "
            f"{made_up}figures: {verdict_counts(verdicts)}; oldest {age(max(s.oldest_days for s in samples))}"
        )
    if pool.refused:
        rows.append(f"refused: {', '.join(f'{word} {n}' for word, n in sorted(pool.refused.items()))}")
    return "; ".join([*rows, *pool.notes]) or "nothing is known of it"


def data(slots: Sequence[JobSlot]) -> str:
    """measured, or what of the figures that are used is not: in capitals, so that nobody overlooks it."""
    samples = [slot.option.source.sample for slot in slots]
    marks = {word for sample in samples if sample is not None for word in sample.marks if word in DOUBTS}
    if any(slot.option.source.job_rate is not None for slot in slots):
        marks.add("declared")
    if predicted([slot.option for slot in slots]):
        marks.add("predicted")
    ordered = sorted(marks, key=lambda word: (word not in DOUBTS, word))
    return ", ".join(word.upper() if word in DOUBTS else word for word in ordered) or "measured"


def _recommendation(answer: PlanAnswer, slots: Sequence[JobSlot], totals: Totals) -> str:
    """Which pool, which precision, how many GPUs, how long, how much: one sentence."""
    shown = [_placed(slot) for slot in sorted(slots, key=lambda slot: -slot.option.gpu_hours)[:3]]
    others = len(slots) - len(shown)
    more = f", and {others} more {'job' if others == 1 else 'jobs'}" if others else ""
    least = AT_LEAST if upper_bounds(slots) else ""
    end = parse_time(_moment(answer, totals.days))
    on = f"{'not before' if least else 'on'} {end.day} {end:%b %Y}"
    ending = [f"all is done after {least}{readable_days(totals.days)}, {on}"]
    if totals.dollars is not None:
        ending.append(f"for {least}{readable_dollars(totals.dollars)}")
    if totals.megawatt_hours is not None:
        ending.append(f"with {least}{readable_energy(totals.megawatt_hours)}")
    doubt, guessed = data(slots), predicted([slot.option for slot in slots])
    if len(guessed) < len(slots):
        doubt = doubt.replace("predicted", f"predicted ({first_of(guessed, NAMED)})")
    warning = "" if doubt in SURE else f"{doubt} figures: "
    low = {(slot.option.recipe, slot.option.layers_bf16) for slot in slots if slot.option.recipe != "bf16"}
    unknown = any(name in KEEPING and kept is None for name, kept in low)
    risks = risks_in(slots) or ([] if unknown else ["No recipe in it has a known risk."])
    return f"{warning}{'; '.join(shown)}{more}: {', '.join(ending)}.{''.join(f' {risk}' for risk in risks)}"


def _placed(slot: JobSlot) -> str:
    option = slot.option
    bound = AT_LEAST if option.source.upper_bound else ""
    return (
        f"run {option.job.name} on {option.gpus} GPUs of {option.pool.name} with {option.title} "
        f"in {bound}{readable_days(option.days, option.days_low, option.days_high)}"
    )
