"""Profiles of what was timed: each right after the same load, so that the clock is that of the timed windows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from precision_agent.backends.profiler import profile_under_load, told_modules
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.session.graphs import fatal
from precision_agent.backends.te.steps.modules import told_parts
from precision_agent.backends.te.tiers.gemm_tier import PROFILED_STEPS, Unit
from precision_agent.backends.te.tiers.training_tier import VariantModel
from precision_agent.backends.trace import Launch, gaps, kernels, placed, shares
from precision_agent.cases import GemmCase, module_of
from precision_agent.protocol import KernelSeconds, Profile, ProfiledKernel
from precision_api.exchange.result import Failure
from precision_api.models.shapes import PASSES, Pass

STEPS_PROFILED = 3
"""Of a training step."""


def profile_of_units(
    engine: Engine,
    units: Sequence[Unit],
    lead_seconds: float,
    trace: Path | None,
    cases: Sequence[Sequence[GemmCase]] = (),
) -> tuple[Profile, Sequence[dict[Pass, KernelSeconds]]] | Failure:
    """Kernels of steps of each unit in turn, as they are timed, after all units ran in turn; by unit and pass, of a
    single GEMM. With each unit's `cases` the kernels are of all GEMMs of the full model.

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
    rows = tuple(_of_model(launched, units, cases)) if cases else profile.kernels
    return replace(profile, kernels=rows), by_unit


def _of_model(
    launched: Sequence[Launch], units: Sequence[Unit], cases: Sequence[Sequence[GemmCase]]
) -> Iterator[ProfiledKernel]:
    """The kernels of each GEMM in its module, as often as the model has it."""
    for place, (unit, timed) in enumerate(zip(units, cases, strict=True)):
        for pass_ in PASSES:
            count = sum({case.name: case.count for case in timed if case.pass_ == pass_}.values())
            inside = [launch for launch in launched if launch.region == f"{place} {pass_}"]
            for row in kernels(inside, PROFILED_STEPS):
                yield replace(row, seconds=row.seconds * count / unit.copies, module=module_of(timed[0]))


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
    """Kernels of three micro batches by pass and module, after the timed step ran; the eager ones' trace is kept there.

    Of replays of the graphs that are timed, with modules as in the eager ones of the first profile; without graphs or
    modules, or where they ran other GEMMs, of eager ones themselves.
    """

    def seen(
        marked: AbstractContextManager[None], step: Callable[[], None], keep: Path | None
    ) -> tuple[Profile, tuple[Launch, ...]] | Failure:
        def steps() -> None:
            with marked:
                for _ in range(STEPS_PROFILED):
                    step()

        def lead() -> object:
            return model.measure(lead_seconds)

        return profile_under_load(engine.profile, engine.synchronize, lead, steps, STEPS_PROFILED, keep)

    def replayed() -> Profile | None:
        outcome = seen(nullcontext(), model.replayed_step, None) if model.eager else None
        launched = placed(outcome[1], model.eager) if isinstance(outcome, tuple) else ()
        if not isinstance(outcome, tuple) or not launched:
            model.eager = ()
            return None
        return replace(outcome[0], kernels=kernels(launched, STEPS_PROFILED), gaps=sum(gaps(launched).values()))

    profile, unplaced = replayed(), ""
    if profile:
        return profile
    try:
        outcome = seen(
            told_modules(told_parts(model.stack.layers, model.stack.parts), engine.annotate), model.eager_step, trace
        )
    except RuntimeError as error:
        if fatal(error):
            raise
        unplaced = f"{type(error).__name__}: {error}"[:500]
        outcome = seen(nullcontext(), model.eager_step, trace)  # kernels without their modules are better than none
    if isinstance(outcome, Failure):
        return outcome
    if model.program.execution == "graph" and not unplaced:
        model.eager = outcome[1]
    return replayed() or replace(outcome[0], unplaced=unplaced)
