"""Profiles of what was timed: each right after the same load, so that the clock is that of the timed windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from precision_agent.backends.profiler import told_modules
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.session.graphs import fatal
from precision_agent.backends.te.steps.modules import told_parts
from precision_agent.backends.te.tiers.gemm_tier import PROFILED_STEPS, Unit
from precision_agent.backends.te.tiers.training_tier import VariantModel
from precision_agent.backends.trace import Launch, kernel_seconds, kernels, launches, shares
from precision_agent.protocol import NO_KERNELS, KernelSeconds, Profile, window_of_profile
from precision_api.exchange.result import Failure
from precision_api.models.shapes import PASSES, Pass

STEPS_PROFILED = 3
"""Of a training step."""


@dataclass(frozen=True, slots=True)
class _Session:
    """One session of the profiler, and when the profiled steps with their load ran."""

    recorded: tuple[Launch, ...]
    start: float
    end: float


def _session(engine: Engine, lead: Callable[[], object], steps: Callable[[], None], trace: Path | None) -> _Session:
    began = ready = end = monotonic()

    def load() -> None:
        nonlocal began, ready
        began = monotonic()
        lead()
        engine.synchronize()
        ready = monotonic()

    def work() -> None:
        nonlocal end
        steps()
        engine.synchronize()
        end = monotonic()

    recorded = launches(engine.profile(work, trace, load))
    return _Session(recorded, window_of_profile(began, ready), end)


def profile_of_units(
    engine: Engine, units: Sequence[Unit], lead_seconds: float, trace: Path | None
) -> tuple[Profile, Sequence[dict[Pass, KernelSeconds]]] | Failure:
    """Kernels of eager steps of each unit in turn, after all units ran in turn; by unit and pass, of a single GEMM."""

    def lead() -> None:
        for unit in units:
            unit.measure(lead_seconds / len(units))

    def steps() -> None:
        for place, unit in enumerate(units):
            unit.steps(f"{place} ")

    session = _session(engine, lead, steps, trace)
    if not session.recorded:
        return NO_KERNELS
    by_unit = [
        {pass_: _of_one(shares(session.recorded, f"{place} {pass_}", PROFILED_STEPS), unit) for pass_ in PASSES}
        for place, unit in enumerate(units)
    ]
    rows, whole = kernels(session.recorded, PROFILED_STEPS), kernel_seconds(session.recorded, PROFILED_STEPS)
    return Profile(rows, whole, PROFILED_STEPS, session.start, session.end), by_unit


def _of_one(kernels: KernelSeconds, unit: Unit) -> KernelSeconds:
    copies = unit.copies
    return KernelSeconds(
        gemm=kernels.gemm / copies,
        other=kernels.other / copies,
        launches=kernels.launches / unit.rotated,
        streams=kernels.streams,
        kernels=kernels.kernels / copies,
    )


def profile_of_model(engine: Engine, model: VariantModel, lead_seconds: float, trace: Path | None) -> Profile | Failure:
    """Kernels of three eager micro batches by pass and module, after the timed step ran; the trace is kept there."""

    def steps() -> None:
        for _ in range(STEPS_PROFILED):
            model.eager_step()

    def seen(marked: AbstractContextManager[None]) -> _Session:
        def marked_steps() -> None:
            with marked:
                steps()

        return _session(engine, lambda: model.measure(lead_seconds), marked_steps, trace)

    unplaced = ""
    try:
        session = seen(told_modules(told_parts(model.stack.layers), engine.annotate))
    except RuntimeError as error:
        if fatal(error):
            raise
        unplaced = f"{type(error).__name__}: {error}"[:500]
        session = seen(nullcontext())  # kernels without their modules are better than none
    if not session.recorded:
        return NO_KERNELS
    whole = kernel_seconds(session.recorded, STEPS_PROFILED)
    rows = kernels(session.recorded, STEPS_PROFILED)
    return Profile(rows, whole, STEPS_PROFILED, session.start, session.end, unplaced=unplaced)
