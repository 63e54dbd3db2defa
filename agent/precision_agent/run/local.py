"""One box without a cluster: from what the command line says and the GPUs that are there to a request. Pure."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from precision_agent.cases import variants_of
from precision_agent.method.duration import phases, total_seconds
from precision_agent.power.nvml import GpuReadings
from precision_agent.protocol import Refusal
from precision_api.exchange.exits import DEVICE_MISSING, INVALID_REQUEST
from precision_api.exchange.request import TIMINGS, LossRuns, MeasurementRequest, Mode, RequestNode, Timing, loss_runs
from precision_api.facts.json_text import rows_of
from precision_api.facts.mixtures import of_mixtures
from precision_api.facts.products import PRODUCT_CLASSES, part, part_of_class
from precision_api.facts.recipes import Recipe, by_default, with_bf16
from precision_api.models.presets import PRESETS, PUBLISHED_SPLITS_SOURCE, published_split
from precision_api.models.room import layer_room
from precision_api.models.shapes import parse_shape, same_as_recipe
from precision_api.models.workload import ResolvedWorkload, Workload, resolve

CPU = "CPU"
CPU_RECIPES: tuple[Recipe, ...] = ("bf16", "fp8_current")
EVERYWHERE = by_default(None)
"""What is tried where nothing is known of a GPU."""
TRIAL_SHAPES = ("128x256x512", "128x512x256")
"""What a trial on the CPU runs where nothing is named: seconds on two cores."""
CPU_FLOPS_PER_SECOND = 20e9
"""A slow core or two: enough to tell seconds from hours."""
LONGEST_CPU_CALL_SECONDS = 5.0
CPU_TRIAL = "precision-agent run --local --device cpu"
GEMM_MODES: tuple[str, ...] = get_args(Mode)
LEAST_DEADLINE_SECONDS, DEADLINE_FACTOR = 900, 3
"""A local run ends by itself: after three times its plan, at the earliest after 15 minutes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says; None is what it leaves out."""

    preset: str | None = None
    hf_config: Path | None = None
    shapes: tuple[str, ...] = ()
    name: str | None = None
    """What the workload is called in the result, other than by its preset or file."""
    micro_batch_size: int | None = None
    sequence_length: int | None = None
    step: dict[str, Any] = field(default_factory=dict)
    """tensor_parallel and the like, only those that were given."""
    recipes: tuple[str, ...] = ()
    mixtures: tuple[str, ...] = ()
    """Each as NAME:PART=RECIPE,PART=RECIPE."""
    attention_core: str | None = None
    primary_weights: str = "bf16"
    baseline: str = "bf16"
    scope: str = "all"
    last_layers_bf16: int | None = None
    modes: tuple[str, ...] = GEMM_MODES
    """Of the GEMMs; none: training alone."""
    timing: str = "quick"
    segment_seconds: float | None = None
    """Other than the timing's own; the discarded stretch shrinks with it."""
    training: bool = True
    weight_gradients: str | None = None
    may_halve_micro_batch: bool = False
    loss: bool | None = None
    """Loss runs; None: where steps are given, else as the timing has it."""
    loss_steps: int | None = None
    loss_seeds: int | None = None
    gpu: str | None = None
    """UUID of the one GPU to measure; None: all."""


@dataclass(frozen=True, slots=True)
class Box:
    """The machine: a product (or its GPU's own name) and how many of them, or the CPU."""

    product: str
    gpus: int
    recipes: tuple[Recipe, ...]


ANY_GPU = Box("GPU", 1, EVERYWHERE)
"""Stands for a machine that nobody has looked at."""


def box(reading: GpuReadings, device: str, gpu: str | None = None) -> Box:
    """The machine that will be measured; Refusal DeviceMissing says what to do on a box without a GPU."""
    if device == "cpu":
        return Box(CPU, 1, CPU_RECIPES)
    gpus = [device for device in reading.gpus if device.uuid.startswith(gpu or "")]
    if not reading.gpus:
        why = f" ({reading.failure.message or reading.failure.reason})" if reading.failure else ""
        text = f"no NVIDIA GPU is to be seen here{why}, so nothing was measured. "
        raise Refusal(DEVICE_MISSING, f"{text}For a trial on the CPU, whose figures say nothing of a GPU: {CPU_TRIAL}")
    if not gpus:
        uuids = ", ".join(device.uuid for device in reading.gpus)
        raise Refusal(DEVICE_MISSING, f"--gpu {gpu}: there is no such GPU here; give one of {uuids}")
    name = gpus[0].name
    odd = sorted({device.name for device in gpus} - {name})
    if odd:
        raise Refusal(DEVICE_MISSING, f"{name} and {', '.join(odd)} in one box: choose one GPU with --gpu UUID")
    known_part = part(name)
    ran = by_default(known_part.compute if known_part else None)
    product = known_part.product if known_part else re.sub(r"[^ !#-\[\]-~]", "?", name)[:64]
    return Box(product, len(gpus), ran)


def box_to_plan(
    reading: GpuReadings, device: str, gpu: str | None = None, product: str | None = None, gpus: int | None = None
) -> Box:
    """The machine that a plan is for: this one, or on a box without a GPU one GPU that runs every recipe.

    `product` and `gpus` say of which machine instead; Refusal InvalidRequest where there is no such product.
    """
    if (product or gpus) and (device == "cpu" or gpu):
        option = "--gpu" if gpu else "--device cpu"
        raise Refusal(INVALID_REQUEST, f"{option} names a machine, and so do --product and --gpus: keep one of them")
    if product:
        listed = part(product)
        if listed is None:
            classes = f"{', '.join(PRODUCT_CLASSES)}{_near(product, PRODUCT_CLASSES)}"
            raise Refusal(INVALID_REQUEST, f"--product {product}: known are {classes}")
        name = listed.product if listed == part_of_class(listed.product) else listed.name  # an H200 NVL is no H200 SXM
        return Box(name, gpus or 1, by_default(listed.compute))
    unseen = device != "cpu" and not reading.gpus
    machine = ANY_GPU if unseen else box(reading, device, gpu)
    return replace(machine, gpus=gpus or machine.gpus)


def workload_of(asked: Asked, cpu: bool) -> Workload:
    """The workload; Refusal InvalidRequest names the option that is wrong and the next step."""
    sources = {"--preset": asked.preset, "--hf-config": asked.hf_config, "--shape": asked.shapes}
    named = [option for option, value in sources.items() if value]
    if len(named) > 1:
        raise Refusal(INVALID_REQUEST, f"{' and '.join(named)} are given: keep one of them")
    if not named and not cpu:
        message = "say what to measure: --preset llama3-8b, --hf-config config.json or --shape 8192x4096x12288"
        raise Refusal(INVALID_REQUEST, message)
    names = ("name", "micro_batch_size", "sequence_length")
    fields = step_fields(**{name: getattr(asked, name) for name in names})
    try:
        return Workload.model_validate(_source(asked) | asked.step | fields)
    except ValidationError as error:
        raise Refusal(INVALID_REQUEST, "; ".join(_sentence(row) for row in rows_of(error, values=True)[:3])) from None
    except (ValueError, OSError) as error:
        raise Refusal(INVALID_REQUEST, str(error)) from None


def _source(asked: Asked) -> dict[str, Any]:
    if asked.preset:
        return {"preset": asked.preset}
    if asked.hf_config:
        try:
            text = asked.hf_config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--hf-config: reading {asked.hf_config}: {error}; give a config.json") from None
        return {"name": asked.hf_config.stem[:128], "hugging_face_config": {"text": text}}
    shapes = [parse_shape(text).model_dump() for text in asked.shapes or TRIAL_SHAPES]
    return {"name": "shapes" if asked.shapes else "cpu-trial", "shapes": shapes}


def _sentence(error: Any) -> str:
    """Place and message of one validation error; our own messages name the field themselves."""
    message = str(error["msg"]).removeprefix("Value error, ")
    place = ".".join(str(step) for step in error["loc"])
    message += _near(str(error["input"]), re.findall(r"'([^']+)'", message)) if place else ""
    return f"{place}: {message}" if place else message


def _near(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def check(asked: Asked, device: str) -> None:
    """Refusal InvalidRequest for what no machine of the kind could measure, whichever GPUs it has."""
    local_request(asked, Box(CPU, 1, CPU_RECIPES) if device == "cpu" else ANY_GPU, "local", "local")


SAME_NAME = ("baseline", "attention_core", "last_layers_bf16", "weight_gradients", "may_halve_micro_batch")
"""Fields that a request takes as they were asked for."""


def local_request(asked: Asked, machine: Box, node: str, run: str) -> MeasurementRequest:
    """The request for this box; Refusal InvalidRequest for what can't be measured, with the next step."""
    cpu = machine.product == CPU
    workload = workload_of(asked, cpu)
    try:
        request = MeasurementRequest.model_validate(
            {
                "namespace": "local",
                "profile": "local",
                "run": run,
                "attempt": 1,
                "node": RequestNode(name=node, uid="local", product=machine.product, gpus=machine.gpus),
                "workload": workload,
                "recipes": asked.recipes or machine.recipes,
                "mixtures": [_mixture(text) for text in asked.mixtures] or None,
                "primary_weights": None if asked.primary_weights == "bf16" else asked.primary_weights,
                "listed": bool(asked.recipes),
                "recipe_scope": asked.scope,
                "gemm_modes": asked.modes,
                "training": asked.training and workload.shapes is None,
                **{name: getattr(asked, name) for name in SAME_NAME},
                "timing": _timing(asked),
                "loss": _loss(asked, workload),
                "deadline_seconds": 86_400,
            }
        )
        _refuse_what_leaves_nothing(request, resolve(workload))
    except ValidationError as error:
        raise Refusal(INVALID_REQUEST, "; ".join(_sentence(row) for row in rows_of(error, values=True)[:3])) from None
    except ValueError as error:
        raise Refusal(INVALID_REQUEST, str(error)) from None
    if cpu and workload.shapes is not None:
        _refuse_too_long_for_a_cpu(request)
    recipes = with_bf16(request.baseline, request.recipes, request.last_layers_bf16, of_mixtures(request.mixtures))
    request = request.model_copy(update={"recipes": recipes})
    seconds = max(LEAST_DEADLINE_SECONDS, math.ceil(DEADLINE_FACTOR * total_seconds(phases(request))))
    return request.model_copy(update={"deadline_seconds": min(seconds, 86_400)})


def _mixture(text: str) -> dict[str, str]:
    """Of `NAME:mlp=nvfp4,attention=bf16`; ValueError for another form."""
    name, _, parts = text.partition(":")
    pairs = [part.partition("=") for part in parts.split(",")]
    if not all(sign for _, sign, _ in pairs):
        raise ValueError(f"--mixture {text}: write NAME:mlp=RECIPE,attention=RECIPE")
    if len({part for part, _, _ in pairs}) < len(pairs):
        raise ValueError(f"--mixture {text}: name each part once")
    return {"name": name} | {part: recipe for part, _, recipe in pairs}


def _refuse_what_leaves_nothing(request: MeasurementRequest, workload: ResolvedWorkload) -> None:
    """ValueError where no GEMM and no training is left to measure, or no layer to run in a recipe."""
    if not request.gemm_modes and not request.training:
        raise ValueError("nothing to measure: leave out --no-gemm, or give a model and leave out --no-training")
    if (request.attention_core or request.primary_weights) and not request.training:
        raise ValueError("--attention-core and --primary-weights change the training step alone: leave them out")
    if same := same_as_recipe(request.mixtures or (), workload.gemms):
        raise ValueError(f"--mixture: {same}")
    kept, layers = request.last_layers_bf16, workload.model.num_hidden_layers if workload.model else None
    if kept and layers is None:
        raise ValueError("--last-layers-bf16: shapes have no layers: give a model, or leave it out")
    if kept and layers is not None and kept >= layers:
        raise ValueError(f"--last-layers-bf16 {kept}: the model has {layers} layers: keep fewer of them in BF16")


def _loss(asked: Asked, workload: Workload) -> LossRuns | None:
    model = resolve(workload).model
    vocabulary = asked.training and model is not None and bool(model.vocab_size) and not model.no_training_step
    enabled = True if asked.loss is None and asked.loss_steps is not None else asked.loss
    return loss_runs(asked.timing, vocabulary, enabled, asked.loss_steps, asked.loss_seeds)


def _timing(asked: Asked) -> Timing:
    if asked.timing not in TIMINGS:
        raise ValueError(f"--timing {asked.timing}: known are {' and '.join(TIMINGS)}")
    timing = TIMINGS[asked.timing]
    if asked.segment_seconds is None:
        return timing
    discard = min(timing.discard_seconds, asked.segment_seconds / 3)
    return Timing(passes=timing.passes, segment_seconds=asked.segment_seconds, discard_seconds=discard)


def _refuse_too_long_for_a_cpu(request: MeasurementRequest) -> None:
    """A call that takes minutes can't be repeated often enough for an interval; a model is narrowed, a shape is not."""
    longest = max(resolve(request.workload).gemms, key=lambda gemm: gemm.flops)
    seconds = longest.flops / CPU_FLOPS_PER_SECOND
    if seconds > LONGEST_CPU_CALL_SECONDS:
        slots = 2 * request.timing.passes * len(variants_of(request))
        raise Refusal(
            INVALID_REQUEST,
            f"on a CPU one call of {longest.name} may take {seconds:.0f} s, and each is made at least {slots} times: "
            "give a smaller one, for example --shape 256x512x1024",
        )


def hint(asked: Asked, machine: Box) -> str | None:
    """How NVIDIA splits this preset over GPUs of this product, where the command line says nothing of it."""
    preset = next((name for name in PRESETS if name == asked.preset), None)
    row = published_split(preset, machine.product) if preset else None
    if row is None or (row.tensor_parallel, row.expert_parallel) == (1, 1) or set(asked.step) & _SPLITS:
        return None
    return (
        f"whole layers of {row.preset} are measured; NVIDIA trains it on {row.product} with --tensor-parallel "
        f"{row.tensor_parallel} --expert-parallel {row.expert_parallel} ({PUBLISHED_SPLITS_SOURCE})"
    )


def room(request: MeasurementRequest, machine: Box, reading: GpuReadings) -> str | None:
    """Whether one layer of the model fits on a GPU of this box, by recipe; None where nothing is known or to be said.

    The GPU's own memory where it is here, else what the vendor prints for the product, read as GiB. Of a model with
    experts it is told where it fits, too.
    """
    listed, workload = part(machine.product), resolve(request.workload)
    sizes = [gpu.memory_bytes for gpu in reading.gpus if gpu.memory_bytes]
    memory = min(sizes) if sizes else listed.memory_gb * GIB if listed else None
    if memory is None or not request.training:
        return None
    layer = layer_room(workload, request.recipes, memory, request.baseline, request.mixtures)
    experts = workload.model is not None and workload.model.moe is not None
    return f"{machine.product}: {layer[1]}" if layer and (experts or not layer[0]) else None


GIB = 1 << 30
_SPLITS = {"tensor_parallel", "expert_parallel"}


def plain_name(name: str) -> str:
    """A host name as a request may hold it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:253] or "local"


def step_fields(**options: Any) -> dict[str, Any]:
    """Those of the step's options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Recipes or modes given one by one or with commas between them."""
    return tuple(dict.fromkeys(part for text in texts for part in text.split(",") if part))
