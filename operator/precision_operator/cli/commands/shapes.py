"""`kubectl precision shapes`: what a workload comes to before anything runs: GEMMs, parameters, FLOPs per token."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from precision_api.facts.json_text import read_document
from precision_api.facts.products import PRODUCT_CLASSES
from precision_api.facts.products import part as gpu_part
from precision_api.facts.recipes import RECIPE_NAMES, recipes_for
from precision_api.models.flop_shares import flop_shares
from precision_api.models.flops import Parameters, published_flops_per_token, training_flops_per_token
from precision_api.models.model import ModelSpec
from precision_api.models.mtp import mtp_flops_per_token, mtp_parameters
from precision_api.models.room import layer_room
from precision_api.models.shapes import Gemm, step_shape_problems
from precision_api.models.workload import ResolvedWorkload, Workload, resolve
from precision_operator.cli.options import FormOf
from precision_operator.cli.output import OutputFormat, as_columns, printed
from precision_operator.cli.saved import first_profile, read
from precision_operator.cli.terminal import fail, say, sentences

_SOURCES = "--hf-config, --model, --preset, --shape and -f"


def shapes(
    hf_config: Annotated[str | None, typer.Option(help="A Hugging Face config.json; - reads stdin.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Dimensions: hiddenSize=4096,intermediateSize=16384,numAttentionHeads=32,...")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A model that is known by name, for example codonfm-5b.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="A forward GEMM as MxKxN; may be repeated.")] = None,
    filename: Annotated[
        str | None, typer.Option("--filename", "-f", help="A file with a PrecisionProfile; - reads stdin.")
    ] = None,
    micro_batch_size: Annotated[int | None, typer.Option(help="Sequences in one micro batch.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(help="GPUs that share each layer's matrices.")] = None,
    expert_parallel: Annotated[int | None, typer.Option(help="GPUs that a layer's experts are spread over.")] = None,
    output: FormOf = OutputFormat.TABLE,
) -> None:
    """Print the GEMMs of one training step, parameters and training FLOPs per token of a workload."""
    sources = {"--hf-config": hf_config, "--model": model, "--preset": preset, "--shape": shape, "-f": filename}
    chosen = [(option, value) for option, value in sources.items() if value]
    if len(chosen) != 1:
        names = " and ".join(option for option, _ in chosen)
        fail(f"give exactly one of {_SOURCES}; {names + ' are given' if names else 'none is given'}")
    sizes = {
        "microBatchSize": micro_batch_size,
        "sequenceLength": sequence_length,
        "tensorParallel": tensor_parallel,
        "expertParallel": expert_parallel,
    }
    try:
        spec = _spec(*chosen[0]) | {name: size for name, size in sizes.items() if size is not None}
        _need_sizes(chosen[0][0], spec)
        resolved = resolve(read_document(Workload, spec))
    except ValueError as error:
        fail(sentences(error, "workload"))
    document = _document(resolved)
    say(printed(document, output, lambda wide: _table(resolved, document, wide), document["gemms"], HEADER))


def _spec(option: str, value: Any) -> dict[str, Any]:
    """The fields of spec.workload that the command line's one source stands for."""
    sources: Mapping[str, Callable[[], dict[str, Any]]] = {
        "--hf-config": lambda: {"name": Path(value).stem, "huggingFaceConfig": {"text": read(value)}},
        "--model": lambda: {"name": "model", "model": _assignments(value)},
        "--preset": lambda: {"preset": value},
        "--shape": lambda: {"name": "shapes", "gemms": list(value)},
        "-f": lambda: _profile_workload(value),
    }
    return sources[option]()


def _need_sizes(option: str, spec: Mapping[str, Any]) -> None:
    flags = {"microBatchSize": "--micro-batch-size", "sequenceLength": "--sequence-length"}
    missing = [flag for name, flag in flags.items() if name not in spec]
    if missing and option in ("--hf-config", "--model"):
        raise ValueError(f"{option} needs {' and '.join(missing)}: GEMM sizes depend on the tokens of a micro batch")


def _assignments(text: str) -> dict[str, Any]:
    """The nested fields of a=1,b.c=2."""
    flat: dict[str, Any] = {}
    for part in text.split(","):
        path, equals, value = (piece.strip() for piece in part.partition("="))
        if not (path and equals and value):
            raise ValueError(f"--model: {part!r} is no assignment; write name=value, for example hiddenSize=4096")
        if path in flat:
            raise ValueError(f"--model: {path} is given twice; keep one")
        flat[path] = _scalar(value)
    return _nested(flat)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    # One level is all that a model has: moe.topK, slidingWindow.size.
    fields = {path: value for path, value in flat.items() if "." not in path}
    for path, value in flat.items():
        group, dot, name = path.partition(".")
        if dot and group in flat:
            raise ValueError(f"--model: {group} is given both as a value and as the group of {path}; keep one")
        if dot:
            fields.setdefault(group, {})[name] = value
    return fields


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.removeprefix("-").isdecimal() else text


def _profile_workload(path: str) -> dict[str, Any]:
    """spec.workload of the first PrecisionProfile in the file."""
    spec = first_profile(path).get("spec")
    workload = spec.get("workload") if isinstance(spec, dict) else None
    source = workload.get("huggingFaceConfig") if isinstance(workload, dict) else None
    if isinstance(source, dict) and "configMapKeyRef" in source:
        raise ValueError(f"{path}: its config.json lies in a ConfigMap; give the file itself with --hf-config")
    if isinstance(workload, dict):
        return workload
    raise ValueError(f"{path}: the PrecisionProfile has no spec.workload; add one, for example preset: codonfm-5b")


HEADER = ("name", "pass", "m", "k", "n", "count", "flops")
_VALUES = attrgetter("name", "pass_", "m", "k", "n", "count", "flops")


def _document(resolved: ResolvedWorkload) -> dict[str, Any]:
    counted = resolved.parameters
    model, sequence = resolved.model, resolved.workload.sequence_length
    return {
        "workload": resolved.name,
        "workloadHash": resolved.hash,
        "microBatchSize": resolved.workload.micro_batch_size,
        "sequenceLength": sequence,
        "tokensPerMicroBatch": resolved.tokens_per_micro_batch,
        "tensorParallel": resolved.workload.tensor_parallel,
        "expertParallel": resolved.workload.expert_parallel,
        "gemms": [dict(zip(HEADER, _VALUES(gemm), strict=True)) for gemm in resolved.gemms],
        "parameters": {
            "total": counted.total,
            "active": counted.active,
            "activeWithoutEmbedding": counted.active_without_embedding,
        }
        if counted
        else None,
        "trainingFlopsPerToken": resolved.training_flops_per_token,
        "formula": asdict(resolved.formula) if resolved.formula else None,
        "flopShares": _flop_shares(model, sequence) if model and sequence else None,
        "multiTokenPrediction": {
            "parameters": mtp_parameters(model),
            "trainingFlopsPerToken": mtp_flops_per_token(model, sequence),
        }
        if model and model.mtp and sequence
        else None,
        "room": _room(resolved),
        "recipeProblems": _problems(resolved.gemms),
        "notes": _notes(resolved),
    }


def _flop_shares(model: ModelSpec, sequence: int) -> list[dict[str, Any]]:
    shares = flop_shares(model, sequence)
    return [{"name": row.name, "flopsPerToken": row.flops_per_token, "share": row.share} for row in shares]


def _room(resolved: ResolvedWorkload) -> list[dict[str, Any]]:
    """Whether one layer fits on a GPU of each product, by the memory that the vendor prints, read as GiB."""
    rows = []
    for product in PRODUCT_CLASSES:
        gpu = gpu_part(product)
        assert gpu is not None
        recipes = [recipe for recipe, _ in recipes_for(gpu.compute)]
        room = layer_room(resolved, recipes, gpu.memory_gb << 30)
        if room:
            rows.append({"product": gpu.name, "fits": room[0], "message": room[1]})
    return rows


def _problems(gemms: Iterable[Gemm]) -> list[dict[str, str]]:
    rows = tuple(gemms)
    return [
        {"recipe": recipe, "severity": problem.severity, "message": problem.message}
        for recipe in RECIPE_NAMES
        for problem in step_shape_problems(rows, recipe)
    ]


def _notes(resolved: ResolvedWorkload) -> list[str]:
    grouped = sorted({(gemm.name, gemm.groups) for gemm in resolved.gemms if gemm.groups > 1})
    notes = [f"{name}: {groups} experts run as one grouped GEMM; count counts each expert" for name, groups in grouped]
    moe, tokens = resolved.model.moe if resolved.model else None, resolved.tokens_per_micro_batch or 0
    if moe is not None and tokens * moe.top_k % moe.num_experts != 0:
        notes.append("tokens do not spread evenly over the experts: their m is rounded up")
    rows = sorted({gemm.m for gemm in resolved.gemms if gemm.of_experts and gemm.pass_ == "fprop" and gemm.m % 32})
    notes += [f"an expert's {m} rows are padded for recipes that need multiples of 16 or 32" for m in rows]
    high = sorted({gemm.name for gemm in resolved.gemms if not gemm.quantized})
    words = "{}: stays in high precision with every recipe{}; as a GEMM it is measured in bf16"
    notes += [words.format(name, " but mixtures that set head" * (name == "lm_head")) for name in high]
    notes += _notes_of_model(resolved.model, resolved.workload.sequence_length)
    missing = resolved.model.no_training_step if resolved.model else None
    if missing:
        notes.append(f"{missing}: no backend has it in a training step yet; the GEMMs are measured, training is not")
    if resolved.parameters is not None and resolved.parameters.embedding == 0:
        notes.append("no vocabSize: no lm_head; parameters and FLOPs are without embedding and head")
    if resolved.parameters is None:
        notes.append("explicit GEMMs: no model, so no parameters and no FLOPs per token")
    return notes


def _notes_of_model(model: ModelSpec | None, sequence: int | None) -> list[str]:
    if model is None or sequence is None:
        return []
    notes = []
    if model.mtp is not None:
        notes.append(
            f"mtp: {model.mtp.modules} for multi-token prediction with {mtp_parameters(model):,} parameters and "
            f"{mtp_flops_per_token(model, sequence):,} FLOPs a token: in no figure here, and not measured"
        )
    published = published_flops_per_token(model, sequence)
    if published != training_flops_per_token(model, sequence):
        notes.append(
            f"NVIDIA's published TFLOP/s count {published:,} FLOPs a token: Megatron-Bridge takes each Mamba-2 mixer "
            "as twice hiddenSize wide; compare tokens/s"
        )
    return notes


def _counted(counted: Parameters) -> str:
    text = f"{counted.total:,} total, {counted.active:,} active"
    if counted.active == counted.total:  # no experts: nobody speaks of active ones
        return text
    return f"{text}, {counted.active_without_embedding:,} without the input embedding (as OpenAI and NVIDIA count)"


def _split(workload: Workload) -> str:
    """How the step is split over GPUs, whose share the GEMMs are; empty where it is not."""
    parts = (("tensor", workload.tensor_parallel), ("expert", workload.expert_parallel))
    return ", ".join(f"{gpus} in {name} parallelism" for name, gpus in parts if gpus > 1)


def _shares(shares: Iterable[Mapping[str, Any]]) -> str:
    first, *others = shares
    rest = "; ".join(f"{row['name']} {_percent(row)}" for row in others)
    return f"{_percent(first)} in the GEMMs above; in none of them: {rest}"


def _percent(row: Mapping[str, Any]) -> str:
    return f"{row['share']:.2%}" if row["flopsPerToken"] else "(no FLOPs)"


def _room_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What does not fit, by product, then the products where everything does."""
    rows = list(rows)
    lines = [f"{row['product']}: {row['message']}" for row in rows if not row["fits"]]
    fits = [row["product"] for row in rows if row["fits"]]
    return [*lines, f"one layer fits with all recipes at once on {', '.join(fits)}"] if fits else lines


def _table(resolved: ResolvedWorkload, answer: dict[str, Any], wide: bool) -> str:
    flops = [row["flops"] * row["count"] for row in answer["gemms"]]
    shares = ({"share": f"{part / sum(flops):.1%}"} for part in flops)
    gemms = [row | share for row, share in zip(answer["gemms"], shares, strict=True)] if wide else answer["gemms"]
    lines = [as_columns(gemms), "", f"workload          {resolved.name} ({resolved.hash})"]
    if resolved.parameters is not None and resolved.formula is not None:
        lines += [
            f"micro batch       {answer['microBatchSize']} x {answer['sequenceLength']} tokens",
            *([f"one GPU of        {_split(resolved.workload)}"] if _split(resolved.workload) else []),
            f"parameters        {_counted(resolved.parameters)}",
            f"training FLOPs    {resolved.training_flops_per_token:,} a token "
            f"({resolved.formula.name}, version {resolved.formula.version})",
            f"of these          {_shares(answer['flopShares'])}",
        ]
    lines += [f"room              {line}" for line in _room_lines(answer["room"])]
    lines += [f"note              {note}" for note in answer["notes"]]
    lines += [f"{row['severity']:<17} {row['recipe']}: {row['message']}" for row in answer["recipeProblems"]]
    return "\n".join(lines)
