"""Is the same step slower after a profiler has run in its process?

torch's profiler leaves CUPTI attached (its TEARDOWN_CUPTI is off), and steps 10 to 20 % slower after it were reported
(pytorch issue 144455). The agent therefore profiles after the last timed window: this says whether it has to.
"""

from collections.abc import Mapping, Sequence
from statistics import median, stdev
from typing import Any

from benchmarks.first_day.checks import Check, between
from benchmarks.first_day.device import bench, clock
from benchmarks.first_day.steps import Context
from precision_api.facts.recipes import Recipe

LARGE, SMALL = (8192, 4096, 14336), (1024, 1024, 1024)
UNITS: Mapping[str, tuple[Recipe, tuple[int, int, int]]] = {
    "bf16, large": ("bf16", LARGE),
    "fp8_current, large": ("fp8_current", LARGE),
    "fp8_current, small": ("fp8_current", SMALL),
}
"""Bound by the GPU's arithmetic, and by its launches: what stays attached costs some time a launch."""
WINDOWS, WINDOW_SECONDS, WARM_UP_SECONDS = 8, 0.2, 2.0
LEAST_TOLERANCE, MOST_TOLERANCE = 0.01, 0.05
"""What was reported is 0.1 to 0.2."""
WHY = "the method holds if nothing changes; what differs shows why the agent profiles last"


def run(context: Context) -> None:
    """Measures every layer before the process' first profile, then after it: graphs, and kernel by kernel."""
    gpu = bench()
    with gpu.engine.stream(), clock() as sm_clock:
        units = {name: gpu.unit(*shape, recipe) for name, (recipe, shape) in UNITS.items()}
        before = {name: _windows(unit, sm_clock) for name, unit in units.items()}
        gpu.profile(list(units.values()), 0.5)
        after = {name: _windows(unit, sm_clock) for name, unit in units.items()}
    for name in units:
        for way in ("graph", "eager"):
            _compare(context, f"{name}, {way}", before[name][way], after[name][way])


def eager(unit: Any) -> None:
    """Takes the unit's graphs away: every region is launched kernel by kernel, at a pace of its own."""
    for region in unit.program.regions:
        unit.program._run[region.name, region.batch_kind] = region.work
    unit.program.cycle_seconds = 0.0


def _windows(unit: Any, sm_clock: Any) -> dict[str, dict[str, Any]]:
    graphs, pace = dict(unit.program._run), unit.program.cycle_seconds
    unit.measure(WARM_UP_SECONDS)
    windows = {"graph": _seconds(unit, sm_clock)}
    eager(unit)
    unit.measure(WINDOW_SECONDS)
    windows["eager"] = _seconds(unit, sm_clock)
    unit.program._run, unit.program.cycle_seconds = graphs, pace
    return windows


def _seconds(unit: Any, sm_clock: Any) -> dict[str, Any]:
    loops = [unit.measure(WINDOW_SECONDS) for _ in range(WINDOWS)]
    seconds = [sum(loop.seconds[key] * loop.runs[key] for key in loop.seconds) for loop in loops]
    return {"seconds": seconds, "sm_mhz": sm_clock.mhz(loops[0].start, loops[-1].end)}


def _compare(context: Context, name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    comparison = compared(before["seconds"], after["seconds"])
    context.book.fact(name, {"before": before, "after": after, **comparison})
    context.book.check(verdict(name, comparison))


def compared(before: Sequence[float], after: Sequence[float]) -> dict[str, float]:
    """Ratio of the medians; that of the two halves before, which shows drift; and what no difference may come to."""
    half = len(before) // 2
    control = median(before[half:]) / median(before[:half])
    spread = stdev([*(seconds / median(before) for seconds in before), *(seconds / median(after) for seconds in after)])
    tolerance = max(LEAST_TOLERANCE, 2 * abs(control - 1), 2 * spread / half**0.5)
    return {"ratio": median(after) / median(before), "control_ratio": control, "tolerance": tolerance}


def verdict(name: str, comparison: Mapping[str, float]) -> Check:
    """Windows that differ among themselves by more than the effect that is looked for show nothing."""
    tolerance = comparison["tolerance"]
    if tolerance > MOST_TOLERANCE:
        spread = f"windows differ by {tolerance:.1%} among themselves"
        return Check(f"after over before, {name}", "1", spread, "not measured", WHY)
    return between(f"after over before, {name}", comparison["ratio"], 1 - tolerance, 1 + tolerance, "", WHY)
