"""Commands that need no cluster, by this machine's precision-agent: `run --local`, `explain` and `verify-trace`."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from precision_operator.cli.terminal import INTERRUPTED, NO_PROGRAM, end, fail

PROGRAM = "precision-agent"
INSTALL = "in a checkout, pip install '.[agent]' (or '.[agent-cpu]' for a trial without a GPU)"
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""All that this command does not know is the agent's; --help is whose command it stands behind."""


def run(
    context: typer.Context,
    local: Annotated[bool, typer.Option("--local", help="Measure this machine, without a cluster.")] = False,
    show_help: Annotated[
        bool, typer.Option("--help", "-h", help="Show this message; with --local: the agent's own options.")
    ] = False,
) -> None:
    """Measure this machine (--local) with the program precision-agent, which gets all further options.

    Those options are the agent's: kubectl precision run --local --help shows them.

    In a cluster nothing is run by hand: apply a PrecisionProfile, or measure again with kubectl precision rerun.
    """
    if show_help and not local:
        typer.echo(context.get_help())
        return
    if not local:
        fail(
            "run measures this machine, with --local. In a cluster apply a PrecisionProfile (kubectl explain pp.spec), "
            "or measure again with kubectl precision rerun"
        )
    _hand_over(["run", "--local", *context.args, *(["--help"] if show_help else [])])


def explain(context: typer.Context) -> None:
    """Say where each figure of a saved result comes from; no GPU, no cluster."""
    _hand_over(["explain", *context.args])


def verify_trace(context: typer.Context) -> None:
    """Say in which precision a training job's GEMMs ran, from a trace of torch's profiler; no GPU, no cluster."""
    _hand_over(["verify-trace", *context.args])


def _hand_over(arguments: Sequence[str]) -> NoReturn:
    """Ends as the agent's program does with these arguments."""
    arguments = ["--help" if word == "-h" else word for word in arguments]
    beside = Path(sys.executable).parent / PROGRAM  # where this one's Python is, else on PATH
    program = str(beside) if beside.is_file() else shutil.which(PROGRAM)
    if program is None:
        end(NO_PROGRAM, f"the program {PROGRAM} is not installed here: {INSTALL}")
    raise typer.Exit(executed([program, *arguments]))


def executed(command: Sequence[str]) -> int:
    """The exit code of the command, whose input and output are ours; Ctrl-C reaches it and is waited for."""
    process = subprocess.Popen(command)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else INTERRUPTED.number if code == -2 else 128 - code
