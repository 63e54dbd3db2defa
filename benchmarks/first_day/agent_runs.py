"""Runs of the agent within a step: in a process of their own, ended in time so that a partial result is left."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from precision_api.exchange.result import MeasurementResult

GRACE_SECONDS = 18.0
"""From SIGTERM until the agent is killed."""
LEAST_SECONDS = 20.0


class NoResult(RuntimeError):
    """The agent ended without a result; its own words are in the log."""


def agent(
    arguments: Sequence[str],
    output: Path,
    seconds: float,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
) -> MeasurementResult:
    """`precision-agent run` with these arguments for at most `seconds`; NoResult where it left none.

    `prefix` stands before Python on the command line; `user` is a user and group id to run as (needs root).
    """
    command = [*prefix, sys.executable, "-m", "precision_agent", "run", *arguments]
    command += ["--output", str(output), "--no-lines"]
    print("$", " ".join(command), flush=True)
    others = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    process = subprocess.Popen(command, env=dict(os.environ if environment is None else environment), **others)  # type: ignore[call-overload]
    try:
        process.wait(max(LEAST_SECONDS, seconds - GRACE_SECONDS))
    except subprocess.TimeoutExpired:
        print(f"{seconds:.0f} s are nearly over: the agent gets SIGTERM", flush=True)
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if not output.exists():
        raise NoResult(f"no result from the agent, exit code {process.returncode}: its words stand above in the log")
    return MeasurementResult.model_validate_json(output.read_bytes())


def planned(arguments: Sequence[str]) -> dict[str, float]:
    """Seconds of each phase, as `run --plan` expects them; empty where it tells none."""
    command = [sys.executable, "-m", "precision_agent", "run", "--plan", "-o", "json", *arguments]
    plan = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return {row["phase"]: float(row["seconds"]) for row in json.loads(plan.stdout)["phases"]}
    except (ValueError, KeyError):
        return {}
