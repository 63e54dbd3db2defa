"""What the steps that drive Transformer Engine themselves share: its door, its recipes here, and the GPU's SM clock."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from precision_agent.power import nvml, sensor_sampling
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import RECIPE_NAMES, Recipe, support


class NoProfile(RuntimeError):
    """The profiler saw nothing of use."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Transformer Engine's API, the engine of the first GPU, and the recipes that its hardware has."""

    api: Any
    engine: Any
    recipes: tuple[Recipe, ...]

    def profile(self, units: Sequence[Any], lead_seconds: float) -> tuple[Any, Sequence[Any]]:
        """Kernels of the units after so much load of them, in all and by unit and pass. NoProfile says why not."""
        from precision_agent.backends.te.tiers.profiles import profile_of_units

        profile = profile_of_units(self.engine, units, lead_seconds, None)
        if isinstance(profile, Failure):
            raise NoProfile(f"{profile.reason}: {profile.message}")
        return profile

    def unit(self, m: int, k: int, n: int, recipe: Recipe) -> Any:
        """A layer of the agent's own GEMM tier, checked and captured. RuntimeError where its numbers are wrong."""
        from precision_agent.backends.te.steps.modules import LinearShape
        from precision_agent.backends.te.tiers.gemm_tier import Unit

        made = Unit(self.api, self.engine, LinearShape(m, k, n), recipe, 8, seed=0)
        wrong = made.prepare()
        if wrong:
            raise RuntimeError(f"{recipe}: {wrong.reason}: {wrong.message}")
        return made


def bench() -> Bench:
    """The bench; an ImportError or RuntimeError says what is missing."""
    import torch

    from precision_agent.backends.te.api import load
    from precision_agent.backends.te.session.engine import CudaEngine

    api = load()
    engine = CudaEngine()
    compute = torch.cuda.get_device_capability()
    return Bench(api, engine, tuple(recipe for recipe in RECIPE_NAMES if support(recipe, compute) == "native"))


class Clock:
    """The first GPU's SM clock while something ran, from the agent's own sampler."""

    def __init__(self, sampler: sensor_sampling.Sampler | None, why: str = "") -> None:
        self._sampler, self.why = sampler, why

    def mhz(self, start: float, end: float) -> float | None:
        """Mean SM clock (MHz) from `start` to `end` (time.monotonic); the sample nearest to a window without any."""
        if self._sampler is None:
            return None
        time.sleep(2 * sensor_sampling.LEAST_INTERVAL_SECONDS)  # the row after the window
        rows = [row for recording in self._sampler.recordings().gpus.values() for row in recording.sm_mhz]
        inside = [mhz for at, mhz in rows if start <= at <= end]
        nearest = sorted(rows, key=lambda row: abs(row[0] - (start + end) / 2))[:1]
        return fmean(inside or [mhz for _, mhz in nearest]) if rows else None


@contextmanager
def clock() -> Iterator[Clock]:
    """A sampler of the first GPU that NVML shows; without one the clock tells nothing, and why."""
    reading = nvml.read()
    if not reading.gpus:
        yield Clock(None, reading.failure.message if reading.failure else "NVML shows no GPU")
        return
    with tempfile.TemporaryDirectory() as folder:
        sampler = sensor_sampling.start([reading.gpus[0].uuid], Path(folder))
        if isinstance(sampler, Failure):
            yield Clock(None, sampler.message)
            return
        with sampler:
            yield Clock(sampler)
