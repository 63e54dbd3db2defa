"""What rates and their bands assume: a line for each, for the plan's list of everything assumed."""

from collections.abc import Iterator, Sequence

import numpy as np

from precision_api.facts.plain_text import first_of, number_of
from precision_api.facts.recipes import KEEPING
from precision_operator.planner.answer.readable import readable_days, readable_dollars
from precision_operator.planner.inputs.terms import Failures, Goodput, Terms
from precision_operator.planner.rates import bands
from precision_operator.planner.rates.failures import LEAST, MOST, OWN_FACTOR, PER_GPU_HOUR, SOURCES, waits
from precision_operator.planner.rates.laws import releases_apart
from precision_operator.planner.rates.memory_fit import limits_of, memory_bytes
from precision_operator.planner.rates.speed import RateSource, by_law, conditions_of, sized, sources
from precision_operator.planner.rates.straggler import SLOW_NODE_PRIOR
from precision_operator.planner.solving.schedule import JobSlot

SELDOM = 0.005
"""Of a job's time that it waits for repairs: less goes without saying where it leaves a node free."""


def assumptions(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    """One line for each default that the chosen rates rest on, with the field that replaces it."""
    yield from _memory(slots)
    yield from _failures(slots, terms)
    yield from _sizes(slots, terms)
    yield from _undecided(slots)
    sources = {id(slot.option.source): slot.option.source for slot in slots}.values()
    rates = [(source.pool.name, source.job_rate) for source in sources if source.job_rate is not None]
    for name, rate in rates:
        if rate.plus_minus is None:
            apart = _percent(releases_apart(rate.target, rate.releases_apart) - 1)
            yield (
                f"job rate of {name} ({rate.source}): no plusMinus is given, {apart} either way is assumed, as far as "
                f"published rates lie apart in software {number_of(rate.releases_apart, 'release')} apart"
            )
    options = [s.option for s in slots if s.option.source.job_rate and not s.option.source.job_rate.batch]
    if at_batch := [option.job.name for option in options if option.job.fit.global_batch and not option.job.running]:
        yield (
            f"job rates are taken as measured with the globalBatch of {first_of(at_batch, 4)}, and change with it: "
            "give that of jobRates"
        )
    for name, rate in rates:
        if rate.recipe in KEEPING:
            yield f"job rate of {name} with {rate.recipe}: layers that stay in BF16 are not known; without any, at risk"
    for source in sources:
        if source.sample is not None and source.pool.unmeasured(source.sample):
            yield _unmeasured(source, len(source.sample.rates))
    scaled = [slot for slot in slots if any(part.name == "scaling" for part in slot.option.speed.parts)]
    names = {s.option.pool.name for s in scaled if (given := s.option.pool.terms.scaling) and given.plus_minus is None}
    if names:
        yield (
            f"scaling of {', '.join(sorted(names))}: no plusMinus is given, "
            f"{_percent(bands.SCALING_PLUS_MINUS)} either way is assumed for each efficiency"
        )


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _memory(slots: Sequence[JobSlot]) -> Iterator[str]:
    """What was not checked, or overridden."""
    unknown = {slot.option.pool.name for slot in slots if memory_bytes(slot.option.pool) is None}
    if unknown:
        yield (
            f"memory of the GPUs of {', '.join(sorted(unknown))} is not known: whether models fit is not checked, nor "
            "a globalBatch without gpusPerReplica; give the pool's memoryGiBPerGPU"
        )
    for slot in slots:
        option = slot.option
        why = limits_of(option.job, option.pool, option.recipe, always=True).problem(option.gpus)
        if why and option.job.running is None:
            yield (
                f"OVERRIDDEN by memoryCheck Ignore: {option.job.name} gets {option.gpus} GPUs of {option.pool.name}, "
                f"but {why}"
            )


def _failures(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    """Goodput or failures, and the spare nodes of pools that one job fills."""
    given = [conditions_of(slot.option.job, slot.option.pool, terms).progress for slot in slots]
    if any(isinstance(progress, Failures) for progress in given):
        failures = terms.failures
        rate = f"{PER_GPU_HOUR:g} interruptions of a GPU hour are assumed ({LEAST:g} to {MOST:g}: {SOURCES})"
        own = f"{failures.per_gpu_hour or 0:g} interruptions of a GPU hour, x {OWN_FACTOR:g} either way"
        yield (
            f"failures: {rate if failures.per_gpu_hour is None else own}; {failures.stall_seconds:g} s for a "
            f"checkpoint, {failures.restart_minutes:g} min for a restart; give failures, or goodput"
        )
    if any(isinstance(progress, Goodput) and progress.plus_minus is None for progress in given):
        yield f"goodput: no goodputPlusMinus is given, {_percent(bands.GOODPUT_PLUS_MINUS)} either way is assumed"
    for slot, progress in zip(slots, given, strict=True):
        pool, stopped, running = slot.option.pool, 0.0, slot.option.job.running
        stops = f"{'the rate as it ran' if running and running.seen else 'goodput'} must hold such stops"
        if isinstance(progress, Failures):
            (odds,), _, _ = waits(progress, np.array([slot.option.gpus]), progress.per_gpu_hour or PER_GPU_HOUR)
            stopped = float(odds / (1 + odds))
            stops = f"such stops are in all figures, {_percent(stopped)} of its time"
        is_whole = slot.option.gpus > pool.gpus - pool.gpus_per_node
        if is_whole or stopped > SELDOM:
            spare_nodes = f"{number_of(pool.spares, 'node')} kept as spares" if pool.spares else "no spare (spareNodes)"
            takes = "takes every node of" if is_whole else "has few free nodes in"
            yield (
                f"spares: {slot.option.job.name} {takes} {pool.name}, {spare_nodes}: where none is free it "
                f"stops from a node's failure until its repair ({pool.terms.repair_days:g} days); {stops}"
            )


def _sizes(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    """What published jobs tell of the chosen sizes."""
    for option in (slot.option for slot in slots):
        at, conditions = np.array([option.gpus]), conditions_of(option.job, option.pool, terms)
        if not by_law(option.source, at, conditions).any():
            continue
        known = sized(option.source, conditions.batch)
        kept, tokens = known.kept(at), float(known.tokens(at)[0])
        batch = tokens * option.gpus / (option.job.target.sequence_length or 1)
        taken = "" if option.job.fit.global_batch else ", as at the smallest published size: give globalBatch"
        base = f"of {known.base} by themselves" if known.apart else f"at {known.base}"
        middle, low, high = (_percent(float(part[0])) for part in kept)
        yield (
            f"size of {option.job.name}: at {option.gpus} GPUs {middle} is kept of the rate {base} ({low} to {high}), "
            f"by published jobs of {known.models} on {known.product} with {tokens:,.0f} tokens of a GPU and step (a "
            f"globalBatch of {batch:,.0f}{taken}); one rate of that size (jobRates) narrows it to its own plusMinus"
        )


def _undecided(slots: Sequence[JobSlot]) -> Iterator[str]:
    """Recipes of which published rates don't tell which is faster for a job, and what it is worth to know."""
    for option in (slot.option for slot in slots):
        mine, job = option.source, option.job
        others = sources(option.pool, job.target, sorted(job.recipes - {option.recipe}), job.named)
        for other in (source for source in others.values() if not isinstance(source, str)):
            ratio = other.per_gpu / mine.per_gpu
            low, high = ratio * other.step.low / mine.step.high, ratio * other.step.high / mine.step.low
            if low < 1 < high and "by published pairs" in mine.text + other.text:
                worth = 1 - 1 / high
                dollars = "" if option.dollars is None else f" and {readable_dollars(option.dollars * worth)} together"
                yield (
                    f"undecided: {other.recipe} or {option.recipe} for {job.name} on {option.pool.name}: profile both "
                    f"({other.recipe} runs at {low:.3g} to {high:.3g} of {option.recipe}'s rate: to know is worth up "
                    f"to {readable_days(option.days * worth)}{dollars})"
                )


def _unmeasured(source: RateSource, measured: int) -> str:
    least, most = SLOW_NODE_PRIOR
    placed = "; only measured nodes are taken for fast ones" if source.pool.fastest else ""
    return (
        f"pool {source.pool.name}: {measured} of {source.pool.nodes} nodes were measured with {source.recipe}; how "
        "many of the others are slow follows from how many were seen (Jeffreys' prior), and one that nobody has seen "
        f"is assumed to be {_percent(least)} to {_percent(most)} slower{placed}"
    )
