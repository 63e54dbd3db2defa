"""The workload of a profile: a model, a preset, a Hugging Face config or explicit matrix shapes.

These models are `spec.workload` of the custom resource. And all that follows from a workload: model, GEMMs, parameters,
FLOPs per token, and a hash.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from precision_api.facts.schema import Document, Rule
from precision_api.models.config_json import MAX_CONFIG_BYTES
from precision_api.models.flops import TRAINING_FLOPS, Formula, Parameters, parameters, training_flops_per_token
from precision_api.models.huggingface import model_from_config
from precision_api.models.model import ModelSpec, Sequence, strict
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.shapes import Gemm, GemmText, Shape, Split, explicit_gemms, model_gemms, parse_shape

MAX_SHAPES = 64


class ConfigMapKey(Document):
    """A key of a ConfigMap in the profile's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = Field(
        description="Name of the ConfigMap."
    )
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        description="Key whose value is the text of a config.json."
    )


class HuggingFaceConfig(Document):
    """A Hugging Face config.json, as text or from a ConfigMap."""

    RULES = (
        Rule(
            "has(self.text) != has(self.configMapKeyRef)",
            "give exactly one of text and configMapKeyRef",
            lambda config: (config.text is None) != (config.config_map_key_ref is None),
        ),
    )

    text: Annotated[str, Field(min_length=2, max_length=MAX_CONFIG_BYTES)] | None = Field(
        None, description="The text of the config.json itself, at most 64 KiB."
    )
    config_map_key_ref: ConfigMapKey | None = Field(
        None, description="Where the text of the config.json is kept; the operator reads it."
    )


class Workload(Document):
    """What is measured: exactly one of model, preset, huggingFaceConfig, gemms and shapes, and how much in one step."""

    RULES = (
        Rule(
            "[has(self.model), has(self.preset), has(self.huggingFaceConfig), has(self.shapes), has(self.gemms)]"
            ".filter(given, given).size() == 1",
            "give exactly one of model, preset, huggingFaceConfig, gemms and shapes",
            lambda w: [w.model, w.preset, w.hugging_face_config, w.shapes, w.gemms].count(None) == 4,
        ),
        Rule(
            "has(self.name) || has(self.preset)",
            "name is required unless a preset is used",
            lambda w: w.name is not None or w.preset is not None,
        ),
        Rule(
            "has(self.preset) || has(self.shapes) || has(self.gemms) || "
            "(has(self.microBatchSize) && has(self.sequenceLength))",
            "microBatchSize and sequenceLength are required with model and huggingFaceConfig",
            lambda w: bool(w.preset or w.literal) or None not in (w.micro_batch_size, w.sequence_length),
        ),
        Rule(
            "!(has(self.shapes) || has(self.gemms)) || (!has(self.microBatchSize) && !has(self.sequenceLength))",
            "microBatchSize and sequenceLength mean nothing with gemms or shapes: leave them out",
            lambda w: not w.literal or w.micro_batch_size is w.sequence_length is None,
        ),
        Rule(
            "!(has(self.shapes) || has(self.gemms)) || ((!has(self.tensorParallel) || self.tensorParallel == 1) && "
            "(!has(self.expertParallel) || self.expertParallel == 1))",
            "gemms and shapes are taken literally: leave tensorParallel and expertParallel out and give the GEMMs of "
            "one GPU, or describe the model instead",
            lambda w: not w.literal or w.tensor_parallel == w.expert_parallel == 1,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        None, description="What the workload is called in results; left out, the name of the preset."
    )
    model: ModelSpec | None = Field(None, description="The model by its dimensions.")
    preset: PresetName | None = Field(None, description="A model that is known by name.")
    hugging_face_config: HuggingFaceConfig | None = Field(
        None, description="The model by its Hugging Face config.json; an architecture that is not known is refused."
    )
    shapes: Annotated[tuple[Shape, ...], Field(min_length=1, max_length=MAX_SHAPES)] | None = Field(
        None,
        description="Forward GEMMs taken literally, each as m, k and n; their dgrad and wgrad are derived. The same as "
        "gemms in another spelling.",
    )
    gemms: Annotated[tuple[GemmText, ...], Field(min_length=1, max_length=MAX_SHAPES)] | None = Field(
        None,
        description="Forward GEMMs taken literally, each as MxKxN: (M x K) times (K x N), M tokens, K input features, "
        "N output features, for example 15872x4096x12288. Their dgrad and wgrad are derived.",
    )
    micro_batch_size: Annotated[int, strict(1, 65_536)] | None = Field(
        None, description="Sequences in one micro batch of one GPU; left out, the preset's own."
    )
    sequence_length: Sequence | None = Field(None, description="Tokens in a sequence; left out, the preset's own.")
    tensor_parallel: Annotated[int, strict(1, 64)] = Field(
        1, description="GPUs that share each layer's matrices; one GPU's share is measured, without communication."
    )
    expert_parallel: Annotated[int, strict(1, 1024)] = Field(
        1, description="GPUs that the experts of a layer are spread over; one GPU's share is measured."
    )
    gradient_accumulation: Annotated[int, strict(1, 4096)] = Field(
        8, description="Micro batches in one optimizer step: weights are quantised and updated once for all of them."
    )
    optimizer_shards: Annotated[int, strict(1, 65_536)] = Field(
        1,
        description="GPUs that the optimizer's state is spread over: the data-parallel GPUs of the dense part. That "
        "of experts is spread over optimizerShards / expertParallel of them. One GPU's share of the step is counted.",
    )
    recompute: Literal["None", "Full"] = Field(
        "None", description="Full: activations are computed again in the backward pass, a third forward pass more."
    )

    @property
    def literal(self) -> bool:
        """Whether GEMMs are taken as they are: without sizes and without a split."""
        return self.shapes is not None or self.gemms is not None


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
