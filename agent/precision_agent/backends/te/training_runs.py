"""What is done with a variant's model once it stands: a timed sample, a window under power, profiled steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from precision_agent.backends.profiler import told_modules
from precision_agent.backends.te.engine import Engine
from precision_agent.backends.te.graphs import fatal
from precision_agent.backends.te.modules import told_parts
from precision_agent.backends.te.training_tier import VariantModel, regions_of
from precision_agent.backends.trace import busy, kernels, launches
from precision_agent.protocol import Part, Profile, Sample

STEPS_PROFILED = 3


def training_sample(model: VariantModel, seconds: float) -> Sample:
    """Whole optimizer steps for about so many seconds: seconds of a micro batch, and of each region."""
    timings = model.measure(seconds)
    regions = regions_of(timings)
    return Sample(
        seconds=sum(spent for name, spent in regions.items() if name != "optimizer"),
        calls=timings.cycles * model.shared.problem.accumulation,
        start=timings.start,
        end=timings.end,
        regions=regions,
        layers_measured=model.shared.trial.layers,
        windowed_layers=sum(plan.keywords["window_size"] is not None for plan in model.shared.plans),
        optimizer_parameters=model.shared.optimizer_weights or None,
        execution=model.program.execution,
        execution_reason=model.program.reason,
        weight_gradients=model.shared.problem.weight_gradients,
    )


def window(
    engine: Engine, model: VariantModel, part: Part, seconds: float, waits: Iterator[float] | None, paused_calls: int
) -> Sample:
    """Calls of a part until `seconds` are over; with `waits`, one such pause after each `paused_calls` calls."""
    group = paused_calls if waits else model.calls_in(part, min(0.25, seconds))
    engine.synchronize()
    start = end = time.monotonic()
    calls, worked = 0, 0.0
    while not calls or end - start < seconds:
        began = time.monotonic()
        for _ in range(group):
            model.run(part)
        calls += group
        engine.synchronize()
        end = time.monotonic()
        worked += end - began
        if waits:
            time.sleep(next(waits))
    end = time.monotonic()
    return Sample(
        worked / calls, calls, start, end, running=worked / (end - start) if waits else 1.0,
        execution=model.program.execution, execution_reason=model.program.reason,
    )  # fmt: skip


def profile_of(engine: Engine, model: VariantModel, trace: Path | None) -> Profile:
    """Kernels of three eager steps by pass and module, and how busy the GPU is in the timed ones; trace kept there."""

    def steps() -> None:
        for _ in range(STEPS_PROFILED):
            model.eager_step()

    unplaced = ""
    try:
        with told_modules(told_parts(model.stack.layers), engine.annotate):
            found = launches(engine.profile(steps, trace))
    except RuntimeError as error:
        if fatal(error):
            raise
        unplaced = f"{type(error).__name__}: {error}"[:500]
        found = launches(engine.profile(steps, trace))  # kernels without their modules are better than none
    timed = launches(engine.profile(model.refresh))
    step = sum(seconds for name, seconds in regions_of(model.measure(0.0)).items() if name != "optimizer")
    return Profile(kernels(found, STEPS_PROFILED), step, STEPS_PROFILED, busy(timed), unplaced)
