"""Profiles of what was timed: each right after the same load, so that the clock is that of the timed windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from precision_agent.backends.profiler import profile_under_load, told_modules
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.session.graphs import fatal
from precision_agent.backends.te.steps.modules import told_parts
from precision_agent.backends.te.tiers.gemm_tier import PROFILED_STEPS, Unit
from precision_agent.backends.te.tiers.training_tier import VariantModel
from precision_agent.backends.trace import Launch, gaps, shares
from precision_agent.protocol import KernelSeconds, Profile
from precision_api.exchange.result import Failure
from precision_api.models.shapes import PASSES, Pass

STEPS_PROFILED = 3
"""Of a training step."""


def profile_of_units(
    engine: Engine, units: Sequence[Unit], lead_seconds: float, trace: Path | None
) -> tuple[Profile, Sequence[dict[Pass, KernelSeconds]]] | Failure:
    """Kernels of steps of each unit in turn, as they are timed, after all units ran in turn; by unit and pass, of a
    single GEMM.

    Where a profiler does not tell which graph launched what, of eager steps, which have no gaps of graphs.
    """

    def lead() -> None:
        for unit in units:
            unit.measure(lead_seconds / len(units))

    for replayed in (True, False):

        def steps(replayed: bool = replayed) -> None:
            for place, unit in enumerate(units):
                unit.steps(f"{place} ", replayed)

        outcome = profile_under_load(engine.profile, engine.synchronize, lead, steps, PROFILED_STEPS, trace)
        if isinstance(outcome, Failure):
            return outcome
        profile, launched = outcome
        idle = gaps(launched) if replayed else {}
        by_unit = [
            {pass_: _of_one(launched, f"{place} {pass_}", unit, idle) for pass_ in PASSES}
            for place, unit in enumerate(units)
        ]
        if all(seen.gemm > 0 and seen.launches % 1 == 0 for passes in by_unit for seen in passes.values()):
            break
    return profile, by_unit


def _of_one(launched: Sequence[Launch], region: str, unit: Unit, idle: Mapping[str, float]) -> KernelSeconds:
    kernels = shares(launched, region, PROFILED_STEPS)
    graph = unit.program.execution == "graph" and region in idle
    return KernelSeconds(
        gemm=kernels.gemm / unit.copies,
        other=kernels.other / unit.copies,
        launches=kernels.launches / unit.rotated,
        streams=kernels.streams,
        gaps=idle[region] / unit.copies if graph else None,
    )


def profile_of_model(engine: Engine, model: VariantModel, lead_seconds: float, trace: Path | None) -> Profile | Failure:
    """Kernels of three eager micro batches by pass and module, after the timed step ran; the trace is kept there."""

    def seen(marked: AbstractContextManager[None]) -> tuple[Profile, tuple[Launch, ...]] | Failure:
        def steps() -> None:
            with marked:
                for _ in range(STEPS_PROFILED):
                    model.eager_step()

        def lead() -> object:
            return model.measure(lead_seconds)

        return profile_under_load(engine.profile, engine.synchronize, lead, steps, STEPS_PROFILED, trace)

    unplaced = ""
    try:
        outcome = seen(told_modules(told_parts(model.stack.layers), engine.annotate))
    except RuntimeError as error:
        if fatal(error):
            raise
        unplaced = f"{type(error).__name__}: {error}"[:500]
        outcome = seen(nullcontext())  # kernels without their modules are better than none
    return outcome if isinstance(outcome, Failure) else replace(outcome[0], unplaced=unplaced)
