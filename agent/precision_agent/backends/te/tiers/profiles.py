"""Profiles of what was timed: each right after the same load, so that the clock is that of the timed windows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from precision_agent.backends.profiler import profile_under_load, told_modules
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.session.graphs import fatal
from precision_agent.backends.te.steps.modules import told_parts
from precision_agent.backends.te.tiers.gemm_tier import PROFILED_STEPS, Unit
from precision_agent.backends.te.tiers.training_tier import VariantModel
from precision_agent.backends.trace import Launch, shares
from precision_agent.protocol import KernelSeconds, Profile
from precision_api.exchange.result import Failure
from precision_api.models.shapes import PASSES, Pass

STEPS_PROFILED = 3
"""Of a training step."""


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

    outcome = profile_under_load(engine.profile, engine.synchronize, lead, steps, PROFILED_STEPS, trace)
    if isinstance(outcome, Failure):
        return outcome
    profile, launched = outcome
    return profile, [
        {pass_: _of_one(shares(launched, f"{place} {pass_}", PROFILED_STEPS), unit) for pass_ in PASSES}
        for place, unit in enumerate(units)
    ]


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
