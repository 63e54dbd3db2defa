"""Do kernel shares seen on a cold, boosting GPU differ from those under load, and by what the SM clock explains?

A GEMM takes as many cycles at any SM clock, a cast that waits for memory as many seconds. Shares of a cold GPU, applied
to times of a hot one, make kernel-only speedups too high.
"""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.first_day.checks import between
from benchmarks.first_day.device import Bench, Clock, bench, clock
from benchmarks.first_day.steps import Context
from precision_api.facts.recipes import Recipe

M, K, N = 8192, 4096, 14336
REST_SECONDS, LOAD_SECONDS, LEAD_SECONDS = 6.0, 8.0, 0.4
PROFILES = 3
FIT = 0.02
"""Shares may differ by so much from what the clock explains."""
REVIEWED: Mapping[Recipe, tuple[float, float]] = {
    "fp8_current": (0.02, 0.07), "mxfp8": (0.02, 0.08), "nvfp4": (0.04, 0.16),
}  # fmt: skip
"""Worked out from NVIDIA's tables: how much a kernel-only speedup is too high with cold shares, at clock ratios of 1.10
and of 1.39 (1,980 against 1,425 MHz on an H100)."""


def hot_share(cold: float, clock_ratio: float) -> float:
    """The GEMMs' share of kernel time under load, from that of a GPU whose SM clock was `clock_ratio` times as high."""
    return cold * clock_ratio / (cold * clock_ratio + 1 - cold)


def too_high(cold: float, hot: float) -> float:
    """How much a kernel-only speedup is too high where the cold share stands for the hot one: 0.07 is 7 %."""
    return hot / cold - 1


def run(context: Context) -> None:
    """Each recipe that quantises, in turn: at rest, profiles; under load, profiles again."""
    gpu = bench()
    recipes = [recipe for recipe in gpu.recipes if recipe != "bf16"]
    began = time.monotonic()
    with gpu.engine.stream(), clock() as sm_clock:
        if sm_clock.why:
            context.book.fact("no SM clock", sm_clock.why)
        for place, recipe in enumerate(recipes):
            spent = time.monotonic() - began
            if place and spent / place > context.seconds - spent:
                context.book.fact("no time for", list(recipes[place:]))
                return
            _recipe(context, gpu, sm_clock, recipe)


def _recipe(context: Context, gpu: Bench, sm_clock: Clock, recipe: Recipe) -> None:
    unit = gpu.unit(M, K, N, recipe)
    time.sleep(REST_SECONDS)
    cold = [_share(gpu, sm_clock, unit, 0.0)]
    for _ in range(PROFILES - 1):
        time.sleep(1.0)
        cold.append(_share(gpu, sm_clock, unit, 0.0))
    unit.measure(LOAD_SECONDS)
    hot = [_share(gpu, sm_clock, unit, LEAD_SECONDS) for _ in range(PROFILES)]
    del unit
    gpu.engine.release()
    _compare(context, recipe, cold, hot)


def _share(gpu: Bench, sm_clock: Clock, unit: Any, lead: float) -> dict[str, float | None]:
    profile, (by_pass,) = gpu.profile([unit], lead)
    gemm = sum(seconds.gemm for seconds in by_pass.values())
    other = sum(seconds.other for seconds in by_pass.values())
    return {
        "gemm": gemm,
        "other": other,
        "share": gemm / (gemm + other),
        "mhz": sm_clock.mhz(profile.start, profile.end),
    }


def _mean(rows: Sequence[Mapping[str, float | None]], name: str) -> float | None:
    values = [value for row in rows if (value := row[name]) is not None]
    return fmean(values) if values else None


def _compare(
    context: Context,
    recipe: Recipe,
    cold: Sequence[Mapping[str, float | None]],
    hot: Sequence[Mapping[str, float | None]],
) -> None:
    book = context.book
    cold_share, share, cold_mhz, mhz = (
        _mean(rows, name) for name, rows in (("share", cold), ("share", hot), ("mhz", cold), ("mhz", hot))
    )
    assert cold_share is not None
    assert share is not None
    book.fact(recipe, {"cold": list(cold), "hot": list(hot), "too_high": too_high(cold_share, share)})
    if not cold_mhz or not mhz:
        book.check(between(f"{recipe}: GEMMs' share under load", None, 0, 1))
        return
    ratio = cold_mhz / mhz
    wanted = hot_share(cold_share, ratio)
    why = f"share of {cold_share:.3f} at {cold_mhz:.0f} MHz, put at {mhz:.0f} MHz (ratio {ratio:.3f})"
    book.check(between(f"{recipe}: GEMMs' share under load", share, wanted - FIT, wanted + FIT, "", why))
    if recipe in REVIEWED:
        low, high = REVIEWED[recipe]
        reviewed = f"{low:.0%} at a clock ratio of 1.10, {high:.0%} at 1.39; this ratio is {ratio:.3f}"
        most = high * max(1.0, (ratio - 1) / 0.39) + 0.01
        book.check(
            between(f"{recipe}: a cold share makes the speedup too high by", too_high(cold_share, share), -0.01, most,
                    "", reviewed)
        )  # fmt: skip
