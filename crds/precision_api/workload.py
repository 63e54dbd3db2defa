"""The workload of a profile: a model, a preset, a Hugging Face config or explicit matrix shapes.

These models are `spec.workload` of the custom resource; the CEL rules beside them say the same as the validators.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from precision_api.schema import Document, patterned, rules

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
MAX_DIMENSION = 16_777_216
MAX_CONFIG_BYTES = 64 * 1024
_CONFIG_MAP_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_CONFIG_MAP_KEY = r"^[-._a-zA-Z0-9]+$"


def _strict(least: int, most: int) -> Any:
    # Strict: pydantic would else take true for 1 and "32" for 32, which the API server refuses.
    return Field(strict=True, ge=least, le=most)


Width = Annotated[int, _strict(1, 1_048_576)]
"""A width of a weight matrix. The widest in use (vocabularies apart) are below 10^5."""
Dimension = Annotated[int, _strict(1, MAX_DIMENSION)]
"""One dimension of an explicit GEMM."""
Vocabulary = Annotated[int, _strict(1, 4_194_304)]
Heads = Annotated[int, _strict(1, 8192)]
HeadWidth = Annotated[int, _strict(1, 16_384)]
Layers = Annotated[int, _strict(1, 2048)]
LayersOrNone = Annotated[int, _strict(0, 2048)]
Experts = Annotated[int, _strict(2, 8192)]
TopK = Annotated[int, _strict(1, 8192)]
WidthOrNone = Annotated[int, _strict(0, 1_048_576)]
MicroBatch = Annotated[int, _strict(1, 65_536)]
Sequence = Annotated[int, _strict(1, 16_777_216)]


class MoE(Document):
    """The mixture of experts of a model; layers that have none stay dense, with the model's intermediateSize."""

    model_config = rules(
        ("self.topK <= self.numExperts", "moe.topK must be at most moe.numExperts"),
        (
            "!(has(self.sharedExpertGate) && self.sharedExpertGate) || "
            "(has(self.sharedExpertIntermediateSize) && self.sharedExpertIntermediateSize > 0)",
            "moe.sharedExpertGate needs a shared expert: give moe.sharedExpertIntermediateSize",
        ),
    )

    num_experts: Experts = Field(description="Experts of one layer, without shared ones.")
    top_k: TopK = Field(description="Experts that one token is sent to.")
    expert_intermediate_size: Width | None = Field(
        None, description="Inner width of one expert; left out, the model's intermediateSize."
    )
    shared_expert_intermediate_size: WidthOrNone = Field(
        0, description="Inner width of the shared expert that every token passes through; 0 means there is none."
    )
    shared_expert_gate: StrictBool = Field(False, description="Whether the shared expert has a learned scalar gate.")
    dense_layers: LayersOrNone = Field(0, description="Layers that have one dense MLP in place of experts.")
    latent_size: Width | None = Field(
        None,
        description="Width that tokens are projected to before the routed experts and back from behind them; left out, "
        "experts take the model's hiddenSize. Router and shared expert always do.",
    )
    router_bias: StrictBool = Field(
        False, description="Whether the router has a number for each expert beside its matrix: a bias or a correction."
    )
    expert_bias: StrictBool = Field(False, description="Whether the experts' projections have biases (GPT-OSS).")

    @model_validator(mode="after")
    def _top_k_fits(self) -> Self:
        if self.top_k > self.num_experts:
            raise ValueError(f"moe.topK is {self.top_k} but moe.numExperts is {self.num_experts}: lower moe.topK")
        if self.shared_expert_gate and not self.shared_expert_intermediate_size:
            raise ValueError("moe.sharedExpertGate needs a shared expert: give moe.sharedExpertIntermediateSize")
        return self


class SlidingWindow(Document):
    """Layers whose attention looks back over a limited number of tokens."""

    size: Sequence = Field(description="Tokens that one token attends to, itself included.")
    windowed_layers: Layers = Field(description="Layers that have the window; the others attend to everything.")
    chunked: StrictBool = Field(
        False, description="Whether the sequence is cut into chunks of this size that don't see each other (Llama 4)."
    )


class LatentAttention(Document):
    """Multi-head latent attention (MLA, DeepSeek-V2, arXiv 2405.04434): queries, keys and values through narrow ranks.

    A head's query and key are as wide as `headDim` of the model: the part without rotary positions and `ropeHeadDim`.
    """

    query_rank: Width | None = Field(
        None, description="Rank of the queries; left out, they are projected from the residual stream at once."
    )
    key_value_rank: Width = Field(description="Rank that keys and values share.")
    rope_head_dim: HeadWidth = Field(description="Part of headDim with rotary positions; one such key for all heads.")
    value_head_dim: HeadWidth = Field(description="Width of a head's values.")


class Hybrid(Document):
    """A model whose layers are one block each: a Mamba-2 mixer, attention, or an MLP or experts (Nemotron-H).

    Layers that are neither mixers nor attention have experts where the model has `moe`, but for `moe.denseLayers`.
    """

    mamba_layers: Layers = Field(description="Layers that are a Mamba-2 mixer.")
    attention_layers: LayersOrNone = Field(description="Layers that are attention.")
    mamba_heads: Heads = Field(description="Heads of a mixer.")
    mamba_head_dim: HeadWidth = Field(description="Width of one of them.")
    groups: Heads = Field(description="Groups of heads that share their B and C.")
    state_size: Width = Field(description="Numbers in the state of each feature of a head.")
    conv_kernel: Annotated[int, _strict(1, 64)] = Field(4, description="Tokens that the convolution looks back over.")

    @property
    def inner_width(self) -> int:
        """Features of the mixer: heads x width."""
        return self.mamba_heads * self.mamba_head_dim

    @property
    def convolved_width(self) -> int:
        """Features that are convolved: the mixer's own, and B and C of each group."""
        return self.inner_width + 2 * self.groups * self.state_size


class MultiTokenPrediction(Document):
    """Modules that predict the tokens after the next one (DeepSeek-V3, arXiv 2412.19437; Nemotron 3 Super).

    Each has one more layer, a projection from twice hiddenSize, three norms, and shares embedding and head.
    """

    modules: Annotated[int, _strict(1, 16)] = Field(description="Modules, each with weights of its own.")
    pattern: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[M*E-]+$")] | None = Field(
        None,
        description="Layers of one module of a hybrid model: M for Mamba-2, * for attention, - for an MLP, E for "
        "experts. Left out, a module has one layer like the model's last one.",
    )


class ModelSpec(Document):
    """A decoder or encoder transformer, as far as its matrix shapes, parameters and FLOPs need it.

    The defaults describe the plain transformer of NVIDIA's GEMM profiling tutorial: no gate, no biases, two RMS norms a
    layer. Everything below `vocabSize` exists so that parameter counts agree with model cards exactly.
    """

    model_config = rules(
        (
            "has(self.headDim) || self.hiddenSize % self.numAttentionHeads == 0",
            "hiddenSize must be a multiple of numAttentionHeads; if heads are narrower or wider, give headDim",
        ),
        (
            "!has(self.numKeyValueHeads) || self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numAttentionHeads must be a multiple of numKeyValueHeads",
        ),
        (
            "!has(self.moe) || !has(self.moe.denseLayers) || self.moe.denseLayers < self.numHiddenLayers",
            "moe.denseLayers must be less than numHiddenLayers; for a model without experts leave moe out",
        ),
        (
            "!has(self.slidingWindow) || self.slidingWindow.windowedLayers <= self.numHiddenLayers",
            "slidingWindow.windowedLayers must be at most numHiddenLayers",
        ),
        (
            "!has(self.slidingWindow) || !has(self.causal) || self.causal",
            "slidingWindow is only known with causal attention: leave one of the two out",
        ),
        (
            "!(has(self.tiedEmbedding) && self.tiedEmbedding) || has(self.vocabSize)",
            "tiedEmbedding needs vocabSize",
        ),
        (
            "!has(self.hybrid) || self.hybrid.mambaLayers + self.hybrid.attentionLayers <= self.numHiddenLayers",
            "hybrid.mambaLayers and hybrid.attentionLayers together must be at most numHiddenLayers",
        ),
        (
            "!has(self.hybrid) || self.hybrid.mambaHeads % self.hybrid.groups == 0",
            "hybrid.mambaHeads must be a multiple of hybrid.groups",
        ),
        (
            "!has(self.hybrid) || !(has(self.slidingWindow) || has(self.latentAttention))",
            "hybrid models are known with plain attention alone: leave slidingWindow and latentAttention out",
        ),
        (
            "!has(self.latentAttention) || (has(self.headDim) && self.headDim > self.latentAttention.ropeHeadDim)",
            "latentAttention needs headDim: a head's width without rotary positions plus latentAttention.ropeHeadDim",
        ),
        (
            "!has(self.latentAttention) || !has(self.numKeyValueHeads) || "
            "self.numKeyValueHeads == self.numAttentionHeads",
            "latentAttention gives each query head a key and a value of its own: leave numKeyValueHeads out",
        ),
        (
            "!has(self.latentAttention) || (!(has(self.qkvBias) && self.qkvBias) && "
            "(!has(self.qkNorm) || self.qkNorm == 'None'))",
            "latentAttention has norms of its ranks and no biases: leave qkvBias and qkNorm out",
        ),
        (
            "!has(self.mtp) || has(self.mtp.pattern) == has(self.hybrid)",
            "mtp.pattern belongs to hybrid models, and only to them",
        ),
        (
            "!has(self.mtp) || !has(self.mtp.pattern) || !self.mtp.pattern.contains('E') || has(self.moe)",
            "mtp.pattern names experts (E), but the model has none: give moe",
        ),
    )

    hidden_size: Width = Field(description="Width of the residual stream (H).")
    intermediate_size: Width = Field(description="Inner width of the MLP (I), without the doubling of a gate.")
    num_attention_heads: Heads = Field(description="Query heads.")
    num_key_value_heads: Heads | None = Field(
        None, description="Key and value heads; left out, as many as query heads (no grouped-query attention)."
    )
    head_dim: HeadWidth | None = Field(
        None, description="Width of one head; left out, hiddenSize / numAttentionHeads, which must then divide."
    )
    num_hidden_layers: Layers = Field(description="Transformer layers (L).")
    vocab_size: Vocabulary | None = Field(
        None,
        description="Rows of the embedding (V). Left out, there is no lm_head GEMM and parameters are counted without "
        "embedding and head.",
    )
    gated_mlp: StrictBool = Field(
        False,
        alias="gatedMLP",
        description="Whether the MLP is gated (SwiGLU, GeGLU): its first GEMM is twice as wide.",
    )
    moe: MoE | None = Field(None, description="Mixture of experts; left out, every layer has one dense MLP.")
    hybrid: Hybrid | None = Field(
        None, description="Layers of one block each, Mamba-2 among them; left out, each layer is attention and MLP."
    )
    latent_attention: LatentAttention | None = Field(
        None, description="Multi-head latent attention (MLA); left out, one projection makes query, key and value."
    )
    attention_sinks: StrictBool = Field(
        False, description="Whether each head has a learned sink that takes a part of its attention (GPT-OSS)."
    )
    sliding_window: SlidingWindow | None = Field(
        None, description="Layers with windowed attention; left out, every layer attends to the whole sequence."
    )
    causal: StrictBool = Field(
        True, description="Whether attention is causal; without a causal mask it costs twice as much."
    )
    tied_embedding: StrictBool = Field(False, description="Whether the head shares the embedding's weights.")
    qkv_bias: StrictBool = Field(False, description="Whether query, key and value projections have biases.")
    out_bias: StrictBool = Field(False, description="Whether the attention's output projection has a bias.")
    mlp_bias: StrictBool = Field(False, description="Whether the dense MLP's projections have biases.")
    qk_norm: Literal["None", "PerHead", "Full"] = Field(
        "None",
        description="Norms of query and key: None, PerHead (headDim weights each, as Qwen3) or Full (a weight for each "
        "projected feature, as OLMo 2).",
    )
    norms_per_layer: Annotated[int, _strict(0, 8)] = Field(
        2, description="Norms of width hiddenSize in one layer (Gemma 2 has 4)."
    )
    norm_bias: StrictBool = Field(False, description="Whether norms have a bias (LayerNorm) or none (RMSNorm).")
    learned_positions: Annotated[int, _strict(0, 16_777_216)] = Field(
        0, description="Rows of a learned position table (GPT-2); 0 where positions are computed."
    )
    mtp: MultiTokenPrediction | None = Field(
        None,
        description="Modules for multi-token prediction. They are counted apart: parameters, FLOPs per token and the "
        "measured GEMMs are those of the model without them.",
    )

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        for problem in _model_problems(self):
            raise ValueError(problem)
        return self

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def query_width(self) -> int:
        """heads x headDim, which is not always hiddenSize: what the scores sum over."""
        return self.num_attention_heads * self.head_width

    @property
    def attention_width(self) -> int:
        """heads x width of a head's value: what attention gives to its output projection."""
        latent = self.latent_attention
        return self.num_attention_heads * (latent.value_head_dim if latent else self.head_width)

    @property
    def no_training_step(self) -> str | None:
        """The field whose part no backend has in a training step yet; None where all parts are there.

        The GEMMs of such a model are measured; there is no training figure.
        """
        window = self.sliding_window
        parts = {
            "hybrid": self.hybrid is not None,
            "slidingWindow.chunked": window is not None and window.chunked,
        }
        return next((name for name, there in parts.items() if there), None)

    @property
    def step_parts(self) -> tuple[str, ...]:
        """The fields whose parts a training step needs beside those of a dense transformer layer."""
        moe = self.moe
        parts = {
            "moe": moe is not None,
            "moe.expertBias": moe is not None and moe.expert_bias,
            "latentAttention": self.latent_attention is not None,
            "attentionSinks": self.attention_sinks,
        }
        return tuple(name for name, there in parts.items() if there)

    @property
    def attention_layers(self) -> int:
        """Layers that have attention."""
        return self.hybrid.attention_layers if self.hybrid else self.num_hidden_layers

    @property
    def mamba_layers(self) -> int:
        """Layers that are a Mamba-2 mixer."""
        return self.hybrid.mamba_layers if self.hybrid else 0

    @property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return self._mlp_layers - self.moe.dense_layers if self.moe else 0

    @property
    def dense_layers(self) -> int:
        """Layers that have one dense MLP."""
        return self._mlp_layers - self.moe_layers

    @property
    def _mlp_layers(self) -> int:
        """Layers that have an MLP or experts."""
        mixers = self.hybrid.mamba_layers + self.hybrid.attention_layers if self.hybrid else 0
        return self.num_hidden_layers - mixers

    @property
    def expert_input_width(self) -> int:
        """Features of a token that a routed expert takes."""
        return (self.moe.latent_size if self.moe else None) or self.hidden_size

    @property
    def expert_width(self) -> int:
        """Inner width of one expert."""
        return (self.moe.expert_intermediate_size if self.moe else None) or self.intermediate_size


def _model_problems(model: ModelSpec) -> list[str]:
    hidden, heads, layers = model.hidden_size, model.num_attention_heads, model.num_hidden_layers
    window, latent, hybrid, mtp = model.sliding_window, model.latent_attention, model.hybrid, model.mtp
    checks = (
        (
            hybrid is not None and hybrid.mamba_layers + hybrid.attention_layers > layers,
            f"hybrid.mambaLayers and hybrid.attentionLayers together must be at most numHiddenLayers {layers}",
        ),
        (
            hybrid is not None and hybrid.mamba_heads % hybrid.groups != 0,
            "hybrid.mambaHeads must be a multiple of hybrid.groups",
        ),
        (
            hybrid is not None and (window is not None or latent is not None),
            "hybrid models are known with plain attention alone: leave slidingWindow and latentAttention out",
        ),
        (
            model.head_dim is None and hidden % heads != 0,
            f"hiddenSize {hidden} is not a multiple of numAttentionHeads {heads}: correct one of them or give headDim",
        ),
        (
            heads % model.kv_heads != 0,
            f"numAttentionHeads {heads} is not a multiple of numKeyValueHeads {model.kv_heads}: correct one of them",
        ),
        (
            model.moe is not None and model.moe_layers < 1,
            f"moe.denseLayers must be less than numHiddenLayers {layers}; for a model without experts leave moe out",
        ),
        (
            window is not None and window.windowed_layers > layers,
            f"slidingWindow.windowedLayers must be at most numHiddenLayers {layers}",
        ),
        (
            window is not None and not model.causal,
            "slidingWindow is only known with causal attention: leave slidingWindow out or set causal to true",
        ),
        (model.tied_embedding and model.vocab_size is None, "tiedEmbedding needs vocabSize: give it"),
        (
            latent is not None and (model.head_dim is None or latent.rope_head_dim >= model.head_dim),
            "latentAttention needs headDim: a head's width without rotary positions plus latentAttention.ropeHeadDim",
        ),
        (
            latent is not None and model.kv_heads != heads,
            "latentAttention gives each query head a key and a value of its own: leave numKeyValueHeads out",
        ),
        (
            latent is not None and (model.qkv_bias or model.qk_norm != "None"),
            "latentAttention has norms of its ranks and no biases: leave qkvBias and qkNorm out",
        ),
        (
            mtp is not None and (mtp.pattern is not None) != (hybrid is not None),
            "mtp.pattern belongs to hybrid models, and only to them: give both hybrid and mtp.pattern, or neither",
        ),
        (
            mtp is not None and "E" in (mtp.pattern or "") and model.moe is None,
            "mtp.pattern names experts (E), but the model has none: give moe",
        ),
    )
    return [message for wrong, message in checks if wrong]


class Shape(Document):
    """One explicit forward GEMM: (m x k) times (k x n)."""

    m: Dimension = Field(description="Rows of the input: tokens.")
    k: Dimension = Field(description="Columns of the input: the width that is summed over.")
    n: Dimension = Field(description="Columns of the output.")


_SHAPE_TEXT = re.compile(r"([0-9]{1,9})[xX]([0-9]{1,9})[xX]([0-9]{1,9})")


def parse_shape(text: str) -> Shape:
    """The shape that `text`, MxKxN, names (15872x4096x12288). ValueError says what is wrong with any other text."""
    found = _SHAPE_TEXT.fullmatch(text.strip())
    if not found:
        raise ValueError(f"shape {text!r}: write MxKxN with whole numbers, for example 15872x4096x12288")
    m, k, n = (int(part) for part in found.groups())
    for name, size in (("M", m), ("K", k), ("N", n)):
        if not 1 <= size <= MAX_DIMENSION:
            raise ValueError(f"shape {text!r}: {name} is {size}, but must be from 1 to {MAX_DIMENSION}")
    return Shape(m=m, k=k, n=n)


def _readable_gemm(text: object) -> object:
    # Before the pattern, whose message says nothing of M, K and N.
    if isinstance(text, str):
        parse_shape(text)
    return text


GemmText = Annotated[
    str,
    patterned(
        r"^[0-9]{1,9}[xX][0-9]{1,9}[xX][0-9]{1,9}$",
        29,
        "write each GEMM as MxKxN with whole numbers, for example 15872x4096x12288",
    ),
    BeforeValidator(_readable_gemm),
]
"""A forward GEMM as text."""


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

    model_config = rules(
        ("has(self.text) != has(self.configMapKeyRef)", "give exactly one of text and configMapKeyRef"),
    )

    text: Annotated[str, Field(min_length=2, max_length=MAX_CONFIG_BYTES)] | None = Field(
        None, description="The text of the config.json itself, at most 64 KiB."
    )
    config_map_key_ref: ConfigMapKey | None = Field(
        None, description="Where the text of the config.json is kept; the operator reads it."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.text is None) == (self.config_map_key_ref is None):
            raise ValueError("huggingFaceConfig: give exactly one of text and configMapKeyRef")
        return self


STEP_SETTINGS = ("tensor_parallel", "expert_parallel", "gradient_accumulation", "optimizer_shards", "recompute")
"""Fields of a workload that say how a step is split over GPUs and repeated."""
_SOURCES = ("model", "preset", "huggingFaceConfig", "shapes", "gemms")
_LITERAL = (["shapes"], ["gemms"])
"""Sources that are taken as they are: without sizes and without a split."""


class Workload(Document):
    """What is measured: exactly one of model, preset, huggingFaceConfig, gemms and shapes, and how much in one step."""

    model_config = rules(
        (
            "[has(self.model), has(self.preset), has(self.huggingFaceConfig), has(self.shapes), has(self.gemms)]"
            ".filter(given, given).size() == 1",
            "give exactly one of model, preset, huggingFaceConfig, gemms and shapes",
        ),
        ("has(self.name) || has(self.preset)", "name is required unless a preset is used"),
        (
            "has(self.preset) || has(self.shapes) || has(self.gemms) || "
            "(has(self.microBatchSize) && has(self.sequenceLength))",
            "microBatchSize and sequenceLength are required with model and huggingFaceConfig",
        ),
        (
            "!(has(self.shapes) || has(self.gemms)) || (!has(self.microBatchSize) && !has(self.sequenceLength))",
            "microBatchSize and sequenceLength mean nothing with gemms or shapes: leave them out",
        ),
        (
            "!(has(self.shapes) || has(self.gemms)) || ((!has(self.tensorParallel) || self.tensorParallel == 1) && "
            "(!has(self.expertParallel) || self.expertParallel == 1))",
            "gemms and shapes are taken literally: leave tensorParallel and expertParallel out and give the GEMMs of "
            "one GPU, or describe the model instead",
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
    tensor_parallel: Annotated[int, _strict(1, 64)] = Field(
        1, description="GPUs that share each layer's matrices; one GPU's share is measured, without communication."
    )
    expert_parallel: Annotated[int, _strict(1, 1024)] = Field(
        1, description="GPUs that the experts of a layer are spread over; one GPU's share is measured."
    )
    gradient_accumulation: Annotated[int, _strict(1, 4096)] = Field(
        8, description="Micro batches in one optimizer step: weights are quantised and updated once for all of them."
    )
    optimizer_shards: Annotated[int, _strict(1, 65_536)] = Field(
        1, description="GPUs that the optimizer's state is spread over; one GPU's share of the step is counted."
    )
    recompute: Literal["None", "Full"] = Field(
        "None", description="Full: activations are computed again in the backward pass, a third forward pass more."
    )

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        for problem in _workload_problems(self):
            raise ValueError(problem)
        return self


def _workload_problems(workload: Workload) -> list[str]:
    values = (workload.model, workload.preset, workload.hugging_face_config, workload.shapes, workload.gemms)
    given = [name for name, value in zip(_SOURCES, values, strict=True) if value is not None]
    sizes = {"microBatchSize": workload.micro_batch_size, "sequenceLength": workload.sequence_length}
    missing = " and ".join(name for name, value in sizes.items() if value is None)
    present = " and ".join(name for name, value in sizes.items() if value is not None)
    parts = {"tensorParallel": workload.tensor_parallel, "expertParallel": workload.expert_parallel}
    split = " and ".join(name for name, gpus in parts.items() if gpus > 1)
    checks = (
        (
            len(given) != 1,
            "workload: give exactly one of model, preset, huggingFaceConfig, gemms and shapes; "
            f"{' and '.join(given) + ' are given' if given else 'none is given'}",
        ),
        (workload.name is None and workload.preset is None, "workload.name is required unless a preset is used"),
        (
            bool(missing) and given[:1] in (["model"], ["huggingFaceConfig"]),
            f"workload.{missing} missing: needed with {' '.join(given)} (tokens in a micro batch = the two multiplied)",
        ),
        (
            bool(present) and given[:1] in _LITERAL,
            f"workload.{present} means nothing with {given[:1][0] if given else 'shapes'}, whose m is the number of "
            "tokens: leave it out",
        ),
        (
            bool(split) and given[:1] in _LITERAL,
            f"workload.{split} means nothing with {given[:1][0] if given else 'shapes'}, which are taken literally: "
            "leave it out and give the GEMMs of one GPU, or describe the model instead",
        ),
    )
    return [message for wrong, message in checks if wrong]
