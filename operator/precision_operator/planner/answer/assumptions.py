"""What rates and their bands assume: a line for each, for the plan's list of everything assumed."""

from collections.abc import Iterator, Sequence

from precision_api.facts.recipes import KEEPING
from precision_operator.planner.inputs.terms import Terms
from precision_operator.planner.rates import bands
from precision_operator.planner.rates.memory_fit import memory_bytes, true_limits
from precision_operator.planner.rates.speed import RateSource, goodput_of
from precision_operator.planner.rates.straggler import SLOW_NODE_PRIOR
from precision_operator.planner.solving.schedule import JobSlot


def assumptions(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    """One line for each default that the chosen rates rest on, with the field that replaces it."""
    yield from _memory(slots)
    yield from _goodput(slots, terms)
    sources = {id(slot.option.source): slot.option.source for slot in slots}.values()
    rates = [(source.pool.name, source.job_rate) for source in sources if source.job_rate is not None]
    bare = {f"{name} ({rate.source})" for name, rate in rates if rate.plus_minus is None}
    if bare:
        yield (
            f"job rates of {', '.join(sorted(bare))}: no plusMinus is given, "
            f"{_percent(bands.JOB_RATE_PLUS_MINUS)} either way is assumed"
        )
    for name, rate in rates:
        if rate.recipe in KEEPING:
            yield f"job rate of {name} with {rate.recipe}: layers that stay in BF16 are not known; without any, at risk"
    for source in sources:
        if source.sample is not None and source.pool.unmeasured(source.sample):
            yield _unmeasured(source, len(source.sample.rates))
    scaled = [slot for slot in slots if any(part.name == "scaling" for part in slot.option.speed.parts)]
    names = {s.option.pool.name for s in scaled if s.option.pool.terms.scaling_plus_minus is None}
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
        why = true_limits(option.job, option.pool, option.recipe).problem(option.gpus)
        if why and option.job.running is None:
            yield (
                f"OVERRIDDEN by memoryCheck Ignore: {option.job.name} gets {option.gpus} GPUs of {option.pool.name}, "
                f"but {why}"
            )


def _goodput(slots: Sequence[JobSlot], terms: Terms) -> Iterator[str]:
    goodputs = [goodput_of(slot.option.job, slot.option.pool, terms) for slot in slots]
    if None in goodputs:
        yield (
            "goodput is not given: failures, checkpoints and restarts are counted as nothing, "
            f"and at worst as {_percent(1 - bands.LEAST_GOODPUT)} of the time"
        )
    if any(goodput is not None and goodput.plus_minus is None for goodput in goodputs):
        yield f"goodput: no goodputPlusMinus is given, {_percent(bands.GOODPUT_PLUS_MINUS)} either way is assumed"


def _unmeasured(source: RateSource, measured: int) -> str:
    least, most = SLOW_NODE_PRIOR
    placed = "; only measured nodes are taken for fast ones" if source.pool.fastest else ""
    return (
        f"pool {source.pool.name}: {measured} of {source.pool.nodes} nodes were measured with {source.recipe}; how "
        "many of the others are slow follows from how many were seen (Jeffreys' prior), and one that nobody has seen "
        f"is assumed to be {_percent(least)} to {_percent(most)} slower{placed}"
    )
