"""What is done with a variant's model once it stands: a timed sample, a window under power."""

import time
from collections.abc import Iterator

from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.tiers.training_tier import VariantModel, regions_of
from precision_agent.protocol import Part, Sample


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
        dense_measured=model.shared.trial.dense,
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
