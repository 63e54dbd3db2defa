"""`precision-agent run`: by a request (as the operator asks), or on this box as the command line says (`--local`)."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from precision_agent.backends.replay_tables import FAULTS, ReplayOptions
from precision_agent.method import duration
from precision_agent.power import nvml
from precision_agent.protocol import Refusal
from precision_agent.results.verdict_text import verdict_text
from precision_agent.run import local
from precision_agent.run.nvidia_run import run_nvidia
from precision_agent.run.open import BACKENDS, VISIBLE, Wanted, chosen
from precision_agent.run.progress import Bar, Lines
from precision_agent.run.publish import Places, checkpoint, places, publish
from precision_agent.run.request_reading import read_request
from precision_agent.run.run import Outcome, Surroundings, refused, run_wanted
from precision_api.exits import CRASHED, INVALID_REQUEST, PUBLISH_FAILED
from precision_api.names import REQUEST_ENV
from precision_api.request import MeasurementRequest, canonical, request_json


class Form(StrEnum):
    """How a local run ends on stdout."""

    table = "table"
    json = "json"


class Way(StrEnum):
    """Whose method."""

    agent = "agent"
    nvidia = "nvidia"


ONLY_LOCAL = (
    "preset", "hf_config", "shape", "name", "micro_batch_size", "sequence_length", "tensor_parallel", "expert_parallel",
    "gradient_accumulation", "optimizer_shards", "recompute", "recipe", "baseline", "scope", "kept_higher_layers",
    "gemm", "mode", "timing", "segment_seconds", "training", "weight_gradients", "may_halve_micro_batch", "loss",
    "loss_steps", "loss_seeds", "product", "gpus",
)  # fmt: skip
"""Options that describe what --local measures; a request says it itself, and they would be ignored in silence."""
PLANNED = ("product", "gpus")
"""Options that say for which machine to plan."""


def run(
    context: typer.Context,
    request: Annotated[str, typer.Option(help=f"File with the request, or 'env' for ${REQUEST_ENV}.")] = "env",
    backend: Annotated[str, typer.Option(help=f"What takes the samples: {', '.join(BACKENDS)}.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cuda or cpu (a trial; never a GPU's figure).")] = "auto",
    output: Annotated[Path | None, typer.Option(help="Also write the full result to this file, as JSON.")] = None,
    lines: Annotated[bool, typer.Option(help="End stdout with the PPR1 lines of the full result.")] = True,
    plan: Annotated[bool, typer.Option("--plan", help="Only say how long each phase takes.")] = False,
    product: Annotated[str | None, typer.Option(help="With --plan: for such GPUs, for example GB200.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, max=16, help="With --plan: for so many GPUs.")] = None,
    method: Annotated[Way, typer.Option(help="nvidia repeats benchmark_gemm.py, to compare with.")] = Way.agent,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="With --method nvidia: whole runs.")] = 5,
    gpu: Annotated[str | None, typer.Option(help="UUID of the one GPU to measure; left out, all.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Folder for traces of the profiled steps.")] = None,
    form: Annotated[Form, typer.Option("--form", "-o", help="With --local or --plan: table or json.")] = Form.table,
    here: Annotated[bool, typer.Option("--local", help="Measure this box as the options below say.")] = False,
    preset: Annotated[str | None, typer.Option(help="A model by name, for example llama3-8b.")] = None,
    hf_config: Annotated[Path | None, typer.Option(help="A Hugging Face config.json.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="A forward GEMM as MxKxN; may be repeated.")] = None,
    name: Annotated[str | None, typer.Option(help="What the workload is called in the result.")] = None,
    micro_batch_size: Annotated[int | None, typer.Option(help="Sequences in one micro batch.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(help="GPUs that share each layer's matrices.")] = None,
    expert_parallel: Annotated[int | None, typer.Option(help="GPUs that a layer's experts are spread over.")] = None,
    gradient_accumulation: Annotated[int | None, typer.Option(help="Micro batches in a step; default 8.")] = None,
    optimizer_shards: Annotated[int | None, typer.Option(help="GPUs that share the optimizer's state.")] = None,
    recompute: Annotated[str | None, typer.Option(help="None, or Full: activations are computed again.")] = None,
    recipe: Annotated[list[str] | None, typer.Option(help="Recipes; left out, all that the GPU can run.")] = None,
    baseline: Annotated[str, typer.Option(help="Recipe that speedups are relative to.")] = "bf16",
    scope: Annotated[str, typer.Option(help="all, or mlp: attention keeps the baseline's precision.")] = "all",
    kept_higher_layers: Annotated[
        int, typer.Option(help="First and last layers, together, that stay in the baseline's recipe; computed.")
    ] = 0,
    gemm: Annotated[bool, typer.Option(help="Measure the GEMMs, not training alone.")] = True,
    mode: Annotated[
        list[str] | None, typer.Option(help="Modes of the GEMMs: autocast, prequantized; left out, both.")
    ] = None,
    timing: Annotated[str, typer.Option(help="quick or standard.")] = "quick",
    segment_seconds: Annotated[float | None, typer.Option(help="Of one recipe's turn; left out, the timing's.")] = None,
    training: Annotated[bool, typer.Option(help="Measure training, not the GEMMs alone.")] = True,
    weight_gradients: Annotated[
        str | None, typer.Option(help="fused (in FP32, by the GEMM) or separate (by autograd); left out, fused.")
    ] = None,
    may_halve_micro_batch: Annotated[
        bool, typer.Option("--may-halve-micro-batch", help="Out of memory halves the micro batch for all recipes.")
    ] = False,
    loss: Annotated[
        bool | None, typer.Option("--loss/--no-loss", help="Short loss runs; left out, with --timing standard.")
    ] = None,
    loss_steps: Annotated[int | None, typer.Option(help="Steps of a loss run, 10 to 1000; left out, 50.")] = None,
    loss_seeds: Annotated[
        int | None, typer.Option(help="Loss runs of each recipe, each with its own seed: 1 to 3.")
    ] = None,
    replay_scale: Annotated[float, typer.Option(help="Replayed node's speed; 0.8 is 20 % slow.")] = 1.0,
    replay_seed: Annotated[int, typer.Option(help="Seed of the replayed noise.")] = 0,
    replay_pace: Annotated[
        float, typer.Option(help="Seconds to wait for each replayed second: 0 to 1.", min=0, max=1)
    ] = 0.0,
    replay_fault: Annotated[str | None, typer.Option(help=f"One of {', '.join(FAULTS)}.")] = None,
) -> None:
    """Measures what a request asks for, or this box with --local, and publishes the result."""
    step = local.step_fields(
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        gradient_accumulation=gradient_accumulation,
        optimizer_shards=optimizer_shards,
        recompute=recompute,
    )
    asked = local.Asked(
        preset=preset, hf_config=hf_config, shapes=tuple(shape or ()), name=name,
        micro_batch_size=micro_batch_size, sequence_length=sequence_length, step=step,
        recipes=local.names_of(recipe or ()), baseline=baseline, scope=scope, kept_higher_layers=kept_higher_layers,
        modes=(local.names_of(mode or ()) or local.GEMM_MODES) if gemm else (), timing=timing,
        segment_seconds=segment_seconds, training=training, may_halve_micro_batch=may_halve_micro_batch,
        weight_gradients=weight_gradients,
        loss=loss, loss_steps=loss_steps, loss_seeds=loss_seeds, gpu=gpu,
    )  # fmt: skip
    options = ReplayOptions(replay_scale, replay_seed, replay_fault, replay_pace)
    command = _Command(Wanted(backend, device, options, gpu), here, form, output, lines, trace, method, repeats)
    try:
        described = _described(context, here)
        text = (
            _local_text(asked, device, (product, gpus) if plan else None)
            if here or (plan and described)
            else _request_text(request)
        )
        if plan:
            typer.echo(_plan(text, form))
            return
    except Refusal as refusal:
        outcome = refused(refusal.exit, refusal.message)
        if here or plan:
            _say(f"{refusal.exit.reason}: {refusal.message}")
            raise typer.Exit(outcome.exit_code) from None
        raise typer.Exit(_leave(outcome, command)) from None
    raise typer.Exit(_leave(_outcome(text, command), command))


@dataclass(frozen=True, slots=True)
class _Command:
    """What was asked of this process, beside the request."""

    wanted: Wanted
    here: bool
    form: Form
    output: Path | None
    lines: bool
    trace: Path | None
    method: Way
    repeats: int

    @property
    def where(self) -> Places:
        """A local run has no kubelet that waits for a message."""
        return Places(None, self.output) if self.here else places(os.environ, self.output)


def _described(context: typer.Context, here: bool) -> bool:
    """Whether the command line describes a workload or how to measure it, as --local and --plan listen to.

    Refusal InvalidRequest where a request says that, too: one of the two would be ignored in silence.
    """
    given = [name for name in ONLY_LOCAL if _is_given(context, name)]
    planned = [name for name in PLANNED if name in given]
    if planned and not context.params["plan"]:
        told = f"{' and '.join(map(_option, planned))}: only with --plan; a box is measured with the GPUs that it has"
        raise Refusal(INVALID_REQUEST, told)
    if _is_given(context, "request") and (here or given):
        raise Refusal(INVALID_REQUEST, f"--request and {'--local' if here else _option(given[0])}: keep one of them")
    if given and not here and not context.params["plan"]:
        named = ", ".join(map(_option, given))
        raise Refusal(INVALID_REQUEST, f"{named}: without --local a request says it; add --local to measure this box")
    return bool(given)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _local_text(asked: local.Asked, device: str, planned: tuple[str | None, int | None] | None) -> str:
    """The request for this box, as it would travel; a plan (`planned`: for which product and how many GPUs, where that
    is said) measures nothing, and needs no GPU. What is asked for is checked before any device is looked at."""
    local.check(asked, device)
    reading = nvml.GpuReadings() if device == "cpu" else _seen()
    if planned is None:
        machine = local.box(reading, device, asked.gpu)
    else:
        machine = local.box_to_plan(reading, device, asked.gpu, *planned)
    if planned is not None and device != "cpu" and not reading.gpus:
        _say(_planned_for(asked, machine, told=planned[0] is not None))
    run_name = time.strftime("local-%Y%m%d-%H%M%S", time.gmtime())
    request = local.local_request(asked, machine, local.plain_name(platform.node()), run_name)
    for line in (local.hint(asked, machine), local.room(request, machine, reading)):
        if line:
            _say(line)
    return request_json(request)


def _planned_for(asked: local.Asked, machine: local.Box, told: bool) -> str:
    """For what the plan is on a box without a GPU."""
    many = "one" if machine.gpus == 1 else str(machine.gpus)
    kind = f"{machine.product} GPU" if told else "GPU"
    more = "" if told else "; --product GB200 and --gpus 4 say for which"
    what = f"{many} {kind}{'' if machine.gpus == 1 else 's'} with {', '.join(asked.recipes or machine.recipes)}"
    return f"no NVIDIA GPU is to be seen here: planned for {what}{more}"


def _seen() -> nvml.GpuReadings:
    """The GPUs that CUDA may use here: CUDA_VISIBLE_DEVICES hides some, or all."""
    reading = nvml.read()
    kept = chosen([gpu.uuid for gpu in reading.gpus], os.environ.get(VISIBLE), None)
    return replace(reading, gpus=tuple(gpu for gpu in reading.gpus if gpu.uuid in kept))


def _request_text(source: str) -> str:
    if source == "env":
        text = os.environ.get(REQUEST_ENV)
        if text:
            return text
        told = f"${REQUEST_ENV} is not set: give --request FILE, set it, or measure this box with --local"
        raise Refusal(INVALID_REQUEST, told)
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(INVALID_REQUEST, f"reading the request: {error}; check --request") from None


def _plan(text: str, form: Form) -> str:
    found = duration.phases(read_request(text))
    return canonical(duration.as_document(found)) if form is Form.json else duration.as_text(found)


def _outcome(text: str, command: _Command) -> Outcome:
    """The outcome; a crash becomes one too, so that the operator reads more than an exit code."""
    terminated = _on_signals(command.here)
    if command.wanted.device == "cpu":
        # Cores that others use too: OpenMP threads that spin while they wait for each other crawl there.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        with _progress(text, command) as progress:
            return _measured(text, command, terminated, progress)
    except Refusal as refusal:
        return refused(refusal.exit, refusal.message)
    except Exception as error:
        traceback.print_exc()
        return refused(CRASHED, f"{type(error).__name__}: {error}")


def _phases(text: str, command: _Command) -> tuple[duration.Phase, ...]:
    request: MeasurementRequest = read_request(text)
    return duration.phases(request, 1 if command.wanted.gpu else None)


def _progress(text: str, command: _Command) -> Bar | Lines:
    """A bar for the person at a terminal who measures this box, else lines for whoever follows the log."""
    phases = _phases(text, command)
    console = Console(stderr=True)
    if command.here and console.is_terminal:
        return Bar(phases, console)
    timed = command.wanted.backend != "replay" and command.method is Way.agent
    return Lines(phases if timed else (), sys.stderr)


def _measured(text: str, command: _Command, terminated: threading.Event, progress: Bar | Lines) -> Outcome:
    def keep(outcome: Outcome) -> None:
        try:
            checkpoint(outcome, command.where)
        except OSError as error:
            _say(f"writing the partial result: {error}")
        if outcome.result and outcome.result.partial and not command.here:
            progress.note(outcome.result.partial.message)

    around = Surroundings(
        terminated=terminated.is_set, checkpoint=keep, progress=progress, note=progress.note, trace=command.trace
    )
    if command.method is Way.nvidia:
        return run_nvidia(text, command.wanted, around, command.repeats)
    return run_wanted(text, command.wanted, around)


def _on_signals(person: bool) -> threading.Event:
    """An event that SIGTERM and SIGINT set: the run ends after the sample at hand and profiles of what is complete.

    A person who presses Ctrl-C a second time does not want to wait even for that.
    """
    event = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if person and event.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if person:
            os.write(
                2,
                b"\nending after the sample at hand and 15 s of profiles at most; what is complete is kept\n",
            )
        event.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return event


def _leave(outcome: Outcome, command: _Command) -> int:
    """Publishes and returns the exit code; says on stderr how it ended, in a log before the lines of the result."""
    if outcome.result and not command.here:
        _say(outcome.result.recommendation.sentence)
    try:
        publish(outcome, command.where, sys.stdout.buffer, command.lines and not command.here)
    except OSError as error:
        _say(f"publishing the result: {error}; check --output and that its folder can be written")
        return PUBLISH_FAILED.code
    if outcome.result is None:
        _say(_refusal_text(outcome) if command.here else outcome.message.decode())
    elif command.here and command.form is Form.json:
        typer.echo(outcome.result.model_dump_json(by_alias=True, exclude_none=True, indent=2))
    elif command.here:
        typer.echo(verdict_text(outcome.result))
        _say(_next_step(command.output))
    return outcome.exit_code


def _refusal_text(outcome: Outcome) -> str:
    """Reason and message for a person, out of the termination message."""
    told = json.loads(outcome.message)
    return f"{told['reason']}: {told['message']}"


def _next_step(output: Path | None) -> str:
    if output:
        return f"the full result is in {output}; `precision-agent explain {output}` says where each figure comes from"
    return "give --output FILE to keep the full result, then `precision-agent explain FILE`"


def _say(text: str) -> None:
    typer.echo(f"precision-agent: {text}", err=True)
