"""The program `precision-agent`: reads a request, measures, publishes, leaves with a code of the table."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from precision_agent import __version__
from precision_agent.backends.open import BACKENDS
from precision_agent.backends.replay import FAULTS, ReplayOptions
from precision_agent.kernels import classify
from precision_agent.publish import Places, checkpoint, places, publish
from precision_agent.run import Outcome, refused, run_request
from precision_api.exits import CRASHED, INVALID_REQUEST, PUBLISH_FAILED
from precision_api.names import REQUEST_ENV

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def program() -> None:
    """Measures low-precision training on one node. Knows nothing of Kubernetes: a request in, a result out."""


@app.command()
def version() -> None:
    """Prints the agent's version."""
    typer.echo(__version__)


@app.command()
def run(
    request: Annotated[str, typer.Option(help=f"File with the request, or 'env' for ${REQUEST_ENV}.")] = "env",
    backend: Annotated[str, typer.Option(help=f"What takes the samples: {' or '.join(BACKENDS)}.")] = "torch",
    device: Annotated[str, typer.Option(help="For torch: auto, cuda or cpu (a trial; never a GPU's figure).")] = "auto",
    output: Annotated[Path | None, typer.Option(help="Also write the full result to this file, as JSON.")] = None,
    lines: Annotated[bool, typer.Option(help="End stdout with the PPR1 lines of the full result.")] = True,
    replay_scale: Annotated[float, typer.Option(help="Replayed node's speed; 0.8 is 20 % slow.")] = 1.0,
    replay_seed: Annotated[int, typer.Option(help="Seed of the replayed noise.")] = 0,
    replay_fault: Annotated[str | None, typer.Option(help=f"One of {', '.join(FAULTS)}.")] = None,
) -> None:
    """Measures what a request asks for and publishes the result."""
    where = places(os.environ, output)
    terminated = _on_sigterm()
    text = _request_text(request)
    if isinstance(text, Outcome):
        outcome = text
    else:
        outcome = _guarded(
            text, backend, device, ReplayOptions(replay_scale, replay_seed, replay_fault), where, terminated
        )
    raise typer.Exit(_leave(outcome, where, lines))


class Shown(StrEnum):
    """How a command prints."""

    table = "table"
    json = "json"


@app.command("classify-kernels")
def classify_kernels(
    file: Annotated[str, typer.Argument(help="Kernel names as a profiler prints them, one a line; '-' is stdin.")],
    output: Annotated[Shown, typer.Option("--output", "-o", help="table or json.")] = Shown.table,
) -> None:
    """Says in which precision each kernel multiplied, and the rule that tells; 'unknown' where no rule does."""
    try:
        read = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"reading kernel names: {error}", param_hint="FILE") from error
    lines = (line.strip() for line in read.decode("utf-8-sig", errors="replace").split("\n"))
    rows = [classify(line) for line in lines if line]
    if output is Shown.json:
        told = [{"name": row.name, "class": row.kernel_class, "rule": row.rule} for row in rows]
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo(f"{'CLASS':<11} {'RULE':<19} NAME")
    for row in rows:
        typer.echo(f"{row.kernel_class:<11} {row.rule:<19} {row.name}")


def main() -> None:
    """Entry point of the console script."""
    app()


def _on_sigterm() -> threading.Event:
    """An event that SIGTERM and SIGINT set: the run then ends after the sample at hand, with what is complete."""
    event = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        event.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return event


def _request_text(source: str) -> str | Outcome:
    if source == "env":
        text = os.environ.get(REQUEST_ENV)
        return text if text else refused(INVALID_REQUEST, f"${REQUEST_ENV} is not set: give --request FILE or set it")
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return refused(INVALID_REQUEST, f"reading the request: {error}")


def _guarded(
    text: str, backend: str, device: str, options: ReplayOptions, where: Places, terminated: threading.Event
) -> Outcome:
    """The outcome; a crash becomes one too, so that the operator reads more than an exit code."""

    def keep(outcome: Outcome) -> None:
        try:
            checkpoint(outcome, where)
        except OSError as error:
            _say(f"writing the partial result: {error}")
        if outcome.result and outcome.result.partial:
            _say(outcome.result.partial.message)

    try:
        return run_request(text, backend, options, device=device, terminated=terminated.is_set, checkpoint=keep)
    except Exception as error:
        traceback.print_exc()
        return refused(CRASHED, f"{type(error).__name__}: {error}")


def _leave(outcome: Outcome, where: Places, lines: bool) -> int:
    """Publishes and returns the exit code; says on stderr how it ended."""
    try:
        publish(outcome, where, sys.stdout.buffer, lines)
    except OSError as error:
        _say(f"publishing the result: {error}")
        return PUBLISH_FAILED.code
    if outcome.result:
        _say(outcome.result.recommendation.sentence)
    else:
        _say(outcome.message.decode())
    return outcome.exit_code


def _say(text: str) -> None:
    typer.echo(f"precision-agent: {text}", err=True)
