"""Three ways to say how much faster FP8's GEMMs are, in turns on one GPU: how far apart their answers lie.

NVIDIA's own benchmark_gemm.py (brought along, --nvidia-script), the same method by the agent (`--method nvidia`), and
the agent's ABBA blocks with as many timed seconds as the script takes. The spread from turn to turn is the answer.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks import nvidia_gemm
from benchmarks.first_day.agent_runs import agent
from benchmarks.first_day.checks import between, holds
from benchmarks.first_day.steps import Context
from precision_api.exchange.request import request_json
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.recipes import Recipe
from precision_api.models.presets import PresetName
from precision_api.models.shapes import Shape

PRESET: PresetName = "llama3-8b"
LEAST_TIMED_SECONDS = 6.0
"""Of our ABBA blocks: segments of a quarter second. The script's own, some tenths of a second, would be shorter than a
segment may be."""
METHODS = ("script", "method", "blocks")
AGREEMENT = 0.02
SPREAD_GOAL = 0.003


def run(context: Context) -> None:
    """As many turns as the time allows; how many there are of those that were asked for is a check."""
    script = context.nvidia_script
    if script is None or not script.is_file():
        raise RuntimeError("give --nvidia-script PATH: benchmarks/gemm/benchmark_gemm.py of Transformer Engine")
    recipe: Recipe = context.recipe  # type: ignore[assignment]
    shapes = nvidia_gemm.forward_shapes(PRESET)
    turns: list[dict[str, Any]] = []
    began = time.monotonic()
    for number in range(context.first_turn, context.turns):
        spent = time.monotonic() - began
        if turns and spent + 1.1 * max(turn["seconds"] for turn in turns) > context.seconds:
            break
        left = context.seconds - spent
        turns.append(_turn(context, script, shapes, recipe, number, left))
        context.book.fact("turns", turns)
    wanted = context.turns - context.first_turn
    context.book.check(
        holds("turns within the time", str(wanted), len(turns) == wanted,
              str(wanted) if len(turns) == wanted
              else f"{len(turns)}; the rest in another command: --first-turn {context.first_turn + len(turns)}")
    )  # fmt: skip
    context.book.fact("spreads", spreads(turns))
    context.book.check(*checks_of(spreads(turns)))


def _turn(
    context: Context, script: Path, shapes: Sequence[Shape], recipe: Recipe, number: int, left: float
) -> dict[str, Any]:
    """Speedups of one turn by method; None with the reason where one failed, and the others go on."""
    began = time.monotonic()
    turn: dict[str, Any] = {"turn": number, "began": time.time(), "errors": {}}
    rows: dict[str, nvidia_gemm.Row] = {}

    def by_script() -> dict[str, Any]:
        rows.update(_table(script, shapes, recipe, left))
        return {"speedup": nvidia_gemm.speedup(rows, recipe), "seconds_by_shape": rows}

    def by_method() -> dict[str, Any]:
        return _by_method(context, shapes, recipe, number, left)

    def by_blocks() -> dict[str, Any]:
        timed = nvidia_gemm.timed_seconds(rows, recipe) if rows else 0.0
        return _by_blocks(context, shapes, recipe, number, max(LEAST_TIMED_SECONDS, timed), left)

    ways: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
        ("script", by_script), ("method", by_method), ("blocks", by_blocks)
    )  # fmt: skip
    for name, way in ways:
        try:
            turn[name] = way()
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            turn[name] = None
            turn["errors"][name] = f"{type(error).__name__}: {error}"[:1000]
            print(f"turn {number}, {name}: {turn['errors'][name]}", flush=True)
    turn["seconds"] = round(time.monotonic() - began, 1)
    return turn


def _table(script: Path, shapes: Sequence[Shape], recipe: Recipe, left: float) -> dict[str, nvidia_gemm.Row]:
    with tempfile.TemporaryDirectory() as folder:
        command = nvidia_gemm.nvidia_command(script, shapes, recipe, Path(folder) / "plot.png")
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=left)
    print(ran.stdout, flush=True)
    if ran.returncode:
        raise RuntimeError(f"{script.name} ended with code {ran.returncode}: its words stand above")
    return nvidia_gemm.parse(ran.stdout)


def _by_method(context: Context, shapes: Sequence[Shape], recipe: Recipe, number: int, left: float) -> dict[str, Any]:
    named = [word for shape in shapes for word in ("--shape", f"{shape.m}x{shape.k}x{shape.n}")]
    arguments = ["--local", *named, "--recipe", "bf16", "--recipe", recipe, "--mode", "autocast"]
    arguments += ["--method", "nvidia", "--repeats", "1"]
    result = agent(arguments, context.results / f"nvidia-method-{number}.json", left)
    return {"speedup": forward_speedup(result, recipe)}


def _by_blocks(
    context: Context, shapes: Sequence[Shape], recipe: Recipe, number: int, timed: float, left: float
) -> dict[str, Any]:
    request = nvidia_gemm.request_of(shapes, recipe, timed, number)
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request.json"
        asked.write_text(request_json(request), encoding="utf-8")
        output = context.results / f"nvidia-blocks-{number}.json"
        result = agent(["--request", str(asked), "--backend", "transformer-engine"], output, left)
    speedup = nvidia_gemm.ours(result, recipe)
    if speedup is None:
        raise RuntimeError("our blocks have no sum of all GEMMs: the result says why")
    return {"speedup": speedup[0], "half_width": speedup[1], "forward_speedup": forward_speedup(result, recipe)}


def forward_speedup(result: MeasurementResult, recipe: Recipe) -> float | None:
    """BF16's time over the recipe's of the forward GEMMs, as the script sums them; None where one has no figure."""
    seconds = {}
    for row in result.recipes:
        forward = [gemm for gemm in row.gemms if gemm.pass_ == "fprop" and gemm.mode == "autocast"]
        intervals = [gemm.seconds.value for gemm in forward if gemm.seconds]
        if forward and len(intervals) == len(forward):
            seconds[row.recipe] = sum(intervals)
    return seconds["bf16"] / seconds[recipe] if {"bf16", recipe} <= set(seconds) else None


def spreads(turns: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | int | None]]:
    """Of each method: how many turns have a speedup, their mean, and standard deviation over mean (from two on)."""
    by_method: dict[str, dict[str, float | int | None]] = {}
    for name in METHODS:
        values = [turn[name]["speedup"] for turn in turns if turn.get(name) and turn[name]["speedup"]]
        widths = [turn[name]["half_width"] for turn in turns if turn.get(name) and "half_width" in turn[name]]
        by_method[name] = {
            "turns": len(values),
            "mean": fmean(values) if values else None,
            "relative_spread": stdev(values) / fmean(values) if len(values) > 1 else None,
            "mean_half_width": fmean(widths) if widths else None,
        }
    forward = [turn["blocks"]["forward_speedup"] for turn in turns if turn.get("blocks")]
    known = [value for value in forward if value]
    by_method["blocks, forward only"] = {"turns": len(known), "mean": fmean(known) if known else None}
    return by_method


def checks_of(by_method: dict[str, dict[str, float | int | None]]) -> tuple[Any, ...]:
    """Our blocks repeat within their goal, and closer than the script; `--method nvidia` agrees with it."""
    script, method, blocks = (by_method[name] for name in METHODS)
    theirs, ours = script["relative_spread"], blocks["relative_spread"]
    both = theirs is not None and ours is not None
    means = script["mean"], method["mean"]
    ratio = means[1] / means[0] if means[0] and means[1] else None
    return (
        between("spread of our blocks from turn to turn", ours, 0.0, SPREAD_GOAL, "", "benchmarks/README.md"),
        holds("our blocks repeat more closely than the script", "so", both and ours <= theirs if both else None,  # type: ignore[operator]
              f"{ours} against {theirs}"),
        between("`--method nvidia` over the script it repeats", ratio, 1 - AGREEMENT, 1 + AGREEMENT),
    )  # fmt: skip
