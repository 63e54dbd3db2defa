"""What rates and their bands assume: a line for each, for the plan's list of everything assumed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from precision_api.facts.plain_text import first_of, number_of
from precision_api.facts.recipes import KEEPING
from precision_operator.planner.answer.readable import readable_days, readable_dollars
from precision_operator.planner.inputs.terms import Failures, Goodput, Terms
from precision_operator.planner.rates import bands
from precision_operator.planner.rates.failures import (
    LEAST,
    MOST,
    OWN_FACTOR,
    PER_GPU_HOUR,
    SOURCES,
    interval_hours,
    progress,
    rates_of,
    spares,
    waits,
)
from precision_operator.planner.rates.laws import releases_apart
from precision_operator.planner.rates.memory_fit import limits_of, memory_bytes
from precision_operator.planner.rates.speed import RateSource, by_law, conditions_of, sized, sources
from precision_operator.planner.rates.straggler import SLOW_NODE_PRIOR
from precision_operator.planner.solving.schedule import JobSlot

NOTES: Mapping[str, Any] = json.loads(files(__package__).joinpath("notes.json").read_text(encoding="utf-8"))
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
            yield _said(
                "job rate", pool=name, rate=rate, apart=apart, releases=number_of(rate.releases_apart, "release")
            )
    options = [s.option for s in slots if s.option.source.job_rate and not s.option.source.job_rate.batch]
    if at_batch := [option.job.name for option in options if option.job.fit.global_batch and not option.job.running]:
        yield _said("batch", jobs=first_of(at_batch, 4))
    for name, rate in rates:
        if rate.recipe in KEEPING:
            yield f"job rate of {name} with {rate.recipe}: layers that stay in BF16 are not known; without any, at risk"
    for source in sources:
        if source.sample is not None and source.pool.unmeasured(source.sample):
            yield _unmeasured(source, len(source.sample.rates))
    scaled = [slot for slot in slots if any(part.name == "scaling" for part in slot.option.speed.parts)]
    names = {s.option.pool.name for s in scaled if (given := s.option.pool.terms.scaling) and given.plus_minus is None}
    if names:
        yield _said("scaling", pools=", ".join(sorted(names)), half=_percent(bands.SCALING_PLUS_MINUS))


def _said(name: str, **words: object) -> str:
    text: str = NOTES["assumed"][name]
    return text.format(**words)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _memory(slots: Sequence[JobSlot]) -> Iterator[str]:
    """What was not checked, or overridden."""
    unknown = {slot.option.pool.name for slot in slots if memory_bytes(slot.option.pool) is None}
    if unknown:
        yield _said("memory", pools=", ".join(sorted(unknown)))
    for slot in slots:
        option = slot.option
        why = limits_of(option.job, option.pool, option.recipe, always=True).problem(option.gpus)
        if why and option.job.running is None:
            yield _said("overridden", option=option, why=why)


def _failures(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    """Goodput or failures, and the spare nodes of pools that one job fills."""
    given = [conditions_of(slot.option.job, slot.option.pool, terms).progress for slot in slots]
    if any(isinstance(of, Failures) for of in given):
        failures = terms.failures
        rate = f"{PER_GPU_HOUR:g} interruptions of a GPU hour are assumed ({LEAST:g} to {MOST:g}: {SOURCES})"
        own = f"{failures.per_gpu_hour or 0:g} interruptions of a GPU hour, x {OWN_FACTOR:g} either way"
        shares = first_of(
            [_share(s, of) for s, of in zip(slots, given, strict=True) if isinstance(of, Failures)], 4, "; "
        )
        yield _said("failures", rate=rate if failures.per_gpu_hour is None else own, of=failures, shares=shares)
    if any(isinstance(of, Goodput) and of.plus_minus is None for of in given):
        yield f"goodput: no goodputPlusMinus is given, {_percent(bands.GOODPUT_PLUS_MINUS)} either way is assumed"
    for slot, of in zip(slots, given, strict=True):
        pool, stopped, running = slot.option.pool, 0.0, slot.option.job.running
        stops = f"{'the rate as it ran' if running and running.seen else 'goodput'} must hold such stops"
        if isinstance(of, Failures):
            usual, most, _ = rates_of(of)
            odds = [waits(of, np.array([slot.option.gpus]), rate)[0][0] for rate in (usual, most)]
            shares_of = [_percent(float(of_time / (1 + of_time))) for of_time in odds]
            stopped, whole = max(float(odds[0]), float(odds[1]) / 10), pool.nodes + pool.spares
            enough = spares(replace(of, per_gpu_hour=most), whole, pool.gpus_per_node, pool.terms.repair_days)
            stops = _said("stops", stopped=shares_of[0], most=shares_of[1], rate=most, nodes=enough)
        is_whole = slot.option.gpus > pool.gpus - pool.gpus_per_node
        if is_whole or stopped > SELDOM:
            spare_nodes = f"{number_of(pool.spares, 'node')} kept as spares" if pool.spares else "no spare (spareNodes)"
            takes = "takes every node of" if is_whole else "has few free nodes in"
            yield _said("spares", job=slot.option.job.name, takes=takes, pool=pool, spares=spare_nodes, stops=stops)


def _share(slot: JobSlot, failures: Failures) -> str:
    """Of its time in which a job makes progress, and between two checkpoints."""
    at = np.array([slot.option.gpus])
    words = {name: _percent(float(part[0])) for name, part in progress(failures, at)._asdict().items()}
    minutes = float(interval_hours(failures, at, rates_of(failures)[0])[0]) * 60
    return _said("share", job=slot.option.job.name, share=words.pop("middle"), minutes=minutes, **words)


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
        shares = {name: _percent(float(part[0])) for name, part in kept._asdict().items()}
        words = {"option": option, "base": base, "known": known, "tokens": tokens, "batch": batch, "taken": taken}
        yield _said("size", **words, **shares)


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
                words = {"other": other.recipe, "option": option, "low": low, "high": high, "dollars": dollars}
                yield _said("undecided", **words, days=readable_days(option.days * worth))


def _unmeasured(source: RateSource, measured: int) -> str:
    placed = "; only measured nodes are taken for fast ones" if source.pool.fastest else ""
    least, most = map(_percent, SLOW_NODE_PRIOR)
    words = {"measured": measured, "recipe": source.recipe, "least": least, "most": most, "placed": placed}
    return _said("unmeasured", pool=source.pool, **words)
