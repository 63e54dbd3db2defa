"""The first day on a GPU, step by step.

    python -m benchmarks.first_day --list
    python -m benchmarks.first_day --step smoke --step cold-hot --out FOLDER [--budget 580]
    python -m benchmarks.first_day --step nvidia --nvidia-script benchmark_gemm.py --out FOLDER

A step that fails is kept with its error and the others go on. FOLDER gets at most 8 files of 16 MiB: the record, the
log, the agent's results and traces. Exit code: 0 where every step is done, else 1.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.first_day.keeping import LOG, RECORD, too_large
from benchmarks.first_day.running import Ended, Keeper, Log, machine, run_process, run_steps, summary, worker_command
from benchmarks.first_day.steps import BY_NAME, HALF_HOUR, STEPS, Step
from benchmarks.first_day.worker import notebook_of, options

BUDGET_SECONDS = 580.0


def listed() -> str:
    """The steps, and the commands of a rented half hour."""
    lines = [f"{'STEP':<20}{'SECONDS':>12}   WHAT IT ANSWERS"]
    for one in STEPS:
        lines.append(f"{one.name:<20}{f'{one.least_seconds:.0f} to {one.most_seconds:.0f}':>12}   {one.answers}")
    lines += ["", "A half hour, command by command:"]
    for command in HALF_HOUR:
        lines.append(f"{command.seconds:>6.0f} s   {' '.join(f'--step {name}' for name in command.steps)}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.first_day",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[options()],
    )
    made.add_argument("--list", action="store_true", help="name the steps and end")
    made.add_argument("--step", action="append", choices=tuple(BY_NAME), default=[], help="may be repeated")
    made.add_argument("--out", type=Path, metavar="FOLDER", help="where the results go; must hold none yet")
    made.add_argument(
        "--budget", type=float, default=BUDGET_SECONDS, help="seconds that the command may take (%(default)s)"
    )
    return made


def passed_on(asked: argparse.Namespace) -> list[str]:
    """The options that every step gets."""
    options = ["--recipe", asked.recipe, "--turns", str(asked.turns), "--first-turn", str(asked.first_turn)]
    return [*options, *(("--nvidia-script", str(asked.nvidia_script.resolve())) if asked.nvidia_script else ())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the steps; see above."""
    reader = parser()
    asked = reader.parse_args(arguments)
    if asked.list:
        print(listed())
        return 0
    if not asked.step or asked.out is None:
        reader.error("name a step and a folder: --step smoke --out FOLDER (--list names the steps)")
    if (asked.out / RECORD).exists():
        reader.error(f"{asked.out} has results already: give another folder, or delete it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="first-day-") as folder:
        work = Path(folder)
        work.chmod(0o777)
        for name in ("results", "traces"):
            (work / name).mkdir()
            (work / name).chmod(0o777)  # a step runs as another user
        log = Log(asked.out / LOG)

        def start(step: Step, seconds: float) -> Ended:
            log.line(f"== {step.name}: {step.answers} (at most {seconds:.0f} s)")
            return run_process(worker_command(step, seconds, work, passed_on(asked)), seconds, log)

        command_line = {"steps": asked.step, "budget": asked.budget, "environment": _environment_variables()}
        keeper = Keeper(asked.out, work, machine(), command_line)
        steps = [BY_NAME[name] for name in dict.fromkeys(asked.step)]
        records = run_steps(steps, asked.budget, start, lambda step: notebook_of(work, step.name), keeper)
        for line in summary(records).splitlines():
            log.line(line)
        log.close()
    for problem in too_large(asked.out):
        print(f"{asked.out}: {problem}: more than can be copied off", file=sys.stderr)
    return int(any(record.status != "done" for record in records))


def _environment_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("NVTE_", "CUDA_", "CUBLAS"))}


if __name__ == "__main__":
    sys.exit(main())
