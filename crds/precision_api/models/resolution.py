"""From a workload to everything that follows from it: model, GEMMs, parameters, FLOPs per token, and a hash."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from precision_api.models.flops import TRAINING_FLOPS, Formula, Parameters, parameters, training_flops_per_token
from precision_api.models.gemm_text import parse_shape
from precision_api.models.huggingface import model_from_config
from precision_api.models.model import ModelSpec
from precision_api.models.presets import PRESETS
from precision_api.models.shapes import Gemm, Split, explicit_gemms, model_gemms
from precision_api.models.workload import Workload


@dataclass(frozen=True, slots=True)
class ResolvedWorkload:
    """A workload worked out. With explicit shapes there is no model, and what needs one is None."""

    workload: Workload
    """The same workload with its model (or shapes), name and sizes written out: what travels to the agent."""
    name: str
    gemms: tuple[Gemm, ...]
    model: ModelSpec | None = None
    parameters: Parameters | None = None
    training_flops_per_token: int | None = None
    formula: Formula | None = None
    tokens_per_micro_batch: int | None = None
    """Of one tensor-parallel group: its GPUs share the tokens, so one GPU's rate is these / step / tensorParallel."""
    hash: str = ""
    """Sixteen hex digits over what is measured; the name is not in it."""


def resolve(workload: Workload) -> ResolvedWorkload:
    """Everything that follows from `workload`.

    Raises ValueError, fit for the user, for a Hugging Face config that is damaged or of an unknown architecture, for
    one that still lies in a ConfigMap (whoever can read the cluster puts its text in first), and for a parallelism that
    the model can't be divided by.
    """
    plain = concrete(workload)
    name = plain.name or ""
    if plain.shapes is not None:
        return ResolvedWorkload(plain, name, explicit_gemms(plain.shapes), hash=workload_hash(plain))
    model, batch, sequence = plain.model, plain.micro_batch_size, plain.sequence_length
    assert model is not None
    assert batch is not None
    assert sequence is not None
    return ResolvedWorkload(
        workload=plain,
        name=name,
        gemms=model_gemms(model, batch * sequence, Split(plain.tensor_parallel, plain.expert_parallel)),
        model=model,
        parameters=parameters(model),
        training_flops_per_token=training_flops_per_token(model, sequence),
        formula=TRAINING_FLOPS,
        tokens_per_micro_batch=batch * sequence,
        hash=workload_hash(plain),
    )


def concrete(workload: Workload) -> Workload:
    """`workload` with a preset or a Hugging Face config replaced by its model, gemms by shapes, name and sizes filled
    in."""
    if workload.gemms is not None:
        shapes = tuple(parse_shape(text) for text in workload.gemms)
        return workload.model_copy(update={"gemms": None, "shapes": shapes})
    if workload.preset is not None:
        row = PRESETS[workload.preset]
        sizes = {
            "name": workload.name or workload.preset,
            "micro_batch_size": workload.micro_batch_size or row.micro_batch_size,
            "sequence_length": workload.sequence_length or row.sequence_length,
        }
        return workload.model_copy(update={"preset": None, "model": row.model, **sizes})
    source = workload.hugging_face_config
    if source is None:
        return workload
    if source.text is None:
        raise ValueError(
            "huggingFaceConfig.configMapKeyRef can only be read in the cluster: give the text of the config.json"
        )
    return workload.model_copy(update={"hugging_face_config": None, "model": model_from_config(source.text)})


def workload_hash(workload: Workload) -> str:
    """Sixteen hex digits over what is measured: equal for a preset and the model it stands for, whatever the name."""
    plain = concrete(workload)
    content = plain.model_dump(
        mode="json", by_alias=True, exclude={"name", "model"}, exclude_none=True, exclude_defaults=True
    )
    if plain.model is not None:
        content["model"] = written_out(plain.model)
    if plain.shapes is not None:
        content["shapes"] = sorted((shape.m, shape.k, shape.n) for shape in plain.shapes)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def written_out(model: ModelSpec) -> dict[str, Any]:
    """The model as JSON to be hashed: values that are left out are written as what they mean.

    Fields that came later are left out where they have their default: hashes of models without them stay the same.
    """
    # Modules for multi-token prediction are not measured.
    content = model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"mtp"})
    content |= {"numKeyValueHeads": model.kv_heads, "headDim": model.head_width}
    if model.moe is not None:
        content["moe"]["expertIntermediateSize"] = model.expert_width
    for place, name in LATER_FIELDS:
        part = content.get(place, {}) if place else content
        if part.get(name) is False:
            del part[name]
    return content


LATER_FIELDS = (("", "attentionSinks"), ("moe", "routerBias"), ("moe", "expertBias"), ("slidingWindow", "chunked"))
