"""The workload of a profile: a model, a preset, a Hugging Face config or explicit matrix shapes.

These models are `spec.workload` of the custom resource.
"""

from typing import Annotated, Literal

from pydantic import Field

from precision_api.facts.schema import Document, Rule
from precision_api.models.gemm_text import GemmText, Shape
from precision_api.models.model import ModelSpec
from precision_api.models.model_parts import Sequence, strict

PresetName = Literal[
    "codonfm-5b",
    "llama3-8b",
    "llama3.1-70b",
    "llama3.1-405b",
    "mistral-7b",
    "mixtral-8x7b",
    "qwen2.5-7b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "gemma2-9b",
    "gpt-oss-120b",
    "kimi-k2",
    "llama4-scout",
    "nemotron-3-nano-30b-a3b",
    "nemotron-h-56b",
    "qwen3-coder-480b-a35b",
]
MAX_SHAPES = 64
MAX_CONFIG_BYTES = 64 * 1024
_CONFIG_MAP_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_CONFIG_MAP_KEY = r"^[-._a-zA-Z0-9]+$"
MicroBatch = Annotated[int, strict(1, 65_536)]


class ConfigMapKey(Document):
    """A key of a ConfigMap in the profile's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=_CONFIG_MAP_NAME)] = Field(
        description="Name of the ConfigMap."
    )
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=_CONFIG_MAP_KEY)] = Field(
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
    micro_batch_size: MicroBatch | None = Field(
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
