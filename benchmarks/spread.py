"""How far apart the speedups of repeated runs lie, and what the agent itself costs.

    python -m benchmarks.spread simulate                          what the order and the statistics can give
    python -m benchmarks.spread rates                             how often rates' intervals hold over several days
    python -m benchmarks.spread overhead                          sampling and statistics for each timed window
    python -m benchmarks.spread repeat --runs 5 [OPTIONS]         repeated local runs here, beside NVIDIA's method

`repeat` passes OPTIONS to `precision-agent run --local` (for example --preset llama3-8b) and needs a GPU for a figure
that means anything; with --device cpu it shows the way only.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from benchmarks.plan import five_recipes
from precision_agent.run.run import run_request
from precision_api.exchange.request import TIMINGS, Timing, request_json
from precision_api.exchange.result import Interval, MeasurementResult
from precision_api.exchange.stats import mean_interval, rate_interval
from tests.support.noise import (
    DAYS,
    DRIFT,
    HALF_WIDTH_GOALS,
    KINDS,
    NOISES,
    RUNS,
    abba_order,
    called_different,
    coverage,
    half_width,
    holds,
    rates_of_runs,
    ratios,
    seconds_by_variant,
    units_of,
)

OWN_CHANCES = (0.0, 0.0005, 0.001, 0.0015, 0.002)
"""Relative standard deviations of a stretch. The table takes 0.1 % where clocks drift; a GPU's own is not known."""


def simulate() -> None:
    """Median half-width and coverage of 95 % intervals over 4,000 nodes, for each kind of noise and figure."""
    print("Simulated, not measured: visits of the timings that requests have, GEMMs and training step in each.")
    print(f"{'NOISE':<30}{'TIMING':<10}{'FIGURE':<10}{'HALF-WIDTH':>11}{'COVERED':>18}{'EQUAL CALLED DIFFERENT':>24}")
    for name, noise in NOISES.items():
        for preset, timing in TIMINGS.items():
            order = abba_order(timing)
            equal = seconds_by_variant(noise, order, timing, seed=1, equal=True)
            other = seconds_by_variant(noise, order, timing, seed=2)
            for kind in KINDS:
                estimated, truth = ratios(units_of(equal[kind])), ratios(units_of(other[kind]))
                held, wrong = coverage(truth), called_different(estimated).mean(axis=0).max()
                covered = f"{held.min():.1%} to {held.max():.1%}"
                print(f"{name:<30}{preset:<10}{kind:<10}{half_width(estimated):>11.2%}{covered:>18}{wrong:>24.1%}")
    print(f"\nHalf-width of the training figure with {DRIFT}, by the chance that each stretch has of its own:")
    for preset, timing in TIMINGS.items():
        rows = [f"{own:.2%}: {drifting(timing, own):.2%}" for own in OWN_CHANCES]
        print(f"{preset:<10}{'   '.join(rows)}   (goal {HALF_WIDTH_GOALS[preset]:.2%})")


def rates() -> None:
    """How often 95 % intervals of tokens/s hold the long-run rate: 4,000 nodes, each with a run on a day of its own."""
    print(f"Simulated, not measured: a rate differs by {DAYS:.1%} between days, and within a run as named.")
    print(f"{'WITHIN A RUN':<22}SIZE  {'TIMING':<10}{'HALF-WIDTH':>10}{'HELD':>7}{'T-INTERVAL':>12}{'SAME DAY':>10}")
    for (name, noise), size in itertools.product(RUNS.items(), (1, 2)):
        for preset, timing in TIMINGS.items():
            days, same_day = rates_of_runs(noise, timing, seed=1, size=size)
            held, half = holds(days, rate_interval)
            within = [f"{holds(runs, mean_interval)[0]:.1%}" for runs in (days, same_day)]
            print(f"{name:<22}{size:>3}x  {preset:<10}{half:>10.2%}{held:>7.1%}{within[0]:>12}{within[1]:>10}")
    print("T-INTERVAL: of the run's blocks alone, as ratios have it; SAME DAY: of these, where no day differs.")


def drifting(timing: Timing, chance: float) -> float:
    """Median half-width of the training figure under drift, with this much chance in each stretch."""
    noise = replace(NOISES[DRIFT], own=chance)
    seconds = seconds_by_variant(noise, abba_order(timing), timing, seed=1, equal=True)["training"]
    return half_width(ratios(units_of(seconds)))


def overhead() -> None:
    """Seconds of the agent's own work for each timed window, from a replay that waits for nothing."""
    for timing in TIMINGS:
        request = five_recipes(timing, gpus=4)
        began = time.perf_counter()
        outcome = run_request(request_json(request), "replay")
        spent = time.perf_counter() - began
        assert outcome.result, "a replay of a known product gives a result"
        segments = 2 * request.timing.passes * 6 * 2
        share = spent / segments / request.timing.segment_seconds
        print(f"{timing}: {spent:.2f} s for {segments} segments on 4 replayed GPUs: {spent / segments * 1e3:.1f} ms "
              f"each, {share:.2%} of a segment of {request.timing.segment_seconds:g} s")  # fmt: skip


def speedups(result: MeasurementResult) -> Iterator[tuple[str, Interval]]:
    """Each recipe's speedup of training, else of its GEMMs with their quantisation."""
    for row in result.recipes:
        training = row.training.speedup if row.training else None
        speedup = training or next((part.speedup for part in row.sums if part.speedup), None)
        if speedup:
            yield row.recipe, speedup


def measured(options: Sequence[str], folder: Path, name: str) -> MeasurementResult:
    """One local run; SystemExit with its words where there is no result."""
    file = folder / f"{name}.json"
    command = [sys.executable, "-m", "precision_agent", "run", "--local", "--output", str(file), *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode or not file.exists():
        raise SystemExit(ran.stderr.strip() or f"{' '.join(command)}: exit code {ran.returncode}")
    return MeasurementResult.model_validate_json(file.read_bytes())


def repeat(runs: int, options: Sequence[str]) -> None:
    """Half-width within a run and spread between runs, ours and that of NVIDIA's method."""
    with tempfile.TemporaryDirectory() as folder:
        ours = [measured(options, Path(folder), f"run-{index}") for index in range(runs)]
        nvidia = ["--method", "nvidia", "--repeats", "1", *options]
        theirs = [measured(nvidia, Path(folder), f"nvidia-{index}") for index in range(runs)]
    kind = ours[0].gpus[0].name if ours[0].gpus else ours[0].product
    print(f"{kind}, {ours[0].workload_name}, {runs} runs of each, {ours[0].software.stack_hash}")
    print(f"{'RECIPE':<14}{'METHOD':<8}{'SPEEDUP':>9}{'RUN TO RUN':>12}{'HALF-WIDTH IN A RUN':>21}")
    for method, results in (("agent", ours), ("nvidia", theirs)):
        by_recipe: dict[str, list[Interval]] = {}
        for result in results:
            for recipe, interval in speedups(result):
                by_recipe.setdefault(recipe, []).append(interval)
        for recipe, intervals in by_recipe.items():
            values = [one.value for one in intervals]
            spread = (max(values) - min(values)) / fmean(values)
            half = median((one.upper - one.lower) / 2 / one.value for one in intervals)
            within = f"{half:.2%}" if intervals[0].n > 1 else "none"
            print(f"{recipe:<14}{method:<8}{fmean(values):>8.3f}x{spread:>12.2%}{within:>21}")
    print(json.dumps({"noise_floor": [result.noise_floor for result in ours]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("simulate", "rates", "overhead", "repeat"))
    parser.add_argument("--runs", type=int, default=5)
    arguments, options = parser.parse_known_args()
    if arguments.what == "repeat":
        repeat(arguments.runs, options)
    else:
        {"simulate": simulate, "rates": rates, "overhead": overhead}[arguments.what]()


if __name__ == "__main__":
    main()
