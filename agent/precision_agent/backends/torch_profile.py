"""A profile of plain torch's training step, right after the same load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

from precision_agent.backends.profiler import profiled, told_modules
from precision_agent.backends.torch_step import ShortModel, timed
from precision_agent.backends.trace import kernel_seconds, kernels, launches
from precision_agent.protocol import NO_KERNELS, Profile, window_of_profile
from precision_api.exchange.result import Failure

PROFILED_STEPS = 10


def profile_of_steps(
    model: ShortModel, lead_seconds: float, wait: Callable[[], None], trace: Path | None
) -> Profile | Failure:
    """Kernels of PROFILED_STEPS micro batches by pass and module, after `lead_seconds` of timed ones."""
    began = ready = start = monotonic()

    def lead() -> None:
        nonlocal began, ready
        began = monotonic()
        timed(model, lead_seconds, wait)
        ready = monotonic()

    def steps() -> None:
        nonlocal start
        for _ in range(PROFILED_STEPS):
            model.step(lambda: None)
        wait()
        start = window_of_profile(began, ready)

    with told_modules(model.told_parts()):
        launched = launches(profiled(steps, wait, trace, lead))
    if not launched:
        return NO_KERNELS
    rows, whole = kernels(launched, PROFILED_STEPS), kernel_seconds(launched, PROFILED_STEPS)
    return Profile(rows, whole, PROFILED_STEPS, start, monotonic())
