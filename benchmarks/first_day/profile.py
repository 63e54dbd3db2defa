"""A profile of one model by the agent itself, and what it says of the agent's assumptions.

Held against their expectations: the phases' seconds, kernel names that no rule knows, the power sensor, the clock at
which kernels were profiled, the library's own GEMM call, and how sure the speedups are.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.first_day.agent_runs import agent, planned
from benchmarks.first_day.checks import Check, between, holds
from benchmarks.first_day.steps import Context
from precision_agent.power.reasons import COUNTER_DISAGREES
from precision_agent.precision.verification import Tally, TraceShares
from precision_agent.run.trace_reading import kernels_of
from precision_agent.sampling.profiles import CLOCK_TOLERANCE
from precision_api.exchange.result import Interval, MeasurementResult, RecipeResult
from tests.support.noise import HALF_WIDTH_GOALS

SLACK = 1.25
"""A phase may take so much longer than its allowance before it counts as different."""
SENSOR_AGREEMENT = (0.95, 1.05)
"""Counter over integral within which a sensor counts as calibrated."""
UPDATE_SECONDS = (0.015, 0.12)
"""Published for A100 to B200: sensors are renewed every 20 to 100 ms."""
KERNEL_TIME = (0.95, 1.05)
"""Of a training step: on two H100 0.98 to 1.03."""
OWN_CALL = (0.95, 1.05)
LAUNCH_GAPS = (0.0, 0.3)
"""Of the GEMMs' time: NVFP4's nine or ten kernels of a linear layer are some 1 us apart, of 90 us."""
TAX = (0.0, 0.15)
"""Of the baseline's step: on H100 6.9 to 9.7 %."""
GRADIENT_CASTS = (0.15, 0.4)
"""Of the data gradients' kernel time: on H100 17 to 22 %, when gradients of modules in turn lay in L2."""
NAMES_KEPT = 60


def run(context: Context) -> None:
    """One run with traces; a partial result is looked at all the same."""
    preset = str(context.arguments["preset"])
    arguments = ["--local", "--preset", preset, *context.arguments.get("options", ())]
    plan = planned(arguments)
    with tempfile.TemporaryDirectory() as folder:
        result = agent([*arguments, "--trace", folder], context.results / f"{context.name}.json", context.seconds)
        traces = sorted(Path(folder).glob("trace-*.json"))
        for path in traces:
            _kernels(context, path.stem.removeprefix("trace-"), path)
        for path in traces:
            shutil.move(path, context.traces / f"{context.name}-{path.name}")
    _facts(context, result)
    context.book.check(*checks_of(result, plan))


def _kernels(context: Context, label: str, path: Path) -> None:
    tally = Tally()
    for kernel in kernels_of(str(path), sys.stdin.buffer):
        tally.add(kernel.name, kernel.start, kernel.seconds, kernel.gpu, kernel.stream)
    shares = tally.shares()
    context.book.fact(f"kernels {label}", kernel_record(shares))
    unknown = sum(row.seconds for row in shares.unknown)
    share = unknown / shares.gemm_seconds if shares.gemm_seconds else None
    context.book.check(between(f"{label}: share of GEMM time under names that no rule knows", share, 0.0, 0.0))


def kernel_record(shares: TraceShares) -> dict[str, object]:
    """Shares by class, and the GEMMs' names with their class, rule, launches and seconds, the longest first."""
    rows = [
        {
            "name": row.kernel.name, "class": row.kernel.kernel_class, "rule": row.kernel.rule,
            "launches": row.launches, "seconds": row.seconds,
        }
        for row in shares.gemms[:NAMES_KEPT]
    ]  # fmt: skip
    return {"shares": shares.shares, "streams": shares.streams, "gemms": rows, "others": shares.other_launches}


def _facts(context: Context, result: MeasurementResult) -> None:
    book = context.book
    book.fact("provenance", result.provenance)
    book.fact("software", result.software.model_dump(exclude_none=True))
    book.fact("partial", result.partial and result.partial.model_dump())
    book.fact("phase_seconds", result.phase_seconds)
    book.fact("sensor", result.sensor and result.sensor.model_dump())
    book.fact("steadiness", result.steadiness and result.steadiness.model_dump())
    book.fact("noise_floor", result.noise_floor)
    book.fact("recommendation", result.recommendation.sentence)
    for row in result.recipes:
        book.fact(row.recipe, _figures(row))


def _figures(row: RecipeResult) -> dict[str, object]:
    training = row.training
    energy = training.energy if training else None
    return {
        "availability": row.availability,
        "verdict": row.verification.verdict,
        "speedup": training and training.speedup and training.speedup.model_dump(),
        "training_failure": training and training.failure and training.failure.model_dump(),
        "tokens_per_second": training and training.tokens_per_second and training.tokens_per_second.value,
        "mfu": training and training.mfu and training.mfu.value,
        "gemm_speedups": {total.mode: total.speedup.value for total in row.sums if total.speedup},
        "watts": energy.watts if energy else None,
        "power_invalid": list(energy.reasons) if energy else None,
        "quantization_tax": row.quantization_tax,
        "kernel_time_share": row.kernel_time_share,
        "sm_mhz": row.clocks.sm_mhz if row.clocks else None,
        "memory_agreement": row.model_memory.agreement if row.model_memory else None,
        "meaning": row.meaning.sentence if row.meaning else None,
    }


def checks_of(result: MeasurementResult, plan: Mapping[str, float]) -> Iterator[Check]:
    """Every expectation that a result can confirm, the plan's first (seconds by phase)."""
    for phase, seconds in _phases_in_results(plan).items():
        why = "`precision-agent run --plan`"
        yield between(f"seconds of phase {phase}", result.phase_seconds.get(phase), 0.0, SLACK * seconds, " s", why)
    yield between("seconds of the run", result.duration_seconds, 0.0, SLACK * sum(plan.values()) if plan else inf, " s")
    yield from _sensor_checks(result)
    limits = [gpu.enforced_limit_watts for gpu in result.gpus if gpu.enforced_limit_watts]
    control = result.control_ratio
    yield holds(
        "an equal second baseline is no different", "1 within its interval",
        None if control is None else control.lower <= 1 <= control.upper, _interval(control),
    )  # fmt: skip
    goal = HALF_WIDTH_GOALS["standard" if control and control.n > 4 else "quick"]
    for row in result.recipes:
        yield from _recipe_checks(row, result.baseline, goal)
        watts = row.training and row.training.energy and row.training.energy.watts
        if watts and limits and len(limits) == len(result.gpus) and row.training.energy.scope == "gpu":
            why = "744 of 700 W before pauses were no more taken off at the power cap"
            yield between(f"{row.recipe}: watts over the power limit", watts / sum(limits), 0.0, 1.02, "", why)


def _phases_in_results(plan: Mapping[str, float]) -> dict[str, float]:
    """The plan's seconds by the phases that a result tells: preflight holds idle and start, nobody times publish."""
    seconds_by_phase: dict[str, float] = {}
    for phase, seconds in plan.items():
        name = "preflight" if phase in ("idle", "start") else phase
        seconds_by_phase[name] = seconds_by_phase.get(name, 0.0) + seconds
    return {name: seconds for name, seconds in seconds_by_phase.items() if name != "publish"}


def _sensor_checks(result: MeasurementResult) -> Iterator[Check]:
    sensor = result.sensor
    agreement = sensor.agreement if sensor else None
    yield between("energy counter over integral of power", agreement, *SENSOR_AGREEMENT)
    for name in ("counter_update_seconds", "power_update_seconds"):
        why = "published for A100 to B200; the lab's sensor takes 100 ms"
        yield between(name, getattr(sensor, name, None), *UPDATE_SECONDS, " s", why)


def _recipe_checks(row: RecipeResult, baseline: str, goal: float) -> Iterator[Check]:
    verdict, words = row.verification.verdict, row.verification.message
    yield holds(f"{row.recipe}: the precision ran", "verified", verdict == "verified", f"{verdict} {words}".strip())
    for kernel_profile in row.kernel_profiles:
        clocks = (
            kernel_profile.failure.reason
            if kernel_profile.failure
            else f"{kernel_profile.sm_mhz} MHz, its windows {kernel_profile.windows_sm_mhz} MHz"
        )
        truth = False if kernel_profile.failure else None if kernel_profile.sm_mhz is None else True
        yield holds(
            f"{row.recipe}: {kernel_profile.load} profiled at its windows' clock",
            f"within {CLOCK_TOLERANCE:.0%}",
            truth,
            clocks,
        )
        if kernel_profile.load == "training" and row.availability == "ok":
            gaps = kernel_profile.launch_gaps
            words = f"gaps of {gaps * 1e3:.3g} ms" if gaps is not None else "eager kernels"
            # experts run on several streams at once, in no order that replays repeat
            truth = gaps is not None or (None if any(note.startswith("experts:") for note in row.notes) else False)
            yield holds(f"{row.recipe}: a training step's graphs, replayed, name its kernels", "gaps", truth, words)
    yield between(f"{row.recipe}: kernel time over the timed step", row.kernel_time_share, *KERNEL_TIME)
    yield between(f"{row.recipe}: the library's own GEMM call over kernel-only time", own_call(row), *OWN_CALL)
    alone = next((part for part in row.sums if part.mode == "prequantized"), None)
    if alone and row.availability == "ok":
        share = (
            alone.launch_gaps / (alone.seconds.value + alone.launch_gaps)
            if alone.seconds and alone.launch_gaps
            else None
        )
        why = "graphs' replays tell their kernels by region"
        yield between(f"{row.recipe}: launch gaps beside kernel-only time", share, *LAUNCH_GAPS, "", why)
    if row.training and row.availability == "ok":
        failed = row.training.failure
        yield holds(f"{row.recipe}: a training step", "a rate", failed is None, failed.message if failed else "a rate")
    speedup = row.training.speedup if row.training else None
    if row.recipe != baseline and row.availability == "ok":
        half = (speedup.upper - speedup.lower) / 2 / speedup.value if speedup else None
        yield between(f"{row.recipe}: half-width of the training speedup", half, 0.0, goal, "", "benchmarks/README.md")
        yield between(f"{row.recipe}: quantisation tax", row.quantization_tax, *TAX)
        yield between(f"{row.recipe}: casts of data gradients", row.gradient_quantization_share, *GRADIENT_CASTS)
    if row.training and row.training.energy:
        off = COUNTER_DISAGREES.name in row.training.energy.reasons
        yield holds(f"{row.recipe}: counter and integral of all windows", "agree", not off, "apart" if off else "agree")
    if row.loss and row.loss.verdict:
        yield holds(f"{row.recipe}: loss runs", "healthy", row.loss.verdict == "healthy", row.loss.verdict)
    if row.model_memory:
        for part, ratio in row.model_memory.agreement.items():
            yield between(f"{row.recipe}: memory measured over formula, {part}", ratio, 0.9, 1.1)


def own_call(row: RecipeResult) -> float | None:
    """Median over the GEMMs of the library's own call over the kernel-only seconds; None without any."""
    pairs = [
        gemm.own_call_seconds.value / gemm.seconds.value
        for gemm in row.gemms
        if gemm.mode == "prequantized" and gemm.own_call_seconds and gemm.seconds
    ]
    return median(pairs) if pairs else None


def _interval(interval: Interval | None) -> str:
    return (
        f"{interval.value:.5f} ({interval.lower:.5f} to {interval.upper:.5f}, n={interval.n})"
        if interval
        else "nothing"
    )
