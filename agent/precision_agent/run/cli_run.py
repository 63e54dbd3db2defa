"""`precision-agent run`: by a request (as the operator asks), or on this box as the command line says (`--local`)."""

import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.console import Console

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import variants_of
from precision_agent.method import duration
from precision_agent.power import nvml
from precision_agent.protocol import Refusal
from precision_agent.run import local, options
from precision_agent.run.nvidia_run import run_nvidia
from precision_agent.run.open import VISIBLE, Wanted, chosen
from precision_agent.run.options import Form, Way
from precision_agent.run.progress import Bar, Lines
from precision_agent.run.publish import Places, checkpoint, places, publish, verdict_text
from precision_agent.run.request_reading import read_request
from precision_agent.run.run import Outcome, Surroundings, refused, run_wanted
from precision_api.exchange.exits import CRASHED, INVALID_REQUEST, PUBLISH_FAILED
from precision_api.exchange.request import MeasurementRequest, canonical, request_json
from precision_api.facts.names import REQUEST_ENV

ONLY_LOCAL = (
    "preset", "hf_config", "shape", "name", "micro_batch_size", "sequence_length", "tensor_parallel",
    "expert_parallel", "gradient_accumulation", "optimizer_shards", "recompute", "recipe", "mixture", "baseline",
    "scope", "last_layers_bf16", "attention_core", "primary_weights", "gemm", "mode", "timing", "segment_seconds",
    "training", "weight_gradients", "may_halve_micro_batch", "loss", "loss_steps", "loss_seeds", "product", "gpus",
)  # fmt: skip
"""Options that describe what --local measures; a request says it itself, and they would be ignored in silence."""
PLANNED = ("product", "gpus")
"""Options that say for which machine to plan."""


def run(
    context: typer.Context,
    request: options.Request = "env",
    backend: options.BackendOption = "auto",
    device: options.DeviceOption = "auto",
    output: options.Output = None,
    lines: options.LinesOption = True,
    plan: options.Plan = False,
    product: options.Product = None,
    gpus: options.Gpus = None,
    method: options.Method = Way.agent,
    repeats: options.RepeatsOption = 5,
    gpu: options.Gpu = None,
    trace: options.TraceOption = None,
    form: options.FormOption = Form.table,
    here: options.Here = False,
    preset: options.Preset = None,
    hf_config: options.HfConfig = None,
    shape: options.Shape = None,
    name: options.Name = None,
    micro_batch_size: options.MicroBatchSize = None,
    sequence_length: options.SequenceLength = None,
    tensor_parallel: options.TensorParallel = None,
    expert_parallel: options.ExpertParallel = None,
    gradient_accumulation: options.GradientAccumulation = None,
    optimizer_shards: options.OptimizerShards = None,
    recompute: options.Recompute = None,
    recipe: options.Recipe = None,
    mixture: options.Mixture = None,
    attention_core: options.AttentionCore = None,
    primary_weights: options.PrimaryWeights = "bf16",
    baseline: options.Baseline = "bf16",
    scope: options.Scope = "all",
    last_layers_bf16: options.LastLayersBF16 = None,
    gemm: options.GemmOption = True,
    mode: options.Mode = None,
    timing: options.Timing = "quick",
    segment_seconds: options.SegmentSeconds = None,
    training: options.Training = True,
    weight_gradients: options.WeightGradients = None,
    may_halve_micro_batch: options.MayHalveMicroBatch = False,
    loss: options.Loss = None,
    loss_steps: options.LossSteps = None,
    loss_seeds: options.LossSeeds = None,
    replay_scale: options.ReplayScale = 1.0,
    replay_seed: options.ReplaySeed = 0,
    replay_pace: options.ReplayPace = 0.0,
    replay_fault: options.ReplayFault = None,
) -> None:
    """Measures what a request asks for, or this box with --local, and publishes the result."""
    raise typer.Exit(_ran(context, locals()))  # Typer wants each option as a parameter of its own


def _ran(context: typer.Context, options: Mapping[str, Any]) -> int:
    """The exit code of a run with these options by name."""
    command, here, planned = _command(options), options["here"], options["plan"]
    try:
        described = _described(context, here)
        if here or (planned and described):
            made_up = planned or (options["backend"] == "replay" and any(options[name] for name in PLANNED))
            machine = (options["product"], options["gpus"]) if made_up else None
            text = _local_text(_asked(options), options["device"], machine)
        else:
            text = _request_text(options["request"])
        if planned:
            phases, is_json = duration.phases(read_request(text)), command.form is Form.json
            typer.echo(canonical(duration.as_document(phases)) if is_json else duration.as_text(phases))
            return 0
    except Refusal as refusal:
        outcome = refused(refusal.exit, refusal.message)
        if here or planned:
            _say(f"{refusal.exit.reason}: {refusal.message}")
            return outcome.exit_code
        return _leave(outcome, command)
    return _leave(_outcome(text, command), command)


def _asked(options: Mapping[str, Any]) -> local.Asked:
    """What --local measures, of the options by name."""
    same = {field.name: options[field.name] for field in fields(local.Asked) if field.name in options}
    split = ("tensor_parallel", "expert_parallel", "gradient_accumulation", "optimizer_shards", "recompute")
    modes = (local.names_of(options["mode"] or ()) or local.GEMM_MODES) if options["gemm"] else ()
    return local.Asked(
        shapes=tuple(options["shape"] or ()),
        step=local.step_fields(**{name: options[name] for name in split}),
        recipes=local.names_of(options["recipe"] or ()),
        mixtures=tuple(options["mixture"] or ()),
        modes=modes,
        **same,
    )


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


def _command(options: Mapping[str, Any]) -> _Command:
    """What else the command line asks for, of the options by name."""
    replay = ("replay_scale", "replay_seed", "replay_fault", "replay_pace")
    replayed = ReplayOptions(*(options[name] for name in replay))
    wanted = Wanted(options["backend"], options["device"], replayed, options["gpu"])
    return _Command(wanted, **{field.name: options[field.name] for field in fields(_Command)[1:]})


def _described(context: typer.Context, here: bool) -> bool:
    """Whether the command line describes a workload or how to measure it, as --local and --plan listen to.

    Refusal InvalidRequest where a request says that, too: one of the two would be ignored in silence.
    """
    sources = {name: context.get_parameter_source(name) for name in context.params}
    on_line = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    options = [name for name in ONLY_LOCAL if name in on_line]
    planned = [name for name in PLANNED if name in options]
    if planned and not context.params["plan"] and context.params["backend"] != "replay":
        message = "only with --plan or --backend replay; a box is measured with the GPUs that it has"
        raise Refusal(INVALID_REQUEST, f"{' and '.join(map(_option, planned))}: {message}")
    if "request" in on_line and (here or options):
        raise Refusal(INVALID_REQUEST, f"--request and {'--local' if here else _option(options[0])}: keep one of them")
    if options and not here and not context.params["plan"]:
        named = ", ".join(map(_option, options))
        raise Refusal(INVALID_REQUEST, f"{named}: without --local a request says it; add --local to measure this box")
    return bool(options)


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
    run_name = time.strftime("local-%Y%m%d-%H%M%S", time.gmtime())
    request = local.local_request(asked, machine, local.plain_name(platform.node()), run_name)
    if planned is not None and device != "cpu" and not reading.gpus:
        _say(_planned_for(request, machine, is_named=planned[0] is not None))
    for line in (local.hint(asked, machine), local.room(request, machine, reading)):
        if line:
            _say(line)
    return request_json(request)


def _planned_for(request: MeasurementRequest, machine: local.Box, is_named: bool) -> str:
    """For what the plan is on a box without a GPU."""
    names = [variant.label for variant in variants_of(request)[:-1]]
    many = "one" if machine.gpus == 1 else str(machine.gpus)
    kind = f"{machine.product} GPU" if is_named else "GPU"
    more = "" if is_named else "; --product GB200 and --gpus 4 say for which"
    what = f"{many} {kind}{'' if machine.gpus == 1 else 's'} with {', '.join(names)}"
    return f"no NVIDIA GPU is to be seen here: this is for {what}{more}"


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
        message = f"${REQUEST_ENV} is not set: give --request FILE, set it, or measure this box with --local"
        raise Refusal(INVALID_REQUEST, message)
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(INVALID_REQUEST, f"reading the request: {error}; check --request") from None


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


def _progress(text: str, command: _Command) -> Bar | Lines:
    """A bar for the person at a terminal who measures this box, else lines for whoever follows the log."""
    phases = duration.phases(read_request(text), 1 if command.wanted.gpu else None)
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
            os.write(2, b"\nending after the sample at hand and 15 s of profiles at most; what is complete is kept\n")
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
        said = outcome.message.decode()
        _say("{reason}: {message}".format_map(json.loads(said)) if command.here else said)
    elif command.here and command.form is Form.json:
        typer.echo(outcome.result.model_dump_json(by_alias=True, exclude_none=True, indent=2))
    elif command.here:
        typer.echo(verdict_text(outcome.result))
        _say(_next_step(command.output))
    return outcome.exit_code


def _next_step(output: Path | None) -> str:
    if output:
        return f"the full result is in {output}; `precision-agent explain {output}` says where each figure comes from"
    return "give --output FILE to keep the full result, then `precision-agent explain FILE`"


def _say(text: str) -> None:
    typer.echo(f"precision-agent: {text}", err=True)
