"""Does a plan hold? Recomputed from the slots alone, without the planner's own schedule, program or totals."""

import itertools
from collections.abc import Iterator, Sequence

from precision_operator.planner.inputs.terms import Terms
from precision_operator.planner.solving.options import Option
from precision_operator.planner.solving.schedule import JobSlot, fits

TOLERANCE = 1e-6


def broken(slots: Sequence[JobSlot], terms: Terms) -> list[str]:
    """Every limit that the slots break, in words."""
    return [*_jobs(slots, terms), *_moments(slots, terms), *_budgets(slots, terms)]


def in_every_order(chosen: Sequence[Option], terms: Terms) -> Iterator[list[JobSlot]]:
    """These jobs in all orders, each as early as it finds room: where any order at all holds, one of these does."""
    for order in itertools.permutations(chosen):
        placed: dict[str, JobSlot] = {}
        for option in order:
            if not set(option.job.after) <= placed.keys():
                break
            slots = [*placed.values()]
            ready = max((placed[name].end for name in option.job.after), default=0.0)
            moments = sorted({ready, *(slot.end for slot in slots if slot.end > ready)})
            start = next((at for at in moments if _has_room(option, at, slots, terms)), None)
            if start is None:
                break
            placed[option.job.name] = JobSlot(option, start, start + option.days)
        if len(placed) == len(chosen):
            yield [*placed.values()]


def _has_room(option: Option, at: float, slots: Sequence[JobSlot], terms: Terms) -> bool:
    """Whether the limits hold at each moment at which a job begins beside it."""
    end = at + option.days
    moments = {at, *(slot.start for slot in slots if at < slot.start < end)}
    return all(fits([option, *(s.option for s in slots if s.start <= m < s.end)], terms.limits) for m in moments)


def _above(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit * (1 + TOLERANCE)


def _jobs(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    by_name = {slot.option.job.name: slot for slot in slots}
    if sorted(by_name) != sorted(job.name for job in terms.jobs) or len(slots) != len(terms.jobs):
        yield "not each job has one slot"
    for slot in slots:
        option, job = slot.option, slot.option.job
        block = job.block_gpus or option.pool.terms.block_gpus or option.pool.gpus_per_node
        if option.gpus % block or option.gpus < job.min_gpus or (job.max_gpus and option.gpus > job.max_gpus):
            yield f"{job.name} has {option.gpus} GPUs"
        if option.recipe not in job.recipes:
            yield f"{job.name} uses {option.recipe}"
        if job.pools and not job.pools & {option.pool.name, option.pool.product}:
            yield f"{job.name} runs in {option.pool.name}"
        if abs(slot.end - slot.start - option.days) > TOLERANCE * option.days:
            yield f"{job.name} takes other than its days"
        if slot.start < job.not_before * (1 - TOLERANCE):
            yield f"{job.name} starts before its day"
        for name in job.after:
            if slot.start < by_name[name].end * (1 - TOLERANCE):
                yield f"{job.name} starts before {name} has ended"
        if _above(slot.end, job.deadline_days):
            yield f"{job.name} is late"


def _moments(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    for moment in sorted({slot.start for slot in slots}):
        now = [slot.option for slot in slots if slot.start <= moment < slot.end * (1 - 1e-12)]
        for pool in {option.pool.name: option.pool for option in now}.values():
            mine = [option for option in now if option.pool.name == pool.name]
            if sum(option.gpus for option in mine) > pool.nodes * pool.gpus_per_node:
                yield f"pool {pool.name} has too few GPUs at {moment}"
            if _above(sum(option.limit_watts or 0 for option in mine), pool.terms.power_watts):
                yield f"pool {pool.name} has too little power at {moment}"
        if _above(sum(option.limit_watts or 0 for option in now), terms.limits.watts):
            yield f"there is too little power at {moment}"


def _budgets(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    limits = terms.limits.budgets
    hours: dict[str, float] = {}
    dollars = 0.0
    for slot in slots:
        option = slot.option
        hours[option.pool.name] = hours.get(option.pool.name, 0.0) + option.gpus * option.days * 24
        dollars += option.power_dollars or 0.0
    for slot in {slot.option.pool.name: slot for slot in slots}.values():
        own = slot.option.pool.terms
        beyond = max(0.0, hours[slot.option.pool.name] - own.committed_gpu_hours)
        dollars += beyond * (own.dollars_per_gpu_hour or 0.0)
    if _above(dollars, limits.get("dollars")):
        yield f"{dollars} dollars are spent"
    if _above(sum(hours.values()), limits.get("gpuHours")):
        yield f"{sum(hours.values())} GPU hours are used"
    if _above(sum(slot.option.megawatt_hours or 0.0 for slot in slots), limits.get("megawattHours")):
        yield "too much energy is used"
