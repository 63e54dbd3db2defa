"""Our GEMM figures beside those of NVIDIA's own benchmark_gemm.py, on one GPU, in turns.

    python -m benchmarks.nvidia_gemm SCRIPT [--preset llama3-8b] [--recipe fp8_current] [--runs 5] [--json FILE]

SCRIPT is `benchmarks/gemm/benchmark_gemm.py` of Transformer Engine 2.19 or newer. Each turn runs it, then the agent
with the same shapes and as many timed seconds. Told are the speedups over BF16: the spread of NVIDIA's over the runs,
ours with the mean half-width of its intervals. The two measure different things (theirs is forward only, against a bare
matmul), so only the spreads are compared; `precision-agent run --method nvidia` should agree with theirs. Needs a GPU
with Transformer Engine, and matplotlib for the script: it has not been run on one yet.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from precision_api.exchange.request import MeasurementRequest, RequestNode, Timing, request_json
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.recipes import Recipe
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.shapes import Shape
from precision_api.models.workload import Workload, resolve

COLUMNS: Mapping[str, Recipe] = {
    "BF16": "bf16",
    "FP8Cur": "fp8_current",
    "FP8Del": "fp8_delayed",
    "FP8Block": "fp8_block",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
}
"""Headings of NVIDIA's table, each with a column of TFLOPS and one of milliseconds."""
LEAVE_OUT: Mapping[Recipe, str] = {
    "fp8_current": "--no-fp8-current",
    "fp8_delayed": "--no-fp8-delayed",
    "fp8_block": "--no-fp8-block",
    "mxfp8": "--no-fp8",
    "nvfp4": "--no-fp4",
}
"""Switches of NVIDIA's script, which ends at the first format that the GPU lacks."""
WARM_UP_SECONDS = 5.0
ITERATIONS = 100
Row = Mapping[Recipe, float | None]
"""Seconds of one shape by recipe; None where the tool says N/A."""


@dataclass(frozen=True)
class Turn:
    """Speedups over BF16 of one turn, and the half-width of ours."""

    theirs: float | None
    ours: float | None
    half_width: float | None


def parse(text: str) -> dict[str, Row]:
    """NVIDIA's table, seconds by shape and recipe. Raises ValueError where there is no such table."""
    header = next((line for line in text.splitlines() if line.startswith("Shape") and "BF16 ms" in line), None)
    if header is None:
        raise ValueError("no table with a heading 'Shape ... BF16 ms': is this benchmark_gemm.py's output?")
    recipes = [COLUMNS[name] for name in re.findall(r"(\w+) ms\b", header)]
    rows = {}
    for line in text.splitlines():
        match = re.match(r"(\d+x\d+x\d+)\s+(.+)", line)
        if match:
            cells = match[2].split()
            rows[match[1]] = {recipe: _seconds(cells[2 * index + 1]) for index, recipe in enumerate(recipes)}
    return rows


def _seconds(cell: str) -> float | None:
    try:
        value = float(cell) * 1e-3
    except ValueError:
        return None
    return value if value > 0 else None  # the tool writes 0 for what failed


def speedup(rows: Mapping[str, Row], recipe: Recipe) -> float | None:
    """BF16's time over the recipe's, all shapes together; None as soon as one of them failed."""
    pairs = [(row.get("bf16"), row.get(recipe)) for row in rows.values()]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return None
    both = cast(list[tuple[float, float]], pairs)
    return sum(first for first, _ in both) / sum(second for _, second in both)


def timed_seconds(rows: Mapping[str, Row], recipe: Recipe, iterations: int = ITERATIONS) -> float:
    """How long NVIDIA's tool timed the two recipes."""
    return iterations * sum((row.get("bf16") or 0.0) + (row.get(recipe) or 0.0) for row in rows.values())


def request_of(shapes: Sequence[Shape], recipe: Recipe, seconds: float, seed: int) -> MeasurementRequest:
    """Our request: three ABBA blocks of three variants (baseline, recipe, control), all segments together `seconds`."""
    timing = Timing(passes=4, segment_seconds=max(0.05, min(60.0, seconds / 24)), discard_seconds=1.0, seed=seed)
    return MeasurementRequest(
        namespace="benchmark",
        profile="nvidia-gemm",
        run=f"turn-{seed}",
        attempt=1,
        node=RequestNode(name="here", uid="here", product="here", gpus=1),
        workload=Workload(name="nvidia-gemm", shapes=tuple(shapes)),
        recipes=(recipe,),
        gemm_modes=("autocast",),
        training=False,
        timing=timing,
        deadline_seconds=3600,
    )


def ours(result: MeasurementResult, recipe: Recipe) -> tuple[float, float] | None:
    """Speedup of the sum of all GEMMs and its half-width; None where a part failed."""
    row_of_recipe = next((row for row in result.recipes if row.recipe == recipe), None)
    total = next((part for part in row_of_recipe.sums if part.mode == "autocast"), None) if row_of_recipe else None
    if total is None or total.speedup is None:
        return None
    return total.speedup.value, (total.speedup.upper - total.speedup.lower) / 2


def summary(turns: Sequence[Turn]) -> dict[str, float | int | None]:
    """Means, spreads (standard deviation from run to run) and our mean half-width."""
    theirs = [turn.theirs for turn in turns if turn.theirs is not None]
    our_turns = [turn.ours for turn in turns if turn.ours is not None]
    widths = [turn.half_width for turn in turns if turn.half_width is not None]
    return {
        "turns": len(turns),
        "nvidia_mean": fmean(theirs) if theirs else None,
        "nvidia_spread": stdev(theirs) if len(theirs) > 1 else None,
        "ours_mean": fmean(our_turns) if our_turns else None,
        "ours_spread": stdev(our_turns) if len(our_turns) > 1 else None,
        "ours_half_width": fmean(widths) if widths else None,
    }


def forward_shapes(preset: PresetName) -> tuple[Shape, ...]:
    """The forward GEMMs of all layers of a preset, each once; the head stays BF16 and is left out."""
    gemms = [gemm for gemm in resolve(Workload(preset=preset)).gemms if gemm.pass_ == "fprop" and gemm.quantized]
    return tuple(Shape(m=gemm.m, k=gemm.k, n=gemm.n) for gemm in gemms)


def nvidia_command(script: Path, shapes: Sequence[Shape], recipe: Recipe, plot: Path) -> list[str]:
    """The command that times these shapes in BF16 and the recipe with NVIDIA's script."""
    listed = ",".join(f"{shape.m}x{shape.k}x{shape.n}" for shape in shapes)
    command = [sys.executable, str(script), "--shapes", listed, "--gpu-warmup", str(WARM_UP_SECONDS)]
    command += ["--num-iters", str(ITERATIONS), "--output", str(plot)]
    return command + [switch for name, switch in LEAVE_OUT.items() if name != recipe]


def _nvidia(script: Path, shapes: Sequence[Shape], recipe: Recipe) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = nvidia_command(script, shapes, recipe, Path(folder) / "plot.png")
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # its errors are seen


def _agent(request: MeasurementRequest) -> MeasurementResult:
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "request.json", Path(folder) / "result.json"
        asked.write_text(request_json(request), encoding="utf-8")
        command = [sys.executable, "-m", "precision_agent", "run", "--request", str(asked)]
        command += ["--backend", "transformer-engine", "--output", str(answered), "--no-lines"]
        subprocess.run(command, check=True)
        return MeasurementResult.model_validate_json(answered.read_text(encoding="utf-8"))


def _turn(script: Path, shapes: Sequence[Shape], recipe: Recipe, number: int) -> Turn:
    rows = parse(_nvidia(script, shapes, recipe))
    our_speedup = ours(_agent(request_of(shapes, recipe, timed_seconds(rows, recipe), number)), recipe)
    return Turn(speedup(rows, recipe), *(our_speedup or (None, None)))


def main() -> None:
    """Runs the turns and prints them."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("script", type=Path)
    reader.add_argument("--preset", choices=sorted(PRESETS), default="llama3-8b")
    reader.add_argument(
        "--recipe", choices=[name for name in COLUMNS.values() if name != "bf16"], default="fp8_current"
    )
    reader.add_argument("--runs", type=int, default=5)
    reader.add_argument("--json", type=Path)
    options = reader.parse_args()
    shapes = forward_shapes(options.preset)
    turns = [_turn(options.script, shapes, options.recipe, number) for number in range(options.runs)]
    for number, turn in enumerate(turns):
        print(f"turn {number}: NVIDIA {turn.theirs}, ours {turn.ours} +- {turn.half_width}")
    document: dict[str, Any] = {"recipe": options.recipe, "preset": options.preset, **summary(turns)}
    print(json.dumps(document, indent=2))
    if options.json:
        options.json.write_text(
            json.dumps(document | {"turns_told": [vars(turn) for turn in turns]}) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
