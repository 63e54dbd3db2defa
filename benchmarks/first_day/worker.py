"""`python -m benchmarks.first_day.worker STEP`: one step in this process. Exit code 1 where it fails."""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.first_day.checks import Notebook
from benchmarks.first_day.steps import BY_NAME, Context


def options() -> argparse.ArgumentParser:
    """Options that the command passes on to every step."""
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("--nvidia-script", type=Path, metavar="PATH", help="Transformer Engine's benchmark_gemm.py")
    made.add_argument("--recipe", default="fp8_current", help="the recipe of step nvidia (%(default)s)")
    made.add_argument("--turns", type=int, default=5, help="of steps nvidia and repeats (%(default)s)")
    made.add_argument("--first-turn", type=int, default=0, help="of these steps, where an earlier command had some")
    return made


def notebook_of(work: Path, step: str) -> Path:
    """Where a step's facts and checks are."""
    return work / f"{step}.notebook.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the step."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[options()])
    parser.add_argument("step", choices=tuple(BY_NAME))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    asked = parser.parse_args(arguments)
    step = BY_NAME[asked.step]
    for name in ("results", "traces"):
        (asked.work / name).mkdir(parents=True, exist_ok=True)
    context = Context(
        name=step.name,
        book=Notebook(notebook_of(asked.work, step.name)),
        results=asked.work / "results",
        traces=asked.work / "traces",
        seconds=asked.seconds,
        nvidia_script=asked.nvidia_script,
        recipe=asked.recipe,
        turns=asked.turns,
        first_turn=asked.first_turn,
        arguments=step.arguments,
    )
    importlib.import_module(f"{__package__}.{step.module}").run(context)


if __name__ == "__main__":
    main()
